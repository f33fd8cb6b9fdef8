//! `pillion exporter`: the metrics of all daemons of this machine, for Prometheus. There is one
//! scrape target per node. The daemons communicate only over their Unix sockets; this process asks
//! each for its status at every scrape, keeps only what labels need, and can be restarted at any
//! time. `docs/monitoring.md` lists the metrics.

mod collect;
mod encode;
mod metrics;
mod page;
mod pod;
mod serve;

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use collect::Collector;
use encode::Format;

use crate::failure::Failure;
use crate::out;

/// Serves the metrics of all daemons of this machine to Prometheus.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion exporter --listen 127.0.0.1:10401\n         \
                  pillion exporter --textfile /var/lib/prometheus/node-exporter/pillion.prom\n\n\
                  The metrics are at /metrics, in OpenMetrics 1.0 for clients that request it, else in the text format 0.0.4. Every client that \
                  reaches the address sees all that the exporter's user may see: as root, the jobs of all users, by name. \
                  docs/monitoring.md lists every metric, and has a dashboard and alerts.\n\n\
                  A daemon that does not answer within three seconds has pillion_daemon_up 0; the page is served anyway. On SIGTERM and \
                  SIGINT the exporter exits with 0. Exit 1 if it cannot listen."
)]
pub(crate) struct Options {
    /// Address to listen at, as HOST:PORT; port 0 is any free port.
    #[arg(long, value_name = "ADDR", default_value = ADDRESS)]
    listen: String,
    /// Write one page to this file, whole or not at all, for node_exporter's textfile collector
    /// (which reads *.prom), and exit; `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    textfile: Option<PathBuf>,
}

/// Prometheus' list of exporters' ports is full from 9100 to 9999; programs that look for a second
/// dcgm-exporter try the ports after 9400.
const ADDRESS: &str = "127.0.0.1:10401";
/// Another user reads the page's file.
const FILE_MODE: u32 = 0o644;

/// Exits 2 if the address or the file cannot be used, 1 if listening fails otherwise.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let collector = Collector::default();
    match &options.textfile {
        None => listen(&options.listen, collector),
        Some(file) if file == Path::new("-") => out::text(&collector.page(Format::Text)),
        Some(file) => write(file, &collector.page(Format::Text)),
    }
}

fn listen(address: &str, collector: Collector) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).map_err(|error| {
        let is_none = error.raw_os_error().is_none();
        let error = anyhow::Error::new(error).context(format!("--listen {address}"));
        match is_none {
            // This error is not the kernel's: the text is no address.
            true => Failure::usage(error.context("expected HOST:PORT, such as 127.0.0.1:10401")),
            false => error.into(),
        }
    })?;
    let bound = listener
        .local_addr()
        .context("cannot read the address in use")?;
    out::line(format_args!("listening on http://{bound}/metrics"))?;
    serve::serve(&listener, move |format| collector.page(format))
        .with_context(|| format!("cannot serve {address} any longer"))?;
    Ok(())
}

/// Replaces the file: a reader sees the previous page or this one. A pipe or a device stays one.
fn write(file: &Path, page: &str) -> Result<(), Failure> {
    let unwritten = |error: io::Error| {
        let is_of_place = out::is_of_place(&error);
        let error = anyhow::Error::new(out::bare(error));
        let error = error.context(format!("--textfile {}: cannot be written", file.display()));
        match is_of_place {
            true => Failure::usage(error),
            false => error.into(),
        }
    };
    match fs::metadata(file) {
        // This also refuses a folder.
        Ok(found) if !found.is_file() => fs::write(file, page),
        // Replace the target, not a link to it: /dev/stdout may be one.
        _ => match fs::canonicalize(file) {
            Ok(linked) => replace(&linked, page),
            Err(_) => replace(file, page),
        },
    }
    .map_err(unwritten)
}

fn replace(file: &Path, page: &str) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mode = || Permissions::from_mode(FILE_MODE);
    // node_exporter does not read files with this name.
    let mut partial = tempfile::Builder::new()
        .prefix(".pillion-")
        .suffix(".partial")
        .permissions(mode())
        .tempfile_in(folder)?;
    partial.write_all(page.as_bytes())?;
    // Independent of the umask.
    partial.as_file().set_permissions(mode())?;
    partial.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_and_for_everybody_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pillion.prom");
        for page in ["one\n", "two\n"] {
            write(&file, page).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), page);
        }
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        for place in [folder.path().join("none").join("pillion.prom"), taken] {
            let failure = write(&place, "page").unwrap_err();
            let shown = format!("{failure:?}");
            assert!(shown.starts_with("Failure { code: 2,"), "{shown}");
            let why = failure.why();
            let place = format!("--textfile {}: cannot be written", place.display());
            assert!(why.starts_with(&place), "{why}");
            assert_eq!(
                why.matches('/').count(),
                place.matches('/').count(),
                "{why}"
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_pipe_a_device_or_a_link_is_written_to_and_stays_one() {
        use std::os::unix::fs::FileTypeExt as _;

        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = {
            let pipe = pipe.clone();
            std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
        };
        write(&pipe, "page\n").unwrap();
        assert_eq!(reader.join().unwrap(), "page\n");
        assert!(pipe.metadata().unwrap().file_type().is_fifo());
        let (link, linked) = (folder.path().join("link"), folder.path().join("linked"));
        fs::write(&linked, "").unwrap();
        std::os::unix::fs::symlink(&linked, &link).unwrap();
        write(&link, "page\n").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&linked).unwrap(), "page\n");
        write(Path::new("/dev/null"), "page\n").unwrap();
        let null = Path::new("/dev/null").metadata().unwrap();
        assert!(null.file_type().is_char_device());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}

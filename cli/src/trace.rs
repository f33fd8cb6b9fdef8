//! `pillion trace`: records all jobs of a GPU for some seconds, as a timeline for Perfetto. The
//! daemon takes the trace and delivers it as a whole ([`protocol::trace`]); this command decides
//! what is drawn ([`mod@timeline`]). The first SIGINT or SIGTERM ends the trace early, a second the
//! command.

mod document;
mod timeline;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use clap::Args;
use protocol::clock::Clock;
use protocol::hello::{HelloError, Reply, Request, connect_within, peer_version, receive, send};
use protocol::{VERSION, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::daemons::{self, PATIENCE};
use crate::drain;
use crate::failure::Failure;
use crate::out;
use crate::profile::output;
use document::Document;
use timeline::{Counts, timeline};

/// Takes a trace of a GPU's jobs while they run: launches, copies, requests, leases and waits.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion trace --seconds 5 -o t.json\n\n\
                  Open the file at https://ui.perfetto.dev or in chrome://tracing. Jobs need no preparation: they record more details \
                  only during a trace. Root and the daemon's user see all jobs, other users their own jobs. The file stays below 50 MB: \
                  the end of a trace with more than about 400 000 launches is left out. Ctrl-C ends the trace early and writes the file.\n\n\
                  Kernels are drawn with their expected durations, one after the other in their stream; docs/operating.md lists the \
                  measured and the expected times.")]
pub(crate) struct Options {
    /// Length of the trace, in seconds: 0.1 to 60.
    #[arg(long, value_name = "N", default_value = "5", value_parser = length_of)]
    seconds: Length,
    /// The GPU: index, UUID or UUID prefix, or PCI bus id (default: the only one that has a
    /// daemon).
    #[arg(long, value_name = "G")]
    gpu: Option<String>,
    /// The file to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print the summary as JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// The length of a trace, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Length(u64);

fn length_of(text: &str) -> Result<Length, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.1..=60.0).contains(seconds));
    let ns = seconds.map(|seconds| Length((seconds * 1e9) as u64));
    ns.ok_or_else(|| "expected seconds from 0.1 to 60, such as 5 or 0.5".to_owned())
}

/// Since this minor version daemons take traces.
const TRACE_MINOR: u16 = 9;

/// Timeout for the daemon to deliver the trace after its end, ns.
const HAND_OVER_NS: u64 = 10_000_000_000;

/// Limit on the file, bytes: browsers show longer ones slowly.
const FILE_BYTES_MAX: usize = 50_000_000;

/// Poll interval for signals.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

const SCHEMA_VERSION: u32 = 1;

/// Exits 69 if no daemon answers; 1 if it refuses or ends first; 2 if the file cannot be written.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let is_file = options.output != Path::new("-");
    if options.json && !is_file {
        return Err(Failure::usage(anyhow!(
            "--json and -o - both use standard output; name a file"
        )));
    }
    if is_file {
        // Checked before the seconds of the trace.
        output::check(&options.output)?;
    }
    let socket = socket(options)?;
    let Some(document) = take(&socket, options)? else {
        return Err(anyhow!(
            "{}: the daemon ended before the trace did",
            socket.display()
        )
        .into());
    };
    let mut document = Document::parse(&document)
        .with_context(|| format!("cannot read the trace of {}", socket.display()))?;
    let (text, counts) = fitting(&mut document);
    output::write(&text, Some(&options.output))?;
    say(options, &document, &counts, text.len())
}

/// The timeline, cut at the end if it would exceed [`FILE_BYTES_MAX`].
fn fitting(document: &mut Document) -> (String, Counts) {
    loop {
        let (text, counts) = timeline(document);
        if text.len() <= FILE_BYTES_MAX || document.entries.is_empty() {
            return (text, counts);
        }
        // A margin, as entries differ in length.
        document.shorten(0.97 * FILE_BYTES_MAX as f64 / text.len() as f64);
    }
}

fn socket(options: &Options) -> Result<PathBuf, Failure> {
    let mut sockets = daemons::sockets();
    if let Some(name) = &options.gpu {
        return drain::the_one(&sockets, name);
    }
    let mut silent = Vec::new();
    if sockets.len() > 1 {
        sockets.retain(|socket| match connect_within(socket, PATIENCE) {
            Ok(_) => true,
            Err(error) => {
                silent.push(format!("{}: {error}", socket.display()));
                false
            }
        });
    }
    match &*sockets {
        [] => Err(daemons::none_answers(&silent)),
        [one] => Ok(one.clone()),
        several => Err(Failure::usage(anyhow!(
            "{} GPUs have a daemon here; choose one with --gpu (`pillion status` lists them)",
            several.len()
        ))),
    }
}

/// Has the daemon take the trace; `None` if the daemon ends first.
fn take(socket: &Path, options: &Options) -> Result<Option<Vec<u8>>, Failure> {
    let Length(length_ns) = options.seconds;
    let named = |error: HelloError| anyhow!("{}: {error}", socket.display());
    let connection = connect_within(socket, PATIENCE)
        .map_err(|error| daemons::none_answers(&[named(error.into()).to_string()]))?;
    let signal = Arc::new(AtomicBool::new(false));
    for number in [SIGINT, SIGTERM] {
        // A second signal has its default action.
        signal_hook::flag::register_conditional_default(number, Arc::clone(&signal))
            .and_then(|_| signal_hook::flag::register(number, Arc::clone(&signal)))
            .context("cannot handle signals")?;
    }
    let request = Request::Trace { length_ns }.encode();
    send(&connection, &request, &[]).map_err(|error| named(error.into()))?;
    let begun = receive(&connection).map_err(|error| named(error.into()))?;
    check(socket, &begun.0)?;
    let seconds = length_ns as f64 / 1e9;
    out::note(format_args!(
        "taking a trace for {seconds} s; Ctrl-C ends it early"
    ));
    let Some((packet, mut files)) = wait(&connection, length_ns, &signal).map_err(named)? else {
        return Ok(None);
    };
    check(socket, &packet)?;
    let Some(file) = files.pop() else {
        return Err(anyhow!("{}: unexpected reply", socket.display()).into());
    };
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes)
        .with_context(|| format!("{}: cannot read the trace", socket.display()))?;
    Ok(Some(bytes))
}

type Packet = (Vec<u8>, Vec<OwnedFd>);

/// The packet with the trace; `None` if the daemon ends first.
fn wait(
    connection: &OwnedFd,
    length_ns: u64,
    signal: &AtomicBool,
) -> Result<Option<Packet>, HelloError> {
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns() + length_ns + HAND_OVER_NS;
    let mut is_ending = false;
    loop {
        if !is_ending && signal.load(Ordering::Relaxed) {
            is_ending = true;
            shutdown(connection, Shutdown::Write).map_err(std::io::Error::from)?;
        }
        let mut fds = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)];
        // A signal interrupts it; the loop checks for signals.
        let _ = poll(&mut fds, Some(&LOOK));
        if fds.iter().any(|fd| !fd.revents().is_empty()) {
            let received = receive(connection)?;
            return Ok(Some(received).filter(|(packet, _)| !packet.is_empty()));
        }
        if clock.now_ns() >= end_ns {
            return Err(HelloError::Io(std::io::ErrorKind::TimedOut.into()));
        }
    }
}

fn check(socket: &Path, packet: &[u8]) -> Result<(), Failure> {
    let path = socket.display();
    let version = peer_version(packet);
    let is_older =
        |version: &Version| version.major == VERSION.major && version.minor < TRACE_MINOR;
    if let Some(version) = version.filter(is_older) {
        let major = VERSION.major;
        return Err(anyhow!(
            "{path}: this daemon is too old for traces: it speaks protocol {version}, but {major}.{TRACE_MINOR} is needed; \
             restart it with the pilliond of this version"
        )
        .into());
    }
    match Reply::decode(packet) {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::Refused { reason }) => Err(anyhow!("{path}: {reason}").into()),
        Ok(_) => Err(anyhow!("{path}: unexpected reply").into()),
        Err(error) if packet.is_empty() => Err(anyhow!("{path}: {}", HelloError::Closed)
            .context(error)
            .into()),
        Err(error) => Err(anyhow!("{path}: {error}").into()),
    }
}

fn say(
    options: &Options,
    document: &Document,
    counts: &Counts,
    bytes: usize,
) -> Result<(), Failure> {
    let header = &document.header;
    let seconds = header.ended_ns.saturating_sub(header.began_ns) as f64 / 1e9;
    if options.json {
        let summary = json!({
            "schema_version": SCHEMA_VERSION,
            "file": options.output,
            "bytes": bytes,
            "gpu": header.gpu,
            "seconds": seconds,
            "is_full": header.is_full,
            "records_dropped": header.dropped,
            "jobs": counts.jobs,
        });
        return out::line(format_args!("{summary}"));
    }
    let all = counts.all();
    out::note(format_args!(
        "{}: {seconds:.1} s of {}: {}, {}, {}, {}, {}, {:.1} MB",
        options.output.display(),
        header.gpu,
        output::counted(counts.jobs.len() as u64, "job", "jobs"),
        output::counted(all.launches, "launch", "launches"),
        output::counted(all.copies, "copy", "copies"),
        output::counted(all.requests, "request", "requests"),
        output::counted(all.leases, "change of leases", "changes of leases"),
        bytes as f64 / 1e6,
    ));
    if header.is_full {
        out::note(format_args!(
            "the end of the trace is left out, because the file would be too long; take a shorter trace"
        ));
    }
    if header.dropped > 0 {
        let are_missing = match header.dropped {
            1 => "1 record is missing".to_owned(),
            records => format!("{records} records are missing"),
        };
        out::note(format_args!(
            "{are_missing}: a thread wrote more than its ring holds between two polls of the daemon"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_daemon_is_named_whatever_it_answers() {
        let reason = "unknown kind of request".to_owned();
        let mut packet = Reply::Refused { reason }.encode();
        let why = |packet: &[u8]| {
            let refused = check(Path::new("/run/pillion/g.sock"), packet).unwrap_err();
            refused.why()
        };
        assert_eq!(why(&packet), "/run/pillion/g.sock: unknown kind of request");
        packet[6] = 8;
        let told = why(&packet);
        assert!(
            told.contains("too old for traces: it speaks protocol 3.8, but 3.9 is needed"),
            "{told}"
        );
        assert!(why(&[]).contains("closed"), "{}", why(&[]));
    }

    #[test]
    fn a_length_is_in_seconds_and_has_bounds() {
        assert_eq!(length_of("5"), Ok(Length(5_000_000_000)));
        assert_eq!(length_of("0.5"), Ok(Length(500_000_000)));
        for wrong in ["0", "0.05", "61", "5s", "", "NaN", "inf", "-1"] {
            let why = length_of(wrong).unwrap_err();
            assert!(why.contains("0.1 to 60"), "{wrong}: {why}");
        }
    }
}

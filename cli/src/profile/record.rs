//! `pillion profile record`: makes a profile of a job's launches, without a profiler. It starts the
//! job by `pillion run` with a spool folder in the environment (`PILLION_RECORD_SPOOL`). The
//! library counts and measures there, in one file per process ([`protocol::recording`]). After the
//! job has ended, in whatever way, the files become one profile.
//!
//! The command runs beside the job: the terminal's signals reach both, and signals sent to the
//! command are forwarded.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use profiler::Profile;
use protocol::clock::Clock;
use protocol::recording::Why;
use serde_json::json;

use self::beside::{Beside, Job};
use self::child::Child;
use self::merge::Merged;
use self::spool::Spool;
use super::output;
use crate::failure::Failure;
use crate::out;

mod beside;
mod child;
mod convert;
mod cupti;
mod merge;
mod spool;

/// Runs a job, and makes a profile of the kernels that it launches.
///
/// The preloaded library counts the kernels. CUPTI times them, if it is available and no other tool
/// in the process uses it; otherwise CUDA events time some of the launches. No profiler is needed.
/// A message reports the method. The job runs as a best-effort job of `pillion run`, with the same
/// results, output and exit status.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion profile record -o job.profile.toml -- python train.py\n         \
                  pillion run --profile job.profile.toml -- python train.py\n\n\
                  Record a job that has the GPU for itself: beside other jobs its kernels take longer. The profile is written when the \
                  job ends, even if it failed or was killed.\n\n\
                  CUPTI allows one user in a process: use --cupti off for a job that profiles itself (torch.profiler).\n\n\
                  Exit status: that of the job, 128+n if signal n ended it; 2 if FILE cannot be written (the job is then not started); \
                  1 if the job succeeded, but nothing was recorded or FILE could not be written."
)]
pub(crate) struct Options {
    /// File for the profile; `-` is standard output.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: PathBuf,
    /// The GPU to use: index, UUID or UUID prefix, or PCI bus id.
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Also replace the driver's library, as `pillion run --shim` does.
    #[arg(long)]
    shim: bool,
    /// The CUPTI library: `auto` searches for one, `off` uses events instead, FILE names one.
    #[arg(
        long,
        value_name = "FILE|off|auto",
        default_value = "auto",
        hide_default_value = true
    )]
    cupti: PathBuf,
    /// Print the summary as one JSON line on standard output, after the job's own output.
    #[arg(long)]
    json: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

/// Names the library's folder for records.
const FOLDER_ENV: &str = "PILLION_RECORD_SPOOL";
/// Selects how the library times kernels.
const CUPTI_ENV: &str = "PILLION_RECORD_CUPTI";
const LOOK: Duration = Duration::from_millis(500);
/// Interval of progress reports and of queries to daemons about other jobs, ns.
const TELL_NS: u64 = 10_000_000_000;

/// Exits as the job does. A later failure is reported, and sets the code of a successful job.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    check(options).map_err(Failure::usage)?;
    let cupti = cupti::value_of(&options.cupti);
    let cupti = cupti.map_err(|text| Failure::usage(anyhow!(text)))?;
    let spool = Spool::new().context("cannot create a folder for the records")?;
    let mut beside = Beside::default();
    beside.look(None);
    let mut child = start(options, spool.path(), cupti)?;
    let mut merged = Merged::default();
    let code = watch(&mut child, spool.path(), &mut beside, &mut merged)?;
    merged.add_all(spool.path());
    merged.is_beside_others = beside.is_any();
    drop(spool);
    let finished = finish(options, &merged, code);
    match code {
        0 => finished,
        code => {
            if let Err(failure) = finished {
                failure.report();
            }
            Err(Failure::ended(code))
        }
    }
}

fn finish(options: &Options, merged: &Merged, code: u8) -> Result<(), Failure> {
    if merged.is_empty() {
        let why = match merged.count_of(Why::NoRoom) {
            0 => "the library saw no launch of any process of the job",
            _ => "the file system of the spool folder, /dev/shm, had no room for the records",
        };
        out::note(format_args!("pillion: nothing was recorded: {why}"));
        return Err(Failure::silent());
    }
    let recorded = convert::profile(merged, &convert::source_of(&options.command));
    if recorded.profile.kernels.is_empty() {
        recorded
            .profile
            .notices
            .iter()
            .for_each(|notice| out::note(format_args!("pillion: {notice}")));
        out::note(format_args!(
            "pillion: no kernel was timed, so no profile is written"
        ));
        return Err(Failure::silent());
    }
    write(&recorded.profile.write(), &options.output)?;
    say(options, merged, &recorded, code)
}

/// Writes the profile; to a file elsewhere if that fails.
fn write(text: &str, path: &Path) -> Result<(), Failure> {
    output::write(text, Some(path)).map_err(|failure| match keep(text) {
        Ok(copy) if !failure.why().is_empty() => {
            let (why, copy) = (failure.why(), copy.display());
            Failure::with_code(1, anyhow!("{why}; the profile is in {copy}"))
        }
        _ => failure,
    })
}

fn keep(text: &str) -> anyhow::Result<PathBuf> {
    let mut builder = tempfile::Builder::new();
    let mut file = builder
        .prefix("pillion-")
        .suffix(".profile.toml")
        .tempfile()?;
    file.write_all(text.as_bytes())?;
    Ok(file.keep()?.1)
}

/// Verifies, before anything runs, that the profile can be written.
fn check(options: &Options) -> anyhow::Result<()> {
    if options.json && options.output == Path::new("-") {
        let why = "--json and -o -: both would use standard output; name a file";
        return Err(anyhow!(why));
    }
    check_writable(&options.output)
}

fn check_writable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if path == Path::new("-") {
        return Ok(());
    }
    let found = fs::metadata(path);
    if found.as_ref().is_ok_and(fs::Metadata::is_dir) {
        return Err(anyhow!("{shown}: is a folder"));
    }
    if found.is_ok_and(|found| !found.is_file()) {
        // Opening a pipe or a device may have an effect.
        return Ok(());
    }
    // The real write also first writes beside the path.
    let beside = tempfile::NamedTempFile::new_in(output::folder(path));
    beside
        .map_err(out::bare)
        .with_context(|| format!("{shown}: cannot be written"))?;
    Ok(())
}

fn start(options: &Options, folder: &Path, cupti: std::ffi::OsString) -> Result<Child, Failure> {
    let mut arguments: Vec<std::ffi::OsString> =
        ["run", "--class", "best-effort"].map(Into::into).into();
    if let Some(gpu) = &options.gpu {
        arguments.extend(["--gpu".into(), gpu.into()]);
    }
    if options.shim {
        arguments.push("--shim".into());
    }
    arguments.push("--".into());
    arguments.extend(options.command.iter().cloned());
    let own = std::env::current_exe().context("cannot determine this program's own path")?;
    let variables = [
        (FOLDER_ENV.into(), folder.as_os_str().to_owned()),
        (CUPTI_ENV.into(), cupti),
    ];
    Ok(Child::start(&own, &arguments, &variables)?)
}

/// Waits for the job's exit code; forwards signals, and merges records of processes that end
/// earlier.
fn watch(
    child: &mut Child,
    folder: &Path,
    beside: &mut Beside,
    merged: &mut Merged,
) -> Result<u8, Failure> {
    let id = std::env::var("PILLION_JOB").ok();
    let job = Job {
        id: id.filter(|id| !id.is_empty()),
        pid: child.pid(),
    };
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let clock = Clock::monotonic();
    let mut tell_ns = clock.now_ns() + TELL_NS;
    loop {
        if let Some(code) = child.wait(LOOK)? {
            beside.look(Some(&job));
            return Ok(code);
        }
        merged.take_ended(folder);
        if clock.now_ns() < tell_ns {
            continue;
        }
        tell_ns += TELL_NS;
        beside.look(Some(&job));
        if is_terminal {
            let mut merged = merged.clone();
            merged.add_all(folder);
            let launches = output::counted(merged.launches(), "launch", "launches");
            let kernels = merged.kernels.len() as u64;
            let kernels = output::counted(kernels, "kernel and shape", "kernels and shapes");
            out::note(format_args!("pillion: recording: {launches} of {kernels}"));
        }
    }
}

fn say(
    options: &Options,
    merged: &Merged,
    recorded: &convert::Recorded,
    code: u8,
) -> Result<(), Failure> {
    let Profile {
        gpu,
        notices,
        kernels,
        ..
    } = &recorded.profile;
    let launches = kernels.iter().map(|kernel| kernel.count).sum::<u64>();
    let sum_ns = kernels.iter().fold(0, |sum: u64, kernel| {
        sum.saturating_add(kernel.durations.sum_ns)
    });
    if options.json {
        let summary = json!({
            "schema_version": 1,
            "output": options.output.display().to_string(),
            "gpu": gpu,
            "processes": merged.processes,
            "kernels": kernels.len(),
            "launches": launches,
            "launches_timed": recorded.timed,
            "launches_timed_by_cupti": recorded.timed_by_cupti,
            "duration_ns": sum_ns,
            "not_timed": merged.reasons(),
            "left_out": { "kernels": recorded.left_out.kernels, "launches": recorded.left_out.launches },
            "notices": notices,
            "exit_code": code,
        });
        return out::line(format_args!("{summary}"));
    }
    for notice in notices {
        out::note(format_args!("pillion: {notice}"));
    }
    out::note(format_args!(
        "pillion: {}: {}, {}, {} of them timed, {:.3} ms on {gpu}",
        options.output.display(),
        output::counted(
            kernels.len() as u64,
            "kernel and shape",
            "kernels and shapes"
        ),
        output::counted(launches, "launch", "launches"),
        recorded.timed,
        sum_ns as f64 / 1e6,
    ));
    Ok(())
}

/// Whether a file has been removed, which is no error in a folder that changes.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

//! `pillion profile record`: a profile of what a job launches, without a profiler.
//!
//! The job is started as `pillion run` starts it, by that command itself, with a spool folder in its
//! environment (`PILLION_RECORD`). The library counts and measures there, in a file for each process
//! ([`protocol::recording`]). When the job has ended, however that was, the files become one
//! profile.
//!
//! The command stays beside the job and is no part of it: the terminal's signals reach both, and
//! what is sent to the command is passed on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use profiler::Profile;
use protocol::clock::Clock;
use protocol::hello::ask_status_within;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::child::Child;
use self::merge::Merged;
use super::output;
use crate::daemons;
use crate::failure::Failure;
use crate::out;

mod child;
mod convert;
mod merge;

/// Records a job: runs it, and makes a profile of the kernels that it launches.
///
/// Kernels are counted by the preloaded library and timed by CUDA events around some of their
/// launches; no profiler is needed. The job runs as a best-effort job of `pillion run`, and its
/// results, its output and its exit status are the same.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion profile record -o job.profile.toml -- python train.py\n         \
                  pillion run --profile job.profile.toml -- python train.py\n\n\
                  Record a job that has the GPU for itself: beside others its kernels take longer. The profile is written when the job \
                  has ended, also when it failed or was killed.\n\n\
                  Exit status: that of the job, 128+n if signal n ended it; 2 if FILE cannot be written, in which case the job is not \
                  started; 1 if the job succeeded and nothing was recorded."
)]
pub(crate) struct Options {
    /// Where to write the profile; `-` is the standard output.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: PathBuf,
    /// The GPU to use: index, UUID (a prefix will do) or PCI bus id.
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Also stand in the place of the driver's library, as `pillion run --shim` does.
    #[arg(long)]
    shim: bool,
    /// The summary as one JSON line on the standard output, after all that the job writes there.
    #[arg(long)]
    json: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

/// Where the library is told to record.
const FOLDER_ENV: &str = "PILLION_RECORD";
/// Memory files that outlive a process and need no disk.
const SHARED_MEMORY: &str = "/dev/shm";
/// The beginning of a spool folder's name, before the id of its command.
const FOLDER_PREFIX: &str = "pillion-record-";
/// Between two looks at a job that runs.
const LOOK: Duration = Duration::from_millis(500);
/// From when on, and then how often, people are told how far it has come, ns.
const TELL_NS: u64 = 10_000_000_000;
/// Longest wait for a daemon's word on who else has work on its GPU.
const STATUS_PATIENCE: Duration = Duration::from_millis(200);

/// Ends as the job does.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    check_writable(&options.output).map_err(Failure::usage)?;
    let spool = spool().context("no folder for what is recorded")?;
    let was_beside = others();
    let mut child = start(options, spool.path())?;
    let code = watch(&mut child, spool.path())?;
    let mut merged = Merged::read(spool.path());
    merged.is_beside_others = was_beside || others();
    drop(spool);
    if merged.is_empty() {
        let why =
            "nothing was recorded: no process of the job launched a kernel that the library saw";
        out::note(format_args!("pillion: {why}"));
        return Err(Failure::ended(if code == 0 { 1 } else { code }));
    }
    let recorded = convert::profile(&merged, &convert::source_of(&options.command));
    if recorded.profile.kernels.is_empty() {
        recorded
            .profile
            .notices
            .iter()
            .for_each(|notice| out::note(format_args!("pillion: {notice}")));
        out::note(format_args!(
            "pillion: no kernel was timed, so no profile is written"
        ));
        return Err(Failure::ended(if code == 0 { 1 } else { code }));
    }
    output::write(&recorded.profile.write(), Some(&options.output))?;
    say(options, &merged, &recorded, code)?;
    match code {
        0 => Ok(()),
        code => Err(Failure::ended(code)),
    }
}

/// That the profile can be written where it is wanted, before anything runs.
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
        // A pipe or a device: to open it may have an effect.
        return Ok(());
    }
    // As it will be written: beside its place first.
    let beside = tempfile::NamedTempFile::new_in(output::folder(path));
    beside.with_context(|| format!("{shown}: cannot be written"))?;
    Ok(())
}

/// A folder for what is recorded, of this user alone. What a command left that was killed is
/// removed.
fn spool() -> std::io::Result<TempDir> {
    let shared = Path::new(SHARED_MEMORY);
    for entry in fs::read_dir(shared).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(FOLDER_PREFIX);
        let pid = pid
            .and_then(|rest| rest.split_once('-'))
            .map(|(pid, _)| pid);
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another user's stays where it is.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{FOLDER_PREFIX}{}-", std::process::id());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    builder.tempdir_in(shared).or_else(|_| builder.tempdir())
}

/// Starts the job by `pillion run`.
fn start(options: &Options, folder: &Path) -> Result<Child, Failure> {
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
    let own = std::env::current_exe().context("this program's own file is not known")?;
    let folder = (FOLDER_ENV.into(), folder.as_os_str().to_owned());
    Ok(Child::start(&own, &arguments, folder)?)
}

/// Waits for the end of the job, passing signals on; its exit code.
fn watch(child: &mut Child, folder: &Path) -> Result<u8, Failure> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let clock = Clock::monotonic();
    let mut tell_ns = clock.now_ns() + TELL_NS;
    loop {
        if let Some(code) = child.wait(LOOK)? {
            return Ok(code);
        }
        if is_terminal && clock.now_ns() >= tell_ns {
            tell_ns += TELL_NS;
            let merged = Merged::read(folder);
            let launches = output::counted(merged.launches(), "launch", "launches");
            let kernels = merged.kernels.len() as u64;
            let kernels = output::counted(kernels, "kernel and shape", "kernels and shapes");
            out::note(format_args!("pillion: recording: {launches} of {kernels}"));
        }
    }
}

/// Whether a daemon says that another job has processes on its GPU.
fn others() -> bool {
    daemons::sockets().iter().any(|socket| {
        let status = ask_status_within(socket, STATUS_PATIENCE).ok();
        let status: Option<Value> = status.and_then(|text| serde_json::from_str(&text).ok());
        let jobs = status.and_then(|status| status["jobs"].as_array().cloned());
        let has_clients =
            |job: &Value| job["clients"].as_array().is_some_and(|all| !all.is_empty());
        jobs.is_some_and(|jobs| jobs.iter().any(has_clients))
    })
}

/// What was recorded, for people or for a program.
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

/// Whether a file is not there any more, which is no error for who looks at a folder that lives.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

//! `pillion run`: starts a job with the library preloaded, and becomes the job (`exec`). So
//! signals, terminal and exit status are the job's own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use profiler::Profile;
use profiler::scale::{self, Fit};
use protocol::clock::Clock;
use protocol::compute::{self, Cap};
use protocol::hello::{
    JobClass, TEXT_BYTES_MAX, ask_status_within, connect_to, socket_folders, socket_paths,
};
use protocol::quota::Quota;
use protocol::ranges::{self, RangePattern};
use protocol::slo::{self, SloAsked};
use scheduler::config::gpu::{self, Gpu, Select};
use serde_json::Value;

use crate::artifacts;
use crate::daemons::PATIENCE;
use crate::failure::Failure;
use crate::out;
use crate::program;
use crate::set::quota_of;

mod autostart;
mod loadable;
mod share;

/// Starts a command as a job: its processes share one class and one memory quota.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion run --class best-effort -- python train.py\n\n\
                  If a GPU that the job may use has no daemon, the command starts one: a daemon of your user, with the settings that \
                  `pillion config show --gpu GPU` shows (the GPU's file, else the settings for all GPUs), which exits a minute after its last job. If no daemon can be started, the job runs as without Pillion; \
                  with --require-daemon it does not start.\n\n\
                  A job that is ended by SIGTERM or SIGINT first lets its work in flight complete. A job that dies of another signal (SIGHUP \
                  when its terminal closes, SIGQUIT) does not, and under MPS its death can then end other jobs: start it with nohup or \
                  setsid, or end it with `pillion stop`.\n\n\
                  The job's id is the value of --job, else of PILLION_JOB, else a new id at each start. A job that is restarted after a \
                  fault should have a fixed id (pillion run --job train), because rules count faults by id. Processes of one user and class \
                  with the same id are one job. A job started inside another job gets a new id if the outer job's id was generated."
)]
pub(crate) struct Options {
    /// high-priority: is never held. best-effort: uses the GPU time that high-priority jobs leave
    /// (default: `PILLION_CLASS`, or best-effort).
    #[arg(long, value_name = "CLASS", value_parser = JobClass::NAMES)]
    class: Option<String>,
    /// Id of the job in `pillion status`, in rules and in messages (default: `PILLION_JOB`, or a
    /// new id at each start).
    #[arg(long, value_name = "ID", value_parser = id_of)]
    job: Option<String>,
    /// The GPU to use: index, UUID or UUID prefix, or PCI bus id.
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Profile of the job's kernels: a Pillion profile, a trace, or an Orion kernel file (default:
    /// `PILLION_PROFILE`, which only causes a warning if it cannot be read).
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Memory that the job may hold on each GPU, all its processes together: a size, a part of the
    /// GPU's memory such as 40%, or unlimited (default: `PILLION_MEMORY`, or the value in the
    /// daemon's configuration).
    #[arg(long, value_name = "SIZE|PCT", value_parser = quota_of)]
    memory: Option<Quota>,
    /// Latency target of a high-priority job's requests: a multiple of their time alone, such as
    /// 1.2x, or a time, such as 15ms (a number without a unit is seconds). A time is enforced only
    /// if the program marks its requests (default: `PILLION_SLO`, or the value in the daemon's
    /// configuration).
    #[arg(long, value_name = "Nx|TIME", value_parser = slo_of)]
    slo: Option<SloAsked>,
    /// Largest share of the GPU's time that a best-effort job may use, all its processes together,
    /// even if the GPU has no other job: 1% to 100%, which is no cap (default: `PILLION_COMPUTE`,
    /// or HAMi's `CUDA_DEVICE_SM_LIMIT`, or the value in the daemon's configuration).
    #[arg(long, value_name = "PCT", value_parser = cap_of)]
    compute: Option<Cap>,
    /// NVTX ranges that are the job's requests, to which its target (`--slo`) applies: a domain and
    /// a name, with * and ? in the name; nothing before the slash is the default domain (default:
    /// `PILLION_REQUEST_RANGE`). Example: --request-range '/forward*'
    #[arg(long, value_name = "DOMAIN/GLOB", value_parser = range_of)]
    request_range: Option<RangePattern>,
    /// NVTX ranges that are the job's iterations, whose number `pillion status` shows (default:
    /// `PILLION_ITERATION_RANGE`).
    #[arg(long, value_name = "DOMAIN/GLOB", value_parser = range_of)]
    iteration_range: Option<RangePattern>,
    /// A supervisor restarts this best-effort job by `pillion run` when it ends: the daemon may end
    /// it (SIGTERM, and ten seconds to save its state) so that it gets another share of the SMs at
    /// the next start (`[share]`, MPS).
    #[arg(long)]
    restartable: bool,
    /// Start no daemon for a GPU that has none (also `PILLION_AUTOSTART=0`): the job uses a running
    /// daemon, or runs without one.
    #[arg(long, conflicts_with = "require_daemon")]
    no_daemon: bool,
    /// Refuse to start (exit 69) if no daemon answers, if the program cannot load the library, or
    /// for a high-priority job if its GPU is drained.
    #[arg(long)]
    require_daemon: bool,
    /// Also replace the driver's library (`libcuda.so.1`) by the shim: this reaches programs that
    /// open libraries with `RTLD_DEEPBIND` or `dlmopen`, which bypass a preloaded library. Such a
    /// process does not wait for its work in flight when SIGTERM or SIGINT ends it.
    #[arg(long)]
    shim: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// env(1)'s code for a command that was found and could not be started.
const NOT_EXECUTABLE: u8 = 126;
/// env(1)'s code for a command that was not found.
const NOT_FOUND: u8 = 127;

/// Returns only if the job could not be started.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let class = class(options)?;
    let job = match &options.job {
        Some(job) => job.clone(),
        None => job_id(std::env::var_os("PILLION_JOB")).map_err(Failure::usage)?,
    };
    let profile = options.profile.as_deref().map(Profile::load).transpose();
    let profile = profile.map_err(Failure::usage)?;
    let library = artifacts::find(artifacts::LIBRARY)?;
    check_can_be_preloaded(&library)?;
    let gpu = options
        .gpu
        .as_deref()
        .map(select)
        .transpose()
        .map_err(Failure::usage)?;
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    let is_loaded = loadable::is_by(&mut command, &library, options.require_daemon)?;
    if is_loaded {
        have_loaded(&mut command, options, &library)?;
    }
    command.env("PILLION_CLASS", class.name());
    command.env("PILLION_JOB", job);
    if let Some(quota) = memory(options)? {
        command.env("PILLION_MEMORY", quota.to_string());
    }
    if let Some(slo) = slo(options, class)? {
        command.env("PILLION_SLO", slo.to_string());
    }
    if let Some(cap) = cap(options, class)? {
        command.env("PILLION_COMPUTE", cap.to_string());
    }
    let is_best_effort = class == JobClass::BestEffort;
    if options.restartable && !is_best_effort {
        return Err(Failure::usage(anyhow!(
            "--restartable applies only to best-effort jobs, and this job is high-priority; leave the flag out, or use --class best-effort"
        )));
    }
    // After everything that may fail, so that no daemon is started in vain.
    if is_loaded && program::located(Path::new(&options.command[0])).is_some() {
        see_to_daemons(options, class, gpu.as_ref())?;
    }
    if let Some((path, profile)) = options.profile.as_deref().zip(profile) {
        command.env("PILLION_PROFILE", std::path::absolute(path)?);
        say_fit(path, &profile, gpu.as_ref());
    }
    if let Some(gpu) = &gpu {
        command.env("CUDA_VISIBLE_DEVICES", &gpu.uuid);
    }
    if is_best_effort && std::env::var_os("CUDA_MPS_CLIENT_PRIORITY").is_none() {
        // 0 is normal and 1 below normal; without MPS the driver ignores it.
        command.env("CUDA_MPS_CLIENT_PRIORITY", "1");
    }
    share::take(
        &mut command,
        gpu.as_ref(),
        is_best_effort,
        options.restartable,
    );
    let error = command.exec();
    let name = options.command[0].display();
    let code = if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    };
    Err(Failure::with_code(code, anyhow!("{name}: {error}")))
}

fn have_loaded(command: &mut Command, options: &Options, library: &Path) -> Result<(), Failure> {
    command.env("LD_PRELOAD", preload(library));
    ask_for_ranges(command, options, library)?;
    if options.shim {
        put_shim_first(command)?;
    }
    Ok(())
}

/// Starts missing daemons, and reports failures; fails if a daemon is required and missing.
fn see_to_daemons(options: &Options, class: JobClass, gpu: Option<&Gpu>) -> Result<(), Failure> {
    let troubles = autostart::see_to_daemons(gpu, !options.no_daemon);
    if options.require_daemon
        && let Err(error) = require_daemon(class, gpu)
    {
        return Err(Failure::unavailable(match troubles.is_empty() {
            true => error,
            false => anyhow!("{}", troubles.join("; ")),
        }));
    }
    for trouble in troubles {
        out::note(format_args!(
            "pillion: {trouble}; the job runs unmanaged until a daemon serves its GPU"
        ));
    }
    Ok(())
}

/// Flag, else environment, else best-effort.
fn class(options: &Options) -> Result<JobClass, Failure> {
    let name = match &options.class {
        Some(name) => Some(name.clone()),
        None => std::env::var("PILLION_CLASS")
            .ok()
            .filter(|name| !name.is_empty()),
    };
    let Some(name) = name else {
        return Ok(JobClass::BestEffort);
    };
    JobClass::from_name(&name).ok_or_else(|| {
        let classes = JobClass::NAMES.join(" or ");
        Failure::usage(anyhow!(
            "PILLION_CLASS={name}: unknown class, expected {classes}"
        ))
    })
}

/// Flag, else environment. An unreadable quota is refused before anything runs.
fn memory(options: &Options) -> Result<Option<Quota>, Failure> {
    let set = std::env::var("PILLION_MEMORY").ok();
    match set.filter(|text| options.memory.is_none() && !text.is_empty()) {
        None => Ok(options.memory),
        Some(text) => match quota_of(&text) {
            Ok(quota) => Ok(Some(quota)),
            Err(why) => Err(Failure::usage(anyhow!("PILLION_MEMORY={text}: {why}"))),
        },
    }
}

/// Flag, else environment. Refuses an unreadable target, and one for a best-effort job, at once.
fn slo(options: &Options, class: JobClass) -> Result<Option<SloAsked>, Failure> {
    let set = std::env::var("PILLION_SLO").ok();
    let set = set.filter(|text| options.slo.is_none() && !text.is_empty());
    let (said, slo) = match (options.slo, set) {
        (Some(slo), _) => (format!("--slo {slo}"), slo),
        (None, Some(text)) => {
            let said = format!("PILLION_SLO={text}");
            let slo = slo_of(&text).map_err(|why| Failure::usage(anyhow!("{said}: {why}")))?;
            (said, slo)
        }
        (None, None) => return Ok(None),
    };
    match class {
        JobClass::HighPriority => Ok(Some(slo)),
        JobClass::BestEffort => Err(Failure::usage(anyhow!(
            "{said}: a target applies only to high-priority jobs, and this job is best-effort; \
             use --class high-priority, or leave the target out"
        ))),
    }
}

fn slo_of(text: &str) -> Result<SloAsked, String> {
    SloAsked::parse(text).ok_or_else(|| format!("expected {}", slo::EXPECTED))
}

/// Flag, else environment; refused like [`slo()`].
fn cap(options: &Options, class: JobClass) -> Result<Option<Cap>, Failure> {
    let set = std::env::var("PILLION_COMPUTE").ok();
    let set = set.filter(|text| options.compute.is_none() && !text.is_empty());
    let (said, cap) = match (options.compute, set) {
        (Some(cap), _) => (format!("--compute {cap}"), cap),
        (None, Some(text)) => {
            let said = format!("PILLION_COMPUTE={text}");
            let cap = cap_of(&text).map_err(|why| Failure::usage(anyhow!("{said}: {why}")))?;
            (said, cap)
        }
        (None, None) => return Ok(None),
    };
    match class {
        JobClass::BestEffort => Ok(Some(cap)),
        JobClass::HighPriority => Err(Failure::usage(anyhow!(
            "{said}: a cap applies only to best-effort jobs, and this job is high-priority; use --class best-effort, or leave the cap out"
        ))),
    }
}

pub(crate) fn cap_of(text: &str) -> Result<Cap, String> {
    Cap::parse(text).ok_or_else(|| format!("expected {}", compute::EXPECTED))
}

/// Passes on the ranges of requests and iterations, and makes NVTX load the library as its tool,
/// unless another tool is set.
fn ask_for_ranges(command: &mut Command, options: &Options, library: &Path) -> Result<(), Failure> {
    let mut is_asked = false;
    for (name, given) in [
        ("PILLION_REQUEST_RANGE", &options.request_range),
        ("PILLION_ITERATION_RANGE", &options.iteration_range),
    ] {
        let set = std::env::var(name).ok().filter(|text| !text.is_empty());
        let pattern = match (given, set) {
            (Some(given), _) => given.clone(),
            (None, Some(text)) => {
                range_of(&text).map_err(|why| Failure::usage(anyhow!("{name}={text}: {why}")))?
            }
            (None, None) => continue,
        };
        command.env(name, pattern.to_string());
        is_asked = true;
    }
    if !is_asked {
        return Ok(());
    }
    if options.shim {
        return Err(Failure::usage(anyhow!(
            "NVTX ranges cannot be read with --shim; leave out --shim or the ranges"
        )));
    }
    match std::env::var_os(NVTX_TOOL).filter(|v| !v.is_empty() && v != library.as_os_str()) {
        None => _ = command.env(NVTX_TOOL, library),
        Some(other) => out::note(format_args!(
            "pillion: {NVTX_TOOL}={}: this tool receives the NVTX ranges instead of Pillion; requests are inferred from launches",
            other.display()
        )),
    }
    Ok(())
}

/// Names the library that NVTX loads in every process that uses it.
pub(crate) const NVTX_TOOL: &str = "NVTX_INJECTION64_PATH";

fn range_of(text: &str) -> Result<RangePattern, String> {
    RangePattern::parse(text).ok_or_else(|| format!("expected {}", ranges::EXPECTED))
}

/// Fails once where the dynamic linker would report an unloadable library in every process of the
/// job, and run it unmanaged.
fn check_can_be_preloaded(library: &Path) -> anyhow::Result<()> {
    let name = library.display();
    std::fs::File::open(library).with_context(|| format!("cannot preload {name}"))?;
    // The linker ends a path at either character, and has no escape for them (ld.so(8)).
    if library
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| b" :".contains(byte))
    {
        bail!(
            "cannot preload {name}: LD_PRELOAD allows no path with a space or a colon; \
             install Pillion in a folder without either"
        );
    }
    Ok(())
}

/// Ours first, then the existing ones: two interposers can coexist.
fn preload(library: &Path) -> OsString {
    let mut value = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

/// The driver behind the shim, for a nested `pillion run --shim`: its loader finds the outer shim.
const DRIVER_ENV: &str = "PILLION_DRIVER";

/// Puts the shim before the driver in the loader's search path, and behind it the driver that the
/// loader finds without it, or `PILLION_DRIVER`. The preload library stays, for programs that find
/// the driver without the search path; it steps aside where the driver that it finds is the shim.
fn put_shim_first(command: &mut Command) -> Result<(), Failure> {
    let driver = match std::env::var_os(DRIVER_ENV).filter(|v| !v.is_empty()) {
        Some(driver) => {
            let path = std::path::absolute(driver)?;
            if !path.is_file() {
                let path = path.display();
                return Err(Failure::usage(anyhow!("{DRIVER_ENV}={path}: no such file")));
            }
            path
        }
        None => scheduler::host::device::library_path()
            .map_err(anyhow::Error::from)?
            .context(
                "cannot find the driver's library (libcuda.so.1); set PILLION_DRIVER to its path",
            )?,
    };
    let mut path = artifacts::shim_folder(&driver)?.into_os_string();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|v| !v.is_empty()) {
        path.push(":");
        path.push(others);
    }
    command.env("LD_LIBRARY_PATH", path);
    command.env(DRIVER_ENV, driver);
    Ok(())
}

/// The job's id: from the environment, if a daemon accepts that as an id, else a new one.
fn job_id(set: Option<OsString>) -> anyhow::Result<String> {
    let Some(set) = set.filter(|set| !set.is_empty()) else {
        return Ok(new_job_id());
    };
    let id = set
        .into_string()
        .map_err(|set| anyhow!("PILLION_JOB={} is not UTF-8", set.display()))?;
    if let Some(why) = why_too_long(&id) {
        bail!("PILLION_JOB={id}: {why}");
    }
    Ok(match is_made_up(&id) {
        true => new_job_id(),
        false => id,
    })
}

/// Parses `--job`: the user's choice, even if it looks made up.
fn id_of(text: &str) -> Result<String, String> {
    match (text.is_empty(), why_too_long(text)) {
        (true, _) => Err("expected a name of at least one character".to_owned()),
        (false, Some(why)) => Err(why),
        (false, None) => Ok(text.to_owned()),
    }
}

fn why_too_long(id: &str) -> Option<String> {
    let bytes = id.len();
    let is_too_long = bytes > TEXT_BYTES_MAX;
    is_too_long
        .then(|| format!("the id has {bytes} bytes, but a daemon accepts at most {TEXT_BYTES_MAX}"))
}

/// Completes an error of the command line if `pillion run` got a command without `--` before it.
pub(crate) fn told_of_dashes(mut error: clap::Error) -> clap::Error {
    let mut words = std::env::args_os().skip(1);
    let is_run = words.next().is_some_and(|word| word == "run");
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if is_run && is_unknown && !word.starts_with('-') {
        let tip = format!("put -- before the command: pillion run [OPTIONS] -- {word} ...");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

/// Unique on this machine: the process id, and the time because process ids recur.
fn new_job_id() -> String {
    format!("{}-{:x}", std::process::id(), Clock::monotonic().now_ns())
}

/// Whether an id looks like one of [`new_job_id`]: then it is the enclosing job's, and no user
/// chose it. The time has at least nine hexadecimal digits from 4.3 s after the machine's start on.
fn is_made_up(id: &str) -> bool {
    let is_number = |text: &str, radix| text.chars().all(|c| c.is_digit(radix));
    id.split_once('-').is_some_and(|(pid, time)| {
        !pid.is_empty()
            && is_number(pid, 10)
            && (9..=16).contains(&time.len())
            && is_number(time, 16)
    })
}

pub(crate) fn select(text: &str) -> anyhow::Result<Gpu> {
    Ok(gpu::choose(
        scheduler::host::device::gpus()?,
        &select_of(text),
    )?)
}

pub(crate) fn select_of(text: &str) -> Select {
    text.parse().unwrap_or_else(|never| match never {})
}

/// Timeout for a daemon's report of its GPU, which only a message needs.
const STATUS_PATIENCE: Duration = Duration::from_millis(200);

/// Reports, once for all processes of the job, that its profile was measured on another GPU.
fn say_fit(path: &Path, profile: &Profile, gpu: Option<&Gpu>) {
    let described = |name: &str, sms: u32| scale::Gpu {
        name: name.to_owned(),
        sms: Some(sms).filter(|&sms| sms > 0),
        ..scale::Gpu::default()
    };
    let gpus: Vec<scale::Gpu> = match gpu {
        Some(gpu) => vec![described(&gpu.name, gpu.sms)],
        None => {
            let named = std::env::var_os("PILLION_SOCKET").map(|path| vec![PathBuf::from(path)]);
            let sockets = named.unwrap_or_else(every_socket).into_iter();
            let status = |socket: PathBuf| {
                let json = ask_status_within(&socket, STATUS_PATIENCE).ok()?;
                let status: Value = serde_json::from_str(&json).ok()?;
                let sms = status["gpu"]["sms"].as_u64().unwrap_or(0);
                let name = status["gpu"]["name"].as_str()?;
                Some(described(name, u32::try_from(sms).unwrap_or(0)))
            };
            sockets.filter_map(status).collect()
        }
    };
    let mut fits = gpus.iter().map(|gpu| scale::fit(profile, gpu));
    // If the profile fits one of several GPUs, the job may use that one.
    if let Some(fit) = fits.next().filter(|fit| *fit != Fit::Measured)
        && fits.all(|fit| fit != Fit::Measured)
    {
        out::note(format_args!("pillion: {}: {fit}", path.display()));
    }
}

/// Checks that a daemon answers; for a high-priority job, one whose GPU is not drained.
fn require_daemon(class: JobClass, gpu: Option<&Gpu>) -> anyhow::Result<()> {
    let candidates = match (std::env::var_os("PILLION_SOCKET"), gpu) {
        (Some(path), _) => vec![PathBuf::from(path)],
        (None, Some(gpu)) => socket_paths(&gpu.uuid),
        (None, None) => every_socket(),
    };
    let mut refused = None;
    for path in candidates.iter().filter(|path| connect_to(path).is_ok()) {
        if class != JobClass::HighPriority {
            return Ok(());
        }
        let at = path.display();
        refused = match why_drained(path) {
            Ok(None) => return Ok(()),
            Ok(Some(why)) => Some(anyhow!(
                "the GPU of the daemon at {at} is drained until `pillion resume`: {why}"
            )),
            Err(error) => Some(anyhow!(
                "cannot ask the daemon at {at} whether its GPU is drained: {error}"
            )),
        };
    }
    if let Some(refused) = refused {
        return Err(refused);
    }
    if candidates.is_empty() {
        let folders: Vec<_> = socket_folders()
            .iter()
            .map(|f| f.display().to_string())
            .collect();
        bail!(
            "no daemon is running: no socket in {}",
            folders.join(" or ")
        );
    }
    let paths: Vec<_> = candidates.iter().map(|p| p.display().to_string()).collect();
    bail!("no daemon answers at {}", paths.join(" or "))
}

/// Why the GPU of a daemon is drained, if so.
fn why_drained(socket: &Path) -> anyhow::Result<Option<String>> {
    let status: Value = serde_json::from_str(&ask_status_within(socket, PATIENCE)?)?;
    Ok(status["draining"].as_str().map(str::to_owned))
}

/// The sockets of all daemons that this user's jobs may find, in order.
pub(crate) fn every_socket() -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = socket_folders()
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .collect();
    sockets.sort();
    sockets
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn an_id_that_is_set_is_the_jobs_and_one_that_an_outer_run_made_up_is_not() {
        let id = |set: &str| job_id(Some(set.into())).unwrap();
        for named in ["train", "7", "2026-11", "a b", "12-train", "-abcdef0123"] {
            assert_eq!(id(named), named);
        }
        assert!(is_made_up(&job_id(None).unwrap()) && is_made_up(&id("")));
        let outer = new_job_id();
        assert_ne!(id(&outer), outer);
    }

    #[test]
    fn an_id_that_no_daemon_takes_is_refused() {
        let why = |set: OsString| job_id(Some(set)).unwrap_err().to_string();
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert!(why(long.into()).contains("257 bytes, but a daemon accepts at most 256"));
        assert!(why(OsString::from_vec(vec![b'a', 0xff])).contains("is not UTF-8"));
    }
}

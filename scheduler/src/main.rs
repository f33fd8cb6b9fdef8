//! `pilliond`: the daemon of one GPU. See the library's text.
//!
//! Exit codes: 0 ended by SIGTERM, SIGINT or `--end-when-idle`, or with `--detach` ready; 1 failed;
//! 2 invalid command line or configuration. SIGHUP reloads the configuration.

mod detached;
mod log;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use protocol::clock::Clock;
use rustix::event::{Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scheduler::Daemon;
use scheduler::config::ConfigError;
use scheduler::config::gpu::{self, Select};
use scheduler::config::show::Shown;
use scheduler::config::source::{self, Source};
use scheduler::daemon::{Pulse, Reloader, Stopper};
use scheduler::host::gpu_lock::GpuLock;
use scheduler::host::realtime::{self, Begun};
use scheduler::host::{device, socket};
use scheduler::report::told_once;
use sd_notify::NotifyState;

/// Time for the poll thread to end after a signal. On a stopped virtual clock it never runs again.
const END_TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};
/// Time for the other threads from then on: longer than [`Daemon::run`] waits for those that save
/// learnt data.
const SAVE_TIMEOUT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Watchdog notifications per timeout of the service manager: a late one is not a missing one.
const WATCHDOG_BEATS: u32 = 4;

/// Schedules one GPU: high-priority jobs go first, best-effort jobs use what they leave.
#[derive(Parser)]
#[command(name = "pilliond", version, after_help = AFTER_HELP)]
struct Arguments {
    /// The GPU's configuration (TOML), which overrides `default.toml` in its folder; each with its
    /// drop-ins (`default.d/*.toml`, and `gpu0.d/*.toml` of `gpu0.toml`), in the order of their
    /// names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A GPU: index, UUID or a prefix of it, or PCI bus id. Uses the file in /etc/pillion that
    /// selects this GPU, or else the defaults for all GPUs there. Users other than root may have
    /// the folder $XDG_CONFIG_HOME/pillion instead.
    #[arg(
        long,
        value_name = "GPU",
        conflicts_with = "config",
        required_unless_present = "config"
    )]
    gpu: Option<Select>,
    /// Exits when no job has used the GPU for this long, and no process that `pillion run` has
    /// started is alive.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    end_when_idle: Option<u64>,
    /// Starts the daemon in the background, and returns when it is ready.
    #[arg(long)]
    detach: bool,
}

const AFTER_HELP: &str = "\
Example:
  pilliond --config /etc/pillion/gpu0.toml
  pilliond --gpu 0 --end-when-idle 60
  pillion run --class high-priority -- python serve.py
  pillion run --class best-effort -- python train.py

Environment:
  PILLION_SOCKET  where to listen, instead of /run/pillion/<gpu uuid>.sock (root)
                  or $XDG_RUNTIME_DIR/pillion/<gpu uuid>.sock
  PILLION_RECORD  a file that records each lease of best-effort jobs, and why
                  they wait (for `pillion demo`; it grows without bound)
  PILLION_CONFIG_FOLDER
                  the folder of configurations, in place of /etc/pillion
  PILLION_LOG     what to log to stderr: error, warn, info (default), debug
  JOURNAL_STREAM  set by systemd; if stderr is the journal, log lines have a
                  priority instead of the time
  NOTIFY_SOCKET   the socket for notifying the service manager that the daemon
                  is ready, reloads its configuration, or exits (sd_notify)
  WATCHDOG_USEC   longest time between two notifications of the watchdog

Signals: SIGHUP  reload [policy], [jobs], [throttle], [share], [probe], [tuner],
                 [high_priority], [limits], [faults] and [unmanaged] of the
                 configuration. An invalid file changes nothing, nor does a
                 file that changes another section: restart the daemon for it

Exit codes: 0 ended by SIGTERM, SIGINT or --end-when-idle, or with --detach ready; 1 failed;
            2 unusable command line or configuration.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log::start();
    let result = match arguments.detach {
        true => detached::start(),
        false => run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            log::fatal(&told_once(error.as_ref()));
            match error.is::<ConfigError>() {
                true => ExitCode::from(2),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// Descriptors: two for each client and each process with an account, one for each job and each
/// process being ended, and some.
const DESCRIPTORS: u64 = 4_096;

/// A login's soft limit (1024) suffices for some hundred processes. The operator sets the hard one.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            "cannot raise the limit of file descriptors above {:?}: {error}",
            limit.current
        );
    }
}

/// The file of `--config`, made absolute for reloads.
fn own_file(path: &Path) -> anyhow::Result<Source> {
    let path = std::path::absolute(path)?;
    if source::is_defaults(&path) {
        return Err(ConfigError::ForAll(path).into());
    }
    Ok(Source::File(path))
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    detached::leave_session();
    let (gpu, source) = match (&arguments.config, &arguments.gpu) {
        (None, Some(select)) => {
            let gpus = device::gpus()?;
            let gpu = gpu::choose(gpus.clone(), select).context("--gpu")?;
            let source = Source::of_gpu(&source::usual_folder(), select, &gpus)?;
            (Some(gpu), source)
        }
        (path, _) => (None, own_file(path.as_deref().unwrap_or(Path::new("")))?),
    };
    let (config, layers) = source.read()?;
    let shown = Shown::of(&layers, &config);
    raise_descriptors();
    // Before any thread starts, so that all inherit the mask: one thread waits for signals.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGHUP);
    signals.thread_block().context("cannot block signals")?;
    let clock = Clock::process();
    if let Some(error) = Clock::open_error() {
        anyhow::bail!("the virtual clock cannot be used: {error}");
    }
    let gpu = match gpu {
        Some(gpu) => gpu,
        None => gpu::choose(device::gpus()?, &config.gpu)
            .with_context(|| format!("{}", source.path().display()))?,
    };
    let path = socket::path_of(&gpu.uuid, config.socket_path.as_deref())?;
    let uuid = gpu.uuid.clone();
    let _lock = GpuLock::take(&uuid)?;
    let idle = arguments.end_when_idle.map(Duration::from_secs);
    let daemon = Daemon::start_until_idle(&config, gpu, &path, clock, idle)?;
    let mut daemon = daemon.showing(&shown);
    if let Some(path) = std::env::var_os("PILLION_RECORD") {
        let file = File::create(&path).with_context(|| format!("{}", path.display()))?;
        daemon = daemon.record_to(file);
    }
    let reloader = daemon.reloader(config);
    obey(signals, daemon.stopper(), reloader, source)?;
    if let Some(within) = sd_notify::watchdog_enabled().filter(|within| !within.is_zero()) {
        keep_alive(daemon.pulse(), within / WATCHDOG_BEATS)?;
    }
    // This thread becomes the poll thread. On a virtual clock one thread of all runs at a time.
    if !clock.is_virtual() {
        ask_for_real_time();
    }
    let ready = format!("ready: {uuid} socket {}", path.display());
    tracing::info!("{ready}");
    detached::tell_ready(&ready)?;
    tell_manager(&[NotifyState::Ready]);
    daemon.run()?;
    tracing::info!("ended");
    Ok(())
}

/// Requests real-time priority; without it this thread is late on a busy host, and jobs wait.
fn ask_for_real_time() {
    match realtime::begin() {
        Ok(Begun::RealTime) => {
            tracing::info!("the poll thread has real-time priority (SCHED_RR, 1)")
        }
        Ok(Begun::AsChosen(policy)) => {
            tracing::info!(
                "the poll thread keeps scheduling policy {policy}, which it was started with"
            );
        }
        Err(error) => tracing::info!(
            "the poll thread has no real-time priority: {error}; on a busy host it decides late \
             (LimitRTPRIO=1 in its unit allows it)"
        ),
    }
}

/// Reloads on SIGHUP; other signals end the daemon, in order if possible, else after a timeout.
fn obey(
    signals: SigSet,
    stopper: Stopper,
    mut reloader: Reloader,
    source: Source,
) -> anyhow::Result<()> {
    let wait = move || {
        let signal = loop {
            match signals.wait() {
                Ok(Signal::SIGHUP) => reload(&mut reloader, &source),
                Ok(signal) => break signal,
                Err(_) => return,
            }
        };
        stopper.tell_why(signal.as_str());
        tell_manager(&[NotifyState::Stopping]);
        stopper.stop();
        let _ = poll(&mut [], Some(&END_TIMEOUT));
        if stopper.has_stopped() {
            let _ = poll(&mut [], Some(&SAVE_TIMEOUT));
        }
        // Reached only if a thread cannot end; the control thread has removed the socket.
        std::process::exit(0);
    };
    thread::Builder::new()
        .name("pillion-signals".to_owned())
        .spawn(wait)
        .context("cannot start the signal thread")?;
    Ok(())
}

/// Notifies the service manager's watchdog every `every` while the daemon decides.
fn keep_alive(mut pulse: Pulse, every: Duration) -> anyhow::Result<()> {
    let every = Timespec::try_from(every).context("WATCHDOG_USEC")?;
    let beat = move || loop {
        if pulse.is_beating() {
            tell_manager(&[NotifyState::Watchdog]);
        }
        // Real time, like the manager's.
        let _ = poll(&mut [], Some(&every));
    };
    thread::Builder::new()
        .name("pillion-watchdog".to_owned())
        .spawn(beat)
        .context("cannot start the watchdog's thread")?;
    Ok(())
}

/// Reloads the configuration; reports the result as an event, begin and end to the manager.
fn reload(reloader: &mut Reloader, source: &Source) {
    // Without the time an earlier READY may pass for the end (sd_notify(3), RELOADING=1).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell_manager(&[NotifyState::Reloading, now]),
        Err(_) => tell_manager(&[NotifyState::Reloading]),
    }
    let status = match reloader.reload(source) {
        Ok(()) => String::new(),
        Err(error) => format!("unchanged, because the new configuration is invalid: {error}"),
    };
    // In one line, as the protocol requires.
    let status = status.replace('\n', " ");
    tell_manager(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Notifies the service manager that started the daemon, if any (`sd_notify(3)`).
fn tell_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}

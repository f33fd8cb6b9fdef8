//! From a process that has not touched CUDA to a client of daemons, or not.
//!
//! ```text
//! Unread ── first call after cuInit ─> Virgin ── first context that attached ──> Attached
//!    │                                 │  └── first context that did not ──> Unmanaged
//!    └── PILLION_DISABLE ──> Inert <───┴── fork after the first context            │
//!                                                Attached <── one that attached ───┘
//! ```
//!
//! A process *attaches* once per device, at the creation of its first context there, where a
//! blocking exchange with the daemon costs least: creating a context takes a real driver 100 ms. If
//! the first context was created behind our back, the process attaches at its first launch. A
//! device whose daemon is absent or refuses runs unmanaged until a daemon accepts the process.
//! Where one may come, it has a client without a daemon until then ([`attach::attach`]), which
//! counts as attached in this module. Other devices are independent.
//!
//! **Fork.** A child of a process that has touched CUDA is inert for good: CUDA itself does not
//! survive a fork, the parent's pages are not mapped in the child, and the helper threads are
//! missing. If no handler ran for the fork, the child finds the page of [`mod@phase`] cleared. A
//! child of another process goes its own way from Virgin; before that no lock is taken, which
//! another thread could hold.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use abi::types::{CUcontext, CUdevice};
use protocol::clock::Clock;
use protocol::ledger::UNLIMITED;
use rustix::net::Shutdown;

use crate::daemon::attach::{self, Unmanaged};
use crate::daemon::helper;
use crate::dispatch::telemetry;
use crate::driver;
use crate::kernels::KERNELS;
use crate::platform::config::{Config, DEVICES_MAX};
use crate::platform::log::{self, Level};
use crate::platform::phase::{self, Phase};
use crate::platform::sys;
use crate::process::clients::CLIENTS;
use crate::process::{self, Client, account};
use crate::progress::contexts::{CONTEXTS, Kind};
use crate::progress::{cupti, recorder, waking};
use crate::signals::supervised_exit::{self, FROZEN_MS};

static HANDLERS: Handlers = Handlers::new();

struct Handlers {
    is_fork_seen: OnceLock<bool>,
    is_exit_seen: OnceLock<bool>,
    /// Longest wait for work in flight when the process exits, ms; 0: none.
    drain_ms: AtomicU32,
}

impl Handlers {
    const fn new() -> Self {
        Self {
            is_fork_seen: OnceLock::new(),
            is_exit_seen: OnceLock::new(),
            drain_ms: AtomicU32::new(0),
        }
    }

    fn see_forks(&self) -> bool {
        let see = || sys::at_fork_in_child(handle_fork_in_child);
        *self.is_fork_seen.get_or_init(see)
    }

    fn see_exit(&self, drain_ms: u32) {
        self.drain_ms.store(drain_ms, Ordering::Relaxed);
        self.is_exit_seen.get_or_init(|| sys::at_exit(handle_exit));
    }
}

/// A context was created: the first one on a device decides whether the device is managed.
pub(crate) fn handle_context(context: CUcontext, device: CUdevice, kind: Kind) {
    CONTEXTS.handle_created(context, device, kind);
    if phase::now() == Phase::Inert {
        return;
    }
    if let Some(index) = CLIENTS.try_begin(device) {
        sys::without_cancellation(|| attach_to(context, device, index));
    } else {
        account::handle_context(device);
    }
}

/// A launch by a thread whose device is not managed. Returns whether any stream may be managed. If
/// no context is known, one was created behind our back, and decides now.
#[cold]
pub(crate) fn handle_launch_without_client() -> bool {
    if phase::now() == Phase::Virgin {
        let context = driver::current_context().ok().filter(|c| !c.is_null());
        if let (Some(context), Ok(device)) = (context, driver::current_device()) {
            handle_context(context, device, Kind::Created);
        }
    }
    phase::now() == Phase::Attached
}

/// This job's quota on a device with `total` bytes, before an account exists: the daemon's, else
/// the environment's. `None`: no limit.
pub(crate) fn quota_without_account(device: CUdevice, total: u64) -> Option<u64> {
    let config = process::config()?;
    let told = sys::without_cancellation(|| attach::ask_quota(config, device));
    match told {
        Some(bytes) => Some(bytes).filter(|&bytes| bytes != UNLIMITED),
        None => config.quotas.of_device(device.0)?.bytes_of(total),
    }
}

/// A call takes memory without an account: a context created behind our back, if any, decides now.
#[inline]
pub(crate) fn handle_call_without_account() {
    if phase::now() == Phase::Virgin {
        handle_launch_without_client();
    }
}

fn attach_to(context: CUcontext, device: CUdevice, index: u32) {
    let Some(config) = process::config() else {
        CLIENTS.settle(index, None);
        return;
    };
    if let Err(reason) = try_attach(config, context, device, index) {
        let is_accounted = keep_account_alone(config, index, device);
        CLIENTS.settle(index, None);
        say_unmanaged(&reason, device, index);
        leave(config, is_accounted);
    }
    if index as usize + 1 == DEVICES_MAX {
        log::say(
            Level::Warn,
            format_args!(
                "this is device {DEVICES_MAX} of this process; further devices run unmanaged"
            ),
        );
    }
}

type Reason = (Level, String);

fn try_attach(
    config: &Config,
    context: CUcontext,
    device: CUdevice,
    index: u32,
) -> Result<(), Reason> {
    // Before anything that a fork would have to undo.
    if !HANDLERS.see_forks() {
        return Err((
            Level::Warn,
            "cannot register a fork handler: out of memory".into(),
        ));
    }
    phase::note_begun();
    if !phase::clear_in_children() {
        // Linux before 4.14, or larger pages: only children made by fork learn of it.
        log::say(
            Level::Debug,
            format_args!("children created by clone() instead of fork() must not use CUDA"),
        );
    }
    let reason = |error: &Unmanaged| {
        // A job of `pillion run` expects a daemon; a bare preload need not, a record needs none.
        let is_asked_for = config.job.is_some() && config.record.is_none();
        let is_expected = is_asked_for || !error.is_absence();
        let level = if is_expected {
            Level::Warn
        } else {
            Level::Info
        };
        (level, error.to_string())
    };
    let attached = attach::attach(config, context, device, index);
    let (client, met) = attached.map_err(|error| reason(&error))?;
    let is_refused = met.as_ref().is_err_and(Unmanaged::is_refusal);
    let met = met.map_err(|error| reason(&error));
    // For good, as threads refer to it.
    let client: &'static Client = Box::leak(Box::new(client));
    #[cfg(shim)]
    crate::platform::dlmopen_threads::tell_of_threads();
    if let Err(error) = helper::start(client, is_refused) {
        // Without it no completion would be seen.
        client.connection.end(Shutdown::Both);
        let reason = (
            Level::Warn,
            format!("cannot start the helper thread: {error}"),
        );
        return Err(met.err().unwrap_or(reason));
    }
    open_account(config, client, is_refused);
    CLIENTS.settle(index, Some(client));
    if client.page.stop.load(Ordering::SeqCst) != 0 {
        waking::wake_surely(client);
    }
    HANDLERS.see_exit(config.drain_ms);
    phase::enter(Phase::Attached);
    #[cfg(not(shim))]
    {
        crate::signals::handler::handle_attached(config.drain_ms);
        crate::dispatch::bypass::handle_attached(client);
    }
    match &met {
        Err(reason) => say_unmanaged(reason, device, index),
        Ok(met) => log::say(Level::Info, format_args!("{met}")),
    }
    telemetry::handle_attached();
    Ok(())
}

fn open_account(config: &Config, client: &Client, is_refused: bool) {
    let (index, device) = (client.index, client.device);
    match &*client.ledger() {
        Some(ledger) if account::open(index, device, ledger.page, ledger.slot) => {
            say_if_less_than_asked(config, device, ledger.page.quota());
        }
        _ => {
            if keep_account_alone(config, index, device) {
                return;
            }
            if !client.is_taken() {
                // For a coming daemon's ledger. A refusing one reports its quota too.
                let told = is_refused.then(|| attach::ask_quota(config, device));
                let quota = told.flatten().filter(|&bytes| bytes != UNLIMITED);
                account::open_local(index, device, quota);
            }
        }
    }
}

fn say_unmanaged((level, reason): &Reason, device: CUdevice, index: u32) {
    if index == 0 {
        log::say(
            *level,
            format_args!("this process runs unmanaged: {reason}"),
        );
    } else {
        let device = device.0;
        log::say(
            *level,
            format_args!("device {device} of this process runs unmanaged: {reason}"),
        );
    }
}

/// The operator's rules, or the job's other processes, allow less than this one asks for.
fn say_if_less_than_asked(config: &Config, device: CUdevice, has_bytes: Option<u64>) {
    let Some((asked, has_bytes)) = config.quotas.of_device(device.0).zip(has_bytes) else {
        return;
    };
    let total = driver::memory::total_bytes(device).unwrap_or(0);
    let asked_bytes = asked.bytes_of(total).unwrap_or(UNLIMITED);
    if has_bytes < asked_bytes.min(total) {
        log::say(
            Level::Warn,
            format_args!(
                "this process requests {asked} of the memory of device {}; the daemon allows its job {has_bytes} bytes",
                device.0
            ),
        );
    }
}

/// No daemon keeps the job's quota on a device: this process then keeps it, for itself alone.
fn keep_account_alone(config: &Config, index: u32, device: CUdevice) -> bool {
    let Some(quota) = config.quotas.of_device(device.0) else {
        return false;
    };
    let total = driver::memory::total_bytes(device).unwrap_or(0);
    let Some(bytes) = quota.bytes_of(total) else {
        return false;
    };
    account::open_local(index, device, Some(bytes));
    log::say(
        Level::Warn,
        format_args!(
            "no daemon enforces the quota of {quota} on device {}: each process of the job enforces it for itself alone, \
             so together they can exceed it",
            device.0
        ),
    );
    true
}

/// This device is not managed. Nor is the process, unless another device is.
fn leave(config: &Config, is_accounted: bool) {
    let to = if is_accounted || config.panic_at.is_some() {
        Phase::Idle
    } else {
        Phase::Unmanaged
    };
    phase::try_change(Phase::Virgin, to);
    if is_accounted {
        // Another device of this process may have been left without an account.
        phase::try_change(Phase::Unmanaged, Phase::Idle);
    }
}

/// In the child of a fork: stores and one system call, as in a signal handler.
extern "C" fn handle_fork_in_child() {
    phase::enter(Phase::Inert);
}

/// Waits for work in flight, and longer while the exit is supervised, so that the supervisor can
/// have MPS end it. Returns whether it is complete.
fn finish(limit_ms: u32) -> bool {
    let mut is_complete = helper::finish_all(limit_ms);
    while !is_complete && supervised_exit::is_seen_to(Clock::monotonic().now_ns()) {
        supervised_exit::tell_overdue();
        is_complete = helper::finish_all(FROZEN_MS);
    }
    is_complete
}

/// Waits for work in flight at exit, as when the process dies of a signal: an application that
/// handles the signal itself mostly exits this way. Other threads continue, and may launch: an exit
/// handler may wait for them. At exit the driver shuts itself down; the helper must not be in it
/// then. On virtual time the moment at which the daemon forgets this client must not be left to
/// chance: we hang up first, and the daemon then closes its side.
extern "C" fn handle_exit() {
    KERNELS.handle_exit();
    let limit_ms = HANDLERS.drain_ms.load(Ordering::Relaxed);
    if limit_ms != 0 && !finish(limit_ms) {
        log::say(
            Level::Warn,
            format_args!(
                "exiting with work in flight after waiting {limit_ms} ms (PILLION_DRAIN_MS)"
            ),
        );
        waking::tell_gave_up();
    }
    // A forked child has no helper to wait for, and the connections are not its own.
    for client in process::clients() {
        waking::stop(client);
        client.notes.end();
    }
    if process::clients().any(|client| client.is_recording) {
        recorder::read_last();
        cupti::flush_last();
    }
    for client in process::clients().filter(|client| client.clock.is_virtual()) {
        if client.connection.end(Shutdown::Write) {
            // The receive timeout of the hello still holds. No data comes on an established
            // connection, so one byte of room is enough.
            let read = |connection: &_| rustix::io::read(connection, &mut [0; 1]);
            while matches!(client.connection.with(read), Some(Ok(1..))) {}
        }
    }
}

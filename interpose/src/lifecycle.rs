//! From a process that never heard of CUDA to a client of a daemon, or not.
//!
//! ```text
//! Unread ── first call of a hook ──> Virgin ── first context ──> Attaching ──> Attached
//!    │                                 │                            │
//!    └── PILLION_DISABLE ──> Inert <───┴────── fork after that ─────┴── no daemon, refused, …
//! ```
//!
//! *Attaching* happens once in the life of a process, at the creation of its first context, where a
//! blocking word with the daemon costs least: creating a context takes a real driver 100 ms. A
//! process whose first context was made behind our back attaches at its first launch.
//!
//! **Fork.** A child of a process that has touched CUDA is inert for good: CUDA itself does not
//! survive a fork, the parent's pages are not mapped in the child, and its helper thread is not
//! there. A child of a process that has not goes its own way from Virgin.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use abi::types::{CUcontext, CUdevice};
use rustix::net::{Shutdown, shutdown};

use crate::client::Client;
use crate::config::{self, Config};
use crate::contexts::{CONTEXTS, Kind};
use crate::log::{self, Level};
use crate::{attach, door, driver, helper, sys};

/// Where this process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The environment has not been read.
    Unread,
    /// No context yet.
    Virgin,
    /// One thread talks to the daemon; the others pass by.
    Attaching,
    /// A client.
    Attached,
    /// Not managed, but hooks still go through the door, because a test wants one to panic.
    Idle,
    /// Not managed; hooks forward at once.
    Inert,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::Unread as u8);
/// Index of the entry point whose hook panics, as a test asks; no entry point's if none does.
static PANIC_AT: AtomicUsize = AtomicUsize::new(usize::MAX);
static CONFIG: OnceLock<Config> = OnceLock::new();
static CLIENT: OnceLock<Client> = OnceLock::new();
/// The connection to the daemon, open as long as the process lives.
static CONNECTION: OnceLock<OwnedFd> = OnceLock::new();

/// Where this process stands.
#[inline]
pub(crate) fn phase() -> Phase {
    // Acquire pairs with the Release store in `enter`: who sees Attached sees the client.
    match PHASE.load(Ordering::Acquire) {
        0 => Phase::Unread,
        1 => Phase::Virgin,
        2 => Phase::Attaching,
        3 => Phase::Attached,
        4 => Phase::Idle,
        _ => Phase::Inert,
    }
}

/// This process as a client, if it is one.
#[inline]
pub(crate) fn client() -> Option<&'static Client> {
    if phase() == Phase::Attached {
        CLIENT.get()
    } else {
        None
    }
}

/// What the door does first inside a hook: reads the environment if nobody has, panics if a test
/// asks for it, and says whose call this is.
#[inline]
pub(crate) fn handle_call(index: usize) -> Option<&'static Client> {
    if phase() == Phase::Unread {
        read_environment();
    }
    if CONFIG
        .get()
        .is_some_and(|config| config.panic_at == Some(index))
    {
        door::panic_for_test(index);
    }
    client()
}

/// A context was created: the first one decides what this process is.
pub(crate) fn handle_context(context: CUcontext, device: CUdevice, kind: Kind) {
    CONTEXTS.handle_created(context, device, kind);
    if let Some(client) = client() {
        client.handle_context(context, device);
    }
    if try_change(Phase::Virgin, Phase::Attaching) {
        attach_to(context, device);
    }
}

/// A launch before any context that we know of: whoever made it did so behind our back.
#[cold]
pub(crate) fn handle_launch_without_context() -> Option<&'static Client> {
    if phase() != Phase::Virgin {
        return None;
    }
    let context = driver::current_context().ok().filter(|c| !c.is_null())?;
    let device = driver::current_device().ok()?;
    handle_context(context, device, Kind::Created);
    client()
}

fn read_environment() {
    let config = CONFIG.get_or_init(|| {
        door::install_panic_hook();
        Config::read(|name| std::env::var_os(name))
    });
    let next = if sys::is_switched_on(config::DISABLE) {
        Phase::Inert
    } else {
        Phase::Virgin
    };
    if !try_change(Phase::Unread, next) || next == Phase::Inert {
        return;
    }
    log::set_level(config.log);
    PANIC_AT.store(config.panic_at.unwrap_or(usize::MAX), Ordering::Relaxed);
    for complaint in &config.complaints {
        log::say(Level::Error, format_args!("{complaint}"));
    }
}

fn attach_to(context: CUcontext, device: CUdevice) {
    let Some(config) = CONFIG.get() else { return };
    // Before anything that a fork would have to undo.
    if !sys::at_fork_in_child(handle_fork_in_child) {
        return give_up(config, "no memory for a fork handler");
    }
    match attach::attach(config, context, device) {
        Ok((client, connection)) => {
            let connection = CONNECTION.get_or_init(|| connection);
            let client = CLIENT.get_or_init(|| client);
            if let Err(error) = helper::start(client) {
                // Without it what completes would never be learnt.
                let _ = shutdown(connection, Shutdown::Both);
                return give_up(config, &format!("no helper thread: {error}"));
            }
            sys::at_exit(handle_exit);
            enter(Phase::Attached);
            log::say(Level::Info, format_args!("{client}"));
        }
        Err(error) => {
            // A job started by `pillion run` expects a daemon; a bare preload may just be there.
            let level = if config.job.is_some() || !error.is_absence() {
                Level::Warn
            } else {
                Level::Info
            };
            log::say(level, format_args!("this process runs unmanaged: {error}"));
            leave(config);
        }
    }
}

fn give_up(config: &Config, reason: &str) {
    log::say(
        Level::Warn,
        format_args!("this process runs unmanaged: {reason}"),
    );
    leave(config);
}

fn leave(config: &Config) {
    enter(if config.panic_at.is_some() {
        Phase::Idle
    } else {
        Phase::Inert
    });
}

fn enter(phase: Phase) {
    // Release pairs with the Acquire load in `phase`.
    PHASE.store(phase as u8, Ordering::Release);
}

fn try_change(from: Phase, to: Phase) -> bool {
    PHASE
        .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// In the child of a fork: stores and one system call, as in a signal handler.
extern "C" fn handle_fork_in_child() {
    enter(Phase::Inert);
}

/// At exit the driver takes itself down; the helper must not be in it then. On virtual time the
/// moment at which the daemon forgets this client must not be left to chance either: we hang up
/// first, and the daemon closes its side once it has.
extern "C" fn handle_exit() {
    // A child of a fork has no helper to wait for, and the connection is not its own.
    let Some(client) = client() else { return };
    helper::stop();
    if !client.clock.is_virtual() {
        return;
    }
    let Some(connection) = CONNECTION.get() else {
        return;
    };
    if shutdown(connection, Shutdown::Write).is_ok() {
        // The receive timeout of the hello still holds. Nothing more is said on a connection that
        // was welcomed, so one byte is room enough.
        while matches!(rustix::io::read(connection, &mut [0; 1]), Ok(1..)) {}
    }
}

//! Libraries that a program opened so that their CUDA calls pass by us, noted and said.
//!
//! Opening such a library is no harm as long as it has nothing to do with CUDA, which cannot be seen
//! from outside: so it is noted, and said once the driver is in the process too. That is looked at
//! after each opening, when the process attaches, and when it ends.
//!
//! What is said is that the calls *pass by if there are any*: a library that is bound to its own
//! dependencies may still have been handed our hooks by somebody else.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::fs;
use std::sync::Mutex;

use protocol::pages::Counter;

use crate::client::Client;
use crate::log::{self, Level};
use crate::{config, lifecycle, real, sys};

/// Most libraries that are named; further ones are counted.
const NAMES_MAX: usize = 8;

/// How a library was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With `RTLD_DEEPBIND`.
    DeepBind,
    /// By `dlmopen`, into another namespace.
    Namespace,
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Self::DeepBind => "opened with RTLD_DEEPBIND",
            Self::Namespace => "opened by dlmopen in a namespace of its own",
        }
    }
}

/// Libraries opened so far.
static OPENED: AtomicUsize = AtomicUsize::new(0);
/// Those that are counted at the daemons.
static COUNTED: AtomicUsize = AtomicUsize::new(0);
/// Those that nothing was said of yet. The lock is held for moments, never across a call of others.
static NOTED: Mutex<Vec<(Way, String)>> = Mutex::new(Vec::new());

/// A library is about to be opened in such a way.
pub(crate) fn handle_opening(way: Way, file: &CStr) {
    static IS_EXIT_SEEN: AtomicBool = AtomicBool::new(false);
    if config::is_disabled() {
        return;
    }
    if !IS_EXIT_SEEN.swap(true, Ordering::Relaxed) {
        sys::at_exit(handle_exit);
    }
    OPENED.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut noted) = NOTED.lock()
        && noted.len() < NAMES_MAX
    {
        noted.push((way, file.to_string_lossy().into_owned()));
    }
}

/// Says what is noted, if the driver is in the process by now and is not our shim.
pub(crate) fn look() {
    if OPENED.load(Ordering::Relaxed) == 0 || config::is_disabled() {
        return;
    }
    if !NOTED.lock().is_ok_and(|noted| !noted.is_empty()) || !is_driver_mapped() {
        return;
    }
    // The driver may have come without a word to us; whether it is the shim, it is asked here.
    real::loaded(abi::id::cuInit);
    if real::is_shim() {
        return;
    }
    say();
    lifecycle::clients().take(1).for_each(count);
}

/// The process has attached to a daemon, which shall know.
pub(crate) fn handle_attached(client: &'static Client) {
    look();
    count(client);
}

extern "C" fn handle_exit() {
    look();
}

fn say() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    lifecycle::prepare();
    let noted = NOTED.lock().map(|mut noted| core::mem::take(&mut *noted));
    for (way, file) in noted.into_iter().flatten() {
        let level = if IS_SAID.swap(true, Ordering::Relaxed) {
            Level::Debug
        } else {
            Level::Warn
        };
        log::say(
            level,
            format_args!(
                "{file} was {}: CUDA calls that it makes pass by Pillion; \
                 `pillion run --shim` reaches them",
                way.text()
            ),
        );
    }
}

/// Counts at a daemon what was opened since the last time.
fn count(client: &'static Client) {
    let opened = OPENED.load(Ordering::Relaxed);
    let before = COUNTED.fetch_max(opened, Ordering::Relaxed);
    let since = opened.saturating_sub(before) as u64;
    client.page.count(Counter::Bypasses, since);
}

/// Whether a driver is mapped, in whatever namespace, that is not behind our shim.
fn is_driver_mapped() -> bool {
    // In the file names of mappings, whose links are resolved.
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let has = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
    has(b"/libcuda.so") && !has(b"/libpillion_shim.so")
}

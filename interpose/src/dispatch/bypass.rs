//! Libraries that a program opened so that their CUDA calls pass by us, noted and said.
//!
//! Opening such a library is no harm as long as it has nothing to do with CUDA, which cannot be seen
//! from outside: so it is noted, and said once the driver is in the process too. That is looked at
//! when a library is opened, when the process attaches, and when it ends.
//!
//! What is said is that the calls *pass by if there are any*: a library that is bound to its own
//! dependencies may still have been handed our hooks by somebody else.
//!
//! Noting takes no lock and does not allocate: it happens inside the program's `dlopen`, while other
//! threads may fork.

use core::ffi::CStr;
use std::fs;

use protocol::pages::Counter;

use crate::dispatch::environment;
use crate::dispatch::seen::SEEN;
pub(crate) use crate::dispatch::seen::Way;
use crate::driver::real;
use crate::platform::log::{self, Level};
use crate::platform::{config, sys};
use crate::process::{self, Client};

/// A library is about to be opened in such a way.
pub(crate) fn handle_opening(way: Way, file: &CStr) {
    if !config::is_disabled() && SEEN.bypasses.add(way, file.to_bytes()) {
        sys::at_exit(handle_exit);
    }
}

/// Says what is noted, if the driver is in the process by now and is not our shim.
pub(crate) fn look() {
    if !SEEN.bypasses.are_any() || config::is_disabled() {
        return;
    }
    if !SEEN.bypasses.are_any_noted() || !is_driver_mapped() {
        return;
    }
    // The driver may have come without a word to us; whether it is the shim, it is asked here.
    real::loaded(abi::id::cuInit);
    if real::is_shim() {
        return;
    }
    say();
    process::clients().take(1).for_each(count);
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
    environment::prepare();
    for (is_first, way, file) in SEEN.bypasses.take() {
        let level = if is_first { Level::Warn } else { Level::Debug };
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
    let since = SEEN.bypasses.take_uncounted();
    client.page.count(Counter::Bypasses, since);
}

/// Whether a driver is mapped, in whatever namespace, that is not behind our shim.
fn is_driver_mapped() -> bool {
    // In the file names of mappings, whose links are resolved.
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let has = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
    has(b"/libcuda.so") && !has(b"/libpillion_shim.so")
}

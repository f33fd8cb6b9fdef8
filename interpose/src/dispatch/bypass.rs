//! Notes and reports libraries that a program opened in a way that makes their CUDA calls bypass
//! us. Such a library does no harm unless it uses CUDA, which cannot be seen from outside. So it is
//! noted, and reported once the driver is in the process too. That is checked when a library is
//! opened, when the process attaches, and when it ends. The report says that the calls bypass us
//! *if there are any*: a library bound to its own dependencies may still have been given our hooks
//! by other code. Noting takes no lock and does not allocate: it happens inside `dlopen`, while
//! other threads may fork.

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

pub(crate) fn handle_opening(way: Way, file: &CStr) {
    if !config::is_disabled() && SEEN.bypasses.add(way, file.to_bytes()) {
        sys::at_exit(handle_exit);
    }
}

/// Reports noted libraries, if the driver is in the process by now and is not our shim.
pub(crate) fn look() {
    if !SEEN.bypasses.are_any() || config::is_disabled() {
        return;
    }
    if !SEEN.bypasses.are_any_noted() || !is_driver_mapped() {
        return;
    }
    // The driver may have bypassed our doors; this call finds out whether it is the shim.
    real::loaded(abi::id::cuInit);
    if real::is_shim() {
        return;
    }
    say();
    process::clients().take(1).for_each(count);
}

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
                "{file} was {}: its CUDA calls bypass Pillion; \
                 `pillion run --shim` can intercept them",
                way.text()
            ),
        );
    }
}

/// Counts the libraries opened since the last call.
fn count(client: &'static Client) {
    let since = SEEN.bypasses.take_uncounted();
    client.page.count(Counter::Bypasses, since);
}

fn is_driver_mapped() -> bool {
    // File names of mappings have their links resolved.
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let has = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
    has(b"/libcuda.so") && !has(b"/libpillion_shim.so")
}

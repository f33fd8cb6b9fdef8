//! Applies the settings when the first hook is called. That is after the driver was initialised,
//! because it refuses every call before. A child of a process that has tried to attach has nothing
//! to read.

use core::sync::atomic::Ordering;

use crate::dispatch::{panics, telemetry};
use crate::driver;
use crate::platform::config::{self, Config};
use crate::platform::inherited::INHERITED;
use crate::platform::log::{self, Level};
use crate::platform::phase::{self, Phase};
use crate::platform::sys;
use crate::process;

/// First step inside a hook: reads the settings if not read yet, and panics if a test asks for it.
/// Returns false before the driver is initialised: it then refuses every call whatever its
/// arguments, and a hook must not touch them.
#[inline]
pub(crate) fn handle_call(index: usize) -> bool {
    if phase::now() == Phase::Unread && !begin() {
        return false;
    }
    panic_if_asked(index);
    true
}

#[inline]
pub(crate) fn panic_if_asked(index: usize) {
    let config = process::config();
    if config.is_some_and(|config| config.panic_at == Some(index)) {
        panics::panic_for_test(index);
    }
}

pub(crate) fn prepare() {
    if phase::now() == Phase::Unread && !phase::has_begun() {
        read_environment();
    }
}

#[cold]
fn begin() -> bool {
    // A client's child never begins.
    if config::is_disabled() || phase::has_begun() {
        phase::enter(Phase::Inert);
    } else if driver::is_initialised() {
        // In a child of this process the driver is not initialised.
        phase::clear_in_children();
        read_environment();
        phase::try_change(Phase::Unread, Phase::Virgin);
    }
    matches!(phase::now(), Phase::Virgin | Phase::Attached)
}

fn read_environment() {
    // Racing threads read the same settings twice.
    let read = || Config::read(|name| std::env::var_os(name));
    let config = process::config().unwrap_or_else(|| process::set_config(read()));
    if config::is_disabled() || INHERITED.is_environment_read.swap(true, Ordering::Relaxed) {
        return;
    }
    panics::install_panic_hook();
    log::set_level(config.log);
    if config.log == Level::Debug {
        sys::at_exit(telemetry::handle_exit);
    }
    for complaint in &config.complaints {
        log::say(Level::Error, format_args!("{complaint}"));
    }
}

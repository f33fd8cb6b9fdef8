//! Process state that a forked child inherits, unlike the phase ([`crate::platform::phase`]).

use core::sync::atomic::{AtomicBool, AtomicU8};

use crate::platform::log::Level;

pub(crate) static INHERITED: Inherited = Inherited::new();

/// See [`INHERITED`]. Each field belongs to the module that it names.
pub(crate) struct Inherited {
    pub(super) log_level: AtomicU8,
    /// Whether the library is switched off; 0: not read yet ([`crate::platform::config`]).
    pub(super) switch: AtomicU8,
    /// Whether this process or an ancestor has tried to attach ([`crate::platform::phase`]).
    pub(super) has_begun: AtomicBool,
    /// Whether the settings were applied ([`crate::dispatch::environment`]).
    pub(crate) is_environment_read: AtomicBool,
}

impl Inherited {
    const fn new() -> Self {
        Self {
            log_level: AtomicU8::new(Level::Warn as u8),
            switch: AtomicU8::new(0),
            has_begun: AtomicBool::new(false),
            is_environment_read: AtomicBool::new(false),
        }
    }
}

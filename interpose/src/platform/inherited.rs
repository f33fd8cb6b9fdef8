//! Words about this process that a child of a fork finds as its parent left them, unlike the phase
//! ([`crate::platform::phase`]).

use core::sync::atomic::{AtomicBool, AtomicU8};

use crate::platform::log::Level;

/// The words of this process.
pub(crate) static INHERITED: Inherited = Inherited::new();

/// See [`INHERITED`]. Each is the business of one module, which it names.
pub(crate) struct Inherited {
    /// The most detailed level that is said ([`crate::platform::log`]).
    pub(super) log_level: AtomicU8,
    /// Whether the library is switched off, or 0: not asked yet ([`crate::platform::config`]).
    pub(super) switch: AtomicU8,
    /// Whether an attempt to attach was made, in this process or one that it descends from
    /// ([`crate::platform::phase`]).
    pub(super) has_begun: AtomicBool,
    /// Whether what the environment asks for was done ([`crate::dispatch::environment`]).
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

//! What a client's helper thread and the other threads tell each other ([`crate::daemon::helper`]).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// What one client's helper and the other threads tell each other.
pub(crate) struct Words {
    /// Until when the helper sleeps, or is about to, ns; 0: it is awake, `u64::MAX`: until it is
    /// rung. On a line of its own: every best-effort launch reads it, and the helper writes to its
    /// other words all the time.
    pub(crate) asleep: CachePadded<AtomicU64>,
    /// The helper is in the driver, or about to.
    pub(crate) in_driver: CachePadded<AtomicBool>,
    /// Best-effort launches are to be written down for it. On a line that is hardly ever written.
    pub(crate) is_learning: CachePadded<AtomicBool>,
    /// It watches what is in flight.
    pub(crate) is_watching: AtomicBool,
    /// It has what it needs to drain the process.
    pub(crate) is_ready: AtomicBool,
    /// The process is about to exit, and what was to be noted is.
    pub(crate) has_noted: AtomicBool,
    /// Calls that wait for a large copy ([`crate::launch::begin_copy`]).
    pub(crate) copies: AtomicU32,
}

impl Words {
    pub(crate) const fn new() -> Self {
        Self {
            asleep: CachePadded::new(AtomicU64::new(0)),
            in_driver: CachePadded::new(AtomicBool::new(false)),
            is_learning: CachePadded::new(AtomicBool::new(false)),
            is_watching: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
            has_noted: AtomicBool::new(false),
            copies: AtomicU32::new(0),
        }
    }

    /// Whether best-effort launches are to be written down ([`crate::progress::learner`]).
    #[inline]
    pub(crate) fn is_learning(&self) -> bool {
        self.is_learning.load(Ordering::Relaxed)
    }
}

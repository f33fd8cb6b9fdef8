//! State shared by a client's helper thread and the other threads ([`crate::daemon::helper`]).

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

pub(crate) struct Words {
    /// Until when the helper sleeps, or is about to, ns; 0: it is awake, `u64::MAX`: until it is
    /// rung. Own cache line: launches read it, and the helper writes the others.
    pub(crate) asleep: CachePadded<AtomicU64>,
    pub(crate) in_driver: CachePadded<AtomicBool>,
    /// Best-effort launches are to be logged for the helper. On a line that is hardly ever written.
    pub(crate) is_learning: CachePadded<AtomicBool>,
    pub(crate) is_watching: AtomicBool,
    /// The helper has what it needs to drain the process.
    pub(crate) is_ready: AtomicBool,
    /// The process is about to exit, and its last notes are written.
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

    /// Whether best-effort launches are to be logged ([`crate::progress::learner`]).
    #[inline]
    pub(crate) fn is_learning(&self) -> bool {
        self.is_learning.load(Ordering::Relaxed)
    }
}

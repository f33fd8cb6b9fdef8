//! Atomics under one name: loom's under the model checker, stepped ones in the fault simulation,
//! else `core`'s. Both run the shipped source of [`crate::ring`] and [`crate::lease`].

mod seqlock;
#[cfg(stepped)]
pub mod stepped;
mod try_lock;

#[cfg(any(stepped, not(loom)))]
pub use core::sync::atomic::Ordering;
#[cfg(not(any(loom, stepped)))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(stepped)]
pub use stepped::{AtomicU32, AtomicU64, fence};

pub use seqlock::SeqLock;
pub use try_lock::{Locked, TryLock};

/// Ordering of stores that publish: a record in a ring, a [`SeqLock`]'s version, a [`TryLock`]'s
/// data. CI expects loom to fail with `--cfg weaken_release`: its tests detect a missing Release.
#[cfg(not(weaken_release))]
pub const PUBLISH: Ordering = Ordering::Release;
/// Deliberately wrong, for the check described above.
#[cfg(weaken_release)]
pub const PUBLISH: Ordering = Ordering::Relaxed;

/// Ordering of a refund from a client's sum: its readers see it counted. Weakened as [`PUBLISH`].
#[cfg(not(weaken_release))]
pub const REFUND: Ordering = Ordering::Release;
/// Deliberately wrong.
#[cfg(weaken_release)]
pub const REFUND: Ordering = Ordering::Relaxed;

/// Puts a value on cache lines of its own, so that two processes that write neighbouring words do
/// not slow each other down (measured: 9 ns per push against 50-70 ns on a shared line).
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line<T>(pub T);

impl<T> core::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

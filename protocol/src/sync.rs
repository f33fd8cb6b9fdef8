//! Atomics under one name: loom's when the crate is model-checked, stepped ones under the daemon's fault simulation,
//! `core`'s otherwise. [`SeqLock`] and [`TryLock`] stand on them.
//!
//! The shipped source of [`crate::ring`] and [`crate::lease`] is what both run; there is no second
//! copy for the checker.

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

/// The order with which words are published: a record in a ring, the version of a [`SeqLock`], what
/// a [`TryLock`] protects.
///
/// CI builds the loom tests once more with `--cfg weaken_release` and expects them to fail: that
/// shows the tests can see a missing Release at all.
#[cfg(not(weaken_release))]
pub const PUBLISH: Ordering = Ordering::Release;
/// Deliberately wrong, for the check described above.
#[cfg(weaken_release)]
pub const PUBLISH: Ordering = Ordering::Relaxed;

/// The order with which a charge that is taken back leaves its client's sum: who sees that sees that it was counted
/// among the refunds. Weakened like [`PUBLISH`].
#[cfg(not(weaken_release))]
pub const REFUND: Ordering = Ordering::Release;
/// Deliberately wrong.
#[cfg(weaken_release)]
pub const REFUND: Ordering = Ordering::Relaxed;

/// Puts a value on cache lines of its own, so that two processes writing neighbouring words do not
/// slow each other down (measured: 9 ns per push against 50-70 ns when a line is shared).
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line<T>(pub T);

impl<T> core::ops::Deref for Line<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

//! How far a stream has come: what was launched on it and what of that is complete.
//!
//! A *mark* is a position in a stream's count of launches. A high-priority client numbers its
//! launches, so there a mark is a sequence number; a best-effort client adds up what its launches
//! are expected to take, so there a mark is a sum of ns. The marks are the process's own: the
//! daemon learns of them by records ([`crate::announce`]) or by sums ([`crate::completion`]).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::waited::Waited;

/// What launches write.
#[derive(Debug, Default)]
pub struct Issued {
    /// High-priority: the last sequence number given out.
    seq: AtomicU64,
    /// The mark behind the last launch that the driver took.
    mark: AtomicU64,
}

/// What the helper and waiting threads write; on other cache lines than [`Issued`].
#[derive(Debug, Default)]
pub struct Seen {
    /// The mark up to which everything is complete.
    completed: AtomicU64,
    /// Best-effort: when it was.
    waited: Waited,
    /// High-priority: the mark up to which the daemon was told.
    told: AtomicU64,
    /// Best-effort: see [`Marks::give_up`].
    given_up: AtomicU64,
    /// See [`Marks::is_surely_complete`].
    known: AtomicU64,
}

impl Issued {
    /// Of a stream without launches.
    pub const fn new() -> Self {
        Self {
            seq: AtomicU64::new(0),
            mark: AtomicU64::new(0),
        }
    }

    /// High-priority: numbers the next launch.
    #[inline]
    fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Seen {
    /// Of a stream without launches.
    pub const fn new() -> Self {
        Self {
            completed: AtomicU64::new(0),
            waited: Waited::new(),
            told: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            known: AtomicU64::new(0),
        }
    }
}

/// How far one stream has come.
pub trait Marks {
    /// What launches write.
    fn issued_marks(&self) -> &Issued;

    /// What others write.
    fn seen_marks(&self) -> &Seen;

    /// High-priority: numbers the next launch.
    #[inline]
    fn next_seq(&self) -> u64 {
        self.issued_marks().next_seq()
    }

    /// High-priority: whether a launch was ever numbered here.
    fn has_launched(&self) -> bool {
        self.issued_marks().seq.load(Ordering::Relaxed) > 0
    }

    /// High-priority: the driver took, or refused, the launch of that number.
    #[inline]
    fn set_issued(&self, seq: u64) {
        // Release pairs with the loads of whoever takes a mark: the launch has been made. The
        // greatest number stays: threads that launch on one stream may come here in any order.
        self.issued_marks().mark.fetch_max(seq, Ordering::Release);
    }

    /// Best-effort: the driver took a launch of so many expected ns. The mark behind it.
    #[inline]
    fn add_issued(&self, expected_ns: u64) -> u64 {
        // SeqCst: before the look at whether the helper sleeps (`interpose::daemon::helper`).
        let mark = &self.issued_marks().mark;
        let before = mark.fetch_add(expected_ns, Ordering::SeqCst);
        before.wrapping_add(expected_ns)
    }

    /// The mark behind the last launch that the driver took.
    #[inline]
    fn issued(&self) -> u64 {
        self.issued_marks().mark.load(Ordering::SeqCst)
    }

    /// The mark up to which everything is complete.
    #[inline]
    fn completed(&self) -> u64 {
        self.seen_marks().completed.load(Ordering::Acquire)
    }

    /// Moves [`Marks::completed`] up to `mark`; by how much.
    fn advance(&self, mark: u64) -> u64 {
        let completed = &self.seen_marks().completed;
        let before = completed.fetch_max(mark, Ordering::AcqRel);
        mark.saturating_sub(before)
    }

    /// Whether anything launched is not known to be complete.
    #[inline]
    fn is_in_flight(&self) -> bool {
        self.issued() > self.completed()
    }

    /// What is about to be given up for good was not seen complete: it teaches nobody how long it
    /// took.
    fn give_up(&self, mark: u64) {
        // Before `set_known`, whose release publishes it.
        let given_up = &self.seen_marks().given_up;
        given_up.fetch_max(mark, Ordering::Relaxed);
    }

    /// The mark up to which work was given up. Read after [`Marks::known`].
    fn given_up(&self) -> u64 {
        self.seen_marks().given_up.load(Ordering::Relaxed)
    }

    /// Whether everything issued is complete and was seen to be, or was given up for good: not only
    /// expected to be.
    fn is_surely_complete(&self) -> bool {
        self.issued() <= self.known()
    }

    /// Everything up to `mark` was seen complete, or given up for good.
    fn set_known(&self, mark: u64) {
        self.seen_marks().known.fetch_max(mark, Ordering::Release);
    }

    /// The mark up to which everything was seen complete, or given up for good: not only expected
    /// to be.
    fn known(&self) -> u64 {
        self.seen_marks().known.load(Ordering::Acquire)
    }

    /// Best-effort: what calls that waited tell of it.
    fn waited(&self) -> &Waited {
        &self.seen_marks().waited
    }

    /// High-priority: the mark up to which the daemon was told.
    fn told(&self) -> u64 {
        self.seen_marks().told.load(Ordering::Relaxed)
    }

    /// High-priority: the daemon was told that everything up to `mark` is complete.
    fn set_told(&self, mark: u64) {
        self.seen_marks().told.fetch_max(mark, Ordering::Relaxed);
    }

    /// High-priority: the next daemon was told nothing.
    fn forget_told(&self) {
        self.seen_marks().told.store(0, Ordering::Relaxed);
    }
}

//! A stream's progress: its launches, and which of them are complete. A *mark* is a position in a
//! stream's count of launches. A high-priority client numbers its launches: its marks are sequence
//! numbers. A best-effort client adds up expected durations: its marks are sums of ns. Marks are
//! private to the process; the daemon receives records ([`crate::announce`]) or sums
//! ([`crate::completion`]).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::waited::Waited;

/// Written by launches.
#[derive(Debug, Default)]
pub struct Issued {
    /// High-priority: the last sequence number given out.
    seq: AtomicU64,
    /// The mark after the last launch that the driver accepted.
    mark: AtomicU64,
}

/// Written by the helper and by waiting threads; on other cache lines than [`Issued`].
#[derive(Debug, Default)]
pub struct Seen {
    /// The mark up to which everything is complete.
    completed: AtomicU64,
    /// Best-effort: when that work was complete.
    waited: Waited,
    /// High-priority: the mark last reported to the daemon.
    told: AtomicU64,
    /// Best-effort: see [`Marks::give_up`].
    given_up: AtomicU64,
    /// See [`Marks::is_surely_complete`].
    known: AtomicU64,
}

impl Issued {
    /// For a stream without launches.
    pub const fn new() -> Self {
        Self {
            seq: AtomicU64::new(0),
            mark: AtomicU64::new(0),
        }
    }

    #[inline]
    fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Seen {
    /// For a stream without launches.
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
    /// Written by launches.
    fn issued_marks(&self) -> &Issued;

    /// Written by others.
    fn seen_marks(&self) -> &Seen;

    /// High-priority: numbers the next launch.
    #[inline]
    fn next_seq(&self) -> u64 {
        self.issued_marks().next_seq()
    }

    /// High-priority: whether any launch was numbered here.
    fn has_launched(&self) -> bool {
        self.issued_marks().seq.load(Ordering::Relaxed) > 0
    }

    /// High-priority: the driver accepted or refused launch `seq`.
    #[inline]
    fn set_issued(&self, seq: u64) {
        // Release pairs with the loads of threads that take a mark: the launch has been made. The
        // greatest stays: threads that launch on one stream arrive in any order.
        self.issued_marks().mark.fetch_max(seq, Ordering::Release);
    }

    /// Best-effort: the driver accepted a launch of `expected_ns`. Returns the mark after it.
    #[inline]
    fn add_issued(&self, expected_ns: u64) -> u64 {
        // SeqCst: before checking whether the helper sleeps (`interpose::daemon::helper`).
        let mark = &self.issued_marks().mark;
        let before = mark.fetch_add(expected_ns, Ordering::SeqCst);
        before.wrapping_add(expected_ns)
    }

    /// The mark after the last launch that the driver accepted.
    #[inline]
    fn issued(&self) -> u64 {
        // SeqCst pairs with `add_issued`: a helper that sleeps without a limit sees the launch, or
        // the launching thread sees the helper's sleep. It is also the Acquire that pairs with the
        // Release in `set_issued`.
        self.issued_marks().mark.load(Ordering::SeqCst)
    }

    /// The mark up to which everything is complete.
    #[inline]
    fn completed(&self) -> u64 {
        // Acquire pairs with the AcqRel in `advance`: whatever preceded the advance is visible.
        self.seen_marks().completed.load(Ordering::Acquire)
    }

    /// Advances [`Marks::completed`] to `mark`. Returns by how much.
    fn advance(&self, mark: u64) -> u64 {
        // AcqRel pairs with itself in another thread, and with the Acquire in `completed`.
        let completed = &self.seen_marks().completed;
        let before = completed.fetch_max(mark, Ordering::AcqRel);
        mark.saturating_sub(before)
    }

    /// Whether any launch is not known to be complete.
    #[inline]
    fn is_in_flight(&self) -> bool {
        self.issued() > self.completed()
    }

    /// Notes that work up to `mark` is about to be given up for good. Its completion was not
    /// observed, so the learner learns nothing from it.
    fn give_up(&self, mark: u64) {
        // Before `set_known`, whose release publishes it.
        let given_up = &self.seen_marks().given_up;
        given_up.fetch_max(mark, Ordering::Relaxed);
    }

    /// The mark up to which work was given up. Read after [`Marks::known`].
    fn given_up(&self) -> u64 {
        self.seen_marks().given_up.load(Ordering::Relaxed)
    }

    /// Whether all was observed complete or given up, not only expected to be complete.
    fn is_surely_complete(&self) -> bool {
        self.issued() <= self.known()
    }

    /// Notes that everything up to `mark` was observed complete, or given up for good.
    fn set_known(&self, mark: u64) {
        // Release pairs with the Acquire in `known`.
        self.seen_marks().known.fetch_max(mark, Ordering::Release);
    }

    /// The mark up to which everything was observed complete or given up, not only expected to be.
    fn known(&self) -> u64 {
        // Acquire pairs with the Release in `set_known`: `given_up` is visible. Otherwise the
        // learner would take given up work for work that was observed.
        self.seen_marks().known.load(Ordering::Acquire)
    }

    /// Best-effort: what waiting calls have shown about completion.
    fn waited(&self) -> &Waited {
        &self.seen_marks().waited
    }

    /// High-priority: the mark last reported to the daemon.
    fn told(&self) -> u64 {
        self.seen_marks().told.load(Ordering::Relaxed)
    }

    /// High-priority: notes that completion up to `mark` was reported to the daemon.
    fn set_told(&self, mark: u64) {
        self.seen_marks().told.fetch_max(mark, Ordering::Relaxed);
    }

    /// High-priority: forgets what was reported, for the next daemon.
    fn forget_told(&self) {
        self.seen_marks().told.store(0, Ordering::Relaxed);
    }
}

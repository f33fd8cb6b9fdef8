//! When a stream's work was complete, from the application's own waits. A call that waits for a
//! stream returns once its work is complete. If the call took long, the work was most likely not
//! complete until shortly before. Where no event of ours is allowed (`interpose::progress::sight`)
//! nothing else shows how long kernels take: launches between two such calls are learnt as a sum.

use core::sync::atomic::{AtomicU64, Ordering};

/// A shorter call may have found everything complete, ns.
const WAITED_NS: u64 = 100_000;
/// A waiting thread that finds a processor runs again within this, ns; after long calls, a 16th.
const LATE_NS: u64 = 50_000;

/// The results of waiting calls on a stream. Written by any thread, read by the helper.
#[derive(Debug, Default)]
pub struct Waited {
    mark: AtomicU64,
    by_ns: AtomicU64,
    busy_until_ns: AtomicU64,
}

impl Waited {
    /// For a stream on which no call has waited.
    pub const fn new() -> Self {
        Self {
            mark: AtomicU64::new(0),
            by_ns: AtomicU64::new(0),
            busy_until_ns: AtomicU64::new(0),
        }
    }

    /// A call from `began_ns` to `ended_ns` has waited for everything up to `mark`, which counts as
    /// known by now. A call that shows only completion passes a `began_ns` at or after its end.
    pub fn handle_waited(&self, mark: u64, began_ns: u64, ended_ns: u64) {
        // Each value may come from a different call, of another thread that waits for the same
        // stream. Store the time before the mark: a time read with a mark is then at most too late.
        self.by_ns.fetch_max(ended_ns, Ordering::Relaxed);
        self.mark.fetch_max(mark, Ordering::Release);
        let took_ns = ended_ns.saturating_sub(began_ns);
        if took_ns >= WAITED_NS {
            let late_ns = LATE_NS.max(took_ns / 16);
            // Release: a reader of this value sees the work that was waited for as known.
            self.busy_until_ns
                .fetch_max(ended_ns.saturating_sub(late_ns), Ordering::Release);
        }
    }

    /// A time by which everything up to `mark` was complete, ns; `None`: no call shows it. `mark`
    /// must be known complete.
    pub fn by_ns(&self, mark: u64) -> Option<u64> {
        let is_waited = mark <= self.mark.load(Ordering::Acquire);
        is_waited.then(|| self.by_ns.load(Ordering::Relaxed))
    }

    /// Work that is known complete, read after this, was not complete before this time, ns; 0: no
    /// call shows it. The thread that waited may also have waited for a processor.
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn a_long_call_tells_both_bounds_and_a_short_one_the_upper() {
        let waited = Waited::new();
        assert_eq!((waited.by_ns(1), waited.busy_until_ns()), (None, 0));
        waited.handle_waited(10, 1_000 * US, 1_099 * US);
        assert_eq!(
            (waited.by_ns(10), waited.busy_until_ns()),
            (Some(1_099 * US), 0)
        );
        waited.handle_waited(20, 2_000 * US, 3_600 * US);
        assert_eq!(waited.by_ns(20), Some(3_600 * US));
        assert_eq!(waited.busy_until_ns(), 3_500 * US);
        assert_eq!(waited.by_ns(21), None, "nobody waited for that");
    }

    #[test]
    fn of_calls_that_return_in_any_order_none_makes_a_bound_too_tight() {
        let waited = Waited::new();
        waited.handle_waited(20, 2_000 * US, 2_400 * US);
        waited.handle_waited(10, 1_000 * US, 1_300 * US);
        assert_eq!(waited.by_ns(20), Some(2_400 * US));
        assert_eq!(waited.busy_until_ns(), 2_350 * US);
    }
}

//! Records on their way to the daemon.
//!
//! Each thread that has something to say claims one of the client's rings and keeps it; threads
//! that find none share one ring. Rings of threads that ended are claimed again when they are
//! needed. A thread that works for several clients has a ring with each.

use protocol::pages::{ClientPage, Counter};
use protocol::record::Record;
use protocol::ring::Full;
use protocol::sync::Ordering;

/// A thread of the client's process, with the ring that it has there.
pub trait Thread {
    /// Its number in the system; never 0.
    fn id(&self) -> u32;

    /// Whether the process has a thread of that number.
    fn is_alive(&self, id: u32) -> bool;

    /// The ring that it was given, if it was.
    fn ring(&self) -> Option<Claimed>;

    /// From now on it has that one.
    fn set_ring(&self, ring: Claimed);

    /// Has the processor fetch that line for writing, without waiting for it.
    fn prepare_to_write<T>(&self, line: *const T);
}

/// What a thread has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The ring of that index.
    Own(u32),
    /// There was none: it uses the shared one.
    Shared,
}

/// Sends a record. A full ring refuses it; nobody waits.
///
/// # Errors
///
/// The ring is full.
#[inline]
pub fn push(page: &ClientPage, thread: &impl Thread, record: &Record) -> Result<(), Full> {
    let claimed = thread.ring().unwrap_or_else(|| claim_for(page, thread));
    let ring = match claimed {
        Claimed::Own(index) => page.rings.get(index as usize),
        Claimed::Shared => None,
    };
    let Some(ring) = ring else {
        return page.shared_ring.push(&record.encode());
    };
    let pushed = ring.push(&record.encode());
    // Has the processor fetch the line of this thread's next record. The daemon has read it since
    // it was last written, so it lies in another core's cache; at one launch per 5 us it is back in
    // time. Asked for here, where the ring is at hand; no fence waits for it.
    thread.prepare_to_write(ring.next_slot());
    pushed
}

/// Sends a record; one that finds its ring full is counted. Whether it went.
#[inline]
pub fn push_or_count(page: &ClientPage, thread: &impl Thread, record: &Record) -> bool {
    let is_pushed = push(page, thread, record).is_ok();
    if !is_pushed {
        page.count(Counter::Dropped, 1);
    }
    is_pushed
}

/// Counts a launch that the driver accepted from this thread.
#[inline]
pub fn count_launch(page: &ClientPage, thread: &impl Thread) {
    match thread.ring() {
        Some(Claimed::Own(index)) if (index as usize) < page.rings.len() => {
            page.count_launch_of_ring(index as usize);
        }
        _ => page.count(Counter::Launches, 1),
    }
}

#[cold]
fn claim_for(page: &ClientPage, thread: &impl Thread) -> Claimed {
    let index = claim(page, thread.id(), |id| thread.is_alive(id));
    let claimed = index.map_or(Claimed::Shared, |index| Claimed::Own(index as u32));
    thread.set_ring(claimed);
    claimed
}

/// A ring for the thread: its namesake's, a free one, or a dead thread's.
fn claim(page: &ClientPage, thread_id: u32, is_alive: impl Fn(u32) -> bool) -> Option<usize> {
    let owners = page.ring_owner.iter();
    // A thread id that is used again inherits the ring.
    if let Some(index) = owners
        .clone()
        .position(|owner| owner.load(Ordering::Relaxed) == thread_id)
    {
        return Some(index);
    }
    let take = |expected: u32, index: usize| {
        // AcqRel pairs with the same of the owner before: its last push comes before our first.
        page.ring_owner.get(index).is_some_and(|owner| {
            owner
                .compare_exchange(expected, thread_id, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    };
    // The first: the daemon reads none behind a free one (`ClientPage::rings_claimed`).
    if let Some(index) = (0..page.rings.len()).find(|&index| take(0, index)) {
        return Some(index);
    }
    owners.enumerate().find_map(|(index, owner)| {
        let owner = owner.load(Ordering::Relaxed);
        (!is_alive(owner) && take(owner, index)).then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use protocol::pages::RINGS;
    use protocol::segment::Mapping;

    use super::*;

    const NO_THREAD: u32 = 1 << 30;
    const ME: u32 = 7;
    const RECORD: Record = Record::Complete {
        stream: 1,
        seq: 1,
        at_ns: 1,
    };

    /// The only thread of its process.
    #[derive(Default)]
    struct Only(Cell<Option<Claimed>>);

    impl Thread for Only {
        fn id(&self) -> u32 {
            ME
        }

        fn is_alive(&self, id: u32) -> bool {
            id == ME
        }

        fn ring(&self) -> Option<Claimed> {
            self.0.get()
        }

        fn set_ring(&self, ring: Claimed) {
            self.0.set(Some(ring));
        }

        fn prepare_to_write<T>(&self, _line: *const T) {}
    }

    fn page() -> Mapping<ClientPage> {
        Mapping::create("pillion-test").unwrap().1
    }

    fn claim_by(page: &ClientPage, thread_id: u32) -> Option<usize> {
        claim(page, thread_id, |id| id == ME)
    }

    #[test]
    fn each_thread_has_its_own_ring_until_there_are_none() {
        let page = page();
        assert_eq!(claim_by(&page, ME), Some(0));
        assert_eq!(claim_by(&page, ME), Some(0));
        assert_eq!(claim_by(&page, NO_THREAD), Some(1));
        assert_eq!(page.rings_claimed(0), 2);
        for index in 1..RINGS {
            page.ring_owner[index].store(ME, Ordering::Relaxed);
        }
        assert_eq!(claim_by(&page, NO_THREAD + 1), None);
    }

    #[test]
    fn a_dead_threads_ring_is_claimed_when_none_is_free() {
        let page = page();
        for owner in page.ring_owner.iter() {
            owner.store(ME, Ordering::Relaxed);
        }
        page.ring_owner[9].store(NO_THREAD, Ordering::Relaxed);
        assert_eq!(claim_by(&page, NO_THREAD + 1), Some(9));
    }

    #[test]
    fn launches_are_counted_with_and_without_a_ring() {
        let (page, thread) = (page(), Only::default());
        count_launch(&page, &thread);
        push(&page, &thread, &RECORD).unwrap();
        count_launch(&page, &thread);
        count_launch(&page, &thread);
        assert_eq!(page.counted(Counter::Launches), 3);
        assert_eq!(page.ring_launches[0].load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_full_ring_refuses_and_nobody_waits() {
        let (page, thread) = (page(), Only::default());
        let pushed = (0..protocol::pages::RING_RECORDS + 1)
            .filter(|_| push_or_count(&page, &thread, &RECORD))
            .count();
        assert_eq!(pushed, protocol::pages::RING_RECORDS);
        assert_eq!(page.counted(Counter::Dropped), 1);
    }
}

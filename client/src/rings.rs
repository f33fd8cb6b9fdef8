//! Records on their way to the daemon. Each thread that pushes a record claims one of the client's
//! rings and keeps it; threads that find none share one ring. Rings of dead threads are claimed
//! again when needed. A thread that works for several clients has a ring with each.

use protocol::pages::{ClientPage, Counter, RING_RECORDS, RINGS};
use protocol::record::Record;
use protocol::ring::{Full, Spsc};
use protocol::sync::Ordering;

/// The ring of one thread.
type Ring = Spsc<RING_RECORDS>;

/// A thread of the client's process, with its ring.
pub trait Thread {
    /// The thread's id in the system; never 0.
    fn id(&self) -> u32;

    /// Whether the process has a thread of that id.
    fn is_alive(&self, id: u32) -> bool;

    /// The ring that the thread has claimed.
    fn ring(&self) -> Claimed;

    /// Sets that ring.
    fn set_ring(&self, ring: Claimed);

    /// Prefetches the line for writing, without waiting for it.
    fn prepare_to_write<T>(&self, line: *const T);
}

/// A thread's claim: a ring of its own, the shared one if none was left, or nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed(u32);

impl Claimed {
    /// The thread has not claimed a ring yet.
    pub const NONE: Self = Self(u32::MAX);
    /// No ring was left: the thread uses the shared one.
    pub const SHARED: Self = Self(u32::MAX - 1);

    fn own(index: usize) -> Self {
        Self(index as u32)
    }

    /// The index of the thread's own ring; out of range if it has none.
    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }
}

const _: () = assert!(RINGS < Claimed::SHARED.0 as usize);

/// Pushes a record. A full ring refuses it; the caller never waits.
/// # Errors
/// The ring is full.
#[inline]
pub fn push(page: &ClientPage, thread: &impl Thread, record: &Record) -> Result<(), Full> {
    match page.rings.get(thread.ring().index()) {
        Some(ring) => push_own(ring, thread, record),
        None => push_first(page, thread, record),
    }
}

#[inline]
fn push_own(ring: &Ring, thread: &impl Thread, record: &Record) -> Result<(), Full> {
    let pushed = ring.push(&record.encode());
    // Prefetch the line of this thread's next record. The daemon has read it since the last write,
    // so another core's cache has it; at one launch per 5 us it is back in time. Done here, where
    // the ring is at hand; no fence waits for it.
    thread.prepare_to_write(ring.next_slot());
    pushed
}

/// Pushes a record of a thread that has no ring of its own, or has not claimed one yet.
#[cold]
fn push_first(page: &ClientPage, thread: &impl Thread, record: &Record) -> Result<(), Full> {
    if thread.ring() == Claimed::NONE {
        let index = claim(page, thread.id(), |id| thread.is_alive(id));
        thread.set_ring(index.map_or(Claimed::SHARED, Claimed::own));
    }
    match page.rings.get(thread.ring().index()) {
        Some(ring) => push_own(ring, thread, record),
        None => page.shared_ring.push(&record.encode()),
    }
}

/// Pushes a record; counts it as dropped if its ring is full. Returns whether it was pushed.
#[inline]
pub fn push_or_count(page: &ClientPage, thread: &impl Thread, record: &Record) -> bool {
    let is_pushed = push(page, thread, record).is_ok();
    if !is_pushed {
        page.count(Counter::Dropped, 1);
    }
    is_pushed
}

/// Counts a launch by this thread that the driver accepted.
#[inline]
pub fn count_launch(page: &ClientPage, thread: &impl Thread) {
    match thread.ring().index() {
        index if index < page.rings.len() => page.count_launch_of_ring(index),
        _ => _ = page.count(Counter::Launches, 1),
    }
}

/// A ring for the thread: one already owned by this thread id, a free one, or a dead thread's.
fn claim(page: &ClientPage, thread_id: u32, is_alive: impl Fn(u32) -> bool) -> Option<usize> {
    let owners = page.ring_owner.iter();
    // A thread whose id is reused inherits the ring.
    if let Some(index) = owners
        .clone()
        .position(|owner| owner.load(Ordering::Relaxed) == thread_id)
    {
        return Some(index);
    }
    let take = |expected: u32, index: usize| {
        // The previous owner's last push comes before our first, because the kernel has reported
        // that thread's end (`is_alive`). This exchange is not needed for it, nor for the daemon
        // (`ClientPage::rings_claimed`).
        page.ring_owner.get(index).is_some_and(|owner| {
            owner
                .compare_exchange(expected, thread_id, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    };
    // The first free ring: the daemon reads none behind a free one (`ClientPage::rings_claimed`).
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

    use protocol::segment::Mapping;

    use super::*;

    const NO_THREAD: u32 = 1 << 30;
    const ME: u32 = 7;
    const RECORD: Record = Record::Complete {
        stream: 1,
        seq: 1,
        at_ns: 1,
    };

    struct Only(Cell<Claimed>);

    impl Thread for Only {
        fn id(&self) -> u32 {
            ME
        }

        fn is_alive(&self, id: u32) -> bool {
            id == ME
        }

        fn ring(&self) -> Claimed {
            self.0.get()
        }

        fn set_ring(&self, ring: Claimed) {
            self.0.set(ring);
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
        let (page, thread) = (page(), Only(Cell::new(Claimed::NONE)));
        count_launch(&page, &thread);
        push(&page, &thread, &RECORD).unwrap();
        count_launch(&page, &thread);
        count_launch(&page, &thread);
        assert_eq!(page.counted(Counter::Launches), 3);
        assert_eq!(page.ring_launches[0].load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_full_ring_refuses_and_nobody_waits() {
        let (page, thread) = (page(), Only(Cell::new(Claimed::NONE)));
        let pushed = (0..RING_RECORDS + 1)
            .filter(|_| push_or_count(&page, &thread, &RECORD))
            .count();
        assert_eq!(pushed, RING_RECORDS);
        assert_eq!(page.counted(Counter::Dropped), 1);
    }
}

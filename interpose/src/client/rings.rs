//! Records on their way to the daemon.
//!
//! Each thread that has something to say claims one of the client's rings and keeps it; threads that
//! find none share one ring. Rings of threads that ended are claimed again when they are needed. A
//! thread that works for several clients has a ring with each.

use core::cell::Cell;

use protocol::pages::{ClientPage, Counter, RINGS};
use protocol::record::Record;
use protocol::ring::Full;
use protocol::sync::Ordering;

use crate::client::Client;
use crate::platform::config::DEVICES_MAX;
use crate::platform::sys;

/// This thread has not looked for a ring yet.
const UNCLAIMED: u32 = u32::MAX;
/// This thread uses the shared ring.
const SHARED: u32 = u32::MAX - 1;

const _: () = assert!(RINGS < SHARED as usize);

thread_local! {
    /// This thread's ring with each client.
    static RING: [Cell<u32>; DEVICES_MAX] = const { [const { Cell::new(UNCLAIMED) }; DEVICES_MAX] };
}

/// Sends a record. A full ring refuses it; nobody waits.
#[inline]
pub(crate) fn push(client: &Client, record: &Record) -> Result<(), Full> {
    push_to(&client.page, client.index, record)
}

/// Counts a launch that the driver accepted from this thread.
#[inline]
pub(crate) fn count_launch(client: &Client) {
    count_launch_in(&client.page, client.index);
}

#[inline]
fn push_to(page: &ClientPage, client: u32, record: &Record) -> Result<(), Full> {
    let index = claimed(client).unwrap_or_else(|| {
        let index = claim(page, sys::thread_id()).map_or(SHARED, |index| index as u32);
        RING.with(|rings| {
            if let Some(ring) = rings.get(client as usize) {
                ring.set(index);
            }
        });
        index
    });
    let Some(ring) = page.rings.get(index as usize) else {
        return page.shared_ring.push(&record.encode());
    };
    let pushed = ring.push(&record.encode());
    // Has the processor fetch the line of this thread's next record. The daemon has read it since it
    // was last written, so it lies in another core's cache; at one launch per 5 us it is back in
    // time. Asked for here, where the ring is at hand; no fence waits for it.
    sys::prepare_to_write(ring.next_slot());
    pushed
}

#[inline]
fn count_launch_in(page: &ClientPage, client: u32) {
    match claimed(client) {
        Some(index) if (index as usize) < page.rings.len() => {
            page.count_launch_of_ring(index as usize);
        }
        _ => page.count(Counter::Launches, 1),
    }
}

/// The ring that this thread has claimed with the client of that index.
#[inline]
fn claimed(client: u32) -> Option<u32> {
    let ring = RING.with(|rings| rings.get(client as usize).map_or(UNCLAIMED, Cell::get));
    (ring != UNCLAIMED).then_some(ring)
}

/// A ring for the thread: its namesake's, a free one, or a dead thread's.
#[cold]
fn claim(page: &ClientPage, thread_id: u32) -> Option<usize> {
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
        (!sys::is_thread_alive(owner) && take(owner, index)).then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use protocol::segment::Mapping;

    use super::*;

    /// Above every thread id that Linux gives out (2^22).
    const NO_THREAD: u32 = 1 << 30;

    #[test]
    fn each_thread_has_its_own_ring_until_there_are_none() {
        let (_fd, page) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        let me = sys::thread_id();
        assert_eq!(claim(&page, me), Some(0));
        assert_eq!(claim(&page, me), Some(0));
        assert_eq!(claim(&page, NO_THREAD), Some(1));
        assert_eq!(page.rings_claimed(0), 2);
        for index in 1..RINGS {
            page.ring_owner[index].store(me, Ordering::Relaxed);
        }
        assert_eq!(claim(&page, NO_THREAD + 1), None);
    }

    #[test]
    fn a_dead_threads_ring_is_claimed_when_none_is_free() {
        let (_fd, page) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        let me = sys::thread_id();
        for owner in page.ring_owner.iter() {
            owner.store(me, Ordering::Relaxed);
        }
        page.ring_owner[9].store(NO_THREAD, Ordering::Relaxed);
        assert_eq!(claim(&page, NO_THREAD + 1), Some(9));
    }

    #[test]
    fn launches_are_counted_with_and_without_a_ring() {
        let (_fd, page) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        count_launch_in(&page, 0);
        push_to(
            &page,
            0,
            &Record::Complete {
                stream: 1,
                seq: 1,
                at_ns: 1,
            },
        )
        .unwrap();
        count_launch_in(&page, 0);
        count_launch_in(&page, 0);
        assert_eq!(page.counted(Counter::Launches), 3);
        assert_eq!(page.ring_launches[0].load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_full_ring_refuses_and_nobody_waits() {
        let (_fd, page) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        let record = Record::Complete {
            stream: 1,
            seq: 1,
            at_ns: 1,
        };
        let pushed = (0..protocol::pages::RING_RECORDS + 1)
            .filter(|_| push_to(&page, 0, &record).is_ok())
            .count();
        assert_eq!(pushed, protocol::pages::RING_RECORDS);
    }
}

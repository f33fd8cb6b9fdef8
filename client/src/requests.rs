//! Which of a program's requests are open, so that ends of other requests are refused. A lock-free
//! table of fixed size. Each request has a number that is unique for the life of the process, and
//! its place follows from that number. Ending a request removes its number from its place; of two
//! threads that try, one succeeds. Numbers begin at a different value in each process, so a number
//! of a parent or of another process is never found.

use protocol::sync::{AtomicU64, Ordering};

/// Most requests open at once; the policy remembers the same number.
pub const OPEN_MAX: usize = 256;

/// Places tried for a request before an open one is given up.
const TRIES: usize = 8;

/// Bits of a request's number that count; the others identify the process.
const COUNT_BITS: u32 = 38;

/// The table of open requests (see the module's head).
#[derive(Debug)]
pub struct OpenRequests<const PLACES: usize = OPEN_MAX> {
    /// The next request's number.
    next: AtomicU64,
    /// The number of the request open in this place; 0: none.
    places: [AtomicU64; PLACES],
}

/// A request that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its number; never 0.
    pub id: u64,
    /// A request given up to make room.
    pub given_up: Option<u64>,
}

impl<const PLACES: usize> OpenRequests<PLACES> {
    /// An empty table for the process `process`; `index` distinguishes tables of one process.
    pub fn new(process: u32, index: u32) -> Self {
        // 22 bits of the process id, the most Linux has (`PID_MAX_LIMIT`), then four of the index.
        let owner = u64::from(process & 0x3f_ffff) << 4 | u64::from(index & 0xf);
        Self {
            next: AtomicU64::new(owner << COUNT_BITS | 1),
            places: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Begins a request.
    #[inline]
    pub fn begin(&self) -> Begun {
        for _ in 0..TRIES {
            let id = self.take_id();
            let (free, taken) = (0, id);
            // Release pairs with the Acquire in `end`: everything done for the beginning comes
            // before what is done for the end.
            let place = self.place(id);
            if place
                .compare_exchange(free, taken, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                let given_up = None;
                return Begun { id, given_up };
            }
        }
        let id = self.take_id();
        // Release: as above. Acquire pairs with the Release of the request that is given up here.
        let before = self.place(id).swap(id, Ordering::AcqRel);
        Begun {
            id,
            given_up: (before != 0).then_some(before),
        }
    }

    /// Ends the request. Returns whether it was open.
    #[inline]
    pub fn end(&self, id: u64) -> bool {
        // Acquire pairs with the Release in `begin`, and Release with the Acquire of its swap.
        id != 0
            && self
                .place(id)
                .compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    fn take_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed).max(1)
    }

    #[inline]
    fn place(&self, id: u64) -> &AtomicU64 {
        &self.places[id as usize % PLACES]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_open_is_not_ended() {
        let requests = OpenRequests::<OPEN_MAX>::new(7, 0);
        let id = requests.begin().id;
        assert!(!requests.end(0) && !requests.end(1) && !requests.end(id + 1));
        assert!(requests.end(id));
        assert!(!requests.end(id), "twice");
        // Another process that began at the same time, and another table.
        for other in [
            OpenRequests::<OPEN_MAX>::new(8, 0),
            OpenRequests::<OPEN_MAX>::new(7, 1),
        ] {
            other.begin();
            assert!(!other.end(id));
        }
    }

    #[test]
    fn the_oldest_makes_room_for_one_more() {
        let requests = OpenRequests::<OPEN_MAX>::new(7, 0);
        let ids: Vec<_> = (0..OPEN_MAX).map(|_| requests.begin()).collect();
        assert!(ids.iter().all(|begun| begun.given_up.is_none()));
        let further = requests.begin();
        assert!(further.given_up.is_some());
        assert!(!requests.end(further.given_up.unwrap()));
        assert!(requests.end(further.id));
        assert!(requests.end(ids[OPEN_MAX / 2].id));
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_numbers(steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 0..200)) {
            let requests = OpenRequests::<16>::new(7, 0);
            let (mut open, mut ended) = (Vec::new(), HashSet::new());
            for (step, index) in steps {
                match step {
                    0 if !open.is_empty() => {
                        let id = open.swap_remove(index.index(open.len()));
                        prop_assert!(requests.end(id));
                        ended.insert(id);
                    }
                    1 if !ended.is_empty() => {
                        let ended: Vec<_> = ended.iter().copied().collect();
                        prop_assert!(!requests.end(ended[index.index(ended.len())]));
                    }
                    _ => {
                        let begun = requests.begin();
                        prop_assert!(!open.contains(&begun.id) && !ended.contains(&begun.id));
                        if let Some(given_up) = begun.given_up {
                            prop_assert!(open.contains(&given_up));
                            open.retain(|&id| id != given_up);
                            ended.insert(given_up);
                        }
                        open.push(begun.id);
                    }
                }
            }
        }
    }
}

//! Reading the rings of one client.
//! Each round reads a ring up to its capacity, so that a client that pushes without end cannot
//! occupy the daemon. A ring with an impossible index is given up for good; its content is lost.

use protocol::pages::{ClientPage, RING_RECORDS, RINGS};
use protocol::record::RECORD_WORDS;
use protocol::ring::Cursor;

#[derive(Debug)]
pub(super) struct Rings {
    cursors: [Cursor; RINGS],
    /// Rings claimed by threads, from the first on; the others are not read.
    claimed: usize,
    shared_cursor: Cursor,
    /// Bit per ring that is no longer read.
    given_up: u64,
}

const _: () = assert!(RINGS <= 64, "one bit of `given_up` per ring");

#[derive(Debug)]
pub(super) struct Round {
    ring: usize,
    left: usize,
    pub(super) bad_rings: u64,
}

impl Rings {
    /// Skips everything pushed until now.
    pub(super) fn new(page: &ClientPage) -> Self {
        // An unclaimed ring is empty; do not touch it, so that it stays without memory.
        let claimed = page.rings_claimed(0);
        let skip = |index: usize| match index < claimed {
            true => page.rings[index].skip(),
            false => Cursor::default(),
        };
        Self {
            cursors: core::array::from_fn(skip),
            claimed: 0,
            shared_cursor: page.shared_ring.skip(),
            given_up: 0,
        }
    }

    pub(super) fn begin(&mut self, page: &ClientPage) -> Round {
        self.claimed = page.rings_claimed(self.claimed);
        Round {
            ring: 0,
            left: RING_RECORDS,
            bad_rings: 0,
        }
    }

    #[inline]
    pub(super) fn next(
        &mut self,
        page: &ClientPage,
        round: &mut Round,
    ) -> Option<(usize, [u64; RECORD_WORDS])> {
        while round.ring < self.claimed {
            let ring = round.ring;
            if round.left > 0 && self.given_up & 1 << ring == 0 {
                round.left -= 1;
                match page.rings[ring].pop(&mut self.cursors[ring]) {
                    Ok(Some(words)) => return Some((ring, words)),
                    Ok(None) => {}
                    Err(_) => {
                        self.given_up |= 1 << ring;
                        round.bad_rings += 1;
                    }
                }
            }
            round.ring += 1;
            round.left = RING_RECORDS;
        }
        round.left = round.left.checked_sub(1)?;
        let words = page.shared_ring.pop(&mut self.shared_cursor);
        words.map(|words| (RINGS, words))
    }
}

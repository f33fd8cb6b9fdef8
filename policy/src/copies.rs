//! Copies between host and device, as a gate sees them.
//!
//! A device has one engine for each direction and runs copies in order of their arrival, whoever's they are, each to its end. So a
//! high-priority request that begins with its input waits for all copies of best-effort jobs that stand before it: 5 ms for each of
//! 64 MB. A gate alone would bound that queue to one copy and could not stop that one. So a long copy is *cut*: it is made as
//! several copies of a [*piece*](PIECE_BYTES) each, in order, and each passes the gate as a kernel of its expected duration. What
//! is not cut goes ungated: with whole copies of 64 MB at the gate the best-effort job lost an eighth of its rate, and one such job
//! hurt requests as much as before (docs/policy.md, "Copies").
//!
//! A piece waits at the gate as a launch does, and all pieces of a copy together for `max_hold` at most. Once one went because that was
//! over, or no daemon is there, or nobody is to be protected, the rest goes with it as one.
//!
//! It is off by default: what pieces cost on a GPU was not measured, and a call of an asynchronous copy that is cut returns when nearly all
//! of it is done (docs/policy.md, "What it cannot do").
//!
//! Which copies may be cut is said where they are made: by the preload library and by the simulator's clients.

use crate::{Class, Kernel};

/// Bytes of a piece, 87 µs. In simulation, beside three jobs that copy 64 MB again and again, the median request of ResNet-50 takes 1.02
/// times as long as alone with pieces of 1 MiB, 1.04 with 2 MiB and 1.06 with 8; from 2 MiB on the copying jobs lose, because such
/// pieces seldom fit beside a busy high-priority job (docs/policy.md).
pub const PIECE_BYTES: u64 = 1 << 20;

/// A copy of so many bytes has several pieces.
pub const CUT_BYTES_MIN: u64 = PIECE_BYTES + PIECE_BYTES / 2;

/// Bytes in a nanosecond that a copy is expected to make: what PCIe 3.0 x16 carries from pinned memory, and the model's bus with it (a test of
/// the simulator compares them).
pub const BYTES_PER_NS: u64 = 12;

/// So many bytes of a copy as the gate judges them. They need no SM, and their class is unknown: they use neither much of the
/// multiprocessors nor of the memory's bandwidth.
#[must_use]
pub const fn kernel_of_piece(bytes: u64) -> Kernel {
    Kernel {
        class: Class::Unknown,
        sm_needed: 0,
        expected_ns: bytes.div_ceil(BYTES_PER_NS),
    }
}

/// The pieces of a copy, in order, as place and length in bytes: each is a piece long but the last, which has at least half of
/// one and less than one and a half. A copy of less than [`CUT_BYTES_MIN`] is its only piece, and a copy of nothing has none.
#[derive(Clone, Debug)]
pub struct Pieces {
    bytes: u64,
    offset: u64,
}

impl Pieces {
    /// Those of a copy of so many bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self { bytes, offset: 0 }
    }

    /// What was not given out yet, bytes; it is not given out any more.
    #[must_use]
    pub const fn take_rest(&mut self) -> u64 {
        let rest = self.bytes - self.offset;
        self.offset = self.bytes;
        rest
    }
}

impl Iterator for Pieces {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let offset = self.offset;
        let length = match self.bytes - offset {
            0 => return None,
            left if left < CUT_BYTES_MIN => left,
            _ => PIECE_BYTES,
        };
        self.offset += length;
        Some((offset, length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_piece_is_a_kernel_of_what_the_bus_takes() {
        let kernel = kernel_of_piece(PIECE_BYTES);
        assert_eq!((kernel.expected_ns, kernel.sm_needed), (87_382, 0));
        assert_eq!(kernel_of_piece(1).expected_ns, 1);
    }

    #[test]
    fn short_copies_are_one_piece_and_a_copy_of_nothing_is_none() {
        assert_eq!(Pieces::of(0).next(), None);
        let just_below = CUT_BYTES_MIN - 1;
        assert_eq!(
            Pieces::of(just_below).collect::<Vec<_>>(),
            [(0, just_below)]
        );
        let least = [(0, PIECE_BYTES), (PIECE_BYTES, PIECE_BYTES / 2)];
        assert_eq!(Pieces::of(CUT_BYTES_MIN).collect::<Vec<_>>(), least);
        assert!(Pieces::of(u64::MAX).next().is_some());
    }

    proptest! {
        #[test]
        fn pieces_cover_exactly_the_bytes_in_order(bytes in 0..200_000_000_u64, given in 0..300_usize) {
            let mut pieces = Pieces::of(bytes);
            let mut end = 0;
            for (offset, length) in pieces.by_ref().take(given) {
                prop_assert_eq!(offset, end);
                prop_assert!(length > 0 && length < CUT_BYTES_MIN);
                prop_assert!(length == PIECE_BYTES || offset + length == bytes);
                prop_assert!(offset == 0 || length >= PIECE_BYTES / 2);
                end = offset + length;
            }
            let rest = pieces.take_rest();
            prop_assert_eq!(end + rest, bytes);
            prop_assert!(rest == 0 || given < 300);
            prop_assert_eq!(pieces.next(), None);
        }
    }
}

//! Kernel identities: a name, and the resources of each thread and block. Two kernels may share a
//! name (a run-time compiler calls each of its kernels `kernel`), and a reused handle may stand for
//! another kernel of the same name. Registers and static shared memory, which decide how many
//! blocks fit on an SM, distinguish such kernels.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::names::NameIndex;
use crate::platform::table::mix;

/// Most identities: only launched functions have one, some thousand per process.
const IDENTITIES_MAX: usize = 1 << 15;

const PROBES_MAX: usize = 64;

/// A kept identity. Below 2^15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentityIndex(pub(super) u32);

#[cfg(not(shim))]
impl IdentityIndex {
    /// Not a kernel: an operator that stands for its launches.
    pub(super) const OPERATOR: Self = Self(IDENTITIES_MAX as u32);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: NameIndex,
    /// Per thread; 0 if the driver did not report it.
    pub(super) registers: u32,
    /// Static, per block; 0 if the driver did not report it.
    pub(super) shared_bytes: u32,
}

/// The identities, each a word; 0 is free.
pub(super) struct Identities {
    places: [AtomicU64; IDENTITIES_MAX],
}

impl Identities {
    pub(super) const fn new() -> Self {
        Self {
            places: [const { AtomicU64::new(0) }; IDENTITIES_MAX],
        }
    }

    pub(super) fn intern(&self, identity: &Identity) -> Option<IdentityIndex> {
        let word = pack(identity);
        // The high bits are mixed better.
        let first = (mix(word) >> (64 - IDENTITIES_MAX.trailing_zeros())) as usize;
        for step in 0..PROBES_MAX {
            let place = (first + step) % IDENTITIES_MAX;
            // Relaxed: the word guards no other data.
            let swapped = self.places.get(place)?.compare_exchange(
                0,
                word,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if swapped.is_ok() || swapped == Err(word) {
                return Some(IdentityIndex(place as u32));
            }
        }
        None
    }

    pub(super) fn of(&self, index: IdentityIndex) -> Option<Identity> {
        let word = self.places.get(index.0 as usize)?.load(Ordering::Relaxed);
        (word & FILLED != 0).then(|| unpack(word))
    }
}

const FILLED: u64 = 1 << 63;
const NAME_SHIFT: u32 = 40;
const NAME_MASK: u32 = (1 << 20) - 1;
const REGISTERS_SHIFT: u32 = 28;
const REGISTERS_MAX: u32 = (1 << 12) - 1;
const SHARED_MAX: u32 = (1 << 28) - 1;

/// Flag, name (20 bits), registers (12 bits), shared memory (28 bits); larger values are clamped.
fn pack(identity: &Identity) -> u64 {
    FILLED
        | u64::from(identity.name.0 & NAME_MASK) << NAME_SHIFT
        | u64::from(identity.registers.min(REGISTERS_MAX)) << REGISTERS_SHIFT
        | u64::from(identity.shared_bytes.min(SHARED_MAX))
}

fn unpack(word: u64) -> Identity {
    Identity {
        name: NameIndex((word >> NAME_SHIFT) as u32 & NAME_MASK),
        registers: (word >> REGISTERS_SHIFT) as u32 & REGISTERS_MAX,
        shared_bytes: word as u32 & SHARED_MAX,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_identity_survives_its_word(name in 0u32..1 << 16, registers in 0u32..4096, shared_bytes in 0u32..1 << 28) {
            let identity = Identity { name: NameIndex(name), registers, shared_bytes };
            prop_assert_eq!(unpack(pack(&identity)), identity);
        }
    }

    #[test]
    fn kernels_of_one_name_are_told_apart_by_what_they_take() {
        static IDENTITIES: Identities = Identities::new();
        let identity = |registers, shared_bytes| Identity {
            name: NameIndex(0),
            registers,
            shared_bytes,
        };
        let first = IDENTITIES.intern(&identity(32, 0)).unwrap();
        assert_eq!(IDENTITIES.intern(&identity(32, 0)), Some(first));
        assert_ne!(IDENTITIES.intern(&identity(64, 0)), Some(first));
        assert_ne!(IDENTITIES.intern(&identity(32, 256)), Some(first));
        assert_eq!(IDENTITIES.of(first), Some(identity(32, 0)));
    }

    #[test]
    fn a_full_table_says_so() {
        static IDENTITIES: Identities = Identities::new();
        let kept = (0..2 * IDENTITIES_MAX as u32)
            .filter(|&number| {
                let identity = Identity {
                    name: NameIndex(number & 0xffff),
                    registers: number >> 16,
                    shared_bytes: 0,
                };
                IDENTITIES.intern(&identity).is_some()
            })
            .count();
        assert!(
            kept <= IDENTITIES_MAX && kept > IDENTITIES_MAX / 2,
            "{kept}"
        );
    }
}

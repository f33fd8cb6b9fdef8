//! Function handles and their kernels. A handle is *named* when the application obtains it by name,
//! and *identified* at its first launch, when the driver is queried: not earlier, because that may
//! load its code. A full table replaces handles that were not used lately, by CLOCK as in
//! [`crate::platform::memo`]. A handle of an older generation counts as not used, because it must
//! be identified again anyway. So a program that loads and unloads modules for ever finds room for
//! its new handles in place of unloaded ones.

use core::sync::atomic::{AtomicU64, Ordering};

use protocol::sync::TryLock;

use super::identities::IdentityIndex;
use crate::kernels::names::NameIndex;
use crate::platform::table::Keys;

/// Places for handles: 1.7 times the most functions seen in a process (38 916).
const FUNCTIONS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) sight: Sight,
    pub(super) origin: Origin,
    /// The generation in which that was found out.
    pub(super) generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// The name; `None` if there was no room for it.
    Named(Option<NameIndex>),
    /// The identity; `None` if unknown, or there was no room.
    Identified(Option<IdentityIndex>),
}

/// Both kinds of handles can be launched; their names are queried differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Function,
    /// `CUkernel`, which a launch accepts as a function since CUDA 12.
    Kernel,
}

pub(super) struct Functions {
    handles: Keys<FUNCTIONS_MAX>,
    /// [`pack`]ed; 0 is not filled in yet.
    values: [AtomicU64; FUNCTIONS_MAX],
    lock: TryLock,
}

impl Functions {
    pub(super) const fn new() -> Self {
        Self {
            handles: Keys::new(),
            values: [const { AtomicU64::new(0) }; FUNCTIONS_MAX],
            lock: TryLock::new(),
        }
    }

    #[inline]
    pub(super) fn find(&self, handle: u64) -> Option<Function> {
        let place = self.handles.find(handle)?;
        // Acquire pairs with the Release store in `keep`: a thread that sees another handle's value
        // also sees that the place is that handle's now.
        let value = self.values.get(place)?.load(Ordering::Acquire);
        if !self.handles.is_at(place, handle) {
            return None;
        }
        if value & USED == 0 {
            self.mark_used(place, value);
        }
        unpack(value)
    }

    #[cold]
    fn mark_used(&self, place: usize, value: u64) {
        if let Some(word) = self.values.get(place) {
            let relaxed = Ordering::Relaxed;
            // Leave a value that was changed meanwhile as it is.
            _ = word.compare_exchange(value, value | USED, relaxed, relaxed);
        }
    }

    /// Inserts or replaces a handle; in a full table it takes the place of another one (see the
    /// module's head). Gives up if another thread holds the lock for long.
    pub(super) fn keep(&self, handle: u64, function: Function) {
        if handle == 0 {
            return;
        }
        let Some(_locked) = self.lock.try_lock() else {
            return;
        };
        let store = |place: usize| {
            if let Some(value) = self.values.get(place) {
                // Release pairs with the Acquire load in `find`.
                value.store(pack(function), Ordering::Release);
            }
        };
        let was_used = |place: usize| {
            self.values.get(place).is_some_and(|word| {
                let value = word.fetch_and(!USED, Ordering::Relaxed);
                let generation = unpack(value).map_or(0, |old| old.generation);
                value & USED != 0 && generation == function.generation
            })
        };
        match self.handles.insert(handle) {
            Some(place) => store(place),
            None => {
                self.handles.replace(handle, was_used, store);
            }
        }
    }
}

const FILLED: u64 = 1 << 63;
const KERNEL: u64 = 1 << 62;
const IDENTIFIED: u64 = 1 << 61;
const KNOWN: u64 = 1 << 60;
/// Found since an insertion last passed it.
const USED: u64 = 1 << 59;
const INDEX_BITS: u32 = 24;

/// One word: flags, index of name or identity (24 bits), generation (32 bits). Initially not used.
fn pack(function: Function) -> u64 {
    let (flag, index) = match function.sight {
        Sight::Named(name) => (0, name.map(|name| name.0)),
        Sight::Identified(identity) => (IDENTIFIED, identity.map(|identity| identity.0)),
    };
    let origin = match function.origin {
        Origin::Function => 0,
        Origin::Kernel => KERNEL,
    };
    let known = index.map_or(0, |index| KNOWN | u64::from(index) << 32);
    FILLED | origin | flag | known | u64::from(function.generation)
}

fn unpack(word: u64) -> Option<Function> {
    if word & FILLED == 0 {
        return None;
    }
    let index = (word >> 32) as u32 & ((1 << INDEX_BITS) - 1);
    let index = (word & KNOWN != 0).then_some(index);
    Some(Function {
        sight: if word & IDENTIFIED == 0 {
            Sight::Named(index.map(NameIndex))
        } else {
            Sight::Identified(index.map(IdentityIndex))
        },
        origin: if word & KERNEL == 0 {
            Origin::Function
        } else {
            Origin::Kernel
        },
        generation: word as u32,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_function_survives_its_word(
            index in prop::option::of(0u32..1 << 16), is_identified: bool, is_kernel: bool, generation: u32,
        ) {
            let function = Function {
                sight: if is_identified {
                    Sight::Identified(index.map(IdentityIndex))
                } else {
                    Sight::Named(index.map(NameIndex))
                },
                origin: if is_kernel { Origin::Kernel } else { Origin::Function },
                generation,
            };
            prop_assert_eq!(unpack(pack(function)), Some(function));
        }
    }

    fn named(name: u32, generation: u32) -> Function {
        Function {
            sight: Sight::Named(Some(NameIndex(name))),
            origin: Origin::Function,
            generation,
        }
    }

    #[test]
    fn a_handle_given_out_again_has_its_new_name() {
        static FUNCTIONS: Functions = Functions::new();
        assert_eq!(FUNCTIONS.find(64), None);
        FUNCTIONS.keep(64, named(1, 1));
        FUNCTIONS.keep(64, named(2, 2));
        assert_eq!(FUNCTIONS.find(64), Some(named(2, 2)));
    }

    #[test]
    fn handles_that_come_late_find_room_and_those_that_are_used_again_and_again_stay() {
        static FUNCTIONS: Functions = Functions::new();
        let handle = |n: u32| u64::from(n + 1) * 256;
        let places = FUNCTIONS_MAX as u32;
        for n in 0..3 * places {
            // Occasionally a new generation, in which everything in use is identified again.
            let generation = n >> 14;
            FUNCTIONS.keep(handle(n), named(n & 0xffff, generation));
            assert_eq!(
                FUNCTIONS.find(handle(n)),
                Some(named(n & 0xffff, generation))
            );
            let hot = n % 100;
            if n >= 100 && n.is_multiple_of(8) {
                let found = FUNCTIONS.find(handle(hot)).expect("it stays");
                assert_eq!(found.sight, named(hot, 0).sight);
                if found.generation != generation {
                    FUNCTIONS.keep(handle(hot), named(hot, generation));
                }
            }
        }
        let kept = (0..3 * places).filter(|&n| FUNCTIONS.find(handle(n)).is_some());
        assert!(kept.count() > places as usize / 2);
    }

    #[test]
    fn threads_that_push_each_other_out_never_see_another_handles_kernel() {
        static FUNCTIONS: Functions = Functions::new();
        // A handle determines its name; with each generation every place is free to take.
        let rounds = |first: u32| {
            for n in 0..200_000u32 {
                let (number, generation) = (first.wrapping_add(n * 7919) % 150_000, n >> 8);
                let handle = u64::from(number + 1) * 64;
                FUNCTIONS.keep(handle, named(number & 0xffff, generation));
                let probe = number.wrapping_mul(31) % 150_000;
                let found = FUNCTIONS.find(u64::from(probe + 1) * 64);
                if let Some(found) = found {
                    assert_eq!(found.sight, Sight::Named(Some(NameIndex(probe & 0xffff))));
                }
            }
        };
        rounds(0);
        std::thread::scope(|scope| {
            for first in [1, 50_000] {
                scope.spawn(move || rounds(first));
            }
        });
    }
}

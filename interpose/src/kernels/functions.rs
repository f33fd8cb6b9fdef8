//! Function handles and the names behind them.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::names::NameIndex;
use crate::table::Keys;

/// Places for handles; twice the most functions a process was seen with (38 916) fit.
const FUNCTIONS_MAX: usize = 1 << 16;

/// What is known about a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its name; `None` if nobody could tell.
    pub(super) name: Option<NameIndex>,
    /// What kind of handle it is.
    pub(super) origin: Origin,
    /// The generation in which it was named.
    pub(super) generation: u32,
}

/// Handles of two kinds can be launched, and their names are asked for differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `CUfunction`.
    Function,
    /// `CUkernel`, which a launch takes as a function since CUDA 12.
    Kernel,
}

/// The handles.
pub(super) struct Functions {
    handles: Keys<FUNCTIONS_MAX>,
    /// [`pack`]ed; 0 is not filled in yet.
    values: [AtomicU64; FUNCTIONS_MAX],
}

impl Functions {
    pub(super) const fn new() -> Self {
        Self {
            handles: Keys::new(),
            values: [const { AtomicU64::new(0) }; FUNCTIONS_MAX],
        }
    }

    /// What was kept for a handle.
    #[inline]
    pub(super) fn find(&self, handle: u64) -> Option<Function> {
        let place = self.handles.find(handle)?;
        // Relaxed: the value is whole in one word; names are published by their own lock.
        unpack(self.values.get(place)?.load(Ordering::Relaxed))
    }

    /// Keeps or replaces it; a table that is full forgets.
    pub(super) fn keep(&self, handle: u64, function: Function) {
        if handle == 0 {
            return;
        }
        let place = self.handles.insert(handle);
        if let Some(value) = place.and_then(|place| self.values.get(place)) {
            value.store(pack(function), Ordering::Relaxed);
        }
    }
}

const FILLED: u64 = 1 << 63;
const KERNEL: u64 = 1 << 62;
const NAMED: u64 = 1 << 61;
const NAME_BITS: u32 = 24;

/// One word: flags, name (24 bits), generation (32 bits).
fn pack(function: Function) -> u64 {
    let name = function
        .name
        .map_or(0, |name| NAMED | u64::from(name.0) << 32);
    let origin = match function.origin {
        Origin::Function => 0,
        Origin::Kernel => KERNEL,
    };
    FILLED | origin | name | u64::from(function.generation)
}

fn unpack(word: u64) -> Option<Function> {
    if word & FILLED == 0 {
        return None;
    }
    let name = (word >> 32) as u32 & ((1 << NAME_BITS) - 1);
    Some(Function {
        name: (word & NAMED != 0).then_some(NameIndex(name)),
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
            name in prop::option::of(0u32..1 << 16), is_kernel: bool, generation: u32,
        ) {
            let function = Function {
                name: name.map(NameIndex),
                origin: if is_kernel { Origin::Kernel } else { Origin::Function },
                generation,
            };
            prop_assert_eq!(unpack(pack(function)), Some(function));
        }
    }

    #[test]
    fn a_handle_given_out_again_has_its_new_name() {
        static FUNCTIONS: Functions = Functions::new();
        let function = |name| Function {
            name: Some(NameIndex(name)),
            origin: Origin::Function,
            generation: name,
        };
        assert_eq!(FUNCTIONS.find(64), None);
        FUNCTIONS.keep(64, function(1));
        FUNCTIONS.keep(64, function(2));
        assert_eq!(FUNCTIONS.find(64), Some(function(2)));
    }
}

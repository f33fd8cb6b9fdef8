//! What was found of the libraries beside the driver whose functions are hooked: cuBLAS, cuBLASLt
//! and cuDNN ([`crate::hooks::operators`]), and NVML ([`crate::hooks::nvml`]).
//!
//! Tables of atomics, each written by those who find something and read without a lock.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use abi::{Library, OPERATOR_COUNT};

use crate::platform::table::mix;

/// What was found in this process.
pub(super) static LIBRARIES: Libraries = Libraries::new();

/// See [`LIBRARIES`].
pub(super) struct Libraries {
    pub(super) operators: Functions<KINDS, OPERATOR_COUNT, OPERATOR_HELPERS>,
    /// Of each library of operators, whether its launches are seen.
    pub(super) sights: [AtomicU32; KINDS],
    /// Where operators are called.
    pub(super) call_sites: CallSites,
    pub(super) nvml: Functions<1, NVML_FUNCTIONS, NVML_HELPERS>,
}

/// Libraries of operators.
const KINDS: usize = Library::ALL.len();
/// Functions of these that we call for ourselves.
pub(super) const OPERATOR_HELPERS: usize = 6;
/// Functions of NVML that are hooked.
pub(super) const NVML_FUNCTIONS: usize = 11;
/// Functions of NVML that we call for ourselves.
pub(super) const NVML_HELPERS: usize = 3;

impl Libraries {
    const fn new() -> Self {
        Self {
            operators: Functions::new(),
            sights: [const { AtomicU32::new(0) }; KINDS],
            call_sites: CallSites::new(),
            nvml: Functions::new(),
        }
    }
}

/// The functions of some libraries, `REAL` of which are hooked; we call `HELPERS` for ourselves.
pub(super) struct Functions<const LIBRARIES: usize, const REAL: usize, const HELPERS: usize> {
    /// Where each library lies whose functions are hooked; 0 until there is one.
    pub(super) bases: [AtomicUsize; LIBRARIES],
    /// The functions that the hooks call: null until one was taken.
    pub(super) real: [AtomicPtr<c_void>; REAL],
    /// Where the others are; null where the library has none.
    pub(super) helpers: [AtomicPtr<c_void>; HELPERS],
}

impl<const LIBRARIES: usize, const REAL: usize, const HELPERS: usize>
    Functions<LIBRARIES, REAL, HELPERS>
{
    const fn new() -> Self {
        Self {
            bases: [const { AtomicUsize::new(0) }; LIBRARIES],
            real: [const { AtomicPtr::new(ptr::null_mut()) }; REAL],
            helpers: [const { AtomicPtr::new(ptr::null_mut()) }; HELPERS],
        }
    }

    /// The function that the hook of `index` calls, if one was taken.
    #[inline]
    pub(super) fn real(&self, index: usize) -> Option<NonNull<c_void>> {
        // Acquire pairs with the Release of whoever takes it: the helpers are there.
        NonNull::new(self.real.get(index)?.load(Ordering::Acquire))
    }

    /// One of the functions that we call for ourselves, if the library has it.
    pub(super) fn helper(&self, place: usize) -> Option<NonNull<c_void>> {
        // Acquire pairs with the Release of whoever found it.
        NonNull::new(self.helpers.get(place)?.load(Ordering::Acquire))
    }
}

/// Most call sites that are remembered; the calls of those beyond are bound each time. A framework
/// has some ten.
const SITES_MAX: usize = 1 << 10;

/// Most places tried for a site.
const PROBES_MAX: usize = 16;

/// Call sites by their keys, and what each is bound to.
pub(super) struct CallSites {
    /// 0 is a free place.
    keys: [AtomicU64; SITES_MAX],
    /// Null while it is filled in.
    bound: [AtomicPtr<c_void>; SITES_MAX],
}

impl CallSites {
    const fn new() -> Self {
        Self {
            keys: [const { AtomicU64::new(0) }; SITES_MAX],
            bound: [const { AtomicPtr::new(ptr::null_mut()) }; SITES_MAX],
        }
    }

    /// What a site is bound to, if it is remembered.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<NonNull<c_void>> {
        for place in probes(key) {
            let (known, bound) = self.keys.get(place).zip(self.bound.get(place))?;
            match known.load(Ordering::Relaxed) {
                0 => break,
                known if known == key => {
                    // Acquire pairs with the Release in `keep`: what is reached there is ready.
                    if let Some(bound) = NonNull::new(bound.load(Ordering::Acquire)) {
                        return Some(bound);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Remembers what a site is bound to, if there is room.
    pub(super) fn keep(&self, key: u64, to: NonNull<c_void>) {
        for place in probes(key) {
            let Some((known, bound)) = self.keys.get(place).zip(self.bound.get(place)) else {
                return;
            };
            let taken = known.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() || taken == Err(key) {
                // Release pairs with the Acquire in `find`.
                bound.store(to.as_ptr(), Ordering::Release);
                return;
            }
        }
    }
}

fn probes(key: u64) -> impl Iterator<Item = usize> {
    let first = (mix(key) >> (64 - SITES_MAX.trailing_zeros())) as usize;
    (0..PROBES_MAX).map(move |step| (first + step) % SITES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_remembered_as_long_as_there_is_room() {
        let sites = Box::new(CallSites::new());
        let to = |key: u64| NonNull::new(ptr::without_provenance_mut(key as usize)).unwrap();
        let keys = 1..=SITES_MAX as u64;
        keys.clone().for_each(|key| sites.keep(key, to(key)));
        let found = keys.clone().filter(|&key| match sites.find(key) {
            Some(found) => found == to(key),
            None => false,
        });
        assert!(found.count() > SITES_MAX / 2);
        assert!(
            keys.clone()
                .all(|key| sites.find(key).is_none_or(|it| it == to(key)))
        );
        sites.keep(1, to(2));
        assert_eq!(sites.find(1), Some(to(2)));
        assert_eq!(sites.find(SITES_MAX as u64 + 1), None);
    }
}

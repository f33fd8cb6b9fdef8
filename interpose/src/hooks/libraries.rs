//! Hooked libraries besides the driver: cuBLAS, cuBLASLt and cuDNN ([`crate::hooks::operators`]),
//! and NVML ([`crate::hooks::nvml`]). Tables of atomics, written on discovery and read without a
//! lock.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use abi::{Library, OPERATOR_COUNT};

use crate::platform::table::mix;

pub(super) static LIBRARIES: Libraries = Libraries::new();

pub(super) struct Libraries {
    pub(super) operators: Functions<KINDS, OPERATOR_COUNT, OPERATOR_HELPERS>,
    /// Per library of operators, whether its launches are seen.
    pub(super) sights: [AtomicU32; KINDS],
    pub(super) call_sites: CallSites,
    pub(super) nvml: Functions<1, NVML_FUNCTIONS, NVML_HELPERS>,
}

const KINDS: usize = Library::ALL.len();
pub(super) const OPERATOR_HELPERS: usize = 6;
pub(super) const NVML_FUNCTIONS: usize = 11;
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

/// Functions of some libraries: `REAL` are hooked, `HELPERS` we call ourselves.
pub(super) struct Functions<const LIBRARIES: usize, const REAL: usize, const HELPERS: usize> {
    /// Load address of each hooked library; 0 until there is one.
    pub(super) bases: [AtomicUsize; LIBRARIES],
    /// Load address of the library whose helpers are stored; 0 before the first.
    pub(super) claimed: AtomicUsize,
    /// The real functions behind the hooks; null until adopted.
    pub(super) real: [AtomicPtr<c_void>; REAL],
    /// The other functions; null where the library has none.
    pub(super) helpers: [AtomicPtr<c_void>; HELPERS],
}

impl<const LIBRARIES: usize, const REAL: usize, const HELPERS: usize>
    Functions<LIBRARIES, REAL, HELPERS>
{
    const fn new() -> Self {
        Self {
            bases: [const { AtomicUsize::new(0) }; LIBRARIES],
            claimed: AtomicUsize::new(0),
            real: [const { AtomicPtr::new(ptr::null_mut()) }; REAL],
            helpers: [const { AtomicPtr::new(ptr::null_mut()) }; HELPERS],
        }
    }

    #[inline]
    pub(super) fn real(&self, index: usize) -> Option<NonNull<c_void>> {
        // Acquire pairs with the Release of the adopting thread: the helpers are there.
        NonNull::new(self.real.get(index)?.load(Ordering::Acquire))
    }

    pub(super) fn helper(&self, place: usize) -> Option<NonNull<c_void>> {
        // Acquire pairs with the Release of the thread that found it.
        NonNull::new(self.helpers.get(place)?.load(Ordering::Acquire))
    }
}

/// Most call sites kept; calls of further ones are bound each time. A framework has some ten.
const SITES_MAX: usize = 1 << 10;

const PROBES_MAX: usize = 16;

/// Call sites by their keys, and the function that each is bound to.
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

    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<NonNull<c_void>> {
        for place in probes(key) {
            let (known, bound) = self.keys.get(place).zip(self.bound.get(place))?;
            match known.load(Ordering::Relaxed) {
                0 => break,
                known if known == key => {
                    // Acquire pairs with the Release in `keep`: the bound function is ready.
                    if let Some(bound) = NonNull::new(bound.load(Ordering::Acquire)) {
                        return Some(bound);
                    }
                }
                _ => {}
            }
        }
        None
    }

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

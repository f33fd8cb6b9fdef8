//! Names of kernels, each kept once, for good. PyTorch obtains tens of thousands of functions, many
//! of them repeatedly, so a name is kept by its text: the contents of the application's modules
//! bound their number.

#![expect(unsafe_code, reason = "shares what is kept for good by its address")]

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Most names. PyTorch 1.12 had 38 916 functions in all; a job launches a few thousand.
const NAMES_MAX: usize = 1 << 16;

const PROBES_MAX: usize = 64;

/// Longest kept name, bytes. Templates make names of a few thousand.
const NAME_BYTES_MAX: usize = 16 << 10;

/// A kept name. Below 2^16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NameIndex(pub(crate) u32);

/// The names. Null until kept, so that the table costs no memory before its first use.
pub(crate) struct Names {
    places: [AtomicPtr<Box<str>>; NAMES_MAX],
}

impl Names {
    pub(crate) const fn new() -> Self {
        Self {
            places: [const { AtomicPtr::new(ptr::null_mut()) }; NAMES_MAX],
        }
    }

    pub(crate) fn intern(&self, name: &str) -> Option<NameIndex> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let first = hash(name) as usize;
        (0..PROBES_MAX)
            .map(|step| ((first + step) % NAMES_MAX) as u32)
            .map(NameIndex)
            .find(|&place| self.text_or_keep(place, name) == Some(name))
    }

    pub(crate) fn text(&self, name: NameIndex) -> Option<&str> {
        // Acquire pairs with the AcqRel in `text_or_keep`: the text is there.
        let kept = self.places.get(name.0 as usize)?.load(Ordering::Acquire);
        // SAFETY: what is not null was leaked by `text_or_keep` and is never changed or freed.
        unsafe { kept.as_ref() }.map(AsRef::as_ref)
    }

    fn text_or_keep(&self, place: NameIndex, name: &str) -> Option<&str> {
        if let Some(text) = self.text(place) {
            return Some(text);
        }
        let leaked = Box::into_raw(Box::new(Box::from(name)));
        let swapped = self.places.get(place.0 as usize)?.compare_exchange(
            ptr::null_mut(),
            leaked,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if swapped.is_err() {
            // SAFETY: made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(leaked) });
        }
        self.text(place)
    }
}

/// FNV-1a, 64 bits: short, and good enough for names.
fn hash(name: &str) -> u64 {
    let folded = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The high bits are mixed better.
    folded >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table does not fit on a test thread's stack.
    static NAMES: Names = Names::new();

    #[test]
    fn a_name_is_kept_once() {
        let a = NAMES.intern("gemm").unwrap();
        let b = NAMES.intern("saxpy").unwrap();
        assert_ne!(a, b);
        assert_eq!(NAMES.intern("gemm"), Some(a));
        assert_eq!(NAMES.text(a), Some("gemm"));
        assert_eq!(NAMES.text(b), Some("saxpy"));
    }

    #[test]
    fn threads_that_keep_the_same_names_agree() {
        let indices = || -> Vec<_> { (0..500).map(|n| NAMES.intern(&format!("k{n}"))).collect() };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(indices));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert!(all.iter().all(|indices| *indices == all[0]));
        assert_eq!(NAMES.text(all[0][7].unwrap()), Some("k7"));
    }

    #[test]
    fn a_name_without_end_is_not_kept() {
        assert_eq!(NAMES.intern(&"x".repeat(NAME_BYTES_MAX + 1)), None);
    }
}

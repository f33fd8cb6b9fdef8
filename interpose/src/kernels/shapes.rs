//! Launch shapes and what the profile says about them, so that the profile is searched once each.

use core::sync::atomic::{AtomicU64, Ordering};

use policy::{Class, Kernel};

use super::identities::IdentityIndex;
use super::{Known, Learnt, Number, Shape, Taken};
use crate::labels::LabelIndex;
use crate::table::mix;

/// Most shapes. A network has hundreds; one that sees every sequence length some ten thousand. Those
/// beyond are looked up in the profile each time.
pub(super) const SHAPES_MAX: usize = 1 << 15;

/// Most places tried for a shape.
const PROBES_MAX: usize = 32;

/// What is launched, apart from the shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub(super) identity: IdentityIndex,
    /// Which of the process's clients, and so on which device: its SMs hold other numbers of blocks.
    pub(super) device: u32,
    /// In which operator, if that makes a difference.
    pub(super) label: LabelIndex,
}

/// Identities are below 2^24.
const DEVICE_SHIFT: u32 = 24;

/// The shapes.
pub(super) struct Shapes {
    entries: [Entry; SHAPES_MAX],
}

/// One cache line: a launch touches one.
#[repr(align(64))]
struct Entry {
    /// [`EMPTY`], [`FILLING`], or [`READY`] with class, SMs and whether it is profiled.
    state: AtomicU64,
    key: [AtomicU64; KEY_WORDS],
    expected_ns: AtomicU64,
    taken: Taken,
}

const _: () = assert!(size_of::<Entry>() == 64);

const KEY_WORDS: usize = 5;
/// The word of the key that has the label.
const LABEL_WORD: usize = 4;

const EMPTY: u64 = 0;
const FILLING: u64 = 1;
const READY: u64 = 2;
const PROFILED: u64 = 4;
const CLASS_SHIFT: u32 = 8;
const SM_SHIFT: u32 = 32;

impl Shapes {
    pub(super) const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    state: AtomicU64::new(EMPTY),
                    key: [const { AtomicU64::new(0) }; KEY_WORDS],
                    expected_ns: AtomicU64::new(0),
                    taken: Taken::new(),
                }
            }; SHAPES_MAX],
        }
    }

    /// What was kept.
    #[inline]
    pub(super) fn find(&self, what: What, shape: &Shape) -> Option<Known> {
        let key = key(what, shape);
        for place in probes(&key) {
            let entry = self.entries.get(place)?;
            // Acquire pairs with the Release store in `keep`: the other words are filled in.
            let state = entry.state.load(Ordering::Acquire);
            if state == EMPTY {
                return None;
            }
            if state & READY != 0 && entry.has(&key) {
                return Some(entry.known(place, state));
            }
        }
        None
    }

    /// Keeps what `compute` makes of a shape, if there is room; it is told whether there is.
    pub(super) fn keep(
        &self,
        what: What,
        shape: &Shape,
        compute: impl FnOnce(bool) -> (Kernel, bool),
    ) -> Known {
        let key = key(what, shape);
        let place = probes(&key).find(|&place| {
            self.entries.get(place).is_some_and(|entry| {
                entry
                    .state
                    .compare_exchange(EMPTY, FILLING, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            })
        });
        let Some((place, entry)) = place.zip(place.and_then(|place| self.entries.get(place)))
        else {
            let (kernel, is_profiled) = compute(false);
            return Known {
                id: 0,
                number: Number::default(),
                kernel,
                is_profiled,
                is_learnt: false,
            };
        };
        let (kernel, is_profiled) = compute(true);
        for (word, value) in entry.key.iter().zip(key) {
            word.store(value, Ordering::Relaxed);
        }
        entry
            .expected_ns
            .store(kernel.expected_ns, Ordering::Relaxed);
        let state = READY
            | if is_profiled { PROFILED } else { 0 }
            | u64::from(kernel.class.bits()) << CLASS_SHIFT
            | u64::from(kernel.sm_needed) << SM_SHIFT;
        // Release pairs with the Acquire load in `find`.
        entry.state.store(state, Ordering::Release);
        entry.known(place, state)
    }

    /// The words of a number for those who learn.
    pub(super) fn learnt(&self, place: u16) -> Option<Learnt<'_>> {
        let entry = self.entries.get(usize::from(place).checked_sub(1)?)?;
        // Acquire as in `find`.
        let state = entry.state.load(Ordering::Acquire);
        (state & READY != 0).then(|| entry.learnt(state))
    }

    /// What is known of everything that a client launched: identity, label, SMs.
    pub(super) fn of_client(
        &self,
        device: u32,
    ) -> impl Iterator<Item = (IdentityIndex, LabelIndex, u32, Learnt<'_>)> {
        let entries = self.entries.iter();
        entries.filter_map(move |entry| {
            let state = entry.state.load(Ordering::Acquire);
            let word = |index: usize| Some(entry.key.get(index)?.load(Ordering::Relaxed));
            let what = word(0)? as u32;
            let is_its = state & READY != 0 && what >> DEVICE_SHIFT == device;
            let label = LabelIndex(word(LABEL_WORD)? as u32);
            let identity = IdentityIndex(what & ((1 << DEVICE_SHIFT) - 1));
            let sm_needed = (state >> SM_SHIFT) as u32;
            is_its.then(|| (identity, label, sm_needed, entry.learnt(state)))
        })
    }
}

impl Entry {
    fn learnt(&self, state: u64) -> Learnt<'_> {
        let expected_ns = self.expected_ns.load(Ordering::Relaxed);
        Learnt {
            told_ns: if state & PROFILED != 0 {
                expected_ns
            } else {
                0
            },
            unknown: u64::from(state & PROFILED == 0),
            taken: &self.taken,
        }
    }

    #[inline]
    fn known(&self, place: usize, state: u64) -> Known {
        // What was learnt stands in place of what was told.
        let learnt_ns = self.taken.ns();
        let expected_ns = match learnt_ns {
            0 => self.expected_ns.load(Ordering::Relaxed),
            learnt_ns => learnt_ns,
        };
        Known {
            id: place as u64 + 1,
            number: Number {
                place: place as u16 + 1,
                generation: 0,
            },
            kernel: Kernel {
                class: Class::from_bits((state >> CLASS_SHIFT) as u32 & 0xff),
                sm_needed: (state >> SM_SHIFT) as u32,
                expected_ns,
            },
            is_profiled: state & PROFILED != 0,
            is_learnt: learnt_ns != 0,
        }
    }

    #[inline]
    fn has(&self, key: &[u64; KEY_WORDS]) -> bool {
        self.key
            .iter()
            .zip(key)
            .all(|(word, value)| word.load(Ordering::Relaxed) == *value)
    }
}

/// All that a launch is judged by, as five words.
#[inline]
fn key(what: What, shape: &Shape) -> [u64; KEY_WORDS] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let [grid, block] = [shape.grid, shape.block];
    [
        pair(
            what.identity.0 | what.device << DEVICE_SHIFT,
            shape.shared_bytes,
        ),
        pair(grid[0], grid[1]),
        pair(grid[2], block[0]),
        pair(block[1], block[2]),
        u64::from(what.label.0),
    ]
}

#[inline]
fn probes(key: &[u64; KEY_WORDS]) -> impl Iterator<Item = usize> {
    // Products that do not depend on each other, so that the processor makes them at once; the
    // rotations keep equal words from cancelling out.
    let [a, b, c, d, e] = key.map(mix);
    let folded =
        mix(a ^ b.rotate_left(17) ^ c.rotate_left(31) ^ d.rotate_left(47) ^ e.rotate_left(7));
    let first = (folded >> (64 - SHAPES_MAX.trailing_zeros())) as usize;
    (0..PROBES_MAX).map(move |step| (first + step) % SHAPES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        grid: [80, 2, 3],
        block: [256, 4, 5],
        shared_bytes: 6,
    };
    const KERNEL: Kernel = Kernel {
        class: Class::Memory,
        sm_needed: u32::MAX,
        expected_ns: 12_345,
    };

    fn what(identity: u32) -> What {
        What {
            identity: IdentityIndex(identity),
            device: 0,
            label: LabelIndex::NONE,
        }
    }

    #[test]
    fn what_is_kept_is_found_and_only_under_its_key() {
        static SHAPES: Shapes = Shapes::new();
        assert_eq!(SHAPES.find(what(1), &SHAPE), None);
        let kept = SHAPES.keep(what(1), &SHAPE, |has_room| {
            assert!(has_room);
            (KERNEL, true)
        });
        assert_eq!((kept.kernel, kept.is_profiled), (KERNEL, true));
        assert_eq!(SHAPES.find(what(1), &SHAPE), Some(kept));
        assert_eq!(SHAPES.find(what(2), &SHAPE), None);
        let elsewhere = What {
            device: 1,
            ..what(1)
        };
        assert_eq!(SHAPES.find(elsewhere, &SHAPE), None);
        let in_operator = What {
            label: LabelIndex(1),
            ..what(1)
        };
        assert_eq!(SHAPES.find(in_operator, &SHAPE), None);
        for index in 0..3 {
            let mut other = SHAPE;
            other.grid[index] += 1;
            assert_eq!(SHAPES.find(what(1), &other), None);
            let mut other = SHAPE;
            other.block[index] += 1;
            assert_eq!(SHAPES.find(what(1), &other), None);
        }
    }

    #[test]
    fn what_was_learnt_stands_in_place_of_what_was_told_until_it_is_taken_back() {
        static SHAPES: Shapes = Shapes::new();
        let kept = SHAPES.keep(what(1), &SHAPE, |_| (KERNEL, true));
        assert!(!kept.is_learnt && usize::from(kept.number.place) == kept.id as usize);
        let learnt = SHAPES.learnt(kept.number.place).unwrap();
        assert_eq!((learnt.told_ns, learnt.unknown), (12_345, 0));
        assert!(learnt.taken.set(0, 7));
        let found = SHAPES.find(what(1), &SHAPE).unwrap();
        assert_eq!((found.kernel.expected_ns, found.is_learnt), (7, true));
        assert!(learnt.taken.set(0, 0));
        assert_eq!(SHAPES.find(what(1), &SHAPE), Some(kept));
        let all: Vec<_> = SHAPES.of_client(0).map(|(identity, ..)| identity).collect();
        assert_eq!(all, [IdentityIndex(1)]);
        assert_eq!(SHAPES.of_client(1).count(), 0);
        assert!(SHAPES.learnt(0).is_none() && SHAPES.learnt(u16::MAX).is_none());
    }

    #[test]
    fn shapes_that_do_not_fit_are_answered_all_the_same() {
        static SHAPES: Shapes = Shapes::new();
        let (mut unkept, mut without_room) = (0, 0);
        for grid in 1..=(SHAPES_MAX as u32 + 100) {
            let shape = Shape {
                grid: [grid, 1, 1],
                ..SHAPE
            };
            let known = SHAPES.keep(what(0), &shape, |has_room| {
                without_room += u32::from(!has_room);
                (KERNEL, false)
            });
            assert_eq!(known.kernel, KERNEL);
            unkept += u32::from(known.id == 0);
        }
        assert!(unkept >= 100 && unkept == without_room);
    }
}

//! Launch shapes and their profile entries, so that the profile is searched once for each. The
//! table forgets shapes that were not launched lately ([`crate::platform::memo`]). If launched
//! again, a forgotten shape is judged as on first sight, gets another number, and is learnt anew.

use policy::{Class, Kernel};

use super::identities::IdentityIndex;
use super::{Judged, Known, Learnt, Number, Shape, Taken, id_of};
use crate::kernels::labels::LabelIndex;
use crate::platform::memo::{Found, Memo, NOTE_BITS};

/// Most shapes. A network has hundreds; one that sees every sequence length some ten thousand, of
/// which it launches some hundred at a time.
pub(super) const SHAPES_MAX: usize = 1 << 15;

#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub(super) identity: IdentityIndex,
    /// Index of the client, and so of the device: its SMs hold other numbers of blocks.
    pub(super) device: u32,
    pub(super) label: LabelIndex,
}

pub(super) struct Launched<'a> {
    pub(super) what: What,
    pub(super) shape: Shape,
    pub(super) place: u16,
    pub(super) sm_needed: u32,
    pub(super) learnt: Learnt<'a>,
}

/// Identities are below 2^24.
const DEVICE_SHIFT: u32 = 24;

/// The shapes. Their words: [`key`], the profile's duration, ns, and what was learnt ([`Taken`]).
pub(super) struct Shapes {
    memo: Memo<SHAPES_MAX, KEY_WORDS, REST_WORDS>,
}

const KEY_WORDS: usize = 5;
const REST_WORDS: usize = 2;
const TAKEN: usize = 1;

/// The parts of a note: whether profiled, class, whether collective, SM need.
const PROFILED: u64 = 1;
const CLASS_SHIFT: u32 = 1;
const CLASS_MASK: u64 = 0x3f;
const COLLECTIVE: u64 = 1 << 7;
const SM_SHIFT: u32 = 8;

const _: () = assert!(SM_SHIFT + u32::BITS <= NOTE_BITS);

impl Shapes {
    pub(super) const fn new() -> Self {
        Self { memo: Memo::new() }
    }

    #[inline]
    pub(super) fn find(&self, what: What, shape: &Shape) -> Option<Known> {
        self.memo.find(&key(what, shape)).map(|found| known(&found))
    }

    pub(super) fn keep(
        &self,
        what: What,
        shape: &Shape,
        compute: impl FnOnce() -> Judged,
    ) -> Known {
        // Before taking a place: this queries the driver and may take long.
        let judged = compute();
        let kernel = &judged.kernel;
        let note = u64::from(judged.is_profiled)
            | (u64::from(kernel.class.bits()) & CLASS_MASK) << CLASS_SHIFT
            | if judged.is_collective { COLLECTIVE } else { 0 }
            | u64::from(kernel.sm_needed) << SM_SHIFT;
        let kept = self.memo.keep(&key(what, shape), note, |generation| {
            [kernel.expected_ns, Taken::fresh(generation.into())]
        });
        kept.map_or(judged.not_kept(), |kept| known(&kept))
    }

    pub(super) fn learnt(&self, place: u16) -> Option<Learnt<'_>> {
        let (_, found) = self.memo.at(usize::from(place).checked_sub(1)?)?;
        self.learnt_of(&found)
    }

    /// A number's meaning, and its SM need; `None` if the number was reused.
    pub(super) fn described(&self, number: Number) -> Option<(What, Shape, u32)> {
        let (key, found) = self.memo.at(usize::from(number.place).checked_sub(1)?)?;
        if found.generation as u8 != number.generation {
            return None;
        }
        let (what, shape) = of_key(&key);
        Some((what, shape, (found.note >> SM_SHIFT) as u32))
    }

    pub(super) fn of_client(&self, device: u32) -> impl Iterator<Item = Launched<'_>> {
        let all = (0..SHAPES_MAX).filter_map(|place| self.memo.at(place));
        all.filter_map(move |(key, found)| {
            let (what, shape) = of_key(&key);
            let learnt = self.learnt_of(&found)?;
            let launched = Launched {
                what,
                shape,
                place: found.place as u16 + 1,
                sm_needed: (found.note >> SM_SHIFT) as u32,
                learnt,
            };
            (what.device == device).then_some(launched)
        })
    }

    fn learnt_of(&self, found: &Found<REST_WORDS>) -> Option<Learnt<'_>> {
        let [expected_ns, _] = found.rest;
        let is_profiled = found.note & PROFILED != 0;
        Some(Learnt {
            told_ns: if is_profiled { expected_ns } else { 0 },
            unknown: u64::from(!is_profiled),
            is_classed: class_of(found.note) != Class::Unknown,
            taken: Taken(self.memo.word(found.place, TAKEN)?),
        })
    }
}

#[inline]
fn known(found: &Found<REST_WORDS>) -> Known {
    let [told_ns, taken] = found.rest;
    let (place, note) = (found.place + 1, found.note);
    // A learnt duration replaces the profile's.
    let learnt_ns = Taken::ns_of(taken);
    Known {
        id: id_of(place as u16, found.generation.into()),
        number: Number {
            place: place as u16,
            generation: found.generation as u8,
        },
        kernel: Kernel {
            class: class_of(note),
            sm_needed: (note >> SM_SHIFT) as u32,
            expected_ns: if learnt_ns == 0 { told_ns } else { learnt_ns },
        },
        is_profiled: note & PROFILED != 0,
        is_learnt: learnt_ns != 0,
        is_collective: note & COLLECTIVE != 0,
    }
}

#[inline]
fn class_of(note: u64) -> Class {
    Class::from_bits((note >> CLASS_SHIFT & CLASS_MASK) as u32)
}

/// All that a launch is judged by, as five words; the label is the last one.
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

fn of_key(&[what, xy, zx, yz, label]: &[u64; KEY_WORDS]) -> (What, Shape) {
    let pair = |word: u64| (word as u32, (word >> u32::BITS) as u32);
    let (of_what, shared_bytes) = pair(what);
    let (grid_x, grid_y) = pair(xy);
    let (grid_z, block_x) = pair(zx);
    let (block_y, block_z) = pair(yz);
    let what = What {
        identity: IdentityIndex(of_what & ((1 << DEVICE_SHIFT) - 1)),
        device: of_what >> DEVICE_SHIFT,
        label: LabelIndex(label as u32),
    };
    let shape = Shape {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_bytes,
    };
    (what, shape)
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

    const PROFILED_KERNEL: Judged = Judged {
        kernel: KERNEL,
        is_profiled: true,
        is_collective: false,
    };
    const UNKNOWN_KERNEL: Judged = Judged {
        is_profiled: false,
        ..PROFILED_KERNEL
    };

    #[test]
    fn a_number_tells_what_it_stands_for() {
        static SHAPES: Shapes = Shapes::new();
        let what = What {
            identity: IdentityIndex(77),
            device: 3,
            label: LabelIndex(9),
        };
        let known = SHAPES.keep(what, &SHAPE, || UNKNOWN_KERNEL);
        let (told, shape, sm_needed) = SHAPES.described(known.number).expect("it is kept");
        let words = (told.identity, told.device, told.label);
        assert_eq!(words, (what.identity, what.device, what.label));
        assert_eq!((shape, sm_needed), (SHAPE, KERNEL.sm_needed));
        let later = Number {
            generation: known.number.generation + 1,
            ..known.number
        };
        assert!(SHAPES.described(later).is_none());
    }

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
        let kept = SHAPES.keep(what(1), &SHAPE, || PROFILED_KERNEL);
        let of_kept = (kept.kernel, kept.is_profiled, kept.is_collective);
        assert_eq!(of_kept, (KERNEL, true, false));
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
    fn a_collective_kernel_is_one_each_time_and_differs_in_nothing_else() {
        static SHAPES: Shapes = Shapes::new();
        for (number, plain) in [(1, PROFILED_KERNEL), (3, UNKNOWN_KERNEL)] {
            let collective = Judged {
                is_collective: true,
                ..plain
            };
            let [of_plain, of_collective] = [(0, plain), (1, collective)].map(|(step, judged)| {
                let what = what(number + step);
                let kept = SHAPES.keep(what, &SHAPE, || judged);
                assert_eq!(SHAPES.find(what, &SHAPE), Some(kept));
                kept
            });
            assert!(of_collective.is_collective && !of_plain.is_collective);
            let same = Known {
                id: of_plain.id,
                number: of_plain.number,
                is_collective: false,
                ..of_collective
            };
            assert_eq!(same, of_plain);
        }
    }

    #[test]
    fn what_was_learnt_stands_in_place_of_what_was_told_until_it_is_taken_back() {
        static SHAPES: Shapes = Shapes::new();
        let kept = SHAPES.keep(what(1), &SHAPE, || PROFILED_KERNEL);
        assert!(!kept.is_learnt && usize::from(kept.number.place) == kept.id as usize);
        let learnt = SHAPES.learnt(kept.number.place).unwrap();
        assert_eq!((learnt.told_ns, learnt.unknown), (12_345, 0));
        assert!(learnt.taken.set(0, 7));
        let found = SHAPES.find(what(1), &SHAPE).unwrap();
        assert_eq!((found.kernel.expected_ns, found.is_learnt), (7, true));
        assert!(learnt.taken.set(0, 0));
        assert_eq!(SHAPES.find(what(1), &SHAPE), Some(kept));
        let all: Vec<_> = SHAPES.of_client(0).collect();
        let [launched] = &all[..] else {
            panic!("one shape")
        };
        let said = (launched.what.identity, launched.shape, launched.place);
        assert_eq!(said, (IdentityIndex(1), SHAPE, kept.number.place));
        assert_eq!(SHAPES.of_client(1).count(), 0);
        assert!(SHAPES.learnt(0).is_none() && SHAPES.learnt(u16::MAX).is_none());
    }

    fn launch(shapes: &Shapes, number: u32) -> bool {
        let shape = Shape {
            grid: [number + 1, 1, 1],
            ..SHAPE
        };
        let is_found = shapes.find(what(0), &shape).is_some();
        if !is_found {
            let known = shapes.keep(what(0), &shape, || UNKNOWN_KERNEL);
            assert!(known.kernel == KERNEL && known.id != 0);
        }
        !is_found
    }

    #[test]
    fn a_shape_first_seen_after_40_000_others_is_searched_for_once() {
        static SHAPES: Shapes = Shapes::new();
        let first = (0..40_000).filter(|&n| launch(&SHAPES, n)).count();
        assert_eq!(first, 40_000);
        // A hundred new ones, a hundred times over.
        let later = (0..10_000).filter(|&n| launch(&SHAPES, 40_000 + n % 100));
        assert_eq!(later.count(), 100);
    }

    #[test]
    fn a_hundred_shapes_that_are_launched_again_and_again_stay_while_40_000_others_pass() {
        static SHAPES: Shapes = Shapes::new();
        let mut searched = 0;
        for other in 0..40_000 {
            // All of them at every hundredth other one, as in a step of a network.
            if other % 100 == 0 {
                searched += (0..100).filter(|&n| launch(&SHAPES, n)).count();
            }
            assert!(launch(&SHAPES, 100 + other));
        }
        assert_eq!(searched, 100);
    }

    #[test]
    fn a_number_that_is_given_to_another_shape_is_another_generation_that_nothing_was_learnt_of() {
        static SHAPES: Shapes = Shapes::new();
        let first = SHAPES.keep(what(1), &SHAPE, || PROFILED_KERNEL);
        assert!(SHAPES.learnt(first.number.place).unwrap().taken.set(0, 7));
        let mut others = (0..).map(|number| {
            let shape = Shape {
                grid: [number, 7, 7],
                ..SHAPE
            };
            SHAPES.keep(what(0), &shape, || UNKNOWN_KERNEL)
        });
        let heir = others.find(|known| known.number.place == first.number.place);
        let heir = heir.unwrap();
        assert_eq!(heir.number.generation, 1);
        assert!(heir.id != first.id && !heir.is_learnt && !heir.is_profiled);
        let learnt = SHAPES.learnt(heir.number.place).unwrap();
        assert_eq!((learnt.taken.read(), learnt.unknown), ((1, 0), 1));
        // The first one's duration does not count for the second.
        assert!(!learnt.taken.set(0, 8) && learnt.taken.ns() == 0);
        assert_eq!(SHAPES.find(what(1), &SHAPE), None);
    }
}

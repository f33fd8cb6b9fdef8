//! Labels: which operator a thread is in while it launches. A call of cuBLAS, cuBLASLt or cuDNN is
//! an *operator* ([`abi::OPERATORS`]). During the call, its thread's launches carry its *label*:
//! the operator's name, sizes, batch, layout and number format. One kernel serves products of all
//! sizes in the same launch shape, so the label is part of the look-up key if the profile knows
//! operators. The class that follows from the sizes is used in any case. Each label is kept once,
//! in a fixed-size table that forgets labels not used lately ([`crate::platform::memo`]). If used
//! again it is another label, with new look-ups of its launches.

use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use abi::OPERATOR_NAMES;
use profiler::Operator;
use profiler::family::Intensity;

use crate::platform::log::{self, Level};
use crate::platform::memo::{Found, Memo};

/// Most sizes of an operator: the dimensions of two tensors of up to five.
pub(crate) const SIZES_MAX: usize = 10;

const PRODUCT_SIZES: usize = 3;

/// Most labels. A network has some hundred; one that sees every sequence length some thousand.
const LABELS_MAX: usize = 1 << 13;

const KEY_WORDS: usize = 1 + SIZES_MAX / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Number {
    Unknown,
    F16,
    Bf16,
    F32,
    F64,
    C32,
    C64,
    I8,
    U8,
    I32,
    I64,
    F8E4M3,
    F8E5M2,
    F4E2M1,
}

impl Number {
    const ALL: [(Self, &str); 14] = [
        (Self::Unknown, ""),
        (Self::F16, "f16"),
        (Self::Bf16, "bf16"),
        (Self::F32, "f32"),
        (Self::F64, "f64"),
        (Self::C32, "c32"),
        (Self::C64, "c64"),
        (Self::I8, "i8"),
        (Self::U8, "u8"),
        (Self::I32, "i32"),
        (Self::I64, "i64"),
        (Self::F8E4M3, "f8e4m3"),
        (Self::F8E5M2, "f8e5m2"),
        (Self::F4E2M1, "f4e2m1"),
    ];

    /// Its name; empty if unknown.
    fn word(self) -> &'static str {
        Self::ALL.get(self as usize).map_or("", |(_, word)| word)
    }

    pub(crate) fn of_word(word: &str) -> Self {
        let found = Self::ALL.iter().find(|(_, known)| *known == word);
        found.map_or(Self::Unknown, |(number, _)| *number)
    }

    pub(crate) fn of_cuda(data_type: i32) -> Self {
        match data_type {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 => Self::I8,
            4 => Self::C32,
            5 => Self::C64,
            8 => Self::U8,
            10 => Self::I32,
            14 => Self::Bf16,
            24 => Self::I64,
            28 => Self::F8E4M3,
            29 => Self::F8E5M2,
            33 => Self::F4E2M1,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn of_cudnn(data_type: i32) -> Self {
        match data_type {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 | 5 | 8 => Self::I8,
            4 => Self::I32,
            6 | 7 => Self::U8,
            9 => Self::Bf16,
            10 => Self::I64,
            12 => Self::F8E4M3,
            13 => Self::F8E5M2,
            _ => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) name_index: u16,
    pub(crate) number: Number,
    /// How a product's factors are used: `n`, `t` (transposed), `c` (conjugated, too); 0: unstated.
    pub(crate) layout: [u8; 2],
    /// Batch count; 0: not stated.
    pub(crate) batch: u32,
    /// For a product m, n, k; otherwise the dimensions of the tensors. Absent ones are 0.
    pub(crate) sizes: [u32; SIZES_MAX],
}

impl Label {
    pub(crate) const fn of_name(name_index: usize) -> Self {
        Self {
            // There are some twenty names.
            name_index: name_index as u16,
            number: Number::Unknown,
            layout: [0; 2],
            batch: 0,
            sizes: [0; SIZES_MAX],
        }
    }

    /// Whether the call may do nothing: a product with a 0. cuDNN has no empty tensors.
    pub(crate) fn may_be_empty(&self) -> bool {
        let mut sizes = self.sizes.iter().take(PRODUCT_SIZES);
        self.is_product() && (self.batch == 0 || sizes.any(|size| *size == 0))
    }

    /// Whether it is a product with known sizes: only these have a layout.
    fn is_product(&self) -> bool {
        self.layout != [0; 2]
    }

    /// The stated sizes: all three of a product; the dimensions of tensors without unused places.
    fn stated_sizes(&self) -> impl Iterator<Item = u32> {
        let is_product = self.is_product();
        let sizes = self.sizes.into_iter().enumerate();
        sizes
            .filter(move |(place, size)| {
                if is_product {
                    *place < PRODUCT_SIZES
                } else {
                    *size != 0
                }
            })
            .map(|(_, size)| size)
    }

    fn name(&self) -> &'static str {
        let name = OPERATOR_NAMES.get(usize::from(self.name_index));
        name.copied().unwrap_or("")
    }

    fn operator(&self) -> Operator {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Operator {
            name: self.name().to_owned(),
            sizes: self.stated_sizes().map(u64::from).collect(),
            batch: (self.batch > 0).then_some(u64::from(self.batch)),
            number: text(self.number.word()),
            layout: text(&self.layout_text()),
        }
    }

    fn layout_text(&self) -> String {
        let letters = self.layout.iter().filter(|letter| **letter != 0);
        letters.map(|letter| char::from(*letter)).collect()
    }

    /// The table's key; never all zeros.
    fn words(&self) -> [u64; KEY_WORDS] {
        let [a, b] = self.layout.map(letter_code);
        let short = u64::from(self.name_index)
            | (self.number as u64) << NUMBER_SHIFT
            | a << LAYOUT_SHIFTS[0]
            | b << LAYOUT_SHIFTS[1]
            | FILLED;
        let mut words = [0; KEY_WORDS];
        let [first, sizes @ ..] = &mut words;
        *first = short | u64::from(self.batch) << BATCH_SHIFT;
        for (word, pair) in sizes.iter_mut().zip(self.sizes.as_chunks().0) {
            let [low, high] = *pair;
            *word = u64::from(low) | u64::from(high) << 32;
        }
        words
    }

    fn of_words(words: &[u64; KEY_WORDS]) -> Self {
        let [first, pairs @ ..] = words;
        let number = Number::ALL.get((first >> NUMBER_SHIFT) as usize & 0xff);
        let mut sizes = [0; SIZES_MAX];
        for (size, half) in sizes.iter_mut().zip(
            pairs
                .iter()
                .flat_map(|word| [*word as u32, (word >> 32) as u32]),
        ) {
            *size = half;
        }
        Self {
            name_index: *first as u16,
            number: number.map_or(Number::Unknown, |(number, _)| *number),
            layout: LAYOUT_SHIFTS.map(|shift| {
                let code = (first >> shift) as usize & 3;
                LETTERS.get(code).copied().unwrap_or(0)
            }),
            batch: (first >> BATCH_SHIFT) as u32,
            sizes,
        }
    }
}

/// Positions of the parts of a label's first word, above its name.
const NUMBER_SHIFT: u32 = 16;
const LAYOUT_SHIFTS: [u32; 2] = [24, 26];
const FILLED: u64 = 1 << 31;
const BATCH_SHIFT: u32 = 32;

/// The letters of a layout, by their two bits.
const LETTERS: [u8; 4] = [0, b'n', b't', b'c'];

fn letter_code(letter: u8) -> u64 {
    LETTERS
        .iter()
        .position(|known| *known == letter)
        .unwrap_or(0) as u64
}

impl fmt::Display for Label {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operator().fmt(to)
    }
}

/// A kept label: its place, from 1, its generation above that, and in the top bits the intensity
/// ([`LabelIndex::intensity`]), which may stand alone. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LabelIndex(pub(crate) u32);

/// Bits of a place, from 1 to [`LABELS_MAX`].
const PLACE_BITS: u32 = LABELS_MAX.trailing_zeros() + 1;

/// The intensity's position, above place and generation.
const INTENSITY_SHIFT: u32 = 30;

const _: () = assert!(PLACE_BITS + u16::BITS <= INTENSITY_SHIFT);

/// The intensities by their two bits; 0 is none.
const INTENSITIES: [Option<Intensity>; 4] = [
    None,
    Some(Intensity::Low),
    Some(Intensity::Middle),
    Some(Intensity::High),
];

impl LabelIndex {
    pub(crate) const NONE: Self = Self(0);

    /// The intensity of the main kernel, if the sizes show it.
    pub(crate) fn intensity(self) -> Option<Intensity> {
        let bits = (self.0 >> INTENSITY_SHIFT) as usize;
        INTENSITIES.get(bits).copied().flatten()
    }

    /// The part of a label that matters without a profile of operators: the intensity. So a kernel
    /// that serves products of ever new sizes is still one kernel, or one for each intensity.
    #[inline]
    pub(crate) const fn without_operator(self) -> Self {
        Self(self.0 >> INTENSITY_SHIFT << INTENSITY_SHIFT)
    }

    /// The operator, as stated in a profile; allocates.
    pub(crate) fn operator(self) -> Option<Operator> {
        LABELS.of(self).map(|label| label.operator())
    }

    pub(crate) fn is_kept(self) -> bool {
        LABELS.of(self).is_some()
    }

    fn new(found: &Found<0>) -> Self {
        let place = (found.place as u32 + 1) | u32::from(found.generation) << PLACE_BITS;
        Self(place | (found.note as u32) << INTENSITY_SHIFT)
    }
}

static LABELS: Labels = Labels::new();

struct Labels {
    memo: Memo<LABELS_MAX, KEY_WORDS, 0>,
    /// Whether any operator was ever entered: without one, a launch pays only this load.
    is_used: AtomicBool,
}

impl Labels {
    const fn new() -> Self {
        Self {
            memo: Memo::new(),
            is_used: AtomicBool::new(false),
        }
    }

    /// Keeps a label. Returns whether it is new. Threads that first see a label at the same time
    /// may keep it twice, which costs a place. `NONE` if all its places are being changed.
    fn intern(&self, label: &Label) -> (LabelIndex, bool) {
        let words = label.words();
        let index = |found: Option<Found<0>>| {
            found.map_or(LabelIndex::NONE, |found| LabelIndex::new(&found))
        };
        match self.memo.find(&words) {
            found @ Some(_) => (index(found), false),
            None => {
                let intensity = Intensity::of(&label.operator());
                let known = INTENSITIES.iter().position(|known| *known == intensity);
                let note = known.unwrap_or(0) as u64;
                (index(self.memo.keep(&words, note, |_| [])), true)
            }
        }
    }

    fn of(&self, index: LabelIndex) -> Option<Label> {
        let place = index.0 & ((1 << PLACE_BITS) - 1);
        let (words, found) = self.memo.at((place as usize).checked_sub(1)?)?;
        (LabelIndex::new(&found) == index).then(|| Label::of_words(&words))
    }
}

pub(crate) fn intern(label: &Label) -> LabelIndex {
    let (index, is_new) = LABELS.intern(label);
    if is_new && log::is_said(Level::Debug) {
        log::say(Level::Debug, format_args!("operator {label}: first call"));
    }
    index
}

thread_local! {
    /// This thread's operator. No destructor: it works to the thread's last instruction.
    static CURRENT: Current = const {
        Current {
            at: Cell::new(OUTSIDE),
            label: Cell::new(LabelIndex::NONE),
            launches: Cell::new(0),
        }
    };
}

/// Below every stack address.
const OUTSIDE: usize = 0;

pub(crate) struct Current {
    /// Stack address of the operator's hook, as in [`crate::dispatch::guard`]: a call that is not
    /// deeper is not inside, even after a jump out of the hook.
    at: Cell<usize>,
    label: Cell<LabelIndex>,
    /// Launches seen since it was entered.
    launches: Cell<u64>,
}

impl Current {
    #[inline]
    pub(crate) fn is_inside(&self, here: usize) -> bool {
        here < self.at.get()
    }

    pub(crate) fn enter(&self, here: usize, label: LabelIndex) -> Inside<'_> {
        LABELS.is_used.store(true, Ordering::Relaxed);
        self.label.set(label);
        self.launches.set(0);
        self.at.set(here);
        Inside(self)
    }

    pub(crate) fn launches(&self) -> u64 {
        self.launches.get()
    }
}

pub(crate) struct Inside<'a>(&'a Current);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.at.set(OUTSIDE);
        self.0.label.set(LabelIndex::NONE);
    }
}

pub(crate) fn with_current<T>(body: impl FnOnce(&Current) -> T) -> T {
    CURRENT.with(body)
}

#[inline]
pub(crate) fn handle_launch() -> LabelIndex {
    if !LABELS.is_used.load(Ordering::Relaxed) {
        return LabelIndex::NONE;
    }
    CURRENT.with(|current| {
        let mark = 0u8;
        if !current.is_inside(core::ptr::from_ref(&mark).addr()) {
            return LabelIndex::NONE;
        }
        current.launches.set(current.launches.get() + 1);
        current.label.get()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_label() -> impl Strategy<Value = Label> {
        let letter = prop::sample::select(&LETTERS[..]);
        let number = prop::sample::select(&Number::ALL[..]).prop_map(|(number, _)| number);
        let sizes = prop::array::uniform10(any::<u32>());
        let name = 0..OPERATOR_NAMES.len() as u16;
        (name, number, [letter.clone(), letter], any::<u32>(), sizes).prop_map(
            |(name_index, number, layout, batch, sizes)| Label {
                name_index,
                number,
                layout,
                batch,
                sizes,
            },
        )
    }

    proptest! {
        #[test]
        fn a_label_survives_its_words(label in any_label()) {
            prop_assert_eq!(Label::of_words(&label.words()), label);
        }

        #[test]
        fn labels_that_differ_are_told_apart(one in any_label(), other in any_label()) {
            static LABELS: Labels = Labels::new();
            let (first, _) = LABELS.intern(&one);
            let (second, _) = LABELS.intern(&other);
            prop_assert_eq!(first == second && first != LabelIndex::NONE, one == other);
            prop_assert_eq!(LABELS.of(first), (first != LabelIndex::NONE).then_some(one));
        }
    }

    fn product(m: u32) -> Label {
        Label {
            name_index: 0,
            number: Number::F32,
            layout: *b"tn",
            batch: 1,
            sizes: [m, 2, 3, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    #[test]
    fn labels_that_come_late_are_kept_and_a_forgotten_one_is_no_other() {
        static LABELS: Labels = Labels::new();
        let (hot, _) = LABELS.intern(&product(0));
        let count = 3 * LABELS_MAX as u32;
        let kept = (1..=count).map(|m| {
            let (index, is_new) = LABELS.intern(&product(m));
            assert!(is_new && LABELS.of(index) == Some(product(m)));
            assert_eq!(LABELS.intern(&product(0)), (hot, false));
            (m, index)
        });
        let kept: Vec<_> = kept.collect();
        let forgotten = kept.iter().filter(|(m, index)| {
            let label = LABELS.of(*index);
            assert!(label.is_none() || label == Some(product(*m)));
            label.is_none()
        });
        assert!(forgotten.count() > 2 * LABELS_MAX);
        assert_eq!(LABELS.of(LabelIndex::NONE), None);
    }

    #[test]
    fn a_label_tells_what_its_sizes_say_and_those_that_say_the_same_are_one_without_the_rest() {
        static LABELS: Labels = Labels::new();
        let gemm = OPERATOR_NAMES.iter().position(|name| *name == "gemm");
        let of = |size: u32, name_index: usize| {
            let label = Label {
                name_index: name_index as u16,
                sizes: [size, size, size, 0, 0, 0, 0, 0, 0, 0],
                ..product(size)
            };
            let (index, _) = LABELS.intern(&label);
            assert_eq!(LABELS.of(index), Some(label));
            assert_eq!(LABELS.intern(&label), (index, false));
            index
        };
        let gemm = gemm.expect("it is an operator");
        let [small, other, large] = [of(16, gemm), of(17, gemm), of(4096, gemm)];
        assert_eq!(small.intensity(), Some(Intensity::Low));
        assert_eq!(large.intensity(), Some(Intensity::High));
        assert_ne!(small, other);
        let [small, other, large] = [small, other, large].map(LabelIndex::without_operator);
        assert_eq!(small, other);
        assert_ne!(small, large);
        assert_eq!(large.intensity(), Some(Intensity::High));
        assert_eq!(LABELS.of(large), None);
        let gemv = OPERATOR_NAMES.iter().position(|name| *name == "gemv");
        let gemv = of(16, gemv.expect("it is an operator"));
        assert_eq!(gemv.without_operator(), LabelIndex::NONE);
    }

    #[test]
    fn a_product_states_three_sizes_even_where_they_are_nothing() {
        assert_eq!(product(7).operator().sizes, [7, 2, 3]);
        assert!(!product(7).may_be_empty());
        let empty = Label {
            sizes: [0; SIZES_MAX],
            ..product(7)
        };
        assert_eq!(empty.operator().sizes, [0, 0, 0]);
        assert!(empty.may_be_empty());
        assert!(!Label::of_name(3).may_be_empty());
        let without_batch = Label {
            batch: 0,
            ..product(7)
        };
        assert!(without_batch.may_be_empty());
    }

    #[test]
    fn tensors_state_their_dimensions_and_have_something_to_do() {
        let convolution = Label {
            sizes: [32, 3, 224, 224, 0, 64, 3, 7, 7, 0],
            ..Label::of_name(3)
        };
        let stated = convolution.operator().sizes;
        assert_eq!(stated, [32, 3, 224, 224, 64, 3, 7, 7]);
        assert!(!convolution.may_be_empty());
    }

    #[test]
    fn only_what_is_launched_inside_carries_the_label() {
        let label = intern(&product(4321));
        assert_eq!(handle_launch(), LabelIndex::NONE);
        with_current(|current| {
            let mark = 0u8;
            let inside = current.enter(core::ptr::from_ref(&mark).addr(), label);
            assert_eq!(deeper(handle_launch), label);
            assert_eq!(deeper(handle_launch), label);
            assert_eq!(current.launches(), 2);
            drop(inside);
        });
        assert_eq!(handle_launch(), LabelIndex::NONE);
    }

    #[inline(never)]
    fn deeper<T>(call: impl FnOnce() -> T) -> T {
        std::hint::black_box([0u8; 64]);
        call()
    }
}

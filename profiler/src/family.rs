//! The resource class of a kernel from its name, where nothing was measured. Frameworks and
//! libraries launch few kinds of kernels, *families*, and most of a family have the same bound
//! whatever the model: an elementwise kernel moves 4 to 12 bytes for each operation, a matrix
//! product does hundreds of operations for each byte. [`estimate`] finds the first rule of
//! [`table::RULES`] that applies. Names may be mangled, demangled by any tool, or plain; the search
//! neither allocates nor demangles. It runs once per kernel and shape, for 10 µs.
//!
//! **The cost of an estimate.** A policy lets a best-effort kernel run beside a high-priority one
//! if their classes are opposite or one is unknown. A class, right or wrong, only removes pairs: an
//! estimate never admits a pair that was held before. A wrong one is no worse for the high-priority
//! job than none; it holds best-effort kernels that could have run. So a family with varying bounds
//! gets no class: it slows best-effort jobs, and half of the removed pairs are harmless.
//!
//! **The source of confidence.** [`Family::confidence_pct`] is the share of recorded GPU time whose
//! measured class was the estimated one, over all classed launches of the family in Orion's
//! recordings; unknown measured classes count as wrong. The test `class_estimates` recomputes it. A
//! family without a recording has no figure: its class rests on the table's reason.
//!
//! **Launches without a class** end before they reach any bound: those shorter than
//! [`DURATION_NS_MIN`], and of families whose grid grows with their data ([`Bound::MemoryIfLarge`])
//! those that need fewer SMs than the GPU has. The second gate is for best-effort jobs:
//! `libpillion.so` omits [`Launch::device_sms`] for a high-priority one, whose small launches thus
//! keep best-effort kernels of their class away. With the gate for both, requests of one of Orion's
//! pairs (ResNet-50 beside BERT's training, `pillion`) took 0.011 of their solo time longer at p99
//! than with measured classes, with the gate for high-priority jobs alone 0.013 (BERT beside
//! MobileNet's training); with the present gate none takes 0.008 longer, and no best-effort job
//! loses 0.002 of its throughput (`sim/tests/estimated_classes.rs`).

use crate::base_name::base;
use crate::profile::ClassRule;
use crate::resource_class::ResourceClass;

mod frame;
mod table;
mod work;

use table::{RULES, WRAPPERS};
pub use work::Intensity;

/// A shorter launch is only start and end, ns. The shortest in Orion's recordings: 2.7 µs.
pub const DURATION_NS_MIN: u64 = 2_000;

/// The share of recorded time below which a family gets no class, percent. Nearest below is pooling
/// forward (of four recordings two measure compute and two memory), nearest above reductions.
pub const CONFIDENCE_PCT_MIN: u8 = 75;

/// The known properties of a launch; only the name is required.
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch<'a> {
    /// The kernel's name, in any spelling; empty if only the call is known.
    pub name: &'a str,
    /// SMs that run all its blocks at once.
    pub sm_needed: Option<u32>,
    /// SMs of the GPU, if launches that do not fill them are to get no class.
    pub device_sms: Option<u32>,
    /// Its duration, ns.
    pub duration_ns: Option<u64>,
    /// The intensity, from the sizes of the library call that launches it.
    pub intensity: Option<Intensity>,
}

/// A class without a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The class: compute or memory.
    pub class: ResourceClass,
    /// The family behind it; `None` where the call's sizes decided.
    pub family: Option<Family>,
    /// See [`Family::confidence_pct`]; `None` where the call's sizes decided.
    pub confidence_pct: Option<u8>,
}

impl Estimate {
    /// The rule behind it: the name, or the call's sizes.
    #[must_use]
    pub const fn rule(&self) -> ClassRule {
        match self.family {
            Some(_) => ClassRule::Name,
            None => ClassRule::Estimated,
        }
    }
}

/// A kind of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Attention in one kernel, many queries at a time.
    Attention,
    /// Attention of one or few queries to a cache of keys and values.
    AttentionDecode,
    /// Kernels of collective communication, which wait for other GPUs.
    Collective,
    /// Convolution.
    Conv,
    /// Copies and changes of layout, padding and transforms around a convolution.
    Copy,
    /// Convolution of each channel by itself.
    DepthwiseConv,
    /// Dropout.
    Dropout,
    /// Elementwise operations.
    Elementwise,
    /// Look-up in tables, gather and scatter.
    Embedding,
    /// Matrix products.
    Gemm,
    /// Products with a vector or a narrow matrix, BLAS 1 and 2, sums of partial products.
    Gemv,
    /// Loss functions.
    Loss,
    /// Batch, layer, group and RMS normalisation.
    Normalisation,
    /// Steps of optimisers over many tensors.
    Optimiser,
    /// Pooling, forward.
    Pooling,
    /// Pooling, backward, and averages.
    PoolingBackward,
    /// Conversion between number formats.
    Quantise,
    /// Random numbers.
    Random,
    /// Reductions.
    Reduction,
    /// Scans, sorts, selections and histograms.
    ScanSort,
    /// Kernels that prepare another one.
    Setup,
    /// Softmax.
    Softmax,
    /// Fourier transforms.
    Transform,
}

impl Family {
    /// All families, in the order of their words.
    pub const ALL: [Self; 23] = [
        Self::Attention,
        Self::AttentionDecode,
        Self::Collective,
        Self::Conv,
        Self::Copy,
        Self::DepthwiseConv,
        Self::Dropout,
        Self::Elementwise,
        Self::Embedding,
        Self::Gemm,
        Self::Gemv,
        Self::Loss,
        Self::Normalisation,
        Self::Optimiser,
        Self::Pooling,
        Self::PoolingBackward,
        Self::Quantise,
        Self::Random,
        Self::Reduction,
        Self::ScanSort,
        Self::Setup,
        Self::Softmax,
        Self::Transform,
    ];

    /// The word for it in files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::AttentionDecode => "attention-decode",
            Self::Collective => "collective",
            Self::Conv => "conv",
            Self::Copy => "copy",
            Self::DepthwiseConv => "depthwise-conv",
            Self::Dropout => "dropout",
            Self::Elementwise => "elementwise",
            Self::Embedding => "embedding",
            Self::Gemm => "gemm",
            Self::Gemv => "gemv",
            Self::Loss => "loss",
            Self::Normalisation => "normalisation",
            Self::Optimiser => "optimiser",
            Self::Pooling => "pooling",
            Self::PoolingBackward => "pooling-backward",
            Self::Quantise => "quantise",
            Self::Random => "random",
            Self::Reduction => "reduction",
            Self::ScanSort => "scan-sort",
            Self::Setup => "setup",
            Self::Softmax => "softmax",
            Self::Transform => "transform",
        }
    }

    /// The family of this word, see [`Family::word`].
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.word() == word)
    }

    /// The correctly classed share of recorded GPU time, percent; `None` without a recording.
    #[must_use]
    pub const fn confidence_pct(self) -> Option<u8> {
        match self {
            Self::Conv => Some(93),
            Self::Gemm => Some(99),
            Self::DepthwiseConv
            | Self::Dropout
            | Self::Gemv
            | Self::Loss
            | Self::Normalisation
            | Self::PoolingBackward
            | Self::Softmax => Some(100),
            Self::Elementwise => Some(95),
            Self::Reduction => Some(84),
            _ => None,
        }
    }

    /// Whether an operator's sizes are more informative than the name.
    const fn is_product(self) -> bool {
        matches!(self, Self::Gemm | Self::Conv)
    }
}

/// The bound of a rule's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Compute.
    Compute,
    /// Memory.
    Memory,
    /// Memory if all SMs are needed: the grid grows with the data, and small ones reach no bound.
    MemoryIfLarge,
    /// Varying, or none.
    Neither,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The family.
    pub family: Family,
    /// Parts of its names, in small letters; after `^` a prefix of the name, after `|` a prefix of
    /// a word (`|fft`: `vector_fft`, not `offtarget`), before `$` a suffix (`conv$`: `conv_12`).
    pub found_by: &'static [&'static str],
    /// Its bound.
    pub bound: Bound,
    /// The reason, in a few words.
    pub why: &'static str,
}

/// The class of a launch from family, sizes and name; `None` where none of them suffices.
#[must_use]
pub fn estimate(launch: &Launch<'_>) -> Option<Estimate> {
    if launch.duration_ns.is_some_and(|ns| ns < DURATION_NS_MIN) {
        return None;
    }
    let rule = rule_of(launch.name);
    if rule.is_none_or(|rule| rule.family.is_product())
        && let Some(class) = launch.intensity.and_then(|of| of.class(launch.name))
    {
        return Some(Estimate {
            class,
            family: None,
            confidence_pct: None,
        });
    }
    let rule = rule?;
    let class = match rule.bound {
        Bound::Neither => return None,
        Bound::Memory => ResourceClass::Memory,
        Bound::MemoryIfLarge if is_small(launch) => return None,
        Bound::MemoryIfLarge => ResourceClass::Memory,
        Bound::Compute if rule.family == Family::Gemm && work::has_narrow_tile(launch.name) => {
            ResourceClass::Memory
        }
        Bound::Compute => ResourceClass::Compute,
    };
    Some(Estimate {
        class,
        family: Some(rule.family),
        confidence_pct: rule.family.confidence_pct(),
    })
}

/// The rule for a kernel of this name: by the function's name, or, for a frame, by its content.
#[must_use]
pub fn rule_of(name: &str) -> Option<&'static Rule> {
    let own = base(name);
    let of = |text: &str| {
        RULES
            .iter()
            .find(|rule| rule.found_by.iter().any(|part| is_found(text, part)))
    };
    if !WRAPPERS.iter().any(|frame| own.eq_ignore_ascii_case(frame)) {
        return of(own);
    }
    frame::paths(name, own).find_map(of).or_else(|| of(name))
}

fn is_small(launch: &Launch<'_>) -> bool {
    let both = launch.sm_needed.zip(launch.device_sms);
    both.is_some_and(|(needed, sms)| needed < sms)
}

/// Whether `text` contains `part` as [`Rule::found_by`] defines, ignoring case.
fn is_found(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let (at_start, part) = without(part, <[u8]>::strip_prefix, b"^");
    let (begins_word, part) = without(part, <[u8]>::strip_prefix, b"|");
    let (at_end, part) = without(part, <[u8]>::strip_suffix, b"$");
    let text = if at_end { without_number(text) } else { text };
    let mut places = text.windows(part.len().max(1)).enumerate();
    places.any(|(at, window)| {
        window.eq_ignore_ascii_case(part)
            && (!at_start || at == 0)
            && (!at_end || at + part.len() == text.len())
            && (!begins_word || is_word_start(text, at))
    })
}

fn without<'a>(
    part: &'a [u8],
    strip: fn(&'a [u8], &'static [u8; 1]) -> Option<&'a [u8]>,
    mark: &'static [u8; 1],
) -> (bool, &'a [u8]) {
    strip(part, mark).map_or((false, part), |rest| (true, rest))
}

fn without_number(text: &[u8]) -> &[u8] {
    let is_number = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'_' | b'.');
    let digits = text.iter().rev().take_while(is_number).count();
    text.get(..text.len() - digits).unwrap_or(text)
}

/// Whether a word begins here: after anything but a letter, or at a capital after a small letter.
fn is_word_start(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    let first = text.get(at).is_some_and(u8::is_ascii_uppercase);
    before.is_none_or(|before| {
        !before.is_ascii_alphabetic() || (before.is_ascii_lowercase() && first)
    })
}

#[cfg(test)]
mod tests;

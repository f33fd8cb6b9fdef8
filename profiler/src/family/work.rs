//! The sizes of a product or a convolution as evidence: its call's, and its tile's in the name.

use crate::profile::Operator;
use crate::resource_class::ResourceClass;

/// Operations for each byte of device memory at which a GPU goes from memory-bound to
/// compute-bound, single precision on FP32 units: V100 17, T4 25, A100 10, H100 20.
const RIDGE_FP32: f64 = 15.0;

/// Double precision: V100 9; A100 13, H100 20 (6, 10 without tensor cores); T4, graphics GPUs < 2.
const RIDGE_FP64: f64 = 10.0;

/// The same for the tensor cores with TF32, which takes 32 bits a number: A100 100, H100 148.
const RIDGE_TF32: f64 = 120.0;

/// The same for the tensor cores at 16 bits: V100 139, A100 153, T4 203, H100 295.
const RIDGE_TENSOR: f64 = 150.0;

/// The same at 8 bits: A100 401, T4 406, H100 590, L40S 848.
const RIDGE_8_BITS: f64 = 450.0;

/// The same at 4 bits: B200 1 125.
const RIDGE_4_BITS: f64 = 1100.0;

/// Real operations of a complex multiplication and addition, over those of a real one.
const COMPLEX_FACTOR: f64 = 4.0;

const TENSOR_WORDS: [&str; 14] = [
    "tensorop", "s884", "h884", "s1688", "h1688", "s16816", "h16816", "nvjet", "tf32", "bf16",
    "f16f16", "e4m3", "s16832", "i16832",
];

/// The greatest operations per byte that a tile alone reaches, at 16 bits, of a kernel for products
/// with few rows or columns: 32 × 32 and 64 × 16 are such tiles, 64 × 32 is not.
const NARROW_TILE: u64 = 16;

/// Operations ÷ bytes of a call against the ridges of GPUs. Each byte is assumed to move once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intensity {
    /// Below every ridge.
    Low,
    /// Above the ridge for single precision, and below that of tensor cores, which it may use.
    Middle,
    /// Above every ridge.
    High,
}

impl Intensity {
    /// The intensity of a product or convolution; `None` for others or without stated sizes.
    #[must_use]
    pub fn of(operator: &Operator) -> Option<Self> {
        let (flop, elements) = match operator.name.as_str() {
            "gemm" | "gemm3m" => product(&operator.sizes)?,
            name if name.starts_with("conv_") && !name.ends_with("bias") => {
                convolution(&operator.sizes)?
            }
            _ => return None,
        };
        let number = operator.number.as_deref().unwrap_or("f32");
        // Bytes of a number, the ridges without and with tensor cores, and operations.
        let (bytes_each, plain, tensor, factor) = match number {
            "f64" => (8.0, RIDGE_FP64, RIDGE_FP64, 1.0),
            "c32" => (8.0, RIDGE_FP32, RIDGE_TF32, COMPLEX_FACTOR),
            "c64" => (16.0, RIDGE_FP64, RIDGE_FP64, COMPLEX_FACTOR),
            "f16" | "bf16" => (2.0, RIDGE_TENSOR, RIDGE_TENSOR, 1.0),
            "i8" | "u8" => (1.0, RIDGE_8_BITS, RIDGE_8_BITS, 1.0),
            number if number.starts_with("f8") => (1.0, RIDGE_8_BITS, RIDGE_8_BITS, 1.0),
            number if number.starts_with("f4") => (0.5, RIDGE_4_BITS, RIDGE_4_BITS, 1.0),
            _ => (4.0, RIDGE_FP32, RIDGE_TF32, 1.0),
        };
        let intensity = flop * factor / (elements * bytes_each);
        if !(flop > 0.0 && intensity.is_finite()) {
            None
        } else if intensity >= tensor {
            Some(Self::High)
        } else if intensity >= plain {
            Some(Self::Middle)
        } else {
            Some(Self::Low)
        }
    }

    /// The class of the call's working kernel by name; if empty, of all, if they agree.
    pub(super) fn class(self, name: &str) -> Option<ResourceClass> {
        match self {
            Self::Low => Some(ResourceClass::Memory),
            Self::High => Some(ResourceClass::Compute),
            Self::Middle if name.is_empty() => None,
            Self::Middle if is_tensor(name) => Some(ResourceClass::Memory),
            Self::Middle => Some(ResourceClass::Compute),
        }
    }
}

/// Operations and elements of a product of m × k by k × n.
fn product(sizes: &[u64]) -> Option<(f64, f64)> {
    let &[m, n, k] = sizes else {
        return None;
    };
    let [m, n, k] = [m, n, k].map(|size| size as f64);
    Some((2.0 * m * n * k, m * k + k * n + m * n))
}

/// Operations and elements of a convolution: tensor (images, channels, extents), filters (outputs,
/// a group's channels, extents). No stride is stated: assumed 1, so both have the same extents.
fn convolution(sizes: &[u64]) -> Option<(f64, f64)> {
    let half = sizes.len() / 2;
    if !sizes.len().is_multiple_of(2) || !(3..=5).contains(&half) {
        return None;
    }
    let (tensor, filter) = sizes.split_at_checked(half)?;
    let (&[images, channels, ref extents @ ..], &[outputs, of_group, ref window @ ..]) =
        (tensor, filter)
    else {
        return None;
    };
    let of = |sizes: &[u64]| sizes.iter().map(|&size| size as f64).product::<f64>();
    let places = images as f64 * of(extents);
    let (channels, outputs, of_group) = (channels as f64, outputs as f64, of_group as f64);
    let flop = 2.0 * places * outputs * of_group * of(window);
    let elements = places * (channels + outputs) + outputs * of_group * of(window);
    Some((flop, elements))
}

fn is_tensor(name: &str) -> bool {
    TENSOR_WORDS.iter().any(|word| name.contains(word))
}

/// Whether the name of a kernel for tensor cores has a tile for few rows or columns: a product that
/// cuBLAS runs with 64 × 8 has 8 columns or fewer to fill, and reads its matrix for no more.
pub(super) fn has_narrow_tile(name: &str) -> bool {
    is_tensor(name)
        && tile(name).is_some_and(|(rows, columns)| {
            rows.saturating_mul(columns) <= NARROW_TILE.saturating_mul(rows + columns)
        })
}

/// The tile's numbers: the first two of a name with an `x` between them. Numbers behind a letter
/// are something else (`bf16x9` is a way to multiply), except for `tilesize`.
fn tile(name: &str) -> Option<(u64, u64)> {
    let bytes = name.as_bytes();
    let at_x = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'x');
    at_x.filter_map(|(at, _)| {
        let (before, after) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        let before_digits = before.iter().rev().take_while(|b| b.is_ascii_digit());
        let (word, first) = before.split_at_checked(before.len() - before_digits.count())?;
        let is_behind_letter = word.last().is_some_and(u8::is_ascii_alphabetic);
        if is_behind_letter && !word.ends_with(b"tilesize") {
            return None;
        }
        let after_digits = after.iter().take_while(|b| b.is_ascii_digit());
        let second = after.get(..after_digits.count())?;
        Some((number(first)?, number(second)?))
    })
    .next()
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_size = (1..=4).contains(&digits.len());
    let value = digits
        .iter()
        .fold(0, |value: u64, digit| value * 10 + u64::from(digit - b'0'));
    (is_size && value > 0).then_some(value)
}

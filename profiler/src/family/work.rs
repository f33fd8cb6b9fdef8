//! What sizes tell of a product or a convolution: those of its operator, and that of the tile in
//! its name.

use super::Family;
use crate::profile::Operator;
use crate::resource_class::ResourceClass;

/// Operations for each byte of device memory at which a GPU goes from bound by memory to bound by
/// compute, single precision on FP32 units: V100 17, T4 25, A100 10, H100 20.
const RIDGE_FP32: f64 = 15.0;

/// The same for the tensor cores at 16 bits: V100 139, A100 153, T4 203, H100 295.
const RIDGE_TENSOR: f64 = 150.0;

/// What names of kernels for tensor cores have in them.
const TENSOR_WORDS: [&str; 12] = [
    "tensorop", "s884", "h884", "s1688", "h1688", "s16816", "h16816", "nvjet", "tf32", "bf16",
    "f16f16", "e4m3",
];

/// Operations for each byte that a tile alone reaches, at 16 bits, up to which a kernel is meant
/// for products with few rows or columns: 32 × 32 and 64 × 16 are, 64 × 32 is not.
const NARROW_TILE: u64 = 16;

/// Family and class of a call of which sizes are stated.
pub(super) fn by_sizes(operator: &Operator, name: &str) -> Option<(Family, ResourceClass)> {
    let (family, flop, elements) = match operator.name.as_str() {
        "gemm" | "gemm3m" => product(&operator.sizes)?,
        name if name.starts_with("conv_") && !name.ends_with("bias") => {
            convolution(&operator.sizes)?
        }
        _ => return None,
    };
    let number = operator.number.as_deref().unwrap_or("f32");
    let (bytes_each, is_half) = match number {
        "f64" | "c32" => (8.0, false),
        "c64" => (16.0, false),
        "f16" | "bf16" => (2.0, true),
        number if number.starts_with("f8") || number == "i8" => (1.0, true),
        _ => (4.0, false),
    };
    let ridge = if is_half || is_tensor(name) {
        RIDGE_TENSOR
    } else {
        RIDGE_FP32
    };
    let class = if flop >= elements * bytes_each * ridge {
        ResourceClass::Compute
    } else {
        ResourceClass::Memory
    };
    (flop > 0.0 && elements > 0.0).then_some((family, class))
}

/// Operations and elements of a product of m × k by k × n.
fn product(sizes: &[u64]) -> Option<(Family, f64, f64)> {
    let &[m, n, k] = sizes else {
        return None;
    };
    let [m, n, k] = [m, n, k].map(|size| size as f64);
    Some((Family::Gemm, 2.0 * m * n * k, m * k + k * n + m * n))
}

/// Operations and elements of a convolution, by a tensor (images, channels, extents) and the
/// filters (outputs, channels of a group, extents). The stride is not stated and taken as 1, so
/// that both tensors have the same extents.
fn convolution(sizes: &[u64]) -> Option<(Family, f64, f64)> {
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
    let is_depthwise = of_group <= 1.0 && channels > 1.0;
    let flop = 2.0 * places * outputs * of_group * of(window);
    let elements = places * (channels + outputs) + outputs * of_group * of(window);
    let family = if is_depthwise {
        Family::DepthwiseConv
    } else {
        Family::Conv
    };
    Some((family, flop, elements))
}

/// Whether a kernel of this name uses tensor cores.
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

/// The first two numbers of a name with an `x` between them.
fn tile(name: &str) -> Option<(u64, u64)> {
    let bytes = name.as_bytes();
    let at_x = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'x');
    at_x.filter_map(|(at, _)| {
        let (before, after) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        let before_digits = before.iter().rev().take_while(|b| b.is_ascii_digit());
        let first = before.get(before.len() - before_digits.count()..)?;
        let after_digits = after.iter().take_while(|b| b.is_ascii_digit());
        let second = after.get(..after_digits.count())?;
        Some((number(first)?, number(second)?))
    })
    .next()
}

/// A number of one to four digits.
fn number(digits: &[u8]) -> Option<u64> {
    let is_size = (1..=4).contains(&digits.len());
    let value = digits
        .iter()
        .fold(0, |value: u64, digit| value * 10 + u64::from(digit - b'0'));
    (is_size && value > 0).then_some(value)
}

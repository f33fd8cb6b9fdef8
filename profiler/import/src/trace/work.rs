//! The work of a PyTorch operator, from its inputs' shapes, and the library call that does it. Only
//! operators whose work follows from the shapes are here: matrix products and convolutions, and
//! those that touch each element once. Others (attention in one kernel, loss functions,
//! collectives) give nothing rather than a guess. Bytes are those of all inputs and of the output,
//! each once: the least traffic. Products beyond the cache move more: intensity is an upper bound.

use std::sync::Arc;

use profiler::Operator;

use super::event::{Args, Number};
use crate::source::{self, Work};

/// With a few operations per element of the inputs; names without `aten::` and in-place `_`.
const ELEMENTWISE: [&str; 40] = [
    "add",
    "sub",
    "mul",
    "div",
    "copy",
    "fill",
    "zero",
    "relu",
    "threshold_backward",
    "gelu",
    "gelu_backward",
    "silu",
    "silu_backward",
    "sigmoid",
    "tanh",
    "exp",
    "pow",
    "sqrt",
    "rsqrt",
    "neg",
    "clamp_min",
    "where",
    "addcmul",
    "addcdiv",
    "sum",
    "mean",
    "softmax",
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_batch_norm",
    "cudnn_batch_norm",
    "cudnn_batch_norm_backward",
    "native_dropout",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "cat",
    "embedding",
    "index_select",
];

/// Operations per element of such an operator: 1, to be well below any ridge.
const ELEMENTWISE_FLOP: f64 = 1.0;

pub(super) fn of(name: &str, args: &Args) -> Option<Work> {
    let name = name.strip_prefix("aten::")?;
    let inputs = inputs(args);
    let of_input = |index: usize| inputs.get(index).map(Vec::as_slice);
    let bytes_each = element_bytes(args)?;
    let is_tensor = bytes_each <= 2.0;
    let work = |operator, (flop, elements): (f64, f64)| Work {
        operator,
        flop,
        bytes: elements * bytes_each,
        is_tensor,
        call: None,
    };
    let multiply = |operator, left: usize, right: usize| {
        let (left, right) = (of_input(left)?, of_input(right)?);
        Some(Work {
            call: gemm(left, right, args).map(Arc::new),
            ..work(operator, product(left, right)?)
        })
    };
    match name {
        "mm" => multiply("aten::mm", 0, 1),
        "bmm" => multiply("aten::bmm", 0, 1),
        "addmm" => multiply("aten::addmm", 1, 2),
        "baddbmm" => multiply("aten::baddbmm", 1, 2),
        "convolution" | "_convolution" | "cudnn_convolution" | "conv2d" => Some(work(
            "aten::convolution",
            convolution(of_input(0)?, of_input(1)?, args)?,
        )),
        _ => {
            let plain = name.strip_suffix('_').unwrap_or(name);
            ELEMENTWISE.iter().find(|known| **known == plain)?;
            let elements: f64 = inputs.iter().map(|dims| dims.iter().product::<f64>()).sum();
            let largest = inputs
                .iter()
                .map(|dims| dims.iter().product())
                .fold(0.0, f64::max);
            let is_known = largest > 0.0;
            is_known.then(|| {
                work(
                    source::ELEMENTWISE,
                    (ELEMENTWISE_FLOP * largest, elements + largest),
                )
            })
        }
    }
}

fn inputs(args: &Args) -> Vec<Vec<f64>> {
    let dimension = |number: &Number| number.whole().map_or(0.0, |extent| extent as f64);
    let dims = args.input_dims.0.iter();
    dims.map(|dims| match dims.0.as_slice() {
        [] => vec![0.0],
        dims => dims.iter().map(dimension).collect(),
    })
    .collect()
}

/// Bytes of an element, by the type of the first tensor input of a known type.
fn element_bytes(args: &Args) -> Option<f64> {
    element(args).map(|(bytes, _)| bytes)
}

/// Bytes and, if operators have one, name of that type.
fn element(args: &Args) -> Option<(f64, Option<&'static str>)> {
    args.input_types
        .0
        .iter()
        .find_map(|name| match name.as_str() {
            "float" | "Float" => Some((4.0, Some("f32"))),
            "double" | "Double" => Some((8.0, Some("f64"))),
            "c10::Half" | "Half" => Some((2.0, Some("f16"))),
            "c10::BFloat16" | "BFloat16" => Some((2.0, Some("bf16"))),
            name if name.starts_with("c10::Float8") => Some((1.0, None)),
            _ => None,
        })
}

/// The call of cuBLAS or cuBLASLt for a product. PyTorch's matrices are row-major and cuBLAS'
/// column-major, so PyTorch requests the transposed product: n, m, k. Layouts are unknown.
fn gemm(left: &[f64], right: &[f64], args: &Args) -> Option<Operator> {
    let (batch, m, k, n) = match (left, right) {
        (&[m, k], &[_, n]) => (1.0, m, k, n),
        (&[batch, m, k], &[_, _, n]) => (batch, m, k, n),
        _ => return None,
    };
    let is_size = |size: &f64| (1.0..=f64::from(u32::MAX)).contains(size);
    let is_possible = [batch, m, k, n].iter().all(is_size);
    is_possible.then(|| Operator {
        name: "gemm".to_owned(),
        // Whole numbers of 32 bits.
        sizes: [n, m, k].map(|size| size as u64).to_vec(),
        batch: Some(batch as u64),
        number: element(args).and_then(|(_, name)| name).map(str::to_owned),
        layout: None,
    })
}

fn product(left: &[f64], right: &[f64]) -> Option<(f64, f64)> {
    let (batch, m, k, n) = match (left, right) {
        (&[m, k], &[_, n]) => (1.0, m, k, n),
        (&[batch, m, k], &[_, _, n]) => (batch, m, k, n),
        _ => return None,
    };
    let flop = 2.0 * batch * m * k * n;
    (flop > 0.0).then_some((flop, batch * (m * k + k * n + m * n)))
}

/// Operations and elements of a convolution of two dimensions: input N×C×H×W, weights K×C/g×R×S.
/// Stride is the fourth argument where arguments were recorded; otherwise 1 is assumed.
fn convolution(input: &[f64], weights: &[f64], args: &Args) -> Option<(f64, f64)> {
    let (&[n, c, h, w], &[k, c_group, r, s]) = (input, weights) else {
        return None;
    };
    let stride = args
        .concrete_inputs
        .0
        .get(3)
        .and_then(|text| first_number(text))
        .unwrap_or(1.0);
    // With the usual padding of half a filter the output is the input ÷ stride.
    let (p, q) = ((h / stride).ceil(), (w / stride).ceil());
    let flop = 2.0 * n * k * p * q * c_group * r * s;
    let elements = n * c * h * w + k * c_group * r * s + n * k * p * q;
    (flop > 0.0 && flop.is_finite()).then_some((flop, elements))
}

/// The first number of `[2, 2]`, if it is 1 or more.
fn first_number(text: &str) -> Option<f64> {
    let inside = text.trim().strip_prefix('[')?;
    let first = inside.split([',', ']']).next()?;
    first
        .trim()
        .parse()
        .ok()
        .filter(|&number: &f64| number >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::{Args, of};

    fn args(json: &str) -> Args {
        serde_json::from_str(json).expect("arguments")
    }

    #[test]
    fn products_and_convolutions_have_the_work_of_the_textbook() {
        let mm = args(r#"{"Input Dims": [[16, 64], [64, 32]], "Input type": ["float", "float"]}"#);
        let work = of("aten::mm", &mm).expect("known");
        assert_eq!(
            (work.flop, work.bytes, work.is_tensor),
            (65_536.0, 14_336.0, false)
        );
        let addmm = args(
            r#"{"Input Dims": [[32], [16, 64], [64, 32], [], []], "Input type": ["c10::Half", "c10::Half", "c10::Half", "Scalar", "Scalar"]}"#,
        );
        let work = of("aten::addmm", &addmm).expect("known");
        assert_eq!(
            (work.flop, work.bytes, work.is_tensor),
            (65_536.0, 7_168.0, true)
        );
        let call = work.call.expect("a call of cuBLAS");
        assert_eq!(call.to_string(), "gemm f16 32x16x64");
        // ResNet-50's first layer: 7×7, stride 2, 236 MFLOP (as multiply-adds 118 M) per image.
        let conv = args(
            r#"{"Input Dims": [[1, 3, 224, 224], [64, 3, 7, 7], [], [], []], "Input type": ["float", "float"], "Concrete Inputs": ["", "", "", "[2, 2]", "[3, 3]"]}"#,
        );
        let work = of("aten::cudnn_convolution", &conv).expect("known");
        assert_eq!(work.flop, 2.0 * 112.0 * 112.0 * 64.0 * 3.0 * 49.0);
    }

    #[test]
    fn what_the_shapes_do_not_tell_is_not_guessed() {
        let add = args(
            r#"{"Input Dims": [[8, 8], [8, 8], []], "Input type": ["float", "float", "Scalar"]}"#,
        );
        assert_eq!(
            of("aten::add_", &add).map(|work| (work.flop, work.bytes)),
            Some((64.0, 768.0))
        );
        for (name, json) in [
            (
                "aten::scaled_dot_product_attention",
                r#"{"Input Dims": [[8, 8]], "Input type": ["float"]}"#,
            ),
            (
                "aten::mm",
                r#"{"Input Dims": [[8, 8]], "Input type": ["float"]}"#,
            ),
            ("aten::mm", r#"{"Input Dims": [[8, 8], [8, 8]]}"#),
            ("aten::mm", r#"{"Input Dims": "x", "Input type": 7}"#),
            (
                "mm",
                r#"{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float"]}"#,
            ),
        ] {
            assert_eq!(of(name, &args(json)), None, "{name} {json}");
        }
    }
}

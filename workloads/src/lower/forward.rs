//! The forward pass.

use super::{List, graph, recurrent};
use crate::network::{Attention, Convolution, Layer, Mode, Pool};
use crate::work::{Family, Matrix, Stream};

/// Arrays of the larger size that move where four positions are of one.
pub(super) const UPSAMPLE_ARRAYS: f64 = 1.25;

pub(super) fn forward(list: &mut List, layer: &Layer, mode: Mode) {
    let is_training = mode.is_training();
    match *layer {
        Layer::Convolution(ref layer) => convolution(list, layer),
        Layer::Depthwise(ref layer) => depthwise_convolution(list, layer),
        Layer::Bias(images) => list.arithmetic("add_bias", images.elements(), 2.0),
        Layer::Addend {
            elements,
            parameters,
        } => add_parameters(list, elements, parameters),
        Layer::BatchNorm(images) => batch_norm(list, images.elements(), is_training),
        Layer::Activation { elements } => list.elementwise("activation", elements, 2.0),
        Layer::Residual { elements } => list.arithmetic("add", elements, 3.0),
        Layer::Multiply { elements } => list.arithmetic("multiply", elements, 3.0),
        Layer::Concatenation { elements } => list.elementwise("concatenate", elements, 2.0),
        Layer::Permute { elements } => list.elementwise("permute", elements, 2.0),
        Layer::Upsample(images) => {
            list.elementwise("upsample", 4.0 * images.elements(), UPSAMPLE_ARRAYS);
        }
        Layer::MaxPool(ref pool) => max_pool(list, pool),
        Layer::AverageWindows(ref pool) => {
            let outputs = pool.outputs.elements();
            list.stream("average_pool_forward", average_windows(outputs, pool));
        }
        Layer::AveragePool(images) => {
            list.pass("reduce_mean", Family::Reduce, images.elements(), 1.0, 1.0);
        }
        Layer::Linear([rows, inputs, outputs]) => {
            // The bias is spread over the output, to which the product is added.
            list.elementwise("bias", rows * outputs, 1.0);
            list.product("gemm", [1.0, rows, outputs, inputs]);
        }
        Layer::Output([rows, inputs, outputs]) => {
            list.product("gemm", [1.0, rows, outputs, inputs]);
        }
        Layer::Attention(ref layer) => attention(list, layer, is_training),
        Layer::Recurrent(ref layer) => recurrent::forward(list, layer, is_training),
        Layer::LayerNorm([rows, columns]) => {
            list.pass("layer_norm_forward", Family::Norm, rows * columns, 2.0, 4.0);
        }
        Layer::Dropout { elements } if is_training => {
            list.arithmetic("dropout_forward", elements, 2.25);
        }
        Layer::Embedding { rows, columns, .. } => {
            list.elementwise("index_select", rows * columns, 2.0);
        }
        Layer::Aggregate(ref layer) => graph::aggregate(list, layer),
        Layer::SumPool {
            rows,
            columns,
            sums,
        } => graph::sum_rows(list, rows, columns, sums),
        Layer::Similarity([rows, columns]) => graph::similarity(list, rows, columns),
        Layer::Loss([rows, columns]) if is_training => loss(list, rows, rows * columns),
        Layer::BinaryLoss { elements } if is_training => {
            list.arithmetic("binary_loss_forward", elements, 3.0);
            list.pass("reduce_mean", Family::Reduce, elements, 1.0, 1.0);
        }
        Layer::Branch { .. }
        | Layer::Dropout { .. }
        | Layer::Loss(_)
        | Layer::BinaryLoss { .. } => {}
    }
}

/// In training mean and variance come first, from the same data, and batches are counted.
fn batch_norm(list: &mut List, elements: f64, is_training: bool) {
    if is_training {
        list.pass("batch_norm_forward", Family::Norm, elements, 2.75, 4.0);
        list.elementwise("add_counter", 1.0, 2.0);
    } else {
        list.pass("batch_norm_inference", Family::Norm, elements, 2.0, 2.0);
    }
}

/// Parameters are read again for each item of the batch, from the caches.
fn add_parameters(list: &mut List, elements: f64, parameters: f64) {
    list.stream(
        "add",
        Stream {
            family: Family::Elementwise,
            elements,
            numbers: 2.0 * elements + parameters,
            flops: elements,
        },
    );
}

fn loss(list: &mut List, rows: f64, elements: f64) {
    list.pass("log_softmax_forward", Family::Norm, elements, 2.0, 4.0);
    list.pass("nll_loss_forward", Family::Reduce, rows, 2.0, 1.0);
}

fn convolution(list: &mut List, layer: &Convolution) {
    let (images, outputs) = (&layer.images, &layer.outputs);
    let (m, n) = (outputs.positions(), f64::from(outputs.channels));
    let k = f64::from(images.channels) * layer.taps();
    list.matrix(
        "conv_forward",
        Matrix {
            algorithm: list.convolution_algorithm(layer),
            batch: 1.0,
            m,
            n,
            k,
            numbers: images.elements() + n * k + m * n,
        },
    );
}

fn depthwise_convolution(list: &mut List, layer: &Convolution) {
    let (inputs, outputs) = (layer.images.elements(), layer.outputs.elements());
    let stream = depthwise(outputs, inputs + outputs, layer.taps());
    list.stream("conv_depthwise2d_forward", stream);
}

fn max_pool(list: &mut List, pool: &Pool) {
    let outputs = pool.outputs.elements();
    // Eager PyTorch writes where each maximum came from, in 64 bits, at inference too.
    let numbers = pool.images.elements() + 3.0 * outputs;
    list.stream("max_pool_forward", Stream::of_norm(outputs, numbers));
}

fn attention(list: &mut List, layer: &Attention, is_training: bool) {
    let &Attention {
        products,
        queries,
        keys,
        width,
        is_masked,
        ..
    } = layer;
    let scores = products * queries * keys;
    list.product("gemm_scores", [products, queries, keys, width]);
    list.arithmetic("scale", scores, 2.0);
    if is_masked {
        list.arithmetic("add_mask", scores, 2.0);
    }
    list.pass("softmax_forward", Family::Norm, scores, 2.0, 4.0);
    if is_training {
        list.arithmetic("dropout_forward", scores, 2.25);
    }
    list.product("gemm_values", [products, queries, width, keys]);
    list.elementwise("copy_heads", products * queries * width, 2.0);
}

/// A depthwise convolution: a few multiplications for each number that moves.
pub(super) fn depthwise(elements: f64, numbers: f64, taps: f64) -> Stream {
    Stream {
        family: Family::Depthwise,
        elements,
        numbers,
        flops: 2.0 * taps * elements,
    }
}

/// Means of windows, or the gradients of their inputs, `elements` of either: one addition for each
/// position of each window. Windows that overlap are read again from the caches.
pub(super) fn average_windows(elements: f64, pool: &Pool) -> Stream {
    Stream {
        flops: f64::from(pool.window * pool.window) * pool.outputs.elements(),
        ..Stream::of_norm(elements, pool.images.elements() + pool.outputs.elements())
    }
}

//! The backward pass: for each layer what its gradients cost.

use super::forward::{UPSAMPLE_ARRAYS, average_windows, depthwise};
use super::{List, graph, recurrent};
use crate::network::{Attention, Convolution, Layer, Pool};
use crate::work::{Algorithm, Family, Matrix, Stream};

/// Adds the kernels of a layer. The first layer needs no gradient of its input.
pub(super) fn backward(list: &mut List, layer: &Layer, is_first: bool) {
    match *layer {
        Layer::Convolution(ref layer) => convolution(list, layer, is_first),
        Layer::Depthwise(ref layer) => depthwise_convolution(list, layer),
        Layer::Bias(images) => {
            list.pass("reduce_bias", Family::Reduce, images.elements(), 1.0, 1.0);
        }
        // Summed over the batch.
        Layer::Addend { elements, .. } => {
            list.pass("reduce_addend", Family::Reduce, elements, 1.0, 1.0);
        }
        Layer::BatchNorm(images) => {
            let elements = images.elements();
            list.pass("batch_norm_backward", Family::Norm, elements, 4.5, 8.0);
        }
        Layer::Activation { elements } => list.elementwise("activation_backward", elements, 3.0),
        // The gradients of the two ways are added where they meet again.
        Layer::Residual { elements } | Layer::Branch { elements } => {
            list.arithmetic("add_gradients", elements, 3.0);
        }
        Layer::Multiply { elements } => {
            for _ in 0..2 {
                list.arithmetic("multiply", elements, 3.0);
            }
        }
        // Each part's gradient is a view of the whole one.
        Layer::Concatenation { .. } => {}
        Layer::Permute { elements } => list.elementwise("permute", elements, 2.0),
        Layer::Upsample(images) => {
            let elements = 4.0 * images.elements();
            list.arithmetic("upsample_backward", elements, UPSAMPLE_ARRAYS);
        }
        Layer::MaxPool(ref pool) => max_pool(list, pool),
        Layer::AverageWindows(ref pool) => {
            let inputs = pool.images.elements();
            list.stream("average_pool_backward", average_windows(inputs, pool));
        }
        Layer::AveragePool(images) => list.elementwise("expand_mean", images.elements(), 1.0),
        Layer::Linear([rows, inputs, outputs]) => {
            products(list, rows, inputs, outputs);
            list.pass("reduce_bias", Family::Reduce, rows * outputs, 1.0, 1.0);
        }
        Layer::Output([rows, inputs, outputs]) => products(list, rows, inputs, outputs),
        Layer::Attention(ref layer) => attention(list, layer),
        Layer::Recurrent(ref layer) => recurrent::backward(list, layer),
        Layer::LayerNorm([rows, columns]) => {
            let elements = rows * columns;
            list.pass("layer_norm_grad_input", Family::Norm, elements, 3.0, 8.0);
            list.pass("layer_norm_grad_weights", Family::Norm, elements, 2.0, 4.0);
        }
        Layer::Dropout { elements } => list.arithmetic("dropout_backward", elements, 2.25),
        Layer::Embedding {
            rows,
            columns,
            table,
        } => {
            // The gradient of the whole table is cleared, then added to.
            list.elementwise("fill", table * columns, 1.0);
            list.pass("embedding_backward", Family::Norm, rows * columns, 3.0, 1.0);
        }
        Layer::BinaryLoss { elements } => {
            list.arithmetic("binary_loss_backward", elements, 3.0);
        }
        Layer::Aggregate(_) if is_first => {}
        Layer::Aggregate(ref layer) => graph::aggregate_backward(list, layer),
        Layer::SumPool { rows, columns, .. } => {
            list.elementwise("index_select", rows * columns, 2.0);
        }
        Layer::Similarity([rows, columns]) => graph::similarity_backward(list, rows, columns),
        Layer::Loss([rows, columns]) => loss(list, rows, rows * columns),
    }
}

fn max_pool(list: &mut List, pool: &Pool) {
    let inputs = pool.images.elements();
    let numbers = inputs + 3.0 * pool.outputs.elements();
    list.stream("max_pool_backward", Stream::of_norm(inputs, numbers));
}

fn loss(list: &mut List, rows: f64, elements: f64) {
    list.pass("nll_loss_backward", Family::Reduce, rows, 2.0, 1.0);
    list.pass("log_softmax_backward", Family::Norm, elements, 3.0, 4.0);
}

/// Time to read data again that was just read, as a share of the time to read it from memory.
const CACHED_READ: f64 = 0.1;

pub(super) fn products(list: &mut List, rows: f64, inputs: f64, outputs: f64) {
    list.product("gemm_grad_input", [1.0, rows, inputs, outputs]);
    list.product("gemm_grad_weight", [1.0, inputs, outputs, rows]);
}

fn convolution(list: &mut List, layer: &Convolution, is_first: bool) {
    let (images, images_out) = (&layer.images, &layer.outputs);
    let (inputs, outputs) = (f64::from(images.channels), f64::from(images_out.channels));
    let taps = layer.taps();
    let numbers = images.elements() + images_out.elements() + inputs * outputs * taps;
    let algorithm = list.convolution_algorithm(layer);
    let gradient = |algorithm, [m, n, k]: [f64; 3]| Matrix {
        algorithm,
        batch: 1.0,
        m,
        n,
        k,
        numbers,
    };
    if !is_first {
        // At stride 2 only a quarter of the taps meets an output.
        let k = outputs * taps / f64::from(layer.stride * layer.stride);
        let to_input = gradient(algorithm, [images.positions(), inputs, k]);
        list.matrix("conv_grad_input", to_input);
    }
    // A sum over all positions, which is cut into parts as a library's product is.
    let algorithm = match algorithm {
        Algorithm::Winograd => Algorithm::Winograd,
        _ => Algorithm::Product,
    };
    let to_weight = gradient(algorithm, [inputs * taps, outputs, images_out.positions()]);
    list.matrix("conv_grad_weight", to_weight);
}

fn depthwise_convolution(list: &mut List, layer: &Convolution) {
    let (inputs, outputs) = (layer.images.elements(), layer.outputs.elements());
    let (numbers, taps) = (inputs + outputs, layer.taps());
    let to_input = depthwise(inputs, numbers, taps);
    list.stream("conv_depthwise2d_backward", to_input);
    // Every tap is a sum over all positions, read again for each.
    let again = numbers + (taps - 1.0) * CACHED_READ * numbers;
    let to_weight = depthwise(outputs, again, taps);
    list.stream("conv_depthwise2d_grad_weight", to_weight);
}

fn attention(list: &mut List, layer: &Attention) {
    let &Attention {
        products,
        queries,
        keys,
        width,
        ..
    } = layer;
    let scores = products * queries * keys;
    list.elementwise("copy_heads", products * queries * width, 2.0);
    list.product("gemm_grad_scores", [products, queries, keys, width]);
    list.product("gemm_grad_values", [products, keys, width, queries]);
    list.arithmetic("dropout_backward", scores, 2.25);
    list.pass("softmax_backward", Family::Norm, scores, 3.0, 4.0);
    list.arithmetic("scale", scores, 2.0);
    list.product("gemm_grad_queries", [products, queries, width, keys]);
    list.product("gemm_grad_keys", [products, keys, width, queries]);
}

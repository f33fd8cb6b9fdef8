//! Layers of long short-term memory, as cuDNN launches them: Appleyard et al., "Optimizing
//! Performance of Recurrent Neural Networks on GPUs", 2016. One product for the inputs of all
//! steps, whose four gates are columns of one matrix. Then for each step one product with what the
//! step before put out, and one pass for the cell. Backward the same from the last step to the
//! first, then one product for each tensor of weights over all steps. cuDNN may run products of
//! different layers at once where both are small; left out: a trace has one order.

use super::List;
use crate::network::Recurrent;
use crate::work::Family;

/// Input, forget and output gate, and the candidate for the cell.
const GATES: f64 = 4.0;
/// Arrays of the layer's width that a cell's pass moves. Forward: gates of the input and of the
/// recurrence, the cell before and after, the output.
const FORWARD_ARRAYS: f64 = 2.0 * GATES + 3.0;
/// In training the gates are kept.
const TRAINING_ARRAYS: f64 = FORWARD_ARRAYS + GATES;
/// Backward: gates, cell before and after, the gradients of all of these and of the output.
const BACKWARD_ARRAYS: f64 = 2.0 * GATES + 5.0;
/// Additions and multiplications of a cell in each direction, beside its exponentials.
const FORWARD_FLOPS: f64 = 12.0;
const BACKWARD_FLOPS: f64 = 24.0;

pub(super) fn forward(list: &mut List, layer: &Recurrent, is_training: bool) {
    let &Recurrent {
        sequences,
        inputs,
        width,
        ..
    } = layer;
    let gates = GATES * width;
    let arrays = if is_training {
        TRAINING_ARRAYS
    } else {
        FORWARD_ARRAYS
    };
    list.product("gemm", [1.0, layer.rows(), gates, inputs]);
    for _ in 0..layer.steps {
        list.product("gemm_recurrent", [1.0, sequences, gates, width]);
        let elements = sequences * width;
        list.pass(
            "lstm_cell_forward",
            Family::Elementwise,
            elements,
            arrays,
            FORWARD_FLOPS,
        );
    }
}

pub(super) fn backward(list: &mut List, layer: &Recurrent) {
    let &Recurrent {
        sequences,
        inputs,
        width,
        ..
    } = layer;
    let (rows, gates) = (layer.rows(), GATES * width);
    for _ in 0..layer.steps {
        let elements = sequences * width;
        list.pass(
            "lstm_cell_backward",
            Family::Elementwise,
            elements,
            BACKWARD_ARRAYS,
            BACKWARD_FLOPS,
        );
        list.product("gemm_grad_recurrent", [1.0, sequences, width, gates]);
    }
    list.product("gemm_grad_input", [1.0, rows, inputs, gates]);
    for inputs in [inputs, width] {
        list.product("gemm_grad_weight", [1.0, inputs, gates, rows]);
    }
    // Both biases have the same gradient.
    list.pass("reduce_bias", Family::Reduce, rows * gates, 1.0, 1.0);
}

//! The optimizer's step for one parameter tensor, with one kernel for each operation: what
//! frameworks did before they fused over tensors, and what Orion recorded.

use super::List;
use crate::network::Optimizer;
use crate::work::Family;

pub(super) fn step(list: &mut List, optimizer: Optimizer, elements: f64) {
    match optimizer {
        // g = 0 (before the backward pass, but it costs the same here); g = g + d p; p = p - r g.
        Optimizer::Descent => {
            list.elementwise("gradient_clear", elements, 1.0);
            list.arithmetic("decay_add", elements, 3.0);
            list.arithmetic("parameter_add", elements, 3.0);
        }
        Optimizer::ClippedDescent => {
            list.elementwise("gradient_clear", elements, 1.0);
            norm(list, elements);
            list.arithmetic("gradient_clip", elements, 2.0);
            list.arithmetic("parameter_add", elements, 3.0);
        }
        Optimizer::Adam => adam(list, elements),
    }
}

/// Clears the gradient, clips it by its norm (a sum of squares, its root, a comparison and a
/// product), then Adam with weight decay as written down by Kingma and Ba, operation by operation.
/// 18 passes and 2 reductions, of which the recording has 17 and 2 for each tensor.
fn adam(list: &mut List, elements: f64) {
    list.elementwise("gradient_clear", elements, 1.0);
    norm(list, elements);
    for name in ["norm_root", "norm_add", "norm_divide", "norm_compare"] {
        list.elementwise(name, 1.0, 2.0);
    }
    // No floating-point addition or multiplication, as a profiler counts them.
    list.elementwise("square_root", elements, 2.0);
    for (name, arrays) in [
        ("gradient_clip", 2.0),
        ("mean_scale", 2.0),
        ("mean_add", 3.0),
        ("square_scale", 2.0),
        ("square_add", 3.0),
        ("square_epsilon", 2.0),
        ("update_divide", 3.0),
        ("update_decay", 3.0),
        ("update_decay_add", 3.0),
        ("update_rate", 2.0),
        ("update_negate", 2.0),
        ("parameter_add", 3.0),
    ] {
        list.arithmetic(name, elements, arrays);
    }
}

/// The norm of a gradient: a sum of squares, in two steps.
fn norm(list: &mut List, elements: f64) {
    list.pass("norm_squares", Family::Reduce, elements, 1.0, 1.0);
    list.pass("norm_sum", Family::Reduce, 1.0, 2.0, 1.0);
}

//! Graphs, as PyTorch Geometric launches them: a message is a row of its own, which is copied from
//! one end of an edge and added to the other.

use super::List;
use super::backward::products;
use crate::network::Graph;
use crate::work::Family;

/// The sum that each node gets from its neighbours, and (1 + e) times itself.
pub(super) fn aggregate(list: &mut List, graph: &Graph) {
    let &Graph {
        edges,
        nodes,
        columns,
    } = graph;
    list.elementwise("index_select", edges * columns, 2.0);
    sum_rows(list, edges, columns, nodes);
    list.arithmetic("scale", nodes * columns, 2.0);
    list.arithmetic("add", nodes * columns, 3.0);
}

/// The same from the gradients of nodes to those of what they were made of.
pub(super) fn aggregate_backward(list: &mut List, graph: &Graph) {
    let &Graph {
        edges,
        nodes,
        columns,
    } = graph;
    list.arithmetic("scale", nodes * columns, 2.0);
    list.elementwise("index_select", edges * columns, 2.0);
    sum_rows(list, edges, columns, nodes);
    list.arithmetic("add_gradients", nodes * columns, 3.0);
}

/// Adds each of `rows` to one of `sums`, which are cleared before.
pub(super) fn sum_rows(list: &mut List, rows: f64, columns: f64, sums: f64) {
    list.elementwise("fill", sums * columns, 1.0);
    // Reads a row, and reads and writes its sum.
    list.pass("index_add", Family::Norm, rows * columns, 3.0, 1.0);
}

pub(super) fn similarity(list: &mut List, rows: f64, columns: f64) {
    list.pass("row_norms", Family::Reduce, rows * columns, 1.0, 2.0);
    list.product("gemm_similarity", [1.0, rows, rows, columns]);
    list.arithmetic("divide", rows * rows, 3.0);
}

pub(super) fn similarity_backward(list: &mut List, rows: f64, columns: f64) {
    list.arithmetic("divide", rows * rows, 3.0);
    products(list, rows, columns, rows);
    list.arithmetic("row_norms_backward", rows * columns, 3.0);
}

//! A graph isomorphism network: Xu et al., "How Powerful are Graph Neural Networks?", 2019, in the
//! shape of the encoder of AD-GCL (Suresh et al., "Adversarial Graph Augmentation to Improve Graph
//! Contrastive Learning", 2021; `TUEncoder` of susheels/adgcl with its defaults): five layers of
//! width 32, the sum over each graph, and two more products before graphs are compared. A step
//! takes two views of each graph. Left out is what AD-GCL trains beside this encoder: a second one
//! of the same shape that chooses the edges of the second view, with a step of its own. Its edge
//! weights are left out as well. Graphs are taken to have the mean size of those of REDDIT-BINARY
//! (Yanardag and Vishwanathan, "Deep Graph Kernels", 2015): 429.63 nodes and 497.75 edges, here 430
//! and 498. A node has one feature.

use super::{Graph, Images, Layer, Network, Optimizer};

/// Nodes of a graph, and edges of a graph in both directions.
const NODES: u32 = 430;
const EDGES: u32 = 2 * 498;
/// Features of a node before the first layer, and after each.
const FEATURES: f64 = 1.0;
const WIDTH: u32 = 32;
const DEPTH: usize = 5;

/// The encoder on so many graphs, and what compares two views of them.
pub(crate) fn encoder(batch: u32) -> Network {
    let (graphs, width) = (f64::from(batch), f64::from(WIDTH));
    let nodes = f64::from(batch * NODES);
    let activation = |rows| Layer::Activation {
        elements: rows * width,
    };
    let mut layers = Vec::new();
    let mut columns = FEATURES;
    for index in 0..DEPTH {
        layers.extend([
            Layer::Aggregate(Graph {
                edges: f64::from(batch * EDGES),
                nodes,
                columns,
            }),
            Layer::Linear([nodes, columns, width]),
            activation(nodes),
            Layer::Linear([nodes, width, width]),
            Layer::BatchNorm(Images {
                batch: batch * NODES,
                channels: WIDTH,
                size: 1,
            }),
        ]);
        if index + 1 < DEPTH {
            layers.push(activation(nodes));
        }
        columns = width;
    }
    layers.extend([
        Layer::SumPool {
            rows: nodes,
            columns: width,
            sums: graphs,
        },
        Layer::Linear([graphs, width, width]),
        activation(graphs),
        Layer::Linear([graphs, width, width]),
        Layer::Similarity([graphs, width]),
        Layer::Loss([graphs, graphs]),
    ]);
    Network {
        layers,
        optimizer: Optimizer::Adam,
    }
}

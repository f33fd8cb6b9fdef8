//! Neural matrix factorisation ("NeuMF"): He et al., "Neural Collaborative Filtering", 2017,
//! Section 3.4, with the sizes that the MLPerf training benchmark took for MovieLens-20M: 64
//! factors, and products of 256, 128 and 64 outputs. Users and items each have a row in a table for
//! the factorisation and in one for the products. Gradients of tables are dense, as PyTorch makes
//! them if it is not asked otherwise.

use super::{Layer, Network, Optimizer};

/// Users and films of MovieLens-20M.
const TABLES: [f64; 2] = [138_493.0, 26_744.0];
/// Numbers in a row of a table for the factorisation.
const FACTORS: f64 = 64.0;
/// Numbers in a row of a table for the products: a user's and a film's row, side by side, are the
/// first product's inputs.
const COLUMNS: f64 = 128.0;
/// Outputs of the products.
const LINEAR: [f64; 3] = [256.0, 128.0, 64.0];

/// On so many pairs of a user and a film.
pub(crate) fn neumf(batch: u32) -> Network {
    let rows = f64::from(batch);
    let mut layers = Vec::new();
    for columns in [FACTORS, COLUMNS] {
        layers.extend(TABLES.map(|table| Layer::Embedding {
            rows,
            columns,
            table,
        }));
    }
    layers.push(Layer::Multiply {
        elements: rows * FACTORS,
    });
    let mut inputs = 2.0 * COLUMNS;
    layers.push(Layer::Concatenation {
        elements: rows * inputs,
    });
    for outputs in LINEAR {
        let elements = rows * outputs;
        layers.push(Layer::Linear([rows, inputs, outputs]));
        layers.push(Layer::Activation { elements });
        inputs = outputs;
    }
    inputs += FACTORS;
    layers.extend([
        Layer::Concatenation {
            elements: rows * inputs,
        },
        Layer::Linear([rows, inputs, 1.0]),
        Layer::Activation { elements: rows },
        Layer::BinaryLoss { elements: rows },
    ]);
    Network {
        layers,
        optimizer: Optimizer::Descent,
    }
}

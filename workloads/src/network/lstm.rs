//! A language model of long short-term memory: the word language model of PyTorch's examples
//! (`word_language_model`, of Zaremba et al., "Recurrent Neural Network Regularization", 2014) with
//! the 650 units of its README, two layers, sequences of 35 words (its `--bptt`), and the
//! vocabulary of Wikitext-2. Word table and output layer are two tensors, as without `--tied`.

use super::{Layer, Network, Optimizer, Recurrent};

/// Words that a sequence is trained on at once.
const STEPS: u32 = 35;
/// Words in Wikitext-2.
const VOCABULARY: f64 = 33_278.0;
/// Units of a layer, and its inputs.
const WIDTH: f64 = 650.0;
/// Number of layers.
const DEPTH: usize = 2;

pub(crate) fn word_model(batch: u32) -> Network {
    let sequences = f64::from(batch);
    let rows = sequences * f64::from(STEPS);
    let dropout = Layer::Dropout {
        elements: rows * WIDTH,
    };
    let recurrent = Layer::Recurrent(Recurrent {
        sequences,
        steps: STEPS,
        inputs: WIDTH,
        width: WIDTH,
    });
    let mut layers = vec![
        Layer::Embedding {
            rows,
            columns: WIDTH,
            table: VOCABULARY,
        },
        dropout,
    ];
    for _ in 0..DEPTH {
        layers.extend([recurrent, dropout]);
    }
    layers.push(Layer::Linear([rows, WIDTH, VOCABULARY]));
    layers.push(Layer::Loss([rows, VOCABULARY]));
    Network {
        layers,
        optimizer: Optimizer::ClippedDescent,
    }
}

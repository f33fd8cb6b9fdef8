//! A decoder of 1.3 billion parameters: "GPT-3 XL" of Brown et al., "Language Models are Few-Shot
//! Learners", 2020, Table 2.1, with the word table as output layer.

use super::{Attention, Layer, Network, Optimizer};

const DEPTH: u32 = 24;
const WIDTH: f64 = 2048.0;
const HEADS: f64 = 16.0;
/// Entries of the word and of the position table.
const WORDS: f64 = 50_257.0;
const POSITIONS: f64 = 2048.0;
/// Tokens of a prompt.
const PROMPT: f64 = 512.0;
/// Tokens before the one that is decoded.
const CONTEXT: f64 = 1024.0;

/// Reads one prompt per sequence.
pub(crate) fn prefill(batch: u32) -> Network {
    gpt(f64::from(batch), PROMPT, PROMPT)
}

/// Makes one token per sequence.
pub(crate) fn decode(batch: u32) -> Network {
    gpt(f64::from(batch), 1.0, CONTEXT)
}

fn gpt(sequences: f64, queries: f64, keys: f64) -> Network {
    let rows = sequences * queries;
    let elements = rows * WIDTH;
    let norm = Layer::LayerNorm([rows, WIDTH]);
    let residual = Layer::Residual { elements };
    let mut layers: Vec<Layer> = [WORDS, POSITIONS]
        .map(|table| Layer::Embedding {
            rows,
            columns: WIDTH,
            table,
        })
        .into();
    layers.push(residual);
    for _ in 0..DEPTH {
        layers.extend([
            norm,
            Layer::Linear([rows, WIDTH, 3.0 * WIDTH]),
            Layer::Attention(Attention {
                products: sequences * HEADS,
                queries,
                keys,
                width: WIDTH / HEADS,
                is_masked: queries > 1.0,
            }),
            Layer::Linear([rows, WIDTH, WIDTH]),
            residual,
            norm,
            Layer::Linear([rows, WIDTH, 4.0 * WIDTH]),
            Layer::Activation {
                elements: 4.0 * elements,
            },
            Layer::Linear([rows, 4.0 * WIDTH, WIDTH]),
            residual,
        ]);
    }
    // Only the last position of each sequence is asked what comes next.
    layers.push(norm);
    layers.push(Layer::Output([sequences, WIDTH, WORDS]));
    Network {
        layers,
        optimizer: Optimizer::Adam,
    }
}

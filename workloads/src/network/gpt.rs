//! Decoders. One of 1.3 billion parameters: "GPT-3 XL" of Brown et al., "Language Models are
//! Few-Shot Learners", 2020, Table 2.1. And the smallest GPT-2: Radford et al., "Language Models
//! are Unsupervised Multitask Learners", 2019, as Hugging Face's `gpt2`, with its dropouts. Both
//! with the word table as output layer.

use super::{Attention, Block, Layer, Network, Optimizer};

struct Decoder {
    depth: u32,
    width: f64,
    heads: f64,
    /// Entries of the position table.
    positions: f64,
    has_dropout: bool,
}

const XL: Decoder = Decoder {
    depth: 24,
    width: 2048.0,
    heads: 16.0,
    positions: 2048.0,
    has_dropout: false,
};
const SMALL: Decoder = Decoder {
    depth: 12,
    width: 768.0,
    heads: 12.0,
    positions: 1024.0,
    has_dropout: true,
};
/// Entries of the word table.
const WORDS: f64 = 50_257.0;
/// Tokens of a prompt.
const PROMPT: f64 = 512.0;
/// Tokens before the one that is decoded.
const CONTEXT: f64 = 1024.0;

pub(crate) fn prefill(batch: u32) -> Network {
    let sequences = f64::from(batch);
    // Only the last position of each sequence is asked what comes next.
    decoder(&XL, sequences, (PROMPT, PROMPT), sequences)
}

pub(crate) fn decode(batch: u32) -> Network {
    let sequences = f64::from(batch);
    decoder(&XL, sequences, (1.0, CONTEXT), sequences)
}

/// GPT-2 over as many tokens as a prompt has, asked at each of them what comes next.
pub(crate) fn small(batch: u32) -> Network {
    let sequences = f64::from(batch);
    let asked = sequences * PROMPT;
    let mut network = decoder(&SMALL, sequences, (PROMPT, PROMPT), asked);
    network.layers.push(Layer::Loss([asked, WORDS]));
    network
}

/// Of so many sequences with queries and keys, and so many rows asked what comes next.
fn decoder(of: &Decoder, sequences: f64, (queries, keys): (f64, f64), asked: f64) -> Network {
    let width = of.width;
    let rows = sequences * queries;
    let elements = rows * width;
    let norm = Layer::LayerNorm([rows, width]);
    let dropout = Some(Layer::Dropout { elements }).filter(|_| of.has_dropout);
    let residual = Layer::Residual { elements };
    let mut layers: Vec<Layer> = [WORDS, of.positions]
        .map(|table| Layer::Embedding {
            rows,
            columns: width,
            table,
        })
        .into();
    layers.push(residual);
    layers.extend(dropout);
    for _ in 0..of.depth {
        layers.extend([
            norm,
            Layer::Linear([rows, width, 3.0 * width]),
            Layer::Attention(Attention {
                products: sequences * of.heads,
                queries,
                keys,
                width: width / of.heads,
                is_masked: queries > 1.0,
                block: Block::Decoder,
            }),
            Layer::Linear([rows, width, width]),
        ]);
        layers.extend(dropout);
        layers.extend([
            residual,
            norm,
            Layer::Linear([rows, width, 4.0 * width]),
            Layer::Activation {
                elements: 4.0 * elements,
            },
            Layer::Linear([rows, 4.0 * width, width]),
        ]);
        layers.extend(dropout);
        layers.push(residual);
    }
    layers.push(norm);
    layers.push(Layer::Output([asked, width, WORDS]));
    Network {
        layers,
        optimizer: Optimizer::Adam,
    }
}

//! BERT: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018, with the
//! question-answering head and 384 tokens of SQuAD.

use super::{Attention, Layer, Network, Optimizer};

/// Tokens of a sequence.
const TOKENS: f64 = 384.0;
/// Entries of the word table, of the position table, and of the segment table.
const TABLES: [f64; 3] = [30_522.0, 512.0, 2.0];
/// Width of an attention head.
const HEAD: f64 = 64.0;

/// 12 layers of width 768.
pub(crate) fn base(batch: u32) -> Network {
    bert(batch, 12, 768.0)
}

/// 24 layers of width 1024.
pub(crate) fn large(batch: u32) -> Network {
    bert(batch, 24, 1024.0)
}

fn bert(batch: u32, depth: u32, width: f64) -> Network {
    let sequences = f64::from(batch);
    let rows = sequences * TOKENS;
    let elements = rows * width;
    let norm = Layer::LayerNorm([rows, width]);
    let dropout = Layer::Dropout { elements };
    let residual = Layer::Residual { elements };
    let mut layers: Vec<Layer> = TABLES
        .map(|table| Layer::Embedding {
            rows,
            columns: width,
            table,
        })
        .into();
    layers.extend([residual, residual, norm, dropout]);
    for _ in 0..depth {
        layers.extend([Layer::Linear([rows, width, width]); 3]);
        layers.push(Layer::Attention(Attention {
            products: sequences * width / HEAD,
            queries: TOKENS,
            keys: TOKENS,
            width: HEAD,
            is_masked: true,
        }));
        let project = Layer::Linear([rows, width, width]);
        layers.extend([project, dropout, residual, norm]);
        layers.extend([
            Layer::Linear([rows, width, 4.0 * width]),
            Layer::Activation {
                elements: 4.0 * elements,
            },
            Layer::Linear([rows, 4.0 * width, width]),
            dropout,
            residual,
            norm,
        ]);
    }
    // A start and an end for the answer.
    layers.push(Layer::Linear([rows, width, 2.0]));
    layers.push(Layer::Loss([sequences, TOKENS]));
    Network {
        layers,
        optimizer: Optimizer::Adam,
    }
}

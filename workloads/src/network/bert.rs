//! BERT: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018, with the
//! question-answering head and 384 tokens of SQuAD. And RoBERTa: Liu et al., "RoBERTa: A Robustly
//! Optimized BERT Pretraining Approach", 2019, which is BERT with another vocabulary, as Hugging
//! Face has it (`roberta-base`), with the same head and tokens. And BERT-medium: Turc et al.,
//! "Well-Read Students Learn Better", 2019, BERT with fewer and narrower layers.

use super::{Attention, Block, Layer, Network, Optimizer};

const TOKENS: f64 = 384.0;
/// Entries of the word table, of the position table, and of the segment table. Of RoBERTa's
/// positions the first two are padding, and its sequences have no segments.
const BERT_TABLES: [f64; 3] = [30_522.0, 512.0, 2.0];
const ROBERTA_TABLES: [f64; 3] = [50_265.0, 514.0, 1.0];
const HEAD: f64 = 64.0;

pub(crate) fn base(batch: u32) -> Network {
    bert(batch, 12, 768.0, BERT_TABLES)
}

pub(crate) fn medium(batch: u32) -> Network {
    bert(batch, 8, 512.0, BERT_TABLES)
}

pub(crate) fn large(batch: u32) -> Network {
    bert(batch, 24, 1024.0, BERT_TABLES)
}

/// RoBERTa: 12 layers of width 768.
pub(crate) fn roberta_base(batch: u32) -> Network {
    bert(batch, 12, 768.0, ROBERTA_TABLES)
}

fn bert(batch: u32, depth: u32, width: f64, tables: [f64; 3]) -> Network {
    let sequences = f64::from(batch);
    let rows = sequences * TOKENS;
    let elements = rows * width;
    let norm = Layer::LayerNorm([rows, width]);
    let dropout = Layer::Dropout { elements };
    let residual = Layer::Residual { elements };
    let mut layers: Vec<Layer> = tables
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
            block: Block::Encoder,
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

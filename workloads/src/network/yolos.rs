//! YOLOS-S: Fang et al., "You Only Look at One Sequence: Rethinking Transformer in Vision through
//! Object Detection", 2021, as hustvl/YOLOS has it (`small`): a vision transformer whose sequence
//! is the patches of one image of 512 x 864, for which its tables of positions are made, with a
//! token for the class and 100 tokens for objects. That is 32 x 54 patches and 1829 tokens.
//! Positions are added before the first layer and after all but the last. The 101 tokens that the
//! network begins with are parameters, too: they come in with a concatenation, and are not counted
//! (0.04 of 30.7 million).

use super::{Attention, Block, Convolution, Images, Layer, Network, Optimizer};

/// Height and width of a patch, and patches of an image.
const PATCH: u32 = 16;
const PATCHES: u32 = (512 / PATCH) * (864 / PATCH);
/// Tokens of an image beside its patches: one for the class and one for each object it may find.
const CLASS_TOKENS: u32 = 1;
const OBJECT_TOKENS: u32 = 100;
const TOKENS: u32 = PATCHES + CLASS_TOKENS + OBJECT_TOKENS;
/// Layers, width, and width of an attention head.
const DEPTH: u32 = 12;
const WIDTH: u32 = 384;
const HEAD: f64 = 64.0;
/// Outputs for each object: COCO's class numbers, 0 to 90, with one for none; and those of a box.
const CLASSES: f64 = 92.0;
const BOX: f64 = 4.0;

pub(crate) fn small(batch: u32) -> Network {
    let width = f64::from(WIDTH);
    let rows = f64::from(batch) * f64::from(TOKENS);
    let elements = rows * width;
    let positions = Layer::Addend {
        elements,
        parameters: f64::from(TOKENS) * width,
    };
    let mut layers = patches(batch);
    layers.extend([Layer::Concatenation { elements }, positions]);
    for index in 0..DEPTH {
        layers.extend(encoder(f64::from(batch)));
        if index + 1 < DEPTH {
            layers.push(positions);
        }
    }
    layers.push(Layer::LayerNorm([rows, width]));
    // The rows of the objects alone, made contiguous.
    let rows = f64::from(batch * OBJECT_TOKENS);
    let elements = rows * width;
    layers.push(Layer::Permute { elements });
    for outputs in [CLASSES, BOX] {
        layers.extend(perceptron(rows, width, outputs));
    }
    layers.push(Layer::Activation {
        elements: rows * BOX,
    });
    Network {
        layers,
        optimizer: Optimizer::Adam,
    }
}

/// Each patch by itself is what the convolution sees, as its filters do not overlap.
fn patches(batch: u32) -> Vec<Layer> {
    let images = Images {
        batch: batch * PATCHES,
        channels: 3,
        size: PATCH,
    };
    let layer = Convolution::padded(images, WIDTH, [PATCH; 2], PATCH);
    vec![Layer::Convolution(layer), Layer::Bias(layer.outputs)]
}

/// A layer, with the normalisations before what they are of.
fn encoder(sequences: f64) -> [Layer; 10] {
    let (tokens, width) = (f64::from(TOKENS), f64::from(WIDTH));
    let rows = sequences * tokens;
    let elements = rows * width;
    let norm = Layer::LayerNorm([rows, width]);
    let residual = Layer::Residual { elements };
    [
        norm,
        Layer::Linear([rows, width, 3.0 * width]),
        Layer::Attention(Attention {
            products: sequences * width / HEAD,
            queries: tokens,
            keys: tokens,
            width: HEAD,
            is_masked: false,
            block: Block::Encoder,
        }),
        Layer::Linear([rows, width, width]),
        residual,
        norm,
        Layer::Linear([rows, width, 4.0 * width]),
        Layer::Activation {
            elements: 4.0 * elements,
        },
        Layer::Linear([rows, 4.0 * width, width]),
        residual,
    ]
}

fn perceptron(rows: f64, width: f64, outputs: f64) -> [Layer; 5] {
    let hidden = Layer::Linear([rows, width, width]);
    let activation = Layer::Activation {
        elements: rows * width,
    };
    [
        hidden,
        activation,
        hidden,
        activation,
        Layer::Linear([rows, width, outputs]),
    ]
}

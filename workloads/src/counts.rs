//! How many layers of each kind a network has. From these numbers Mudi (EuroSys'25, Section 4.1.2
//! and Figure 7) predicts how much a training slows the service beside it. Mudi counts the modules
//! that PyTorch calls in one mini-batch (Section 4.2). The paper names the kinds, but not the
//! modules of each kind; here those are listed at [`LayerCounts`]. Functions of PyTorch that are no
//! modules (additions, products of two arrays, permutations, losses) do not count. A layer counts
//! once per step.

use crate::network::{Block, Layer, Network};

/// Layers of a network by kind, in the order of the paper's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCounts {
    /// Convolutions, with one filter for each channel or with many.
    pub convolution: u32,
    /// Products with a matrix of parameters that are not of the kind
    /// [`fully_connected`](Self::fully_connected).
    pub linear: u32,
    /// Functions of each element.
    pub activation: u32,
    /// Tables in which rows are looked up.
    pub embedding: u32,
    /// Layers of a transformer that see the whole sequence. Their products and activations are
    /// counted as well.
    pub encoder: u32,
    /// Transformer layers that see what came before; their products and activations count as well.
    pub decoder: u32,
    /// Places where what convolutions left becomes rows.
    pub flatten: u32,
    /// Batch normalisations.
    pub batch_norm: u32,
    /// Products of matrices that classify what convolutions left.
    pub fully_connected: u32,
    /// Maxima and means of windows or of images, and sums of graphs.
    pub pooling: u32,
    /// Layer normalisations, dropouts, layers of long short-term memory, upsamplings, sums over
    /// edges of graphs, and concatenations, which end blocks such as the paper's Fire.
    pub other: u32,
}

impl LayerCounts {
    /// Names of the kinds, in the order of [`to_array`](Self::to_array), as the paper has them.
    pub const NAMES: [&'static str; 11] = [
        "conv",
        "linear",
        "activations",
        "embeddings",
        "encoder",
        "decoder",
        "flatten",
        "batch_normalization",
        "fc",
        "pooling",
        "other_layers",
    ];

    /// The counts as features of a model.
    #[must_use]
    pub const fn to_array(self) -> [u32; 11] {
        [
            self.convolution,
            self.linear,
            self.activation,
            self.embedding,
            self.encoder,
            self.decoder,
            self.flatten,
            self.batch_norm,
            self.fully_connected,
            self.pooling,
            self.other,
        ]
    }

    pub(crate) fn of(network: &Network) -> Self {
        let mut counts = Self::default();
        let mut features = Features::Rows;
        for layer in &network.layers {
            features = counts.add(layer, features);
        }
        counts
    }

    fn add(&mut self, layer: &Layer, features: Features) -> Features {
        match layer {
            Layer::Convolution(_) | Layer::Depthwise(_) => {
                self.convolution += 1;
                return Features::Images;
            }
            Layer::Linear(_) | Layer::Output(_) => return self.add_product(features),
            Layer::LayerNorm(_) => {
                self.other += 1;
                self.flatten(features);
                return Features::Rows;
            }
            Layer::Loss(_) => return self.flatten(features),
            Layer::Activation { .. } => self.activation += 1,
            Layer::Embedding { .. } => self.embedding += 1,
            Layer::Attention(attention) => match attention.block {
                Block::Encoder => self.encoder += 1,
                Block::Decoder => self.decoder += 1,
            },
            Layer::BatchNorm(_) => self.batch_norm += 1,
            Layer::MaxPool(_)
            | Layer::AverageWindows(_)
            | Layer::AveragePool(_)
            | Layer::SumPool { .. } => self.pooling += 1,
            Layer::Concatenation { .. }
            | Layer::Upsample(_)
            | Layer::Recurrent(_)
            | Layer::Dropout { .. }
            | Layer::Aggregate(_) => self.other += 1,
            // Parts of the layer before or functions.
            Layer::Bias(_)
            | Layer::Addend { .. }
            | Layer::Residual { .. }
            | Layer::Multiply { .. }
            | Layer::Branch { .. }
            | Layer::Permute { .. }
            | Layer::Similarity(_)
            | Layer::BinaryLoss { .. } => {}
        }
        features
    }

    fn add_product(&mut self, features: Features) -> Features {
        let features = self.flatten(features);
        match features {
            Features::Flat => self.fully_connected += 1,
            Features::Images | Features::Rows => self.linear += 1,
        }
        features
    }

    fn flatten(&mut self, features: Features) -> Features {
        if features == Features::Images {
            self.flatten += 1;
            return Features::Flat;
        }
        features
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Features {
    /// Tokens, nodes, users: no image.
    Rows,
    /// The output of a convolution.
    Images,
    /// One row for each image.
    Flat,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{bert, gin, gpt, lstm, ncf, resnet, squeezenet, vgg, yolo, yolos};

    #[test]
    fn networks_have_the_layers_that_were_counted_by_hand() {
        for (name, network, counts) in [
            // 49 and four projections, each normalised; no activation after a projection.
            (
                "ResNet-50",
                resnet::resnet50(1),
                [53, 0, 49, 0, 0, 0, 1, 53, 1, 2, 0],
            ),
            // Two dropouts.
            ("VGG-16", vgg::vgg16(1), [13, 0, 15, 0, 0, 0, 1, 0, 3, 5, 2]),
            // Eight blocks and a dropout; its classifier is a convolution.
            (
                "SqueezeNet",
                squeezenet::squeezenet(1),
                [26, 0, 26, 0, 0, 0, 1, 0, 0, 4, 9],
            ),
            // Seven of stride 2, 46 in blocks, two of pooling, two that narrow and three of boxes,
            // the last ones without normalisation. Two upsamplings and 13 concatenations.
            (
                "YOLOv5s",
                yolo::yolov5s(1),
                [60, 0, 57, 0, 0, 0, 0, 57, 0, 3, 15],
            ),
            // Six products in each layer and the answer; 25 normalisations and 25 dropouts.
            (
                "BERT-base",
                bert::base(1),
                [0, 73, 12, 3, 12, 0, 0, 0, 0, 0, 50],
            ),
            // Four products in each layer and the output; 25 normalisations and 25 dropouts.
            (
                "GPT-2",
                gpt::small(1),
                [0, 49, 12, 2, 0, 12, 0, 0, 0, 0, 50],
            ),
            // Four products in each layer and three for each of two outputs; 25 normalisations and
            // one concatenation.
            (
                "YOLOS-S",
                yolos::small(1),
                [1, 54, 17, 0, 12, 0, 1, 0, 0, 0, 26],
            ),
            // Two layers and three dropouts.
            (
                "LSTM",
                lstm::word_model(1),
                [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 5],
            ),
            ("NeuMF", ncf::neumf(1), [0, 4, 4, 4, 0, 0, 0, 0, 0, 0, 2]),
            ("GIN", gin::encoder(1), [0, 12, 10, 0, 0, 0, 0, 5, 0, 1, 5]),
        ] {
            assert_eq!(LayerCounts::of(&network).to_array(), counts, "{name}");
        }
    }

    #[test]
    fn each_kind_has_its_place_in_the_array() {
        let counts = LayerCounts {
            convolution: 1,
            linear: 2,
            activation: 3,
            embedding: 4,
            encoder: 5,
            decoder: 6,
            flatten: 7,
            batch_norm: 8,
            fully_connected: 9,
            pooling: 10,
            other: 11,
        };
        assert_eq!(counts.to_array(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}

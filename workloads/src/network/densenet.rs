//! DenseNet-201: Huang et al., "Densely Connected Convolutional Networks", 2017, Table 1, with
//! bottlenecks and transitions that halve the channels ("DenseNet-BC"); as torchvision's
//! `densenet201`. Normalisation and activation come before each convolution. Each layer of a block
//! concatenates all features before it, and the block concatenates them once more at its end.

use super::{Convolution, Images, Layer, Network, Optimizer, Pool};

const STEM: u32 = 64;
/// Channels that a layer adds (the paper's k), and those of the bottleneck inside it.
const GROWTH: u32 = 32;
const BOTTLENECK: u32 = 4 * GROWTH;
const BLOCKS: [u32; 4] = [6, 12, 48, 32];
/// Classes of ImageNet.
const CLASSES: f64 = 1000.0;

/// 200 convolutions and one matrix product.
pub(crate) fn densenet201(batch: u32) -> Network {
    let mut builder = Builder {
        layers: Vec::new(),
        images: Images {
            batch,
            channels: 3,
            size: 224,
        },
    };
    builder.convolution(STEM, 7, 2);
    builder.norm_activation();
    let pool = builder.halve(3);
    builder.layers.push(Layer::MaxPool(pool));
    for (index, layers) in BLOCKS.into_iter().enumerate() {
        if index > 0 {
            builder.transition();
        }
        builder.dense_block(layers);
    }
    builder.norm_activation();
    let (rows, channels) = (f64::from(batch), f64::from(builder.images.channels));
    builder.layers.extend([
        Layer::AveragePool(builder.images),
        Layer::Linear([rows, channels, CLASSES]),
        Layer::Loss([rows, CLASSES]),
    ]);
    Network {
        layers: builder.layers,
        optimizer: Optimizer::Descent,
    }
}

struct Builder {
    layers: Vec<Layer>,
    images: Images,
}

impl Builder {
    fn convolution(&mut self, channels: u32, filter: u32, stride: u32) {
        let layer = Convolution::padded(self.images, channels, [filter; 2], stride);
        self.images = layer.outputs;
        self.layers.push(Layer::Convolution(layer));
    }

    fn norm_activation(&mut self) {
        let elements = self.images.elements();
        let norm = Layer::BatchNorm(self.images);
        self.layers.extend([norm, Layer::Activation { elements }]);
    }

    /// Pooling at stride 2 of the images so far, which become its outputs.
    fn halve(&mut self, window: u32) -> Pool {
        let images = self.images;
        self.images = images.at_stride(2);
        Pool {
            images,
            outputs: self.images,
            window,
        }
    }

    /// Layers that each take the block's input and the outputs of all layers before.
    fn dense_block(&mut self, layers: u32) {
        let inputs = self.images;
        let mut parts = vec![inputs];
        for _ in 0..layers {
            // The layers after this one and the block's end take the same parts.
            let branches = parts.iter().map(|part| Layer::Branch {
                elements: part.elements(),
            });
            self.layers.extend(branches);
            self.concatenate(&parts);
            self.norm_activation();
            self.convolution(BOTTLENECK, 1, 1);
            self.norm_activation();
            self.convolution(GROWTH, 3, 1);
            parts.push(self.images);
        }
        self.concatenate(&parts);
    }

    fn concatenate(&mut self, parts: &[Images]) {
        self.images.channels = parts.iter().map(|part| part.channels).sum();
        let elements = self.images.elements();
        self.layers.push(Layer::Concatenation { elements });
    }

    /// Half the channels, half the height and width.
    fn transition(&mut self) {
        self.norm_activation();
        self.convolution(self.images.channels / 2, 1, 1);
        let pool = self.halve(2);
        self.layers.push(Layer::AverageWindows(pool));
    }
}

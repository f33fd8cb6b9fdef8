//! SqueezeNet 1.1: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters
//! and < 0.5 MB model size", 2016, in the later version of its authors that torchvision has as
//! `squeezenet1_1`: less arithmetic than 1.0 with as many parameters. And the same for the images
//! of CIFAR-10, 32 x 32, with its ten classes.

use super::{Convolution, Images, Layer, Network, Optimizer, Pool};

const STEM: u32 = 64;
/// Channels that the blocks of each stage squeeze to. Each of a block's two expansions has four
/// times as many. Pooling precedes all stages but the last.
const STAGES: [[u32; 2]; 4] = [[16, 16], [32, 32], [48, 48], [64, 64]];
const EXPANSION: u32 = 4;
/// Classes of ImageNet and of CIFAR-10.
const CLASSES: u32 = 1000;
const CIFAR_CLASSES: u32 = 10;

pub(crate) fn squeezenet(batch: u32) -> Network {
    squeezenet1_1(batch, 224, CLASSES)
}

pub(crate) fn squeezenet_cifar10(batch: u32) -> Network {
    squeezenet1_1(batch, 32, CIFAR_CLASSES)
}

fn squeezenet1_1(batch: u32, size: u32, classes: u32) -> Network {
    let images = Images {
        batch,
        channels: 3,
        size,
    };
    let mut builder = Builder {
        layers: Vec::new(),
        images,
    };
    builder.convolution(Convolution::unpadded(images, STEM, 3, 2));
    for (index, stage) in STAGES.into_iter().enumerate() {
        if index + 1 < STAGES.len() {
            builder.pool();
        }
        for channels in stage {
            builder.fire(channels);
        }
    }
    let elements = builder.images.elements();
    builder.layers.push(Layer::Dropout { elements });
    builder.convolution(Convolution::padded(builder.images, classes, [1; 2], 1));
    builder.layers.extend([
        Layer::AveragePool(builder.images),
        Layer::Loss([f64::from(batch), f64::from(classes)]),
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
    fn convolution(&mut self, layer: Convolution) {
        self.images = layer.outputs;
        let elements = self.images.elements();
        self.layers.extend([
            Layer::Convolution(layer),
            Layer::Bias(self.images),
            Layer::Activation { elements },
        ]);
    }

    /// Maximum over 3 x 3 windows at stride 2. torchvision rounds sizes up (`ceil_mode`): those of
    /// 224 and of 32 leave no remainder.
    fn pool(&mut self) {
        let images = self.images;
        self.images = images.inside(3, 2);
        self.layers.push(Layer::MaxPool(Pool {
            images,
            outputs: self.images,
            window: 3,
        }));
    }

    /// A 1 x 1 convolution to few channels, then a 1 x 1 and a 3 x 3 convolution of these to many,
    /// concatenated.
    fn fire(&mut self, channels: u32) {
        self.convolution(Convolution::padded(self.images, channels, [1; 2], 1));
        let squeezed = self.images;
        let elements = squeezed.elements();
        self.layers.push(Layer::Branch { elements });
        for filter in [1, 3] {
            let expanded = EXPANSION * channels;
            self.convolution(Convolution::padded(squeezed, expanded, [filter; 2], 1));
        }
        self.images.channels *= 2;
        let elements = self.images.elements();
        self.layers.push(Layer::Concatenation { elements });
    }
}

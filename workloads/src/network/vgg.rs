//! VGG-16 and VGG-19: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale
//! Image Recognition", 2015, Table 1, columns D and E; without normalisation, as torchvision's
//! `vgg16` and `vgg19`.

use super::{Convolution, Images, Layer, Network, Optimizer, Pool};

/// Output channels of the 3 x 3 convolutions of each stage; each stage ends with pooling.
const CHANNELS: [u32; 5] = [64, 128, 256, 512, 512];
/// Outputs of the matrix products at the end; the last are the classes of ImageNet.
const LINEAR: [f64; 3] = [4096.0, 4096.0, 1000.0];

pub(crate) fn vgg16(batch: u32) -> Network {
    vgg(batch, [2, 2, 3, 3, 3])
}

pub(crate) fn vgg19(batch: u32) -> Network {
    vgg(batch, [2, 2, 4, 4, 4])
}

fn vgg(batch: u32, stages: [u32; 5]) -> Network {
    let mut layers = Vec::new();
    let mut images = Images {
        batch,
        channels: 3,
        size: 224,
    };
    for (convolutions, channels) in stages.into_iter().zip(CHANNELS) {
        for _ in 0..convolutions {
            let layer = Convolution::padded(images, channels, [3; 2], 1);
            images = layer.outputs;
            let elements = images.elements();
            layers.extend([
                Layer::Convolution(layer),
                Layer::Bias(images),
                Layer::Activation { elements },
            ]);
        }
        let outputs = images.at_stride(2);
        layers.push(Layer::MaxPool(Pool {
            images,
            outputs,
            window: 2,
        }));
        images = outputs;
    }
    let rows = f64::from(batch);
    let mut inputs = images.elements() / rows;
    for (index, outputs) in LINEAR.into_iter().enumerate() {
        layers.push(Layer::Linear([rows, inputs, outputs]));
        if index + 1 < LINEAR.len() {
            let elements = rows * outputs;
            layers.extend([Layer::Activation { elements }, Layer::Dropout { elements }]);
        }
        inputs = outputs;
    }
    layers.push(Layer::Loss([rows, inputs]));
    Network {
        layers,
        optimizer: Optimizer::Descent,
    }
}

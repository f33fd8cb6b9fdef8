//! VGG-19: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
//! Recognition", 2015, Table 1, column E; without normalisation, as torchvision's `vgg19`.

use super::{Convolution, Images, Layer, Network, Optimizer};

/// Convolutions of 3 x 3 and their output channels, stage by stage; each stage ends with pooling.
const STAGES: [(u32, u32); 5] = [(2, 64), (2, 128), (4, 256), (4, 512), (4, 512)];
/// Outputs of the matrix products at the end; the last are the classes of ImageNet.
const LINEAR: [f64; 3] = [4096.0, 4096.0, 1000.0];

/// 19 layers with parameters.
pub(crate) fn vgg19(batch: u32) -> Network {
    let mut layers = Vec::new();
    let mut images = Images {
        batch,
        channels: 3,
        size: 224,
    };
    for (convolutions, channels) in STAGES {
        for _ in 0..convolutions {
            let layer = Convolution {
                images,
                channels,
                filter: 3,
                stride: 1,
            };
            images = layer.outputs();
            let elements = images.elements();
            layers.extend([
                Layer::Convolution(layer),
                Layer::Bias(images),
                Layer::Activation { elements },
            ]);
        }
        layers.push(Layer::MaxPool(images));
        images = images.at_stride(2);
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

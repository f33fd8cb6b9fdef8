//! MobileNetV2: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018,
//! Table 2.

use super::{Convolution, Images, Layer, Network, Optimizer};

/// Expansion, output channels, repetitions and stride of each stage.
const STAGES: [(u32, u32, u32, u32); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];
const STEM: u32 = 32;
const HEAD: u32 = 1280;
/// Classes of ImageNet.
const CLASSES: f64 = 1000.0;

pub(crate) fn mobilenetv2(batch: u32) -> Network {
    let mut builder = Builder {
        layers: Vec::new(),
        images: Images {
            batch,
            channels: 3,
            size: 224,
        },
    };
    builder.convolution(STEM, 3, 2);
    builder.activation();
    for (expansion, channels, repetitions, stride) in STAGES {
        for repetition in 0..repetitions {
            let stride = if repetition == 0 { stride } else { 1 };
            builder.inverted_residual(expansion, channels, stride);
        }
    }
    builder.convolution(HEAD, 1, 1);
    builder.activation();
    let (rows, channels) = (f64::from(batch), f64::from(HEAD));
    builder.layers.extend([
        Layer::AveragePool(builder.images),
        Layer::Dropout {
            elements: rows * channels,
        },
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
        let layer = self.layer(channels, filter, stride);
        self.layers.push(Layer::Convolution(layer));
        self.layers.push(Layer::BatchNorm(self.images));
    }

    fn depthwise(&mut self, stride: u32) {
        let layer = self.layer(self.images.channels, 3, stride);
        self.layers.push(Layer::Depthwise(layer));
        self.layers.push(Layer::BatchNorm(self.images));
    }

    fn layer(&mut self, channels: u32, filter: u32, stride: u32) -> Convolution {
        let layer = Convolution::padded(self.images, channels, [filter; 2], stride);
        self.images = layer.outputs;
        layer
    }

    fn activation(&mut self) {
        let elements = self.images.elements();
        self.layers.push(Layer::Activation { elements });
    }

    /// Expands, filters each channel, projects; the input goes by where it has the output's shape.
    fn inverted_residual(&mut self, expansion: u32, channels: u32, stride: u32) {
        let channels_in = self.images.channels;
        if expansion > 1 {
            self.convolution(expansion * channels_in, 1, 1);
            self.activation();
        }
        self.depthwise(stride);
        self.activation();
        self.convolution(channels, 1, 1);
        if stride == 1 && channels_in == channels {
            let elements = self.images.elements();
            self.layers.push(Layer::Residual { elements });
        }
    }
}

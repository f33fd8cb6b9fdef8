//! ResNet-18, ResNet-50, ResNet-101 and ResNet-152: He et al., "Deep Residual Learning for Image
//! Recognition", 2016, Table 1; as torchvision has them, with the stride in the 3 x 3 convolution
//! ("v1.5"). Wide ResNet-101-2: Zagoruyko and Komodakis, "Wide Residual Networks", 2016, as
//! torchvision has it: ResNet-101 with twice the channels in the 3 x 3 convolution of each block.
//! And ResNet-18 for the images of CIFAR-10, 32 x 32, as kuangliu/pytorch-cifar has it: the same
//! stages behind a first convolution of 3 x 3 without pooling.

use super::{Convolution, Images, Layer, Network, Optimizer, Pool};

/// Channels of the first convolution, and width of the first stage.
const STEM: u32 = 64;
/// Output channels of a block for each channel of its stage.
const EXPANSION: u32 = 4;
/// Classes of ImageNet and of CIFAR-10.
const CLASSES: f64 = 1000.0;
const CIFAR_CLASSES: f64 = 10.0;

pub(crate) fn resnet18(batch: u32) -> Network {
    let mut builder = Builder::for_imagenet(batch);
    builder.basic_stages();
    builder.end(CLASSES)
}

pub(crate) fn resnet50(batch: u32) -> Network {
    resnet(batch, [3, 4, 6, 3], 1)
}

pub(crate) fn resnet101(batch: u32) -> Network {
    resnet(batch, [3, 4, 23, 3], 1)
}

/// 101 layers, of which those inside blocks have twice the channels.
pub(crate) fn wide_resnet101_2(batch: u32) -> Network {
    resnet(batch, [3, 4, 23, 3], 2)
}

pub(crate) fn resnet152(batch: u32) -> Network {
    resnet(batch, [3, 8, 36, 3], 1)
}

pub(crate) fn resnet18_cifar10(batch: u32) -> Network {
    let mut builder = Builder::new(batch, 32);
    builder.convolution(STEM, 3, 1);
    builder.activation();
    builder.basic_stages();
    builder.end(CIFAR_CLASSES)
}

/// Blocks of each stage, and how many times the channels of its stage a block has inside it.
fn resnet(batch: u32, stages: [u32; 4], widening: u32) -> Network {
    let mut builder = Builder::for_imagenet(batch);
    for (stage, blocks) in stages.into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let channels = STEM << stage;
            builder.bottleneck([channels * widening, channels], stride, block == 0);
        }
    }
    builder.end(CLASSES)
}

struct Builder {
    layers: Vec<Layer>,
    images: Images,
}

impl Builder {
    /// Of colour images.
    fn new(batch: u32, size: u32) -> Self {
        let images = Images {
            batch,
            channels: 3,
            size,
        };
        Self {
            layers: Vec::new(),
            images,
        }
    }

    fn for_imagenet(batch: u32) -> Self {
        let mut builder = Self::new(batch, 224);
        builder.convolution(STEM, 7, 2);
        builder.activation();
        let images = builder.images;
        builder.images = images.at_stride(2);
        builder.layers.push(Layer::MaxPool(Pool {
            images,
            outputs: builder.images,
            window: 3,
        }));
        builder
    }

    /// The mean of each channel, to classes.
    fn end(mut self, classes: f64) -> Network {
        let (rows, channels) = (
            f64::from(self.images.batch),
            f64::from(self.images.channels),
        );
        self.layers.extend([
            Layer::AveragePool(self.images),
            Layer::Linear([rows, channels, classes]),
            Layer::Loss([rows, classes]),
        ]);
        Network {
            layers: self.layers,
            optimizer: Optimizer::Descent,
        }
    }

    fn convolution(&mut self, channels: u32, filter: u32, stride: u32) {
        let layer = Convolution::padded(self.images, channels, [filter; 2], stride);
        self.images = layer.outputs;
        self.layers.push(Layer::Convolution(layer));
        self.layers.push(Layer::BatchNorm(self.images));
    }

    fn activation(&mut self) {
        let elements = self.images.elements();
        self.layers.push(Layer::Activation { elements });
    }

    fn basic_stages(&mut self) {
        for stage in 0..4 {
            for block in 0..2 {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                self.basic_block(STEM << stage, stride);
            }
        }
    }

    /// 3 x 3 twice, beside which the input goes by, projected where the size changes.
    fn basic_block(&mut self, width: u32, stride: u32) {
        let by_passing = self.images;
        self.convolution(width, 3, stride);
        self.activation();
        self.convolution(width, 3, 1);
        if by_passing != self.images {
            self.images = by_passing;
            self.convolution(width, 1, stride);
        }
        let elements = self.images.elements();
        self.layers.push(Layer::Residual { elements });
        self.activation();
    }

    /// 1 x 1, 3 x 3, 1 x 1, beside which the input goes by, projected in the first of a stage.
    fn bottleneck(&mut self, [width, channels]: [u32; 2], stride: u32, is_projected: bool) {
        let by_passing = self.images;
        self.convolution(width, 1, 1);
        self.activation();
        self.convolution(width, 3, stride);
        self.activation();
        self.convolution(EXPANSION * channels, 1, 1);
        if is_projected {
            self.images = by_passing;
            self.convolution(EXPANSION * channels, 1, stride);
        }
        let elements = self.images.elements();
        self.layers.push(Layer::Residual { elements });
        self.activation();
    }
}

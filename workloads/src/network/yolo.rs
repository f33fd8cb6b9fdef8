//! YOLOv5, nano, small and extra large: ultralytics/yolov5, version 6, `models/yolov5n.yaml`,
//! `yolov5s.yaml` and `yolov5x.yaml`, for images of 640 x 640 and the 80 classes of COCO. They
//! differ in two factors only, those of channels and of bottlenecks. Blocks have YOLOv5's names:
//! `Conv` (convolution, normalisation, SiLU), `C3` (Wang et al., "CSPNet", 2020, with three
//! convolutions), `SPPF` (pooling at three sizes). The head brings features of stride 32 back to
//! those of 16 and 8, and these down again (Liu et al., "Path Aggregation Network", 2018). Left out
//! of a training step are the losses of boxes and of classes, which cover the few places that have
//! an object only, the momentum of descent, and the moving average of the parameters. The loss of
//! whether there is an object covers all places, and is here. Left out of an inference are the
//! kernels that make boxes of the numbers of each place, and choose among them.

use super::{Convolution, Images, Layer, Network, Optimizer, Pool};

/// Output channels at strides 2, 4, 8, 16 and 32, and bottlenecks in the blocks at strides 4 to 32
/// and in those of the head, as all yaml files have them.
const CHANNELS: [u32; 5] = [64, 128, 256, 512, 1024];
const DEPTHS: [u32; 4] = [3, 6, 9, 3];
const HEAD_DEPTH: u32 = 3;

/// The factors of a yaml file for these, in hundredths (`width_multiple`, `depth_multiple`).
#[derive(Clone, Copy)]
struct Scale {
    width: u32,
    depth: u32,
}

const NANO: Scale = Scale {
    width: 25,
    depth: 33,
};
const SMALL: Scale = Scale {
    width: 50,
    depth: 33,
};
const EXTRA_LARGE: Scale = Scale {
    width: 125,
    depth: 133,
};

impl Scale {
    /// Exact: the channels are multiples of 64, and the program rounds up to multiples of 8.
    fn channels(self) -> [u32; 5] {
        CHANNELS.map(|channels| channels * self.width / 100)
    }

    /// Rounded, but one at least.
    fn depth(self, bottlenecks: u32) -> u32 {
        ((bottlenecks * self.depth + 50) / 100).max(1)
    }
}

/// Boxes of each place, and numbers of each box: four for its place and size, one for whether there
/// is an object, and one for each class.
const BOXES: u32 = 3;
const OUTPUTS: u32 = 4 + 1 + 80;

pub(crate) fn yolov5n(batch: u32) -> Network {
    yolov5(batch, NANO)
}

pub(crate) fn yolov5s(batch: u32) -> Network {
    yolov5(batch, SMALL)
}

pub(crate) fn yolov5x(batch: u32) -> Network {
    yolov5(batch, EXTRA_LARGE)
}

fn yolov5(batch: u32, scale: Scale) -> Network {
    let mut builder = Builder {
        scale,
        layers: Vec::new(),
        images: Images {
            batch,
            channels: 3,
            size: 640,
        },
    };
    let features = builder.backbone();
    for images in builder.head(features) {
        builder.detect(images);
    }
    Network {
        layers: builder.layers,
        optimizer: Optimizer::Descent,
    }
}

struct Builder {
    scale: Scale,
    layers: Vec<Layer>,
    images: Images,
}

impl Builder {
    /// Down to stride 32. Returns the features of strides 8 and 16, which the head takes as well.
    fn backbone(&mut self) -> [Images; 2] {
        let mut kept = Vec::new();
        let [first, later @ ..] = self.scale.channels();
        self.convolution(first, 6, 2);
        for (index, (channels, depth)) in later.into_iter().zip(DEPTHS).enumerate() {
            self.convolution(channels, 3, 2);
            self.c3(channels, depth, true);
            if (1..3).contains(&index) {
                kept.push(self.branch());
            }
        }
        self.sppf();
        [kept[0], kept[1]]
    }

    /// Up from stride 32 to 8 and down again. Returns the features of 8, 16 and 32 for boxes.
    fn head(&mut self, [at_8, at_16]: [Images; 2]) -> [Images; 3] {
        let mut narrow = Vec::new();
        for beside in [at_16, at_8] {
            self.convolution(self.images.channels / 2, 1, 1);
            narrow.push(self.branch());
            self.layers.push(Layer::Upsample(self.images));
            self.images.size *= 2;
            self.concatenate(&[beside]);
            self.c3(beside.channels, HEAD_DEPTH, false);
        }
        let mut features = [self.images; 3];
        for (index, beside) in narrow.into_iter().rev().enumerate() {
            self.branch();
            self.convolution(beside.channels, 3, 2);
            self.concatenate(&[beside]);
            self.c3(2 * beside.channels, HEAD_DEPTH, false);
            features[index + 1] = self.images;
        }
        features
    }

    /// The numbers of the boxes at each place, made contiguous, and the loss of those that say
    /// whether there is an object.
    fn detect(&mut self, images: Images) {
        let layer = Convolution::padded(images, BOXES * OUTPUTS, [1; 2], 1);
        self.layers.extend([
            Layer::Convolution(layer),
            Layer::Bias(layer.outputs),
            Layer::Permute {
                elements: layer.outputs.elements(),
            },
            Layer::BinaryLoss {
                elements: images.positions() * f64::from(BOXES),
            },
        ]);
    }

    fn convolution(&mut self, channels: u32, filter: u32, stride: u32) {
        let layer = Convolution::padded(self.images, channels, [filter; 2], stride);
        self.images = layer.outputs;
        let elements = self.images.elements();
        self.layers.extend([
            Layer::Convolution(layer),
            Layer::BatchNorm(self.images),
            Layer::Activation { elements },
        ]);
    }

    /// Two ways of half the channels, one of them through so many bottlenecks before scaling,
    /// concatenated and mixed.
    fn c3(&mut self, channels: u32, depth: u32, is_residual: bool) {
        let inputs = self.branch();
        let half = channels / 2;
        self.convolution(half, 1, 1);
        for _ in 0..self.scale.depth(depth) {
            self.convolution(half, 1, 1);
            self.convolution(half, 3, 1);
            if is_residual {
                let elements = self.images.elements();
                self.layers.push(Layer::Residual { elements });
            }
        }
        let through = self.images;
        self.images = inputs;
        self.convolution(half, 1, 1);
        self.concatenate(&[through]);
        self.convolution(channels, 1, 1);
    }

    /// Maximum over 5 x 5 windows, of that again, and once more, concatenated with what it is of.
    fn sppf(&mut self) {
        let channels = self.images.channels;
        self.convolution(channels / 2, 1, 1);
        let images = self.images;
        for _ in 0..3 {
            self.branch();
            self.layers.push(Layer::MaxPool(Pool {
                images,
                outputs: images,
                window: 5,
            }));
        }
        self.concatenate(&[images; 3]);
        self.convolution(channels, 1, 1);
    }

    /// The images so far go to one more layer.
    fn branch(&mut self) -> Images {
        let elements = self.images.elements();
        self.layers.push(Layer::Branch { elements });
        self.images
    }

    fn concatenate(&mut self, beside: &[Images]) {
        self.images.channels += beside.iter().map(|images| images.channels).sum::<u32>();
        let elements = self.images.elements();
        self.layers.push(Layer::Concatenation { elements });
    }
}

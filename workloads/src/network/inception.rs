//! Inception-v3: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016,
//! Table 1 and Figures 5 to 7. The channels of the branches, which the paper does not give, are
//! those of torchvision's `inception_v3`. The auxiliary classifier is left out: inference does not
//! run it, and here training does not either.

use super::{Convolution, Images, Layer, Network, Optimizer, Pool};

/// Classes of ImageNet.
const CLASSES: f64 = 1000.0;

/// A step of a branch. A convolution is followed by its normalisation and its activation.
#[derive(Clone, Copy)]
enum Step {
    /// A convolution that keeps the size: output channels, height and width of the filters.
    Same(u32, [u32; 2]),
    /// A 3 x 3 convolution without padding: output channels, stride.
    Inside(u32, u32),
    /// A 1 x 3 and a 3 x 1 convolution of the same input, concatenated: output channels of each.
    Both(u32),
    /// Maximum over 3 x 3 windows at stride 2 without padding.
    MaxPool,
    /// Mean over 3 x 3 windows, which keeps the size.
    AveragePool,
}

use Step::{AveragePool, Both, Inside, MaxPool, Same};

const STEM: [Step; 7] = [
    Inside(32, 2),
    Inside(32, 1),
    Same(64, [3, 3]),
    MaxPool,
    Same(80, [1, 1]),
    Inside(192, 1),
    MaxPool,
];

pub(crate) fn inceptionv3(batch: u32) -> Network {
    let mut builder = Builder {
        layers: Vec::new(),
        images: Images {
            batch,
            channels: 3,
            size: 299,
        },
    };
    builder.steps(&STEM);
    for pool in [32, 64, 64] {
        builder.block_a(pool);
    }
    builder.block_b();
    for width in [128, 160, 160, 192] {
        builder.block_c(width);
    }
    builder.block_d();
    for _ in 0..2 {
        builder.block_e();
    }
    let (rows, channels) = (f64::from(batch), f64::from(builder.images.channels));
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

/// Blocks by the letters that torchvision gives them.
impl Builder {
    /// At 35 x 35 (Figure 5), with `pool` channels in the branch that pools.
    fn block_a(&mut self, pool: u32) {
        self.block(&[
            &[Same(64, [1, 1])],
            &[Same(48, [1, 1]), Same(64, [5, 5])],
            &[Same(64, [1, 1]), Same(96, [3, 3]), Same(96, [3, 3])],
            &[AveragePool, Same(pool, [1, 1])],
        ]);
    }

    /// From 35 x 35 to 17 x 17.
    fn block_b(&mut self) {
        self.block(&[
            &[Inside(384, 2)],
            &[Same(64, [1, 1]), Same(96, [3, 3]), Inside(96, 2)],
            &[MaxPool],
        ]);
    }

    /// At 17 x 17 (Figure 6), with `width` channels between the 1 x 7 and 7 x 1 convolutions.
    fn block_c(&mut self, width: u32) {
        let narrow = Same(width, [1, 1]);
        let [wide, tall] = [[1, 7], [7, 1]];
        self.block(&[
            &[Same(192, [1, 1])],
            &[narrow, Same(width, wide), Same(192, tall)],
            &[
                narrow,
                Same(width, tall),
                Same(width, wide),
                Same(width, tall),
                Same(192, wide),
            ],
            &[AveragePool, Same(192, [1, 1])],
        ]);
    }

    /// From 17 x 17 to 8 x 8.
    fn block_d(&mut self) {
        let narrow = Same(192, [1, 1]);
        self.block(&[
            &[narrow, Inside(320, 2)],
            &[narrow, Same(192, [1, 7]), Same(192, [7, 1]), Inside(192, 2)],
            &[MaxPool],
        ]);
    }

    /// At 8 x 8 (Figure 7).
    fn block_e(&mut self) {
        self.block(&[
            &[Same(320, [1, 1])],
            &[Same(384, [1, 1]), Both(384)],
            &[Same(448, [1, 1]), Same(384, [3, 3]), Both(384)],
            &[AveragePool, Same(192, [1, 1])],
        ]);
    }

    /// Branches that all start from the images so far, and the concatenation of their outputs.
    fn block(&mut self, branches: &[&[Step]]) {
        let inputs = self.images;
        let mut channels = 0;
        for (index, branch) in branches.iter().enumerate() {
            self.images = inputs;
            // The last branch is the first backward: its gradient has none to be added to.
            if index + 1 < branches.len() {
                let elements = inputs.elements();
                self.layers.push(Layer::Branch { elements });
            }
            self.steps(branch);
            channels += self.images.channels;
        }
        self.images.channels = channels;
        let elements = self.images.elements();
        self.layers.push(Layer::Concatenation { elements });
    }

    fn steps(&mut self, steps: &[Step]) {
        for &step in steps {
            let images = self.images;
            match step {
                Same(channels, filter) => {
                    self.convolution(Convolution::padded(images, channels, filter, 1));
                }
                Inside(channels, stride) => {
                    self.convolution(Convolution::unpadded(images, channels, 3, stride));
                }
                Both(channels) => {
                    self.block(&[&[Same(channels, [1, 3])], &[Same(channels, [3, 1])]]);
                }
                MaxPool => {
                    let pool = self.pool(images.inside(3, 2));
                    self.layers.push(Layer::MaxPool(pool));
                }
                AveragePool => {
                    let pool = self.pool(images);
                    self.layers.push(Layer::AverageWindows(pool));
                }
            }
        }
    }

    fn convolution(&mut self, layer: Convolution) {
        self.images = layer.outputs;
        let elements = self.images.elements();
        self.layers.extend([
            Layer::Convolution(layer),
            Layer::BatchNorm(self.images),
            Layer::Activation { elements },
        ]);
    }

    fn pool(&mut self, outputs: Images) -> Pool {
        let images = self.images;
        self.images = outputs;
        Pool {
            images,
            outputs,
            window: 3,
        }
    }
}

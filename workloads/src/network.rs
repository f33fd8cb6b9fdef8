//! Architectures, as lists of layers.

pub(crate) mod bert;
pub(crate) mod densenet;
pub(crate) mod gin;
pub(crate) mod gpt;
pub(crate) mod inception;
pub(crate) mod lstm;
pub(crate) mod mobilenet;
pub(crate) mod ncf;
pub(crate) mod resnet;
pub(crate) mod squeezenet;
pub(crate) mod vgg;
pub(crate) mod yolo;
pub(crate) mod yolos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A forward pass.
    Inference,
    /// Forward, backward and the optimizer's step.
    Training,
    /// The same with two passes forward and back, on two views of the inputs that are compared.
    Contrastive,
}

impl Mode {
    pub(crate) fn is_training(self) -> bool {
        self != Self::Inference
    }

    pub(crate) fn passes(self) -> u32 {
        match self {
            Self::Inference | Self::Training => 1,
            Self::Contrastive => 2,
        }
    }
}

/// How parameters are updated, tensor by tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optimizer {
    /// Stochastic gradient descent with weight decay.
    Descent,
    /// Stochastic gradient descent without weight decay, after clipping gradients by their norm.
    ClippedDescent,
    /// Adam with weight decay, after clipping each gradient by its norm.
    Adam,
}

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) layers: Vec<Layer>,
    pub(crate) optimizer: Optimizer,
}

/// Square images of one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Images {
    pub(crate) batch: u32,
    pub(crate) channels: u32,
    /// Height and width.
    pub(crate) size: u32,
}

impl Images {
    pub(crate) fn positions(&self) -> f64 {
        f64::from(self.batch) * f64::from(self.size) * f64::from(self.size)
    }

    pub(crate) fn elements(&self) -> f64 {
        self.positions() * f64::from(self.channels)
    }

    /// The outputs, at a stride, of a filter that is padded to keep the size.
    pub(crate) fn at_stride(self, stride: u32) -> Self {
        let size = self.size.div_ceil(stride);
        Self { size, ..self }
    }

    /// The outputs, at a stride, of a window that stays inside the images.
    pub(crate) fn inside(self, window: u32, stride: u32) -> Self {
        let size = (self.size - window) / stride + 1;
        Self { size, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convolution {
    pub(crate) images: Images,
    pub(crate) outputs: Images,
    /// Height and width of the filters.
    pub(crate) filter: [u32; 2],
    pub(crate) stride: u32,
}

impl Convolution {
    /// One that is padded to keep the size at stride 1.
    pub(crate) fn padded(images: Images, channels: u32, filter: [u32; 2], stride: u32) -> Self {
        let outputs = Images {
            channels,
            ..images.at_stride(stride)
        };
        Self {
            images,
            outputs,
            filter,
            stride,
        }
    }

    /// One without padding, whose filters are square.
    pub(crate) fn unpadded(images: Images, channels: u32, filter: u32, stride: u32) -> Self {
        let outputs = Images {
            channels,
            ..images.inside(filter, stride)
        };
        Self {
            images,
            outputs,
            filter: [filter; 2],
            stride,
        }
    }

    pub(crate) fn taps(&self) -> f64 {
        let [height, width] = self.filter;
        f64::from(height * width)
    }
}

/// Windows of each channel, of which each becomes one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pool {
    pub(crate) images: Images,
    pub(crate) outputs: Images,
    /// Height and width of the windows.
    pub(crate) window: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Sees the whole sequence.
    Encoder,
    /// Sees what came before.
    Decoder,
}

/// Scaled dot-product attention without a fused kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attention {
    /// Heads of all sequences: independent products.
    pub(crate) products: f64,
    pub(crate) queries: f64,
    pub(crate) keys: f64,
    /// Of a head.
    pub(crate) width: f64,
    pub(crate) is_masked: bool,
    pub(crate) block: Block,
}

/// A layer of long short-term memory, over all steps of some sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Recurrent {
    pub(crate) sequences: f64,
    /// Of each sequence; each waits for the one before it.
    pub(crate) steps: u32,
    /// Of each step.
    pub(crate) inputs: f64,
    /// Outputs of each step.
    pub(crate) width: f64,
}

impl Recurrent {
    /// Steps of all sequences.
    pub(crate) fn rows(&self) -> f64 {
        self.sequences * f64::from(self.steps)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Graph {
    /// One for each direction.
    pub(crate) edges: f64,
    pub(crate) nodes: f64,
    /// Numbers of a node.
    pub(crate) columns: f64,
}

/// A layer. Sizes are of one batch; those only computed with are floats, which hold them exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::enum_variant_names,
    reason = "layer normalisation is called so"
)]
pub(crate) enum Layer {
    /// Convolution.
    Convolution(Convolution),
    /// The same with one filter for each channel.
    Depthwise(Convolution),
    /// Adds a number to each channel.
    Bias(Images),
    /// Adds parameters that are the same for each item of the batch.
    Addend { elements: f64, parameters: f64 },
    /// Batch normalisation.
    BatchNorm(Images),
    /// A function of each element that has no parameters: ReLU, GELU, SiLU, sigmoid.
    Activation { elements: f64 },
    /// Adds what by-passed the layers before.
    Residual { elements: f64 },
    /// Multiplies the outputs of two layers.
    Multiply { elements: f64 },
    /// Passes `elements` to one more layer: nothing forward, one more gradient to add backward.
    Branch { elements: f64 },
    /// Copies the outputs of several layers into one array of `elements`.
    Concatenation { elements: f64 },
    /// Moves the dimensions of an array.
    Permute { elements: f64 },
    /// Twice the height and width: each of these images' positions becomes four.
    Upsample(Images),
    /// Maximum over windows.
    MaxPool(Pool),
    /// Mean over windows.
    AverageWindows(Pool),
    /// Mean over each image.
    AveragePool(Images),
    /// A matrix product with a bias: rows, inputs, outputs.
    Linear([f64; 3]),
    /// A matrix product with a table that another layer owns, without a bias.
    Output([f64; 3]),
    /// Attention.
    Attention(Attention),
    /// Long short-term memory.
    Recurrent(Recurrent),
    /// Layer normalisation: rows, columns.
    LayerNorm([f64; 2]),
    /// Dropout; nothing at inference.
    Dropout { elements: f64 },
    /// Looks rows up in a table.
    Embedding { rows: f64, columns: f64, table: f64 },
    /// The sum that each node of a graph gets along its edges, and itself.
    Aggregate(Graph),
    /// Adds each of `rows` to one of `sums`.
    SumPool { rows: f64, columns: f64, sums: f64 },
    /// How near each pair of rows of two views is: rows, columns.
    Similarity([f64; 2]),
    /// Cross-entropy, rows and columns; nothing at inference.
    Loss([f64; 2]),
    /// Binary cross-entropy; nothing at inference.
    BinaryLoss { elements: f64 },
}

impl Layer {
    /// Sizes of its parameter tensors, elements.
    pub(crate) fn parameters(&self) -> Vec<f64> {
        match *self {
            Self::Convolution(layer) => {
                let channels = f64::from(layer.images.channels) * f64::from(layer.outputs.channels);
                vec![channels * layer.taps()]
            }
            Self::Depthwise(layer) => vec![f64::from(layer.outputs.channels) * layer.taps()],
            Self::Bias(images) => vec![f64::from(images.channels)],
            Self::Addend { parameters, .. } => vec![parameters],
            Self::BatchNorm(images) => vec![f64::from(images.channels); 2],
            Self::Linear([_, inputs, outputs]) => vec![inputs * outputs, outputs],
            // The four gates, with the two biases that cuDNN's formulas have.
            Self::Recurrent(Recurrent { inputs, width, .. }) => {
                let gates = 4.0 * width;
                vec![inputs * gates, width * gates, gates, gates]
            }
            Self::LayerNorm([_, columns]) => vec![columns; 2],
            Self::Embedding { columns, table, .. } => vec![columns * table],
            Self::Activation { .. }
            | Self::Residual { .. }
            | Self::Multiply { .. }
            | Self::Branch { .. }
            | Self::Concatenation { .. }
            | Self::Permute { .. }
            | Self::Upsample(_)
            | Self::MaxPool(_)
            | Self::AverageWindows(_)
            | Self::AveragePool(_)
            | Self::Output(_)
            | Self::Attention(_)
            | Self::Dropout { .. }
            | Self::Aggregate(_)
            | Self::SumPool { .. }
            | Self::Similarity(_)
            | Self::Loss(_)
            | Self::BinaryLoss { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millions_of_parameters(network: &Network) -> f64 {
        let sum: f64 = network.layers.iter().flat_map(Layer::parameters).sum();
        sum / 1e6
    }

    #[test]
    fn networks_have_their_published_numbers_of_parameters() {
        // ResNet, VGG, DenseNet and MobileNetV2: torchvision's model table. Inception-v3: its 27.16
        // M less the 3.33 M of the auxiliary classifier. ResNet-18 for small images:
        // kuangliu/pytorch-cifar's README, 11.17 M. BERT: Devlin et al., 2018, 110 M and 340 M with
        // the pooler. GPT-3 XL: Brown et al., 2020, Table 2.1, 1.3 B. GPT-2: 124 M, the smallest of
        // openai/gpt-2, by Hugging Face. SqueezeNet 1.1: torchvision's table; for CIFAR-10 less 990
        // classes of 513 parameters. RoBERTa: 125 M (fairseq's examples/roberta), with the pooler.
        // LSTM: Merity et al., "Regularizing and Optimizing LSTM Language Models", 2018, Table 2,
        // 28 M at this width where the word table is the output layer, too; here its 33278 x 650
        // come on top. NeuMF: 31,832,577 in the logs of MLPerf's reference. YOLOv5s: 7,235,389, as
        // its program prints (README: 7.2 M); likewise the others (1.9 M and 86.7 M). BERT-medium,
        // by hand: tables of 31036 rows of 512, 8 layers of 3,152,384, normalisation and head.
        // YOLOS-S: hustvl/YOLOS's README. Encoder of graphs, by hand: its first layer has 1120 and
        // the others 2112 in products, each 64 in its normalisation; 2112 come after.
        for (network, published, tolerance) in [
            (resnet::resnet18(1), 11.69, 0.01),
            (resnet::resnet50(1), 25.56, 0.01),
            (resnet::resnet101(1), 44.55, 0.01),
            (resnet::resnet152(1), 60.19, 0.01),
            (resnet::wide_resnet101_2(1), 126.89, 0.01),
            (resnet::resnet18_cifar10(1), 11.17, 0.01),
            (vgg::vgg16(1), 138.36, 0.01),
            (vgg::vgg19(1), 143.67, 0.01),
            (densenet::densenet201(1), 20.01, 0.01),
            (inception::inceptionv3(1), 23.83, 0.01),
            (mobilenet::mobilenetv2(1), 3.50, 0.01),
            (squeezenet::squeezenet(1), 1.235_496, 1e-6),
            (squeezenet::squeezenet_cifar10(1), 0.727_626, 1e-6),
            (yolo::yolov5n(1), 1.872_157, 1e-6),
            (yolo::yolov5s(1), 7.235_389, 1e-6),
            (yolo::yolov5x(1), 86.749_405, 1e-6),
            (yolos::small(1), 30.7, 0.005),
            (bert::medium(1), 41.11, 0.001),
            (bert::base(1), 109.5, 0.02),
            (bert::large(1), 335.1, 0.02),
            (bert::roberta_base(1), 125.0, 0.01),
            (lstm::word_model(1), 28.0 + 21.63, 0.01),
            (ncf::neumf(1), 31.832_577, 1e-6),
            (gin::encoder(1), 12_000.0 / 1e6, 1e-6),
            (gpt::prefill(1), 1315.0, 0.02),
            (gpt::small(1), 124.4, 0.01),
        ] {
            let millions = millions_of_parameters(&network);
            let error = (millions / published - 1.0).abs();
            assert!(error < tolerance, "{millions} M instead of {published} M");
        }
    }
}

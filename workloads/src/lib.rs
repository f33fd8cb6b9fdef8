//! Built-in workloads: the kernel traces of well-known networks, computed from their architecture.
//! A trace needs a GPU to be recorded; these need none, for any batch and any device of the table.
//! Three steps, each a module:
//! 1. [`network`]: the architecture as a list of layers, from the publications.
//! 2. [`lower`]: each layer as the kernels that a framework launches for it (eager PyTorch, no
//!    fusion), forward for inference, forward, backward and optimizer for training; with each
//!    kernel the arithmetic it does and the bytes it moves ([`work`]).
//! 3. [`roofline`]: the time of each kernel on a device, the larger of arithmetic and traffic at
//!    the efficiency of its family, and its launch shape.
//!
//! The efficiencies ([`efficiency`]) are fitted to ResNet-50 and BERT as Orion recorded them on a
//! V100, and to nothing else; there is no factor for a single network. `docs/workloads.md` has the
//! table of how far the other recorded networks are off. What such a trace is not: a recording. It
//! has no host time between launches, no autotuning, and only the kernel choices that [`lower`]
//! names. Units: times are nanoseconds, sizes are elements or bytes as the name says, arithmetic
//! counts a multiply-add as two operations.

mod counts;
mod efficiency;
mod lower;
mod network;
mod roofline;
mod work;

use std::collections::HashMap;
use std::fmt;

use profiler::limits::LAUNCHES_MAX;
use profiler::{Trace, TraceKernel};
use softgpu::Device;

pub use crate::counts::LayerCounts;

use crate::network::{Layer, Mode, Network};
use crate::work::{Algorithm, Kernel, Matrix, Work};

/// The number format in which a workload computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floating point, on the ordinary units.
    Fp32,
    /// 16-bit floating point with 32-bit sums, on the matrix units.
    Fp16,
}

impl Precision {
    /// The words for it, as options take them.
    pub const NAMES: [&'static str; 2] = ["fp32", "fp16"];

    /// The precision of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "fp32" => Some(Self::Fp32),
            "fp16" => Some(Self::Fp16),
            _ => None,
        }
    }

    const fn bytes(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Fp16 => 2.0,
        }
    }
}

/// One built-in workload: a network and what is done with it.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name, as `pillion workload` takes it.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Batch if none is asked for.
    pub batch_default: u32,
    build: fn(batch: u32) -> Network,
    mode: Mode,
}

/// Largest batch: beyond it no device of the table holds the smallest network's activations.
pub const BATCH_MAX: u32 = 4096;

/// Why there is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No workload has that name.
    #[error("unknown workload {name:?}{hint}; known workloads: {known}")]
    UnknownWorkload {
        /// The requested name.
        name: String,
        /// The known name that was probably meant, as a question; empty if none is near.
        hint: String,
        /// All known names.
        known: String,
    },
    /// A batch of that size is not possible.
    #[error("batch {batch}: expected 1 to {BATCH_MAX}")]
    Batch {
        /// The requested batch.
        batch: u32,
    },
    /// The device has no matrix units for the precision.
    #[error("{device} (compute capability {capability}) has no fp16 matrix units: use fp32")]
    NoMatrixUnits {
        /// Name of the device.
        device: String,
        /// Its compute capability.
        capability: String,
    },
}

impl Workload {
    /// All of them, inference before training.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &WORKLOADS
    }

    /// The workload of that name.
    /// # Errors
    /// [`Error::UnknownWorkload`], which names the nearest and all known ones.
    pub fn by_name(name: &str) -> Result<&'static Self, Error> {
        if let Some(workload) = WORKLOADS.iter().find(|w| w.name == name) {
            return Ok(workload);
        }
        let names = || WORKLOADS.iter().map(|workload| workload.name);
        Err(Error::UnknownWorkload {
            name: name.to_owned(),
            hint: profiler::nearest::nearest(name, names())
                .map_or_else(String::new, |meant| format!(" (did you mean {meant:?}?)")),
            known: names().collect::<Vec<_>>().join(", "),
        })
    }

    /// How many layers of each kind its network has, at any batch.
    #[must_use]
    pub fn layer_counts(&self) -> LayerCounts {
        LayerCounts::of(&(self.build)(1))
    }

    /// How many parameters its network has, those of tables included.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let network = (self.build)(1);
        let sizes = network.layers.iter().flat_map(Layer::parameters);
        sizes.sum::<f64>() as u64
    }

    /// The most numbers that a pass over arrays of a request reads and writes. While a request goes
    /// forward, a layer's inputs and outputs are in memory; no parameters, no allocator's cache.
    /// # Errors
    /// [`Error::Batch`].
    pub fn numbers_of_largest_pass(&self, batch: u32) -> Result<u64, Error> {
        let network = (self.build)(checked(batch)?);
        let kernels = lower::lower(&network, self.mode, Precision::Fp32);
        let passes = kernels.iter().filter_map(|kernel| match kernel.work {
            Work::Stream(stream) => Some(stream.numbers),
            Work::Matrix(_) => None,
        });
        Ok(passes.fold(0.0, f64::max) as u64)
    }

    /// The trace of one request: one forward pass, one training step, or one decoding step. `batch`
    /// is the default if not given.
    /// # Errors
    /// [`Error::Batch`], [`Error::NoMatrixUnits`].
    pub fn trace(
        &self,
        batch: Option<u32>,
        device: &Device,
        precision: Precision,
    ) -> Result<Trace, Error> {
        let batch = checked(batch.unwrap_or(self.batch_default))?;
        if precision == Precision::Fp16 && roofline::matrix_units_per_clock(device).is_none() {
            return Err(Error::NoMatrixUnits {
                device: device.name.clone(),
                capability: device.compute_capability.to_string(),
            });
        }
        let network = (self.build)(batch);
        let kernels = lower::lower(&network, self.mode, precision);
        Ok(trace_of(&kernels, device, precision))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn checked(batch: u32) -> Result<u32, Error> {
    match batch {
        1..=BATCH_MAX => Ok(batch),
        _ => Err(Error::Batch { batch }),
    }
}

/// The launch of a library's product of matrices, `batch` times an m x k with a k x n matrix.
#[must_use]
pub fn product(
    name: &str,
    batch: f64,
    [m, n, k]: [f64; 3],
    device: &Device,
    precision: Precision,
) -> TraceKernel {
    let matrix = Matrix {
        algorithm: Algorithm::Product,
        batch,
        m,
        n,
        k,
        numbers: batch * (m * k + k * n + m * n),
    };
    let kernel = Kernel {
        name: name.to_owned(),
        work: Work::Matrix(matrix),
    };
    roofline::trace_kernel(&kernel, device, precision)
}

/// The launches in order; equal kernels are one.
fn trace_of(kernels: &[Kernel], device: &Device, precision: Precision) -> Trace {
    debug_assert!(kernels.len() <= LAUNCHES_MAX, "a network of that size");
    let mut indices: HashMap<&str, u32> = HashMap::new();
    let mut table: Vec<TraceKernel> = Vec::new();
    let mut launches = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let next = u32::try_from(table.len()).unwrap_or(u32::MAX);
        let index = *indices.entry(&kernel.name).or_insert(next);
        if index == next {
            table.push(roofline::trace_kernel(kernel, device, precision));
        }
        launches.push(index);
    }
    Trace {
        device: device.name.clone(),
        kernels: table,
        launches,
    }
}

const fn workload(
    name: &'static str,
    about: &'static str,
    batch_default: u32,
    build: fn(u32) -> Network,
    mode: Mode,
) -> Workload {
    Workload {
        name,
        about,
        batch_default,
        build,
        mode,
    }
}

static WORKLOADS: [Workload; 38] = [
    workload(
        "resnet18-inference",
        "image classification, 224 x 224",
        4,
        network::resnet::resnet18,
        Mode::Inference,
    ),
    workload(
        "resnet50-inference",
        "image classification, 224 x 224",
        4,
        network::resnet::resnet50,
        Mode::Inference,
    ),
    workload(
        "resnet101-inference",
        "image classification, 224 x 224",
        4,
        network::resnet::resnet101,
        Mode::Inference,
    ),
    workload(
        "resnet152-inference",
        "image classification, 224 x 224",
        1,
        network::resnet::resnet152,
        Mode::Inference,
    ),
    workload(
        "wide-resnet101-inference",
        "image classification, 224 x 224, twice the channels inside blocks",
        4,
        network::resnet::wide_resnet101_2,
        Mode::Inference,
    ),
    workload(
        "vgg16-inference",
        "image classification, 224 x 224",
        4,
        network::vgg::vgg16,
        Mode::Inference,
    ),
    workload(
        "vgg19-inference",
        "image classification, 224 x 224",
        1,
        network::vgg::vgg19,
        Mode::Inference,
    ),
    workload(
        "densenet201-inference",
        "image classification, 224 x 224",
        4,
        network::densenet::densenet201,
        Mode::Inference,
    ),
    workload(
        "inceptionv3-inference",
        "image classification, 299 x 299",
        4,
        network::inception::inceptionv3,
        Mode::Inference,
    ),
    workload(
        "mobilenetv2-inference",
        "image classification, 224 x 224",
        4,
        network::mobilenet::mobilenetv2,
        Mode::Inference,
    ),
    workload(
        "yolov5n-inference",
        "object detection, 640 x 640",
        1,
        network::yolo::yolov5n,
        Mode::Inference,
    ),
    workload(
        "yolov5x-inference",
        "object detection, 640 x 640",
        1,
        network::yolo::yolov5x,
        Mode::Inference,
    ),
    workload(
        "yolos-small-inference",
        "object detection, 512 x 864, 1829 tokens",
        1,
        network::yolos::small,
        Mode::Inference,
    ),
    workload(
        "bert-medium-inference",
        "question answering, 384 tokens",
        2,
        network::bert::medium,
        Mode::Inference,
    ),
    workload(
        "bert-base-inference",
        "question answering, 384 tokens",
        2,
        network::bert::base,
        Mode::Inference,
    ),
    workload(
        "bert-large-inference",
        "question answering, 384 tokens",
        2,
        network::bert::large,
        Mode::Inference,
    ),
    workload(
        "roberta-base-inference",
        "question answering, 384 tokens",
        2,
        network::bert::roberta_base,
        Mode::Inference,
    ),
    workload(
        "gpt2-inference",
        "the next word at each of 512 tokens per sequence",
        4,
        network::gpt::small,
        Mode::Inference,
    ),
    workload(
        "gpt-1.3b-prefill",
        "one prompt of 512 tokens per sequence",
        1,
        network::gpt::prefill,
        Mode::Inference,
    ),
    workload(
        "gpt-1.3b-decode",
        "one token per sequence after 1024",
        8,
        network::gpt::decode,
        Mode::Inference,
    ),
    workload(
        "resnet18-cifar10-training",
        "one step on images of 32 x 32, gradient descent with weight decay",
        128,
        network::resnet::resnet18_cifar10,
        Mode::Training,
    ),
    workload(
        "resnet18-training",
        "one step, gradient descent with weight decay",
        128,
        network::resnet::resnet18,
        Mode::Training,
    ),
    workload(
        "resnet50-training",
        "one step, gradient descent with weight decay",
        32,
        network::resnet::resnet50,
        Mode::Training,
    ),
    workload(
        "resnet101-training",
        "one step, gradient descent with weight decay",
        32,
        network::resnet::resnet101,
        Mode::Training,
    ),
    workload(
        "wide-resnet101-training",
        "one step, gradient descent with weight decay, twice the channels inside blocks",
        32,
        network::resnet::wide_resnet101_2,
        Mode::Training,
    ),
    workload(
        "vgg16-training",
        "one step, gradient descent with weight decay",
        32,
        network::vgg::vgg16,
        Mode::Training,
    ),
    workload(
        "densenet201-training",
        "one step, gradient descent with weight decay",
        32,
        network::densenet::densenet201,
        Mode::Training,
    ),
    workload(
        "inceptionv3-training",
        "one step, gradient descent with weight decay, without auxiliary classifier",
        32,
        network::inception::inceptionv3,
        Mode::Training,
    ),
    workload(
        "mobilenetv2-training",
        "one step, gradient descent with weight decay",
        32,
        network::mobilenet::mobilenetv2,
        Mode::Training,
    ),
    workload(
        "squeezenet-training",
        "one step, gradient descent with weight decay",
        32,
        network::squeezenet::squeezenet,
        Mode::Training,
    ),
    workload(
        "squeezenet-cifar10-training",
        "one step on images of 32 x 32, gradient descent with weight decay",
        512,
        network::squeezenet::squeezenet_cifar10,
        Mode::Training,
    ),
    workload(
        "yolov5s-training",
        "one step of object detection, 640 x 640, gradient descent with weight decay",
        16,
        network::yolo::yolov5s,
        Mode::Training,
    ),
    workload(
        "bert-base-training",
        "one step, Adam with clipping by norm, tensor by tensor",
        8,
        network::bert::base,
        Mode::Training,
    ),
    workload(
        "bert-large-training",
        "one step, Adam with clipping by norm, tensor by tensor",
        4,
        network::bert::large,
        Mode::Training,
    ),
    workload(
        "gpt2-training",
        "one step on 512 tokens per sequence, Adam with clipping by norm, tensor by tensor",
        8,
        network::gpt::small,
        Mode::Training,
    ),
    workload(
        "ncf-training",
        "one step of recommending films, gradient descent with weight decay",
        1024,
        network::ncf::neumf,
        Mode::Training,
    ),
    workload(
        "lstm-training",
        "one step on 35 words per sequence, gradient descent with clipping by norm",
        20,
        network::lstm::word_model,
        Mode::Training,
    ),
    workload(
        "gin-training",
        "one step on two views of graphs of 430 nodes, Adam with clipping by norm",
        64,
        network::gin::encoder,
        Mode::Contrastive,
    ),
];

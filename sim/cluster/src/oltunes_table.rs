//! How fast the inference models of `OLTunes` are on its GPUs, alone and in pairs, in the simulator
//! of one GPU: the truth of the comparison with `OLTunes` (Journal of Supercomputing, 2025,
//! sections 2.2 and 4.1). Eight models ([`MODELS`], its Tables 6 and 7) run on three models of GPU
//! ([`GPUS`], its Table 5), alone with each batch of [`BATCHES`] and each share of [`SHARES_PCT`],
//! and in pairs with each batch of [`PAIR_BATCHES`] under each [`Mechanism`]. `tables/oltunes.csv`
//! has the numbers, [`measure`] computes them, and `examples/oltunes_table.rs` writes the file.
//!
//! # What differs from the publication
//! - The paper's GPT-2 has 1.5 billion parameters. Here it is the workload `gpt-1.3b-prefill`, a
//!   decoder of 1.3 billion that reads a prompt of 512 tokens for each input.
//! - Table 6 says "Base, medium" of BERT. Medium is taken to be Google's BERT-medium, of 8 layers
//!   and width 512. Both read 384 tokens, as other workloads on SQuAD here do.
//! - Table 7 has rates for "BERT-base" only. They are taken to be those of Table 6's row, so of
//!   both variants, as those of "YOLOv5" and "ResNet(50,152)".
//! - The paper has an A100 of 40 GB with 250 W, which is the PCIe board. Here it is the SXM4 board,
//!   whose limits the device table has; its SMs are as many, and as fast.
//! - A task with a share of the SMs launches the kernels that a library would choose for all of
//!   them, which fill fewer SMs worse. So at a share an input of a larger batch may take longer.
//! - Memory is not modelled: a task's need is an estimate ([`InferenceTable::memory_bytes`]), and
//!   tasks that need more than there is are in the table as well.
//!
//! # Terms and units
//! A GPU and a model are named by their places in the lists. A task is a model with a batch, in
//! inputs that are answered together. All compute in 32 bits on the ordinary units, "full
//! precision" in Table 6. The speed that a task keeps is ÷ alone on the whole GPU, 0 to 1; it runs
//! one batch after the other, and so does its neighbour. So high-priority work beside leaves a GPU
//! to best-effort work only between its batches and where its kernels do not fill the SMs: that
//! keeps 1 % of its speed on the mean under `orion` and 6 % under `pillion`. Readers of the table
//! must add time in which no high-priority batch runs.

use workloads::Workload;

pub mod measure;
mod read;
#[cfg(test)]
mod tests;

pub use crate::table::TableError;

/// The models of GPU, by their names in the device table.
pub const GPUS: [&str; 3] = ["RTX-4090", "A100-SXM4-40GB", "A30"];

/// Batches of tasks alone. The paper's Table 3 goes on to 256.
pub const BATCHES: [u32; 6] = [1, 4, 8, 16, 32, 64];

/// Shares of the SMs, per cent: `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`.
pub const SHARES_PCT: [u32; 5] = [20, 40, 60, 80, 100];

/// Batches of tasks in pairs; others have the speeds of the nearest.
pub const PAIR_BATCHES: [u32; 3] = [1, 8, 32];

/// Batches of which kernels are counted for the paper's Eq. 1, which names none.
pub const RATIO_BATCHES: [u32; 2] = [1, 16];

/// The place in [`GPUS`] of the GPU on which kernels are counted: the paper's for analysis.
pub const RATIO_GPU: usize = 1;

/// The size of a model among those of its family (section 2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// One of the large ones, with the better answers.
    High,
    /// One of the small ones.
    Low,
    /// The family has no other.
    Only,
}

/// An inference model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Its name in the table.
    pub name: &'static str,
    /// The built-in workload.
    pub workload: &'static str,
    /// Its family.
    pub family: &'static str,
    /// Its size: the paper calls ResNet-18 "lightweight", ResNet-50 and 152 "larger variants".
    pub variant: Variant,
    /// Within this an input is to be answered, ms (Table 6).
    pub slo_ms: f64,
    /// It takes images; others take text.
    pub is_vision: bool,
    /// Inputs per second at equal intervals (Table 7; of a row of variants an equal part each).
    pub rps_uniform: f64,
    /// The same where they arrive at random.
    pub rps_poisson: f64,
}

/// All models, in the order of Table 6.
pub const MODELS: [Model; 8] = [
    Model {
        name: "resnet18",
        workload: "resnet18-inference",
        family: "resnet",
        variant: Variant::Low,
        slo_ms: 10.0,
        is_vision: true,
        rps_uniform: 70.0,
        rps_poisson: 60.0,
    },
    Model {
        name: "yolov5n",
        workload: "yolov5n-inference",
        family: "yolov5",
        variant: Variant::Low,
        slo_ms: 25.0,
        is_vision: true,
        rps_uniform: 25.0,
        rps_poisson: 20.0,
    },
    Model {
        name: "yolov5x",
        workload: "yolov5x-inference",
        family: "yolov5",
        variant: Variant::High,
        slo_ms: 45.0,
        is_vision: true,
        rps_uniform: 25.0,
        rps_poisson: 20.0,
    },
    Model {
        name: "bert-medium",
        workload: "bert-medium-inference",
        family: "bert",
        variant: Variant::Low,
        slo_ms: 150.0,
        is_vision: false,
        rps_uniform: 5.0,
        rps_poisson: 2.5,
    },
    Model {
        name: "bert-base",
        workload: "bert-base-inference",
        family: "bert",
        variant: Variant::High,
        slo_ms: 150.0,
        is_vision: false,
        rps_uniform: 5.0,
        rps_poisson: 2.5,
    },
    Model {
        name: "resnet50",
        workload: "resnet50-inference",
        family: "resnet",
        variant: Variant::High,
        slo_ms: 80.0,
        is_vision: true,
        rps_uniform: 20.0,
        rps_poisson: 12.5,
    },
    Model {
        name: "resnet152",
        workload: "resnet152-inference",
        family: "resnet",
        variant: Variant::High,
        slo_ms: 170.0,
        is_vision: true,
        rps_uniform: 20.0,
        rps_poisson: 12.5,
    },
    Model {
        name: "gpt2",
        workload: "gpt-1.3b-prefill",
        family: "gpt2",
        variant: Variant::Only,
        slo_ms: 200.0,
        is_vision: false,
        rps_uniform: 3.0,
        rps_poisson: 2.0,
    },
];

/// How two tasks share a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// A process each under MPS: every launch goes at once, and none has its own part of the SMs.
    Mps,
    /// MPS, and the policy `orion` with its default numbers: high-priority work goes at once,
    /// best-effort kernels beside it only where they suit it.
    Orion,
    /// MPS, and the policy `pillion` with its default numbers.
    Pillion,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mps, Self::Orion, Self::Pillion];

    /// Its name in tables, which is that of the simulator's policy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mps => "mps",
            Self::Orion => "orion",
            Self::Pillion => "pillion",
        }
    }

    /// Whether it treats both tasks alike.
    #[must_use]
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::Mps)
    }
}

/// A task on a GPU of its own, one batch after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// Mean time of a batch, ms.
    pub latency_ms: f64,
    /// Share of the time of all SMs of the GPU in which an SM has a block, 0 to 1.
    pub sm_activity: f64,
}

/// Kernels of one batch by the resource that they use (Eq. 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Launches with 50 % of the GPU's arithmetic or more.
    pub compute_kernels: u32,
    /// Launches with 50 % of its memory bandwidth or more.
    pub memory_kernels: u32,
}

/// All numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceTable {
    /// By GPU, model, batch and share, the last fastest.
    alone: Vec<Alone>,
    /// Speeds by mechanism, GPU, task and task beside it, the last fastest; of mechanisms that
    /// treat both alike only one of both orders, see [`pair_index`].
    pairs: Vec<[f64; 2]>,
    ratios: Vec<Ratio>,
}

impl InferenceTable {
    /// The table of the repository.
    ///
    /// # Errors
    /// None but by a bug: a test reads it.
    pub fn simulated() -> Result<Self, TableError> {
        let text = include_str!("../tables/oltunes.csv");
        Self::read("oltunes.csv", text.as_bytes())
    }

    /// A task on a GPU of its own, with a share of its SMs under MPS; `None` outside of [`GPUS`],
    /// [`MODELS`], [`BATCHES`] and [`SHARES_PCT`].
    #[must_use]
    pub fn alone(&self, gpu: usize, model: usize, batch: u32, share_pct: u32) -> Option<Alone> {
        let batch = BATCHES.iter().position(|&of| of == batch)?;
        let share = SHARES_PCT.iter().position(|&of| of == share_pct)?;
        if gpu >= GPUS.len() || model >= MODELS.len() {
            return None;
        }
        let index = alone_index(gpu, model, batch, share);
        self.alone.get(index).copied()
    }

    /// Speeds that two tasks (model and batch) keep beside each other, each one batch after the
    /// other, as parts of those alone with 100 %: that of `of`, then that of `beside`. Under
    /// [`Mechanism::Orion`] and [`Mechanism::Pillion`], `of` is high-priority and `beside`
    /// best-effort. Uses the nearest batches of [`PAIR_BATCHES`] ([`pair_batch`]). `None` outside
    /// of [`GPUS`] and [`MODELS`], and of an empty batch.
    #[must_use]
    pub fn speed_beside(
        &self,
        by: Mechanism,
        gpu: usize,
        of: (usize, u32),
        beside: (usize, u32),
    ) -> Option<[f64; 2]> {
        let (of, beside) = (task_at(of)?, task_at(beside)?);
        if gpu >= GPUS.len() {
            return None;
        }
        let is_turned = by.is_symmetric() && of > beside;
        let (first, second) = if is_turned {
            (beside, of)
        } else {
            (of, beside)
        };
        let index = pair_index(by, gpu, first, second);
        let [speed, other] = self.pairs.get(index).copied()?;
        Some(if is_turned {
            [other, speed]
        } else {
            [speed, other]
        })
    }

    /// Kernels of one input by the resource that they use on the GPU [`RATIO_GPU`].
    ///
    /// # Panics
    /// If there is no such model.
    #[must_use]
    pub fn ratio(&self, model: usize) -> Ratio {
        self.ratios[ratio_index(model, 0)]
    }

    /// The same of a batch of [`RATIO_BATCHES`]; `None` of others, and without such a model.
    #[must_use]
    pub fn ratio_of_batch(&self, model: usize, batch: u32) -> Option<Ratio> {
        let batch = RATIO_BATCHES.iter().position(|&of| of == batch)?;
        self.ratios.get(ratio_index(model, batch)).copied()
    }

    /// An estimate of the device memory that a task holds: [`CONTEXT_BYTES`], four bytes for each
    /// parameter, and four for each number that its largest pass over arrays reads and writes,
    /// which a layer of a network that only goes forward has in memory at once. Caches of
    /// allocators and work space of libraries come on top.
    ///
    /// # Panics
    /// If there is no such model, or the batch is none of 1 to [`workloads::BATCH_MAX`].
    #[must_use]
    pub fn memory_bytes(model: usize, batch: u32) -> u64 {
        let name = MODELS[model].workload;
        let workload = Workload::by_name(name).expect("a test finds every model's workload");
        let numbers = workload.numbers_of_largest_pass(batch);
        let numbers = numbers.expect("the caller's batch is of 1 to the most");
        CONTEXT_BYTES + NUMBER_BYTES * (workload.parameters() + numbers)
    }
}

/// Memory of a process with a context before any allocation: about half a gigabyte on these GPUs
/// with the libraries of a framework. An assumption.
pub const CONTEXT_BYTES: u64 = 500_000_000;

const NUMBER_BYTES: u64 = 4;

/// The batch of [`PAIR_BATCHES`] that is nearest by ratio; of two the greater, which harms more.
#[must_use]
pub fn pair_batch(batch: u32) -> u32 {
    PAIR_BATCHES[pair_batch_at(batch)]
}

fn pair_batch_at(batch: u32) -> usize {
    // Between two of them the border is the square root of their product.
    let above = |pair: &&[u32]| u64::from(batch).pow(2) >= u64::from(pair[0]) * u64::from(pair[1]);
    PAIR_BATCHES.windows(2).filter(above).count()
}

const TASKS: usize = MODELS.len() * PAIR_BATCHES.len();

const PAIRS_UNORDERED: usize = TASKS * (TASKS + 1) / 2;

fn task_at((model, batch): (usize, u32)) -> Option<usize> {
    let is_there = model < MODELS.len() && batch > 0;
    is_there.then(|| model * PAIR_BATCHES.len() + pair_batch_at(batch))
}

/// The place of a pair. Those without order precede; their first task is not after the second.
fn pair_index(by: Mechanism, gpu: usize, of: usize, beside: usize) -> usize {
    let ordered = |place: usize| {
        GPUS.len() * PAIRS_UNORDERED + ((place * GPUS.len() + gpu) * TASKS + of) * TASKS + beside
    };
    match by {
        Mechanism::Mps => {
            debug_assert!(of <= beside, "the caller turns them");
            gpu * PAIRS_UNORDERED + beside * (beside + 1) / 2 + of
        }
        Mechanism::Orion => ordered(0),
        Mechanism::Pillion => ordered(1),
    }
}

const PAIRS: usize = GPUS.len() * (PAIRS_UNORDERED + 2 * TASKS * TASKS);

fn alone_index(gpu: usize, model: usize, batch: usize, share: usize) -> usize {
    ((gpu * MODELS.len() + model) * BATCHES.len() + batch) * SHARES_PCT.len() + share
}

fn ratio_index(model: usize, batch: usize) -> usize {
    model * RATIO_BATCHES.len() + batch
}

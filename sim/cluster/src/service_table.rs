//! What a training does to the inference service beside it, and the service to the training, in the
//! simulator of one GPU: the truth on which placement among services is compared (Mudi, EuroSys'25,
//! section 7.1). Six services ([`SERVICES`], Mudi's Table 1) and nine trainings ([`TRAININGS`], its
//! Table 3) run in pairs on one [`DEVICE`] under MPS. A service that has the share D of the SMs
//! answers its requests in batches of b; the training has the other SMs. There is a cell for each
//! service, training, batch of [`BATCHES`] and share of [`SHARES_PCT`]. `tables/pairs-a100.csv` has
//! the cells, [`measure`] computes them, and `examples/pair_table.rs` writes the file.
//!
//! # What differs from Mudi
//! - Table 3 trains VGG16 and ResNet-50 on images of 32 x 32 in batches of 512 and 1024. The
//!   built-in workloads have these networks at 224 x 224 only, where such batches need about the
//!   memory of the GPU or more. Both have the workload's default batch. The other trainings have
//!   Mudi's.
//! - Optimizers are those of the workloads (`pillion workload`), not those of Table 3. AD-GCL is
//!   the workload `gin-training`.
//! - GPT-2 is the small one of 124 million parameters; Table 1 has 335 million.
//! - All compute on matrix units in 16 bits ([`measure`] says why).
//! - Batches are 1 to 64, where the paper has 16 to 512: at 200 requests a second a batch of 64
//!   needs 315 ms to fill, more than the targets of all services but BERT and YOLOS.
//! - Memory is not modelled; Mudi swaps it.
//!
//! # Terms and units
//! A share is a part of the SMs, 0 to 1. `late` is the share of all requests, answered or not, that
//! take longer than the service's target. Requests arrive at random, [`REQUESTS_PER_S`] a second.
//! The time of a *request* counts from its arrival, so it includes the wait for the batch, that of
//! a *batch* from its start, one batch after the other. An iteration is one step of a training.

use workloads::{LayerCounts, Workload};

pub mod measure;
mod read;
#[cfg(test)]
mod tests;

pub use crate::table::TableError;

/// The model of GPU that the table is of.
pub const DEVICE: &str = "A100-SXM4-40GB";

/// Requests of each service per second: Mudi's mean inter-arrival time is 5 ms.
pub const REQUESTS_PER_S: f64 = 200.0;

/// Requests of a batch.
pub const BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Shares of the service, per cent.
pub const SHARES_PCT: [u32; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

/// An inference service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Its name in the table.
    pub name: &'static str,
    /// The built-in workload.
    pub workload: &'static str,
    /// Within this a request is to be answered, ms (Table 1).
    pub slo_ms: f64,
}

/// How long trainings run, in GPU-hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Less than 1.
    Small,
    /// 1 to 10.
    Medium,
    /// 10 to 100.
    Large,
    /// More than 100.
    XLarge,
}

/// A type of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Its name in the table.
    pub name: &'static str,
    /// The built-in workload.
    pub workload: &'static str,
    /// Samples of an iteration.
    pub batch: u32,
    /// How long it runs.
    pub size: Size,
    /// Trainings of this type in a hundred, by Table 3: weights, as their sum is 102.
    pub weight: u32,
}

/// All services, in the order of Table 1. A service is named by its place here.
pub const SERVICES: [Service; 6] = [
    service("resnet50", "resnet50-inference", 150.0),
    service("inceptionv3", "inceptionv3-inference", 120.0),
    service("gpt2", "gpt2-inference", 100.0),
    service("bert-base", "bert-base-inference", 330.0),
    service("roberta-base", "roberta-base-inference", 110.0),
    service("yolos-small", "yolos-small-inference", 2200.0),
];

/// All trainings, in the order of Table 3. A training is named by its place here.
pub const TRAININGS: [Training; 9] = [
    training("vgg16", "vgg16-training", 32, Size::Small, 14),
    training(
        "squeezenet",
        "squeezenet-cifar10-training",
        512,
        Size::Small,
        14,
    ),
    training("resnet50", "resnet50-training", 32, Size::Small, 14),
    training("ncf", "ncf-training", 1024, Size::Medium, 12),
    training("lstm", "lstm-training", 256, Size::Medium, 12),
    training("gin", "gin-training", 64, Size::Medium, 12),
    training("bert-base", "bert-base-training", 32, Size::Large, 12),
    training("yolov5s", "yolov5s-training", 64, Size::Large, 10),
    training("resnet18", "resnet18-training", 128, Size::XLarge, 2),
];

const fn service(name: &'static str, workload: &'static str, slo_ms: f64) -> Service {
    Service {
        name,
        workload,
        slo_ms,
    }
}

const fn training(
    name: &'static str,
    workload: &'static str,
    batch: u32,
    size: Size,
    weight: u32,
) -> Training {
    Training {
        name,
        workload,
        batch,
        size,
        weight,
    }
}

impl Training {
    /// Layers by kind, from which Mudi predicts interference; `None` if the workload was renamed.
    #[must_use]
    pub fn layer_counts(&self) -> Option<LayerCounts> {
        let workload = Workload::by_name(self.workload).ok()?;
        Some(workload.layer_counts())
    }
}

/// The truth of one pair with one batch at one share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Share of all requests that take longer than the target, 0 to 1. 1 where the service cannot
    /// keep up with its requests, because the queue then grows without end.
    pub late: f64,
    /// The 99th percentile of requests, ms; `None` where the service cannot keep up.
    pub request_p99_ms: Option<f64>,
    /// The 99th percentile of batches one after the other, ms: Mudi's P(b, D, ψ).
    pub batch_p99_ms: f64,
    /// Speed of the training beside the service with its requests.
    pub iterations_per_s: f64,
}

/// The fastest setting of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Requests of a batch.
    pub batch: u32,
    /// The service's share of the SMs, per cent.
    pub share_pct: u32,
    /// Its cell.
    pub cell: Cell,
}

/// All cells.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceTable {
    cells: Vec<Cell>,
    services_alone: Vec<f64>,
    trainings_alone: Vec<f64>,
}

impl ServiceTable {
    /// The table of the repository.
    ///
    /// # Errors
    /// None but by a bug: a test reads it.
    pub fn a100() -> Result<Self, TableError> {
        let text = include_str!("../tables/pairs-a100.csv");
        Self::read("pairs-a100.csv", text.as_bytes())
    }

    /// A cell of the grid; `None` where there is no such service, training, batch or share.
    #[must_use]
    pub fn cell(&self, service: usize, training: usize, batch: u32, pct: u32) -> Option<&Cell> {
        let share = SHARES_PCT.iter().position(|&of| of == pct)?;
        Some(&self.curve(service, training, batch)?[share])
    }

    /// Share of requests that are late with the service at this share, 0 to 1; linear between two
    /// shares of the grid, as all below. `None` outside of the grid.
    #[must_use]
    pub fn late(&self, service: usize, training: usize, batch: u32, share: f64) -> Option<f64> {
        let curve = self.curve(service, training, batch)?;
        interpolated(curve, share, |cell| Some(cell.late))
    }

    /// The 99th percentile of requests, ms; `None` also where the service cannot keep up with its
    /// requests at a share of the grid beside.
    #[must_use]
    pub fn request_p99_ms(
        &self,
        service: usize,
        training: usize,
        batch: u32,
        share: f64,
    ) -> Option<f64> {
        let curve = self.curve(service, training, batch)?;
        interpolated(curve, share, |cell| cell.request_p99_ms)
    }

    /// The 99th percentile of batches one after the other, ms.
    #[must_use]
    pub fn batch_p99_ms(
        &self,
        service: usize,
        training: usize,
        batch: u32,
        share: f64,
    ) -> Option<f64> {
        let curve = self.curve(service, training, batch)?;
        interpolated(curve, share, |cell| Some(cell.batch_p99_ms))
    }

    /// Speed of the training.
    #[must_use]
    pub fn iterations_per_s(
        &self,
        service: usize,
        training: usize,
        batch: u32,
        share: f64,
    ) -> Option<f64> {
        let curve = self.curve(service, training, batch)?;
        interpolated(curve, share, |cell| Some(cell.iterations_per_s))
    }

    /// Speed of the training on a GPU of its own.
    #[must_use]
    pub fn alone_per_s(&self, training: usize) -> Option<f64> {
        self.trainings_alone.get(training).copied()
    }

    /// The 99th percentile of the service's batches on a GPU of its own, one after the other, ms.
    #[must_use]
    pub fn batch_p99_alone_ms(&self, service: usize, batch: u32) -> Option<f64> {
        let place = BATCHES.iter().position(|&of| of == batch)?;
        let alone = self.services_alone.chunks_exact(BATCHES.len());
        alone.skip(service).map(|batches| batches[place]).next()
    }

    /// Of the grid's settings with at most this share of late requests the one with the fastest
    /// training; of equals the one with the smallest batch and share.
    #[must_use]
    pub fn best(&self, service: usize, training: usize, late_max: f64) -> Option<Best> {
        let mut best: Option<Best> = None;
        for batch in BATCHES {
            let curve = self.curve(service, training, batch)?;
            for (&share_pct, &cell) in SHARES_PCT.iter().zip(curve) {
                let is_faster =
                    best.is_none_or(|best| cell.iterations_per_s > best.cell.iterations_per_s);
                if cell.late <= late_max && is_faster {
                    best = Some(Best {
                        batch,
                        share_pct,
                        cell,
                    });
                }
            }
        }
        best
    }

    fn curve(&self, service: usize, training: usize, batch: u32) -> Option<&[Cell]> {
        let batch = BATCHES.iter().position(|&of| of == batch)?;
        if service >= SERVICES.len() || training >= TRAININGS.len() {
            return None;
        }
        let first = cell_index(service, training, batch, 0);
        self.cells.get(first..first + SHARES_PCT.len())
    }
}

fn cell_index(service: usize, training: usize, batch: usize, share: usize) -> usize {
    let pair = service * TRAININGS.len() + training;
    (pair * BATCHES.len() + batch) * SHARES_PCT.len() + share
}

/// Shares of the grid match within this: 0.1 + 0.2 is 0.3.
const SHARE_STEP: f64 = 1e-9;

fn interpolated(curve: &[Cell], share: f64, of: impl Fn(&Cell) -> Option<f64>) -> Option<f64> {
    let at = |place: usize| f64::from(SHARES_PCT[place]) / 100.0;
    if let Some(place) = (0..curve.len()).find(|&place| (at(place) - share).abs() < SHARE_STEP) {
        return of(&curve[place]);
    }
    let above = (1..curve.len()).find(|&place| at(place - 1) < share && share < at(place))?;
    let part = (share - at(above - 1)) / (at(above) - at(above - 1));
    let (low, high) = (of(&curve[above - 1])?, of(&curve[above])?);
    Some(low + part * (high - low))
}

//! What an online service and a training do to each other on one GPU under five ways to share it,
//! in the simulator of one GPU: the truth of the comparison of `MuxFlow` with related work
//! ([`crate::muxflow`]; `MuxFlow`, 2024, sections 7.1, 7.3 and 7.4). Three services ([`SERVICES`])
//! at three rates each and four trainings ([`TRAININGS`]) run in pairs on one [`DEVICE`]. There is
//! a cell for each service, rate, training and [`Mechanism`]. `tables/muxflow-t4.csv` has the
//! cells, [`measure`] computes them, and `examples/muxflow_table.rs` writes the file.
//!
//! # What differs from the publication
//! - The services are three "deployed over hundreds of GPUs at `ByteDance`", with recorded rates of
//!   20 to 190 requests a second. Here they are networks that the paper names, at rates in that
//!   range which keep the GPU busy for 20, 40 and 60 % of the time alone ([`LOADS_PCT`]). Requests
//!   arrive at random and are answered one by one.
//! - The paper profiles how long an iteration takes. Here a latency counts from a request's
//!   arrival, so it includes the wait for the requests before it.
//! - Trainings have 16 images in a batch, as in the suite `muxflow`: about what fits the 40 % of
//!   the memory that the paper gives to trainings. Memory itself is not modelled.
//! - No training restarts for another share: a run is shorter than the 15 minutes between.
//!
//! A *service at a rate* is named by its place among [`SERVICES`] and the place of its rate in
//! [`LOADS_PCT`]. Ratios are ÷ alone: the same service with the same arrivals, or the same
//! training, on a GPU of its own. An iteration is one step of a training.

pub mod measure;
mod read;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::table::TableError;

/// The model of GPU that the table is of.
pub const DEVICE: &str = "T4";

/// For how much of the time the rates of a service keep the GPU busy alone, per cent.
pub const LOADS_PCT: [u32; 3] = [20, 40, 60];

/// An online service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Its name in the table.
    pub name: &'static str,
    /// The built-in workload, one image in a request.
    pub workload: &'static str,
    /// Requests per second, in the order of [`LOADS_PCT`].
    pub rates_per_s: [f64; LOADS_PCT.len()],
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
}

/// All services. Alone a request takes 4.27, 6.34 and 9.16 ms on a T4.
pub const SERVICES: [Service; 3] = [
    service("resnet50", "resnet50-inference", [47.0, 94.0, 140.0]),
    service("inceptionv3", "inceptionv3-inference", [32.0, 63.0, 95.0]),
    service("densenet201", "densenet201-inference", [22.0, 44.0, 66.0]),
];

/// All trainings: those of the paper.
pub const TRAININGS: [Training; 4] = [
    training("resnet50", "resnet50-training"),
    training("vgg16", "vgg16-training"),
    training("densenet201", "densenet201-training"),
    training("inceptionv3", "inceptionv3-training"),
];

const fn service(name: &'static str, workload: &'static str, rates_per_s: [f64; 3]) -> Service {
    Service {
        name,
        workload,
        rates_per_s,
    }
}

const fn training(name: &'static str, workload: &'static str) -> Training {
    Training {
        name,
        workload,
        batch: 16,
    }
}

/// A way to share a GPU between a service and a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// The driver's time slices, equal for both (Gandiva).
    TimeSharing,
    /// Time slices; kernels of the training go only while the service is idle (`AntMan`, PAI).
    PriorityTimeSharing,
    /// One process, the service's stream with the greater priority (`DeepPool`, REEF).
    PriorityStreams,
    /// MPS, a throttle, and for the training the SMs that the service leaves on the mean.
    MuxFlow,
    /// MPS, a throttle, and 40 % of the SMs for the training: the paper's `MuxFlow`-S. It does not
    /// state that fixed share; 40 % is its example in section 4.2.
    MuxFlowFixed,
    /// MPS, and the policy `pillion`: not of the paper.
    Pillion,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TimeSharing,
        Self::PriorityTimeSharing,
        Self::PriorityStreams,
        Self::MuxFlow,
        Self::MuxFlowFixed,
        Self::Pillion,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeSharing => "time-sharing",
            Self::PriorityTimeSharing => "pb-time-sharing",
            Self::PriorityStreams => "pb-multi-stream",
            Self::MuxFlow => "muxflow",
            Self::MuxFlowFixed => "muxflow-s",
            Self::Pillion => "pillion",
        }
    }

    /// The words of a scenario for it: how the device is shared, and the policy.
    #[must_use]
    pub const fn scenario(self) -> (&'static str, &'static str) {
        match self {
            Self::TimeSharing => ("timeslice", "name = \"none\""),
            Self::PriorityTimeSharing => ("timeslice", "name = \"temporal\""),
            Self::PriorityStreams => ("mps", "name = \"stream-priority\""),
            Self::MuxFlow => ("mps", "name = \"muxflow\""),
            Self::MuxFlowFixed => ("mps", "name = \"muxflow\"\nshare_pct = 40"),
            Self::Pillion => ("mps", "name = \"pillion\""),
        }
    }
}

/// Latency of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Mean, ms.
    pub mean_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
}

/// The truth of one pair under one mechanism.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Of the service. If it cannot keep up, of a run of [`measure::RUN_NS`]: more in longer ones.
    pub latency: Latency,
    /// When the last request was answered, after the time in which requests arrived, s.
    pub behind_s: f64,
    /// Speed of the training.
    pub iterations_per_s: f64,
}

impl Cell {
    /// Whether no queue of more than [`BEHIND_S_MAX`] is left at the end.
    #[must_use]
    pub fn keeps_up(&self) -> bool {
        self.behind_s <= BEHIND_S_MAX
    }
}

/// A hundredth of a run: a service further behind at its end answers fewer requests than arrive.
/// Some of the table's cells are behind by 0.46 s or more, and their means are about twice those of
/// runs of half the length, or more; all others are behind by 0.11 s at most.
pub const BEHIND_S_MAX: f64 = 0.4;

/// A cell relative to the numbers alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Mean latency ÷ alone.
    pub latency_mean: f64,
    /// 99th percentile of the latency ÷ alone.
    pub latency_p99: f64,
    /// Whether the service keeps up with its requests.
    pub keeps_up: bool,
    /// Speed of the training ÷ alone.
    pub speed: f64,
}

/// All cells.
#[derive(Clone, Debug, PartialEq)]
pub struct MuxFlowTable {
    /// By service, rate, training and mechanism, the last fastest.
    cells: Vec<Cell>,
    services_alone: Vec<Latency>,
    trainings_alone: Vec<f64>,
}

impl MuxFlowTable {
    /// The table of the repository.
    ///
    /// # Errors
    /// None but by a bug: a test reads it.
    pub fn t4() -> Result<Self, TableError> {
        let text = include_str!("../tables/muxflow-t4.csv");
        Self::read("muxflow-t4.csv", text.as_bytes())
    }

    /// A cell; `None` where there is no such service, rate or training.
    #[must_use]
    pub fn cell(
        &self,
        service: usize,
        load: usize,
        training: usize,
        by: Mechanism,
    ) -> Option<&Cell> {
        let is_there =
            service < SERVICES.len() && load < LOADS_PCT.len() && training < TRAININGS.len();
        if !is_there {
            return None;
        }
        self.cells.get(cell_index(service, load, training, by))
    }

    /// Latency of a service on a GPU of its own.
    #[must_use]
    pub fn latency_alone(&self, service: usize, load: usize) -> Option<Latency> {
        let of = self
            .services_alone
            .chunks_exact(LOADS_PCT.len())
            .nth(service)?;
        of.get(load).copied()
    }

    /// Iterations per second of a training on a GPU of its own.
    #[must_use]
    pub fn alone_per_s(&self, training: usize) -> Option<f64> {
        self.trainings_alone.get(training).copied()
    }

    /// The cell relative to the numbers alone.
    #[must_use]
    pub fn ratios(
        &self,
        service: usize,
        load: usize,
        training: usize,
        by: Mechanism,
    ) -> Option<Ratios> {
        let cell = self.cell(service, load, training, by)?;
        let alone = self.latency_alone(service, load)?;
        Some(Ratios {
            latency_mean: cell.latency.mean_ms / alone.mean_ms,
            latency_p99: cell.latency.p99_ms / alone.p99_ms,
            keeps_up: cell.keeps_up(),
            speed: cell.iterations_per_s / self.alone_per_s(training)?,
        })
    }
}

fn cell_index(service: usize, load: usize, training: usize, by: Mechanism) -> usize {
    let pair = (service * LOADS_PCT.len() + load) * TRAININGS.len() + training;
    pair * Mechanism::ALL.len() + by as usize
}

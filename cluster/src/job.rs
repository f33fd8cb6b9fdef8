//! What a job asks for.

use crate::inventory::{ModelId, WHOLE_MILLI};
use crate::mig::{MigModel, Profile};

/// Number of a job, given by the caller; no two jobs have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Number of what a job computes, in the tables that predict how jobs run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadId(pub u16);

/// The two classes of Pillion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The job has a promise that is kept: inference, in all published clusters.
    HighPriority,
    /// The job takes the rest: training.
    BestEffort,
}

/// A set of models of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Models(u64);

impl Models {
    /// Any model.
    pub const ANY: Self = Self(u64::MAX);

    /// No model.
    pub const NONE: Self = Self(0);

    /// These models.
    pub fn of(models: impl IntoIterator<Item = ModelId>) -> Self {
        Self(models.into_iter().fold(0, |set, m| set | 1 << m.0))
    }

    /// Whether the job may have that model.
    #[must_use]
    pub const fn has(self, model: ModelId) -> bool {
        model.0 < u64::BITS as u16 && self.0 >> model.0 & 1 == 1
    }

    /// The models that are in at least one of the two (union).
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a model is in both.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The demands of a job. A gang (`gpus` > 1) gets all of its GPUs at once, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSpec {
    /// Its number.
    pub id: JobId,
    /// Its class.
    pub class: Class,
    /// How many GPUs; 0 asks for host CPU and memory alone.
    pub gpus: u32,
    /// How much of each of them the job uses when it is alone there, up to [`WHOLE_MILLI`].
    pub gpu_milli: u32,
    /// The part with which it makes progress worth its place: `gpu_milli`, or less if best-effort.
    pub floor_milli: u32,
    /// Device memory on each GPU.
    pub memory_bytes: u64,
    /// Thousandths of a host core, all GPUs together.
    pub cpu_milli: u64,
    /// Host memory, all GPUs together.
    pub host_memory_bytes: u64,
    /// The MIG instance that it asks for, in place of a part of a GPU.
    pub instance: Option<&'static Profile>,
    /// The models that it may have.
    pub models: Models,
    /// Whether its GPUs may lie on several nodes.
    pub spread: bool,
    /// Its workload.
    pub workload: WorkloadId,
    /// The longest time, in thousandths of that alone on what the job asks for; `None`: any.
    pub slo_milli: Option<u32>,
}

impl JobSpec {
    /// A job of so many GPUs and so much of each, with nothing else asked for.
    #[must_use]
    pub fn new(id: u64, class: Class, gpus: u32, gpu_milli: u32) -> Self {
        Self {
            id: JobId(id),
            class,
            gpus,
            gpu_milli,
            floor_milli: gpu_milli,
            memory_bytes: 0,
            cpu_milli: 0,
            host_memory_bytes: 0,
            instance: None,
            models: Models::ANY,
            spread: false,
            workload: WorkloadId(0),
            slo_milli: None,
        }
    }

    /// A job that asks for an instance of a GPU that can be divided, and uses all of that.
    #[must_use]
    pub fn of_instance(id: u64, class: Class, model: &MigModel, profile: &'static Profile) -> Self {
        Self {
            memory_bytes: u64::from(profile.memory_mib) << 20,
            instance: Some(profile),
            ..Self::new(id, class, 1, model.milli(profile))
        }
    }

    /// This job with number 0: equal for jobs with equal requests.
    #[must_use]
    pub fn without_id(&self) -> Self {
        Self {
            id: JobId(0),
            ..self.clone()
        }
    }

    /// Host CPU and memory that go with so many of its GPUs, rounded up; all if it asks for no GPU.
    #[must_use]
    pub fn host_share(&self, gpus: u32) -> (u64, u64) {
        let part = |all: u64| match self.gpus {
            0 => all,
            of => (u128::from(all) * u128::from(gpus)).div_ceil(u128::from(of)) as u64,
        };
        (part(self.cpu_milli), part(self.host_memory_bytes))
    }

    /// Checks the job's numbers.
    ///
    /// # Errors
    /// [`JobError`] names the field.
    pub const fn check(&self) -> Result<(), JobError> {
        let milli = self.gpu_milli;
        if self.gpus > 0 && (milli == 0 || milli > WHOLE_MILLI) {
            return Err(JobError::Milli(milli));
        }
        if self.floor_milli > milli {
            let floor = self.floor_milli;
            return Err(JobError::Floor { floor, milli });
        }
        match self.slo_milli {
            Some(0) => Err(JobError::Slo),
            _ => Ok(()),
        }
    }
}

/// Why a job is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Nothing or more than all of a GPU is asked for.
    #[error("gpu_milli is {0}: expected 1 to {WHOLE_MILLI}")]
    Milli(u32),
    /// The floor is above the job's use alone.
    #[error("floor_milli is {floor}: expected at most gpu_milli, {milli}")]
    Floor {
        /// The floor of the job.
        floor: u32,
        /// Its use alone.
        milli: u32,
    },
    /// A promise of no time.
    #[error("slo_milli is 0: expected 1 or more")]
    Slo,
}

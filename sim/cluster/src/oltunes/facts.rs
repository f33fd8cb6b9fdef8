//! The truth of the comparison's models and GPUs, as arrays that are quick to read, and the cluster
//! of the paper's Table 5.

use cluster::affinity::{Kernels, Traits, Variant};
use cluster::{ModelId, Power};
use devices::Device;
use workloads::Workload;

use crate::oltunes_table::{
    Alone, BATCHES, GPUS, InferenceTable, MODELS, Mechanism, SHARES_PCT, Variant as Size,
};

/// The models of GPU of the eight GPUs, as places in [`GPUS`]: an RTX 4090, two A30s and five
/// A100s, in the order of the paper's section 4.2.3, which numbers the regular ones first.
pub const CLUSTER: [usize; 8] = [0, 2, 2, 1, 1, 1, 1, 1];

/// Power at rest without a known measurement, W: the paper's base.
const IDLE_W: f64 = 60.0;

/// A model of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuFacts {
    /// Its name in the device table.
    pub name: &'static str,
    /// At rest and at most.
    pub power: Power,
    /// Device memory.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sms: f64,
    /// Of single precision, in 10^12 operations a second.
    pub peak_tflops: f64,
    /// Of device memory.
    pub bandwidth_gb_s: f64,
}

/// An inference model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// Its name.
    pub name: &'static str,
    /// Within this a latency-critical input is to be answered.
    pub slo_ms: f64,
    /// It takes images: all its requests are latency-critical.
    pub is_vision: bool,
    /// Requests a second that arrive at equal intervals.
    pub rps_uniform: f64,
    /// The same at random.
    pub rps_poisson: f64,
    /// For affinity.
    pub traits: Traits,
    /// Numbers that it has learnt.
    pub parameters: f64,
}

pub(crate) type Kind = (usize, usize);

/// All facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// By place in [`GPUS`].
    pub gpus: Vec<GpuFacts>,
    /// By place in [`MODELS`].
    pub models: Vec<ModelFacts>,
    alone: Vec<Alone>,
    /// By mechanism, GPU, task and task beside it: the speeds that both keep.
    kept: Vec<[f64; 2]>,
    memory_bytes: Vec<u64>,
}

/// Why there are no facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// The table lacks a number.
    #[error("the table has no {what} of {name}")]
    Missing {
        /// Latency or speed.
        what: &'static str,
        /// Of which model or GPU.
        name: &'static str,
    },
    /// The device table lacks a GPU.
    #[error(transparent)]
    Device(#[from] devices::UnknownDevice),
}

impl Facts {
    /// Those of a table.
    ///
    /// # Errors
    /// [`FactsError`] says what the table lacks.
    pub fn new(table: &InferenceTable) -> Result<Self, FactsError> {
        let gpus = GPUS.into_iter().map(gpu).collect::<Result<_, _>>()?;
        let models = (0..MODELS.len()).map(|place| model(table, place)).collect();
        let memory = (0..MODELS.len())
            .flat_map(|model| BATCHES.map(|batch| InferenceTable::memory_bytes(model, batch)));
        Ok(Self {
            gpus,
            models,
            alone: alone(table)?,
            kept: kept(table)?,
            memory_bytes: memory.collect(),
        })
    }

    pub(crate) fn alone(&self, gpu: usize, (model, batch): Kind, share: usize) -> Alone {
        let place = (gpu * self.models.len() + model) * BATCHES.len() + batch;
        self.alone[place * SHARES_PCT.len() + share]
    }

    /// Speeds that two keep beside each other; under Orion and Pillion the first is high-priority.
    pub(crate) fn kept(&self, by: Mechanism, gpu: usize, of: Kind, beside: Kind) -> [f64; 2] {
        let kinds = self.models.len() * BATCHES.len();
        let place = |(model, batch): Kind| model * BATCHES.len() + batch;
        let first = (by as usize * self.gpus.len() + gpu) * kinds + place(of);
        self.kept[first * kinds + place(beside)]
    }

    pub(crate) fn memory_bytes(&self, (model, batch): Kind) -> u64 {
        self.memory_bytes[model * BATCHES.len() + batch]
    }
}

pub(crate) fn model_id(gpu: usize) -> ModelId {
    ModelId(u16::try_from(gpu).expect("there are three models of GPU"))
}

fn gpu(name: &'static str) -> Result<GpuFacts, FactsError> {
    let device = Device::by_name(name)?;
    let cores = f64::from(device.sms) * f64::from(device.fp32_per_clk_per_sm);
    Ok(GpuFacts {
        name,
        power: Power {
            idle_w: device.idle_w.map_or(IDLE_W, f64::from),
            tdp_w: f64::from(device.tdp_w),
        },
        memory_bytes: device.memory_bytes,
        sms: f64::from(device.sms),
        peak_tflops: 2.0 * cores * f64::from(device.max_clock_mhz) / 1e6,
        bandwidth_gb_s: f64::from(device.bandwidth_gb_s),
    })
}

fn model(table: &InferenceTable, place: usize) -> ModelFacts {
    let model = &MODELS[place];
    let ratio = table.ratio(place);
    let kernels = Kernels {
        compute: ratio.compute_kernels,
        memory: ratio.memory_kernels,
    };
    let workload = Workload::by_name(model.workload);
    ModelFacts {
        name: model.name,
        slo_ms: model.slo_ms,
        is_vision: model.is_vision,
        rps_uniform: model.rps_uniform,
        rps_poisson: model.rps_poisson,
        traits: Traits {
            ratio: kernels.ratio(),
            variant: match model.variant {
                Size::High => Variant::High,
                Size::Low => Variant::Low,
                Size::Only => Variant::Only,
            },
        },
        parameters: workload.map_or(0.0, |workload| workload.parameters() as f64),
    }
}

fn alone(table: &InferenceTable) -> Result<Vec<Alone>, FactsError> {
    let mut all = Vec::new();
    for gpu in 0..GPUS.len() {
        for (place, model) in MODELS.iter().enumerate() {
            for batch in BATCHES {
                for share in SHARES_PCT {
                    let missing = FactsError::Missing {
                        what: "latency alone",
                        name: model.name,
                    };
                    all.push(table.alone(gpu, place, batch, share).ok_or(missing)?);
                }
            }
        }
    }
    Ok(all)
}

fn kept(table: &InferenceTable) -> Result<Vec<[f64; 2]>, FactsError> {
    let kinds = (0..MODELS.len()).flat_map(|model| BATCHES.map(|batch| (model, batch)));
    let kinds: Vec<(usize, u32)> = kinds.collect();
    let mut all = Vec::new();
    for by in [Mechanism::Mps, Mechanism::Orion, Mechanism::Pillion] {
        for gpu in 0..GPUS.len() {
            for &of in &kinds {
                for &beside in &kinds {
                    let missing = FactsError::Missing {
                        what: "speed beside others",
                        name: MODELS[of.0].name,
                    };
                    all.push(table.speed_beside(by, gpu, of, beside).ok_or(missing)?);
                }
            }
        }
    }
    Ok(all)
}

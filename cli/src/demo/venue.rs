//! Chooses where the demo runs: on a software GPU that it starts, or on a GPU of this machine.
//!
//! `--device` selects the software GPU, `--gpu` a GPU of this machine. The default is the first
//! usable NVIDIA GPU, else the software GPU. On a GPU of this machine time is real, kernels are
//! synthetic (`examples/replay/src/ptx.rs`), and MPS is used only if its control daemon runs. A
//! software GPU in place of this machine's (by the environment) is used if `--gpu` selects it, but
//! never reported as hardware: its identity shows.

use anyhow::Context;
use scheduler::config::gpu::{Gpu, Select, choose};
use scheduler::host::device;
use scheduler::host::nvml;
use scheduler::report::told_once;
use serde_json::{Value, json};
use softgpu::{Device, is_software_uuid};

use crate::demo::Options;
use crate::demo::phase::Phase;
use crate::failure::Failure;
use crate::mps::Mps;
use crate::run::select;

/// Default seconds of a phase on the virtual clock, where they cost less.
const SECONDS_SOFTWARE: f64 = 12.0;
/// Default seconds of a phase in real time: 150 requests at 15 a second.
const SECONDS_HARDWARE: f64 = 10.0;
/// The software GPU's default model, and the model for built-in networks on a GPU that is not in
/// the table.
const MODEL: &str = "V100-SXM2-16GB";

#[derive(Debug)]
pub(crate) enum Venue {
    Software(Device),
    Machine(Machine),
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) gpu: Gpu,
    /// Newest supported CUDA version, 1000 · major + 10 · minor.
    cuda: u32,
    driver: Option<String>,
    mps: Mps,
}

impl Venue {
    /// Follows the options, else uses what the machine has; a note explains a choice of the
    /// software GPU. Fails if the model or the GPU does not exist.
    pub(crate) fn choose(options: &Options) -> Result<(Self, Option<String>), Failure> {
        if let Some(name) = &options.gpu {
            let gpu = select(name).map_err(Failure::usage)?;
            return Ok((Self::Machine(Machine::new(gpu)?), None));
        }
        if let Some(model) = &options.device {
            return Ok((
                Self::Software(Device::by_name(model).map_err(Failure::usage)?),
                None,
            ));
        }
        let software = Device::by_name(MODEL).map_err(Failure::usage)?;
        let gpus = match device::gpus() {
            Ok(gpus) => gpus,
            Err(error) => {
                let error = told_once(&error);
                let note = format!(
                    "using the software GPU, because no NVIDIA GPU is usable here: {error}"
                );
                return Ok((Self::Software(software), Some(note)));
            }
        };
        let hardware: Vec<Gpu> = gpus
            .into_iter()
            .filter(|gpu| !is_software_uuid(&gpu.uuid))
            .collect();
        if hardware.is_empty() {
            let note = "the GPU that libcuda.so.1 shows is a software GPU; the demo starts another one (--gpu 0 uses the existing one)";
            return Ok((Self::Software(software), Some(note.to_owned())));
        }
        let gpu = choose(hardware, &Select::Index(0)).map_err(Failure::usage)?;
        Ok((Self::Machine(Machine::new(gpu)?), None))
    }

    pub(crate) fn seconds(&self) -> f64 {
        match self {
            Self::Software(_) => SECONDS_SOFTWARE,
            Self::Machine(_) => SECONDS_HARDWARE,
        }
    }

    /// The device for which built-in networks are computed. Fails only if the table lacks
    /// [`MODEL`].
    pub(crate) fn model(&self) -> anyhow::Result<Device> {
        match self {
            Self::Software(device) => Ok(device.clone()),
            Self::Machine(machine) => {
                let plain = plain_name(&machine.gpu.name);
                let known = Device::all()
                    .iter()
                    .find(|device| plain_name(&device.name) == plain);
                known.map_or_else(|| Ok(Device::by_name(MODEL)?), |device| Ok(device.clone()))
            }
        }
    }

    pub(crate) fn machine(&self) -> Option<&Machine> {
        match self {
            Self::Software(_) => None,
            Self::Machine(machine) => Some(machine),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Software(device) => &device.name,
            Self::Machine(machine) => &machine.gpu.name,
        }
    }

    pub(crate) fn is_software(&self) -> bool {
        self.machine()
            .is_none_or(|machine| is_software_uuid(&machine.gpu.uuid))
    }

    pub(crate) fn phases(&self) -> Vec<Phase> {
        let has_mps = self
            .machine()
            .is_none_or(|machine| machine.mps.pid.is_some());
        let phases = Phase::ALL.into_iter();
        phases
            .filter(|phase| has_mps || phase.sharing() != "mps")
            .collect()
    }

    /// Reports the phases that are not possible here.
    pub(crate) fn not_done(&self) -> Option<String> {
        let machine = self.machine()?;
        (self.phases().len() < Phase::ALL.len()).then(|| {
            format!(
                "the phases under MPS were skipped: the MPS control daemon {}; start it (nvidia-cuda-mps-control -d) to \
                 run them",
                machine.mps.state()
            )
        })
    }
}

impl Machine {
    fn new(gpu: Gpu) -> anyhow::Result<Self> {
        Ok(Self {
            gpu,
            cuda: device::driver_version().context("cannot read the driver's version")?,
            driver: nvml::ask().ok().map(|nvml| nvml.driver_version),
            mps: Mps::look(),
        })
    }

    pub(crate) fn described(&self) -> String {
        let driver = self
            .driver
            .as_deref()
            .map_or(String::new(), |v| format!("driver {v}, "));
        let (major, minor) = (self.cuda / 1000, self.cuda % 1000 / 10);
        format!(
            "{} ({}, {driver}CUDA {major}.{minor})",
            self.gpu.name, self.gpu.uuid
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "uuid": self.gpu.uuid,
            "pci": self.gpu.pci.to_string(),
            "sms": self.gpu.sms,
            "driver": self.driver,
            "cuda": self.cuda,
            "mps": self.mps.pid.is_some(),
        })
    }
}

/// A model's name without maker and brand, as drivers and tables write it.
fn plain_name(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(' ', "-");
    let name = name.trim_start_matches("nvidia-");
    name.trim_start_matches("tesla-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_calls_a_gpu_is_found_in_the_table() {
        for (told, table) in [
            ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
            ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
            ("NVIDIA H100 PCIe", "H100-PCIe"),
            ("Tesla T4", "T4"),
        ] {
            assert_eq!(plain_name(told), plain_name(table));
            assert!(Device::by_name(table).is_ok(), "{table}");
        }
    }
}

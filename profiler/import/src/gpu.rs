//! The GPU that launches ran on: what a file says of it, and what the device table knows.
//!
//! Files lie in known ways: under an MPS limit or in a MIG slice the driver reports the share, not
//! the GPU; a report of a Turing board said 0 blocks per SM. So what a file states is compared
//! with the device table, a difference is said, and what is impossible is not used.

use softgpu::Device;

use crate::occupancy::SmLimits;

/// A GPU as a file describes it. What a file does not state is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The name, as the driver gives it.
    pub name: Option<String>,
    /// CUDA compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// SMs that the job saw.
    pub sms: Option<u32>,
    /// Resident warps per SM.
    pub warps_per_sm: Option<u32>,
    /// Resident blocks per SM.
    pub blocks_per_sm: Option<u32>,
    /// Registers per SM.
    pub registers_per_sm: Option<u32>,
    /// Most shared memory per SM, bytes.
    pub shared_bytes_per_sm: Option<u32>,
    /// Peak bandwidth of device memory, bytes per second.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Highest clock of the SMs, Hz.
    pub clock_hz: Option<u64>,
    /// Whether the file says that the job ran under MPS.
    pub uses_mps: bool,
}

impl Gpu {
    /// Takes from `other`, which describes the same GPU, what is not stated here.
    pub fn complete(&mut self, other: Self) {
        self.name = self.name.take().or(other.name);
        self.compute_capability = self.compute_capability.or(other.compute_capability);
        self.sms = self.sms.or(other.sms);
        self.warps_per_sm = self.warps_per_sm.or(other.warps_per_sm);
        self.blocks_per_sm = self.blocks_per_sm.or(other.blocks_per_sm);
        self.registers_per_sm = self.registers_per_sm.or(other.registers_per_sm);
        self.shared_bytes_per_sm = self.shared_bytes_per_sm.or(other.shared_bytes_per_sm);
        self.bandwidth_bytes_per_s = self.bandwidth_bytes_per_s.or(other.bandwidth_bytes_per_s);
        self.clock_hz = self.clock_hz.or(other.clock_hz);
        self.uses_mps |= other.uses_mps;
    }

    /// What to call it in a message.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or("a GPU without a name")
    }

    /// The model in the device table, if the table has this GPU.
    #[must_use]
    pub fn model(&self) -> Option<&'static Device> {
        let name = self.name.as_deref()?;
        let model = MODELS.iter().find(|model| model.is(name))?;
        find(model.device)
    }

    /// A model of the device table with the same chip, where the table does not have this GPU
    /// itself but another board with it: SMs are comparable, memory is not.
    #[must_use]
    pub fn relative(&self) -> Option<&'static Device> {
        let name = self.name.as_deref()?;
        let relative = RELATIVES.iter().find(|model| model.is(name));
        self.model().or_else(|| find(relative?.device))
    }

    /// The limits of one of its SMs: those of its compute capability, with what the file states
    /// where that is possible. `None` if neither is known.
    #[must_use]
    pub fn sm_limits(&self) -> Option<SmLimits> {
        let model = self.relative().map(|device| device.compute_capability);
        let capability = self.compute_capability;
        let (major, minor) = capability.or(model.map(|model| (model.major, model.minor)))?;
        let mut limits = SmLimits::of(major, minor)?;
        let stated = |stated: Option<u32>, usual: u32| stated.filter(|&n| n > 0).unwrap_or(usual);
        limits.warps = stated(self.warps_per_sm, limits.warps);
        limits.blocks = stated(self.blocks_per_sm, limits.blocks);
        limits.registers = stated(self.registers_per_sm, limits.registers);
        limits.shared_bytes = stated(self.shared_bytes_per_sm, limits.shared_bytes);
        Some(limits)
    }

    /// The SMs of the whole GPU: what the table says where it knows better than the file.
    #[must_use]
    pub fn sms_whole(&self) -> Option<u32> {
        self.relative().map(|device| device.sms).or(self.sms)
    }

    /// What is to be said about the number of SMs, if the file saw less than the GPU has.
    #[must_use]
    pub fn sms_notice(&self) -> Option<String> {
        let (sms, device) = (self.sms?, self.relative()?);
        if sms == device.sms {
            return None;
        }
        let why = if sms > device.sms {
            "another board than the device table has"
        } else if self.uses_mps || sms * 7 % device.sms != 0 {
            "taken under an MPS limit or in a MIG slice"
        } else {
            "taken in a MIG slice"
        };
        Some(format!(
            "{} is stated with {sms} SMs, and {} has {}: {why}; durations are those of the share, \
             so profile on the whole GPU if the job will have it",
            self.shown(),
            device.name,
            device.sms,
        ))
    }
}

/// Words that a driver's name for a GPU must have, words it must not have, and its name in the
/// device table.
struct Model {
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    device: &'static str,
}

impl Model {
    fn is(&self, name: &str) -> bool {
        let has = |word: &&str| {
            name.split(|c: char| !c.is_ascii_alphanumeric())
                .any(|part| part.eq_ignore_ascii_case(word))
        };
        self.has.iter().all(has) && !self.lacks.iter().any(has)
    }
}

const fn model(
    has: &'static [&'static str],
    lacks: &'static [&'static str],
    device: &'static str,
) -> Model {
    Model { has, lacks, device }
}

/// How drivers name the models of the device table. `cudaDeviceProp.name` as seen in real reports,
/// with and without the brand ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"). The table's own
/// names are here too.
const MODELS: [Model; 24] = [
    model(&["V100", "SXM2", "16GB"], &["MIG"], "V100-SXM2-16GB"),
    model(&["T4"], &["MIG"], "T4"),
    model(&["TITAN", "RTX"], &[], "TITAN-RTX"),
    model(&["A100", "SXM4", "40GB"], &["MIG"], "A100-SXM4-40GB"),
    model(&["A100", "SXM4", "80GB"], &["MIG"], "A100-SXM4-80GB"),
    model(&["A100", "SXM", "80GB"], &["MIG"], "A100-SXM4-80GB"),
    model(&["A30"], &["MIG"], "A30"),
    model(&["A10"], &["MIG"], "A10"),
    model(&["A40"], &["MIG"], "A40"),
    model(&["RTX", "A6000"], &[], "RTX-A6000"),
    model(&["RTX", "3090"], &["TI", "LAPTOP"], "RTX-3090"),
    model(&["RTX", "3060"], &["TI", "LAPTOP"], "RTX-3060"),
    model(&["L4"], &["MIG"], "L4"),
    model(&["L40S"], &["MIG"], "L40S"),
    model(&["RTX", "4090"], &["D", "LAPTOP"], "RTX-4090"),
    model(&["H100", "PCIe"], &["MIG"], "H100-PCIe"),
    model(&["H100", "HBM3", "80GB"], &["MIG"], "H100-SXM5-80GB"),
    model(&["H100", "SXM5", "80GB"], &["MIG"], "H100-SXM5-80GB"),
    model(
        &["H100", "SXM5"],
        &["MIG", "96GB", "64GB"],
        "H100-SXM5-80GB",
    ),
    model(&["H200"], &["MIG", "NVL", "GH200"], "H200"),
    model(&["B200"], &["MIG"], "B200"),
    model(&["RTX", "5060", "Ti"], &["LAPTOP"], "RTX-5060-Ti"),
    model(&["RTX5060Ti"], &[], "RTX-5060-Ti"),
    model(&["RTX4090"], &[], "RTX-4090"),
];

/// Boards that the table lacks and whose SMs are those of one that it has.
const RELATIVES: [Model; 7] = [
    model(&["V100"], &["V100S"], "V100-SXM2-16GB"),
    model(&["A100"], &[], "A100-SXM4-40GB"),
    model(&["Quadro", "RTX", "6000"], &["Ada"], "TITAN-RTX"),
    model(&["A30"], &[], "A30"),
    model(&["H100", "PCIe"], &[], "H100-PCIe"),
    model(&["H100", "HBM3"], &[], "H100-SXM5-80GB"),
    model(&["H200"], &[], "H200"),
];

/// The device of that name in the table.
fn find(name: &str) -> Option<&'static Device> {
    Device::all().iter().find(|device| device.name == name)
}

#[cfg(test)]
mod tests {
    use super::{Gpu, MODELS, RELATIVES, find};

    fn gpu(name: &str, sms: u32) -> Gpu {
        Gpu {
            name: Some(name.to_owned()),
            sms: Some(sms),
            ..Gpu::default()
        }
    }

    #[test]
    fn the_names_of_drivers_lead_to_the_device_table() {
        for (name, expected) in [
            ("Tesla V100-SXM2-16GB", Some("V100-SXM2-16GB")),
            ("Tesla V100-DGXS-32GB", None),
            ("NVIDIA A100-SXM4-40GB", Some("A100-SXM4-40GB")),
            ("NVIDIA A100-SXM4-80GB", Some("A100-SXM4-80GB")),
            ("NVIDIA A100-PG509-200", None),
            ("NVIDIA H100 80GB HBM3", Some("H100-SXM5-80GB")),
            ("NVIDIA H100 PCIe", Some("H100-PCIe")),
            ("Tesla T4", Some("T4")),
            ("NVIDIA A10G", None),
            ("NVIDIA A10", Some("A10")),
            ("NVIDIA GeForce RTX 4060 Ti", None),
            ("NVIDIA A30 MIG 2g.12gb", None),
            ("h100-sxm5-80gb", Some("H100-SXM5-80GB")),
        ] {
            let model = gpu(name, 1).model().map(|device| device.name.as_str());
            assert_eq!(model, expected, "{name}");
        }
    }

    #[test]
    fn every_model_is_in_the_table_and_every_device_leads_to_itself() {
        for model in MODELS.iter().chain(&RELATIVES) {
            assert!(find(model.device).is_some(), "{}", model.device);
        }
        for device in softgpu::Device::all() {
            assert_eq!(gpu(&device.name, 1).model(), Some(device));
        }
    }

    #[test]
    fn fewer_sms_than_the_gpu_has_are_said() {
        assert_eq!(gpu("Tesla V100-SXM2-16GB", 80).sms_notice(), None);
        let notice = gpu("Tesla V100-SXM2-16GB", 16).sms_notice();
        let notice = notice.expect("16 are not 80");
        assert!(
            notice.contains("16 SMs") && notice.contains("MPS"),
            "{notice}"
        );
        let notice = gpu("NVIDIA A30 MIG 2g.12gb", 28).sms_notice();
        assert!(notice.is_some_and(|notice| notice.contains("MIG")));
        assert_eq!(gpu("NVIDIA GeForce RTX 4060 Ti", 34).sms_notice(), None);
    }

    #[test]
    fn limits_that_cannot_be_are_those_of_the_architecture() {
        let turing = Gpu {
            compute_capability: Some((7, 5)),
            blocks_per_sm: Some(0),
            ..gpu("Quadro RTX 6000", 72)
        };
        assert_eq!(turing.sm_limits().map(|limits| limits.blocks), Some(16));
    }
}

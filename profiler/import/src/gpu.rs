//! The GPU of a file's launches, compared with the device table. Files are wrong in known ways:
//! under an MPS limit or in a MIG slice the driver reports the share, not the GPU; a report of a
//! Turing board stated 0 blocks per SM. So differences are reported, and impossible values ignored.

use devices::Device;

use crate::occupancy::SmLimits;

/// A GPU as a file describes it. Unstated values are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The name, as the driver gives it.
    pub name: Option<String>,
    /// CUDA compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// SMs visible to the job.
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
    /// Whether the file states that the job ran under MPS.
    pub uses_mps: bool,
}

impl Gpu {
    /// Fills unstated values from `other`, which describes the same GPU.
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

    /// Its name in messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or("a GPU without a name")
    }

    /// The model in the device table, if the table has this GPU.
    #[must_use]
    pub fn model(&self) -> Option<&'static Device> {
        devices::model_of(self.name.as_deref()?)
    }

    /// Another board of the device table with the same chip: SMs are comparable, memory is not.
    #[must_use]
    pub fn relative(&self) -> Option<&'static Device> {
        devices::relative_of(self.name.as_deref()?)
    }

    /// An SM's limits: its compute capability's, with the file's values where possible, if any.
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

    /// A notice about the number of SMs, if the file saw less than the GPU has.
    #[must_use]
    pub fn sms_notice(&self) -> Option<String> {
        let (sms, device) = (self.sms?, self.relative()?);
        if sms == device.sms {
            return None;
        }
        let why = if sms > device.sms {
            "a different board than in the device table"
        } else if self.uses_mps || sms * 7 % device.sms != 0 {
            "measured under an MPS limit or in a MIG slice"
        } else {
            "measured in a MIG slice"
        };
        Some(format!(
            "the file reports {sms} SMs for {}, but {} has {}: {why}; durations apply to that \
             share, so profile on the whole GPU if the job will run on it",
            self.shown(),
            device.name,
            device.sms,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Gpu;

    fn gpu(name: &str, sms: u32) -> Gpu {
        Gpu {
            name: Some(name.to_owned()),
            sms: Some(sms),
            ..Gpu::default()
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

//! Report to a monitor (the stand-in NVML): the device's description, its use, and its users. A
//! monitor sends one request and gets one packet, then the server closes the connection. It has no
//! page, no context and no part in the virtual clock. Use is reported as integrals at instants, so
//! that the monitor divides differences; the last instant is now.

use serde::{Deserialize, Serialize};

use super::{TEXT_BYTES_MAX, WireError};

/// Most past instants in a report.
pub const SAMPLES_MAX: usize = 64;
/// Device time between two of them: NVML's shortest sample period (nvml.h: 1/6 s to 1 s).
pub const SAMPLE_NS: u64 = 1_000_000_000 / 6;
/// Most processes in a report.
pub const PROCESSES_MAX: usize = 256;

/// A server's answer to [`super::Request::Monitor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitor {
    /// Name of the device in the table.
    pub device: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Whether processes compute side by side.
    pub is_mps: bool,
    /// Real nanoseconds per device nanosecond; 1 on the virtual clock, which has no such ratio.
    pub scale: f64,
    /// Bytes of the device in use, by any process.
    pub used_bytes: u64,
    /// Its faults.
    pub health: Health,
    /// Clock, power and temperature; `None` without a governor.
    pub governed: Option<GovernedState>,
    /// From the oldest to now; never empty.
    pub samples: Vec<Sample>,
    /// By process id.
    pub processes: Vec<ProcessUse>,
}

/// Most health reports of a device in a packet: the youngest.
pub const REPORTS_MAX: usize = 64;

/// Faults of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Corrected memory errors.
    pub corrected: u64,
    /// Uncorrected memory errors.
    pub uncorrected: u64,
    /// A row of memory will be replaced at the next reset.
    pub is_pending: bool,
    /// The device no longer answers.
    pub is_lost: bool,
    /// Its health reports, the oldest first.
    pub reports: Vec<HealthReport>,
}

/// A health report of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// Its number: 1 is the first.
    pub seq: u64,
    /// As `nvmlEventType…` of nvml.h.
    pub kind: u64,
    /// As `eventData` there: for an Xid its number.
    pub data: u64,
}

/// Current clock, power and temperature of a device; see [`crate::Governed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GovernedState {
    /// SM clock.
    pub clock_mhz: u32,
    /// Power, mW.
    pub power_mw: u32,
    /// °C.
    pub temperature_c: u32,
    /// Power limits the clock.
    pub is_power_capped: bool,
    /// Temperature limits the clock.
    pub is_hot: bool,
}

/// Use of the device up to an instant; see [`crate::Utilisation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The instant.
    pub at_ns: u64,
    /// Time in which anything computed.
    pub busy_ns: u64,
    /// SMs with at least one block × time.
    pub busy_sm_ns: u64,
    /// Time at full memory bandwidth that would have moved as much.
    pub bandwidth_ns: u64,
}

/// A process that has a context on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Its pid, as the kernel reports it to the server.
    pub pid: u32,
    /// Device memory that it holds.
    pub held_bytes: u64,
    /// Device time since the process's last sample, between one and two [`SAMPLE_NS`] ago.
    pub window_ns: u64,
    /// The part of it in which its work computed, summed over contexts.
    pub busy_ns: u64,
    /// The part of it that would have moved as much at full memory bandwidth.
    pub bandwidth_ns: u64,
}

impl Monitor {
    pub(super) fn check(&self) -> Result<(), WireError> {
        if self.device.len() > TEXT_BYTES_MAX {
            return Err(WireError::Text);
        }
        if !(self.scale.is_finite() && self.scale > 0.0) {
            return Err(WireError::Unknown("scale"));
        }
        let is_bounded = (1..=SAMPLES_MAX).contains(&self.samples.len())
            && self.processes.len() <= PROCESSES_MAX
            && self.health.reports.len() <= REPORTS_MAX;
        is_bounded.then_some(()).ok_or(WireError::Unknown("count"))
    }
}

//! What a monitor (the stand-in NVML) is told: what the device is, what is taken of it and by whom.
//!
//! One question, one packet, then the server closes the connection. A monitor has no page, no
//! context and no part in the virtual clock. What was used is told as integrals at instants, so
//! that the monitor divides differences; the last instant is now.

use serde::{Deserialize, Serialize};

use super::{TEXT_BYTES_MAX, WireError};

/// Instants of the past that are told, at most.
pub const SAMPLES_MAX: usize = 64;
/// Device time between two of them: NVML's shortest sample period (nvml.h: between 1/6 s and 1 s,
/// depending on the product).
pub const SAMPLE_NS: u64 = 1_000_000_000 / 6;
/// Processes that are told, at most.
pub const PROCESSES_MAX: usize = 256;

/// A server's answer to [`super::Request::Monitor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitor {
    /// Name of the device in the table.
    pub device: String,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Whether processes compute side by side.
    pub is_mps: bool,
    /// Real nanoseconds per device nanosecond; 1 on the virtual clock, where there is no such thing.
    pub scale: f64,
    /// Bytes of the device that are taken, by whomsoever.
    pub used_bytes: u64,
    /// What is broken.
    pub health: Health,
    /// Clock, power and heat; none of a device without a governor.
    pub governed: Option<GovernedState>,
    /// From the oldest to now; never empty.
    pub samples: Vec<Sample>,
    /// By process id.
    pub processes: Vec<ProcessUse>,
}

/// Reports of a device that are told, at most: the youngest.
pub const REPORTS_MAX: usize = 64;

/// What is broken on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Errors in memory that were corrected.
    pub corrected: u64,
    /// And that were not.
    pub uncorrected: u64,
    /// A row of memory waits for a reset to be replaced.
    pub is_pending: bool,
    /// The device does not answer any more.
    pub is_lost: bool,
    /// What it reported, the oldest first.
    pub reports: Vec<HealthReport>,
}

/// Something that a device reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// Its number: 1 is the first.
    pub seq: u64,
    /// As `nvmlEventType…` of nvml.h.
    pub kind: u64,
    /// As `eventData` there: of an Xid its number.
    pub data: u64,
}

/// Clock, power and heat of a device as of now; see [`crate::Governed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GovernedState {
    /// SM clock.
    pub clock_mhz: u32,
    /// Power, mW.
    pub power_mw: u32,
    /// °C.
    pub temperature_c: u32,
    /// The clock is held down by power.
    pub is_power_capped: bool,
    /// The clock is held down by heat.
    pub is_hot: bool,
}

/// What was used of the device up to an instant; see [`crate::Utilisation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
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
    /// As the kernel told the server.
    pub pid: u32,
    /// Device memory that it took and that was not given back.
    pub held_bytes: u64,
    /// Device time since it was last looked at, between one and two [`SAMPLE_NS`] ago.
    pub window_ns: u64,
    /// Time of that in which its work computed; of several contexts the sum.
    pub busy_ns: u64,
    /// Time of that, at full memory bandwidth, which would have moved as much.
    pub bandwidth_ns: u64,
}

impl Monitor {
    /// Whether it is one that a server sends.
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

//! What a monitor (the stand-in NVML) is told: what the device is, what is taken of it and by whom.
//!
//! One question, one packet, then the server closes the connection. A monitor has no page, no
//! context and no part in the virtual clock. What was used is told as integrals at instants, so
//! that the monitor divides differences; the last instant is now.

use super::{WireError, message::Reader};

/// Instants of the past that are told, at most.
pub const SAMPLES_MAX: usize = 64;
/// Device time between two of them: NVML's shortest sample period (nvml.h: between 1/6 s and 1 s,
/// depending on the product).
pub const SAMPLE_NS: u64 = 1_000_000_000 / 6;
/// Processes that are told, at most.
pub const PROCESSES_MAX: usize = 256;

/// A server's answer to [`super::Request::Monitor`].
#[derive(Clone, Debug, PartialEq)]
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
    /// From the oldest to now; never empty.
    pub samples: Vec<Sample>,
    /// By process id.
    pub processes: Vec<ProcessUse>,
}

/// Reports of a device that are told, at most: the youngest.
pub const REPORTS_MAX: usize = 64;

/// What is broken on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// Its number: 1 is the first.
    pub seq: u64,
    /// As `nvmlEventType…` of nvml.h.
    pub kind: u64,
    /// As `eventData` there: of an Xid its number.
    pub data: u64,
}

/// What was used of the device up to an instant; see [`crate::Utilisation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at_ns: u64,
    /// Time in which anything computed.
    pub busy_ns: u64,
    /// Time at full memory bandwidth that would have moved as much.
    pub bandwidth_ns: u64,
}

/// A process that has a context on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Numbers of the packet; the device's name follows.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let id = u128::from_le_bytes(self.uuid);
        let mut numbers = vec![
            id as u64,
            (id >> 64) as u64,
            self.is_mps.into(),
            self.scale.to_bits(),
            self.used_bytes,
            self.samples.len() as u64,
            self.processes.len() as u64,
        ];
        numbers.extend(self.health.numbers());
        let samples = self.samples.iter();
        numbers.extend(samples.flat_map(|s| [s.at_ns, s.busy_ns, s.bandwidth_ns]));
        let processes = self.processes.iter();
        numbers.extend(processes.flat_map(|p| {
            let pid = p.pid.into();
            [pid, p.held_bytes, p.window_ns, p.busy_ns, p.bandwidth_ns]
        }));
        numbers
    }

    /// What [`Self::numbers`] wrote.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let id = u128::from(reader.number()?) | u128::from(reader.number()?) << 64;
        let is_mps = reader.number()? != 0;
        let scale = f64::from_bits(reader.number()?);
        if !(scale.is_finite() && scale > 0.0) {
            return Err(WireError::Unknown("scale"));
        }
        let used_bytes = reader.number()?;
        let counts = [reader.number()?, reader.number()?];
        let health = Health::read(reader)?;
        if !(1..=SAMPLES_MAX as u64).contains(&counts[0]) || counts[1] > PROCESSES_MAX as u64 {
            return Err(WireError::Unknown("count"));
        }
        let samples = (0..counts[0])
            .map(|_| read_sample(reader))
            .collect::<Result<_, _>>()?;
        let processes = (0..counts[1])
            .map(|_| read_process(reader))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            device: reader.text()?,
            uuid: id.to_le_bytes(),
            is_mps,
            scale,
            used_bytes,
            health,
            samples,
            processes,
        })
    }
}

impl Health {
    fn numbers(&self) -> Vec<u64> {
        let mut numbers = vec![
            self.corrected,
            self.uncorrected,
            self.is_pending.into(),
            self.is_lost.into(),
            self.reports.len() as u64,
        ];
        let reports = self.reports.iter();
        numbers.extend(reports.flat_map(|r| [r.seq, r.kind, r.data]));
        numbers
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let [corrected, uncorrected] = [reader.number()?, reader.number()?];
        let [is_pending, is_lost] = [reader.number()? != 0, reader.number()? != 0];
        let count = reader.number()?;
        if count > REPORTS_MAX as u64 {
            return Err(WireError::Unknown("count"));
        }
        let report = |_| {
            Ok(HealthReport {
                seq: reader.number()?,
                kind: reader.number()?,
                data: reader.number()?,
            })
        };
        Ok(Self {
            corrected,
            uncorrected,
            is_pending,
            is_lost,
            reports: (0..count).map(report).collect::<Result<_, _>>()?,
        })
    }
}

fn read_sample(reader: &mut Reader<'_>) -> Result<Sample, WireError> {
    Ok(Sample {
        at_ns: reader.number()?,
        busy_ns: reader.number()?,
        bandwidth_ns: reader.number()?,
    })
}

fn read_process(reader: &mut Reader<'_>) -> Result<ProcessUse, WireError> {
    Ok(ProcessUse {
        pid: u32::try_from(reader.number()?).map_err(|_| WireError::Unknown("process"))?,
        held_bytes: reader.number()?,
        window_ns: reader.number()?,
        busy_ns: reader.number()?,
        bandwidth_ns: reader.number()?,
    })
}

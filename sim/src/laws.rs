//! The laws beside the policy in a daemon's configuration: a throttle (`[throttle]`), and
//! best-effort work's share of the GPU (`[share]`). The device is read every [`PERIOD_NS`], as by
//! the daemon, in whole per cent of that time. A dynamic share is known from the start, as after a
//! quarter of an hour with the same high-priority jobs: x is their traces' use of the SMs at their
//! rates. It stays constant in the run, which is shorter than the time between two starts of a job
//! for another share.

use policy::share::SECONDS_MIN;
use policy::{BeShare, DeviceReading, ShareMode, ShareParams, ThrottleParams};
use softgpu::{Device, Gpu, Utilisation};

use crate::arrivals::Arrivals;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::job::{Job, JobClass};
use crate::program::Program;
use crate::schedulers::solo_ns;

/// Laws beside the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Laws {
    /// As `[throttle]` of a daemon.
    pub throttle: Option<ThrottleParams>,
    /// As `[share]` of a daemon.
    pub share: Option<ShareMode>,
    /// The throttle uses the SMs in use, as `ByteCUDA`'s, not NVML's busy time.
    pub by_sm_activity: bool,
}

impl Laws {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Between two readings of the device, ns (the daemon's constant).
const PERIOD_NS: u64 = 200_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Best-effort jobs' share of the GPU, per cent. Fails on a trace invalid for the device.
pub(crate) fn be_percent(experiment: &Experiment) -> Result<Option<u32>, Error> {
    let Some(mode) = experiment.policy.laws(&experiment.laws).share else {
        return Ok(None);
    };
    let mut share = BeShare::default();
    share.set(Some(ShareParams {
        mode,
        restart_ns: u64::MAX,
    }));
    let mut used_ns = 0.0;
    let jobs = experiment.jobs.iter().enumerate();
    for (index, job) in jobs.filter(|(_, job)| job.class == JobClass::HighPriority) {
        if mode == ShareMode::Dynamic {
            used_ns += used_per_s(experiment, index, job)?;
        }
    }
    for second in 0..=SECONDS_MIN as u64 {
        share.handle_used(second * SECOND_NS, used_ns);
    }
    Ok(share.percent())
}

fn used_per_s(experiment: &Experiment, index: usize, job: &Job) -> Result<f64, Error> {
    let program = Program::new(job, &experiment.device)?;
    let sm_ns = program.sm_ns(experiment.device.sms);
    if job.arrivals == Arrivals::Closed {
        let request_ns = solo_ns(experiment, index, &program).max(1);
        return Ok(sm_ns * SECOND_NS as f64 / request_ns as f64);
    }
    let mut schedule = job.schedule(experiment.duration_ns, experiment.seed_of(index));
    let requests = std::iter::from_fn(|| schedule.next_ns(0)).count();
    let seconds = experiment.duration_ns as f64 / SECOND_NS as f64;
    Ok(sm_ns * requests as f64 / seconds)
}

#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) next_ns: u64,
    by_sm_activity: bool,
    clock_max_mhz: u32,
    sms: u32,
    before: Utilisation,
    at_ns: u64,
}

impl Telemetry {
    pub(crate) fn new(device: &Device, by_sm_activity: bool) -> Self {
        Self {
            next_ns: PERIOD_NS,
            by_sm_activity,
            clock_max_mhz: device.max_clock_mhz,
            sms: device.sms,
            before: Utilisation::default(),
            at_ns: 0,
        }
    }

    pub(crate) fn read(&mut self, now_ns: u64, gpu: &Gpu) -> DeviceReading {
        let used = gpu.utilisation();
        let before = std::mem::replace(&mut self.before, used);
        let passed_ns = now_ns - std::mem::replace(&mut self.at_ns, now_ns);
        self.next_ns = now_ns + PERIOD_NS;
        let (used_ns, of) = match self.by_sm_activity {
            true => (used.busy_sm_ns - before.busy_sm_ns, self.sms),
            false => (used.busy_ns - before.busy_ns, 1),
        };
        let whole_ns = passed_ns as f64 * f64::from(of);
        let percent = (used_ns as f64 * 100.0 / whole_ns).round();
        let governed = gpu.governed();
        DeviceReading {
            busy: Some((percent / 100.0).min(1.0)),
            clock_mhz: Some(governed.map_or(self.clock_max_mhz, |governed| governed.clock_mhz)),
            clock_max_mhz: Some(self.clock_max_mhz),
            ..DeviceReading::default()
        }
    }
}

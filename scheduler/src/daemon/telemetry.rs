//! The telemetry thread: reads the device's utilisation, clock, power and temperature, and
//! processes' compute times, for laws and for display.
//!
//! Five times a second while a job has a cap ([`crate::host::nvml::uses`]), or best-effort work is
//! throttled beside a high-priority job ([`policy::throttle`]); else once a second with a probe
//! ([`policy::probe`]); else it sleeps, and has nothing of the device open. It is a separate thread
//! because NVML may be slow: only the daemon's end waits for it, and briefly. If NVML does not
//! answer or does not know, nothing is passed on, and laws use their last knowledge
//! ([`policy::usage`]). On the virtual clock it is a participant, for reproducible readings.

use std::sync::Arc;

use policy::DeviceReading;

use crate::daemon::shared::Shared;
use crate::host::device_release::User;
use crate::host::nvml::Gauges;
use crate::host::nvml::gpm::Gpm;
use crate::host::nvml::uses::Uses;

/// Interval of readings, ns: NVML's samples are at least a sixth of a second apart.
const PERIOD_NS: u64 = 200_000_000;

/// Retry interval of opening NVML, ns.
const AGAIN_NS: u64 = 30_000_000_000;

pub(super) struct Telemetry {
    shared: Arc<Shared>,
    uuid: String,
    open: Option<Opened>,
    failed_ns: Option<u64>,
    /// The last reading: extra rings do not shorten the interval.
    read_ns: Option<u64>,
}

struct Opened {
    uses: Option<Uses>,
    gauges: Option<Gauges>,
    gpm: Option<Gpm>,
    user: User,
}

impl Opened {
    fn reading(&mut self) -> DeviceReading {
        let gauges = self.gauges.as_ref();
        DeviceReading {
            sm_activity: self.gpm.as_mut().and_then(Gpm::sm_activity),
            ..gauges.map(Gauges::reading).unwrap_or_default()
        }
    }
}

impl Telemetry {
    pub(super) fn new(shared: Arc<Shared>, uuid: &str) -> Self {
        Self {
            shared,
            uuid: uuid.to_owned(),
            open: None,
            failed_ns: None,
            read_ns: None,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let seen = self.shared.telemetry.read();
            if self.shared.is_stopping() {
                return;
            }
            let is_wanted = self.shared.state().wants_telemetry();
            let is_probed = self.shared.probe.lock().is_on();
            let due_ns = match (is_wanted, is_probed) {
                (true, _) => Some(self.read(PERIOD_NS)),
                (false, true) => Some(self.read(policy::probe::PERIOD_NS)),
                (false, false) => {
                    self.open = None;
                    self.shared.device.lock().forget();
                    None
                }
            };
            let clock = &self.shared.clock;
            self.shared.telemetry.wait(clock, seen, due_ns);
        }
    }

    /// Reads once, unless it did so within the period, and returns the time of the next reading.
    fn read(&mut self, period_ns: u64) -> u64 {
        let now_ns = self.shared.clock.now_ns();
        if self.open.as_ref().is_some_and(|open| open.user.is_over()) {
            self.open = None;
        }
        let due_ns = self
            .read_ns
            .map_or(0, |at_ns| at_ns.saturating_add(period_ns));
        if now_ns < due_ns {
            return due_ns;
        }
        self.read_ns = Some(now_ns);
        let is_due = (self.failed_ns).is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= AGAIN_NS);
        let is_whole = |open: &Opened| open.uses.is_some() && open.gauges.is_some();
        if is_due && !self.open.as_ref().is_some_and(is_whole) {
            self.open = None;
            self.open(now_ns);
        }
        // First: caps depend on nothing else, and the rest may be slow.
        if self.shared.state().has_caps() {
            self.read_uses(now_ns);
        }
        // An empty reading is passed on, too: it makes a law blind.
        let reading = self.open.as_mut().map(Opened::reading).unwrap_or_default();
        if self.shared.state().is_throttled() {
            self.shared.state().handle_reading(now_ns, reading);
        }
        let news = self.shared.device.lock().handle_reading(now_ns, reading);
        if let Some(news) = news {
            self.shared.tell(news);
        }
        self.shared.handle_probe_reading(now_ns, reading);
        now_ns.saturating_add(period_ns)
    }

    fn read_uses(&mut self, now_ns: u64) {
        let uses = self.open.as_mut().and_then(|open| open.uses.as_mut());
        let Some(uses) = uses else { return };
        match uses.read() {
            Ok(news) => {
                if let Some(uses) = news {
                    // The clock before the query: its duration is no part of the measurement.
                    let uses = uses.iter().map(|process| (process.pid, process.share));
                    self.shared.state().handle_uses(now_ns, uses);
                }
            }
            Err(error) => {
                if let Some(open) = &mut self.open {
                    open.uses = None;
                }
                self.fail(now_ns, &error);
            }
        }
    }

    fn open(&mut self, now_ns: u64) {
        let Some(user) = self.shared.device_release().user() else {
            return;
        };
        // One may exist without the other.
        let (uses, gauges) = (Uses::open(&self.uuid), Gauges::open(&self.uuid));
        let error = uses.as_ref().err().or(gauges.as_ref().err());
        match error {
            Some(error) => self.fail(now_ns, error),
            None => self.failed_ns = None,
        }
        // On failure the SMs' activity is unknown, which no law needs.
        let gpm = Gpm::open(&self.uuid).unwrap_or_else(|error| {
            tracing::info!("cannot use GPM, by which NVML reports the activity of SMs: {error}");
            None
        });
        self.open = Some(Opened {
            uses: uses.ok(),
            gauges: gauges.ok(),
            gpm,
            user,
        });
    }

    fn fail(&mut self, now_ns: u64, error: &dyn std::error::Error) {
        if self.failed_ns.replace(now_ns).is_none() {
            tracing::warn!(
                "NVML does not report the GPU's utilisation, in total or by process: {error}; caps \
                 follow the expected durations of launches, and a throttle stays as it is"
            );
        }
    }
}

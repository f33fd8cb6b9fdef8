//! The throttle: slows best-effort work where the device is overused or clocks down.
//!
//! **Law.** ByteCUDA's (MuxFlow §4.1), without a sleep. The device reports the busy share of time,
//! U, and its SM clock, C, five times a second. With HP's solo clock T and the highest H, usage is
//! ```text
//! V = U · a     a = 1 + 8 (T − C)/T            if C < T
//!               a = 1 − 0.2 (C − T)/(H − T)    if C ≥ T    (H ≤ T: 1)
//! ```
//! so that a device that slows down counts as overused before it is full. A controller in velocity
//! form moves the *rate* of all best-effort jobs together, from 0.02 to 1, by Δr = 0.4 Δe + 0.2 e
//! with e = [`ThrottleParams::utilisation`] − V, and by a quarter of that where C < T. The rate
//! fills a bucket of expected ns, 20 ms deep, from which each of their launches takes; an empty
//! bucket closes them until it is half full. A *ceiling* on the rate may be set besides, with or
//! without a throttle: best-effort work's share in time slices ([`crate::share`]).
//!
//! With these gains the loop is stable where V moves by less than twice what the rate does. Busy
//! time alone has a factor of one. But with a clock that falls by a tenth where the device is three
//! tenths busier, V moves three times as much, and with a fall of a fifth five times: at the whole
//! gains best-effort work swung between a third and two thirds of the time, hence the quarter.
//!
//! The throttle is in force while a high-priority client is attached. Only a reading with an empty
//! bucket since the previous one raises the rate: otherwise another law holds the jobs, and free
//! capacity proves nothing. An invalid reading (missing, NaN, more than all of the time) is dropped
//! and counted; after [`BLIND_NS`] of them [`ThrottleView::blind`] is set. T is configured, or the
//! lower quartile of the clocks read while high-priority work executed and no best-effort work was
//! in flight; until then a is 1. Source: MuxFlow (2024) §4.1 for the law and the form of a; it
//! gives no constants. These are ours and were compared with no others: 8 makes a full device at
//! nine tenths of T count as 1.8; 0.2 lets one at its highest clock be full.

use crate::gate::in_flight_ns;
use crate::lease::Lease;
use crate::usage::{OPENS_AT, PERIOD_NS, bounded};
use crate::{DeviceReading, JobId, JobView, Limit, Snapshot};

/// Time without a reading until the throttle is blind, ns.
pub const BLIND_NS: u64 = 10_000_000_000;

/// The valid set points: a tenth of the time to all of it.
pub const UTILISATION: [f64; 2] = [0.1, 1.0];

/// The default set point: leaves a tenth for arriving high-priority work.
pub const UTILISATION_DEFAULT: f64 = 0.9;

/// The rate's bounds, shares of the time. Not 0: a job that may never launch would never end, and
/// would keep its memory.
const RATE: [f64; 2] = [0.02, 1.0];

const GAINS: [f64; 2] = [0.4, 0.2];

/// The factor on both where the clock is below T.
const GAIN_SLOW: f64 = 0.25;

/// The gain on usage below T, and the reduction above.
const CLOCK_GAINS: [f64; 2] = [8.0, 0.2];

/// The bucket counts as empty below this: short kernels leave that much until the next poll.
const EMPTY_AT: f64 = 1.0 / 16.0;

/// The longest wait for earlier charges: they may be another job's, wrong, or never have run.
const DEBT_NS_MAX: u64 = 10_000_000_000;

/// Clocks from which T is learnt, and how many are needed.
const CLOCKS: usize = 256;
const CLOCKS_MIN: usize = 20;

/// How long a snapshot's view of high-priority work holds, ns.
const ALONE_NS: u64 = 10_000_000;

/// The throttle's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleParams {
    /// The set point of usage, within [`UTILISATION`].
    pub utilisation: f64,
    /// T, MHz; `None`: learnt.
    pub clock_mhz: Option<u32>,
}

/// The throttle's state, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleView {
    /// The set point, [`ThrottleParams::utilisation`].
    pub utilisation: f64,
    /// Usage, V, as of the last reading; `None` before one.
    pub usage: Option<f64>,
    /// That reading.
    pub reading: DeviceReading,
    /// T, MHz; `None` while unknown.
    pub clock_mhz: Option<u32>,
    /// The share of the time that best-effort jobs may charge together.
    pub rate: f64,
    /// Invalid readings.
    pub dropped: u64,
    /// No valid reading for [`BLIND_NS`].
    pub blind: bool,
}

#[derive(Debug)]
pub(crate) struct Throttle {
    params: Option<ThrottleParams>,
    rate: f64,
    /// The cap on the rate, whatever the law.
    ceiling: f64,
    error: Option<f64>,
    usage: Option<f64>,
    reading: DeviceReading,
    /// When the last reading came, or the first one was due.
    read_ns: Option<u64>,
    dropped: u64,
    /// The last clocks of high-priority work alone, and how many there ever were.
    clocks: Vec<u32>,
    clocks_seen: usize,
    /// In the last snapshot high-priority work executed, and no best-effort work was in flight.
    is_alone: bool,
    is_in_force: bool,
    /// The bucket was empty since the last reading.
    has_bound: bool,
    level_ns: f64,
    is_open: bool,
    seen_ns: Option<u64>,
    charged: Vec<(JobId, u64)>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            params: None,
            rate: RATE[1],
            ceiling: RATE[1],
            error: None,
            usage: None,
            reading: DeviceReading::default(),
            read_ns: None,
            dropped: 0,
            clocks: Vec::new(),
            clocks_seen: 0,
            is_alone: false,
            is_in_force: false,
            has_bound: false,
            level_ns: RATE[1] * PERIOD_NS as f64,
            is_open: true,
            seen_ns: None,
            charged: Vec::new(),
        }
    }
}

impl Throttle {
    /// Replaces the parameters; `None`: no throttle. The learnt clocks stay.
    pub(crate) fn set(&mut self, params: Option<ThrottleParams>) {
        if self.params.is_some() && params.is_none() {
            *self = Self {
                clocks: std::mem::take(&mut self.clocks),
                clocks_seen: self.clocks_seen,
                ceiling: self.ceiling,
                ..Self::default()
            };
        }
        self.params = params;
    }

    pub(crate) fn set_ceiling(&mut self, ceiling: f64) {
        self.ceiling = ceiling.clamp(RATE[0], RATE[1]);
        if !self.is_on() {
            // From now on no charges are reported, and nothing is owed afterwards.
            self.charged.clear();
            self.seen_ns = None;
            (self.level_ns, self.is_open) = (self.depth_ns(), true);
        }
    }

    fn fill(&self) -> f64 {
        self.rate.min(self.ceiling)
    }

    fn is_on(&self) -> bool {
        self.params.is_some() || self.ceiling < RATE[1]
    }

    pub(crate) fn view(&self, now_ns: u64) -> Option<ThrottleView> {
        let params = self.params?;
        let since_ns = now_ns.saturating_sub(self.read_ns.unwrap_or(now_ns));
        Some(ThrottleView {
            utilisation: params.utilisation,
            usage: self.usage,
            reading: self.reading,
            clock_mhz: self.threshold_mhz(),
            rate: self.rate,
            dropped: self.dropped,
            blind: since_ns >= BLIND_NS,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_binding() && !self.is_open
    }

    fn is_binding(&self) -> bool {
        self.is_on() && self.is_in_force
    }

    fn threshold_mhz(&self) -> Option<u32> {
        let configured = self.params.and_then(|params| params.clock_mhz);
        configured.or_else(|| {
            let is_known = self.clocks_seen >= CLOCKS_MIN;
            let mut clocks = self.clocks.clone();
            let place = clocks.len() / 4;
            is_known.then(|| *clocks.select_nth_unstable(place).1)
        })
    }

    fn clock_factor(&self, reading: &DeviceReading) -> f64 {
        let known = reading.clock_mhz.zip(self.threshold_mhz());
        let Some((clock, threshold)) = known.filter(|&(_, threshold)| threshold > 0) else {
            return 1.0;
        };
        let (clock, threshold) = (f64::from(clock), f64::from(threshold));
        if clock < threshold {
            return 1.0 + CLOCK_GAINS[0] * (threshold - clock) / threshold;
        }
        let above = f64::from(reading.clock_max_mhz.unwrap_or(0)) - threshold;
        match above > 0.0 {
            true => 1.0 - CLOCK_GAINS[1] * ((clock - threshold) / above).min(1.0),
            false => 1.0,
        }
    }

    /// The device was read; after [`Self::handle_jobs`].
    pub(crate) fn handle_reading(&mut self, now_ns: u64, reading: DeviceReading) {
        let Some(params) = self.params else { return };
        let (reading, _) = reading.checked();
        let Some(busy) = reading.busy else {
            self.dropped += 1;
            self.read_ns.get_or_insert(now_ns);
            return;
        };
        let seen_ns = self.seen_ns.unwrap_or(0);
        let is_alone = self.is_alone && now_ns.saturating_sub(seen_ns) <= ALONE_NS;
        if let Some(clock) = reading.clock_mhz.filter(|_| is_alone) {
            match self.clocks.len() < CLOCKS {
                true => self.clocks.push(clock),
                false => self.clocks[self.clocks_seen % CLOCKS] = clock,
            }
            self.clocks_seen += 1;
        }
        self.read_ns = Some(now_ns);
        let usage = busy * self.clock_factor(&reading);
        self.usage = Some(usage);
        self.reading = reading;
        let is_slow = usage > busy;
        let gain = if is_slow { GAIN_SLOW } else { 1.0 };
        // Weighted before its change: a fluctuating clock moves the rate by nothing in sum.
        let error = gain * (params.utilisation - usage);
        let before = self.error.replace(error).unwrap_or(error);
        let moved = GAINS[0] * (error - before) + GAINS[1] * error;
        let may_rise = std::mem::take(&mut self.has_bound);
        if self.is_in_force && (moved < 0.0 || may_rise) {
            self.rate = (self.rate + moved).clamp(RATE[0], RATE[1]);
        }
    }

    pub(crate) fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        if !self.is_on() {
            return;
        }
        let was_in_force = std::mem::replace(&mut self.is_in_force, snapshot.hp.present);
        if self.is_in_force && !was_in_force {
            // Earlier readings belong to another time.
            self.error = None;
            self.has_bound = false;
            self.read_ns = Some(snapshot.now_ns);
        }
        self.is_alone = snapshot.hp.busy && in_flight_ns(snapshot) == 0;
        self.handle_jobs(snapshot.now_ns, snapshot.be);
    }

    pub(crate) fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        if !self.is_on() {
            return;
        }
        let before = |id| {
            let known = self.charged.iter().find(|(known, _)| *known == id);
            known.map(|(_, charged_ns)| *charged_ns)
        };
        // Charges from before the job was seen do not count, and charges taken back are refunded.
        let spent_ns = jobs.iter().map(|job| {
            let charged_ns = job.charged_total_ns as f64;
            charged_ns - before(job.id).map_or(charged_ns, |ns| ns as f64)
        });
        let spent_ns: f64 = spent_ns.sum();
        self.charged.clear();
        let charged = jobs.iter().map(|job| (job.id, job.charged_total_ns));
        self.charged.extend(charged);
        let since_ns = self.seen_ns.replace(now_ns).unwrap_or(now_ns);
        let depth_ns = self.depth_ns();
        if !self.is_in_force {
            (self.level_ns, self.is_open) = (depth_ns, true);
            return;
        }
        let fill = self.fill();
        let filled_ns = now_ns.saturating_sub(since_ns) as f64 * fill;
        let debt_max_ns = fill * DEBT_NS_MAX as f64;
        self.level_ns = (self.level_ns + filled_ns - spent_ns).clamp(-debt_max_ns, depth_ns);
        // The full rate holds nothing: expected work may be more than all of the time.
        if fill >= RATE[1] {
            (self.level_ns, self.is_open) = (self.level_ns.max(0.0), true);
        } else if self.level_ns <= depth_ns * EMPTY_AT {
            self.is_open = false;
            // While the ceiling holds them, free capacity proves nothing about the rate.
            self.has_bound |= self.rate <= self.ceiling;
        } else if self.level_ns >= depth_ns * OPENS_AT {
            self.is_open = true;
        }
    }

    fn depth_ns(&self) -> f64 {
        self.fill() * PERIOD_NS as f64
    }

    /// What a best-effort job may charge; unlimited at the full rate.
    fn budget_ns(&self) -> u64 {
        match self.fill() >= RATE[1] {
            true => u64::MAX,
            false => self.level_ns.max(0.0).ceil() as u64,
        }
    }

    pub(crate) fn meet(&self, snapshot: &Snapshot<'_>, decided: (Lease, Limit)) -> (Lease, Limit) {
        match self.is_binding() {
            true => bounded(snapshot, decided, self.is_open, self.budget_ns()),
            false => decided,
        }
    }

    pub(crate) fn admits(&self, spent_ns: u64, is_whole: bool) -> bool {
        !self.is_binding() || self.is_open && (is_whole || spent_ns < self.budget_ns())
    }

    /// When it opens again; `None` if it is open.
    pub(crate) fn opens_ns(&self) -> Option<u64> {
        self.is_closed().then(|| {
            let missing_ns = self.depth_ns() * OPENS_AT - self.level_ns;
            let at_ns = self.seen_ns.unwrap_or(0);
            at_ns.saturating_add((missing_ns / self.fill()).max(0.0) as u64 + 1)
        })
    }
}

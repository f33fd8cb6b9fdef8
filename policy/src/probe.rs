//! The probe: whether the device is in trouble, and the consequences for best-effort work.
//!
//! **Law.** MuxFlow's SysProbe (§4.1). Once a second the device reports up to six *metrics*, each
//! with two bounds, *unhealthy* and *overlimit*. They determine the state:
//! ```text
//! Init ──► Healthy ◄──────── Unhealthy ◄──────── Overlimit
//!             │     all calm    ▲ │   all below     ▲ ▲
//!             ├─────────────────┘ └─────────────────┘ │
//!             └───────────────────────────────────────┘        any ──► Disabled
//! ```
//! - Unhealthy as soon as a metric passes its first bound, Overlimit as soon as one passes the
//!   second: three samples in a row, one for memory.
//! - Overlimit → Unhealthy once *all* were below their second bound for 30 s · 2^(n − 1), two hours
//!   at most; n counts its entries in two hours. A sample above a bound restarts that time.
//! - Unhealthy → Healthy once all were below 0.95 of their first bound for a minute, and from there
//!   to Unhealthy after another minute at the earliest: these two alternate at most once a minute.
//!   Overlimit and Disabled are entered at once.
//! - Disabled while the driver reports the device as lost; then Unhealthy, or Overlimit if its time
//!   remains.
//!
//! In Unhealthy, Overlimit and Disabled, arriving best-effort jobs wait. Entering Overlimit ends
//! the attached ones ([`Outcome::evicts`]); a full memory does so again, once a minute at most.
//!
//! **Missing values** improve nothing: a metric that is no longer reported keeps its level, and no
//! time without it counts. A metric that was never reported is left out. After [`BLIND_NS`] of
//! missing values the probe is [`ProbeView::blind`]. **Clock.** It counts while the device is busy
//! for half of the time at least: an idle device clocks down without trouble. Power counts only
//! with a clock below 0.9 of high-priority work's solo clock: a device at its power limit with its
//! full clock works as intended. Source: MuxFlow (2024) §4.1 for states, metrics and the
//! exponential back-off. It gives no bounds: ours are untried on hardware. §6 evicts at Unhealthy,
//! §4.1 at Overlimit, as here.

use crate::DeviceReading;
use crate::throttle::BLIND_NS;

/// Between two samples, ns.
pub const PERIOD_NS: u64 = 1_000_000_000;

/// Samples in a row until a metric counts as worse; one for memory, which fills at once.
const WORSE_AFTER: u32 = 3;

/// A longer gap between two samples counts as unknown time, ns.
const GAP_NS: u64 = 3 * PERIOD_NS;

const HOLD_NS: u64 = 30_000_000_000;

/// The window in which entries of Overlimit count, and the longest back-off, ns.
const WINDOW_NS: u64 = 7_200_000_000_000;

/// How long all must be calm before Healthy, and the least time in Healthy, ns.
const CALM_NS: u64 = 60_000_000_000;

/// A metric is calm below this share of its first bound.
const CALM: f64 = 0.95;

/// Power counts below this share of high-priority work's solo clock.
const SLOW: f64 = 0.9;

/// A device busy for less of the time is idle, and its clock is meaningless.
const BUSY: f64 = 0.5;

/// The least time between evictions for memory that fills again, ns.
const AGAIN_NS: u64 = 60_000_000_000;

/// After this time the clients of an earlier daemon have reattached, ns.
const RETURNED_NS: u64 = 5_000_000_000;

/// More entries than the back-off allows in [`WINDOW_NS`].
const ENTRIES_MAX: usize = 64;

/// A metric of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The share of the time in which the device was busy.
    Utilisation,
    /// The share of busy SMs.
    SmActivity,
    /// The SM clock as a share of high-priority work's solo clock; less is worse.
    Clock,
    /// The share of used memory.
    Memory,
    /// °C.
    Temperature,
    /// Power draw as a share of its limit.
    Power,
}

impl Metric {
    /// All, in the order of [`ProbeParams::bounds`].
    pub const ALL: [Self; 6] = [
        Self::Utilisation,
        Self::SmActivity,
        Self::Clock,
        Self::Memory,
        Self::Temperature,
        Self::Power,
    ];

    /// The word in configuration and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utilisation => "utilisation",
            Self::SmActivity => "sm_activity",
            Self::Clock => "clock",
            Self::Memory => "memory",
            Self::Temperature => "temperature_c",
            Self::Power => "power",
        }
    }

    /// Whether less of it is worse.
    #[must_use]
    pub const fn is_worse_below(self) -> bool {
        matches!(self, Self::Clock)
    }

    /// The value, with a sign that makes more worse.
    fn badness(self, value: f64) -> f64 {
        if self.is_worse_below() { -value } else { value }
    }

    const fn worse_after(self) -> u32 {
        match self {
            Self::Memory => 1,
            _ => WORSE_AFTER,
        }
    }
}

/// Bounds of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Ignored.
    Off,
    /// Unhealthy from the first on; Overlimit from the second on, if there is one.
    At(f64, Option<f64>),
    /// This many °C below the device's slowdown temperature, where the device reports that.
    BelowSlowdown(f64, f64),
}

/// The probe's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeParams {
    /// By metric, in the order of [`Metric::ALL`].
    pub bounds: [Bound; 6],
    /// High-priority work's solo clock, MHz; `None`: as the throttle has learnt it.
    pub clock_mhz: Option<u32>,
}

impl Default for ProbeParams {
    fn default() -> Self {
        Self {
            bounds: [
                Bound::Off,
                Bound::Off,
                Bound::At(0.9, Some(0.75)),
                Bound::At(0.92, Some(0.97)),
                Bound::BelowSlowdown(8.0, 3.0),
                Bound::At(1.0, None),
            ],
            clock_mhz: None,
        }
    }
}

/// The state of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// Nothing is known yet.
    Init,
    /// Nothing is wrong.
    Healthy,
    /// No further best-effort work.
    Unhealthy,
    /// No best-effort work.
    Overlimit,
    /// The device is lost.
    Disabled,
}

impl ProbeState {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::Init,
        Self::Healthy,
        Self::Unhealthy,
        Self::Overlimit,
        Self::Disabled,
    ];

    /// The word in status and file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Overlimit => "overlimit",
            Self::Disabled => "disabled",
        }
    }

    /// Whether arriving best-effort jobs wait.
    #[must_use]
    pub const fn holds_comers(self) -> bool {
        matches!(self, Self::Unhealthy | Self::Overlimit | Self::Disabled)
    }
}

/// What outlives a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptProbe {
    /// The state.
    pub state: ProbeState,
    /// The metric that caused it.
    pub metric: Option<Metric>,
    /// How long ago Overlimit was entered, ns, the oldest first.
    pub entered_ns: Vec<u64>,
    /// High-priority work's solo clock, if known, MHz.
    pub clock_mhz: Option<u32>,
}

/// The consequences of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The state changed: the previous state, and the metric that caused it, with its value.
    pub changed: Option<(ProbeState, Option<(Metric, f64)>)>,
    /// The attached best-effort jobs are to be ended.
    pub evicts: bool,
}

/// One metric's state, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricView {
    /// The metric.
    pub metric: Metric,
    /// Its last value; `None` before one.
    pub value: Option<f64>,
    /// Unhealthy from this value on; `None` while unknown.
    pub unhealthy: Option<f64>,
    /// Overlimit from this value on.
    pub overlimit: Option<f64>,
}

/// The probe's state, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeView {
    /// The state.
    pub state: ProbeState,
    /// The metric that caused or keeps it.
    pub metric: Option<Metric>,
    /// Entries of Overlimit in the last two hours.
    pub entries: usize,
    /// When the state may improve at the earliest; `None` where nothing can improve.
    pub until_ns: Option<u64>,
    /// The metrics in use.
    pub metrics: Vec<MetricView>,
    /// A metric has been missing for [`BLIND_NS`], or none was ever reported.
    pub blind: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    value: Option<f64>,
    /// As of the last value: `None` where its bounds are not known.
    bounds: Option<(f64, Option<f64>)>,
    known_ns: Option<u64>,
    /// Samples in a row above the first bound, and above the second.
    above: [u32; 2],
    is_calm: bool,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Probe {
    params: ProbeParams,
    state: ProbeState,
    gauges: [Gauge; 6],
    cause: Option<Metric>,
    /// When Overlimit was entered, the oldest first; before zero where the clock is younger.
    entries: Vec<i64>,
    /// How long the condition for the next better state has held.
    better_ns: u64,
    seen_ns: Option<u64>,
    /// When it last became Healthy.
    healed_ns: Option<u64>,
    begun_ns: u64,
    changed_ns: u64,
    /// It was Overlimit within its back-off: it returns to Overlimit after Disabled.
    is_owed: bool,
    evicted_ns: u64,
    /// Restored in Overlimit: best-effort jobs are to be ended once more.
    is_eviction_due: bool,
    alone_mhz: Option<u32>,
}

impl Probe {
    /// A probe without observations, at `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64, params: ProbeParams) -> Self {
        Self {
            params,
            state: ProbeState::Init,
            gauges: [Gauge::default(); 6],
            cause: None,
            entries: Vec::new(),
            better_ns: 0,
            seen_ns: None,
            healed_ns: None,
            begun_ns: now_ns,
            changed_ns: now_ns,
            is_owed: false,
            evicted_ns: 0,
            is_eviction_due: false,
            alone_mhz: None,
        }
    }

    /// Continues another daemon's probe at `now_ns`. The unobserved time counts as no better: the
    /// back-off restarts, and best-effort jobs due to be ended are ended.
    #[must_use]
    pub fn restore(now_ns: u64, params: ProbeParams, kept: &KeptProbe) -> Self {
        let mut ages: Vec<u64> = kept.entered_ns.clone();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        let first = ages.len().saturating_sub(ENTRIES_MAX);
        let now = signed(now_ns);
        let entries = ages[first..].iter().map(|&age| now - signed(age));
        let mut restored = Self {
            state: kept.state,
            cause: kept.metric,
            is_owed: kept.state == ProbeState::Overlimit,
            is_eviction_due: kept.state == ProbeState::Overlimit,
            alone_mhz: kept.clock_mhz,
            entries: entries.collect(),
            ..Self::new(now_ns, params)
        };
        restored.await_cause(now_ns);
        restored
    }

    /// Nothing improves before the metric behind the state is known.
    fn await_cause(&mut self, now_ns: u64) {
        let Some(metric) = self.cause else { return };
        let place = metric as usize;
        if self.params.bounds[place] != Bound::Off {
            self.gauges[place].known_ns = Some(now_ns);
        }
    }

    /// The state that is to outlive the daemon, as of `now_ns`.
    #[must_use]
    pub fn kept(&self, now_ns: u64) -> KeptProbe {
        let ages = self.entries.iter();
        let ages = ages.map(|&at| (signed(now_ns) - at).max(0).cast_unsigned());
        KeptProbe {
            state: match self.is_owed {
                true => ProbeState::Overlimit,
                false => self.state,
            },
            metric: self.cause,
            entered_ns: ages.collect(),
            clock_mhz: self.alone_mhz,
        }
    }

    /// Replaces bounds; the state stays. Metrics with new bounds restart; known ones are awaited.
    pub fn set_params(&mut self, params: ProbeParams) {
        let bounds = self.params.bounds.iter().zip(&params.bounds);
        for (gauge, (old, new)) in self.gauges.iter_mut().zip(bounds) {
            if old != new {
                *gauge = Gauge {
                    known_ns: gauge.known_ns.filter(|_| *new != Bound::Off),
                    ..Gauge::default()
                };
            }
        }
        self.params = params;
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> ProbeState {
        self.state
    }

    /// The device was read. `clock_alone_mhz`: high-priority work's solo clock, where learnt.
    pub fn handle_reading(
        &mut self,
        now_ns: u64,
        said: DeviceReading,
        clock_alone_mhz: Option<u32>,
    ) -> Outcome {
        if said.is_lost {
            return self.change(now_ns, ProbeState::Disabled, None);
        }
        let (reading, _) = said.checked();
        // The learnt clock stays where nothing learns it any more.
        let known_mhz = self.params.clock_mhz.or(clock_alone_mhz);
        self.alone_mhz = known_mhz.or(self.alone_mhz);
        let mut is_known = false;
        for (place, metric) in Metric::ALL.into_iter().enumerate() {
            let (gauge, bound) = (&mut self.gauges[place], self.params.bounds[place]);
            if let Some(sample) = Sample::of(metric, bound, &reading, self.alone_mhz) {
                is_known = true;
                gauge.handle(now_ns, metric, sample);
            }
        }
        let elapsed_ns = self.elapsed_ns(now_ns);
        let next = is_known.then(|| self.next(now_ns, elapsed_ns)).flatten();
        match next {
            Some((state, cause)) => self.change(now_ns, state, cause),
            None => Outcome {
                changed: None,
                evicts: self.evicts_anew(now_ns),
            },
        }
    }

    fn evicts_anew(&mut self, now_ns: u64) -> bool {
        if self.state != ProbeState::Overlimit {
            return false;
        }
        let is_due = self.is_eviction_due && now_ns.saturating_sub(self.begun_ns) >= RETURNED_NS;
        let is_full = self.gauges[Metric::Memory as usize].above[1] > 0;
        let is_late = now_ns.saturating_sub(self.evicted_ns) >= AGAIN_NS;
        let evicts = is_due || (is_full && is_late && !self.is_eviction_due);
        if evicts {
            (self.evicted_ns, self.is_eviction_due) = (now_ns, false);
        }
        evicts
    }

    fn elapsed_ns(&mut self, now_ns: u64) -> u64 {
        let mut known = self.gauges.iter().filter_map(|gauge| gauge.known_ns);
        if !known.all(|known_ns| known_ns == now_ns) {
            return 0;
        }
        let seen_ns = self.seen_ns.replace(now_ns);
        let since_ns = seen_ns.map(|ns| now_ns.saturating_sub(ns.max(self.changed_ns)));
        since_ns.filter(|&ns| ns <= GAP_NS).unwrap_or(0)
    }

    fn next(&mut self, now_ns: u64, elapsed_ns: u64) -> Option<(ProbeState, Option<Metric>)> {
        let passes = |gauges: &[Gauge; 6], bound: usize| {
            let all = Metric::ALL.into_iter().zip(gauges);
            let mut all = all.filter(|(metric, of)| of.above[bound] >= metric.worse_after());
            all.next().map(|(metric, _)| metric)
        };
        let any = |gauges: &[Gauge; 6], is_it: &dyn Fn(&Gauge) -> bool| {
            let mut all = Metric::ALL.into_iter().zip(gauges);
            all.find(|(_, gauge)| gauge.known_ns.is_some() && is_it(gauge))
                .map(|(metric, _)| metric)
        };
        let over = passes(&self.gauges, 1);
        if over.is_some() && self.state != ProbeState::Overlimit {
            return Some((ProbeState::Overlimit, over));
        }
        let (hindered, needed_ns, better) = match self.state {
            ProbeState::Init => {
                let above = any(&self.gauges, &|gauge| gauge.above[0] > 0);
                return match passes(&self.gauges, 0) {
                    None if above.is_none() => Some((ProbeState::Healthy, None)),
                    None => None,
                    cause => Some((ProbeState::Unhealthy, cause)),
                };
            }
            ProbeState::Healthy => {
                let healed_ns = self.healed_ns;
                let is_young = healed_ns.is_some_and(|ns| now_ns.saturating_sub(ns) < CALM_NS);
                let unhealthy = passes(&self.gauges, 0).filter(|_| !is_young);
                return unhealthy.map(|metric| (ProbeState::Unhealthy, Some(metric)));
            }
            ProbeState::Disabled => {
                return Some(match self.is_owed {
                    true => (ProbeState::Overlimit, self.cause),
                    false => (ProbeState::Unhealthy, None),
                });
            }
            ProbeState::Unhealthy => {
                let restless = any(&self.gauges, &|gauge| !gauge.is_calm);
                (restless, CALM_NS, ProbeState::Healthy)
            }
            ProbeState::Overlimit => {
                let above = any(&self.gauges, &|gauge| gauge.above[1] > 0);
                (above, self.hold_ns(), ProbeState::Unhealthy)
            }
        };
        if hindered.is_some() {
            self.cause = hindered;
            self.better_ns = 0;
            return None;
        }
        self.better_ns = self.better_ns.saturating_add(elapsed_ns);
        let cause = self.cause.filter(|_| better == ProbeState::Unhealthy);
        (self.better_ns >= needed_ns).then_some((better, cause))
    }

    fn change(&mut self, now_ns: u64, state: ProbeState, cause: Option<Metric>) -> Outcome {
        let before = std::mem::replace(&mut self.state, state);
        if before == state {
            return Outcome::default();
        }
        if state != ProbeState::Disabled {
            self.cause = cause;
        }
        (self.better_ns, self.changed_ns) = (0, now_ns);
        let was_owed = match state {
            ProbeState::Disabled => self.is_owed,
            _ => std::mem::replace(&mut self.is_owed, state == ProbeState::Overlimit),
        };
        if state == ProbeState::Overlimit && !was_owed {
            let now = signed(now_ns);
            self.entries.retain(|&at| now - at < signed(WINDOW_NS));
            let first = (self.entries.len() + 1).saturating_sub(ENTRIES_MAX);
            self.entries.drain(..first);
            self.entries.push(now);
        }
        self.healed_ns =
            (state == ProbeState::Healthy && before == ProbeState::Unhealthy).then_some(now_ns);
        if state == ProbeState::Overlimit {
            (self.evicted_ns, self.is_eviction_due) = (now_ns, false);
        }
        let value = |metric: Metric| Some((metric, self.gauges[metric as usize].value?));
        Outcome {
            changed: Some((before, cause.and_then(value))),
            evicts: state == ProbeState::Overlimit,
        }
    }

    fn hold_ns(&self) -> u64 {
        let last = self.entries.last().copied().unwrap_or(0);
        let recent = self
            .entries
            .iter()
            .filter(|&&at| last - at < signed(WINDOW_NS));
        let doublings = recent.count().clamp(1, 16) - 1;
        (HOLD_NS << doublings).min(WINDOW_NS)
    }

    /// The state at `now_ns`.
    #[must_use]
    pub fn view(&self, now_ns: u64) -> ProbeView {
        let needed_ns = match self.state {
            ProbeState::Unhealthy => Some(CALM_NS),
            ProbeState::Overlimit => Some(self.hold_ns()),
            ProbeState::Init | ProbeState::Healthy | ProbeState::Disabled => None,
        };
        let left_ns = needed_ns.map(|ns| ns.saturating_sub(self.better_ns));
        let seen_ns = self.seen_ns.unwrap_or(now_ns);
        let all = Metric::ALL.into_iter().zip(&self.gauges);
        let looked_at = all.zip(&self.params.bounds);
        let looked_at = looked_at.filter(|(_, bound)| **bound != Bound::Off);
        let known = self.gauges.iter().filter_map(|gauge| gauge.known_ns);
        let oldest_ns = known.min().unwrap_or(self.begun_ns);
        let now = signed(now_ns);
        let recent = self
            .entries
            .iter()
            .filter(|&&at| now - at < signed(WINDOW_NS));
        ProbeView {
            state: self.state,
            metric: self.cause,
            entries: recent.count(),
            until_ns: left_ns.map(|ns| seen_ns.saturating_add(ns)),
            metrics: looked_at
                .map(|((metric, gauge), _)| MetricView {
                    metric,
                    value: gauge.value,
                    unhealthy: gauge.bounds.map(|(first, _)| first),
                    overlimit: gauge.bounds.and_then(|(_, second)| second),
                })
                .collect(),
            blind: now_ns.saturating_sub(oldest_ns) >= BLIND_NS,
        }
    }
}

#[derive(Clone, Copy)]
struct Sample {
    value: f64,
    bounds: (f64, Option<f64>),
    counts: bool,
}

impl Sample {
    /// `None`: ignored, or not known.
    fn of(
        metric: Metric,
        bound: Bound,
        reading: &DeviceReading,
        alone_mhz: Option<u32>,
    ) -> Option<Self> {
        let bounds = match bound {
            Bound::Off => return None,
            Bound::At(first, second) => (first, second),
            Bound::BelowSlowdown(first, second) => {
                let slowdown = reading.slowdown_c?;
                (slowdown - first, Some(slowdown - second))
            }
        };
        let clock = || {
            let alone_mhz = alone_mhz.filter(|&mhz| mhz > 0)?;
            Some(f64::from(reading.clock_mhz?) / f64::from(alone_mhz))
        };
        let is_busy = || Some(reading.busy? >= BUSY);
        let (value, counts) = match metric {
            Metric::Utilisation => (reading.busy?, true),
            Metric::SmActivity => (reading.sm_activity?, true),
            Metric::Clock => (clock()?, is_busy()?),
            Metric::Memory => (reading.memory_used?, true),
            Metric::Temperature => (reading.temperature_c?, true),
            Metric::Power => {
                let limit_w = reading.power_limit_w.filter(|&watts| watts > 0.0)?;
                let is_slow = clock()? < SLOW && is_busy()?;
                (reading.power_w? / limit_w, is_slow)
            }
        };
        Some(Self {
            value,
            bounds,
            counts,
        })
    }
}

impl Gauge {
    fn handle(&mut self, now_ns: u64, metric: Metric, sample: Sample) {
        let Sample {
            value,
            bounds,
            counts,
        } = sample;
        let bad = metric.badness(value);
        let first = metric.badness(bounds.0);
        // For a bound where less is worse, as far on the other side.
        let calm = if first > 0.0 {
            first * CALM
        } else {
            first / CALM
        };
        let is_above = [
            counts && bad >= first,
            counts && bounds.1.is_some_and(|second| bad >= metric.badness(second)),
        ];
        for (count, is_above) in self.above.iter_mut().zip(is_above) {
            *count = if is_above { count.saturating_add(1) } else { 0 };
        }
        self.is_calm = !counts || bad < calm;
        (self.value, self.bounds, self.known_ns) = (Some(value), Some(bounds), Some(now_ns));
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX / 2)
}

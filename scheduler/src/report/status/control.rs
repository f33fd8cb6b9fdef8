//! Status of the laws that control a job: a high-priority job's request target, and a best-effort
//! job's GPU time.

use policy::{Goal, ShareMode, Sharing, Slo, SloEnd, SloView};
use serde::Serialize;

use crate::core::state::{Job, Origin, State, TunerView};

/// The laws that control a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ControlStatus {
    /// Its request target; none for a best-effort job, and under a policy without targets.
    pub slo: Option<SloStatus>,
    /// Its cap and use of the GPU's time; none for a high-priority job.
    pub usage: Option<UsageStatus>,
    /// Its promises; none for a high-priority job, and under a policy without promises.
    pub promise: Option<PromiseStatus>,
    /// Wanted batches, by kind of requests whose range the program publishes, with `[tuner]`.
    pub tuner: Vec<TunerStatus>,
}

/// State of the search for a kind's batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunerStatus {
    /// Its process id.
    pub pid: u32,
    /// The kind, by the program's numbering.
    pub kind: u32,
    /// `no-target` (in ms), `alone` (without best-effort jobs), `waiting` (for another search),
    /// `looking` (measuring the program's own batch), `trying` (measuring another), `kept`,
    /// `infeasible` (no batch is known to keep the target, and best-effort jobs are paused) or
    /// `ignored` (the program does not take the wanted one).
    pub state: &'static str,
    /// The wanted batch; none: the program's choice.
    pub batch: Option<u32>,
    /// Batches measured in this search.
    pub evaluations: usize,
    /// Requests per second, from the batches that begin; none while unknown.
    pub rate_per_s: Option<f64>,
    /// 99th percentile of the last measured batch, from begin to end; none before one was measured.
    pub p99_ns: Option<u64>,
    /// Target of a request; none: no target.
    pub target_ns: Option<u64>,
}

impl TunerStatus {
    fn of(view: TunerView) -> Self {
        Self {
            pid: view.pid,
            kind: view.kind,
            state: view.stand.name(),
            batch: view.batch,
            evaluations: view.evaluations,
            rate_per_s: view.rate_per_s,
            p99_ns: view.p99_ns,
            target_ns: view.target_ns,
        }
    }
}

/// GPU time of a best-effort job, all its processes together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageStatus {
    /// Its cap, 0.01 to 1; 1: none.
    pub cap: f64,
    /// Source of the cap: `configuration` (`max_share`, or its absence), `run` (`--compute` of
    /// `pillion run`) or `set` (of `pillion set`).
    pub source: &'static str,
    /// Its use in the last second or so, by expected durations, with a cap corrected by NVML's
    /// measurements; none in its first second.
    pub used: Option<f64>,
    /// It has a cap and works, unmeasured by NVML for ten seconds: expected durations count.
    pub blind: bool,
}

/// Promises to a best-effort job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromiseStatus {
    /// Length of its turns relative to others', 1 to 100.
    pub weight: u32,
    /// Source of the weight: `configuration` (a rule, or its absence) or `set` (of `pillion set`).
    pub weight_source: &'static str,
    /// Least share of its rate alone, above 0 to 1; none: no promise.
    pub min_progress: Option<f64>,
    /// Source of the least share, likewise.
    pub min_progress_source: &'static str,
}

impl PromiseStatus {
    fn of(state: &State, job: &Job) -> Option<Self> {
        let promised = state.promised(job)?;
        let (weight, weight_origin) = promised.weight;
        let (least, least_origin) = promised.least;
        Some(Self {
            weight,
            weight_source: weight_origin.name(),
            min_progress: (least > 0.0).then_some(least),
            min_progress_source: least_origin.name(),
        })
    }
}

/// A job's request target, and how it is kept. Of several processes the one with the least level,
/// which binds; the counts (`requests`, `misses`, `misses_at_floor`, and `miss_share` of them) are
/// of all living ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SloStatus {
    /// The target in force, in the form of `slo_p99` and `slo_mean`: `1.2x` (of the duration alone)
    /// or `15ms`; a share of the rate alone, as in `slo_throughput`: `0.95`.
    pub goal: String,
    /// What it bounds: `quantile`, `mean` or `rate`.
    pub of: &'static str,
    /// Source of the target: `configuration`, `run` (`--slo` of `pillion run`), `set` (of `pillion
    /// set`) or `marks` (the program).
    pub source: &'static str,
    /// Share of requests that may take longer; none for a mean or a rate.
    pub miss: Option<f64>,
    /// Target of a request from its arrival on; none while the duration alone is being learnt, and
    /// for unmarked requests.
    pub target_ns: Option<u64>,
    /// Longest duration of the last requests but the share `miss`, or the mean of the last 64; none
    /// before there are enough.
    pub measured_ns: Option<u64>,
    /// Share of the judged requests that took longer; none before any was judged.
    pub miss_share: Option<f64>,
    /// From -6 (best-effort work is paused) to 1 (all that requests bear); none if unmarked.
    pub level: Option<f64>,
    /// Growth of the mean per unit of the level, in slacks (target less solo); none if unknown.
    pub m: Option<f64>,
    /// Share of the variation of the mean from one period to the next that `m` explains.
    pub r2: Option<f64>,
    /// Judged requests.
    pub requests: u64,
    /// Judged requests over their target.
    pub misses: u64,
    /// Misses while best-effort work was paused: it did not cause them.
    pub misses_at_floor: u64,
    /// The end at which control fails: `floor` (best-effort work is paused, and requests are late
    /// all the same) or `top` (it has all that it can get, and requests are in time); none if it
    /// works, or is unknown.
    pub saturated: Option<&'static str>,
    /// The duration of marked requests alone is being learnt, and none is judged.
    pub learning: bool,
}

/// The throttle ([`policy::throttle`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThrottleStatus {
    /// The set point of usage.
    pub utilisation: f64,
    /// At the last reading: the busy share of the time, raised if the clock is low; none if
    /// unknown.
    pub usage: Option<f64>,
    /// The busy share of the time.
    pub busy: Option<f64>,
    /// The SM clock at that reading.
    pub clock_mhz: Option<u32>,
    /// The SM clock of high-priority work alone, configured or learnt; none while unknown.
    pub clock_alone_mhz: Option<u32>,
    /// Joint share of the time of best-effort jobs beside a high-priority job, 0.02 to 1.
    pub rate: f64,
    /// Empty or impossible readings.
    pub dropped: u64,
    /// No valid reading for ten seconds: the rate is frozen.
    pub blind: bool,
}

/// The best-effort share beside high-priority jobs ([`policy::share`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareStatus {
    /// `static`, `dynamic` or `target`.
    pub mode: &'static str,
    /// The share, per cent; none while unknown.
    pub percent: Option<u32>,
    /// High-priority use of the SMs in the last quarter of an hour with such a job, 0 to 1; none
    /// before the first second, and for a static share.
    pub used: Option<f64>,
    /// What it is a share of: `sms`, of each process of a job that `pillion run` starts from now on
    /// (MPS), or `time`, of all best-effort jobs together beside a high-priority one (time slices).
    pub of: &'static str,
}

impl ShareStatus {
    pub(super) fn of(state: &State) -> Option<Self> {
        let view = state.share_view()?;
        Some(Self {
            mode: match view.mode {
                ShareMode::Static(_) => "static",
                ShareMode::Dynamic => "dynamic",
                ShareMode::Target => "target",
            },
            percent: view.percent,
            used: view.used.filter(|_| view.mode == ShareMode::Dynamic),
            of: match state.ways.in_force() {
                Sharing::Mps => "sms",
                Sharing::TimeSlice => "time",
            },
        })
    }
}

impl ThrottleStatus {
    pub(super) fn of(state: &State, now_ns: u64) -> Option<Self> {
        let view = state.gate.throttle_view(now_ns)?;
        let is_read = state.is_throttled();
        Some(Self {
            utilisation: view.utilisation,
            usage: view.usage,
            busy: view.reading.busy,
            clock_mhz: view.reading.clock_mhz,
            clock_alone_mhz: view.clock_mhz,
            rate: view.rate,
            dropped: view.dropped,
            // Without a high-priority job nothing is read or held.
            blind: is_read && view.blind,
        })
    }
}

impl ControlStatus {
    pub(super) fn of(state: &State, now_ns: u64, job: &Job) -> Option<Self> {
        let control = Self {
            slo: slo_of(state, job),
            usage: job.be_job.as_ref().map(|be_job| {
                let (cap, origin) = state.cap(job);
                let trim = state.gate.cost_factor(now_ns, be_job.id());
                let (factor, blind) = trim.unwrap_or((1.0, false));
                UsageStatus {
                    cap: cap.share(),
                    source: origin.name(),
                    used: be_job.used().share().map(|share| share * factor),
                    blind,
                }
            }),
            promise: PromiseStatus::of(state, job),
            tuner: state
                .tuner_views(now_ns, job)
                .into_iter()
                .map(TunerStatus::of)
                .collect(),
        };
        let is_there =
            control.slo.is_some() || control.usage.is_some() || !control.tuner.is_empty();
        is_there.then_some(control)
    }
}

fn slo_of(state: &State, job: &Job) -> Option<SloStatus> {
    job.be_job.is_none().then_some(())?;
    let params = state.pillion()?;
    let view = state.slo_view(job);
    let (goal, origin) = job.goal.in_force(params, view.is_some());
    Some(SloStatus::of(goal, origin, view))
}

impl SloStatus {
    fn of(given: Goal, origin: Origin, view: Option<SloView>) -> Self {
        // A program's own target can only tighten the given one.
        let goal = view.map_or(given, |view| view.goal);
        let origin = if goal == given { origin } else { Origin::Marks };
        let none = Self {
            goal: match goal.slo {
                Slo::Throughput(share) => share.to_string(),
                slo => slo.to_string(),
            },
            of: goal.slo.of(),
            source: origin.name(),
            miss: (!goal.slo.is_mean()).then_some(goal.miss),
            target_ns: None,
            measured_ns: None,
            miss_share: None,
            level: None,
            m: None,
            r2: None,
            requests: 0,
            misses: 0,
            misses_at_floor: 0,
            saturated: None,
            learning: false,
        };
        let Some(view) = view else {
            return none;
        };
        Self {
            target_ns: view.target_ns,
            measured_ns: view.measured_ns,
            miss_share: (view.requests > 0 && !goal.slo.is_mean())
                .then(|| view.misses as f64 / view.requests as f64),
            level: Some(view.level),
            m: view.slope.map(|slope| slope.m),
            r2: view.slope.map(|slope| slope.r2),
            requests: view.requests,
            misses: view.misses,
            misses_at_floor: view.misses_at_floor,
            saturated: match view.end {
                SloEnd::Floor => Some("floor"),
                SloEnd::Top => Some("top"),
                SloEnd::Held | SloEnd::Learning => None,
            },
            learning: view.end == SloEnd::Learning,
            ..none
        }
    }
}

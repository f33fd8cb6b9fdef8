//! What a status says of the laws that steer a job: how what a high-priority job's requests may take is held, and what a best-effort
//! job may use of the GPU's time.

use policy::{Goal, ShareMode, Sharing, Slo, SloEnd, SloView};
use serde::Serialize;

use crate::core::state::{Job, Origin, State, TunerView};

/// The laws at work for a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ControlStatus {
    /// What its requests may take, and take; none of a best-effort job, and where the policy does not look at that.
    pub slo: Option<SloStatus>,
    /// What it may use of the GPU's time, and uses; none of a high-priority job.
    pub usage: Option<UsageStatus>,
    /// What it is promised; none of a high-priority job, and where the policy does not look at
    /// that.
    pub promise: Option<PromiseStatus>,
    /// The batches that it is to take, by kind of requests; of those for which its program says
    /// which it can take, with `[tuner]`.
    pub tuner: Vec<TunerStatus>,
}

/// How the batch of a kind of requests is searched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunerStatus {
    /// The process.
    pub pid: u32,
    /// Which kind, as its program counts kinds.
    pub kind: u32,
    /// `no-target` (in ms), `alone` (no best-effort job is there), `waiting` (for another search),
    /// `looking` (the batch that the program takes by itself is measured), `trying` (another is),
    /// `kept`, `infeasible` (no batch is known to keep the target, and best-effort jobs are paused)
    /// or `ignored` (the program takes others than are wanted).
    pub state: &'static str,
    /// The batch that is wanted; none: the program takes what it likes.
    pub batch: Option<u32>,
    /// Batches that were measured in this search.
    pub evaluations: usize,
    /// Requests per second, by the batches that begin; none while that is not known.
    pub rate_per_s: Option<f64>,
    /// The 99th percentile of what a batch took from begin to end, of the batch that was measured
    /// last; none before one was.
    pub p99_ns: Option<u64>,
    /// Within this a request is to be answered; none: there is no such time.
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

/// What a best-effort job may use of the GPU's time, all its processes together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageStatus {
    /// The most that it may use, 0.01 to 1; 1 is no cap.
    pub cap: f64,
    /// Where that comes from: `configuration` (`max_share`, or nothing is said), `run` (`--compute` of `pillion run`) or `set` (of
    /// `pillion set`).
    pub source: &'static str,
    /// What it has used in the last second or so, by what its launches were expected to take, as far as it has a cap corrected by what
    /// NVML measures; none in its first.
    pub used: Option<f64>,
    /// It has a cap and works, and NVML has told nothing of what it uses for ten seconds: the cap goes by what launches are expected
    /// to take.
    pub blind: bool,
}

/// What a best-effort job is promised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromiseStatus {
    /// How long its turns are against others', 1 to 100.
    pub weight: u32,
    /// Where that comes from: `configuration` (a rule, or nothing is said) or `set` (of
    /// `pillion set`).
    pub weight_source: &'static str,
    /// The least share of its rate alone, above 0 to 1; none: it is promised none.
    pub min_progress: Option<f64>,
    /// Where that comes from, in the same words.
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

/// What requests of a job may take, and how that is held. Of several processes the one with the least level, which is what
/// binds; the counts (`requests`, `misses`, `misses_at_floor`, and `miss_share` of them) are of all that live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SloStatus {
    /// What is in force, as `slo_p99` and `slo_mean` have it: `1.2x` (alone) or `15ms`; a share of
    /// the rate alone, as `slo_throughput` has it: `0.95`.
    pub goal: String,
    /// What it is of: `quantile`, `mean` or `rate`.
    pub of: &'static str,
    /// Where that comes from: `configuration`, `run` (`--slo` of `pillion run`), `set` (of `pillion set`) or `marks` (the program).
    pub source: &'static str,
    /// The share of requests that may take longer; none of a mean or a rate.
    pub miss: Option<f64>,
    /// A request may take so long from its arrival on; none while what it takes alone is learnt, and of requests that are not marked.
    pub target_ns: Option<u64>,
    /// What all but the share `miss` of the last requests took at most, or the mean of the last 64;
    /// none before there are enough.
    pub measured_ns: Option<u64>,
    /// The share of all that were judged and took longer; none before any was.
    pub miss_share: Option<f64>,
    /// From -6 (best-effort work is paused) to 1 (it has all that a request can bear); none of requests that are not marked.
    pub level: Option<f64>,
    /// By how many slacks (target less alone) the mean grows with a unit of the level; none where
    /// it was not identified.
    pub m: Option<f64>,
    /// The share of what the mean of a period differed by from the one before that `m` explains.
    pub r2: Option<f64>,
    /// Requests that were judged.
    pub requests: u64,
    /// Those of them that took longer than their target.
    pub misses: u64,
    /// Those of the misses that found best-effort work paused: they are not its doing.
    pub misses_at_floor: u64,
    /// The end at which it is not held: `floor` (best-effort work is paused, and requests are late all the same) or `top` (it has all
    /// that it can get, and requests are in time); none where it is held, or not known.
    pub saturated: Option<&'static str>,
    /// What marked requests take alone is still learnt, and none is judged.
    pub learning: bool,
}

/// The throttle ([`policy::throttle`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThrottleStatus {
    /// Usage that is held.
    pub utilisation: f64,
    /// As of the last reading: the share of the time that the GPU was busy, more where its clock is low; none before one.
    pub usage: Option<f64>,
    /// That share of the time.
    pub busy: Option<f64>,
    /// The SM clock then.
    pub clock_mhz: Option<u32>,
    /// The SM clock of high-priority work alone, configured or learnt; none while it is not known.
    pub clock_alone_mhz: Option<u32>,
    /// The share of the time that best-effort jobs may use together while a high-priority job is there, 0.02 to 1.
    pub rate: f64,
    /// Readings that said nothing, or what cannot be.
    pub dropped: u64,
    /// There was no other for ten seconds: the rate stays what it is.
    pub blind: bool,
}

/// How much of the GPU best-effort jobs have beside high-priority ones ([`policy::share`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareStatus {
    /// `static`, `dynamic` or `target`.
    pub mode: &'static str,
    /// The share, per cent; none while it is not known.
    pub percent: Option<u32>,
    /// What high-priority jobs used of the SMs in the last quarter of an hour in which one was there,
    /// 0 to 1; none before the first second, and where the share is static.
    pub used: Option<f64>,
    /// What it is a share of: `sms`, those of each process of a job that `pillion run` starts from now
    /// on (MPS), or `time`, of all best-effort jobs together while a high-priority one is there (time
    /// slices).
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
            // Without a high-priority job nobody reads, and nothing is held.
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

/// Of a high-priority job under the one policy that looks at what requests may take.
fn slo_of(state: &State, job: &Job) -> Option<SloStatus> {
    job.be_job.is_none().then_some(())?;
    let params = state.pillion()?;
    let view = state.slo_view(job);
    let (goal, origin) = job.goal.in_force(params, view.is_some());
    Some(SloStatus::of(goal, origin, view))
}

impl SloStatus {
    fn of(given: Goal, origin: Origin, view: Option<SloView>) -> Self {
        // A program's own only tightens what was given.
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

//! `mudi`: the batch of high-priority requests and the shares of the SMs with which best-effort
//! jobs are fastest while requests keep a target: Mudi (EuroSys'25), sections 4 and 5.3, of the
//! modules [`policy::latency_model`] and [`policy::tuner`], whose texts state the differences.
//! - *Beforehand* the p99 of each batch is sampled at six shares Δ of the high-priority job, one
//!   batch after the other beside the best-effort jobs, which have the rest. (The paper predicts it
//!   for unseen trainings; that is not built.)
//! - *A search* begins with the greatest Δ at a knee. Each window tries a batch, and reports its
//!   duration and that of iterations to the tuner. When the tuner keeps one, Δ becomes the least
//!   with which the target holds, and a tenth of it more.
//! - *The rate* is that of arrivals within a window. After a change by half, Δ is solved for anew
//!   and a search begins.
//! - A share under which batches take longer than they may grows in proportion. This is not in the
//!   paper: where the model is off by more than its tenth, the job would not keep up.
//! - Where no batch keeps the target, best-effort jobs are paused; also after a request missed it,
//!   as in a burst, until the end of the first window without a miss, in which the high-priority
//!   job has all SMs, so that waiting requests are answered.
//!
//! A share of the high-priority job changes without an outage: the paper hides it behind a shadow
//! instance. It does not mention restarts of best-effort jobs; they take `restart_s`.

use std::cell::OnceCell;

use policy::latency_model::{PieceWise, SAMPLE_SHARES, fit};
use policy::tuner::{Choice, Observation, Prediction, Tuner, TunerParams};
use profiler::quantile::nearest_rank;

use super::period_mean::ns;
use super::{GsliceSpec, MudiSpec, PolicySpec, solo_ns};
use crate::arrivals::Arrivals;
use crate::experiment::Experiment;
use crate::job::{Batch, Job, JobClass};
use crate::laws::Laws;
use crate::observer::NoObserver;
use crate::program::Program;
use crate::scheduler::{ClientId, Issue, Placement, Restart, Scheduler, SmShare, State};

#[derive(Debug)]
pub(super) struct Mudi {
    spec: MudiSpec,
    experiment: Experiment,
    /// By place in [`Mudi::sizes`]; `None` where there were too few samples.
    models: OnceCell<Vec<Option<PieceWise>>>,
    sizes: Vec<u32>,
    classes: Vec<JobClass>,
    tuner: Option<Tuner>,
    is_searching: bool,
    is_paused: bool,
    /// Set while requests are late: the share to return to.
    late: Option<f64>,
    batch: usize,
    /// The high-priority job's share in force, per cent; `None` before the first search.
    share_pct: Option<u32>,
    window: Window,
    restarts: Vec<Restart>,
}

#[derive(Debug, Default)]
struct Window {
    end_ns: u64,
    is_missed: bool,
    took_ns: Vec<u64>,
    iterations: u64,
    iterations_ns: u64,
    arrived: u64,
    arrived_ns: u64,
    /// The batch in progress: its first request's arrival, its beginning, and its place.
    last: Option<(u64, u64, usize)>,
}

impl Mudi {
    pub(super) fn new(spec: &MudiSpec, experiment: &Experiment) -> Self {
        let jobs = experiment.jobs.iter();
        let is_hp = |job: &&Job| job.class == JobClass::HighPriority;
        let batches = jobs.clone().find(is_hp).map(|job| &job.batches);
        let sizes = batches.into_iter().flatten().map(|batch| batch.requests);
        let mut sizes: Vec<u32> = sizes.collect();
        if sizes.is_empty() {
            sizes.push(1);
        }
        Self {
            spec: *spec,
            experiment: experiment.clone(),
            models: OnceCell::new(),
            sizes,
            classes: jobs.map(|job| job.class).collect(),
            tuner: None,
            is_searching: false,
            is_paused: false,
            late: None,
            batch: 0,
            share_pct: None,
            window: Window {
                end_ns: ns(spec.window_s),
                ..Window::default()
            },
            restarts: Vec::new(),
        }
    }

    fn models(&self) -> &[Option<PieceWise>] {
        let profile = || {
            let places = 0..self.sizes.len();
            places.map(|place| self.profile(place)).collect()
        };
        self.models.get_or_init(profile)
    }

    fn profile(&self, place: usize) -> Option<PieceWise> {
        let samples = SAMPLE_SHARES.map(|share| Some((share, self.p99_ns(place, share)?)));
        let samples: Vec<(f64, f64)> = samples.into_iter().flatten().collect();
        fit(&samples).ok()
    }

    fn p99_ns(&self, place: usize, share: f64) -> Option<f64> {
        let mut experiment = self.experiment.clone();
        experiment.policy = PolicySpec::Gslice(GsliceSpec {
            share_pct: (share * 100.0).round() as u32,
            ..GsliceSpec::default()
        });
        experiment.laws = Laws::default();
        experiment.warmup_requests = PROFILE_WARMUP;
        let is_hp = |job: &Job| job.class == JobClass::HighPriority;
        let index = experiment.jobs.iter().position(is_hp)?;
        let job = experiment.jobs.get_mut(index)?;
        if let Some(Batch { trace, .. }) = job.batches.get(place) {
            job.trace = trace.clone();
        }
        job.batches.clear();
        job.phases.clear();
        job.trace_phases.clear();
        (job.arrivals, job.start_ns, job.death_ns) = (Arrivals::Closed, 0, None);
        let program = Program::new(job, &experiment.device).ok()?;
        let solo_ns = solo_ns(&experiment, index, &program);
        experiment.duration_ns = (PROFILE_REQUESTS * solo_ns)
            .min(ns(self.spec.profile_s))
            .max(1);
        let outcome = experiment.run(&mut NoObserver).ok()?;
        let p99_ns = outcome.jobs.get(index)?.quantile_ns(990)?;
        Some(p99_ns as f64)
    }

    fn predictions(&self, share: f64) -> Vec<Prediction> {
        let models = self.models().iter().zip(&self.sizes);
        let predicted = models.filter_map(|(model, &batch)| {
            let p99_ns = model.as_ref()?.at(share).max(1.0) as u64;
            Some(Prediction { batch, p99_ns })
        });
        predicted.collect()
    }

    fn first_share(&self) -> f64 {
        let knees = self.models().iter().flatten().map(|model| model.knee_share);
        knees.fold(0.0, f64::max).clamp(0.01, 0.99)
    }

    fn limit_ns(&self, rate_per_s: f64) -> f64 {
        let size = f64::from(self.sizes.get(self.batch).copied().unwrap_or(1));
        let fills_ns = (size - 1.0) / rate_per_s * 1e9;
        let keeps_up_ns = size / rate_per_s * 1e9 * policy::tuner::UTILISATION_MAX;
        (self.spec.slo_ms * 1e6 - fills_ns).min(keeps_up_ns)
    }

    fn least_share(&self, rate_per_s: f64) -> Option<f64> {
        let model = self.models().get(self.batch)?.as_ref()?;
        model.share_with_margin(self.limit_ns(rate_per_s))
    }

    fn correct(&mut self, rate_per_s: f64, p99_ns: u64) {
        let over = p99_ns as f64 / self.limit_ns(rate_per_s).max(1.0);
        let share = self.share_pct.map(|percent| f64::from(percent) / 100.0);
        if let Some(share) = share.filter(|_| over > 1.0) {
            self.put_share(share * over);
        }
    }

    fn begin(&mut self, rate_per_s: f64) {
        let share = match self.tuner.is_none() {
            true => self.first_share(),
            false => self.least_share(rate_per_s).unwrap_or(0.99),
        };
        self.put_share(share);
        let params = TunerParams {
            batches: self.sizes.clone(),
            rate_per_s,
            slo_ns: (self.spec.slo_ms * 1e6) as u64,
        };
        self.tuner = Tuner::new(params, &self.predictions(share)).ok();
        self.is_searching = true;
        self.follow(rate_per_s);
    }

    fn follow(&mut self, rate_per_s: f64) {
        let choice = self.tuner.as_ref().map_or(Choice::Infeasible, Tuner::next);
        let (size, is_end) = match choice {
            Choice::Try(size) => (Some(size), false),
            Choice::Keep(size) => (Some(size), true),
            Choice::Infeasible => (None, true),
        };
        let place = self.sizes.iter().position(|of| Some(*of) == size);
        self.batch = place.unwrap_or(self.batch);
        self.is_paused = size.is_none();
        if !is_end {
            return;
        }
        self.is_searching = false;
        match self.least_share(rate_per_s).filter(|_| !self.is_paused) {
            Some(share) => self.put_share(share),
            None => self.is_paused = true,
        }
    }

    fn holds(&self) -> bool {
        self.is_paused || self.late.is_some()
    }

    /// Sets the share in force from now on, or from when no request is late.
    fn put_share(&mut self, share: f64) {
        match &mut self.late {
            Some(later) => *later = share,
            None => self.restart(share),
        }
    }

    fn handle_miss(&mut self) {
        if self.late.is_none()
            && let Some(percent) = self.share_pct
        {
            self.restart(ALL);
            self.late = Some(f64::from(percent) / 100.0);
        }
    }

    fn restart(&mut self, share: f64) {
        let percent = ((share * 100.0).ceil() as u32).clamp(1, 99);
        if self.share_pct.replace(percent) == Some(percent) {
            return;
        }
        let clients = self.classes.iter().enumerate();
        let restarts = clients.map(|(index, class)| Restart {
            client: ClientId(index),
            share: share_of(*class, percent),
            outage_ns: match class {
                JobClass::HighPriority => 0,
                JobClass::BestEffort => ns(self.spec.restart_s),
            },
        });
        self.restarts = restarts.collect();
    }

    fn decide(&mut self, now_ns: u64) {
        self.window.end_ns = now_ns.saturating_add(ns(self.spec.window_s));
        if !std::mem::take(&mut self.window.is_missed)
            && let Some(share) = self.late.take()
        {
            self.restart(share);
            self.window.forget();
        }
        let Some(rate_per_s) = self.window.take_rate() else {
            return;
        };
        let Some(tuner) = &mut self.tuner else {
            self.begin(rate_per_s);
            self.window.forget();
            return;
        };
        if tuner.handle_rate(rate_per_s).unwrap_or(false) {
            self.begin(rate_per_s);
            self.window.forget();
            return;
        }
        if self.late.is_some() {
            // Present observations do not belong to a share with which a batch is tried.
            self.window.forget();
            return;
        }
        let batch = self.sizes.get(self.batch).copied().unwrap_or(1);
        if !self.is_searching {
            if let Some((p99_ns, _)) = self.window.seen().filter(|_| !self.is_paused) {
                self.correct(rate_per_s, p99_ns);
            }
            self.window.forget();
        } else if let Some((p99_ns, iteration_ns)) = self.window.seen() {
            tuner.handle_observation(Observation {
                batch,
                p99_ns,
                iteration_ns,
            });
            self.follow(rate_per_s);
            self.window.forget();
        }
    }
}

impl Window {
    /// The rate of requests since the last call; `None` where no two batches began.
    fn take_rate(&mut self) -> Option<f64> {
        let requests = std::mem::take(&mut self.arrived) as f64;
        let seconds = std::mem::take(&mut self.arrived_ns) as f64 / 1e9;
        (seconds > 0.0).then(|| requests / seconds)
    }

    fn seen(&mut self) -> Option<(u64, u64)> {
        self.took_ns.sort_unstable();
        let p99_ns = nearest_rank(&self.took_ns, 990)?;
        Some((p99_ns, self.iterations_ns.checked_div(self.iterations)?))
    }

    fn forget(&mut self) {
        self.took_ns.clear();
        (self.iterations, self.iterations_ns) = (0, 0);
    }
}

fn share_of(class: JobClass, hp_percent: u32) -> SmShare {
    let first = class == JobClass::HighPriority;
    SmShare {
        percent: if first { hp_percent } else { 100 - hp_percent },
        first,
    }
}

impl Scheduler for Mudi {
    fn placement(&self) -> Placement {
        Placement {
            one_context: false,
            priorities: false,
        }
    }

    fn handle_request_start(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        if self.classes[client.0] == JobClass::BestEffort {
            return;
        }
        let window = &mut self.window;
        if let Some((before_ns, _, batch)) = window.last.replace((arrival_ns, now_ns, self.batch)) {
            window.arrived += u64::from(self.sizes.get(batch).copied().unwrap_or(1));
            window.arrived_ns += arrival_ns - before_ns;
        }
    }

    fn handle_request_end(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        let is_hp = self.classes[client.0] == JobClass::HighPriority;
        if is_hp && now_ns - arrival_ns > (self.spec.slo_ms * 1e6) as u64 {
            self.window.is_missed = true;
            self.handle_miss();
        }
        let window = &mut self.window;
        match (self.classes[client.0], window.last) {
            (JobClass::BestEffort, _) => {
                window.iterations += 1;
                window.iterations_ns += now_ns - arrival_ns;
            }
            (JobClass::HighPriority, Some((_, began_ns, batch))) if batch == self.batch => {
                window.took_ns.push(now_ns - began_ns);
            }
            _ => {}
        }
    }

    fn admits_copy(&mut self, _now_ns: u64, client: ClientId, _bytes: u64) -> bool {
        !self.holds() || self.classes[client.0] == JobClass::HighPriority
    }

    fn batch(&mut self, _now_ns: u64, _client: ClientId) -> usize {
        self.batch
    }

    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        if self.window.end_ns <= now_ns {
            self.decide(now_ns);
        }
        for (index, client) in state.clients.iter().enumerate() {
            if !self.holds() || client.class == JobClass::HighPriority {
                let client_id = ClientId(index);
                issues.extend((0..client.queued).map(|_| Issue { client: client_id }));
            }
        }
    }

    fn share(&self, client: ClientId) -> Option<SmShare> {
        let percent = (self.first_share() * 100.0).ceil() as u32;
        Some(share_of(self.classes[client.0], percent.clamp(1, 99)))
    }

    fn take_restarts(&mut self, restarts: &mut Vec<Restart>) {
        restarts.append(&mut self.restarts);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        Some(self.window.end_ns)
    }

    fn rule(&self, _client: ClientId) -> &'static str {
        "paused"
    }
}

/// All SMs but the least share of best-effort jobs, which launch nothing then.
const ALL: f64 = 0.99;

/// Most requests of a sample, if each takes its solo time.
const PROFILE_REQUESTS: u64 = 50;

const PROFILE_WARMUP: u32 = 2;

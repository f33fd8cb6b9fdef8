//! The computations of a plan, without duplicates. A run is its experiment and each of its jobs
//! alone. Runs of a suite or a sweep share much of that: a job alone is the same under every
//! policy, and a row of one part may recur in another. Equal experiments have equal outcomes, so
//! `Key` holds everything that determines an outcome, and each key is computed as one [`Unit`].

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sim::scenario::Scenario;
use sim::{Arrivals, Experiment, Job, Observer, Outcome, ProfileErrors};

use crate::simulate::plan::{Part, Plan};

/// The experiment of a scenario with a seed, or one of its jobs alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit<'p> {
    scenario: &'p Scenario,
    seed: u64,
    /// The job that runs alone; none: all together.
    alone: Option<usize>,
}

/// One run of the plan, with the indices of its units.
#[derive(Debug)]
pub(crate) struct Task<'p> {
    pub(crate) part: &'p Part,
    pub(crate) scenario: &'p Scenario,
    pub(crate) seed: u64,
    pub(crate) together: usize,
    /// By job.
    pub(crate) alone: Vec<usize>,
}

/// A task's units precede those that only later tasks need.
#[derive(Debug, Default)]
pub(crate) struct Work<'p> {
    pub(crate) tasks: Vec<Task<'p>>,
    pub(crate) units: Vec<Unit<'p>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Addresses of the jobs' traces: a library loads each once, so equal traces have equal ones.
    traces: Vec<usize>,
    /// Arrivals that are lists.
    lists: Vec<Arc<[u64]>>,
    rest: String,
}

impl<'p> Work<'p> {
    pub(crate) fn of(plan: &'p Plan) -> Self {
        let mut work = Self::default();
        let mut numbers = HashMap::new();
        for (part, scenario) in plan.scenarios() {
            for &seed in &scenario.seeds {
                let experiment = scenario.with_seed(seed);
                let mut number = |alone: Option<usize>| {
                    let units = &mut work.units;
                    let key = Key::of(&experiment, alone);
                    *numbers.entry(key).or_insert_with(|| {
                        units.push(Unit {
                            scenario,
                            seed,
                            alone,
                        });
                        units.len() - 1
                    })
                };
                let task = Task {
                    part,
                    scenario,
                    seed,
                    together: number(None),
                    alone: (0..experiment.jobs.len())
                        .map(|job| number(Some(job)))
                        .collect(),
                };
                work.tasks.push(task);
            }
        }
        work
    }
}

impl Unit<'_> {
    /// Fails if the experiment fails although it was checked.
    pub(crate) fn run(&self, observer: &mut impl Observer) -> Result<Outcome, sim::Error> {
        let experiment = self.scenario.with_seed(self.seed);
        match self.alone {
            None => experiment.run(observer),
            Some(job) => experiment.run_solo(job, observer),
        }
    }

    /// Time in which requests arrive, ns of its own time.
    pub(crate) const fn duration_ns(&self) -> u64 {
        self.scenario.experiment.duration_ns
    }
}

impl Key {
    fn of(experiment: &Experiment, alone: Option<usize>) -> Self {
        // Field by field, so that a new field is not forgotten.
        let Experiment {
            device,
            gpu,
            jobs,
            policy,
            laws,
            // The seeds of the jobs contain it otherwise.
            seed,
            duration_ns,
            host,
            profiles,
            warmup_requests,
        } = experiment;
        let mut key = Self {
            traces: Vec::new(),
            lists: Vec::new(),
            rest: format!("{} {gpu:?} {duration_ns} {warmup_requests}", device.name),
        };
        if alone.is_none() {
            let policy = policy.alike(gpu.sharing);
            key.add(format_args!("together {policy:?} {laws:?} {host:?}"));
            if *profiles != ProfileErrors::NONE {
                // The choice of wrongly profiled kernels is random, too.
                key.add(format_args!("{profiles:?} {seed}"));
            }
        }
        for index in alone.map_or(0..jobs.len(), |job| job..job + 1) {
            key.add_job(experiment, index, alone.is_some());
        }
        key
    }

    fn add_job(&mut self, experiment: &Experiment, index: usize, is_alone: bool) {
        let Job {
            name,
            class,
            kind,
            trace,
            trace_phases,
            batches,
            arrivals,
            phases,
            // Only decides whether the experiment can run.
            memory_bytes: _,
            copies,
            // The job's host contains it.
            launch_gap_ns: _,
            threads,
            start_ns,
            death_ns,
            marks,
            told_ns,
            weight,
            min_progress,
            max_share,
        } = &experiment.jobs[index];
        self.traces.push(Arc::as_ptr(trace) as usize);
        for phase in trace_phases {
            self.traces.push(Arc::as_ptr(&phase.trace) as usize);
            self.add(format_args!("from {}", phase.start_ns));
        }
        for batch in batches {
            self.traces.push(Arc::as_ptr(&batch.trace) as usize);
            self.add(format_args!("batch {}", batch.requests));
        }
        let host = experiment.host_of(index);
        // Disturbed processes do not affect a job alone.
        let host = if is_alone { host.undisturbed() } else { host };
        self.add(format_args!(
            "{host:?} {copies:?} {phases:?} {start_ns} {death_ns:?}"
        ));
        if !is_alone {
            self.add(format_args!(
                "{threads} {marks} {told_ns:?} {weight} {min_progress} {max_share}"
            ));
        }
        match arrivals {
            Arrivals::Gaps(ns) | Arrivals::Times(ns) => {
                let is_repeated = matches!(arrivals, Arrivals::Gaps(_));
                self.add(format_args!("list {is_repeated}"));
                self.lists.push(Arc::clone(ns));
            }
            // Nothing else is random.
            Arrivals::Poisson { .. } | Arrivals::Bursts { .. } => {
                let seed = experiment.seed_of(index);
                self.add(format_args!("{arrivals:?} {seed}"));
            }
            Arrivals::Closed | Arrivals::Uniform { .. } => self.add(format_args!("{arrivals:?}")),
        }
        // A job alone is not scheduled, and only its times are used.
        if !is_alone {
            self.add(format_args!("{class:?} {kind:?} {name:?}"));
        }
    }

    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a text cannot fail.
        let _ = write!(self.rest, "; {what}");
    }
}

//! Runs a plan on all cores, in the plan's order for whoever listens.
//!
//! Runs are independent of each other. What a job gets alone is run once for all runs in which it is
//! the same job with the same arrivals.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use protocol::clock::Clock;
use sim::scenario::Scenario;
use sim::{Arrivals, ClientId, Experiment, JobOutcome, NoObserver, Observer, Outcome};

use crate::failure::Failure;
use crate::simulate::plan::{Part, Plan};

/// Progress is shown of what takes longer.
const QUIET_NS: u64 = 1_000_000_000;

/// A run that is done.
#[derive(Debug)]
pub(crate) struct Run<'p> {
    pub(crate) part: &'p Part,
    pub(crate) scenario: &'p Scenario,
    pub(crate) seed: u64,
    pub(crate) outcome: Outcome,
    /// What each job got alone, in the order of the jobs.
    pub(crate) solo: Vec<Arc<JobOutcome>>,
}

/// Everything that decides what a job gets alone. Traces are the library's, so one is one address.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SoloKey {
    trace: usize,
    seed: u64,
    rest: String,
}

/// One run that is to be done.
type Task<'p> = (&'p Part, &'p Scenario, u64);

type Solos = HashMap<SoloKey, OnceLock<Result<Arc<JobOutcome>, sim::Error>>>;

/// Runs everything; `listen` hears of each run in the plan's order, as soon as its turn has come.
///
/// # Errors
/// Those of `listen`, and what a run refuses although it was checked.
pub(crate) fn run_all<'p>(
    plan: &'p Plan,
    mut listen: impl FnMut(&Run<'p>) -> Result<(), Failure>,
) -> Result<Vec<Run<'p>>, Failure> {
    let tasks: Vec<Task<'_>> = plan
        .scenarios()
        .flat_map(|(part, scenario)| {
            scenario
                .seeds
                .iter()
                .map(move |&seed| (part, scenario, seed))
        })
        .collect();
    let solos = solos(&tasks);
    let total_ns = tasks.iter().map(|task| task.1.experiment.duration_ns).sum();
    let progress = Progress::new(total_ns, tasks.len());
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.min(tasks.len()) {
            let sender = sender.clone();
            let (tasks, next, solos, progress) = (&tasks, &next, &solos, &progress);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&task) = tasks.get(index) else {
                        return;
                    };
                    // Nobody listens any more where something failed.
                    if sender
                        .send((index, run_one(task, solos, progress)))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        in_order(&receiver, &mut listen)
    })
}

/// Hands runs on in the order of their numbers; those that are early wait.
fn in_order<'p>(
    receiver: &mpsc::Receiver<(usize, Result<Run<'p>, sim::Error>)>,
    listen: &mut impl FnMut(&Run<'p>) -> Result<(), Failure>,
) -> Result<Vec<Run<'p>>, Failure> {
    let mut early = BTreeMap::new();
    let mut runs = Vec::new();
    for (index, run) in receiver {
        early.insert(index, run?);
        while let Some(run) = early.remove(&runs.len()) {
            listen(&run)?;
            runs.push(run);
        }
    }
    Ok(runs)
}

fn run_one<'p>(
    (part, scenario, seed): Task<'p>,
    solos: &Solos,
    progress: &Progress,
) -> Result<Run<'p>, sim::Error> {
    let experiment = scenario.with_seed(seed);
    let outcome = experiment.run(&mut Watch::new(progress))?;
    progress.run_done();
    let mut solo = Vec::new();
    for job in 0..experiment.jobs.len() {
        let alone = || {
            let mut outcome = experiment.run_solo(job, &mut NoObserver)?;
            Ok(Arc::new(outcome.jobs.swap_remove(0)))
        };
        // The key is there, because it was made of the same tasks. Who comes second waits.
        let cell = solos.get(&SoloKey::of(&experiment, job));
        solo.push(cell.map_or_else(alone, |cell| cell.get_or_init(alone).clone())?);
    }
    Ok(Run {
        part,
        scenario,
        seed,
        outcome,
        solo,
    })
}

fn solos(tasks: &[Task<'_>]) -> Solos {
    let keys = tasks.iter().flat_map(|(_, scenario, seed)| {
        let experiment = scenario.with_seed(*seed);
        let jobs = 0..experiment.jobs.len();
        jobs.map(|job| SoloKey::of(&experiment, job))
            .collect::<Vec<_>>()
    });
    keys.map(|key| (key, OnceLock::new())).collect()
}

impl SoloKey {
    fn of(experiment: &Experiment, index: usize) -> Self {
        let job = &experiment.jobs[index];
        // Only Poisson arrivals are random.
        let seed = match job.arrivals {
            Arrivals::Poisson { .. } => experiment.seed_of(index),
            _ => 0,
        };
        Self {
            trace: Arc::as_ptr(&job.trace) as usize,
            seed,
            rest: format!(
                "{:?} {:?} {:?} {:?} {:?} {} {}",
                experiment.device.name,
                experiment.gpu,
                experiment.host_of(index),
                job.copies,
                arrivals_key(&job.arrivals),
                experiment.duration_ns,
                experiment.warmup_requests,
            ),
        }
    }
}

/// Arrivals as a short text; lists by their address, because each file is read once.
fn arrivals_key(arrivals: &Arrivals) -> String {
    match arrivals {
        Arrivals::Gaps(ns) => format!("gaps {:p}", ns.as_ptr()),
        Arrivals::Times(ns) => format!("times {:p}", ns.as_ptr()),
        other => format!("{other:?}"),
    }
}

/// How far all runs have come, on stderr if that is a terminal and it takes more than a second.
struct Progress {
    clock: Clock,
    begun_ns: u64,
    bar: OnceLock<ProgressBar>,
    total_ms: u64,
    done_ms: AtomicU64,
    runs: usize,
    runs_done: AtomicUsize,
}

impl Progress {
    fn new(total_ns: u64, runs: usize) -> Self {
        let clock = Clock::monotonic();
        Self {
            begun_ns: clock.now_ns(),
            clock,
            bar: OnceLock::new(),
            total_ms: total_ns / 1_000_000,
            done_ms: AtomicU64::new(0),
            runs,
            runs_done: AtomicUsize::new(0),
        }
    }

    /// A run has come so much further, in ms of its own time.
    fn add(&self, ms: u64) {
        let done_ms = self.done_ms.fetch_add(ms, Ordering::Relaxed) + ms;
        if self.clock.now_ns().saturating_sub(self.begun_ns) < QUIET_NS {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::new(self.total_ms);
            let template = "{wide_bar} {percent:>3} %  {msg}, {eta} left";
            // The template is a constant, so it parses or the bar is plain.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(done_ms.min(self.total_ms));
    }

    fn run_done(&self) {
        let done = self.runs_done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(bar) = self.bar.get() {
            bar.set_message(format!("{done} of {} runs", self.runs));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Tells the progress every quarter of a second of a run's own time.
struct Watch<'p> {
    progress: &'p Progress,
    told_ms: u64,
}

impl<'p> Watch<'p> {
    const STEP_MS: u64 = 250;

    const fn new(progress: &'p Progress) -> Self {
        Self {
            progress,
            told_ms: 0,
        }
    }
}

impl Observer for Watch<'_> {
    fn request_ended(&mut self, now_ns: u64, _: ClientId, _: u64, _: u64) {
        let ms = now_ns / 1_000_000;
        if ms >= self.told_ms + Self::STEP_MS {
            self.progress.add(ms - self.told_ms);
            self.told_ms = ms;
        }
    }
}

//! Runs a plan's [`Work`] on all cores, and reports in the plan's order. Its units are independent,
//! and each is computed once for all runs that use it.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};
use protocol::clock::Clock;
use sim::scenario::Scenario;
use sim::{ClientId, JobOutcome, Observer, Outcome};

use crate::failure::Failure;
use crate::simulate::plan::{Part, Plan};
use crate::simulate::units::{Task, Work};

const QUIET_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct Run<'p> {
    pub(crate) part: &'p Part,
    pub(crate) scenario: &'p Scenario,
    pub(crate) seed: u64,
    /// Shared with other runs.
    pub(crate) outcome: Arc<Outcome>,
    solo: Vec<Arc<Outcome>>,
}

impl Run<'_> {
    /// The outcome of each job alone, in the order of the jobs. Only its times are valid: another
    /// job with the same launches may have been computed, so use name and class of `outcome`.
    pub(crate) fn solo(&self) -> impl Iterator<Item = &JobOutcome> {
        self.solo.iter().flat_map(|outcome| &outcome.jobs)
    }
}

/// Runs everything; calls `listen` for each run in the plan's order, as soon as its turn has come.
/// Fails as `listen` does, or for a run that fails although it was checked.
pub(crate) fn run_all<'p>(
    plan: &'p Plan,
    mut listen: impl FnMut(&Run<'p>) -> Result<(), Failure>,
) -> Result<Vec<Run<'p>>, Failure> {
    let work = Work::of(plan);
    let total_ns = work.units.iter().map(|unit| unit.duration_ns()).sum();
    let progress = Progress::new(total_ns, work.tasks.len());
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.min(work.units.len()) {
            let sender = sender.clone();
            let (units, next, progress) = (&work.units, &next, &progress);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(unit) = units.get(number) else {
                        return;
                    };
                    let outcome = unit.run(&mut Watch::new(progress));
                    // The receiver is gone if something failed.
                    if sender.send((number, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        in_order(&work, &receiver, &progress, &mut listen)
    })
}

/// Early units wait.
fn in_order<'p>(
    work: &Work<'p>,
    receiver: &mpsc::Receiver<(usize, Result<Outcome, sim::Error>)>,
    progress: &Progress,
    listen: &mut impl FnMut(&Run<'p>) -> Result<(), Failure>,
) -> Result<Vec<Run<'p>>, Failure> {
    let mut outcomes: Vec<Option<Arc<Outcome>>> = vec![None; work.units.len()];
    let mut runs = Vec::new();
    for (number, outcome) in receiver {
        outcomes[number] = Some(Arc::new(outcome?));
        while let Some(run) = work
            .tasks
            .get(runs.len())
            .and_then(|t| run_of(t, &outcomes))
        {
            listen(&run)?;
            runs.push(run);
            progress.runs_done(runs.len());
        }
    }
    Ok(runs)
}

/// None until all its units are computed.
fn run_of<'p>(task: &Task<'p>, outcomes: &[Option<Arc<Outcome>>]) -> Option<Run<'p>> {
    let solo = task.alone.iter().map(|&unit| outcomes[unit].clone());
    Some(Run {
        part: task.part,
        scenario: task.scenario,
        seed: task.seed,
        outcome: outcomes[task.together].clone()?,
        solo: solo.collect::<Option<Vec<_>>>()?,
    })
}

/// Shown on stderr if that is a terminal, and after a second.
pub(crate) struct Progress {
    clock: Clock,
    begun_ns: u64,
    bar: OnceLock<ProgressBar>,
    total_ms: u64,
    done_ms: AtomicU64,
    runs: usize,
}

impl Progress {
    /// `total_ns` is in the runs' own time.
    pub(crate) fn new(total_ns: u64, runs: usize) -> Self {
        let clock = Clock::monotonic();
        Self {
            begun_ns: clock.now_ns(),
            clock,
            bar: OnceLock::new(),
            total_ms: total_ns / 1_000_000,
            done_ms: AtomicU64::new(0),
            runs,
        }
    }

    /// In a run's own time.
    pub(crate) fn add(&self, ms: u64) {
        let done_ms = self.done_ms.fetch_add(ms, Ordering::Relaxed) + ms;
        if self.clock.now_ns().saturating_sub(self.begun_ns) < QUIET_NS {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::new(self.total_ms);
            let template = "{wide_bar} {percent:>3} %  {msg}, {eta} left";
            // The template is constant: it parses, or the bar is plain.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(done_ms.min(self.total_ms));
    }

    pub(crate) fn runs_done(&self, done: usize) {
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

/// Reports every quarter of a second of a run's own time.
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

//! Runs a plan of clusters on all cores, and reports each run in the plan's order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;

use cluster::View;
use cluster_sim::fgd;
use cluster_sim::play::{Bounds, Play};
use cluster_sim::world::Watch;

use crate::failure::Failure;
use crate::simulate::cluster::facts::{Facts, Run, Weeks};
use crate::simulate::cluster::plan::{Plan, What};
use crate::simulate::runner::Progress;

/// A run's part of the progress bar.
const INFLATION_NS: u64 = 1_000_000_000;

/// Runs everything; calls `listen` for each run in the plan's order, as soon as its turn has come.
/// Fails as `listen` does.
pub(crate) fn run_all(
    plan: &Plan,
    mut listen: impl FnMut(Run) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let work = Work::of(plan);
    let progress = Progress::new(work.total_ns(), work.tasks.len());
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.min(work.tasks.len()) {
            let sender = sender.clone();
            let (work, next, progress) = (&work, &next, &progress);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = work.tasks.get(number) else {
                        return;
                    };
                    // The receiver is gone if something failed.
                    if sender.send((number, work.run(*task, progress))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        in_order(&receiver, |run, done| {
            listen(run)?;
            progress.runs_done(done);
            Ok(())
        })
    })
}

/// Early runs wait.
fn in_order(
    receiver: &mpsc::Receiver<(usize, Run)>,
    mut listen: impl FnMut(Run, usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut early = BTreeMap::new();
    let mut done = 0;
    for (number, run) in receiver {
        early.insert(number, run);
        while let Some(run) = early.remove(&done) {
            done += 1;
            listen(run, done)?;
        }
    }
    Ok(())
}

/// Indices in the plan.
#[derive(Clone, Copy)]
struct Task {
    workload: usize,
    policy: usize,
    seed: usize,
}

struct Work<'p> {
    plan: &'p Plan,
    tasks: Vec<Task>,
    /// By seed, equal for all policies.
    bounds: Vec<OnceLock<Bounds>>,
}

impl<'p> Work<'p> {
    fn of(plan: &'p Plan) -> Self {
        let workloads = match &plan.what {
            What::Weeks(_) => 1,
            What::Inflation(workloads) => workloads.len(),
        };
        let (policies, seeds) = (plan.policies.len(), plan.seeds.len());
        let task = |number: usize| Task {
            workload: number / (policies * seeds),
            policy: number / seeds % policies,
            seed: number % seeds,
        };
        Self {
            plan,
            tasks: (0..workloads * policies * seeds).map(task).collect(),
            bounds: (0..seeds).map(|_| OnceLock::new()).collect(),
        }
    }

    fn total_ns(&self) -> u64 {
        let of = |task: &Task| match &self.plan.what {
            What::Weeks(plays) => plays[task.seed].physics.horizon_ns,
            What::Inflation(_) => INFLATION_NS,
        };
        self.tasks.iter().map(of).fold(0, u64::saturating_add)
    }

    fn run(&self, task: Task, progress: &Progress) -> Run {
        let plan = self.plan;
        let chosen = &plan.policies[task.policy];
        let seed = plan.seeds[task.seed];
        let facts = match &plan.what {
            What::Weeks(plays) => {
                let play = &plays[task.seed];
                let mut policy = play.policy(chosen, seed);
                let mut watch = Told::new(progress, play);
                let outcome = play.run(policy.as_mut(), &mut watch);
                let bounds = *self.bounds[task.seed].get_or_init(|| play.bounds());
                let gpus = play.inventory.gpus();
                Facts::Weeks(Box::new(Weeks::new(outcome, gpus, bounds)))
            }
            What::Inflation(workloads) => {
                let of = &workloads[task.workload];
                // The plan ensures 32-bit seeds.
                let short = u32::try_from(seed).unwrap_or(u32::MAX);
                let allocation = fgd::run(&of.inventory, &of.jobs, of.target, chosen.entry, short);
                progress.add(INFLATION_NS / 1_000_000);
                Facts::Inflation(allocation)
            }
        };
        Run {
            workload: task.workload,
            policy: task.policy,
            seed,
            facts,
        }
    }
}

/// Reports every hundredth of a run.
struct Told<'p> {
    progress: &'p Progress,
    step_ns: u64,
    horizon_ns: u64,
    told_ns: u64,
}

impl<'p> Told<'p> {
    fn new(progress: &'p Progress, play: &Play) -> Self {
        let horizon_ns = play.physics.horizon_ns;
        Self {
            progress,
            step_ns: (horizon_ns / 100).max(1),
            horizon_ns,
            told_ns: 0,
        }
    }
}

impl Watch for Told<'_> {
    fn handle_event(&mut self, _: &View, now_ns: u64) {
        let now_ns = now_ns.min(self.horizon_ns);
        if now_ns >= self.told_ns.saturating_add(self.step_ns) {
            self.progress.add((now_ns - self.told_ns) / 1_000_000);
            self.told_ns = now_ns;
        }
    }
}

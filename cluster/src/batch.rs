//! Batches of inference tasks for one GPU (`OLTunes` 2025, Algorithms 2 and 3, section 3.4).
//! Latency-critical (LC) and throughput-oriented tasks (TO) wait in two [`Queues`], the most urgent
//! first. [`targets`] names the GPUs that may have a batch, [`fill`] adds tasks to the batch of one
//! of them, LC before TO, [`tune`] changes the setting of one task of a batch before it is
//! deployed. The [window](crate::window) decides how long a batch is collected. Times are ns,
//! memory is bytes.
//!
//! # What is chosen here
//! - **A task that does not fit** waits on. Algorithm 2 tries it again until the window ends.
//! - **A batch that could not be deployed** goes into the LC queue, TO tasks too, as written. The
//!   paper does not say how much its priority rises: each failure halves the number that orders.
//! - **Capacity** of which 80 % must be available is memory, as the batch's own limit is.
//! - **Starvation.** Urgency and affinity may pass a task over for ever. A task that has waited for
//!   [`Rules::patience_ns`] goes first, whatever its affinity; `u64::MAX` is as published.
//! - **Tuning** changes only the batch size: section 3.4.3 says how tasks gain from a greater
//!   batch.

use std::collections::BTreeMap;

use crate::affinity::{Traits, of_batch};
use crate::inventory::ModelId;
use crate::job::Models;
use crate::objective::Combination;

/// Waiting tasks of a queue that are tried for a batch at a time.
pub const TRIED_MAX: usize = 256;

/// Free part of an occupied GPU that may have a batch.
const FREE_MIN: f64 = 0.8;

/// Done part of the longest task of an occupied GPU that may have a batch.
const DONE_MIN: f64 = 0.8;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its number, given by the caller.
    pub id: u64,
    /// LC, not TO.
    pub is_critical: bool,
    /// When it arrived, ns of the simulated clock.
    pub arrived_ns: u64,
    /// Its deadline, ns after its arrival.
    pub deadline_ns: u64,
    /// Predicted, mean over the GPUs that it may run on; at least 1.
    pub latency_ns: u64,
    /// Memory that it uses.
    pub memory_bytes: u64,
    /// The GPUs that suit it ([`crate::objective::Choice`]).
    pub gpus: Models,
    /// Traits of its model.
    pub traits: Traits,
    /// How often its batch could not be deployed.
    pub failures: u32,
}

impl Task {
    /// Deadline over latency, and less after failures: the least goes first.
    #[must_use]
    pub fn order(&self) -> f64 {
        let failures = i32::try_from(self.failures).unwrap_or(i32::MAX);
        self.deadline_ns as f64 / self.latency_ns.max(1) as f64 * 0.5f64.powi(failures)
    }

    /// The order of queues. Ties: the shortest, then the first to arrive.
    fn key(&self) -> Key {
        // Numbers that are not negative are in the order of their bits.
        let order = self.order().to_bits();
        (order, self.latency_ns, self.arrived_ns, self.id)
    }
}

type Key = (u64, u64, u64, u64);

/// The tasks that wait.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// LC, and all that failed.
    critical: BTreeMap<Key, Task>,
    others: BTreeMap<Key, Task>,
    ages: BTreeMap<(u64, u64), Key>,
}

impl Queues {
    /// A task arrived, or returned.
    pub fn push(&mut self, task: Task) {
        self.ages.insert((task.arrived_ns, task.id), task.key());
        let queue = if task.is_critical || task.failures > 0 {
            &mut self.critical
        } else {
            &mut self.others
        };
        queue.insert(task.key(), task);
    }

    /// The batch could not be deployed.
    pub fn handle_failed(&mut self, batch: Vec<Task>) {
        for task in batch {
            let failures = task.failures.saturating_add(1);
            self.push(Task { failures, ..task });
        }
    }

    /// How many wait: of the LC queue, and of the TO queue.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.critical.len(), self.others.len())
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// All that wait, in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.critical.values().chain(self.others.values())
    }

    /// Arrival of the oldest.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        let (&(arrived_ns, _), _) = self.ages.first_key_value()?;
        Some(arrived_ns)
    }

    fn take_overdue(&mut self, until_ns: u64, fits: impl Fn(&Task) -> bool) -> Option<Task> {
        let overdue = self.ages.range(..=(until_ns, u64::MAX)).take(TRIED_MAX);
        let mut keys = overdue.map(|(_, key)| *key);
        let key = keys.find(|key| self.at(key).is_some_and(&fits))?;
        self.remove(&key)
    }

    fn take(&mut self, fits: impl Fn(&Task) -> bool) -> Option<Task> {
        let tried = |queue: &BTreeMap<Key, Task>| {
            let mut tried = queue.iter().take(TRIED_MAX);
            tried.find(|(_, task)| fits(task)).map(|(key, _)| *key)
        };
        let key = tried(&self.critical).or_else(|| tried(&self.others))?;
        self.remove(&key)
    }

    fn at(&self, key: &Key) -> Option<&Task> {
        self.critical.get(key).or_else(|| self.others.get(key))
    }

    fn remove(&mut self, key: &Key) -> Option<Task> {
        let critical = self.critical.remove(key);
        let task = critical.or_else(|| self.others.remove(key))?;
        self.ages.remove(&(task.arrived_ns, task.id));
        Some(task)
    }
}

/// Which affinities with a batch admit a task. All but the first are ablations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// So much and more, 0 to 100.
    AtLeast(f64),
    /// Less than that.
    Below(f64),
    /// Any.
    All,
}

impl Admission {
    /// Whether that affinity admits.
    #[must_use]
    pub fn admits(self, affinity: f64) -> bool {
        match self {
            Self::AtLeast(least) => affinity >= least,
            Self::Below(bound) => affinity < bound,
            Self::All => true,
        }
    }
}

/// The rules that admit a task to a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// By affinity; a task may always begin a batch.
    pub admission: Admission,
    /// Most tasks ([`crate::window::Window::tasks_max`]).
    pub tasks_max: usize,
    /// After so long a task goes first, whatever its affinity.
    pub patience_ns: u64,
}

/// The GPU of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its model.
    pub model: ModelId,
    /// Memory that no task uses, those of the batch not counted.
    pub free_bytes: u64,
}

/// Moves fitting tasks from the queues to the batch: step 2 of Algorithm 2.
pub fn fill(
    batch: &mut Vec<Task>,
    queues: &mut Queues,
    target: Target,
    rules: &Rules,
    now_ns: u64,
) {
    while batch.len() < rules.tasks_max {
        let used: u64 = batch.iter().map(|task| task.memory_bytes).sum();
        let left = target.free_bytes.saturating_sub(used);
        let has_room = |task: &Task| task.gpus.has(target.model) && task.memory_bytes <= left;
        let traits: Vec<Traits> = batch.iter().map(|task| task.traits).collect();
        let suits = |task: &Task| {
            let affinity = of_batch(task.traits, &traits);
            has_room(task) && (traits.is_empty() || rules.admission.admits(affinity))
        };
        let overdue = now_ns
            .checked_sub(rules.patience_ns)
            .and_then(|since_ns| queues.take_overdue(since_ns, has_room));
        match overdue.or_else(|| queues.take(suits)) {
            Some(task) => batch.push(task),
            None => break,
        }
    }
}

/// The state that decides whether a GPU may have a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// No task runs there.
    pub is_empty: bool,
    /// It is divided into MIG instances.
    pub is_mig: bool,
    /// Part of its memory that no task uses, 0 to 1.
    pub free: f64,
    /// Part of its longest task that is done, 0 to 1.
    pub longest_done: f64,
    /// Share of its SMs in use, as a monitor reports it, 0 to 1.
    pub utilisation: f64,
    /// When its tasks are expected to have ended.
    pub ready_ns: u64,
}

impl Standing {
    /// Whether the GPU may have a batch: it is empty or divided, has room, or is about to be done.
    #[must_use]
    pub fn may_have_a_batch(&self) -> bool {
        self.is_empty || self.is_mig || self.free >= FREE_MIN || self.longest_done >= DONE_MIN
    }
}

/// GPUs that may have a batch, the least utilised first (`getResources` of Algorithm 3): empty or
/// divided ones; else those with room or almost done; else the one expected to be ready first.
#[must_use]
pub fn targets(gpus: &[Standing]) -> Vec<usize> {
    let those = |may: fn(&Standing) -> bool| {
        let found = gpus.iter().enumerate().filter(|(_, gpu)| may(gpu));
        let mut found: Vec<usize> = found.map(|(place, _)| place).collect();
        found.sort_by(|&one, &other| gpus[one].utilisation.total_cmp(&gpus[other].utilisation));
        found
    };
    let empty = those(|gpu| gpu.is_empty || gpu.is_mig);
    if !empty.is_empty() {
        return empty;
    }
    let near = those(Standing::may_have_a_batch);
    if !near.is_empty() {
        return near;
    }
    let soonest = (0..gpus.len()).min_by_key(|&place| gpus[place].ready_ns);
    soonest.into_iter().collect()
}

/// A task of a batch, as tuning has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunable {
    /// LC, not TO.
    pub is_critical: bool,
    /// The setting that it has.
    pub current: Combination,
    /// Those that it kept ([`crate::objective::Choice`]), of any GPU.
    pub kept: Vec<Combination>,
}

/// The task of the batch that gets another setting, and that setting (section 3.4.3): TO before LC,
/// only a greater batch, for more predicted throughput (TO) or less latency (LC), within the free
/// memory, and where the task kept two settings for this GPU.
#[must_use]
pub fn tune(batch: &[Tunable], free_bytes: u64) -> Option<(usize, Combination)> {
    let gain = |task: &Tunable| {
        let current = task.current;
        let kept = task.kept.iter().filter(|with| with.gpu == current.gpu);
        let kept: Vec<&Combination> = kept.collect();
        if kept.len() < 2 {
            return None;
        }
        let room = current.memory_bytes.saturating_add(free_bytes);
        let is_better = |with: &&&Combination| {
            let gains = if task.is_critical {
                with.latency_s < current.latency_s
            } else {
                with.throughput_per_s > current.throughput_per_s
            };
            with.batch > current.batch && with.memory_bytes <= room && gains
        };
        let worth = |with: &&&Combination| {
            if task.is_critical {
                -with.latency_s
            } else {
                with.throughput_per_s
            }
        };
        let better = kept.iter().filter(is_better);
        let best = better.max_by(|one, other| worth(one).total_cmp(&worth(other)));
        best.map(|with| **with)
    };
    [false, true].into_iter().find_map(|is_critical| {
        let tasks = batch.iter().enumerate();
        let mut of = tasks.filter(|(_, task)| task.is_critical == is_critical);
        of.find_map(|(place, task)| Some((place, gain(task)?)))
    })
}

#[cfg(test)]
mod tests;

//! `OLTunes` as published, with the readings of `cluster`'s modules of it.
//!
//! # What is chosen here
//! - **Several batches at once.** Algorithm 2 has one batch; the scenario of section 3.4.4 has
//!   several in one window, each for a GPU. Here every GPU that may have a batch has one, and the
//!   window of each counts from its first task.
//! - **A GPU that nothing fits** is passed over for the next in the order of utilisation.
//! - **Failure**: a batch for a GPU that was expected to be ready and is not when the window ends.
//! - **The window changes** when a batch is deployed: one round of the algorithm's loop.

use std::collections::BTreeMap;

use cluster::affinity::AFFINITY_MIN;
use cluster::batch::{Admission, Queues, Rules, Standing, Target, Task, fill, targets, tune};
use cluster::job::Models;
use cluster::objective::{Choice, Weights};
use cluster::window::{Limits, Window};

use crate::oltunes::facts::{CLUSTER, Facts, model_id};
use crate::oltunes::foresight::{Foresight, Quality};
use crate::oltunes::gpu::Setting;
use crate::oltunes::known;
use crate::oltunes::world::{Ended, Policy, Seen, Start};
use crate::oltunes_table::Mechanism;

/// Wait after which a task goes first. Not published: half of a throughput-oriented deadline.
pub(super) const PATIENCE_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) admission: Admission,
    /// Batches are collected for a window, not only from waiting tasks.
    pub(crate) window: bool,
}

impl Parts {
    pub(crate) const ALL: Self = Self {
        admission: Admission::AtLeast(AFFINITY_MIN),
        window: true,
    };
}

#[derive(Debug)]
struct Open {
    tasks: Vec<Task>,
    since_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Published {
    parts: Parts,
    foresight: Foresight,
    weights: Weights,
    window: Window,
    queues: Queues,
    choices: BTreeMap<u64, Choice>,
    open: [Option<Open>; CLUSTER.len()],
}

impl Published {
    pub(crate) fn new(facts: &Facts, parts: Parts, seed: u64) -> Self {
        Self {
            parts,
            foresight: Foresight::new(facts, seed),
            weights: Weights::default(),
            window: Window::new(Limits::default()).expect("the paper's limits can be"),
            queues: Queues::default(),
            choices: BTreeMap::new(),
            open: [const { None }; CLUSTER.len()],
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            admission: self.parts.admission,
            tasks_max: self.window.tasks_max(),
            patience_ns: PATIENCE_NS,
        }
    }

    fn collect(&mut self, seen: &Seen<'_>) {
        let rules = self.rules();
        let standings = seen.gpus.iter();
        let standings: Vec<Standing> = standings
            .map(|gpu| known::standing(seen, &mut self.foresight, gpu))
            .collect();
        let closed: Vec<usize> = (0..standings.len())
            .filter(|&gpu| self.open[gpu].is_none())
            .collect();
        let of: Vec<Standing> = closed.iter().map(|&gpu| standings[gpu]).collect();
        let opened = (0..standings.len()).filter(|&gpu| self.open[gpu].is_some());
        let order = opened.chain(targets(&of).into_iter().map(|place| closed[place]));
        for gpu in order.collect::<Vec<usize>>() {
            let target = Target {
                model: model_id(seen.gpus[gpu].model),
                free_bytes: seen.gpus[gpu].free_bytes(),
            };
            let mut open = self.open[gpu].take().unwrap_or(Open {
                tasks: Vec::new(),
                since_ns: seen.now_ns,
            });
            fill(
                &mut open.tasks,
                &mut self.queues,
                target,
                &rules,
                seen.now_ns,
            );
            self.open[gpu] = Some(open).filter(|open| !open.tasks.is_empty());
        }
    }

    /// Step 3: tuning and the start of all tasks of a batch.
    fn deploy(&mut self, seen: &Seen<'_>, gpu: usize, tasks: &[Task]) -> Vec<Start> {
        let (of, foresight) = (&seen.gpus[gpu], &mut self.foresight);
        let none = Choice::default();
        let tunable: Vec<_> = tasks
            .iter()
            .map(|task| {
                let choice = self.choices.get(&task.id).unwrap_or(&none);
                known::tunable(seen, foresight, task, of.model, choice)
            })
            .collect();
        let used: u64 = tasks.iter().map(|task| task.memory_bytes).sum();
        let tuned = tune(&tunable, of.free_bytes() - used);
        let starts = tasks.iter().enumerate().map(|(place, task)| {
            let request = task.id as usize;
            let setting = match &tuned {
                Some((of, combination)) if *of == place => known::setting(combination),
                _ => Setting::whole(seen.requests[request].batch),
            };
            Start {
                request,
                gpu,
                setting,
                is_high: task.is_critical,
            }
        });
        let starts = starts.collect();
        for task in tasks {
            self.choices.remove(&task.id);
        }
        self.window.handle_deployed();
        let (critical, others) = self.queues.len();
        self.window.handle_waiting(critical, others);
        starts
    }
}

impl Policy for Published {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Mps
    }

    fn handle_arrival(&mut self, seen: &Seen<'_>, number: usize) {
        let request = &seen.requests[number];
        let choice = known::choice(seen, &mut self.foresight, request, &self.weights);
        let gpus = Models::of(choice.gpus.iter().copied());
        self.queues
            .push(known::waiting(seen, number, &choice, gpus));
        self.choices.insert(number as u64, choice);
    }

    fn handle_end(&mut self, seen: &Seen<'_>, ended: &Ended) {
        known::learn(seen, &mut self.foresight, ended);
    }

    fn poll(&mut self, seen: &Seen<'_>) -> Vec<Start> {
        self.collect(seen);
        for gpu in 0..self.open.len() {
            let Some(open) = &self.open[gpu] else {
                continue;
            };
            let is_over = seen.now_ns >= open.since_ns + self.wait_ns();
            if open.tasks.len() < self.window.tasks_max() && !is_over {
                continue;
            }
            let standing = known::standing(seen, &mut self.foresight, &seen.gpus[gpu]);
            let used: u64 = open.tasks.iter().map(|task| task.memory_bytes).sum();
            let has_room = used <= seen.gpus[gpu].free_bytes();
            if has_room && standing.may_have_a_batch() {
                let open = self.open[gpu].take().expect("seen above");
                return self.deploy(seen, gpu, &open.tasks);
            }
            if is_over {
                let open = self.open[gpu].take().expect("seen above");
                self.queues.handle_failed(open.tasks);
                self.window.handle_failed();
            }
        }
        Vec::new()
    }

    fn next_poll_ns(&self) -> Option<u64> {
        let open = self.open.iter().flatten();
        open.map(|open| open.since_ns + self.wait_ns()).min()
    }

    fn foresight(&self) -> Option<Quality> {
        Some(self.foresight.quality())
    }
}

impl Published {
    fn wait_ns(&self) -> u64 {
        if self.parts.window {
            u64::from(self.window.wait_ms()) * 1_000_000
        } else {
            0
        }
    }
}

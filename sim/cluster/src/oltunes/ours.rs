//! Pillion's policy: `OLTunes`' prediction, affinity and objective, with three changes.
//! 1. **Deadlines decide when.** A latency-critical task (LC) is in no window. It starts at once on
//!    a GPU that is predicted to answer it in time, and waits only while none is free and one that
//!    will be is predicted to be still in time. LC tasks start in the order of their deadlines;
//!    those that can be in time nowhere come last, and go to the fastest GPU.
//! 2. **Classes decide how.** LC is high-priority. Throughput-oriented tasks (TO) are best-effort
//!    beside it, in batches of affine ones that are collected for a window. So no TO task keeps a
//!    GPU from LC. Once GPUs without LC are few, up to [`CRITICAL_MAX`] LC tasks share one, as far
//!    as all are expected to be in time ([`Pairs`]).
//! 3. **Slack, balance and energy decide where.** Of the GPUs that are in time, that with the least
//!    predicted energy for the work, at a price that grows with how much more its SMs were in use
//!    than those of the least used GPU. So tasks that gain most by the efficient GPUs get them, and
//!    all are in use alike.
//!
//! A TO batch goes to a GPU without one. If all free ones were in use more than [`BALANCE`] above
//! the least, the tasks wait for another for a part of their deadlines ([`UNBALANCED_AFTER`]).

use std::collections::{BTreeMap, BTreeSet};

use cluster::affinity::AFFINITY_MIN;
use cluster::batch::{Admission, Queues, Rules, TRIED_MAX, Target, Task, fill};
use cluster::job::Models;
use cluster::objective::Weights;
use cluster::window::{Limits, Window};

use crate::oltunes::facts::{CLUSTER, Facts, model_id};
use crate::oltunes::foresight::{Foresight, Quality};
use crate::oltunes::gpu::{Gpu, Running, Setting};
use crate::oltunes::known;
use crate::oltunes::published::PATIENCE_NS;
use crate::oltunes::requests::Request;
use crate::oltunes::together::Pairs;
use crate::oltunes::world::{Ended, Policy, Seen, Start};
use crate::oltunes_table::Mechanism;

/// By how much the SMs of a GPU that gets a TO batch may have been in use more than those of the
/// least used one. The paper reports variations of less than 0.1.
const BALANCE: f64 = 0.08;

/// A GPU whose mean use of SMs is greater by this counts as e times as costly. Chosen from 0.06,
/// 0.1 and 0.15 on seed 1: greater values save little energy.
const PRICED: f64 = 0.06;

/// A task is in time if this times its predicted time is left, for errors and best-effort
/// neighbours.
const DOUBT: f64 = 1.1;

/// Most LC tasks on a GPU. With six, energy is a tenth less, and 2 to 5 % of LC are late in stress.
const CRITICAL_MAX: usize = 4;

/// LC tasks share GPUs while this part of all has one: before, each gets one without. A pair that
/// was never seen may be late. Of 0, 0.25, 0.375 and 0.5, chosen on seeds 1 to 4.
const SHARED_FROM: f64 = 0.375;

/// A GPU that already runs an LC task counts as this part of its cost: SMs that both use are
/// counted once. Chosen from 0.3, 0.5 and 0.8 on seed 1.
const SHARED_COST: f64 = 0.5;

/// Part of an LC task's time that is expected to be left as long as it runs.
const LEFT_MIN: f64 = 0.1;

/// After this part of its deadline a TO task takes a GPU whatever the balance.
const UNBALANCED_AFTER: f64 = 0.25;

/// Time after which TO tasks that wait for the balance are tried again.
const RETRY_NS: u64 = 20_000_000;

/// First window of TO batches.
const WINDOW_FIRST_MS: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts {
    /// LC starts at once and by deadline; else in windows, as TO does.
    pub(crate) deadlines: bool,
    /// LC is high-priority; else all share by MPS.
    pub(crate) classes: bool,
    pub(crate) admission: Admission,
    pub(crate) balance: bool,
    /// Energy counts; else the fastest GPU wins.
    pub(crate) energy: bool,
    pub(crate) sharing: bool,
    /// TO tasks run with the setting that they kept, not the one that they asked for.
    pub(crate) tuning: bool,
}

impl Parts {
    pub(crate) const ALL: Self = Self {
        deadlines: true,
        classes: true,
        admission: Admission::AtLeast(AFFINITY_MIN),
        balance: true,
        energy: true,
        sharing: true,
        tuning: true,
    };
}

#[derive(Debug)]
struct Open {
    tasks: Vec<Task>,
    since_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Ours {
    parts: Parts,
    foresight: Foresight,
    weights: Weights,
    window: Window,
    /// LC tasks, by the time of their deadlines.
    critical: Vec<(u64, usize)>,
    queues: Queues,
    open: [Option<Open>; CLUSTER.len()],
    pairs: Pairs,
    /// For each running LC task the models that ran there at its start.
    beside: BTreeMap<usize, Vec<usize>>,
    joined: BTreeSet<usize>,
    /// When an LC task that waits for a GPU is late for it, or TO tasks are tried again.
    wake_ns: Option<u64>,
    polled_ns: u64,
}

enum Verdict {
    Start(usize),
    WaitUntil(u64),
    Late,
}

impl Ours {
    pub(crate) fn new(facts: &Facts, parts: Parts, seed: u64) -> Self {
        let limits = Limits {
            initial_ms: WINDOW_FIRST_MS,
            ..Limits::default()
        };
        Self {
            parts,
            foresight: Foresight::new(facts, seed),
            weights: Weights::default(),
            window: Window::new(limits).expect("the first window is within the bounds"),
            critical: Vec::new(),
            queues: Queues::default(),
            open: [const { None }; CLUSTER.len()],
            pairs: Pairs::default(),
            beside: BTreeMap::new(),
            joined: BTreeSet::new(),
            wake_ns: None,
            polled_ns: 0,
        }
    }

    /// Whether the GPU is in use at most [`BALANCE`] more than the least.
    fn is_balanced(&self, seen: &Seen<'_>, gpu: usize) -> bool {
        !self.parts.balance || seen.gpus[gpu].monitored_long <= least_use(seen) + BALANCE
    }

    /// Predicted for a request from its start: at most so many joules beyond rest, or s.
    fn cost(&mut self, seen: &Seen<'_>, request: &Request, gpu: usize, setting: Setting) -> f64 {
        let model = seen.gpus[gpu].model;
        let takes_s = known::takes_s(seen, &mut self.foresight, request, model, setting);
        let power = seen.gpus[gpu].power;
        if self.parts.energy {
            takes_s * (power.tdp_w - power.idle_w)
        } else {
            takes_s
        }
    }

    /// Of these GPUs the one with the least cost, at the price of its use above the least: so of
    /// two GPUs that suit one task, the other goes to a task that gains more by it.
    fn best(&mut self, seen: &Seen<'_>, request: &Request, gpus: &[usize]) -> Option<usize> {
        let setting = Setting::whole(request.batch);
        let least = least_use(seen);
        let priced = gpus.iter().map(|&gpu| {
            let more = seen.gpus[gpu].monitored_long - least;
            let price = if self.parts.balance {
                (more / PRICED).exp()
            } else {
                1.0
            };
            let is_shared = request.is_critical && !has_no_critical(&seen.gpus[gpu]);
            let part = if is_shared { SHARED_COST } else { 1.0 };
            (self.cost(seen, request, gpu, setting) * price * part, gpu)
        });
        let best = priced.min_by(|one, other| one.0.total_cmp(&other.0));
        best.map(|(_, gpu)| gpu)
    }

    fn verdict(&mut self, seen: &Seen<'_>, number: usize) -> Verdict {
        let request = seen.requests[number];
        let setting = Setting::whole(request.batch);
        let until_ns = request.at_ns + request.deadline_ns;
        let needed = seen.facts.memory_bytes((request.model, request.batch));
        let (mut in_time, mut wait_ns) = (Vec::new(), None);
        for (place, gpu) in seen.gpus.iter().enumerate() {
            let takes_s = known::takes_s(seen, &mut self.foresight, &request, gpu.model, setting);
            let alone_ns = (takes_s * 1e9 * DOUBT) as u64;
            let Some(latest_ns) = until_ns.checked_sub(alone_ns) else {
                continue;
            };
            if latest_ns < seen.now_ns {
                continue;
            }
            let left_ns = (until_ns - seen.now_ns) as f64;
            let speed = self.joins(seen, gpu, &request).unwrap_or(0.0);
            if needed <= gpu.free_bytes() && takes_s * 1e9 * DOUBT <= left_ns * speed {
                in_time.push(place);
            } else if self.critical_ready_ns(seen, gpu) <= latest_ns {
                wait_ns = wait_ns.max(Some(latest_ns));
            }
        }
        match (self.best(seen, &request, &in_time), wait_ns) {
            (Some(gpu), _) => Verdict::Start(gpu),
            (None, Some(at_ns)) => Verdict::WaitUntil(at_ns + 1),
            (None, None) => Verdict::Late,
        }
    }

    /// `None` if it would make another late.
    fn joins(&mut self, seen: &Seen<'_>, gpu: &Gpu, request: &Request) -> Option<f64> {
        let high: Vec<Running> = gpu
            .running
            .iter()
            .copied()
            .filter(|task| task.is_high)
            .collect();
        let with = seen.gpus.iter().filter(|gpu| !has_no_critical(gpu)).count();
        let is_short = with as f64 >= SHARED_FROM * seen.gpus.len() as f64;
        let tasks_max = if self.parts.sharing && is_short {
            CRITICAL_MAX
        } else {
            1
        };
        if high.len() >= tasks_max {
            return None;
        }
        let models: Vec<usize> = high.iter().map(|task| task.kind.0).collect();
        for (place, task) in high.iter().enumerate() {
            let mut beside = models.clone();
            beside.remove(place);
            let before = self.pairs.speed(gpu.model, task.kind.0, &beside);
            beside.push(request.model);
            let after = self.pairs.speed(gpu.model, task.kind.0, &beside);
            let alone_ns = known::expected_ns(seen, &mut self.foresight, gpu.model, task);
            let done_ns = (seen.now_ns - task.started_ns) as f64 * before;
            // It still runs, so something is left whatever was predicted.
            let left_ns = (alone_ns - done_ns).max(LEFT_MIN * alone_ns);
            let of = &seen.requests[task.request];
            let until_ns = (of.at_ns + of.deadline_ns) as f64 - seen.now_ns as f64;
            let was_in_time = left_ns <= until_ns * before;
            if was_in_time && left_ns * DOUBT > until_ns * after {
                return None;
            }
        }
        Some(self.pairs.speed(gpu.model, request.model, &models))
    }

    fn critical_ready_ns(&mut self, seen: &Seen<'_>, gpu: &Gpu) -> u64 {
        let high = gpu.running.iter().filter(|task| task.is_high);
        let ready = high.map(|task| {
            let expected = known::expected_ns(seen, &mut self.foresight, gpu.model, task);
            task.started_ns + expected as u64
        });
        ready.fold(seen.now_ns, u64::max)
    }

    /// Learns from an LC task: alone its latency, beside one other the speed of the pair.
    fn learn(&mut self, seen: &Seen<'_>, ended: &Ended) {
        let number = ended.task.request;
        let was_joined = self.joined.remove(&number);
        let gpu = &seen.gpus[ended.gpu];
        match self.beside.remove(&number).as_deref() {
            None | Some([]) if !was_joined => known::learn(seen, &mut self.foresight, ended),
            Some(&[beside]) if !was_joined => {
                let alone_ns =
                    known::expected_ns(seen, &mut self.foresight, gpu.model, &ended.task);
                let pair = (gpu.model, ended.task.kind.0, beside);
                self.pairs.learn(pair, alone_ns / ended.took_ns as f64);
            }
            _ => {}
        }
    }

    fn poll_critical(&mut self, seen: &Seen<'_>) -> Option<Start> {
        let mut late = None;
        for place in 0..self.critical.len().min(TRIED_MAX) {
            let number = self.critical[place].1;
            match self.verdict(seen, number) {
                Verdict::Start(gpu) => return Some(self.start_critical(seen, place, gpu)),
                Verdict::WaitUntil(at_ns) => self.wake(at_ns),
                Verdict::Late => late = late.or(Some(place)),
            }
        }
        let place = late?;
        let request = seen.requests[self.critical[place].1];
        let needed = seen.facts.memory_bytes((request.model, request.batch));
        let gpus = seen.gpus.iter().enumerate();
        let free = gpus.filter(|(_, gpu)| has_no_critical(gpu) && needed <= gpu.free_bytes());
        let free: Vec<usize> = free.map(|(place, _)| place).collect();
        let setting = Setting::whole(request.batch);
        let takes = free.into_iter().map(|gpu| {
            let model = seen.gpus[gpu].model;
            let takes_s = known::takes_s(seen, &mut self.foresight, &request, model, setting);
            (takes_s, gpu)
        });
        let fastest = takes.min_by(|one, other| one.0.total_cmp(&other.0));
        let (_, gpu) = fastest?;
        Some(self.start_critical(seen, place, gpu))
    }

    fn start_critical(&mut self, seen: &Seen<'_>, place: usize, gpu: usize) -> Start {
        let (_, request) = self.critical.remove(place);
        let high = seen.gpus[gpu].running.iter().filter(|task| task.is_high);
        let high: Vec<Running> = high.copied().collect();
        self.joined.extend(high.iter().map(|task| task.request));
        let models = high.iter().map(|task| task.kind.0).collect();
        self.beside.insert(request, models);
        Start {
            request,
            gpu,
            setting: Setting::whole(seen.requests[request].batch),
            is_high: self.parts.classes,
        }
    }

    fn wake(&mut self, at_ns: u64) {
        self.wake_ns = Some(self.wake_ns.map_or(at_ns, |wake_ns| wake_ns.min(at_ns)));
    }

    fn collect(&mut self, seen: &Seen<'_>) {
        let rules = Rules {
            admission: self.parts.admission,
            tasks_max: self.window.tasks_max(),
            patience_ns: PATIENCE_NS,
        };
        let opened = (0..self.open.len()).filter(|&gpu| self.open[gpu].is_some());
        for gpu in opened.collect::<Vec<usize>>() {
            self.fill(seen, gpu, &rules);
        }
        loop {
            let first = self.queues.iter().next().map(|task| task.id as usize);
            let Some(request) = first.map(|first| seen.requests[first]) else {
                break;
            };
            let oldest_ns = self.queues.oldest_ns();
            let waits_ns = seen.now_ns - oldest_ns.unwrap_or(seen.now_ns);
            let is_urgent = waits_ns as f64 > UNBALANCED_AFTER * request.deadline_ns as f64;
            let free = (0..seen.gpus.len()).filter(|&gpu| {
                let has_batch = seen.gpus[gpu]
                    .running
                    .iter()
                    .any(|task| !is_critical(seen, task));
                !has_batch && self.open[gpu].is_none()
            });
            let free: Vec<usize> = free.collect();
            let Some(gpu) = self.best(seen, &request, &free) else {
                break;
            };
            if !is_urgent && !self.is_balanced(seen, gpu) {
                self.wake(seen.now_ns + RETRY_NS);
                break;
            }
            self.fill(seen, gpu, &rules);
            if self.open[gpu].is_none() {
                break;
            }
        }
    }

    fn fill(&mut self, seen: &Seen<'_>, gpu: usize, rules: &Rules) {
        let target = Target {
            model: model_id(seen.gpus[gpu].model),
            free_bytes: self.for_batches(seen, gpu),
        };
        let mut open = self.open[gpu].take().unwrap_or(Open {
            tasks: Vec::new(),
            since_ns: seen.now_ns,
        });
        fill(
            &mut open.tasks,
            &mut self.queues,
            target,
            rules,
            seen.now_ns,
        );
        self.open[gpu] = Some(open).filter(|open| !open.tasks.is_empty());
    }

    /// Free memory less what any LC task may need, so that none waits for memory.
    fn for_batches(&self, seen: &Seen<'_>, gpu: usize) -> u64 {
        let models = 0..seen.facts.models.len();
        let most = models
            .map(|model| seen.facts.memory_bytes((model, 0)))
            .max();
        let held = if has_no_critical(&seen.gpus[gpu]) {
            most.unwrap_or(0)
        } else {
            0
        };
        seen.gpus[gpu].free_bytes().saturating_sub(held)
    }

    fn deploy(&mut self, seen: &Seen<'_>, gpu: usize, tasks: &[Task]) -> Vec<Start> {
        let asked: u64 = tasks.iter().map(|task| task.memory_bytes).sum();
        let mut left = self.for_batches(seen, gpu).saturating_sub(asked);
        let mut starts = Vec::new();
        for task in tasks {
            let request = seen.requests[task.id as usize];
            let room = left + task.memory_bytes;
            let setting = if self.parts.tuning && !request.is_critical {
                self.tuned(seen, &request, gpu, room)
            } else {
                Setting::whole(request.batch)
            };
            left = room - seen.facts.memory_bytes((request.model, setting.batch));
            starts.push(Start {
                request: task.id as usize,
                gpu,
                setting,
                is_high: request.is_critical && self.parts.classes,
            });
        }
        self.window.handle_deployed();
        let (critical, others) = self.queues.len();
        self.window
            .handle_waiting(critical + self.critical.len(), others);
        starts
    }

    fn tuned(&mut self, seen: &Seen<'_>, request: &Request, gpu: usize, room: u64) -> Setting {
        let of = [seen.gpus[gpu].model];
        let choice = known::choice_on(seen, &mut self.foresight, request, &self.weights, &of, room);
        let best = choice.combinations.first();
        best.map_or(Setting::whole(request.batch), known::setting)
    }

    fn wait_ns(&self) -> u64 {
        u64::from(self.window.wait_ms()) * 1_000_000
    }
}

fn least_use(seen: &Seen<'_>) -> f64 {
    let uses = seen.gpus.iter().map(|gpu| gpu.monitored_long);
    uses.fold(1.0, f64::min)
}

fn has_no_critical(gpu: &Gpu) -> bool {
    gpu.running.iter().all(|task| !task.is_high)
}

fn is_critical(seen: &Seen<'_>, task: &Running) -> bool {
    seen.requests[task.request].is_critical
}

impl Policy for Ours {
    fn mechanism(&self) -> Mechanism {
        if self.parts.classes {
            Mechanism::Pillion
        } else {
            Mechanism::Mps
        }
    }

    fn handle_arrival(&mut self, seen: &Seen<'_>, number: usize) {
        let request = &seen.requests[number];
        if request.is_critical && self.parts.deadlines {
            let key = (request.at_ns + request.deadline_ns, number);
            let place = self.critical.partition_point(|with| *with < key);
            self.critical.insert(place, key);
        } else {
            let choice = known::choice(seen, &mut self.foresight, request, &self.weights);
            let task = known::waiting(seen, number, &choice, Models::ANY);
            self.queues.push(task);
        }
    }

    fn handle_end(&mut self, seen: &Seen<'_>, ended: &Ended) {
        self.learn(seen, ended);
    }

    fn poll(&mut self, seen: &Seen<'_>) -> Vec<Start> {
        self.wake_ns = None;
        self.polled_ns = seen.now_ns;
        if let Some(start) = self.poll_critical(seen) {
            return vec![start];
        }
        self.collect(seen);
        // Tasks that wait have been refused: others will be, too.
        let is_waited_for = self.queues.is_empty();
        for gpu in 0..self.open.len() {
            let wait_ns = self.wait_ns();
            let is_due = |open: &Open| {
                let is_full = open.tasks.len() >= self.window.tasks_max();
                is_full || !is_waited_for || seen.now_ns >= open.since_ns + wait_ns
            };
            let has_room = |open: &Open| {
                let used: u64 = open.tasks.iter().map(|task| task.memory_bytes).sum();
                used <= seen.gpus[gpu].free_bytes()
            };
            let open = self.open[gpu].as_ref();
            if open.is_some_and(|open| is_due(open) && has_room(open)) {
                let open = self.open[gpu].take().expect("seen above");
                return self.deploy(seen, gpu, &open.tasks);
            }
        }
        Vec::new()
    }

    fn next_poll_ns(&self) -> Option<u64> {
        let open = self.open.iter().flatten();
        // An open batch that is due already waits for memory, so for the end of a task.
        let due = open.map(|open| open.since_ns + self.wait_ns());
        let due = due.filter(|&at_ns| at_ns > self.polled_ns).min();
        [due, self.wake_ns].into_iter().flatten().min()
    }

    fn foresight(&self) -> Option<Quality> {
        Some(self.foresight.quality())
    }
}

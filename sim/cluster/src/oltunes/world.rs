//! The course of a run: requests arrive, a policy starts them, they run beside each other and end.
//! Asserted at every step: no task is lost or runs twice, no GPU's memory is exceeded, no policy
//! starts more than [`BATCH_MAX`] tasks on a GPU at once, and every task ends.

use cluster::affinity::{Traits, of_batch};

use crate::oltunes::facts::{CLUSTER, Facts};
use crate::oltunes::gpu::{Gpu, Running, Setting, Together};
use crate::oltunes::requests::Request;
use crate::oltunes_table::Mechanism;

/// Most tasks that start together on a GPU (section 3.4.2).
pub(super) const BATCH_MAX: usize = 4;

pub(crate) struct Seen<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) requests: &'a [Request],
    pub(crate) gpus: &'a [Gpu],
    pub(crate) now_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) request: usize,
    pub(crate) gpu: usize,
    pub(crate) setting: Setting,
    pub(crate) is_high: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) task: Running,
    pub(crate) gpu: usize,
    pub(crate) took_ns: u64,
}

pub(crate) trait Policy {
    fn mechanism(&self) -> Mechanism;

    fn handle_arrival(&mut self, seen: &Seen<'_>, request: usize);

    fn handle_end(&mut self, seen: &Seen<'_>, ended: &Ended);

    /// Starts now, on different GPUs; called again until it starts nothing.
    fn poll(&mut self, seen: &Seen<'_>) -> Vec<Start>;

    /// When to poll if nothing happens before.
    fn next_poll_ns(&self) -> Option<u64> {
        None
    }

    fn foresight(&self) -> Option<crate::oltunes::foresight::Quality> {
        None
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Served {
    pub(crate) gpu: usize,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) share: f64,
    pub(crate) memory: f64,
}

pub(crate) struct Run {
    pub(crate) served: Vec<Served>,
    pub(crate) gpus: Vec<Gpu>,
    /// Of tasks that started together: sum of affinities with those before them, and their count.
    pub(crate) affinity: (f64, f64),
}

struct World<'a> {
    facts: &'a Facts,
    requests: &'a [Request],
    gpus: Vec<Gpu>,
    served: Vec<Option<Served>>,
    ended: usize,
    affinity: (f64, f64),
    now_ns: u64,
}

/// Panics if the policy breaks an invariant, or starts nothing though GPUs idle and tasks wait.
pub(crate) fn run(
    facts: &Facts,
    requests: &[Request],
    policy: &mut dyn Policy,
    together: Together,
) -> Run {
    let gpu = |model| Gpu::new(facts, model, policy.mechanism(), together);
    let mut world = World {
        facts,
        requests,
        gpus: CLUSTER.map(gpu).into(),
        served: vec![None; requests.len()],
        ended: 0,
        affinity: (0.0, 0.0),
        now_ns: 0,
    };
    let mut next = 0;
    while world.ended < requests.len() {
        let arrival = requests.get(next).map(|request| request.at_ns);
        let end = world.gpus.iter().filter_map(Gpu::next_end_ns).min();
        let wanted = policy.next_poll_ns().map(|at| at.max(world.now_ns));
        let now_ns = [arrival, end, wanted].into_iter().flatten().min();
        let now_ns = now_ns.expect("a policy starts tasks that wait, or wants to be polled");
        world.advance(now_ns);
        world.handle_ends(policy);
        while next < requests.len() && requests[next].at_ns <= now_ns {
            policy.handle_arrival(&world.seen(), next);
            next += 1;
        }
        world.poll(policy);
    }
    let served = world.served.into_iter();
    Run {
        served: served.map(|of| of.expect("no task is lost")).collect(),
        gpus: world.gpus,
        affinity: world.affinity,
    }
}

impl World<'_> {
    fn seen(&self) -> Seen<'_> {
        Seen {
            facts: self.facts,
            requests: self.requests,
            gpus: &self.gpus,
            now_ns: self.now_ns,
        }
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for gpu in &mut self.gpus {
            gpu.advance(now_ns);
        }
    }

    fn handle_ends(&mut self, policy: &mut dyn Policy) {
        for gpu in 0..self.gpus.len() {
            for task in self.gpus[gpu].take_ended(self.facts) {
                let served = self.served[task.request].as_mut();
                served.expect("a task that runs was started").end_ns = self.now_ns;
                self.ended += 1;
                let took_ns = self.now_ns - task.started_ns;
                let ended = Ended { task, gpu, took_ns };
                policy.handle_end(&self.seen(), &ended);
            }
        }
    }

    fn poll(&mut self, policy: &mut dyn Policy) {
        loop {
            let starts = policy.poll(&self.seen());
            if starts.is_empty() {
                break;
            }
            let mut batches: [Vec<Traits>; CLUSTER.len()] = std::array::from_fn(|_| Vec::new());
            for start in starts {
                let batch = &mut batches[start.gpu];
                let model = self.requests[start.request].model;
                let traits = self.facts.models[model].traits;
                if !batch.is_empty() {
                    self.affinity.0 += of_batch(traits, batch);
                    self.affinity.1 += 1.0;
                }
                batch.push(traits);
                assert!(batch.len() <= BATCH_MAX, "batches are small");
                self.start(&start);
            }
        }
    }

    fn start(&mut self, start: &Start) {
        let request = &self.requests[start.request];
        assert!(
            request.at_ns <= self.now_ns,
            "no task starts before it comes"
        );
        let gpu = &mut self.gpus[start.gpu];
        let task = (request.model, request.inputs);
        gpu.start(
            self.facts,
            start.request,
            task,
            start.setting,
            start.is_high,
        );
        let memory = self
            .facts
            .memory_bytes((request.model, start.setting.batch));
        let before = self.served[start.request].replace(Served {
            gpu: start.gpu,
            start_ns: self.now_ns,
            end_ns: self.now_ns,
            share: f64::from(crate::oltunes_table::SHARES_PCT[start.setting.share]) / 100.0,
            memory: memory as f64 / gpu.memory_bytes as f64,
        });
        assert!(before.is_none(), "no task runs twice");
    }
}

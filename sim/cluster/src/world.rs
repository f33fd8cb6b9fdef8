//! A cluster over weeks, from event to event. A job arrives, waits, is placed, runs at a speed that
//! its neighbours decide ([`cluster::interference`]), and ends when its work is done. Speeds change
//! only where a job starts on a GPU or leaves it. A gang runs at the speed of its slowest GPU.
//! Between events nothing happens, so 57 days of thousands of GPUs take seconds. The result is an
//! [`Outcome`]. The simulated time is in ns since the start of the trace; equal input gives equal
//! outcomes to the byte.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cluster::interference::{Pairs, SPEED_STEP, Settled, Sharer, settle, settle_apart};
use cluster::placement::Measured;
use cluster::queue::{Outcome as Answer, Queue};
use cluster::{Inventory, JobId, JobSpec, NodeId, Part, Placement, Power, View};

use crate::meter::Meter;
use crate::outcome::{JobRecord, Outcome};

/// One job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Its arrival.
    pub at_ns: u64,
    /// Its time alone, with its demands met.
    pub length_ns: u64,
    /// Its demands. Its number is its place in the trace.
    pub job: JobSpec,
}

/// The simulated GPUs' behaviour, whatever a policy believes.
#[derive(Clone, Debug)]
pub struct Physics {
    /// How jobs run beside each other.
    pub pairs: Pairs,
    /// Power, for each model of the inventory.
    pub power: Vec<Power>,
    /// How long a job lets others pass that fit where it does not.
    pub patience_ns: u64,
    /// Until when means are taken; jobs that are there then run to their ends.
    pub horizon_ns: u64,
}

/// A job with longer to run ends only if something changes: 200 years, half of the range of ns.
const LEFT_MAX_NS: f64 = 200.0 * 365.25 * 86_400.0 * 1e9;

/// Watches a run.
pub trait Watch {
    /// After each event: the view and the time.
    fn handle_event(&mut self, view: &View, now_ns: u64);
}

/// Watches nothing.
pub struct Nobody;

impl Watch for Nobody {
    fn handle_event(&mut self, _: &View, _: u64) {}
}

#[derive(Clone, Copy)]
struct Running {
    remaining_ns: f64,
    speed: f64,
    since_ns: u64,
    /// Number of predictions of its end; only the last one holds.
    generation: u32,
}

const WAITING: Running = Running {
    remaining_ns: 0.0,
    speed: 0.0,
    since_ns: 0,
    generation: 0,
};

struct World<'a> {
    arrivals: &'a [Arrival],
    physics: &'a Physics,
    view: View,
    queue: Queue,
    running: Vec<Running>,
    /// Speed and share of each GPU's residents, if none waited for other GPUs of its gang.
    alone: Vec<Vec<(f64, f64)>>,
    speeds: Vec<Vec<f64>>,
    watts: Vec<f64>,
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    now_ns: u64,
    used: Meter,
    busy_w: Meter,
    idle_w: Meter,
    records: Vec<JobRecord>,
    events: u64,
    settled: Settled,
    sharers: Vec<Sharer>,
}

/// Plays the trace. `arrivals` are in the order of their times.
///
/// # Panics
/// If the arrivals are not in order, or a policy places a job where it does not fit.
pub fn play(
    inventory: Inventory,
    arrivals: &[Arrival],
    physics: &Physics,
    policy: &mut dyn Placement,
    watch: &mut dyn Watch,
) -> Outcome {
    let gpus = inventory.gpus();
    let idle_w: f64 = inventory
        .nodes()
        .iter()
        .map(|node| idle(physics, node))
        .sum();
    let mut world = World {
        arrivals,
        physics,
        view: View::new(inventory),
        queue: Queue::new(physics.patience_ns),
        running: vec![WAITING; arrivals.len()],
        alone: vec![Vec::new(); gpus],
        speeds: vec![Vec::new(); gpus],
        watts: vec![0.0; gpus],
        ends: BinaryHeap::new(),
        now_ns: 0,
        used: Meter::new(physics.horizon_ns),
        busy_w: Meter::new(physics.horizon_ns),
        idle_w: Meter::new(physics.horizon_ns),
        records: arrivals.iter().map(JobRecord::of).collect(),
        events: 0,
        settled: Settled::default(),
        sharers: Vec::new(),
    };
    world.idle_w.add(0, idle_w);
    world.run(policy, watch);
    let unended = world
        .records
        .iter()
        .filter(|record| !record.has_ended() && !record.refused);
    let unended = unended.count();
    assert_eq!(
        world.view.jobs() + world.queue.len(),
        unended,
        "no job is lost"
    );
    Outcome::new(
        world.records,
        world.used,
        world.busy_w,
        world.idle_w,
        world.events,
    )
}

fn idle(physics: &Physics, node: &cluster::NodeSpec) -> f64 {
    let power = physics.power.get(usize::from(node.model.0));
    f64::from(node.gpus) * power.map_or(0.0, |power| power.idle_w)
}

impl World<'_> {
    fn run(&mut self, policy: &mut dyn Placement, watch: &mut dyn Watch) {
        let mut next = 0;
        loop {
            let arrival = self.arrivals.get(next).map(|arrival| arrival.at_ns);
            let end = self.next_end();
            match (arrival, end) {
                (None, None) => break,
                (Some(at), end) if end.is_none_or(|(end, _)| at < end) => {
                    assert!(
                        at >= self.now_ns,
                        "arrivals are in the order of their times"
                    );
                    self.now_ns = at;
                    let job = self.arrivals[next].job.clone();
                    assert_eq!(job.check(), Ok(()), "job {:?}", job.id);
                    assert_eq!(job.id, JobId(next as u64), "a job's number is its place");
                    self.queue.push(job, at);
                    next += 1;
                }
                (_, Some((end, index))) => {
                    self.now_ns = end;
                    self.handle_end(index, policy);
                }
                (Some(_), None) => unreachable!("an arrival without an end comes first"),
            }
            self.poll(policy);
            self.events += 1;
            watch.handle_event(&self.view, self.now_ns);
        }
    }

    /// Drops predictions from before a change.
    fn next_end(&mut self) -> Option<(u64, usize)> {
        while let Some(&Reverse((at, index, generation))) = self.ends.peek() {
            if self.running[index as usize].generation == generation {
                return Some((at, index as usize));
            }
            self.ends.pop();
        }
        None
    }

    fn handle_end(&mut self, index: usize, policy: &mut dyn Placement) {
        self.ends.pop();
        let running = &self.running[index];
        let passed = (self.now_ns - running.since_ns) as f64;
        let left_ns = running.remaining_ns - passed * running.speed;
        assert!(
            left_ns < 2.0 + 1e-9 * running.remaining_ns,
            "job {index} ends with {left_ns} ns left"
        );
        let id = JobId(index as u64);
        let parts = self
            .view
            .parts_of(id)
            .map_or_else(Vec::new, <[Part]>::to_vec);
        self.running[index].generation = 0;
        self.records[index].handle_end(self.now_ns);
        self.view.release(id);
        self.queue.handle_release();
        self.resettle(&parts, policy);
    }

    fn poll(&mut self, policy: &mut dyn Placement) {
        // All of them are in the view already, so all start before any speed is found.
        let (mut changed, mut placed) = (Vec::new(), Vec::new());
        for answer in self.queue.poll(&mut self.view, policy, self.now_ns) {
            match answer {
                Answer::Placed(id, parts) => {
                    let index = id.0 as usize;
                    self.records[index].handle_start(self.now_ns);
                    self.running[index] = Running {
                        remaining_ns: self.arrivals[index].length_ns as f64,
                        speed: 0.0,
                        since_ns: self.now_ns,
                        generation: 1,
                    };
                    changed.extend(parts);
                    placed.push(index);
                }
                Answer::Refused(id) => self.records[id.0 as usize].handle_refusal(),
            }
        }
        if !changed.is_empty() {
            self.resettle(&changed, policy);
        }
        for index in placed {
            self.foretell(index);
        }
    }

    /// Finds all speeds anew and predicts the ends, after the jobs of these GPUs have changed. A
    /// gang runs at the speed of its slowest GPU, and on the others leaves the rest to its
    /// neighbours. So first all GPUs are settled as if no job waited for another GPU; then those
    /// that have a gang, and those that a gang of them has, with what each gang can use.
    fn resettle(&mut self, parts: &[Part], policy: &mut dyn Placement) {
        let mut gpus: Vec<(NodeId, usize)> = self.gpus_of(parts);
        for &(_, gpu) in &gpus {
            self.settle_alone(gpu);
        }
        let gangs = self.gangs_on(&gpus);
        for &gang in &gangs {
            let parts = self.view.parts_of(gang).unwrap_or_default();
            gpus.extend(self.gpus_of(parts));
        }
        gpus.sort_unstable();
        gpus.dedup();
        let mut changed: Vec<u64> = Vec::new();
        for &(node, gpu) in &gpus {
            self.settle_gpu(node, gpu, policy);
            let residents = &self.view.gpus()[gpu].residents;
            changed.extend(residents.iter().map(|resident| resident.job.0));
        }
        changed.sort_unstable();
        changed.dedup();
        for job in changed {
            self.foretell(job as usize);
        }
    }

    fn gpus_of(&self, parts: &[Part]) -> Vec<(NodeId, usize)> {
        let gpus = parts.iter().flat_map(|part| {
            let first = self.view.inventory().first_gpu(part.node);
            part.slots().map(move |slot| (part.node, first + slot))
        });
        gpus.collect()
    }

    fn gangs_on(&self, gpus: &[(NodeId, usize)]) -> Vec<JobId> {
        let residents = gpus
            .iter()
            .flat_map(|&(_, gpu)| &self.view.gpus()[gpu].residents);
        let gangs = residents.map(|resident| resident.job);
        let mut gangs: Vec<JobId> = gangs.filter(|job| self.is_gang(*job)).collect();
        gangs.sort_unstable();
        gangs.dedup();
        gangs
    }

    fn is_gang(&self, job: JobId) -> bool {
        self.arrivals[job.0 as usize].job.gpus > 1
    }

    fn settle_alone(&mut self, gpu: usize) {
        let state = &self.view.gpus()[gpu];
        self.sharers.clear();
        self.sharers
            .extend(state.residents.iter().map(Sharer::of_resident));
        self.settle(gpu);
        let alone = self.settled.speeds.iter().zip(&self.settled.shares);
        self.alone[gpu].clear();
        self.alone[gpu].extend(alone.map(|(&speed, &share)| (speed, share)));
    }

    fn settle(&mut self, gpu: usize) {
        let state = &self.view.gpus()[gpu];
        if state.layout.is_none() {
            settle(&self.sharers, &self.physics.pairs, &mut self.settled);
            return;
        }
        let parts = state.residents.iter();
        let parts: Vec<f64> = parts.map(|r| f64::from(r.held_milli) / 1000.0).collect();
        settle_apart(
            &self.sharers,
            &parts,
            &self.physics.pairs,
            &mut self.settled,
        );
    }

    fn gang_speed(&self, gang: JobId) -> f64 {
        let parts = self.view.parts_of(gang).unwrap_or_default();
        let gpus = self.gpus_of(parts).into_iter();
        let speeds = gpus.map(|(_, gpu)| {
            let residents = &self.view.gpus()[gpu].residents;
            let own = residents.iter().position(|resident| resident.job == gang);
            own.map_or(0.0, |own| self.alone[gpu][own].0)
        });
        speeds.fold(f64::INFINITY, f64::min)
    }

    fn settle_gpu(&mut self, node: NodeId, gpu: usize, policy: &mut dyn Placement) {
        let state = &self.view.gpus()[gpu];
        self.sharers.clear();
        for (place, resident) in state.residents.iter().enumerate() {
            let mut sharer = Sharer::of_resident(resident);
            if self.is_gang(resident.job) {
                let (speed, share) = self.alone[gpu][place];
                sharer.cap = share * self.gang_speed(resident.job) / speed.max(SPEED_STEP);
            }
            self.sharers.push(sharer);
        }
        let was_used = !self.speeds[gpu].is_empty();
        let is_used = !self.sharers.is_empty();
        self.settle(gpu);
        self.speeds[gpu].clone_from(&self.settled.speeds);
        if self.view.gpus()[gpu].layout.is_none() {
            policy.handle_measured(Measured {
                sharers: &self.sharers,
                shares: &self.settled.shares,
                speeds: &self.settled.speeds,
            });
        }
        let model = self.view.inventory().nodes()[node.0 as usize].model;
        let power = self.physics.power.get(usize::from(model.0));
        let (busy, idle) = match power {
            Some(power) if is_used => (power.at(self.settled.busy()), 0.0),
            Some(power) => (0.0, power.idle_w),
            None => (0.0, 0.0),
        };
        let idle_before = match power {
            Some(power) if !was_used => power.idle_w,
            _ => 0.0,
        };
        let used = f64::from(u8::from(is_used)) - f64::from(u8::from(was_used));
        self.used.add(self.now_ns, used);
        self.busy_w.add(self.now_ns, busy - self.watts[gpu]);
        self.idle_w.add(self.now_ns, idle - idle_before);
        self.watts[gpu] = busy;
    }

    fn foretell(&mut self, index: usize) {
        let speed = self.speed_of(JobId(index as u64));
        let running = &mut self.running[index];
        if (running.speed - speed).abs() < 1e-12 {
            return;
        }
        let passed = (self.now_ns - running.since_ns) as f64;
        running.remaining_ns = (running.remaining_ns - passed * running.speed).max(0.0);
        running.since_ns = self.now_ns;
        running.speed = speed;
        running.generation = running.generation.wrapping_add(1).max(1);
        if speed < SPEED_STEP {
            // It ends when something changes.
            return;
        }
        let left = (running.remaining_ns / speed).ceil();
        if left > LEFT_MAX_NS {
            return;
        }
        let at = self.now_ns.saturating_add(left as u64);
        self.ends
            .push(Reverse((at, index as u32, running.generation)));
    }

    fn speed_of(&self, id: JobId) -> f64 {
        if self.is_gang(id) {
            return self.gang_speed(id);
        }
        let parts = self.view.parts_of(id).unwrap_or_default();
        // A job without a GPU has no neighbours here.
        let Some((_, gpu)) = self.gpus_of(parts).first().copied() else {
            return 1.0;
        };
        let residents = &self.view.gpus()[gpu].residents;
        let own = residents.iter().position(|resident| resident.job == id);
        own.map_or(0.0, |own| self.speeds[gpu][own])
    }
}

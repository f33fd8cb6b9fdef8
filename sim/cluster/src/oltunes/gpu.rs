//! A GPU and the tasks that run on it at once, in virtual time. A task has so many ns of work
//! alone, and does it at the product of the speeds that it keeps beside each of its neighbours
//! ([`Together`]). Speeds change when a neighbour starts or ends. The SMs in use are the sum of
//! what each task uses alone, times its speed, and at most all.

use cluster::Power;

use crate::oltunes::facts::{Facts, Kind};
use crate::oltunes_table::{BATCHES, Mechanism, SHARES_PCT};

/// Time in which a monitor forgets: the period in which the paper's samples.
const MONITOR_NS: f64 = 2e9;

/// Of a monitor whose numbers even out over requests of seconds.
const MONITOR_LONG_NS: f64 = 20e9;

/// How the slowdowns by several neighbours combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// The kept speeds multiply, as for all pairs of `cluster`.
    Multiply,
    /// The additional times add: 1 / (1 + Σ (1/speed − 1)).
    Add,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Setting {
    pub(crate) batch: usize,
    pub(crate) share: usize,
}

impl Setting {
    pub(crate) const fn whole(batch: usize) -> Self {
        Self {
            batch,
            share: SHARES_PCT.len() - 1,
        }
    }

    pub(crate) fn runs(self, inputs: u32) -> u32 {
        inputs.div_ceil(BATCHES[self.batch])
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Running {
    pub(crate) request: usize,
    pub(crate) kind: Kind,
    pub(crate) setting: Setting,
    pub(crate) is_high: bool,
    pub(crate) started_ns: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) work_ns: f64,
    pub(crate) left_ns: f64,
    activity: f64,
    speed: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// ∫ SMs in use dt, ns.
    pub(crate) activity_ns: f64,
    /// ∫ tasks dt, of times with two and more, ns.
    pub(crate) shared_ns: f64,
    /// ∫ Σ speeds dt, of the same times.
    pub(crate) kept_ns: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    pub(crate) model: usize,
    pub(crate) power: Power,
    pub(crate) memory_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) running: Vec<Running>,
    pub(crate) sums: Sums,
    /// SMs in use as a monitor reports them, 0 to 1: forgets within [`MONITOR_NS`].
    pub(crate) monitored: f64,
    pub(crate) monitored_long: f64,
    activity: f64,
    now_ns: u64,
    mechanism: Mechanism,
    together: Together,
}

impl Gpu {
    pub(crate) fn new(
        facts: &Facts,
        model: usize,
        mechanism: Mechanism,
        together: Together,
    ) -> Self {
        Self {
            model,
            power: facts.gpus[model].power,
            memory_bytes: facts.gpus[model].memory_bytes,
            used_bytes: 0,
            running: Vec::new(),
            sums: Sums::default(),
            monitored: 0.0,
            monitored_long: 0.0,
            activity: 0.0,
            now_ns: 0,
            mechanism,
            together,
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.memory_bytes - self.used_bytes
    }

    pub(crate) fn next_end_ns(&self) -> Option<u64> {
        let left = self.running.iter().map(|task| task.left_ns / task.speed);
        let least = left.min_by(f64::total_cmp)?;
        Some(self.now_ns + least.ceil() as u64)
    }

    pub(crate) fn advance(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.now_ns) as f64;
        if passed == 0.0 {
            return;
        }
        let mut speeds = 0.0;
        for task in &mut self.running {
            task.left_ns = (task.left_ns - passed * task.speed).max(0.0);
            speeds += task.speed;
        }
        if self.running.len() > 1 {
            self.sums.shared_ns += passed * self.running.len() as f64;
            self.sums.kept_ns += passed * speeds;
        }
        self.sums.activity_ns += passed * self.activity;
        let after = |before: f64, over_ns: f64| {
            let keep = (-passed / over_ns).exp();
            before * keep + self.activity * (1.0 - keep)
        };
        self.monitored = after(self.monitored, MONITOR_NS);
        self.monitored_long = after(self.monitored_long, MONITOR_LONG_NS);
        self.now_ns = now_ns;
    }

    /// Starts a task; time must have been advanced to now.
    ///
    /// # Panics
    /// If its memory is not free: no policy may place a task there.
    pub(crate) fn start(
        &mut self,
        facts: &Facts,
        request: usize,
        (model, inputs): (usize, u32),
        setting: Setting,
        is_high: bool,
    ) {
        let kind = (model, setting.batch);
        let memory_bytes = facts.memory_bytes(kind);
        assert!(
            memory_bytes <= self.free_bytes(),
            "memory is never exceeded"
        );
        let alone = facts.alone(self.model, kind, setting.share);
        let work_ns = alone.latency_ms * 1e6 * f64::from(setting.runs(inputs));
        self.used_bytes += memory_bytes;
        self.running.push(Running {
            request,
            kind,
            setting,
            is_high,
            started_ns: self.now_ns,
            memory_bytes,
            work_ns,
            left_ns: work_ns,
            activity: alone.sm_activity,
            speed: 1.0,
        });
        self.set_speeds(facts);
    }

    pub(crate) fn take_ended(&mut self, facts: &Facts) -> Vec<Running> {
        // A task ends within the ns that `next_end_ns` rounds to.
        let is_done = |task: &Running| task.left_ns <= task.speed;
        let (ended, running) = self.running.drain(..).partition(is_done);
        self.running = running;
        let ended: Vec<Running> = ended;
        for task in &ended {
            self.used_bytes -= task.memory_bytes;
        }
        if !ended.is_empty() {
            self.set_speeds(facts);
        }
        ended
    }

    fn set_speeds(&mut self, facts: &Facts) {
        let speeds: Vec<f64> = (0..self.running.len())
            .map(|place| self.speed(facts, place))
            .collect();
        let mut activity = 0.0;
        for (task, speed) in self.running.iter_mut().zip(speeds) {
            task.speed = speed;
            activity += task.activity * speed;
        }
        self.activity = activity.min(1.0);
    }

    /// Of a task among its neighbours; never 0, so that all tasks end.
    fn speed(&self, facts: &Facts, place: usize) -> f64 {
        let others = self.running.iter().enumerate();
        let others = others.filter(|(other, _)| *other != place);
        let kept = others.map(|(_, other)| self.kept(facts, &self.running[place], other));
        let together = match self.together {
            Together::Multiply => kept.product::<f64>(),
            Together::Add => 1.0 / (1.0 + kept.map(|kept| 1.0 / kept - 1.0).sum::<f64>()),
        };
        together.max(SPEED_MIN)
    }

    fn kept(&self, facts: &Facts, task: &Running, beside: &Running) -> f64 {
        let of = |by, first, second| facts.kept(by, self.model, first, second);
        let kept = match (task.is_high, beside.is_high) {
            (true, false) => of(self.mechanism, task.kind, beside.kind)[0],
            (false, true) => of(self.mechanism, beside.kind, task.kind)[1],
            // Of one class: no mechanism tells them apart.
            _ => of(Mechanism::Mps, task.kind, beside.kind)[0],
        };
        kept.max(SPEED_MIN)
    }
}

/// Least speed: a best-effort task at 0 beside another in a table would never end while that runs.
const SPEED_MIN: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oltunes_table::InferenceTable;

    fn facts() -> Facts {
        let table = InferenceTable::simulated().expect("it comes with the program");
        Facts::new(&table).expect("the table has every number")
    }

    fn gpu(facts: &Facts, mechanism: Mechanism, together: Together) -> Gpu {
        Gpu::new(facts, 1, mechanism, together)
    }

    fn start(gpu: &mut Gpu, facts: &Facts, request: usize, is_high: bool) {
        gpu.start(facts, request, (0, 1), Setting::whole(0), is_high);
    }

    #[test]
    fn a_task_alone_takes_what_the_table_has() {
        let facts = facts();
        let mut gpu = gpu(&facts, Mechanism::Mps, Together::Add);
        gpu.start(&facts, 0, (7, 16), Setting::whole(2), false);
        let alone = facts.alone(1, (7, 2), SHARES_PCT.len() - 1);
        let takes_ns = (2.0 * alone.latency_ms * 1e6).ceil() as u64;
        assert_eq!(gpu.next_end_ns(), Some(takes_ns));
        gpu.advance(takes_ns);
        assert_eq!(gpu.take_ended(&facts).len(), 1);
        let activity = gpu.sums.activity_ns / takes_ns as f64;
        assert!((activity - alone.sm_activity).abs() < 1e-9);
        assert_eq!(gpu.free_bytes(), gpu.memory_bytes);
    }

    #[test]
    fn neighbours_slow_by_product_or_by_sum() {
        let facts = facts();
        let kept = facts.kept(Mechanism::Mps, 1, (0, 0), (0, 0))[0];
        for (together, expected) in [
            (Together::Multiply, kept * kept),
            (Together::Add, 1.0 / (1.0 + 2.0 * (1.0 / kept - 1.0))),
        ] {
            let mut gpu = gpu(&facts, Mechanism::Mps, together);
            for request in 0..3 {
                start(&mut gpu, &facts, request, true);
            }
            assert!(
                (gpu.running[0].speed - expected).abs() < 1e-9,
                "{together:?}"
            );
        }
    }

    #[test]
    fn a_class_counts_under_pillion_and_its_end_gives_the_speed_back() {
        let facts = facts();
        let mut gpu = gpu(&facts, Mechanism::Pillion, Together::Add);
        start(&mut gpu, &facts, 0, true);
        gpu.start(&facts, 1, (7, 16), Setting::whole(2), false);
        let [high, low] = facts.kept(Mechanism::Pillion, 1, (0, 0), (7, 2));
        assert_eq!(gpu.running[0].speed, high);
        assert_eq!(gpu.running[1].speed, low);
        let end_ns = gpu.next_end_ns().expect("two run");
        gpu.advance(end_ns);
        let ended = gpu.take_ended(&facts);
        assert_eq!(ended[0].request, 0);
        assert_eq!(gpu.running[0].speed, 1.0);
    }

    #[test]
    #[should_panic(expected = "memory is never exceeded")]
    fn a_task_that_does_not_fit_is_a_bug() {
        let facts = facts();
        let mut gpu = gpu(&facts, Mechanism::Mps, Together::Add);
        for request in 0..100 {
            gpu.start(&facts, request, (7, 16), Setting::whole(2), false);
        }
    }
}

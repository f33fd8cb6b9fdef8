//! The outcome of a run.

use cluster::Class;

use crate::meter::Meter;
use crate::world::Arrival;

const NEVER: u64 = u64::MAX;

/// One job of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Its class.
    pub class: Class,
    /// How many GPUs it had.
    pub gpus: u32,
    /// Its arrival.
    pub at_ns: u64,
    /// How long it takes alone.
    pub length_ns: u64,
    /// Until when its promise holds; `u64::MAX` without one.
    pub due_ns: u64,
    /// When it was placed; `u64::MAX` if never.
    pub start_ns: u64,
    /// When it ended; `u64::MAX` if never.
    pub end_ns: u64,
    /// Whether it was refused.
    pub refused: bool,
}

impl JobRecord {
    /// Before its arrival.
    #[must_use]
    pub fn of(arrival: &Arrival) -> Self {
        let due = arrival.job.slo_milli.map_or(NEVER, |milli| {
            let length = u128::from(arrival.length_ns) * u128::from(milli) / 1000;
            arrival
                .at_ns
                .saturating_add(u64::try_from(length).unwrap_or(NEVER))
        });
        Self {
            class: arrival.job.class,
            gpus: arrival.job.gpus,
            at_ns: arrival.at_ns,
            length_ns: arrival.length_ns,
            due_ns: due,
            start_ns: NEVER,
            end_ns: NEVER,
            refused: false,
        }
    }

    pub(crate) const fn handle_start(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
    }

    pub(crate) const fn handle_end(&mut self, now_ns: u64) {
        self.end_ns = now_ns;
    }

    pub(crate) const fn handle_refusal(&mut self) {
        self.refused = true;
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.end_ns != NEVER
    }

    /// Whether it ended after its promise, or not at all. Rounding at the end of a job at exactly
    /// the speed that it needs is not late: a microsecond, or a millionth of its length.
    #[must_use]
    pub const fn is_late(&self) -> bool {
        let rounding_ns = 1_000 + self.length_ns / 1_000_000;
        self.due_ns != NEVER && self.end_ns > self.due_ns.saturating_add(rounding_ns)
    }
}

/// The jobs of one class, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many arrived.
    pub jobs: u64,
    /// How many were refused: they fit into no empty cluster.
    pub refused: u64,
    /// How many had a promise.
    pub promised: u64,
    /// How many of these ended later.
    pub late: u64,
    /// Mean time from arrival to end.
    pub completion_s: f64,
    /// Mean time from arrival to placement.
    pub waiting_s: f64,
    /// 99th percentile of that.
    pub waiting_p99_s: f64,
    /// Σ time alone ÷ Σ time placed: how much of their demand the jobs got, 1 if they ran as alone
    /// (MuxFlow's equation 3, "oversold GPU", where best-effort jobs run on others' GPUs).
    pub speed: f64,
}

impl Summary {
    /// Late ones of those with a promise, 0 to 1.
    #[must_use]
    pub fn violations(&self) -> f64 {
        if self.promised == 0 {
            0.0
        } else {
            self.late as f64 / self.promised as f64
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// High-priority jobs.
    pub high_priority: Summary,
    /// Best-effort jobs.
    pub best_effort: Summary,
    /// From the first arrival to the last end.
    pub makespan_s: f64,
    /// Mean number of GPUs with a job, to the horizon.
    pub gpus_mean: f64,
    /// The same by day.
    pub gpus_daily: Vec<f64>,
    /// Most GPUs with a job.
    pub gpus_most: f64,
    /// Hours of GPUs with a job, to the end of the last one: a policy that puts work off has these.
    pub gpu_hours: f64,
    /// High-priority jobs by the day of their arrival: how many had a promise, how many were late.
    pub promised_daily: Vec<(u64, u64)>,
    /// Energy of GPUs while they have a job, to the end of the last one.
    pub used_j: f64,
    /// Energy of GPUs while they have none, to the horizon.
    pub idle_j: f64,
    /// Arrivals and ends.
    pub events: u64,
    /// Every job.
    pub jobs: Vec<JobRecord>,
}

impl Outcome {
    pub(crate) fn new(
        jobs: Vec<JobRecord>,
        mut used: Meter,
        mut busy_w: Meter,
        mut idle_w: Meter,
        events: u64,
    ) -> Self {
        let ends = jobs.iter().filter(|job| job.end_ns != NEVER);
        let end_ns = ends.map(|job| job.end_ns).max().unwrap_or(0);
        for meter in [&mut used, &mut busy_w, &mut idle_w] {
            meter.pass_to_end(end_ns);
        }
        let first_ns = jobs.first().map_or(0, |job| job.at_ns);
        let gpus_daily = used.daily();
        let mut promised_daily = vec![(0, 0); gpus_daily.len()];
        for job in jobs.iter().filter(|job| job.due_ns != NEVER) {
            if let Some(day) = promised_daily.get_mut((job.at_ns / crate::meter::DAY_NS) as usize) {
                day.0 += 1;
                day.1 += u64::from(job.is_late());
            }
        }
        Self {
            high_priority: summary(&jobs, Class::HighPriority),
            best_effort: summary(&jobs, Class::BestEffort),
            makespan_s: end_ns.saturating_sub(first_ns) as f64 / 1e9,
            gpus_mean: used.mean(),
            gpus_daily,
            gpus_most: used.most(),
            gpu_hours: used.total() / 3_600.0,
            promised_daily,
            used_j: busy_w.total(),
            idle_j: idle_w.within(),
            events,
            jobs,
        }
    }
}

fn summary(jobs: &[JobRecord], class: Class) -> Summary {
    let of = || jobs.iter().filter(move |job| job.class == class);
    let ended = || of().filter(|job| job.end_ns != NEVER);
    let count = ended().count().max(1) as f64;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut waits: Vec<u64> = ended().map(|job| job.start_ns - job.at_ns).collect();
    waits.sort_unstable();
    let p99 = waits.len().saturating_sub(1) * 99 / 100;
    let alone: f64 = ended().map(|job| seconds(job.length_ns)).sum();
    let placed: f64 = ended().map(|job| seconds(job.end_ns - job.start_ns)).sum();
    Summary {
        jobs: of().count() as u64,
        refused: of().filter(|job| job.refused).count() as u64,
        promised: of().filter(|job| job.due_ns != NEVER).count() as u64,
        late: of().filter(|job| job.is_late()).count() as u64,
        completion_s: ended()
            .map(|job| seconds(job.end_ns - job.at_ns))
            .sum::<f64>()
            / count,
        waiting_s: waits.iter().map(|&wait| seconds(wait)).sum::<f64>() / count,
        waiting_p99_s: waits.get(p99).map_or(0.0, |&wait| seconds(wait)),
        speed: if placed > 0.0 { alone / placed } else { 1.0 },
    }
}

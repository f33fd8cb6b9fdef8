//! Evaluates runs: each job against itself alone, and means over a scenario's seeds.

use sim::scenario::Scenario;
use sim::{JobClass, JobKind, JobOutcome, Share};

use crate::simulate::plan::Part;
use crate::simulate::results::sharing_name;
use crate::simulate::runner::Run;

#[derive(Clone, Debug)]
pub(crate) struct Measures {
    /// Index in the scenario.
    pub(crate) index: usize,
    pub(crate) is_hp: bool,
    pub(crate) requests: u64,
    pub(crate) unfinished: u64,
    /// Median, 95th and 99th percentile; none without a request after the warm-up.
    pub(crate) ms: Option<[f64; 3]>,
    pub(crate) solo_ms: Option<[f64; 3]>,
    pub(crate) per_s: f64,
    pub(crate) solo_per_s: f64,
    pub(crate) held: u64,
    pub(crate) launches: u64,
}

impl Measures {
    /// In the order of the scenario.
    pub(crate) fn of(run: &Run<'_>) -> Vec<Self> {
        let both = run.outcome.jobs.iter().zip(run.solo());
        both.map(|(job, solo)| Self {
            index: job.index,
            is_hp: job.class == JobClass::HighPriority,
            requests: job.requests,
            unfinished: job.unfinished,
            ms: quantiles_ms(job),
            solo_ms: quantiles_ms(solo),
            per_s: job.per_s(),
            solo_per_s: solo.per_s(),
            held: job.held,
            launches: job.launches,
        })
        .collect()
    }

    /// Rate over its rate alone.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.solo_per_s > 0.0).then(|| self.per_s / self.solo_per_s)
    }

    /// Slowdown against alone of the quantile at `place` of [`Measures::ms`].
    pub(crate) fn slowdown(&self, place: usize) -> Option<f64> {
        Some(self.ms?[place] / self.solo_ms?[place])
    }
}

fn quantiles_ms(job: &JobOutcome) -> Option<[f64; 3]> {
    Some(job.quantiles_ns()?.map(|ns| ns as f64 / 1e6))
}

/// The runs of one scenario: means over its seeds.
#[derive(Clone, Debug)]
pub(crate) struct Group<'p> {
    pub(crate) part: &'p Part,
    pub(crate) scenario: &'p Scenario,
    /// The first high-priority job.
    pub(crate) hp: Option<Hp>,
    /// Rate and share of each best-effort job.
    pub(crate) be: Vec<(f64, f64)>,
    pub(crate) util: Share,
    pub(crate) seeds: usize,
    /// Runs aborted with requests left over.
    pub(crate) overrun: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hp {
    pub(crate) is_training: bool,
    /// Median, 95th and 99th percentile.
    pub(crate) ms: [f64; 3],
    /// Mean over the seeds of the quantile over the same seed's quantile alone.
    pub(crate) slowdown: [f64; 3],
    pub(crate) per_s: f64,
    /// Rate over its rate alone.
    pub(crate) share: f64,
}

impl<'p> Group<'p> {
    /// Groups runs that are in the plan's order.
    pub(crate) fn all(runs: &[&Run<'p>]) -> Vec<Self> {
        let same = |a: &&Run<'_>, b: &&Run<'_>| std::ptr::eq(a.scenario, b.scenario);
        runs.chunk_by(same).filter_map(Self::of).collect()
    }

    fn of(runs: &[&Run<'p>]) -> Option<Self> {
        let first = runs.first()?;
        let measured: Vec<Vec<Measures>> = runs.iter().map(|run| Measures::of(run)).collect();
        let count = runs.len() as f64;
        let mean = |of: &dyn Fn(&[Measures]) -> Option<f64>| {
            let values: Option<Vec<f64>> = measured.iter().map(|jobs| of(jobs)).collect();
            values.map(|values| values.iter().sum::<f64>() / count)
        };
        let hp_place = measured[0].iter().position(|job| job.is_hp);
        let hp = hp_place.and_then(|place| {
            let three = |of: &dyn Fn(&Measures, usize) -> Option<f64>| {
                let at = |q: usize| mean(&|jobs: &[Measures]| of(&jobs[place], q));
                Some([at(0)?, at(1)?, at(2)?])
            };
            Some(Hp {
                is_training: first.outcome.jobs[place].kind == JobKind::Training,
                ms: three(&|job, q| Some(job.ms?[q]))?,
                slowdown: three(&|job, q| job.slowdown(q))?,
                per_s: mean(&|jobs| Some(jobs[place].per_s))?,
                share: mean(&|jobs| jobs[place].share())?,
            })
        });
        let be = (0..measured[0].len())
            .filter(|&index| !measured[0][index].is_hp)
            .filter_map(|index| {
                let per_s = mean(&|jobs| Some(jobs[index].per_s))?;
                Some((
                    per_s,
                    mean(&|jobs| Some(jobs[index].share().unwrap_or(0.0)))?,
                ))
            });
        let util = |of: fn(&Share) -> f64| {
            let sum: f64 = runs.iter().map(|run| of(&run.outcome.utilisation)).sum();
            sum / count
        };
        Some(Self {
            part: first.part,
            scenario: first.scenario,
            hp,
            be: be.collect(),
            util: Share {
                sm: util(|share| share.sm),
                compute: util(|share| share.compute),
                bandwidth: util(|share| share.bandwidth),
            },
            seeds: runs.len(),
            overrun: measured
                .iter()
                .filter(|jobs| jobs.iter().any(|job| job.unfinished > 0))
                .count(),
        })
    }

    /// Mean over the best-effort jobs.
    pub(crate) fn be_share(&self) -> Option<f64> {
        let sum: f64 = self.be.iter().map(|(_, share)| share).sum();
        (!self.be.is_empty()).then(|| sum / self.be.len() as f64)
    }

    pub(crate) fn pair(&self) -> String {
        let of = |class: JobClass| {
            let jobs = self.scenario.experiment.jobs.iter();
            let both = jobs.zip(&self.scenario.shown);
            let names = both.filter(|(job, _)| job.class == class);
            names
                .map(|(_, shown)| shown.trace.as_str())
                .collect::<Vec<_>>()
                .join(" + ")
        };
        let (hp, be) = (of(JobClass::HighPriority), of(JobClass::BestEffort));
        match (hp.is_empty(), be.is_empty()) {
            (false, false) => format!("{hp} | {be}"),
            _ => hp + &be,
        }
    }

    /// Shared by all rows of a table: jobs, arrivals, device and sharing.
    pub(crate) fn heading(&self) -> String {
        let experiment = &self.scenario.experiment;
        let job = |class: JobClass| {
            let both = experiment.jobs.iter().zip(&self.scenario.shown);
            let jobs = both.filter(|(job, _)| job.class == class);
            let named = jobs.map(|(_, shown)| match shown.arrivals.as_str() {
                "closed" => shown.trace.clone(),
                arrivals => format!("{} ({arrivals})", shown.trace),
            });
            named.collect::<Vec<_>>().join(" + ")
        };
        let (hp, be) = (job(JobClass::HighPriority), job(JobClass::BestEffort));
        let jobs = match (hp.is_empty(), be.is_empty()) {
            (false, false) => format!("{hp} beside {be}"),
            _ => hp + &be,
        };
        let sharing = sharing_name(experiment.gpu.sharing);
        let seconds = experiment.duration_ns as f64 / 1e9;
        let seeds = match self.seeds {
            1 => String::new(),
            count => format!(", mean of {count} seeds"),
        };
        let device = &experiment.device.name;
        format!("{jobs}: {device}, {sharing}, {seconds} s{seeds}")
    }

    /// The policy, and swept values that do not belong to a job.
    pub(crate) fn series(&self) -> String {
        let swept = self.scenario.swept.iter();
        let swept = swept.map(|swept| (swept.path.as_str(), swept.value.as_str()));
        series_name(self.scenario.experiment.policy.name(), swept)
    }
}

/// The name of a policy's runs with these swept values, without those that the heading shows.
pub(crate) fn series_name<'s>(
    policy: &str,
    swept: impl Iterator<Item = (&'s str, &'s str)>,
) -> String {
    let others = swept.filter(|(path, _)| *path != "policy.name" && !is_in_heading(path));
    let (mut name, mut more) = (policy.to_owned(), String::new());
    for (path, value) in others {
        match path {
            // The label of a swept table.
            "policy" => value.clone_into(&mut name),
            "file" if value.starts_with(policy) => value.clone_into(&mut name),
            "file" => more += &format!(", {value}"),
            _ => {
                let job = path.strip_prefix("jobs.");
                let key = job.unwrap_or_else(|| path.rsplit('.').next().unwrap_or(path));
                more += &format!(", {key} {value}");
            }
        }
    }
    name + &more
}

/// Whether a swept path is shown with its job: a whole table, or its trace and arrivals.
fn is_in_heading(path: &str) -> bool {
    const SHOWN: [&str; 5] = ["trace", "arrivals", "rate", "arrivals_stream", "class"];
    // A synthetic trace's name contains these.
    const NAMED: [&str; 3] = ["kernel_us", "block_us", "class"];
    let mut parts = path.split('.');
    let is_job = parts.next() == Some("jobs");
    let key = parts.nth(1);
    is_job
        && key.is_none_or(|key| match parts.next() {
            None => SHOWN.contains(&key),
            Some(of_trace) => key == "trace" && NAMED.contains(&of_trace),
        })
}

//! Results of runs on clusters: a line of JSON for programs, tables for people.

use cluster_sim::MODEL;
use cluster_sim::fgd;
use cluster_sim::inflation::Allocation;
use cluster_sim::outcome::Summary;
use cluster_sim::traces::openb::{self, ASKED_PCT};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::facts::{Facts, Run, Weeks, mean};
use crate::simulate::cluster::plan::{Inflated, Plan, What};
use crate::status::table;

pub(crate) const WEEKS: [&str; 13] = [
    "POLICY",
    "seeds",
    "GPUs",
    "most",
    "late",
    "HP wait",
    "BE done",
    "BE wait",
    "BE speed",
    "MWh",
    "never ran",
    "GPU h",
    "makespan",
];

/// `docs/simulate.md` lists every field.
pub(crate) fn line(plan: &Plan, run: &Run) -> Value {
    let mut line = json!({
        "schema_version": 1,
        "model": MODEL,
        "suite": plan.suite.map(|suite| suite.name),
        "trace": plan.trace,
        "policy": plan.policies[run.policy].name,
        "seed": run.seed,
    });
    let more = match (&run.facts, &plan.what) {
        (Facts::Inflation(allocation), What::Inflation(workloads)) => {
            let of = &workloads[run.workload];
            line["trace"] = of.name.clone().into();
            let published = published(of, &plan.policies[run.policy].name);
            let published = published.into_iter().find(|row| row.seed == run.seed);
            inflation_json(of, allocation, published)
        }
        (Facts::Weeks(weeks), _) => weeks_json(weeks),
        (Facts::Inflation(_), What::Weeks(_)) => Value::Null,
    };
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
    }
    line
}

fn weeks_json(weeks: &Weeks) -> Value {
    json!({
        "gpus": weeks.gpus,
        "jobs": weeks.jobs,
        "unplaced": weeks.unplaced,
        "gpus_mean": weeks.gpus_mean,
        "gpus_most": weeks.gpus_most,
        "gpu_hours": weeks.gpu_hours,
        "violations": weeks.high_priority.violations(),
        "high_priority": summary_json(&weeks.high_priority),
        "best_effort": summary_json(&weeks.best_effort),
        "used_j": weeks.used_j,
        "idle_j": weeks.idle_j,
        "makespan_s": weeks.makespan_s,
        "gpus_daily": weeks.gpus_daily,
        "violations_daily": weeks.violations_daily,
        "bounds": {
            "exclusive": weeks.bounds.exclusive,
            "separate": weeks.bounds.separate,
            "least": weeks.bounds.least,
        },
    })
}

fn summary_json(of: &Summary) -> Value {
    // An empty sum is −0.
    let positive = |value: f64| value + 0.0;
    json!({
        "jobs": of.jobs,
        "refused": of.refused,
        "promised": of.promised,
        "late": of.late,
        "completion_s": positive(of.completion_s),
        "waiting_s": positive(of.waiting_s),
        "waiting_p99_s": positive(of.waiting_p99_s),
        "speed": of.speed,
    })
}

fn inflation_json(
    of: &Inflated,
    allocation: &Allocation,
    published: Option<&openb::Allocation>,
) -> Value {
    let at = columns(of).into_iter();
    let at: Map<String, Value> = at
        .map(|pct| (pct.to_string(), allocation.at(pct as usize).into()))
        .collect();
    let published = published.map(|row| -> Map<String, Value> {
        let columns = ASKED_PCT.iter().zip(row.allocated_pct);
        columns
            .map(|(pct, allocated)| (pct.to_string(), allocated.into()))
            .collect()
    });
    json!({
        "gpus": of.inventory.gpus(),
        "jobs": of.jobs.len(),
        "target": of.target,
        "arrived": allocation.arrived,
        "dropped": allocation.dropped,
        "allocated": allocation.allocated,
        "allocated_pct_at": at,
        "published_pct_at": published,
    })
}

/// Per cent requested at which allocations are shown: the publication's, as far as the run goes,
/// and the last.
pub(crate) fn columns(of: &Inflated) -> Vec<u32> {
    let last = last_pct(of);
    let mut columns: Vec<u32> = ASKED_PCT.into_iter().filter(|&pct| pct < last).collect();
    columns.push(last);
    columns
}

/// Per cent of the GPUs that all jobs together request.
pub(crate) fn last_pct(of: &Inflated) -> u32 {
    (of.target * 100.0).round() as u32
}

pub(crate) fn published<'a>(of: &'a Inflated, policy: &str) -> Vec<&'a openb::Allocation> {
    fgd::published(&of.published, &of.name, policy)
}

/// Means over these seeds, by column of [`ASKED_PCT`]; none if one was not published.
pub(crate) fn published_means(of: &Inflated, policy: &str, seeds: &[u64]) -> Option<Vec<f64>> {
    let rows = published(of, policy);
    let row = |seed: &u64| rows.iter().find(|row| row.seed == *seed);
    let rows: Vec<_> = seeds.iter().map(row).collect::<Option<_>>()?;
    let column = |column: usize| mean(rows.iter().map(|row| row.allocated_pct[column]));
    (0..ASKED_PCT.len()).map(column).collect()
}

/// Mean allocation when that many per cent had been requested.
pub(crate) fn allocated_mean(runs: &[&Run], pct: u32) -> Option<f64> {
    let at = |allocation: &Allocation| allocation.at(pct as usize);
    mean(allocations(runs).filter_map(at))
}

fn allocations<'a>(runs: &'a [&Run]) -> impl Iterator<Item = &'a Allocation> {
    runs.iter().filter_map(|run| match &run.facts {
        Facts::Inflation(allocation) => Some(allocation),
        Facts::Weeks(_) => None,
    })
}

pub(crate) fn weeks<'a>(runs: &'a [&Run]) -> impl Iterator<Item = &'a Weeks> {
    runs.iter().filter_map(|run| match &run.facts {
        Facts::Weeks(weeks) => Some(&**weeks),
        Facts::Inflation(_) => None,
    })
}

pub(crate) fn of_policy<'a>(runs: &'a [Run], workload: usize, policy: usize) -> Vec<&'a Run> {
    let own = |run: &&'a Run| run.workload == workload && run.policy == policy;
    runs.iter().filter(own).collect()
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A table for each workload, a row for each policy: means over the seeds.
pub(crate) fn tables(plan: &Plan, runs: &[Run]) -> Vec<Table> {
    let policies = || plan.policies.iter().enumerate();
    match &plan.what {
        What::Weeks(_) => {
            let rows = policies().filter_map(|(number, policy)| {
                weeks_row(&policy.name, &of_policy(runs, 0, number))
            });
            let sizes = runs.iter().find_map(|run| match &run.facts {
                Facts::Weeks(weeks) => Some((weeks.jobs, weeks.gpus)),
                Facts::Inflation(_) => None,
            });
            let (jobs, gpus) = sizes.unwrap_or_default();
            vec![Table {
                title: format!("{}: {jobs} jobs, {gpus} GPUs", plan.trace),
                headings: WEEKS.map(str::to_owned).to_vec(),
                rows: rows.collect(),
            }]
        }
        What::Inflation(workloads) => {
            let tables = workloads.iter().enumerate();
            tables
                .map(|(number, of)| inflation_table(plan, runs, number, of))
                .collect()
        }
    }
}

fn weeks_row(policy: &str, runs: &[&Run]) -> Option<Vec<String>> {
    let of = |value: fn(&Weeks) -> f64| mean(weeks(runs).map(value));
    let mwh = |j: f64| format!("{:.2}", j / 3.6e9);
    let number = |value: f64| format!("{value:.1}");
    let refused = |w: &Weeks| w.high_priority.refused + w.best_effort.refused;
    let never_ran = |w: &Weeks| (refused(w) + w.unplaced as u64) as f64;
    let has_promise = weeks(runs).any(|w| w.high_priority.promised > 0);
    let has = |jobs: fn(&Weeks) -> u64| weeks(runs).any(|w| jobs(w) > 0);
    let (has_high, has_best) = (
        has(|w| w.high_priority.jobs - w.high_priority.refused),
        has(|w| w.best_effort.jobs - w.best_effort.refused),
    );
    let unless = |is_there: bool, text: String| if is_there { text } else { "-".to_owned() };
    Some(vec![
        policy.to_owned(),
        runs.len().to_string(),
        number(of(|w| w.gpus_mean)?),
        number(of(|w| w.gpus_most)?),
        unless(
            has_promise,
            format!("{:.2} %", 100.0 * of(|w| w.high_priority.violations())?),
        ),
        unless(has_high, time(of(|w| w.high_priority.waiting_s)?)),
        unless(has_best, time(of(|w| w.best_effort.completion_s)?)),
        unless(has_best, time(of(|w| w.best_effort.waiting_s)?)),
        unless(has_best, format!("{:.3}", of(|w| w.best_effort.speed)?)),
        mwh(of(|w| w.used_j)?),
        format!("{:.0}", mean(weeks(runs).map(never_ran))?),
        format!("{:.0}", of(|w| w.gpu_hours)?),
        time(of(|w| w.makespan_s)?),
    ])
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

fn inflation_table(plan: &Plan, runs: &[Run], number: usize, of: &Inflated) -> Table {
    let last = last_pct(of);
    let mut headings: Vec<String> = ["POLICY", "seeds", "arrived", "dropped"]
        .map(str::to_owned)
        .to_vec();
    if last > 100 {
        headings.push("at 100 %".to_owned());
    }
    headings.extend([format!("at {last} %"), "at the end".to_owned()]);
    let has_published = !of.published.is_empty();
    if has_published {
        headings.extend(["published", "difference", "furthest"].map(str::to_owned));
    }
    let rows = plan.policies.iter().enumerate().map(|(policy, entry)| {
        let own = of_policy(runs, number, policy);
        let counts =
            |count: fn(&Allocation) -> usize| mean(allocations(&own).map(|of| count(of) as f64));
        let mut row = vec![
            entry.name.clone(),
            own.len().to_string(),
            shown(counts(|of| of.arrived), 0),
            shown(counts(|of| of.dropped), 0),
        ];
        if last > 100 {
            row.push(shown(allocated_mean(&own, 100), 2));
        }
        row.push(shown(allocated_mean(&own, last), 2));
        let at_end = mean(allocations(&own).map(|of| 100.0 * of.allocated));
        row.push(shown(at_end, 2));
        if has_published {
            row.extend(beside_published(plan, of, &entry.name, &own));
        }
        row
    });
    Table {
        title: format!("{}: {} GPUs", of.name, of.inventory.gpus()),
        headings,
        rows: rows.collect(),
    }
}

/// The published end, our difference from it, and the greatest difference in any column.
fn beside_published(plan: &Plan, of: &Inflated, policy: &str, own: &[&Run]) -> [String; 3] {
    let Some(means) = published_means(of, policy, &plan.seeds) else {
        return ["-", "-", "-"].map(str::to_owned);
    };
    let gap = |(&pct, theirs): (&u32, &f64)| Some(allocated_mean(own, pct)? - theirs);
    let gaps: Vec<f64> = ASKED_PCT.iter().zip(&means).filter_map(gap).collect();
    let furthest = gaps.iter().map(|gap| gap.abs()).reduce(f64::max);
    // Removes the sign of a zero.
    let rounded = |value: f64| (100.0 * value).round() / 100.0 + 0.0;
    let signed =
        |gap: Option<f64>| gap.map_or("-".to_owned(), |gap| format!("{:+.2}", rounded(gap)));
    [
        shown(means.last().copied(), 2),
        signed(gaps.last().copied()),
        shown(furthest, 2),
    ]
}

fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

pub(crate) fn print_tables(plan: &Plan, runs: &[Run]) -> Result<(), Failure> {
    for of in tables(plan, runs) {
        let headings: Vec<&str> = of.headings.iter().map(String::as_str).collect();
        let mut shown = table(&headings);
        for row in of.rows {
            shown.add_row(row);
        }
        out::line(format_args!("{}\n{shown}\n", of.title))?;
    }
    out::line(format_args!("{}", explanation(plan)))
}

pub(crate) fn explanation(plan: &Plan) -> String {
    let runs = plan.runs();
    match plan.what {
        What::Weeks(_) => format!(
            "{runs} runs, means over seeds. GPUs: mean number with a job while jobs arrive (postponed work lowers it, too); most: the \
             greatest at one time; GPU h: hours of GPUs with a job until the last job ends; MWh: their energy; late: share of \
             high-priority jobs that ended after their promise; HP wait, BE wait: time before placement; BE done: time from \
             arrival to end; BE speed: recorded length over time placed; never ran: refused, or never placed. All numbers are \
             simulated; nothing was measured on hardware."
        ),
        What::Inflation(_) => format!(
            "{runs} runs, means over seeds: per cent of all GPUs that were allocated, by the per cent of all GPUs that \
             the arrived jobs had requested."
        ),
    }
}

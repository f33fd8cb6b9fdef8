//! Results of runs: a line of JSON for programs, tables for people.

use serde_json::{Map, Value, json};
use softgpu::Sharing;

use crate::failure::Failure;
use crate::out;
use crate::simulate::comparison::{Comparison, EXPLANATION};
use crate::simulate::outcomes::{Group, Measures};
use crate::simulate::plan::Plan;
use crate::simulate::runner::Run;
use crate::simulate::targets::view_json;
use crate::status::table;

pub(crate) const HEADINGS: [&str; 10] = [
    "POLICY", "HP p50", "p95", "p99 ms", "vs solo", "HP/s", "BE/s", "share", "SM", "compute",
];

/// `docs/simulate.md` lists every field.
pub(crate) fn line(run: &Run<'_>) -> Value {
    let experiment = &run.scenario.experiment;
    let jobs = Measures::of(run);
    let trace = |job: &Measures| run.scenario.shown[job.index].trace.as_str();
    let hp: Vec<&Measures> = jobs.iter().filter(|job| job.is_hp).collect();
    let be: Vec<&Measures> = jobs.iter().filter(|job| !job.is_hp).collect();
    let swept = run.scenario.swept.iter();
    let swept: Map<String, Value> = swept
        .map(|swept| (swept.path.clone(), swept.value.clone().into()))
        .collect();
    let mut line = json!({
        "schema_version": 1,
        "policy": experiment.policy.name(),
        "sharing": sharing_name(experiment.gpu.sharing),
        "pair": {
            "hp": hp.first().map(|job| trace(job)),
            "be": be.iter().map(|job| trace(job)).collect::<Vec<_>>(),
        },
        "device": experiment.device.name,
        "seed": run.seed,
        "seconds": experiment.duration_ns as f64 / 1e9,
        "hp": hp.first().map(|job| hp_json(run, job)),
        "be": be.iter().map(|job| be_json(run, job)).collect::<Vec<_>>(),
        "util": {
            "sm": run.outcome.utilisation.sm,
            "compute": run.outcome.utilisation.compute,
            "bandwidth": run.outcome.utilisation.bandwidth,
        },
        "launches": run.outcome.launches,
        "swept": swept,
    });
    if hp.len() > 1 {
        line["hp_others"] = hp[1..].iter().map(|job| hp_json(run, job)).collect();
    }
    if !run.part.key.is_empty() {
        line["experiment"] = run.part.key.clone().into();
    }
    if !run.scenario.name.is_empty() {
        line["scenario"] = run.scenario.name.clone().into();
    }
    line
}

fn hp_json(run: &Run<'_>, job: &Measures) -> Value {
    let of = |ms: Option<[f64; 3]>, place: usize| ms.map(|ms| ms[place]);
    json!({
        "solo_p50_ms": of(job.solo_ms, 0),
        "solo_p99_ms": of(job.solo_ms, 2),
        "mean_ms": mean_ms(run, job),
        "p50_ms": of(job.ms, 0),
        "p95_ms": of(job.ms, 1),
        "p99_ms": of(job.ms, 2),
        "requests": job.requests,
        "unfinished": job.unfinished,
        "solo_per_s": job.solo_per_s,
        "per_s": job.per_s,
        "arrivals": run.scenario.shown[job.index].arrivals,
        "launches": job.launches,
        "slo": run.outcome.jobs.iter().find(|of| of.index == job.index).and_then(|of| of.slo.as_ref()).map(view_json),
    })
}

/// After the warm-up.
fn mean_ms(run: &Run<'_>, job: &Measures) -> Option<f64> {
    let mut jobs = run.outcome.jobs.iter();
    let latencies_ns = &jobs.find(|of| of.index == job.index)?.latencies_ns;
    let sum_ns: f64 = latencies_ns.iter().map(|&ns| ns as f64).sum();
    (!latencies_ns.is_empty()).then(|| sum_ns / latencies_ns.len() as f64 / 1e6)
}

fn be_json(run: &Run<'_>, job: &Measures) -> Value {
    json!({
        "solo_per_s": job.solo_per_s,
        "per_s": job.per_s,
        "requests": job.requests,
        "unfinished": job.unfinished,
        "arrivals": run.scenario.shown[job.index].arrivals,
        "launches": job.launches,
        "launches_held": job.held,
    })
}

/// The name in options and files.
pub(crate) const fn sharing_name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Mps => sim::scenario::SHARING_NAMES[0],
        Sharing::TimeSlice => sim::scenario::SHARING_NAMES[1],
    }
}

/// One table per part of a suite that compares policies, else one per pair of jobs.
pub(crate) fn print_tables(plan: &Plan, groups: &[Group<'_>]) -> Result<(), Failure> {
    match plan.suite.filter(|suite| suite.why().is_none()) {
        Some(_) => print_comparisons(groups)?,
        None => print_pairs(groups)?,
    }
    let overrun: usize = groups.iter().map(|group| group.overrun).sum();
    if overrun > 0 {
        let (runs, them) = match overrun {
            1 => ("1 run was".to_owned(), "it"),
            _ => (format!("{overrun} runs were"), "them"),
        };
        out::line(format_args!(
            "{runs} aborted before all requests had run: a job in {them} needs more of the GPU than it gets. \
             The latency of such a high-priority job depends on the length of the run."
        ))?;
    }
    out::line(format_args!("{}", footer(plan, groups)))
}

fn print_comparisons(groups: &[Group<'_>]) -> Result<(), Failure> {
    let same = |a: &Group<'_>, b: &Group<'_>| std::ptr::eq(a.part, b.part);
    for groups in groups.chunk_by(same) {
        out::line(format_args!("{}\n", groups[0].part.title))?;
        let Comparison { headings, rows } = Comparison::of(groups);
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut shown = table(&headings);
        for row in rows {
            shown.add_row(row);
        }
        out::line(format_args!("{shown}\n"))?;
    }
    out::line(format_args!("{EXPLANATION}\n"))
}

/// A row per policy and other swept values.
fn print_pairs(groups: &[Group<'_>]) -> Result<(), Failure> {
    let same = |a: &Group<'_>, b: &Group<'_>| a.heading() == b.heading();
    let mut part = "";
    for groups in groups.chunk_by(same) {
        let first = &groups[0];
        if first.part.title != part {
            part = &first.part.title;
            out::line(format_args!("{part}\n"))?;
        }
        out::line(format_args!("{}", first.heading()))?;
        let mut rows = table(&HEADINGS);
        for group in groups {
            rows.add_row(row(group));
        }
        out::line(format_args!("{rows}\n"))?;
    }
    Ok(())
}

fn footer(plan: &Plan, groups: &[Group<'_>]) -> String {
    let runs: usize = groups.iter().map(|group| group.seeds).sum();
    let what = plan
        .suite
        .map_or(String::new(), |suite| format!(" of suite {}", suite.name));
    format!(
        "{runs} runs{what}; vs solo: p99 over its own alone; share: best-effort rate over its own alone. All \
         numbers come from the model; nothing was measured on hardware."
    )
}

/// A row under [`HEADINGS`].
pub(crate) fn row(group: &Group<'_>) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
    let pct = |value: f64| format!("{:.0} %", value * 100.0);
    let hp = group.hp;
    let rates: Vec<String> = group
        .be
        .iter()
        .map(|(per_s, _)| format!("{per_s:.2}"))
        .collect();
    vec![
        group.series(),
        number(hp.map(|hp| hp.ms[0])),
        number(hp.map(|hp| hp.ms[1])),
        number(hp.map(|hp| hp.ms[2])),
        hp.map_or("-".to_owned(), |hp| format!("{:.2}x", hp.slowdown[2])),
        number(hp.map(|hp| hp.per_s)),
        if rates.is_empty() {
            "-".to_owned()
        } else {
            rates.join(" ")
        },
        group.be_share().map_or("-".to_owned(), pct),
        pct(group.util.sm),
        pct(group.util.compute),
    ]
}

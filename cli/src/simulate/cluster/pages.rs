//! Writes the files of `--out`: results, a page with pictures and tables, the pictures.
//! `report.html` is self-contained: no script, no external resource; colours follow the reader's
//! light or dark setting. Each file is written whole or not at all.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use cluster_sim::traces::openb::ASKED_PCT;
use serde_json::Value;

use crate::out;
use crate::simulate::cluster::facts::{Facts, QUANTILES, Run, Weeks, mean};
use crate::simulate::cluster::plan::{Inflated, Plan, What};
use crate::simulate::cluster::plots::{self, Line, Scale};
use crate::simulate::cluster::results::{
    self, allocated_mean, last_pct, of_policy, published_means, weeks,
};
use crate::svg::{STYLE, alone, escaped};

struct Picture {
    key: String,
    title: String,
    caption: String,
    svg: String,
}

/// Writes all files into the folder, which exists; `lines` are those of the runs.
pub(crate) fn write(folder: &Path, plan: &Plan, runs: &[Run], lines: &[Value]) -> Result<()> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    out::file(folder, "results.jsonl", &text)?;
    let pictures = match &plan.what {
        What::Weeks(_) => of_weeks(plan, runs),
        What::Inflation(workloads) => {
            let workloads = workloads.iter().enumerate();
            workloads
                .map(|(number, of)| allocation(plan, runs, number, of))
                .collect()
        }
    };
    for picture in &pictures {
        let name = format!("{}.svg", picture.key);
        out::file(folder, &name, &alone(&picture.svg))?;
    }
    out::file(folder, "report.html", &page(plan, runs, &pictures))
}

fn allocation(plan: &Plan, runs: &[Run], number: usize, of: &Inflated) -> Picture {
    let last = last_pct(of);
    // Below, all policies are equal.
    let from = if last > 100 { 50 } else { 0 };
    let policies = plan.policies.iter().enumerate();
    let lines: Vec<Line<'_>> = policies
        .map(|(policy, entry)| {
            let own = of_policy(runs, number, policy);
            let at = |pct: u32| Some((f64::from(pct), allocated_mean(&own, pct)?));
            let published = published_means(of, &entry.name, &plan.seeds).unwrap_or_default();
            let published = ASKED_PCT.iter().zip(published);
            Line {
                name: &entry.name,
                colour: policy,
                points: (from..=last).filter_map(at).collect(),
                beside: published.map(|(&pct, all)| (f64::from(pct), all)).collect(),
            }
        })
        .collect();
    let beside = if of.published.is_empty() {
        ""
    } else {
        " Dots are the published means of the same seeds."
    };
    let across = Scale {
        ends: (f64::from(from), f64::from(last)),
        is_log: false,
        title: "per cent of the GPUs requested",
    };
    let up = Scale {
        ends: (f64::from(from), 100.0),
        is_log: false,
        title: "per cent of the GPUs allocated",
    };
    Picture {
        key: format!("{}.allocation", of.name),
        title: of.name.clone(),
        caption: format!(
            "Jobs arrive until they request {last} % of {} GPUs, and none leaves; higher is better. Means of {} seeds.{beside}",
            of.inventory.gpus(),
            plan.seeds.len()
        ),
        svg: plots::lines(
            "GPUs allocated against GPUs requested",
            &lines,
            &across,
            &up,
        ),
    }
}

fn of_weeks(plan: &Plan, runs: &[Run]) -> Vec<Picture> {
    let mut pictures = vec![gpus(plan, runs)];
    pictures.extend(violations(plan, runs));
    pictures.extend(completion(plan, runs));
    let rows: Vec<(&str, f64, f64)> = plan
        .policies
        .iter()
        .enumerate()
        .filter_map(|(policy, entry)| {
            let own = of_policy(runs, 0, policy);
            let mwh = |of: fn(&Weeks) -> f64| Some(mean(weeks(&own).map(of))? / 3.6e9);
            Some((entry.name.as_str(), mwh(|w| w.used_j)?, mwh(|w| w.idle_j)?))
        })
        .collect();
    pictures.push(Picture {
        key: "energy".to_owned(),
        title: "Energy".to_owned(),
        caption: "GPUs with a job count until the last job ends, GPUs without a job while jobs arrive. Power \
                  is linear between idle power and board power. Means over seeds."
            .to_owned(),
        svg: plots::energy(&rows),
    });
    pictures
}

/// A line for each policy: the mean over seeds of each day that has a value.
fn daily<'a>(
    plan: &'a Plan,
    runs: &[Run],
    value: fn(&Weeks, usize) -> Option<f64>,
) -> Vec<Line<'a>> {
    let policies = plan.policies.iter().enumerate();
    policies
        .map(|(policy, entry)| {
            let own = of_policy(runs, 0, policy);
            let days = weeks(&own).map(|w| w.gpus_daily.len()).max().unwrap_or(0);
            let point = |day: usize| {
                let value = mean(weeks(&own).filter_map(|w| value(w, day)))?;
                // The middle of the day.
                Some((day as f64 + 0.5, value))
            };
            Line {
                name: &entry.name,
                colour: policy,
                points: (0..days).filter_map(point).collect(),
                beside: Vec::new(),
            }
        })
        .collect()
}

fn days(lines: &[Line<'_>]) -> (f64, f64) {
    let last = lines.iter().filter_map(|line| line.points.last());
    (0.0, last.map(|(day, _)| day.ceil()).fold(1.0, f64::max))
}

fn gpus(plan: &Plan, runs: &[Run]) -> Picture {
    let lines = daily(plan, runs, |weeks, day| weeks.gpus_daily.get(day).copied());
    let most = lines.iter().flat_map(|line| &line.points);
    let most = most.map(|(_, gpus)| *gpus).fold(0.0, f64::max);
    let across = Scale {
        ends: days(&lines),
        is_log: false,
        title: "days since the first job",
    };
    let up = Scale {
        ends: (0.0, (most * 1.05).max(1.0)),
        is_log: false,
        title: "GPUs with a job",
    };
    Picture {
        key: "gpus".to_owned(),
        title: "GPUs in use".to_owned(),
        caption: "Means of each day and over seeds; lower is better.".to_owned(),
        svg: plots::lines("GPUs in use by day", &lines, &across, &up),
    }
}

/// None if no job has a promise.
fn violations(plan: &Plan, runs: &[Run]) -> Option<Picture> {
    let value = |weeks: &Weeks, day: usize| Some(100.0 * (*weeks.violations_daily.get(day)?)?);
    let lines = daily(plan, runs, value);
    let points = lines.iter().flat_map(|line| &line.points);
    let most = points.map(|(_, pct)| *pct).reduce(f64::max)?;
    let across = Scale {
        ends: days(&lines),
        is_log: false,
        title: "days since the first job",
    };
    let up = Scale {
        ends: (0.0, (most * 1.05).max(1.0)),
        is_log: false,
        title: "per cent late",
    };
    Some(Picture {
        key: "violations".to_owned(),
        title: "Broken promises".to_owned(),
        caption: "Share of each day's new high-priority jobs that ended after their promise; lower is better."
            .to_owned(),
        svg: plots::lines("violations by day", &lines, &across, &up),
    })
}

/// None if no best-effort job has ended.
fn completion(plan: &Plan, runs: &[Run]) -> Option<Picture> {
    let policies = plan.policies.iter().enumerate();
    let lines: Vec<Line<'_>> = policies
        .map(|(policy, entry)| {
            let own = of_policy(runs, 0, policy);
            let point = |quantile: usize| {
                let of = weeks(&own).filter_map(|w| w.stretches.get(quantile).copied());
                let share = 100.0 * quantile as f64 / (QUANTILES - 1) as f64;
                Some((mean(of)?, share))
            };
            Line {
                name: &entry.name,
                colour: policy,
                points: (0..QUANTILES).filter_map(point).collect(),
                beside: Vec::new(),
            }
        })
        .collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = points().map(|(times, _)| *times).reduce(f64::min)?;
    // A few jobs that wait for weeks would take all the width.
    let most = points()
        .filter(|(_, share)| *share <= 99.0)
        .map(|(times, _)| *times)
        .fold(least, f64::max);
    let across = Scale {
        ends: (least.min(1.0) * 0.98, (most * 1.05).max(2.0)),
        is_log: true,
        title: "from arrival to end, over alone",
    };
    let up = Scale {
        ends: (0.0, 100.0),
        is_log: false,
        title: "per cent of best-effort jobs",
    };
    Some(Picture {
        key: "completion".to_owned(),
        title: "How long best-effort jobs take".to_owned(),
        caption: "Share of jobs that ended within so many times their length alone; further left is better. Each \
                  quantile is a mean over seeds; values beyond the 99th of all policies are drawn at the end."
            .to_owned(),
        svg: plots::lines("completion times of best-effort jobs", &lines, &across, &up),
    })
}

fn page(plan: &Plan, runs: &[Run], pictures: &[Picture]) -> String {
    let title = match plan.suite {
        Some(suite) => format!("Suite {}: {}", suite.name, suite.about),
        None => format!("Placement on a cluster: {}", plan.trace),
    };
    let title = escaped(&title);
    let mut sections = String::new();
    for note in &plan.notes {
        let _ = writeln!(sections, "<p class=\"note\">{}</p>", escaped(note));
    }
    for picture in pictures {
        let _ = writeln!(
            sections,
            "<h2>{}</h2>\n<p>{}</p>\n{}",
            escaped(&picture.title),
            escaped(&picture.caption),
            picture.svg
        );
    }
    let _ = writeln!(sections, "<details><summary>The numbers</summary>");
    for table in results::tables(plan, runs) {
        let _ = write!(sections, "<p>{}</p>\n<table><tr>", escaped(&table.title));
        for heading in &table.headings {
            let _ = write!(sections, "<th>{heading}</th>");
        }
        for row in &table.rows {
            sections.push_str("</tr>\n<tr>");
            for cell in row {
                let _ = write!(sections, "<td>{}</td>", escaped(cell));
            }
        }
        sections.push_str("</tr></table>\n");
    }
    sections.push_str("</details>\n");
    if let Some(bounds) = bounds(runs) {
        sections.push_str(&bounds);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Pillion: {title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n\
         <p class=\"note\">{}</p>\n{sections}\
         <p class=\"note\">The same input gives the same page, byte for byte.</p>\n</body></html>\n",
        escaped(&results::explanation(plan))
    )
}

fn bounds(runs: &[Run]) -> Option<String> {
    let all = || {
        runs.iter().filter_map(|run| match &run.facts {
            Facts::Weeks(weeks) => Some(weeks.bounds),
            Facts::Inflation(_) => None,
        })
    };
    let exclusive = mean(all().map(|bounds| bounds.exclusive))?;
    let separate = mean(all().map(|bounds| bounds.separate))?;
    let least = mean(all().map(|bounds| bounds.least))?;
    Some(format!(
        "<p class=\"note\">By arithmetic alone, jobs that never wait and run as fast as alone need {exclusive:.0} GPUs \
         if every requested GPU is exclusive, {separate:.0} with five GPUs of inference for each of training, and \
         at least {least:.0} (for the use of high-priority jobs, or for the memory of all jobs).</p>\n"
    ))
}

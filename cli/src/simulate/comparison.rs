//! Compares policies under each swept value: one table for many pairs of jobs. A column is a policy
//! (with its label where several settings of one are compared). A row is a combination of the other
//! swept values, except the jobs; a cell covers all pairs of jobs. If nothing else was swept, the
//! policies are the rows. People get the same table as the Markdown.

use std::fmt::Write as _;

use serde_json::Value;
use softgpu::MODEL_VERSION;

use crate::simulate::outcomes::Group;
use crate::simulate::plan::Plan;
use crate::simulate::plots::slowdown;
use crate::simulate::reproduction;

#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

struct Cell {
    /// Of the 99th percentile against alone: mean of the pairs, and the greatest.
    slowdown: Option<(f64, f64)>,
    /// Sum of best-effort rates, each over its rate alone: mean of the pairs, and the least.
    share: Option<(f64, f64)>,
    /// Aborted runs.
    overrun: usize,
}

impl Comparison {
    pub(crate) fn of(groups: &[Group<'_>]) -> Self {
        let mut rows: Vec<String> = Vec::new();
        let mut columns: Vec<String> = Vec::new();
        for group in groups {
            for (list, word) in [(&mut rows, row(group)), (&mut columns, column(group))] {
                if !list.contains(&word) {
                    list.push(word);
                }
            }
        }
        let cell = |at: &str, policy: &str| {
            let here = |group: &&Group<'_>| row(group) == at && column(group) == policy;
            Cell::of(&groups.iter().filter(here).collect::<Vec<_>>())
        };
        match &rows[..] {
            [only] => Self::of_policies(&columns, |policy| cell(only, policy)),
            _ => Self {
                headings: [String::new()].into_iter().chain(columns.clone()).collect(),
                rows: rows
                    .iter()
                    .map(|at| {
                        let cells = columns.iter().map(|policy| cell(at, policy).shown());
                        [at.clone()].into_iter().chain(cells).collect()
                    })
                    .collect(),
            },
        }
    }

    fn of_policies(policies: &[String], cell: impl Fn(&str) -> Cell) -> Self {
        let headings = ["", "HP p99 over alone", "worst", "BE share", "least"];
        let rows = policies.iter().map(|policy| {
            let Cell {
                slowdown, share, ..
            } = cell(policy);
            vec![
                policy.clone(),
                shown(slowdown.map(|of| of.0), times),
                shown(slowdown.map(|of| of.1), times),
                shown(share.map(|of| of.0), pct),
                shown(share.map(|of| of.1), pct),
            ]
        });
        Self {
            headings: headings.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }

    fn markdown(&self) -> String {
        let mut text = format!("| {} |\n|---", self.headings.join(" | "));
        text.push_str(&"|--:".repeat(self.headings.len() - 1));
        text.push_str("|\n");
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }
}

impl Cell {
    fn of(groups: &[&Group<'_>]) -> Self {
        let slowdowns: Vec<f64> = groups.iter().filter_map(|group| slowdown(group)).collect();
        let shares = groups.iter().filter(|group| !group.be.is_empty());
        let shares: Vec<f64> = shares
            .map(|group| group.be.iter().map(|(_, share)| share).sum())
            .collect();
        Self {
            slowdown: mean(&slowdowns).zip(slowdowns.iter().copied().reduce(f64::max)),
            share: mean(&shares).zip(shares.iter().copied().reduce(f64::min)),
            overrun: groups.iter().map(|group| group.overrun).sum(),
        }
    }

    /// The mean, and the worst pair if it prints differently.
    fn shown(&self) -> String {
        let slowdown = match self.slowdown {
            None => "-".to_owned(),
            Some((mean, worst)) if times(mean) == times(worst) => times(mean),
            Some((mean, worst)) => format!("{} ({})", times(mean), times(worst)),
        };
        let share = shown(self.share.map(|of| of.0), pct);
        match self.overrun {
            0 => format!("{slowdown}, {share}"),
            runs => format!("{slowdown}, {share}; {runs} aborted"),
        }
    }
}

/// True for suites that compare policies, and files that sweep more than policies and pairs of
/// jobs.
pub(crate) fn is_wanted(plan: &Plan) -> bool {
    if let Some(suite) = plan.suite {
        return suite.why().is_none() && !suite.judges_targets();
    }
    let swept = plan.scenarios().flat_map(|(_, scenario)| &scenario.swept);
    swept.into_iter().any(|swept| is_of_row(&swept.path))
}

/// `tables.md` of `--out`.
pub(crate) fn document(plan: &Plan, parts: &[(String, Comparison)], lines: &[Value]) -> String {
    let (name, about, how) = match plan.suite {
        Some(suite) => (
            format!("Suite {}", suite.name),
            format!("Content: {}. ", suite.about),
            format!("{} --out DIR", plan.suite_options(suite)),
        ),
        None => (
            "Policies compared".to_owned(),
            String::new(),
            "--scenario FILE --out DIR".to_owned(),
        ),
    };
    let mut text = format!(
        "# {name}\n\n{about}Written by `pillion simulate {how}` from {} runs{}, model version {MODEL_VERSION}. \
         All numbers come from the model: nothing here was measured on hardware.\n\n{EXPLANATION}\n",
        lines.len(),
        reproduction::sizes(lines),
    );
    for note in &plan.notes {
        let _ = writeln!(text, "\n**Note:** {note}.");
    }
    for (title, table) in parts {
        if !title.is_empty() {
            let _ = write!(text, "\n## {title}\n");
        }
        let _ = write!(text, "\n{}", table.markdown());
    }
    text
}

pub(crate) const EXPLANATION: &str = "In each cell: the high-priority job's 99th percentile over alone (for a training job, its time \
     per iteration), mean of the pairs of jobs with the worst pair in brackets; then the rate of the best-effort jobs, as a \
     share of the rate that one of them has alone.";

/// All swept values except the policy and whole jobs.
fn row(group: &Group<'_>) -> String {
    let swept = group.scenario.swept.iter();
    let of_row = swept.filter(|swept| is_of_row(&swept.path));
    let words: Vec<String> = of_row
        .map(|swept| match swept.path.rsplit('.').next() {
            Some(key) if swept.path.contains('.') => format!("{key} {}", swept.value),
            _ => swept.value.clone(),
        })
        .collect();
    words.join(", ")
}

fn column(group: &Group<'_>) -> String {
    let swept = group.scenario.swept.iter();
    let of_policy = swept.filter(|swept| swept.path.starts_with("policy"));
    let name = group.scenario.experiment.policy.name().to_owned();
    of_policy.fold(name, |name, swept| match swept.path.as_str() {
        "policy" => swept.value.clone(),
        "policy.name" => name,
        path => {
            let key = path.rsplit('.').next().unwrap_or(path);
            format!("{name}, {key} {}", swept.value)
        }
    })
}

fn is_of_row(path: &str) -> bool {
    let is_job = path == "jobs" || path.starts_with("jobs.") && path.matches('.').count() == 1;
    !is_job && !path.starts_with("policy")
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn shown(value: Option<f64>, how: fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), how)
}

fn times(value: f64) -> String {
    format!("{value:.2}x")
}

fn pct(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

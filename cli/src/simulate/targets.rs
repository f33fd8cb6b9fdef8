//! The suite `slo`: each row's target, result and verdict ([`sim::targets`]). In the plan's order a
//! row's references come first, so a row is judged as soon as its run is done. The policy's bound
//! is checked in every run; a run that breaks it fails the suite.

use std::fmt::Write as _;

use anyhow::anyhow;
use policy::{Slo, SloView};
use serde_json::{Value, json};
use sim::scenario::Shown;
use sim::targets::{Beside, Row, Side, Verdict, keeps_bound};
use softgpu::MODEL_VERSION;

use crate::failure::Failure;
use crate::out;
use crate::simulate::outcomes::Measures;
use crate::simulate::plan::{Part, Plan};
use crate::simulate::runner::Run;
use crate::status::table;

#[derive(Debug, Default)]
pub(crate) struct Targets<'p> {
    cells: Vec<Cell<'p>>,
    /// Runs with a check of the bound.
    counted: usize,
    /// Names of the runs that broke it.
    broken: Vec<String>,
}

/// Runs with the same jobs and arrivals.
#[derive(Debug)]
struct Cell<'p> {
    part: &'p Part,
    shown: &'p [Shown],
    seed: u64,
    beside: Beside,
    rows: Vec<Row>,
}

const HEADINGS: [&str; 14] = [
    "REQUESTS",
    "asked",
    "target ms",
    "p99 ms",
    "÷ target",
    "missed",
    "alone ms",
    "mps ms",
    "BE",
    "unmarked",
    "level",
    "misses",
    "at floor",
    "verdict",
];

/// With targets of at least [`FAR_TIMES`] times alone, best-effort work should get [`FAR_GAIN`]
/// times its rate without marks.
const FAR_TIMES: f64 = 2.0;
const FAR_GAIN: f64 = 1.1;

impl<'p> Targets<'p> {
    /// None for a plan that is not judged.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        plan.suite
            .filter(|suite| suite.judges_targets())
            .map(|_| Self::default())
    }

    /// Returns the run's row, if it is one.
    pub(crate) fn handle_run(&mut self, run: &Run<'p>) -> Option<&Row> {
        let side = Side::of(&run.scenario.experiment)?;
        let (hp, solo) = (run.outcome.jobs.first()?, run.solo().next()?);
        if let Some(view) = &hp.slo {
            self.counted += 1;
            if !keeps_bound(view) {
                self.broken.push(format!(
                    "{}, {side:?}, seed {}: {} misses in {} requests, {} of them at the floor",
                    name(&run.scenario.shown),
                    run.seed,
                    view.misses,
                    view.requests,
                    view.misses_at_floor
                ));
            }
        }
        let jobs = Measures::of(run);
        let best_effort = jobs.iter().filter(|job| !job.is_hp);
        let share: f64 = best_effort.filter_map(Measures::share).sum();
        let cell = self.cell(run);
        cell.beside.handle_run(side, &hp.latencies_ns, share);
        let Side::Marked(asked) = side else {
            return None;
        };
        let experiment = &run.scenario.experiment;
        let row = Row::new(experiment, asked, (hp, solo), share, &cell.beside)?;
        cell.rows.push(row);
        cell.rows.last()
    }

    fn cell(&mut self, run: &Run<'p>) -> &mut Cell<'p> {
        let is_of = |cell: &Cell<'p>| {
            std::ptr::eq(cell.part, run.part)
                && cell.shown == run.scenario.shown
                && cell.seed == run.seed
        };
        let place = self.cells.iter().position(is_of).unwrap_or_else(|| {
            self.cells.push(Cell {
                part: run.part,
                shown: &run.scenario.shown,
                seed: run.seed,
                beside: Beside::default(),
                rows: Vec::new(),
            });
            self.cells.len() - 1
        });
        &mut self.cells[place]
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        let same = |a: &Cell<'_>, b: &Cell<'_>| std::ptr::eq(a.part, b.part);
        for cells in self.cells.chunk_by(same) {
            out::line(format_args!("{}\n", cells[0].part.title))?;
            let mut shown = table(&HEADINGS);
            for cell in cells {
                for row in &cell.rows {
                    shown.add_row(cell.line(row));
                }
            }
            out::line(format_args!("{shown}\n"))?;
        }
        out::line(format_args!("{}", self.summary()))
    }

    pub(crate) fn summary(&self) -> String {
        let rows: Vec<&Row> = self.cells.iter().flat_map(|cell| &cell.rows).collect();
        let counting: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.verdict.counts())
            .collect();
        let of = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        let stated: Vec<Verdict> = rows.iter().filter_map(|row| row.stated).collect();
        let stated_held = stated
            .iter()
            .filter(|&&verdict| verdict == Verdict::Held)
            .count();
        let stated_counting = stated.iter().filter(|verdict| verdict.counts()).count();
        let is_far = |row: &&Row| matches!(row.asked, Slo::Slowdown(times) if times >= FAR_TIMES);
        let gains: Vec<f64> = counting
            .iter()
            .copied()
            .filter(is_far)
            .filter_map(Row::gain)
            .collect();
        let gained = gains.iter().filter(|&&gain| gain >= FAR_GAIN).count();
        format!(
            "{} rows, of which {} count: {} held, {} over, {} under, {} with too many misses. {} do not count: in {} the \
             target is above 0.9 of the p99 under mps, in {} requests take longer even with best-effort work paused. Held against the \
             target that the policy states at the end: {stated_held} of {stated_counting}. With a target of {FAR_TIMES}x or \
             more, best-effort work has at least {FAR_GAIN} times its rate without marks at the same p99 in {gained} of {} rows \
             that count. The bound (misses - misses at the floor <= share x (requests + range/step)) was checked in {} runs and \
             broken in {}.",
            rows.len(),
            counting.len(),
            of(Verdict::Held),
            of(Verdict::Passed),
            of(Verdict::Unspent),
            of(Verdict::Misses),
            rows.len() - counting.len(),
            of(Verdict::Far),
            of(Verdict::Unreachable),
            gains.len(),
            self.counted,
            self.broken.len()
        )
    }

    /// Fails (exit 1) if a run broke the bound.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.broken.first() {
            None => Ok(()),
            Some(first) => Err(anyhow!(
                "the bound of misses was broken in {} of {} runs; the first is {first}",
                self.broken.len(),
                self.counted
            )
            .into()),
        }
    }

    /// `tables.md` of `--out`.
    pub(crate) fn document(&self, plan: &Plan) -> String {
        let options = plan
            .suite
            .map_or_else(String::new, |suite| plan.suite_options(suite));
        let mut text = format!(
            "# Suite slo\n\nWritten by `pillion simulate {options} --out DIR`, model version {MODEL_VERSION}. All numbers come from \
             the model: nothing here was measured on hardware.\n\n{}\n\n{EXPLANATION}\n",
            self.summary()
        );
        for note in &plan.notes {
            let _ = writeln!(text, "\n**Note:** {note}.");
        }
        let same = |a: &Cell<'_>, b: &Cell<'_>| std::ptr::eq(a.part, b.part);
        for cells in self.cells.chunk_by(same) {
            let asked: Vec<String> = cells[0]
                .rows
                .iter()
                .map(|row| row.asked.to_string())
                .collect();
            let _ = write!(
                text,
                "\n## {}\n\n| requests | {} |\n|---",
                cells[0].part.title,
                asked.join(" | ")
            );
            text += &"|--:".repeat(asked.len());
            text += "|\n";
            for cell in cells {
                let rows: Vec<String> = cell.rows.iter().map(short).collect();
                let _ = writeln!(text, "| {} | {} |", cell.name(), rows.join(" | "));
            }
        }
        text += &self.missed();
        text
    }

    /// Rows that count and missed their target.
    fn missed(&self) -> String {
        let mut text = "\n## Not held\n\n| requests".to_owned();
        for heading in &HEADINGS[1..] {
            let _ = write!(text, " | {heading}");
        }
        text += " |\n|---";
        text += &"|--:".repeat(HEADINGS.len() - 1);
        text += "|\n";
        for cell in &self.cells {
            let is_missed = |row: &&Row| row.verdict.counts() && row.verdict != Verdict::Held;
            for row in cell.rows.iter().filter(is_missed) {
                let _ = writeln!(text, "| {} |", cell.line(row).join(" | "));
            }
        }
        text
    }
}

impl Cell<'_> {
    fn name(&self) -> String {
        match self.seed {
            1 => name(self.shown),
            seed => format!("{}, seed {seed}", name(self.shown)),
        }
    }

    /// A row under [`HEADINGS`].
    fn line(&self, row: &Row) -> Vec<String> {
        let ms = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
        let of = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let view = row.view;
        vec![
            self.name(),
            row.asked.to_string(),
            ms(row.target_ns),
            ms(row.p99_ns),
            format!("{:.3}", row.over()),
            format!("{:.2} %", row.missed * 100.0),
            ms(row.solo_ns),
            ms(row.ungated_ns),
            pct(row.share),
            of(row.unmarked.map(|unmarked| match unmarked.is_nearest {
                true => format!("near {}", pct(unmarked.share)),
                false => pct(unmarked.share),
            })),
            of(view.map(|view| format!("{:.2}, {}", view.level, view.end.name()))),
            of(view.map(|view| view.misses.to_string())),
            of(view.map(|view| view.misses_at_floor.to_string())),
            words(row.verdict),
        ]
    }
}

/// The verdict for a reader of the table; in JSON it has a fixed text.
fn words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Far => "does not count: target above 0.9 of the p99 under mps".to_owned(),
        Verdict::Unreachable => {
            "does not count: requests take longer even with best-effort work paused".to_owned()
        }
        _ => verdict.to_string(),
    }
}

fn short(row: &Row) -> String {
    let numbers = format!("{:.2}, {}", row.over(), pct(row.share));
    match row.verdict {
        Verdict::Held => numbers,
        Verdict::Far | Verdict::Unreachable => format!("({numbers})"),
        Verdict::Passed | Verdict::Unspent | Verdict::Misses => format!("**{numbers}**"),
    }
}

pub(crate) fn row_json(row: &Row) -> Value {
    let ms = |ns: u64| ns as f64 / 1e6;
    json!({
        "asked": row.asked.to_string(),
        "target_ms": ms(row.target_ns),
        "p99_ms": ms(row.p99_ns),
        "p99_of_target": row.over(),
        "miss_share": row.missed,
        "solo_p99_ms": ms(row.solo_ns),
        "ungated_p99_ms": ms(row.ungated_ns),
        "load": row.load,
        "be_share": row.share,
        "be_share_unmarked": row.unmarked.map(|unmarked| unmarked.share),
        "is_unmarked_nearest": row.unmarked.map(|unmarked| unmarked.is_nearest),
        "verdict": row.verdict.to_string(),
        "counts": row.verdict.counts(),
        "verdict_of_stated": row.stated.map(|verdict| verdict.to_string()),
    })
}

pub(crate) fn view_json(view: &SloView) -> Value {
    let ms = |ns: u64| ns as f64 / 1e6;
    json!({
        "goal": view.goal.slo.to_string(),
        "of": view.goal.slo.of(),
        "miss": (!view.goal.slo.is_mean()).then_some(view.goal.miss),
        "target_ms": view.target_ns.map(ms),
        "level": view.level,
        "m": view.slope.map(|slope| slope.m),
        "r2": view.slope.map(|slope| slope.r2),
        "requests": view.requests,
        "misses": view.misses,
        "misses_at_floor": view.misses_at_floor,
        "end": view.end.name(),
    })
}

/// The high-priority job and its arrivals.
fn name(shown: &[Shown]) -> String {
    shown.first().map_or_else(String::new, |job| {
        format!("{}, {}", job.trace, job.arrivals)
    })
}

fn pct(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

const EXPLANATION: &str = "In each cell: the 99th percentile over the target, and the rate of best-effort work as a \
     share of its rate alone, summed over the jobs. Bold: the target was not held; in brackets: the row does not count, because its target is \
     above 0.9 of the 99th percentile under mps, which never holds best-effort work, or below the 99th percentile alone.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_was_broken_fails_the_suite() {
        let mut targets = Targets::default();
        assert!(targets.check().is_ok());
        targets.counted = 3;
        targets.broken.push("a run".to_owned());
        let why = targets.check().unwrap_err().why();
        assert!(why.contains("1 of 3 runs; the first is a run"), "{why}");
    }
}

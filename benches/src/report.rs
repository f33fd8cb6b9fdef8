//! The table for people and the JSON document for programs (`schema_version` 1).

use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::alternate::Samples;
use crate::machine::Machine;
use crate::summary::{Comparison, Quantiles};

/// The version of the JSON document: changes if a reader of the old one would be misled.
pub const SCHEMA_VERSION: u32 = 1;

/// The measurements of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Always true: no GPU is used. The driver is a stand-in whose launches succeed at once.
    pub no_gpu_involved: bool,
    /// Fewer measurements than in the results that are kept.
    pub quick: bool,
    /// The machine of the measurement.
    pub machine: Machine,
    /// The numbers.
    pub rows: Vec<Row>,
}

/// One number and its target.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// A short description.
    pub name: String,
    /// Of every number in this row.
    pub unit: Unit,
    /// The number.
    pub measured: Measured,
    /// The upper limit, if there is one.
    pub target: Option<f64>,
    /// Whether the target is met; none without a target.
    pub pass: Option<bool>,
    /// Evidence that this state was measured: counts at both ends.
    pub evidence: Vec<String>,
}

/// A unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// Per cent of one processor.
    #[serde(rename = "pct")]
    Pct,
    /// Count per second.
    #[serde(rename = "per_s")]
    PerSecond,
}

/// How a number was measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// As a difference of medians.
    Cost(Comparison),
    /// As a median.
    Median(Quantiles),
    /// Directly.
    Value(f64),
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Ms => "ms",
            Self::Pct => "%",
            Self::PerSecond => "/s",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Ns | Self::PerSecond => format!("{value:.1}"),
            Self::Ms => format!("{value:.3}"),
            Self::Pct => format!("{value:.2}"),
        }
    }
}

impl Measured {
    /// The number that a target bounds.
    #[must_use]
    pub fn number(&self) -> f64 {
        match self {
            Self::Cost(comparison) => comparison.difference,
            Self::Median(quantiles) => quantiles.median,
            Self::Value(value) => *value,
        }
    }
}

impl Row {
    /// A row without evidence yet.
    #[must_use]
    pub fn new(name: &str, unit: Unit, measured: Measured, target: Option<f64>) -> Self {
        let number = measured.number();
        Self {
            name: name.to_owned(),
            unit,
            measured,
            target,
            pass: target.map(|target| number <= target),
            evidence: Vec::new(),
        }
    }

    /// A row for the cost of starting processes, ms, and the fastest start of each side in words.
    #[must_use]
    pub fn of_starts(name: &str, samples: &Samples, target_ms: f64) -> (Self, String) {
        let comparison = Comparison::of(samples);
        let (bare, with) = (comparison.bare.min, comparison.with.min);
        let best = format!("best {bare:.3} and {with:.3} ms, {:.3} more", with - bare);
        let measured = Measured::Cost(comparison);
        (Self::new(name, Unit::Ms, measured, Some(target_ms)), best)
    }

    fn cells(&self) -> Vec<String> {
        let unit = self.unit;
        let show = |value: f64| unit.show(value);
        let range = |low: f64, high: f64| format!("{}..{}", show(low), show(high));
        let side = |q: &Quantiles| format!("{} ({})", show(q.median), range(q.p10, q.p90));
        let (bare, with, spread, ratio) = match &self.measured {
            Measured::Cost(c) => (
                side(&c.bare),
                side(&c.with),
                range(c.difference_p10, c.difference_p90),
                c.ratio
                    .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            ),
            Measured::Median(q) => (
                String::new(),
                String::new(),
                range(q.p10, q.p90),
                String::new(),
            ),
            Measured::Value(_) => Default::default(),
        };
        let number = format!("{} {}", show(self.measured.number()), unit.name());
        let target = self
            .target
            .map_or_else(String::new, |target| format!("{target} {}", unit.name()));
        let verdict = match self.pass {
            None => "",
            Some(true) => "pass",
            Some(false) => "MISS",
        };
        vec![
            self.name.clone(),
            bare,
            with,
            number,
            spread,
            ratio,
            target,
            verdict.to_owned(),
        ]
    }
}

const HEADER: [&str; 8] = [
    "what",
    "bare: median (p10..p90)",
    "with: median (p10..p90)",
    "cost",
    "cost p10..p90",
    "ratio",
    "at most",
    "",
];

impl Report {
    /// A report about a machine.
    #[must_use]
    pub fn new(machine: Machine, quick: bool, rows: Vec<Row>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            no_gpu_involved: true,
            quick,
            machine,
            rows,
        }
    }

    /// Whether no target is missed.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.rows.iter().all(|row| row.pass != Some(false))
    }

    /// The JSON document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings, numbers and lists only")
    }

    /// The table for a terminal.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(HEADER);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.trim_fmt()
    }

    /// The table as Markdown, with the machine.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let machine = &self.machine;
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = format!(
            "# Overhead, {}\n\nNo GPU involved: the driver is a stand-in whose launches succeed at \
             once. {}; {}; commit {}; load {:.2} before.{}\n\n",
            machine.date,
            machine.kind(),
            machine.rustc,
            machine.commit,
            machine.load_1min,
            if self.quick { " Quick run." } else { "" },
        );
        text += &line(&HEADER.map(str::to_owned));
        text += "|---|--:|--:|--:|--:|--:|--:|---|\n";
        for row in &self.rows {
            text += &line(&row.cells());
        }
        text += "\nEvidence that each row measured the named state:\n\n";
        for row in self.rows.iter().filter(|row| !row.evidence.is_empty()) {
            text += &format!("- {}: {}\n", row.name, row.evidence.join("; "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(value: f64, target: Option<f64>) -> Report {
        let row = Row::new("x", Unit::Ms, Measured::Value(value), target);
        Report::new(Machine::here(), true, vec![row])
    }

    #[test]
    fn a_number_above_its_target_is_a_miss_and_one_without_is_none() {
        assert!(report(1.0, Some(1.0)).passes());
        assert!(!report(1.1, Some(1.0)).passes());
        assert!(report(1.1, None).passes());
    }

    #[test]
    fn table_and_markdown_name_the_miss() {
        let report = report(1.25, Some(1.0));
        for text in [report.to_table(), report.to_markdown()] {
            assert!(text.contains("1.250 ms") && text.contains("MISS"), "{text}");
        }
    }
}

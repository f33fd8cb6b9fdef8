//! A copy of a table of Nsight Compute with only an import's data. Around and inside a table stand
//! the program's output and paths; in it, names of process and host, named ranges, and advice that
//! may quote the source. So a new table gets the columns that identify a row's launch, and the
//! metrics that are read or numeric (all, to reveal the locale's separators).

use std::io::{self, Write};
use std::path::Path;

use super::csv::is_header;
use super::metrics::GPU_NAME;
use crate::Context;
use crate::error::Error;
use crate::input::{Lines, fields};

const KEPT: [&str; 13] = [
    "ID",
    "Process ID",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
    "Section Name",
    "Metric Name",
    "Metric Unit",
    "Metric Value",
];

struct Table {
    /// The kept columns, each with whether its cells must be numbers.
    kept: Vec<(usize, bool)>,
    id: Option<usize>,
    metric: Option<(usize, usize)>,
}

pub(crate) fn scrub(
    path: &Path,
    mut to: impl Write,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    let mut lines = Lines::open(path, context.limits.bytes_max)?;
    let mut table: Option<Table> = None;
    let unwritten = |source: io::Error| Error::not_copied(path, source);
    while let Some((_, line)) = lines.next_line()? {
        if line.starts_with("\"Process ID\",") {
            table = None;
        }
        if !line.starts_with('"') {
            continue;
        }
        let record = fields(line);
        let row = if is_header(line) {
            let new = table.insert(Table::new(&record));
            new.header(&record)
        } else {
            table.as_ref().and_then(|table| table.row(&record))
        };
        if let Some(row) = row {
            writeln!(to, "{row}").map_err(unwritten)?;
        }
    }
    to.flush().map_err(unwritten)
}

impl Table {
    fn new(names: &[String]) -> Self {
        let place = |wanted: &str| names.iter().position(|name| name.trim() == wanted);
        let columns = names.iter().enumerate();
        let kept = columns.filter_map(|(column, name)| {
            let name = name.trim();
            // A metric's name has two underscores: `launch__grid_size [unit]`.
            let is_of_launch = KEPT.contains(&name);
            (is_of_launch || name.contains("__"))
                .then_some((column, !is_of_launch && name != GPU_NAME))
        });
        Self {
            kept: kept.collect(),
            id: place("ID"),
            metric: place("Metric Name").zip(place("Metric Value")),
        }
    }

    fn header(&self, names: &[String]) -> Option<String> {
        Some(self.cells(names, |_, cell| cell.trim().to_owned()))
    }

    fn row(&self, record: &[String]) -> Option<String> {
        let cell = |column: usize| record.get(column).map_or("", String::as_str);
        if let Some((name, value)) = self.metric {
            let is_read =
                cell(name) == GPU_NAME || is_number(cell(value)) || cell(value).is_empty();
            is_read.then_some(())?;
        }
        // The row of units, in a table with a column for each metric.
        let is_units = self.metric.is_none() && self.id.is_some_and(|id| cell(id).is_empty());
        Some(self.cells(record, |must_be_number, cell| {
            let is_kept = !must_be_number || is_number(cell) || is_units && is_unit(cell);
            if is_kept {
                cell.to_owned()
            } else {
                String::new()
            }
        }))
    }

    fn cells(&self, record: &[String], kept: impl Fn(bool, &str) -> String) -> String {
        let cells = self.kept.iter().map(|&(column, must_be_number)| {
            let cell = record.get(column).map_or("", String::as_str);
            format!("\"{}\"", kept(must_be_number, cell).replace('"', "\"\""))
        });
        cells.collect::<Vec<_>>().join(",")
    }
}

fn is_number(cell: &str) -> bool {
    let is_of_number = |c: char| c.is_ascii_digit() || c.is_whitespace() || ".,'’+-eE".contains(c);
    cell.contains(|c: char| c.is_ascii_digit()) && cell.chars().all(is_of_number)
}

fn is_unit(cell: &str) -> bool {
    const UNIT_CHARS_MAX: usize = 32;
    cell.len() <= UNIT_CHARS_MAX
        && cell
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/%_ ".contains(c))
}

#[cfg(test)]
mod tests {
    use super::is_number;

    #[test]
    fn numbers_of_any_locale_are_numbers_and_paths_and_words_are_not() {
        for cell in [
            "12",
            "1,234.5",
            "1.234,5",
            "1'234",
            "8 081 824",
            "8\u{202f}081",
            "-1e+05",
        ] {
            assert!(is_number(cell), "{cell}");
        }
        for cell in ["", "n/a", "/srv/someone/1", "host7", "e", "PolicySpread"] {
            assert!(!is_number(cell), "{cell}");
        }
    }
}

//! CSV of Nsight Compute: raw and details page, `--metrics`, of all versions from 2019 on. The tool
//! writes to the terminal, so the program's output, the tool's messages (`==PROF==`) and warnings
//! stand before and inside the table. A header is a line with the column `"ID"`; after it, records
//! are the lines that start with a quote. Several runs in one file have several headers. Columns
//! are found by name. Numbers are in the locale's format, so all are read first
//! ([`super::separators`]). Two forms:
//! - *wide* (raw page): a row per launch, a column per metric, units in a row after the header, or,
//!   from the graphical tool, in the column's name: `name [unit]`.
//! - *long* (details page, `--metrics`): a row per metric; the metric by its label or its name, or
//!   both. Rows of rules end early or have no metric; they are skipped.

use std::collections::HashMap;
use std::path::Path;

use super::metrics::{self, GPU_NAME, Metric, Values};
use super::separators::{Separators, Unread};
use super::{Collector, Measured, units};
use crate::Context;
use crate::detect::Format;
use crate::error::Error;
use crate::input::{Lines, fields};
use crate::limits::LAUNCHES_MAX;
use crate::name::Names;
use crate::source::{Source, SourceBuilder};

const REMEDY: &str = "use `ncu --csv --page raw` (or `ncu --import FILE.ncu-rep --csv --page raw`), \
                      or import the .ncu-rep file itself";

/// Whether `line` is a table's header: it begins with the launch's number in all versions.
pub(crate) fn is_header(line: &str) -> bool {
    let has = |cell: &str| line.contains(cell);
    line.starts_with("\"ID\",") || line.starts_with('"') && has("\"ID\"") && has("\"Kernel Name\"")
}

const LINES_PER_PROGRESS: usize = 4096;

pub(crate) fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    let mut lines = Lines::open(path, context.limits.bytes_max)?;
    let mut table = Reading::new(path);
    while let Some((number, line)) = lines.next_line()? {
        table.line(number, line)?;
        if number.is_multiple_of(LINES_PER_PROGRESS) {
            (context.progress)(lines.position(), 0);
        }
    }
    table.finish()
}

struct Reading<'a> {
    path: &'a Path,
    header: Option<Header>,
    headers: usize,
    launches: Vec<Row>,
    places: HashMap<(usize, String, String), usize>,
    separators: Separators,
    said: Said,
}

struct Header {
    columns: HashMap<String, usize>,
    form: Form,
}

enum Form {
    Long {
        name: usize,
        unit: Option<usize>,
        value: usize,
    },
    /// For each kept column: its number, its counter, its factor.
    Wide {
        metrics: Vec<(usize, usize, Metric, f64)>,
        gpu_name: Option<usize>,
    },
}

struct Row {
    line: usize,
    names: Names,
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    compute_capability: Option<(u32, u32)>,
    device: Option<i64>,
    stream: Option<u32>,
    gpu_name: Option<String>,
    values: Vec<(Metric, usize, f64, String)>,
}

#[derive(Default)]
struct Said {
    error: Option<String>,
    profiled: bool,
    text_page: bool,
    summary: bool,
}

impl<'a> Reading<'a> {
    fn new(path: &'a Path) -> Self {
        Self {
            path,
            header: None,
            headers: 0,
            launches: Vec::new(),
            places: HashMap::new(),
            separators: Separators::default(),
            said: Said::default(),
        }
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), Error> {
        if is_header(line) {
            self.header = Some(Header::new(&fields(line)));
            self.headers += 1;
            return Ok(());
        }
        if line.starts_with("\"Process ID\",") {
            self.header = None;
            self.said.summary = true;
            return Ok(());
        }
        if !line.starts_with('"') {
            self.said.handle(line);
            return Ok(());
        }
        let Some(mut header) = self.header.take() else {
            return Ok(());
        };
        let record = fields(line);
        let result = self.record(number, &mut header, &record);
        self.header = Some(header);
        result
    }

    fn record(
        &mut self,
        number: usize,
        header: &mut Header,
        record: &[String],
    ) -> Result<(), Error> {
        let id = header.cell(record, "ID");
        let name = header.cell(record, "Kernel Name");
        if id.is_empty() && name.is_empty() {
            header.take_units(record);
            return Ok(());
        }
        let Some(names) = Names::new(name) else {
            return Ok(());
        };
        let process = header.cell(record, "Process ID");
        let key = (self.headers, process.to_owned(), id.to_owned());
        let place = match self.places.get(&key) {
            Some(&place) => place,
            None => {
                if self.launches.len() == LAUNCHES_MAX {
                    return Err(Error::too_many(self.path, "launches", LAUNCHES_MAX));
                }
                self.launches.push(header.row(number, names, record));
                self.places.insert(key, self.launches.len() - 1);
                self.launches.len() - 1
            }
        };
        let Some(launch) = self.launches.get_mut(place) else {
            return Ok(());
        };
        match &header.form {
            Form::Long { name, unit, value } => {
                let cell = |column: usize| record.get(column).map_or("", String::as_str);
                let (name, unit, value) = (cell(*name), unit.map_or("", cell), cell(*value));
                if name == GPU_NAME {
                    launch.gpu_name = Some(value.to_owned());
                }
                self.separators.handle(value);
                if let Some((place, metric)) = metrics::by_label(name, unit) {
                    launch
                        .values
                        .push((metric, place, units::factor(unit), value.to_owned()));
                }
            }
            Form::Wide { metrics, gpu_name } => {
                let cell = |column: usize| record.get(column).map_or("", String::as_str);
                launch.gpu_name = gpu_name.map(|column| cell(column).to_owned());
                for (column, value) in record.iter().enumerate() {
                    if !header.columns_of_launch(column) {
                        self.separators.handle(value);
                    }
                }
                for &(column, place, metric, factor) in metrics {
                    let value = cell(column);
                    if !value.is_empty() {
                        launch
                            .values
                            .push((metric, place, factor, value.to_owned()));
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Source, Error> {
        if self.launches.is_empty() {
            return Err(self.said.nothing(self.path, self.headers));
        }
        let mut builder = SourceBuilder::new(self.path, Format::NcuCsv);
        let mut collector = Collector::new(&mut builder);
        for row in self.launches {
            let mut values = Values::default();
            for (metric, place, factor, text) in &row.values {
                match self.separators.number(text) {
                    Ok(number) => values.set(*metric, *place, number * factor),
                    Err(Unread::NotANumber) => {}
                    Err(Unread::Ambiguous) => {
                        return Err(Error::AmbiguousNumber {
                            path: self.path.to_owned(),
                            line: row.line,
                            value: format!("`{text}`"),
                        });
                    }
                }
            }
            let gpu_name = row.gpu_name.as_deref().and_then(crate::name::clean);
            collector.add(Measured {
                names: row.names,
                grid: row.grid,
                block: row.block,
                compute_capability: row.compute_capability,
                device: row.device.or_else(|| values.device()).unwrap_or(0),
                stream: row.stream,
                values,
                gpu_name: gpu_name.map(|name| name.to_string()),
            })?;
        }
        if self.said.summary {
            builder.notice("the tables of `--print-summary` in the file are ignored");
        }
        Ok(builder.finish())
    }
}

impl Header {
    fn new(names: &[String]) -> Self {
        let columns: HashMap<String, usize> = names
            .iter()
            .enumerate()
            .map(|(column, name)| (name.trim().to_owned(), column))
            .collect();
        let of = |name: &str| columns.get(name).copied();
        let form = match (of("Metric Name"), of("Metric Value")) {
            (Some(name), Some(value)) => Form::Long {
                name,
                unit: of("Metric Unit"),
                value,
            },
            _ => Form::Wide {
                metrics: names
                    .iter()
                    .enumerate()
                    .filter_map(|(column, text)| {
                        let (name, unit) = with_unit(text);
                        let (place, metric) = metrics::by_name(name)?;
                        Some((column, place, metric, units::factor(unit)))
                    })
                    .collect(),
                gpu_name: of(GPU_NAME),
            },
        };
        Self { columns, form }
    }

    fn cell<'r>(&self, record: &'r [String], name: &str) -> &'r str {
        let column = self.columns.get(name);
        column
            .and_then(|&column| record.get(column))
            .map_or("", String::as_str)
    }

    fn columns_of_launch(&self, column: usize) -> bool {
        [
            "ID",
            "Process ID",
            "Process Name",
            "Host Name",
            "Kernel Name",
            "Kernel Time",
            "Context",
            "Stream",
            "Block Size",
            "Grid Size",
            "Device",
            "CC",
        ]
        .iter()
        .any(|name| self.columns.get(*name) == Some(&column))
    }

    fn take_units(&mut self, record: &[String]) {
        if let Form::Wide { metrics, .. } = &mut self.form {
            for (column, _, _, factor) in metrics {
                let unit = record.get(*column).filter(|unit| !unit.is_empty());
                if let Some(unit) = unit {
                    *factor = units::factor(unit);
                }
            }
        }
    }

    fn row(&self, line: usize, names: Names, record: &[String]) -> Row {
        let capability = self.cell(record, "CC").split_once('.');
        let capability = capability.and_then(|(major, minor)| {
            Some((major.trim().parse().ok()?, minor.trim().parse().ok()?))
        });
        Row {
            line,
            names,
            grid: shape(self.cell(record, "Grid Size")),
            block: shape(self.cell(record, "Block Size")),
            compute_capability: capability,
            device: self.cell(record, "Device").trim().parse().ok(),
            stream: self.cell(record, "Stream").trim().parse().ok(),
            gpu_name: None,
            values: Vec::new(),
        }
    }
}

fn with_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once(" ["))
    {
        Some((name, unit)) => (name, unit),
        None => (text, ""),
    }
}

fn shape(cell: &str) -> Option<[u32; 3]> {
    let inside = cell.trim().strip_prefix('(')?.strip_suffix(')')?;
    let mut extents = inside.split(',').map(|extent| extent.trim().parse());
    let shape = [
        extents.next()?.ok()?,
        extents.next()?.ok()?,
        extents.next()?.ok()?,
    ];
    extents.next().is_none().then_some(shape)
}

impl Said {
    fn handle(&mut self, line: &str) {
        let line = line.trim();
        if line.starts_with("==PROF== Profiling") {
            self.profiled = true;
        } else if line.starts_with("==ERROR==") || line.starts_with("==WARNING== No kernels") {
            self.error = Some(line.chars().take(300).collect());
        } else if line.starts_with("Section: ") {
            self.text_page = true;
        }
    }

    fn nothing(self, path: &Path, headers: usize) -> Error {
        let path = path.to_owned();
        if self.summary {
            return Error::not_suitable(
                &path,
                "a summary over launches (`--print-summary`) has no launches, and some \
                        versions shift its columns",
                REMEDY.to_owned(),
            );
        }
        if let Some(line) = self.error {
            let remedy = if line.contains("ERR_NVGPUCTRPERM") {
                "run ncu as root, or let users read the counters \
                 (NVreg_RestrictProfilingToAdminUsers=0 of the nvidia module)"
            } else if line.contains("No kernels") {
                "profile a run that launches kernels; filters such as --kernel-name and \
                 --launch-skip may leave out all"
            } else {
                "fix the reported problem and profile again"
            };
            return Error::no_kernels(
                &path,
                format!("the tool reported: {line}"),
                remedy.to_owned(),
            );
        }
        if self.text_page {
            return Error::not_suitable(
                &path,
                "the human-readable tables of Nsight Compute, which are truncated and rounded",
                REMEDY.to_owned(),
            );
        }
        let found = if headers > 0 {
            "the header of a table without launches"
        } else if self.profiled {
            "the tool's progress messages without a table"
        } else {
            "no table of Nsight Compute"
        };
        Error::no_kernels(&path, found.to_owned(), REMEDY.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{shape, with_unit};

    #[test]
    fn shapes_and_units_are_taken_apart() {
        assert_eq!(shape("(512, 1, 1)"), Some([512, 1, 1]));
        for text in ["512", "(512, 1)", "(1, 2, 3, 4)", "(a, 1, 1)", ""] {
            assert_eq!(shape(text), None, "{text}");
        }
        assert_eq!(
            with_unit("dram__bytes.sum.per_second [Gbyte/second]"),
            ("dram__bytes.sum.per_second", "Gbyte/second")
        );
        assert_eq!(with_unit("launch__grid_size"), ("launch__grid_size", ""));
    }
}

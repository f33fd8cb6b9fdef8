//! Comma-separated reports of `nsys stats` and `nsys analyze`, 2020 to now. A file has one or more
//! reports, with titles, `Processing […]` lines and blank lines between. A report is recognised by
//! its columns, whose names have changed less than the reports' own; units stand in them (`Start
//! (ns)`). Only the most detailed report is read, so that no launch counts twice:
//! 1. a row per launch (`cuda_gpu_trace`),
//! 2. a row per launch and its call (`cuda_kern_exec_trace`),
//! 3. a row per kernel and shape (`cuda_gpu_kern_gb_sum`, `gpukernsum` of 2022),
//! 4. a row per kernel (`cuda_gpu_kern_sum`, `cuda_gpu_sum`, `cuda_kern_exec_sum`).
//!
//! All lack data: shared memory is printed in MB with three decimals, the carve-out not at all.

use std::collections::HashMap;
use std::path::Path;

use crate::Context;
use crate::detect::Format;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::input::{Lines, fields};
use crate::limits::LAUNCHES_MAX;
use crate::name::Names;
use crate::source::{Call, Kernel, Launch, SharedMemory, Source, SourceBuilder, Summary};

const LINES_PER_PROGRESS: usize = 4096;

const REMEDY: &str = "use `nsys stats --report cuda_gpu_trace --format csv`, or better export the \
                      report with `nsys export --type sqlite` and import that";

pub(crate) fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    let mut lines = Lines::open(path, context.limits.bytes_max)?;
    let mut reports: Vec<Report> = Vec::new();
    let mut open = false;
    let mut said = None;
    let mut others = Vec::new();
    loop {
        let position = lines.position();
        let Some((number, line)) = lines.next_line()? else {
            break;
        };
        if number.is_multiple_of(LINES_PER_PROGRESS) {
            (context.progress)(position, 0);
        }
        if line.trim().is_empty() {
            open = false;
            continue;
        }
        let cells = fields(line);
        if let Some(header) = Header::new(&cells) {
            open = header.kind.is_some();
            match header.kind {
                Some(kind) => reports.push(Report::new(kind, header)),
                None => others.push(cells.join(",").chars().take(60).collect::<String>()),
            }
            continue;
        }
        if line.starts_with("SKIPPED") {
            said = Some(line.trim().chars().take(300).collect::<String>());
        }
        if open && let Some(report) = reports.last_mut() {
            report.row(&cells, path)?;
        }
    }
    let best = reports
        .into_iter()
        .filter(|report| !report.rows.is_empty())
        .min_by_key(|report| report.kind);
    let Some(best) = best else {
        return Err(nothing(path, said, &others));
    };
    best.into_source(path)
}

fn nothing(path: &Path, said: Option<String>, others: &[String]) -> Error {
    let found = match (said, others.first()) {
        (Some(line), _) => format!("the tool reported: {line}"),
        (None, Some(header)) => format!("a report without launches of kernels ({header}…)"),
        (None, None) => "a report without rows of kernels".to_owned(),
    };
    Error::no_kernels(path, found, REMEDY.to_owned())
}

/// The subject of a report's rows; the most detailed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Launch,
    LaunchAndCall,
    KernelAndShape,
    Kernel,
    KernelAndCall,
}

struct Header {
    kind: Option<Kind>,
    /// Name without its unit to column number and factor of the unit.
    columns: HashMap<String, (usize, f64)>,
}

impl Header {
    /// The header in `cells`, if they are one: every report with times begins so.
    fn new(cells: &[String]) -> Option<Self> {
        if cells.len() < 4 {
            return None;
        }
        let mut columns = HashMap::new();
        for (column, cell) in cells.iter().enumerate() {
            let (name, factor) = column_unit(cell.trim());
            columns.entry(name).or_insert((column, factor));
        }
        let has = |names: &[&str]| names.iter().all(|name| columns.contains_key(*name));
        let kind = if has(&["NVTX Range"]) || has(&["Range"]) {
            None
        } else if has(&["Start", "Duration", "GrdX", "BlkX", "Name"]) {
            Some(Kind::Launch)
        } else if has(&["Kernel Start", "Kernel Dur", "Kernel Name"]) {
            Some(Kind::LaunchAndCall)
        } else if has(&["Total Time", "Instances", "GridXYZ", "BlockXYZ", "Name"]) {
            Some(Kind::KernelAndShape)
        } else if has(&["Total Time", "Instances", "Name"])
            || has(&["Total Time", "Instances", "Category", "Operation"])
        {
            Some(Kind::Kernel)
        } else if has(&["KAvg", "Count", "Kernel Name"]) {
            Some(Kind::KernelAndCall)
        } else {
            None
        };
        /// First columns of reports without kernels.
        const FIRST: [&str; 6] = ["Time", "Start", "API Start", "PID", "NVTX Range", "Name"];
        let (first, _) = column_unit(cells.first()?.trim());
        (kind.is_some() || FIRST.contains(&&*first)).then_some(Self { kind, columns })
    }

    fn cell<'r>(&self, record: &'r [String], name: &str) -> &'r str {
        let column = self.columns.get(name);
        let cell = column.and_then(|&(column, _)| record.get(column));
        // Versions of 2022 print the word None for an empty cell.
        cell.map_or("", |cell| cell.trim())
            .trim_start_matches("None")
    }

    /// A number in base units (ns or bytes), or without a unit.
    fn number(&self, record: &[String], names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| {
            let &(_, factor) = self.columns.get(*name)?;
            let number: f64 = self.cell(record, name).parse().ok()?;
            number.is_finite().then_some(number * factor)
        })
    }

    fn whole(&self, record: &[String], names: &[&str]) -> Option<u64> {
        let number = self.number(record, names)?.round();
        (0.0..1.8e19).contains(&number).then_some(number as u64)
    }

    fn small(&self, record: &[String], name: &str) -> Option<u32> {
        self.whole(record, &[name])
            .and_then(|number| u32::try_from(number).ok())
    }

    fn triple(&self, record: &[String], names: [&str; 3]) -> Option<[u32; 3]> {
        let [x, y, z] = names.map(|name| self.small(record, name));
        Some([x?, y?, z?])
    }

    /// `1024    1   40`.
    fn spaced(&self, record: &[String], name: &str) -> Option<[u32; 3]> {
        let mut extents = self.cell(record, name).split_whitespace().map(str::parse);
        let triple = [
            extents.next()?.ok()?,
            extents.next()?.ok()?,
            extents.next()?.ok()?,
        ];
        extents.next().is_none().then_some(triple)
    }
}

/// `Start (ns)` as name and factor to ns; `StcSMem (MB)` as name and factor to bytes.
fn column_unit(cell: &str) -> (String, f64) {
    let Some((name, unit)) = cell
        .strip_suffix(')')
        .and_then(|cell| cell.rsplit_once('('))
    else {
        return (cell.to_owned(), 1.0);
    };
    let factor = match unit {
        "us" | "usec" | "μs" => 1e3,
        "ms" | "msec" => 1e6,
        "s" | "sec" => 1e9,
        "MB" => 1e6,
        "KB" => 1e3,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        _ => 1.0,
    };
    (name.trim().to_owned(), factor)
}

struct Row {
    name: String,
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    registers: Option<u32>,
    static_bytes: Option<u32>,
    dynamic_bytes: Option<u32>,
    device: String,
    stream: Option<u32>,
    start_ns: Option<i64>,
    call: Option<Call>,
    count: u64,
    sum_ns: u64,
    median_ns: Option<u64>,
    max_ns: Option<u64>,
    deviation_ns: Option<u64>,
}

struct Report {
    kind: Kind,
    header: Header,
    rows: Vec<Row>,
}

impl Report {
    fn new(kind: Kind, header: Header) -> Self {
        Self {
            kind,
            header,
            rows: Vec::new(),
        }
    }

    fn row(&mut self, record: &[String], path: &Path) -> Result<(), Error> {
        if self.rows.len() == LAUNCHES_MAX {
            return Err(Error::too_many(path, "launches", LAUNCHES_MAX));
        }
        let row = match self.kind {
            Kind::Launch => self.launch(record),
            Kind::LaunchAndCall => self.launch_and_call(record),
            Kind::KernelAndShape | Kind::Kernel => self.sums(record),
            Kind::KernelAndCall => self.sums_of_calls(record),
        };
        self.rows.extend(row);
        Ok(())
    }

    fn launch(&self, record: &[String]) -> Option<Row> {
        let header = &self.header;
        // Rows of copies have no grid.
        let grid = header.triple(record, ["GrdX", "GrdY", "GrdZ"])?;
        Some(Row {
            grid: Some(grid),
            block: header.triple(record, ["BlkX", "BlkY", "BlkZ"]),
            registers: header.small(record, "Reg/Trd"),
            static_bytes: header.small(record, "StcSMem"),
            dynamic_bytes: header.small(record, "DymSMem"),
            device: header.cell(record, "Device").to_owned(),
            stream: header.small(record, "Strm"),
            start_ns: header.number(record, &["Start"]).map(|start| start as i64),
            sum_ns: header.whole(record, &["Duration"])?,
            ..Row::of(header.cell(record, "Name"))?
        })
    }

    fn launch_and_call(&self, record: &[String]) -> Option<Row> {
        let header = &self.header;
        let start_ns = header
            .number(record, &["API Start"])
            .map(|start| start as i64);
        let thread = header.whole(record, &["TID"]);
        Some(Row {
            grid: header.spaced(record, "GridXYZ"),
            block: header.spaced(record, "BlockXYZ"),
            device: header.cell(record, "DevId").to_owned(),
            start_ns: header
                .number(record, &["Kernel Start"])
                .map(|start| start as i64),
            call: start_ns
                .zip(thread)
                .map(|(at_ns, thread)| Call { thread, at_ns }),
            sum_ns: header.whole(record, &["Kernel Dur"])?,
            ..Row::of(header.cell(record, "Kernel Name"))?
        })
    }

    fn sums(&self, record: &[String]) -> Option<Row> {
        let header = &self.header;
        let category = header.cell(record, "Category");
        if !category.is_empty() && category != "CUDA_KERNEL" {
            return None;
        }
        let name = match header.cell(record, "Name") {
            "" => header.cell(record, "Operation"),
            name => name,
        };
        Some(Row {
            grid: header.spaced(record, "GridXYZ"),
            block: header.spaced(record, "BlockXYZ"),
            count: header.whole(record, &["Instances"])?,
            sum_ns: header.whole(record, &["Total Time"])?,
            median_ns: header.whole(record, &["Med", "Median"]),
            max_ns: header.whole(record, &["Max", "Maximum"]),
            deviation_ns: header.whole(record, &["StdDev"]),
            ..Row::of(name)?
        })
    }

    fn sums_of_calls(&self, record: &[String]) -> Option<Row> {
        let header = &self.header;
        let count = header.whole(record, &["Count"])?;
        let mean_ns = header.number(record, &["KAvg"])?;
        Some(Row {
            device: header.cell(record, "DevId").to_owned(),
            count,
            // Means have one decimal, so this is the sum to ± count ÷ 20 ns.
            sum_ns: (mean_ns * count as f64).round() as u64,
            median_ns: header.whole(record, &["KMed"]),
            max_ns: header.whole(record, &["KMax"]),
            deviation_ns: header.whole(record, &["KStdDev"]),
            ..Row::of(header.cell(record, "Kernel Name"))?
        })
    }

    fn into_source(self, path: &Path) -> Result<Source, Error> {
        let mut builder = SourceBuilder::new(path, Format::NsysStats);
        let mut gpus: HashMap<String, u16> = HashMap::new();
        let is_launches = self.kind <= Kind::LaunchAndCall;
        let mut is_rounded = false;
        for row in self.rows {
            let Some(names) = Names::new(&row.name) else {
                continue;
            };
            is_rounded |= row.static_bytes.max(row.dynamic_bytes) > Some(0);
            let kernel = builder.kernel(Kernel {
                names,
                grid: row.grid,
                block: row.block,
                registers: row.registers,
                shared: SharedMemory {
                    static_bytes: row.static_bytes,
                    dynamic_bytes: row.dynamic_bytes,
                    ..SharedMemory::default()
                },
                cluster_blocks: None,
                operator: None,
            })?;
            let gpu = match gpus.get(&row.device) {
                Some(&gpu) => gpu,
                None => {
                    let gpu = builder.gpu(gpu_of(&row.device))?;
                    gpus.insert(row.device.clone(), gpu);
                    gpu
                }
            };
            if is_launches {
                builder.launch(Launch {
                    kernel,
                    gpu,
                    stream: row.stream,
                    start_ns: row.start_ns,
                    duration_ns: Some(row.sum_ns),
                    call: row.call,
                    counters: None,
                    work: None,
                })?;
            } else {
                builder.summary(Summary {
                    kernel,
                    count: row.count,
                    sum_ns: row.sum_ns,
                    median_ns: row.median_ns,
                    p95_ns: None,
                    max_ns: row.max_ns,
                    deviation_ns: row.deviation_ns,
                })?;
            }
        }
        if is_rounded {
            builder.notice(
                "shared memory is printed in MB with three decimals, so blocks per SM may be off \
                 by one; an SQLite export has exact bytes",
            );
        }
        if !is_launches {
            builder.notice("the report has no 95th percentile: the longest launch is used instead");
        }
        if builder.is_empty() {
            return Err(nothing(path, None, &[]));
        }
        Ok(builder.finish())
    }
}

impl Row {
    fn of(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self {
            name: name.to_owned(),
            grid: None,
            block: None,
            registers: None,
            static_bytes: None,
            dynamic_bytes: None,
            device: String::new(),
            stream: None,
            start_ns: None,
            call: None,
            count: 1,
            sum_ns: 0,
            median_ns: None,
            max_ns: None,
            deviation_ns: None,
        })
    }
}

/// The GPU of `Tesla T4 (0)`; a bare number does not identify it.
fn gpu_of(device: &str) -> Gpu {
    let name = device.rsplit_once(" (").map(|(name, _)| name);
    Gpu {
        name: name
            .and_then(crate::name::clean)
            .map(|name| name.to_string()),
        ..Gpu::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{column_unit, gpu_of};

    #[test]
    fn units_stand_in_the_names_of_columns() {
        for (cell, name, factor) in [
            ("Start (ns)", "Start", 1.0),
            ("Duration (us)", "Duration", 1e3),
            ("StcSMem (MB)", "StcSMem", 1e6),
            ("Time (%)", "Time", 1.0),
            ("Time(%)", "Time", 1.0),
            ("Name", "Name", 1.0),
        ] {
            assert_eq!(column_unit(cell), (name.to_owned(), factor), "{cell}");
        }
        assert_eq!(gpu_of("Tesla T4 (0)").name.as_deref(), Some("Tesla T4"));
        assert_eq!(gpu_of("0").name, None);
    }
}

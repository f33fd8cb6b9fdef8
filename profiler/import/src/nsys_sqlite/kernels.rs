//! The launches of an export.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Row;

use super::gpus::Gpus;
use super::{KERNELS, Reader, integer, number, process};
use crate::Context;
use crate::error::{EXPORT_AGAIN, Error};
use crate::limits::NAMES_BYTES_MAX;
use crate::name::{Names, clean};
use crate::source::{Kernel, Launch, SharedMemory, SourceBuilder};

pub(super) const COLUMNS: [&str; 23] = [
    "start",
    "end",
    "deviceId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "shortName",
    "mangledName",
    "registersPerThread",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "sharedMemoryExecuted",
    "clusterX",
    "clusterY",
    "clusterZ",
    "contextId",
];

/// The part of [`COLUMNS`] that identifies a kernel and shape: names to clusters.
const KERNEL_COLUMNS: std::ops::Range<usize> = 6..22;

type Parts = [Option<i64>; 16];

/// The columns with names, as numbers into the table of strings.
pub(super) const NAME_COLUMNS: [&str; 3] = ["demangledName", "shortName", "mangledName"];

const ROWS_PER_PROGRESS: u64 = 4096;

/// A launch's identity among the calls of the API: process and correlation number.
pub(super) type LaunchKeys = HashMap<(i64, i64), u32>;

pub(super) type Strings = HashMap<i64, Arc<str>>;

impl Reader<'_> {
    pub(super) fn read_kernels(
        &self,
        builder: &mut SourceBuilder<'_>,
        context: &mut Context<'_>,
    ) -> Result<LaunchKeys, Error> {
        self.check_columns()?;
        let rows_total = self.rows(KERNELS)?;
        let mut reading = Reading {
            builder,
            names: self.kernel_names()?,
            gpus: self.gpus()?,
            kernels: HashMap::new(),
            keys: LaunchKeys::new(),
            launches: 0,
            unusable: 0,
        };
        let mut rows = 0u64;
        let sql = format!(
            "SELECT {} FROM {KERNELS}",
            self.tables.select(KERNELS, &COLUMNS)
        );
        self.each(&sql, |row| {
            rows += 1;
            if rows.is_multiple_of(ROWS_PER_PROGRESS) {
                (context.progress)(rows, rows_total);
            }
            reading.row(row)
        })?;
        let unusable = reading.unusable;
        let keys = reading.keys;
        if unusable > 0 {
            let (have, are) = match unusable {
                1 => ("has", "is"),
                _ => ("have", "are"),
            };
            builder.notice(format!(
                "{unusable} of {rows} launches {have} no start or end in the file and {are} left out"
            ));
        }
        Ok(keys)
    }

    fn check_columns(&self) -> Result<(), Error> {
        let missing = ["start", "end"]
            .into_iter()
            .find(|column| !self.tables.has(KERNELS, &[column]));
        let has_name = NAME_COLUMNS
            .iter()
            .any(|column| self.tables.has(KERNELS, &[column]));
        let Some(missing) = missing.or((!has_name).then_some("demangledName")) else {
            return Ok(());
        };
        Err(Error::damaged(
            self.path,
            format!("the table {KERNELS} has no column `{missing}`"),
            EXPORT_AGAIN,
        ))
    }

    fn kernel_names(&self) -> Result<Strings, Error> {
        let columns = NAME_COLUMNS
            .into_iter()
            .filter(|column| self.tables.has(KERNELS, &[column]));
        let numbers: Vec<String> = columns
            .map(|column| format!("SELECT {column} FROM {KERNELS}"))
            .collect();
        self.strings(&numbers.join(" UNION "))
    }

    pub(super) fn strings(&self, numbers: &str) -> Result<Strings, Error> {
        let mut strings = Strings::new();
        if !self.tables.has("StringIds", &["id", "value"]) {
            return Ok(strings);
        }
        let mut bytes = 0;
        let sql = format!("SELECT id, value FROM StringIds WHERE id IN ({numbers})");
        self.each(&sql, |row| {
            let text = row.get_ref(1)?.as_str().ok().and_then(clean);
            if let Some((id, text)) = integer(row, 0)?.zip(text) {
                bytes += text.len();
                strings.insert(id, text);
            }
            if bytes > NAMES_BYTES_MAX {
                return Ok(Err(Error::too_many(
                    self.path,
                    "bytes of names",
                    NAMES_BYTES_MAX,
                )));
            }
            Ok(Ok(()))
        })?;
        Ok(strings)
    }
}

struct Reading<'r, 'b> {
    builder: &'r mut SourceBuilder<'b>,
    names: Strings,
    gpus: Gpus,
    kernels: HashMap<Parts, u32>,
    keys: LaunchKeys,
    launches: u32,
    unusable: u64,
}

impl Reading<'_, '_> {
    fn row(&mut self, row: &Row<'_>) -> rusqlite::Result<Result<(), Error>> {
        let (start, end) = (integer(row, 0)?, integer(row, 1)?);
        let duration_ns = start.zip(end).and_then(|(start, end)| duration(start, end));
        let (Some(start_ns), Some(duration_ns)) = (start, duration_ns) else {
            self.unusable += 1;
            return Ok(Ok(()));
        };
        let mut parts = Parts::default();
        for (part, index) in parts.iter_mut().zip(KERNEL_COLUMNS) {
            *part = integer(row, index)?;
        }
        let process = integer(row, 5)?.map_or(0, process);
        let device = integer(row, 2)?.unwrap_or(0);
        let launch = Launch {
            kernel: 0,
            gpu: 0,
            stream: number(row, 3)?,
            start_ns: Some(start_ns),
            duration_ns: Some(duration_ns),
            call: None,
            counters: None,
            work: None,
        };
        if let Err(error) = self.keep(launch, &parts, device, process) {
            return Ok(Err(error));
        }
        if let Some(correlation) = integer(row, 4)? {
            self.keys.insert((process, correlation), self.launches);
        }
        self.launches += 1;
        Ok(Ok(()))
    }

    fn keep(
        &mut self,
        launch: Launch,
        parts: &Parts,
        device: i64,
        process: i64,
    ) -> Result<(), Error> {
        let kernel = match self.kernels.get(parts) {
            Some(&kernel) => kernel,
            None => {
                let kernel = self.builder.kernel(kernel_of(parts, &self.names))?;
                self.kernels.insert(*parts, kernel);
                kernel
            }
        };
        let gpu = self.gpus.index(device, process, self.builder)?;
        self.builder.launch(Launch {
            kernel,
            gpu,
            ..launch
        })
    }
}

fn duration(start: i64, end: i64) -> Option<u64> {
    u64::try_from(end.checked_sub(start)?).ok()
}

fn kernel_of(parts: &Parts, strings: &Strings) -> Kernel {
    let [demangled, short, mangled, registers, rest @ ..] = parts;
    let [grid_x, grid_y, grid_z, block_x, block_y, block_z, rest @ ..] = rest;
    let [fixed, dynamic, carveout, cluster_x, cluster_y, cluster_z] = rest;
    let small = |part: &Option<i64>| part.and_then(|value| u32::try_from(value).ok());
    let triple = |x, y, z| Some([small(x)?, small(y)?, small(z)?]);
    let string = |part: &Option<i64>| part.and_then(|id| strings.get(&id));
    let cluster = triple(cluster_x, cluster_y, cluster_z);
    Kernel {
        names: names([string(demangled), string(short), string(mangled)]),
        grid: triple(grid_x, grid_y, grid_z),
        block: triple(block_x, block_y, block_z),
        registers: small(registers),
        shared: SharedMemory {
            static_bytes: small(fixed),
            dynamic_bytes: small(dynamic),
            both_bytes: None,
            driver_bytes: None,
            carveout_bytes: small(carveout),
        },
        cluster_blocks: cluster.map(|[x, y, z]| x.saturating_mul(y).saturating_mul(z)),
        operator: None,
    }
}

fn names([demangled, short, mangled]: [Option<&Arc<str>>; 3]) -> Names {
    let shown = demangled.or(mangled).or(short);
    let names = shown.and_then(|shown| Names::new(shown));
    let mut names = names.unwrap_or_else(|| Names {
        shown: Arc::from("(no name)"),
        mangled: None,
        base: Arc::from("(no name)"),
    });
    if let Some(mangled) = mangled {
        names = names.with_mangled(mangled);
    }
    // The tool knows the function's name; otherwise it is derived from the demangled one.
    if let Some(short) = short {
        names.base = Arc::from(profiler::base_name::base(short));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn a_launch_that_ends_before_it_starts_has_no_duration() {
        assert_eq!(duration(-5, 7), Some(12));
        assert_eq!(duration(7, 7), Some(0));
        assert_eq!(duration(7, 5), None);
        assert_eq!(duration(i64::MIN, i64::MAX), None);
    }
}

//! The reader of the table's file.
//!
//! Comma-separated, with lines of comments that begin with `#`. A row without a training is of a
//! service alone, one without a service of a training alone; its other cells are empty. Every row
//! must be there once.

use csv::ReaderBuilder;
use serde::Deserialize;

use super::{Cell, LOADS_PCT, Latency, Mechanism, MuxFlowTable, SERVICES, TRAININGS, cell_index};

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file has no such columns, or a number is none.
    #[error("{file}: {source}")]
    Form {
        /// The file.
        file: String,
        /// What is wrong, with its line.
        source: csv::Error,
    },
    /// A row says what cannot be.
    #[error("{file}:{line}: {what}")]
    Row {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Rows are missing.
    #[error("{file}: {missing} of {expected} rows are missing, expected each once")]
    Missing {
        /// The file.
        file: String,
        /// How many.
        missing: usize,
        /// How many there should be.
        expected: usize,
    },
}

/// A row, in the order of the columns.
#[derive(Debug, Deserialize)]
struct Row {
    service: Option<String>,
    load_pct: Option<u32>,
    training: Option<String>,
    mechanism: Option<String>,
    mean_ms: Option<f64>,
    p99_ms: Option<f64>,
    behind_s: Option<f64>,
    iterations_per_s: Option<f64>,
}

/// The table as far as it is read.
struct Partial {
    cells: Vec<Option<Cell>>,
    services_alone: Vec<Option<Latency>>,
    trainings_alone: Vec<Option<f64>>,
}

impl MuxFlowTable {
    /// Reads a table; `file` is its name, for errors only.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, TableError> {
        let mut partial = Partial {
            cells: vec![None; cell_index(SERVICES.len(), 0, 0, Mechanism::ALL[0])],
            services_alone: vec![None; SERVICES.len() * LOADS_PCT.len()],
            trainings_alone: vec![None; TRAININGS.len()],
        };
        let mut reader = ReaderBuilder::new().comment(Some(b'#')).from_reader(bytes);
        let form = |source| TableError::Form {
            file: file.to_owned(),
            source,
        };
        let headers = reader.headers().map_err(form)?.clone();
        for record in reader.records() {
            let record = record.map_err(form)?;
            let row: Row = record.deserialize(Some(&headers)).map_err(form)?;
            partial.put(&row).map_err(|what| TableError::Row {
                file: file.to_owned(),
                line: record.position().map_or(0, csv::Position::line),
                what,
            })?;
        }
        partial.whole(file)
    }
}

impl Partial {
    fn put(&mut self, row: &Row) -> Result<(), String> {
        match (&row.service, &row.training) {
            (Some(service), Some(training)) => {
                let (service, load) = (service_at(service)?, load_at(row.load_pct)?);
                let (training, by) = (training_at(training)?, mechanism(row.mechanism.as_deref())?);
                let cell = Cell {
                    latency: latency_of(row)?,
                    behind_s: number("behind_s", row.behind_s, 0.0)?,
                    iterations_per_s: number("iterations_per_s", row.iterations_per_s, 0.0)?,
                };
                once(
                    &mut self.cells[cell_index(service, load, training, by)],
                    cell,
                )
            }
            (Some(service), None) => {
                let index = service_at(service)? * LOADS_PCT.len() + load_at(row.load_pct)?;
                once(&mut self.services_alone[index], latency_of(row)?)
            }
            (None, Some(training)) => {
                let per_s = number("iterations_per_s", row.iterations_per_s, LEAST)?;
                once(&mut self.trainings_alone[training_at(training)?], per_s)
            }
            (None, None) => Err("neither service nor training: expected one at least".to_owned()),
        }
    }

    fn whole(self, file: &str) -> Result<MuxFlowTable, TableError> {
        let expected = self.cells.len() + self.services_alone.len() + self.trainings_alone.len();
        let cells: Vec<Cell> = self.cells.into_iter().flatten().collect();
        let services_alone: Vec<Latency> = self.services_alone.into_iter().flatten().collect();
        let trainings_alone: Vec<f64> = self.trainings_alone.into_iter().flatten().collect();
        match expected - cells.len() - services_alone.len() - trainings_alone.len() {
            0 => Ok(MuxFlowTable {
                cells,
                services_alone,
                trainings_alone,
            }),
            missing => Err(TableError::Missing {
                file: file.to_owned(),
                missing,
                expected,
            }),
        }
    }
}

/// Least of what others are divided by: a table of four digits has nothing so small.
const LEAST: f64 = 1e-6;

fn latency_of(row: &Row) -> Result<Latency, String> {
    Ok(Latency {
        mean_ms: number("mean_ms", row.mean_ms, LEAST)?,
        p99_ms: number("p99_ms", row.p99_ms, LEAST)?,
    })
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err("the row is there twice, expected once".to_owned()),
    }
}

fn number(column: &str, number: Option<f64>, least: f64) -> Result<f64, String> {
    let number = number.ok_or_else(|| format!("{column} is empty: expected a number"))?;
    if number.is_finite() && number >= least {
        return Ok(number);
    }
    Err(format!(
        "{column} is {number}: expected a finite number of at least {least}"
    ))
}

fn service_at(name: &str) -> Result<usize, String> {
    named("service", name, SERVICES.map(|service| service.name))
}

fn training_at(name: &str) -> Result<usize, String> {
    named("training", name, TRAININGS.map(|training| training.name))
}

fn mechanism(name: Option<&str>) -> Result<Mechanism, String> {
    let names = Mechanism::ALL.map(Mechanism::name);
    named("mechanism", name.unwrap_or(""), names).map(|place| Mechanism::ALL[place])
}

fn named<const N: usize>(kind: &str, name: &str, names: [&str; N]) -> Result<usize, String> {
    let found = names.iter().position(|&of| of == name);
    found.ok_or_else(|| format!("{kind} {name:?}: expected one of {}", names.join(", ")))
}

fn load_at(pct: Option<u32>) -> Result<usize, String> {
    let found = pct.and_then(|pct| LOADS_PCT.iter().position(|&of| of == pct));
    let shown = pct.map_or_else(|| "empty".to_owned(), |pct| pct.to_string());
    found.ok_or_else(|| format!("load_pct is {shown}: expected one of {LOADS_PCT:?}"))
}

//! The reader of the table's file: comma-separated, with comment lines that begin with `#`. A row
//! without a training is of a service alone, one without a service of a training alone; its other
//! cells are empty. Every row must be there once.

use serde::Deserialize;

use super::{Cell, LOADS_PCT, Latency, Mechanism, MuxFlowTable, SERVICES, TRAININGS, cell_index};
use crate::table::{TableError, listed, named, none_missing, number, once, read_rows};

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
        read_rows(file, bytes, |row| partial.put(&row))?;
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
            (None, None) => Err("neither service nor training: expected at least one".to_owned()),
        }
    }

    fn whole(self, file: &str) -> Result<MuxFlowTable, TableError> {
        let expected = self.cells.len() + self.services_alone.len() + self.trainings_alone.len();
        let cells: Vec<Cell> = self.cells.into_iter().flatten().collect();
        let services_alone: Vec<Latency> = self.services_alone.into_iter().flatten().collect();
        let trainings_alone: Vec<f64> = self.trainings_alone.into_iter().flatten().collect();
        let found = cells.len() + services_alone.len() + trainings_alone.len();
        none_missing(file, expected - found, expected)?;
        Ok(MuxFlowTable {
            cells,
            services_alone,
            trainings_alone,
        })
    }
}

/// Least divisor: a table of four digits has nothing so small.
const LEAST: f64 = 1e-6;

fn latency_of(row: &Row) -> Result<Latency, String> {
    Ok(Latency {
        mean_ms: number("mean_ms", row.mean_ms, LEAST)?,
        p99_ms: number("p99_ms", row.p99_ms, LEAST)?,
    })
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

fn load_at(pct: Option<u32>) -> Result<usize, String> {
    listed("load_pct", &LOADS_PCT, pct)
}

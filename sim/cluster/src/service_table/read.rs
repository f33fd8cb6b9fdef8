//! The reader of the table's file: comma-separated, with comment lines that begin with `#`. A row
//! without a training is of a service alone, one without a service of a training alone; its other
//! cells are empty. Every row of the grid must be there once.

use serde::Deserialize;

use super::{BATCHES, Cell, SERVICES, SHARES_PCT, ServiceTable, TRAININGS, cell_index};
use crate::table::{TableError, listed, named, none_missing, once, read_rows, there};

#[derive(Debug, Deserialize)]
struct Row {
    service: Option<String>,
    training: Option<String>,
    batch: Option<u32>,
    share_pct: Option<u32>,
    late: Option<f64>,
    request_p99_ms: Option<f64>,
    batch_p99_ms: Option<f64>,
    iterations_per_s: Option<f64>,
}

struct Partial {
    cells: Vec<Option<Cell>>,
    services_alone: Vec<Option<f64>>,
    trainings_alone: Vec<Option<f64>>,
}

impl ServiceTable {
    /// Reads a table; `file` is its name, for errors only.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, TableError> {
        let mut partial = Partial {
            cells: vec![None; cell_index(SERVICES.len(), 0, 0, 0)],
            services_alone: vec![None; SERVICES.len() * BATCHES.len()],
            trainings_alone: vec![None; TRAININGS.len()],
        };
        read_rows(file, bytes, |row| partial.put(&row))?;
        partial.whole(file)
    }
}

impl Partial {
    fn put(&mut self, row: &Row) -> Result<(), String> {
        let is_finite = |number: f64| number.is_finite() && number >= 0.0;
        let numbers = [
            row.late,
            row.request_p99_ms,
            row.batch_p99_ms,
            row.iterations_per_s,
        ];
        if let Some(number) = numbers.into_iter().flatten().find(|&n| !is_finite(n)) {
            return Err(format!("{number}: expected a finite number of at least 0"));
        }
        match (&row.service, &row.training) {
            (Some(service), Some(training)) => {
                let (service, training) = (service_at(service)?, training_at(training)?);
                let share = listed("share", &SHARES_PCT, row.share_pct)?;
                let index = cell_index(service, training, batch_at(row.batch)?, share);
                once(&mut self.cells[index], cell_of(row)?)
            }
            (Some(service), None) => {
                let index = service_at(service)? * BATCHES.len() + batch_at(row.batch)?;
                let p99_ms = there("batch_p99_ms", row.batch_p99_ms)?;
                once(&mut self.services_alone[index], p99_ms)
            }
            (None, Some(training)) => {
                let per_s = there("iterations_per_s", row.iterations_per_s)?;
                once(&mut self.trainings_alone[training_at(training)?], per_s)
            }
            (None, None) => Err("neither service nor training: expected at least one".to_owned()),
        }
    }

    fn whole(self, file: &str) -> Result<ServiceTable, TableError> {
        let expected = self.cells.len() + self.services_alone.len() + self.trainings_alone.len();
        let cells: Vec<Cell> = self.cells.into_iter().flatten().collect();
        let services_alone: Vec<f64> = self.services_alone.into_iter().flatten().collect();
        let trainings_alone: Vec<f64> = self.trainings_alone.into_iter().flatten().collect();
        let found = cells.len() + services_alone.len() + trainings_alone.len();
        none_missing(file, expected - found, expected)?;
        Ok(ServiceTable {
            cells,
            services_alone,
            trainings_alone,
        })
    }
}

fn cell_of(row: &Row) -> Result<Cell, String> {
    let late = there("late", row.late)?;
    if late > 1.0 {
        return Err(format!("late is {late}: expected 0 to 1"));
    }
    if row.request_p99_ms.is_none() && late < 1.0 {
        return Err(format!("no request_p99_ms, but late is {late}: expected 1"));
    }
    Ok(Cell {
        late,
        request_p99_ms: row.request_p99_ms,
        batch_p99_ms: there("batch_p99_ms", row.batch_p99_ms)?,
        iterations_per_s: there("iterations_per_s", row.iterations_per_s)?,
    })
}

fn service_at(name: &str) -> Result<usize, String> {
    named("service", name, SERVICES.map(|service| service.name))
}

fn training_at(name: &str) -> Result<usize, String> {
    named("training", name, TRAININGS.map(|training| training.name))
}

fn batch_at(batch: Option<u32>) -> Result<usize, String> {
    listed("batch", &BATCHES, batch)
}

//! Tables of measured numbers that come with the program, as files: the common parts of their
//! readers. A table is comma-separated, with comment lines that begin with `#` and a line of column
//! names. Every row appears once. A wrong row is refused with the file, its line, the fault and the
//! expected value.

use csv::ReaderBuilder;
use serde::de::DeserializeOwned;

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file has no such columns, or a number is none.
    #[error("{file}: {source}")]
    Form {
        /// The file.
        file: String,
        /// The error, with its line.
        source: csv::Error,
    },
    /// A row is invalid.
    #[error("{file}:{line}: {what}")]
    Row {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The error.
        what: String,
    },
    /// Rows are missing.
    #[error("{file}: {missing} of {expected} rows are missing: expected each once")]
    Missing {
        /// The file.
        file: String,
        /// How many.
        missing: usize,
        /// How many there should be.
        expected: usize,
    },
}

/// Gives `put` each row in `bytes`; `put` returns what is wrong with it. `file` is for errors only.
pub(crate) fn read_rows<R: DeserializeOwned>(
    file: &str,
    bytes: &[u8],
    mut put: impl FnMut(R) -> Result<(), String>,
) -> Result<(), TableError> {
    let mut reader = ReaderBuilder::new().comment(Some(b'#')).from_reader(bytes);
    let form = |source| TableError::Form {
        file: file.to_owned(),
        source,
    };
    let headers = reader.headers().map_err(form)?.clone();
    for record in reader.records() {
        let record = record.map_err(form)?;
        let row: R = record.deserialize(Some(&headers)).map_err(form)?;
        put(row).map_err(|what| TableError::Row {
            file: file.to_owned(),
            line: record.position().map_or(0, csv::Position::line),
            what,
        })?;
    }
    Ok(())
}

pub(crate) fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err("the row appears twice: expected once".to_owned()),
    }
}

pub(crate) fn none_missing(file: &str, missing: usize, expected: usize) -> Result<(), TableError> {
    match missing {
        0 => Ok(()),
        missing => Err(TableError::Missing {
            file: file.to_owned(),
            missing,
            expected,
        }),
    }
}

pub(crate) fn there<T>(column: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("{column} is empty: expected a number"))
}

pub(crate) fn number(column: &str, number: Option<f64>, least: f64) -> Result<f64, String> {
    let number = there(column, number)?;
    if number.is_finite() && number >= least {
        return Ok(number);
    }
    Err(format!(
        "{column} is {number}: expected a finite number of at least {least}"
    ))
}

pub(crate) fn named<const N: usize>(
    kind: &str,
    name: &str,
    names: [&str; N],
) -> Result<usize, String> {
    let found = names.iter().position(|&of| of == name);
    found.ok_or_else(|| format!("{kind} {name:?}: expected one of {}", names.join(", ")))
}

pub(crate) fn listed(column: &str, grid: &[u32], number: Option<u32>) -> Result<usize, String> {
    let found = number.and_then(|number| grid.iter().position(|&of| of == number));
    let shown = number.map_or_else(|| "empty".to_owned(), |number| number.to_string());
    found.ok_or_else(|| format!("{column} is {shown}: expected one of {grid:?}"))
}

/// The number with four significant digits, as tables print it.
#[must_use]
pub fn four_digits(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

//! Readers of recorded clusters and jobs: a module for each published form. A reader is a pure
//! function from the bytes of a file to typed rows, and simulates nothing. Its first argument is
//! the name of the file, for errors only.
//! ```no_run
//! use cluster_sim::traces::{self, openb};
//!
//! let pods = traces::read("openb_pod_list_default.csv".as_ref(), openb::pods)?;
//! # Ok::<(), traces::TraceError>(())
//! ```
//! All readers have these rules in common.
//! - Columns are found by their names in the header, in any order, and other columns are ignored. A
//!   table that is published without a header is read by position.
//! - A byte order mark and lines that end in CRLF are accepted.
//! - Times have the unit of their name, are finite, and lie between 0 and 100 years.
//! - A cell of an unknown form refuses the whole file: see [`TraceError`].
//! - A file has at most [`ROWS_MAX`] rows and [`BYTES_MAX`] bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

mod calendar;
mod error;
mod table;

pub mod azure;
pub mod form;
pub mod gavel;
pub mod muri;
pub mod openb;
pub mod pai;
pub mod philly;
pub mod tiresias;

#[cfg(test)]
mod tests;

pub use error::TraceError;

/// Rows of a file. The longest published table, the tasks of PAI, has 1.3 million.
pub const ROWS_MAX: usize = 10_000_000;

/// Bytes of a file: 2 GiB, so that a wrong path does not fill the memory.
pub const BYTES_MAX: u64 = 1 << 31;

/// Reads a file with one of the readers of this module.
pub fn read<T>(
    path: &Path,
    reader: impl FnOnce(&str, &[u8]) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    read_up_to(BYTES_MAX, path, reader)
}

fn read_up_to<T>(
    bytes_max: u64,
    path: &Path,
    reader: impl FnOnce(&str, &[u8]) -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    let file = path.display().to_string();
    match bytes_of(path, bytes_max) {
        Ok(bytes) if bytes.len() as u64 > bytes_max => {
            Err(TraceError::TooLarge { file, bytes_max })
        }
        Ok(bytes) => reader(&file, &bytes),
        Err(source) => Err(TraceError::Unreadable { file, source }),
    }
}

fn bytes_of(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// GPUs of one machine or of one pod, which runs on one machine.
const MACHINE_GPUS_MAX: u32 = 64;

/// GPUs of a job that may span machines; the most in the published traces is 128.
const JOB_GPUS_MAX: u32 = 1024;

/// The longest time, in seconds: 100 years. In nanoseconds it fits 63 bits.
const SECONDS_MAX: f64 = 3_155_760_000.0;

/// Iterations or steps of a job: counts up to here are exact as `f64`.
const STEPS_MAX: u64 = 1 << 53;

//! Why a recorded trace is refused. Every message names the file, and the line, the column, the
//! value and the expected value as far as they apply.

use std::io;

/// Why a recorded trace is refused. Nothing of it has been used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file's path.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is larger than any published trace.
    #[error("{file}: the file is too large: expected at most {bytes_max} bytes")]
    TooLarge {
        /// The file's path.
        file: String,
        /// How many bytes may be.
        bytes_max: u64,
    },
    /// The file has more rows than any published trace.
    #[error("{file}:{line}: row {} of the file: expected at most {rows_max} rows", rows_max + 1)]
    TooManyRows {
        /// The file's name.
        file: String,
        /// The line of the first row too many, from 1.
        line: u64,
        /// How many rows may be.
        rows_max: usize,
    },
    /// The file is binary, or its text has another encoding.
    #[error("{file}:{line}: the bytes are not text: expected UTF-8")]
    NotText {
        /// The file's name.
        file: String,
        /// The line of the first such byte, from 1.
        line: u64,
    },
    /// The file has no row, not even a header.
    #[error("{file}: the file is empty: expected {known}")]
    Empty {
        /// The file's name.
        file: String,
        /// The forms that the reader knows.
        known: String,
    },
    /// The header is not that of a known form.
    #[error("{file}:{line}: the header {found:?} {problem}: expected {known}")]
    Header {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The header, cut if it is long.
        found: String,
        /// The difference from a known form.
        problem: String,
        /// The forms that the reader knows.
        known: String,
    },
    /// A row has another number of cells.
    #[error("{file}:{line}: the row has {found} columns: expected {expected}")]
    Width {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: u64,
        /// How many cells the row has.
        found: usize,
        /// How many it should have, and the reason.
        expected: String,
    },
    /// A cell does not have a value that its column may have.
    #[error("{file}:{line}: {column} is {found:?}: expected {expected}")]
    Value {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column's name.
        column: String,
        /// The cell, cut if it is long.
        found: String,
        /// The values that the column may have.
        expected: String,
    },
    /// The text is not JSON, or not of the form that the reader knows.
    #[error("{file}:{line}: {why}: expected {known}")]
    Json {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The error.
        why: String,
        /// The form that the reader knows.
        known: String,
    },
}

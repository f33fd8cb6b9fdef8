//! Errors of trace and profile files: a variant per cause that an operator can act on. A message
//! begins with its place (`file:line:column`), then the value, the expected one, the nearest word.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::limits::FILE_BYTES_MAX;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the caller named it.
    pub path: Box<Path>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1; `None` for the whole line.
    pub column: Option<usize>,
}

impl Place {
    /// The place `path:line:column`, both from 1.
    #[must_use]
    pub fn at(path: &Path, line: usize, column: usize) -> Self {
        Self {
            path: path.into(),
            line,
            column: Some(column),
        }
    }

    /// A whole line of `path`, from 1.
    #[must_use]
    pub fn line(path: &Path, line: usize) -> Self {
        Self {
            path: path.into(),
            line,
            column: None,
        }
    }

    /// The place of byte `offset` in `text`; at most its end.
    #[must_use]
    pub fn of_offset(path: &Path, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.bytes().filter(|&byte| byte == b'\n').count();
        let column = 1 + before.get(line_start..).unwrap_or("").chars().count();
        Self::at(path, line, column)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.path.display(), self.line)?;
        match self.column {
            Some(column) => write!(formatter, ":{column}"),
            None => Ok(()),
        }
    }
}

/// Why a trace or profile could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refuses the file: missing, no permission, a directory.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// The file is longer than [`FILE_BYTES_MAX`].
    #[error("{}: longer than the limit of {FILE_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },

    /// The file is not UTF-8 text.
    #[error("{place}: byte 0x{byte:02x} is not UTF-8 text")]
    NotText {
        /// The first byte that is not text.
        place: Place,
        /// That byte.
        byte: u8,
    },

    /// The content has none of the accepted formats.
    #[error("{}: {found}; accepted here: {accepted}", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The apparent format, or how the file starts.
        found: String,
        /// The accepted formats and their marks.
        accepted: &'static str,
    },

    /// A known format in an unknown version.
    #[error("{place}: {format} version {found}; this program reads versions up to {supported}")]
    UnsupportedVersion {
        /// Where the version stands.
        place: Place,
        /// Name of the format.
        format: &'static str,
        /// The file's version, as written.
        found: String,
        /// The newest supported version.
        supported: u32,
    },

    /// The text violates the grammar of its format.
    #[error("{place}: {reason}")]
    Syntax {
        /// The place of the violation.
        place: Place,
        /// The finding, and the expected form.
        reason: String,
    },

    /// A key, column or line keyword unknown to the format.
    #[error("{place}: unknown {what} {found}; expected {expected}{}", hint(*nearest))]
    UnknownKey {
        /// Where it stands.
        place: Place,
        /// "key", "line" or "column".
        what: &'static str,
        /// The word found, quoted.
        found: String,
        /// The nearest valid word.
        nearest: Option<&'static str>,
        /// The valid words.
        expected: String,
    },

    /// A required key is missing.
    #[error("{place}: {inside} has no {key}; expected {expected}")]
    MissingKey {
        /// The start of the incomplete item.
        place: Place,
        /// The incomplete item.
        inside: &'static str,
        /// The key.
        key: &'static str,
        /// The expected value.
        expected: &'static str,
    },

    /// The same item occurs twice.
    #[error("{place}: {what} {found} again; it is already at line {first_line}")]
    Duplicate {
        /// The second occurrence.
        place: Place,
        /// The item's kind.
        what: &'static str,
        /// The value, quoted.
        found: String,
        /// Line of the first occurrence.
        first_line: usize,
    },

    /// A value of the wrong type or outside its range.
    #[error("{place}: {key} = {found}; expected {expected}{}", hint(*nearest))]
    BadValue {
        /// Where the value stands.
        place: Place,
        /// Key or column.
        key: &'static str,
        /// The value, as it stands in the file.
        found: String,
        /// The valid values.
        expected: String,
        /// The nearest valid word, where words are expected.
        nearest: Option<&'static str>,
    },

    /// A row of an Orion file has the wrong number of fields.
    #[error(
        "{place}: {fields} fields; expected 5 ({}): {reason}",
        crate::orion::HEADER
    )]
    FieldCount {
        /// The row.
        place: Place,
        /// Number of comma-separated fields found.
        fields: usize,
        /// The likely cause and its remedy.
        reason: String,
    },

    /// A list that must not be empty is empty.
    #[error("{place}: no {what}; expected at least one")]
    Empty {
        /// The end of the file.
        place: Place,
        /// The missing items.
        what: &'static str,
    },

    /// More entries than a named bound allows.
    #[error("{place}: more than {limit} {what}, the maximum")]
    TooMany {
        /// Where the bound is crossed.
        place: Place,
        /// The items in excess.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

impl Error {
    pub(crate) fn syntax(place: Place, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Syntax { place, reason }
    }

    pub(crate) fn too_many(place: Place, what: &'static str, limit: usize) -> Self {
        Self::TooMany { place, what, limit }
    }

    pub(crate) fn empty(place: Place, what: &'static str) -> Self {
        Self::Empty { place, what }
    }

    pub(crate) fn duplicate(
        place: Place,
        what: &'static str,
        found: String,
        first_line: usize,
    ) -> Self {
        Self::Duplicate {
            place,
            what,
            found,
            first_line,
        }
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

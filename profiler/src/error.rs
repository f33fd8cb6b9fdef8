//! What can be wrong with a trace or profile file, in words an operator can act on.
//!
//! Every variant is one cause. Those that concern a place in a file start with that place
//! (`file:line:column`), then give the value found, then what would be right, and the nearest right
//! word where there is one.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::limits::FILE_BYTES_MAX;

/// Where in a file something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the caller named it.
    pub path: Box<Path>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1; `None` where the whole line is meant.
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

    /// The place of byte `offset` in `text`; past its end, the end.
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
        /// What the operating system said.
        source: std::io::Error,
    },

    /// The file is longer than [`FILE_BYTES_MAX`].
    #[error("{}: longer than {FILE_BYTES_MAX} bytes, the most that is read", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },

    /// The file is not UTF-8 text.
    #[error("{place}: byte 0x{byte:02x} is not UTF-8 text")]
    NotText {
        /// Where the first byte is that is not text.
        place: Place,
        /// That byte.
        byte: u8,
    },

    /// The content is of no format that is accepted here.
    #[error("{}: {found}; accepted here: {accepted}", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What the file looks like, or how it starts.
        found: String,
        /// The formats that are accepted and how one recognises them.
        accepted: &'static str,
    },

    /// The right format, in a version that this program does not know.
    #[error("{place}: {format} version {found}; this program reads versions up to {supported}")]
    UnsupportedVersion {
        /// Where the version stands.
        place: Place,
        /// Name of the format.
        format: &'static str,
        /// The file's version, as written.
        found: String,
        /// The newest version this program reads.
        supported: u32,
    },

    /// The text breaks the grammar of its format.
    #[error("{place}: {reason}")]
    Syntax {
        /// Where it does.
        place: Place,
        /// What was found and what was expected.
        reason: String,
    },

    /// A key, column or line keyword that the format does not have.
    #[error("{place}: unknown {what} {found}; expected {expected}{}", hint(*nearest))]
    UnknownKey {
        /// Where it stands.
        place: Place,
        /// "key", "line" or "column".
        what: &'static str,
        /// The word found, quoted.
        found: String,
        /// The nearest right one.
        nearest: Option<&'static str>,
        /// The right ones.
        expected: String,
    },

    /// A key that must be there is not.
    #[error("{place}: {inside} has no {key}; expected {expected}")]
    MissingKey {
        /// The start of what lacks it.
        place: Place,
        /// What lacks it.
        inside: &'static str,
        /// The key.
        key: &'static str,
        /// What its value would be.
        expected: &'static str,
    },

    /// The same thing stands in the file twice.
    #[error("{place}: {what} {found} again; it is already at line {first_line}")]
    Duplicate {
        /// Where it stands for the second time.
        place: Place,
        /// What it is.
        what: &'static str,
        /// The value, quoted.
        found: String,
        /// Line of the first.
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
        /// What would be right.
        expected: String,
        /// The nearest right word, where words are expected.
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
        /// The likely cause and its mend.
        reason: String,
    },

    /// A list that must not be empty is.
    #[error("{place}: no {what}; expected at least one")]
    Empty {
        /// The end of the file.
        place: Place,
        /// What there is none of.
        what: &'static str,
    },

    /// More entries than a named bound allows.
    #[error("{place}: more than {limit} {what}, the most that is read")]
    TooMany {
        /// Where the bound is crossed.
        place: Place,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// The causes that are found in many places.
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

    /// `found` again, which stands at `first_line` already.
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

/// "; did you mean `x`?" or nothing.
fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

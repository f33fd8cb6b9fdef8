//! Why a file gives no profile, and the remedy. Every variant is one cause; its message is one line
//! that names the file, states the finding, and ends in the remedy. Importing programs match on it.

use std::path::{Path, PathBuf};

/// Why a file could not be imported.
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

    /// The file is longer than the limit, after decompression.
    #[error(
        "{}: more than {limit} bytes{}; if you trust the file, raise the limit with --max-bytes",
        path.display(),
        if *is_compressed { " when decompressed" } else { "" }
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit, bytes.
        limit: u64,
        /// Whether the limit applies to decompressed content.
        is_compressed: bool,
    },

    /// More items than a named bound of [`limits`](crate::limits) allows.
    #[error("{}: more than {limit} {what}, the maximum; profile a shorter run", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The items in excess.
        what: &'static str,
        /// The bound.
        limit: usize,
    },

    /// The content has no supported format.
    #[error("{}: {found}; accepted here: {accepted}", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its apparent format.
        found: String,
        /// The supported formats.
        accepted: &'static str,
    },

    /// A tool's own file, which that tool must export first.
    #[error("{}: {found}; export it first: {command}", path.display())]
    NeedsExport {
        /// The file.
        path: PathBuf,
        /// Its kind.
        found: String,
        /// The command that makes a readable file.
        command: String,
    },

    /// The right format, but printed in a way that lacks required data.
    #[error("{}: {found}; {remedy}", path.display())]
    NotSuitable {
        /// The file.
        path: PathBuf,
        /// Its kind, and the missing data.
        found: String,
        /// How to obtain a suitable file.
        remedy: String,
    },

    /// The file violates its format, most likely because it was truncated.
    #[error("{}: {reason}; the file is damaged or truncated: {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The finding.
        reason: String,
        /// How to obtain a complete file.
        remedy: &'static str,
    },

    /// The file is complete and of a known format, but has no kernels.
    #[error("{}: no kernels: {found}; {remedy}", path.display())]
    NoKernels {
        /// The file.
        path: PathBuf,
        /// Its content instead; where the tool stated a reason, its own line in quotes.
        found: String,
        /// How to record kernels.
        remedy: String,
    },

    /// A number is ambiguous.
    #[error(
        "{}:{line}: {value} is ambiguous: its separator may mark thousands or decimals; export \
         again with LC_ALL=C",
        path.display()
    )]
    AmbiguousNumber {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The value, quoted.
        value: String,
    },

    /// The measured GPU is not supported by Pillion.
    #[error("{}: measured on {gpu}; Pillion manages NVIDIA GPUs, so profile the job on one", path.display())]
    ForeignGpu {
        /// The file.
        path: PathBuf,
        /// The GPU, or its evidence.
        gpu: String,
    },

    /// The kernels ran on different models of GPU; a profile is of one.
    #[error("kernels of different GPUs: {}; choose one with --device", gpus.join(", "))]
    SeveralGpus {
        /// The models.
        gpus: Vec<String>,
    },

    /// A copy of the file cannot be written.
    #[error("{}: cannot be copied: {source}", path.display())]
    NotCopied {
        /// The original file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// No GPU of the sources is the requested one.
    #[error("no kernel ran on {asked}; measured GPUs: {}; leave out --device, or name one of these", gpus.join(", "))]
    OtherGpu {
        /// The value of `--device`.
        asked: String,
        /// The measured models.
        gpus: Vec<String>,
    },

    /// `--request-range` names a range without launches.
    #[error(
        "{label}: no range is called `{asked}`; {}",
        if names.is_empty() {
            "it has no ranges: capture with `nsys profile --trace=cuda,nvtx`".to_owned()
        } else {
            format!("the most frequent are {}", names.join(", "))
        }
    )]
    NoSuchRange {
        /// The value of `--request-range`.
        asked: String,
        /// The file.
        label: String,
        /// The most frequent names.
        names: Vec<String>,
    },

    /// `--device` names no model of the device table.
    #[error(transparent)]
    UnknownDevice(#[from] devices::UnknownDevice),

    /// An error in a Pillion or Orion file.
    #[error(transparent)]
    Profiler(Box<profiler::Error>),
}

impl Error {
    pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> Self {
        Self::Unreadable {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn too_many(path: &Path, what: &'static str, limit: usize) -> Self {
        Self::TooMany {
            path: path.to_owned(),
            what,
            limit,
        }
    }

    pub(crate) fn unknown_format(path: &Path, found: impl Into<String>) -> Self {
        Self::UnknownFormat {
            path: path.to_owned(),
            found: found.into(),
            accepted: crate::detect::ACCEPTED,
        }
    }

    pub(crate) fn not_suitable(
        path: &Path,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::NotSuitable {
            path: path.to_owned(),
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn damaged(path: &Path, reason: impl Into<String>, remedy: &'static str) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            reason: reason.into(),
            remedy,
        }
    }

    pub(crate) fn no_kernels(
        path: &Path,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::NoKernels {
            path: path.to_owned(),
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn not_copied(path: &Path, source: std::io::Error) -> Self {
        Self::NotCopied {
            path: path.to_owned(),
            source,
        }
    }
}

impl From<profiler::Error> for Error {
    fn from(error: profiler::Error) -> Self {
        Self::Profiler(Box::new(error))
    }
}

pub(crate) const EXPORT_AGAIN: &str =
    "export it again with `nsys export --type sqlite`, and copy the whole file";

const REASON_CHARS_MAX: usize = 200;

/// Another library's message, as one line of bounded length: it may quote the file.
pub(crate) fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let mut line: String = text
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .take(REASON_CHARS_MAX)
        .collect();
    if line.len() < text.len() {
        line.push('…');
    }
    line
}

/// `1 launch`, `2 launches`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(super::reason(&"a\n b"), "a  b");
        assert!(super::reason(&"x".repeat(1000)).chars().count() <= 201);
    }
}

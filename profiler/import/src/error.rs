//! Why a file gives no profile, and what to do about it.
//!
//! Every variant is one cause; its message is one line that names the file, says what was found,
//! and ends in what to do. Programs that import match on the variant.

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
        /// What the operating system said.
        source: std::io::Error,
    },

    /// The file is longer than the limit, after decompression.
    #[error(
        "{}: more than {limit} bytes{}; if the file is to be trusted, raise the limit with --max-bytes",
        path.display(),
        if *is_compressed { " when decompressed" } else { "" }
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit, bytes.
        limit: u64,
        /// Whether it is a compressed file whose content is meant.
        is_compressed: bool,
    },

    /// More of something than a named bound of [`limits`](crate::limits) allows.
    #[error("{}: more than {limit} {what}, the most that is read; profile a shorter run", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },

    /// The content is of no format that is read here.
    #[error("{}: {found}; read here: {accepted}", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: String,
        /// What would be read.
        accepted: &'static str,
    },

    /// A tool's own file, which only that tool can read: it must export it first.
    #[error("{}: {found}; export it first: {command}", path.display())]
    NeedsExport {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
        /// The command that makes a file which is read here.
        command: String,
    },

    /// The right format, but printed in a way that lacks what a profile needs.
    #[error("{}: {found}; {remedy}", path.display())]
    NotSuitable {
        /// The file.
        path: PathBuf,
        /// What it is and why that does not do.
        found: String,
        /// How to get one that does.
        remedy: String,
    },

    /// The file breaks the rules of its format, most likely because it was cut short.
    #[error("{}: {reason}; the file is damaged or was cut short: {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
        /// How to get a whole one.
        remedy: &'static str,
    },

    /// The file is whole and of a known format, and there is no kernel in it.
    #[error("{}: no kernels: {found}; {remedy}", path.display())]
    NoKernels {
        /// The file.
        path: PathBuf,
        /// What is in it instead; where the tool said why, its own line in quotes.
        found: String,
        /// How to get kernels into it.
        remedy: String,
    },

    /// A number could be read in two ways.
    #[error(
        "{}:{line}: {value} is ambiguous: nothing in the file tells whether its separator marks \
         thousands or decimals; export again with LC_ALL=C",
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

    /// The measurements are of a GPU that Pillion does not manage.
    #[error("{}: measured on {gpu}; Pillion manages NVIDIA GPUs, so profile the job on one", path.display())]
    ForeignGpu {
        /// The file.
        path: PathBuf,
        /// The GPU, or how one knows.
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
        /// The file that was to be copied.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },

    /// No GPU of the sources is the one asked for.
    #[error("no kernel ran on {asked}: measured on {}; leave --device out, or give one of these", gpus.join(", "))]
    OtherGpu {
        /// What `--device` said.
        asked: String,
        /// The models that were measured.
        gpus: Vec<String>,
    },

    /// `--request-range` names a range that no launch was called in.
    #[error(
        "{label}: no range is called `{asked}`; {}",
        if names.is_empty() {
            "it has no ranges: capture with `nsys profile --trace=cuda,nvtx`".to_owned()
        } else {
            format!("the most frequent are {}", names.join(", "))
        }
    )]
    NoSuchRange {
        /// What `--request-range` said.
        asked: String,
        /// The file.
        label: String,
        /// The names that most ranges have.
        names: Vec<String>,
    },

    /// `--device` names no model of the device table.
    #[error(transparent)]
    UnknownDevice(#[from] devices::UnknownDevice),

    /// A Pillion or Orion file is wrong.
    #[error(transparent)]
    Profiler(Box<profiler::Error>),
}

/// The causes that are found in several places.
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

/// What to do about a cut export of Nsight Systems.
pub(crate) const EXPORT_AGAIN: &str =
    "export it again with `nsys export --type sqlite`, and copy the whole file";

/// Most characters of what another library says.
const REASON_CHARS_MAX: usize = 200;

/// What another library says, as one line of some length: it may quote the file.
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_reason_is_one_line() {
        assert_eq!(super::reason(&"a\n b"), "a  b");
        assert!(super::reason(&"x".repeat(1000)).chars().count() <= 201);
    }
}

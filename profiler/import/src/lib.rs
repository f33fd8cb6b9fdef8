//! Makes a Pillion profile from files of Nsight Systems, Nsight Compute and PyTorch. Three steps,
//! each in its own module and independent of the next:
//! 1. [`detect`](mod@detect) recognises a file's format by its content; one reader per format turns
//!    it into a [`Source`]: launches, their kernels, and the GPUs they ran on ([`source`]). A
//!    reader reports what the file states and judges nothing. Its [`Error`]s state the remedy.
//! 2. [`reduce`](mod@reduce) makes one profile of the sources: one entry per kernel and shape, with
//!    quantiles, blocks per SM ([`occupancy`]) and class ([`classify`](mod@classify)).
//! 3. [`profiler::Profile::write`] writes it.
//!
//! Files come from other people and machines, so they are untrusted: no unsafe code, no panic on
//! any input, a bound on everything that is kept ([`limits`]). They also carry private data
//! (environment, user and host names, command lines): readers request named columns and keys only,
//! and nothing else reaches a profile. `profiler` is linked into the library that is preloaded into
//! other people's programs, where SQLite, gzip and JSON have no place; so this is a crate of its
//! own, and only `cli` depends on it.
//!
//! Units: times are nanoseconds (`_ns`), sizes bytes (`_bytes`), ratios percent of a peak (`_pct`).

pub mod check;
pub mod classify;
pub mod compare;
pub mod detect;
pub mod error;
pub mod gpu;
mod input;
mod known;
pub mod limits;
pub mod name;
mod ncu;
mod nsys_sqlite;
mod nsys_stats;
pub mod occupancy;
pub mod reduce;
pub mod roofline;
pub mod scrub;
pub mod source;
mod trace;

use std::path::Path;

pub use check::check;
pub use detect::{Format, detect};
pub use error::Error;
pub use gpu::Gpu;
pub use limits::Limits;
pub use name::Names;
pub use reduce::{Options, reduce};
pub use roofline::roofline;
pub use scrub::scrub;
pub use source::{Kernel, Launch, Source};

/// A reader's inputs beside its file.
pub struct Context<'a> {
    /// The bounds.
    pub limits: Limits,
    /// Receives the progress and the total, in the reader's units (bytes, rows); 0 if unknown.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

/// Reads the file at `path`, of any supported format.
/// # Errors
/// Unreadable, no supported format, or nothing to import: see the variants of [`Error`].
pub fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    match detect(path)? {
        Format::NsysSqlite => nsys_sqlite::read(path, context),
        Format::NsysParquet => Err(Error::not_suitable(
            path,
            "a Parquet export of Nsight Systems, which is not supported",
            "export the report with `nsys export --type sqlite` instead",
        )),
        Format::NcuCsv | Format::NcuText => ncu::csv::read(path, context),
        Format::NcuReport => ncu::report::read(path, context),
        Format::NsysStats => nsys_stats::read(path, context),
        Format::Json => trace::read(path, context),
        Format::Profiler => known::read(path),
        Format::Archive => Err(Error::not_suitable(
            path,
            "an archive of several files",
            format!(
                "unpack it (tar -xf {}), and import the files in it",
                path.display()
            ),
        )),
        Format::NsysText => Err(Error::not_suitable(
            path,
            "the human-readable tables of nsys, which are truncated",
            "use `nsys stats --report cuda_gpu_trace --format csv`, or better export the \
                     report with `nsys export --type sqlite` and import that",
        )),
        Format::NsysReport { version } => Err(Error::NeedsExport {
            path: path.to_owned(),
            found: format!("an Nsight Systems report ({version}), whose format is not public"),
            command: format!(
                "nsys export --type sqlite -o profile.sqlite {}",
                path.display()
            ),
        }),
        other => Err(Error::unknown_format(path, other.description().to_owned())),
    }
}

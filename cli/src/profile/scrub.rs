//! `pillion profile scrub`: an export that can be shared.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::output;
use crate::failure::Failure;

/// Copies of an SQLite export of Nsight Systems only what an import reads, so that it can be shared:
/// no environment, output, user, host or file names. Names of kernels and ranges stay.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion profile scrub job.sqlite job.shared.sqlite")]
pub(crate) struct Options {
    /// The export.
    input: PathBuf,
    /// Where to write the copy; a file that is there is replaced.
    output: PathBuf,
}

/// Exit 2, and nothing written, for what is no export.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let format = import::detect(&options.input).map_err(Failure::usage)?;
    if format != import::Format::NsysSqlite {
        let error = anyhow!(
            "{}: {}; only SQLite exports of Nsight Systems are scrubbed, and profiles hold nothing private",
            options.input.display(),
            format.description(),
        );
        return Err(Failure::usage(error));
    }
    let folder = output::folder(&options.output);
    // SQLite makes the file itself, so it gets a folder of its own until it is whole.
    let temporary = tempfile::tempdir_in(folder)?;
    let copy = temporary.path().join("copy.sqlite");
    import::scrub(&options.input, &copy).map_err(Failure::usage)?;
    std::fs::rename(&copy, &options.output)?;
    Ok(())
}

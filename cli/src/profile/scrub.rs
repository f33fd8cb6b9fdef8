//! `pillion profile scrub`: makes a profiler's file fit for sharing.

use std::path::PathBuf;

use clap::Args;
use import::{Context, Limits};

use super::output;
use super::progress::Progress;
use crate::failure::Failure;

/// Copies only the parts of a profiler's file that an import reads, so that the copy can be shared:
/// no environment, output, user, host or file names, no stacks, no command lines. Names of kernels
/// and ranges stay. For SQLite exports of Nsight Systems, CSV of Nsight Compute, and traces of
/// PyTorch.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion profile scrub job.sqlite job.shared.sqlite")]
pub(crate) struct Options {
    /// The profiler's file.
    input: PathBuf,
    /// File for the copy; an existing file is replaced.
    output: PathBuf,
    /// Limit on the bytes read from the file, after decompression.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes_max)]
    max_bytes: u64,
}

/// Exits 2, with nothing written, for a file that cannot be imported or needs no scrubbing.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let folder = output::folder(&options.output);
    // The copy stays in its own folder until it is complete.
    let unwritten = |error| output::unwritten(&options.output, error);
    let temporary = tempfile::tempdir_in(folder).map_err(unwritten)?;
    let copy = temporary.path().join("copy");
    let mut progress = Progress::new(&options.input);
    let mut context = Context {
        limits: Limits {
            bytes_max: options.max_bytes,
        },
        progress: &mut |done, total| progress.handle(done, total),
    };
    import::scrub(&options.input, &copy, &mut context).map_err(Failure::usage)?;
    // As `output::write` does.
    if std::fs::metadata(&options.output).is_ok_and(|found| !found.is_file()) {
        let output = std::fs::OpenOptions::new()
            .write(true)
            .open(&options.output);
        let copied = output.and_then(|mut output| {
            std::io::copy(&mut std::fs::File::open(&copy)?, &mut output).map(drop)
        });
        copied.map_err(unwritten)
    } else {
        std::fs::rename(&copy, &options.output).map_err(unwritten)
    }
}

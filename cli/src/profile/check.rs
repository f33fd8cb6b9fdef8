//! `pillion profile check`: reports whether a profile can be used, and what it lacks.

use std::path::PathBuf;

use clap::Args;
use profiler::Profile;

use crate::failure::Failure;
use crate::out;

/// Checks a profile: reports errors, with file, line and column, or data that the profile lacks.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion profile check job.profile.toml")]
pub(crate) struct Options {
    /// A profile, a trace, or an Orion kernel file.
    file: PathBuf,
}

/// Exits 0 for a usable profile, whatever it lacks; 2 otherwise.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let profile = Profile::load(&options.file).map_err(Failure::usage)?;
    out::line(format_args!("{}: ok", options.file.display()))?;
    for doubt in import::check(&profile).iter().chain(&profile.notices) {
        out::line(format_args!("  {doubt}"))?;
    }
    Ok(())
}

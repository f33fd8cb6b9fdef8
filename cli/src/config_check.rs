//! `pillion config check`: whether a daemon would accept a file.

use std::path::PathBuf;

use clap::Args;
use scheduler::config::Config;

use crate::failure::Failure;
use crate::out;

/// Checks a daemon's configuration file and says what is wrong in it, with file, line and column.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion config check examples/gpu0.toml")]
pub(crate) struct Options {
    /// The TOML file of one GPU's daemon.
    file: PathBuf,
}

/// Exit 0 if the file is right, 2 with every fault if it is not.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    Config::load(&options.file).map_err(Failure::usage)?;
    out::line(format_args!("{}: ok", options.file.display()))
}

//! `pillion config check`: whether a daemon would accept a file.

use std::path::PathBuf;

use clap::Args;
use scheduler::config::Config;

use crate::failure::Failure;
use crate::out;

/// Checks a daemon's configuration file and says what is wrong in it, with file, line and column.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion config check examples/gpu0.toml\n\n\
                  Of programs that rules run, and of logs of MPS, that are not on this machine it warns.")]
pub(crate) struct Options {
    /// The TOML file of one GPU's daemon.
    file: PathBuf,
}

/// Exit 0 if the file is right, with a warning on standard error for each program and log in it that is not here; 2 with every fault if it is not.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let config = Config::load(&options.file).map_err(Failure::usage)?;
    for doubt in [config.missing_programs(), config.mps.missing_logs()].concat() {
        out::note(format_args!(
            "pillion: {}: warning: {doubt}",
            options.file.display()
        ));
    }
    out::line(format_args!("{}: ok", options.file.display()))
}

//! `pillion config`: works on the files from which daemons read their configuration.

mod check;
mod show;

use clap::Subcommand;

use crate::failure::Failure;

/// Checks or shows the configuration of daemons.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(check::Options),
    Show(show::Options),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check(options) => check::run(options),
        Command::Show(options) => show::run(options),
    }
}

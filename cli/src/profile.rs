//! `pillion profile`: kernel profiles.

use clap::Subcommand;

use crate::failure::Failure;

mod check;
mod compare;
mod import;
mod learnt;
pub(crate) mod output;
mod progress;
mod record;
mod scrub;
mod show;

/// Works on kernel profiles.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Import(import::Options),
    Record(record::Options),
    Show(show::Options),
    Compare(compare::Options),
    Check(check::Options),
    Scrub(scrub::Options),
    Learnt(learnt::Options),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Import(options) => import::run(options),
        Command::Record(options) => record::run(options),
        Command::Show(options) => show::run(options),
        Command::Compare(options) => compare::run(options),
        Command::Check(options) => check::run(options),
        Command::Scrub(options) => scrub::run(options),
        Command::Learnt(options) => learnt::run(options),
    }
}

//! `pillion completions` and `pillion man`: shell completions and manual pages from the commands.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Failure;
use crate::out;

/// Prints a script that completes pillion's commands and options in a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion completions bash > /usr/share/bash-completion/completions/pillion"
)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Writes a manual page for every command.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion man -o /usr/share/man/man1")]
pub(crate) struct Manual {
    /// The folder for the pages; it must exist.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub(crate) fn completions(options: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "pillion", &mut script);
    out::text(&String::from_utf8_lossy(&script))
}

/// Exits 2 if the folder cannot be written.
pub(crate) fn manual(options: &Manual) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), &options.output)
        .with_context(|| format!("{}", options.output.display()))
        .map_err(Failure::usage)
}

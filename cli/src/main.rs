//! `pillion`: the command line. The commands, their output and their exit codes are a contract: 0
//! done, 1 failed, 2 usage or unusable input (nothing written), 69 the daemon is required and not
//! reachable, 141 the reader of the output has closed it. `run` and `profile record` exit as their
//! command does; `run` exits 126 or 127 if the command cannot be started. A table is for people,
//! `--json` for programs.
// `println!` and `eprintln!` panic if the reader has closed the pipe; see `out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod artifacts;
mod cdi;
mod config;
mod daemons;
mod deferred;
mod demo;
mod doctor;
mod drain;
mod events;
mod exporter;
mod failure;
mod generate;
mod mps;
mod out;
mod perfetto;
mod profile;
mod program;
mod resume;
mod run;
mod set;
mod simulate;
mod status;
mod stop;
mod svg;
mod times;
mod top;
mod trace;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Lets several CUDA jobs share one NVIDIA GPU without hurting the job that matters.
#[derive(Debug, Parser)]
#[command(
    name = "pillion",
    version,
    after_help = "Example: pillion demo\n\nEvery command has --help with an example."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Options),
    Demo(demo::Options),
    Status(status::Options),
    Top(top::Options),
    Set(set::Options),
    Stop(stop::Options),
    Events(events::Options),
    Exporter(exporter::Options),
    Trace(trace::Options),
    Drain(drain::Options),
    Resume(resume::Options),
    Doctor(doctor::Options),
    Completions(generate::Completions),
    Man(generate::Manual),
    Workload(workload::Options),
    Simulate(simulate::Options),
    #[command(subcommand)]
    Config(config::Command),
    #[command(subcommand)]
    Cdi(cdi::Command),
    #[command(subcommand)]
    Profile(profile::Command),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| run::told_of_dashes(error).exit());
    let result = match cli.command {
        Command::Run(options) => run::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Set(options) => set::run(&options),
        Command::Stop(options) => stop::run(&options),
        Command::Events(options) => events::run(&options),
        Command::Exporter(options) => exporter::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Drain(options) => drain::run(&options),
        Command::Resume(options) => resume::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions(options) => generate::completions(&options),
        Command::Man(options) => generate::manual(&options),
        Command::Workload(options) => workload::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Profile(command) => profile::run(&command),
        Command::Config(command) => config::run(&command),
        Command::Cdi(command) => cdi::run(&command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

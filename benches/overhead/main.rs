//! `cargo bench -p pillion-benches`: Pillion's cost at every place where it intervenes.
//!
//! Needs no GPU and uses none. The driver is the stand-in of `softgpu/driver`, for all parts except
//! one in its null mode, where a launch succeeds at once, so that the rest is Pillion. The library,
//! the stand-in and the daemon are the shipped ones, built here in release mode first, in real
//! processes.
//!
//! | part | measures | module |
//! |---|---|---|
//! | launch | `cuLaunchKernel` and `cuMemAlloc` in each state of a process | [`launch`] |
//! | attach | becoming a client of a daemon | [`attach`] |
//! | preload | starting `/bin/true` with the library preloaded | [`preload`] |
//! | torch | `import torch` with the library preloaded | [`import_torch`] |
//! | threads | our threads and `pilliond` beside a job with a busy software GPU | [`threads`] |
//! | events | launches beside our helper thread, if event calls hold a lock | [`events`] |
//! | daemon | `pilliond` without clients | [`idle`] |
//! | ring | the push and the charge alone | [`ring`] |
//!
//! Each number with a target is compared with it; a miss fails the run only with `--check`. A
//! number that was not measured in the stated state always fails the run: see [`launch::check`].

mod artifacts;
mod attach;
mod child;
mod driver;
mod events;
mod idle;
mod import_torch;
mod launch;
mod preload;
mod processes;
mod profile;
mod ring;
mod tasks;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use benches::bench::{self, Options};
use benches::machine::Machine;
use benches::report::{Report, Row};
use benches::timer::Timer;
use clap::{Parser, ValueEnum};

use crate::artifacts::Artifacts;

/// Measures what Pillion costs: launches, process starts, an idle daemon. Uses no GPU.
#[derive(Parser)]
#[command(name = "overhead", after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Write the table as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Measure the artifacts in this folder instead of building them (to measure another commit
    /// or another cargo profile).
    #[arg(long, value_name = "FOLDER")]
    built: Option<PathBuf>,
    /// Measure only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<Part>,
    /// This process is a child that measures or keeps it company; see the `child` module.
    #[arg(long, hide = true, value_name = "TASK")]
    child: Option<String>,
}

const AFTER_HELP: &str = "\
Example:
  cargo bench -p pillion-benches -- --quick
  cargo bench -p pillion-benches -- --json results/mine.json

Exit codes: 0 success; 1 a measurement failed or, with --check, a target was missed.";

/// A part of the run, in the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Ring,
    Launch,
    Preload,
    Torch,
    Attach,
    Daemon,
    Threads,
    Events,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(task) = &arguments.child {
        return bench::outcome("overhead", child::run(task).map(|()| true));
    }
    arguments.options.run("overhead", || run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let artifacts = Artifacts::new(arguments.built.as_deref())?;
    let timer = Timer::calibrated();
    let quick = arguments.options.quick;
    let mut rows: Vec<Row> = Vec::new();
    for part in Part::value_variants() {
        if !arguments.only.is_empty() && !arguments.only.contains(part) {
            continue;
        }
        rows.extend(match part {
            Part::Ring => ring::measure(&timer, quick),
            Part::Launch => launch::measure(&artifacts, quick),
            Part::Preload => preload::measure(&artifacts, quick),
            Part::Torch => import_torch::measure(&artifacts, quick),
            Part::Attach => attach::measure(&artifacts, quick),
            Part::Daemon => idle::measure(&artifacts, quick),
            Part::Threads => threads::measure(&artifacts, quick),
            Part::Events => events::measure(&artifacts, quick),
        }?);
    }
    let report = Report::new(machine, quick, rows);
    if let Some(file) = &arguments.markdown {
        bench::write(file, &report.to_markdown())?;
    }
    let machine = &report.machine;
    let notes = format!(
        "No GPU involved. {}; commit {}; load {:.2} before.",
        machine.kind(),
        machine.commit,
        machine.load_1min
    );
    arguments.options.publish(report, &notes)
}

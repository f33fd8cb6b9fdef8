//! `cargo bench -p pillion-benches --bench gate`: the cost of a daemon's decision, and how long
//! best-effort work still goes after high-priority work has arrived.
//!
//! Both are measured on the daemon's own code and on the pages that it makes, within one process:
//! no GPU, no driver, no library. The bench `overhead` measures what a launch pays for the check of
//! its lease ("BE inside its lease").
//!
//! | rows | measured | target |
//! |---|---|---|
//! | decision | one poll | 1 us; with caps, a throttle and a share 0.7 us |
//! | arrival | delay of the last admitted best-effort launch | 2 us |
//!
//! A poll handles rings, sums, law and leases, with two high-priority and six best-effort clients.
//! The delay begins with the first step of a high-priority launch.

mod arrival;
mod clients;
mod decision;

use std::process::ExitCode;

use benches::bench::{self, Options};
use benches::machine::Machine;
use benches::report::{Report, Row};
use benches::timer::Timer;
use clap::Parser;

/// Measures the cost of a decision, and how fast a lease is revoked. Uses no GPU.
#[derive(Parser)]
#[command(name = "gate", after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Example:
  cargo bench -p pillion-benches --bench gate -- --quick

Exit codes: 0 success; 1 a measurement failed or, with --check, a target was missed.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.options.run("gate", || run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let timer = Timer::calibrated();
    let mut rows: Vec<Row> = decision::measure(&timer, arguments.options.quick)?;
    rows.extend(arrival::measure(&timer, arguments.options.quick)?);
    let report = Report::new(machine, arguments.options.quick, rows);
    let notes = bench::evidence(&report);
    arguments.options.publish(report, &notes)
}

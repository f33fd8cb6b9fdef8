//! `cargo bench -p pillion-benches --bench gate`: what a decision of the daemon costs, and how long best-effort work still goes
//! when high-priority work has arrived.
//!
//! Both are measured on the daemon's own code and on the pages that it makes, within one process: no GPU, no driver, no
//! library. What a launch pays for the check of its lease is a row of the other bench (`overhead`, "BE inside its lease").
//!
//! | rows | what | target |
//! |---|---|---|
//! | decision | one poll: rings, sums, law, leases, with two high-priority and six best-effort clients | 1 us |
//! | arrival | from the first step of a high-priority launch to the last best-effort launch that is still admitted | 2 us |

mod arrival;
mod clients;
mod decision;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use benches::machine::Machine;
use benches::report::{Report, Row, SCHEMA_VERSION};
use benches::timer::Timer;
use clap::Parser;

/// What a decision costs, and how fast a lease is revoked. No GPU involved.
#[derive(Parser)]
#[command(name = "gate", after_help = AFTER_HELP)]
struct Arguments {
    /// Writes the results as JSON (relative to `benches/` when cargo starts this).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A fifth of the measurements: for a look, not for keeping.
    #[arg(long)]
    quick: bool,
    /// Exits with 1 if a target is missed.
    #[arg(long)]
    check: bool,
    /// Cargo says so when it runs a bench, and not when it runs tests.
    #[arg(long, hide = true)]
    bench: bool,
}

const AFTER_HELP: &str = "\
Example:
  cargo bench -p pillion-benches --bench gate -- --quick

Exit codes: 0 measured; 1 could not be measured as it should, or (with --check) a target is missed.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.bench {
        println!("nothing is measured by `cargo test`; run cargo bench -p pillion-benches");
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(report) if report.passes() || !arguments.check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let timer = Timer::calibrated();
    let mut rows: Vec<Row> = decision::measure(&timer, arguments.quick)?;
    rows.extend(arrival::measure(&timer, arguments.quick)?);
    let report = Report {
        schema_version: SCHEMA_VERSION,
        no_gpu_involved: true,
        quick: arguments.quick,
        machine,
        rows,
    };
    println!("{}\n", report.to_table());
    for row in &report.rows {
        println!("{}: {}", row.name, row.evidence.join("; "));
    }
    if let Some(file) = &arguments.json {
        let text = report.to_json();
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(report)
}

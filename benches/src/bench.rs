//! Every bench's command line, its end, and its report.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::report::Report;

/// Options of every bench.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Write the results as JSON (cargo resolves a relative path from `benches/`).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run a fifth of the measurements: for a quick check, not for results to keep.
    #[arg(long)]
    pub quick: bool,
    /// Exit with 1 if a target is missed.
    #[arg(long)]
    check: bool,
    /// Passed by cargo when it runs a bench, but not when it runs tests.
    #[arg(long, hide = true)]
    pub bench: bool,
}

impl Options {
    /// Measures, unless cargo runs tests, and returns the exit code.
    pub fn run(&self, name: &str, measure: impl FnOnce() -> anyhow::Result<Report>) -> ExitCode {
        if !self.bench {
            return nothing_is_measured();
        }
        outcome(name, measure().map(|report| report.passes() || !self.check))
    }

    /// Prints a report, with `notes` below its table, and writes it where the options say.
    /// # Errors
    /// A file cannot be written.
    pub fn publish(&self, report: Report, notes: &str) -> anyhow::Result<Report> {
        println!("{}\n\n{notes}", report.to_table());
        if let Some(file) = &self.json {
            write(file, &report.to_json())?;
        }
        Ok(report)
    }
}

/// `cargo test --all-targets` runs benches too, and expects them to be quick.
pub fn nothing_is_measured() -> ExitCode {
    println!("`cargo test` measures nothing; run `cargo bench -p pillion-benches`");
    ExitCode::SUCCESS
}

/// The exit code for a bench's result.
pub fn outcome(name: &str, result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The evidence for each row, a line each.
#[must_use]
pub fn evidence(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.rows {
        let _ = writeln!(text, "{}: {}", row.name, row.evidence.join("; "));
    }
    text.trim_end().to_owned()
}

/// Writes a file; the error names it.
/// # Errors
/// It cannot be written.
pub fn write(file: &PathBuf, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// `cargo build` of packages to be measured.
#[must_use]
pub fn cargo_build(packages: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("build")
        .args(packages.iter().flat_map(|package| ["-p", *package]));
    command
}

/// Signals the end to other threads when dropped, whatever happens.
#[derive(Debug)]
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

//! `pillion doctor`: finds problems that keep Pillion from working here, and names their fixes.
//! Every check sees the machine as a job of this user would, and changes nothing. An *error* makes
//! jobs fail or run unmanaged; a *warning* may be intended. A machine without a daemon is no error:
//! jobs run there as without Pillion.

mod bundle;
mod daemons;
mod driver;
mod environment;
mod mps;
mod preload;
mod program;
mod unmanaged;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::out;
use crate::status::{self, table, width, wrap};

/// Checks driver, library, daemons, MPS, configuration and profiles, and names the fix for each
/// problem.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion doctor python\n\n\
                  With PROGRAM, it also checks whether the library can be preloaded into that program. \
                  Exit code 1 if any check is an error.\n\n\
                  For an error report: pillion doctor --bundle pillion.tar.gz. The bundle contains each daemon's status and events, and \
                  configurations, logs and versions. Names of jobs, programs, users, this host and paths are replaced (job-1, user-1). \
                  Only environment variables of a fixed list keep their values. manifest.json in the bundle lists what was replaced \
                  and what was kept. Inspect the bundle before you send it.")]
pub(crate) struct Options {
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Write an error report, with names replaced, to a new archive (.tar.gz); `-` is standard
    /// output. Exit code 0 whatever the checks found.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Configuration files to check; those in /etc/pillion if none is given.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// A program that you want to run as a job.
    #[arg(value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

#[derive(Debug)]
struct Finding {
    subject: String,
    verdict: Verdict,
    found: String,
    /// The fix; empty if none is needed.
    mend: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warning,
    Error,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Finding {
    fn ok(subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            verdict: Verdict::Ok,
            found: found.into(),
            mend: String::new(),
        }
    }

    fn warning(
        subject: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            verdict: Verdict::Warning,
            found: found.into(),
            mend: mend.into(),
        }
    }

    fn error(
        subject: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Error,
            ..Self::warning(subject, found, mend)
        }
    }

    fn json(&self) -> Value {
        json!({
            "check": self.subject,
            "verdict": self.verdict.word(),
            "found": self.found,
            "mend": (!self.mend.is_empty()).then_some(&self.mend),
        })
    }
}

/// Exits 0 if there is no error, 1 if there is.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let findings = examine(options);
    if let Some(path) = &options.bundle {
        return bundle::run(options, path, &findings);
    }
    let errors = count(&findings, Verdict::Error);
    if options.json {
        let checks: Vec<Value> = findings.iter().map(Finding::json).collect();
        out::line(format_args!(
            "{}",
            json!({"schema_version": 1, "errors": errors, "checks": checks})
        ))?;
    } else {
        let text = match status::columns_given() {
            Some(columns) => fitted(&findings, columns),
            None => rendered(&findings),
        };
        out::line(format_args!("{text}"))?;
    }
    if errors > 0 {
        return Err(Failure::silent());
    }
    Ok(())
}

fn examine(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    let gpus = driver::examine(&mut findings);
    preload::examine(&mut findings);
    if let Some(program) = &options.program {
        findings.push(program::examine(program));
    }
    let daemons = daemons::examine(&mut findings, &gpus);
    mps::examine(&mut findings, &daemons);
    environment::examine(&mut findings, &options.config);
    findings
}

fn count(findings: &[Finding], verdict: Verdict) -> usize {
    findings.iter().filter(|f| f.verdict == verdict).count()
}

fn rendered(findings: &[Finding]) -> String {
    let mut rows = table(&["VERDICT", "CHECK", "FOUND"]);
    for finding in findings {
        rows.add_row([finding.verdict.word(), &finding.subject, &finding.found]);
        if !finding.mend.is_empty() {
            rows.add_row(["", "", &format!("-> {}", finding.mend)]);
        }
    }
    format!("{rows}\n\n{}", summary(findings))
}

/// The table for a terminal with this many columns: findings are wrapped.
fn fitted(findings: &[Finding], columns: usize) -> String {
    let widest = findings.iter().map(|finding| width(&finding.subject));
    let subject_columns = widest.max().unwrap_or(0).min(columns / 3);
    let indented = " ".repeat(VERDICT_COLUMNS + 2 + subject_columns + 2);
    let mut lines = Vec::new();
    for finding in findings {
        let verdict = format!("{:<VERDICT_COLUMNS$}  ", finding.verdict.word());
        let subject = &finding.subject;
        let found = finding.found.replace('\n', " ");
        match subject_columns.checked_sub(width(subject)) {
            Some(spare) => {
                let first = format!("{verdict}{subject}{}  ", " ".repeat(spare));
                lines.extend(wrap(&found, columns, &first, &indented));
            }
            None => {
                let hanging = " ".repeat(verdict.len());
                lines.extend(wrap(subject, columns, &verdict, &hanging));
                lines.extend(wrap(&found, columns, &indented, &indented));
            }
        }
        if !finding.mend.is_empty() {
            let (mend, hanging) = (format!("-> {}", finding.mend), format!("{indented}   "));
            lines.extend(wrap(&mend.replace('\n', " "), columns, &indented, &hanging));
        }
    }
    lines.push(String::new());
    lines.extend(wrap(&summary(findings), columns, "", ""));
    lines.join("\n")
}

fn summary(findings: &[Finding]) -> String {
    let counted = |verdict: Verdict| match count(findings, verdict) {
        1 => format!("1 {}", verdict.word()),
        several => format!("{several} {}s", verdict.word()),
    };
    format!(
        "{} ok, {}, {}",
        count(findings, Verdict::Ok),
        counted(Verdict::Warning),
        counted(Verdict::Error),
    )
}

const VERDICT_COLUMNS: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_word_is_lost() {
        let long = "libcuda.so.1 of driver 550.54.15 is there, and /dev/nvidia0 may not be opened by this user";
        let found = [
            Finding::ok("driver", "550.54.15"),
            Finding::error(
                "daemon of GPU-5a3c1e77-9b1d-4d0a-8f6e-2c40d1b7a911",
                long,
                long,
            ),
        ];
        for columns in 20..200 {
            let text = fitted(&found, columns);
            for line in text.lines() {
                assert!(width(line) <= columns, "{columns}: {line:?}");
            }
        }
        let text = fitted(&found, 80);
        let words: Vec<&str> = text.split_whitespace().collect();
        for word in long.split(' ').chain(["error", "driver", "1"]) {
            assert!(words.contains(&word), "no {word} in {text}");
        }
    }
}

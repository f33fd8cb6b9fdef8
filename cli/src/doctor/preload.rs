//! Checks that the preload library exists and loads into a program of this machine.

use std::path::Path;
use std::process::Command;

use scheduler::report::told_once;

use super::Finding;
use crate::artifacts;

/// Every machine has one of these; it exits at once.
const PROGRAMS: [&str; 2] = ["/bin/true", "/usr/bin/true"];

pub(super) fn examine(findings: &mut Vec<Finding>) {
    const SUBJECT: &str = "preload library";
    let library = match artifacts::find(artifacts::LIBRARY) {
        Ok(library) => library,
        Err(error) => {
            let mend = "without it Pillion cannot manage any job: build or install it";
            findings.push(Finding::error(SUBJECT, told_once(error.as_ref()), mend));
            return;
        }
    };
    findings.push(try_out(SUBJECT, &library));
}

fn try_out(subject: &str, library: &Path) -> Finding {
    let path = library.display().to_string();
    if path.contains([' ', ':']) {
        return Finding::error(
            subject,
            path,
            "LD_PRELOAD accepts no path with a space or a colon: move the library",
        );
    }
    let Some(program) = PROGRAMS.iter().find(|program| Path::new(program).exists()) else {
        return Finding::warning(subject, path, "not tested: this machine has no /bin/true");
    };
    let output = Command::new(program)
        .env("LD_PRELOAD", library)
        .env_remove("PILLION_LOG")
        .output();
    match output {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            Finding::ok(subject, format!("{path}, loads into {program}"))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("empty").trim().to_owned();
            Finding::error(
                subject,
                format!(
                    "{program} with {path}: {}; standard error: {said}",
                    output.status
                ),
                "the library must be readable and built for this machine's C library (releases \
                 are built for glibc 2.17 and later)",
            )
        }
        Err(error) => Finding::error(
            subject,
            format!("{program}: {error}"),
            "check that this user may run it",
        ),
    }
}

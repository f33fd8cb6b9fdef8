//! Checks the daemons: one for each GPU, reachable by this user's jobs, of this version.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use protocol::hello::{HelloError, ask_status, socket_folders, socket_paths};
use scheduler::config::gpu::Gpu;
use serde_json::Value;

use super::{Finding, unmanaged};
use crate::profile::output::counted;
use crate::status;

pub(super) fn examine(findings: &mut Vec<Finding>, gpus: &[Gpu]) -> Vec<Value> {
    let answers = ask_all(findings, gpus);
    findings.extend(answers.iter().flat_map(passed_by));
    findings.extend(answers.iter().filter_map(blind));
    findings.extend(answers.iter().filter_map(slow));
    findings.extend(answers.iter().filter_map(in_trouble));
    findings.extend(answers.iter().filter_map(unmanaged::of));
    answers
}

fn uuid(status: &Value) -> &str {
    status["gpu"]["uuid"].as_str().unwrap_or("?")
}

/// A throttle without measurements of the GPU's utilisation.
fn blind(status: &Value) -> Option<Finding> {
    let throttle = &status["policy"]["throttle"];
    (throttle["blind"] == true).then_some(())?;
    let rate = throttle["rate"].as_f64().unwrap_or(1.0) * 100.0;
    Some(Finding::warning(
        format!("throttle of {}", uuid(status)),
        format!(
            "NVML has not reported the GPU's utilisation for 10 s: best-effort jobs keep {rate:.0} % of the time"
        ),
        "check that `nvidia-smi` shows the GPU's utilisation (with MIG it does not) and that the daemon finds libnvidia-ml.so.1; \
         if NVML cannot report it here, remove [throttle] and use `pillion run --compute` or [share]",
    ))
}

/// A GPU whose clock is limited by power or heat.
fn slow(status: &Value) -> Option<Finding> {
    status.pointer("/gpu/device/slowed_by")?.as_str()?;
    Some(Finding::warning(
        format!("clock of {}", uuid(status)),
        status::stands(status)?,
        "kernels take longer than at the full clock. Power: raise the limit (`nvidia-smi --power-limit`), or leave more of the GPU idle \
         ([throttle] utilisation). Heat: improve the cooling. See docs/faults.md (`slowed-down`)",
    ))
}

/// The probe's verdict on the GPU; none without a probe.
fn in_trouble(status: &Value) -> Option<Finding> {
    let probe = status.pointer("/gpu/probe")?;
    let subject = format!("probe of {}", uuid(status));
    let words = status::probe(status)?;
    let words = words.trim_start_matches("probe: ").to_owned();
    let is_blind = probe["blind"] == true;
    match probe["state"].as_str()? {
        "healthy" | "init" if !is_blind => Some(Finding::ok(subject, words)),
        "healthy" | "init" => Some(Finding::warning(
            subject,
            words,
            "check that `nvidia-smi` shows the GPU's memory, clock and temperature, and that the daemon finds libnvidia-ml.so.1",
        )),
        "disabled" => Some(Finding::error(
            subject,
            words,
            "check `dmesg` for Xid 79; docs/faults.md describes how to reset a GPU",
        )),
        _ => Some(Finding::warning(
            subject,
            words,
            "new best-effort jobs wait. Fix the cause that the metric shows; `pillion resume` releases the jobs that wait now; \
             [probe] sets the bounds (docs/operating.md)",
        )),
    }
}

fn passed_by(status: &Value) -> Vec<Finding> {
    let jobs = status["jobs"].as_array().into_iter().flatten();
    let find = |job: &Value| {
        let count = |counter| job["totals"][counter].as_u64().unwrap_or(0);
        let (libraries, functions) = (count("bypasses"), count("launch_functions_passed_by"));
        let found = [
            (libraries, "library", "libraries"),
            (functions, "launch function", "launch functions"),
        ];
        let found = found.into_iter().filter(|(number, ..)| *number > 0);
        let found: Vec<String> = found
            .map(|(number, one, many)| counted(number, one, many))
            .collect();
        let bypass = match libraries + functions {
            1 => "bypasses",
            _ => "bypass",
        };
        (!found.is_empty()).then(|| {
            Finding::warning(
                format!("job {}", job["job"].as_str().unwrap_or("?")),
                format!("{} of the job {bypass} Pillion", found.join(" and ")),
                "Pillion neither sees nor holds these launches: start the job with `pillion run --shim`; the job's own messages name them",
            )
        })
    };
    jobs.filter_map(find).collect()
}

fn ask_all(findings: &mut Vec<Finding>, gpus: &[Gpu]) -> Vec<Value> {
    let mut answers = Vec::new();
    if let Some(path) = std::env::var_os("PILLION_SOCKET").filter(|v| !v.is_empty()) {
        let path = PathBuf::from(path);
        let subject = format!("daemon at {}", path.display());
        match ask(&path) {
            Ok(status) => {
                findings.push(judge(subject, &status));
                answers.push(status);
            }
            Err(error) => findings.push(unreachable_daemon(subject, &path, &error)),
        }
        return answers;
    }
    for gpu in gpus {
        let subject = format!("daemon of {}", gpu.uuid);
        let finding = of_gpu(subject, gpu, &mut answers);
        findings.push(finding);
    }
    answers
}

fn of_gpu(subject: String, gpu: &Gpu, answers: &mut Vec<Value>) -> Finding {
    let mut absent = None;
    for path in socket_paths(&gpu.uuid) {
        match ask(&path) {
            Ok(status) => {
                let finding = judge(subject, &status);
                answers.push(status);
                return finding;
            }
            // The next folder may have a socket.
            Err(HelloError::Io(error)) if error.kind() == ErrorKind::NotFound => {
                absent = Some(path);
            }
            Err(error) => return unreachable_daemon(subject, &path, &error),
        }
    }
    let folders: Vec<_> = socket_folders()
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    let name = absent.as_deref().and_then(Path::file_name);
    let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Finding::warning(
        subject,
        format!("no daemon: no {name} in {}", folders.join(" or ")),
        "jobs on this GPU run as without Pillion; start a daemon: pilliond --config FILE (an \
         example with every key: examples/gpu0.toml)",
    )
}

fn ask(path: &Path) -> Result<Value, HelloError> {
    serde_json::from_str(&ask_status(path)?)
        .map_err(|_| HelloError::Malformed("the status is not JSON"))
}

fn unreachable_daemon(subject: String, path: &Path, error: &HelloError) -> Finding {
    let name = path.display().to_string();
    let found = match subject.contains(&name) {
        true => error.to_string(),
        false => format!("{name}: {error}"),
    };
    let kind = match error {
        HelloError::Io(error) => Some(error.kind()),
        _ => None,
    };
    let mend = match kind {
        Some(ErrorKind::PermissionDenied) => {
            "this user may not use the socket: grant read and write access to it, or run a daemon \
             as this user"
        }
        Some(ErrorKind::ConnectionRefused) => {
            "the daemon that created the socket has exited: start it again; it replaces the socket"
        }
        Some(ErrorKind::NotFound) => {
            "no daemon has this socket: start one, or unset PILLION_SOCKET"
        }
        _ => "the daemon may have another version: restart it with this version",
    };
    Finding::error(subject, found, mend)
}

fn judge(subject: String, status: &Value) -> Finding {
    let text = |pointer: &str| match status.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "?".to_owned(),
    };
    let found = format!(
        "pilliond {} (pid {}), policy {}, {}, {}",
        text("/daemon/version"),
        text("/daemon/pid"),
        text("/policy/name"),
        status::shared(&status["gpu"]),
        counted(
            status["jobs"].as_array().map_or(0, Vec::len) as u64,
            "job",
            "jobs"
        ),
    );
    if status["draining"].is_string() {
        let why = status::for_faults(status).join("; ");
        let mend = "if a fault is the reason, repair the GPU as docs/faults.md describes, then run `pillion resume`; `pillion events` has details";
        return Finding::error(subject, format!("{found}; {why}"), mend);
    }
    if text("/daemon/version") != env!("CARGO_PKG_VERSION") {
        let mend = concat!(
            "this pillion is ",
            env!("CARGO_PKG_VERSION"),
            ": restart the daemon after an update"
        );
        return Finding::warning(subject, found, mend);
    }
    let held = status::for_faults(status);
    if !held.is_empty() {
        let mend =
            "see `pillion events` and docs/faults.md for the fault, then run `pillion resume`";
        return Finding::warning(subject, format!("{found}; {}", held.join("; ")), mend);
    }
    Finding::ok(subject, found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_blind_throttle_and_a_slow_gpu_are_warnings_that_say_what_to_do() {
        let device = json!({"slowed_by": "heat (SwThermalSlowdown)", "clock_mhz": 1200, "clock_max_mhz": 1590});
        let status = json!({
            "gpu": {"uuid": "GPU-1", "device": device}, "policy": {"throttle": {"blind": true, "rate": 0.42}}
        });
        let findings = [blind(&status).unwrap(), slow(&status).unwrap()];
        assert!(
            findings
                .iter()
                .all(|finding| finding.json()["verdict"] == "warning")
        );
        assert!(
            findings
                .iter()
                .all(|finding| !finding.mend.is_empty() && !finding.mend.contains("  "))
        );
        assert_eq!(
            findings[1].found,
            "1200 of 1590 MHz, held down by heat (SwThermalSlowdown)"
        );
        assert!(
            findings[0].found.ends_with("keep 42 % of the time"),
            "{}",
            findings[0].found
        );
        let well = json!({
            "gpu": {"uuid": "GPU-1", "device": {"slowed_by": null}}, "policy": {"throttle": {"blind": false}}
        });
        assert!(blind(&well).is_none() && slow(&well).is_none());
        assert!(blind(&json!({})).is_none() && slow(&json!({})).is_none());
    }
}

//! MPS: whether its control daemon runs, whether our daemons were told so, and what that means for jobs that are killed.

use serde_json::Value;

use super::Finding;
use crate::mps::Mps;
use crate::status;

pub(super) fn examine(findings: &mut Vec<Finding>, daemons: &[Value]) {
    const SUBJECT: &str = "MPS";
    let mps = Mps::look();
    let state = mps.state();
    // Where clients have said how they share the GPU, what was configured does not matter; what is
    // found out needs no check.
    let configured = daemons
        .iter()
        .filter(|status| status["gpu"]["sharing_known_by"] == "configuration");
    let told: Vec<&str> = configured
        .filter_map(|status| status["gpu"]["sharing"].as_str())
        .collect();
    findings.push(match (mps.pid, told.as_slice()) {
        (None, told) if told.contains(&"mps") => Finding::warning(
            SUBJECT,
            format!("{state}, but a daemon is configured with sharing = \"mps\""),
            "without MPS kernels of two processes never overlap: start MPS, or set sharing = \"auto\" (on the software GPU the \
             device server decides, and this is no fault)",
        ),
        (Some(_), told) if told.contains(&"timeslice") => Finding::warning(
            SUBJECT,
            format!("{state}, but a daemon is configured with sharing = \"timeslice\""),
            "set sharing = \"auto\", so that best-effort kernels may run beside high-priority ones",
        ),
        _ => Finding::ok(SUBJECT, state),
    });
    findings.extend(unseen(&mps, daemons));
    findings.extend(daemons.iter().filter_map(untrue));
    let has_mps = |status: &Value| {
        status["gpu"]["sharing"] == "mps" || status["gpu"]["sharing_mixed"] == true
    };
    if daemons.iter().any(has_mps) {
        findings.push(of_kills(std::env::var("PILLION_DRAIN_MS").ok().as_deref()));
    }
}

/// That a GPU is not shared as its daemon was told, or not by all clients alike.
fn untrue(status: &Value) -> Option<Finding> {
    const SUBJECT: &str = "sharing";
    let found = status::trouble(status)?;
    Some(match status["gpu"]["sharing_wrong"] == true {
        true => Finding::error(
            SUBJECT,
            found,
            "set [gpu] sharing = \"auto\" and start the daemon anew, or share the GPU as the configuration says",
        ),
        false => Finding::warning(
            SUBJECT,
            found,
            "start all jobs of the GPU with the same CUDA_MPS_PIPE_DIRECTORY; `pillion status` names the processes",
        ),
    })
}

/// That MPS runs, and a daemon does not see its pipes. Where it does not run that is said already.
fn unseen(mps: &Mps, daemons: &[Value]) -> Option<Finding> {
    let mut folders = daemons
        .iter()
        .filter_map(|status| status["gpu"]["mps_unseen"].as_str());
    let folder = folders.next().filter(|_| mps.pid.is_some())?;
    Some(Finding::warning(
        "pipes of MPS",
        format!("a daemon looks for them in {folder}, which is not there for it"),
        "without them MPS is not asked to end a job's work before the job is killed, which may take others along: start the daemon with MPS's \
         CUDA_MPS_PIPE_DIRECTORY, and without PrivateTmp, or in a container with that folder",
    ))
}

/// What a job that is killed does to its neighbours, `PILLION_DRAIN_MS` of the environment being this. That is ours: a job may have another.
fn of_kills(drain_ms: Option<&str>) -> Finding {
    const SUBJECT: &str = "killed jobs";
    const HARM: &str =
        "under MPS a process that dies with work on the GPU may take all others there along";
    if drain_ms.is_some_and(|ms| ms.trim() == "0") {
        return Finding::warning(
            SUBJECT,
            format!(
                "{HARM}, and PILLION_DRAIN_MS=0, as it is here, lets a job that gets SIGTERM do so"
            ),
            "unset PILLION_DRAIN_MS, so that a job that is asked to end waits for its work",
        );
    }
    let ms = drain_ms.map_or("2000", str::trim);
    Finding::ok(
        SUBJECT,
        format!(
            "{HARM}; nothing can be done about SIGKILL: end jobs with `pillion stop`, or by SIGTERM and a grace \
             (terminationGracePeriodSeconds, TimeoutStopSec) that is longer than the job's PILLION_DRAIN_MS ({ms} here)"
        ),
    )
}

//! MPS: whether its control daemon runs, and whether our daemons were told so.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Finding;

/// Where MPS keeps its pipes unless CUDA_MPS_PIPE_DIRECTORY says otherwise (NVIDIA's MPS guide).
const PIPES: &str = "/tmp/nvidia-mps";
/// The file in which the control daemon writes its process id.
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

pub(super) fn examine(findings: &mut Vec<Finding>, daemons: &[Value]) {
    const SUBJECT: &str = "MPS";
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY")
        .filter(|value| !value.is_empty())
        .map_or_else(|| PathBuf::from(PIPES), PathBuf::from);
    let pid = control_daemon(&folder);
    let shown = folder.display();
    let state = match pid {
        Some(pid) => format!("runs (pid {pid}, pipes in {shown})"),
        None => format!("does not run (no {PID_FILE} of a living process in {shown})"),
    };
    let told: Vec<&str> = daemons
        .iter()
        .filter_map(|status| status["gpu"]["sharing"].as_str())
        .collect();
    findings.push(match (pid, told.as_slice()) {
        (None, told) if told.contains(&"mps") => Finding::warning(
            SUBJECT,
            format!("{state}, but a daemon is configured with sharing = \"mps\""),
            "without MPS kernels of two processes never overlap, so its leases by class and SMs \
             mean nothing: start MPS, or set sharing = \"timeslice\" (on the software GPU the \
             device server decides, and this is no fault)",
        ),
        (Some(_), told) if told.contains(&"timeslice") => Finding::warning(
            SUBJECT,
            format!("{state}, but a daemon is configured with sharing = \"timeslice\""),
            "set sharing = \"mps\", so that best-effort kernels may run beside high-priority ones",
        ),
        _ => Finding::ok(SUBJECT, state),
    });
}

/// Process id of the control daemon, if it lives.
fn control_daemon(folder: &Path) -> Option<u32> {
    let text = fs::read_to_string(folder.join(PID_FILE)).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new("/proc")
        .join(pid.to_string())
        .exists()
        .then_some(pid)
}

//! MPS: whether its control daemon runs, and whether our daemons were told so.

use serde_json::Value;

use super::Finding;
use crate::mps::Mps;

pub(super) fn examine(findings: &mut Vec<Finding>, daemons: &[Value]) {
    const SUBJECT: &str = "MPS";
    let mps = Mps::look();
    let state = mps.state();
    let told: Vec<&str> = daemons
        .iter()
        .filter_map(|status| status["gpu"]["sharing"].as_str())
        .collect();
    findings.push(match (mps.pid, told.as_slice()) {
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

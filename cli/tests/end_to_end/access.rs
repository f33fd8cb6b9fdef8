//! Permission to be high-priority, with real processes.

use serde_json::Value;

use crate::common::Gpu;
use crate::events::event_when;

#[test]
fn a_job_that_may_not_be_high_priority_is_best_effort_and_everybody_is_told() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("name = \"pillion\"\n\n[high_priority]\nusers = []\n");
    let mut job = gpu.job("serve", "steady").high_priority(&daemon).start();
    job.wait_for("round", 1);
    let seen = daemon.wait_for_clients("serve", 1);
    assert_eq!(seen["class"], "best-effort");
    assert_eq!(seen["clients"][0]["denied"], "high-priority");
    let denied = event_when(&gpu, &daemon, "denied", |_| true);
    assert_eq!(denied["job"], seen["job"], "{denied:#}");
    let table = daemon.explained();
    assert!(
        table.contains("asked to be high-priority, which [high_priority] does not allow for user"),
        "{table}"
    );
    job.wait_for_new("round", 3);
    let seen = daemon.job("serve");
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    assert!(number(&seen["charged_ns"]) > 0, "{seen:#}");
    assert!(number(&seen["memory"]["quota_bytes"]) > 0, "{seen:#}");
    let ended = gpu.expect_right_end("serve", job, &daemon);
    let errors = &ended.errors;
    assert_eq!(
        errors.matches("the process runs as best-effort").count(),
        1,
        "{errors}"
    );
}

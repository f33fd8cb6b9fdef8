//! Describes how a GPU is shared and whether block priorities are relied on.

use serde_json::Value;

/// How it is shared, for the daemon's line.
pub(crate) fn shared(gpu: &Value) -> String {
    let word = |key: &str| gpu[key].as_str().unwrap_or("N/A");
    let sharing = word("sharing");
    match (word("sharing_configured"), word("sharing_known_by")) {
        ("auto", "clients") => format!("{sharing} (auto)"),
        ("auto", "control-daemon") => {
            format!("{sharing} (auto; MPS's control daemon answers, and no client has reported it)")
        }
        ("auto", _) => format!("{sharing} (auto; assumed: no client has reported it)"),
        ("N/A", _) => sharing.to_owned(),
        (configured, _) if configured != sharing => format!("{sharing} (configured: {configured})"),
        _ => sharing.to_owned(),
    }
}

/// A problem with the sharing, if any: a configuration that does not match, or clients that differ.
pub(crate) fn trouble(status: &Value) -> Option<String> {
    let gpu = &status["gpu"];
    let word = |key: &str| gpu[key].as_str().unwrap_or("N/A");
    if gpu["sharing_wrong"] == true {
        return Some(format!(
            "[gpu] sharing is \"{}\", which is wrong: clients share the GPU by \"{}\", and leases follow that",
            word("sharing_configured"),
            word("sharing"),
        ));
    }
    (gpu["sharing_mixed"] == true).then(|| {
        "some clients share the GPU by MPS, others in time slices (check their CUDA_MPS_PIPE_DIRECTORY): best-effort work \
         runs only while high-priority jobs are idle"
            .to_owned()
    })
}

/// The clients of a job that share the GPU in another way than the daemon assumes.
pub(super) fn of_job(job: &Value, gpu: &Value) -> Vec<String> {
    let clients = job["clients"].as_array().into_iter().flatten();
    let clients = clients.filter(|_| gpu["sharing_mixed"] == true);
    let lines = clients.filter_map(|client| {
        let sharing = client["sharing"].as_str()?;
        Some(format!(
            "pid {} shares the GPU by \"{sharing}\"",
            client["pid"]
        ))
    });
    lines.collect()
}

/// Block priorities are off although nobody switched them off, where that matters.
pub(super) fn block_priority(policy: &Value) -> Option<String> {
    let known = &policy["block_priority"];
    let is_meant = policy["name"] == "pillion" && known["configured"].is_null();
    let is_off = known["on"] == false;
    let why = known["why"].as_str().filter(|_| is_meant && is_off)?;
    Some(format!("[policy] block_priority is off, {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_true_way_is_told_with_the_configured_one_and_who_says_it() {
        for (sharing, configured, known_by, expected) in [
            ("mps", "mps", "clients", "mps"),
            ("timeslice", "timeslice", "configuration", "timeslice"),
            ("mps", "auto", "clients", "mps (auto)"),
            ("timeslice", "mps", "clients", "timeslice (configured: mps)"),
            (
                "timeslice",
                "auto",
                "assumption",
                "timeslice (auto; assumed: no client has reported it)",
            ),
            (
                "mps",
                "auto",
                "control-daemon",
                "mps (auto; MPS's control daemon answers, and no client has reported it)",
            ),
        ] {
            let gpu = json!({"sharing": sharing, "sharing_configured": configured, "sharing_known_by": known_by});
            assert_eq!(shared(&gpu), expected);
        }
    }

    #[test]
    fn a_wrong_way_and_clients_that_differ_are_told() {
        let gpu = |wrong: bool, mixed: bool| json!({"gpu": {"sharing": "timeslice", "sharing_configured": "mps", "sharing_wrong": wrong, "sharing_mixed": mixed}});
        assert_eq!(trouble(&gpu(false, false)), None);
        let wrong = trouble(&gpu(true, false)).unwrap();
        assert!(wrong.contains("\"mps\", which is wrong"), "{wrong}");
        assert!(wrong.contains("by \"timeslice\""), "{wrong}");
        let job =
            json!({"clients": [{"pid": 7, "sharing": "mps"}, {"pid": 8, "sharing": "timeslice"}]});
        assert!(trouble(&gpu(false, true)).is_some());
        let lines = of_job(&job, &gpu(false, true)["gpu"]);
        assert_eq!(lines[1], "pid 8 shares the GPU by \"timeslice\"");
        assert!(of_job(&job, &gpu(true, false)["gpu"]).is_empty());
    }

    #[test]
    fn block_priority_is_told_where_it_is_off_and_nobody_said_so() {
        let policy = |name: &str, configured: Value, on: bool| json!({"name": name, "block_priority": {"configured": configured, "on": on, "why": "because"}});
        let told = |policy: Value| block_priority(&policy);
        let line = told(policy("pillion", Value::Null, false));
        assert_eq!(line.unwrap(), "[policy] block_priority is off, because");
        assert_eq!(told(policy("pillion", Value::Null, true)), None);
        assert_eq!(told(policy("pillion", false.into(), false)), None);
        assert_eq!(told(policy("orion", Value::Null, false)), None);
        assert_eq!(told(json!({"name": "pillion"})), None);
    }
}

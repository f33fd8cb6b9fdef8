//! Reports processes that use a GPU without Pillion, as its daemon sees them by NVML.

use serde_json::Value;

use super::Finding;

const NAMED_MAX: usize = 3;

/// A younger daemon has not polled twice yet, ns.
const YOUNG_NS: u64 = 5_000_000_000;

/// None for an older daemon, which does not check.
pub(super) fn of(status: &Value) -> Option<Finding> {
    let unmanaged = status.get("unmanaged")?;
    let subject = format!(
        "unmanaged on {}",
        status["gpu"]["uuid"].as_str().unwrap_or("?")
    );
    let Some(count) = unmanaged["count"].as_u64() else {
        return blind(subject, status);
    };
    if count == 0 {
        return Some(Finding::ok(
            subject,
            "no process uses the GPU without Pillion",
        ));
    }
    let shown = unmanaged["processes"].as_array();
    let shown: Vec<&Value> = shown.into_iter().flatten().collect();
    let named = shown.iter().take(NAMED_MAX);
    let mut found: Vec<String> = named.map(|process| sentence(process)).collect();
    let more = count.saturating_sub(found.len() as u64);
    let hidden = count.saturating_sub(shown.len() as u64);
    match (more, hidden) {
        (0, _) => {}
        (more, 0) => found.push(format!("{more} more")),
        (_, hidden) if shown.is_empty() => {
            found.push(format!(
                "{hidden} of other users use the GPU without Pillion"
            ));
        }
        (more, hidden) => found.push(format!("{more} more, {hidden} of them of other users")),
    }
    Some(Finding::warning(
        subject,
        found.join("; "),
        "Pillion neither sees nor holds the launches of such a process: start it with `pillion run`, and check that nothing on the way \
         clears LD_PRELOAD; [unmanaged] action = \"evict\" terminates such processes (docs/operating.md)",
    ))
}

fn blind(subject: String, status: &Value) -> Option<Finding> {
    let uptime_ns = status.pointer("/daemon/uptime_ns").and_then(Value::as_u64);
    if uptime_ns.is_some_and(|uptime_ns| uptime_ns < YOUNG_NS) {
        return None;
    }
    let found = "cannot see processes that use the GPU without Pillion";
    if status
        .pointer("/gpu/released")
        .is_some_and(|it| !it.is_null())
    {
        let found = format!("{found}: the daemon has closed the device");
        return Some(Finding::warning(subject, found, "run `pillion resume`"));
    }
    Some(Finding::warning(
        subject,
        format!("{found}: NVML does not list the GPU's processes to the daemon"),
        "check that the daemon finds libnvidia-ml.so.1 and that `nvidia-smi` lists processes; a daemon in a container needs the \
         host's PID namespace (hostPID)",
    ))
}

/// A process, and the reason why it is no client.
fn sentence(process: &Value) -> String {
    let text = |key: &str| process[key].as_str().unwrap_or_default();
    let mut what = format!("pid {}", process["pid"]);
    if !text("name").is_empty() {
        what = format!("{what} {}", text("name"));
    }
    let mut about = Vec::new();
    if let Some(uid) = process["uid"].as_u64() {
        about.push(format!("user {uid}"));
    }
    if !text("job").is_empty() {
        about.push(format!("job {}", text("job")));
    }
    if let Some(bytes) = process["memory_bytes"].as_u64() {
        about.push(format!("{} MiB", bytes >> 20));
    }
    let about = match about.is_empty() {
        true => String::new(),
        false => format!(" ({})", about.join(", ")),
    };
    format!("{what}{about}: {}", text("reason"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finding(unmanaged: &Value, released: &Value, uptime_s: u64) -> Option<Value> {
        let status = json!({
            "daemon": {"uptime_ns": uptime_s * 1_000_000_000},
            "gpu": {"uuid": "GPU-1", "released": released}, "unmanaged": unmanaged
        });
        of(&status).map(|finding| finding.json())
    }

    #[test]
    fn who_uses_the_gpu_past_pillion_is_named_with_the_mend() {
        let process = |pid, job| {
            json!({
                "pid": pid, "uid": 1000, "name": "python", "job": job, "memory_bytes": 3u64 << 30, "since_ns": 1,
                "reason": "it was not started by `pillion run`"
            })
        };
        let nameless = json!({
            "pid": 9, "uid": null, "name": "", "job": "", "memory_bytes": null, "since_ns": 1, "reason": "hidden"
        });
        let some = json!({"count": 7, "processes": [process(7, "train"), process(8, ""), nameless, process(10, "")]});
        let found = finding(&some, &Value::Null, 60).unwrap();
        assert_eq!(
            (&found["check"], &found["verdict"], &found["found"]),
            (
                &json!("unmanaged on GPU-1"),
                &json!("warning"),
                &json!(
                    "pid 7 python (user 1000, job train, 3072 MiB): it was not started by `pillion run`; pid 8 python (user 1000, \
                     3072 MiB): it was not started by `pillion run`; pid 9: hidden; 4 more, 3 of them of other users"
                )
            )
        );
        let mend = found["mend"].as_str().unwrap();
        assert!(
            mend.contains("`pillion run`") && mend.contains("[unmanaged]"),
            "{mend}"
        );
        let none = json!({"count": 0, "processes": []});
        let found = finding(&none, &Value::Null, 60).unwrap();
        assert_eq!(found["verdict"], "ok");
        let others = json!({"count": 2, "processes": []});
        let found = finding(&others, &Value::Null, 60).unwrap();
        assert_eq!(
            found["found"],
            "2 of other users use the GPU without Pillion"
        );
    }

    #[test]
    fn where_nobody_can_look_that_is_said_but_not_of_a_daemon_that_has_just_begun() {
        let found = finding(&Value::Null, &Value::Null, 60).unwrap();
        assert_eq!(found["verdict"], "warning");
        let text = found["found"].as_str().unwrap();
        assert!(
            text.contains("cannot see processes that use the GPU without Pillion: NVML"),
            "{text}"
        );
        let released = finding(&Value::Null, &json!({"since_ns": 1}), 60).unwrap();
        assert_eq!(released["mend"], "run `pillion resume`");
        assert_eq!(finding(&Value::Null, &Value::Null, 1), None);
        assert!(of(&json!({"gpu": {}})).is_none());
    }
}

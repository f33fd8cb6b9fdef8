//! Describes the probe: whether the GPU is in trouble, and what waits for it.

use serde_json::Value;

/// The state, its metric with the bound, and the earliest end of the state; none without a probe.
pub(crate) fn line(status: &Value) -> Option<String> {
    let probe = status.pointer("/gpu/probe")?;
    let state = probe["state"].as_str()?;
    let mut line = match state {
        "init" => "probe: the state of the GPU is not known yet".to_owned(),
        "disabled" => "probe: the driver reports that the GPU is lost".to_owned(),
        "overlimit" => "probe: the GPU is over its limits".to_owned(),
        state => format!("probe: the GPU is {state}"),
    };
    if let Some(cause) = cause(probe, state) {
        line.push_str(&format!(" ({cause})"));
    }
    let now_ns = status["daemon"]["now_ns"].as_u64().unwrap_or(0);
    if let Some(until_ns) = probe["until_ns"].as_u64() {
        let left_s = until_ns.saturating_sub(now_ns).div_ceil(1_000_000_000);
        line.push_str(&match left_s {
            ..=120 => format!(" for at least {left_s} s more"),
            _ => format!(" for at least {} min more", left_s.div_ceil(60)),
        });
    }
    if let entries @ 2.. = probe["entries"].as_u64().unwrap_or(0) {
        line.push_str(&format!(
            "; it was over its limits {entries} times in two hours"
        ));
    }
    match probe["waiting"].as_u64().unwrap_or(0) {
        0 => {}
        1 => line.push_str("; 1 new best-effort job waits"),
        jobs => line.push_str(&format!("; {jobs} new best-effort jobs wait")),
    }
    if probe["blind"] == true {
        line.push_str("; NVML does not report the GPU's state");
    }
    Some(line)
}

/// Such as `memory 93 %, bound 92 %`, as in events.
fn cause(probe: &Value, state: &str) -> Option<String> {
    let name = probe["metric"].as_str()?;
    let of = &probe["metrics"][name];
    let second = of["overlimit"].as_f64().filter(|_| state == "overlimit");
    let bound = second.or(of["unhealthy"].as_f64());
    let value = of["value"].as_f64();
    let shown = |value: f64| match name {
        "temperature_c" => format!("{value:.0} C"),
        _ => format!("{:.0} %", value * 100.0),
    };
    let words = match name {
        "sm_activity" => "SM activity",
        "clock" => "SM clock",
        "temperature_c" => "temperature",
        name => name,
    };
    Some(match value.zip(bound) {
        Some((value, bound)) => format!("{words} {}, bound {}", shown(value), shown(bound)),
        None => format!("{words}, which is unknown now"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(probe: &Value) -> Value {
        json!({"daemon": {"now_ns": 5_000_000_000_u64}, "gpu": {"probe": probe}})
    }

    #[test]
    fn the_state_its_metric_and_for_how_long_are_one_line() {
        let mut probe = json!({
            "state": "overlimit", "metric": "memory", "entries": 2, "until_ns": 34_100_000_000_u64,
            "metrics": {"memory": {"value": 0.981, "unhealthy": 0.92, "overlimit": 0.97}},
            "blind": false, "waiting": 1
        });
        assert_eq!(
            line(&status(&probe)).unwrap(),
            "probe: the GPU is over its limits (memory 98 %, bound 97 %) for at least 30 s more; it was over its limits 2 times \
             in two hours; 1 new best-effort job waits"
        );
        probe["state"] = json!("unhealthy");
        probe["entries"] = json!(1);
        probe["waiting"] = json!(3);
        probe["until_ns"] = json!(3_605_000_000_000_u64);
        assert_eq!(
            line(&status(&probe)).unwrap(),
            "probe: the GPU is unhealthy (memory 98 %, bound 92 %) for at least 60 min more; 3 new best-effort jobs wait"
        );
        probe["metrics"]["memory"]["value"] = Value::Null;
        probe["blind"] = json!(true);
        let said = line(&status(&probe)).unwrap();
        assert!(said.contains("(memory, which is unknown now)"), "{said}");
        assert!(
            said.ends_with("NVML does not report the GPU's state"),
            "{said}"
        );
    }

    #[test]
    fn a_gpu_that_is_well_is_said_and_none_that_nobody_looks_at() {
        let well = |state: &str| {
            json!({
                "state": state, "metric": null, "entries": 0, "until_ns": null, "metrics": {}, "blind": false, "waiting": 0
            })
        };
        let said = |state| line(&status(&well(state))).unwrap();
        assert_eq!(said("healthy"), "probe: the GPU is healthy");
        assert_eq!(said("init"), "probe: the state of the GPU is not known yet");
        assert_eq!(
            said("disabled"),
            "probe: the driver reports that the GPU is lost"
        );
        assert_eq!(line(&status(&Value::Null)), None);
    }
}

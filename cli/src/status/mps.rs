//! Describes MPS in one line, if the daemon manages it (`[mps] manage`).

use serde_json::Value;

/// Its state with the reason, its supervisor, and its restarts in the last hour; none if MPS is not
/// managed.
pub(super) fn line(status: &Value) -> Option<String> {
    let mps = status.get("mps").filter(|mps| mps.is_object())?;
    let state = mps["state"].as_str()?;
    let said = match state {
        "absent" => "has no control daemon",
        "starting" => "starts",
        "running" => "runs",
        "fault" => "has a fault",
        "restarting" => "is about to be restarted",
        "given-up" => "is not restarted until `pillion resume`",
        other => other,
    };
    let why = mps["why"].as_str();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let pid = mps["pid"].as_u64();
    let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    let by = match mps["supervised_by_us"] == true {
        true => "supervised by this daemon",
        false => "supervised by another daemon",
    };
    let restarts = match mps["restarts"].as_u64().unwrap_or(0) {
        0 => String::new(),
        1 => ", restarted once in the last hour".to_owned(),
        restarts => format!(", restarted {restarts} times in the last hour"),
    };
    Some(format!("MPS{pid} {said}{why} ({by}{restarts})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn how_mps_is_and_who_sees_to_it_is_one_line() {
        let status = |mps: Value| json!({"mps": mps});
        assert_eq!(line(&status(Value::Null)), None);
        assert_eq!(line(&json!({})), None, "an older daemon");
        let mut mps = json!({
            "state": "running", "pid": 4242, "servers": [], "restarts": 0, "supervised_by_us": true, "why": null,
        });
        let told = line(&status(mps.clone())).unwrap();
        assert_eq!(told, "MPS (pid 4242) runs (supervised by this daemon)");
        mps["state"] = json!("given-up");
        mps["pid"] = Value::Null;
        mps["restarts"] = json!(3);
        mps["why"] = json!("it has ended");
        mps["supervised_by_us"] = json!(false);
        assert_eq!(
            line(&status(mps)).unwrap(),
            "MPS is not restarted until `pillion resume`: it has ended (supervised by another daemon, restarted 3 times in \
             the last hour)"
        );
    }
}

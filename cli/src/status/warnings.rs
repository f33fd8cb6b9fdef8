//! Problems of a GPU and its jobs, the gravest first; `pillion status --explain` has the details.

use serde_json::Value;

use super::figures::{latency, share_within};
use super::text::cut_middle;
use super::{bytes, control, hold, live_jobs, mps, probe, sharing};
use crate::profile::output::counted;

/// Limit on the listed warnings of a daemon; the rest is counted.
pub(super) const LISTED_MAX: usize = 12;

const ID_COLUMNS: usize = 24;

pub(super) fn of(status: &Value) -> Vec<String> {
    let gpu = of_gpu(status);
    let jobs = live_jobs(status).flat_map(of_job);
    gpu.into_iter()
        .chain(unmanaged(status))
        .chain(jobs)
        .chain(turned_away(status, |pid| !is_unmanaged(status, pid)))
        .collect()
}

pub(super) fn states(status: &Value) -> Vec<&'static str> {
    let gpu = &status["gpu"];
    let mps = match status["mps"]["state"].as_str() {
        Some("absent") => Some("no MPS"),
        Some("fault") => Some("MPS fault"),
        Some("starting" | "restarting") => Some("MPS starts"),
        Some("given-up") => Some("MPS given up"),
        _ => None,
    };
    let probe = match gpu["probe"]["state"].as_str() {
        Some("disabled") => Some("lost"),
        Some("overlimit") => Some("over limits"),
        Some("unhealthy") => Some("unhealthy"),
        _ => None,
    };
    let is_held = status["held"]
        .as_array()
        .is_some_and(|held| !held.is_empty());
    let is_stalled = live_jobs(status).any(|job| job["stalled"] == true);
    let words = [
        probe,
        status["draining"].is_string().then_some("drained"),
        gpu["released"].is_object().then_some("released"),
        mps,
        is_held.then_some("held"),
        live_jobs(status).any(is_missed).then_some("target missed"),
        is_stalled.then_some("stalled"),
        gpu["device"]["slowed_by"]
            .is_string()
            .then_some("slowed down"),
        (gpu["sharing_wrong"] == true).then_some("sharing wrong"),
        (gpu["sharing_mixed"] == true).then_some("sharing mixed"),
        status["policy"]["config_error"]
            .is_string()
            .then_some("config error"),
    ];
    words.into_iter().flatten().collect()
}

/// The daemon reports that the job's target is missed (`slo-missed`, and no `slo-met` since).
fn is_missed(job: &Value) -> bool {
    job["requests"]["is_missed"] == true
}

fn of_gpu(status: &Value) -> Vec<String> {
    let drained = status["draining"].as_str();
    let drained = drained.map(|why| format!("drained until `pillion resume`: {why}"));
    let released = status["gpu"]["released"].is_object();
    let released = released.then(|| {
        "released until `pillion resume`: faults and unaccounted memory are not detected".to_owned()
    });
    let probe_is_well = matches!(
        status["gpu"]["probe"]["state"].as_str(),
        None | Some("init" | "healthy")
    );
    let probe = probe::line(status).filter(|_| !probe_is_well);
    let mps = mps::line(status).filter(|_| status["mps"]["state"] != "running");
    let config = status["policy"]["config_error"].as_str();
    let config = config.map(|error| format!("the configuration on disk is not in force: {error}"));
    let slowed = status["gpu"]["device"]["slowed_by"].as_str();
    let slowed = slowed.map(|by| format!("the GPU's clock is held down by {by}"));
    let first = [drained, released].into_iter().flatten();
    let rest = [probe, mps, sharing::trouble(status), config, slowed];
    first
        .chain(hold::holds(status))
        .chain(rest.into_iter().flatten())
        .collect()
}

/// Processes that use the GPU without Pillion. Those of other users are counted, not named.
pub(super) fn unmanaged(status: &Value) -> Vec<String> {
    let processes = status["unmanaged"]["processes"].as_array();
    let processes = processes.map_or(&[][..], Vec::as_slice);
    let named = processes.iter().map(|process| {
        let name = process["name"].as_str().unwrap_or("");
        let job = match process["job"].as_str() {
            None | Some("") => String::new(),
            Some(job) => format!(" of job {job}"),
        };
        let memory = match process["memory_bytes"].is_u64() {
            true => format!(", {}", bytes(&process["memory_bytes"], "")),
            false => String::new(),
        };
        let reason = process["reason"].as_str().unwrap_or("it is not a client");
        format!(
            "unmanaged: pid {} {name} (user {}){job}{memory}: {reason}",
            process["pid"], process["uid"]
        )
    });
    let count = status["unmanaged"]["count"].as_u64().unwrap_or(0);
    let hidden = count.saturating_sub(processes.len() as u64);
    let hidden = match hidden {
        0 => None,
        1 => Some("unmanaged: 1 process of another user uses the GPU without Pillion".to_owned()),
        hidden => Some(format!(
            "unmanaged: {hidden} processes of other users use the GPU without Pillion"
        )),
    };
    named.chain(hidden).collect()
}

fn is_unmanaged(status: &Value, pid: &Value) -> bool {
    let processes = status["unmanaged"]["processes"].as_array();
    let mut processes = processes.into_iter().flatten();
    processes.any(|process| process["pid"] == *pid)
}

/// Processes that asked to be clients and were refused; `is_wanted` selects by id.
pub(super) fn turned_away(status: &Value, is_wanted: impl Fn(&Value) -> bool) -> Vec<String> {
    let turned_away = status["turned_away"].as_array().into_iter().flatten();
    let turned_away = turned_away.filter(|process| is_wanted(&process["pid"]));
    let lines = turned_away.map(|process| {
        let times = process["times"].as_u64().filter(|&times| times > 1);
        let times = times.map_or_else(String::new, |times| format!(" (asked {times} times)"));
        format!(
            "pid {} {} is not attached: {}{times}",
            process["pid"],
            process["name"].as_str().unwrap_or(""),
            process["reason"].as_str().unwrap_or("N/A")
        )
    });
    lines.collect()
}

fn of_job(job: &Value) -> Vec<String> {
    let id = cut_middle(job["job"].as_str().unwrap_or("N/A"), ID_COLUMNS);
    let count = |name: &str| job["totals"][name].as_u64().unwrap_or(0);
    let missed = is_missed(job).then(|| missed(job));
    let unheld = control::is_unheld(job)
        .then(|| "its target is not enforced, because the program marks no requests".to_owned());
    let stalled =
        (job["stalled"] == true).then(|| "its work in flight does not complete".to_owned());
    let bypasses = match count("bypasses") {
        0 => None,
        1 => Some(
            "1 of its libraries bypasses Pillion: start it with `pillion run --shim`".to_owned(),
        ),
        libraries => Some(format!(
            "{libraries} of its libraries bypass Pillion: start it with `pillion run --shim`"
        )),
    };
    let passed_by = match count("launch_functions_passed_by") {
        0 => None,
        functions => {
            let functions = counted(functions, "launch function", "launch functions");
            Some(format!(
                "it bypasses Pillion with {functions}: start it with `pillion run --shim`"
            ))
        }
    };
    let clients = job["clients"].as_array().into_iter().flatten();
    let denied = clients.filter_map(|client| {
        let asked = client["denied"].as_str()?;
        let pid = &client["pid"];
        Some(format!(
            "pid {pid} asked to be {asked}, which [high_priority] does not allow"
        ))
    });
    let excess = job["memory"]["excess"].as_array().into_iter().flatten();
    let excess = excess.map(unexplained);
    let too_long = job["too_long"].as_array().map_or(0, Vec::len);
    let too_long = match too_long {
        0 => None,
        1 => Some("1 kernel is longer than high-priority requests can afford".to_owned()),
        kernels => Some(format!(
            "{kernels} kernels are longer than high-priority requests can afford"
        )),
    };
    let refused = match job["memory"]["refused"].as_u64() {
        None | Some(0) => None,
        Some(refused) => {
            let requests = counted(refused, "memory request", "memory requests");
            Some(format!("{requests} exceeded its quota"))
        }
    };
    let first = [missed, unheld, stalled, bypasses, passed_by];
    let first = first.into_iter().flatten().chain(denied).chain(excess);
    let lines = first.chain([too_long, refused].into_iter().flatten());
    lines.map(|line| format!("job {id}: {line}")).collect()
}

/// A process that holds more of the GPU's memory than its account has.
pub(super) fn unexplained(excess: &Value) -> String {
    let whose = match excess["is_client"].as_bool() {
        Some(true) => "that its allocations do not explain",
        _ => "and is not a client",
    };
    let held = bytes(&excess["bytes"], "N/A");
    format!(
        "pid {} holds {held} of the GPU's memory {whose}",
        excess["pid"]
    )
}

fn missed(job: &Value) -> String {
    let requests = &job["requests"];
    let mut line = "misses its target".to_owned();
    let target = requests["target_ns"].as_u64();
    if let Some((p99_ns, target_ns)) = requests["recent"]["p99_ns"].as_u64().zip(target) {
        let (p99, target) = (latency(p99_ns), latency(target_ns));
        line.push_str(&format!(": p99 {p99}, target {target}"));
    }
    if let Some(within) = requests["within_target"].as_f64() {
        line.push_str(&format!(", {} within it", share_within(within)));
    }
    if job
        .pointer("/control/slo/saturated")
        .and_then(Value::as_str)
        == Some("floor")
    {
        line.push_str("; best-effort work is paused");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unmanaged_processes_are_named_and_those_of_others_are_counted() {
        let status = json!({
            "unmanaged": {"count": 3, "processes": [
                {"pid": 4711, "uid": 1000, "name": "python3", "job": "", "memory_bytes": 3_435_973_836_u64,
                 "since_ns": 1, "reason": "the library is not loaded"},
            ]},
            "turned_away": [
                {"pid": 4711, "name": "python3", "reason": "it uses the GPU without the library", "times": 1},
                {"pid": 12, "name": "old", "reason": "it speaks protocol 9", "times": 3},
            ],
        });
        assert_eq!(
            of(&status),
            [
                "unmanaged: pid 4711 python3 (user 1000), 3.20 GiB: the library is not loaded",
                "unmanaged: 2 processes of other users use the GPU without Pillion",
                "pid 12 old is not attached: it speaks protocol 9 (asked 3 times)",
            ]
        );
        // NVML cannot tell, or the daemon is older.
        for none in [json!({"unmanaged": null}), json!({})] {
            assert!(of(&none).is_empty());
        }
    }

    #[test]
    fn a_target_that_is_missed_is_said_with_its_numbers() {
        let job = json!({"job": "serve", "class": "high-priority", "ended_ns": null, "requests": {
            "recent": {"p99_ns": 11_200_000}, "target_ns": 9_431_000, "within_target": 0.921, "is_missed": true,
        }, "control": {"slo": {"saturated": "floor"}}});
        let status = json!({"jobs": [job]});
        let line = "job serve: misses its target: p99 11.2 ms, target 9.43 ms, 92.1 % within it; best-effort work is paused";
        assert_eq!(of(&status), [line]);
        assert_eq!(states(&status), ["target missed"]);
    }

    #[test]
    fn a_gpu_on_which_all_is_well_needs_nobody() {
        let status = json!({
            "draining": null, "held": [], "mps": {"state": "running", "pid": 7, "supervised_by_us": true},
            "gpu": {"released": null, "device": {"slowed_by": null}, "probe": {"state": "healthy", "waiting": 0},
                "sharing_wrong": false, "sharing_mixed": false},
            "policy": {"config_error": null}, "unmanaged": {"count": 0, "processes": []}, "turned_away": [],
            "jobs": [{"job": "train", "class": "best-effort", "ended_ns": null, "stalled": false, "totals": {},
                "too_long": [], "memory": {"refused": 0, "excess": []}, "clients": [{"pid": 1, "denied": null}]}],
        });
        assert_eq!(of(&status), Vec::<String>::new());
        assert!(states(&status).is_empty());
    }

    #[test]
    fn each_trouble_has_a_word_and_a_line() {
        let status = json!({
            "daemon": {"now_ns": 1}, "draining": "Xid 48",
            "held": [{"job": null, "uid": null, "why": "Xid 48"}, {"job": "train", "uid": 7, "why": "Xid 31"}],
            "mps": {"state": "given-up"},
            "gpu": {"released": {"since_ns": 0, "open": 0}, "sharing": "mps", "sharing_configured": "timeslice",
                "sharing_wrong": true, "device": {"slowed_by": "heat (HwThermalSlowdown)"},
                "probe": {"state": "unhealthy", "metric": "memory", "metrics": {}}},
            "policy": {"config_error": "gpu0.toml:6:8: name is \"pilion\""},
            "jobs": [{"job": "train", "class": "best-effort", "ended_ns": null, "stalled": true,
                "totals": {"bypasses": 2, "launch_functions_passed_by": 1},
                "clients": [{"pid": 8, "uid": 7, "denied": "high-priority"}],
                "memory": {"refused": 4, "excess": [{"pid": 9, "bytes": 1_073_741_824, "is_client": true}]},
                "too_long": [{"name": "conv"}]}],
        });
        let begins = [
            "drained until `pillion resume`: Xid 48",
            "released until `pillion resume`",
            "job train is held until `pillion resume train`: Xid 31",
            "probe: the GPU is unhealthy",
            "MPS is not restarted",
            "[gpu] sharing is \"timeslice\", which is wrong",
            "the configuration on disk is not in force: gpu0.toml:6:8",
            "the GPU's clock is held down by heat",
            "job train: its work in flight does not complete",
            "job train: 2 of its libraries bypass Pillion",
            "job train: it bypasses Pillion with 1 launch function: start it",
            "job train: pid 8 asked to be high-priority, which [high_priority]",
            "job train: pid 9 holds 1.00 GiB of the GPU's memory that its allocations do not explain",
            "job train: 1 kernel is longer",
            "job train: 4 memory requests exceeded",
        ];
        let lines = of(&status);
        assert_eq!(lines.len(), begins.len(), "{lines:#?}");
        for (line, begin) in lines.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}: {begin}");
        }
        let words = [
            "unhealthy",
            "drained",
            "released",
            "MPS given up",
            "held",
            "stalled",
            "slowed down",
            "sharing wrong",
            "config error",
        ];
        assert_eq!(states(&status), words);
    }
}

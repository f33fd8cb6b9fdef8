//! Describes a best-effort job without progress, for an operator on call: how much it gets, what
//! holds it, and what of it harms others.

use jiff::Timestamp;
use serde_json::Value;

use crate::events::time_of;

/// Limit on the kernels named in one line; the rest is counted.
const NAMED_MAX: usize = 3;

/// The bounds in force, if the policy has any; one line.
pub(super) fn bounds(policy: &Value) -> Option<String> {
    let bounds = policy.get("bounds").filter(|bounds| !bounds.is_null())?;
    let gain = bounds["gain"].as_f64()?;
    let affordable = time(policy["affordable_ns"].as_u64()?);
    let known = policy["hp_latency_ns"].as_u64().map_or_else(
        || {
            format!(
                "the duration of high-priority requests alone is not known yet; until then Pillion assumes that they may \
                 take {affordable} longer"
            )
        },
        |ns| {
            let alone = time(ns);
            format!(
                "a high-priority request takes {alone} alone and may take {affordable} longer"
            )
        },
    );
    let floor = if bounds["floor"] == true {
        "; while high-priority jobs are idle, never below the lesser of 2.5 % of a request and half of the time that it may take longer"
    } else {
        ""
    };
    let hurt = if gain < 1.0 {
        "; requests take longer than their target, so best-effort work is held back"
    } else {
        ""
    };
    Some(format!(
        "{known}; limit on best-effort work in flight: {} while high-priority jobs are idle, {} beside them (factor \
         {gain:.2}{hurt}{floor})",
        time(bounds["idle_ns"].as_u64()?),
        time(bounds["beside_ns"].as_u64()?),
    ))
}

/// Holds until an operator acts or MPS serves again, whether jobs are affected or not; a line each.
pub(crate) fn for_faults(status: &Value) -> Vec<String> {
    let draining = status["draining"].as_str().map(|why| {
        format!(
            "drained: no new high-priority job should be started here, and best-effort jobs are held, until \
             `pillion resume`: {why}"
        )
    });
    let released = released(status);
    draining
        .into_iter()
        .chain(released)
        .chain(holds(status))
        .collect()
}

/// Those holds except a drained or released GPU; a line each.
pub(super) fn holds(status: &Value) -> Vec<String> {
    let is_draining = status["draining"].is_string();
    let holds = status["held"].as_array().into_iter().flatten();
    let holds = holds.filter_map(|hold| {
        let why = hold["why"].as_str()?;
        let (whose, what) = match (hold["job"].as_str(), hold["uid"].as_u64()) {
            (Some(job), _) => (format!("job {job} is"), format!("`pillion resume {job}`")),
            (None, Some(uid)) => (
                format!("best-effort jobs of user {uid} are"),
                "`pillion resume`".to_owned(),
            ),
            (None, None) if hold["until_mps_serves"] == true => (
                "best-effort jobs are".to_owned(),
                "MPS serves again".to_owned(),
            ),
            // Reported elsewhere.
            (None, None) if is_draining => return None,
            (None, None) => (
                "best-effort jobs are".to_owned(),
                "`pillion resume`".to_owned(),
            ),
        };
        Some(format!("{whose} held until {what}: {why}"))
    });
    holds.collect()
}

/// The rule that held a best-effort job longest in the last seconds in which it wanted the GPU, or
/// the hold until somebody acts, as one word. `-`: neither.
pub(super) fn word<'a>(job: &'a Value, status: &'a Value) -> &'a str {
    if job["class"] != "best-effort" || !job["ended_ns"].is_null() {
        return "-";
    }
    if job["stalled"] == true {
        return "stalled";
    }
    let is_his = |hold: &Value| {
        let is = |name: &str| hold[name].is_null() || hold[name] == job[name];
        is("job") && is("uid")
    };
    let mut holds = status["held"].as_array().into_iter().flatten();
    match holds.find(|hold| is_his(hold)) {
        Some(hold) if hold["until_mps_serves"] == true => return "MPS",
        // A drained GPU holds all best-effort jobs.
        Some(hold)
            if status["draining"].is_string() && hold["job"].is_null() && hold["uid"].is_null() =>
        {
            return "drained";
        }
        Some(_) => return "hold",
        None => {}
    }
    let held = job["progress"]["held_recently_ns"].as_object();
    let held = held.into_iter().flatten();
    let held = held.filter_map(|(limit, ns)| Some((limit.as_str(), ns.as_u64()?)));
    let longest = held.filter(|(_, ns)| *ns > 0).max_by_key(|(_, ns)| *ns);
    let now = || job["held_by"].as_str();
    longest.map(|(limit, _)| limit).or_else(now).unwrap_or("-")
}

fn released(status: &Value) -> Option<String> {
    let released = &status["gpu"]["released"];
    let now_ns = status["daemon"]["now_ns"].as_u64()?;
    let for_ns = now_ns.saturating_sub(released["since_ns"].as_u64()?);
    let for_ms = i64::try_from(for_ns / 1_000_000).ok()?;
    let since = time_of(Timestamp::now().as_millisecond().saturating_sub(for_ms));
    let said = match released["open"].as_u64()? {
        0 => "NVML closed".to_owned(),
        1 => "NVML not closed yet: 1 thread of the daemon waits for the driver".to_owned(),
        open => {
            format!("NVML not closed yet: {open} threads of the daemon wait for the driver")
        }
    };
    Some(format!(
        "released: {said}, since {since}, until `pillion resume`; Xids, memory errors, a stuck GPU and unaccounted memory are not detected"
    ))
}

/// A job's share for the table: per cent, with `<` for an upper bound.
pub(super) fn share(job: &Value) -> String {
    let progress = &job["progress"];
    let Some(share) = progress["share"].as_f64() else {
        return "-".to_owned();
    };
    let mark = match progress["share_of"].as_str() {
        Some("alone") => "",
        _ => "<",
    };
    format!("{mark}{:.0} %", share * 100.0)
}

/// Remarks on a job's progress and on its kernels; a line each.
pub(super) fn lines(job: &Value, affordable_ns: Option<u64>) -> Vec<String> {
    let is_stalled = job["stalled"] == true;
    let stalled = is_stalled.then(|| {
        "its work in flight does not complete, and it gets nothing until then (does a kernel hang? see nvidia-smi and the \
         job's own log)"
            .to_owned()
    });
    // A job that stalls by itself is not held, and its share means nothing.
    let progress = progress(job).filter(|_| !is_stalled);
    let lines = [stalled, progress, learnt(job), too_long(job, affordable_ns)];
    lines.into_iter().flatten().collect()
}

fn learnt(job: &Value) -> Option<String> {
    let said = match job["totals"]["kernels_learnt"].as_u64()? {
        0 => return None,
        1 => "the duration of one of its kernels is learnt".to_owned(),
        learnt => format!("the durations of {learnt} of its kernels are learnt"),
    };
    Some(format!("{said}, not from a profile"))
}

fn progress(job: &Value) -> Option<String> {
    let progress = &job["progress"];
    let over_ns = progress["over_ns"].as_u64().filter(|ns| *ns > 0)?;
    let share = progress["share"].as_f64()? * 100.0;
    let got = match progress["share_of"].as_str() {
        Some("alone") => format!("got {share:.0} % of its rate alone"),
        _ => format!(
            "got at most {share:.0} % of the GPU time that it asked for (its rate alone is unknown)"
        ),
    };
    let held = progress["held_recently_ns"].as_object()?;
    let mut held: Vec<(f64, &str)> = held
        .iter()
        .filter_map(|(limit, ns)| Some((ns.as_f64()? / over_ns as f64 * 100.0, limit.as_str())))
        .filter(|(pct, _)| *pct >= 0.5)
        .collect();
    held.sort_by(|a, b| b.0.total_cmp(&a.0));
    let stood = match held.iter().map(|(pct, _)| pct).sum::<f64>() {
        0.0 => "was never held".to_owned(),
        sum => {
            let why = held.iter();
            let why = why.map(|(pct, limit)| format!("{pct:.0} % {}", reason(limit)));
            let why: Vec<String> = why.collect();
            format!("was held for {sum:.0} % of the time: {}", why.join(", "))
        }
    };
    Some(format!(
        "in its last {} it {got}; it {stood}",
        time(over_ns)
    ))
}

/// Why a job is held, to follow a percentage.
fn reason(limit: &str) -> &str {
    match limit {
        "throttle" => {
            "because high-priority requests could afford no more best-effort work in flight"
        }
        "hp-busy" => "because high-priority work ran and no best-effort work may run beside it",
        "interference" => {
            "because its next kernel did not fit beside the running high-priority work, or would disturb it"
        }
        "budget" => {
            "because its next kernel was longer than what was left of the limit on work in flight, or was about to be launched anyway"
        }
        "duty" => {
            "because high-priority requests miss their target too often, so it may run only part of the time"
        }
        "paused" => {
            "because high-priority requests miss their target far too often, or with every batch, so it is paused"
        }
        "rate" => {
            "because its share of the GPU's time was used up, or the share that the throttle leaves to best-effort jobs"
        }
        "turn" => "because it was another best-effort job's turn",
        "collectives" => {
            "because it launches collective kernels, which wait for other GPUs, and a high-priority job is attached"
        }
        other => other,
    }
}

fn too_long(job: &Value, affordable_ns: Option<u64>) -> Option<String> {
    let kernels = job["too_long"].as_array().filter(|all| !all.is_empty())?;
    let named = kernels.iter().take(NAMED_MAX).map(|kernel| {
        let name = kernel["name"].as_str().filter(|name| !name.is_empty());
        let blocks_for_ns = kernel["blocks_for_ns"].as_u64().unwrap_or(0);
        format!("{} ({})", name.unwrap_or("(no name)"), time(blocks_for_ns))
    });
    let mut named: Vec<String> = named.collect();
    if kernels.len() > NAMED_MAX {
        named.push(format!("{} more", kernels.len() - NAMED_MAX));
    }
    let affordable = affordable_ns.map_or_else(
        || "it can afford".to_owned(),
        |ns| format!("the {} it can afford", time(ns)),
    );
    Some(format!(
        "high-priority requests cannot be protected against these kernels, as one that meets them waits longer than {affordable}: {}",
        named.join(", ")
    ))
}

pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.0} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_held_job_is_told_what_it_got_and_why_no_more() {
        let job = json!({
            "stalled": false,
            "progress": {
                "share": 0.62, "share_of": "alone", "over_ns": 10_000_000_000_u64,
                "held_recently_ns": {"turn": 400_000_000, "hp-busy": 2_700_000_000_u64, "budget": 1_000},
            },
            "too_long": [
                {"name": "conv", "expected_ns": 9_000_000, "blocks_for_ns": 3_000_000},
                {"name": "", "expected_ns": 2_000_000, "blocks_for_ns": 2_000_000},
                {"name": "c", "expected_ns": 900_000, "blocks_for_ns": 900_000},
                {"name": "d", "expected_ns": 800_000, "blocks_for_ns": 800_000},
            ],
        });
        assert_eq!(share(&job), "62 %");
        assert_eq!(
            lines(&job, Some(340_000)),
            [
                "in its last 10 s it got 62 % of its rate alone; it was held for 31 % of the time: 27 % because \
                 high-priority work ran and no best-effort work may run beside it, 4 % because it was another best-effort job's turn",
                "high-priority requests cannot be protected against these kernels, as one that meets them waits longer than \
                 the 340 us it can afford: conv (3.0 ms), (no name) (2.0 ms), c (900 us), 1 more",
            ]
        );
    }

    #[test]
    fn of_what_is_not_known_nothing_is_said() {
        let learnt = json!({"progress": null, "too_long": [], "totals": {"kernels_learnt": 2}});
        let said = lines(&learnt, None);
        assert!(
            said.len() == 1 && said[0].starts_with("the durations of 2 of its kernels are learnt"),
            "{said:?}"
        );
        let job = json!({"progress": null, "too_long": [], "totals": {"kernels_learnt": 0}});
        assert_eq!((share(&job), lines(&job, None)), ("-".to_owned(), vec![]));
        // An older daemon.
        assert_eq!(lines(&json!({}), None), Vec::<String>::new());
        assert_eq!(bounds(&json!({"name": "orion", "bounds": null})), None);
        let asked = json!({"progress": {
            "share": 1.0, "share_of": "asked", "over_ns": 2_000_000_000, "held_recently_ns": {},
        }});
        assert_eq!(share(&asked), "<100 %");
        assert_eq!(
            lines(&asked, None),
            [
                "in its last 2 s it got at most 100 % of the GPU time that it asked for (its rate alone is unknown); it was never held"
            ]
        );
    }

    #[test]
    fn why_a_job_does_not_get_on_is_one_word() {
        let none = json!({});
        let mut job = json!({"job": "train", "uid": 1000, "class": "best-effort", "held_by": "turn",
            "progress": {"held_recently_ns": {"turn": 400_000_000, "hp-busy": 2_700_000_000_u64}}});
        assert_eq!(word(&job, &none), "hp-busy");
        let held = |of: Value| json!({"held": [of]});
        let all = held(json!({"job": null, "uid": null, "why": "an Xid"}));
        assert_eq!(word(&job, &all), "hold");
        let other = held(json!({"job": "other", "uid": 1000}));
        assert_eq!(word(&job, &other), "hp-busy");
        let mps = held(json!({"job": null, "uid": null, "until_mps_serves": true}));
        assert_eq!(word(&job, &mps), "MPS");
        let mut drained = all.clone();
        drained["draining"] = json!("an Xid");
        assert_eq!(word(&job, &drained), "drained");
        drained["held"] = json!([{"job": "train", "uid": 1000, "why": "an Xid"}]);
        assert_eq!(word(&job, &drained), "hold");
        job["progress"]["held_recently_ns"] = json!({});
        assert_eq!(word(&job, &none), "turn");
        job["held_by"] = Value::Null;
        assert_eq!(word(&job, &none), "-");
        job["stalled"] = json!(true);
        assert_eq!(word(&job, &all), "stalled");
        job["class"] = json!("high-priority");
        assert_eq!(word(&job, &all), "-");
    }

    #[test]
    fn a_job_that_hangs_is_not_said_to_be_never_held_up() {
        let job = json!({"stalled": true, "progress": {
            "share": 1.0, "share_of": "asked", "over_ns": 2_000_000_000, "held_recently_ns": {},
        }});
        let lines = lines(&job, None);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("its work in flight does not complete"),
            "{lines:?}"
        );
    }

    #[test]
    fn bounds_are_said_with_what_they_follow_from() {
        let mut policy = json!({
            "hp_latency_ns": 6_800_000, "affordable_ns": 340_000,
            "bounds": {"idle_ns": 680_000, "beside_ns": 42_500, "gain": 2.0},
        });
        assert_eq!(
            bounds(&policy).unwrap(),
            "a high-priority request takes 6.8 ms alone and may take 340 us longer; limit on best-effort work in flight: \
             680 us while high-priority jobs are idle, 42 us beside them (factor 2.00)"
        );
        policy["hp_latency_ns"] = Value::Null;
        policy["bounds"]["gain"] = json!(0.25);
        let said = bounds(&policy).unwrap();
        assert!(
            said.starts_with("the duration of high-priority requests alone is not known yet; until then Pillion assumes that they may take 340 us longer"),
            "{said}"
        );
        assert!(said.contains("held back"), "{said}");
        // The stated bound is the bound itself, not the gain times what a request can afford.
        policy["bounds"]["floor"] = json!(true);
        policy["bounds"]["idle_ns"] = json!(170_000);
        let said = bounds(&policy).unwrap();
        for part in [
            "in flight: 170 us while",
            "factor 0.25;",
            "held back; while high-priority jobs are idle, never below the lesser of 2.5 % of a request",
        ] {
            assert!(said.contains(part), "no {part} in {said}");
        }
    }
}

//! Describes the control of jobs: high-priority targets and batches, best-effort shares of time.

use serde_json::Value;

use super::{device, probe};
use crate::profile::output::counted;

/// The target in force, its source, the requests' latency, and a missed target. None without one.
pub(super) fn slo(job: &Value) -> Option<String> {
    let slo = job.pointer("/control/slo")?;
    let (goal, source) = (slo["goal"].as_str()?, slo["source"].as_str()?);
    let is_rate = slo["of"] == "rate";
    // 0.005 is p99.5; rounding hides errors of binary fractions.
    let quantile = |miss: f64| format!("p{} ", ((1.0 - miss) * 1e8).round() / 1e6);
    let of = match slo["miss"].as_f64() {
        Some(miss) => quantile(miss),
        None if is_rate => String::new(),
        None => "mean ".to_owned(),
    };
    let is_time = !is_rate && !goal.ends_with('x');
    let alone = match (is_rate, is_time) {
        (true, _) => " of its rate alone",
        (false, true) => "",
        (false, false) => " alone",
    };
    if job["requests_source"] == "inferred" {
        let at = if of == "mean " { "as a " } else { "at " };
        let unheld = format!(
            ", not enforced {at}{}, because the program marks no requests",
            of.trim_end()
        );
        let unheld = if is_time { unheld } else { String::new() };
        return Some(format!("target {goal}{alone} ({source}){unheld}"));
    }
    let mut line = format!("target {of}{goal}{alone} ({source})");
    let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
    if let Some(ns) = slo["target_ns"].as_u64().filter(|_| !is_time) {
        line.push_str(&format!(" = {}", ms(ns)));
    }
    if let Some(ns) = slo["measured_ns"].as_u64() {
        line.push_str(&format!(", measured {}", ms(ns)));
    }
    let count = |name: &str| slo[name].as_u64().unwrap_or(0);
    if let Some(share) = slo["miss_share"].as_f64() {
        let (misses, requests) = (count("misses"), count("requests"));
        let pct = share * 100.0;
        line.push_str(&format!(", {misses} of {requests} over it ({pct:.2} %)"));
    }
    if let at_floor @ 1.. = count("misses_at_floor") {
        line.push_str(&format!(
            ", {at_floor} of them with best-effort work paused"
        ));
    }
    line.push_str(match (slo["saturated"].as_str(), slo["learning"] == true) {
        (Some("floor"), _) => "; missed although best-effort work is paused",
        (Some(_), _) => "; best-effort work already gets the maximum",
        (None, true) => "; the limits for it are still being learnt",
        (None, false) => "",
    });
    Some(line)
}

/// Whether a target in ms is not enforced at its quantile: inferred requests have no known arrival.
pub(super) fn is_unheld(job: &Value) -> bool {
    let slo = &job["control"]["slo"];
    let is_time = |goal: &str| slo["of"] != "rate" && !goal.ends_with('x');
    job["requests_source"] == "inferred" && slo["goal"].as_str().is_some_and(is_time)
}

/// The chosen batches of a high-priority job and the state of their search, a line for each kind.
pub(super) fn batches(job: &Value) -> Vec<String> {
    let tuner = job.pointer("/control/tuner").and_then(Value::as_array);
    let lines = tuner.into_iter().flatten().filter_map(|of| {
        let (kind, state) = (of["kind"].as_u64()?, of["state"].as_str()?);
        let evaluations = counted(of["evaluations"].as_u64()?, "evaluation", "evaluations");
        let batch = of["batch"].as_u64();
        let target = match of["target_ns"].as_u64() {
            Some(ns) => format!("{} ms", ns as f64 / 1e6),
            None => "the target".to_owned(),
        };
        let said = match (state, batch) {
            ("kept", Some(batch)) => format!("{batch}, after {evaluations}"),
            ("trying", Some(batch)) => format!("trying {batch}, after {evaluations}"),
            ("looking", _) => "measuring the batch sizes that the program chooses".to_owned(),
            ("waiting", _) => "waiting for the search for other requests".to_owned(),
            ("alone", _) => {
                "chosen by the program, because no best-effort job is attached".to_owned()
            }
            ("no-target", _) => {
                "chosen by the program, because these requests have no target in ms".to_owned()
            }
            ("infeasible", _) => {
                format!("no batch size is known to meet {target}; best-effort jobs are paused")
            }
            ("ignored", _) => "the program does not use the batch size that was set".to_owned(),
            (other, _) => other.to_owned(),
        };
        let mut line = format!("batch size for requests of kind {kind}: {said}");
        if let Some(rate) = of["rate_per_s"].as_f64() {
            line.push_str(&format!("; {rate:.1} requests/s"));
        }
        if let Some(ns) = of["p99_ns"].as_u64() {
            line.push_str(&format!("; a batch takes {:.2} ms (p99)", ns as f64 / 1e6));
        }
        Some(line)
    });
    lines.collect()
}

/// A best-effort job's cap and its source, and its use; none for jobs without a cap.
pub(super) fn cap(job: &Value) -> Option<String> {
    let usage = job.pointer("/control/usage")?;
    let (cap, source) = (usage["cap"].as_f64()?, usage["source"].as_str()?);
    if cap >= 1.0 {
        return None;
    }
    // Hundredths of a per cent are kept.
    let pct = (cap * 1e4).round() / 1e2;
    let used = usage["used"].as_f64();
    let used = used.map_or_else(String::new, |used| format!(", uses {:.1} %", used * 1e2));
    let blind = match usage["blind"] == true {
        true => "; NVML does not report its use",
        false => "",
    };
    Some(format!(
        "at most {pct} % of the GPU's time ({source}){used}{blind}"
    ))
}

/// A best-effort job's weight and least share, with their sources; none for weight 1 that nobody
/// has set and no least share.
pub(super) fn promise(job: &Value) -> Option<String> {
    let promise = job.pointer("/control/promise")?;
    let is_usual = promise["weight"] == 1 && promise["weight_source"] != "set";
    let weight = weight(promise).filter(|_| !is_usual);
    let parts: Vec<String> = weight.into_iter().chain(least(promise)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// [`promise`] including the default, to answer a change; none where the policy ignores promises.
pub(super) fn promise_in_full(job: &Value) -> Option<String> {
    let promise = job.pointer("/control/promise")?;
    let weight = weight(promise)?;
    let none = || {
        let source = source(promise, "min_progress_source");
        format!("no least share ({source})")
    };
    let least = least(promise).unwrap_or_else(none);
    Some(format!("{weight}, {least}"))
}

fn weight(promise: &Value) -> Option<String> {
    let weight = promise["weight"].as_u64()?;
    let source = source(promise, "weight_source");
    Some(format!("weight {weight} ({source})"))
}

fn least(promise: &Value) -> Option<String> {
    let pct = (promise["min_progress"].as_f64()? * 1e4).round() / 1e2;
    let source = source(promise, "min_progress_source");
    Some(format!("at least {pct} % of its rate alone ({source})"))
}

fn source<'v>(promise: &'v Value, name: &str) -> &'v str {
    promise[name].as_str().unwrap_or("N/A")
}

/// The limits on all best-effort work together, and the device state behind them; a line each.
pub(super) fn together(status: &Value) -> impl Iterator<Item = String> {
    let lines = [
        throttle(status),
        device::line(status),
        share(status),
        probe::line(status),
    ];
    lines.into_iter().flatten()
}

/// The GPU's use, and the resulting limit on best-effort work; none without a throttle.
fn throttle(status: &Value) -> Option<String> {
    let throttle = &status["policy"]["throttle"];
    let (held, rate) = (
        throttle["utilisation"].as_f64()?,
        throttle["rate"].as_f64()?,
    );
    let pct = |share: f64| format!("{:.0} %", share * 100.0);
    let mut line = format!("throttle at {} use", pct(held));
    if status["hp"]["present"] != true {
        line.push_str(": holds nothing, because no high-priority job is attached");
        return Some(line);
    }
    if let Some((usage, busy)) = throttle["usage"].as_f64().zip(throttle["busy"].as_f64()) {
        line.push_str(&format!(
            ": use {} (busy {} of the time)",
            pct(usage),
            pct(busy)
        ));
    }
    let clocks = throttle["clock_mhz"]
        .as_u64()
        .zip(throttle["clock_alone_mhz"].as_u64());
    if let Some((clock, alone)) = clocks {
        line.push_str(&format!(
            ", {clock} MHz ({alone} for high-priority work alone)"
        ));
    }
    line.push_str(&format!(
        "; best-effort work may use {} of the GPU's time",
        pct(rate)
    ));
    if throttle["blind"] == true {
        line.push_str("; NVML does not report the use of the GPU");
    }
    Some(line)
}

/// The share of the GPU that best-effort work has beside high-priority work; none without a share.
fn share(status: &Value) -> Option<String> {
    let share = &status["policy"]["share"];
    let mode = share["mode"].as_str()?;
    let Some(percent) = share["percent"].as_u64() else {
        return Some(format!("share of best-effort jobs ({mode}): not known yet"));
    };
    let held = match share["of"].as_str() {
        Some("time") => "of the time for all together beside high-priority work",
        _ => "of the SMs for jobs that start now",
    };
    let mut line = format!("share of best-effort jobs ({mode}): {percent} % {held}");
    if let Some(used) = share["used"].as_f64() {
        let pct = used * 100.0;
        line.push_str(&format!("; high-priority work uses {pct:.0} %"));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(source: &str, slo: Value) -> String {
        slo_of(&json!({"requests_source": source, "control": {"slo": slo}}))
    }

    fn slo_of(job: &Value) -> String {
        slo(job).unwrap()
    }

    #[test]
    fn a_target_its_origin_and_how_it_is_held_are_one_line() {
        let held = json!({
            "goal": "1.2x", "source": "configuration", "miss": 0.01, "target_ns": 9_431_000,
            "measured_ns": 9_104_000, "miss_share": 12.0 / 1400.0, "level": 0.3, "requests": 1400, "misses": 12,
            "misses_at_floor": 0, "saturated": null, "learning": false
        });
        assert_eq!(
            line("marks", held.clone()),
            "target p99 1.2x alone (configuration) = 9.43 ms, measured 9.10 ms, 12 of 1400 over it (0.86 %)"
        );
        let at = |end: &str, at_floor: u64| {
            let mut slo = held.clone();
            slo["saturated"] = json!(end);
            slo["misses_at_floor"] = json!(at_floor);
            line("nvtx", slo)
        };
        let floor =
            ", 3 of them with best-effort work paused; missed although best-effort work is paused";
        assert!(at("floor", 3).ends_with(floor));
        assert!(at("top", 0).ends_with("(0.86 %); best-effort work already gets the maximum"));
    }

    #[test]
    fn a_target_that_is_not_judged_yet_or_cannot_be_says_so() {
        let slo = |goal: &str, miss: Value, learning: bool| {
            json!({
                "goal": goal, "source": "run", "miss": miss, "target_ns": null, "measured_ns": null, "miss_share": null,
                "level": null, "requests": 0, "misses": 0, "misses_at_floor": 0, "saturated": null, "learning": learning
            })
        };
        let said = |source, slo| line(source, slo);
        let of = |of: &str, mut slo: Value| {
            slo["of"] = json!(of);
            slo
        };
        assert_eq!(
            said("marks", slo("15ms", json!(0.005), true)),
            "target p99.5 15ms (run); the limits for it are still being learnt"
        );
        assert_eq!(
            said("inferred", slo("15ms", json!(0.01), false)),
            "target 15ms (run), not enforced at p99, because the program marks no requests"
        );
        assert_eq!(
            said("inferred", slo("1.05x", json!(0.01), false)),
            "target 1.05x alone (run)"
        );
        assert_eq!(
            said("inferred", of("rate", slo("0.9", Value::Null, false))),
            "target 0.9 of its rate alone (run)"
        );
        assert_eq!(
            said("inferred", of("mean", slo("15ms", Value::Null, false))),
            "target 15ms (run), not enforced as a mean, because the program marks no requests"
        );
        assert_eq!(
            said("marks", of("mean", slo("1.2x", Value::Null, true))),
            "target mean 1.2x alone (run); the limits for it are still being learnt"
        );
        let mut held = of("rate", slo("0.9", Value::Null, false));
        held["target_ns"] = json!(11_100_000);
        held["measured_ns"] = json!(11_050_000);
        assert_eq!(
            said("marks", held),
            "target 0.9 of its rate alone (run) = 11.10 ms, measured 11.05 ms"
        );
        for none in [json!({"control": null}), json!({})] {
            assert_eq!(super::slo(&none), None);
            assert!(!is_unheld(&none));
        }
        let job =
            |source: &str, slo: Value| json!({"requests_source": source, "control": {"slo": slo}});
        let time = || slo("15ms", json!(0.01), false);
        assert!(is_unheld(&job("inferred", time())));
        assert!(!is_unheld(&job("marks", time())));
        assert!(!is_unheld(&job(
            "inferred",
            slo("1.05x", json!(0.01), false)
        )));
    }

    #[test]
    fn a_search_for_a_batch_is_said_as_it_stands_and_none_is_not() {
        let said = |state: &str, batch: Value, evaluations: u64| {
            let tuner = json!({
                "pid": 7, "kind": 2, "state": state, "batch": batch, "evaluations": evaluations, "rate_per_s": 400.04,
                "p99_ns": 14_204_000, "target_ns": 50_000_000
            });
            batches(&json!({"control": {"tuner": [tuner]}})).concat()
        };
        let measured = "; 400.0 requests/s; a batch takes 14.20 ms (p99)";
        let kept = "batch size for requests of kind 2: 8, after 6 evaluations";
        assert_eq!(said("kept", json!(8), 6), format!("{kept}{measured}"));
        let paused = "batch size for requests of kind 2: no batch size is known to meet 50 ms; best-effort jobs are paused";
        assert_eq!(
            said("infeasible", json!(4), 3),
            format!("{paused}{measured}")
        );
        let tried = "batch size for requests of kind 2: trying 16, after 1 evaluation;";
        assert!(said("trying", json!(16), 1).starts_with(tried));
        let alone = batches(&json!({"control": {"tuner": [{
            "kind": 0, "state": "alone", "batch": null, "evaluations": 0, "rate_per_s": null, "p99_ns": null, "target_ns": null
        }]}}));
        let expected = "batch size for requests of kind 0: chosen by the program, because no best-effort job is attached";
        assert_eq!(alone, [expected]);
        for none in [json!({"control": {"tuner": []}}), json!({"control": null})] {
            assert!(batches(&none).is_empty());
        }
    }

    #[test]
    fn a_throttle_is_said_with_what_it_goes_by_and_none_is_not() {
        let status = |of: Value, hp| json!({"policy": {"throttle": of}, "hp": {"present": hp}});
        let said = |of: Value| throttle(&status(of, true));
        assert_eq!(
            said(json!({
                "utilisation": 0.9, "usage": 0.931, "busy": 0.78, "clock_mhz": 1290, "clock_alone_mhz": 1380, "rate": 0.42,
                "dropped": 0, "blind": false
            }))
            .unwrap(),
            "throttle at 90 % use: use 93 % (busy 78 % of the time), 1290 MHz (1380 for high-priority work alone); \
             best-effort work may use 42 % of the GPU's time"
        );
        assert_eq!(
            said(json!({
                "utilisation": 0.5, "usage": null, "busy": null, "clock_mhz": null, "clock_alone_mhz": 1380, "rate": 1.0,
                "dropped": 70, "blind": true
            }))
            .unwrap(),
            "throttle at 50 % use; best-effort work may use 100 % of the GPU's time; NVML does not report the use of the GPU"
        );
        assert_eq!(said(Value::Null), None);
        let idle =
            json!({"utilisation": 0.5, "usage": 0.9, "busy": 0.9, "rate": 0.4, "blind": false});
        assert_eq!(
            throttle(&status(idle, false)).unwrap(),
            "throttle at 50 % use: holds nothing, because no high-priority job is attached"
        );
    }

    #[test]
    fn a_share_is_said_with_what_it_is_of_and_none_is_not() {
        let said = |of: Value| share(&json!({"policy": {"share": of}}));
        assert_eq!(
            said(json!({"mode": "dynamic", "percent": 70, "used": 0.302, "of": "sms"})).unwrap(),
            "share of best-effort jobs (dynamic): 70 % of the SMs for jobs that start now; high-priority work uses 30 %"
        );
        assert_eq!(
            said(json!({"mode": "static", "percent": 40, "used": null, "of": "time"})).unwrap(),
            "share of best-effort jobs (static): 40 % of the time for all together beside high-priority work"
        );
        assert_eq!(
            said(json!({"mode": "dynamic", "percent": null, "used": null, "of": "sms"})).unwrap(),
            "share of best-effort jobs (dynamic): not known yet"
        );
        assert_eq!(said(Value::Null), None);
    }

    #[test]
    fn promises_are_said_with_where_they_come_from_and_the_usual_weight_is_not() {
        let said = |weight: u64, of_weight: &str, least: Value, of_least: &str| {
            let said = json!({
                "weight": weight, "weight_source": of_weight,
                "min_progress": least, "min_progress_source": of_least
            });
            let job = json!({"control": {"promise": said}});
            (promise(&job), promise_in_full(&job).unwrap())
        };
        let (both, full) = said(3, "set", json!(0.125), "configuration");
        let expected = "weight 3 (set), at least 12.5 % of its rate alone (configuration)";
        assert_eq!((both.as_deref(), &*full), (Some(expected), expected));
        let (weight, full) = said(1, "set", Value::Null, "configuration");
        assert_eq!(weight.unwrap(), "weight 1 (set)");
        assert_eq!(full, "weight 1 (set), no least share (configuration)");
        let (least, full) = said(1, "configuration", json!(0.3), "set");
        let expected = "at least 30 % of its rate alone (set)";
        assert_eq!(least.unwrap(), expected);
        assert_eq!(full, format!("weight 1 (configuration), {expected}"));
        let (none, full) = said(1, "configuration", Value::Null, "configuration");
        assert_eq!(none, None);
        assert_eq!(
            full,
            "weight 1 (configuration), no least share (configuration)"
        );
        let none = json!({"control": {"promise": null}});
        assert_eq!((promise(&none), promise_in_full(&none)), (None, None));
    }

    #[test]
    fn a_cap_is_said_with_what_the_job_uses_and_no_cap_is_not() {
        let said = |usage: Value| cap(&json!({"control": {"slo": null, "usage": usage}}));
        assert_eq!(
            said(json!({"cap": 0.3, "source": "run", "used": 0.2987})).unwrap(),
            "at most 30 % of the GPU's time (run), uses 29.9 %"
        );
        assert_eq!(
            said(json!({"cap": 0.125, "source": "configuration", "used": null, "blind": true}))
                .unwrap(),
            "at most 12.5 % of the GPU's time (configuration); NVML does not report its use"
        );
        assert_eq!(
            said(json!({"cap": 1.0, "source": "configuration", "used": 0.9})),
            None
        );
        assert_eq!(said(Value::Null), None);
    }
}

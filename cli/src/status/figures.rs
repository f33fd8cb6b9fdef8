//! The latency targets in numbers: the latency of a high-priority job's requests in the last
//! minute, their target, and the share within it; and the progress of best-effort jobs. `-` stands
//! for what does not apply or has not happened, `N/A` for what an older daemon does not report.

use serde_json::Value;

/// Latencies of a high-priority job's requests in the last minute, or of those of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) p50: String,
    pub(super) p99: String,
    /// A request's target; the goal in words if its time is unknown.
    pub(super) target: String,
    pub(super) within: String,
    /// Orders jobs: the smallest is the worst.
    standing: (f64, f64),
}

impl Figures {
    pub(super) fn of(job: &Value) -> Self {
        if job["class"] != "high-priority" {
            return Self::none();
        }
        let requests = &job["requests"];
        let unknown = match job.get("requests") {
            None => "N/A",
            Some(_) => "-",
        };
        let time = |value: &Value| value.as_u64().map_or(unknown.to_owned(), latency);
        let within = requests["within_target"].as_f64();
        let p99_ns = requests["recent"]["p99_ns"].as_f64();
        Self {
            p50: time(&requests["recent"]["p50_ns"]),
            p99: time(&requests["recent"]["p99_ns"]),
            target: target(job),
            within: within.map_or(unknown.to_owned(), share_within),
            // A job that is not judged ranks worse than no job, and better than a judged one.
            standing: (within.unwrap_or(2.0), -p99_ns.unwrap_or(0.0)),
        }
    }

    pub(super) fn of_worst<'a>(jobs: impl Iterator<Item = &'a Value>) -> Self {
        let high_priority = jobs.filter(|job| job["class"] == "high-priority");
        let figures = high_priority.map(Self::of);
        let worst = figures.min_by(|a, b| {
            let (a, b) = (a.standing, b.standing);
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        worst.unwrap_or_else(Self::none)
    }

    fn none() -> Self {
        let none = || "-".to_owned();
        Self {
            p50: none(),
            p99: none(),
            target: none(),
            within: none(),
            standing: (f64::INFINITY, 0.0),
        }
    }
}

fn target(job: &Value) -> String {
    let slo = job.pointer("/control/slo");
    let of = |value: &Value| value.as_u64().map(latency);
    let known = of(&job["requests"]["target_ns"]);
    let known = known.or_else(|| of(&slo?["target_ns"]));
    let goal = || Some(slo?["goal"].as_str()?.to_owned());
    known.or_else(goal).unwrap_or_else(|| "-".to_owned())
}

/// The mean share of their rate alone that those best-effort jobs get that want anything; `<` marks
/// an upper bound.
pub(super) fn be_share<'a>(jobs: impl Iterator<Item = &'a Value>) -> String {
    let progress = jobs.map(|job| &job["progress"]);
    let shares: Vec<(f64, bool)> = progress
        .filter_map(|progress| {
            let is_bound = progress["share_of"] != "alone";
            Some((progress["share"].as_f64()?, is_bound))
        })
        .collect();
    if shares.is_empty() {
        return "-".to_owned();
    }
    let mean = shares.iter().map(|(share, _)| share).sum::<f64>() / shares.len() as f64;
    let mark = match shares.iter().any(|(_, is_bound)| *is_bound) {
        true => "<",
        false => "",
    };
    format!("{mark}{:.0} %", mean * 100.0)
}

/// A share of requests; rounded down, so that 100 % means all.
pub(super) fn share_within(share: f64) -> String {
    let pct = (share * 1e3 + 1e-9).floor() / 10.0;
    match pct {
        100.0.. => "100 %".to_owned(),
        pct => format!("{pct:.1} %"),
    }
}

/// A request's latency, in three digits.
pub(super) fn latency(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    match us {
        ..999.5 => format!("{us:.0} us"),
        ..999_500.0 => format!("{} ms", three_digits(us / 1e3)),
        us => format!("{} s", three_digits(us / 1e6)),
    }
}

/// Bytes in three digits.
pub(super) fn memory(value: &Value, none: &str) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let Some(bytes) = value.as_u64() else {
        return none.to_owned();
    };
    let mib = bytes as f64 / MIB;
    match mib {
        ..999.5 => format!("{} MiB", three_digits(mib)),
        mib => format!("{} GiB", three_digits(mib / 1024.0)),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn serving(within: Value, p99_ns: u64) -> Value {
        json!({"class": "high-priority", "requests": {
            "recent": {"p50_ns": 6_812_000, "p99_ns": p99_ns}, "target_ns": 9_431_000, "within_target": within,
        }})
    }

    fn texts(figures: &Figures) -> [&str; 4] {
        [&figures.p50, &figures.p99, &figures.target, &figures.within]
    }

    #[test]
    fn a_gpus_numbers_are_those_of_the_job_that_keeps_its_target_worst() {
        let jobs = [
            serving(json!(0.9999), 9_104_000),
            serving(json!(0.921), 11_200_000),
            serving(json!(0.99), 90_000_000),
            json!({"class": "best-effort"}),
        ];
        let worst = Figures::of_worst(jobs.iter());
        assert_eq!(texts(&worst), ["6.81 ms", "11.2 ms", "9.43 ms", "92.1 %"]);
        let first = Figures::of(&jobs[0]);
        assert_eq!(first.within, "99.9 %", "not all of them");
        // Without a judged job the slowest.
        let jobs = [
            serving(Value::Null, 1_000_000),
            serving(Value::Null, 2_000_000),
        ];
        let worst = Figures::of_worst(jobs.iter());
        assert_eq!((&*worst.p99, &*worst.within), ("2.00 ms", "-"));
        assert_eq!(texts(&Figures::of_worst([].iter())), ["-"; 4]);
    }

    #[test]
    fn what_an_older_daemon_does_not_report_is_not_zero() {
        let job = json!({"class": "high-priority", "control": {"slo": {
            "goal": "1.2x", "target_ns": 9_431_000, "measured_ns": 9_104_000,
        }}});
        assert_eq!(texts(&Figures::of(&job)), ["N/A", "N/A", "9.43 ms", "N/A"]);
        // A current daemon's job, whose requests are unknown.
        let job = json!({"class": "high-priority", "requests": null,
            "control": {"slo": {"goal": "1.2x", "target_ns": null}}});
        assert_eq!(texts(&Figures::of(&job)), ["-", "-", "1.2x", "-"]);
        let job = json!({"class": "high-priority", "requests": {}, "control": null});
        assert_eq!(Figures::of(&job).target, "-");
    }

    #[test]
    fn what_best_effort_jobs_get_is_their_mean_and_a_bound_is_marked() {
        let job = |share: Value, of: &str| json!({"progress": {"share": share, "share_of": of}});
        let jobs = [
            job(json!(0.6), "alone"),
            job(json!(0.2), "alone"),
            json!({}),
        ];
        assert_eq!(be_share(jobs.iter()), "40 %");
        let jobs = [job(json!(0.6), "alone"), job(json!(0.2), "asked")];
        assert_eq!(be_share(jobs.iter()), "<40 %");
        let jobs = [job(Value::Null, "alone"), json!({"progress": null})];
        assert_eq!(be_share(jobs.iter()), "-");
    }

    #[test]
    fn numbers_have_three_digits() {
        for (ns, text) in [
            (0, "0 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (9_994_999, "9.99 ms"),
            (9_995_000, "10.0 ms"),
            (99_950_000, "100 ms"),
            (999_499_000, "999 ms"),
            (1_000_000_000, "1.00 s"),
            (75_000_000_000, "75.0 s"),
        ] {
            assert_eq!(latency(ns), text);
        }
        let bytes = |bytes: u64| memory(&json!(bytes), "-");
        assert_eq!(bytes(1 << 19), "0.50 MiB");
        assert_eq!(bytes(1000 << 20), "0.98 GiB");
        assert_eq!(bytes(16 << 30), "16.0 GiB");
        assert_eq!(memory(&Value::Null, "unlimited"), "unlimited");
        assert_eq!(share_within(1.0), "100 %");
        assert_eq!(share_within(0.99999), "99.9 %");
        assert_eq!(share_within(0.991), "99.1 %");
        assert_eq!(share_within(0.0), "0.0 %");
    }
}

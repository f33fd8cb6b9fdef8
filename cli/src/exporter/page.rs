//! A page of metrics: the families and their samples. [`ALL`] is the only list of families; a test
//! compares it with the table in `docs/monitoring.md`. Names carry base units (seconds, bytes,
//! ratio), as Prometheus recommends.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Family {
    /// The name in PromQL, with `_total` or `_info`; of a histogram without a suffix.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The base unit at the name's end, before `_total`; empty: a number.
    pub(super) unit: &'static str,
    /// Labels besides `le`. A label without a value is left out.
    pub(super) labels: &'static [&'static str],
    /// One line without quotes, backslashes and newlines, so that both formats write it alike.
    pub(super) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Only grows, until the daemon or the job ends.
    Counter,
    Gauge,
    Histogram,
    /// Always 1; the labels carry the information.
    Info,
}

pub(super) type Label = (&'static str, String);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Vec<Label>,
    pub(super) value: Number,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Count(u64),
    /// Printed as seconds, to the nanosecond.
    Ns(u64),
    Ratio(f64),
    Histogram(Histogram),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    /// Upper bound in ns, and how many took at most that; ascending.
    pub(super) buckets: Vec<(u64, u64)>,
    pub(super) count: u64,
    pub(super) sum_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Page {
    samples: BTreeMap<&'static str, Vec<Sample>>,
    /// Existing samples: a page with a duplicate is rejected as a whole.
    seen: BTreeSet<(&'static str, Vec<Label>)>,
}

/// Limit on a label's value, characters: the daemon's limit on a job's name in bytes.
const LABEL_CHARS_MAX: usize = 256;

const SOCKET: &[&str] = &["gpu", "UUID", "socket"];
const GPU: &[&str] = &["gpu", "UUID"];
const BY_CLASS: &[&str] = &["gpu", "UUID", "class"];
const JOB: &[&str] = &["gpu", "UUID", "pillion_job", "class", "uid", "pod_uid"];
const HELD: &[&str] = &[
    "gpu",
    "UUID",
    "pillion_job",
    "class",
    "uid",
    "pod_uid",
    "reason",
];

macro_rules! families {
    ($($id:ident = $name:literal, $kind:ident, $unit:literal, $labels:expr, $help:literal;)*) => {
        $(pub(super) const $id: Family = Family {
            name: $name, kind: Kind::$kind, unit: $unit, labels: $labels, help: $help,
        };)*

        /// In the order of the page.
        pub(super) const ALL: &[Family] = &[$($id,)*];
    };
}

families! {
    BUILD_INFO = "pillion_build_info", Info, "", &["version", "protocol"],
        "Version of the exporter and of its protocol.";
    DAEMON_UP = "pillion_daemon_up", Gauge, "", SOCKET,
        "1: the daemon at this socket answers; 0: it does not.";
    DAEMON_INFO = "pillion_daemon_info", Info, "",
        &["gpu", "UUID", "model", "version", "protocol", "policy", "sharing"],
        "The daemon of the GPU, its policy, and how the GPU is shared.";
    JOBS = "pillion_jobs", Gauge, "", BY_CLASS,
        "Jobs with clients, of all users.";
    JOBS_HIDDEN = "pillion_jobs_hidden", Gauge, "", BY_CLASS,
        "Jobs in pillion_jobs that the exporter's user may not see; they have no series.";
    UNMANAGED = "pillion_unmanaged_processes", Gauge, "", GPU,
        "Processes that use the GPU without Pillion.";
    DRAINING = "pillion_draining", Gauge, "", GPU,
        "1: the GPU is drained, until pillion resume.";
    HOLDS = "pillion_holds", Gauge, "", GPU,
        "Holds of jobs, of users' jobs or of all best-effort jobs that last until pillion resume or until MPS serves again.";
    EVENTS = "pillion_events_total", Counter, "", &["gpu", "UUID", "kind"],
        "Events since the daemon started, as pillion events shows them.";
    REQUESTS = "pillion_hp_request_duration_seconds", Histogram, "seconds", JOB,
        "Requests of a high-priority job that have ended, from arrival to end.";
    P50 = "pillion_hp_request_p50_seconds", Gauge, "seconds", JOB,
        "Median of the requests of the last minute.";
    P99 = "pillion_hp_request_p99_seconds", Gauge, "seconds", JOB,
        "99th percentile of the requests of the last minute.";
    TARGET = "pillion_hp_target_seconds", Gauge, "seconds", JOB,
        "Target for the duration of a request.";
    JUDGED = "pillion_hp_requests_judged_total", Counter, "", JOB,
        "Requests that were compared with a target.";
    OVER_TARGET = "pillion_hp_requests_over_target_total", Counter, "", JOB,
        "Requests that took longer than their target.";
    SLO_MISSED = "pillion_hp_slo_missed", Gauge, "", JOB,
        "1: the target is missed, from the event slo-missed to slo-met.";
    SHARE = "pillion_be_share_ratio", Gauge, "ratio", JOB,
        "Speed of a best-effort job, as a share of its speed alone.";
    HELD_TIME = "pillion_be_held_seconds_total", Counter, "seconds", HELD,
        "Time that a best-effort job was held, by the rule that held it.";
    LAUNCHES = "pillion_kernel_launches_total", Counter, "", JOB,
        "Kernels that the job has launched.";
    GPU_TIME = "pillion_gpu_time_seconds_total", Counter, "seconds", JOB,
        "GPU time of the job: the expected solo duration of its launches.";
    MEMORY_USED = "pillion_memory_used_bytes", Gauge, "bytes", JOB,
        "GPU memory that the job holds.";
    MEMORY_QUOTA = "pillion_memory_quota_bytes", Gauge, "bytes", JOB,
        "GPU memory that the job may hold; absent if unlimited.";
}

impl Page {
    /// Adds a sample, unless the family already has one with these labels.
    pub(super) fn add(&mut self, family: &Family, labels: &[Label], value: Number) {
        let labels: Vec<Label> = labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (*name, legible(value)))
            .collect();
        let is_known = |(name, _): &Label| family.labels.contains(name);
        debug_assert!(labels.iter().all(is_known), "{family:?} has no {labels:?}");
        if self.seen.insert((family.name, labels.clone())) {
            let samples = self.samples.entry(family.name).or_default();
            samples.push(Sample { labels, value });
        }
    }

    pub(super) fn add_some(&mut self, family: &Family, labels: &[Label], value: Option<Number>) {
        if let Some(value) = value {
            self.add(family, labels, value);
        }
    }

    pub(super) fn families(&self) -> impl Iterator<Item = (&'static Family, &[Sample])> {
        let samples = |family: &Family| self.samples.get(family.name);
        ALL.iter()
            .filter_map(move |family| Some((family, samples(family)?.as_slice())))
    }
}

/// Makes a value legible in both formats. Users choose job names, and a zero byte makes Prometheus
/// reject the whole page.
fn legible(value: &str) -> String {
    let one = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    value.chars().take(LABEL_CHARS_MAX).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_their_unit_and_kind_and_labels_are_none_of_prometheus_own() {
        for family in ALL {
            let rest = match family.kind {
                Kind::Counter => family.name.strip_suffix("_total"),
                Kind::Info => family.name.strip_suffix("_info"),
                Kind::Gauge | Kind::Histogram => Some(family.name),
            };
            let rest = rest.unwrap_or_else(|| panic!("{}", family.name));
            assert!(rest.starts_with("pillion_"), "{rest}");
            assert!(rest.ends_with(family.unit), "{rest}");
            let is_plain = |c: char| !matches!(c, '"' | '\\' | '\n');
            assert!(family.help.chars().all(is_plain), "{rest}");
            for taken in ["job", "instance", "pid", "le", "quantile"] {
                assert!(!family.labels.contains(&taken), "{rest} has {taken}");
            }
        }
    }

    #[test]
    fn a_name_that_would_end_the_page_or_pass_for_another_line_is_made_harmless() {
        let mut page = Page::default();
        let name = format!("a\0b\nc\"\\{}", "x".repeat(1000));
        let labels = [("pillion_job", name)];
        page.add(&LAUNCHES, &labels, Number::Count(1));
        page.add(&LAUNCHES, &labels, Number::Count(2));
        let (_, samples) = page.families().next().unwrap();
        let [sample] = samples else {
            panic!("{samples:?}");
        };
        let value = &sample.labels[0].1;
        assert!(value.starts_with("a\u{fffd}b\u{fffd}c\"\\xx"), "{value}");
        assert_eq!(value.chars().count(), LABEL_CHARS_MAX);
        assert_eq!(sample.value, Number::Count(1));
    }
}

//! The metrics of daemons: converts their status documents to samples. A field that a daemon lacks
//! (an older daemon, a policy without such a number) leaves its metric out: no sample, never a
//! zero. There are at most 60 series per GPU and 25 per job, whatever a document contains (a test
//! checks this by `GPU_SERIES_MAX` and `JOB_SERIES_MAX`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use protocol::VERSION;
use scheduler::core::event::{Kind, Severity};
use serde_json::Value;

use super::page::{self, Family, Histogram, Label, Number, Page};

/// A daemon's answer; no status if it gave none.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) socket: PathBuf,
    pub(super) status: Option<Value>,
}

/// The kernel's information about this machine; tests substitute it.
pub(super) trait Host {
    fn pod_of(&self, pid: u64) -> Option<String>;
    /// The index of a GPU among all of this machine, by its PCI bus id.
    fn index_of(&self, pci: &str) -> Option<String>;
}

/// State kept between scrapes, so that a series keeps its labels: a silent daemon does not report
/// its GPU, and a job that has ended has no process that shows its pod.
#[derive(Debug, Default)]
pub(super) struct Memory {
    gpus: BTreeMap<PathBuf, Vec<Label>>,
    pods: BTreeMap<Key, String>,
}

/// A job as the daemons know it: GPU, id, user and class.
type Key = [String; 4];

#[cfg(test)]
const GPU_SERIES_MAX: usize = 60;
#[cfg(test)]
const JOB_SERIES_MAX: usize = 25;
/// How long a job that has ended keeps its series: two scrapes even at one per two minutes.
const ENDED_NS: u64 = 300_000_000_000;
/// Limit on the kinds of events with a series: every warning and error of the daemon has one.
/// Further kinds are `other`.
const KINDS_MAX: usize = 40;
/// Limit on a histogram's bounds with a series of their own. The daemon has twelve.
const BUCKETS_MAX: usize = 12;
/// Limit on the limiting rules with a series; further ones are `other`. The daemon has ten.
const REASONS_MAX: usize = 20;
const OTHER: &str = "other";
/// Kinds that alerts ask for have a series before their first event: `increase()` would miss that.
const KINDS_ALWAYS: [&str; 12] = [
    "config-refused",
    "died-in-flight",
    "ecc",
    "evicted",
    "job-stuck",
    "memory-excess",
    "mps-given-up",
    "slo-missed",
    "sticky-error",
    "stuck",
    "unmanaged",
    "xid",
];

pub(super) fn page(answers: &[Answer], host: &impl Host, memory: &mut Memory) -> Page {
    let mut page = Page::default();
    let labels = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("protocol", VERSION.to_string()),
    ];
    page.add(&page::BUILD_INFO, &labels, Number::Count(1));
    let mut keys = BTreeSet::new();
    for answer in answers {
        let gpu = memory.gpu_of(answer, host);
        let up = [gpu.as_slice(), &[("socket", text_of(&answer.socket))]].concat();
        let is_up = Number::Count(answer.status.is_some().into());
        page.add(&page::DAEMON_UP, &up, is_up);
        if let Some(status) = &answer.status {
            add_gpu(&mut page, &gpu, status);
            for job in listed(status) {
                let key = key_of(&gpu, job);
                let labels = job_labels(&gpu, &key, memory.pod_of(&key, job, host));
                add_job(&mut page, &labels, job);
                keys.insert(key);
            }
        } else {
            // The jobs of a silent daemon are not known to have ended.
            let uuid = label(&gpu, "UUID");
            let is_its = |key: &&Key| key[0] == uuid;
            keys.extend(memory.pods.keys().filter(is_its).cloned());
        }
    }
    memory.keep(answers, &keys);
    page
}

/// A daemon's jobs that have series: those with clients, and those that ended recently.
fn listed(status: &Value) -> impl Iterator<Item = &Value> {
    let now_ns = status["daemon"]["now_ns"].as_u64().unwrap_or(0);
    let jobs = status["jobs"].as_array().into_iter().flatten();
    jobs.filter(move |job| {
        let ended_ns = job["ended_ns"].as_u64();
        ended_ns.is_none_or(|ended_ns| now_ns.saturating_sub(ended_ns) < ENDED_NS)
    })
}

impl Memory {
    /// Labels of a daemon's GPU: a silent daemon's come from its last answer, or its socket's name.
    fn gpu_of(&mut self, answer: &Answer, host: &impl Host) -> Vec<Label> {
        let gpu = answer.status.as_ref().map(|status| &status["gpu"]);
        let Some(uuid) = gpu.and_then(|gpu| gpu["uuid"].as_str()) else {
            let known = self.gpus.get(&answer.socket).cloned();
            return known.unwrap_or_else(|| named_by(&answer.socket));
        };
        let gpu = gpu.unwrap_or(&Value::Null);
        let pci = gpu["pci"].as_str().unwrap_or_default();
        let index = host.index_of(pci).unwrap_or_default();
        let labels = vec![("gpu", index), ("UUID", uuid.to_owned())];
        self.gpus.insert(answer.socket.clone(), labels.clone());
        labels
    }

    /// The pod of a job. The remembered one stays as long as one of its processes, or none, is
    /// visible; else it is the pod of all its processes, since a series has one.
    fn pod_of(&mut self, key: &Key, job: &Value, host: &impl Host) -> String {
        let clients = job["clients"].as_array().into_iter().flatten();
        let pids = clients.filter_map(|client| client["pid"].as_u64().filter(|&pid| pid != 0));
        let pods: BTreeSet<String> = pids.filter_map(|pid| host.pod_of(pid)).collect();
        let known = self.pods.get(key);
        if let Some(pod) = known.filter(|pod| pods.is_empty() || pods.contains(*pod)) {
            return pod.clone();
        }
        let mut pods = pods.into_iter();
        match (pods.next(), pods.next()) {
            (Some(pod), None) => {
                self.pods.insert(key.clone(), pod.clone());
                pod
            }
            _ => {
                self.pods.remove(key);
                String::new()
            }
        }
    }

    fn keep(&mut self, answers: &[Answer], keys: &BTreeSet<Key>) {
        let is_there = |socket: &PathBuf| answers.iter().any(|answer| answer.socket == *socket);
        self.gpus.retain(|socket, _| is_there(socket));
        self.pods.retain(|key, _| keys.contains(key));
    }
}

/// Daemons found by identity have the GPU's UUID as the name of their socket.
fn named_by(socket: &Path) -> Vec<Label> {
    let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
    let is_uuid = ["GPU-", "MIG-"].iter().any(|kind| stem.starts_with(kind));
    let uuid = is_uuid.then(|| ("UUID", stem.into_owned()));
    uuid.into_iter().collect()
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

fn label(labels: &[Label], name: &str) -> String {
    let found = labels.iter().find(|(label, _)| *label == name);
    found.map_or_else(String::new, |(_, value)| value.clone())
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn count(value: &Value) -> Option<Number> {
    value.as_u64().map(Number::Count)
}

fn ns(value: &Value) -> Option<Number> {
    value.as_u64().map(Number::Ns)
}

fn with(labels: &[Label], name: &'static str, value: &str) -> Vec<Label> {
    [labels, &[(name, value.to_owned())]].concat()
}

fn key_of(gpu: &[Label], job: &Value) -> Key {
    let uid = job["uid"].as_u64().map(|uid| uid.to_string());
    [
        label(gpu, "UUID"),
        word(&job["job"]),
        uid.unwrap_or_default(),
        word(&job["class"]),
    ]
}

fn job_labels(gpu: &[Label], [_, id, uid, class]: &Key, pod: String) -> Vec<Label> {
    let own = [
        ("pillion_job", id.clone()),
        ("class", class.clone()),
        ("uid", uid.clone()),
        ("pod_uid", pod),
    ];
    [gpu, &own].concat()
}

fn add_gpu(page: &mut Page, gpu: &[Label], status: &Value) {
    let own = [
        ("model", word(&status["gpu"]["name"])),
        ("version", word(&status["daemon"]["version"])),
        ("protocol", word(&status["daemon"]["protocol"])),
        ("policy", word(&status["policy"]["name"])),
        ("sharing", word(&status["gpu"]["sharing"])),
    ];
    let info = [gpu, &own].concat();
    page.add(&page::DAEMON_INFO, &info, Number::Count(1));
    add_job_counts(page, gpu, status);
    let unmanaged = count(&status["unmanaged"]["count"]);
    page.add_some(&page::UNMANAGED, gpu, unmanaged);
    let draining = status.get("draining");
    let draining = draining.map(|why| Number::Count(why.is_string().into()));
    page.add_some(&page::DRAINING, gpu, draining);
    let holds = status["held"].as_array();
    let holds = holds.map(|holds| Number::Count(holds.len() as u64));
    page.add_some(&page::HOLDS, gpu, holds);
    if let Some(counts) = status["events"]["counts"].as_object() {
        add_events(page, gpu, counts);
    }
}

/// The kinds with a series of their own, warnings and errors. They depend on the program alone and
/// not on past events: a kind that moved to `other` would take its count there, as a jump of
/// `increase()`.
fn kinds_with_series() -> impl Iterator<Item = &'static str> {
    let troubles = Kind::ALL
        .iter()
        .filter(|kind| kind.severity() != Severity::Info);
    let further = troubles.map(|kind| kind.name());
    let further = further.filter(|kind| !KINDS_ALWAYS.contains(kind));
    KINDS_ALWAYS.into_iter().chain(further).take(KINDS_MAX)
}

fn add_events(page: &mut Page, gpu: &[Label], counts: &serde_json::Map<String, Value>) {
    let own: Vec<&str> = kinds_with_series().collect();
    for &kind in &own {
        let least = KINDS_ALWAYS.contains(&kind).then_some(0);
        let count = counts.get(kind).and_then(Value::as_u64).or(least);
        let labels = with(gpu, "kind", kind);
        page.add_some(&page::EVENTS, &labels, count.map(Number::Count));
    }
    let rest = counts
        .iter()
        .filter(|(kind, _)| !own.contains(&kind.as_str()));
    let rest = rest.filter_map(|(_, count)| count.as_u64());
    let rest = rest.reduce(u64::saturating_add);
    let labels = with(gpu, "kind", OTHER);
    page.add_some(&page::EVENTS, &labels, rest.map(Number::Count));
}

fn add_job_counts(page: &mut Page, gpu: &[Label], status: &Value) {
    let Some(jobs) = status["jobs"].as_array() else {
        return;
    };
    let hidden = &status["others"];
    for (class, name) in [
        ("high-priority", "high_priority"),
        ("best-effort", "best_effort"),
    ] {
        let is_its = |job: &&Value| job["class"] == class && job["ended_ns"].is_null();
        let seen = jobs.iter().filter(is_its).count() as u64;
        let labels = with(gpu, "class", class);
        let hidden = hidden[name].as_u64();
        let all = seen + hidden.unwrap_or(0);
        page.add(&page::JOBS, &labels, Number::Count(all));
        page.add_some(&page::JOBS_HIDDEN, &labels, hidden.map(Number::Count));
    }
}

/// Adds a counter for each word; those beyond the first `most` share one. A word may move to that
/// one when another word comes, never back, so that counters only grow.
fn add_by<'a>(
    page: &mut Page,
    (family, label, most): (&Family, &'static str, usize),
    labels: &[Label],
    counts: impl Iterator<Item = (&'a str, &'a Value)>,
    number: impl Fn(u64) -> Number,
) {
    let mut rest = None;
    for (place, (word, count)) in counts.enumerate() {
        let count = count.as_u64().unwrap_or(0);
        match place < most {
            true => page.add(family, &with(labels, label, word), number(count)),
            false => rest = Some(count.saturating_add(rest.unwrap_or(0))),
        }
    }
    let labels = with(labels, label, OTHER);
    page.add_some(family, &labels, rest.map(number));
}

fn add_job(page: &mut Page, labels: &[Label], job: &Value) {
    add_requests(page, labels, &job["requests"]);
    let share = job["progress"]["share"].as_f64();
    let share = share.filter(|share| share.is_finite()).map(Number::Ratio);
    page.add_some(&page::SHARE, labels, share);
    if let Some(held) = job["progress"]["held_ns"].as_object() {
        let held = held.iter().map(|(reason, ns)| (reason.as_str(), ns));
        let family = (&page::HELD_TIME, "reason", REASONS_MAX - 1);
        add_by(page, family, labels, held, Number::Ns);
    }
    for (family, value) in [
        (&page::LAUNCHES, count(&job["totals"]["launches"])),
        (&page::GPU_TIME, ns(&job["gpu_time_ns"])),
        (&page::MEMORY_USED, count(&job["memory"]["held_bytes"])),
        (&page::MEMORY_QUOTA, count(&job["memory"]["quota_bytes"])),
    ] {
        page.add_some(family, labels, value);
    }
}

fn add_requests(page: &mut Page, labels: &[Label], requests: &Value) {
    let histogram = histogram_of(requests).map(Number::Histogram);
    page.add_some(&page::REQUESTS, labels, histogram);
    let is_missed = requests["is_missed"].as_bool();
    for (family, value) in [
        (&page::P50, ns(&requests["recent"]["p50_ns"])),
        (&page::P99, ns(&requests["recent"]["p99_ns"])),
        (&page::TARGET, ns(&requests["target_ns"])),
        (&page::JUDGED, count(&requests["judged"])),
        (&page::OVER_TARGET, count(&requests["over_target"])),
        (
            &page::SLO_MISSED,
            is_missed.map(|is_missed| Number::Count(is_missed.into())),
        ),
    ] {
        page.add_some(family, labels, value);
    }
}

/// The histogram, limited to the number of bounds with series; none if it is incomplete.
fn histogram_of(requests: &Value) -> Option<Histogram> {
    let buckets = requests["buckets"].as_array()?.iter();
    let bucket = |bucket: &Value| Some((bucket["le_ns"].as_u64()?, bucket["count"].as_u64()?));
    let buckets: Option<Vec<(u64, u64)>> = buckets.map(bucket).collect();
    let (mut buckets, count) = (buckets?, requests["count"].as_u64()?);
    let grows = |pair: &[(u64, u64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
    let is_cumulative = buckets.windows(2).all(grows);
    let is_within = buckets.last().is_none_or(|last| last.1 <= count);
    if !is_cumulative || !is_within {
        return None;
    }
    buckets.truncate(BUCKETS_MAX);
    Some(Histogram {
        buckets,
        count,
        sum_ns: requests["sum_ns"].as_u64()?,
    })
}

#[cfg(test)]
mod tests;

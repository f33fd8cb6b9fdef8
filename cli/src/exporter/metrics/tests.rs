//! Pages of fixed documents.

use scheduler::core::event;
use serde_json::json;

use super::super::encode::Format;
use super::super::page::{ALL, Kind};
use super::*;

struct Node;

const POD: &str = "0f7c6a1e-2b3d-4c5e-8f90-a1b2c3d4e5f6";
const OTHER_POD: &str = "11111111-2b3d-4c5e-8f90-a1b2c3d4e5f6";

impl Host for Node {
    fn pod_of(&self, pid: u64) -> Option<String> {
        let mut pods = [(41, POD), (42, OTHER_POD)].into_iter();
        let pod = pods.find(|(of, _)| *of == pid);
        pod.map(|(_, pod)| pod.to_owned())
    }

    fn index_of(&self, pci: &str) -> Option<String> {
        (pci == "0000:01:00.0").then(|| "0".to_owned())
    }
}

fn requests() -> Value {
    let les_ms = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000_u64];
    let buckets = les_ms
        .iter()
        .zip([0, 0, 40, 100, 110, 118, 120].iter().chain([120; 5].iter()));
    let buckets: Vec<Value> = buckets
        .map(|(le_ms, count)| json!({"le_ns": le_ms * 1_000_000, "count": count}))
        .collect();
    let recent = json!({"over_ns": 60_000_000_000_u64, "count": 60, "p50_ns": 6_100_000, "p99_ns": 48_000_000});
    json!({
        "count": 121, "sum_ns": 7_250_000_001_u64, "buckets": buckets, "recent": recent, "target_ns": 50_000_000,
        "judged": 121, "over_target": 3, "within_target": 0.98, "is_missed": false, "kinds": []
    })
}

fn hp() -> Value {
    json!({
        "job": "serve", "uid": 1000, "class": "high-priority", "ended_ns": null,
        "clients": [{"pid": 40}, {"pid": 41}], "totals": {"launches": 1200, "launches_held": 0},
        "gpu_time_ns": 3_000_000_000_u64, "requests": requests(), "progress": null,
        "memory": {"held_bytes": 4096, "quota_bytes": null}
    })
}

fn be() -> Value {
    json!({
        "job": "train", "uid": 1001, "class": "best-effort", "ended_ns": null, "clients": [{"pid": 0}],
        "totals": {"launches": 9000, "launches_held": 7}, "gpu_time_ns": 12_345_678_901_u64, "requests": null,
        "progress": {"share": 0.74, "share_of": "alone", "held_ns": {"hp-busy": 2_500_000_000_u64, "budget": 1}},
        "memory": {"held_bytes": 1_073_741_824, "quota_bytes": 2_147_483_648_u64}
    })
}

fn status(jobs: &[Value]) -> Value {
    json!({
        "schema_version": 1,
        "daemon": {"version": "0.1.0", "protocol": "3.9", "pid": 9, "now_ns": 1_000_000_000_000_u64},
        "gpu": {"uuid": "GPU-2f4e6a10-0000-4000-8000-000000000001", "name": "NVIDIA A100-SXM4-40GB",
                "pci": "0000:01:00.0", "sharing": "mps"},
        "draining": null, "held": [{"job": null, "uid": null, "why": "xid 79", "until_mps_serves": false}],
        "policy": {"name": "pillion"}, "jobs": jobs, "others": {"high_priority": 0, "best_effort": 2},
        "unmanaged": {"count": 1, "processes": []},
        "events": {"counts": {"attached": 4, "slo-missed": 2, "xid": 1}}
    })
}

fn answer(status: Value) -> Answer {
    Answer {
        socket: "/run/pillion/GPU-2f4e6a10-0000-4000-8000-000000000001.sock".into(),
        status: Some(status).filter(|status| !status.is_null()),
    }
}

fn page_of(status: Value) -> Page {
    page(&[answer(status)], &Node, &mut Memory::default())
}

fn lines(page: &Page, family: &Family) -> Vec<String> {
    let text = Format::Text.write(page);
    let is_its = |line: &&str| line.starts_with(family.name);
    text.lines().filter(is_its).map(str::to_owned).collect()
}

#[test]
fn a_gpu_with_a_job_of_each_class_has_this_page_in_each_format() {
    let page = page_of(status(&[hp(), be()]));
    for (format, expected) in [
        (Format::Text, include_str!("golden.prom")),
        (Format::OpenMetrics, include_str!("golden.om")),
    ] {
        let expected = expected
            .replace("{version}", env!("CARGO_PKG_VERSION"))
            .replace("{protocol}", &VERSION.to_string());
        let text = format.write(&page);
        assert!(text == expected, "as {format:?} it is:\n{text}");
    }
}

#[test]
fn no_more_series_than_promised_for_a_gpu_and_for_each_job() {
    let series = |status: Value| {
        let text = Format::Text.write(&page_of(status));
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    let many = |count: usize| -> serde_json::Map<String, Value> {
        let words = (0..count).map(|nth| (format!("word-{nth}"), json!(nth)));
        words.collect()
    };
    let mut full = status(&[]);
    let kinds = event::Kind::ALL
        .iter()
        .map(|kind| (kind.name().to_owned(), json!(1)));
    full["events"]["counts"] = many(100).into_iter().chain(kinds).collect();
    full["draining"] = "an operator".into();
    let of_gpu = series(full.clone());
    // One line is the exporter's own.
    assert!(of_gpu - 1 <= GPU_SERIES_MAX, "{of_gpu}");
    let (mut hp, mut be) = (hp(), be());
    let buckets = (1..30).map(|nth| json!({"le_ns": nth, "count": nth}));
    hp["requests"]["buckets"] = buckets.collect();
    hp["memory"]["quota_bytes"] = 1.into();
    be["progress"]["held_ns"] = many(50).into();
    for job in [hp, be] {
        let mut with_job = full.clone();
        with_job["jobs"] = json!([job]);
        let of_job = series(with_job) - of_gpu;
        assert_eq!(of_job, JOB_SERIES_MAX, "{job:#}");
    }
}

#[test]
fn every_warning_and_error_has_a_series() {
    let troubles = event::Kind::ALL.iter();
    let troubles = troubles.filter(|kind| kind.severity() != Severity::Info);
    for kind in troubles.map(|kind| kind.name()) {
        assert!(kinds_with_series().any(|own| own == kind), "{kind}");
    }
    for kind in KINDS_ALWAYS {
        assert!(
            event::Kind::ALL.iter().any(|known| known.name() == kind),
            "{kind}"
        );
    }
}

#[test]
fn events_beyond_those_with_a_series_are_counted_together() {
    let kinds = event::Kind::ALL.iter().map(|kind| kind.name());
    let (own, rest): (Vec<&str>, Vec<&str>) =
        kinds.partition(|kind| kinds_with_series().any(|own| own == *kind));
    assert_eq!(own.len(), KINDS_MAX, "a kind that alerts need is one");
    // A kind that only a newer daemon has.
    let told = own.iter().chain(&rest).chain(&["a-newer-kind"]);
    let counts: serde_json::Map<String, Value> =
        told.map(|kind| ((*kind).to_owned(), json!(1))).collect();
    let mut status = status(&[]);
    status["events"]["counts"] = counts.into();
    let events = lines(&page_of(status), &page::EVENTS);
    assert_eq!(events.len(), KINDS_MAX + 1);
    let others = format!("kind=\"other\"}} {}", rest.len() + 1);
    assert!(events[KINDS_MAX].ends_with(&others), "{events:#?}");
}

#[test]
fn no_kind_of_event_takes_the_series_of_another_when_it_occurs() {
    let kinds: Vec<&str> = event::Kind::ALL.iter().map(|kind| kind.name()).collect();
    let mut counts = serde_json::Map::new();
    let mut before: Vec<String> = Vec::new();
    // From the end of the alphabet, so that each precedes all earlier ones.
    let mut words = [&kinds[..], &["a-newer-kind"]].concat();
    words.sort_unstable();
    for kind in words.into_iter().rev() {
        counts.insert(kind.to_owned(), json!(0));
        let mut status = status(&[]);
        status["events"]["counts"] = counts.clone().into();
        let events = lines(&page_of(status), &page::EVENTS);
        let missing = before.iter().find(|line| !events.contains(line));
        assert_eq!(missing, None, "{kind}");
        before = events;
    }
}

#[test]
fn a_job_that_has_ended_keeps_its_series_for_five_minutes() {
    let at = |ended_ns: u64| {
        let mut job = hp();
        job["ended_ns"] = ended_ns.into();
        job["clients"] = json!([]);
        let page = page_of(status(&[job]));
        lines(&page, &page::LAUNCHES).len()
    };
    let now_ns = 1_000_000_000_000;
    assert_eq!(at(now_ns), 1);
    assert_eq!(at(now_ns - ENDED_NS + 1), 1);
    assert_eq!(at(now_ns - ENDED_NS), 0);
}

#[test]
fn a_daemon_that_is_silent_is_down_under_the_labels_that_it_had() {
    let mut memory = Memory::default();
    let up = |memory: &mut Memory, status: Value| {
        let page = page(&[answer(status)], &Node, memory);
        assert!(page.families().count() > 1);
        lines(&page, &page::DAEMON_UP).remove(0)
    };
    let never_seen = up(&mut memory, Value::Null);
    let uuid = "UUID=\"GPU-2f4e6a10-0000-4000-8000-000000000001\"";
    let socket = "socket=\"/run/pillion/GPU-2f4e6a10-0000-4000-8000-000000000001.sock\"";
    assert_eq!(
        never_seen,
        format!("pillion_daemon_up{{{uuid},{socket}}} 0")
    );
    let labels = format!("pillion_daemon_up{{gpu=\"0\",{uuid},{socket}}}");
    assert_eq!(up(&mut memory, status(&[])), format!("{labels} 1"));
    assert_eq!(up(&mut memory, Value::Null), format!("{labels} 0"));
    assert!(!memory.gpus.is_empty());
    page(&[], &Node, &mut memory);
    assert!(memory.gpus.is_empty());
}

#[test]
fn a_socket_that_is_not_named_by_a_gpu_is_down_by_its_path_alone() {
    let silent = Answer {
        socket: "/tmp/pillion.sock".into(),
        status: None,
    };
    let page = page(&[silent], &Node, &mut Memory::default());
    let up = lines(&page, &page::DAEMON_UP);
    assert_eq!(up, ["pillion_daemon_up{socket=\"/tmp/pillion.sock\"} 0"]);
}

#[test]
fn a_job_keeps_its_pod_when_its_processes_are_gone_and_its_daemon_is_silent() {
    let mut memory = Memory::default();
    let mut has_pod = |status: Value| {
        let page = page(&[answer(status)], &Node, &mut memory);
        let lines = lines(&page, &page::LAUNCHES);
        lines.iter().any(|line| line.contains(POD))
    };
    assert!(has_pod(status(&[hp(), be()])));
    assert!(!has_pod(Value::Null));
    let mut ended = hp();
    ended["clients"] = json!([]);
    ended["ended_ns"] = 999_000_000_000_u64.into();
    assert!(has_pod(status(&[ended.clone()])));
    has_pod(status(&[]));
    assert!(!has_pod(status(&[ended])));
}

#[test]
fn a_job_of_several_pods_has_the_first_while_that_is_there_and_then_the_next() {
    let mut memory = Memory::default();
    let mut pod_with = |pids: &[u64]| {
        let mut job = hp();
        job["clients"] = pids.iter().map(|pid| json!({"pid": pid})).collect();
        let page = page(&[answer(status(&[job]))], &Node, &mut memory);
        let line = lines(&page, &page::LAUNCHES).remove(0);
        [POD, OTHER_POD].into_iter().find(|pod| line.contains(pod))
    };
    assert_eq!(pod_with(&[41, 42]), None);
    assert_eq!(pod_with(&[41]), Some(POD));
    assert_eq!(pod_with(&[41, 42, 43]), Some(POD));
    assert_eq!(pod_with(&[43]), Some(POD));
    assert_eq!(pod_with(&[42]), Some(OTHER_POD));
}

#[test]
fn two_users_may_call_their_jobs_alike_and_one_job_is_there_once() {
    let (mut other, mut ended) = (hp(), hp());
    other["uid"] = 7.into();
    ended["ended_ns"] = 999_000_000_000_u64.into();
    ended["totals"]["launches"] = 1.into();
    let page = page_of(status(&[hp(), other, ended]));
    let launches = lines(&page, &page::LAUNCHES);
    assert_eq!(launches.len(), 2, "{launches:#?}");
    assert!(launches.iter().all(|line| line.ends_with(" 1200")));
}

/// An empty document yields no invented samples.
#[test]
fn what_a_daemon_does_not_say_has_no_sample() {
    for empty in [
        json!({}),
        json!({"jobs": [{}], "events": 7, "unmanaged": null, "held": "no"}),
        json!({"jobs": [{"requests": {"count": 1}, "progress": {"share": "much"}, "memory": []}]}),
        json!([1, 2]),
    ] {
        let page = page_of(empty);
        let names: Vec<&str> = page.families().map(|(family, _)| family.name).collect();
        let known = [
            page::BUILD_INFO,
            page::DAEMON_UP,
            page::DAEMON_INFO,
            page::JOBS,
        ];
        let known = known.map(|family| family.name);
        assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    }
}

#[test]
fn a_histogram_that_shrinks_is_left_out() {
    for (pointer, value) in [
        ("/buckets/3/count", 1),
        ("/buckets/3/le_ns", 1),
        ("/count", 1),
        ("/buckets/11/count", 1000),
    ] {
        let mut broken = requests();
        assert!(histogram_of(&broken).is_some());
        *broken.pointer_mut(pointer).unwrap() = value.into();
        assert_eq!(histogram_of(&broken), None, "{pointer}");
    }
}

/// The rows of the table in `docs/monitoring.md`.
#[test]
fn the_documents_table_of_metrics_is_the_list_of_families() {
    let document = include_str!("../../../../docs/monitoring.md");
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| `pillion_"));
    let documented: Vec<Vec<String>> = rows
        .map(|row| {
            let cells = row.trim_matches('|').split('|');
            cells.take(4).map(|cell| cell.trim().to_owned()).collect()
        })
        .collect();
    let families = ALL.iter().map(|family| {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        };
        let labels = family.labels.join(", ");
        [
            format!("`{}`", family.name),
            kind.into(),
            family.unit.into(),
            labels,
        ]
        .to_vec()
    });
    assert_eq!(documented, families.collect::<Vec<_>>());
}

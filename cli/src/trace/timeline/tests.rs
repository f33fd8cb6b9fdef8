//! The drawing of a trace.

use serde_json::Value;

use super::*;
use protocol::record::Direction;

const HEADER: &str = r#"{"schema_version":1,"gpu":"GPU-1","model":"A30","sms":56,"daemon_version":"0.1.0",
"began_ns":1000000,"ended_ns":3000000,"is_full":false,"dropped":0,
"jobs":[{"job":"serve","class":"high-priority","uid":7},{"job":"train","class":"best-effort","uid":7}],
"clients":[{"client":1,"job":0,"pid":70,"name":"python3"},{"client":2,"job":1,"pid":80,"name":"python3"}],
"limits":["ungated","budget","hp-busy"],
"kernels":[{"client":1,"kernel":5,"name":"void ns::gemm<float, 4>(float*)"},{"client":2,"kernel":5,"name":"relu"}]}"#;

fn launch(stream: u32, seq: u64, at_us: u64, expected_us: u64) -> Record {
    Record::Launch(Launch {
        stream,
        seq,
        kernel: 5,
        expected_ns: expected_us * 1_000,
        sm_needed: 40,
        class: 1,
        at_ns: at_us * 1_000,
    })
}

fn complete(seq: u64, at_us: u64) -> Record {
    Record::Complete {
        stream: 0,
        seq,
        at_ns: at_us * 1_000,
    }
}

fn of(client: u64, record: Record) -> Entry {
    Entry::Record {
        client,
        read_ns: 1,
        record,
    }
}

fn drawn(entries: &[Entry]) -> (Vec<Value>, Counts) {
    let mut bytes = HEADER.replace('\n', "").into_bytes();
    bytes.push(b'\n');
    for word in entries.iter().flat_map(Entry::encode) {
        bytes.extend(word.to_le_bytes());
    }
    let (text, counts) = timeline(&Document::parse(&bytes).unwrap());
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["otherData"]["gpu"], "GPU-1");
    let events = document["traceEvents"].as_array().unwrap().clone();
    (events, counts)
}

/// Name, begin and length of the spans in a category, us.
fn spans(events: &[Value], cat: &str) -> Vec<(String, f64, f64)> {
    let of = events.iter().filter(|event| event["cat"] == cat);
    of.map(|event| {
        let number = |key: &str| event[key].as_f64().unwrap_or_default();
        (
            event["name"].as_str().unwrap().to_owned(),
            number("ts"),
            number("dur"),
        )
    })
    .collect()
}

fn named(name: &str, begin_us: f64, length_us: f64) -> (String, f64, f64) {
    (name.to_owned(), begin_us, length_us)
}

#[test]
fn kernels_follow_each_other_and_end_when_they_were_seen_complete() {
    let (events, counts) = drawn(&[
        of(1, launch(0, 1, 1_100, 200)),
        of(1, launch(0, 2, 1_110, 200)),
        // Seen complete before their expected end.
        of(1, complete(2, 1_400)),
        of(1, launch(0, 3, 1_500, 100)),
        of(2, launch(0, 1, 1_200, 50)),
        of(2, launch(0, 1, 1_210, 50)),
    ]);
    assert_eq!(
        spans(&events, "compute"),
        [
            named("gemm #1", 100.0, 200.0),
            named("gemm #1", 300.0, 100.0),
            named("gemm #1", 500.0, 100.0),
            named("relu #2", 200.0, 50.0),
            named("relu #2", 250.0, 50.0),
        ]
    );
    let launches: Vec<u64> = counts.jobs.iter().map(|job| job.launches).collect();
    assert_eq!(launches, [3, 2]);
    let tracks = events.iter().filter(|event| event["name"] == "thread_name");
    let tracks: Vec<&str> = tracks
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        tracks,
        [
            "requests",
            "may launch",
            "waits because of",
            "python3 70 stream 0",
            "python3 80 stream 0"
        ]
    );
}

#[test]
fn kernels_without_a_duration_share_the_time_until_they_were_seen_complete() {
    let (events, _) = drawn(&[
        of(1, launch(0, 1, 1_100, 0)),
        of(1, launch(0, 2, 1_101, 100)),
        of(1, launch(0, 3, 1_102, 0)),
        of(1, complete(3, 1_400)),
    ]);
    assert_eq!(
        spans(&events, "compute"),
        [
            named("gemm #1", 100.0, 100.0),
            named("gemm #1", 200.0, 100.0),
            named("gemm #1", 300.0, 100.0),
        ]
    );
    let is_guess = |event: &&Value| event["args"]["guess"] == true;
    assert_eq!(events.iter().filter(is_guess).count(), 2);
}

#[test]
fn a_completion_that_was_read_before_its_launches_ends_them() {
    let (events, _) = drawn(&[
        of(1, complete(3, 1_400)),
        // Launched by two threads, and read in another order.
        of(1, launch(0, 2, 1_200, 0)),
        of(1, launch(0, 5, 1_900, 50)),
        of(1, launch(0, 4, 1_800, 50)),
        of(1, complete(5, 1_950)),
    ]);
    assert_eq!(
        spans(&events, "compute"),
        [
            named("gemm #1", 200.0, 200.0),
            named("gemm #1", 800.0, 50.0),
            named("gemm #1", 900.0, 50.0),
        ]
    );
}

#[test]
fn a_copy_that_was_waited_for_is_as_long_as_its_size_and_what_is_before_it_is_done() {
    let copy = |at_us: u64, waited_us: u64| {
        Record::Memcpy(Memcpy {
            stream: 0,
            direction: Direction::ToHost,
            bytes: 4,
            at_ns: at_us * 1_000,
            waited_ns: waited_us * 1_000,
            expected_ns: 1_000,
        })
    };
    // A training loop with overestimated durations that waits for each step.
    let rounds = (0..100).flat_map(|round| {
        let at_us = 1_000 + 10 * round;
        [of(2, launch(0, 1, at_us, 15)), of(2, copy(at_us + 1, 8))]
    });
    let (events, _) = drawn(&rounds.collect::<Vec<_>>());
    let kernels = spans(&events, "compute");
    assert_eq!(kernels.len(), 100);
    for (round, kernel) in kernels.into_iter().enumerate() {
        assert_eq!(kernel, named("relu #1", 10.0 * round as f64, 9.0));
    }
    let copies = spans(&events, "copy");
    assert!(copies.iter().all(|(_, _, length_us)| *length_us <= 1.0));
}

#[test]
fn copies_requests_leases_and_waits_are_drawn() {
    let copy = Record::Memcpy(Memcpy {
        stream: 3,
        direction: Direction::ToDevice,
        bytes: 1 << 20,
        at_ns: 1_200_000,
        waited_ns: 300_000,
        expected_ns: 90_000,
    });
    let lease = |at_us: u64, grant, is_waiting, limit| {
        Entry::Lease(Lease {
            job: 1,
            at_ns: at_us * 1_000,
            grant,
            is_waiting,
            limit,
            classes: 3,
            sms_max: 20,
            budget_ns: 250_000,
        })
    };
    let request = |kind, arrived_us: u64, ended_us: u64| {
        Entry::Request(Request {
            job: 0,
            arrived_ns: arrived_us * 1_000,
            ended_ns: ended_us * 1_000,
            kind,
            is_cancelled: false,
            target_ns: 400_000,
        })
    };
    let (events, counts) = drawn(&[
        of(2, copy),
        lease(1_000, Grant::Open, false, 1),
        lease(1_400, Grant::Closed, true, 2),
        lease(1_600, Grant::BesideHp, true, 2),
        lease(1_700, Grant::Ungated, false, 0),
        // Began before the trace.
        request(Some(0), 900, 1_100),
        request(Some(0), 1_200, 1_700),
        request(None, 2_000, 2_500),
    ]);
    assert_eq!(
        spans(&events, "copy"),
        [named("host to device", 200.0, 90.0)]
    );
    assert_eq!(
        spans(&events, "lease"),
        [
            named("open", 0.0, 400.0),
            named("beside HP", 600.0, 100.0),
            named("ungated", 700.0, 1_300.0),
        ]
    );
    assert_eq!(spans(&events, "wait"), [named("hp-busy", 400.0, 300.0)]);
    let requests: Vec<_> = spans(&events, "request");
    assert_eq!(requests.len(), 6);
    assert_eq!(requests[0], named("request", 0.0, 0.0));
    assert_eq!(requests[3], named("request over its target", 700.0, 0.0));
    assert_eq!(requests[4].0, "inferred request");
    assert_eq!((counts.jobs[0].requests, counts.jobs[1].leases), (3, 4));
    let open = events.iter().find(|event| event["name"] == "open").unwrap();
    assert_eq!(open["args"]["sms"], 20);
    assert_eq!(open["args"]["classes"], "compute memory");
}

#[test]
fn a_trace_that_would_take_more_is_drawn_up_to_fifty_megabytes() {
    let long = HEADER.replace("\"ended_ns\":3000000", "\"ended_ns\":10000000000");
    let mut bytes = long.replace('\n', "").into_bytes();
    bytes.push(b'\n');
    let entries = (0..protocol::trace::ENTRIES_MAX as u64).map(|n| {
        // Denser towards the end.
        let at_ns = 10_000_000_000 - (600_000 - n) * (600_000 - n) / 40;
        let launch = Launch {
            stream: 0,
            seq: 1,
            kernel: 9,
            expected_ns: 0,
            sm_needed: 132,
            class: 4,
            at_ns,
        };
        of(2, Record::Launch(launch))
    });
    for word in entries.flat_map(|entry| entry.encode()) {
        bytes.extend(word.to_le_bytes());
    }
    let mut document = Document::parse(&bytes).unwrap();
    let (text, counts) = super::super::fitting(&mut document);
    assert!(
        (40_000_000..=50_000_000).contains(&text.len()),
        "{}",
        text.len()
    );
    let drawn = counts.jobs[1].launches;
    assert!((300_000..600_000).contains(&drawn), "{drawn}");
    assert!(document.header.is_full);
    let document: Value = serde_json::from_str(&text).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let kernels = events.iter().filter(|event| event["cat"] == "unknown");
    assert_eq!(kernels.count() as u64, drawn);
}

//! Requests by gaps and by ranges, on generated traces and on a real one.

use std::fs;

use import::{Error, Options, Source};
use profiler::profile::{RequestRule, Requests};

use crate::common::{data, read};

/// A trace: kernels by name, start and duration in µs; ranges by name, start and end in µs.
fn trace(kernels: &[(&str, f64, f64)], ranges: &[(&str, f64, f64)]) -> Source {
    let mut events = Vec::new();
    for (index, (name, start, duration)) in kernels.iter().enumerate() {
        events.push(format!(
            "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name}\", \"ts\": {start}, \"dur\": {duration}, \"args\": {{\"correlation\": {index}, \"grid\": [1, 1, 1], \"block\": [32, 1, 1]}}}}"
        ));
        // Called 2 µs before it starts, by another thread than the one with the ranges.
        events.push(format!(
            "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 9, \"ts\": {}, \"args\": {{\"correlation\": {index}}}}}",
            start - 2.0
        ));
    }
    for (name, start, end) in ranges {
        events.push(format!(
            "{{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"{name}\", \"pid\": 1, \"tid\": 1, \"ts\": {start}, \"dur\": {}}}",
            end - start
        ));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace.json");
    fs::write(&path, format!("[{}]", events.join(","))).expect("room");
    read(&path).expect("a trace")
}

fn requests(source: &Source, range: Option<&str>) -> Result<Option<Requests>, Error> {
    let options = Options {
        request_range: range.map(str::to_owned),
        ..Options::default()
    };
    import::reduce(std::slice::from_ref(source), &options).map(|profile| profile.requests)
}

fn regular(count: u32) -> Vec<(&'static str, f64, f64)> {
    (0..count)
        .flat_map(|request| {
            let start = 1_000.0 * f64::from(request);
            [
                ("a", start + 10.0, 20.0),
                ("b", start + 35.0, 30.0),
                ("b", start + 70.0, 40.0),
            ]
        })
        .collect()
}

#[test]
fn gaps_part_requests_that_are_alike() {
    let found = requests(&trace(&regular(6), &[]), None)
        .expect("one GPU")
        .expect("regular");
    assert_eq!((found.count, found.same_order), (6, 6));
    assert_eq!(found.order, [(0, 1), (1, 2)]);
    assert_eq!(found.latency.median_ns, 100_000);
    assert_eq!(found.rule, RequestRule::Gap(900_000));
}

#[test]
fn launches_without_a_rhythm_make_no_requests() {
    let even: Vec<_> = (0..20).map(|n| ("a", 50.0 * f64::from(n), 20.0)).collect();
    assert_eq!(requests(&trace(&even, &[]), None).expect("one GPU"), None);
    let mut uneven = Vec::new();
    let mut start = 0.0;
    for request in 1..8 {
        for _ in 0..request {
            start += 30.0;
            uneven.push(("a", start, 20.0));
        }
        start += 5_000.0;
    }
    assert_eq!(requests(&trace(&uneven, &[]), None).expect("one GPU"), None);
}

#[test]
fn ranges_part_requests_where_they_are_named() {
    let ranges: Vec<_> = (0..3)
        .map(|n| {
            (
                "request",
                1_000.0 * f64::from(n),
                1_000.0 * f64::from(n) + 900.0,
            )
        })
        .collect();
    let source = trace(&regular(5), &ranges);
    let found = requests(&source, Some("request"))
        .expect("there")
        .expect("with launches");
    assert_eq!(
        (found.count, found.rule),
        (3, RequestRule::Range("request".to_owned()))
    );
    assert_eq!(found.latency.sum_ns, 300_000);
    let error = requests(&source, Some("requests")).expect_err("not there");
    assert!(
        error
            .to_string()
            .contains("no range is called `requests`; the most frequent are request"),
        "{error}"
    );
}

#[test]
fn the_steps_of_pytorch_are_found_unasked() {
    let steps: Vec<String> = (0..4).map(|n| format!("ProfilerStep#{n}")).collect();
    let ranges: Vec<_> = steps
        .iter()
        .zip(0..4)
        .map(|(name, n)| {
            (
                name.as_str(),
                1_000.0 * f64::from(n),
                1_000.0 * f64::from(n) + 900.0,
            )
        })
        .collect();
    let found = requests(&trace(&regular(4), &ranges), None)
        .expect("there")
        .expect("with launches");
    assert_eq!(
        (found.count, found.rule),
        (4, RequestRule::Range("ProfilerStep#*".to_owned()))
    );
}

#[test]
fn nvtx_ranges_of_a_real_export_hold_their_launches() {
    let folder = data();
    let source = read(&folder.join("nsys_2025.3_t4_cupy_nvtx/nsightful.sqlite")).expect("whole");
    let found = requests(&source, Some("Step *"))
        .expect("there")
        .expect("with launches");
    // The tool's own report of the same file counts 44 steps.
    assert_eq!(found.count, 44);
    assert!(found.latency.median_ns > 1_000_000, "{:?}", found.latency);
}

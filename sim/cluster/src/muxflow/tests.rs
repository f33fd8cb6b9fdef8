//! Tests on made-up tables and traces.

use super::{Online, Outcome, Trace, Training, compare};
use crate::muxflow_table::tests::made_up;
use crate::muxflow_table::{Mechanism, MuxFlowTable};
use crate::traces::philly;

fn table() -> MuxFlowTable {
    MuxFlowTable::read("t.csv", made_up().as_bytes()).expect("it is right")
}

fn training(at_s: u64, length_s: u64, kind: usize) -> Training {
    Training {
        at_ns: at_s * 1_000_000_000,
        length_ns: length_s * 1_000_000_000,
        kind,
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

/// Three trainings on two GPUs. First mechanism: network 0 has half of its speed, network 2 a
/// quarter.
fn small() -> Trace {
    let online = |service, load| Online { service, load };
    Trace {
        trainings: vec![training(0, 10, 0), training(2, 10, 2), training(5, 5, 0)],
        services: vec![online(0, 0), online(1, 2)],
    }
}

#[test]
fn trainings_take_their_time_alone_divided_by_their_speed_and_wait_their_turn() {
    let outcome = small().play(&table(), Mechanism::TimeSharing);
    // The first has GPU 0 until 20 s, the second GPU 1 until 42 s; the third follows the first.
    assert!(is_near(outcome.waiting_s, 15.0 / 3.0));
    assert!(is_near(outcome.completion_s, (20.0 + 40.0 + 25.0) / 3.0));
    assert!(is_near(outcome.oversold, 25.0 / 70.0));
    assert!(is_near(outcome.waited, 1.0 / 3.0));
    // Twice alone in every pair, and no service keeps up.
    assert!(is_near(outcome.latency_mean, 2.0) && is_near(outcome.latency_p99, 2.0));
    assert!(is_near(outcome.behind, 1.0) && is_near(outcome.latency_mean_in_time, 0.0));
    assert!(is_near(outcome.latency_mean_most, 2.0));
}

#[test]
fn a_faster_mechanism_frees_gpus_earlier() {
    let outcome = small().play(&table(), Mechanism::PriorityTimeSharing);
    // Speeds of 1, 1/2 and 1: the third waits for the first until 10 s.
    assert!(is_near(outcome.waiting_s, 5.0 / 3.0));
    assert!(is_near(outcome.completion_s, (10.0 + 20.0 + 10.0) / 3.0));
    assert!(is_near(outcome.behind, 0.0) && is_near(outcome.latency_mean_in_time, 3.0));
}

#[test]
fn latencies_are_weighted_by_the_time_beside() {
    let whole = made_up();
    let text = whole.replacen(
        "resnet50,20,resnet50,time-sharing,40,80,2.5,5",
        "resnet50,20,resnet50,time-sharing,100,80,0.25,5",
        1,
    );
    assert_ne!(text, whole);
    let table = MuxFlowTable::read("t.csv", text.as_bytes()).expect("it is right");
    let outcome = small().play(&table, Mechanism::TimeSharing);
    // 30 s at 5 times, 40 s at 2 times.
    assert!(is_near(outcome.latency_mean, 230.0 / 70.0));
    assert!(is_near(outcome.behind, 40.0 / 70.0));
    assert!(is_near(outcome.latency_mean_in_time, 5.0));
    assert!(is_near(outcome.latency_mean_most, 5.0));
}

fn job(submit_s: f64, gpus: u32, cluster: &str) -> philly::Job {
    philly::Job {
        submit_s,
        duration_s: 100.0,
        gpus,
        gpu_s: 100.0 * f64::from(gpus),
        cluster: cluster.to_owned(),
    }
}

#[test]
fn a_trace_has_the_jobs_of_one_virtual_cluster_with_a_gpu_each() {
    let jobs = [
        job(0.0, 1, "b"),
        job(50.0, 8, "a"),
        job(60.0, 1, "b"),
        job(150.0, 1, "a"),
    ];
    let trace = Trace::new(&jobs, "a", 3.0, 0..1, 7);
    let times = trace.trainings.iter().map(|of| (of.at_ns, of.length_ns));
    let second = 1_000_000_000;
    assert!(times.eq([(0, 100 * second), (100 * second, 100 * second)]));
    // 200 s of work arrive in 100 s: two run on the mean.
    assert_eq!(trace.services.len(), 6);
    assert!(trace.services.iter().all(|online| online.load == 0));
    assert_eq!(trace, Trace::new(&jobs, "a", 3.0, 0..1, 7));
    assert_ne!(trace, Trace::new(&jobs, "a", 3.0, 0..1, 8));
    assert_eq!(Trace::new(&jobs, "none", 3.0, 0..3, 7).services.len(), 1);
}

#[test]
fn equal_seeds_have_equal_outcomes() {
    let jobs: Vec<_> = (0..200).map(|at| job(f64::from(at), 1, "a")).collect();
    let run = |seeds| compare(&jobs, "a", 1.0, 0..3, seeds, &table());
    assert_eq!(run(1..4), run(1..4));
    assert_ne!(run(1..4), run(2..5));
}

#[test]
fn a_trace_without_trainings_has_an_outcome() {
    let outcome = Trace::new(&[], "a", 3.0, 0..3, 1).play(&table(), Mechanism::MuxFlow);
    assert_eq!(outcome, Outcome::default());
    assert_eq!(Outcome::mean(&[]), Outcome::default());
}

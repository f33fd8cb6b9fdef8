//! Jobs that answer requests in batches, and `mudi`, which chooses the batch and SM shares.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{experiment, job, kernel, run, trace};
use profiler::Trace;
use sim::arrivals::Phase;
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{
    Arrivals, Batch, ClientId, Experiment, Job, JobClass, JobOutcome, Observer, PolicySpec,
    TracePhase,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// One kernel of `ms` on all SMs, in waves of half a millisecond.
fn waves(ms: u32) -> Arc<Trace> {
    trace(vec![kernel("waves", 2 * ms * 160, MS / 2, [0.0, 0.0])])
}

/// Requests at equal intervals, whose batches take 4 ms, and 1 ms more for each request.
fn served(per_s: f64, sizes: &[u32]) -> Job {
    let batches = sizes.iter().map(|&requests| Batch {
        requests,
        trace: waves(4 + requests),
    });
    let batches: Vec<Batch> = batches.collect();
    Job {
        trace: Arc::clone(&batches[0].trace),
        batches,
        ..job(
            JobClass::HighPriority,
            &waves(1),
            Arrivals::Uniform { per_s },
        )
    }
}

fn be() -> Job {
    job(JobClass::BestEffort, &waves(20), Arrivals::Closed)
}

fn mudi(slo_ms: f64) -> PolicySpec {
    let mut policy: PolicySpec = "mudi".parse().expect("there is one");
    assert!(policy.set("slo_ms", slo_ms) && policy.set("window_s", 0.5));
    policy
}

#[derive(Default)]
struct Sizes {
    ended: u64,
    began: Vec<(u64, u64)>,
}

impl Observer for Sizes {
    fn request_started(&mut self, now_ns: u64, client: ClientId, request: u64, _arrival_ns: u64) {
        if client.0 == 0 {
            self.began.push((now_ns, request));
        }
    }

    fn request_ended(&mut self, _now_ns: u64, client: ClientId, _request: u64, _arrival_ns: u64) {
        self.ended += u64::from(client.0 == 0);
    }
}

impl Sizes {
    fn from(&self, start_ns: u64) -> Vec<u64> {
        let pairs = self.began.windows(2).filter(|pair| pair[0].0 >= start_ns);
        pairs.map(|pair| pair[1].1 - pair[0].1).collect()
    }
}

fn missed(hp: &JobOutcome, last: usize, slo_ms: u64) -> f64 {
    let judged = &hp.latencies_ns[hp.latencies_ns.len() - last..];
    let over = judged.iter().filter(|&&ns| ns > slo_ms * MS).count();
    over as f64 / last as f64
}

#[test]
fn a_batch_begins_with_its_last_request_and_each_waits_from_its_own_arrival() {
    let outcome = run(&experiment(vec![served(100.0, &[4])], PolicySpec::Mps, 0.1));
    let ms: Vec<u64> = outcome.jobs[0]
        .latencies_ns
        .iter()
        .map(|ns| ns / MS)
        .collect();
    // The last batch has two requests, because no more arrive.
    assert_eq!(ms, [38, 28, 18, 8, 38, 28, 18, 8, 18, 8]);
    assert_eq!(
        (outcome.jobs[0].requests, outcome.jobs[0].unfinished),
        (10, 0)
    );

    // A batch that takes longer than it fills begins when the previous one is answered.
    let outcome = run(&experiment(
        vec![served(500.0, &[2])],
        PolicySpec::Mps,
        0.02,
    ));
    let ms: Vec<u64> = outcome.jobs[0]
        .latencies_ns
        .iter()
        .map(|ns| ns / MS)
        .collect();
    assert_eq!(ms, [8, 6, 10, 8, 12, 10, 14, 12, 16, 14]);
}

#[test]
fn mudi_keeps_a_larger_batch_that_keeps_the_target_and_leaves_best_effort_jobs_more() {
    let jobs = |sizes: &[u32]| vec![served(100.0, sizes), be()];
    let mut sizes = Sizes::default();
    let tuned = experiment(jobs(&[1, 2, 4, 8, 16]), mudi(150.0), 30.0);
    let outcome = tuned.run(&mut sizes).expect("it can be run");
    let settled = sizes.from(20 * SECOND);
    assert!(
        settled.iter().all(|size| *size == settled[0]) && settled[0] > 1,
        "{settled:?}"
    );
    assert_eq!(missed(&outcome.jobs[0], 1_000, 150), 0.0);
    // A batch of one request takes 5 ms of all SMs for every 10 ms: it needs over half of them.
    let mut fixed: PolicySpec = "gslice".parse().expect("there is one");
    assert!(fixed.set("share_pct", 60.0));
    let one = run(&experiment(jobs(&[1]), fixed, 30.0));
    assert_eq!(missed(&one.jobs[0], 1_000, 150), 0.0);
    let [tuned, one] = [&outcome, &one].map(|of| of.jobs[1].requests);
    assert!(2 * tuned > 3 * one, "{tuned} {one}");
}

#[test]
fn mudi_comes_back_to_the_target_at_three_times_the_rate() {
    let job = Job {
        phases: vec![
            Phase {
                start_ns: 20 * SECOND,
                per_s: 300.0,
            },
            Phase {
                start_ns: 40 * SECOND,
                per_s: 100.0,
            },
        ],
        ..served(100.0, &[1, 2, 4, 8, 16])
    };
    let bursting = experiment(vec![job, be()], mudi(150.0), 60.0);
    let hp = &run(&bursting).jobs[0];
    assert_eq!((hp.requests, hp.unfinished), (10_000, 0));
    let missed = missed(hp, hp.latencies_ns.len() - 1_000, 150);
    println!(
        "{:.2} % of requests behind the first 1000 over 150 ms",
        100.0 * missed
    );
    assert!(missed <= 0.0071, "{missed}");
    assert_eq!(self::missed(hp, 1_000, 150), 0.0);
}

#[test]
fn mudi_pauses_best_effort_jobs_where_no_batch_keeps_the_target() {
    let outcome = run(&experiment(
        vec![served(100.0, &[2, 4]), be()],
        mudi(5.0),
        10.0,
    ));
    // They had the first window.
    assert!(
        outcome.jobs[1].requests < 40,
        "{}",
        outcome.jobs[1].requests
    );
    let free = run(&experiment(
        vec![served(100.0, &[2, 4]), be()],
        mudi(500.0),
        10.0,
    ));
    assert!(free.jobs[1].requests > 150, "{}", free.jobs[1].requests);
}

#[test]
fn batches_that_cannot_be_meant_are_refused() {
    let refused = |job: Job| -> String {
        let experiment: Experiment = experiment(vec![job], PolicySpec::Mps, 1.0);
        experiment.check().expect_err("it is wrong").to_string()
    };
    let closed = Job {
        arrivals: Arrivals::Closed,
        ..served(100.0, &[1])
    };
    assert!(refused(closed).contains("expected arrivals with a rate"));
    assert!(refused(served(100.0, &[0])).contains("a batch of 0 requests"));
    let both = Job {
        trace_phases: vec![TracePhase {
            start_ns: 1,
            trace: waves(1),
        }],
        ..served(100.0, &[1])
    };
    assert!(refused(both).contains("expected only one of them"));

    let said = |trace: &str, policy: &str| {
        let text = format!(
            "[policy]\n{policy}\n[[jobs]]\nclass = \"high-priority\"\n{trace}\narrivals = \"poisson\"\nrate = 9\n"
        );
        let read = Scenario::parse(
            Path::new("s.toml"),
            &text,
            Path::new("."),
            &mut Library::default(),
        );
        read.map(|_| ()).map_err(|error| error.to_string())
    };
    let mps = "name = \"mps\"";
    let named = "trace = \"resnet50-inference\"\nbatches = [1, 8]";
    assert_eq!(said(named, mps), Ok(()));
    for (trace, policy, wanted) in [
        (
            "trace = { kernel_us = 9 }\nbatches = [1]",
            mps,
            "s.toml:6:11: batches need a built-in workload",
        ),
        (
            "trace = \"resnet50-inference\"\nbatches = [1, 0]",
            mps,
            "s.toml:6:",
        ),
        (
            "trace = \"resnet50-inference@4\"\nbatches = [2]",
            mps,
            "is not a batch size",
        ),
        (named, "name = \"mudi\"\nslo_ms = 0", "slo_ms is 0"),
        (named, "name = \"mudi\"\nwindow_s = 0", "window_s is 0"),
        (named, "name = \"mudi\"\nslo_p99 = 2", "mudi has no slo_p99"),
    ] {
        let error = said(trace, policy).expect_err(trace);
        assert!(error.contains(wanted), "{error}");
    }
}

/// Mudi's Figure 16 has 0.71 % of requests over the target.
#[test]
fn of_the_suites_burst_hardly_a_request_misses_the_target() {
    let suite = sim::suite::Suite::by_name("slo").expect("it comes with the program");
    let built = suite.build(None, false, &mut Library::default());
    let parts = built.expect("a test holds it").parts;
    let burst = parts.iter().find(|(part, _)| part.key == "mudi-burst");
    let (_, scenarios) = burst.expect("it is a part");
    let hp = &run(&scenarios[0].with_seed(1)).jobs[0];
    let missed = missed(hp, hp.latencies_ns.len(), 150);
    println!(
        "{:.2} % of {} over 150 ms",
        100.0 * missed,
        hp.latencies_ns.len()
    );
    assert!(missed <= 0.0071, "{missed}");
}

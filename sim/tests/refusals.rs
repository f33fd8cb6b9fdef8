//! Impossible experiments are refused with the reason.

mod common;

use std::sync::Arc;

use common::{experiment, full, job};
use profiler::Trace;
use sim::{Arrivals, Error, Experiment, HostModel, JobClass, PolicySpec};

fn one(arrivals: Arrivals) -> Experiment {
    let jobs = vec![job(JobClass::HighPriority, &full(1, 1_000), arrivals)];
    experiment(jobs, PolicySpec::Mps, 1.0)
}

fn with_trace(change: impl FnOnce(&mut Trace)) -> Experiment {
    let mut experiment = one(Arrivals::Closed);
    change(Arc::make_mut(&mut experiment.jobs[0].trace));
    experiment
}

#[test]
fn a_trace_that_no_request_can_be_made_of_is_refused() {
    let empty = with_trace(|trace| trace.launches.clear());
    assert_eq!(empty.check(), Err(Error::EmptyTrace { job: "hp".into() }));
    let unknown = with_trace(|trace| trace.launches.push(3));
    assert_eq!(
        unknown.check().unwrap_err().to_string(),
        "job \"hp\": launch 1 names kernel 3, but the trace has 1 kernels"
    );
    let timeless = with_trace(|trace| trace.kernels[0].block_ns = 0);
    assert!(matches!(timeless.check(), Err(Error::Kernel { .. })));
    let negative = with_trace(|trace| trace.kernels[0].compute_demand = -0.1);
    assert!(matches!(negative.check(), Err(Error::Kernel { .. })));
    let endless = with_trace(|trace| trace.kernels[0].duration_ns = u64::MAX);
    assert!(matches!(endless.check(), Err(Error::RequestTooLong { .. })));
    let too_large = with_trace(|trace| trace.kernels[0].block = [2048, 1, 1]);
    assert!(matches!(too_large.check(), Err(Error::Kernel { .. })));
    let elsewhere = with_trace(|trace| trace.device = "T4".into());
    let text = elsewhere.check().unwrap_err().to_string();
    assert!(
        text.contains("measured on T4, not on V100-SXM2-16GB"),
        "{text}"
    );
}

#[test]
fn rates_and_durations_that_cannot_be_meant_are_refused() {
    for per_s in [0.0, -3.0, f64::NAN, f64::INFINITY] {
        let error = one(Arrivals::Poisson { per_s }).check().unwrap_err();
        assert!(matches!(error, Error::Arrivals { .. }), "{error}");
    }
    let mut endless = one(Arrivals::Closed);
    endless.duration_ns = u64::MAX;
    assert!(matches!(endless.check(), Err(Error::Duration { .. })));
    endless.duration_ns = 0;
    assert!(matches!(endless.check(), Err(Error::Duration { .. })));
}

#[test]
fn a_device_without_the_needed_limits_is_refused() {
    let mut experiment = one(Arrivals::Closed);
    experiment.device.sms = 0;
    assert_eq!(
        experiment.check().unwrap_err().to_string(),
        "device V100-SXM2-16GB: sms is 0"
    );
}

#[test]
fn jobs_that_do_not_fit_the_memory_together_are_refused() {
    let mut experiment = one(Arrivals::Closed);
    experiment.jobs.push(experiment.jobs[0].clone());
    for job in &mut experiment.jobs {
        job.memory_bytes = Some(10 << 30);
    }
    assert!(matches!(experiment.check(), Err(Error::Memory { .. })));
    experiment.jobs[1].memory_bytes = Some(4 << 30);
    assert_eq!(experiment.check(), Ok(()));
}

#[test]
fn a_host_on_which_nothing_could_happen_is_refused() {
    let mut experiment = one(Arrivals::Closed);
    experiment.host = HostModel {
        driver_queue: 0,
        ..HostModel::IDEAL
    };
    assert!(matches!(experiment.check(), Err(Error::Host { .. })));
    experiment.host = HostModel {
        poll_ns: 0,
        ..HostModel::IDEAL
    };
    assert!(matches!(experiment.check(), Err(Error::Host { .. })));
    experiment.jobs.clear();
    assert_eq!(experiment.check(), Err(Error::NoJobs));
}

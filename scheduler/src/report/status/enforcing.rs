//! What the daemon does to a best-effort job now, as a sentence.

use policy::{Limit, Policy, Sharing};
use protocol::compute::Cap;

use crate::core::state::{BeJob, Job, State};

fn held_for_good(state: &State, job: &Job) -> Option<String> {
    let holds = &state.holds;
    let by_operator = holds.why(&job.key);
    let by_operator = by_operator.map(|why| format!("held until `pillion resume`: {why}"));
    let by_probe = || {
        let why = holds.why_waiting(&job.key)?;
        Some(format!(
            "waits until the GPU is healthy, or `pillion resume`: {why}"
        ))
    };
    let by_mps = || Some(format!("held until MPS serves again: {}", holds.for_mps()?));
    by_operator.or_else(by_probe).or_else(by_mps)
}

pub(super) fn enforcing(state: &State, now_ns: u64, job: &Job, be_job: &BeJob) -> String {
    let policy = state.gate.policy();
    if let Some(held) = held_for_good(state, job) {
        return held;
    }
    let together = state.together(now_ns);
    let together = together.map(|held| (format!("{:.0} %", held.share * 100.0), held.by));
    if be_job.limit() == Limit::Rate {
        return match (state.cap(job).0, together) {
            (Cap::NONE, Some((pct, by))) => format!(
                "held: best-effort jobs together have used their {pct} of the GPU's time, limited \
                 by {by}"
            ),
            (cap, _) => format!("held: it has used its share of the GPU's time, {cap}"),
        };
    }
    if *policy == Policy::None {
        return match (state.cap(job).0, together) {
            (Cap::NONE, Some((pct, by))) => {
                format!("at most {pct} of the GPU's time for all best-effort jobs together: {by}")
            }
            (Cap::NONE, None) => "no limit, because the policy is none".to_owned(),
            (cap, _) => format!("at most {cap} of the GPU's time"),
        };
    }
    if be_job.is_refused() {
        return "held until no high-priority job is attached: it launches collective kernels (NCCL, NVSHMEM), which wait for other GPUs"
            .to_owned();
    }
    if be_job.is_stalled() {
        return "held: its work in flight does not complete".to_owned();
    }
    if state.is_expecting(now_ns) {
        return "limited as beside an idle high-priority job, because a high-priority \
                client of the previous daemon may attach again"
            .to_owned();
    }
    if !state.hp.present {
        return match state.cap(job).0 {
            Cap::NONE => "no limit, because no high-priority job is attached".to_owned(),
            cap => format!("at most {cap} of the GPU's time"),
        };
    }
    if let Some(bounds) = state.gate.ceiling() {
        let (idle_us, beside_us) = (bounds.idle_ns as f64 / 1e3, bounds.beside_ns as f64 / 1e3);
        let beside = match state.ways.in_force() {
            Sharing::Mps => format!("{beside_us:.0} us beside them"),
            Sharing::TimeSlice => "none beside them".to_owned(),
        };
        return format!(
            "{idle_us:.0} us of expected work in flight while high-priority jobs are idle, {beside}"
        );
    }
    if let Policy::Listed(numbers) = policy {
        return numbers.entry().about.to_owned();
    }
    let Some(params) = policy.throttle_params() else {
        return "one launch in flight, and only while high-priority jobs are idle".to_owned();
    };
    let bound_us = params.dur_threshold_ns(&state.hp) as f64 / 1e3;
    match (state.gate.sm_threshold(state.sms), state.ways.in_force()) {
        (Some(sms), Sharing::Mps) => format!(
            "{bound_us:.0} us of expected work in flight; beside high-priority kernels only \
             those of another class that need fewer than {sms} SMs"
        ),
        _ => format!(
            "{bound_us:.0} us of expected work in flight, and only while high-priority jobs are \
             idle"
        ),
    }
}

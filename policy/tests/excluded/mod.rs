//! Work of jobs that no decision is about.

use super::*;

/// Forty requests, beside work of an excluded job or not; `be` is seen in the middle of each.
fn forty_requests(gate: &mut Gate, took_ns: u64, be: JobView, is_excluded_seen: bool) {
    let mut now_ns = MS;
    for _ in 0..40 {
        if is_excluded_seen {
            gate.handle_excluded(now_ns + MS);
        }
        now_ns = request(gate, now_ns, took_ns, be) + MS;
    }
}

#[test]
fn what_requests_take_alone_is_not_learnt_from_those_that_met_an_excluded_job() {
    for is_excluded_seen in [false, true] {
        let mut gate = unlearnt();
        forty_requests(&mut gate, 2 * SOLO_NS, quiet(), is_excluded_seen);
        assert_eq!(gate.solo_ns().is_none(), is_excluded_seen);
    }
}

#[test]
fn no_other_job_pays_for_what_an_excluded_job_costs() {
    let gains = [false, true].map(|is_excluded_seen| {
        let mut gate = gate(params());
        let before = gate.gain().unwrap();
        forty_requests(&mut gate, 2 * SOLO_NS, job(1, 9, 9), is_excluded_seen);
        gate.gain().unwrap() / before
    });
    assert!(gains[0] < 0.5, "{gains:?}");
    assert!((gains[1] - 1.0).abs() < f64::EPSILON, "{gains:?}");
}

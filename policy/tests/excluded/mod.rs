//! Work of jobs that are excluded from decisions.

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
fn beside_an_excluded_job_bounds_shrink_where_requests_are_late_and_never_grow() {
    let gain_after = |took_ns, is_excluded_seen| {
        let mut gate = gate(params());
        let before = gate.gain().unwrap();
        forty_requests(&mut gate, took_ns, job(1, 9, 9), is_excluded_seen);
        gate.gain().unwrap() / before
    };
    let (late_ns, early_ns) = (2 * SOLO_NS, SOLO_NS);
    assert!(gain_after(late_ns, true) < 0.5);
    assert!(gain_after(early_ns, false) > 1.0);
    assert!((gain_after(early_ns, true) - 1.0).abs() < f64::EPSILON);
}

//! When to poll again: at the first moment at which the decision may change without a ring. A
//! thread that begins to wait at the gate rings the daemon, and so does a thread that observes a
//! completion while another waits. The daemon must find out by itself
//! - *HP idle*: that enough of the work in flight is predicted to be complete for the bound to have
//!   room again. After the predicted end only reported completions help, and they ring;
//! - *HP busy*: that HP's work is over. No thread rings for that: HP's path has no system call. The
//!   daemon polls at the predicted end, and from then on every pause; also, where work beside HP
//!   must suit it, when a kernel of other classes is predicted to execute.
//!
//! A quiet time ([`super::quiet`]) shrinks as it passes, and the grant with it. While only whole
//! kernels are granted (`bounds.whole`), the daemon polls every pause.
//! Predictions may be wrong, so pauses have maxima: [`IDLE_MAX`] and [`BUSY_MAX`], and
//! [`YOUNG_MAX`] in the first three quarters of a request's usual time. Until then a request that
//! came or ended early is not noticed; nothing is granted wrongly: HP's launches void leases.

use super::{Pillion, free_ns};
use crate::gate::in_flight_ns;
use crate::{Outlook, Snapshot};

/// The longest pause while HP is idle or nobody waits, in shortest pauses.
const IDLE_MAX: u64 = 8;

/// The longest pause while HP is busy and a thread waits.
const BUSY_MAX: u64 = 4;

/// The same in the first three quarters of an undisturbed request. A shorter one ends earlier.
const YOUNG_MAX: u64 = 20;

/// When to poll again after the snapshot, at least `pause_ns` after it; `outlook` is HP's.
pub(crate) fn next_look_ns(
    pillion: &Pillion,
    snapshot: &Snapshot<'_>,
    outlook: &Outlook,
    pause_ns: u64,
) -> u64 {
    let (params, learnt) = (&pillion.params, &pillion.learnt);
    let now_ns = snapshot.now_ns;
    // A lease is renewed once half of its time is over.
    let longest_ns = (params.lease_ns / 4).max(pause_ns);
    let after = |pauses: u64| {
        let wait_ns = pause_ns.saturating_mul(pauses).min(longest_ns);
        now_ns.saturating_add(wait_ns)
    };
    let soon_ns = after(1);
    let jobs = || snapshot.be.iter();
    if jobs().filter(|job| job.waiting || !job.drained).count() > 1 {
        // Turns pass when one of several has had enough, or has nothing in flight.
        return soon_ns;
    }
    if !jobs().any(|job| job.waiting) {
        return after(IDLE_MAX);
    }
    let bounds = learnt.bounds;
    if !learnt.marked.is_empty() {
        return learnt
            .marked
            .changes_ns(now_ns, after(BUSY_MAX))
            .max(soon_ns);
    }
    if !snapshot.hp.busy {
        let used_ns = pillion.used_ns(snapshot);
        if free_ns(bounds.idle_ns, used_ns, bounds.whole) > 0 {
            return if bounds.whole {
                soon_ns
            } else {
                after(IDLE_MAX)
            };
        }
        let needed_ns = used_ns.saturating_sub(bounds.idle_ns);
        let in_flight_ns = in_flight_ns(snapshot);
        let left_ns = bounds
            .idle_ns
            .min(in_flight_ns)
            .saturating_sub(learnt.ahead_ns);
        if needed_ns > left_ns {
            return after(IDLE_MAX);
        }
        return now_ns
            .saturating_add(needed_ns)
            .clamp(soon_ns, after(IDLE_MAX));
    }
    let changes_ns = match bounds.pairs && bounds.beside_ns > 0 {
        true => outlook.changes_ns,
        false => u64::MAX,
    };
    let next_ns = outlook.ends_ns.min(changes_ns);
    let usual_ns = snapshot.hp.latency_ns.unwrap_or(0) / 4 * 3;
    let young_until_ns = snapshot.hp.since_ns.saturating_add(usual_ns);
    let latest_ns = after(YOUNG_MAX).min(young_until_ns).max(after(BUSY_MAX));
    next_ns.clamp(soon_ns, latest_ns)
}

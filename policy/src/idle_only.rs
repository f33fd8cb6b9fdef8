//! `idle-only`: best-effort work goes once the high-priority jobs have been idle for `idle_us`.
//!
//! Pauses within a request are short, so after `idle_us` the request has probably ended. Then
//! 100 us of expected best-effort work may be in flight, over all jobs.

use crate::gate::in_flight_ns;
use crate::registry::{Entry, Param, Settings};
use crate::{Lease, Limit, Rules, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "idle-only",
    about: "best-effort jobs once high-priority jobs have been idle for idle_us",
    settings: Settings::Numbers {
        params: &[Param::new("idle_us", "time idle, in us", (0.0, 1e6), 200.0)],
        rules: |numbers| {
            let idle_ns = numbers.us_in_ns("idle_us");
            Box::new(IdleOnly { idle_ns })
        },
    },
};

#[derive(Debug)]
struct IdleOnly {
    idle_ns: u64,
}

impl Rules for IdleOnly {
    fn lease(&self, snapshot: &Snapshot<'_>, _job: usize) -> (Lease, Limit) {
        let closed = Lease::closed(snapshot.epoch, snapshot.now_ns + LEASE_NS);
        let idle_for_ns = snapshot.now_ns.saturating_sub(snapshot.hp.since_ns);
        if snapshot.hp.busy || idle_for_ns < self.idle_ns {
            return (closed, Limit::HpBusy);
        }
        match IN_FLIGHT_NS.saturating_sub(in_flight_ns(snapshot)) {
            0 => (closed, Limit::Throttle),
            budget_ns => (closed.with_budget(budget_ns), Limit::Budget),
        }
    }
}

/// The daemon polls every millisecond at least, and renews leases before they end.
const LEASE_NS: u64 = 5_000_000;

const IN_FLIGHT_NS: u64 = 100_000;

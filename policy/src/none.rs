//! `none`: everything goes, always.
//!
//! The baseline: nobody is held, and high-priority streams keep the priority that they have on the
//! device. And the switch to turn Pillion off without restarting jobs. Leases are ungated:
//! what is launched is still charged and completed, so that everything in flight is known when
//! another policy takes over.

use crate::registry::{Entry, Settings};
use crate::rules::Rules;
use crate::{Kernel, Lease, Limit, Policy, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "none",
    about: "everybody, always",
    settings: Settings::Own(|| Policy::None),
};

/// The policy: it has no numbers and no memory.
#[derive(Debug)]
pub(crate) struct HoldNobody;

impl Rules for HoldNobody {
    fn lease(&self, snapshot: &Snapshot<'_>, _job: usize) -> (Lease, Limit) {
        lease(snapshot)
    }

    fn eligible(&self, _: &Snapshot<'_>, _: usize, _: u64, _: &Kernel) -> bool {
        true
    }
}

/// The lease of every job.
pub(crate) fn lease(snapshot: &Snapshot<'_>) -> (Lease, Limit) {
    (Lease::ungated(snapshot.epoch), Limit::Ungated)
}

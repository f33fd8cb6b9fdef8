//! `none`: everything goes, always. The baseline: no job is held, and high-priority streams keep
//! their priority on the device. It is also the switch that turns Pillion off without restarting
//! jobs: launches are still charged and completed, so that the work in flight is known when another
//! policy takes over.

use crate::registry::{Entry, Settings};
use crate::rules::Rules;
use crate::{Kernel, Lease, Limit, Policy, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "none",
    about: "every job, at any time",
    settings: Settings::Own(|| Policy::None),
};

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

pub(crate) fn lease(snapshot: &Snapshot<'_>) -> (Lease, Limit) {
    (Lease::ungated(snapshot.epoch), Limit::Ungated)
}

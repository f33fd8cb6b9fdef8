//! `none`: everything goes, always.
//!
//! The baseline: nobody is held, and high-priority streams keep the priority that they have on the
//! device. And the switch to turn Pillion off without restarting jobs. Leases are ungated:
//! what is launched is still charged and completed, so that everything in flight is known when
//! another policy takes over.

use crate::{Lease, Limit, Snapshot};

/// The lease of every job.
pub(crate) fn lease(snapshot: &Snapshot<'_>) -> (Lease, Limit) {
    (Lease::ungated(snapshot.epoch), Limit::Ungated)
}

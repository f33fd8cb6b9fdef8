//! What the device was given, per label of the processes that gave it.

use std::collections::BTreeMap;

use serde::Serialize;

/// Distinct labels that are counted apart; further ones are counted together.
const LABELS_MAX: usize = 256;
/// Label of processes beyond [`LABELS_MAX`].
const OTHERS: &str = "(others)";

/// Running totals of all processes that had one label, ended ones too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counters {
    /// Processes that connected.
    pub(crate) processes: u64,
    /// Processes that are connected.
    pub(crate) connected: u64,
    /// Kernel launches that the device took, those in graphs not among them.
    pub(crate) launches: u64,
    /// Of these, launches taken while kernels of another process were submitted and incomplete.
    pub(crate) launches_beside_others: u64,
    /// Launches that are complete.
    pub(crate) launches_completed: u64,
    /// Of the launches, how many had which priority.
    pub(crate) launches_by_priority: BTreeMap<i32, u64>,
    /// Launches that were recorded into a capture, as the driver counts them.
    pub(crate) launches_captured: u64,
    /// Launches of graphs that the device took.
    pub(crate) graph_launches: u64,
    /// Of these, launches taken while kernels of another process were submitted and incomplete.
    pub(crate) graph_launches_beside_others: u64,
    /// Kernels in these graphs.
    pub(crate) graph_kernels: u64,
    /// Kernels in graphs that are complete.
    pub(crate) graph_kernels_completed: u64,
    /// Copies in launched graphs.
    pub(crate) graph_copies: u64,
    /// Bytes of these, of any direction.
    pub(crate) graph_copied_bytes: u64,
    /// Bytes filled by launched graphs.
    pub(crate) graph_set_bytes: u64,
    /// Functions that the host was told to call in a stream's order.
    pub(crate) host_calls: u64,
    /// The same by launched graphs.
    pub(crate) graph_host_calls: u64,
    /// Events that streams were told to record, those in graphs not among them.
    pub(crate) events_recorded: u64,
    /// Streams made, default streams among them.
    pub(crate) streams_created: u64,
    /// Launches and copies that the device refused or that faulted.
    pub(crate) faults: u64,
    /// Copies taken, of any direction.
    pub(crate) copies: u64,
    /// Bytes of copies to the device.
    pub(crate) copied_h2d_bytes: u64,
    /// Bytes of copies from the device.
    pub(crate) copied_d2h_bytes: u64,
    /// Bytes of copies inside the device.
    pub(crate) copied_d2d_bytes: u64,
    /// Bytes filled.
    pub(crate) set_bytes: u64,
    /// Allocations granted.
    pub(crate) allocations: u64,
    /// Bytes asked for in these.
    pub(crate) allocated_bytes: u64,
    /// Allocations refused because the device is full.
    pub(crate) allocations_refused: u64,
    /// Allocations freed by the program.
    pub(crate) frees: u64,
    /// Calls of entry points that the software GPU does not have.
    pub(crate) not_supported: u64,
}

impl Counters {
    /// An operation is complete: a kernel or something else, of a graph or not.
    pub(crate) fn handle_completed(&mut self, is_kernel: bool, is_node: bool) {
        self.launches_completed += u64::from(is_kernel && !is_node);
        self.graph_kernels_completed += u64::from(is_kernel && is_node);
    }
}

/// Counters by label.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    by_label: BTreeMap<String, Counters>,
}

impl Labels {
    /// The counters of a label, made at first use.
    pub(crate) fn of(&mut self, label: &str) -> &mut Counters {
        let known = self.by_label.contains_key(label) || self.by_label.len() < LABELS_MAX;
        self.by_label
            .entry(if known { label } else { OTHERS }.to_owned())
            .or_default()
    }

    pub(crate) fn all(&self) -> &BTreeMap<String, Counters> {
        &self.by_label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_beyond_the_bound_share_one_entry() {
        let mut labels = Labels::default();
        for index in 0..2 * LABELS_MAX {
            labels.of(&index.to_string()).launches += 1;
        }
        assert_eq!(labels.all().len(), LABELS_MAX + 1);
        assert_eq!(labels.of(OTHERS).launches, LABELS_MAX as u64);
    }
}

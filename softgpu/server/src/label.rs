//! Counters of the device's work, per label of the processes.

use std::collections::BTreeMap;

use serde::Serialize;

/// Distinct labels with their own counters; further ones share one.
const LABELS_MAX: usize = 256;
const OTHERS: &str = "(others)";

/// Running totals of all processes of one label, including ended ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counters {
    pub(crate) processes: u64,
    pub(crate) connected: u64,
    /// Kernel launches that the device accepted, excluding those in graphs.
    pub(crate) launches: u64,
    /// Of these, launches while another process had incomplete kernels.
    pub(crate) launches_beside_others: u64,
    pub(crate) launches_completed: u64,
    pub(crate) launches_by_priority: BTreeMap<i32, u64>,
    /// Launches recorded into a capture, counted by the driver.
    pub(crate) launches_captured: u64,
    pub(crate) graph_launches: u64,
    /// Graph launches accepted while another process had incomplete kernels.
    pub(crate) graph_launches_beside_others: u64,
    /// Kernels in these graphs.
    pub(crate) graph_kernels: u64,
    /// Completed kernels in graphs.
    pub(crate) graph_kernels_completed: u64,
    pub(crate) graph_copies: u64,
    /// Bytes of these, in any direction.
    pub(crate) graph_copied_bytes: u64,
    pub(crate) graph_set_bytes: u64,
    /// Host functions enqueued in streams.
    pub(crate) host_calls: u64,
    pub(crate) graph_host_calls: u64,
    /// Event records put on streams, excluding those in graphs.
    pub(crate) events_recorded: u64,
    /// Streams created, including default streams.
    pub(crate) streams_created: u64,
    /// Launches and copies that the device refused or that faulted.
    pub(crate) faults: u64,
    /// Copies accepted, in any direction.
    pub(crate) copies: u64,
    pub(crate) copied_h2d_bytes: u64,
    pub(crate) copied_d2h_bytes: u64,
    pub(crate) copied_d2d_bytes: u64,
    pub(crate) set_bytes: u64,
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) allocations_refused: u64,
    pub(crate) frees: u64,
    /// Calls of entry points that the software GPU lacks.
    pub(crate) not_supported: u64,
}

impl Counters {
    /// Counts a completed operation: a kernel or another one, of a graph or not.
    pub(crate) fn handle_completed(&mut self, is_kernel: bool, is_node: bool) {
        self.launches_completed += u64::from(is_kernel && !is_node);
        self.graph_kernels_completed += u64::from(is_kernel && is_node);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Labels {
    by_label: BTreeMap<String, Counters>,
}

impl Labels {
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

//! Which part of a best-effort client's GPU time is of known kernels, for display. Sums over all
//! logged launches, each with its charge: the profile's duration, the learnt one, or the daemon's
//! assumption for an unknown kernel. When a kernel is learnt its earlier charges count as known, so
//! that the shares describe the *present* knowledge. The daemon computes the shares from the sums
//! (`scheduler::report::status`). With nobody to protect, the sums are a sample (windows).

use std::collections::HashMap;

use protocol::pages::{ClientPage, Counter};

use crate::kernels::Learnt;

#[derive(Debug, Default)]
pub(super) struct Shares {
    all_ns: u64,
    known_ns: u64,
    classed_ns: u64,
    /// Charges for numbers that are not learnt yet, by index in `policy::durations`.
    unknown: HashMap<u32, u64>,
}

impl Shares {
    /// Adds a launch with a charge of `cost_ns`. `learnt` is `None` for a reused number, or none.
    /// `is_seen`: some batch has shown its duration, which one beside high-priority work does not.
    pub(super) fn handle_launch(
        &mut self,
        cost_ns: u64,
        index: u32,
        learnt: Option<&Learnt<'_>>,
        is_seen: bool,
    ) {
        self.all_ns = self.all_ns.saturating_add(cost_ns);
        let Some(learnt) = learnt else {
            return;
        };
        if learnt.is_classed {
            self.classed_ns = self.classed_ns.saturating_add(cost_ns);
        }
        let is_known = is_seen || learnt.unknown == 0;
        // A profile may know a part of a graph.
        let known_ns = match is_known {
            true => cost_ns,
            false => cost_ns.min(learnt.told_ns),
        };
        self.known_ns = self.known_ns.saturating_add(known_ns);
        match is_known {
            true if self.unknown.is_empty() => {}
            true => {
                let before_ns = self.unknown.remove(&index).unwrap_or(0);
                self.known_ns = self.known_ns.saturating_add(before_ns);
            }
            false => {
                let unknown_ns = self.unknown.entry(index).or_default();
                *unknown_ns = unknown_ns.saturating_add(cost_ns - known_ns);
            }
        }
    }

    /// The number is reused: its charges stay unknown.
    pub(super) fn forget(&mut self, index: u32) {
        self.unknown.remove(&index);
    }

    /// Publishes the sums for the daemon. No other thread writes them.
    pub(super) fn tell(&self, page: &ClientPage) {
        page.tell(Counter::GpuTime, self.all_ns);
        page.tell(Counter::GpuTimeKnown, self.known_ns);
        page.tell(Counter::GpuTimeClassed, self.classed_ns);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use super::*;
    use crate::kernels::Taken;

    struct Rig {
        shares: Shares,
        word: AtomicU64,
    }

    impl Rig {
        fn new() -> Self {
            Self {
                shares: Shares::default(),
                word: AtomicU64::new(0),
            }
        }

        fn launch(&mut self, cost_ns: u64, (told_ns, unknown): (u64, u64), is_seen: bool) {
            let learnt = Learnt {
                told_ns,
                unknown,
                is_classed: told_ns != 0,
                taken: Taken(&self.word),
            };
            self.shares
                .handle_launch(cost_ns, 7, Some(&learnt), is_seen);
        }

        fn sums(&self) -> [u64; 3] {
            let shares = &self.shares;
            [shares.all_ns, shares.known_ns, shares.classed_ns]
        }
    }

    #[test]
    fn what_a_profile_tells_is_known_and_classed() {
        let mut rig = Rig::new();
        rig.launch(500, (500, 0), false);
        assert_eq!(rig.sums(), [500, 500, 500]);
    }

    #[test]
    fn a_kernel_that_is_learnt_is_known_from_its_first_launch_on() {
        let mut rig = Rig::new();
        rig.launch(100, (0, 1), false);
        rig.launch(100, (0, 1), false);
        assert_eq!(rig.sums(), [200, 0, 0]);
        rig.launch(900, (0, 1), true);
        assert_eq!(rig.sums(), [1_100, 1_100, 0]);
        rig.launch(900, (0, 1), true);
        assert_eq!(rig.sums(), [2_000, 2_000, 0]);
    }

    #[test]
    fn of_a_graph_the_kernels_that_a_profile_names_are_known() {
        let mut rig = Rig::new();
        rig.launch(700, (500, 2), false);
        assert_eq!(rig.sums(), [700, 500, 700]);
        rig.launch(1_000, (500, 2), true);
        assert_eq!(rig.sums(), [1_700, 1_700, 1_700]);
    }

    #[test]
    fn what_was_charged_for_another_ones_number_stays_unknown() {
        let mut rig = Rig::new();
        rig.launch(100, (0, 1), false);
        rig.shares.forget(7);
        rig.shares.handle_launch(100, 7, None, true);
        rig.launch(300, (0, 1), true);
        assert_eq!(rig.sums(), [500, 300, 0]);
    }
}

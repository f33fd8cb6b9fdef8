//! `streams`, `stream-priority`, `mps`, `mps-priority`, the baselines without a scheduler: every
//! launch goes at once, and only the clients' placement on the device differs.

use crate::scheduler::{ClientId, Issue, Placement, Scheduler, State};

#[derive(Debug)]
pub(crate) struct AtOnce {
    placement: Placement,
}

impl AtOnce {
    pub(crate) fn new(placement: Placement) -> Self {
        Self { placement }
    }
}

impl Scheduler for AtOnce {
    fn placement(&self) -> Placement {
        self.placement
    }

    fn poll(&mut self, _now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        for (index, client) in state.clients.iter().enumerate() {
            let client_id = ClientId(index);
            issues.extend((0..client.queued).map(|_| Issue { client: client_id }));
        }
    }
}

//! Invariants of a [`Gpu`] between any two calls.

use std::collections::{BTreeSet, VecDeque};

use super::Gpu;
use crate::op::OpKind;
use crate::stream::Head;

impl Gpu {
    /// Whether all invariants hold. Slow; for tests.
    pub fn is_valid(&self) -> bool {
        let mut with_engines = self.engine.streams();
        with_engines.extend(self.to_device.streams());
        with_engines.extend(self.to_host.streams());
        with_engines.sort_unstable();
        let running = self.streams.iter().filter(|(_, s)| s.head == Head::Running);
        let heads_are_with_engines = running.map(|(&id, _)| id).eq(with_engines);
        let counts_are_sums = self.contexts.values().all(|context| {
            let streams = || context.streams.iter().filter_map(|id| self.streams.get(id));
            let queues = || streams().map(|stream| &stream.queue);
            let kernels = queues()
                .flatten()
                .filter(|op| op.kind() == OpKind::Kernel)
                .count();
            let ops: usize = queues().map(VecDeque::len).sum();
            let are_connected = streams().all(|stream| stream.connection.is_some());
            let have_started = streams().filter(|stream| stream.head == Head::Running);
            let connected = (ops - have_started.count(), context.streams.len());
            context.ops_in_flight == ops as u64
                && context.kernels_in_flight == kernels as u64
                && (!are_connected || context.connections.totals() == connected)
        });
        let owned: usize = self
            .contexts
            .values()
            .map(|context| context.streams.len())
            .sum();
        let nothing_stalls = self.streams.values().all(|s| {
            s.queue.is_empty() == (s.head == Head::Idle) && !(s.closing && s.queue.is_empty())
        });
        let delayed = self.streams.iter().filter(|(_, s)| s.head == Head::Delayed);
        let delayed: BTreeSet<_> = delayed.map(|(&id, s)| (s.ready_ns, id)).collect();
        let delayed_are_listed = delayed.iter().eq(self.delayed.iter());
        let queued = self.streams.iter().filter(|(_, s)| s.head == Head::Queued);
        let queued_are_behind_others = queued.into_iter().all(|(&id, s)| !self.may_start(id, s));
        heads_are_with_engines
            && delayed_are_listed
            && queued_are_behind_others
            && counts_are_sums
            && owned == self.streams.len()
            && nothing_stalls
            && self.engine.is_valid()
            && self
                .next_change_ns()
                .is_none_or(|event_ns| event_ns > self.now_ns)
    }
}

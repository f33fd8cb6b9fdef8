//! What a best-effort client of a shipped policy learns of its kernels: the library's `learner`.

use policy::{Completed, Durations, InFlight, Launched};

use crate::scheduler::Launch;

#[derive(Debug, Default)]
pub(super) struct Learner {
    pub(super) durations: Durations,
    in_flight: InFlight,
    /// The epoch under which all in flight went; 0: none, several, or beside high-priority work.
    epoch: u64,
}

impl Learner {
    /// A launch went under the lease of this epoch; 0: high-priority work may be beside it.
    pub(super) fn handle_launch(&mut self, now_ns: u64, launch: &Launch, epoch: u64) {
        self.epoch = match self.in_flight.first() {
            None => epoch,
            Some(_) if self.epoch == epoch => epoch,
            Some(_) => 0,
        };
        let told_ns = launch.kernel.expected_ns;
        let kernel = launch.kernel_index;
        self.in_flight.handle_launch(
            launch.seq,
            Launched {
                kernel,
                told_ns,
                is_told: true,
            },
            now_ns,
        );
    }

    /// Everything up to `seq` was seen complete, between both polls; `epoch` is the current one.
    pub(super) fn handle_complete(&mut self, seq: u64, (after_ns, by_ns): (u64, u64), epoch: u64) {
        let is_alone = self.epoch == epoch;
        let completed = Completed {
            after_ns,
            by_ns,
            is_waited: false,
        };
        self.in_flight
            .handle_complete(seq, completed, is_alone, &mut self.durations);
    }
}

//! `reef-n`: REEF (OSDI'22) on a GPU whose kernels cannot be killed, the Orion paper's baseline.
//! REEF preempts by killing running kernels and padding real-time kernels with best-effort ones.
//! NVIDIA's GPUs cannot kill; REEF-N is the rest, and was never published. The Orion paper (§6.1):
//! "REEF-N … allows high-priority kernels to bypass best-effort kernels in software queues before
//! submission to GPU"; "we implement REEF-N and the kernel selection rules from the original paper,
//! which schedule kernels based on their size (number of SMs) and expected latency. We use a
//! software queue size of 12 kernels". So:
//! 1. An HP kernel goes at once, past all BE kernels in software queues.
//! 2. *Beside HP* (from the first kernel of a request until its last is complete) BE kernels only
//!    pad: with each HP kernel at most one BE kernel goes, of the first client, in turn, whose head
//!    fits the rest of the device, `sm_needed ≤ SMs − HP's sm_needed`, and lasts no longer.
//! 3. *While HP is idle* BE kernels go, each client with at most 12 in flight. HP waits for these.
//! 4. Resource classes count for nothing, and streams have no priorities.
//!
//! ```text
//! 80 SMs, HP kernel 60 SMs 100 µs   BE 20 SMs  90 µs  goes with it
//!                                   BE 21 SMs  90 µs  too large
//!                                   BE 20 SMs 101 µs  too long
//! HP idle                           BE goes until 12 are in flight
//! ```
//! *The published code* (`--algo reef`, notes in Orion's repository) does not follow these rules:
//! its depth of 12 is a number of busy polls after which one op of each BE client goes, HP or not,
//! and it requires BE kernels with *at least* HP's SMs. This module follows the paper.

use crate::Kernel;
use crate::queue::{Op, OpKind, QueueClient, round_robin};

/// The numbers of `reef-n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReefNParams {
    /// BE kernels of one client in flight while HP is idle.
    pub depth: u32,
    /// SMs of the device.
    pub sms: u32,
}

impl ReefNParams {
    /// The paper's depth on a device of `sms` SMs.
    #[must_use]
    pub const fn new(sms: u32) -> Self {
        Self { depth: DEPTH, sms }
    }
}

/// "a software queue size of 12 kernels, based on discussions with the REEF authors".
const DEPTH: u32 = 12;

/// The policy and its state.
#[derive(Clone, Debug)]
pub struct ReefN {
    params: ReefNParams,
    hp_request: bool,
    in_flight: Vec<u32>,
    last: usize,
}

impl ReefN {
    /// A scheduler of one HP client and `be_count` BE clients.
    #[must_use]
    pub fn new(params: ReefNParams, be_count: usize) -> Self {
        Self {
            params,
            hp_request: false,
            in_flight: vec![0; be_count],
            last: be_count.saturating_sub(1),
        }
    }

    /// One pass over the heads of the queues; appends the ops that go.
    pub fn poll(&mut self, hp: Option<&Op>, be: &[Option<Op>], goes: &mut Vec<QueueClient>) {
        debug_assert_eq!(be.len(), self.in_flight.len());
        if let Some(op) = hp {
            self.hp_request = true;
            goes.push(QueueClient::Hp);
            if op.kind == OpKind::Kernel {
                self.pad(&op.kernel, be, goes);
            }
            return;
        }
        if self.hp_request {
            return;
        }
        for index in round_robin(self.last, be.len()) {
            if be[index].is_some() && self.in_flight[index] < self.params.depth {
                self.go(index, goes);
            }
        }
    }

    /// The oldest op of the client is complete.
    pub fn handle_complete(&mut self, client: QueueClient) {
        if let QueueClient::Be(index) = client {
            debug_assert!(self.in_flight[index] > 0);
            self.in_flight[index] = self.in_flight[index].saturating_sub(1);
        }
    }

    /// The client's request is complete.
    pub fn handle_request_end(&mut self, client: QueueClient) {
        if client == QueueClient::Hp {
            self.hp_request = false;
        }
    }

    /// Rule 2.
    fn pad(&mut self, hp: &Kernel, be: &[Option<Op>], goes: &mut Vec<QueueClient>) {
        let sms_left = self.params.sms.saturating_sub(hp.sm_needed);
        let fits =
            |kernel: &Kernel| kernel.sm_needed <= sms_left && kernel.expected_ns <= hp.expected_ns;
        let fitting = round_robin(self.last, be.len()).find(|&index| {
            let op = be[index].filter(|_| self.in_flight[index] < self.params.depth);
            op.is_some_and(|op| op.kind == OpKind::Memory || fits(&op.kernel))
        });
        if let Some(index) = fitting {
            self.go(index, goes);
        }
    }

    fn go(&mut self, index: usize, goes: &mut Vec<QueueClient>) {
        self.in_flight[index] += 1;
        self.last = index;
        goes.push(QueueClient::Be(index));
    }
}

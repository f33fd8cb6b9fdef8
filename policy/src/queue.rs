//! Input and output of a policy that decides about queues of launches. Orion's and REEF's own
//! programs put every launch into a software queue of its client; one thread selects launches for
//! the device from the heads of the queues. Such a policy is no lease: each launch needs a new
//! decision. It is a state machine ([`crate::orion_code`], [`crate::reef_n`]) with three entry
//! points:
//! - `poll`: one pass over the heads of all queues. Returns the ops that go, at most one of each
//!   client; the caller takes these from their queues and polls again until nothing goes.
//! - `handle_complete`: the oldest op of a client that had gone is complete.
//! - `handle_request_end`: the client's request (batch, training iteration) is complete. There is
//!   one HP client, as in both programs.

use crate::Kernel;

/// An intercepted call at the head of a client's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Its kind.
    pub kind: OpKind,
    /// A kernel's profile; meaningless for a memory operation.
    pub kernel: Kernel,
}

impl Op {
    /// A launch of `kernel`.
    #[must_use]
    pub const fn kernel(kernel: Kernel) -> Self {
        Self {
            kind: OpKind::Kernel,
            kernel,
        }
    }
}

/// Kinds of intercepted calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A kernel launch, or an operator with several launches.
    Kernel,
    /// An allocation, a free, a copy or a fill.
    Memory,
}

/// A client of a queue policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueClient {
    /// The high-priority one.
    Hp,
    /// The best-effort one of this index.
    Be(usize),
}

/// The indices of `count` clients, beginning after `last`.
pub(crate) fn round_robin(last: usize, count: usize) -> impl Iterator<Item = usize> {
    (1..=count).map(move |step| (last + step) % count)
}

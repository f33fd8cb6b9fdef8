//! What a policy that decides about queues of launches sees and says.
//!
//! Orion's and REEF's own programs intercept every launch, put it into a software queue of its
//! client, and one thread takes from the heads of the queues what goes to the device now. Such a
//! policy is no lease: it is asked again for each launch. It is a state machine of its own
//! ([`crate::orion_code`], [`crate::reef_n`]) with the same three doors:
//!
//! - `poll`: one pass over the heads of all queues. Says what goes, at most one op of each client;
//!   whoever drives it takes these from their queues and asks again until nothing goes.
//! - `handle_complete`: the oldest op of a client that had gone is complete.
//! - `handle_request_end`: all ops of the client's request (inference batch, training iteration) are
//!   complete.
//!
//! There is one HP client, as in both programs.

use crate::Kernel;

/// An intercepted call at the head of a client's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it is.
    pub kind: OpKind,
    /// For a kernel what its profile says; for a memory operation without meaning.
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
    /// A kernel launch, or an operator that launches some.
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

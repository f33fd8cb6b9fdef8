//! A stream: a queue of operations that complete in order, and the streams that wait for them.

use std::collections::VecDeque;

use crate::op::{ContextId, Op, StreamId};

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) context: ContextId,
    /// As in CUDA: the lower number goes first.
    pub(crate) priority: i32,
    /// Index of its connection, if the context's are limited.
    pub(crate) connection: Option<usize>,
    /// Incomplete operations. The first one is the head.
    pub(crate) queue: VecDeque<Op>,
    pub(crate) head: Head,
    /// Sequence number of the last operation that completed; the head has the next.
    pub(crate) completed: u64,
    /// No kernel of the stream starts before this.
    pub(crate) ready_ns: u64,
    /// Holds up to this number are released.
    pub(crate) released: u64,
    /// The stream accepts no operations, and is removed when the queue is empty.
    pub(crate) closing: bool,
    /// Streams whose head waits for an operation of this one.
    waiters: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// There is none, or it has not been visited yet.
    Idle,
    /// An engine has it, and will report its end.
    Running,
    /// A kernel that keeps its distance to the previous one.
    Delayed,
    /// A wait that is registered with the other stream, or a hold.
    Waiting,
    /// Operations of other streams are before it on the connection.
    Queued,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    stream: StreamId,
    seq: u64,
}

impl Stream {
    pub(crate) fn new(context: ContextId, priority: i32, connection: Option<usize>) -> Self {
        Self {
            context,
            priority,
            connection,
            queue: VecDeque::new(),
            head: Head::Idle,
            completed: 0,
            ready_ns: 0,
            released: 0,
            closing: false,
            waiters: Vec::new(),
        }
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.completed + self.queue.len() as u64
    }

    pub(crate) fn pop_head(&mut self) -> Op {
        let op = self
            .queue
            .pop_front()
            .expect("only an operation in the queue can complete");
        self.completed += 1;
        self.head = Head::Idle;
        op
    }

    pub(crate) fn add_waiter(&mut self, stream: StreamId, seq: u64) {
        debug_assert!(seq > self.completed);
        self.waiters.push(Waiter { stream, seq });
    }

    /// Moves the streams whose wait is over to `woken`, first come first.
    pub(crate) fn wake(&mut self, woken: &mut VecDeque<StreamId>) {
        let completed = self.completed;
        self.waiters.retain(|waiter| {
            let over = waiter.seq <= completed;
            if over {
                woken.push_back(waiter.stream);
            }
            !over
        });
    }

    pub(crate) fn into_waiters(self) -> impl Iterator<Item = StreamId> {
        self.waiters.into_iter().map(|waiter| waiter.stream)
    }
}

//! The connections of a context: hardware queues by which its streams' operations reach the device.
//! A context has a limited number of connections (`CUDA_DEVICE_MAX_CONNECTIONS`), which its streams
//! share. The device takes the operations of one connection in the order of their submission: an
//! operation starts only when every operation before it on the same connection has started. An
//! operation that waits for its turn in its own stream thus also holds back operations of other
//! streams behind it: a *false dependency* (NVIDIA's CUDA sample simpleHyperQ). A program never
//! ends if a connection's head waits for a value that an operation behind it would write, on
//! hardware too.
//! - *Number of connections*: 1 to 32 for each context, 8 by default. Source: CUDA C++ Programming
//!   Guide, "CUDA Environment Variables".
//! - *Connection of a stream*: the one with the fewest streams; so in turn, while no stream ends.
//!   Assumed.
//! - *Release of a place*: when the stream is destroyed and empty. Assumed.
//! - *Operations on connections*: all, copies too; no connections are for copies alone. Assumed;
//!   the guide names "compute and copy engine" connections.
//! - *Start of an operation*: of kernels and copies when in their engine; of others at completion.
//!   Assumed.
//!
//! A context without a limit has a connection for each stream.

use std::collections::VecDeque;

use crate::op::StreamId;

/// The connections of one context; none if each stream has its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Vec<Connection>);

#[derive(Clone, Debug, Default)]
struct Connection {
    streams: usize,
    /// The stream of each operation that has not started, in order of submission.
    queue: VecDeque<StreamId>,
}

impl Connections {
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![Connection::default(); count])
    }

    pub(crate) fn assign(&mut self) -> Option<usize> {
        let places = self.0.iter_mut().enumerate();
        let (place, connection) = places.min_by_key(|(_, connection)| connection.streams)?;
        connection.streams += 1;
        Some(place)
    }

    pub(crate) fn give_back(&mut self, place: usize) {
        self.0[place].streams -= 1;
    }

    pub(crate) fn push(&mut self, place: usize, stream: StreamId) {
        self.0[place].queue.push_back(stream);
    }

    pub(crate) fn is_next(&self, place: usize, stream: StreamId) -> bool {
        self.0[place].queue.front() == Some(&stream)
    }

    /// The next operation has started. Returns the stream of the one after it.
    pub(crate) fn start_next(&mut self, place: usize) -> Option<StreamId> {
        let queue = &mut self.0[place].queue;
        queue.pop_front();
        queue.front().copied()
    }

    /// Operations that have not started, and streams, over all connections.
    pub(crate) fn totals(&self) -> (usize, usize) {
        let sum = |(ops, streams), connection: &Connection| {
            (ops + connection.queue.len(), streams + connection.streams)
        };
        self.0.iter().fold((0, 0), sum)
    }
}

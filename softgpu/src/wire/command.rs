//! Commands: the encoding of launches, copies and events in the ring.

use super::words::{Word, choice, records};
use super::{
    COMMAND_WORDS, CONTEXTS, EVENTS, Extent, GRAPHS, PARAMS, PRIORITY_GREATEST, PRIORITY_LEAST,
    STREAMS, Spot, WireError, slot,
};
use crate::kernel::KernelShape;
use crate::op::CopyDirection;

/// A request of the driver without an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// Creates a stream in the slot, whose previous stream has drained.
    CreateStream {
        /// Slot of the stream.
        stream: u32,
        /// Slot of its context.
        context: u32,
        /// Lower goes first.
        priority: i32,
        /// Its ordering with the context's legacy stream.
        kind: StreamKind,
    },
    /// Ends the stream's commands; earlier ones still execute.
    DestroyStream {
        /// Slot of the stream.
        stream: u32,
    },
    /// Puts work into a stream, in order.
    Submit {
        /// Slot of the stream.
        stream: u32,
        /// Its number in the stream: 1, 2, 3, … over the life of the slot.
        seq: u64,
        /// The work.
        work: Work,
    },
    /// The driver has made a call that the server requested.
    HostDone {
        /// Its number.
        call: u64,
    },
    /// Removes the nodes of a graph.
    GraphClear {
        /// Slot of the graph.
        graph: u32,
    },
    /// Adds a node to a graph. Nodes run one after the other, in the order of their commands.
    GraphNode {
        /// Slot of the graph.
        graph: u32,
        /// A launch, copy, fill, record or host call, with numbers relative to the graph launch's.
        work: Work,
    },
}

records! {
    /// Work in stream order.
    Work, "command":
    /// Runs a kernel.
    Launch = 3 {
        /// Overrides the stream's priority.
        priority: Option<i32>,
        /// Its shape.
        shape: KernelShape,
        /// [`crate::Builtin`] number of a kernel that computes; 0: it only takes time.
        builtin: u32,
        /// Its parameters.
        params: [u64; PARAMS],
    }
    /// Copies bytes between addresses of the client, each on the device or in the host arena.
    Copy = 4 {
        /// Selects the engine.
        direction: CopyDirection,
        /// Destination.
        to: u64,
        /// Source.
        from: u64,
        /// Size.
        bytes: u64,
    }
    /// Fills memory with a repeated value.
    Set = 5 {
        /// First address.
        to: u64,
        /// Bytes of the value: 1, 2 or 4.
        width_bytes: u32,
        /// The value.
        value: u32,
        /// Number of values.
        count: u64,
    }
    /// Copies a box between addresses of the client, each on the device or in the host arena.
    CopyBox = 16 {
        /// Selects the engine.
        direction: CopyDirection,
        /// Destination.
        to: Spot,
        /// Source.
        from: Spot,
        /// Size.
        extent: Extent,
    }
    /// Fills a box with a repeated value.
    SetBox = 17 {
        /// Destination.
        to: Spot,
        /// Bytes of the value: 1, 2 or 4.
        width_bytes: u32,
        /// The value.
        value: u32,
        /// Size; rows are multiples of the value.
        extent: Extent,
    }
    /// Frees device memory when everything before it in the stream is complete.
    Free = 18 {
        /// From [`super::Reply::Allocated`].
        address: u64,
    }
    /// Records the time at which everything before it in the stream is complete.
    Record = 6 {
        /// Slot of the event.
        event: u32,
        /// Number of the record.
        record: u64,
    }
    /// Waits until another stream's command is complete.
    Wait = 7 {
        /// Slot of the other stream.
        other: u32,
        /// Number in the other stream.
        other_seq: u64,
    }
    /// Writes a value to memory.
    WriteValue = 20 {
        /// Destination.
        to: u64,
        /// Bytes of the value: 4 or 8.
        width_bytes: u32,
        /// The value.
        value: u64,
    }
    /// Waits until memory has a value.
    WaitValue = 21 {
        /// The address.
        at: u64,
        /// Bytes of the value: 4 or 8.
        width_bytes: u32,
        /// The value.
        value: u64,
        /// The condition.
        until: Until,
    }
    /// Requests a call by the driver when everything before it in the stream is complete, and waits
    /// for [`Command::HostDone`].
    Host = 8 {
        /// Number of the call, unique among pending calls.
        call: u64,
    }
    /// Runs the nodes of a graph.
    GraphLaunch = 11 {
        /// Slot of the graph.
        graph: u32,
        /// Base of the numbers of its records.
        record: u64,
        /// Base of the numbers of its host calls.
        call: u64,
    }
}

/// Condition that ends a wait for a value; see the CUDA driver API, `CUstreamWaitValue_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Memory minus value, as a signed number of their width, is not negative.
    GreaterOrEqual,
    /// Memory and value are equal.
    Equal,
    /// Memory and value have a bit in common.
    And,
    /// There is a bit that neither has.
    Nor,
}

impl Until {
    /// From a number, as the flags of a wait encode it.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::GreaterOrEqual, Self::Equal, Self::And, Self::Nor]
            .into_iter()
            .find(|&until| until as u64 == number)
    }

    /// Whether the wait is over: `memory` and `value` have that many bytes, 4 or 8.
    pub fn is_over(self, width_bytes: u32, memory: u64, value: u64) -> bool {
        match self {
            Self::GreaterOrEqual if width_bytes == 4 => {
                (memory as u32).wrapping_sub(value as u32) as i32 >= 0
            }
            Self::GreaterOrEqual => memory.wrapping_sub(value) as i64 >= 0,
            Self::Equal => memory == value,
            Self::And => memory & value != 0,
            Self::Nor if width_bytes == 4 => !(memory as u32 | value as u32) != 0,
            Self::Nor => !(memory | value) != 0,
        }
    }
}

/// A stream's ordering with the legacy default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The legacy stream: each command follows all earlier commands of blocking streams.
    Legacy,
    /// Each command follows all earlier commands of the legacy stream.
    Blocking,
    /// No ordering.
    NonBlocking,
}

const CREATE_STREAM: u32 = 1;
const DESTROY_STREAM: u32 = 2;
const HOST_DONE: u32 = 9;
const GRAPH_CLEAR: u32 = 10;
/// Added to the kind of work in a graph's node.
const GRAPH_NODE: u32 = 1 << 31;
/// Stands for the stream's priority.
const NO_PRIORITY: u64 = u64::MAX;

impl Command {
    /// As words of a slot: kind and stream, one number, and the fields of work.
    pub fn encode(&self) -> [u64; COMMAND_WORDS] {
        let (kind, stream, number) = match *self {
            Self::CreateStream {
                stream, context, ..
            } => (CREATE_STREAM, stream, context.into()),
            Self::DestroyStream { stream } => (DESTROY_STREAM, stream, 0),
            Self::Submit { stream, seq, work } => (work.kind(), stream, seq),
            Self::HostDone { call } => (HOST_DONE, 0, call),
            Self::GraphClear { graph } => (GRAPH_CLEAR, 0, graph.into()),
            Self::GraphNode { graph, work } => (work.kind() | GRAPH_NODE, 0, graph.into()),
        };
        let mut words = [0; COMMAND_WORDS];
        words[0] = u64::from(kind) | u64::from(stream) << 32;
        words[1] = number;
        match self {
            Self::CreateStream { priority, kind, .. } => {
                words[2] = encode_i32(*priority);
                words[3] = *kind as u64;
            }
            Self::Submit { work, .. } | Self::GraphNode { work, .. } => {
                work.put(&mut words[2..].iter_mut());
            }
            _ => {}
        }
        words
    }

    /// Decodes a client's words, which may be anything, to slots in range; the device checks the
    /// rest.
    /// # Errors
    /// [`WireError::Unknown`].
    pub fn decode(words: &[u64; COMMAND_WORDS]) -> Result<Self, WireError> {
        let stream = slot((words[0] >> 32) as u32, STREAMS, "stream")?;
        let [_, number, priority, kind, ..] = *words;
        let graph = || slot(number as u32, GRAPHS, "graph");
        let work = |kind| Work::take(kind, &mut words[2..].iter().copied())?.checked();
        Ok(match words[0] as u32 {
            CREATE_STREAM => Self::CreateStream {
                stream,
                context: slot(number as u32, CONTEXTS, "context")?,
                priority: decode_priority(priority),
                kind: choice(kind, &StreamKind::ALL, "kind of stream")?,
            },
            DESTROY_STREAM => Self::DestroyStream { stream },
            HOST_DONE => Self::HostDone { call: number },
            GRAPH_CLEAR => Self::GraphClear { graph: graph()? },
            kind if kind & GRAPH_NODE != 0 => Self::GraphNode {
                graph: graph()?,
                work: work(kind & !GRAPH_NODE)?.node()?,
            },
            kind => Self::Submit {
                stream,
                seq: number,
                work: work(kind)?,
            },
        })
    }
}

impl Work {
    /// Bytes that it copies, fills or writes; `None` if they exceed the address space.
    pub fn bytes(&self) -> Option<u64> {
        match *self {
            Self::Copy { bytes, .. } => Some(bytes),
            Self::Set {
                width_bytes, count, ..
            } => count.checked_mul(width_bytes.into()),
            Self::CopyBox { extent, .. } | Self::SetBox { extent, .. } => {
                extent.rows().and_then(|_| extent.bytes())
            }
            Self::WriteValue { width_bytes, .. } => Some(width_bytes.into()),
            _ => Some(0),
        }
    }

    /// Checks that slots are in range and widths are valid.
    fn checked(self) -> Result<Self, WireError> {
        let is_width = match self {
            Self::Set { width_bytes, .. } | Self::SetBox { width_bytes, .. } => {
                matches!(width_bytes, 1 | 2 | 4)
            }
            Self::WriteValue { width_bytes, .. } | Self::WaitValue { width_bytes, .. } => {
                matches!(width_bytes, 4 | 8)
            }
            _ => true,
        };
        if !is_width {
            return Err(WireError::Unknown("width"));
        }
        match self {
            Self::Record { event, .. } => slot(event, EVENTS, "event")?,
            Self::Wait { other, .. } => slot(other, STREAMS, "stream")?,
            Self::GraphLaunch { graph, .. } => slot(graph, GRAPHS, "graph")?,
            _ => 0,
        };
        Ok(self)
    }

    fn node(self) -> Result<Self, WireError> {
        match self {
            Self::Launch { .. }
            | Self::Copy { .. }
            | Self::Set { .. }
            | Self::Record { .. }
            | Self::Host { .. } => Ok(self),
            _ => Err(WireError::Unknown("node")),
        }
    }
}

impl Word for Option<i32> {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        self.map_or(NO_PRIORITY, encode_i32).put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        let word = u64::take(from)?;
        Ok((word != NO_PRIORITY).then(|| decode_priority(word)))
    }
}

impl Word for CopyDirection {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        (*self as u64).put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        use CopyDirection::{DeviceToDevice, DeviceToHost, HostToDevice};
        let all = [HostToDevice, DeviceToHost, DeviceToDevice];
        choice(u64::take(from)?, &all, "direction")
    }
}

impl Word for Until {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        (*self as u64).put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        Self::from_number(u64::take(from)?).ok_or(WireError::Unknown("kind of wait"))
    }
}

impl Word for KernelShape {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        self.grid_blocks.put(to);
        self.threads_per_block.put(to);
        self.registers_per_thread.put(to);
        self.shared_bytes_per_block.put(to);
        self.block_ns.put(to);
        self.compute_demand.to_bits().put(to);
        self.bandwidth_demand.to_bits().put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        Ok(Self {
            grid_blocks: Word::take(from)?,
            threads_per_block: Word::take(from)?,
            registers_per_thread: Word::take(from)?,
            shared_bytes_per_block: Word::take(from)?,
            block_ns: Word::take(from)?,
            compute_demand: f64::from_bits(Word::take(from)?),
            bandwidth_demand: f64::from_bits(Word::take(from)?),
        })
    }
}

fn encode_i32(number: i32) -> u64 {
    u64::from(number as u32)
}

fn decode_priority(word: u64) -> i32 {
    (word as u32 as i32).clamp(PRIORITY_GREATEST, PRIORITY_LEAST)
}

impl StreamKind {
    const ALL: [Self; 3] = [Self::Legacy, Self::Blocking, Self::NonBlocking];
}

#[cfg(test)]
mod tests;

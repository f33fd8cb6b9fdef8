//! Commands: how launches, copies and events lie in the ring.

use super::words::{Word, choice, records};
use super::{
    COMMAND_WORDS, CONTEXTS, EVENTS, Extent, GRAPHS, PARAMS, PRIORITY_GREATEST, PRIORITY_LEAST,
    STREAMS, Spot, WireError, slot,
};
use crate::kernel::KernelShape;
use crate::op::CopyDirection;

/// What the driver asks of the server without waiting for an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// The slot, whose last stream has drained, is a stream from here on.
    CreateStream {
        /// Slot of the stream.
        stream: u32,
        /// Slot of its context.
        context: u32,
        /// Lower goes first.
        priority: i32,
        /// How it is ordered with the context's legacy stream.
        kind: StreamKind,
    },
    /// No more commands for this stream; what was put still executes.
    DestroyStream {
        /// Slot of the stream.
        stream: u32,
    },
    /// What takes its turn in a stream.
    Submit {
        /// Slot of the stream.
        stream: u32,
        /// Its number in the stream: 1, 2, 3, … over the life of the slot.
        seq: u64,
        /// What is to be done.
        work: Work,
    },
    /// The driver has made a call that it was told to make.
    HostDone {
        /// Its number.
        call: u64,
    },
    /// Forget the nodes of a graph.
    GraphClear {
        /// Slot of the graph.
        graph: u32,
    },
    /// One more node of a graph. Nodes run one after the other, in the order in which they came.
    GraphNode {
        /// Slot of the graph.
        graph: u32,
        /// A launch, copy, fill, record or host call. The numbers of records and calls are added to
        /// those of the graph's launch.
        work: Work,
    },
}

records! {
    /// What takes its turn in a stream.
    Work, "command":
    /// Run a kernel.
    Launch = 3 {
        /// Overrides the stream's priority.
        priority: Option<i32>,
        /// What it takes.
        shape: KernelShape,
        /// [`crate::Builtin`] number of a kernel that computes; 0 is one that only takes time.
        builtin: u32,
        /// Its parameters.
        params: [u64; PARAMS],
    }
    /// Move bytes between addresses of the client, each on the device or in the host arena.
    Copy = 4 {
        /// Which engine moves them.
        direction: CopyDirection,
        /// To.
        to: u64,
        /// From.
        from: u64,
        /// How many.
        bytes: u64,
    }
    /// Fill memory with a repeated value.
    Set = 5 {
        /// First address.
        to: u64,
        /// Bytes of the value: 1, 2 or 4.
        width_bytes: u32,
        /// The value.
        value: u32,
        /// How many values.
        count: u64,
    }
    /// Move a box between addresses of the client, each on the device or in the host arena.
    CopyBox = 16 {
        /// Which engine moves it.
        direction: CopyDirection,
        /// To.
        to: Spot,
        /// From.
        from: Spot,
        /// How much.
        extent: Extent,
    }
    /// Fill a box with a repeated value.
    SetBox = 17 {
        /// Where.
        to: Spot,
        /// Bytes of the value: 1, 2 or 4.
        width_bytes: u32,
        /// The value.
        value: u32,
        /// How much; rows are multiples of the value.
        extent: Extent,
    }
    /// Give device memory back when everything before it in the stream is complete.
    Free = 18 {
        /// As [`super::Reply::Allocated`] said.
        address: u64,
    }
    /// Write down when everything before it in the stream was complete.
    Record = 6 {
        /// Slot of the event.
        event: u32,
        /// Number of the record.
        record: u64,
    }
    /// Go on only when another stream's command is complete.
    Wait = 7 {
        /// Slot of the other stream.
        other: u32,
        /// Number in the other stream.
        other_seq: u64,
    }
    /// Put a value in memory.
    WriteValue = 20 {
        /// Where.
        to: u64,
        /// Bytes of the value: 4 or 8.
        width_bytes: u32,
        /// The value.
        value: u64,
    }
    /// Go on only when memory holds a value.
    WaitValue = 21 {
        /// Where.
        at: u64,
        /// Bytes of the value: 4 or 8.
        width_bytes: u32,
        /// The value.
        value: u64,
        /// How what is there compares.
        until: Until,
    }
    /// Tell the driver when everything before it in the stream is complete, by the number of a call,
    /// and go on when it answers with [`Command::HostDone`].
    Host = 8 {
        /// The call; no two that are not done have the same number.
        call: u64,
    }
    /// Run the nodes of a graph.
    GraphLaunch = 11 {
        /// Slot of the graph.
        graph: u32,
        /// What the numbers of its records are added to.
        record: u64,
        /// What the numbers of its host calls are added to.
        call: u64,
    }
}

/// When a wait for a value is over; see the CUDA driver API, `CUstreamWaitValue_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Memory minus value, as a signed number of their width, is not negative.
    GreaterOrEqual,
    /// They are equal.
    Equal,
    /// They have a bit in common.
    And,
    /// There is a bit that neither has.
    Nor,
}

impl Until {
    /// That of a number, as the flags of a wait have it.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::GreaterOrEqual, Self::Equal, Self::And, Self::Nor]
            .into_iter()
            .find(|&until| until as u64 == number)
    }

    /// Whether the wait is over: `memory` and `value` are of so many bytes, 4 or 8.
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

/// How a stream is ordered with the legacy default stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// It is that stream: each command comes after all that was put on blocking streams before it.
    Legacy,
    /// Each command comes after all that was put on the legacy stream before it.
    Blocking,
    /// Not at all.
    NonBlocking,
}

const CREATE_STREAM: u32 = 1;
const DESTROY_STREAM: u32 = 2;
const HOST_DONE: u32 = 9;
const GRAPH_CLEAR: u32 = 10;
/// Added to the kind of work that is a graph's node.
const GRAPH_NODE: u32 = 1 << 31;
/// In place of a priority: the stream's.
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

    /// Reads what a client wrote, which may be anything. Slots are in range afterwards; the rest is
    /// for the device to judge.
    ///
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
    /// Bytes that it moves, fills or writes; `None` if they are more than there are addresses.
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

    /// With slots in range and widths that there are.
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

    /// As a node of a graph.
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

/// A launch's priority.
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

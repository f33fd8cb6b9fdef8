//! Commands: how launches, copies and events lie in the ring.

use super::{
    COMMAND_WORDS, CONTEXTS, EVENTS, Extent, GRAPHS, PARAMS, PRIORITY_GREATEST, PRIORITY_LEAST,
    STREAMS, Spot, WireError, slot,
};
use crate::kernel::KernelShape;
use crate::op::CopyDirection;

/// What the driver asks of the server without waiting for an answer. `seq` numbers the commands of
/// a stream: 1, 2, 3, … over the life of its slot.
#[derive(Clone, Debug, PartialEq)]
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
    /// Run a kernel.
    Launch {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Overrides the stream's priority.
        priority: Option<i32>,
        /// What it takes.
        shape: KernelShape,
        /// [`crate::Builtin`] number of a kernel that computes; 0 is one that only takes time.
        builtin: u32,
        /// Its parameters.
        params: [u64; PARAMS],
    },
    /// Move bytes between addresses of the client, each on the device or in the host arena.
    Copy {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Which engine moves them.
        direction: CopyDirection,
        /// To.
        to: u64,
        /// From.
        from: u64,
        /// How many.
        bytes: u64,
    },
    /// Fill memory with a repeated value.
    Set {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// First address.
        to: u64,
        /// Bytes of the value: 1, 2 or 4.
        width_bytes: u32,
        /// The value.
        value: u32,
        /// How many values.
        count: u64,
    },
    /// Move a box between addresses of the client, each on the device or in the host arena.
    CopyBox {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Which engine moves it.
        direction: CopyDirection,
        /// To.
        to: Spot,
        /// From.
        from: Spot,
        /// How much.
        extent: Extent,
    },
    /// Fill a box with a repeated value.
    SetBox {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Where.
        to: Spot,
        /// Bytes of the value: 1, 2 or 4.
        width_bytes: u32,
        /// The value.
        value: u32,
        /// How much; rows are multiples of the value.
        extent: Extent,
    },
    /// Give device memory back when everything before it in the stream is complete.
    Free {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// As [`super::Reply::Allocated`] said.
        address: u64,
    },
    /// Write down when everything before it in the stream was complete.
    Record {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Slot of the event.
        event: u32,
        /// Number of the record.
        record: u64,
    },
    /// Go on only when another stream's command is complete.
    Wait {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Slot of the other stream.
        other: u32,
        /// Number in the other stream.
        other_seq: u64,
    },
    /// Put a value in memory.
    WriteValue {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Where.
        to: u64,
        /// Bytes of the value: 4 or 8.
        width_bytes: u32,
        /// The value.
        value: u64,
    },
    /// Go on only when memory holds a value.
    WaitValue {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Where.
        at: u64,
        /// Bytes of the value: 4 or 8.
        width_bytes: u32,
        /// The value.
        value: u64,
        /// How what is there compares.
        until: Until,
    },
    /// Tell the driver when everything before it in the stream is complete, by the number of a call,
    /// and go on when it answers with [`Command::HostDone`].
    Host {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// The call; no two that are not done have the same number.
        call: u64,
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
        /// What it does: a launch, copy, fill, record or host call. Stream and number are of no
        /// matter; the numbers of records and calls are added to those of the graph's launch.
        command: Box<Self>,
    },
    /// Run the nodes of a graph.
    GraphLaunch {
        /// Slot of the stream.
        stream: u32,
        /// Number in the stream.
        seq: u64,
        /// Slot of the graph.
        graph: u32,
        /// What the numbers of its records are added to.
        record: u64,
        /// What the numbers of its host calls are added to.
        call: u64,
    },
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
const LAUNCH: u32 = 3;
const COPY: u32 = 4;
const SET: u32 = 5;
const RECORD: u32 = 6;
const WAIT: u32 = 7;
const HOST: u32 = 8;
const HOST_DONE: u32 = 9;
const GRAPH_CLEAR: u32 = 10;
const GRAPH_LAUNCH: u32 = 11;
/// Added to a command that is a graph's node; the graph is then in the last word.
const GRAPH_NODE: u32 = 1 << 31;
const COPY_BOX: u32 = 16;
const SET_BOX: u32 = 17;
const FREE: u32 = 18;
const WRITE_VALUE: u32 = 20;
const WAIT_VALUE: u32 = 21;
/// In place of a priority: the stream's.
const NO_PRIORITY: u64 = u64::MAX;

impl Command {
    /// As words of a slot.
    pub fn encode(&self) -> [u64; COMMAND_WORDS] {
        match *self {
            Self::CreateStream {
                stream,
                context,
                priority,
                kind,
            } => put(
                CREATE_STREAM,
                stream,
                &[context.into(), encode_i32(priority), kind as u64],
            ),
            Self::DestroyStream { stream } => put(DESTROY_STREAM, stream, &[]),
            Self::Launch {
                stream,
                seq,
                priority,
                ref shape,
                builtin,
                params,
            } => put(
                LAUNCH,
                stream,
                &launch_words(seq, priority, shape, builtin, params),
            ),
            Self::Copy {
                stream,
                seq,
                direction,
                to,
                from,
                bytes,
            } => put(COPY, stream, &[seq, direction as u64, to, from, bytes]),
            Self::Set {
                stream,
                seq,
                to,
                width_bytes,
                value,
                count,
            } => put(
                SET,
                stream,
                &[seq, to, width_bytes.into(), value.into(), count],
            ),
            Self::CopyBox { .. }
            | Self::SetBox { .. }
            | Self::Free { .. }
            | Self::WriteValue { .. }
            | Self::WaitValue { .. } => self.encode_memory(),
            Self::Record {
                stream,
                seq,
                event,
                record,
            } => put(RECORD, stream, &[seq, event.into(), record]),
            Self::Wait {
                stream,
                seq,
                other,
                other_seq,
            } => put(WAIT, stream, &[seq, other.into(), other_seq]),
            ref other => other.encode_rest(),
        }
    }

    fn encode_memory(&self) -> [u64; COMMAND_WORDS] {
        match *self {
            Self::CopyBox {
                stream,
                seq,
                direction,
                ref to,
                ref from,
                ref extent,
            } => put(
                COPY_BOX,
                stream,
                &box_words([seq, direction as u64, 0], to, from, extent),
            ),
            Self::SetBox {
                stream,
                seq,
                ref to,
                width_bytes,
                value,
                ref extent,
            } => put(
                SET_BOX,
                stream,
                &box_words([seq, width_bytes.into(), value.into()], to, to, extent),
            ),
            Self::Free {
                stream,
                seq,
                address,
            } => put(FREE, stream, &[seq, address]),
            Self::WriteValue {
                stream,
                seq,
                to,
                width_bytes,
                value,
            } => put(WRITE_VALUE, stream, &[seq, to, width_bytes.into(), value]),
            Self::WaitValue {
                stream,
                seq,
                at,
                width_bytes,
                value,
                until,
            } => put(
                WAIT_VALUE,
                stream,
                &[seq, at, width_bytes.into(), value, until as u64],
            ),
            _ => [0; COMMAND_WORDS],
        }
    }

    /// Host calls and graphs.
    fn encode_rest(&self) -> [u64; COMMAND_WORDS] {
        match *self {
            Self::Host { stream, seq, call } => put(HOST, stream, &[seq, call]),
            Self::HostDone { call } => put(HOST_DONE, 0, &[call]),
            Self::GraphClear { graph } => put(GRAPH_CLEAR, 0, &[graph.into()]),
            Self::GraphNode { graph, ref command } => {
                let mut words = command.encode();
                words[0] |= u64::from(GRAPH_NODE);
                words[COMMAND_WORDS - 1] = graph.into();
                words
            }
            Self::GraphLaunch {
                stream,
                seq,
                graph,
                record,
                call,
            } => put(GRAPH_LAUNCH, stream, &[seq, graph.into(), record, call]),
            _ => [0; COMMAND_WORDS],
        }
    }

    /// Reads what a client wrote, which may be anything. Slots are in range afterwards; the rest is
    /// for the device to judge.
    ///
    /// # Errors
    /// [`WireError::Unknown`].
    pub fn decode(words: &[u64; COMMAND_WORDS]) -> Result<Self, WireError> {
        if words[0] & u64::from(GRAPH_NODE) != 0 {
            return Self::decode_node(words);
        }
        let stream = slot((words[0] >> 32) as u32, STREAMS, "stream")?;
        let [_, seq, a, b, c, d, ..] = *words;
        Ok(match words[0] as u32 {
            CREATE_STREAM => Self::CreateStream {
                stream,
                context: slot(words[1] as u32, CONTEXTS, "context")?,
                priority: decode_i32(words[2]).clamp(PRIORITY_GREATEST, PRIORITY_LEAST),
                kind: StreamKind::from_number(words[3])?,
            },
            DESTROY_STREAM => Self::DestroyStream { stream },
            LAUNCH => Self::decode_launch(stream, words),
            COPY => Self::Copy {
                stream,
                seq,
                direction: direction(a)?,
                to: b,
                from: c,
                bytes: d,
            },
            SET => Self::Set {
                stream,
                seq,
                to: a,
                width_bytes: value_width(b)?,
                value: c as u32,
                count: d,
            },
            COPY_BOX => Self::CopyBox {
                stream,
                seq,
                direction: direction(a)?,
                to: spot(words, 4),
                from: spot(words, 7),
                extent: extent(words),
            },
            SET_BOX => Self::SetBox {
                stream,
                seq,
                to: spot(words, 4),
                width_bytes: value_width(a)?,
                value: b as u32,
                extent: extent(words),
            },
            FREE => Self::Free {
                stream,
                seq,
                address: a,
            },
            RECORD => Self::Record {
                stream,
                seq,
                event: slot(a as u32, EVENTS, "event")?,
                record: b,
            },
            WAIT => Self::Wait {
                stream,
                seq,
                other: slot(a as u32, STREAMS, "stream")?,
                other_seq: b,
            },
            WRITE_VALUE | WAIT_VALUE => Self::decode_value(stream, words)?,
            _ => return Self::decode_rest(stream, words),
        })
    }

    /// Host calls and graphs.
    fn decode_rest(stream: u32, words: &[u64; COMMAND_WORDS]) -> Result<Self, WireError> {
        let [_, seq, a, b, c, ..] = *words;
        Ok(match words[0] as u32 {
            HOST => Self::Host {
                stream,
                seq,
                call: a,
            },
            HOST_DONE => Self::HostDone { call: seq },
            GRAPH_CLEAR => Self::GraphClear {
                graph: slot(seq as u32, GRAPHS, "graph")?,
            },
            GRAPH_LAUNCH => Self::GraphLaunch {
                stream,
                seq,
                graph: slot(a as u32, GRAPHS, "graph")?,
                record: b,
                call: c,
            },
            _ => return Err(WireError::Unknown("command")),
        })
    }

    fn decode_node(words: &[u64; COMMAND_WORDS]) -> Result<Self, WireError> {
        let graph = slot(words[COMMAND_WORDS - 1] as u32, GRAPHS, "graph")?;
        let mut own = *words;
        own[0] &= !u64::from(GRAPH_NODE);
        own[COMMAND_WORDS - 1] = 0;
        let command = Self::decode(&own)?;
        match command {
            Self::Launch { .. }
            | Self::Copy { .. }
            | Self::Set { .. }
            | Self::Record { .. }
            | Self::Host { .. } => Ok(Self::GraphNode {
                graph,
                command: Box::new(command),
            }),
            _ => Err(WireError::Unknown("node")),
        }
    }

    fn decode_value(stream: u32, words: &[u64; COMMAND_WORDS]) -> Result<Self, WireError> {
        let [_, seq, a, b, c, d, ..] = *words;
        Ok(match words[0] as u32 {
            WRITE_VALUE => Self::WriteValue {
                stream,
                seq,
                to: a,
                width_bytes: word_width(b)?,
                value: c,
            },
            _ => Self::WaitValue {
                stream,
                seq,
                at: a,
                width_bytes: word_width(b)?,
                value: c,
                until: Until::from_number(d).ok_or(WireError::Unknown("kind of wait"))?,
            },
        })
    }

    fn decode_launch(stream: u32, words: &[u64; COMMAND_WORDS]) -> Self {
        let mut params = [0; PARAMS];
        params.copy_from_slice(&words[10..10 + PARAMS]);
        let priority = (words[2] != NO_PRIORITY)
            .then(|| decode_i32(words[2]).clamp(PRIORITY_GREATEST, PRIORITY_LEAST));
        Self::Launch {
            stream,
            seq: words[1],
            priority,
            shape: KernelShape {
                grid_blocks: words[3],
                threads_per_block: words[4] as u32,
                registers_per_thread: (words[4] >> 32) as u32,
                shared_bytes_per_block: words[5] as u32,
                block_ns: words[6],
                compute_demand: f64::from_bits(words[7]),
                bandwidth_demand: f64::from_bits(words[8]),
            },
            builtin: (words[5] >> 32) as u32,
            params,
        }
    }
}

fn put(kind: u32, stream: u32, rest: &[u64]) -> [u64; COMMAND_WORDS] {
    let mut words = [0; COMMAND_WORDS];
    words[0] = u64::from(kind) | u64::from(stream) << 32;
    words[1..=rest.len()].copy_from_slice(rest);
    words
}

fn launch_words(
    seq: u64,
    priority: Option<i32>,
    shape: &KernelShape,
    builtin: u32,
    params: [u64; PARAMS],
) -> [u64; 9 + PARAMS] {
    let mut words = [0; 9 + PARAMS];
    words[..8].copy_from_slice(&[
        seq,
        priority.map_or(NO_PRIORITY, encode_i32),
        shape.grid_blocks,
        u64::from(shape.threads_per_block) | u64::from(shape.registers_per_thread) << 32,
        u64::from(shape.shared_bytes_per_block) | u64::from(builtin) << 32,
        shape.block_ns,
        shape.compute_demand.to_bits(),
        shape.bandwidth_demand.to_bits(),
    ]);
    words[9..].copy_from_slice(&params);
    words
}

/// Three words of the command's own, two boxes, and how large they are.
fn box_words(own: [u64; 3], to: &Spot, from: &Spot, extent: &Extent) -> [u64; 12] {
    let mut words = [0; 12];
    words[..3].copy_from_slice(&own);
    words[3..6].copy_from_slice(&to.words());
    words[6..9].copy_from_slice(&from.words());
    words[9..].copy_from_slice(&[extent.width, extent.height, extent.depth]);
    words
}

fn spot(words: &[u64; COMMAND_WORDS], first: usize) -> Spot {
    Spot::from_words([words[first], words[first + 1], words[first + 2]])
}

fn extent(words: &[u64; COMMAND_WORDS]) -> Extent {
    Extent {
        width: words[10],
        height: words[11],
        depth: words[12],
    }
}

fn word_width(number: u64) -> Result<u32, WireError> {
    match number {
        4 | 8 => Ok(number as u32),
        _ => Err(WireError::Unknown("width")),
    }
}

fn value_width(number: u64) -> Result<u32, WireError> {
    match number {
        1 | 2 | 4 => Ok(number as u32),
        _ => Err(WireError::Unknown("width")),
    }
}

fn encode_i32(number: i32) -> u64 {
    u64::from(number as u32)
}

fn decode_i32(word: u64) -> i32 {
    word as u32 as i32
}

fn direction(number: u64) -> Result<CopyDirection, WireError> {
    use CopyDirection::{DeviceToDevice, DeviceToHost, HostToDevice};
    [HostToDevice, DeviceToHost, DeviceToDevice]
        .into_iter()
        .find(|&direction| direction as u64 == number)
        .ok_or(WireError::Unknown("direction"))
}

impl StreamKind {
    fn from_number(number: u64) -> Result<Self, WireError> {
        [Self::Legacy, Self::Blocking, Self::NonBlocking]
            .into_iter()
            .find(|&kind| kind as u64 == number)
            .ok_or(WireError::Unknown("kind of stream"))
    }
}

#[cfg(test)]
mod tests;

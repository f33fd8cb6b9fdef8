//! Commands: how launches, copies and events lie in the ring.

use super::{
    COMMAND_WORDS, CONTEXTS, EVENTS, PARAMS, PRIORITY_GREATEST, PRIORITY_LEAST, STREAMS, WireError,
    slot,
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
        }
    }

    /// Reads what a client wrote, which may be anything. Slots are in range afterwards; the rest is
    /// for the device to judge.
    ///
    /// # Errors
    /// [`WireError::Unknown`].
    pub fn decode(words: &[u64; COMMAND_WORDS]) -> Result<Self, WireError> {
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
                width_bytes: match b as u32 {
                    width @ (1 | 2 | 4) => width,
                    _ => return Err(WireError::Unknown("width")),
                },
                value: c as u32,
                count: d,
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
            _ => return Err(WireError::Unknown("command")),
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commands() -> Vec<Command> {
        let shape = KernelShape {
            grid_blocks: 1 << 40,
            threads_per_block: 1024,
            registers_per_thread: 255,
            shared_bytes_per_block: 65_536,
            block_ns: 12_345,
            compute_demand: 0.89,
            bandwidth_demand: 0.2,
        };
        let (stream, seq) = (1023, u64::MAX - 1);
        let direction = CopyDirection::DeviceToHost;
        let params = std::array::from_fn(|i| i as u64 + 1);
        vec![
            Command::CreateStream {
                stream,
                context: 15,
                priority: -5,
                kind: StreamKind::Legacy,
            },
            Command::DestroyStream { stream },
            Command::Launch {
                stream,
                seq,
                priority: None,
                shape,
                builtin: 5,
                params,
            },
            Command::Launch {
                stream,
                seq,
                priority: Some(-3),
                shape,
                builtin: 0,
                params,
            },
            Command::Copy {
                stream,
                seq,
                direction,
                to: 1,
                from: 2,
                bytes: 3,
            },
            Command::Set {
                stream,
                seq,
                to: 9,
                width_bytes: 4,
                value: u32::MAX,
                count: 7,
            },
            Command::Record {
                stream,
                seq,
                event: 16_383,
                record: 8,
            },
            Command::Wait {
                stream,
                seq,
                other: 0,
                other_seq: 5,
            },
        ]
    }

    #[test]
    fn commands_survive_the_journey() {
        for command in commands() {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
    }

    proptest! {
        #[test]
        fn any_words_are_decoded_to_slots_in_range_or_refused(
            kind in 0u32..9, stream in 0u32..2048, rest: [u64; COMMAND_WORDS],
        ) {
            let mut words = rest;
            words[0] = u64::from(kind) | u64::from(stream) << 32;
            if let Ok(command) = Command::decode(&words) {
                prop_assert!((stream as usize) < STREAMS, "{command:?}");
            }
        }
    }
}

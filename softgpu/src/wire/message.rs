//! Messages: questions and answers over the socket.

use super::{
    CONNECTIONS_MAX, CONTEXTS, Injection, MEMORY_WORDS, MemoryRequest, Monitor, TEXT_BYTES_MAX,
    WIRE_VERSION, WireError, slot,
};

/// What a client or an operator's tool asks over the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First message of a driver. A driver that has a host arena already, from the server of another
    /// device, sends its descriptor along.
    Hello {
        /// Name of this process in the server's statistics.
        label: String,
    },
    /// Where the driver mapped its host arena, and where it wants the device's memory.
    MapHost {
        /// Address of the arena's first byte.
        base: u64,
        /// Address of the device's first byte, see [`super::device_base`].
        device_base: u64,
    },
    /// A new context.
    CreateContext {
        /// Connections that its streams share, 1 to [`super::CONNECTIONS_MAX`].
        connections: u32,
    },
    /// Its work is forgotten and its memory freed.
    DestroyContext {
        /// Slot of the context.
        context: u32,
    },
    /// Device memory.
    Allocate {
        /// Slot of the context.
        context: u32,
        /// How much; more than 0.
        bytes: u64,
    },
    /// Give it back.
    Free {
        /// As [`Reply::Allocated`] said.
        address: u64,
    },
    /// How much memory is free.
    MemoryInfo,
    /// Anything else about memory.
    Memory(MemoryRequest),
    /// The server's statistics as JSON, in packets; then it closes the connection.
    Stats,
    /// What the device is and who uses it, in one packet; then it closes the connection.
    Monitor,
    /// Have this fault; then it closes the connection.
    Inject(Injection),
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`Request::Hello`]. With it come the descriptors of the device page, the host arena, the
    /// client's progress bell and the server's doorbell.
    Welcome {
        /// Name of the device in the table.
        device: String,
        /// Its identity.
        uuid: [u8; 16],
        /// Whether time is virtual; the client must then be on the same clock.
        is_virtual: bool,
        /// Whether processes share it by MPS, else in time slices.
        is_mps: bool,
        /// Whether waiting blocks of a kernel with the greater priority go first, of whichever
        /// process.
        block_priority: bool,
    },
    /// Done.
    Done,
    /// To [`Request::CreateContext`].
    Context {
        /// Slot of the context.
        context: u32,
    },
    /// To [`Request::Allocate`].
    Allocated {
        /// First address.
        address: u64,
    },
    /// To [`Request::MemoryInfo`].
    Memory {
        /// Bytes that nobody holds.
        free_bytes: u64,
        /// Bytes of the device.
        total_bytes: u64,
    },
    /// To a [`Request::Memory`] that has an answer.
    Words {
        /// The answer.
        words: [u64; 4],
    },
    /// To [`Request::Monitor`].
    Monitor(Monitor),
    /// Not done.
    Refused {
        /// A CUDA result code.
        code: u32,
    },
}

impl Request {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { label } => packet(1, &[], Some(label)),
            Self::MapHost { base, device_base } => packet(2, &[*base, *device_base], None),
            Self::CreateContext { connections } => packet(3, &[(*connections).into()], None),
            Self::DestroyContext { context } => packet(4, &[(*context).into()], None),
            Self::Allocate { context, bytes } => packet(5, &[(*context).into(), *bytes], None),
            Self::Free { address } => packet(6, &[*address], None),
            Self::MemoryInfo => packet(7, &[], None),
            Self::Stats => packet(8, &[], None),
            Self::Monitor => packet(9, &[], None),
            Self::Inject(fault) => packet(10, &[], Some(&fault.to_string())),
            Self::Memory(request) => packet(20, &request.encode(), None),
        }
    }

    /// Reads a packet from a process that is not believed.
    ///
    /// # Errors
    /// As [`WireError`] says.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (kind, mut reader) = Reader::open(bytes)?;
        Ok(match kind {
            1 => Self::Hello {
                label: reader.text()?,
            },
            2 => Self::MapHost {
                base: reader.number()?,
                device_base: reader.number()?,
            },
            3 => Self::CreateContext {
                connections: reader.connections()?,
            },
            4 => Self::DestroyContext {
                context: reader.context()?,
            },
            5 => Self::Allocate {
                context: reader.context()?,
                bytes: reader.number()?,
            },
            6 => Self::Free {
                address: reader.number()?,
            },
            7 => Self::MemoryInfo,
            8 => Self::Stats,
            9 => Self::Monitor,
            10 => {
                let fault = reader.text()?.parse();
                Self::Inject(fault.map_err(|_| WireError::Unknown("fault"))?)
            }
            20 => {
                let mut words = [0; MEMORY_WORDS];
                for word in &mut words {
                    *word = reader.number()?;
                }
                Self::Memory(MemoryRequest::decode(words)?)
            }
            _ => return Err(WireError::Unknown("request")),
        })
    }
}

impl Reply {
    /// As a packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome {
                device,
                uuid,
                is_virtual,
                is_mps,
                block_priority,
            } => {
                let id = u128::from_le_bytes(*uuid);
                let [is_virtual, is_mps, block_priority] =
                    [is_virtual, is_mps, block_priority].map(|&flag| flag.into());
                packet(
                    1,
                    &[
                        id as u64,
                        (id >> 64) as u64,
                        is_virtual,
                        is_mps,
                        block_priority,
                    ],
                    Some(device),
                )
            }
            Self::Done => packet(2, &[], None),
            Self::Context { context } => packet(3, &[(*context).into()], None),
            Self::Allocated { address } => packet(4, &[*address], None),
            Self::Memory {
                free_bytes,
                total_bytes,
            } => packet(5, &[*free_bytes, *total_bytes], None),
            Self::Words { words } => packet(20, words, None),
            Self::Monitor(monitor) => packet(7, &monitor.numbers(), Some(&monitor.device)),
            Self::Refused { code } => packet(6, &[(*code).into()], None),
        }
    }

    /// Reads the server's packet.
    ///
    /// # Errors
    /// As [`WireError`] says.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (kind, mut reader) = Reader::open(bytes)?;
        Ok(match kind {
            1 => {
                let id = u128::from(reader.number()?) | u128::from(reader.number()?) << 64;
                let [is_virtual, is_mps, block_priority] =
                    [reader.number()?, reader.number()?, reader.number()?].map(|flag| flag != 0);
                Self::Welcome {
                    device: reader.text()?,
                    uuid: id.to_le_bytes(),
                    is_virtual,
                    is_mps,
                    block_priority,
                }
            }
            2 => Self::Done,
            3 => Self::Context {
                context: reader.context()?,
            },
            4 => Self::Allocated {
                address: reader.number()?,
            },
            5 => Self::Memory {
                free_bytes: reader.number()?,
                total_bytes: reader.number()?,
            },
            6 => Self::Refused {
                code: reader.number()? as u32,
            },
            7 => Self::Monitor(Monitor::read(&mut reader)?),
            20 => {
                let mut words = [0; 4];
                for word in &mut words {
                    *word = reader.number()?;
                }
                Self::Words { words }
            }
            _ => return Err(WireError::Unknown("reply")),
        })
    }
}

/// Version and kind, then numbers, then perhaps a text to the end, cut at [`TEXT_BYTES_MAX`].
fn packet(kind: u32, numbers: &[u64], text: Option<&str>) -> Vec<u8> {
    let mut bytes = WIRE_VERSION.to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    if let Some(text) = text {
        bytes.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    }
    bytes
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8]) -> Result<(u32, Self), WireError> {
        let mut reader = Self { rest: bytes };
        let word = reader.number()?;
        match word as u32 {
            WIRE_VERSION => Ok(((word >> 32) as u32, reader)),
            other => Err(WireError::Version(other)),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, WireError> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn context(&mut self) -> Result<u32, WireError> {
        let number = u32::try_from(self.number()?).map_err(|_| WireError::Unknown("context"))?;
        slot(number, CONTEXTS, "context")
    }

    fn connections(&mut self) -> Result<u32, WireError> {
        let number = u32::try_from(self.number()?).ok();
        let number = number.filter(|number| (1..=CONNECTIONS_MAX).contains(number));
        number.ok_or(WireError::Unknown("number of connections"))
    }

    pub(super) fn text(&mut self) -> Result<String, WireError> {
        if self.rest.len() > TEXT_BYTES_MAX {
            return Err(WireError::Text);
        }
        String::from_utf8(self.rest.to_vec()).map_err(|_| WireError::Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{
        DEVICE_BASE, Health, HealthReport, PACKET_BYTES_MAX, PROCESSES_MAX, ProcessUse,
        REPORTS_MAX, SAMPLES_MAX, Sample,
    };

    /// One that is as large as there can be.
    fn monitor() -> Monitor {
        Monitor {
            device: "V100-SXM2-16GB".to_owned(),
            uuid: std::array::from_fn(|i| i as u8),
            is_mps: true,
            scale: 0.5,
            used_bytes: 1 << 33,
            health: Health {
                corrected: 5,
                uncorrected: 1,
                is_pending: true,
                is_lost: false,
                reports: vec![
                    HealthReport {
                        seq: 9,
                        kind: 8,
                        data: 79,
                    };
                    REPORTS_MAX
                ],
            },
            samples: vec![Sample::default(); SAMPLES_MAX],
            processes: vec![
                ProcessUse {
                    pid: 7,
                    held_bytes: 6,
                    window_ns: 5,
                    busy_ns: 4,
                    bandwidth_ns: 3,
                };
                PROCESSES_MAX
            ],
        }
    }

    #[test]
    fn messages_survive_the_journey() {
        for request in [
            Request::Hello { label: "hp".into() },
            Request::MapHost {
                base: 7 << 40,
                device_base: DEVICE_BASE,
            },
            Request::CreateContext { connections: 8 },
            Request::DestroyContext { context: 3 },
            Request::Allocate {
                context: 1,
                bytes: 1 << 34,
            },
            Request::Free {
                address: DEVICE_BASE,
            },
            Request::MemoryInfo,
            Request::Memory(MemoryRequest::TrimPool {
                pool: 3,
                keep_bytes: u64::MAX,
            }),
            Request::Stats,
            Request::Monitor,
            Request::Inject(Injection::Xid {
                number: 79,
                label: Some("be".to_owned()),
            }),
        ] {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let monitor = monitor();
        let device = monitor.device.clone();
        assert!(Reply::Monitor(monitor.clone()).encode().len() < PACKET_BYTES_MAX);
        for reply in [
            Reply::Monitor(monitor),
            Reply::Welcome {
                device,
                uuid: std::array::from_fn(|i| i as u8),
                is_virtual: true,
                is_mps: false,
                block_priority: true,
            },
            Reply::Done,
            Reply::Context { context: 2 },
            Reply::Allocated {
                address: DEVICE_BASE,
            },
            Reply::Memory {
                free_bytes: 1,
                total_bytes: 2,
            },
            Reply::Words {
                words: [1, 2, 3, u64::MAX],
            },
            Reply::Refused { code: 2 },
        ] {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn another_version_is_named_with_ours() {
        let mut bytes = Request::Stats.encode();
        bytes[0] += 1;
        let text = Request::decode(&bytes).unwrap_err().to_string();
        assert!(
            text.contains("version 7") && text.contains("this build 6"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn any_packet_is_refused_or_decoded_to_what_is_encoded_and_decoded_the_same(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            // Encodings are compared, as a number of a device may be none.
            if let Ok(request) = Request::decode(&bytes) {
                let again = Request::decode(&request.encode());
                prop_assert_eq!(again.ok().map(|request| request.encode()), Some(request.encode()));
            }
            if let Ok(reply) = Reply::decode(&bytes) {
                let again = Reply::decode(&reply.encode());
                prop_assert_eq!(again.ok().map(|reply| reply.encode()), Some(reply.encode()));
            }
        }
    }
}

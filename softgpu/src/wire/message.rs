//! Messages: requests and replies over the socket, each the version, then postcard's encoding.

use postcard::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{
    CONNECTIONS_MAX, CONTEXTS, Injection, MemoryRequest, Monitor, MpsClients, MpsRequest,
    TEXT_BYTES_MAX, WIRE_VERSION, WireError, slot,
};

/// A request of a client or an operator's tool over the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// First message of a driver, with the descriptor of its host arena if it already has one.
    Hello {
        /// Name of this process in the server's statistics, at most [`TEXT_BYTES_MAX`] long.
        label: String,
    },
    /// The address at which the driver mapped its host arena, and the one for the device's memory.
    MapHost {
        /// Address of the arena's first byte.
        base: u64,
        /// Address of the device's first byte, see [`super::device_base`].
        device_base: u64,
    },
    /// Create a context.
    CreateContext {
        /// Connections that its streams share, 1 to [`super::CONNECTIONS_MAX`].
        connections: u32,
        /// Most SMs that its kernels may use, if MPS shares the device; clamped to the device's.
        sms_max: u32,
    },
    /// Destroy a context: its work is dropped and its memory freed.
    DestroyContext {
        /// Slot of the context.
        context: u32,
    },
    /// Allocate device memory.
    Allocate {
        /// Slot of the context.
        context: u32,
        /// Size; more than 0.
        bytes: u64,
    },
    /// Free device memory.
    Free {
        /// From [`Reply::Allocated`].
        address: u64,
    },
    /// Query the free memory.
    MemoryInfo,
    /// Another request about memory.
    Memory(MemoryRequest),
    /// Send the server's statistics as JSON, in packets, then close the connection.
    Stats,
    /// Send the device's description and its users, in one packet, then close the connection.
    Monitor,
    /// Inject this fault, then close the connection.
    Inject(Injection),
    /// A request of the stand-in MPS.
    Mps(MpsRequest),
}

/// The server's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Hello`], with the descriptors of the device page, the host arena, the client's
    /// progress bell and the server's doorbell.
    Welcome {
        /// Name of the device in the table.
        device: String,
        /// Its UUID.
        uuid: [u8; 16],
        /// Whether time is virtual; the client must then be on the same clock.
        is_virtual: bool,
        /// Whether processes share it by MPS; otherwise in time slices.
        is_mps: bool,
        /// Whether waiting blocks of the highest priority start first, across processes.
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
        /// Bytes that no process holds.
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
    /// To [`Request::CreateContext`]: retry later. The server waits for an MPS server.
    Later,
    /// To the control daemon of MPS, unasked: a client of this user waits for an MPS server.
    MpsWanted {
        /// The user.
        uid: u32,
    },
    /// To [`MpsRequest::Clients`].
    MpsClients(MpsClients),
    /// The request was refused.
    Refused {
        /// A CUDA result code.
        code: u32,
    },
}

impl Request {
    /// Encodes a packet.
    pub fn encode(&self) -> Vec<u8> {
        packet(self)
    }

    /// Decodes a packet from an untrusted process.
    /// # Errors
    /// See [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let request = read(bytes, "request")?;
        match &request {
            Self::Hello { label } if label.len() > TEXT_BYTES_MAX => return Err(WireError::Text),
            Self::CreateContext { connections, .. }
                if !(1..=CONNECTIONS_MAX).contains(connections) =>
            {
                return Err(WireError::Unknown("number of connections"));
            }
            Self::DestroyContext { context } | Self::Allocate { context, .. } => {
                slot(*context, CONTEXTS, "context")?;
            }
            Self::Memory(request) => request.check()?,
            Self::Inject(fault) => fault.check()?,
            _ => {}
        }
        Ok(request)
    }
}

impl Reply {
    /// Encodes a packet.
    pub fn encode(&self) -> Vec<u8> {
        packet(self)
    }

    /// Decodes the server's packet.
    /// # Errors
    /// See [`WireError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let reply = read(bytes, "reply")?;
        match &reply {
            Self::Welcome { device, .. } if device.len() > TEXT_BYTES_MAX => {
                return Err(WireError::Text);
            }
            Self::Context { context } => {
                slot(*context, CONTEXTS, "context")?;
            }
            Self::Monitor(monitor) => monitor.check()?,
            Self::MpsClients(clients) => clients.check()?,
            _ => {}
        }
        Ok(reply)
    }
}

fn packet(message: &impl Serialize) -> Vec<u8> {
    let version = WIRE_VERSION.to_le_bytes().to_vec();
    postcard::to_extend(message, version).expect("all lists of a message have a length")
}

fn read<T: DeserializeOwned>(bytes: &[u8], what: &'static str) -> Result<T, WireError> {
    let (version, message) = bytes.split_first_chunk().ok_or(WireError::Short)?;
    match u32::from_le_bytes(*version) {
        WIRE_VERSION => postcard::from_bytes(message).map_err(|error| match error {
            Error::DeserializeUnexpectedEnd => WireError::Short,
            Error::DeserializeBadUtf8 => WireError::Text,
            _ => WireError::Unknown(what),
        }),
        other => Err(WireError::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{
        DEVICE_BASE, GovernedState, Health, HealthReport, MpsClient, PACKET_BYTES_MAX,
        PROCESSES_MAX, ProcessUse, REPORTS_MAX, SAMPLES_MAX, Sample,
    };

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
            governed: Some(GovernedState {
                clock_mhz: u32::MAX,
                power_mw: u32::MAX,
                temperature_c: u32::MAX,
                is_power_capped: true,
                is_hot: false,
            }),
            samples: vec![
                Sample {
                    at_ns: u64::MAX,
                    busy_ns: u64::MAX,
                    busy_sm_ns: u64::MAX,
                    bandwidth_ns: u64::MAX,
                };
                SAMPLES_MAX
            ],
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
            Request::CreateContext {
                connections: 8,
                sms_max: 40,
            },
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
            Request::Mps(MpsRequest::Control),
            Request::Mps(MpsRequest::End { server: 7 }),
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
            Reply::Later,
            Reply::MpsWanted { uid: 1000 },
            Reply::MpsClients(MpsClients {
                is_in_fault: true,
                clients: vec![MpsClient { server: 7, pid: 9 }],
            }),
            Reply::Refused { code: 2 },
        ] {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }

    #[test]
    fn a_fault_that_nobody_could_write_is_refused() {
        let sticky = |code, label: &str| Injection::Sticky {
            code,
            label: Some(label.to_owned()),
        };
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        for fault in [
            sticky(0, "be"),
            sticky(700, ""),
            sticky(700, "two words"),
            sticky(700, &long),
            Injection::TerminateClient(0),
        ] {
            let decoded = Request::decode(&Request::Inject(fault).encode());
            assert_eq!(decoded, Err(WireError::Unknown("fault")));
        }
    }

    #[test]
    fn another_version_is_named_with_ours() {
        let mut bytes = Request::Stats.encode();
        bytes[0] += 1;
        let text = Request::decode(&bytes).unwrap_err().to_string();
        assert!(
            text.contains("version 12") && text.contains("this build speaks 11"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn any_packet_is_refused_or_decoded_to_what_is_encoded_and_decoded_the_same(
            start in 0usize..3, tail in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let memory = Request::Memory(MemoryRequest::Release { handle: 0 }).encode();
            // Nothing of ours, the version, or the version and the kind of a request about memory.
            let mut bytes = memory[..[0, 4, 5][start]].to_vec();
            bytes.extend(tail);
            // Encodings are compared, as a number of a device may be NaN.
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

//! What the daemon records during a trace (`pillion trace`), in the form handed over: a line of
//! JSON, which describes the traced jobs (`pillion-scheduler`, `report::trace`), then entries of
//! eight little-endian words. A client's entry has its [`Record`]'s words, with client and time of
//! reading in the last two, which are free. The daemon's own kinds begin at [`KIND_LEASE`].

use crate::record::{RECORD_WORDS, Record, RecordError};

/// Version of the document; readers refuse others.
pub const SCHEMA_VERSION: u32 = 1;

/// Separates header and entries.
pub const HEADER_END: u8 = b'\n';

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8 * RECORD_WORDS;

/// Most entries of a trace, which ends when it has so many.
pub const ENTRIES_MAX: usize = 600_000;

/// Shortest and longest trace, ns.
pub const LENGTH_NS: core::ops::RangeInclusive<u64> = 1_000_000..=60_000_000_000;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A client pushed a record.
    Record {
        /// Number of the client.
        client: u64,
        /// When the daemon read it, on the shared clock.
        read_ns: u64,
        /// A launch, a completion, or a copy.
        record: Record,
    },
    /// A best-effort job's rights from now on.
    Lease(Lease),
    /// A request of a high-priority job has ended.
    Request(Request),
}

/// A best-effort job's rights from one moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Number of the job.
    pub job: u32,
    /// When they begin, on the shared clock.
    pub at_ns: u64,
    /// The grant.
    pub grant: Grant,
    /// Whether a thread of the job waits at the gate.
    pub is_waiting: bool,
    /// Number of the rule that limits the lease, and so explains the wait (the header's `limits`).
    pub limit: u8,
    /// Resource classes, as `policy::ClassSet` bits.
    pub classes: u8,
    /// Most SMs a kernel may need; `u32::MAX`: any number.
    pub sms_max: u32,
    /// Expected ns that may still be charged.
    pub budget_ns: u64,
}

/// The grant of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Nothing.
    Closed,
    /// Launches within the lease, while no high-priority work executes.
    Open,
    /// The same, beside high-priority work.
    BesideHp,
    /// All launches.
    Ungated,
    /// The job has ended.
    Ended,
}

impl Grant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Closed,
        Self::Open,
        Self::BesideHp,
        Self::Ungated,
        Self::Ended,
    ];

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::BesideHp => "beside HP",
            Self::Ungated => "ungated",
            Self::Ended => "ended",
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of the job.
    pub job: u32,
    /// Arrival, on the shared clock; for an inferred request, the time of its first launch.
    pub arrived_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// The kind that its program reports; `None`: the request was inferred from launches.
    pub kind: Option<u32>,
    /// The request was cancelled.
    pub is_cancelled: bool,
    /// Its target, ns; 0: none.
    pub target_ns: u64,
}

/// The entry is a lease. From here on, kinds are the daemon's own, not a client's records.
pub const KIND_LEASE: u8 = 128;
const KIND_REQUEST: u8 = 129;

const WAITING: u64 = 1 << 31;
const MARKED: u64 = 1 << 8;
const CANCELLED: u64 = 1 << 9;

/// Index in a record's entry of the client and of the time of reading.
const CLIENT: usize = 6;
const READ_NS: usize = 7;

/// Why an entry is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// A record that no client can have pushed.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// No grant has that number.
    #[error("grant {0}, expected 0 to 4")]
    Grant(u8),
}

impl Entry {
    /// The entry as words. Records that leave the last two words free have an entry: all but names.
    pub fn encode(&self) -> [u64; RECORD_WORDS] {
        match *self {
            Self::Record {
                client,
                read_ns,
                record,
            } => {
                let mut words = record.encode();
                words[CLIENT] = client;
                words[READ_NS] = read_ns;
                words
            }
            Self::Lease(lease) => [
                u64::from(KIND_LEASE)
                    | (lease.grant as u64) << 8
                    | u64::from(lease.limit) << 16
                    | if lease.is_waiting { WAITING } else { 0 }
                    | u64::from(lease.job) << 32,
                lease.at_ns,
                lease.budget_ns,
                u64::from(lease.sms_max) | u64::from(lease.classes) << 32,
                0,
                0,
                0,
                0,
            ],
            Self::Request(request) => [
                u64::from(KIND_REQUEST)
                    | if request.kind.is_some() { MARKED } else { 0 }
                    | if request.is_cancelled { CANCELLED } else { 0 }
                    | u64::from(request.job) << 32,
                request.arrived_ns,
                request.ended_ns,
                u64::from(request.kind.unwrap_or(0)),
                request.target_ns,
                0,
                0,
                0,
            ],
        }
    }

    /// Reads an entry.
    /// # Errors
    /// No daemon writes such an entry.
    pub fn decode(words: &[u64; RECORD_WORDS]) -> Result<Self, EntryError> {
        let [head, first, second, third, fourth, ..] = *words;
        let job = (head >> 32) as u32;
        match head as u8 {
            KIND_LEASE => {
                let grant = (head >> 8) as u8;
                Ok(Self::Lease(Lease {
                    job,
                    at_ns: first,
                    grant: *Grant::ALL
                        .get(usize::from(grant))
                        .ok_or(EntryError::Grant(grant))?,
                    is_waiting: head & WAITING != 0,
                    limit: (head >> 16) as u8,
                    classes: (third >> 32) as u8,
                    sms_max: third as u32,
                    budget_ns: second,
                }))
            }
            KIND_REQUEST => Ok(Self::Request(Request {
                job,
                arrived_ns: first,
                ended_ns: second,
                kind: (head & MARKED != 0).then_some(third as u32),
                is_cancelled: head & CANCELLED != 0,
                target_ns: fourth,
            })),
            _ => Ok(Self::Record {
                client: words[CLIENT],
                read_ns: words[READ_NS],
                record: Record::decode(words)?,
            }),
        }
    }

    /// Reads the entries behind a header.
    pub fn decode_all(bytes: &[u8]) -> impl Iterator<Item = Result<Self, EntryError>> {
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        entries.iter().map(|entry| {
            let (bytes, _) = entry.as_chunks();
            let mut words = [0; RECORD_WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes) {
                *word = u64::from_le_bytes(*bytes);
            }
            Self::decode(&words)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Launch, STREAMS_MAX};

    proptest! {
        #[test]
        fn an_entry_survives_the_journey(
            client: u64, times: [u64; 4], job: u32, numbers: [u32; 2], bytes: [u8; 2],
            flags: [bool; 3], grant in 0usize..5, stream in 0..STREAMS_MAX,
        ) {
            let [at_ns, read_ns, budget_ns, target_ns] = times;
            let launch = Launch {
                stream, seq: 1, kernel: client, expected_ns: 7, sm_needed: numbers[0], class: 4, at_ns,
            };
            let lease = Lease {
                job, at_ns, grant: Grant::ALL[grant], is_waiting: flags[0], limit: bytes[0],
                classes: bytes[1], sms_max: numbers[0], budget_ns,
            };
            let request = Request {
                job, arrived_ns: at_ns, ended_ns: read_ns, kind: flags[1].then_some(numbers[1]),
                is_cancelled: flags[2], target_ns,
            };
            let entries = [
                Entry::Record { client, read_ns, record: Record::Launch(launch) },
                Entry::Lease(lease),
                Entry::Request(request),
            ];
            let words = entries.iter().flat_map(Entry::encode);
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            let read: Result<Vec<_>, _> = Entry::decode_all(&bytes).collect();
            prop_assert_eq!(read, Ok(entries.to_vec()));
        }
    }
}

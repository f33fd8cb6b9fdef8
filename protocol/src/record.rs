//! The 64-byte record that a high-priority client pushes for each launch and each completion.
//!
//! A record travels as eight `u64` words. [`Record::decode`] is the trust boundary: it accepts only
//! what a correct client can have written, and everything after it works on the checked copy.

/// Words of a record. Eight words of eight bytes are one cache line.
pub const RECORD_WORDS: usize = 8;

/// Most streams a client may name in records; higher indices are refused.
pub const STREAMS_MAX: u32 = 4096;

/// Longest expected duration that is believed, one hour. Sums of up to 2^32 of them fit in `u64`
/// after the daemon's own bound on queue lengths.
pub const EXPECTED_NS_MAX: u64 = 3_600_000_000_000;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A kernel (or a graph as one) was submitted.
    Launch(Launch),
    /// Everything submitted to `stream` up to and including `seq` is known to be complete.
    Complete {
        /// Index of the stream in the client's table.
        stream: u32,
        /// Sequence number in that stream, from 1.
        seq: u64,
        /// When the client knew of it, on the shared clock; 0: not told.
        at_ns: u64,
    },
}

/// One submitted launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index of the stream in the client's table, below [`STREAMS_MAX`].
    pub stream: u32,
    /// Sequence number in that stream, from 1.
    pub seq: u64,
    /// Identity of kernel and shape within the client; 0: none was kept. One that has not been
    /// launched for long may get another identity when it comes again.
    pub kernel: u64,
    /// Expected duration alone on the device, from the profile (p95); 0 if unknown.
    pub expected_ns: u64,
    /// SMs needed; 0 if unknown.
    pub sm_needed: u32,
    /// Resource class as `policy::ClassSet` bits: exactly one of 1, 2, 4.
    pub class: u8,
    /// When it was made, on the shared clock, if it was the one that revoked live leases
    /// ([`crate::lease::is_live`]); else 0: a reading of the clock costs half as much as all the
    /// rest of telling.
    pub at_ns: u64,
}

/// Why a record was refused. A peer's fault: the daemon counts it and drops the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The kind byte is none that this version knows.
    #[error("unknown record kind {0}")]
    Kind(u8),
    /// The class byte is not exactly one of compute (1), memory (2), unknown (4).
    #[error("class bits {0:#x}, expected exactly one of 1, 2, 4")]
    Class(u8),
    /// The stream index is out of range.
    #[error("stream index {0}, expected below {STREAMS_MAX}")]
    Stream(u32),
    /// Sequence numbers begin at 1.
    #[error("sequence number 0, expected from 1")]
    Seq,
    /// The expected duration is not believable.
    #[error("expected duration {0} ns, expected at most {EXPECTED_NS_MAX}")]
    Expected(u64),
}

const KIND_LAUNCH: u8 = 1;
const KIND_COMPLETE: u8 = 2;

impl Record {
    /// The record as words, in the layout `kind | class << 8 | stream << 32`, seq, kernel,
    /// expected_ns, sm_needed, at_ns, two words zero for later minor versions; of a completion the
    /// third word is at_ns.
    #[inline]
    pub fn encode(&self) -> [u64; RECORD_WORDS] {
        match *self {
            Self::Launch(l) => [
                u64::from(KIND_LAUNCH) | u64::from(l.class) << 8 | u64::from(l.stream) << 32,
                l.seq,
                l.kernel,
                l.expected_ns,
                u64::from(l.sm_needed),
                l.at_ns,
                0,
                0,
            ],
            Self::Complete { stream, seq, at_ns } => [
                u64::from(KIND_COMPLETE) | u64::from(stream) << 32,
                seq,
                at_ns,
                0,
                0,
                0,
                0,
                0,
            ],
        }
    }

    /// Checks a copied record. Words that this version does not define are ignored, so that a newer
    /// minor version may use them.
    pub fn decode(words: &[u64; RECORD_WORDS]) -> Result<Self, RecordError> {
        let kind = words[0] as u8;
        let stream = (words[0] >> 32) as u32;
        let seq = words[1];
        if kind != KIND_LAUNCH && kind != KIND_COMPLETE {
            return Err(RecordError::Kind(kind));
        }
        if stream >= STREAMS_MAX {
            return Err(RecordError::Stream(stream));
        }
        if seq == 0 {
            return Err(RecordError::Seq);
        }
        if kind == KIND_COMPLETE {
            let at_ns = words[2];
            return Ok(Self::Complete { stream, seq, at_ns });
        }
        let class = (words[0] >> 8) as u8;
        if !matches!(class, 1 | 2 | 4) {
            return Err(RecordError::Class(class));
        }
        let expected_ns = words[3];
        if expected_ns > EXPECTED_NS_MAX {
            return Err(RecordError::Expected(expected_ns));
        }
        Ok(Self::Launch(Launch {
            stream,
            seq,
            kernel: words[2],
            expected_ns,
            sm_needed: words[4] as u32,
            class,
            at_ns: words[5],
        }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_launch_survives_the_journey(
            stream in 0..STREAMS_MAX, seq in 1u64.., kernel: u64,
            expected_ns in 0..=EXPECTED_NS_MAX, sm_needed: u32, shift in 0u8..3, at_ns: u64,
        ) {
            let record = Record::Launch(Launch {
                stream, seq, kernel, expected_ns, sm_needed, class: 1 << shift, at_ns,
            });
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn any_words_are_refused_or_stay_in_bounds(words: [u64; RECORD_WORDS]) {
            match Record::decode(&words) {
                Ok(Record::Launch(l)) => {
                    prop_assert!(l.stream < STREAMS_MAX && l.seq > 0);
                    prop_assert!(l.expected_ns <= EXPECTED_NS_MAX);
                    prop_assert!(matches!(l.class, 1 | 2 | 4));
                }
                Ok(Record::Complete { stream, seq, .. }) => {
                    prop_assert!(stream < STREAMS_MAX && seq > 0);
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn a_completion_survives_the_journey() {
        let record = Record::Complete {
            stream: 7,
            seq: 9,
            at_ns: 11,
        };
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
}

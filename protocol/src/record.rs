//! The 64-byte record that a client pushes. High-priority clients push one for each launch,
//! completion, and report of their program about its requests (a *mark*). During a trace
//! ([`crate::pages::DaemonPage::trace`]) best-effort clients push their launches too, and all
//! clients their copies and the names of their kernels. A record is eight `u64` words.
//! [`Record::decode`] is the trust boundary: it accepts only what a correct client can have
//! written, and all later code works on the checked copy.

/// Words of a record. Eight words of eight bytes are one cache line.
pub const RECORD_WORDS: usize = 8;

/// Most streams a client may name in records; higher indices are refused.
pub const STREAMS_MAX: u32 = 4096;

/// Longest plausible expected duration, 1 h: with bounded queues, sums of 2^22 fit in `u64`.
pub const EXPECTED_NS_MAX: u64 = 3_600_000_000_000;

/// Longest time from a request's arrival to its beginning, ns; after a longer one it is refused.
pub const ARRIVED_NS_MAX: u64 = 3_600_000_000_000;

/// Longest target of a request, ns.
pub const TARGET_NS_MAX: u64 = 3_600_000_000_000;

/// The quantiles that a target may be for, per mille: the median to the 999th.
pub const PER_MILLE: core::ops::RangeInclusive<u32> = 500..=999;

/// A record's content. Marks ([`Record::is_mark`]) go only to daemons that know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A kernel (or a graph as one) was submitted.
    Launch(Launch),
    /// All work of `stream` up to and including `seq` is complete. From best-effort clients only in
    /// a trace.
    Complete {
        /// Index of the stream in the client's table.
        stream: u32,
        /// Sequence number in that stream, from 1.
        seq: u64,
        /// When the client learnt of it, on the shared clock; 0: not reported.
        at_ns: u64,
    },
    /// Work on a request begins.
    Begin(Begin),
    /// A request is answered, or cancelled.
    End(End),
    /// The program wants a request of kind `kind` to take at most `ns`.
    Target {
        /// The kind of request.
        kind: u32,
        /// Longest time from arrival to end, in 1..=[`TARGET_NS_MAX`].
        ns: u64,
        /// The quantile that this is for, of [`PER_MILLE`].
        per_mille: u32,
    },
    /// A copy was submitted. Only during a trace.
    Memcpy(Memcpy),
    /// A part of a kernel's name. Only during a trace.
    Name(NamePart),
}

/// Work on a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The request's number, unique in this client; never 0.
    pub id: u64,
    /// The kind of request, as the program numbers kinds.
    pub kind: u32,
    /// Number of inputs; 0: not reported.
    pub batch: u32,
    /// Arrival, on the shared clock: not after `at_ns`, and at most [`ARRIVED_NS_MAX`] before it.
    pub arrived_ns: u64,
    /// When work on the request began, on the shared clock.
    pub at_ns: u64,
    /// Reported by an NVTX range, not through Pillion's own interface.
    pub is_nvtx: bool,
}

/// A request is answered, or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The request's number.
    pub id: u64,
    /// When, on the shared clock.
    pub at_ns: u64,
    /// The request was cancelled.
    pub is_cancelled: bool,
    /// The request ends when the launches made until now have completed, not at `at_ns`.
    pub with_launches: bool,
}

/// One submitted launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index of the stream in the client's table, below [`STREAMS_MAX`].
    pub stream: u32,
    /// Sequence number in that stream, from 1. Of a best-effort launch: the stream's charges, ns.
    pub seq: u64,
    /// Identity of kernel and shape within the client; 0: none. It may change after a long pause.
    pub kernel: u64,
    /// Expected duration alone on the device, from the profile (p95); 0 if unknown.
    pub expected_ns: u64,
    /// SMs needed; 0 if unknown.
    pub sm_needed: u32,
    /// Resource class as `policy::ClassSet` bits: exactly one of 1, 2, 4.
    pub class: u8,
    /// Time of the launch, on the shared clock, if it revoked leases ([`crate::lease::is_live`]) or
    /// a trace runs; else 0: a clock read costs half as much as the rest.
    pub at_ns: u64,
}

/// One submitted copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memcpy {
    /// Index of the stream in the client's table, below [`STREAMS_MAX`].
    pub stream: u32,
    /// The direction.
    pub direction: Direction,
    /// Size, bytes.
    pub bytes: u64,
    /// When the call was made, or went after a wait at the gate, on the shared clock.
    pub at_ns: u64,
    /// How long the call took, if it returned when the copy was done, ns; else 0.
    pub waited_ns: u64,
    /// Duration expected for its size, ns.
    pub expected_ns: u64,
}

/// Source and destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    ToHost,
    /// Within the device, between devices, or as the driver determines.
    Other,
}

impl Direction {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToDevice => "host to device",
            Self::ToHost => "device to host",
            Self::Other => "device or unified",
        }
    }
}

/// A part of a kernel's name; the parts follow each other, from part 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePart {
    /// The kernel, as in [`Launch::kernel`]; never 0.
    pub kernel: u64,
    /// Which part, below [`NAME_PARTS_MAX`].
    pub part: u8,
    /// No part follows.
    pub is_last: bool,
    /// UTF-8, which may be cut within a character, padded with zeros.
    pub text: [u8; NAME_PART_BYTES],
}

/// Bytes of a name in one record.
pub const NAME_PART_BYTES: usize = 48;

/// Most parts of a name; longer names are truncated.
pub const NAME_PARTS_MAX: u8 = 8;

impl NamePart {
    /// The parts of a name, truncated if it is too long.
    pub fn of(kernel: u64, name: &str) -> impl Iterator<Item = Self> {
        let name = &name.as_bytes()[..name.len().min(NAME_PART_BYTES * NAME_PARTS_MAX as usize)];
        let parts = name.chunks(NAME_PART_BYTES);
        let last = parts.len().saturating_sub(1);
        parts.enumerate().map(move |(part, bytes)| {
            let mut text = [0; NAME_PART_BYTES];
            text[..bytes.len()].copy_from_slice(bytes);
            Self {
                kernel,
                part: part as u8,
                is_last: part == last,
                text,
            }
        })
    }
}

/// Why a record was refused. This is the peer's fault: the daemon counts it and drops the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// This version does not know the kind byte.
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
    /// The expected duration is implausible.
    #[error("expected duration {0} ns, expected at most {EXPECTED_NS_MAX}")]
    Expected(u64),
    /// Requests are numbered from 1.
    #[error("request number 0, expected from 1")]
    Id,
    /// The request begins before it arrived, or too long after.
    #[error(
        "request arrived at {arrived_ns} ns and begins at {at_ns}, expected at most {ARRIVED_NS_MAX} ns later"
    )]
    Arrived {
        /// When it arrived.
        arrived_ns: u64,
        /// When it begins.
        at_ns: u64,
    },
    /// The target is implausible.
    #[error("target of {0} ns, expected 1 to {TARGET_NS_MAX}")]
    Target(u64),
    /// A target cannot be for that quantile.
    #[error("target at {0} per mille, expected 500 to 999")]
    PerMille(u32),
    /// The direction byte is unknown.
    #[error("direction {0} of a copy, expected 0 to 2")]
    Direction(u8),
    /// The part number exceeds the longest name's, or the kernel is 0.
    #[error(
        "part {part} of the name of kernel {kernel}, expected parts below {NAME_PARTS_MAX} and a kernel"
    )]
    Name {
        /// Which part.
        part: u8,
        /// The kernel.
        kernel: u64,
    },
}

const KIND_LAUNCH: u8 = 1;
const KIND_COMPLETE: u8 = 2;
const KIND_BEGIN: u8 = 3;
const KIND_END: u8 = 4;
const KIND_TARGET: u8 = 5;
const KIND_COPY: u8 = 6;
const KIND_NAME: u8 = 7;

const BEGIN_NVTX: u64 = 1 << 8;
const END_CANCELLED: u64 = 1 << 8;
const END_WITH_LAUNCHES: u64 = 1 << 9;
const NAME_LAST: u64 = 1 << 16;

impl Record {
    /// Whether the record is about a request.
    pub const fn is_mark(&self) -> bool {
        matches!(self, Self::Begin(_) | Self::End(_) | Self::Target { .. })
    }

    /// The record as words; unused words are zero, for later minor versions:
    ///
    /// | kind | word 0, from bit 0 | further words |
    /// |---|---|---|
    /// | 1 launch | kind 8, class 8, from 32 stream | seq, kernel, expected_ns, sm_needed, at_ns |
    /// | 2 completion | kind 8, from 32 stream | seq, at_ns |
    /// | 3 beginning | kind 8, flags 8, from 32 kind of request | id, at_ns, arrived_ns, batch |
    /// | 4 end | kind 8, flags 8 | id, at_ns |
    /// | 5 target | kind 8, from 32 kind of request | ns, per_mille |
    /// | 6 copy | kind 8, direction 8, from 32 stream | bytes, at_ns, waited_ns, expected_ns |
    /// | 7 name | kind 8, part 8, flags 8 | kernel, then 48 bytes of text |
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
            Self::Complete { stream, seq, at_ns } => words([
                u64::from(KIND_COMPLETE) | u64::from(stream) << 32,
                seq,
                at_ns,
                0,
                0,
            ]),
            Self::Begin(begin) => words([
                u64::from(KIND_BEGIN)
                    | if begin.is_nvtx { BEGIN_NVTX } else { 0 }
                    | u64::from(begin.kind) << 32,
                begin.id,
                begin.at_ns,
                begin.arrived_ns,
                u64::from(begin.batch),
            ]),
            Self::End(end) => words([
                u64::from(KIND_END)
                    | if end.is_cancelled { END_CANCELLED } else { 0 }
                    | if end.with_launches {
                        END_WITH_LAUNCHES
                    } else {
                        0
                    },
                end.id,
                end.at_ns,
                0,
                0,
            ]),
            Self::Target {
                kind,
                ns,
                per_mille,
            } => words([
                u64::from(KIND_TARGET) | u64::from(kind) << 32,
                ns,
                u64::from(per_mille),
                0,
                0,
            ]),
            Self::Memcpy(copy) => words([
                u64::from(KIND_COPY) | (copy.direction as u64) << 8 | u64::from(copy.stream) << 32,
                copy.bytes,
                copy.at_ns,
                copy.waited_ns,
                copy.expected_ns,
            ]),
            Self::Name(name) => encode_name(&name),
        }
    }

    /// Checks a copied record. Unknown words and flags are a newer minor version's: ignored.
    pub fn decode(words: &[u64; RECORD_WORDS]) -> Result<Self, RecordError> {
        match words[0] as u8 {
            KIND_LAUNCH => decode_launch(words),
            KIND_COMPLETE => {
                let (stream, seq) = decode_place(words)?;
                let at_ns = words[2];
                Ok(Self::Complete { stream, seq, at_ns })
            }
            KIND_BEGIN => decode_begin(words).map(Self::Begin),
            KIND_END => Ok(Self::End(End {
                id: decode_id(words)?,
                at_ns: words[2],
                is_cancelled: words[0] & END_CANCELLED != 0,
                with_launches: words[0] & END_WITH_LAUNCHES != 0,
            })),
            KIND_TARGET => decode_target(words),
            KIND_COPY => decode_copy(words).map(Self::Memcpy),
            KIND_NAME => decode_name(words).map(Self::Name),
            kind => Err(RecordError::Kind(kind)),
        }
    }
}

#[inline]
fn words(first: [u64; 5]) -> [u64; RECORD_WORDS] {
    let [a, b, c, d, e] = first;
    [a, b, c, d, e, 0, 0, 0]
}

fn upper(words: &[u64; RECORD_WORDS]) -> u32 {
    (words[0] >> 32) as u32
}

fn decode_place(words: &[u64; RECORD_WORDS]) -> Result<(u32, u64), RecordError> {
    let (stream, seq) = (upper(words), words[1]);
    if stream >= STREAMS_MAX {
        return Err(RecordError::Stream(stream));
    }
    if seq == 0 {
        return Err(RecordError::Seq);
    }
    Ok((stream, seq))
}

fn decode_launch(words: &[u64; RECORD_WORDS]) -> Result<Record, RecordError> {
    let (stream, seq) = decode_place(words)?;
    let class = (words[0] >> 8) as u8;
    if !matches!(class, 1 | 2 | 4) {
        return Err(RecordError::Class(class));
    }
    let expected_ns = words[3];
    if expected_ns > EXPECTED_NS_MAX {
        return Err(RecordError::Expected(expected_ns));
    }
    Ok(Record::Launch(Launch {
        stream,
        seq,
        kernel: words[2],
        expected_ns,
        sm_needed: words[4] as u32,
        class,
        at_ns: words[5],
    }))
}

fn decode_id(words: &[u64; RECORD_WORDS]) -> Result<u64, RecordError> {
    match words[1] {
        0 => Err(RecordError::Id),
        id => Ok(id),
    }
}

fn decode_begin(words: &[u64; RECORD_WORDS]) -> Result<Begin, RecordError> {
    let id = decode_id(words)?;
    let (at_ns, arrived_ns) = (words[2], words[3]);
    if !has_arrived(arrived_ns, at_ns) {
        return Err(RecordError::Arrived { arrived_ns, at_ns });
    }
    Ok(Begin {
        id,
        kind: upper(words),
        batch: words[4] as u32,
        arrived_ns,
        at_ns,
        is_nvtx: words[0] & BEGIN_NVTX != 0,
    })
}

fn decode_target(words: &[u64; RECORD_WORDS]) -> Result<Record, RecordError> {
    let (ns, quantile) = (words[1], words[2]);
    if !(1..=TARGET_NS_MAX).contains(&ns) {
        return Err(RecordError::Target(ns));
    }
    let per_mille = u32::try_from(quantile).unwrap_or(u32::MAX);
    if !PER_MILLE.contains(&per_mille) {
        return Err(RecordError::PerMille(per_mille));
    }
    Ok(Record::Target {
        kind: upper(words),
        ns,
        per_mille,
    })
}

fn decode_copy(words: &[u64; RECORD_WORDS]) -> Result<Memcpy, RecordError> {
    let stream = upper(words);
    if stream >= STREAMS_MAX {
        return Err(RecordError::Stream(stream));
    }
    let direction = match (words[0] >> 8) as u8 {
        0 => Direction::ToDevice,
        1 => Direction::ToHost,
        2 => Direction::Other,
        other => return Err(RecordError::Direction(other)),
    };
    let [_, bytes, at_ns, waited_ns, expected_ns, ..] = *words;
    if let Some(&too_long) = [waited_ns, expected_ns]
        .iter()
        .find(|&&ns| ns > EXPECTED_NS_MAX)
    {
        return Err(RecordError::Expected(too_long));
    }
    Ok(Memcpy {
        stream,
        direction,
        bytes,
        at_ns,
        waited_ns,
        expected_ns,
    })
}

fn encode_name(name: &NamePart) -> [u64; RECORD_WORDS] {
    let mut words = [0; RECORD_WORDS];
    words[0] =
        u64::from(KIND_NAME) | u64::from(name.part) << 8 | if name.is_last { NAME_LAST } else { 0 };
    words[1] = name.kernel;
    let (pieces, _) = name.text.as_chunks();
    for (word, bytes) in words[2..].iter_mut().zip(pieces) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn decode_name(words: &[u64; RECORD_WORDS]) -> Result<NamePart, RecordError> {
    let (part, kernel) = ((words[0] >> 8) as u8, words[1]);
    if part >= NAME_PARTS_MAX || kernel == 0 {
        return Err(RecordError::Name { part, kernel });
    }
    let mut text = [0; NAME_PART_BYTES];
    let (pieces, _) = text.as_chunks_mut();
    for (bytes, word) in pieces.iter_mut().zip(&words[2..]) {
        *bytes = word.to_le_bytes();
    }
    Ok(NamePart {
        kernel,
        part,
        is_last: words[0] & NAME_LAST != 0,
        text,
    })
}

/// Whether a request that begins at `at_ns` may have arrived at `arrived_ns`.
#[inline]
pub fn has_arrived(arrived_ns: u64, at_ns: u64) -> bool {
    let waited_ns = at_ns.checked_sub(arrived_ns);
    waited_ns.is_some_and(|waited_ns| waited_ns <= ARRIVED_NS_MAX)
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
        fn a_mark_survives_the_journey(
            id in 1u64.., kind: u32, batch: u32, at_ns in ARRIVED_NS_MAX.., waited_ns in 0..=ARRIVED_NS_MAX,
            flags: [bool; 2], ns in 1..=TARGET_NS_MAX, per_mille in PER_MILLE,
        ) {
            let begin = Begin {
                id, kind, batch, arrived_ns: at_ns - waited_ns, at_ns, is_nvtx: flags[0],
            };
            let [is_cancelled, with_launches] = flags;
            for record in [
                Record::Begin(begin),
                Record::End(End { id, at_ns, is_cancelled, with_launches }),
                Record::Target { kind, ns, per_mille },
            ] {
                prop_assert!(record.is_mark());
                prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
            }
        }

        #[test]
        fn what_a_trace_adds_survives_the_journey(
            stream in 0..STREAMS_MAX, which in 0usize..3, bytes: u64, at_ns: u64,
            waited_ns in 0..=EXPECTED_NS_MAX, expected_ns in 0..=EXPECTED_NS_MAX,
            kernel in 1u64.., name in "[a-z_é<>]{1,500}",
        ) {
            let direction = [Direction::ToDevice, Direction::ToHost, Direction::Other][which];
            let copy = Record::Memcpy(Memcpy {
                stream, direction, bytes, at_ns, waited_ns, expected_ns,
            });
            prop_assert_eq!(Record::decode(&copy.encode()), Ok(copy));
            let mut sent = Vec::new();
            let mut last = None;
            for part in NamePart::of(kernel, &name) {
                let Ok(Record::Name(read)) = Record::decode(&Record::Name(part).encode()) else {
                    return Err(TestCaseError::fail("no name"));
                };
                prop_assert_eq!(read, part);
                prop_assert_eq!(last, (read.part > 0).then_some(false));
                last = Some(read.is_last);
                sent.extend(read.text);
            }
            prop_assert_eq!(last, Some(true));
            let cut = name.len().min(NAME_PART_BYTES * NAME_PARTS_MAX as usize);
            prop_assert_eq!(&sent[..cut], &name.as_bytes()[..cut]);
            prop_assert!(sent[cut..].iter().all(|&byte| byte == 0));
        }

        #[test]
        fn any_words_are_refused_or_stay_in_bounds(kind in 0u64..9, mut words: [u64; RECORD_WORDS]) {
            words[0] = words[0] & !0xff | kind;
            match Record::decode(&words) {
                Ok(Record::Launch(l)) => {
                    prop_assert!(l.stream < STREAMS_MAX && l.seq > 0);
                    prop_assert!(l.expected_ns <= EXPECTED_NS_MAX);
                    prop_assert!(matches!(l.class, 1 | 2 | 4));
                }
                Ok(Record::Complete { stream, seq, .. }) => {
                    prop_assert!(stream < STREAMS_MAX && seq > 0);
                }
                Ok(Record::Begin(begin)) => {
                    prop_assert!(begin.id > 0 && begin.arrived_ns <= begin.at_ns);
                    prop_assert!(begin.at_ns - begin.arrived_ns <= ARRIVED_NS_MAX);
                }
                Ok(Record::End(end)) => prop_assert!(end.id > 0),
                Ok(Record::Target { ns, per_mille, .. }) => {
                    prop_assert!((1..=TARGET_NS_MAX).contains(&ns));
                    prop_assert!(PER_MILLE.contains(&per_mille));
                }
                Ok(Record::Memcpy(copy)) => {
                    prop_assert!(copy.stream < STREAMS_MAX);
                    prop_assert!(copy.waited_ns.max(copy.expected_ns) <= EXPECTED_NS_MAX);
                }
                Ok(Record::Name(name)) => {
                    prop_assert!(name.part < NAME_PARTS_MAX && name.kernel > 0);
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

    #[test]
    fn a_mark_that_cannot_be_true_is_refused_by_name() {
        let begin = |id, arrived_ns, at_ns| {
            let is_nvtx = false;
            let (kind, batch) = (0, 0);
            let begin = Begin {
                id,
                kind,
                batch,
                arrived_ns,
                at_ns,
                is_nvtx,
            };
            Record::decode(&Record::Begin(begin).encode()).map_err(|error| error.to_string())
        };
        let late_ns = ARRIVED_NS_MAX + 1;
        assert!(begin(1, 7, 7).is_ok() && begin(1, 0, ARRIVED_NS_MAX).is_ok());
        assert_eq!(
            begin(0, 7, 7).unwrap_err(),
            "request number 0, expected from 1"
        );
        for (arrived_ns, at_ns) in [(8, 7), (0, late_ns), (u64::MAX, 0)] {
            let error = begin(1, arrived_ns, at_ns).unwrap_err();
            let start = format!("request arrived at {arrived_ns} ns and begins at {at_ns}, ");
            assert!(error.starts_with(&start), "{error}");
        }
        let target = |ns, per_mille| {
            let target = Record::Target {
                kind: 0,
                ns,
                per_mille,
            };
            Record::decode(&target.encode())
        };
        assert!(target(1, 999).is_ok() && target(TARGET_NS_MAX, 500).is_ok());
        for ns in [0, TARGET_NS_MAX + 1] {
            assert_eq!(target(ns, 990), Err(RecordError::Target(ns)));
        }
        for per_mille in [0, 499, 1_000, u32::MAX] {
            assert_eq!(target(1, per_mille), Err(RecordError::PerMille(per_mille)));
        }
        // The upper bits of the quantile's word are not ignored.
        let far = [5, 1, 1 << 32 | 990, 0, 0, 0, 0, 0];
        assert_eq!(Record::decode(&far), Err(RecordError::PerMille(u32::MAX)));
    }
}

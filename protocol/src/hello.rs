//! The messages of client and daemon over the Unix socket: attach, welcome, status. The socket is
//! `SOCK_SEQPACKET`: one message is one packet; pages travel with attach and welcome as file
//! descriptors (`SCM_RIGHTS`). A message of every version begins with [`HELLO_MAGIC`] and the
//! sender's version, so incompatible builds can report theirs. Numbers are little-endian; a text is
//! a `u16` length and UTF-8 bytes. The connection's end marks the client's.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::{VERSION, Version};

mod packet;
mod places;
mod set;
mod socket;

use packet::{Reader, Writer};
pub use places::{
    SYSTEM_FOLDER, format_uuid, is_own, is_private, own_socket_folder, socket_folders,
    socket_paths, temporary_folder,
};
pub use set::Set;
pub use socket::{NEW_SUFFIX, connect_to, connect_within, listen_at, listen_whole};

/// "PLN1".
pub const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"PLN1");
/// Longest packet, bytes.
pub const PACKET_BYTES_MAX: usize = 32 * 1024;
/// Longest text in an attach message, bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Most descriptors in one packet.
pub const FDS_MAX: usize = 8;
/// Linux's maximum in one packet (`SCM_MAX_FD`); with less room `recvmsg` closes the surplus ones.
const FDS_ANYBODY_MAX: usize = 253;
/// Signals that one wait for a packet survives.
const INTERRUPTIONS_MAX: u32 = 16;

/// The two classes of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobClass {
    /// Runs as if alone; never waits.
    HighPriority,
    /// Uses what high-priority jobs leave. The default class.
    #[default]
    BestEffort,
}

impl JobClass {
    /// The names accepted in flags, environment and files.
    pub const NAMES: [&'static str; 2] = ["high-priority", "best-effort"];

    /// The class of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "high-priority" => Some(Self::HighPriority),
            "best-effort" => Some(Self::BestEffort),
            _ => None,
        }
    }

    /// The name in flags, environment and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HighPriority => Self::NAMES[0],
            Self::BestEffort => Self::NAMES[1],
        }
    }
}

/// The first question of a client or an operator's tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// This process wants to be a client. The packet carries its page as a descriptor
    /// ([`crate::segment::client_page`]), if it may create one, and with a slot the job's ledger.
    Attach(Attach),
    /// Send the daemon's status as JSON, in packets, then close.
    Status,
    /// Send the events after number `since` as JSON, in packets, then close.
    Events {
        /// 0 for all that is kept.
        since: u64,
    },
    /// Change a job's memory quota, the target of its requests, or another of its limits.
    Set(Set),
    /// End the processes of a job that are clients, once their work in flight is complete.
    Stop(Stop),
    /// The sender is about to end a job's processes: by signals, then through MPS, then by SIGKILL.
    Ending(Ending),
    /// Drain the GPU: hold BE jobs, warn new HP ones. The sender must be root or the daemon's user.
    Drain {
        /// Close NVML too, until [`Request::Resume`].
        is_release: bool,
    },
    /// Open the device if it is closed, and resume. The sender must be root or the daemon's user.
    Resume {
        /// Id of the job; empty for everything.
        job: String,
    },
    /// Report a job's quota and usage of memory to a process of the job, which may be no client.
    Memory(MemoryOf),
    /// Send what is kept of a program of the sender's user. With a [`crate::notebook`] as
    /// descriptor, also keep the sender's notes: while connected, and once more at its end.
    Learnt(LearntOf),
    /// List the programs of the sender's user of which something is kept; for root, of all users.
    LearntList,
    /// Take a trace of the jobs that the sender may see. [`Reply::Done`] reports its start. A
    /// second one, with a [`crate::trace`] as a memory file, reports its end: after its length,
    /// when it is full, or when the sender shuts its side down.
    Trace {
        /// Length, ns, within [`crate::trace::LENGTH_NS`].
        length_ns: u64,
    },
    /// The sender will be or start a job: an idle daemon stays until the sender has ended.
    Expect,
    /// Send every setting in force, with its origin, as JSON, in packets, then close.
    Settings,
}

/// A program whose kernels are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearntOf {
    /// Its key ([`program_key`]).
    pub program: String,
    /// UUID of the device, as in [`Attach`].
    pub device: String,
    /// The user; only root may name another. `None`: the sender's, whose program counts as used.
    pub user: Option<u32>,
}

/// A job to be ended. The sender must be of the job's user, or root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Id of the job.
    pub job: String,
    /// The job's user, in case several users have a job of that id.
    pub user: Option<u32>,
}

/// A job that is about to be ended, including processes that join it meanwhile. The sender must be
/// of the job's user, or root. The request is void once the sender has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Id of the job.
    pub job: String,
    /// As in [`Stop`].
    pub user: Option<u32>,
    /// Longest time that the end takes, ns; 0: the sender no longer ends the job.
    pub within_ns: u64,
    /// With `within_ns` 0: no process of the job is left (the sender did not give up). Default: no.
    pub is_over: bool,
}

/// The job whose memory is asked for: as in [`Attach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOf {
    /// Class of the job.
    pub class: JobClass,
    /// Id of the job.
    pub job: String,
    /// The quota that the job asks for; it applies if the daemon does not know the job yet.
    pub memory: String,
    /// UUID of the device, as in [`Attach`]; empty for the daemon's device, whichever it is.
    pub device: String,
}

/// A process that attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    /// Class of its job.
    pub class: JobClass,
    /// Id of its job; clients of one job share a lease.
    pub job: String,
    /// Program name, for display.
    pub name: String,
    /// Profile file it uses, for display; empty if none.
    pub profile: String,
    /// Where the profile was measured and how it was adapted, for display; empty on this model.
    pub profile_fit: String,
    /// UUID of the device, as [`format_uuid`] prints it; empty, the default, if unknown.
    pub device: String,
    /// The memory quota that the job asks for, as [`crate::quota`] parses it; empty for the
    /// daemon's default. If missing, the process keeps no account, and gets no ledger.
    pub memory: Option<String>,
    /// The process's slot in the job's [`crate::ledger`], from the previous daemon. The ledger's
    /// descriptor then follows the client's page in this packet. The default is none.
    pub slot: Option<u16>,
    /// Whether the kernel signals this process when its parent ends (`PR_SET_PDEATHSIG`); the
    /// supervisor of the job's exit needs to know. The default is no.
    pub falls_with_parent: bool,
    /// Whether MPS shares the device (`CU_DEVICE_ATTRIBUTE_MPS_ENABLED`), if the driver says so.
    pub is_on_mps: Option<bool>,
    /// The job's latency target, as [`crate::slo::SloAsked`] parses it. Empty, the default: that of
    /// the daemon's configuration.
    pub slo: String,
    /// The cap on GPU time, as [`crate::compute::Cap`] parses it. Empty, the default: that of the
    /// daemon's configuration.
    pub compute: String,
    /// The job's share of the SMs at its start, per cent, if its supervisor restarts it when it
    /// ends: the daemon may then end it to give it another share. Empty, the default: it must not.
    pub restartable: String,
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Attached. Descriptors, in order: daemon, high-priority, bell, a best-effort job's lease
    /// page, with a slot the job's ledger, the client's page if it sent none.
    Welcome {
        /// Number of this client, unique while the daemon lives.
        client: u64,
        /// The client's slot in the job's [`crate::ledger`], its old one if that ledger continues.
        /// If missing, there is no ledger.
        slot: Option<u16>,
        /// The granted class; best-effort if high-priority is not allowed. Missing: as requested.
        class: Option<JobClass>,
    },
    /// The request has been carried out.
    Done,
    /// A job's quota and usage of memory.
    Memory(MemoryIs),
    /// The kept data of a program's kernels. A memory file follows, immutable: a Pillion profile.
    Learnt {
        /// Whether anything is kept; if not, there is no descriptor.
        is_known: bool,
    },
    /// Not attached, or not done; a job runs unmanaged. The reason is one sentence for display.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A job's quota and usage of a GPU's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryIs {
    /// [`crate::ledger::UNLIMITED`] is no quota.
    pub quota_bytes: u64,
    /// Bytes that its processes hold.
    pub held_bytes: u64,
    /// Its processes that hold memory, as the daemon sees their pids; at most [`PIDS_MAX`].
    pub pids: Vec<u32>,
}

/// Most processes of a job; see [`crate::ledger::LEDGER_SLOTS`].
pub const PIDS_MAX: usize = crate::ledger::LEDGER_SLOTS;

/// A fault of a packet or a connection.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer speaks another major version.
    #[error(
        "the daemon speaks protocol {peer}, but this program speaks {VERSION}: use one version of \
         both, and restart the daemon after an update"
    )]
    Version {
        /// The peer's version.
        peer: Version,
    },
    /// The packet is malformed, or cut short.
    #[error("not a Pillion message: {0}")]
    Malformed(&'static str),
    /// The daemon refused the request.
    #[error("the daemon refused: {0}")]
    Refused(String),
    /// The peer closed the connection without an answer.
    #[error("the daemon closed the connection without an answer")]
    Closed,
}

const KIND_ATTACH: u8 = 1;
const KIND_STATUS: u8 = 2;
const KIND_WELCOME: u8 = 3;
const KIND_REFUSED: u8 = 4;
const KIND_SET: u8 = 5;
const KIND_DONE: u8 = 6;
const KIND_MEMORY_OF: u8 = 7;
const KIND_MEMORY_IS: u8 = 8;
const KIND_STOP: u8 = 9;
const KIND_EVENTS: u8 = 10;
const KIND_RESUME: u8 = 11;
const KIND_ENDING: u8 = 12;
const KIND_DRAIN: u8 = 13;
const KIND_LEARNT_OF: u8 = 14;
const KIND_LEARNT: u8 = 15;
const KIND_LEARNT_LIST: u8 = 16;
const KIND_TRACE: u8 = 17;
const KIND_EXPECT: u8 = 18;
const KIND_SETTINGS: u8 = 19;
const NO_SLOT: u16 = u16::MAX;
/// A yes-or-no field as a byte, and its value if there is no answer.
const NO_ANSWER: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;
/// Stands for "no user", as in chown(2).
const NO_USER: u32 = u32::MAX;

impl Attach {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND_ATTACH);
        writer.class(self.class);
        for text in [
            &self.job,
            &self.name,
            &self.profile,
            &self.profile_fit,
            &self.device,
        ] {
            writer.text(text);
        }
        if let Some(memory) = &self.memory {
            writer.text(memory);
            writer.slot(self.slot);
            writer.bytes.push(u8::from(self.falls_with_parent));
            writer.answer(self.is_on_mps);
            writer.text(&self.slo);
            writer.text(&self.compute);
            writer.text(&self.restartable);
        }
        writer.finish()
    }
}

impl Request {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Status => Writer::new(KIND_STATUS).finish(),
            Self::Events { since } => {
                let mut writer = Writer::new(KIND_EVENTS);
                writer.bytes.extend_from_slice(&since.to_le_bytes());
                writer.finish()
            }
            Self::Set(set) => {
                let mut writer = Writer::new(KIND_SET);
                set.write(&mut writer);
                writer.finish()
            }
            Self::Stop(stop) => {
                let mut writer = Writer::new(KIND_STOP);
                writer.text(&stop.job);
                writer.user(stop.user);
                writer.finish()
            }
            Self::Ending(ending) => {
                let mut writer = Writer::new(KIND_ENDING);
                writer.text(&ending.job);
                writer
                    .bytes
                    .extend_from_slice(&ending.within_ns.to_le_bytes());
                writer.user(ending.user);
                writer.bytes.push(u8::from(ending.is_over));
                writer.finish()
            }
            Self::Learnt(of) => {
                let mut writer = Writer::new(KIND_LEARNT_OF);
                writer.text(&of.program);
                writer.text(&of.device);
                writer.user(of.user);
                writer.finish()
            }
            Self::LearntList => Writer::new(KIND_LEARNT_LIST).finish(),
            Self::Expect => Writer::new(KIND_EXPECT).finish(),
            Self::Settings => Writer::new(KIND_SETTINGS).finish(),
            Self::Trace { length_ns } => {
                let mut writer = Writer::new(KIND_TRACE);
                writer.bytes.extend_from_slice(&length_ns.to_le_bytes());
                writer.finish()
            }
            Self::Resume { job } => {
                let mut writer = Writer::new(KIND_RESUME);
                writer.text(job);
                writer.finish()
            }
            Self::Drain { is_release } => {
                let mut writer = Writer::new(KIND_DRAIN);
                writer.bytes.push(u8::from(*is_release));
                writer.finish()
            }
            Self::Memory(of) => {
                let mut writer = Writer::new(KIND_MEMORY_OF);
                writer.class(of.class);
                writer.text(&of.job);
                writer.text(&of.memory);
                writer.text(&of.device);
                writer.finish()
            }
            Self::Attach(attach) => attach.encode(),
        }
    }

    /// Decodes a packet from an untrusted process.
    pub fn decode(packet: &[u8]) -> Result<Self, HelloError> {
        let (kind, mut reader) = Reader::open(packet)?;
        match kind {
            KIND_STATUS => Ok(Self::Status),
            KIND_LEARNT_LIST => Ok(Self::LearntList),
            KIND_EXPECT => Ok(Self::Expect),
            KIND_SETTINGS => Ok(Self::Settings),
            KIND_TRACE => Ok(Self::Trace {
                length_ns: u64::from_le_bytes(reader.array()?),
            }),
            KIND_LEARNT_OF => Ok(Self::Learnt(LearntOf {
                program: reader.text()?,
                device: reader.text()?,
                user: reader.later_user()?,
            })),
            KIND_EVENTS => Ok(Self::Events {
                since: u64::from_le_bytes(reader.array()?),
            }),
            KIND_ATTACH => {
                let class = reader.class()?;
                let [job, name, profile] = [reader.text()?, reader.text()?, reader.text()?];
                let profile_fit = reader.text()?;
                Ok(Self::Attach(Attach {
                    class,
                    job,
                    name,
                    profile,
                    profile_fit,
                    device: reader.later_text()?.unwrap_or_default(),
                    memory: reader.later_text()?,
                    slot: reader.later_slot()?,
                    falls_with_parent: reader.later_flag()?,
                    is_on_mps: reader.later_answer()?,
                    slo: reader.later_text()?.unwrap_or_default(),
                    compute: reader.later_text()?.unwrap_or_default(),
                    restartable: reader.later_text()?.unwrap_or_default(),
                }))
            }
            KIND_SET => Set::read(&mut reader).map(Self::Set),
            KIND_STOP => Ok(Self::Stop(Stop {
                job: reader.text()?,
                user: reader.later_user()?,
            })),
            KIND_ENDING => Ok(Self::Ending(Ending {
                job: reader.text()?,
                within_ns: u64::from_le_bytes(reader.array()?),
                user: reader.later_user()?,
                is_over: reader.later_flag()?,
            })),
            KIND_RESUME => Ok(Self::Resume {
                job: reader.text()?,
            }),
            KIND_DRAIN => Ok(Self::Drain {
                is_release: reader.later_flag()?,
            }),
            KIND_MEMORY_OF => Ok(Self::Memory(MemoryOf {
                class: reader.class()?,
                job: reader.text()?,
                memory: reader.text()?,
                device: reader.later_text()?.unwrap_or_default(),
            })),
            _ => Err(HelloError::Malformed("unknown kind of request")),
        }
    }
}

impl Reply {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome {
                client,
                slot,
                class,
            } => {
                let mut writer = Writer::new(KIND_WELCOME);
                writer.bytes.extend_from_slice(&client.to_le_bytes());
                writer.slot(*slot);
                if let Some(class) = class {
                    writer.class(*class);
                }
                writer.finish()
            }
            Self::Done => Writer::new(KIND_DONE).finish(),
            Self::Learnt { is_known } => {
                let mut writer = Writer::new(KIND_LEARNT);
                writer.bytes.push(u8::from(*is_known));
                writer.finish()
            }
            Self::Memory(is) => {
                let mut writer = Writer::new(KIND_MEMORY_IS);
                for number in [is.quota_bytes, is.held_bytes] {
                    writer.bytes.extend_from_slice(&number.to_le_bytes());
                }
                for pid in is.pids.iter().take(PIDS_MAX) {
                    writer.bytes.extend_from_slice(&pid.to_le_bytes());
                }
                writer.finish()
            }
            Self::Refused { reason } => {
                let mut writer = Writer::new(KIND_REFUSED);
                writer.text(reason);
                writer.finish()
            }
        }
    }

    /// Decodes the daemon's packet.
    pub fn decode(packet: &[u8]) -> Result<Self, HelloError> {
        let (kind, mut reader) = Reader::open(packet)?;
        match kind {
            KIND_WELCOME => Ok(Self::Welcome {
                client: u64::from_le_bytes(reader.array()?),
                slot: reader.later_slot()?,
                class: match reader.rest {
                    [] => None,
                    _ => Some(reader.class()?),
                },
            }),
            KIND_DONE => Ok(Self::Done),
            KIND_LEARNT => Ok(Self::Learnt {
                is_known: reader.byte()? != 0,
            }),
            KIND_MEMORY_IS => {
                let [quota_bytes, held_bytes] = [reader.array()?, reader.array()?];
                let pids = reader.rest.as_chunks().0.iter().take(PIDS_MAX);
                Ok(Self::Memory(MemoryIs {
                    quota_bytes: u64::from_le_bytes(quota_bytes),
                    held_bytes: u64::from_le_bytes(held_bytes),
                    pids: pids.map(|&bytes| u32::from_le_bytes(bytes)).collect(),
                }))
            }
            KIND_REFUSED => Ok(Self::Refused {
                reason: reader.text()?,
            }),
            _ => Err(HelloError::Malformed("unknown kind of reply")),
        }
    }
}

/// The key of a program's data: `name`, or, if too long for a text, its end and a hash of all of
/// it.
#[must_use]
pub fn program_key(name: &str) -> String {
    if name.len() <= TEXT_BYTES_MAX {
        return name.to_owned();
    }
    // FNV-1a: only needs to distinguish two names with the same end.
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let number = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let start = name.ceil_char_boundary(name.len() - (TEXT_BYTES_MAX - 24));
    format!("{number:016x}...{}", &name[start..])
}

/// The version in a packet of any version of this protocol.
pub fn peer_version(packet: &[u8]) -> Option<Version> {
    let magic = u32::from_le_bytes(packet.get(..4)?.try_into().ok()?);
    let major = u16::from_le_bytes(packet.get(4..6)?.try_into().ok()?);
    let minor = u16::from_le_bytes(packet.get(6..8)?.try_into().ok()?);
    (magic == HELLO_MAGIC).then_some(Version { major, minor })
}

/// Sends one packet with descriptors.
/// # Errors
/// The system's error, or more than [`FDS_MAX`] descriptors.
pub fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors",
        ));
    }
    let parts = [IoSlice::new(packet)];
    rustix::io::retry_on_intr(|| sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet and its descriptors. An empty packet is the end of the connection.
/// # Errors
/// The system's error, the socket's timeout included.
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_ANYBODY_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut interrupted = 0;
    let message = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            // Bounded: each attempt has the timeout again, and a timer could interrupt for ever.
            Err(Errno::INTR) if interrupted < INTERRUPTIONS_MAX => interrupted += 1,
            other => break other?,
        }
    };
    let received = message.bytes;
    let fds = ancillary
        .drain()
        .filter_map(|m| match m {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    bytes.truncate(received);
    Ok((bytes, fds))
}

/// Sends a request to the daemon at `path` and returns its answer; no step exceeds `patience`.
/// # Errors
/// No daemon listens, it does not answer within `patience` or closes the connection, or its answer
/// is no reply of this version. A refusal is a reply ([`Reply::Refused`]).
pub fn ask_once(path: &Path, request: &Request, patience: Duration) -> Result<Reply, HelloError> {
    let (reply, _) = ask_with_version(path, request, patience)?;
    Ok(reply)
}

/// As `ask_once`, with the daemon's version: an older one ignores parts unknown to it.
/// # Errors
/// As [`ask_once`].
pub fn ask_with_version(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> Result<(Reply, Version), HelloError> {
    let socket = connect_within(path, patience)?;
    send(&socket, &request.encode(), &[])?;
    let (packet, _) = receive(&socket)?;
    let version = peer_version(&packet).ok_or(match packet.len() {
        0 => HelloError::Closed,
        _ => HelloError::Malformed("no version"),
    })?;
    Ok((Reply::decode(&packet)?, version))
}

/// Requests the status of the daemon at `path`: one JSON document.
/// # Errors
/// As [`ask_status_within`].
pub fn ask_status(path: &Path) -> Result<String, HelloError> {
    ask_document(connect_to(path)?, &Request::Status)
}

/// As `ask_status`; no step takes longer than `patience`.
/// # Errors
/// No daemon listens, it does not answer within `patience` or closes the connection, it refuses
/// ([`HelloError::Refused`]), or its answer is no document.
pub fn ask_status_within(path: &Path, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::Status)
}

/// Requests the events after `since` from the daemon at `path`: JSON. No step exceeds `patience`.
/// # Errors
/// As [`ask_status_within`].
pub fn ask_events(path: &Path, since: u64, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::Events { since })
}

/// Requests the kept data of a program, passing a notebook if any: a memory file, or `None`.
/// # Errors
/// The daemon is gone, silent for the socket's timeout, or refuses ([`HelloError::Refused`]).
pub fn ask_learnt(
    connection: impl AsFd,
    of: &LearntOf,
    notebook: Option<BorrowedFd<'_>>,
) -> Result<Option<OwnedFd>, HelloError> {
    let request = Request::Learnt(of.clone()).encode();
    send(&connection, &request, notebook.as_slice())?;
    learnt_answer(connection)
}

/// The daemon's answer to [`ask_learnt`], if it did not arrive within that call's timeout.
/// # Errors
/// As [`ask_learnt`].
pub fn learnt_answer(connection: impl AsFd) -> Result<Option<OwnedFd>, HelloError> {
    let (packet, files) = receive(&connection)?;
    if packet.is_empty() {
        return Err(HelloError::Closed);
    }
    match Reply::decode(&packet)? {
        Reply::Learnt { is_known } => Ok(files.into_iter().next().filter(|_| is_known)),
        Reply::Refused { reason } => Err(HelloError::Refused(reason)),
        _ => Err(HelloError::Malformed("a reply to another request")),
    }
}

/// Requests the programs with kept data of the daemon at `path`: JSON. No step exceeds `patience`.
/// # Errors
/// As [`ask_status_within`].
pub fn ask_learnt_list(path: &Path, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::LearntList)
}

/// Requests the settings of the daemon at `path`: one JSON document. No step exceeds `patience`.
/// # Errors
/// As [`ask_status_within`].
pub fn ask_settings(path: &Path, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::Settings)
}

fn ask_document(socket: OwnedFd, request: &Request) -> Result<String, HelloError> {
    send(&socket, &request.encode(), &[])?;
    let mut json = Vec::new();
    loop {
        let (packet, _) = receive(&socket)?;
        if packet.is_empty() {
            break;
        }
        if json.is_empty() && peer_version(&packet).is_some() {
            // A daemon of another version, or an overloaded one, refuses with its own message.
            return Err(match Reply::decode(&packet)? {
                Reply::Refused { reason } => HelloError::Refused(reason),
                _ => HelloError::Malformed("a reply to another request"),
            });
        }
        json.extend_from_slice(&packet);
    }
    if json.is_empty() {
        return Err(HelloError::Closed);
    }
    String::from_utf8(json).map_err(|_| HelloError::Malformed("the document is not UTF-8"))
}

/// Sends a JSON document in packets that fit.
/// # Errors
/// As [`send`].
pub fn send_status(socket: impl AsFd, json: &str) -> io::Result<()> {
    json.as_bytes()
        .chunks(PACKET_BYTES_MAX)
        .try_for_each(|chunk| send(&socket, chunk, &[]))
}

#[cfg(test)]
mod tests;

//! What client and daemon say over the Unix socket: attach, welcome, status.
//!
//! The socket is `SOCK_SEQPACKET`: one message is one packet, and pages travel with the attach and
//! the welcome as file descriptors (`SCM_RIGHTS`). Every message begins with [`HELLO_MAGIC`] and
//! the sender's version, in every version of the protocol, so that two builds that cannot talk can
//! still say so. Numbers are little-endian; a text is a `u16` length and UTF-8 bytes.
//!
//! The connection stays open while the client lives. Its end tells the daemon of the client's.

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
/// Most descriptors with one packet.
pub const FDS_MAX: usize = 8;
/// Most that Linux lets anybody send with one (`SCM_MAX_FD`): with less room for them, what has none is closed by who receives, in
/// the middle of it.
const FDS_ANYBODY_MAX: usize = 253;
/// Signals that one wait for a packet lives through.
const INTERRUPTIONS_MAX: u32 = 16;

/// The two classes of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobClass {
    /// Runs as if alone; never waits.
    HighPriority,
    /// Uses what the others leave. The class of a job that names none.
    #[default]
    BestEffort,
}

impl JobClass {
    /// The words accepted in flags, environment and files.
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

/// What a client or an operator's tool asks first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// This process wants to be a client. Its page comes with the packet as a descriptor
    /// ([`crate::segment::client_page`]), if it may make one, and behind it, with a slot, the job's
    /// ledger.
    Attach(Attach),
    /// Send the daemon's status as JSON, in packets, then close.
    Status,
    /// Send what happened after event number `since` as JSON, in packets, then close.
    Events {
        /// 0 for all that is kept.
        since: u64,
    },
    /// Change what a job may hold of the GPU's memory, or what its requests may take.
    Set(Set),
    /// End the processes of a job that are clients, once what they have in flight is complete.
    Stop(Stop),
    /// Who asks is about to end the processes of a job, by signals first, and sees to it that MPS is asked before any is killed.
    Ending(Ending),
    /// Drain the GPU: best-effort jobs are held, new high-priority ones warned of. Who asks must be
    /// root or the daemon's user.
    Drain {
        /// Close NVML, too, until [`Request::Resume`].
        is_release: bool,
    },
    /// Let go what is held, and open the device before, if it is closed. Who asks must be root or
    /// the daemon's user.
    Resume {
        /// Id of the job that is meant; empty for everything.
        job: String,
    },
    /// Say what a job may hold and holds, to a process of it that may be no client.
    Memory(MemoryOf),
    /// Give what is kept of the kernels of a program of the user who asks. With a
    /// [`crate::notebook`] as a descriptor, keep what the process that asks notes in it, as long as
    /// the connection is open, and once more when it ends.
    Learnt(LearntOf),
    /// List what is kept of the programs of the user who asks; root sees those of all.
    LearntList,
    /// Take a trace of the jobs that who asks may see. [`Reply::Done`] says that it has begun, and,
    /// with a [`crate::trace`] as a memory file, that it has ended: when it was to, when it is
    /// full, or when who asks shuts its side down.
    Trace {
        /// How long, ns, within [`crate::trace::LENGTH_NS`].
        length_ns: u64,
    },
    /// The process that asks is about to become a job, or to start one: a daemon that ends when it
    /// has no clients stays until that process has ended.
    Expect,
    /// Send every setting in force and where it was said as JSON, in packets, then close.
    Settings,
}

/// A program whose kernels are asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearntOf {
    /// What it is called ([`program_key`]).
    pub program: String,
    /// UUID of the device that is meant, as in [`Attach`].
    pub device: String,
    /// Whose it is; only root may ask for another's than its own. `None`: of who asks, who begins
    /// with it, so that it counts as used.
    pub user: Option<u32>,
}

/// A job to be ended. Who asks must be of the job's user, or root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Id of the job.
    pub job: String,
    /// Whose it is, where several users have one of that id.
    pub user: Option<u32>,
}

/// A job that is about to be ended, with who comes to it meanwhile. Who asks must be of the job's user, or root, and ends it no more once its
/// process has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Id of the job.
    pub job: String,
    /// As in [`Stop`].
    pub user: Option<u32>,
    /// How long that takes at most, ns; 0: who asks ends it no more.
    pub within_ns: u64,
    /// With `within_ns` 0: because nobody of it is left, and not because it was given up. No where it is missing.
    pub is_over: bool,
}

/// Whose memory is asked about: as in [`Attach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOf {
    /// Class of the job.
    pub class: JobClass,
    /// Id of the job.
    pub job: String,
    /// The quota that it asks for; it counts where the job is not known yet.
    pub memory: String,
    /// UUID of the device that is meant, as in [`Attach`]; empty for whichever the daemon has.
    pub device: String,
}

/// A process that attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    /// Class of its job.
    pub class: JobClass,
    /// Id of its job; clients of one job share a lease.
    pub job: String,
    /// Program name, for people.
    pub name: String,
    /// Profile file it uses, for people; empty if none.
    pub profile: String,
    /// Where that was measured and what was done about it, for people; empty if on this model of GPU.
    pub profile_fit: String,
    /// UUID of the device it wants to be a client of, as [`format_uuid`] prints it; empty if its
    /// driver does not tell. The default where it is missing is empty.
    pub device: String,
    /// The quota of memory that its job asks for, as [`crate::quota`] reads it; empty for what the daemon
    /// thinks right. Where it is missing the process keeps no account of its memory, and gets no ledger.
    pub memory: Option<String>,
    /// Its slot in the job's [`crate::ledger`] that it had from the daemon before, whose descriptor
    /// then comes with this packet, behind the client's page. Where it is missing there is none.
    pub slot: Option<u16>,
    /// Whether the kernel sends it a signal when what started it ends (`PR_SET_PDEATHSIG`), which who ends its job must know. No where it
    /// is missing.
    pub falls_with_parent: bool,
    /// Whether contexts on the device share it by MPS, as the client's driver says
    /// (`CU_DEVICE_ATTRIBUTE_MPS_ENABLED`). Where it is missing the driver does not say.
    pub is_on_mps: Option<bool>,
    /// What its job asks that requests may take, as [`crate::slo::SloAsked`] reads it; empty, and where it is missing: what
    /// the daemon's configuration says.
    pub slo: String,
    /// What its job may use of the GPU's time, as [`crate::compute::Cap`] reads it; empty, and where it is missing: what the
    /// daemon's configuration says.
    pub compute: String,
    /// Whoever supervises its job starts it anew when it ends, so that the daemon may end the job for
    /// another share of the SMs: the share that the job was started with, per cent. Empty, and where
    /// it is missing: the job is not to be ended.
    pub restartable: String,
}

/// What the daemon answers to [`Request::Attach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Attached. Descriptors follow in the order daemon, high-priority, bell, for best-effort
    /// clients the job's lease page, with a slot the job's ledger, and the client's own page if it
    /// sent none.
    Welcome {
        /// Number of this client, unique while the daemon lives.
        client: u64,
        /// Its slot in the job's [`crate::ledger`]: the one that it came with, if that ledger goes on. Where it is missing there is no
        /// ledger.
        slot: Option<u16>,
        /// Its class: best-effort also where high-priority was asked for and the operator does not allow it. Where
        /// it is missing it is what was asked for.
        class: Option<JobClass>,
    },
    /// What was asked has been done.
    Done,
    /// What a job may hold and holds.
    Memory(MemoryIs),
    /// What is kept of a program's kernels. A memory file follows that nobody can change: a Pillion
    /// profile.
    Learnt {
        /// Whether anything is kept; else there is no descriptor.
        is_known: bool,
    },
    /// Not attached, or not done; a job runs unmanaged. The reason is one sentence for people.
    Refused {
        /// Why.
        reason: String,
    },
}

/// What a job may hold of a GPU's memory, and holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryIs {
    /// [`crate::ledger::UNLIMITED`] is no quota.
    pub quota_bytes: u64,
    /// What its processes hold.
    pub held_bytes: u64,
    /// Its processes that hold memory, as the daemon sees their numbers; at most [`PIDS_MAX`].
    pub pids: Vec<u32>,
}

/// Most processes of a job; see [`crate::ledger::LEDGER_SLOTS`].
pub const PIDS_MAX: usize = crate::ledger::LEDGER_SLOTS;

/// What was wrong with a packet or a connection.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other side speaks another major version.
    #[error("the peer speaks protocol {peer}, this build {VERSION}")]
    Version {
        /// What the peer said.
        peer: Version,
    },
    /// The packet is not one of ours, or cut short.
    #[error("not a Pillion message: {0}")]
    Malformed(&'static str),
    /// The daemon does not do what it was asked.
    #[error("the daemon refuses: {0}")]
    Refused(String),
    /// The other side closed the connection without an answer.
    #[error("the peer closed the connection")]
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
/// In place of a slot: none.
const NO_SLOT: u16 = u16::MAX;
/// The answers to a question, and what stands in place of one.
const NO_ANSWER: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;
/// In place of a user: none is named. It is the kernel's number of nobody's, too (chown(2)).
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

    /// Reads a packet from a process that is not believed.
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

    /// Reads the daemon's packet.
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

/// What a program is called where something is kept of it: `name`, or, where that is longer than a
/// text may be, its end and a number made of all of it.
#[must_use]
pub fn program_key(name: &str) -> String {
    if name.len() <= TEXT_BYTES_MAX {
        return name.to_owned();
    }
    // FNV-1a: two names with the same end are to be told apart, nothing else.
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let number = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let start = name.ceil_char_boundary(name.len() - (TEXT_BYTES_MAX - 24));
    format!("{number:016x}...{}", &name[start..])
}

/// The version that a packet of any version of this protocol says it speaks.
pub fn peer_version(packet: &[u8]) -> Option<Version> {
    let magic = u32::from_le_bytes(packet.get(..4)?.try_into().ok()?);
    let major = u16::from_le_bytes(packet.get(4..6)?.try_into().ok()?);
    let minor = u16::from_le_bytes(packet.get(6..8)?.try_into().ok()?);
    (magic == HELLO_MAGIC).then_some(Version { major, minor })
}

/// Sends one packet with descriptors.
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
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_ANYBODY_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut interrupted = 0;
    let message = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            // Bounded: each try has the whole timeout again, and a timer could interrupt for ever.
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

/// Asks the daemon at `path` for one thing and waits for its answer, no step longer than `patience`.
pub fn ask_once(path: &Path, request: &Request, patience: Duration) -> Result<Reply, HelloError> {
    let (reply, _) = ask_with_version(path, request, patience)?;
    Ok(reply)
}

/// The same, with the version that the daemon speaks: an older one leaves what it does not know of the request.
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

/// Asks the daemon at `path` for its status: one JSON document.
pub fn ask_status(path: &Path) -> Result<String, HelloError> {
    ask_document(connect_to(path)?, &Request::Status)
}

/// The same, with no step that takes longer than `patience`.
pub fn ask_status_within(path: &Path, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::Status)
}

/// Asks the daemon at `path` for what happened after event number `since`: one JSON document. No step takes longer than
/// `patience`.
pub fn ask_events(path: &Path, since: u64, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::Events { since })
}

/// Asks on a connection what is kept of a program, with the process's notebook if it notes: a memory
/// file for reading, or `None` if nothing is kept.
pub fn ask_learnt(
    connection: impl AsFd,
    of: &LearntOf,
    notebook: Option<BorrowedFd<'_>>,
) -> Result<Option<OwnedFd>, HelloError> {
    let request = Request::Learnt(of.clone()).encode();
    send(&connection, &request, notebook.as_slice())?;
    learnt_answer(connection)
}

/// What the daemon answers to [`ask_learnt`], where that took longer than its patience.
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

/// Asks the daemon at `path` of which programs something is kept: one JSON document. No step takes
/// longer than `patience`.
pub fn ask_learnt_list(path: &Path, patience: Duration) -> Result<String, HelloError> {
    ask_document(connect_within(path, patience)?, &Request::LearntList)
}

/// Asks the daemon at `path` for its settings: one JSON document. No step takes longer than
/// `patience`.
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
            // A daemon of another version, or with too much to do, refuses in a message of its own.
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
pub fn send_status(socket: impl AsFd, json: &str) -> io::Result<()> {
    json.as_bytes()
        .chunks(PACKET_BYTES_MAX)
        .try_for_each(|chunk| send(&socket, chunk, &[]))
}

#[cfg(test)]
mod tests;

//! The protocol between the stand-in driver and the device server. It has two parts: *messages*
//! over a `SOCK_SEQPACKET` socket for what is rare and needs an answer ([`Request`], [`Reply`]:
//! hello, contexts, memory, statistics), and *commands* in a ring in shared memory for what is
//! frequent and needs none ([`Command`]: launches, copies, events). The driver reads the results of
//! commands from the same page: per stream the number of the last completed command, per event its
//! time, per context its error.
//!
//! There is one [`DevicePage`] per client process. The driver puts commands, one thread at a time;
//! the server takes them. Neither trusts the other: a command is copied out, decoded and checked,
//! and the tables below bound every index. A message is the version (four bytes, little-endian),
//! then postcard's encoding; numbers of commands are little-endian.
//!
//! **Host memory** that the device accesses lies in the client's *host arena*, a sparse memory file
//! that both map: pinned allocations and staging for pageable copies. A client of several servers
//! has one arena, which the first server creates and the others receive. **Device memory** exists
//! only in the server; its addresses begin at [`device_base`] in every client, as address spaces of
//! processes are separate.
//!
//! **Waiting.** A thread that waits for a command reads the client's progress bell, lowers the
//! stream's `wanted` word to the command's number, checks whether the command is complete, and only
//! then sleeps. The server publishes `completed`, then reads `wanted`, and rings only if that
//! number was reached. Both words are sequentially consistent, so one side sees the other. The
//! server may overwrite a `wanted` that another thread has just lowered. That thread read the bell
//! before, and the server rings it afterwards, so the sleep ends at once and the thread checks
//! again. Times are device nanoseconds, sizes bytes. A *slot* is an index into one of the page's
//! tables.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use arena::HostArena;
pub use command::{Command, StreamKind, Until, Work};
pub use injection::{Injection, MpsFault, NoFault};
pub use memory::{MemoryRequest, SharedEvent};
pub use message::{Reply, Request};
pub use monitor::{
    GovernedState, Health, HealthReport, Monitor, PROCESSES_MAX, ProcessUse, REPORTS_MAX,
    SAMPLE_NS, SAMPLES_MAX, Sample,
};
pub use mps::{MPS_CLIENTS_MAX, MpsClient, MpsClients, MpsRequest};
pub use shape::{Extent, ROWS_MAX, Spot};

mod arena;
mod command;
mod injection;
mod memory;
mod message;
mod monitor;
mod mps;
mod shape;
mod words;

/// Version of everything in this file; every change of a message changes it.
pub const WIRE_VERSION: u32 = 11;
/// "softgpu1", at the head of a page.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"softgpu1");
/// Contexts of one client.
pub const CONTEXTS: usize = 16;
/// Streams of one client, over all of its contexts.
pub const STREAMS: usize = 1024;
/// Most connections from host to device of a context (CUDA C++ Programming Guide, "CUDA Environment
/// Variables", `CUDA_DEVICE_MAX_CONNECTIONS`).
pub const CONNECTIONS_MAX: u32 = 32;
/// Connections of a context whose process does not set the variable (the same page).
pub const CONNECTIONS_DEFAULT: u32 = 8;
/// Events of one client.
pub const EVENTS: usize = 16_384;
/// Launchable graphs of one client.
pub const GRAPHS: usize = 4096;
/// Nodes of one client's graphs, over all graphs.
pub const GRAPH_NODES_MAX: usize = 1 << 20;
/// Due host calls that the driver has not taken: at most one of each stream, which stops at each.
pub const HOST_CALLS: usize = STREAMS;
/// Capacity of the ring, commands.
pub const COMMANDS: usize = 1024;
/// Most incomplete commands of one stream; the driver waits before it puts more. A launch, copy,
/// event record, wait, operation on a value, host function or graph launch is one command. NVIDIA
/// documents no limit; with its drivers a launch blocks after about 1000 launches of a stream
/// (Stack Overflow, question 53970187, 2018).
pub const STREAM_DEPTH_MAX: u64 = 1024;
/// Completed kernels that a page remembers, for a driver that requests their times.
pub const KERNEL_TIMES: usize = 8192;
/// 64-bit words of a command.
pub const COMMAND_WORDS: usize = 24;
/// Parameters of a built-in kernel.
pub const PARAMS: usize = 8;
/// Address of the first byte of device memory, in every client. Linux maps nothing near it.
pub const DEVICE_BASE: u64 = 0x0200_0000_0000;
/// Addresses above [`DEVICE_BASE`] that belong to the device: far more than any device's memory.
pub const DEVICE_SPAN_BYTES: u64 = 1 << 40;
/// Devices of one client, each with a server of its own.
pub const DEVICES: usize = 16;
/// First address of device memory in 32 bits. Drivers then reserve the range in their process.
pub const DEVICE_LOW_BASE: u64 = 0x4000_0000;
/// Size of this range per device.
pub const DEVICE_LOW_SPAN_BYTES: u64 = 0x0400_0000;
/// Sizes of physical memory without an address are multiples of this, and pools grow by it.
pub const GRANULARITY_BYTES: u64 = 2 << 20;
/// Allocations are multiples of this and aligned to it, as CUDA's are at least.
pub const ALLOCATION_ALIGN_BYTES: u64 = 512;
/// Size of a host arena. Pages take memory only once touched.
pub const HOST_ARENA_BYTES: u64 = 16 << 30;
/// Greatest stream priority; as in CUDA, the lower number goes first.
pub const PRIORITY_GREATEST: i32 = -5;
/// Least stream priority.
pub const PRIORITY_LEAST: i32 = 0;
/// Longest packet.
pub const PACKET_BYTES_MAX: usize = 32 * 1024;
/// Longest label or device name in a packet.
pub const TEXT_BYTES_MAX: usize = 256;

/// First address of the memory of a client's `index`th device: devices share no address.
pub fn device_base(index: usize) -> u64 {
    DEVICE_BASE + index as u64 * DEVICE_SPAN_BYTES
}

/// Puts a word on a cache line of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// What one client and the server share.
#[derive(Debug)]
#[repr(C)]
pub struct DevicePage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// Calls of entry points that the software GPU lacks.
    pub not_supported: AtomicU64,
    /// Launches, of kernels and graphs, recorded into a capture, which do not reach the server.
    pub captured: AtomicU64,
    /// Flag: the driver wants the times of kernels. The driver writes it.
    pub wants_kernel_times: AtomicU64,
    /// Number of commands ever taken. The server writes it.
    pub taken: Line<AtomicU64>,
    /// Number of commands ever put. The driver writes it.
    pub put: Line<AtomicU64>,
    /// First error of each context, a CUDA result code; 0 is none. The server writes it.
    pub errors: Line<[AtomicU32; CONTEXTS]>,
    /// Progress of each stream.
    pub streams: [StreamProgress; STREAMS],
    /// Time of each event.
    pub events: [EventTime; EVENTS],
    /// The ring.
    pub commands: [CommandSlot; COMMANDS],
    /// Host calls that ever became due. The server writes it, and rings the client's bell.
    pub host_due: Line<AtomicU64>,
    /// The numbers of the last of these calls.
    pub host_calls: [AtomicU64; HOST_CALLS],
    /// Number of kernels completed since the driver wanted their times. The server writes it.
    pub kernels_done: Line<AtomicU64>,
    /// Times of the last of these.
    pub kernel_times: [KernelTime; KERNEL_TIMES],
}

/// Progress of a stream.
#[derive(Debug, Default)]
#[repr(C)]
pub struct StreamProgress {
    /// Number of the last completed command.
    pub completed: AtomicU64,
    /// Lowest number that a thread sleeps for; `u64::MAX` if none does.
    pub wanted: AtomicU64,
}

/// The last completed record of an event.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EventTime {
    /// Number of the record; later records have higher numbers.
    pub record: AtomicU64,
    /// Its time.
    pub at_ns: AtomicU64,
}

/// Times of a kernel.
#[derive(Debug, Default)]
#[repr(C)]
pub struct KernelTime {
    /// Slot of its stream. Kernels of one stream complete in the order of their commands.
    pub stream: AtomicU64,
    /// Start of its first block.
    pub started_ns: AtomicU64,
    /// End of its last block.
    pub ended_ns: AtomicU64,
}

/// One command as words.
#[derive(Debug)]
#[repr(C)]
pub struct CommandSlot(pub [AtomicU64; COMMAND_WORDS]);

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<StreamProgress>() == 16 && size_of::<EventTime>() == 16);
    assert!(size_of::<CommandSlot>() == 8 * COMMAND_WORDS);
    assert!(offset_of!(DevicePage, taken) == 64 && offset_of!(DevicePage, put) == 128);
    assert!(offset_of!(DevicePage, errors) == 192 && offset_of!(DevicePage, streams) == 256);
    assert!(offset_of!(DevicePage, events) == 256 + 16 * STREAMS);
    assert!(offset_of!(DevicePage, commands) == 256 + 16 * (STREAMS + EVENTS));
    assert!(
        offset_of!(DevicePage, host_due)
            == 256 + 16 * (STREAMS + EVENTS) + 8 * COMMAND_WORDS * COMMANDS
    );
    assert!(
        offset_of!(DevicePage, kernels_done)
            == offset_of!(DevicePage, host_due) + 64 + 8 * HOST_CALLS
    );
    assert!(
        size_of::<DevicePage>() == offset_of!(DevicePage, kernels_done) + 64 + 24 * KERNEL_TIMES
    );
};

/// A fault of a command or packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A number without a meaning.
    #[error("unknown {0}")]
    Unknown(&'static str),
    /// Shorter than the message requires.
    #[error("truncated packet")]
    Short,
    /// A text that is too long or not UTF-8.
    #[error("a text is too long or not UTF-8")]
    Text,
    /// The peer is of another build.
    #[error(
        "the peer speaks version {0} of the software GPU's protocol, this build speaks \
         {WIRE_VERSION}: use programs of one build"
    )]
    Version(u32),
}

impl DevicePage {
    /// Initialises a page of zeroed memory. The server calls it before it hands the page out.
    pub fn initialise(&self) {
        for stream in &self.streams {
            stream.wanted.store(u64::MAX, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in the driver (`link.rs`): a client that sees the number
        // sees an initialised page.
        self.magic.store(PAGE_MAGIC, Ordering::Release);
    }

    /// Puts a command; false if the ring is full. Only one thread may put at a time.
    pub fn try_put(&self, command: &Command) -> bool {
        let put = self.put.0.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `take`: the slot's old words have been read.
        if put.wrapping_sub(self.taken.0.load(Ordering::Acquire)) >= COMMANDS as u64 {
            return false;
        }
        let slot = &self.commands[put as usize % COMMANDS];
        for (to, word) in slot.0.iter().zip(command.encode()) {
            to.store(word, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `take`: a thread that sees the count sees the words.
        self.put.0.store(put + 1, Ordering::Release);
        true
    }

    /// Takes the next command. Only for one thread of the server. A client that moves `put` beyond
    /// the ring's size harms only itself: it gets its own old words again.
    pub fn take(&self) -> Option<Result<Command, WireError>> {
        let taken = self.taken.0.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `try_put`: the slot's words are there.
        if self.put.0.load(Ordering::Acquire) == taken {
            return None;
        }
        let slot = &self.commands[taken as usize % COMMANDS];
        let words = std::array::from_fn(|word| slot.0[word].load(Ordering::Relaxed));
        // Release pairs with the Acquire in `try_put`: the slot's words have been read.
        self.taken.0.store(taken.wrapping_add(1), Ordering::Release);
        Some(Command::decode(&words))
    }

    /// Whether command `seq` of a stream is complete.
    pub fn is_complete(&self, stream: u32, seq: u64) -> bool {
        // Pairs with the store in `publish`: a thread that sees the command complete sees its
        // effects. SeqCst, because a waiting thread stores `wanted` before this load, and `publish`
        // stores `completed` before it loads `wanted`: at least one of them sees the other's store.
        // With weaker orders both could miss it, and the thread would sleep on.
        self.streams[stream as usize]
            .completed
            .load(Ordering::SeqCst)
            >= seq
    }

    /// Announces that a thread will sleep for `seq`. Check [`Self::is_complete`] again afterwards.
    pub fn want(&self, stream: u32, seq: u64) {
        // SeqCst: see `is_complete`.
        self.streams[stream as usize]
            .wanted
            .fetch_min(seq, Ordering::SeqCst);
    }

    /// Publishes that command `seq` is complete. True if a thread must be woken; a woken thread
    /// whose command is not complete waits again.
    pub fn publish(&self, stream: u32, seq: u64) -> bool {
        let progress = &self.streams[stream as usize];
        // SeqCst: see `is_complete`.
        progress.completed.store(seq, Ordering::SeqCst);
        if progress.wanted.load(Ordering::SeqCst) > seq {
            return false;
        }
        progress.wanted.store(u64::MAX, Ordering::SeqCst);
        true
    }

    /// Publishes that a host call is due.
    pub fn publish_host_call(&self, call: u64) {
        let due = self.host_due.0.load(Ordering::Relaxed);
        self.host_calls[due as usize % HOST_CALLS].store(call, Ordering::Relaxed);
        // Release pairs with the Acquire in `host_call`.
        self.host_due
            .0
            .store(due.wrapping_add(1), Ordering::Release);
    }

    /// Host call number `taken`, counted from 0 over the life of the page, if it is due.
    pub fn host_call(&self, taken: u64) -> Option<u64> {
        // Acquire pairs with the Release in `publish_host_call`: the number is visible.
        (self.host_due.0.load(Ordering::Acquire) > taken)
            .then(|| self.host_calls[taken as usize % HOST_CALLS].load(Ordering::Relaxed))
    }

    /// Publishes a kernel's times, if the driver wants them.
    pub fn publish_kernel(&self, stream: u32, started_ns: u64, ended_ns: u64) {
        if self.wants_kernel_times.load(Ordering::Relaxed) == 0 {
            return;
        }
        let done = self.kernels_done.0.load(Ordering::Relaxed);
        let time = &self.kernel_times[done as usize % KERNEL_TIMES];
        time.stream.store(stream.into(), Ordering::Relaxed);
        time.started_ns.store(started_ns, Ordering::Relaxed);
        time.ended_ns.store(ended_ns, Ordering::Relaxed);
        // Release pairs with the Acquire in `kernel_time`.
        self.kernels_done
            .0
            .store(done.wrapping_add(1), Ordering::Release);
    }

    /// The stream, the start and the end of kernel number `taken`, counted from 0, once complete. A
    /// caller that is more than [`KERNEL_TIMES`] late gets another kernel's.
    pub fn kernel_time(&self, taken: u64) -> Option<(u32, u64, u64)> {
        // Acquire pairs with the Release in `publish_kernel`: the times are visible.
        if self.kernels_done.0.load(Ordering::Acquire) <= taken {
            return None;
        }
        let time = &self.kernel_times[taken as usize % KERNEL_TIMES];
        Some((
            time.stream.load(Ordering::Relaxed) as u32,
            time.started_ns.load(Ordering::Relaxed),
            time.ended_ns.load(Ordering::Relaxed),
        ))
    }

    /// Publishes the time of an event's record, unless a later record has one already.
    pub fn publish_event(&self, event: u32, record: u64, at_ns: u64) {
        let time = &self.events[event as usize];
        if time.record.load(Ordering::Relaxed) <= record {
            time.at_ns.store(at_ns, Ordering::Relaxed);
            // No load pairs with this: only the server reads `record`. Clients read `at_ns` once
            // they see the command complete (`is_complete`).
            time.record.store(record, Ordering::Release);
        }
    }
}

fn slot(number: u32, slots: usize, what: &'static str) -> Result<u32, WireError> {
    if (number as usize) < slots {
        Ok(number)
    } else {
        Err(WireError::Unknown(what))
    }
}

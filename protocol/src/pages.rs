//! The pages that daemon and clients share, and their write access.
//!
//! | page | made by | daemon | HP client | BE client |
//! |---|---|---|---|---|
//! | [`DaemonPage`] | daemon, one per GPU | writes | reads | reads |
//! | [`HpPage`] | daemon, one per GPU | writes | writes | reads |
//! | [`BellPage`] | daemon, one per GPU | waits | - | rings |
//! | [`ClientPage`] | client, for all its daemons | both | both | both |
//! | [`LeasePage`] | daemon, one per BE job | both | - | both |
//!
//! "Reads" is enforced by a read-only descriptor. Pages start zeroed and have only atomics, so no
//! value is ever invalid. Compile-time assertions check sizes and offsets, because both sides may
//! come from different builds: all minor versions ([`crate::VERSION`]) share them. Additions go
//! into padding or, for counters, into [`COUNTERS_ROOM`].

use crate::batches::{self, Batches};
use crate::longest::{self, Longest};
use crate::ring::{Mpsc, Spsc};
use crate::sync::{AtomicU32, AtomicU64, Line, SeqLock};

/// Rings that threads of one client can claim for themselves; all further threads share one.
pub const RINGS: usize = 64;

/// Records per ring. A launch every 5 us makes 200 records in 1 ms, the daemon's longest poll
/// interval.
pub const RING_RECORDS: usize = 1024;

/// Words for [`Counter`]s in a client's page, with room for those of later minor versions. The last
/// words of version 2.0's room are now [`Told::longest`], those before them [`Told::batches`].
pub const COUNTERS_ROOM: usize = 128 - longest::WORDS - batches::WORDS;

/// Marks the head of each page as Pillion's.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"pillion1");

/// A futex word on which threads of several processes sleep; see `bell`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Bell {
    /// The futex word: changes with every ring.
    pub word: AtomicU32,
    /// Threads that sleep on it, or are about to: zero lets the ringer skip the system call.
    pub sleepers: AtomicU32,
    /// Name of this bell on the virtual clock, unique among the processes that share one.
    pub key: AtomicU64,
}

/// The daemon's words to every client of a GPU.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct DaemonPage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// Time of the daemon's last poll, on the shared clock; 0 after an orderly exit. A daemon whose
    /// heartbeat is older than [`SILENCE_NS_MAX`] while a client waits counts as gone.
    pub heartbeat_ns: AtomicU64,
    /// Flag: the daemon sleeps without a timeout; its heartbeat may then age.
    pub asleep: AtomicU32,
    /// What best-effort launches do when the daemon is gone: [`ON_LOSS_RUN`] or [`ON_LOSS_HOLD`].
    pub on_daemon_loss: AtomicU32,
    /// Longest wait at the gate before one launch is granted and charged, ns.
    pub max_hold_ns: AtomicU64,
    /// Expected duration charged for a kernel without a profile, ns.
    pub unknown_ns: AtomicU64,
    /// Flag: best-effort clients charge kernels' measured durations instead of their profiles'.
    pub learnt_durations: AtomicU32,
    /// Always zero; room for a later version.
    _reserved: AtomicU32,
    /// Flag: the daemon knows marks ([`crate::record::Record::is_mark`]), else they are faults.
    pub marks: AtomicU32,
    /// Flag: one-dimensional BE copies of [`LARGE_COPY_BYTES`] or more are charged and wait as
    /// launches; from 3.5.
    pub gates_copies: AtomicU32,
    /// Zero. What high-priority launches read begins on a cache line of its own.
    _reserved_too: [AtomicU32; 2],
    /// The epoch that live leases name; 0 if there are none. Every HP launch reads it.
    pub live_epoch: AtomicU64,
    /// Flag: high-priority launches on default streams carry no priority of ours, so that blocks of
    /// best-effort kernels need not wait for them (`Gate::gives_priority` of the policy).
    pub plain_priority: AtomicU32,
    /// Number of the trace in progress; 0: none. Clients then report launches with times, copies,
    /// kernels' names ([`crate::record`]). Every launch reads this: it lies beside `live_epoch`.
    pub trace: AtomicU32,
}

/// A one-dimensional copy of so many bytes or more counts as a launch: 0.1 ms (PCIe 3.0), as an
/// unknown kernel.
pub const LARGE_COPY_BYTES: usize = 1 << 20;

/// Longest silence of a daemon whose connection is open. On a busy host a daemon is late by tens of
/// milliseconds; after a longer silence it is stopped or hangs, and counts as gone.
pub const SILENCE_NS_MAX: u64 = 5_000_000_000;
/// Best-effort launches continue without a daemon, and are charged.
pub const ON_LOSS_RUN: u32 = 0;
/// Best-effort launches wait for the daemon's return, at most `max_hold` each.
pub const ON_LOSS_HOLD: u32 = 1;

/// The words of high-priority clients to best-effort ones.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HpPage {
    /// Only grows. 0 is never a live epoch: the daemon starts at 1.
    pub epoch: Line<AtomicU64>,
}

/// The bell that wakes the daemon.
#[derive(Debug, Default)]
#[repr(C)]
pub struct BellPage {
    /// Rung by best-effort threads that begin to wait and by helper threads that saw work complete.
    pub bell: Bell,
}

/// The words that one client and the daemon share.
#[derive(Debug)]
#[repr(C)]
pub struct ClientPage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// Best-effort threads of this client that wait at the gate.
    pub waiting: AtomicU32,
    /// Flag: the daemon asks the client's helper thread to find out what has completed.
    pub probe: AtomicU32,
    /// Expected ns that this client has ever charged; see [`Charges::total_ns`].
    pub charged_ns: AtomicU64,
    /// Expected ns of this client's launches ever seen complete.
    pub completed_ns: AtomicU64,
    /// Wakes the client's helper thread.
    pub helper_bell: Bell,
    /// Flag: the daemon has detached this client and serves these pages no longer.
    pub detached: AtomicU32,
    /// Non-zero: this process must launch nothing more, wait for its work in flight and exit. The
    /// daemon sets [`STOP_ASKED`]; the client sets [`STOP_OVERDUE`] and [`STOP_GAVE_UP`].
    pub stop: AtomicU32,
    /// The client's first sticky CUDA error, after which no CUDA call of it succeeds; 0: none.
    pub sticky: AtomicU32,
    /// End of this process's supervised exit, in whole seconds of `CLOCK_MONOTONIC`; 0: not
    /// supervised. Until then, a process that a signal asks to end does not exit with work in
    /// flight: it sets [`STOP_OVERDUE`] and stays for a further [`FROZEN_NS`], repeatedly, while
    /// the supervisor has MPS terminate the work and kills the process; if MPS refuses, at the end
    /// of the grace period. The daemon writes this, and only if MPS shares the GPU.
    ///
    /// [`FROZEN_NS`]: crate::ending::FROZEN_NS
    pub seen_to_until_s: AtomicU32,
    /// The client's report, mostly for display.
    pub told: Line<Told>,
    /// Thread id of each ring's owner; 0 is free. A thread claims the first free ring before its
    /// first record, and never releases it: see [`ClientPage::rings_claimed`].
    pub ring_owner: Line<[AtomicU32; RINGS]>,
    /// Launches that the driver accepted from a ring's owner: [`ClientPage::count_launch_of_ring`].
    pub ring_launches: Line<[AtomicU64; RINGS]>,
    /// The rings of the threads that own one.
    pub rings: [Spsc<RING_RECORDS>; RINGS],
    /// The ring of all further threads.
    pub shared_ring: Mpsc<RING_RECORDS>,
}

/// In [`ClientPage::stop`]: the daemon asks the process to end.
pub const STOP_ASKED: u32 = 1;
/// In [`ClientPage::stop`]: a signal asked the process to end, its drain time is over, and work is
/// still in flight. Set only for a supervised exit ([`ClientPage::seen_to_until_s`]).
pub const STOP_OVERDUE: u32 = 2;
/// In [`ClientPage::stop`]: the drain time is over, work is in flight, and the process exits now.
pub const STOP_GAVE_UP: u32 = 3;

/// A client's report, mostly for display. Decisions use the supported batches, and of the counters
/// [`Counter::Collectives`], [`Counter::Dropped`], [`Counter::Launches`], [`Counter::Copies`] and
/// [`Counter::Iterations`].
#[derive(Debug)]
#[repr(C)]
pub struct Told {
    /// Statistics, indexed by [`Counter`]; zero beyond the counters that the client knows.
    pub counters: [AtomicU64; COUNTERS_ROOM],
    /// The batches that the client supports, and the wanted ones. Zero from a peer before 3.8.
    pub batches: Batches,
    /// The longest kernels that the client has seen.
    pub longest: Longest,
}

/// The launches that a best-effort job may make without asking.
#[derive(Debug, Default)]
#[repr(C)]
pub struct LeasePage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// Odd while the daemon writes the terms, which are whole if it is even and unchanged.
    pub generation: SeqLock,
    /// `hp_epoch` under which the lease was made.
    pub epoch: AtomicU64,
    /// When the lease ends, on the shared clock.
    pub expiry_ns: AtomicU64,
    /// A launch is within the budget if the charges before it are below this sum.
    pub limit_total_ns: AtomicU64,
    /// Most SMs a kernel may need.
    pub sms_max: AtomicU32,
    /// Low byte: `policy::ClassSet` bits; then the `LEASE_` bits below.
    pub terms: AtomicU32,
    /// Rung when the terms change while a thread waits.
    pub bell: Bell,
    /// The job's charges. Alone on its line: every best-effort launch of the job adds to it.
    pub charges: Line<Charges>,
}

/// The charges of all clients of a job.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Charges {
    /// Expected ns ever charged. Never reset: the daemon moves the limit instead, as a late refund
    /// must not affect another lease.
    pub total_ns: AtomicU64,
    /// Refunds ever made, to detect one during the daemon's reads (`LeasePage::read_settled`). A
    /// library that does not count them may be granted one refused launch too many.
    pub refunds: AtomicU64,
}

/// Term bit: the lease was made while high-priority work was in flight.
pub const LEASE_BESIDE_HP: u32 = 1 << 8;
/// Term bit: every launch may go (policy `none`, or no high-priority job to protect).
pub const LEASE_UNGATED: u32 = 1 << 9;
/// Term bit: no launch goes, not even after `max_hold`: an operator, a rule or the probe holds the
/// job, or, with [`LEASE_PAUSED`], a law of the policy. In older libraries one launch goes each
/// `max_hold`.
pub const LEASE_HELD: u32 = 1 << 11;
/// Term bit, with [`LEASE_HELD`]: a law of the policy stops all launches, and large copies wait
/// too. Copies do not wait when an operator or a rule holds the job.
pub const LEASE_PAUSED: u32 = 1 << 12;
/// Term bit: a launch must fit in the budget, cost included; older libraries overshoot by one.
pub const LEASE_WHOLE: u32 = 1 << 10;

/// Term bit: high-priority work does not void the lease, as no job is protected from this one. A
/// library that does not know the bit treats the lease as void after such work.
pub const LEASE_STANDING: u32 = 1 << 13;
/// Term bit, with [`LEASE_PAUSED`]: the job has used up its share of GPU time. Collectives still
/// go, and are charged.
pub const LEASE_RATED: u32 = 1 << 14;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal $(at $index:literal)?,)*) => {
        /// A client's counts for `status`: totals, or current numbers ([`Counter::is_total`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name $(= $index)?,)* }

        impl Counter {
            /// Every counter, in the order of their index.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

counters! {
    /// Kernel launches that the driver accepted and that ran, excluding those in graphs.
    Launches = "launches",
    /// Launches recorded into a capture, which did not run then.
    Captured = "launches_captured",
    /// Graph launches that the driver accepted.
    GraphLaunches = "graph_launches",
    /// Kernels that these graph launches ran.
    GraphKernels = "graph_kernels",
    /// Host functions enqueued in streams.
    HostCalls = "host_calls",
    /// Best-effort launches, not copies, granted by a lease made beside busy high-priority work.
    BesideHp = "launches_beside_hp",
    /// Best-effort launches and large copies that waited at the gate.
    Held = "launches_held",
    /// Time that threads waited at the gate, ns, summed.
    HeldNs = "held_ns",
    /// Launches and large copies granted because `max_hold` expired.
    Forced = "launches_forced",
    /// Waits at the gate that a signal ended.
    Interrupted = "holds_interrupted",
    /// Launches, not copies, that the epoch overtook between check and driver call.
    Slips = "slips",
    /// Launches and large copies that went ungated because the daemon was gone.
    Unmanaged = "launches_unmanaged",
    /// Records dropped because their ring was full; also 1 for each new daemon, so that it asks the
    /// client.
    Dropped = "records_dropped",
    /// Launches whose kernel and shape have no profile.
    UnknownKernels = "launches_unknown",
    /// Panics in Pillion's code that were caught; the real call was made.
    Panics = "panics_caught",
    /// Libraries opened in a way that bypasses the hooks (`RTLD_DEEPBIND`, `dlmopen`).
    Bypasses = "bypasses",
    /// Allocations that the driver granted.
    Allocations = "allocations",
    /// Bytes of device memory requested by these.
    AllocatedBytes = "allocated_bytes",
    /// Freed allocations, arrays and memory handles.
    Frees = "frees",
    /// Copies that the driver accepted.
    Copies = "copies",
    /// Bytes copied from host to device.
    CopiedHtoDBytes = "copied_h2d_bytes",
    /// Bytes copied from device to host.
    CopiedDtoHBytes = "copied_d2h_bytes",
    /// Bytes copied within the device, or in a direction that the driver determines.
    CopiedOtherBytes = "copied_other_bytes",
    /// Bytes set by memset calls.
    SetBytes = "set_bytes",
    /// Bytes of pinned host memory that the application requested or registered.
    HostBytes = "host_bytes",
    /// Entry points that the program obtained as our hook, each counted once.
    ResolvedHooked = "resolved_hooked",
    /// Entry points that the program obtained as the driver's own, each counted once.
    ResolvedPassed = "resolved_passed",
    /// Entry points of the driver that our table lacks.
    ResolvedUnknown = "resolved_unknown",
    /// Hooked calls from inside a hook (the driver's own, a tool's), passed through.
    NestedCalls = "calls_nested",
    /// Launches on devices without a daemon, passed through.
    ForeignLaunches = "launches_foreign",
    /// Calls of hooks about contexts.
    ContextCalls = "calls_context",
    /// Calls of hooks that copy or fill.
    CopyCalls = "calls_copy",
    /// Calls of hooks that initialise.
    EntryCalls = "calls_entry",
    /// Calls of hooks about graphs and capture.
    GraphCalls = "calls_graph",
    /// Calls of hooks about memory.
    MemoryCalls = "calls_memory",
    /// Calls of hooks about modules, libraries and functions.
    ModuleCalls = "calls_module",
    /// Calls of hooks about streams.
    StreamCalls = "calls_stream",
    /// Calls of hooks that wait or signal.
    SyncCalls = "calls_sync",
    /// Calls of all other hooks except launches, which have their own counters.
    OtherCalls = "calls_other",
    /// Calls of operators (cuBLAS, cuBLASLt, cuDNN), excluding those inside others.
    OperatorCalls = "calls_operator",
    /// Launches inside an operator, captured ones included: they carry its label.
    Labelled = "launches_labelled",
    /// Operators counted in place of launches that were not seen.
    OperatorsAsLaunches = "operators_as_launches",
    /// Kernels and graphs whose measured duration replaces the profile's; now, in live processes.
    KernelsLearnt = "kernels_learnt",
    /// Streams that share a priority unasked: a class has only a part of the device's levels.
    // 43 to 45 were other counters in older clients.
    PrioritiesShared = "priorities_shared" at 46,
    /// Launch functions of the driver that the program obtained past our hooks, each counted once.
    LaunchesPassedBy = "launch_functions_passed_by",
    /// Collective kernels (NCCL, NVSHMEM) that a BE client launched, refused and in graphs too.
    Collectives = "launches_collective",
    /// Launches of these that did not wait although no lease allowed them.
    CollectivesPassed = "collectives_passed",
    /// Expected duration of launches, ns, the base of the next two counters: in a best-effort
    /// client, of launches recorded for learning. For a high-priority client the daemon sums up its
    /// records instead. 0 for a client older than protocol 3.2, too.
    GpuTime = "gpu_time_ns",
    /// The part of kernels whose duration is known, from a profile or learnt.
    GpuTimeKnown = "gpu_time_known_ns",
    /// The part of kernels that have a resource class.
    GpuTimeClassed = "gpu_time_classed_ns",
    /// Ended requests that the program marked; only the daemon counts them, from HP records.
    RequestsMarked = "requests_marked",
    /// Iterations that the program has reported.
    Iterations = "iterations",
    /// Impossible marks: arrived in the future, over 1 h ago; ended twice, never begun; bad target.
    MarksRefused = "marks_refused",
    /// Requests inferred from HP launches, marked or not; only the daemon counts them.
    RequestsInferred = "requests_inferred",
}

impl Counter {
    /// Whether this is a total, kept when a process ends, not a current number, which drops out.
    pub const fn is_total(self) -> bool {
        !matches!(self, Self::KernelsLearnt)
    }
}

impl ClientPage {
    /// Words before the rings: sums, counters, and the owners of rings.
    pub const WORDS_BEFORE_RINGS: usize = core::mem::offset_of!(Self, rings) / 8;

    /// Adds to a counter; returns its former value. Relaxed: totals are read for display and order
    /// nothing. [`Counter::Collectives`] affects leases, one poll later if read late.
    #[inline]
    pub fn count(&self, counter: Counter, by: u64) -> u64 {
        self.told.counters[counter as usize].fetch_add(by, crate::sync::Ordering::Relaxed)
    }

    /// Counts a launch by the thread that owns a ring. A load and a store, as the owner is the only
    /// writer: an atomic add would be a tenth of what a high-priority launch may cost.
    #[inline]
    pub fn count_launch_of_ring(&self, ring: usize) {
        if let Some(launches) = self.ring_launches.get(ring) {
            let before = launches.load(crate::sync::Ordering::Relaxed);
            launches.store(before.wrapping_add(1), crate::sync::Ordering::Relaxed);
        }
    }

    /// Stores a current number, or a total that one thread keeps.
    pub fn tell(&self, counter: Counter, count: u64) {
        self.told.counters[counter as usize].store(count, crate::sync::Ordering::Relaxed);
    }

    /// How many rings may have records, counted from the first, if `known` do: those with a present
    /// or former owner. A daemon reads no others, as each ring has cache lines and a page of its
    /// own. Relaxed: a thread claims a ring before it pushes the ring's first record. Whatever
    /// makes that record visible (the epoch's bump, or both fences of `lease`) therefore also makes
    /// visible its owner, and the owners of earlier rings, which the thread found taken.
    pub fn rings_claimed(&self, known: usize) -> usize {
        let free = |owner: &AtomicU32| owner.load(crate::sync::Ordering::Relaxed) == 0;
        let further = self
            .ring_owner
            .iter()
            .skip(known)
            .take_while(|owner| !free(owner));
        known + further.count()
    }

    /// A counter's running total.
    pub fn counted(&self, counter: Counter) -> u64 {
        let load = |word: &AtomicU64| word.load(crate::sync::Ordering::Relaxed);
        let shared = load(&self.told.counters[counter as usize]);
        match counter {
            // Wrapping: the words may be a lying client's.
            Counter::Launches => self
                .ring_launches
                .iter()
                .fold(shared, |sum, word| sum.wrapping_add(load(word))),
            _ => shared,
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Bell>() == 16);
    assert!(size_of::<DaemonPage>() == 128 && offset_of!(DaemonPage, live_epoch) == 64);
    assert!(offset_of!(DaemonPage, plain_priority) == 72 && offset_of!(DaemonPage, trace) == 76);
    assert!(offset_of!(DaemonPage, gates_copies) == 52);
    assert!(offset_of!(DaemonPage, max_hold_ns) == 24 && offset_of!(DaemonPage, unknown_ns) == 32);
    assert!(offset_of!(DaemonPage, learnt_durations) == 40);
    assert!(offset_of!(DaemonPage, _reserved) == 44 && offset_of!(DaemonPage, marks) == 48);
    assert!(size_of::<HpPage>() == 64);
    assert!(size_of::<LeasePage>() == 128 && offset_of!(LeasePage, charges) == 64);
    assert!(offset_of!(LeasePage, limit_total_ns) == 32 && offset_of!(LeasePage, bell) == 48);
    assert!(offset_of!(ClientPage, charged_ns) == 16 && offset_of!(ClientPage, helper_bell) == 32);
    assert!(offset_of!(ClientPage, detached) == 48 && offset_of!(ClientPage, stop) == 52);
    assert!(offset_of!(ClientPage, sticky) == 56 && offset_of!(ClientPage, seen_to_until_s) == 60);
    assert!(offset_of!(ClientPage, told) == 64);
    assert!(Counter::KernelsLearnt as usize == 42);
    assert!(Counter::GpuTime as usize == 50 && Counter::RequestsMarked as usize == 53);
    assert!((Counter::ALL[Counter::ALL.len() - 1] as usize) < COUNTERS_ROOM);
    assert!(offset_of!(Told, longest) == 8 * (128 - longest::WORDS));
    assert!(offset_of!(Told, batches) == 8 * 68 && size_of::<Told>() == 8 * 128);
    assert!(size_of::<Batches>() == 8 * batches::WORDS);
    let owners = 64 + 8 * 128;
    let rings = owners + 4 * RINGS + 8 * RINGS;
    assert!(offset_of!(ClientPage, ring_owner) == owners);
    assert!(offset_of!(ClientPage, ring_launches) == owners + 4 * RINGS);
    assert!(offset_of!(ClientPage, rings) == rings);
    let ring = size_of::<Spsc<RING_RECORDS>>();
    assert!(ring == 128 + 64 * RING_RECORDS);
    assert!(offset_of!(ClientPage, shared_ring) == rings + RINGS * ring);
    assert!(size_of::<ClientPage>().is_multiple_of(64));
};

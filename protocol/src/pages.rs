//! The pages that daemon and clients share, and who may write what.
//!
//! | page | made by | daemon | HP client | BE client |
//! |---|---|---|---|---|
//! | [`DaemonPage`] | daemon, one per GPU | writes | reads | reads |
//! | [`HpPage`] | daemon, one per GPU | writes | writes | reads |
//! | [`BellPage`] | daemon, one per GPU | waits | - | rings |
//! | [`ClientPage`] | client, for all its daemons | both | both | both |
//! | [`LeasePage`] | daemon, one per BE job | both | - | both |
//!
//! "Reads" is enforced: the client gets a read-only file descriptor. All pages start as zeroed
//! memory and hold atomics only, so no value in them is ever invalid; their sizes and offsets are
//! asserted at compile time, because both sides may come from different builds. They are the same in
//! all minor versions of the protocol ([`crate::VERSION`]): what is added goes into padding or, for
//! counters, into [`COUNTERS_ROOM`].

use crate::batches::{self, Batches};
use crate::longest::{self, Longest};
use crate::ring::{Mpsc, Spsc};
use crate::sync::{AtomicU32, AtomicU64, Line, SeqLock};

/// Rings that threads of one client can claim for themselves; further threads share one.
pub const RINGS: usize = 64;

/// Records per ring. A burst of launches every 5 us fills 200 in the daemon's slowest poll (1 ms).
pub const RING_RECORDS: usize = 1024;

/// Words for [`Counter`]s in a client's page: room for those of minor versions to come. The last words of what
/// version 2.0 had as room are [`Told::longest`], those before them [`Told::batches`].
pub const COUNTERS_ROOM: usize = 128 - longest::WORDS - batches::WORDS;

/// Says "this is ours" at the head of each page.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"pillion1");

/// A word that threads of several processes sleep on; see `bell`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Bell {
    /// The futex word: changes with every ring.
    pub word: AtomicU32,
    /// Threads asleep on it, or about to be: zero lets the ringer skip the system call.
    pub sleepers: AtomicU32,
    /// Name of this bell on the virtual clock, unique among the processes that share one.
    pub key: AtomicU64,
}

/// What the daemon tells every client of a GPU.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct DaemonPage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// When the daemon last polled, on the shared clock; 0 once it has ended in order. A daemon whose
    /// heartbeat is older than [`SILENCE_NS_MAX`] while a client waits counts as gone.
    pub heartbeat_ns: AtomicU64,
    /// Non-zero while the daemon sleeps without a timeout; its heartbeat is then allowed to age.
    pub asleep: AtomicU32,
    /// What best-effort launches do when the daemon is gone: [`ON_LOSS_RUN`] or [`ON_LOSS_HOLD`].
    pub on_daemon_loss: AtomicU32,
    /// Longest wait at the gate before one launch is granted and charged, ns.
    pub max_hold_ns: AtomicU64,
    /// Expected duration charged for a kernel that no profile knows, ns.
    pub unknown_ns: AtomicU64,
    /// Non-zero: best-effort clients charge what kernels were seen to take, not what their profiles
    /// say.
    pub learnt_durations: AtomicU32,
    /// Zero, for good: clients that were built while copies could be cut (2.2 to early 2.4) take
    /// another value as that.
    _reserved: AtomicU32,
    /// Non-zero: the daemon knows what clients say of their requests
    /// ([`crate::record::Record::is_mark`]), which others count as faults.
    pub marks: AtomicU32,
    /// Non-zero: a copy of [`LARGE_COPY_BYTES`] or more of a best-effort client is charged and waits for
    /// a lease as a launch does. A daemon before 3.5 never says so.
    pub gates_copies: AtomicU32,
    /// Zero. What high-priority launches read begins on a line of its own.
    _reserved_too: [AtomicU32; 2],
    /// The epoch that live leases name; 0 if none does. Every HP launch reads it.
    pub live_epoch: AtomicU64,
    /// Non-zero: high-priority launches on default streams carry no priority of ours, so that blocks
    /// of best-effort kernels need not wait for them (`Gate::gives_priority` of the policy).
    pub plain_priority: AtomicU32,
    /// Non-zero while a trace is taken, and which: every client tells of its launches, when they
    /// were made, of its copies, and what its kernels are called ([`crate::record`]). Every launch
    /// reads it, so it lies beside `live_epoch`.
    pub trace: AtomicU32,
}

/// A copy of so many bytes counts as a launch does: a tenth of a millisecond over PCIe 3.0, as long as a
/// kernel that nobody knows is taken to be.
pub const LARGE_COPY_BYTES: usize = 1 << 20;

/// Longest silence of a daemon whose connection is open. On a busy host a daemon is late by tens of
/// milliseconds; one that is silent for longer than this is stopped, or hangs, and counts as gone.
pub const SILENCE_NS_MAX: u64 = 5_000_000_000;
/// Best-effort launches go on without a daemon, and are charged.
pub const ON_LOSS_RUN: u32 = 0;
/// Best-effort launches wait for the daemon's return, at most `max_hold` each.
pub const ON_LOSS_HOLD: u32 = 1;

/// What high-priority clients tell best-effort ones.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HpPage {
    /// Monotonic, never cleared; 0 is never a live epoch, the daemon starts it at 1.
    pub epoch: Line<AtomicU64>,
}

/// The bell that wakes the daemon.
#[derive(Debug, Default)]
#[repr(C)]
pub struct BellPage {
    /// Rung by best-effort threads that begin to wait and by helpers that saw work complete.
    pub bell: Bell,
}

/// Everything one client and the daemon share.
#[derive(Debug)]
#[repr(C)]
pub struct ClientPage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// Best-effort threads of this client that wait at the gate.
    pub waiting: AtomicU32,
    /// Non-zero: the daemon asks the client's helper thread to find out what has completed.
    pub probe: AtomicU32,
    /// Expected ns charged by this client, ever; see [`Charges::total_ns`].
    pub charged_ns: AtomicU64,
    /// Expected ns of this client's launches seen complete, ever.
    pub completed_ns: AtomicU64,
    /// Wakes the client's helper thread.
    pub helper_bell: Bell,
    /// Non-zero once the daemon has detached this client: nothing in these pages is served any more.
    pub detached: AtomicU32,
    /// Non-zero once this process is to launch nothing more, wait for what is in flight and end: [`STOP_ASKED`] by the daemon,
    /// [`STOP_OVERDUE`] and [`STOP_GAVE_UP`] by the client.
    pub stop: AtomicU32,
    /// The first CUDA result of the client after which it gets nothing more done; 0: none.
    pub sticky: AtomicU32,
    /// Until when somebody sees to the end of this process, in whole seconds of `CLOCK_MONOTONIC`;
    /// 0: nobody does. Until then it does not die by itself with work in flight when a signal asks
    /// it to end: it says [`STOP_OVERDUE`] and lives for [`FROZEN_NS`] more, and again, in which
    /// who sees to its end has MPS end what is in flight, and kills it; where MPS refuses, once its
    /// grace is over. The daemon writes it, and only where MPS shares the GPU.
    ///
    /// [`FROZEN_NS`]: crate::ending::FROZEN_NS
    pub seen_to_until_s: AtomicU32,
    /// What the client tells people.
    pub told: Line<Told>,
    /// Thread id of each ring's owner; 0 is free. Who claims one takes the first that is free, before its first record, and none
    /// is given back: see [`ClientPage::rings_claimed`].
    pub ring_owner: Line<[AtomicU32; RINGS]>,
    /// Launches that the driver accepted from each ring's owner, who alone writes it: see
    /// [`ClientPage::count_launch_of_ring`].
    pub ring_launches: Line<[AtomicU64; RINGS]>,
    /// The rings of single threads.
    pub rings: [Spsc<RING_RECORDS>; RINGS],
    /// The ring of all further threads.
    pub shared_ring: Mpsc<RING_RECORDS>,
}

/// In [`ClientPage::stop`]: the daemon asks.
pub const STOP_ASKED: u32 = 1;
/// In [`ClientPage::stop`]: a signal has asked, what is in flight was waited for as long as the process does, and it is not complete. Only
/// where somebody sees to its end ([`ClientPage::seen_to_until_s`]).
pub const STOP_OVERDUE: u32 = 2;
/// In [`ClientPage::stop`]: what is in flight was waited for as long as the process does, it is not
/// complete, and the process ends now.
pub const STOP_GAVE_UP: u32 = 3;

/// What a client tells people; nothing is decided by it, but by which batches it can take.
#[derive(Debug)]
#[repr(C)]
pub struct Told {
    /// Statistics, indexed by [`Counter`]; zero beyond those that the client knows.
    pub counters: [AtomicU64; COUNTERS_ROOM],
    /// The batches that it can take, and which are wanted. Zero from a peer before 3.8.
    pub batches: Batches,
    /// The longest kernels that it has seen.
    pub longest: Longest,
}

/// What a best-effort job may launch without asking.
#[derive(Debug, Default)]
#[repr(C)]
pub struct LeasePage {
    /// [`PAGE_MAGIC`].
    pub magic: AtomicU64,
    /// Odd while the daemon writes the terms; even and equal before and after: the terms are whole.
    pub generation: SeqLock,
    /// `hp_epoch` under which the lease was made.
    pub epoch: AtomicU64,
    /// When the lease ends, on the shared clock.
    pub expiry_ns: AtomicU64,
    /// A launch is within the budget if the charges before it are below this.
    pub limit_total_ns: AtomicU64,
    /// Most SMs a kernel may need.
    pub sms_max: AtomicU32,
    /// Low byte: `policy::ClassSet` bits; then the `LEASE_` bits below.
    pub terms: AtomicU32,
    /// Rung when the terms change and somebody waits.
    pub bell: Bell,
    /// What the job has charged. Alone on its line: every best-effort launch of the job adds to it.
    pub charges: Line<Charges>,
}

/// What all clients of a job have charged.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Charges {
    /// Expected ns charged, ever. Never reset: the daemon moves the limit instead, so a late refund cannot land in
    /// another lease.
    pub total_ns: AtomicU64,
    /// Charges taken back, ever: how the daemon knows that none was while it read (`LeasePage::read_settled`). A library
    /// that does not count them may be granted one refused launch too many.
    pub refunds: AtomicU64,
}

/// Term bit: the lease was made while high-priority work was in flight.
pub const LEASE_BESIDE_HP: u32 = 1 << 8;
/// Term bit: everything may go (policy `none`, or no high-priority job to protect).
pub const LEASE_UNGATED: u32 = 1 << 9;
/// Term bit: nothing goes until an operator says so, `max_hold` or not. A library that does not know the bit lets a
/// launch go each `max_hold`.
pub const LEASE_HELD: u32 = 1 << 11;
/// Term bit, with [`LEASE_HELD`]: a law of the policy lets nothing go, and large copies wait, too. Where an
/// operator or a rule holds the job they go.
pub const LEASE_PAUSED: u32 = 1 << 12;
/// Term bit: a launch must fit into the budget, its own cost included. A library that does not know the
/// bit overshoots the budget by one launch.
pub const LEASE_WHOLE: u32 = 1 << 10;

/// Term bit: the lease holds whatever high-priority work comes, as nobody is protected from the job. A library that does not know the
/// bit takes it for one that such work voids.
pub const LEASE_STANDING: u32 = 1 << 13;
/// Term bit, with [`LEASE_HELD`] and [`LEASE_PAUSED`]: the job has used its share of the GPU's time. Collective kernels go, and are
/// charged.
pub const LEASE_RATED: u32 = 1 << 14;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $text:literal $(at $index:literal)?,)*) => {
        /// What a client counts for the daemon's `status`; a running total each, or so many now ([`Counter::is_total`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $name $(= $index)?,)* }

        impl Counter {
            /// Every counter, in the order of their index.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name used in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

counters! {
    /// Kernel launches that the driver accepted and that ran, those in graphs not among them.
    Launches = "launches",
    /// Launches that were recorded into a capture and did not run then.
    Captured = "launches_captured",
    /// Launches of graphs that the driver accepted.
    GraphLaunches = "graph_launches",
    /// Kernels that these run.
    GraphKernels = "graph_kernels",
    /// Functions that the host was asked to call in a stream's order.
    HostCalls = "host_calls",
    /// Best-effort launches, not copies, granted by a lease made beside busy high-priority work.
    BesideHp = "launches_beside_hp",
    /// Best-effort launches and large copies that had to wait at the gate.
    Held = "launches_held",
    /// Time waited at the gate, ns, over all threads.
    HeldNs = "held_ns",
    /// Launches and large copies granted because `max_hold` ran out.
    Forced = "launches_forced",
    /// Waits at the gate that ended on a signal.
    Interrupted = "holds_interrupted",
    /// Launches, not copies, between whose check and driver call the epoch moved on.
    Slips = "slips",
    /// Launches and large copies let through because the daemon was gone.
    Unmanaged = "launches_unmanaged",
    /// Records dropped because a ring was full.
    Dropped = "records_dropped",
    /// Launches whose kernel and shape no profile knows.
    UnknownKernels = "launches_unknown",
    /// Panics of ours that were caught; the real call was made.
    Panics = "panics_caught",
    /// Libraries opened so that their calls pass by us (`RTLD_DEEPBIND`, `dlmopen`).
    Bypasses = "bypasses",
    /// Allocations that the driver granted.
    Allocations = "allocations",
    /// Bytes of device memory that the application asked for in these.
    AllocatedBytes = "allocated_bytes",
    /// Allocations, arrays and handles of memory given back.
    Frees = "frees",
    /// Copies that the driver accepted.
    Copies = "copies",
    /// Bytes copied from host to device.
    CopiedHtoDBytes = "copied_h2d_bytes",
    /// Bytes copied from device to host.
    CopiedDtoHBytes = "copied_d2h_bytes",
    /// Bytes copied within the device, or where the direction is the driver's to find out.
    CopiedOtherBytes = "copied_other_bytes",
    /// Bytes set by memset calls.
    SetBytes = "set_bytes",
    /// Bytes of pinned host memory that the application asked for or registered.
    HostBytes = "host_bytes",
    /// Entry points that the program obtained as our hook, each once.
    ResolvedHooked = "resolved_hooked",
    /// Entry points that it obtained as the driver's own, each once.
    ResolvedPassed = "resolved_passed",
    /// Entry points of the driver that our table does not have.
    ResolvedUnknown = "resolved_unknown",
    /// Hooked calls from inside a hook (the driver's own, a tool's), which passed by.
    NestedCalls = "calls_nested",
    /// Launches on devices without a daemon, which passed by.
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
    /// Calls of all other hooks but launches, which are counted as such.
    OtherCalls = "calls_other",
    /// Calls of operators (cuBLAS, cuBLASLt, cuDNN), those inside others not among them.
    OperatorCalls = "calls_operator",
    /// Launches asked for inside an operator, recorded ones too: they carry its label.
    Labelled = "launches_labelled",
    /// Operators that stood for launches which were not seen.
    OperatorsAsLaunches = "operators_as_launches",
    /// Kernels and graphs that are expected to take something else than the profile says, because they were seen to. As of
    /// now, of processes that live.
    KernelsLearnt = "kernels_learnt",
    /// Streams with the priority of others of which the application asked another one, as each
    /// class has a part of the device's levels.
    // 43 to 45 are other counters of older clients.
    PrioritiesShared = "priorities_shared" at 46,
    /// Launch functions of the driver that the program obtained and that are not our hooks, each
    /// once.
    LaunchesPassedBy = "launch_functions_passed_by",
    /// Kernels of collective communication (NCCL, NVSHMEM) that a best-effort client asked for,
    /// also where the driver refused; those in graphs that it launched among them.
    Collectives = "launches_collective",
    /// Launches of these that did not wait although no lease allowed them.
    CollectivesPassed = "collectives_passed",
    /// Expected duration of launches whose kernels' share is told below, ns: of a best-effort client
    /// those that were written down for learning. Of a high-priority client the daemon sums up its
    /// records instead. 0 also of a client older than protocol 3.2.
    GpuTime = "gpu_time_ns",
    /// Of this the part of kernels whose duration is known, from a profile or learnt.
    GpuTimeKnown = "gpu_time_known_ns",
    /// Of this the part of kernels that have a resource class.
    GpuTimeClassed = "gpu_time_classed_ns",
    /// Requests that the program has marked and that have ended, as the daemon reads it in a
    /// high-priority client's records: no client counts them.
    RequestsMarked = "requests_marked",
    /// Iterations that the program says it has made.
    Iterations = "iterations",
    /// What the program said of requests and cannot be: they arrive in the future or more than an
    /// hour ago, end twice, or began nowhere; targets out of range.
    MarksRefused = "marks_refused",
    /// Requests that were inferred from launches, as the daemon does of a high-priority client,
    /// whether or not its program marks requests: no client counts them.
    RequestsInferred = "requests_inferred",
}

impl Counter {
    /// Whether it is a running total, which stays when a process ends. Else it says how many there are now, and of a
    /// process that has ended there are none.
    pub const fn is_total(self) -> bool {
        !matches!(self, Self::KernelsLearnt)
    }
}

impl ClientPage {
    /// Words before the rings: sums, counters, and the owners of rings.
    pub const WORDS_BEFORE_RINGS: usize = core::mem::offset_of!(Self, rings) / 8;

    /// Adds to a counter; what it was before. Relaxed: totals are read for people, and nothing is ordered by them; that
    /// collectives were launched ([`Counter::Collectives`]) decides about leases, one poll later
    /// where it is read late.
    #[inline]
    pub fn count(&self, counter: Counter, by: u64) -> u64 {
        self.told.counters[counter as usize].fetch_add(by, crate::sync::Ordering::Relaxed)
    }

    /// Counts a launch by the thread that owns a ring. A load and a store, as nobody else writes
    /// there: an atomic add would be a tenth of what a high-priority launch may cost.
    #[inline]
    pub fn count_launch_of_ring(&self, ring: usize) {
        if let Some(launches) = self.ring_launches.get(ring) {
            let before = launches.load(crate::sync::Ordering::Relaxed);
            launches.store(before.wrapping_add(1), crate::sync::Ordering::Relaxed);
        }
    }

    /// Says how many there are now of what is no running total, or a total that one thread keeps.
    pub fn tell(&self, counter: Counter, count: u64) {
        self.told.counters[counter as usize].store(count, crate::sync::Ordering::Relaxed);
    }

    /// How many rings may hold records, given that `known` do: those from the first on that have, or had, an owner. A daemon reads no
    /// others, as each is on lines and a page of its own. Relaxed: a ring is claimed before its first record is pushed, so whatever
    /// makes that record visible (the epoch's bump, or both fences of `lease`) makes its owner so, and those before it, which the
    /// thread found taken.
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
            // The words may be a lying client's.
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

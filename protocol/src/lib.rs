//! What two processes of Pillion must agree on: records, rings, pages, leases, the hello, time.
//! `interpose`, `scheduler` and `cli` are built from one tree, but their processes start, end and
//! are upgraded separately; so all that they exchange is defined once, here.
//!
//! | module | what crosses the border |
//! |---|---|
//! | [`record`] | 64-byte records of launches, completions and requests, checked on arrival |
//! | [`ring`] | bounded queues of records in shared memory |
//! | [`pages`] | the shared pages: daemon, high-priority, bell, client, lease |
//! | [`ledger`] | a job's GPU memory, accounted exactly across its processes |
//! | [`longest`] | the longest kernels of a client, by name |
//! | [`batches`] | the batch sizes that a program supports, and the one requested |
//! | [`quota`] | text form of a memory quota |
//! | [`ranges`] | text form of a pattern for NVTX ranges that are requests |
//! | [`slo`] | text form of a latency target for requests |
//! | [`promise`] | text form of a best-effort job's weight and least share |
//! | [`compute`] | text form of a cap on GPU time |
//! | [`lease`] | how a best-effort launch is charged, and how a high-priority launch revokes |
//! | [`bell`] | sleeping and waking across processes |
//! | [`recording`] | what a recorded process leaves: kernels, launches, durations |
//! | [`ending`] | time limits of the steps that end a process |
//! | [`notebook`] | what a client has learnt of its kernels |
//! | [`segment`] | memory file descriptors and their mappings |
//! | [`hello`] | attach and status messages over a Unix socket |
//! | [`trace`] | what the daemon records of all clients during a trace |
//! | [`clock`] | the one reading of time, monotonic or virtual |
//! | [`sync`] | the atomics under all of them, and locks that no thread waits for |
//!
//! **Trust.** No process believes a peer's memory: it copies a record once, checks the copy, uses
//! the copy. Indices are atomics. A lying best-effort client harms its own job; a lying
//! high-priority client delays best-effort jobs by at most `max_hold` per launch. Units: times and
//! durations are nanoseconds (`_ns`), sizes are bytes (`_bytes`).

pub mod batches;
pub mod ending;
pub mod lease;
pub mod ledger;
pub mod longest;
pub mod pages;
pub mod promise;
pub mod quota;
pub mod ranges;
pub mod record;
pub mod ring;
pub mod slo;
pub mod sync;

#[cfg(not(loom))]
pub mod bell;
#[cfg(not(loom))]
pub mod clock;
pub mod compute;
#[cfg(not(loom))]
pub mod hello;
#[cfg(not(loom))]
pub mod notebook;
#[cfg(not(loom))]
pub mod recording;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod trace;

/// Protocol version of this build. Daemon and clients are upgraded separately, so:
/// - A peer of *another major version* is refused with a sentence that names both; its job runs
///   unmanaged. A packet's first eight bytes, the same in every version, make this possible.
/// - A peer of *another minor version*, older or newer, is served with what both know. It may add
///   fields at a message's end, counters in their reserved room, and words in a page's padding. An
///   older peer ignores new fields; missing fields have a documented default; a zero word in former
///   padding means the former behaviour. A minor version moves, resizes and redefines nothing:
///   compile-time assertions in [`pages`] keep the layout.
///
/// Changes by version:
/// - 1.0: never released.
/// - 2.0: The client page has room for counters and a flag for detached clients. An attach names
///   its device and reports how the profile fits.
/// - 2.1: A lease may require a launch to fit into its budget ([`pages::LEASE_WHOLE`]) or be held
///   for a fault ([`pages::LEASE_HELD`]). An attach states the job's memory quota; a welcome
///   carries its ledger, which the client brings to the next daemon. Clients count operators and
///   refunded charges, name their longest kernels (in the former room for counters), and report
///   their first sticky CUDA error. The daemon states whether durations are learnt.
/// - 2.2: A welcome states the granted class, which may differ from the requested one. The daemon
///   tells a client that its exit is supervised ([`pages::ClientPage::seen_to_until_s`]); the
///   client reports the end of its drain time. An exiting client first reports complete work.
/// - 2.3: A record has the time of a launch that revoked leases, and that at which a completion
///   became known ([`record::Launch::at_ns`]).
/// - 2.4: An attach states whether MPS shares the device ([`hello::Attach::is_on_mps`]). A daemon
///   can be asked to drain ([`hello::Request::Drain`]). Clients count collective kernels and launch
///   functions that bypass the hooks.
/// - 3.0: A client creates its own page and hands it to one daemon after another
///   ([`hello::Request::Attach`]). The sum of a lease begins at [`lease::FIRST_TOTAL_NS`].
/// - 3.1: A process can ask for what is known of its program's kernels, and have what it learns
///   kept ([`hello::Request::Learnt`]).
/// - 3.2: Best-effort clients count their GPU time of known kernels ([`pages::Counter::GpuTime`]).
/// - 3.3: High-priority clients report requests' begin, end and targets to a daemon that knows such
///   records ([`pages::DaemonPage::marks`]). Clients count iterations and refused marks.
/// - 3.4: An attach and a change of a job state the target of requests ([`hello::Attach::slo`]),
///   kept in the ledger ([`ledger::Ledger::slo`]). High-priority launches omit the priority if the
///   daemon's flag says so ([`pages::DaemonPage::plain_priority`]).
/// - 3.5: If the daemon's flag says so ([`pages::DaemonPage::gates_copies`]), large BE copies are
///   charged as launches, and wait while a law pauses the job ([`pages::LEASE_PAUSED`]).
/// - 3.6: An attach and a change of a job cap its GPU time ([`hello::Attach::compute`]), kept in
///   the ledger ([`ledger::Ledger::compute`]). A lease may survive high-priority work
///   ([`pages::LEASE_STANDING`]), and state that its share is used ([`pages::LEASE_RATED`]).
/// - 3.7: A restartable job's attach states its share of the SMs ([`hello::Attach::restartable`]).
/// - 3.8: A client states the batches it can take, the daemon the one it wants ([`batches`]).
/// - 3.9: A trace can be taken ([`hello::Request::Trace`]), for which clients report more
///   ([`pages::DaemonPage::trace`]). A change of a job sets its weight and least share
///   ([`hello::Set::weight`]), kept in the ledger ([`ledger::Ledger::promise`]).
/// - 3.10: A daemon that exits when idle waits for a process that will become a client
///   ([`hello::Request::Expect`]), and reports its configuration ([`hello::Request::Settings`]).
pub const VERSION: Version = Version {
    major: 3,
    minor: 10,
};

/// A protocol version as exchanged in the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Incremented when older peers can no longer be understood.
    pub major: u16,
    /// Incremented for additions that an older peer may ignore.
    pub minor: u16,
}

impl Version {
    /// Whether two builds can talk: the major versions are equal.
    pub fn is_compatible(self, other: Self) -> bool {
        self.major == other.major
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

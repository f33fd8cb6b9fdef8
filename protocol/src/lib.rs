//! What two processes of Pillion must agree on: records, rings, pages, leases, the hello, time.
//!
//! The library in a job (`interpose`), the daemon (`scheduler`) and the command line (`cli`) are
//! built from one tree but run in processes that live and die separately, so everything they
//! exchange has one definition, here.
//!
//! | module | what crosses the border |
//! |---|---|
//! | [`record`] | 64-byte records of launches, completions and requests, checked on arrival |
//! | [`ring`] | bounded queues of records in shared memory |
//! | [`pages`] | the shared pages: daemon, high-priority, bell, client, lease |
//! | [`ledger`] | what a job holds of a GPU's memory, exact across its processes |
//! | [`longest`] | the longest kernels of a client, by name |
//! | [`batches`] | which batches a program can take, and which is wanted |
//! | [`quota`] | how people say what it may hold |
//! | [`ranges`] | which NVTX ranges are its requests |
//! | [`slo`] | how people say what these may take |
//! | [`promise`] | how people say what a best-effort job is promised |
//! | [`lease`] | how a best-effort launch is charged, and how a high-priority launch revokes |
//! | [`bell`] | sleeping and waking across processes |
//! | [`recording`] | what a recorded process leaves: kernels, launches, durations |
//! | [`ending`] | how long the steps take in which a process is made to end |
//! | [`notebook`] | what a client has learnt of its kernels |
//! | [`segment`] | memory file descriptors and their mappings |
//! | [`hello`] | attach and status messages over a Unix socket |
//! | [`trace`] | what is noted of all clients while a trace is taken |
//! | [`clock`] | the one reading of time, monotonic or virtual |
//! | [`sync`] | the atomics under all of them, and locks that no thread waits for |
//!
//! **Trust.** A peer's memory is never believed: a record is copied out once, the copy is checked,
//! the copy is used. Indices are atomics. A best-effort client that lies harms its own job; a
//! high-priority client that lies costs best-effort jobs at most `max_hold` per launch.
//!
//! Units: times and durations are nanoseconds (`_ns`), sizes are bytes (`_bytes`).

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

/// Protocol version spoken by this build. Daemon and clients are upgraded separately, so:
///
/// - *Another major version* is refused in one sentence that names both; the job runs unmanaged. The
///   first eight bytes of a packet are the same in every version, so that this can be said.
/// - *Another minor version*, older or newer, is served with what both know. A minor version may add
///   fields at the end of a message (who does not know them leaves them; where they are missing
///   their documented default holds), counters in the room kept for them, and words in what was padding
///   of a page (zero means what there was before). It moves, resizes and redefines nothing: pages have
///   the same size and offsets in all minor versions, which compile-time assertions in [`pages`] keep.
///
/// | version | what is new |
/// |---|---|
/// | 1.0 | never released |
/// | 2.0 | the client page has room for counters to come and says when it was detached; an attach names its device and says how its profile fits |
/// | 2.1 | a lease may say that a launch must fit into its budget ([`pages::LEASE_WHOLE`]); clients count operators; an attach says what quota of memory it wants, and a welcome comes with the job's ledger, which it brings along to the next daemon; a client names its longest kernels in what was room for counters, and counts the charges that it takes back; a daemon says whether durations are learnt; a client tells its first sticky CUDA error; a lease may be held for a fault ([`pages::LEASE_HELD`]) |
/// | 2.2 | a welcome says the class that was given, which need not be the one that was asked for; a client is told that somebody sees to its end ([`pages::ClientPage::seen_to_until_s`]), and tells when its time to drain is over; one that ends says before what of its work is complete |
/// | 2.3 | a record says when a launch that revoked leases was made, and since when a completion was known ([`record::Launch::at_ns`]) |
/// | 2.4 | an attach says whether the device is shared by MPS ([`hello::Attach::is_on_mps`]); a daemon can be asked to drain ([`hello::Request::Drain`]); clients count collective kernels and launch functions that pass by |
/// | 3.0 | a client makes its own page and hands it to one daemon after another ([`hello::Request::Attach`]); the sum of a lease begins at [`lease::FIRST_TOTAL_NS`] |
/// | 3.1 | a process can ask for what is known of its program's kernels, and have what it learns kept ([`hello::Request::Learnt`]) |
/// | 3.2 | best-effort clients sum up how much of their GPU time is of kernels that are known ([`pages::Counter::GpuTime`]) |
/// | 3.3 | high-priority clients say when requests begin and end, and what they may take, to a daemon that knows such records ([`pages::DaemonPage::marks`]); clients count iterations and what they refuse of that |
/// | 3.4 | an attach and a change of a job say what requests may take ([`hello::Attach::slo`]); the job's ledger keeps the change ([`ledger::Ledger::slo`]); high-priority launches go without a priority where the daemon says so ([`pages::DaemonPage::plain_priority`]) |
/// | 3.5 | large copies of best-effort clients are charged as launches where the daemon says so ([`pages::DaemonPage::gates_copies`]), and wait where a law pauses the job ([`pages::LEASE_PAUSED`]) |
/// | 3.6 | an attach and a change of a job say how much of the GPU's time it may use ([`hello::Attach::compute`]); the job's ledger keeps the change ([`ledger::Ledger::compute`]); a lease may hold whatever high-priority work comes ([`pages::LEASE_STANDING`]), and say that the job has used its share ([`pages::LEASE_RATED`]) |
/// | 3.7 | an attach says with which share of the SMs a job was started that may be started anew ([`hello::Attach::restartable`]) |
/// | 3.8 | a client says which batches it can take, and the daemon which it wants ([`batches`]) |
/// | 3.9 | a trace can be taken ([`hello::Request::Trace`]), for which clients tell more ([`pages::DaemonPage::trace`]); a change of a job says its weight and its least share ([`hello::Set::weight`]), which the job's ledger keeps ([`ledger::Ledger::promise`]) |
/// | 3.10 | a daemon that ends without clients stays for a process that is to become one ([`hello::Request::Expect`]), and a daemon says what its configuration is ([`hello::Request::Settings`]) |
pub const VERSION: Version = Version {
    major: 3,
    minor: 10,
};

/// A protocol version as exchanged in the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Changes when an old peer cannot be understood any more.
    pub major: u16,
    /// Changes when something was added that an old peer may ignore.
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

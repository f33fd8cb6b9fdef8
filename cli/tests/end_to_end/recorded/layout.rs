//! Offsets of fields in the shared pages of protocol 3, as numbers: another build's compiled view.
//! Today's types would move with them.

use super::Words;

/// The pages of a welcome, in order; a high-priority client has no lease.
pub(super) const PAGES: [&str; 5] = ["daemon", "hp", "bell", "lease", "ledger"];

/// The first word of pages.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"pillion1");

/// In the daemon's page.
pub(super) const HEARTBEAT_NS: u64 = 8;

/// A constant field.
pub(super) struct Field {
    pub(super) page: &'static str,
    pub(super) name: &'static str,
    pub(super) at: usize,
    pub(super) bytes: usize,
}

const fn field(page: &'static str, name: &'static str, at: usize, bytes: usize) -> Field {
    Field {
        page,
        name,
        at,
        bytes,
    }
}

/// The initial fields of a daemon without a configuration of its own. If a default changes on
/// purpose, configure the daemons of these tests with the old value.
pub(super) const STEADY: &[Field] = &[
    field("daemon", "magic", 0, 8),
    field("daemon", "on_daemon_loss", 20, 4),
    field("daemon", "max_hold_ns", 24, 8),
    field("daemon", "unknown_ns", 32, 8),
    field("daemon", "learnt_durations", 40, 4),
    field("daemon", "reserved", 44, 4),
    field("daemon", "marks", 48, 4),
    field("daemon", "gates_copies", 52, 4),
    field("daemon", "plain_priority", 72, 4),
    field("daemon", "trace", 76, 4),
    field("lease", "magic", 0, 8),
    field("lease", "terms", 44, 4),
    field("ledger", "magic", 0, 8),
    field("ledger", "quota_bytes", 8, 8),
    field("ledger", "context_bytes", 16, 8),
];

pub(super) mod lease {
    pub(in super::super) const GENERATION: u64 = 8;
    pub(in super::super) const EPOCH: u64 = 16;
    pub(in super::super) const EXPIRY_NS: u64 = 24;
    pub(in super::super) const LIMIT_NS: u64 = 32;
    pub(in super::super) const TERMS: u64 = 44;
    pub(in super::super) const CHARGED_NS: u64 = 64;
    pub(in super::super) const REFUNDS: u64 = 72;
    /// Bit of the terms: everything may go.
    pub(in super::super) const UNGATED: u32 = 1 << 9;
    /// Bit of the terms: valid whatever high-priority work comes.
    pub(in super::super) const STANDING: u32 = 1 << 13;
}

pub(super) mod client {
    pub(in super::super) const MAGIC: u64 = 0;
    pub(in super::super) const WAITING: u64 = 8;
    pub(in super::super) const CHARGED_NS: u64 = 16;
    pub(in super::super) const COMPLETED_NS: u64 = 24;
    /// The first counter counts launches.
    pub(in super::super) const COUNTERS: u64 = 64;
    const RING_LAUNCHES: u64 = 64 + 8 * 128 + 4 * RINGS;
    const RINGS: u64 = 64;

    /// Launches by the threads that have a ring.
    pub(in super::super) fn launches_of_rings(page: &super::Words) -> u64 {
        let launches = (0..RINGS).map(|ring| page.word(RING_LAUNCHES + 8 * ring));
        launches.sum()
    }
}

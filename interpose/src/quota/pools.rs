//! Memory from pools, and of graphs: charged is what the pool, or the graphs of a device, have *reserved* of the device.
//!
//! The driver alone knows when a pool grows and when it gives memory back. So before an allocation we charge what the
//! pool could need for it, and afterwards ask the driver what it has. Between the two other threads may be in the
//! driver with the same pool; what is true at every moment is
//!
//! > reserved ≤ charged + what those in the driver have been charged beforehand
//!
//! and when nobody is in the driver, charged is what is reserved. A pool gives memory back when the driver sees fit, at
//! the latest when the application waits: after a free its charge is *stale*, and is looked at again when the application
//! waits for something, asks what is free, trims the pool, or is about to be refused.
//!
//! Memory of graphs is like a pool of the device that nobody can name.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::Mutex;

use abi::types::{CUmemoryPool, CUresult};
use protocol::ledger::{Kind, rounded_bytes};

use super::{DeviceAccount, is_any, locked};
use crate::driver::memory::{self, PoolBytes};

/// Steps in which the driver takes memory for a pool: the granularity of physical memory, 2 MiB on every GPU so far.
const STEP_BYTES: u64 = 2 << 20;

/// What has reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A pool, by its handle.
    Pool(u64),
    /// The graphs of a device, by its ordinal.
    Graphs(i32),
}

struct Entry {
    account: &'static DeviceAccount,
    charged: u64,
    /// Bytes of allocations that are in the driver.
    in_driver: u64,
    /// What was charged beforehand for these.
    beforehand: u64,
    /// The application is destroying the pool: its handle may be no handle any more, and the driver must not be asked about it.
    is_going: bool,
    /// Of a pool that was destroyed: bytes of its allocations that live on.
    living: Option<u64>,
}

static SOURCES: Mutex<BTreeMap<Source, Entry>> = Mutex::new(BTreeMap::new());
/// Whether a charge may be more than is reserved.
static IS_STALE: AtomicBool = AtomicBool::new(false);

/// Whether any graph of this process has had memory.
static HAS_GRAPHS: AtomicBool = AtomicBool::new(false);

/// An allocation that is about to be made.
pub(crate) struct Draw {
    source: Source,
    bytes: u64,
    /// `None`: it is refused.
    beforehand: Option<u64>,
}

impl Draw {
    /// Charges what `source` could need for an allocation of `bytes`.
    pub(crate) fn begin(account: &'static DeviceAccount, source: Source, bytes: u64) -> Self {
        let bytes = rounded_bytes(bytes);
        let beforehand = try_charge(account, source, bytes).or_else(|| {
            // What is freed but not back yet comes back when its stream is done; the pool's own rest can go at once.
            try_give_back(account);
            try_charge(account, source, bytes)
        });
        Self {
            source,
            bytes,
            beforehand,
        }
    }

    /// Whether the driver must not be asked.
    pub(crate) fn is_refused(&self) -> bool {
        self.beforehand.is_none()
    }

    /// The driver has answered; whatever it was, what is reserved now is known.
    pub(crate) fn end(&self) {
        let Some(beforehand) = self.beforehand else {
            return;
        };
        let sources = &mut *locked(&SOURCES);
        if let Some(entry) = sources.get_mut(&self.source) {
            entry.in_driver -= self.bytes;
            entry.beforehand -= beforehand;
            entry.charged += beforehand;
            entry.count_anew(self.source);
        }
    }
}

/// What was charged beforehand; `None` if the quota does not allow it.
fn try_charge(account: &'static DeviceAccount, source: Source, bytes: u64) -> Option<u64> {
    if let Source::Graphs(_) = source {
        HAS_GRAPHS.store(true, Ordering::Relaxed);
    }
    let sources = &mut *locked(&SOURCES);
    let entry = sources.entry(source).or_insert_with(|| Entry::new(account));
    // A new pool under the handle of one that was destroyed.
    entry.living = None;
    entry.is_going = false;
    entry.count_anew(source);
    let used = reserved(source).map_or(entry.charged, |pool| pool.used);
    let needed = used.saturating_add(entry.in_driver).saturating_add(bytes);
    let needed = match source {
        Source::Pool(_) => needed.checked_next_multiple_of(STEP_BYTES)?,
        // Each node has its memory by itself.
        Source::Graphs(_) => entry
            .charged
            .saturating_add(entry.beforehand)
            .saturating_add(bytes),
    };
    let missing = needed.saturating_sub(entry.charged.saturating_add(entry.beforehand));
    if !account.change(|account| account.try_reserve(source.kind(), missing).is_ok()) {
        return None;
    }
    entry.in_driver += bytes;
    entry.beforehand += missing;
    Some(missing)
}

/// Memory of a pool was freed, or is about to be when its stream gets there.
pub(crate) fn handle_freed(pool: u64, bytes: u64) {
    let sources = &mut *locked(&SOURCES);
    let source = Source::Pool(pool);
    if let Some(entry) = sources.get_mut(&source)
        && let Some(living) = &mut entry.living
    {
        *living = living.saturating_sub(rounded_bytes(bytes));
        if *living == 0 {
            entry.set_charged(source, 0);
            sources.remove(&source);
        }
        return;
    }
    IS_STALE.store(true, Ordering::Relaxed);
}

/// Something may have less reserved than is charged, or more, and it shows at once.
pub(crate) fn handle_changed() {
    if is_any() {
        count_stale_anew();
    }
}

/// Memory of a graph may have been given back: said by whoever frees what is in no table.
#[inline]
pub(crate) fn note_graphs_stale() {
    if HAS_GRAPHS.load(Ordering::Relaxed) {
        IS_STALE.store(true, Ordering::Relaxed);
    }
}

/// Graphs with memory may have come, run or gone: looks what they have reserved.
#[inline]
pub(crate) fn handle_graphs() {
    if HAS_GRAPHS.load(Ordering::Relaxed) {
        count_stale_anew();
    }
}

/// The application has waited for something: what it had freed is free now.
#[inline]
pub(crate) fn handle_waited() {
    if IS_STALE.load(Ordering::Relaxed) {
        count_stale_anew();
    }
}

#[cold]
fn count_stale_anew() {
    // Before looking: what becomes stale meanwhile is looked at next time.
    IS_STALE.store(false, Ordering::Relaxed);
    for (source, entry) in locked(&SOURCES).iter_mut() {
        entry.count_anew(*source);
    }
}

/// Asks the driver again what is reserved of a device.
pub(crate) fn count_anew(account: &'static DeviceAccount) {
    let sources = &mut *locked(&SOURCES);
    let its = sources.iter_mut();
    for (source, entry) in its.filter(|(_, entry)| entry.account.device == account.device) {
        entry.count_anew(*source);
    }
}

/// Makes the pools of a device give back what they do not use. Whether there are any.
pub(crate) fn try_give_back(account: &'static DeviceAccount) -> bool {
    let mut has_any = false;
    {
        // Under the lock, so that no other thread destroys what is trimmed.
        let sources = locked(&SOURCES);
        for (source, entry) in sources.iter() {
            if entry.account.device != account.device || entry.is_gone() {
                continue;
            }
            match *source {
                Source::Pool(pool) => memory::trim_pool(pool),
                Source::Graphs(_) => memory::trim_graphs(account.device),
            }
            has_any = true;
        }
    }
    count_anew(account);
    has_any
}

/// A pool is about to be destroyed: what its allocations keep.
pub(crate) fn before_destroy(pool: CUmemoryPool) -> Option<PoolBytes> {
    if !is_any() {
        return None;
    }
    let source = Source::Pool(pool_number(pool));
    let sources = &mut *locked(&SOURCES);
    let had = reserved(source)?;
    if let Some(entry) = sources.get_mut(&source) {
        entry.is_going = true;
    }
    Some(had)
}

/// It is, if the driver says so. Its memory lives as long as its allocations.
pub(crate) fn handle_destroyed(pool: CUmemoryPool, had: Option<PoolBytes>, result: CUresult) {
    let Some(had) = had else {
        return;
    };
    let source = Source::Pool(pool_number(pool));
    let sources = &mut *locked(&SOURCES);
    let Some(entry) = sources.get_mut(&source) else {
        return;
    };
    entry.is_going = false;
    if result != CUresult::SUCCESS {
        return;
    }
    let kept = had.used.next_multiple_of(STEP_BYTES).min(entry.charged);
    entry.set_charged(source, if had.used == 0 { 0 } else { kept });
    entry.living = Some(had.used);
    if had.used == 0 {
        sources.remove(&source);
    }
}

/// A pool's handle as a number.
pub(crate) fn pool_number(pool: CUmemoryPool) -> u64 {
    pool.0.expose_provenance() as u64
}

fn reserved(source: Source) -> Option<PoolBytes> {
    match source {
        Source::Pool(pool) => memory::pool_bytes(pool),
        Source::Graphs(device) => memory::graph_bytes(abi::types::CUdevice(device)),
    }
}

impl Source {
    fn kind(self) -> Kind {
        match self {
            Self::Pool(_) => Kind::Pool,
            Self::Graphs(_) => Kind::Graph,
        }
    }
}

impl Entry {
    fn new(account: &'static DeviceAccount) -> Self {
        Self {
            account,
            charged: 0,
            in_driver: 0,
            beforehand: 0,
            is_going: false,
            living: None,
        }
    }

    /// There is no pool under this handle, or soon none.
    fn is_gone(&self) -> bool {
        self.is_going || self.living.is_some()
    }

    /// Brings the charge to what is reserved. Not while somebody is in the driver: what is charged and not reserved
    /// may be what it counts on.
    fn count_anew(&mut self, source: Source) {
        if self.is_gone() || self.in_driver != 0 {
            return;
        }
        if let Some(PoolBytes { reserved, .. }) = reserved(source) {
            self.set_charged(source, rounded_bytes(reserved));
        }
    }

    fn set_charged(&mut self, source: Source, bytes: u64) {
        let (had, kind) = (self.charged, source.kind());
        self.account.change(|account| {
            account.release(kind, had.saturating_sub(bytes));
            account.take(kind, bytes.saturating_sub(had));
        });
        self.charged = bytes;
    }
}

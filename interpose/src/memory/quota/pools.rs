//! Memory from pools, and of graphs, charged by what the pool, or the graphs of a device, have
//! *reserved*. Only the driver knows when a pool grows and when it gives memory back. So before an
//! allocation we charge the pool's greatest possible need for it, and afterwards query the pool.
//! Meanwhile other threads may be in the driver with the same pool. At every moment
//!
//! > reserved ≤ charged + advance charges of the threads in the driver
//!
//! and when no thread is in the driver, charged equals reserved. A pool gives memory back when the
//! driver decides, at the latest when the application waits. So after a free its charge is *stale*,
//! and is checked again when the application waits for something, queries free memory, trims the
//! pool, or is about to be refused. It stays stale while the driver shows that the freed memory is
//! not back. A pool is not queried from the moment its destruction begins, because its handle may
//! be invalid. Without a quota there is no advance charge: the next check finds what is reserved.
//! Memory of graphs is like a pool of the device without a name.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};

use abi::types::{CUdevice, CUmemLocation, CUmemLocationType, CUmemoryPool, CUresult};
use crossbeam_utils::CachePadded;
use protocol::ledger::{Kind, rounded_bytes};

use crate::driver::memory::{self, PoolBytes};
use crate::platform::sys::locked;
use crate::process::account::{self, DeviceAccount};

/// Unit in which the driver takes memory for a pool: 2 MiB, the granularity on every GPU so far.
const STEP_BYTES: u64 = 2 << 20;

/// Most that a pool takes at once for less: 32 MiB, on an H200 (driver 580.159.04, 2026-11-26).
const GROWTH_BYTES: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Pool(u64),
    Graphs(i32),
}

struct Entry {
    account: &'static DeviceAccount,
    charged: u64,
    /// Bytes of allocations that are in the driver.
    in_driver: u64,
    /// Advance charges for these.
    beforehand: u64,
    /// Bytes of allocations that the application has not freed.
    live: u64,
    /// The pool is being destroyed: its handle may be invalid, and must not be queried.
    is_going: bool,
    /// For a destroyed pool: bytes of its allocations that live on.
    living: Option<u64>,
}

pub(crate) struct Pools {
    sources: Mutex<BTreeMap<Source, Entry>>,
    /// Notified when no thread is in the driver with a source any more.
    alone: Condvar,
    /// Location of pools that the application created: the device, or none.
    places: Mutex<BTreeMap<u64, Option<CUdevice>>>,
    /// Apart from the locks: every launch of a graph and every wait reads them.
    marks: CachePadded<Marks>,
}

struct Marks {
    /// Whether a charge may exceed what is reserved.
    is_stale: AtomicBool,
    has_graphs: AtomicBool,
}

/// Longest wait for other threads in the driver before a refusal; a driver call is far shorter.
const ALONE_WAIT: Duration = Duration::from_millis(100);

pub(crate) struct Draw {
    source: Source,
    bytes: u64,
    is_counted: bool,
    /// The advance charge; `None`: refused.
    beforehand: Option<u64>,
}

impl Draw {
    pub(crate) fn is_refused(&self) -> bool {
        self.beforehand.is_none()
    }
}

impl Pools {
    pub(super) const fn new() -> Self {
        Self {
            sources: Mutex::new(BTreeMap::new()),
            alone: Condvar::new(),
            places: Mutex::new(BTreeMap::new()),
            marks: CachePadded::new(Marks {
                is_stale: AtomicBool::new(false),
                has_graphs: AtomicBool::new(false),
            }),
        }
    }

    /// Charges the greatest need of `source` for an allocation of `bytes`.
    pub(crate) fn begin(
        &self,
        account: &'static DeviceAccount,
        source: Source,
        bytes: u64,
    ) -> Draw {
        let bytes = rounded_bytes(bytes);
        if account.ledger().quota().is_none() {
            return self.begin_uncounted(account, source, bytes);
        }
        let beforehand = self.try_charge(account, source, bytes).or_else(|| {
            // Freed memory comes back when its stream is done; the pool's unused rest can be given
            // back now. Other threads in the driver may have larger advance charges than needs.
            self.wait_until_alone(source);
            self.try_give_back(account);
            self.try_charge(account, source, bytes)
        });
        Draw {
            source,
            bytes,
            is_counted: true,
            beforehand,
        }
    }

    /// Nothing can be refused, so there is no query now.
    fn begin_uncounted(&self, account: &'static DeviceAccount, source: Source, bytes: u64) -> Draw {
        self.note_graphs(source);
        locked(&self.sources)
            .entry(source)
            .or_insert_with(|| Entry::new(account));
        Draw {
            source,
            bytes,
            is_counted: false,
            beforehand: Some(0),
        }
    }

    /// After the driver's answer, whatever it was, the reservation is known.
    pub(crate) fn end(&self, draw: &Draw, is_granted: bool) {
        let Some(beforehand) = draw.beforehand else {
            return;
        };
        let sources = &mut *locked(&self.sources);
        let Some(entry) = sources.get_mut(&draw.source) else {
            return;
        };
        if is_granted {
            entry.live += draw.bytes;
        }
        if !draw.is_counted {
            self.marks.is_stale.store(true, Ordering::Relaxed);
            return;
        }
        entry.in_driver -= draw.bytes;
        entry.beforehand -= beforehand;
        entry.charged += beforehand;
        entry.count_anew(draw.source);
        if entry.in_driver == 0 {
            self.alone.notify_all();
        }
    }

    fn try_charge(
        &self,
        account: &'static DeviceAccount,
        source: Source,
        bytes: u64,
    ) -> Option<u64> {
        self.note_graphs(source);
        let sources = &mut *locked(&self.sources);
        let entry = sources.entry(source).or_insert_with(|| Entry::new(account));
        // A new pool under the handle of a destroyed one.
        if entry.living.take().is_some() {
            entry.live = 0;
        }
        entry.count_anew(source);
        let told = (!entry.is_going).then(|| reserved(source)).flatten();
        let used = told.map_or(entry.charged, |pool| pool.used);
        let needed = used.saturating_add(entry.in_driver).saturating_add(bytes);
        let needed = match source {
            Source::Pool(_) => needed.checked_next_multiple_of(GROWTH_BYTES)?,
            // Each node has its own memory.
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

    fn note_graphs(&self, source: Source) {
        if let Source::Graphs(_) = source {
            self.marks.has_graphs.store(true, Ordering::Relaxed);
        }
    }

    /// Waits, for a short time, until no thread is in the driver with a source.
    fn wait_until_alone(&self, source: Source) {
        let is_used = |sources: &mut BTreeMap<Source, Entry>| {
            sources
                .get(&source)
                .is_some_and(|entry| entry.in_driver != 0)
        };
        // Poisoned or late, the next step is the same.
        let _ = self
            .alone
            .wait_timeout_while(locked(&self.sources), ALONE_WAIT, is_used);
    }

    /// Memory of a pool was freed, or will be when its stream gets there.
    pub(crate) fn handle_freed(&self, pool: u64, bytes: u64) {
        let sources = &mut *locked(&self.sources);
        let source = Source::Pool(pool);
        let Some(entry) = sources.get_mut(&source) else {
            return;
        };
        entry.live = entry.live.saturating_sub(rounded_bytes(bytes));
        if let Some(living) = &mut entry.living {
            *living = living.saturating_sub(rounded_bytes(bytes));
            if *living == 0 {
                entry.set_charged(source, 0);
                sources.remove(&source);
            }
            return;
        }
        self.marks.is_stale.store(true, Ordering::Relaxed);
    }

    /// A reservation may have changed, which shows at once.
    pub(crate) fn handle_changed(&self) {
        if account::is_any() {
            self.count_stale_anew();
        }
    }

    /// Memory of a graph may have been given back. Called for a free of memory that is in no table.
    #[inline]
    pub(crate) fn note_graphs_stale(&self) {
        if self.marks.has_graphs.load(Ordering::Relaxed) {
            self.marks.is_stale.store(true, Ordering::Relaxed);
        }
    }

    /// Graphs with memory may have been created, run or destroyed: checks their reservations.
    #[inline]
    pub(crate) fn handle_graphs(&self) {
        if self.marks.has_graphs.load(Ordering::Relaxed) {
            self.count_stale_anew();
        }
    }

    /// The application has waited for something: its earlier frees are done.
    #[inline]
    pub(crate) fn handle_waited(&self) {
        if self.marks.is_stale.load(Ordering::Relaxed) {
            self.count_stale_anew();
        }
    }

    #[cold]
    fn count_stale_anew(&self) {
        // Cleared before the check: what becomes stale meanwhile is checked next time.
        self.marks.is_stale.store(false, Ordering::Relaxed);
        let mut is_stale = false;
        for (source, entry) in locked(&self.sources).iter_mut() {
            is_stale |= entry.count_anew(*source);
        }
        if is_stale {
            self.marks.is_stale.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_anew(&self, account: &'static DeviceAccount) {
        let sources = &mut *locked(&self.sources);
        let its = sources.iter_mut();
        for (source, entry) in its.filter(|(_, entry)| entry.account.device == account.device) {
            entry.count_anew(*source);
        }
    }

    /// Makes the pools of a device give back unused memory. Returns whether there are any.
    pub(crate) fn try_give_back(&self, account: &'static DeviceAccount) -> bool {
        let sources = &mut *locked(&self.sources);
        let mut are_any = false;
        for (source, entry) in sources.iter_mut() {
            if entry.account.device != account.device || entry.is_gone() {
                continue;
            }
            // Under the lock: no thread begins to destroy the pool until it is released.
            match *source {
                Source::Pool(pool) => memory::trim_pool(pool),
                Source::Graphs(_) => memory::trim_graphs(account.device),
            }
            entry.count_anew(*source);
            are_any = true;
        }
        are_any
    }

    /// A pool was created at this location, where its memory is, whichever stream orders it.
    pub(crate) fn handle_created(&self, pool: CUmemoryPool, location: CUmemLocation) {
        let is_device = location.kind == CUmemLocationType::DEVICE;
        let device = is_device.then_some(CUdevice(location.id));
        locked(&self.places).insert(pool_number(pool), device);
    }

    /// The account to charge for a pool's memory; `stream_account` if the pool's location is
    /// unknown, as for pools that the application did not create.
    pub(crate) fn account_of(
        &self,
        pool: CUmemoryPool,
        stream_account: &'static DeviceAccount,
    ) -> Option<&'static DeviceAccount> {
        let place = locked(&self.places).get(&pool_number(pool)).copied();
        match place {
            None => Some(stream_account),
            Some(device) => account::of_device(device?),
        }
    }

    /// A pool is about to be destroyed: its bytes. No queries until [`Self::handle_destroyed`].
    pub(crate) fn before_destroy(&self, pool: CUmemoryPool) -> Option<PoolBytes> {
        if !account::is_any() {
            return None;
        }
        let source = Source::Pool(pool_number(pool));
        let sources = &mut *locked(&self.sources);
        let entry = sources.get_mut(&source)?;
        entry.is_going = true;
        reserved(source)
    }

    /// Handles the driver's answer to the destruction. The memory lives as long as its allocations.
    pub(crate) fn handle_destroyed(
        &self,
        pool: CUmemoryPool,
        had: Option<PoolBytes>,
        result: CUresult,
    ) {
        if result == CUresult::SUCCESS {
            locked(&self.places).remove(&pool_number(pool));
        }
        if !account::is_any() {
            return;
        }
        let source = Source::Pool(pool_number(pool));
        let sources = &mut *locked(&self.sources);
        let Some(entry) = sources.get_mut(&source) else {
            return;
        };
        entry.is_going = false;
        if result != CUresult::SUCCESS {
            return;
        }
        // If the driver did not report it, our live bytes are as good.
        let had = had.unwrap_or(PoolBytes {
            reserved: entry.charged,
            used: entry.live,
            threshold: 0,
        });
        let kept = had.used.next_multiple_of(STEP_BYTES).min(entry.charged);
        entry.set_charged(source, if had.used == 0 { 0 } else { kept });
        entry.living = Some(had.used);
        if had.used == 0 {
            sources.remove(&source);
        }
    }
}

pub(crate) fn pool_number(pool: CUmemoryPool) -> u64 {
    pool.0.expose_provenance() as u64
}

fn reserved(source: Source) -> Option<PoolBytes> {
    match source {
        Source::Pool(pool) => memory::pool_bytes(pool),
        Source::Graphs(device) => memory::graph_bytes(CUdevice(device)),
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
            live: 0,
            is_going: false,
            living: None,
        }
    }

    /// No pool has this handle, or soon none will.
    fn is_gone(&self) -> bool {
        self.is_going || self.living.is_some()
    }

    /// Corrects the charge to the reservation. Not while a thread is in the driver, which may rely
    /// on a charge beyond the reservation. Returns whether it is stale: freed memory is not back.
    fn count_anew(&mut self, source: Source) -> bool {
        if self.is_gone() {
            return false;
        }
        if self.in_driver != 0 {
            return true;
        }
        let Some(told) = reserved(source) else {
            return false;
        };
        self.set_charged(source, rounded_bytes(told.reserved));
        let kept = self.live.next_multiple_of(STEP_BYTES).max(told.threshold);
        matches!(source, Source::Pool(_)) && (told.used > self.live || told.reserved > kept)
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

#[cfg(test)]
mod tests {
    use core::ptr;

    use protocol::ledger::{Account, LedgerPage};

    use super::*;

    /// The software GPU has no such pools.
    #[test]
    fn a_pool_is_charged_to_its_own_place_and_one_that_nobody_made_to_the_streams_device() {
        let page: &'static LedgerPage = Box::leak(Box::new(LedgerPage::empty()));
        let account = Account::resume(page, 0).expect("it has a slot");
        let stream_account: &'static DeviceAccount = Box::leak(Box::new(DeviceAccount {
            device: CUdevice(0),
            account: Mutex::new(account),
        }));
        let pools = Pools::new();
        let pool = CUmemoryPool(ptr::without_provenance_mut(0x1000));
        let charged = || {
            pools
                .account_of(pool, stream_account)
                .map(|account| account.device)
        };
        assert_eq!(charged(), Some(CUdevice(0)));
        for kind in [CUmemLocationType::HOST, CUmemLocationType::HOST_NUMA] {
            pools.handle_created(pool, CUmemLocation { kind, id: 0 });
            assert_eq!(charged(), None, "the host's is nobody's");
        }
        // On a device without an account.
        let kind = CUmemLocationType::DEVICE;
        pools.handle_created(pool, CUmemLocation { kind, id: 7 });
        assert_eq!(charged(), None);
        pools.handle_destroyed(pool, None, CUresult::SUCCESS);
        assert_eq!(charged(), Some(CUdevice(0)));
    }
}

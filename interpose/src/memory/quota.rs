//! What this process holds of each device's memory, and whether it may have more.
//!
//! Every way to obtain device memory is charged once, before the driver is asked, and given back when the driver
//! has refused it or has it back ([`protocol::ledger`]). Over the quota the answer is out of memory, and the driver is
//! not called: frameworks empty their caches then and try again.
//!
//! | memory | charged | module |
//! |---|---|---|
//! | `cuMemAlloc` and its kin, pitched, managed; arrays | each allocation | [`blocks`] |
//! | `cuMemCreate` | at its creation; back with its last name and mapping | [`physical`] |
//! | from pools, in a stream's order; of graphs | what pool or graphs have reserved of the device | [`pools`] |
//! | variables of modules | when the application finds them; back with the module | [`blocks`] |
//! | what was imported, from a process or another API | by whoever made it | |
//! | a context's own | what the daemon's configuration says, or has measured; once for all contexts on a device | |
//!
//! The account is the job's where a daemon keeps its ledger. Where none does and the job asked for a quota, it is
//! this process's own ([`open_local`]): memory fails closed.
//!
//! Locks: each device's account and each table has one, held for a few dozen instructions and never across
//! a call of the driver, but for [`pools`], which asks the driver what a pool has.

pub(crate) mod blocks;
pub(crate) mod physical;
pub(crate) mod pools;
pub(crate) mod views;

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use abi::types::{CUdevice, CUresult, CUstream};
use protocol::ledger::{Account, Kind, LEDGER_SLOTS, LedgerPage, UNLIMITED, rounded_bytes};

use crate::client::clients::CLIENTS;
use crate::daemon::lifecycle;
use crate::driver;
use crate::platform::config::DEVICES_MAX;

/// This process's account of a device's memory.
pub(crate) struct DeviceAccount {
    pub(crate) device: CUdevice,
    account: Mutex<Account<'static, LEDGER_SLOTS>>,
}

/// By the index of the device in [`CLIENTS`].
static ACCOUNTS: [OnceLock<DeviceAccount>; DEVICES_MAX] = [const { OnceLock::new() }; DEVICES_MAX];
/// Whether there is one.
static IS_ANY: AtomicBool = AtomicBool::new(false);

/// Opens the account of a device in its job's ledger. False if the ledger has no such slot.
pub(crate) fn open(index: u32, device: CUdevice, page: &'static LedgerPage, slot: usize) -> bool {
    let Some((account, place)) = Account::resume(page, slot).zip(ACCOUNTS.get(index as usize))
    else {
        return false;
    };
    let opened = place.get_or_init(|| DeviceAccount {
        device,
        account: Mutex::new(account),
    });
    opened.take_context();
    // Release pairs with the Acquire in `is_any`: who sees it finds the account.
    IS_ANY.store(true, Ordering::Release);
    true
}

/// The account of a device goes on under another daemon: as it is if that goes on with the ledger, else in its ledger with all that
/// this process holds, whatever the quota. False if that ledger has no such slot.
pub(crate) fn go_on(index: u32, device: CUdevice, page: &'static LedgerPage, slot: usize) -> bool {
    let Some(kept) = ACCOUNTS.get(index as usize).and_then(OnceLock::get) else {
        return open(index, device, page, slot);
    };
    kept.change(|account| {
        if core::ptr::eq(account.ledger(), page) && account.slot() == slot {
            return true;
        }
        let Some(mut next) = Account::resume(page, slot) else {
            return false;
        };
        // Counted twice for a moment rather than not at all. In the old ledger it must not stay: that may become a daemon's again.
        for kind in Kind::ALL {
            let bytes = account.kind_bytes(*kind);
            next.take(*kind, bytes);
            account.release(*kind, bytes);
        }
        *account = next;
        true
    })
}

/// Opens an account that nobody shares, for a job whose quota no daemon keeps.
pub(crate) fn open_local(index: u32, device: CUdevice, quota_bytes: Option<u64>) {
    let page: &'static LedgerPage = Box::leak(Box::new(LedgerPage::empty()));
    page.quota_bytes
        .store(quota_bytes.unwrap_or(UNLIMITED), Ordering::Relaxed);
    open(index, device, page, 0);
}

/// A context was made on a device, not the first of the process.
pub(crate) fn handle_context(device: CUdevice) {
    if is_any()
        && let Some(account) = of_device(device)
    {
        account.take_context();
    }
}

/// The last context on a device is gone, and what it took by itself with it.
pub(crate) fn handle_last_context_destroyed(device: CUdevice) {
    if is_any()
        && let Some(account) = of_device(device)
    {
        account.change(|account| {
            let bytes = account.kind_bytes(Kind::Context);
            account.release(Kind::Context, bytes);
        });
    }
}

/// Whether this process keeps any account.
#[inline]
pub(crate) fn is_any() -> bool {
    IS_ANY.load(Ordering::Acquire)
}

/// The account of the calling thread's current device.
#[inline]
pub(crate) fn current() -> Option<&'static DeviceAccount> {
    if !is_any() {
        // A context that was made behind our back decides now.
        lifecycle::handle_call_without_account();
        if !is_any() {
            return None;
        }
    }
    if CLIENTS.are_several() {
        return of_device(driver::current_device().ok()?);
    }
    ACCOUNTS[0].get()
}

/// Every account of this process.
#[cfg(not(shim))]
pub(crate) fn accounts() -> impl Iterator<Item = &'static DeviceAccount> {
    ACCOUNTS.iter().filter_map(OnceLock::get)
}

/// The account of a device.
pub(crate) fn of_device(device: CUdevice) -> Option<&'static DeviceAccount> {
    let mut accounts = ACCOUNTS.iter().filter_map(OnceLock::get);
    accounts.find(|account| account.device == device)
}

/// The account of a stream's device.
pub(crate) fn of_stream(stream: CUstream) -> Option<&'static DeviceAccount> {
    if !is_any() || !CLIENTS.are_several() {
        return current();
    }
    let context = driver::stream_context(stream).ok()?;
    of_device(
        driver::with_context(context, driver::current_device)
            .ok()?
            .ok()?,
    )
}

impl DeviceAccount {
    /// The ledger that it is in.
    pub(crate) fn ledger(&self) -> &'static LedgerPage {
        self.change(|account| account.ledger())
    }

    /// A context is there: what it takes by itself is charged, once however many there are.
    fn take_context(&self) {
        let context_bytes = self.ledger().context_bytes.load(Ordering::Relaxed);
        self.change(|account| {
            if account.kind_bytes(Kind::Context) == 0 {
                account.take(Kind::Context, context_bytes);
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Account<'static, LEDGER_SLOTS>) -> T) -> T {
        change(&mut locked(&self.account))
    }

    /// Takes `bytes` if the quota allows. Before it says no, what this process's pools hold without using it goes back.
    fn try_reserve(&'static self, kind: Kind, bytes: u64) -> bool {
        let reserve = || self.change(|account| account.try_reserve(kind, bytes).is_ok());
        reserve() || (pools::try_give_back(self) && reserve())
    }

    fn release(&self, kind: Kind, bytes: u64) {
        self.change(|account| account.release(kind, bytes));
    }
}

/// What was charged for a call of the driver that is about to be made.
pub(crate) struct Charge {
    state: State,
    kind: Kind,
    bytes: Cell<u64>,
}

enum State {
    /// Nobody keeps an account of it.
    Free,
    Held(&'static DeviceAccount),
    Refused,
}

impl Charge {
    /// Charges an account, if there is one and it has room.
    #[inline]
    pub(crate) fn reserve(account: Option<&'static DeviceAccount>, kind: Kind, bytes: u64) -> Self {
        let state = match account {
            None => State::Free,
            Some(account) if account.try_reserve(kind, bytes) => State::Held(account),
            Some(_) => State::Refused,
        };
        Self {
            state,
            kind,
            bytes: Cell::new(bytes),
        }
    }

    /// Whether the driver must not be asked.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused)
    }

    /// The account that was charged.
    pub(crate) fn account(&self) -> Option<&'static DeviceAccount> {
        match self.state {
            State::Held(account) => Some(account),
            State::Free | State::Refused => None,
        }
    }

    /// The allocation turned out to have so many bytes. False if that is more than the quota allows: then it must be
    /// given back to the driver.
    pub(crate) fn fit(&self, bytes: u64) -> bool {
        let Some(account) = self.account() else {
            return true;
        };
        let (had, has) = (rounded_bytes(self.bytes.get()), rounded_bytes(bytes));
        if has > had && !account.try_reserve(self.kind, has - had) {
            return false;
        }
        account.release(self.kind, had.saturating_sub(has));
        self.bytes.set(has);
        true
    }

    /// The driver has answered: what it did not grant goes back, the rest is kept under `key`.
    #[inline]
    pub(crate) fn settle(&self, result: CUresult, key: Option<blocks::Key>) {
        let Some(account) = self.account() else {
            return;
        };
        match key.filter(|_| result == CUresult::SUCCESS) {
            Some(key) => blocks::keep(key, account, self.kind, self.bytes.get()),
            None => account.release(self.kind, self.bytes.get()),
        }
    }
}

/// A lock that a panic does not take away: what is behind it is whole between any two changes.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

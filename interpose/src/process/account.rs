//! This process's accounts of the memory it holds, one for each device. An account is a slot in its
//! job's ledger where a daemon keeps one. Where none does and the job has a quota, the account is
//! this process's own ([`open_local`]): memory fails closed. Each has a lock, held for a few dozen
//! instructions. [`crate::memory::quota`] decides what is charged when.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use abi::types::CUdevice;
use protocol::ledger::{Account, Kind, LEDGER_SLOTS, LedgerPage, UNLIMITED};

use crate::platform::config::DEVICES_MAX;
use crate::platform::sys::locked;

pub(crate) struct DeviceAccount {
    pub(crate) device: CUdevice,
    pub(crate) account: Mutex<Account<'static, LEDGER_SLOTS>>,
}

static ACCOUNTS: Accounts = Accounts::new();

struct Accounts {
    /// By the index of the device in [`crate::process::clients::CLIENTS`].
    of_devices: [OnceLock<DeviceAccount>; DEVICES_MAX],
    is_any: AtomicBool,
}

impl Accounts {
    const fn new() -> Self {
        Self {
            of_devices: [const { OnceLock::new() }; DEVICES_MAX],
            is_any: AtomicBool::new(false),
        }
    }

    fn open(&self, index: u32, device: CUdevice, account: Account<'static, LEDGER_SLOTS>) -> bool {
        let Some(place) = self.of_devices.get(index as usize) else {
            return false;
        };
        let opened = place.get_or_init(|| DeviceAccount {
            device,
            account: Mutex::new(account),
        });
        opened.take_context();
        // Release pairs with the Acquire in `is_any`: a thread that sees it finds the account.
        self.is_any.store(true, Ordering::Release);
        true
    }

    #[inline]
    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    #[inline]
    fn at(&self, index: u32) -> Option<&DeviceAccount> {
        self.of_devices.get(index as usize)?.get()
    }

    fn all(&self) -> impl Iterator<Item = &DeviceAccount> {
        self.of_devices.iter().filter_map(OnceLock::get)
    }
}

/// Opens the account of a device in its job's ledger. False if the ledger has no such slot.
pub(crate) fn open(index: u32, device: CUdevice, page: &'static LedgerPage, slot: usize) -> bool {
    Account::resume(page, slot).is_some_and(|account| ACCOUNTS.open(index, device, account))
}

/// Continues the account of a device under another daemon: unchanged if the daemon continues the
/// ledger, else in the daemon's ledger with all that this process holds, whatever the quota. False
/// if that ledger has no such slot.
pub(crate) fn go_on(index: u32, device: CUdevice, page: &'static LedgerPage, slot: usize) -> bool {
    let Some(kept) = ACCOUNTS.at(index) else {
        return open(index, device, page, slot);
    };
    kept.change(|account| client::account::go_on(account, page, slot))
}

/// Opens a private account, for a job whose quota no daemon keeps.
pub(crate) fn open_local(index: u32, device: CUdevice, quota_bytes: Option<u64>) {
    let page: &'static LedgerPage = Box::leak(Box::new(LedgerPage::empty()));
    page.quota_bytes
        .store(quota_bytes.unwrap_or(UNLIMITED), Ordering::Relaxed);
    open(index, device, page, 0);
}

/// A context was created on a device, not the first of the process.
pub(crate) fn handle_context(device: CUdevice) {
    if is_any()
        && let Some(account) = of_device(device)
    {
        account.take_context();
    }
}

/// The last context on a device is gone: releases what contexts took by themselves.
pub(crate) fn handle_last_context_destroyed(device: CUdevice) {
    if is_any()
        && let Some(account) = of_device(device)
    {
        account.change(client::account::release_context);
    }
}

#[inline]
pub(crate) fn is_any() -> bool {
    ACCOUNTS.is_any()
}

#[inline]
pub(crate) fn first() -> Option<&'static DeviceAccount> {
    ACCOUNTS.at(0)
}

#[cfg(not(shim))]
pub(crate) fn accounts() -> impl Iterator<Item = &'static DeviceAccount> {
    ACCOUNTS.all()
}

pub(crate) fn of_device(device: CUdevice) -> Option<&'static DeviceAccount> {
    ACCOUNTS.all().find(|account| account.device == device)
}

impl DeviceAccount {
    pub(crate) fn ledger(&self) -> &'static LedgerPage {
        self.change(|account| account.ledger())
    }

    /// Charges what contexts take by themselves, once per process.
    fn take_context(&self) {
        self.change(client::account::take_context);
    }

    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Account<'static, LEDGER_SLOTS>) -> T,
    ) -> T {
        change(&mut locked(&self.account))
    }

    pub(crate) fn try_reserve(&self, kind: Kind, bytes: u64) -> bool {
        self.change(|account| account.try_reserve(kind, bytes).is_ok())
    }

    pub(crate) fn release(&self, kind: Kind, bytes: u64) {
        self.change(|account| account.release(kind, bytes));
    }
}

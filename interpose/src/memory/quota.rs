//! This process's memory on each device, and whether it may have more. Every way to obtain device
//! memory is charged once, before the driver is called, and given back when the driver has refused
//! or freed it ([`protocol::ledger`]). Over the quota the answer is out of memory, and the driver
//! is not called: frameworks then empty their caches and try again.
//!
//! | memory | charged | module |
//! |---|---|---|
//! | `cuMemAlloc` and its kin, pitched, managed; arrays | each allocation | [`blocks`] |
//! | `cuMemCreate` | at its creation, until its last name and mapping | [`physical`] |
//! | from pools, stream-ordered; of graphs | what pool or graphs have reserved | [`pools`] |
//! | variables of modules | when the application finds them, until unload | [`blocks`] |
//! | imported, from a process or another API | by its creator | |
//! | a context's own | as configured, or measured, by the daemon; once per device | |
//!
//! The accounts are [`crate::process::account`]. Each table here has a lock, held for a few dozen
//! instructions and never across a driver call, except in [`pools`], which queries pools.

pub(crate) mod blocks;
pub(crate) mod physical;
pub(crate) mod pools;
pub(crate) mod views;

use core::cell::Cell;

use abi::types::{CUresult, CUstream};
use protocol::ledger::{Kind, rounded_bytes};

use self::blocks::Blocks;
use self::physical::Physical;
use self::pools::Pools;
use crate::daemon::lifecycle;
use crate::driver;
use crate::process::account::{self, DeviceAccount};
use crate::process::clients::CLIENTS;

pub(crate) static HELD: Held = Held {
    blocks: Blocks::new(),
    physical: Physical::new(),
    pools: Pools::new(),
};

pub(crate) struct Held {
    pub(crate) blocks: Blocks,
    pub(crate) physical: Physical,
    pub(crate) pools: Pools,
}

#[inline]
pub(crate) fn current() -> Option<&'static DeviceAccount> {
    if !account::is_any() {
        // If a context was created behind our back, it decides now.
        lifecycle::handle_call_without_account();
        if !account::is_any() {
            return None;
        }
    }
    if CLIENTS.are_several() {
        return account::of_device(driver::current_device().ok()?);
    }
    account::first()
}

pub(crate) fn of_stream(stream: CUstream) -> Option<&'static DeviceAccount> {
    if !account::is_any() || !CLIENTS.are_several() {
        return current();
    }
    let context = driver::stream_context(stream).ok()?;
    account::of_device(
        driver::with_context(context, driver::current_device)
            .ok()?
            .ok()?,
    )
}

pub(crate) struct Charge {
    state: State,
    kind: Kind,
    bytes: Cell<u64>,
}

enum State {
    Free,
    Held(&'static DeviceAccount),
    Refused,
}

impl Charge {
    #[inline]
    pub(crate) fn reserve(account: Option<&'static DeviceAccount>, kind: Kind, bytes: u64) -> Self {
        let state = match account {
            None => State::Free,
            Some(account) if try_reserve(account, kind, bytes) => State::Held(account),
            Some(_) => State::Refused,
        };
        Self {
            state,
            kind,
            bytes: Cell::new(bytes),
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused)
    }

    pub(crate) fn account(&self) -> Option<&'static DeviceAccount> {
        match self.state {
            State::Held(account) => Some(account),
            State::Free | State::Refused => None,
        }
    }

    /// Corrects the charge to the real size. False: over the quota, free the memory.
    pub(crate) fn fit(&self, bytes: u64) -> bool {
        let Some(account) = self.account() else {
            return true;
        };
        let (had, has) = (rounded_bytes(self.bytes.get()), rounded_bytes(bytes));
        if has > had && !try_reserve(account, self.kind, has - had) {
            return false;
        }
        account.release(self.kind, had.saturating_sub(has));
        self.bytes.set(has);
        true
    }

    /// After the driver's answer: gives back a refused charge, or keeps the other under `key`.
    #[inline]
    pub(crate) fn settle(&self, result: CUresult, key: Option<blocks::Key>) {
        let Some(account) = self.account() else {
            return;
        };
        match key.filter(|_| result == CUresult::SUCCESS) {
            Some(key) => HELD.blocks.keep(key, account, self.kind, self.bytes.get()),
            None => account.release(self.kind, self.bytes.get()),
        }
    }
}

/// Takes `bytes` if the quota allows. Before a refusal, this process's pools give memory back.
fn try_reserve(account: &'static DeviceAccount, kind: Kind, bytes: u64) -> bool {
    account.try_reserve(kind, bytes)
        || HELD.pools.try_give_back(account) && account.try_reserve(kind, bytes)
}

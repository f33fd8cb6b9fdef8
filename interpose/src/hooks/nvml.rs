//! NVML, as a job under a quota sees it: of a device its own share, and of the processes there its own.
//!
//! Monitors and frameworks ask the management library (`libnvidia-ml.so.1`) what a device has and
//! who uses it. Inside a job with a quota the answers agree with those of the driver
//! ([`crate::memory::quota::views`]): total is the quota, used what the job holds, free what is
//! left of either, and neither more than the device has; the lists of processes have the job's own.
//! All else is NVML's. Outside a job, and in one without a quota, nothing is changed.
//!
//! | who asks | whose word |
//! |---|---|
//! | a process that keeps an account of the device | the job's ledger |
//! | another of a job (`PILLION_JOB`, or a quota in the environment) | the device's daemon; where none answers, the environment |
//!
//! Lists are the daemon's word alone: where none answers, or cannot see who its clients are, they are as NVML gives them.
//!
//! **Doors.** Programs get the functions by `dlsym`, as every monitor does, or are linked with the
//! library: our exports stand before it. There is one such library on a machine, so the first that
//! is met is the one; another's functions stay their own. What was inert by
//! [`crate::daemon::lifecycle`] (a fork's child) still sees its job's share, as the daemon tells
//! it.

use abi::types::CUdevice;
use protocol::hello::format_uuid;
use protocol::ledger::UNLIMITED;

use crate::daemon::attach;
use crate::dispatch::environment;
use crate::driver;
use crate::memory::quota::views;
use crate::platform::config::{self, Config};
use crate::platform::{phase, sys};
use crate::process::{self, account};

mod hooks;

pub(crate) use hooks::answer;

use hooks::{Device, Memory};

/// What a job may see of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    /// Free and total bytes.
    free: u64,
    total: u64,
    held: u64,
}

/// What a process of a job is told in place of `told`; `None` if that is as it is to be.
fn memory(device: Device, told: Memory) -> Option<Memory> {
    let Asker { config, uuid } = Asker::of(device)?;
    let share = match account(&uuid) {
        Some(account) => {
            account.ledger().quota()?;
            let (free, total) = views::memory(account, told.free, told.total);
            let held = account.ledger().held_bytes();
            Share { free, total, held }
        }
        None => {
            let (quota, held) = told_of_job(config, device, &uuid, told.total)?;
            let (free, total) = views::seen(quota, held, told.free, told.total);
            Share { free, total, held }
        }
    };
    Some(Memory {
        total: share.total,
        free: share.free,
        used: share.held.min(share.total),
    })
}

/// The job's quota of a device, and what the job holds, for a process that keeps no account of it.
fn told_of_job(config: &Config, device: Device, uuid: &str, total: u64) -> Option<(u64, u64)> {
    let asked = config.quotas.of_device(device.index().unwrap_or(0));
    if config.job.is_none() && asked.is_none() {
        return None;
    }
    let is = sys::without_cancellation(|| attach::ask_memory(config, uuid, asked));
    match is {
        Some(is) => Some((is.quota_bytes, is.held_bytes)).filter(|&(quota, _)| quota != UNLIMITED),
        // Each process keeps it by itself then, and this one holds nothing.
        None => Some((asked?.bytes_of(total)?, 0)),
    }
}

/// The processes of the job on a device, if the lists of processes are to have no others.
fn own_processes(device: Device) -> Option<Vec<u32>> {
    let Asker { config, uuid } = Asker::of(device)?;
    let asked = config.quotas.of_device(device.index().unwrap_or(0));
    let own = account(&uuid);
    if own.is_none() && config.job.is_none() && asked.is_none() {
        return None;
    }
    let is = sys::without_cancellation(|| attach::ask_memory(config, &uuid, asked))?;
    let are_all_seen = !is.pids.contains(&0);
    (is.quota_bytes != UNLIMITED && are_all_seen).then_some(is.pids)
}

/// Who asks about what.
struct Asker {
    config: &'static Config,
    /// Of the device, as NVML and the driver write it.
    uuid: String,
}

impl Asker {
    /// `None` for whom nothing is changed.
    fn of(device: Device) -> Option<Self> {
        environment::prepare();
        let config = process::config().filter(|_| !config::is_disabled())?;
        let uuid = device.uuid()?;
        Some(Self { config, uuid })
    }
}

/// This process's account of the device with that identity.
fn account(uuid: &str) -> Option<&'static account::DeviceAccount> {
    // A child of a fork has its parent's accounts, but not their pages.
    if phase::is_inert() || !account::is_any() {
        return None;
    }
    let is_it = |device: CUdevice| {
        driver::device_uuid(device).is_ok_and(|found| format_uuid(found.bytes) == uuid)
    };
    account::accounts().find(|account| is_it(account.device))
}

//! NVML as seen by a job under a quota: a device's memory is the job's share, and its processes are
//! the job's own. Monitors and frameworks ask the management library (`libnvidia-ml.so.1`) for a
//! device's memory and users. In a job with a quota the answers agree with those of the driver
//! ([`crate::memory::quota::views`]): total is the quota, used is what the job holds, free is the
//! rest, and neither exceeds the device; lists of processes have only the job's own. Nothing else
//! is changed, and nothing outside a job or without a quota.
//! - A process with an account of the device uses the job's ledger.
//! - Another process of a job (`PILLION_JOB`, or a quota in the environment) uses the device's
//!   daemon; if none answers, the environment.
//!
//! Lists need the daemon: if none answers, or it cannot see its clients' process ids, they are as
//! NVML gives them.
//!
//! **Doors.** Programs get the functions by `dlsym`, as every monitor does, or are linked with the
//! library: our exports come before it. A machine has one such library, so the first one found is
//! the one; functions of another are not hooked. A process made inert by
//! [`crate::daemon::lifecycle`] (a forked child) still sees its job's share, from the daemon.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    free: u64,
    total: u64,
    held: u64,
}

/// The memory that a process of a job sees in place of `told`; `None`: unchanged.
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

/// The job's quota on a device, and what the job holds, for a process without an account of it.
fn told_of_job(config: &Config, device: Device, uuid: &str, total: u64) -> Option<(u64, u64)> {
    let asked = config.quotas.of_device(device.index().unwrap_or(0));
    if config.job.is_none() && asked.is_none() {
        return None;
    }
    let is = sys::without_cancellation(|| attach::ask_memory(config, uuid, asked));
    match is {
        Some(is) => Some((is.quota_bytes, is.held_bytes)).filter(|&(quota, _)| quota != UNLIMITED),
        // Then each process keeps the quota by itself, and this one holds nothing.
        None => Some((asked?.bytes_of(total)?, 0)),
    }
}

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

struct Asker {
    config: &'static Config,
    uuid: String,
}

impl Asker {
    /// `None` if nothing is to be changed.
    fn of(device: Device) -> Option<Self> {
        environment::prepare();
        let config = process::config().filter(|_| !config::is_disabled())?;
        let uuid = device.uuid()?;
        Some(Self { config, uuid })
    }
}

fn account(uuid: &str) -> Option<&'static account::DeviceAccount> {
    // A forked child has its parent's accounts, but not their pages.
    if phase::is_inert() || !account::is_any() {
        return None;
    }
    let is_it = |device: CUdevice| {
        driver::device_uuid(device).is_ok_and(|found| format_uuid(found.bytes) == uuid)
    };
    account::accounts().find(|account| is_it(account.device))
}

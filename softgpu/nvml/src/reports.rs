//! Event sets, and the wait for an event: the devices' injected reports since their registration.
//! Waiting threads poll the server. A lost device's earlier reports are delivered first.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use protocol::clock::Clock;
use softgpu::wire::HealthReport;

use crate::code::{Code, Outcome};
use crate::library::Gpu;

/// The supported event types: nvmlEventTypeSingleBitEccError, nvmlEventTypeDoubleBitEccError,
/// nvmlEventTypeXidCriticalError.
pub(crate) const SUPPORTED: u64 = 1 | 2 | 8;

/// `nvmlEventSet_t` of the first set; others follow. Neither null nor a likely accidental number.
const FIRST: usize = 0x6770_7565;
const SETS_MAX: usize = 256;
const ASK_NS: u64 = 50_000_000;

static SETS: Mutex<BTreeMap<usize, Vec<Registered>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Registered {
    place: u32,
    kinds: u64,
    /// Number of the last report that is not delivered any more.
    seen: u64,
}

pub(crate) fn create() -> Outcome<usize> {
    let mut sets = SETS.lock();
    if sets.len() >= SETS_MAX {
        return Err(Code::UNKNOWN);
    }
    let set = sets.last_key_value().map_or(FIRST, |(last, _)| last + 1);
    sets.insert(set, Vec::new());
    Ok(set)
}

pub(crate) fn free(set: usize) -> Outcome {
    SETS.lock()
        .remove(&set)
        .map(drop)
        .ok_or(Code::INVALID_ARGUMENT)
}

/// Adds a device's events of these kinds to the set, from now on.
pub(crate) fn register(gpu: &Gpu, kinds: u64, set: usize) -> Outcome {
    if kinds & !SUPPORTED != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let health = gpu.ask()?.health;
    let registered = Registered {
        place: gpu.place,
        kinds,
        seen: health.reports.last().map_or(0, |report| report.seq),
    };
    let mut sets = SETS.lock();
    let devices = sets.get_mut(&set).ok_or(Code::INVALID_ARGUMENT)?;
    devices.retain(|known| known.place != gpu.place);
    devices.push(registered);
    Ok(())
}

/// The next report of a set's devices, and its device.
pub(crate) fn wait(gpus: &[Gpu], set: usize, timeout_ms: u32) -> Outcome<(u32, HealthReport)> {
    // The caller's real time, whatever the device's is.
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns() + u64::from(timeout_ms) * 1_000_000;
    loop {
        let devices = SETS
            .lock()
            .get(&set)
            .cloned()
            .ok_or(Code::INVALID_ARGUMENT)?;
        for registered in devices {
            let gpu = gpus.iter().find(|gpu| gpu.place == registered.place);
            let health = gpu.ok_or(Code::INVALID_ARGUMENT)?.ask_server()?.health;
            let is_next = |report: &&HealthReport| {
                report.seq > registered.seen && report.kind & registered.kinds != 0
            };
            if let Some(report) = health.reports.iter().find(is_next) {
                if take(set, registered.place, registered.seen, report.seq) {
                    return Ok((registered.place, *report));
                }
            } else if health.is_lost {
                return Err(Code::GPU_IS_LOST);
            }
        }
        let now_ns = clock.now_ns();
        if now_ns >= end_ns {
            return Err(Code::TIMEOUT);
        }
        clock.sleep_until((now_ns + ASK_NS).min(end_ns));
    }
}

/// Takes a report, unless another thread has taken it since.
fn take(set: usize, place: u32, seen: u64, seq: u64) -> bool {
    let mut sets = SETS.lock();
    let mut devices = sets.get_mut(&set).into_iter().flatten();
    let device = devices.find(|device| device.place == place && device.seen == seen);
    device.map(|device| device.seen = seq).is_some()
}

//! Cost of event calls with `SOFTGPU_EVENT_NS`: that many ns of busy time, with a lock of the
//! context that launches need. It models NVIDIA's driver, in which a record or a query of an event,
//! or a query of a stream, takes about a microsecond under a lock that a launching thread needs
//! too: a thread which queries events slows another thread's launches down. Here all submissions to
//! a stream wait for the lock; a launch's own time is not modelled, and it does not keep the lock.
//! In null mode no handle is looked up, and all contexts share one lock. On the virtual clock the
//! switch has no effect: calls take the times of `crate::cost`. A thread that does not get the lock
//! at once spins briefly, then sleeps (`parking_lot`).

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use abi::id;
use parking_lot::Mutex;
use protocol::clock::Clock;
use softgpu::wire::{CONTEXTS, DEVICES};

/// Longest time of a call, ns.
const HELD_NS_MAX: u64 = 1_000_000_000;
const NULL_SLOT: u32 = 0;

/// Duration of an event call, ns; 0 if no locks are taken.
static HELD_NS: AtomicU64 = AtomicU64::new(0);
/// By the slot of the context, over all devices.
static LOCKS: [Mutex<()>; CONTEXTS * DEVICES] = [const { Mutex::new(()) }; CONTEXTS * DEVICES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    None,
    /// It spends its time holding the lock.
    Holds,
    /// It takes the lock for a moment.
    Needs,
}

/// The entry points that null mode implements, and their use of the lock.
pub(crate) const fn part(index: usize) -> Part {
    match index {
        id::cuEventQuery
        | id::cuEventRecord
        | id::cuEventRecord_ptsz
        | id::cuEventRecordWithFlags
        | id::cuEventRecordWithFlags_ptsz
        | id::cuStreamQuery
        | id::cuStreamQuery_ptsz => Part::Holds,
        id::cuLaunchKernel
        | id::cuLaunchKernel_ptsz
        | id::cuLaunchKernelEx
        | id::cuLaunchKernelEx_ptsz
        | id::cuLaunchCooperativeKernel
        | id::cuLaunchCooperativeKernel_ptsz
        | id::cuGraphLaunch
        | id::cuGraphLaunch_ptsz => Part::Needs,
        _ => Part::None,
    }
}

/// Reads the switch from the environment. Called once, before the first call that needs a lock.
pub(crate) fn initialise() {
    let asked = std::env::var("SOFTGPU_EVENT_NS").ok();
    let asked = asked.and_then(|asked| asked.trim().parse::<u64>().ok());
    if Clock::process().is_virtual() {
        return;
    }
    // The first reading resolves the kernel's clock function, under the dynamic linker's lock.
    let _ = Clock::monotonic().now_ns();
    HELD_NS.store(asked.unwrap_or(0).min(HELD_NS_MAX), Ordering::Relaxed);
}

/// Whether locks are taken at all.
#[inline]
pub(crate) fn is_on() -> bool {
    // Relaxed: written once, before `cuInit` returns.
    HELD_NS.load(Ordering::Relaxed) != 0
}

/// Takes part in the lock for a call in null mode.
#[inline]
pub(crate) fn take_part_in_null_mode(part: Part) {
    match part {
        Part::Holds if is_on() => hold(NULL_SLOT),
        Part::Needs if is_on() => need(NULL_SLOT),
        _ => {}
    }
}

pub(crate) fn hold(slot: u32) {
    let held_ns = HELD_NS.load(Ordering::Relaxed);
    let clock = Clock::monotonic();
    let lock = LOCKS[slot as usize].lock();
    let end_ns = clock.now_ns() + held_ns;
    while clock.now_ns() < end_ns {
        spin_loop();
    }
    drop(lock);
}

/// Called before work is put on a context's stream: no event call holds the lock at that moment.
pub(crate) fn need(slot: u32) {
    drop(LOCKS[slot as usize].lock());
}

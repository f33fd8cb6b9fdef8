//! What event calls take where `SOFTGPU_EVENT_NS` asks for it: so many ns of busy time, with a lock
//! of the context that launches need.
//!
//! It stands for NVIDIA's driver, in which a record or a query of an event, or a query of a stream,
//! takes about a microsecond under a lock that a launching thread needs as well, so that a thread
//! which queries events slows another thread's launches down. Here all that is put on a stream
//! waits for the lock; what a launch itself takes is not modelled, and it does not keep the lock.
//!
//! In null mode no handle is looked up, and all contexts have one lock. On the virtual clock the
//! switch does nothing: calls take what `crate::cost` has. A thread that gets no lock at once spins
//! a little, then sleeps (`parking_lot`).

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};

use abi::id;
use parking_lot::Mutex;
use protocol::clock::Clock;
use softgpu::wire::{CONTEXTS, DEVICES};

/// Longest time of a call, ns.
const HELD_NS_MAX: u64 = 1_000_000_000;
/// The lock of null mode.
const NULL_SLOT: u32 = 0;

/// What an event call takes, ns; 0 if no locks are taken.
static HELD_NS: AtomicU64 = AtomicU64::new(0);
/// By the slot of the context, over all devices.
static LOCKS: [Mutex<()>; CONTEXTS * DEVICES] = [const { Mutex::new(()) }; CONTEXTS * DEVICES];

/// What an entry point has to do with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Nothing.
    None,
    /// It takes its time with the lock.
    Holds,
    /// It needs the lock for a moment.
    Needs,
}

/// The entry points that null mode answers, and their parts.
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

/// Takes the switch from the environment. Called once, before the first call that asks for a lock.
pub(crate) fn initialise() {
    let asked = std::env::var("SOFTGPU_EVENT_NS").ok();
    let asked = asked.and_then(|asked| asked.trim().parse::<u64>().ok());
    if Clock::process().is_virtual() {
        return;
    }
    // The first reading looks up where the kernel's clock is, under the dynamic linker's lock.
    let _ = Clock::monotonic().now_ns();
    HELD_NS.store(asked.unwrap_or(0).min(HELD_NS_MAX), Ordering::Relaxed);
}

/// Whether locks are taken at all.
#[inline]
pub(crate) fn is_on() -> bool {
    // Relaxed: written once, before `cuInit` returns.
    HELD_NS.load(Ordering::Relaxed) != 0
}

/// A call in null mode.
#[inline]
pub(crate) fn take_part_in_null_mode(part: Part) {
    match part {
        Part::Holds if is_on() => hold(NULL_SLOT),
        Part::Needs if is_on() => need(NULL_SLOT),
        _ => {}
    }
}

/// An event call in a context takes its time.
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

/// Something is put on a stream of a context: no event call holds the lock at that moment.
pub(crate) fn need(slot: u32) {
    drop(LOCKS[slot as usize].lock());
}

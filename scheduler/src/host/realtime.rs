//! The poll thread's real-time priority, and its revocation.
//! The poll thread sleeps for as little as 50 us. On a host with more runnable threads than
//! processors one sleep in a hundred ends milliseconds late (benches/results, `daemon-lateness`).
//! Under `SCHED_RR` it runs when it wakes, before every thread without real-time priority. Its
//! priority is the lowest of them, 1.
//! - **The bound.** A runaway loop of ours must not take a processor from its host. The kernel
//!   counts how long a real-time thread runs without sleeping; past the soft limit `RLIMIT_RTTIME`
//!   it sends SIGXCPU. The handler drops the priority for good: the thread continues as
//!   `SCHED_OTHER`. A poll takes microseconds, so only a bug of ours, or a client that rings
//!   without pause, gets there. `SCHED_RESET_ON_FORK` keeps the priority from threads and programs
//!   that the poll thread starts.
//!
//! Unsafe: `sched_getscheduler`, `sched_setscheduler` and `sigaction`, for which no crate of ours
//! has a safe form.

#![expect(unsafe_code, reason = "system calls without a safe form")]

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::gettid;

/// `SCHED_RESET_ON_FORK` (include/uapi/linux/sched.h). Clearing it again needs privilege.
const RESET_ON_FORK: c_int = 0x4000_0000;
const PRIORITY: c_int = 1;
/// How long the thread may run without sleeping, us. The kernel counts in ticks of 1 to 10 ms.
const RUN_US_MAX: u64 = 50_000;

/// The thread with real-time priority by [`begin`]; 0: none.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// The handler has dropped the priority, which is not reported yet.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Outcome of asking for real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The calling thread has it.
    RealTime,
    /// The thread keeps a policy chosen by others, with this number (sched(7)).
    AsChosen(c_int),
}

/// Gives the calling thread real-time priority until it runs for 50 ms without sleeping. At most
/// one thread of a process has it.
/// # Errors
/// The kernel refuses: no `CAP_SYS_NICE` and no `RLIMIT_RTPRIO`, or a control group without
/// real-time budget. Then only the limit, which affects only real-time threads, and the handler of
/// SIGXCPU have changed.
pub fn begin() -> io::Result<Begun> {
    // SAFETY: 0 is the calling thread; nothing is written.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if policy != libc::SCHED_OTHER {
        return Ok(Begun::AsChosen(policy & !RESET_ON_FORK));
    }
    // The bound and its handler come first, so the thread is never without them.
    let limit = getrlimit(Resource::Rttime);
    let bounded = Rlimit {
        current: Some(limit.current.map_or(RUN_US_MAX, |us| us.min(RUN_US_MAX))),
        ..limit
    };
    setrlimit(Resource::Rttime, bounded)?;
    handle_signal()?;
    let thread = gettid().as_raw_nonzero().get();
    set_policy(thread, libc::SCHED_RR, PRIORITY)?;
    THREAD.store(thread, Ordering::Relaxed);
    Ok(Begun::RealTime)
}

/// Whether a thread has real-time priority by [`begin`].
#[must_use]
pub fn is_held() -> bool {
    THREAD.load(Ordering::Relaxed) != 0
}

pub(crate) fn take_loss() -> bool {
    // Load first: this runs at every poll, and a swap takes the cache line.
    IS_LOST.load(Ordering::Relaxed) && IS_LOST.swap(false, Ordering::Relaxed)
}

fn handle_signal() -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this C structure: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = give_up as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler obeys signal-safety(7), and the structure outlives the call.
    match unsafe { libc::sigaction(libc::SIGXCPU, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// SIGXCPU: the thread has run too long. Any thread may handle it, as it is the process's.
extern "C" fn give_up(_signal: c_int) {
    let thread = THREAD.swap(0, Ordering::Relaxed);
    if thread == 0 {
        return;
    }
    // SAFETY: the call has no arguments and returns the address of this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; this thread runs the handler, so the address is valid.
    let before = unsafe { *errno };
    // A thread may always lower its priority. A refusal could not be handled here.
    let _ = set_policy(thread, libc::SCHED_OTHER, 0);
    // SAFETY: as above.
    unsafe { *errno = before };
    IS_LOST.store(true, Ordering::Relaxed);
}

/// Allocates nothing and takes no lock.
fn set_policy(thread: c_int, policy: c_int, priority: c_int) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the structure lives during the call, which reads it and writes nothing.
    match unsafe { libc::sched_setscheduler(thread, policy | RESET_ON_FORK, &raw const parameters) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn policy() -> c_int {
        // SAFETY: 0 is the calling thread; nothing is written.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn a_thread_that_runs_for_too_long_loses_its_real_time_priority_and_goes_on() {
        let begun = begin();
        if let Err(error) = &begun {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            assert_eq!((policy(), is_held()), (libc::SCHED_OTHER, false));
            testing::ignore("no real-time priority here");
        }
        assert_eq!(begun.unwrap(), Begun::RealTime);
        assert_eq!(policy(), libc::SCHED_RR | RESET_ON_FORK);
        assert!(is_held() && !take_loss());
        assert_eq!(thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
        assert_eq!(begin().unwrap(), Begun::AsChosen(libc::SCHED_RR));
        while is_held() {
            core::hint::spin_loop();
        }
        assert_eq!(policy(), libc::SCHED_OTHER | RESET_ON_FORK);
        assert!(take_loss() && !take_loss());
        // A signal from elsewhere ends nothing.
        // SAFETY: the signal has a handler.
        assert_eq!(unsafe { libc::raise(libc::SIGXCPU) }, 0);
    }
}

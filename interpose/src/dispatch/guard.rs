//! The guard that every hook goes through. A hook has three parts: *before*, the *real* call,
//! *after*. The guard ensures that
//! - the real call is made exactly once, whatever fails in our two parts: a panic in either is
//!   caught, counted and logged once, and the hook continues as if that part did not exist;
//! - calls of hooked functions by our parts, or by the driver inside the real call, go straight
//!   to the driver (a driver that is not linked `-Bsymbolic` finds our exports);
//! - `errno` is as if our parts had not run;
//! - a thread that leaves a hook without returning leaves no flag behind. A cancelled thread
//!   unwinds through the hook. A thread that jumps out (`siglongjmp` from a signal handler) counts
//!   as outside once it calls from a frame that is not deeper than the hook it left;
//! - a process that is not managed pays one load and one branch.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::{self, NonNull};

use abi::types::CUresult;

use crate::dispatch::driver_exclusion::HOLDERS;
use crate::dispatch::telemetry::{self, Door};
use crate::dispatch::{environment, panics, reentrancy};
use crate::driver::real;
use crate::platform::phase::{self, Phase};
use crate::platform::sys::Errno;
use crate::process::{self, Client, dying, sticky_error};

// The word of [`reentrancy`] is the stack address of the hook that a thread is inside of:
// [`OUTSIDE`] if none, [`STOPPED`] if a signal has stopped the thread for good, [`OURS`] if it is
// the library's. Stacks grow downwards, so a call from inside has a lower address; a call at the
// same or a higher address is made after a jump out of the hook.

/// Outside every hook; below every stack address. Initial value.
const OUTSIDE: usize = 0;
/// A signal has stopped this thread for good outside every hook; also below every stack address.
/// The thread may still run the application's signal handlers, and stops in their first hook.
const STOPPED: usize = 1;
/// Above every stack address.
const OURS: usize = usize::MAX;

/// The driver's entry point behind a hook; the first to need it came through our export.
#[inline]
pub(crate) fn called(index: usize) -> Option<NonNull<c_void>> {
    real::known_or(index, first_called)
}

#[cold]
fn first_called(index: usize) -> Option<NonNull<c_void>> {
    let found = real::entry_point(index);
    if found.is_some() {
        telemetry::handle_resolved(Door::Export, index, true);
    }
    found
}

/// Takes one call of entry point `index` through the three parts. `real` gets the result of
/// `before`, or nothing if `before` did not run or panicked; then `after` does not run.
#[inline]
pub(crate) fn pass<B>(
    index: usize,
    before: impl FnOnce(Option<&'static Client>) -> B,
    real: impl FnOnce(Option<&B>) -> CUresult,
    after: impl FnOnce(Option<&'static Client>, &B, CUresult),
) -> CUresult {
    if phase::now() >= Phase::Unmanaged {
        return real(None);
    }
    through(index, before, real, after)
}

/// As [`pass`], also in an unmanaged process, which a context on another device may make a client.
pub(crate) fn pass_always<B>(
    index: usize,
    before: impl FnOnce(Option<&'static Client>) -> B,
    real: impl FnOnce(Option<&B>) -> CUresult,
    after: impl FnOnce(Option<&'static Client>, &B, CUresult),
) -> CUresult {
    if phase::now() == Phase::Inert {
        return real(None);
    }
    through(index, before, real, after)
}

#[inline]
fn through<B>(
    index: usize,
    before: impl FnOnce(Option<&'static Client>) -> B,
    real: impl FnOnce(Option<&B>) -> CUresult,
    after: impl FnOnce(Option<&'static Client>, &B, CUresult),
) -> CUresult {
    reentrancy::with(|inside| {
        let errno = Errno::of_thread();
        let here = ptr::from_ref(&errno).addr();
        if here < inside.get() {
            telemetry::handle_nested_call();
            return real(None);
        }
        if !matches!(inside.get(), OUTSIDE | STOPPED) {
            handle_jump();
        }
        dying::stop_if_dying();
        let _inside = Inside::enter(inside, here);
        let found = errno.read();
        let mut client = None;
        let mut prepared = None;
        // Stored and not returned: the result of `before` is large enough for copies to cost time.
        panics::guarded(index, || {
            if environment::handle_call(index) {
                client = process::client();
                prepared = Some(before(client));
            }
        });
        errno.write(found);
        let result = real(prepared.as_ref());
        if result != CUresult::SUCCESS {
            sticky_error::handle_failure(client, result);
        }
        if let Some(prepared) = &prepared {
            let left = errno.read();
            panics::guarded(index, || after(client, prepared, result));
            errno.write(left);
        }
        // The signal may have found this thread in here, where it could not be stopped. First
        // release what keeps the helpers out: they wait for work in flight.
        drop(prepared);
        dying::stop_if_dying();
        result
    })
}

/// Runs the part after a real call that was made without [`pass`]. Makes no driver call, because a
/// tool that `cuInit` loads may have made the real call.
pub(crate) fn follow(index: usize, after: impl FnOnce()) {
    let errno = Errno::of_thread();
    let left = errno.read();
    panics::guarded(index, || {
        environment::panic_if_asked(index);
        after();
    });
    errno.write(left);
}

#[cfg(not(shim))]
pub(crate) fn is_outside() -> bool {
    reentrancy::with(Cell::get) == OUTSIDE
}

/// Marks a thread that its signal handler has stopped for good outside every hook: it stops once.
#[cfg(not(shim))]
pub(crate) fn mark_thread_as_stopped() {
    reentrancy::with(|inside| inside.set(STOPPED));
}

/// Marks a thread of the library: its calls skip the hooks.
pub(crate) fn mark_thread_as_ours() {
    reentrancy::with(|inside| inside.set(OURS));
}

/// This thread has jumped out of a hook: does now what that hook would have done at its end.
#[cold]
fn handle_jump() {
    HOLDERS.forget_this_thread();
}

struct Inside<'a>(&'a Cell<usize>);

impl<'a> Inside<'a> {
    fn enter(inside: &'a Cell<usize>, here: usize) -> Self {
        inside.set(here);
        Self(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.set(OUTSIDE);
    }
}

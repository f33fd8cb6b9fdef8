//! The one door that every hook goes through.
//!
//! A hook is three parts: *before*, the *real* call, *after*. The door sees to it that
//!
//! - the real call is made exactly once, whatever goes wrong in our two parts: a panic in either is
//!   caught, counted and said once, and the hook goes on as if that part did not exist;
//! - what our parts, or the driver inside the real call, ask of hooked functions goes straight to
//!   the driver (a driver that is not linked `-Bsymbolic` finds our exports);
//! - `errno` is as if our parts had not run;
//! - a thread that leaves a hook without returning leaves no mark behind: one that is cancelled
//!   unwinds through the hook, and one that jumps out of it (`siglongjmp` from a signal handler) is
//!   inside no more once it calls from a frame that is not deeper than the hook it left;
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

// The word of [`reentrancy`] says where on the stack the hook lies that a thread is inside of:
// [`OUTSIDE`] if the thread is in none, [`STOPPED`] if a signal has stopped it for good, [`OURS`]
// if it acts for the library. Stacks grow downwards, so a call from inside has a lower address; one
// at the same or a higher address is made after the hook was jumped out of.

/// No address of a stack is as low. A thread's word is this at first.
const OUTSIDE: usize = 0;
/// Nor as this: a thread that a signal has stopped for good outside of every hook. It may still run handlers of the application's, and
/// stops in the first hook that they call.
const STOPPED: usize = 1;
/// Every address of a stack is lower.
const OURS: usize = usize::MAX;

/// The driver's entry point behind a hook; who calls it before anybody has asked for its address
/// has it from our export.
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

/// Takes one call of entry point `index` through the three parts. `real` gets what `before` made,
/// or nothing if `before` did not run or panicked; `after` only follows a `before` that returned.
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

/// The same for what an unmanaged process must not miss: a context on another device may make it a
/// client after all.
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
        // Stored and not returned: what `before` makes is large enough for its copies to show.
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
        // The signal may have found this thread in here, where it could not be stopped. What it keeps from the helpers it
        // gives back first: they wait for what is in flight.
        drop(prepared);
        dying::stop_if_dying();
        result
    })
}

/// Runs what follows a real call that was made without [`pass`]. Nothing is asked of the driver: a
/// tool that `cuInit` loads may have made the call.
pub(crate) fn follow(index: usize, after: impl FnOnce()) {
    let errno = Errno::of_thread();
    let left = errno.read();
    panics::guarded(index, || {
        environment::panic_if_asked(index);
        after();
    });
    errno.write(left);
}

/// Whether the calling thread is in no hook. A signal handler may ask.
#[cfg(not(shim))]
pub(crate) fn is_outside() -> bool {
    reentrancy::with(Cell::get) == OUTSIDE
}

/// Marks a thread that a signal has stopped for good outside of every hook, so that it is stopped once. In its signal handler.
#[cfg(not(shim))]
pub(crate) fn mark_thread_as_stopped() {
    reentrancy::with(|inside| inside.set(STOPPED));
}

/// Marks a thread that acts for the library and not for the application: its calls pass by.
pub(crate) fn mark_thread_as_ours() {
    reentrancy::with(|inside| inside.set(OURS));
}

/// This thread has jumped out of a hook: what that hook would have done at its end is done now.
#[cold]
fn handle_jump() {
    HOLDERS.forget_this_thread();
}

/// Set while a thread is inside a hook.
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

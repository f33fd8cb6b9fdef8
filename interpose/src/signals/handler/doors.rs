//! The exported functions of libc that set a signal's disposition. Each first calls the function
//! behind it, with the program's arguments. For SIGTERM and SIGINT of a client it then reports
//! "default" where our handler was found, and installs our handler where the default was set. All
//! other signals, and processes that are no client, pass through. These functions may be called in
//! a signal handler, so they neither lock nor allocate.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{
    SIGNALS, handle_own, handle_sending, is_owner, own_group, own_handler, process_id,
    restore_view, stand_in, was_owned,
};
use crate::platform::elf;
use crate::platform::sys::Errno;

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type Signal = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;

type Kill = unsafe extern "C" fn(libc::pid_t, c_int) -> c_int;
type Raise = unsafe extern "C" fn(c_int) -> c_int;

/// The function behind one of ours: the next library's definition, looked up once.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address; null if no library has it. `ours` is the address of the exported one.
    fn address(&self, ours: *const c_void) -> *mut c_void {
        // Relaxed: every thread finds the same address, and code needs no ordering.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = elf::find_after(ours, self.name).map_or(ptr::null_mut(), ptr::NonNull::as_ptr);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

pub(super) struct Behind {
    sigaction: Next,
    kill: Next,
    killpg: Next,
    raise: Next,
    like_signal: LikeSignal,
}

impl Behind {
    pub(super) const fn new() -> Self {
        Self {
            sigaction: Next::new(c"sigaction"),
            kill: Next::new(c"kill"),
            killpg: Next::new(c"killpg"),
            raise: Next::new(c"raise"),
            like_signal: LikeSignal::new(),
        }
    }
}

pub(super) fn sigaction_real() -> Sigaction {
    let address = SIGNALS.behind.sigaction.address(sigaction as *const c_void);
    if address.is_null() {
        return no_sigaction;
    }
    // SAFETY: a function of that name has that type (POSIX).
    unsafe { mem::transmute::<*mut c_void, Sigaction>(address) }
}

/// Used where no library has it.
extern "C" fn no_sigaction(
    _signal: c_int,
    _new: *const libc::sigaction,
    _old: *mut libc::sigaction,
) -> c_int {
    Errno::of_thread().write(libc::ENOSYS);
    -1
}

/// libc's `sigaction`, with the application's own view. Safety: as `sigaction`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // Read before the call: `new` and `old` may be one.
    // SAFETY: null, or an action, as the caller ensures.
    let is_default = was_owned(signal)
        && unsafe { new.as_ref() }.is_some_and(|new| new.sa_sigaction == libc::SIG_DFL);
    // SAFETY: as the caller ensures.
    let result = unsafe { sigaction_real()(signal, new, old) };
    if result != 0 || !was_owned(signal) {
        return result;
    }
    // SAFETY: null, or filled in by the call.
    if let Some(old) = unsafe { old.as_mut() }
        && old.sa_sigaction == own_handler()
    {
        restore_view(signal, old);
    }
    if is_default && is_owner() {
        stand_in(signal);
    }
    result
}

/// libc's `kill`. A process that ends itself drains its work in here first. Safety: as `kill`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn kill(process: libc::pid_t, signal: c_int) -> c_int {
    if was_owned(signal) && process == process_id() {
        handle_own(signal);
    }
    let next = SIGNALS.behind.kill.address(kill as *const c_void);
    let is_own = [process_id(), 0, -1, -own_group()].contains(&process);
    // SAFETY: null, or a function of that name, with the caller's arguments.
    unsafe { send(next, process, signal, is_own) }
}

/// libc's `killpg`. The group may be the process's own. Safety: as `killpg`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn killpg(group: libc::pid_t, signal: c_int) -> c_int {
    let next = SIGNALS.behind.killpg.address(killpg as *const c_void);
    let is_own = [0, own_group()].contains(&group);
    // SAFETY: null, or a function of that name, with the caller's arguments.
    unsafe { send(next, group, signal, is_own) }
}

/// libc's `raise`. Safety: as `raise`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn raise(signal: c_int) -> c_int {
    let next = SIGNALS.behind.raise.address(raise as *const c_void);
    if next.is_null() {
        Errno::of_thread().write(libc::ENOSYS);
        return -1;
    }
    // SAFETY: that function has that type (C11), and the argument is the caller's.
    handle_sending(signal, || unsafe {
        mem::transmute::<*mut c_void, Raise>(next)(signal)
    })
}

/// Sends the signal by a libc function; `is_own`: this process is among the receivers. Safety:
/// `next` is null or such a function; else as that.
unsafe fn send(next: *mut c_void, whom: libc::pid_t, signal: c_int, is_own: bool) -> c_int {
    if next.is_null() {
        Errno::of_thread().write(libc::ENOSYS);
        return -1;
    }
    // SAFETY: both functions have that type (POSIX), and the arguments are the caller's.
    let send = || unsafe { mem::transmute::<*mut c_void, Kill>(next)(whom, signal) };
    if is_own {
        handle_sending(signal, send)
    } else {
        send()
    }
}

fn settle(signal: c_int, new: libc::sighandler_t, found: libc::sighandler_t) -> libc::sighandler_t {
    if found == libc::SIG_ERR || !was_owned(signal) {
        return found;
    }
    if new == libc::SIG_DFL && is_owner() {
        stand_in(signal);
    }
    if found == own_handler() {
        return libc::SIG_DFL;
    }
    found
}

/// Defines the exported functions of the type of `signal`, and [`LikeSignal`].
macro_rules! like_signal {
    ($($name:ident)*) => {
        /// The functions behind those of the type of `signal`.
        struct LikeSignal {
            $($name: Next,)*
        }

        impl LikeSignal {
            const fn new() -> Self {
                Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        match CStr::from_bytes_with_nul(name) {
                            Ok(name) => Next::new(name),
                            Err(_) => Next::new(c""),
                        }
                    },)*
                }
            }
        }

        $(
            #[doc = concat!("libc's `", stringify!($name), "`, with the application's own view.")]
            /// # Safety
            #[doc = concat!("As `", stringify!($name), "`.")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name(
                signal: c_int,
                new: libc::sighandler_t,
            ) -> libc::sighandler_t {
                let address = SIGNALS.behind.like_signal.$name.address($name as *const c_void);
                if address.is_null() {
                    Errno::of_thread().write(libc::ENOSYS);
                    return libc::SIG_ERR;
                }
                // SAFETY: a function of that name has that type (POSIX, glibc), and the arguments
                // are the caller's.
                let found = unsafe { mem::transmute::<*mut c_void, Signal>(address)(signal, new) };
                settle(signal, new, found)
            }
        )*
    };
}

like_signal!(signal bsd_signal ssignal sysv_signal __sysv_signal sigset);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_asked_for_as_by_libc() {
        // SAFETY: signal 0 is never delivered.
        unsafe {
            assert_eq!(kill(process_id(), 0), 0);
            assert_eq!(killpg(libc::getpgrp(), 0), 0);
            assert_eq!(raise(0), 0);
            assert_eq!(kill(process_id(), 1000), -1);
        }
        assert_eq!(Errno::of_thread().read(), libc::EINVAL);
    }

    #[test]
    fn signals_that_nobody_stands_in_for_are_set_and_told_as_by_libc() {
        type Door = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
        let doors: [Door; 6] = [
            signal,
            bsd_signal,
            ssignal,
            sysv_signal,
            __sysv_signal,
            sigset,
        ];
        for door in doors {
            // SAFETY: a signal that nothing here uses, ignored and restored.
            unsafe {
                assert_eq!(door(libc::SIGUSR2, libc::SIG_IGN), libc::SIG_DFL);
                let mut found = mem::MaybeUninit::<libc::sigaction>::uninit();
                assert_eq!(sigaction(libc::SIGUSR2, ptr::null(), found.as_mut_ptr()), 0);
                assert_eq!(found.assume_init().sa_sigaction, libc::SIG_IGN);
                assert_eq!(door(libc::SIGUSR2, libc::SIG_DFL), libc::SIG_IGN);
                assert_eq!(door(0, libc::SIG_DFL), libc::SIG_ERR);
            }
        }
    }
}

//! The program's own libc is told that the process has threads.
//!
//! In a namespace of `dlmopen` we have a libc of our own, and the helper thread is its thread. The program's libc, the first
//! one of the process, does not hear of it: as long as it has started no thread itself it takes the process for
//! single-threaded, and gives its mutexes back without waking who waits (glibc 2.34 and later: `SINGLE_THREAD_P` in
//! `pthread_mutex_unlock`). But its `pthread_mutex_lock` is what the dynamic linker takes its locks by, for all
//! namespaces. Who finds such a lock taken then sleeps for ever: the helper at the first use of a thread local, or the program
//! in `dlopen`, `dlsym` or `exit`.
//!
//! A thread that does nothing, started by the first libc, makes it leave that state for good.

#![expect(unsafe_code, reason = "calls libc's functions by their addresses")]

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;

use crate::platform::{elf, sys};

/// The C type of `pthread_create`.
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;
/// The C type of `pthread_join`.
type Join = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;

/// Has the first libc know of threads, before one is started that it would not know of. Where we share the program's libc it
/// will know; before glibc 2.34 it has no such functions and nothing to be told.
pub(crate) fn tell_of_threads() {
    let (Some(create), Some(join)) = (find(c"pthread_create"), find(c"pthread_join")) else {
        return;
    };
    if create == libc::pthread_create as *mut c_void {
        return;
    }
    // SAFETY: libc's own functions of these names have these types.
    let (create, join) = unsafe {
        (
            core::mem::transmute::<*mut c_void, Create>(create),
            core::mem::transmute::<*mut c_void, Join>(join),
        )
    };
    // The application's handlers must not run on it.
    sys::with_signals_blocked(|| {
        let mut thread = MaybeUninit::uninit();
        // SAFETY: room for the thread, no attributes, and a function that may be called with anything. A thread that was
        // started is joined once, by nobody else, and by the libc that started it.
        unsafe {
            if create(thread.as_mut_ptr(), ptr::null(), nothing, ptr::null_mut()) == 0 {
                join(thread.assume_init(), ptr::null_mut());
            }
        }
    });
}

fn find(name: &CStr) -> Option<*mut c_void> {
    elf::find_in_libc(name).map(ptr::NonNull::as_ptr)
}

extern "C" fn nothing(_argument: *mut c_void) -> *mut c_void {
    ptr::null_mut()
}

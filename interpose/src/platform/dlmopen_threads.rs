//! Makes the program's own libc know that the process has threads. In a `dlmopen` namespace we have
//! our own libc, and the helper thread belongs to it. The program's libc, the first one of the
//! process, does not know of that thread. Until it starts a thread itself it treats the process as
//! single-threaded, and unlocks its mutexes without waking waiters (glibc 2.34 and later:
//! `SINGLE_THREAD_P` in `pthread_mutex_unlock`). But the dynamic linker takes its locks for all
//! namespaces with that libc's `pthread_mutex_lock`. A thread that finds such a lock taken then
//! sleeps for ever: the helper at its first use of a thread-local, or the program in `dlopen`,
//! `dlsym` or `exit`. Starting one empty thread with the first libc ends that state for good.

#![expect(unsafe_code, reason = "calls libc's functions by their addresses")]

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;

use crate::platform::{elf, sys};

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;
type Join = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;

/// Starts and joins an empty thread of the first libc, before we start a thread that it would not
/// know. Not needed where we share the program's libc, nor before glibc 2.34.
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
        // SAFETY: room for the thread, no attributes, and a function that ignores its argument. A
        // started thread is joined once, here only, by the libc that started it.
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

//! Calls to libc and the kernel that have no safe form elsewhere.

#![expect(
    unsafe_code,
    reason = "libc's and the kernel's functions without a safe form"
)]

use core::cell::Cell;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::net::{RecvFlags, recv};
use rustix::process::getpid;
use rustix::thread::gettid;

thread_local! {
    /// This thread's id; 0 before the first use. A constant without a destructor, so that it works
    /// to the last instruction of a thread.
    static THREAD_ID: Cell<u32> = const { Cell::new(0) };
}

/// A value that is set once and lives for ever, without a lock: no thread ever waits for it, so a
/// fork at any moment leaves nothing to wait for.
pub(crate) struct SetOnce<T>(AtomicPtr<T>);

impl<T: Send + Sync> SetOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // Acquire pairs with the Release in `set`: a thread that sees the address sees the value.
        // SAFETY: null, or a value that `set` has leaked and that never changes.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the value. Returns the stored one, which is another if another thread was first.
    pub(crate) fn set(&self, value: T) -> &T {
        let new = Box::into_raw(Box::new(value));
        let set =
            self.0
                .compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        let there = match set {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: made above and shared with no other code.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
        // SAFETY: not null, and as in `get`.
        unsafe { &*there }
    }
}

/// A replaceable reference to a value that lives for ever; read without a lock.
pub(crate) struct Current<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Current<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the Release in `set`: a thread that sees the address sees the value.
        // SAFETY: null, or a reference for ever that `set` was given.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set(&self, value: &'static T) {
        self.0
            .store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }
}

/// This thread's `errno`. Applications read it after calls that never set it, so hooks restore it.
pub(crate) struct Errno(*mut c_int);

impl Errno {
    pub(crate) fn of_thread() -> Self {
        // SAFETY: the function has no precondition.
        Self(unsafe { libc::__errno_location() })
    }

    pub(crate) fn read(&self) -> c_int {
        // SAFETY: valid while its thread lives, which is this one: a raw pointer is not `Send`.
        unsafe { *self.0 }
    }

    pub(crate) fn write(&self, value: c_int) {
        // SAFETY: as in `read`.
        unsafe { *self.0 = value }
    }
}

pub(crate) fn thread_id() -> u32 {
    let known = THREAD_ID.get();
    if known != 0 {
        return known;
    }
    let id = gettid().as_raw_nonzero().get() as u32;
    THREAD_ID.set(id);
    id
}

/// Waits for a packet on a socket, or its end, without consuming it. Returns the packet's bytes, 1
/// if there are more. The number may be closed or another file's by now.
pub(crate) fn peek(number: RawFd) -> io::Result<usize> {
    // SAFETY: only the kernel uses the number. A closed number or no socket is an error, and
    // nothing is consumed from another socket.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let (_, bytes) = recv(socket, &mut [0; 1], RecvFlags::PEEK)?;
    Ok(bytes)
}

pub(crate) fn is_thread_alive(thread_id: u32) -> bool {
    let process_id = getpid().as_raw_nonzero().get();
    // SAFETY: signal 0 delivers nothing; the call only looks the thread up.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, process_id, thread_id, 0) };
    found == 0
}

/// Runs `body` with every signal blocked in this thread. A thread started in it inherits that, so
/// the application's handlers never run on it.
pub(crate) fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set was filled in by the same function.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
        }
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills in the first set; `pthread_sigmask` cannot fail with a valid
    // operation and fills in the second.
    let _restore = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        Restore(before.assume_init())
    };
    body()
}

/// Runs `body`, whose writes may find no reader, without delivering their SIGPIPE.
pub(crate) fn without_sigpipe<T>(body: impl FnOnce() -> T) -> T {
    with_signals_blocked(|| {
        let was_pending = is_sigpipe_pending();
        let result = body();
        if !was_pending && is_sigpipe_pending() {
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: an initialised set, no room for details, and a zero timeout.
            unsafe { libc::sigtimedwait(&sigpipe(), ptr::null_mut(), &now) };
        }
        result
    })
}

/// Runs `body` with `pthread_cancel` deferred. Our parts of a hook run under `catch_unwind`, which
/// a cancelled thread cannot unwind through: their cancellation points run in here.
pub(crate) fn without_cancellation<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(c_int);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the state that the same function stored; a null address is allowed.
            unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
        }
    }
    /// From `pthread.h`, the same in glibc and musl.
    const PTHREAD_CANCEL_DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: a state that exists, and room for the one before. It cannot fail with these.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let _restore = Restore(before);
    body()
}

unsafe extern "C" {
    /// POSIX; the libc crate does not declare it.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

fn sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills the set in; SIGPIPE is a signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn is_sigpipe_pending() -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigpending` fills the set in; the set is read only if it did.
    unsafe {
        libc::sigpending(set.as_mut_ptr()) == 0
            && libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1
    }
}

/// Makes a value that fills its pages read as zeros in children that copy this process's memory,
/// however they are made (Linux 4.14, `madvise(2)`, `MADV_WIPEONFORK`).
pub(crate) fn clear_in_children<T: Sync>(value: &'static T) -> bool {
    let address = ptr::from_ref(value).cast_mut().cast();
    // The kernel rounds up: with larger pages it would also clear what follows.
    // SAFETY: no precondition.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if usize::try_from(page_bytes).is_ok_and(|bytes| bytes > size_of::<T>()) {
        return false;
    }
    // SAFETY: the advice does not change this process's memory; the kernel refuses an unaligned
    // address. The caller handles the zeros that a child finds.
    unsafe { libc::madvise(address, size_of::<T>(), libc::MADV_WIPEONFORK) == 0 }
}

/// Registers `handler` for every child of later `fork`s. It may only do what a signal handler may.
pub(crate) fn at_fork_in_child(handler: extern "C" fn()) -> bool {
    // SAFETY: the handler is a function of this library, which is never unloaded: it is preloaded,
    // or linked as the shim with `-z nodelete`.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) == 0 }
}

/// Registers `handler` for exit, before all handlers registered earlier.
pub(crate) fn at_exit(handler: extern "C" fn()) -> bool {
    // SAFETY: as in `at_fork_in_child`.
    unsafe { libc::atexit(handler) == 0 }
}

/// Makes this thread's timers fire on time instead of up to 50 us late, the kernel's default.
pub(crate) fn use_exact_timers() {
    // SAFETY: the option takes a plain number and affects this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// Whether this thread gets a signal when its parent ends (`PR_SET_PDEATHSIG`). Each thread has its
/// own setting; the first thread's parent is what started the process.
pub(crate) fn has_parent_death_signal() -> bool {
    let mut signal: c_int = 0;
    // SAFETY: the option writes one number, for which there is room.
    let result = unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) };
    result == 0 && signal != 0
}

/// Whether environment variable `name` has a value other than empty and "0". Neither locks nor
/// allocates, unlike `std::env`, so that `dlsym` may call it.
pub(crate) fn is_switched_on(name: &CStr) -> bool {
    // SAFETY: `name` ends in NUL. The result is used at once; a program that changes its
    // environment while other threads read it is broken with or without us.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: a value in the environment ends in NUL.
    let value = unsafe { CStr::from_ptr(value) };
    !matches!(value.to_bytes(), b"" | b"0")
}

#[inline]
pub(crate) fn prepare_to_write<T>(line: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, whatever the address: it changes no register, no memory and no flag, and
    // processors that do not know it ignore it (Intel SDM 2B, PREFETCHW).
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, as above (Arm ARM, PRFM).
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

/// Locks a mutex, poisoned or not: the data is consistent between any two changes.
pub(crate) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_alive_and_an_impossible_one_is_not() {
        assert!(is_thread_alive(thread_id()));
        // Above the kernel's limit for thread ids, 2^22.
        assert!(!is_thread_alive(1 << 30));
    }

    #[test]
    fn what_is_set_once_stays() {
        let once = SetOnce::new();
        assert_eq!(once.get(), None);
        assert_eq!(once.set(1), &1);
        assert_eq!(once.set(2), &1);
        assert_eq!(once.get(), Some(&1));
    }

    #[test]
    fn threads_that_set_once_agree() {
        let once = SetOnce::new();
        let seen: Vec<u32> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|value| {
                    scope.spawn({
                        let once = &once;
                        move || *once.set(value)
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(
            seen.iter().all(|value| Some(value) == once.get()),
            "{seen:?}"
        );
    }

    #[test]
    fn errno_reads_back() {
        let errno = Errno::of_thread();
        errno.write(libc::EAGAIN);
        assert_eq!(errno.read(), libc::EAGAIN);
    }

    #[test]
    fn a_switch_is_off_when_missing() {
        assert!(!is_switched_on(c"PILLION_TEST_NO_SUCH_VARIABLE"));
    }
}

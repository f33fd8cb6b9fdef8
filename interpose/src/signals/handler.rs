//! SIGTERM and SIGINT to a process that would die of them: no work is left behind on the GPU. Under
//! MPS a process that dies with work in flight can take others with it (MuxFlow, section 5: 99% of
//! the errors that spread came from these two signals). So a client ends in two steps: its launches
//! are *frozen* and its work in flight drains; then it dies of the same signal: its parent sees the
//! usual status. This holds only for the default disposition. A handler of the application is never
//! wrapped: the kernel calls it at once, with its own arguments, and launches stay possible for it
//! (a checkpoint needs them). An ignored signal stays ignored. [`handle`] replaces only the
//! default, and queries (`sigaction`, `signal` and their like, exported from here) return the
//! default.
//! 1. The signal runs [`handle`], which wakes every helper and arms a timer: the signal again after
//!    `PILLION_DRAIN_MS`.
//! 2. Each helper waits for its device (`cuCtxSynchronize`); the last ends the process by the
//!    signal.
//! 3. Meanwhile the thread that the signal hit stops at once if it is outside CUDA; all others stop
//!    at the guard.
//! 4. The timer's signal, or another one after a while, ends the process at once.
//!
//! A thread that the signal hits inside a CUDA call may hold what the helper needs, so it continues
//! to the end of the call. Outside it stops where it is, and may hold locks of the process
//! (`malloc`'s, the dynamic linker's). The helper therefore neither allocates nor looks up symbols
//! from then on. We destroy no context. With a supervised exit under MPS (`pillion stop`, the
//! daemon), a process whose drain time is over with work in flight reports that
//! ([`supervised_exit`]), so that MPS is asked to end the work before a kill, and dies by itself
//! only [`FROZEN_MS`] later. Signals from others end it no sooner.
//!
//! Two signals within milliseconds (a terminal's to the group, and the parent's, which forwards it)
//! are one request. A process that sends the signal to itself by `kill` is stopped in that call,
//! which we export for this: the kernel would run [`handle`] on another thread while the sender
//! continued. If it sends the signal to its whole group, or from its own handler (which cleans up,
//! sets the default and sends the signal again, to be delivered on return), the signal is sent
//! unchanged and the thread stops where it receives it.
//!
//! [`handle`] may run on an 8 KiB signal stack of the application (every thread of a Rust program
//! has one), which holds two frames of the kernel, but not three. So no frame of ours comes on top
//! of another: while [`handle`] runs, the two signals are blocked in its thread, and a stopped
//! thread takes later ones from the kernel ([`stop_in_handler`]). It gives a signal back to a
//! handler that the application has set by then, and drops an ignored one. A thread is stopped
//! once; a frame of ours that comes on top all the same returns. No other signal is blocked, nor
//! these in any other thread. A stopped thread uses a few hundred bytes of that stack, as a handler
//! of the application may come on top: larger frames are in functions that return first, not
//! inlined. [`handle`] is async-signal-safe. It uses atomics, a word of its thread
//! ([`crate::dispatch::reentrancy`]), `futex`, `timer_create`, `getpid`, `gettid`, `tgkill`,
//! `sigaction`, `rt_sigprocmask`, `rt_sigtimedwait`, `rt_tgsigqueueinfo`.
//!
//! **Excluded**: the first process of a PID namespace, which the kernel does not let die of a
//! default; processes that are no client; forked children, which die at once, as their parent's
//! work is not theirs to wait for; programs that set handlers by system call (Go), which replace
//! ours.

#![expect(unsafe_code, reason = "sets signal handlers, and is one")]

use core::ffi::{c_int, c_long, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use protocol::clock::Clock;

use crate::dispatch::guard;
use crate::platform::log::{self, Level};
use crate::platform::sys::Errno;
use crate::process::{self, dying};
use crate::progress::waking;
use crate::signals::supervised_exit::{self, FROZEN_MS, is_seen_to};

pub(crate) mod doors;

use doors::Behind;

/// The signals that ask a process to end.
const OURS: [c_int; 2] = [libc::SIGTERM, libc::SIGINT];
/// The same as a kernel signal set, which is small.
const OURS_SET: u64 = 1 << (libc::SIGTERM - 1) | 1 << (libc::SIGINT - 1);

static SIGNALS: Signals = Signals::new();

/// The state of this process's end. All fields are atomic, for signal handlers; none is lazy.
struct Signals {
    /// Whether this process, or one that it was forked from, has become a client.
    is_attached: AtomicBool,
    /// Process in which [`handle`] replaces the default; 0: none. A forked child has its parent's.
    owner: AtomicI32,
    /// Time of the first signal on `CLOCK_MONOTONIC`, ns.
    told_ns: AtomicU64,
    /// Longest wait for work in flight, ms.
    drain_ms: AtomicU32,
    /// The last thread to send [`OURS`] to its own process by an exported function; 0: none.
    sender: AtomicI32,
    /// The thread that is sending now; 0: none.
    sending: AtomicI32,
    /// Clients whose work has drained.
    drained: AtomicU32,
    /// The flags (`sa_flags`) of the application's default, for each of [`OURS`].
    flags: [AtomicI32; OURS.len()],
    /// Which of [`OURS`] are in the mask (`sa_mask`) of the default, a bit each; all are in ours.
    masked: [AtomicU32; OURS.len()],
    behind: Behind,
}

impl Signals {
    const fn new() -> Self {
        Self {
            is_attached: AtomicBool::new(false),
            owner: AtomicI32::new(0),
            told_ns: AtomicU64::new(0),
            drain_ms: AtomicU32::new(0),
            sender: AtomicI32::new(0),
            sending: AtomicI32::new(0),
            drained: AtomicU32::new(0),
            flags: [const { AtomicI32::new(0) }; OURS.len()],
            masked: [const { AtomicU32::new(0) }; OURS.len()],
            behind: Behind::new(),
        }
    }
}

/// A second signal within this time belongs to the first, ns.
const SAME_REQUEST_NS: u64 = 200_000_000;

/// This process became a client: from now on work may be in flight when it is asked to end.
pub(crate) fn handle_attached(drain_ms: u32) {
    let pid = process_id();
    if drain_ms == 0 || pid == 1 || SIGNALS.is_attached.swap(true, Ordering::Relaxed) {
        return;
    }
    SIGNALS.drain_ms.store(drain_ms, Ordering::Relaxed);
    // Release pairs with the Acquire in `was_owned`.
    SIGNALS.owner.store(pid, Ordering::Release);
    for signal in OURS {
        stand_in(signal);
    }
}

/// Whether [`handle`] may replace this signal's default, here or in an ancestor by fork.
fn was_owned(signal: c_int) -> bool {
    OURS.contains(&signal) && SIGNALS.owner.load(Ordering::Acquire) != 0
}

/// Whether [`handle`] replaces defaults in this very process.
fn is_owner() -> bool {
    SIGNALS.owner.load(Ordering::Acquire) == process_id()
}

/// The daemon asks this process to end, whatever its signal dispositions: as by SIGKILL, once
/// nothing is in flight or [`FROZEN_MS`] have passed, even if the daemon has gone.
pub(crate) fn handle_stop() {
    if dying::try_begin(libc::SIGKILL) {
        if !arm_timer(libc::SIGKILL, FROZEN_MS) {
            log::say(
                Level::Warn,
                format_args!(
                    "cannot set the timer that ends this process: if its work on the GPU never \
                     completes, end it with `kill -9 {}`",
                    process_id()
                ),
            );
        }
        process::clients().for_each(waking::wake_surely);
    }
}

/// Work on one device has drained; the last of `clients` to report it ends the process.
pub(crate) fn handle_drained(clients: u32) {
    let signal = dying::of();
    if SIGNALS.drained.fetch_add(1, Ordering::AcqRel) + 1 < clients {
        return;
    }
    log::say(
        Level::Info,
        format_args!("terminating by signal {signal} as requested, with nothing in flight"),
    );
    die(signal);
}

/// Installs [`handle`] in place of the default.
fn stand_in(signal: c_int) {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sets nothing; the result is read only if it was filled in.
    let found = unsafe {
        if sigaction_real(signal, ptr::null(), found.as_mut_ptr()) != 0 {
            return;
        }
        found.assume_init()
    };
    if found.sa_sigaction != libc::SIG_DFL {
        return;
    }
    if let Some(at) = place_of(signal) {
        SIGNALS.flags[at].store(found.sa_flags, Ordering::Relaxed);
        SIGNALS.masked[at].store(ours_in(&found.sa_mask), Ordering::Relaxed);
    }
    let mut mask = found.sa_mask;
    for signal in OURS {
        // SAFETY: a set that is filled in, and a signal that exists.
        unsafe { libc::sigaddset(&raw mut mask, signal) };
    }
    let new = libc::sigaction {
        sa_sigaction: own_handler(),
        sa_mask: mask,
        // The handler never returns into a call other than CUDA's: nothing stays interrupted.
        sa_flags: found.sa_flags | libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK,
        ..found
    };
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: an async-signal-safe handler; the old action is read only if it was filled in.
    unsafe {
        if sigaction_real(signal, &raw const new, before.as_mut_ptr()) != 0 {
            return;
        }
        let before = before.assume_init();
        // Another thread has set its own meanwhile.
        if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != own_handler() {
            sigaction_real(signal, &raw const before, ptr::null_mut());
        }
    }
}

fn place_of(signal: c_int) -> Option<usize> {
    OURS.iter().position(|ours| *ours == signal)
}

/// Which of [`OURS`] are in the set, a bit each.
fn ours_in(set: &libc::sigset_t) -> u32 {
    // SAFETY: a set that is filled in, and signals that exist.
    let is_in = |signal| unsafe { libc::sigismember(set, signal) } == 1;
    (0..)
        .zip(OURS)
        .map(|(at, signal)| u32::from(is_in(signal)) << at)
        .sum()
}

/// Restores the application's view of the default where [`handle`] was found in its place.
fn restore_view(signal: c_int, action: &mut libc::sigaction) {
    let Some(at) = place_of(signal) else { return };
    action.sa_sigaction = libc::SIG_DFL;
    action.sa_flags = SIGNALS.flags[at].load(Ordering::Relaxed);
    let masked = SIGNALS.masked[at].load(Ordering::Relaxed);
    for (at, signal) in (0..).zip(OURS) {
        if masked & (1 << at) == 0 {
            // SAFETY: a set that the kernel has filled in, and a signal that exists.
            unsafe { libc::sigdelset(&raw mut action.sa_mask, signal) };
        }
    }
}

fn own_handler() -> usize {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
    handler as usize
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let errno = Errno::of_thread();
    let found = errno.read();
    // A forked child has the handler, and after `vfork` its parent's memory: change nothing there.
    if !is_owner() {
        die(signal);
    }
    let is_first = dying::try_begin(signal);
    // SAFETY: the kernel passes the details to its handlers.
    let info = unsafe { &*info };
    if !is_first {
        handle_again(signal, info);
    } else if goes_on(info) {
        die(signal);
    } else {
        begin(signal, Clock::monotonic().now_ns());
    }
    if guard::is_outside() {
        guard::mark_thread_as_stopped();
        stop_in_handler();
    }
    errno.write(found);
}

/// Whether a thread that sent the signal to its own process would continue while that drains: it
/// sent it by system call, or unblocks it later than this one, or is this one and inside a CUDA
/// call, or was stopped below the handler that sends it.
fn goes_on(info: &libc::siginfo_t) -> bool {
    let thread = thread_id();
    let is_senders = SIGNALS.sender.load(Ordering::Relaxed) == thread;
    let is_sending = SIGNALS.sending.load(Ordering::Relaxed) == thread;
    is_own(info) && !is_senders || is_sending && !guard::is_outside()
}

fn is_own(info: &libc::siginfo_t) -> bool {
    // SAFETY: a signal sent by a process has the sender's id.
    info.si_code == libc::SI_USER && unsafe { info.si_pid() } == process_id()
}

/// Another signal while the process is dying. The process dies of it, unless it belongs to the
/// first one, or the exit is supervised: the supervisor may have to ask MPS first.
#[inline(never)]
fn handle_again(signal: c_int, info: &libc::siginfo_t) {
    let now_ns = Clock::monotonic().now_ns();
    let (is_timer, is_seen_to) = (info.si_code == SI_TIMER, is_seen_to(now_ns));
    if is_timer && is_seen_to && tell_overdue(signal) {
        return;
    }
    if is_timer {
        waking::tell_gave_up();
    }
    let is_last = is_timer || goes_on(info);
    if is_last || !(is_seen_to || is_same_request(now_ns)) {
        die(signal);
    }
}

/// The time to drain is over: reports that to the supervisor, and lives [`FROZEN_MS`] longer.
/// False: no timer could be set.
fn tell_overdue(signal: c_int) -> bool {
    if !arm_timer(signal, FROZEN_MS) {
        return false;
    }
    supervised_exit::tell_overdue();
    true
}

/// Stops the calling thread for good, with no more frames of ours on top. It leaves virtual time.
fn stop_in_handler() -> ! {
    Clock::process().leave();
    let set = OURS_SET;
    loop {
        // They are blocked already, unless a handler of the application called this one.
        mask(libc::SIG_BLOCK, set);
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: a kernel signal set, room for the details, and no timeout: it waits without end.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const set,
                info.as_mut_ptr(),
                ptr::null::<libc::timespec>(),
                size_of_val(&set),
            )
        };
        // If another signal's handler interrupted it, no signal was taken.
        let Some(signal) = OURS.into_iter().find(|ours| c_long::from(*ours) == taken) else {
            continue;
        };
        // SAFETY: the kernel has filled in the details of the signal taken.
        let info = unsafe { info.assume_init_mut() };
        match disposition(signal) {
            Some(handler) if handler == own_handler() => handle_again(signal, info),
            // Pending only because it is blocked here.
            Some(libc::SIG_IGN) => {}
            _ => give_back(signal, info),
        }
    }
}

/// The application has set a disposition of its own: delivers the signal to this thread with all
/// its details. Not the other signal, which, if ours, would come on top of the present frame.
#[cold]
fn give_back(signal: c_int, info: &mut libc::siginfo_t) {
    // SAFETY: a valid signal, and details from the kernel; a process may send itself any.
    unsafe {
        let call = libc::SYS_rt_tgsigqueueinfo;
        libc::syscall(call, process_id(), thread_id(), signal, ptr::from_mut(info));
    }
    mask(libc::SIG_UNBLOCK, 1 << (signal - 1));
}

fn mask(how: c_int, set: u64) {
    // SAFETY: a kernel signal set; the old one is not returned.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            ptr::null_mut::<u64>(),
            size_of_val(&set),
        );
    }
}

/// Handles the first request: wakes the helpers, and arms a timer.
#[inline(never)]
fn begin(signal: c_int, now_ns: u64) {
    SIGNALS.told_ns.store(now_ns, Ordering::Release);
    // No helper would wait for work in flight any more, or the wait would have no end.
    if waking::are_stopping() || !arm_timer(signal, SIGNALS.drain_ms.load(Ordering::Relaxed)) {
        die(signal);
    }
    process::clients().for_each(waking::wake_surely);
}

/// The calling thread sends the signal to its own process: begins the end, and stops this thread.
/// Returns if the signal does not meet our default, or this thread cannot be stopped.
fn handle_own(signal: c_int) {
    if !is_owner() || !guard::is_outside() || !is_met_by_us(signal) {
        return;
    }
    if dying::try_begin(signal) {
        begin(signal, Clock::monotonic().now_ns());
    }
    dying::stop();
}

/// Sends the signal by `send` to the own process. If [`handle`] runs in this thread (a handler set
/// the default, sent the signal and returned), the application does not continue here.
fn handle_sending(signal: c_int, send: impl FnOnce() -> c_int) -> c_int {
    if !was_owned(signal) {
        return send();
    }
    let thread = thread_id();
    SIGNALS.sender.store(thread, Ordering::Relaxed);
    SIGNALS.sending.store(thread, Ordering::Relaxed);
    let result = send();
    // Unless another thread is sending, too.
    let _ = SIGNALS
        .sending
        .compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    result
}

/// Whether [`handle`] replaces the signal's default, and this thread does not block the signal.
fn is_met_by_us(signal: c_int) -> bool {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sets nothing; the set is read only if it was filled in.
    let is_let_in = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr()) == 0
            && libc::sigismember(blocked.as_ptr(), signal) == 0
    };
    is_let_in && is_ours(signal)
}

fn is_ours(signal: c_int) -> bool {
    disposition(signal) == Some(own_handler())
}

/// The kernel's disposition of the signal: a handler, `SIG_DFL`, or `SIG_IGN`.
#[inline(never)]
fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sets nothing; the result is read only if it was filled in.
    unsafe {
        let result = sigaction_real(signal, ptr::null(), found.as_mut_ptr());
        (result == 0).then(|| found.assume_init().sa_sigaction)
    }
}

/// Sent by a timer (`<asm-generic/siginfo.h>`).
const SI_TIMER: c_int = -2;

fn is_same_request(now_ns: u64) -> bool {
    // 0: the first one is being handled now.
    let told_ns = SIGNALS.told_ns.load(Ordering::Acquire);
    told_ns == 0 || now_ns.saturating_sub(told_ns) < SAME_REQUEST_NS
}

/// Has the kernel send the signal after that time. No hang can stop a timer, as it is no thread.
fn arm_timer(signal: c_int, after_ms: u32) -> bool {
    // SAFETY: plain data, for which zeros are valid.
    let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = signal;
    let mut timer: c_int = 0;
    let at = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: libc::timespec {
            tv_sec: i64::from(after_ms / 1000),
            tv_nsec: i64::from(after_ms % 1000) * 1_000_000,
        },
    };
    // SAFETY: system calls, as libc's `timer_create` is in another library on old systems: an
    // initialised event and time, and room for the number of a timer.
    unsafe {
        let clock = libc::CLOCK_MONOTONIC;
        libc::syscall(
            libc::SYS_timer_create,
            clock,
            &raw mut event,
            &raw mut timer,
        ) == 0
            && libc::syscall(
                libc::SYS_timer_settime,
                timer,
                0,
                &raw const at,
                ptr::null_mut::<libc::itimerspec>(),
            ) == 0
    }
}

#[cold]
#[inline(never)]
fn die(signal: c_int) -> ! {
    // SAFETY: zeros are valid: no flags, an empty mask, and `SIG_DFL`, which is 0.
    let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: valid signals, sets and actions; a process may signal its own threads.
    unsafe {
        sigaction_real(signal, &raw const default, ptr::null_mut());
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        // Sent before it is unblocked, so that it is delivered to this thread.
        libc::syscall(libc::SYS_tgkill, process_id(), thread_id(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        // The signal may not kill, for instance because another thread has just ignored it.
        loop {
            libc::syscall(libc::SYS_exit_group, 128 + signal);
        }
    }
}

/// This process's id, from the kernel: libc's may be a parent's after `vfork`.
fn process_id() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::syscall(libc::SYS_getpid) as c_int }
}

fn own_group() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::getpgrp() }
}

/// The calling thread's id, from the kernel: a cached one may be a parent's after `vfork`.
fn thread_id() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// The next `sigaction` after ours: libc's, or another interposer's. Safety: as `sigaction`.
unsafe fn sigaction_real(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as the caller ensures.
    unsafe { doors::sigaction_real()(signal, new, old) }
}

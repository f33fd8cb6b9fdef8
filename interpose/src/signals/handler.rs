//! SIGTERM and SIGINT to a process that would die of them: no work is left behind on the GPU.
//!
//! A process that dies with work in flight can take others along under MPS (MuxFlow, section 5: 99 % of the errors that
//! spread came from these two signals). So a client of a daemon ends in two steps: what it launches is *frozen*, what is in
//! flight is waited for, and then it dies of the same signal, so that its parent sees the status that it would have seen.
//!
//! Only where the disposition is the default. A handler of the application's is never wrapped: it is the kernel that calls
//! it, at once, with its own arguments, and launches stay open for it (a checkpoint needs them). What is ignored stays
//! ignored. Where the default was, [`handle`] stands in its place, and whoever asks (`sigaction`, `signal` and their like,
//! exported from here) is told of the default.
//!
//! ```text
//!  the signal ─> handle ──────────────> every helper: waits for its device (cuCtxSynchronize) ─> the last one: dies of it
//!               │  └ a timer: the same signal once more after `PILLION_DRAIN_MS`                          ▲
//!               └ outside CUDA this thread stops here; inside, and every other thread, at the door         │
//!  the timer's, or the signal once more after a while ──────────────────────────────────────────────────────┘
//! ```
//!
//! The thread that the signal hit stops where it is, unless that is inside a call of CUDA: there it may hold what the
//! helper needs, so it goes on to the end of the call. Outside it may hold locks of the process (`malloc`'s, the dynamic linker's), of
//! which the helper needs none: from here on it neither allocates nor looks up anything. Other threads stop at their next call of
//! CUDA. No context is destroyed by us.
//!
//! Where MPS shares the GPU and somebody sees to the end of the process (`pillion stop`, the
//! daemon), it does not die by itself when that time is over and work is in flight: it says so
//! ([`supervised_exit`]), so that MPS is asked to end the work before a kill, and dies by itself
//! only [`FROZEN_MS`] later. Signals of others end it no sooner meanwhile.
//!
//! A process often gets the signal twice within milliseconds (a terminal's to the group, and its parent's who forwards it):
//! that is one request. A process that sends it to itself by `kill` is stopped in that call, which is exported for it: the kernel
//! would run [`handle`] on another thread while the one that asked went on. From its own handler, which lets the signal in when it
//! returns (it cleans up, sets the default, and sends it again), and to its whole group it sends it as it is, and is stopped where it meets it.
//!
//! The stack that [`handle`] runs on may be one of 8 KiB that the application keeps for signals (every thread of a Rust program has
//! one): two of the kernel's frames have room there, and no third. So one of ours comes on no other of ours: while [`handle`] runs, the
//! two signals are blocked in its thread, and a thread that it stops takes what comes later from the kernel ([`stop_in_handler`]);
//! what the application has set a handler of its own for by then it gives back to that, and what is ignored it drops. It is stopped
//! once: a frame of ours that comes on top all the same returns. It blocks no other signal, nor these in any
//! other thread. While it stops a thread it takes few hundred bytes of that stack, as a handler of the application's may come on top: what
//! is larger is in functions that return first, and are not inlined.
//!
//! What [`handle`] does is async-signal-safe: atomics, a word of its thread
//! ([`crate::dispatch::reentrancy`]), `futex`, `timer_create`, `getpid`, `gettid`, `tgkill`,
//! `sigaction`, `rt_sigprocmask`, `rt_sigtimedwait`, `rt_tgsigqueueinfo`.
//!
//! **Whose it is not**: of the first process of a PID namespace, which the kernel does not let die of a default; of a
//! process that is no client; of children of a fork, which die at once, as their parent's work is not theirs to wait for;
//! of programs that set their handlers by system call (Go), which simply replace ours.

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

/// The signals of which a process is asked to end.
const OURS: [c_int; 2] = [libc::SIGTERM, libc::SIGINT];
/// The same as a set of the kernel's, which is small.
const OURS_SET: u64 = 1 << (libc::SIGTERM - 1) | 1 << (libc::SIGINT - 1);

/// What this process knows of its end.
static SIGNALS: Signals = Signals::new();

/// See [`SIGNALS`]. Handlers read it: every word is an atomic, and nothing is made on first use.
struct Signals {
    /// Whether the process has become a client, or one that it was forked from.
    is_attached: AtomicBool,
    /// Process in which [`handle`] stands where the default was; 0 if in none. A child of a fork
    /// finds its parent's.
    owner: AtomicI32,
    /// When it was told to die, on `CLOCK_MONOTONIC`, ns.
    told_ns: AtomicU64,
    /// Longest wait for what is in flight, ms.
    drain_ms: AtomicU32,
    /// The thread that was last to send one of [`OURS`] to its own process by a function of libc's
    /// which is exported from here; 0 if none did.
    sender: AtomicI32,
    /// The one that does so this moment; 0 if none does.
    sending: AtomicI32,
    /// Clients whose work is waited for.
    drained: AtomicU32,
    /// The flags (`sa_flags`) that the application's default has, for each of [`OURS`].
    flags: [AtomicI32; OURS.len()],
    /// Which of [`OURS`] are in the mask (`sa_mask`) of the application's default, a bit each. In
    /// that of [`handle`] all are.
    masked: [AtomicU32; OURS.len()],
    /// The functions behind those that are exported from here.
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

/// This process became a client: from here on work may be in flight when it is asked to end.
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

/// Whether [`handle`] may stand where this signal's default was, in this process or in one that it was forked from.
fn was_owned(signal: c_int) -> bool {
    OURS.contains(&signal) && SIGNALS.owner.load(Ordering::Acquire) != 0
}

/// Whether it is this process whose defaults are stood in for.
fn is_owner() -> bool {
    SIGNALS.owner.load(Ordering::Acquire) == process_id()
}

/// The daemon asks this process to end, whatever it does with signals: as by SIGKILL, once nothing is in flight or
/// [`FROZEN_MS`] have passed, whether there is a daemon still or not.
pub(crate) fn handle_stop() {
    if dying::try_begin(libc::SIGKILL) {
        if !arm_timer(libc::SIGKILL, FROZEN_MS) {
            log::say(
                Level::Warn,
                format_args!("is to end and has no timer: if its GPU hangs it has to be killed"),
            );
        }
        process::clients().for_each(waking::wake_surely);
    }
}

/// What was in flight on one device is complete; the last of `clients` to say so ends the process.
pub(crate) fn handle_drained(clients: u32) {
    let signal = dying::of();
    if SIGNALS.drained.fetch_add(1, Ordering::AcqRel) + 1 < clients {
        return;
    }
    log::say(
        Level::Info,
        format_args!("ends by signal {signal} as it was asked to, with nothing in flight"),
    );
    die(signal);
}

/// Puts [`handle`] where the default is.
fn stand_in(signal: c_int) {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set, and there is room for what is found, which is read only if it was filled in.
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
        // The handler never returns into a call that was not CUDA's, so nothing is interrupted for good.
        sa_flags: found.sa_flags | libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK,
        ..found
    };
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a handler that does what handlers may, and room for what was there, which is read only if it was filled in.
    unsafe {
        if sigaction_real(signal, &raw const new, before.as_mut_ptr()) != 0 {
            return;
        }
        let before = before.assume_init();
        // Another thread has set its own since we looked.
        if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != own_handler() {
            sigaction_real(signal, &raw const before, ptr::null_mut());
        }
    }
}

/// Where what is known of the signal's default is kept.
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

/// What is told of the application's default where [`handle`] was found in its place.
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

/// The address of [`handle`].
fn own_handler() -> usize {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
    handler as usize
}

/// In place of the default. See the module's text.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let errno = Errno::of_thread();
    let found = errno.read();
    // A child of a fork has the handler, and until it calls `exec` it may even have its parent's memory (`vfork`): it
    // changes nothing there.
    if !is_owner() {
        die(signal);
    }
    let is_first = dying::try_begin(signal);
    // SAFETY: the kernel gives its handlers the details.
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

/// Whether a thread that has sent the signal to its own process would go on while the process drains: one that sent it by system call, that lets it
/// in later than this one, or that is this one and inside a call of CUDA, or stopped, below the handler that sends it.
fn goes_on(info: &libc::siginfo_t) -> bool {
    let thread = thread_id();
    let is_senders = SIGNALS.sender.load(Ordering::Relaxed) == thread;
    let is_sending = SIGNALS.sending.load(Ordering::Relaxed) == thread;
    is_own(info) && !is_senders || is_sending && !guard::is_outside()
}

/// Whether this process has sent it.
fn is_own(info: &libc::siginfo_t) -> bool {
    // SAFETY: of a signal that a process has sent, the sender is named.
    info.si_code == libc::SI_USER && unsafe { info.si_pid() } == process_id()
}

/// One more while the process is dying: it dies of it, unless it belongs to the first, or somebody sees to its end, who may have to
/// ask MPS before.
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

/// The time to wait is over, and who sees to the end of this process is told: it lives for [`FROZEN_MS`] more. False if it could not end
/// then.
fn tell_overdue(signal: c_int) -> bool {
    if !arm_timer(signal, FROZEN_MS) {
        return false;
    }
    supervised_exit::tell_overdue();
    true
}

/// Stops the calling thread for good, in [`handle`]: what comes is not put on top of that. On virtual time it takes part no more.
fn stop_in_handler() -> ! {
    Clock::process().leave();
    let set = OURS_SET;
    loop {
        // They are blocked already, unless a handler of the application's called this one.
        mask(libc::SIG_BLOCK, set);
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: a set of the kernel's, room for the details, and no time, so that it waits without end.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const set,
                info.as_mut_ptr(),
                ptr::null::<libc::timespec>(),
                size_of_val(&set),
            )
        };
        // Interrupted by another signal's handler it has taken none.
        let Some(signal) = OURS.into_iter().find(|ours| c_long::from(*ours) == taken) else {
            continue;
        };
        // SAFETY: of what it has taken, the kernel has filled in the details.
        let info = unsafe { info.assume_init_mut() };
        match disposition(signal) {
            Some(handler) if handler == own_handler() => handle_again(signal, info),
            // It was kept only because it is blocked here.
            Some(libc::SIG_IGN) => {}
            _ => give_back(signal, info),
        }
    }
}

/// The application has set a disposition of its own since: this thread meets the signal, with all that came with it, as if it had
/// not been taken. Only this one: the other, if it is ours, would come on top of the frame that is there.
#[cold]
fn give_back(signal: c_int, info: &mut libc::siginfo_t) {
    // SAFETY: a signal that exists, and details that the kernel has filled in; a process may send itself any.
    unsafe {
        let call = libc::SYS_rt_tgsigqueueinfo;
        libc::syscall(call, process_id(), thread_id(), signal, ptr::from_mut(info));
    }
    mask(libc::SIG_UNBLOCK, 1 << (signal - 1));
}

/// Blocks the signals of a set of the kernel's in this thread, or lets them in.
fn mask(how: c_int, set: u64) {
    // SAFETY: a set of the kernel's, and nobody is told of the one before.
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

/// What follows the first request: the helpers wait, and a timer for them.
#[inline(never)]
fn begin(signal: c_int, now_ns: u64) {
    SIGNALS.told_ns.store(now_ns, Ordering::Release);
    // Nobody waits for what is in flight any more, or nobody could end the wait.
    if waking::are_stopping() || !arm_timer(signal, SIGNALS.drain_ms.load(Ordering::Relaxed)) {
        die(signal);
    }
    process::clients().for_each(waking::wake_surely);
}

/// The calling thread sends the signal to its own process: it is asked to end, and this thread stops here. Returns if the
/// default is not what the signal meets, or where this thread cannot be stopped.
fn handle_own(signal: c_int) {
    if !is_owner() || !guard::is_outside() || !is_met_by_us(signal) {
        return;
    }
    if dying::try_begin(signal) {
        begin(signal, Clock::monotonic().now_ns());
    }
    dying::stop();
}

/// The calling thread sends the signal to its own process, by `send`. Where [`handle`] then runs in this thread, as it does
/// once a handler of the application's that has set the default again and sends it returns, nothing of the application's goes on here.
fn handle_sending(signal: c_int, send: impl FnOnce() -> c_int) -> c_int {
    if !was_owned(signal) {
        return send();
    }
    let thread = thread_id();
    SIGNALS.sender.store(thread, Ordering::Relaxed);
    SIGNALS.sending.store(thread, Ordering::Relaxed);
    let result = send();
    // Unless another thread sends one too.
    let _ = SIGNALS
        .sending
        .compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    result
}

/// Whether [`handle`] stands for the signal's default, and this thread lets the signal in.
fn is_met_by_us(signal: c_int) -> bool {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: nothing is set; what is read was filled in.
    let is_let_in = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr()) == 0
            && libc::sigismember(blocked.as_ptr(), signal) == 0
    };
    is_let_in && is_ours(signal)
}

/// Whether [`handle`] is the signal's handler.
fn is_ours(signal: c_int) -> bool {
    disposition(signal) == Some(own_handler())
}

/// What the kernel does about the signal: its handler, `SIG_DFL`, or `SIG_IGN`.
#[inline(never)]
fn disposition(signal: c_int) -> Option<libc::sighandler_t> {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set; what is read was filled in.
    unsafe {
        let result = sigaction_real(signal, ptr::null(), found.as_mut_ptr());
        (result == 0).then(|| found.assume_init().sa_sigaction)
    }
}

/// From a timer (`<asm-generic/siginfo.h>`).
const SI_TIMER: c_int = -2;

/// Whether a signal that comes now belongs to the first.
fn is_same_request(now_ns: u64) -> bool {
    // 0: the first is being told this moment.
    let told_ns = SIGNALS.told_ns.load(Ordering::Acquire);
    told_ns == 0 || now_ns.saturating_sub(told_ns) < SAME_REQUEST_NS
}

/// Has the kernel send the signal when the time to wait is over. A timer is not a thread: nothing that hangs can
/// keep it from coming.
fn arm_timer(signal: c_int, after_ms: u32) -> bool {
    // SAFETY: plain data, zeros being valid.
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
    // SAFETY: the kernel's own calls, as libc's `timer_create` is in another library on old systems: an event and a time
    // that are filled in, and room for the number of a timer.
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

/// Dies of the signal, as without us.
#[cold]
#[inline(never)]
fn die(signal: c_int) -> ! {
    // SAFETY: plain data, zeros being valid: no flags, an empty mask, and `SIG_DFL`, which is 0.
    let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a signal that exists, sets and actions that are filled in; sending a signal to a thread of this process has no
    // precondition.
    unsafe {
        sigaction_real(signal, &raw const default, ptr::null_mut());
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        // Sent before it is let in, so that it comes in this thread.
        libc::syscall(libc::SYS_tgkill, process_id(), thread_id(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        // Whoever is not let die of it, for instance because another thread has just set it to be ignored.
        loop {
            libc::syscall(libc::SYS_exit_group, 128 + signal);
        }
    }
}

/// This process's id, asked of the kernel: libc's may be a parent's after `vfork`.
fn process_id() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::syscall(libc::SYS_getpid) as c_int }
}

/// This process's group.
fn own_group() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::getpgrp() }
}

/// The calling thread's id, asked of the kernel: what is known of it otherwise may be a parent's after `vfork`.
fn thread_id() -> c_int {
    // SAFETY: the call has no precondition.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// `sigaction` of whoever comes after us: libc's, or another interposer's.
///
/// # Safety
/// As `sigaction`.
unsafe fn sigaction_real(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { doors::sigaction_real()(signal, new, old) }
}

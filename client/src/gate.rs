//! The best-effort side: a launch goes if the job's lease allows it, or waits until a lease does.
//! The common case is one clock read and one charge (`protocol::lease`). A launch that may not go
//! rings the daemon and sleeps on the lease's bell. The wait ends
//! - with a lease;
//! - after `max_hold`, because the thread may hold a lock that others need. Time in which an
//!   operator or a rule holds the job for a fault, or a law of the policy holds it, does not count;
//! - on a signal: its handler may need the thread, or the process is to end. A signal in the
//!   microsecond between two sleeps is missed: the wait lasts until `max_hold` or, held by a rule,
//!   the next signal;
//! - when the daemon is gone: its connection has ended, or it was silent for five seconds. A
//!   daemon that is only late (more threads than processors) is not gone: each launch waits for
//!   `max_hold`. If another daemon has taken over, the wait goes on there with its start time.
//!
//! A launch without a lease is charged all the same: the daemon's sums stay right. A collective
//! kernel does not wait for a lease ([`admit_collective`]).

use core::cell::Cell;
use core::sync::atomic::Ordering;

use policy::{ClassSet, Kernel, Lease, admits};
use protocol::clock::Wake;
use protocol::lease::{self, Refusal, Terms};
use protocol::pages::{Counter, ON_LOSS_HOLD, SILENCE_NS_MAX};

use crate::Client;
use crate::launch_log::Launch;

/// An admitted launch.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The charge, ns.
    pub cost_ns: u64,
    /// The lease, if any.
    terms: Option<Terms>,
    /// Time of admission on the client's clock, ns.
    pub at_ns: u64,
}

impl Grant {
    /// The lease; `None`: the launch goes without one.
    pub fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// Whether there is no high-priority job to protect.
    #[inline]
    pub fn is_ungated(&self) -> bool {
        self.terms.is_some_and(|terms| terms.ungated())
    }

    /// The epoch of the launch, for the learner ([`Launch::epoch`]).
    #[inline]
    pub fn epoch(&self) -> u64 {
        match &self.terms {
            Some(terms) if terms.is_for_nobody() => Launch::UNGATED,
            Some(terms) if !terms.beside_hp() => Launch::low(terms.epoch),
            _ => Launch::BESIDE,
        }
    }
}

/// Longest sleep between two polls. It bounds the cost of a lost wake-up, and of events without a
/// bell: the daemon no longer serves this process; its connection ended with no thread waiting.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// Longest sleep in a job that is held for long: rare sleeps, as signals between two are missed.
const HELD_SLEEP_NS_MAX: u64 = 100_000_000;

/// A daemon that held the job counts as gone only after this silence since its last poll (with
/// nobody to protect it polls once a second), even if its connection has ended: the half second of
/// a restart is no reason to send work to a broken GPU.
const HELD_SILENCE_NS_MAX: u64 = 2_000_000_000;

/// Longest `max_hold` that is believed: a larger value is wrong, and must not hang a job.
const HOLD_NS_MAX: u64 = 10_000_000_000;

/// A new daemon has made the process high-priority while a launch waited: the launch need not wait.
pub struct IsHighPriority;

/// Waits until the launch may go. `before_sleep` runs once if it must wait; `after_sleep` after
/// each sleep, and it does not return in a dying process. `known` is the launch's expected work,
/// `unknown` the number of its kernels that `known` lacks (0 or 1, any for a graph).
/// # Errors
/// The process has become high-priority and need not wait.
#[inline]
pub fn admit(
    client: &Client,
    known: &Kernel,
    unknown: u64,
    before_sleep: impl FnOnce(),
    after_sleep: impl Fn(),
) -> Result<Grant, IsHighPriority> {
    // Repeats the body of `look`, whose result would not stay in registers.
    let kernel = judged(client, known, unknown);
    match try_admit(client, &kernel, client.clock.now_ns()) {
        Ok(grant) => Ok(grant),
        Err(_) => {
            before_sleep();
            wait(
                client,
                Hold::begin(client, kernel, Held::Launch),
                after_sleep,
            )
        }
    }
}

/// As [`admit`], for a kernel of collective communication: its peers on other GPUs may already spin
/// until it begins, so it waits only while the job is held, and not for a used-up share.
/// # Errors
/// As [`admit`].
// Out of line, so that all other launches keep their registers.
#[cold]
#[inline(never)]
pub fn admit_collective(
    client: &Client,
    known: &Kernel,
    unknown: u64,
    before_sleep: impl FnOnce(),
    after_sleep: impl Fn(),
) -> Result<Grant, IsHighPriority> {
    match look_collective(client, known, unknown) {
        Ok(grant) => Ok(grant),
        Err(kernel) => {
            before_sleep();
            wait(
                client,
                Hold::begin(client, kernel, Held::Collective),
                after_sleep,
            )
        }
    }
}

/// As [`admit`], for a copy that counts as `kernel`. It goes although an operator or a rule holds
/// the job, and when the process is asked to end: the data it saves must not be lost.
/// # Errors
/// As [`admit`].
#[cold]
pub fn admit_copy(
    client: &Client,
    kernel: &Kernel,
    before_sleep: impl FnOnce(),
    after_sleep: impl Fn(),
) -> Result<Grant, IsHighPriority> {
    match look(client, kernel, 0) {
        Ok(grant) => Ok(grant),
        Err(kernel) => {
            before_sleep();
            wait(client, Hold::begin(client, kernel, Held::Copy), after_sleep)
        }
    }
}

/// Settles a copy after the driver's answer: a refused one is refunded. Copies count neither as
/// slips nor as beside high-priority work: the call may have waited for the copy.
pub fn handle_copied(client: &Client, grant: &Grant, accepted: bool) {
    if !accepted {
        refund(client, grant);
    }
}

fn refund(client: &Client, grant: &Grant) {
    let lease = &client.link.lease;
    lease.refund(&client.page.charged_ns, grant.cost_ns);
}

/// Tries once to admit a launch.
/// # Errors
/// The launch must wait, as the kernel that [`Hold::begin`] takes.
#[inline]
pub fn look(client: &Client, known: &Kernel, unknown: u64) -> Result<Grant, Kernel> {
    let kernel = judged(client, known, unknown);
    try_admit(client, &kernel, client.clock.now_ns()).map_err(|_| kernel)
}

/// Tries once to admit the launch of a collective kernel.
/// # Errors
/// The job is held, and not for a used-up share, so the launch must wait.
pub fn look_collective(client: &Client, known: &Kernel, unknown: u64) -> Result<Grant, Kernel> {
    client.page.count(Counter::Collectives, 1);
    match look(client, known, unknown) {
        Err(kernel) if !holds_collectives(client) => Ok(passed(client, &kernel)),
        looked => looked,
    }
}

/// Longest wait of one of the client's launches, ns.
fn hold_ns_max(client: &Client) -> u64 {
    let max_hold_ns = client.link.daemon.max_hold_ns.load(Ordering::Relaxed);
    max_hold_ns.min(HOLD_NS_MAX)
}

/// Settles a launch after the driver's answer: a refused one is refunded.
#[inline]
pub fn handle_launched(client: &Client, grant: &Grant, accepted: bool) {
    if !accepted {
        return refund(client, grant);
    }
    let Some(terms) = &grant.terms else { return };
    if lease::slipped(&client.link.hp, terms) {
        client.page.count(Counter::Slips, 1);
    }
    if terms.beside_hp() {
        client.page.count(Counter::BesideHp, 1);
    }
}

/// The kernel as the gate charges it. Unknown kernels last as long as the daemon assumes. No kernel
/// costs 0, so that the sum in flight is zero only when nothing is in flight.
#[inline]
fn judged(client: &Client, known: &Kernel, unknown: u64) -> Kernel {
    let unknown_ns = match unknown {
        0 => 0,
        count => {
            let each_ns = client.link.daemon.unknown_ns.load(Ordering::Relaxed);
            each_ns.saturating_mul(count)
        }
    };
    let known_ns = if unknown == 0 || known.expected_ns > 1 {
        known.expected_ns
    } else {
        0
    };
    let expected_ns = known_ns.saturating_add(unknown_ns);
    Kernel {
        expected_ns: expected_ns.clamp(1, protocol::record::EXPECTED_NS_MAX),
        ..*known
    }
}

#[inline]
fn try_admit(client: &Client, kernel: &Kernel, now_ns: u64) -> Result<Grant, Refusal> {
    let cost_ns = kernel.expected_ns;
    let terms = client.link.lease.try_charge(
        &client.page.charged_ns,
        &client.link.hp,
        now_ns,
        cost_ns,
        |terms, remaining_ns| admits(&lease_of(terms, remaining_ns), 0, kernel),
    )?;
    Ok(Grant {
        cost_ns,
        terms: Some(terms),
        at_ns: now_ns,
    })
}

/// The terms as the policy's type, with what is left to charge as the budget.
#[inline]
fn lease_of(terms: &Terms, remaining_ns: u64) -> Lease {
    Lease {
        epoch: terms.epoch,
        expiry_ns: terms.expiry_ns,
        classes: ClassSet::from_bits_truncate(terms.class_bits()),
        sms_max: terms.sms_max,
        budget_ns: remaining_ns,
        beside_hp: terms.beside_hp(),
        whole: terms.whole(),
        standing: terms.standing(),
        ungated: terms.ungated(),
    }
}

/// The next step of a wait.
#[derive(Debug)]
pub enum Step {
    /// The launch goes.
    Go(Grant),
    /// Sleep, at most until this time.
    SleepUntil(u64),
}

/// Waits until the launch goes. Errors: as [`admit`].
#[cold]
fn wait(client: &Client, hold: Hold, after_sleep: impl Fn()) -> Result<Grant, IsHighPriority> {
    /// Counts the end of the wait on every path out.
    struct Waits<'a>(&'a Client, Hold);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            self.1.leave(self.0);
        }
    }
    let Waits(_, hold) = &Waits(client, hold);
    loop {
        if client.is_high_priority() {
            return Err(IsHighPriority);
        }
        // Read before polling the lease, so that no change in between is slept through.
        let seen = client.link.lease.bell.read();
        match hold.poll(client) {
            Step::Go(grant) => return Ok(grant),
            Step::SleepUntil(deadline_ns) => {
                let wake = client.link.wait(&client.clock, seen, deadline_ns);
                after_sleep();
                if wake == Wake::Interrupted {
                    client.page.count(Counter::Interrupted, 1);
                    return Ok(charged(client, &hold.kernel));
                }
            }
        }
    }
}

/// A thread that waits at the gate. If another daemon takes over, the replacement of its pages
/// wakes the thread, which waits there ([`crate::link`]).
#[derive(Debug)]
pub struct Hold {
    kernel: Kernel,
    begun_ns: u64,
    /// When `max_hold` begins: `begun_ns` plus the time held indefinitely.
    counts_from_ns: Cell<u64>,
    /// Since when the job has been held indefinitely, as of the last poll.
    held_since_ns: Cell<Option<u64>>,
    what: Held,
}

/// The kind of operation that waits at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A launch, until a lease lets it go.
    Launch,
    /// A launch of a collective kernel, while the job is held, and not for a used-up share.
    Collective,
    /// A copy: as a launch, but it does not wait while an operator or a rule holds the job.
    Copy,
}

impl Hold {
    /// Begins the wait of a launch of `kernel`, as returned by [`look`]; ended by [`Hold::end`].
    pub fn begin(client: &Client, kernel: Kernel, what: Held) -> Self {
        client.page.count(Counter::Held, 1);
        let begun_ns = client.clock.now_ns();
        // Before the bell: the daemon, which the bell wakes, must see that a thread waits.
        client.page.waiting.fetch_add(1, Ordering::SeqCst);
        client.link.bell.bell.ring(&client.clock);
        Self {
            kernel,
            begun_ns,
            counts_from_ns: Cell::new(begun_ns),
            held_since_ns: Cell::new(None),
            what,
        }
    }

    /// Ends the wait.
    pub fn end(self, client: &Client) {
        self.leave(client);
    }

    fn leave(&self, client: &Client) {
        let page = &client.page;
        page.waiting.fetch_sub(1, Ordering::SeqCst);
        let held_ns = client.clock.now_ns().saturating_sub(self.begun_ns);
        page.count(Counter::HeldNs, held_ns);
    }

    /// Polls the lease and the daemon. Returns the next step.
    pub fn poll(&self, client: &Client) -> Step {
        let kernel = &self.kernel;
        let now_ns = client.clock.now_ns();
        if let Ok(grant) = try_admit(client, kernel, now_ns) {
            return Step::Go(grant);
        }
        let is_held = client.link.lease.is_held();
        match self.what {
            Held::Collective if !holds_collectives(client) => {
                return Step::Go(passed(client, kernel));
            }
            Held::Copy if may_copy(client) => return Step::Go(charged(client, kernel)),
            Held::Launch | Held::Collective | Held::Copy => {}
        }
        // `detached`: the daemon took this process for dead, as its connection was closed behind
        // our back. It then serves the process no more than a daemon that is gone.
        let gone_ns = match client.page.detached.load(Ordering::Acquire) {
            0 => self.gone_ns(client, is_held),
            _ => 0,
        };
        let is_gone = now_ns >= gone_ns;
        let holds = client.link.daemon.on_daemon_loss.load(Ordering::Relaxed) == ON_LOSS_HOLD;
        if is_gone && !holds {
            client.page.count(Counter::Unmanaged, 1);
            // Charge it anyway: a process that ends waits for work in flight, counted by charges.
            return Step::Go(charged(client, kernel));
        }
        // A hold has no time limit, whatever its reason, unless its daemon is gone.
        let is_for_good = is_held && !is_gone;
        let end_ns = match is_for_good {
            true => {
                let since_ns = self.held_since_ns.get().unwrap_or(now_ns);
                self.held_since_ns.set(Some(since_ns));
                u64::MAX
            }
            false => {
                // After a long hold of several threads, one then goes by a lease, instead of all by
                // `max_hold`. Waits before the hold count: a hold that comes and goes is not the
                // only obstacle.
                let held_ns = (self.held_since_ns.take()).map_or(0, |ns| now_ns.saturating_sub(ns));
                let from_ns = self.counts_from_ns.get().saturating_add(held_ns);
                self.counts_from_ns.set(from_ns);
                from_ns.saturating_add(hold_ns_max(client))
            }
        };
        if now_ns >= end_ns {
            client.page.count(Counter::Forced, 1);
            return Step::Go(charged(client, kernel));
        }
        let sleep_ns = sleep_ns(is_for_good, now_ns.saturating_sub(self.begun_ns));
        // Not later than the time at which a silent daemon counts as gone.
        let wanted_ns = if is_gone { u64::MAX } else { gone_ns };
        Step::SleepUntil(end_ns.min(now_ns + sleep_ns).min(wanted_ns))
    }

    /// When a silent daemon counts as gone; a sleeping one's time begins with a ring.
    fn gone_ns(&self, client: &Client, is_held: bool) -> u64 {
        let daemon = &client.link.daemon;
        // Acquire, and before the heartbeat: the daemon writes its heartbeat before it clears
        // `asleep`. Otherwise an old heartbeat could count as that of an awake daemon.
        let is_asleep = daemon.asleep.load(Ordering::Acquire) != 0;
        let heartbeat_ns = daemon.heartbeat_ns.load(Ordering::Acquire);
        let connection = &client.connection;
        let heard_ns = match is_asleep {
            true => connection.rung_ns(heartbeat_ns, self.begun_ns),
            false => heartbeat_ns,
        };
        gone_ns(heard_ns, connection.has_ended(), is_held)
    }
}

/// Whether collective kernels wait. Not for a used-up share: peers on other GPUs would wait.
fn holds_collectives(client: &Client) -> bool {
    let lease = &client.link.lease;
    lease.is_held() && !lease.is_rated()
}

/// Whether copies go although no lease allows them.
fn may_copy(client: &Client) -> bool {
    let lease = &client.link.lease;
    let is_ending = client.page.stop.load(Ordering::Relaxed) != 0;
    is_ending || (lease.is_held() && !lease.is_paused())
}

/// Longest sleep of a launch that has waited for `waited_ns`; it grows in an indefinite hold.
fn sleep_ns(is_for_good: bool, waited_ns: u64) -> u64 {
    match is_for_good {
        true => (waited_ns / 4).clamp(SLEEP_NS_MAX, HELD_SLEEP_NS_MAX),
        false => SLEEP_NS_MAX,
    }
}

/// When a daemon last heard of at `heard_ns` is gone. An orderly shutdown leaves a heartbeat of 0.
fn gone_ns(heard_ns: u64, has_ended: bool, is_held: bool) -> u64 {
    let silence_ns = match (has_ended, is_held) {
        (false, _) => SILENCE_NS_MAX,
        (true, true) => HELD_SILENCE_NS_MAX,
        (true, false) => return 0,
    };
    heard_ns.saturating_add(silence_ns)
}

/// A collective kernel that goes although no lease allows it.
fn passed(client: &Client, kernel: &Kernel) -> Grant {
    client.page.count(Counter::CollectivesPassed, 1);
    charged(client, kernel)
}

/// A launch that goes without a lease, but is charged.
fn charged(client: &Client, kernel: &Kernel) -> Grant {
    let lease = &client.link.lease;
    lease.charge(&client.page.charged_ns, kernel.expected_ns);
    Grant {
        cost_ns: kernel.expected_ns,
        terms: None,
        at_ns: client.clock.now_ns(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;

    #[test]
    fn what_is_held_for_good_wakes_ever_more_seldom_and_nothing_else_does() {
        let ms = |ms: u64| ms * 1_000_000;
        let held = [0, 20, 40, 400, 4_000_000].map(|waited| sleep_ns(true, ms(waited)));
        assert_eq!(held, [5, 5, 10, 100, 100].map(ms));
        assert_eq!(sleep_ns(false, ms(400)), SLEEP_NS_MAX);
        // So that a dead daemon is noticed as soon as it counts as gone.
        const { assert!(HELD_SLEEP_NS_MAX < HELD_SILENCE_NS_MAX) };
    }

    #[test]
    fn a_daemon_is_gone_when_its_connection_has_ended_or_after_five_seconds_of_silence() {
        let heard_ns = 7;
        assert_eq!(gone_ns(heard_ns, true, false), 0);
        assert_eq!(gone_ns(heard_ns, true, true), 7 + HELD_SILENCE_NS_MAX);
        for is_held in [false, true] {
            // Late by 10 ms, or by a second, is not gone.
            assert_eq!(gone_ns(heard_ns, false, is_held), 7 + SILENCE_NS_MAX);
        }
    }

    #[test]
    fn the_silence_of_a_daemon_that_sleeps_counts_from_the_first_ring_over_several_waits() {
        let connection = Connection::default();
        // Two waits in the sleep that began at 10, and one in the sleep that began at 50.
        assert_eq!(connection.rung_ns(10, 20), 20);
        assert_eq!(connection.rung_ns(10, 40), 20);
        assert_eq!(connection.rung_ns(50, 60), 60);
        // The daemon polled after the ring and sleeps again.
        assert_eq!(connection.rung_ns(70, 60), 70);
    }
}

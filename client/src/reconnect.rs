//! When a client without a daemon asks for one. After a daemon's end the client asks at the old
//! address: after some milliseconds, then less and less often, at times that differ between
//! processes, for the life of the process. The wait is an eighth of the time without a daemon
//! ([`Away`]). The client finds the next daemon late by that much, and asks about fifty times
//! before it reaches one attempt every half second. A daemon that refuses (its limits, another
//! version) will refuse again: the client asks it after a second, then less often, in the end every
//! minute. Another daemon in its place is asked at once. A process that no daemon has accepted yet
//! does so from its start; after a minute, every 5 s.

/// Interval of polls for events without a notification, ns: the connection's end where no thread
/// waits for it; another daemon in place of one that refuses. A poll costs an idle client some µs.
pub const LOOK_NS: u64 = 250_000_000;
/// From a daemon's end to the first attempt, and between the first ones.
const BACKOFF_NS_MIN: u64 = 5_000_000;
/// The next attempt waits for this fraction (an eighth) of the time without a daemon.
const BACKOFF_PART: u64 = 8;
/// Upper bound, so that a job is a client again well within a second of the daemon's return.
const BACKOFF_NS_MAX: u64 = 500_000_000;

/// A process that has had no daemon for this long since its start most probably has none to expect.
const FIRST_AWAY_NS: u64 = 60_000_000_000;
/// Interval of its attempts from then on.
const FIRST_NS: u64 = 5_000_000_000;

/// Wait after a daemon's first refusal.
const REFUSED_NS_MIN: u64 = 1_000_000_000;
/// Longest wait after a refusal: a configuration that now allows this client is noticed this late.
const REFUSED_NS_MAX: u64 = 60_000_000_000;

/// A daemon that does not answer, or hangs up, is logged after this time without one. Before, it is
/// probably about to end, or has many clients to answer.
const UNANSWERED_NS: u64 = 1_000_000_000;

/// A new daemon waits one second for returning clients (`RETURN_NS` in the scheduler). A client
/// must ask within that second, or within a second of the end of a call that began before.
const _: () = assert!(LOOK_NS <= 500_000_000 && BACKOFF_NS_MAX <= 500_000_000);

/// A client's knowledge of its daemon's absence. `L` tells daemons at one address apart.
#[derive(Debug)]
pub struct Reconnect<L> {
    /// `None` while there is a daemon.
    away: Option<Away>,
    /// The refusal by the daemon that listens there now.
    refusal: Option<Refusal<L>>,
    /// Whether the reason why this process is not attached was logged.
    is_said: bool,
    next_ns: u64,
    /// Differs from process to process.
    seed: u32,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No daemon is there.
    Absent,
    /// A daemon refused this client.
    Refused,
    /// A daemon is there and gave no answer.
    Unanswered,
}

#[derive(Debug)]
struct Away {
    since_ns: u64,
    /// Attempts in a row without an answer.
    unanswered: u32,
    /// There was never a daemon.
    is_first: bool,
}

impl Away {
    fn backoff_ns(&self, now_ns: u64) -> u64 {
        let away_ns = now_ns.saturating_sub(self.since_ns);
        if self.is_first && away_ns >= FIRST_AWAY_NS {
            return FIRST_NS;
        }
        let by_time_ns = (away_ns / BACKOFF_PART).clamp(BACKOFF_NS_MIN, BACKOFF_NS_MAX);
        by_time_ns.max(doubled(BACKOFF_NS_MIN, self.unanswered, BACKOFF_NS_MAX))
    }
}

#[derive(Debug)]
struct Refusal<L> {
    by: Option<L>,
    times: u32,
    /// When to ask it again.
    next_ns: u64,
}

impl<L: PartialEq> Refusal<L> {
    /// A refusal by the daemon that listens there now; `before` is the previous one.
    fn new(before: Option<Self>, by: Option<L>, now_ns: u64, seed: u32) -> Self {
        let before = before.filter(|before| before.by == by);
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let wait_ns = doubled(REFUSED_NS_MIN, times, REFUSED_NS_MAX);
        Self {
            by,
            times,
            next_ns: now_ns.saturating_add(jittered(wait_ns, now_ns, seed)),
        }
    }

    /// Whether not to ask the daemon that listens there now.
    fn holds(&self, listener: Option<&L>, now_ns: u64) -> bool {
        self.by.as_ref() == listener && now_ns < self.next_ns
    }
}

impl<L: PartialEq> Reconnect<L> {
    /// For a client that a daemon has accepted.
    pub fn of_taken(now_ns: u64, seed: u32) -> Self {
        Self {
            away: None,
            refusal: None,
            is_said: false,
            next_ns: now_ns + jittered(LOOK_NS, now_ns, seed),
            seed,
        }
    }

    /// For a client that no daemon has accepted yet. `refused_by` is the daemon that has refused
    /// it, if any; the refusal has been logged.
    pub fn of_untaken(now_ns: u64, seed: u32, refused_by: Option<Option<L>>) -> Self {
        Self {
            away: Some(Away {
                since_ns: now_ns,
                unanswered: 0,
                is_first: true,
            }),
            refusal: refused_by.map(|by| Refusal::new(None, by, now_ns, seed)),
            is_said: true,
            next_ns: now_ns + jittered(BACKOFF_NS_MIN, now_ns, seed),
            seed,
        }
    }

    /// Whether the client has no daemon.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// When to poll next without a notification.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The client has polled.
    pub fn handle_look(&mut self, now_ns: u64) {
        let asks = self.away.as_ref().filter(|_| self.refusal.is_none());
        let wait_ns = asks.map_or(LOOK_NS, |away| away.backoff_ns(now_ns));
        self.next_ns = now_ns + jittered(wait_ns, now_ns, self.seed);
    }

    /// Whether to ask the daemon that listens there now.
    pub fn may_ask(&self, listener: Option<&L>, now_ns: u64) -> bool {
        let refusal = self.refusal.as_ref();
        !refusal.is_some_and(|refusal| refusal.holds(listener, now_ns))
    }

    /// The daemon is gone.
    pub fn handle_end(&mut self, now_ns: u64) {
        self.away = Some(Away {
            since_ns: now_ns,
            unanswered: 0,
            is_first: false,
        });
    }

    /// Handles a failed attempt; `by` listened there before the attempt. Returns whether to log it.
    /// An absent daemon, or one about to start, is expected; any other failure is logged once.
    pub fn handle_failure(&mut self, failure: Failure, by: Option<L>, now_ns: u64) -> bool {
        let is_unanswered = failure == Failure::Unanswered;
        let is_refused = failure == Failure::Refused;
        let mut is_long = false;
        if let Some(away) = &mut self.away {
            is_long = now_ns.saturating_sub(away.since_ns) >= UNANSWERED_NS;
            away.unanswered = match is_unanswered {
                true => away.unanswered.saturating_add(1),
                false => 0,
            };
        }
        let before = self.refusal.take();
        self.refusal = is_refused.then(|| Refusal::new(before, by, now_ns, self.seed));
        let is_to_say = (is_refused || is_long && is_unanswered) && !self.is_said;
        self.is_said |= is_to_say;
        is_to_say
    }

    /// A daemon has accepted the client.
    pub fn handle_met(&mut self) {
        (self.away, self.refusal, self.is_said) = (None, None, false);
    }
}

/// Doubles the wait each time, up to a bound.
fn doubled(first_ns: u64, times: u32, most_ns: u64) -> u64 {
    let doublings = times.saturating_sub(1).min(8);
    (first_ns << doublings).min(most_ns)
}

/// A wait between three quarters and the whole of `wait_ns`. It differs between processes (`seed`)
/// and times, so that the jobs of a GPU do not all ask at the same moment.
#[must_use]
pub fn jittered(wait_ns: u64, now_ns: u64, seed: u32) -> u64 {
    let seed = now_ns ^ u64::from(seed) << 32;
    // Fibonacci hashing: the upper bits depend on all bits of the seed.
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    wait_ns - wait_ns / 4 * share / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SEED: u32 = 4_711;

    fn away(is_first: bool, unanswered: u32) -> Away {
        Away {
            since_ns: 7,
            unanswered,
            is_first,
        }
    }

    #[test]
    fn waits_grow_with_the_absence_to_a_bound_and_differ_a_little() {
        let of = |away_ns: u64, unanswered| away(false, unanswered).backoff_ns(7 + away_ns) / MS;
        assert_eq!(
            [0, 40, 80, 800].map(|away| of(away * MS, 0)),
            [5, 5, 10, 100]
        );
        assert_eq!([4_000, 1 << 40].map(|away| of(away * MS, 0)), [500, 500]);
        assert_eq!([1, 2, 3, 4].map(|times| of(0, times)), [5, 10, 20, 40]);
        assert_eq!(of(0, u32::MAX), 500);
        // A process that never had a daemon asks as often for a minute, then hardly ever.
        let of = |away_s: u64| away(true, 0).backoff_ns(7 + away_s * 1_000 * MS);
        assert_eq!(
            [4, 59, 60, 1 << 20].map(of),
            [BACKOFF_NS_MAX, BACKOFF_NS_MAX, FIRST_NS, FIRST_NS]
        );
        for now_ns in 0..10_000 {
            let wait_ns = jittered(BACKOFF_NS_MAX, now_ns, SEED);
            assert!((BACKOFF_NS_MAX / 4 * 3..=BACKOFF_NS_MAX).contains(&wait_ns));
        }
        let of = |now_ns, seed| jittered(BACKOFF_NS_MAX, now_ns, seed);
        assert_ne!(of(1, SEED), of(2, SEED));
        assert_ne!(of(1, SEED), of(1, SEED + 1));
    }

    #[test]
    fn who_waits_for_the_next_daemon_asks_some_fifty_times_and_then_every_half_a_second() {
        let mut session = Reconnect::<()>::of_taken(0, SEED);
        session.handle_end(0);
        session.handle_look(0);
        let (mut asked, mut now_ns) = (0, 0);
        while session.next_ns() - now_ns < BACKOFF_NS_MAX / 4 * 3 {
            now_ns = session.next_ns();
            assert!(session.may_ask(None, now_ns));
            assert!(!session.handle_failure(Failure::Absent, None, now_ns));
            session.handle_look(now_ns);
            asked += 1;
        }
        assert!((30..=70).contains(&asked), "{asked}");
    }

    #[test]
    fn who_is_refused_asks_that_daemon_ever_more_seldom_and_the_next_one_at_once() {
        let mut session = Reconnect::of_taken(0, SEED);
        session.handle_end(0);
        let (mut said, mut waits, mut now_ns) = (0, Vec::new(), 0);
        for _ in 0..9 {
            said += usize::from(session.handle_failure(Failure::Refused, Some('a'), now_ns));
            let mut next_ns = now_ns;
            while !session.may_ask(Some(&'a'), next_ns) {
                next_ns += MS;
            }
            waits.push(next_ns - now_ns);
            now_ns = next_ns;
        }
        for (wait_ns, seconds) in waits.iter().zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
            let whole_ns = seconds * 1_000 * MS;
            assert!(
                (whole_ns / 4 * 3..=whole_ns + MS).contains(wait_ns),
                "{waits:?}"
            );
        }
        assert_eq!(said, 1, "people are told once");
        session.handle_failure(Failure::Refused, Some('a'), now_ns);
        assert!(!session.may_ask(Some(&'a'), now_ns));
        assert!(session.may_ask(Some(&'b'), now_ns) && session.may_ask(None, now_ns));
        session.handle_failure(Failure::Refused, Some('b'), now_ns);
        assert!(session.may_ask(Some(&'b'), now_ns + 1_000 * MS));
    }

    #[test]
    fn that_nobody_is_there_is_never_said_and_that_nobody_answers_after_a_second() {
        let mut session = Reconnect::<()>::of_taken(0, SEED);
        session.handle_end(0);
        assert!(!session.handle_failure(Failure::Absent, None, 1 << 40));
        assert!(!session.handle_failure(Failure::Unanswered, None, 999 * MS));
        assert!(session.handle_failure(Failure::Unanswered, None, 1_000 * MS));
        assert!(!session.handle_failure(Failure::Unanswered, None, 2_000 * MS));
        session.handle_met();
        assert!(!session.is_away());
    }
}

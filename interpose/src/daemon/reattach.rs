//! What happens when a client's daemon goes, and when one is there again.
//!
//! A daemon is gone when it has ended the connection, which a thread waits for that wakes the
//! helper ([`crate::daemon::disconnect_watcher`]); where there is none the helper looks every
//! [`LOOK_NS`]. Until then a daemon that says nothing is slow, or stopped, and this process is
//! still its client. Afterwards the helper asks for a new one where the old one listened: after
//! some milliseconds, then ever more seldom, at moments that differ from process to process, for as
//! long as the process lives. It waits for an eighth of the time that there has been none
//! ([`Away`]), so it finds the next one late by that, and asks some fifty times until it asks every
//! half a second. Meanwhile jobs go on as `on_daemon_loss` says ([`crate::client::gate`]). A daemon
//! that refuses (its limits, another version) will do so again: that one is asked after a second
//! and then ever more seldom, every minute in the end. Whether another daemon listens in its place
//! is looked for meanwhile without asking.
//!
//! A process that no daemon has taken yet asks in the same way from its beginning
//! ([`attach::attach`]).
//!
//! **A new daemon.** The client stays what it is: its page, with all that it has counted since it
//! began, goes to the new daemon, and the pages of that one take the places of those before
//! ([`crate::client::link`]). So the new daemon counts everything from the beginning of the
//! process, and what is in flight weighs at the gate. A thread that waits there goes on waiting for
//! the new daemon's lease.
//!
//! **Memory.** The process brings its job's ledger along: the first one of a job makes it the new daemon's, and it goes on as if nothing had
//! been. Where the job has another there by then (a process that began meanwhile came first), what this one holds is booked in that,
//! whatever the quota says; where the daemon keeps none, the process goes on with the ledger that it has.
//!
//! **High-priority.** A new daemon skips the records that were pushed for the one before. What is
//! in flight is announced to it again. A launch that was announced just before it began to read,
//! and is not with the driver yet, it has missed; so of a client that has launched before one
//! record counts as lost: the daemon takes the client for busy until it hears of a completion,
//! which is what it does for any lost record.
//!
//! On virtual time nothing of this happens: there the moment would be left to chance.

use core::sync::atomic::Ordering;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::PoisonError;

use protocol::lease;
use protocol::pages::Counter;
use protocol::record::{Launch, Record};

use crate::client::{Client, account, process, rings};
use crate::daemon::attach::{self, Met, Unmanaged};
use crate::daemon::disconnect_watcher::{HangUp, Said};
use crate::platform::log::{self, Level};
use crate::progress::contexts::CONTEXTS;
use crate::progress::streams::STREAMS;

/// Between two looks at what nobody tells of: the connection, where no thread waits for its end; another daemon in the place of one that
/// refuses. An idle client wakes up for it: a look costs some microseconds.
const LOOK_NS: u64 = 250_000_000;
/// From a daemon's end to the first attempt, and between the first ones.
const BACKOFF_NS_MIN: u64 = 5_000_000;
/// Of the time without a daemon, what is waited until the next attempt: its eighth part.
const BACKOFF_PART: u64 = 8;
/// Never longer than this, so that a job is a client again well within a second of the daemon's return.
const BACKOFF_NS_MAX: u64 = 500_000_000;

/// A process that has had no daemon for so long since it began most probably is where there is none.
const FIRST_AWAY_NS: u64 = 60_000_000_000;
/// Between two attempts of that one.
const FIRST_NS: u64 = 5_000_000_000;

/// After a daemon has refused for the first time.
const REFUSED_NS_MIN: u64 = 1_000_000_000;
/// Never longer than this: so late it is noticed that a daemon's configuration now allows what it refused.
const REFUSED_NS_MAX: u64 = 60_000_000_000;

/// A daemon that is there and does not answer, or hangs up, is said after this time without one. Before, it is about to end, or has many to answer.
const UNANSWERED_NS: u64 = 1_000_000_000;

/// The class of kernels that no profile knows, in a record.
const UNKNOWN_CLASS: u8 = 4;

/// What one client's helper knows of its daemon.
pub(crate) struct Watch {
    client: &'static Client,
    /// Who tells when the daemon goes; `None` where nobody does.
    hang_up: Option<HangUp>,
    /// `None` while the daemon is there.
    away: Option<Away>,
    /// That of the daemon that listens there now.
    refusal: Option<Refusal>,
    /// Whether the log has why this process is not attached.
    is_said: bool,
    next_ns: u64,
}

/// The daemon went, and no other one has taken this client.
struct Away {
    since_ns: u64,
    /// How often in a row somebody was there who gave no answer.
    unanswered: u32,
    /// There never was one.
    is_first: bool,
}

impl Away {
    /// How long to wait for the next attempt.
    fn backoff_ns(&self, now_ns: u64) -> u64 {
        let away_ns = now_ns.saturating_sub(self.since_ns);
        if self.is_first && away_ns >= FIRST_AWAY_NS {
            return FIRST_NS;
        }
        let by_time_ns = (away_ns / BACKOFF_PART).clamp(BACKOFF_NS_MIN, BACKOFF_NS_MAX);
        // Who hangs up has too much to do.
        by_time_ns.max(doubled(BACKOFF_NS_MIN, self.unanswered, BACKOFF_NS_MAX))
    }
}

/// A daemon does not want this client.
struct Refusal {
    by: Option<Listener>,
    times: u32,
    /// When to ask it again.
    next_ns: u64,
}

impl Refusal {
    /// Now, by the daemon that listens there; `before` is the last one.
    fn new(before: Option<Self>, by: Option<Listener>, now_ns: u64) -> Self {
        let before = before.filter(|before| before.by == by);
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let wait_ns = doubled(REFUSED_NS_MIN, times, REFUSED_NS_MAX);
        Self {
            by,
            times,
            next_ns: now_ns.saturating_add(jittered(wait_ns, now_ns)),
        }
    }

    /// Whether the one that listens there now is to be left alone.
    fn holds(&self, listener: Option<&Listener>, now_ns: u64) -> bool {
        self.by.as_ref() == listener && now_ns < self.next_ns
    }
}

/// What tells a daemon's socket from the next one's in its place: device and number of its file, and when that was made.
#[derive(PartialEq, Eq)]
struct Listener {
    file: (u64, u64),
    changed: (i64, i64),
}

impl Listener {
    /// The first that listens there, if one does.
    fn at(sockets: &[PathBuf]) -> Option<Self> {
        let file = sockets
            .iter()
            .find_map(|socket| socket.symlink_metadata().ok())?;
        Some(Self {
            file: (file.dev(), file.ino()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

impl Watch {
    /// Called by the client's helper, which is woken when the daemon goes. `is_refused`: the first
    /// daemon was there, and did not want the client.
    pub(crate) fn new(client: &'static Client, is_refused: bool) -> Self {
        let now_ns = client.clock.now_ns();
        let is_taken = client.is_taken();
        let refusal = is_refused.then(|| Refusal::new(None, Listener::at(&client.sought), now_ns));
        let first_ns = if is_taken { LOOK_NS } else { BACKOFF_NS_MIN };
        Self {
            client,
            hang_up: is_taken.then(|| listen_for_end(client)).flatten(),
            away: (!is_taken).then_some(Away {
                since_ns: now_ns,
                unanswered: 0,
                is_first: true,
            }),
            refusal,
            is_said: !is_taken,
            next_ns: now_ns + jittered(first_ns, now_ns),
        }
    }

    /// When to look next; nothing on virtual time, nor where there is nothing to see until somebody tells.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.client.clock.is_virtual() {
            return None;
        }
        let said = match &self.hang_up {
            Some(hang_up) if self.away.is_none() => hang_up.said(),
            _ => Said::Nothing,
        };
        next_look_ns(said, self.next_ns)
    }

    /// Looks if it is time to.
    pub(crate) fn poll(&mut self) {
        let now_ns = self.client.clock.now_ns();
        if self.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
            self.look();
            let now_ns = self.client.clock.now_ns();
            let asks = self.away.as_ref().filter(|_| self.refusal.is_none());
            let wait_ns = asks.map_or(LOOK_NS, |away| away.backoff_ns(now_ns));
            self.next_ns = now_ns + jittered(wait_ns, now_ns);
        }
    }

    fn look(&mut self) {
        if self.away.is_none() {
            let said = self.hang_up.as_ref().map(HangUp::said);
            if said == Some(Said::Over) || self.client.connection.is_over() {
                self.handle_end();
            }
            // A daemon that is only just gone is not replaced yet, and its socket may outlive its
            // connections for a moment.
            return;
        }
        // Before it is asked: the next one that listens there is asked in any case.
        let listener = Listener::at(&self.client.sought);
        let now_ns = self.client.clock.now_ns();
        let refusal = self.refusal.as_ref();
        if refusal.is_some_and(|refusal| refusal.holds(listener.as_ref(), now_ns)) {
            return;
        }
        // Never without one: it was read before the first client was made.
        let config = process::config().ok_or(Unmanaged::NoUuid(abi::types::CUresult::SUCCESS));
        let was_taken = self.client.is_taken();
        match config.and_then(|config| attach::meet(config, self.client)) {
            Ok(met) => self.handle_met(&met, was_taken),
            Err(reason) => self.handle_failure(&reason, listener),
        }
    }

    fn handle_end(&mut self) {
        self.hang_up = None;
        self.client.connection.close();
        // Nobody waits for the answer to its question.
        self.client.page.probe.store(0, Ordering::SeqCst);
        self.away = Some(Away {
            since_ns: self.client.clock.now_ns(),
            unanswered: 0,
            is_first: false,
        });
        let socket = self.client.socket.lock();
        let socket = socket.unwrap_or_else(PoisonError::into_inner);
        let socket = socket.display();
        log::say(Level::Info, format_args!("the daemon at {socket} is gone"));
    }

    fn handle_failure(&mut self, reason: &Unmanaged, by: Option<Listener>) {
        let now_ns = self.client.clock.now_ns();
        let is_answered = reason.is_absence() || reason.is_refusal();
        let mut is_long = false;
        if let Some(away) = &mut self.away {
            is_long = now_ns.saturating_sub(away.since_ns) >= UNANSWERED_NS;
            away.unanswered = match is_answered {
                true => 0,
                false => away.unanswered.saturating_add(1),
            };
        }
        // That nobody is there, or is about to be, is what was expected; anything else is said, once.
        if (reason.is_refusal() || is_long && !is_answered) && !self.is_said {
            log::say(Level::Warn, format_args!("not attached again: {reason}"));
            self.is_said = true;
        }
        self.refusal = match reason.is_refusal() {
            true => Some(Refusal::new(self.refusal.take(), by, now_ns)),
            false => None,
        };
    }

    /// A daemon has taken the client, and its pages are in place.
    fn handle_met(&mut self, met: &Met, was_taken: bool) {
        let client = self.client;
        if client.is_high_priority() {
            announce_again(client);
        }
        if let Some(ledger) = &*client.ledger() {
            account::go_on(client.index, client.device, ledger.page, ledger.slot);
        }
        if !was_taken {
            handle_first(client);
        }
        self.hang_up = listen_for_end(client);
        (self.away, self.refusal, self.is_said) = (None, None, false);
        let again = if was_taken { ", again" } else { "" };
        log::say(Level::Info, format_args!("{met}{again}"));
    }
}

/// A daemon has taken a client that none had before.
fn handle_first(client: &Client) {
    if !client.is_high_priority() {
        let launches = client.page.counted(Counter::Launches);
        client.page.count(Counter::Unmanaged, launches);
    }
    // What a context takes only a daemon says.
    if CONTEXTS.count_on(client.device) > 0 {
        account::handle_context(client.device);
    }
}

/// Has the helper woken when the client's daemon goes, if that can be.
fn listen_for_end(client: &'static Client) -> Option<HangUp> {
    if client.clock.is_virtual() {
        return None;
    }
    let hang_up = HangUp::watch(client);
    if let Err(error) = &hang_up {
        let every_ms = LOOK_NS / 1_000_000;
        log::say(
            Level::Info,
            format_args!("that the daemon goes is looked for every {every_ms} ms: {error}"),
        );
    }
    hang_up.ok()
}

/// Announces what is in flight to a new daemon.
fn announce_again(client: &Client) {
    let mut has_launched = false;
    for (stream, slot) in STREAMS.used_by(client.index) {
        slot.told.store(0, Ordering::Relaxed);
        has_launched |= slot.has_launched();
        if !slot.is_in_flight() {
            continue;
        }
        let record = Record::Launch(Launch {
            stream,
            seq: slot.issued(),
            kernel: 0,
            expected_ns: 0,
            sm_needed: 0,
            class: UNKNOWN_CLASS,
            at_ns: 0,
        });
        if rings::push(client, &record).is_err() {
            client.page.count(Counter::Dropped, 1);
        }
    }
    // Who has never launched has nothing to complete, and would count as busy until it does.
    if has_launched {
        client.page.count(Counter::Dropped, 1);
    }
    // Leases that the new daemon made before it knew of this work are to end now, not at its next
    // look.
    lease::announce(&client.link.daemon, &client.link.hp_written);
}

/// When to look, `clock_ns` being when it is time by the clock.
fn next_look_ns(said: Said, clock_ns: u64) -> Option<u64> {
    match said {
        Said::Over => Some(0),
        Said::WillTell => None,
        Said::Nothing => Some(clock_ns),
    }
}

/// Twice as long each time, up to a bound.
fn doubled(first_ns: u64, times: u32, most_ns: u64) -> u64 {
    let doublings = times.saturating_sub(1).min(8);
    (first_ns << doublings).min(most_ns)
}

/// A wait between three quarters and the whole of `wait_ns`, which differs from process to process and from time to time: the jobs
/// of a GPU must not all come in the same moment.
pub(crate) fn jittered(wait_ns: u64, now_ns: u64) -> u64 {
    let seed = now_ns ^ u64::from(std::process::id()) << 32;
    // Fibonacci hashing: the upper bits depend on all of the seed's.
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    wait_ns - wait_ns / 4 * share / 1024
}

/// What a daemon counts is what a process has asked for within a second of its return, and of the end of a call that began before.
const _: () = assert!(LOOK_NS <= 500_000_000 && BACKOFF_NS_MAX <= 500_000_000);

#[cfg(test)]
mod tests {
    use core::slice;

    use super::*;

    #[test]
    fn who_will_be_told_does_not_look_by_the_clock_and_who_will_not_does() {
        assert_eq!(next_look_ns(Said::WillTell, 9), None);
        assert_eq!(next_look_ns(Said::Over, 9), Some(0));
        assert_eq!(next_look_ns(Said::Nothing, 9), Some(9));
    }

    #[test]
    fn waits_grow_with_the_absence_to_a_bound_and_differ_a_little() {
        let of = |away_ns: u64, unanswered| {
            let away = Away {
                since_ns: 7,
                unanswered,
                is_first: false,
            };
            away.backoff_ns(7 + away_ns) / 1_000_000
        };
        let ms = 1_000_000;
        assert_eq!(
            [0, 40, 80, 800].map(|away| of(away * ms, 0)),
            [5, 5, 10, 100]
        );
        assert_eq!([4_000, 1 << 40].map(|away| of(away * ms, 0)), [500, 500]);
        // Somebody is there, and has too much to do.
        assert_eq!([1, 2, 3, 4].map(|times| of(0, times)), [5, 10, 20, 40]);
        assert_eq!(of(0, u32::MAX), 500);
        // Who never had one asks as often for a minute, and then hardly ever.
        let of = |away_s: u64| {
            let away = Away {
                since_ns: 7,
                unanswered: 0,
                is_first: true,
            };
            away.backoff_ns(7 + away_s * 1_000 * ms)
        };
        assert_eq!(
            [4, 59, 60, 1 << 20].map(of),
            [BACKOFF_NS_MAX, BACKOFF_NS_MAX, FIRST_NS, FIRST_NS]
        );
        for now_ns in 0..10_000 {
            let wait_ns = jittered(BACKOFF_NS_MAX, now_ns);
            assert!((BACKOFF_NS_MAX / 4 * 3..=BACKOFF_NS_MAX).contains(&wait_ns));
        }
        assert_ne!(jittered(BACKOFF_NS_MAX, 1), jittered(BACKOFF_NS_MAX, 2));
    }

    /// What a daemon's absence costs a process.
    #[test]
    fn who_waits_for_the_next_daemon_asks_some_fifty_times_and_then_every_half_a_second() {
        let away = Away {
            since_ns: 0,
            unanswered: 0,
            is_first: false,
        };
        let (mut asked, mut now_ns) = (0, 0);
        while away.backoff_ns(now_ns) < BACKOFF_NS_MAX {
            now_ns += jittered(away.backoff_ns(now_ns), now_ns);
            asked += 1;
        }
        assert!((30..=70).contains(&asked), "{asked}");
    }

    #[test]
    fn who_is_refused_asks_that_daemon_ever_more_seldom_and_the_next_one_at_once() {
        let folder = std::env::temp_dir().join(format!("pillion-reattach-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("s.sock");
        let listener = || Listener::at(slice::from_ref(&socket));
        std::fs::write(&socket, "").unwrap();
        let (mut refusal, mut now_ns) = (None, 0);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let next = Refusal::new(refusal.take(), listener(), now_ns);
            assert!(next.holds(listener().as_ref(), next.next_ns - 1));
            assert!(!next.holds(listener().as_ref(), next.next_ns));
            waits.push(next.next_ns - now_ns);
            now_ns = next.next_ns;
            refusal = Some(next);
        }
        for (wait_ns, seconds) in waits.iter().zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
            let whole_ns = seconds * 1_000_000_000;
            assert!((whole_ns / 4 * 3..=whole_ns).contains(wait_ns), "{waits:?}");
        }
        // Another file in that place, as a daemon makes it, and none.
        let refusal = refusal.unwrap();
        assert!(refusal.holds(listener().as_ref(), now_ns - 1));
        let next = folder.join("next.sock");
        std::fs::write(&next, "").unwrap();
        std::fs::rename(next, &socket).unwrap();
        assert!(!refusal.holds(listener().as_ref(), now_ns - 1));
        assert_eq!(Refusal::new(Some(refusal), listener(), now_ns).times, 1);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(listener().is_none());
    }
}

//! What happens when a client's daemon goes, and when one is there again.
//!
//! The helper thread looks every [`LOOK_NS`] whether the daemon has ended the connection. Until then a daemon that says nothing is
//! slow, or stopped, and this process is still its client. Afterwards the helper asks for a new one where the old one listened:
//! at once, then ever more seldom, at moments that differ from process to process, for as long as the process lives. Meanwhile
//! jobs go on as `on_daemon_loss` says ([`crate::gate`]).
//!
//! **A client and its successor.** A new daemon brings new pages, so a new client takes the place of the old one. Threads that are in a
//! call have the old one in hand and end the call with it; its pages stay mapped. What they write there is *carried over* at every
//! look, and when the process ends ([`carry_over`]): sums and counters only grow by additions, so what was added since the last look is added to the successor's. So the new daemon
//! counts everything from the beginning of the process, and what is in flight from the daemon before weighs at the gate.
//!
//! **Memory.** The process brings its job's ledger along: the first one of a job makes it the new daemon's, and it goes on as if nothing had
//! been. Where the job has another there by then (a process that began meanwhile came first), what this one holds is booked in that,
//! whatever the quota says; where the daemon keeps none, the process goes on with the ledger that it has.
//!
//! **High-priority.** What is in flight is announced to the new daemon before the successor takes its place. A launch that was announced to
//! the old one in that moment is nobody's, so of a client that has launched before one record counts as lost: the daemon takes the client for busy until it hears of a
//! completion, which is what it does for any lost record.
//!
//! On virtual time nothing of this happens: there the moment would be left to chance.

use core::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use protocol::lease;
use protocol::pages::{ClientPage, Counter};
use protocol::record::{Launch, Record};

use crate::attach::{self, Unmanaged};
use crate::client::{Client, Side};
use crate::clients::{CLIENTS, DEVICES_MAX};
use crate::log::{self, Level};
use crate::streams::STREAMS;
use crate::{lifecycle, quota, rings};

/// Between two looks at the connection. An idle client wakes up for it: a look costs some microseconds.
const LOOK_NS: u64 = 250_000_000;
/// After the first attempt that met nobody.
const BACKOFF_NS_MIN: u64 = 50_000_000;
/// Never longer than this, so that a job is a client again well within a second of the daemon's return.
const BACKOFF_NS_MAX: u64 = 500_000_000;

/// The class of kernels that no profile knows, in a record.
const UNKNOWN_CLASS: u8 = 4;

/// A client, the one before it, and what of that one's page was carried over.
struct Succession {
    before: &'static Client,
    client: &'static Client,
    carried: Carried,
}

/// The last succession on each device. Locked by who carries over, for as long as that takes: a client's helper, and whoever ends
/// the process.
static LAST: [Mutex<Option<Succession>>; DEVICES_MAX] = [const { Mutex::new(None) }; DEVICES_MAX];

/// Carries over what threads have counted for the client before on that device since the last time.
pub(crate) fn carry_over(index: u32) {
    let Some(last) = LAST.get(index as usize) else {
        return;
    };
    // Whoever panicked in here has added a part, and noted which.
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = &mut *last {
        last.carried.carry(last.before, last.client);
    }
}

/// What one client's helper knows of its daemon.
pub(crate) struct Watch {
    client: &'static Client,
    /// Attempts since the daemon went; `None` while it is there.
    attempts: Option<u32>,
    next_ns: u64,
}

impl Watch {
    pub(crate) fn new(client: &'static Client) -> Self {
        Self {
            client,
            attempts: None,
            next_ns: client.clock.now_ns() + LOOK_NS,
        }
    }

    /// When to look next; nothing on virtual time.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        (!self.client.clock.is_virtual()).then_some(self.next_ns)
    }

    /// Looks if it is time to; the client as of now.
    pub(crate) fn poll(&mut self) -> &'static Client {
        let now_ns = self.client.clock.now_ns();
        if self.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
            self.look();
            let wait_ns = self.attempts.map_or(LOOK_NS, backoff_ns);
            self.next_ns = self.client.clock.now_ns() + jittered(wait_ns, now_ns);
        }
        self.client
    }

    fn look(&mut self) {
        carry_over(self.client.index);
        if self.attempts.is_none() {
            if !self.client.connection.is_over() {
                return;
            }
            self.client.connection.close();
            self.attempts = Some(0);
            let socket = self.client.socket.display();
            log::say(Level::Info, format_args!("the daemon at {socket} is gone"));
        }
        match self.try_again() {
            Ok(successor) => self.handle_successor(successor),
            Err(reason) => self.handle_failure(&reason),
        }
    }

    fn try_again(&self) -> Result<Client, Unmanaged> {
        // Never without one: it was read before the first client was made.
        let config = lifecycle::config().ok_or(Unmanaged::NoUuid(abi::types::CUresult::SUCCESS))?;
        attach::attach_again(config, self.client)
    }

    fn handle_failure(&mut self, reason: &Unmanaged) {
        let attempts = self.attempts.unwrap_or(0);
        // That nobody is there is what was expected; anything else is said, once.
        if attempts == 0 && !reason.is_absence() {
            log::say(Level::Warn, format_args!("not attached again: {reason}"));
        }
        self.attempts = Some(attempts.saturating_add(1));
    }

    fn handle_successor(&mut self, successor: Client) {
        // For good, like the pages that it refers to.
        let successor: &'static Client = Box::leak(Box::new(successor));
        if successor.is_high_priority() {
            announce_in_flight(successor);
        }
        CLIENTS.succeed(successor);
        if successor.is_high_priority() {
            let mut has_launched = false;
            for (_, slot) in STREAMS.used_by(successor.index) {
                slot.told.store(0, Ordering::Relaxed);
                has_launched |= slot.has_launched();
            }
            // Who has never launched has nothing to complete, and would count as busy until it does.
            if has_launched {
                successor.page.count(Counter::Dropped, 1);
            }
            // Leases that the new daemon made before it knew of this work are to end now, not at its next look.
            lease::announce(successor.daemon, successor.hp);
        }
        if let Some(ledger) = &successor.ledger {
            quota::go_on(successor.index, successor.device, ledger.page, ledger.slot);
            // The successor has a descriptor of its own.
            if let Some(before) = &self.client.ledger {
                before.descriptor.close();
            }
        }
        if let Some(last) = LAST.get(successor.index as usize) {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Succession {
                before: self.client,
                client: successor,
                carried: Carried::default(),
            });
        }
        carry_over(successor.index);
        self.client = successor;
        self.attempts = None;
        log::say(Level::Info, format_args!("{successor}, again"));
    }
}

/// Before anybody else writes to the successor's rings, so that numbers come in their order.
fn announce_in_flight(successor: &Client) {
    for (stream, slot) in STREAMS.used_by(successor.index) {
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
        });
        if rings::push(successor, &record).is_err() {
            successor.page.count(Counter::Dropped, 1);
        }
    }
}

/// What of a page was carried over to its successor's.
struct Carried {
    counters: [u64; Counter::ALL.len()],
    charged_ns: u64,
    completed_ns: u64,
}

impl Default for Carried {
    fn default() -> Self {
        Self {
            counters: [0; Counter::ALL.len()],
            charged_ns: 0,
            completed_ns: 0,
        }
    }
}

impl Carried {
    /// Carries over what was added since the last time. All sums wrap: a refund takes from them.
    fn carry(&mut self, from: &Client, to: &Client) {
        self.carry_counters(from.page, to.page);
        to.page.told.longest.note_all(&from.page.told.longest);
        let Side::BestEffort(lease) = to.side else {
            return;
        };
        // In this order, so that what is in flight is never less than nothing.
        let completed_ns = from.page.completed_ns.load(Ordering::Acquire);
        let charged_ns = from.page.charged_ns.load(Ordering::Acquire);
        let by_completed_ns = completed_ns.wrapping_sub(self.completed_ns);
        let by_charged_ns = charged_ns.wrapping_sub(self.charged_ns);
        // What is complete is no part of what the new daemon grants; it is in the client's own sums alone.
        let in_flight_ns = by_charged_ns.wrapping_sub(by_completed_ns);
        to.page
            .charged_ns
            .fetch_add(by_completed_ns, Ordering::AcqRel);
        lease.charge(&to.page.charged_ns, in_flight_ns);
        to.page
            .completed_ns
            .fetch_add(by_completed_ns, Ordering::AcqRel);
        (self.completed_ns, self.charged_ns) = (completed_ns, charged_ns);
    }

    fn carry_counters(&mut self, from: &ClientPage, to: &ClientPage) {
        for (counter, carried) in Counter::ALL.iter().zip(&mut self.counters) {
            let counted = from.counted(*counter);
            let by = counted.wrapping_sub(*carried);
            if by != 0 {
                to.count(*counter, by);
                *carried = counted;
            }
        }
    }
}

/// How long to wait after so many attempts: twice as long each time, up to a bound.
fn backoff_ns(attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1).min(8);
    (BACKOFF_NS_MIN << doublings).min(BACKOFF_NS_MAX)
}

/// A wait between three quarters and the whole of `wait_ns`, which differs from process to process and from time to time: the jobs
/// of a GPU must not all come in the same moment.
pub(crate) fn jittered(wait_ns: u64, now_ns: u64) -> u64 {
    let seed = now_ns ^ u64::from(std::process::id()) << 32;
    // Fibonacci hashing: the upper bits depend on all of the seed's.
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    wait_ns - wait_ns / 4 * share / 1024
}

#[cfg(test)]
mod tests {
    use protocol::segment::Mapping;

    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_differ_a_little() {
        let waits: Vec<u64> = (1..8).map(backoff_ns).collect();
        assert_eq!(waits[..4], [50, 100, 200, 400].map(|ms| ms * 1_000_000));
        assert!(waits[4..].iter().all(|&wait| wait == BACKOFF_NS_MAX));
        assert_eq!(backoff_ns(u32::MAX), BACKOFF_NS_MAX);
        for now_ns in 0..10_000 {
            let wait_ns = jittered(BACKOFF_NS_MAX, now_ns);
            assert!((BACKOFF_NS_MAX / 4 * 3..=BACKOFF_NS_MAX).contains(&wait_ns));
        }
        assert_ne!(jittered(BACKOFF_NS_MAX, 1), jittered(BACKOFF_NS_MAX, 2));
    }

    #[test]
    fn each_count_is_carried_over_once_whenever_it_was_made() {
        let (_fd, from) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        let (_fd, to) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        let mut carried = Carried::default();
        from.count(Counter::Held, 3);
        from.count_launch_of_ring(1);
        carried.carry_counters(&from, &to);
        to.count(Counter::Held, 10);
        carried.carry_counters(&from, &to);
        from.count(Counter::Held, 4);
        from.count(Counter::Launches, 1);
        carried.carry_counters(&from, &to);
        assert_eq!(to.counted(Counter::Held), 17);
        assert_eq!(to.counted(Counter::Launches), 2);
    }
}

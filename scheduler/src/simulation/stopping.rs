//! `pillion stop` (`cli::stop`), the end of asked processes (`interpose::signals`), and the
//! daemon's expected messages meanwhile.
//! [`stopper`](super::stopper) has the stopper. An asked process drains and dies, or handles
//! SIGTERM and continues until the daemon asks; the work of some never ends. Beside the daemon's
//! data a plain model is kept ([`Truth`]): who ends which job, and when one was over.

use std::cell::Cell;
use std::rc::Rc;

use client::ending;
use protocol::clock::Clock;
use protocol::ending::{FROZEN_NS, SEEN_TO_NS, seen_to_until_s};
use protocol::pages::{ClientPage, STOP_ASKED, STOP_GAVE_UP, STOP_OVERDUE};
use protocol::sync::Ordering;

use super::daemon::{Daemon, NOBODY, key_of};
use super::process::{Of, Process, Seat};
use super::world::{MS, World};
use crate::core::job_key::{JobKey, Peer};
use crate::core::state::{Moment, State, Stopped};

const OWN_DRAIN_NS: u64 = 2_000 * MS;
/// Time to attach for a process started while its job was being ended.
const LATE_NS: u64 = 60_000 * MS;

pub(super) type Whose = (String, u32);

pub(super) fn whose(key: &JobKey) -> Whose {
    (key.id.clone(), key.uid)
}

#[derive(Default)]
pub(super) struct End {
    pub(super) born: u64,
    handles: bool,
    is_endless: bool,
    pub(super) is_asked: Cell<bool>,
    dying: Cell<Option<(u64, bool)>>,
    pub(super) is_overdue: Cell<(bool, bool)>,
    pub(super) is_terminated: Cell<bool>,
}

impl End {
    pub(super) fn drawn(world: &World) -> Self {
        let has_stops = world.plan.has_stops;
        Self {
            born: world.tick(),
            handles: has_stops && world.one_in(3),
            is_endless: has_stops && world.one_in(2),
            ..Self::default()
        }
    }

    pub(super) fn is_dying(&self) -> bool {
        self.dying.get().is_some()
    }
}

impl Process {
    pub(super) fn begins_to_end(&self, world: &World, seat: &Seat) -> bool {
        let (end, now_ns) = (&self.end, world.now_ns.get());
        if end.is_dying() {
            return true;
        }
        if world.aside(|| ending::is_asked(seat.page())) {
            end.dying.set(Some((now_ns + FROZEN_NS, true)));
        } else if end.is_asked.get() && !end.handles {
            end.dying.set(Some((now_ns + OWN_DRAIN_NS, false)));
        }
        end.is_dying()
    }

    pub(super) fn has_work(&self) -> bool {
        !self.launched.borrow().is_empty() || !self.in_flight.borrow().is_empty()
    }

    pub(super) fn go_on_ending(self: &Rc<Self>, world: &Rc<World>, seat: &Seat) {
        let end = &self.end;
        let Some((until_ns, is_by_daemon)) = end.dying.get() else {
            return;
        };
        if !self.has_work() || end.is_terminated.get() || self.sticky.get() != 0 {
            return self.die(world);
        }
        if !end.is_endless {
            return self.complete_at_end(seat);
        }
        let now_ns = world.now_ns.get();
        if now_ns < until_ns {
            return;
        }
        let (is_overdue, _) = end.is_overdue.get();
        if !is_by_daemon && !is_overdue {
            if ending::is_supervised(seat.page(), now_ns) {
                end.is_overdue.set((true, false));
                ending::tell_overdue(seat.page());
                end.is_overdue.set((true, true));
                end.dying.set(Some((now_ns + FROZEN_NS, false)));
                return;
            }
            self.is_left_alone(world, seat, now_ns);
        } else if is_by_daemon {
            ending::tell_gave_up(seat.page());
        }
        self.die(world);
    }

    /// It dies with work in flight because it found its end unsupervised: asserts that it is.
    fn is_left_alone(&self, world: &World, seat: &Seat, now_ns: u64) {
        let daemon = world.daemon.borrow().clone();
        let served = daemon.filter(|daemon| daemon.number == seat.daemon && !seat.is_over.get());
        let Some(daemon) = served.filter(|_| !self.is_liar) else {
            return;
        };
        let truth = daemon.truth.borrow();
        let is_seen_to = truth.until_ns(&whose(&seat.key), now_ns).is_some();
        assert!(
            !truth.is_mps || !is_seen_to,
            "process {} dies with work in flight although somebody sees to it",
            self.pid
        );
    }
}

struct Ask {
    whose: Whose,
    asker: u32,
    until_ns: u64,
}

struct Over {
    whose: Whose,
    from: u64,
    to: u64,
    at_ns: u64,
    is_last: bool,
}

#[derive(Default)]
pub(super) struct Truth {
    pub(super) is_mps: bool,
    asks: Vec<Ask>,
    begun: Vec<(Whose, u64, bool)>,
    over: Vec<Over>,
}

impl Truth {
    pub(super) fn new(is_mps: bool) -> Self {
        Self {
            is_mps,
            ..Self::default()
        }
    }

    pub(super) fn until_ns(&self, whose: &Whose, now_ns: u64) -> Option<u64> {
        let asks = self.asks.iter().filter(|ask| ask.whose == *whose);
        let until_ns = asks.map(|ask| ask.until_ns).max();
        until_ns.filter(|until_ns| now_ns < *until_ns)
    }

    pub(super) fn is_asker(&self, whose: &Whose, asker: u32, now_ns: u64) -> bool {
        let mut asks = self.asks.iter();
        let is_known = asks.any(|ask| ask.asker == asker && ask.whose == *whose);
        is_known && self.until_ns(whose, now_ns).is_some()
    }

    pub(super) fn begin(&mut self, whose: &Whose, asker: u32, at: Moment, within_ns: u64) {
        if self.until_ns(whose, at.now_ns).is_none() {
            self.forget(whose);
            self.begun.push((whose.clone(), at.boot_ticks, false));
            let over = self.over.iter_mut().filter(|over| over.whose == *whose);
            over.for_each(|over| over.is_last = false);
        }
        self.asks
            .retain(|ask| ask.asker != asker || ask.whose != *whose);
        self.asks.push(Ask {
            whose: whose.clone(),
            asker,
            until_ns: at.now_ns + within_ns,
        });
    }

    pub(super) fn freeze(&mut self, whose: &Whose, now_ns: u64) {
        if self.until_ns(whose, now_ns).is_some() {
            let mut begun = self.begun.iter_mut();
            begun
                .find(|(known, ..)| known == whose)
                .into_iter()
                .for_each(|known| known.2 = true);
        }
    }

    pub(super) fn end(&mut self, whose: &Whose, asker: u32, at: Moment, is_over: bool) {
        let was_ended = self.until_ns(whose, at.now_ns).is_some();
        self.asks
            .retain(|ask| ask.asker != asker || ask.whose != *whose);
        if was_ended && self.until_ns(whose, at.now_ns).is_none() {
            let begun = self.begun.iter().find(|(known, ..)| known == whose);
            let from = begun.map_or(at.boot_ticks, |(_, from, _)| *from);
            if is_over {
                self.over.push(Over {
                    whose: whose.clone(),
                    from,
                    to: at.boot_ticks,
                    at_ns: at.now_ns,
                    is_last: true,
                });
            }
            self.forget(whose);
        }
    }

    fn forget(&mut self, whose: &Whose) {
        self.asks.retain(|ask| ask.whose != *whose);
        self.begun.retain(|(known, ..)| known != whose);
    }

    /// A process started at `started` (0: invisible) has attached, and got this message.
    pub(super) fn check_comer(
        &self,
        key: &JobKey,
        started: u64,
        now_ns: u64,
        (is_to_end, seen_to_s): (bool, u32),
    ) {
        let whose = whose(key);
        if let Some(until_ns) = self.until_ns(&whose, now_ns) {
            let begun = self.begun.iter().find(|(known, ..)| *known == whose);
            let is_frozen = begun.is_some_and(|(.., is_frozen)| *is_frozen);
            let until_s = match is_frozen || !self.is_mps {
                true => 0,
                false => seen_to_until_s(now_ns, until_ns - now_ns),
            };
            assert_eq!(
                (is_to_end, seen_to_s),
                (is_frozen, until_s),
                "a comer of {whose:?}, which is being ended"
            );
            return;
        }
        assert_eq!(seen_to_s, 0, "a comer of {whose:?}, which nobody ends");
        let of_it = || self.over.iter().filter(|over| over.whose == whose);
        let is_its = |over: &&Over| started != 0 && (over.from..over.to).contains(&started);
        let is_late = of_it().any(|over| now_ns < over.at_ns + LATE_NS);
        let may_be = is_late && of_it().any(|over| is_its(&over));
        let mut last = of_it().filter(|over| over.is_last && now_ns < over.at_ns + LATE_NS);
        let must_be = last.any(|over| is_its(&over));
        assert!(
            is_to_end || !must_be,
            "a comer of {whose:?}, started while it was ended, is not told"
        );
        assert!(
            may_be || !is_to_end,
            "a comer of {whose:?}, which nobody ends, is asked to end"
        );
    }
}

/// A client page's expected words: whether to stop launching, and its end's supervision, s.
pub(super) type Told = (bool, u32);

/// The pages contain what stoppers have requested, and nobody else is asked to end.
pub(super) fn check_words(world: &World, daemon: &Daemon) {
    let processes = world.processes.borrow();
    for process in processes.iter().filter(|process| !process.is_liar) {
        let Some(seat) = process.seat_at(daemon.number) else {
            continue;
        };
        let (stop, until_s) = world.aside(|| {
            let page = seat.page();
            let until_s = page.seen_to_until_s.load(Ordering::SeqCst);
            (page.stop.load(Ordering::SeqCst), until_s)
        });
        let (is_asked, told_s) = seat.told.get();
        let is_right = match (is_asked, process.end.is_overdue.get().0) {
            (true, _) => [STOP_ASKED, STOP_GAVE_UP].contains(&stop),
            (false, true) => [0, STOP_OVERDUE].contains(&stop),
            (false, false) => stop == 0,
        };
        let is_said = format!("process {}: word {stop}", process.pid);
        assert!(is_right, "{is_said}, was it asked: {is_asked}");
        assert_eq!(until_s, told_s, "{is_said}: seen to");
    }
}

impl Daemon {
    /// A process becomes a client, and learns of its job's end before the reply.
    pub(super) fn tell_comer(
        &self,
        world: &World,
        state: &mut State,
        page: &ClientPage,
        process: &Process,
        (client, now_ns): (u64, u64),
    ) -> Told {
        // Its start is sometimes invisible.
        let is_seen = !world.is_faulty.get() || !world.one_in(10);
        let started = if is_seen { process.end.born } else { 0 };
        let is_to_end = state.tell_comer(client, started, now_ns, &Clock::monotonic());
        let (stop, until_s) = world.aside(|| {
            let until_s = page.seen_to_until_s.load(Ordering::SeqCst);
            (page.stop.load(Ordering::SeqCst), until_s)
        });
        assert_eq!(stop, u32::from(is_to_end) * STOP_ASKED, "as its page says");
        let told = (is_to_end, until_s);
        let truth = self.truth.borrow();
        truth.check_comer(&key_of(process), started, now_ns, told);
        told
    }

    /// A user without such a job names its owner: nobody gets a message, and it does not end.
    pub(super) fn refuse_stop(&self, world: &World, state: &mut State, job: &str, uid: u32) {
        let by = Peer {
            pid: 9_999,
            uid: NOBODY,
        };
        let at = Moment {
            now_ns: world.now_ns.get(),
            boot_ticks: world.tick(),
        };
        let user = [None, Some(uid)][world.below(2) as usize];
        let meant = Stopped { job, user };
        let ending = (SEEN_TO_NS, world.one_in(2));
        let told = state.see_to(&meant, by, at, ending, &[]);
        assert!(told.is_err(), "another user's job {job:?} is ended");
        let told = state.stop(&meant, by.uid, at.now_ns, &Clock::monotonic());
        assert!(told.is_err(), "another user's job {job:?} is stopped");
    }

    pub(super) fn all_is_forgotten(self: &Rc<Self>, world: &Rc<World>) {
        let known: Vec<(Whose, u64)> = {
            let truth = self.truth.borrow();
            let asks = truth.asks.iter().map(|ask| (&ask.whose, world.tick()));
            let over = truth.over.iter().map(|over| (&over.whose, over.from));
            let known = asks.chain(over);
            known.map(|(whose, born)| (whose.clone(), born)).collect()
        };
        let processes = world.processes.borrow().clone();
        world.now_ns.set(world.now_ns.get() + 2 * LATE_NS);
        for (whose, born) in known {
            let of_it = processes.iter().find(|process| {
                let key = key_of(process);
                (key.id, key.uid) == whose
            });
            if let Some(process) = of_it {
                let of = Of {
                    class: process.class,
                    job: process.job,
                    uid: process.uid,
                };
                // Even one that has loaded for so long.
                let end = End {
                    born,
                    ..End::default()
                };
                self.meet(world, Some(world.start(of, end)));
            }
        }
        check_words(world, self);
    }
}

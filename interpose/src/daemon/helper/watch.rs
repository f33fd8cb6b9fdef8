//! A helper's poll of each stream, by the rules of [`crate::progress::sight`].

use core::sync::atomic::Ordering;

use client::marks::Marks;
use client::slot_state::State;
use policy::{Look, Looks};
use protocol::pages::Counter;

use super::{Helper, POLL_NS, SLEEP_NS_MAX, WINDOW_EVERY_NS, WINDOW_NS, can_progress};
use crate::progress::sight::{self, Sight};
use crate::progress::slot::Slot;
use crate::progress::stream::Kind;
use crate::progress::stream_events::{self, Reach, Recorded};
use crate::progress::streams::STREAMS;
use crate::progress::waking::EARLIER_NS;
use crate::progress::{completion, operations};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    /// [`Slot::completed`] at the last poll.
    completed: u64,
    /// Since when the work after that runs, ns; 0: nothing was in flight.
    since_ns: u64,
    /// When to query its event, and the mark of that event.
    look: Look,
    look_mark: u64,
    /// It was not followed while work was launched: how much of that remains is unknown.
    is_unknown: bool,
    /// The client's charges when the event was recorded, or first seen, ns.
    charged_ns: u64,
    /// The mark up to which everything may be complete without an event that shows it: work charged
    /// before the last event was recorded and counted after may have preceded the event.
    may_be_complete: u64,
    /// The work issued when the stream was last queried and was not idle.
    not_idle: u64,
    ask_ns: u64,
}

impl Watched {
    /// Notes the stream's progress. Work seen for the first time counts as begun now: in some
    /// streams expected durations stand for completion, and must not be early.
    fn follow(&mut self, slot: &Slot, now_ns: u64) {
        let completed = slot.completed();
        if !slot.is_in_flight() {
            self.since_ns = 0;
        } else if self.since_ns == 0 || completed != self.completed {
            self.since_ns = now_ns;
        }
        self.completed = completed;
    }

    /// When everything up to `mark` is expected to be complete, ns.
    fn end_ns(&self, mark: u64) -> u64 {
        let in_flight_ns = mark.saturating_sub(self.completed);
        self.since_ns.saturating_add(in_flight_ns)
    }

    /// The stream's expected progress, at most `mark`.
    fn expected_mark(&self, now_ns: u64, mark: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        self.completed.saturating_add(elapsed_ns).min(mark)
    }
}

/// The time in which durations are learnt with nobody to protect. For a program with known kernels
/// 1 % of the time is enough to notice a change. With unknown kernels, windows take a tenth of the
/// time as long as they teach of further kernels. A window that teaches nothing is too short: its
/// launches end after it, behind earlier launches. Then the next one is longer. If the longest
/// teaches nothing, nothing will, and it is 1 % again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    length_ns: u64,
    next_ns: u64,
    /// When this one ends, ns; 0: it has.
    end_ns: u64,
    /// The state when the last one ended, and when this one began.
    ended: Seen,
    began: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// On all streams together.
    issued: u64,
    /// Launches of kernels that no profile knows.
    unknown: u64,
    /// Launches that have taught something, and of how many kernels.
    taught: (u64, usize),
}

/// Longest window, ns: the contents of a deep queue.
const WINDOW_NS_MAX: u64 = 640_000_000;
/// Growth factor after a window that taught nothing.
const WINDOW_GROWTH: u64 = 4;
/// Pause between windows while there is something to learn, in lengths of the window.
const WINDOW_REST: u64 = 9;

impl Default for Window {
    fn default() -> Self {
        Self {
            length_ns: WINDOW_NS,
            next_ns: 0,
            end_ns: 0,
            ended: Seen::default(),
            began: Seen::default(),
        }
    }
}

impl Window {
    fn begin(&mut self, now_ns: u64, seen: Seen) {
        self.end_ns = now_ns + self.length_ns;
        self.next_ns = now_ns + WINDOW_EVERY_NS.max(self.length_ns * WINDOW_EVERY_NS / WINDOW_NS);
        self.began = seen;
    }

    fn skip(&mut self, now_ns: u64, seen: Seen) {
        self.next_ns = now_ns + WINDOW_EVERY_NS;
        self.ended = seen;
    }

    fn end(&mut self, now_ns: u64, seen: Seen) {
        let began = self.began;
        let is_in_vain = seen.issued != began.issued && seen.taught.0 == began.taught.0;
        let is_news = seen.taught.1 != began.taught.1;
        let may_teach = is_in_vain && self.length_ns < WINDOW_NS_MAX;
        if seen.unknown != self.ended.unknown && (may_teach || is_news) {
            self.next_ns = now_ns + self.length_ns * WINDOW_REST;
        }
        if is_in_vain {
            self.length_ns = (self.length_ns * WINDOW_GROWTH).min(WINDOW_NS_MAX);
        }
        self.end_ns = 0;
        self.ended = seen;
    }
}

impl Helper {
    /// Whether completion matters now, and when that may change by itself.
    pub(super) fn poll_interest(
        &mut self,
        now_ns: u64,
        wants_learning: bool,
    ) -> (bool, Option<u64>) {
        let client = self.client;
        if !client.is_taken() {
            return (false, None);
        }
        let is_asked = client.page.probe.load(Ordering::SeqCst) != 0;
        if client.is_high_priority() {
            // Its next launch wakes no helper.
            return (is_asked, is_asked.then_some(now_ns + EARLIER_NS));
        }
        if !client.link.lease.is_ungated() || is_asked {
            self.window = Window::default();
            return (true, None);
        }
        if wants_learning && self.window.end_ns > now_ns {
            return (true, Some(self.window.end_ns));
        }
        let seen = Seen {
            issued: self.issued(),
            unknown: client.page.counted(Counter::UnknownKernels),
            taught: self.learner.taught(),
        };
        if self.window.end_ns != 0 {
            self.window.end(now_ns, seen);
        }
        if seen.issued == self.window.ended.issued
            && !self.streams().any(|(_, slot)| slot.is_in_flight())
        {
            // The first launch wakes this thread.
            return (false, None);
        }
        if now_ns < self.window.next_ns {
            return (false, Some(self.window.next_ns));
        }
        if !wants_learning {
            self.window.skip(now_ns, seen);
            return (false, Some(self.window.next_ns));
        }
        self.window.begin(now_ns, seen);
        (true, Some(self.window.end_ns))
    }

    pub(super) fn poll_slot(
        &mut self,
        index: u32,
        slot: &'static Slot,
        now_ns: u64,
    ) -> Option<u64> {
        let is_draining = slot.state() == State::Draining;
        if !slot.event.is_pending() && !slot.is_in_flight() && !is_draining {
            return None;
        }
        self.watched_mut(index).follow(slot, now_ns);
        if slot.event.is_pending() {
            let due_ns = self.due_ns(index, slot, now_ns);
            if due_ns > now_ns {
                return Some(due_ns);
            }
            if let Some(next_ns) = self.query(index, slot, now_ns) {
                return Some(next_ns);
            }
        }
        match slot.state() {
            State::Live if !slot.is_in_flight() => None,
            State::Live => self.poll_unmarked(index, slot, now_ns),
            State::Draining => self.poll_draining(index, slot, now_ns),
            // The thread that ends the stream wakes this one when there is something to wait for.
            State::Ending | State::Free => None,
        }
    }

    /// Completion is followed from now on: how much of earlier launches remains is unknown.
    pub(super) fn forget_progress(&mut self) {
        for watched in &mut self.watched {
            (watched.is_unknown, watched.look_mark) = (true, 0);
        }
    }

    fn due_ns(&mut self, index: u32, slot: &Slot, now_ns: u64) -> u64 {
        let mark = slot.event.mark();
        let due_ns = self.look_ns(index, mark, now_ns);
        match slot.completed() < mark {
            true => due_ns,
            // The application has waited for it: the next event can be recorded.
            false => now_ns,
        }
    }

    fn look_ns(&mut self, index: u32, mark: u64, now_ns: u64) -> u64 {
        let looks = self.looks;
        let page = &self.client.page;
        let watched = self.watched_mut(index);
        if watched.look_mark != mark {
            let known = watched.completed.max(watched.may_be_complete);
            let expected_ns = mark.saturating_sub(known);
            watched.look = match watched.is_unknown {
                true => Looks::first_unknown(now_ns, POLL_NS),
                false => looks.first(now_ns, watched.since_ns, expected_ns, POLL_NS),
            };
            watched.look_mark = mark;
            watched.charged_ns = page.charged_ns.load(Ordering::Relaxed);
        }
        watched.look.at_ns
    }

    fn query(&mut self, index: u32, slot: &Slot, now_ns: u64) -> Option<u64> {
        let reach = self.in_driver(|helper| {
            helper.relax();
            stream_events::try_reach(slot)
        });
        match reach.unwrap_or(Reach::Unknown) {
            Reach::Reached(mark) => {
                // A wait of the application shows nothing about when to poll.
                if slot.completed() < mark {
                    self.handle_look(index, now_ns, true);
                }
                self.handle_reached(index, slot, mark, now_ns);
                None
            }
            Reach::NotYet(mark) => {
                self.learner.handle_not_yet(index, mark, now_ns);
                Some(self.handle_look(index, now_ns, false))
            }
            Reach::Lost(mark) => {
                completion::give_up(index, slot, mark);
                None
            }
            Reach::Unknown => Some(now_ns + EARLIER_NS),
        }
    }

    fn handle_reached(&mut self, index: u32, slot: &Slot, mark: u64, now_ns: u64) {
        completion::complete(index, mark);
        let behind_ns = slot.issued().saturating_sub(mark);
        let charged_ns = self.client.page.charged_ns.load(Ordering::Relaxed);
        let watched = self.watched_mut(index);
        watched.is_unknown = false;
        let later_ns = charged_ns.saturating_sub(watched.charged_ns);
        watched.may_be_complete = mark + behind_ns.saturating_sub(later_ns);
        watched.follow(slot, now_ns);
    }

    fn handle_look(&mut self, index: u32, now_ns: u64, is_reached: bool) -> u64 {
        let mut looks = self.looks;
        let look = &mut self.watched_mut(index).look;
        *look = looks.handle_look(look, now_ns, is_reached, POLL_NS);
        let next_ns = look.at_ns;
        self.looks = looks;
        next_ns
    }

    /// A live stream with work in flight and no event after it: records one, or what
    /// [`crate::progress::sight`] has instead. When to poll again; `None`: on a launch.
    fn poll_unmarked(&mut self, index: u32, slot: &'static Slot, now_ns: u64) -> Option<u64> {
        let mut sight = Sight::Expected;
        let mut recorded = Recorded::Later;
        let mut idle = None;
        let due_ns = self.ask_ns(index, slot, now_ns);
        let is_due = due_ns <= now_ns;
        self.in_driver(|helper| {
            // In the driver: a thread that creates a stream which changes the rule waits for this.
            sight = sight::sight_of(helper.client, slot);
            match sight {
                Sight::Event => recorded = helper.record(index, slot),
                Sight::Query if is_due => idle = helper.ask(slot),
                // A blocking stream may be queried as well, and an ended thread's.
                Sight::EventByLauncher | Sight::Expected if is_due && !STREAMS.is_capturing() => {
                    idle = helper.ask(slot);
                }
                _ => {}
            }
        });
        match (recorded, idle) {
            (Recorded::Pending, _) => {
                return Some(self.due_ns(index, slot, now_ns));
            }
            (Recorded::Never, _) => {
                self.give_up_on(index, slot);
                return Some(now_ns + EARLIER_NS);
            }
            (_, Some(Reach::Reached(mark))) => {
                if slot.completed() < mark && self.watched_mut(index).look_mark == mark {
                    self.handle_look(index, now_ns, true);
                }
                self.handle_reached(index, slot, mark, now_ns);
                if slot.kind() != Kind::Legacy {
                    return Some(now_ns + EARLIER_NS);
                }
                // Another thread may have launched since.
                return slot.is_in_flight().then_some(now_ns + POLL_NS);
            }
            (_, Some(Reach::Lost(mark))) => {
                completion::give_up(index, slot, mark);
                return Some(now_ns + EARLIER_NS);
            }
            (_, Some(Reach::NotYet(mark))) => {
                self.learner.handle_not_yet(index, mark, now_ns);
                self.handle_not_idle(index, slot, mark, now_ns);
            }
            _ => {}
        }
        if STREAMS.is_capturing() {
            // The thread that ends the capture wakes this one.
            return Some(now_ns + SLEEP_NS_MAX);
        }
        let can_ask = idle.is_some() || slot.kind() != Kind::PerThread;
        if can_ask {
            let next_ns = self.ask_ns(index, slot, now_ns);
            return Some(next_ns.max(now_ns + POLL_NS));
        }
        let watched = self.watched_mut(index);
        completion::expect(index, slot, watched.expected_mark(now_ns, slot.issued()));
        Some(watched.end_ns(slot.issued()).max(now_ns + EARLIER_NS))
    }

    /// When to query a stream that may have no event. The legacy stream, where PyTorch computes,
    /// while a thread waits at the gate: as soon and as often as an event. That thread launches
    /// nothing that the query could delay, and best-effort work waits for the answer. Otherwise
    /// when all should be complete, [`EARLIER_NS`] after the last query at the earliest.
    fn ask_ns(&mut self, index: u32, slot: &Slot, now_ns: u64) -> u64 {
        let mark = slot.issued();
        if slot.kind() == Kind::Legacy && self.client.page.waiting.load(Ordering::SeqCst) != 0 {
            return self.look_ns(index, mark, now_ns);
        }
        let watched = self.watched_mut(index);
        watched.end_ns(mark).max(watched.ask_ns)
    }

    pub(super) fn poll_asked(
        &mut self,
        index: u32,
        slot: &'static Slot,
        now_ns: u64,
    ) -> Option<u64> {
        if !slot.is_in_flight() || slot.state() != State::Live {
            return None;
        }
        let ask_ns = self.watched_mut(index).ask_ns;
        if now_ns < ask_ns {
            return Some(ask_ns);
        }
        self.watched_mut(index).ask_ns = now_ns + EARLIER_NS;
        let idle = self.in_driver(|helper| {
            // A query can void a capture.
            (!STREAMS.is_capturing())
                .then(|| helper.ask(slot))
                .flatten()
        });
        match idle.flatten() {
            Some(Reach::Reached(mark)) => completion::complete(index, mark),
            Some(Reach::Lost(mark)) => completion::give_up(index, slot, mark),
            _ => {}
        }
        slot.is_in_flight().then_some(now_ns + EARLIER_NS)
    }

    /// A queried stream is not idle. Work issued before the previous query is expected to be
    /// complete; nothing is known of later work.
    fn handle_not_idle(&mut self, index: u32, slot: &Slot, mark: u64, now_ns: u64) {
        let watched = self.watched_mut(index);
        let is_new = watched.not_idle != mark;
        if is_new {
            let before = watched.expected_mark(now_ns, watched.not_idle);
            watched.not_idle = mark;
            completion::expect(index, slot, before);
        }
        let watched = self.watched_mut(index);
        watched.ask_ns = now_ns + EARLIER_NS;
        if watched.look_mark == mark {
            self.handle_look(index, now_ns, false);
        }
    }

    fn ask(&mut self, slot: &Slot) -> Option<Reach> {
        slot.stream_to_ask()?;
        let operations = operations::submitted(self.client);
        self.enter(slot.context())
            .then(|| stream_events::try_idle(slot, operations))
    }

    /// Polls a destroyed stream whose last work may still run. Returns when to poll again.
    pub(super) fn poll_draining(&mut self, index: u32, slot: &Slot, now_ns: u64) -> Option<u64> {
        if slot.state() != State::Draining {
            return None;
        }
        self.watched_mut(index).follow(slot, now_ns);
        if slot.event.is_pending() {
            let due_ns = self.due_ns(index, slot, now_ns);
            if due_ns > now_ns {
                return Some(due_ns);
            }
            if let Some(next_ns) = self.query(index, slot, now_ns) {
                return Some(next_ns);
            }
        }
        let watched = self.watched_mut(index);
        let end_ns = watched.end_ns(slot.issued());
        if slot.is_in_flight() && end_ns > now_ns {
            return Some(end_ns);
        }
        if slot.try_claim() {
            self.give_up_on(index, slot);
            STREAMS.free(index);
        }
        None
    }

    /// Polls a stream of an exiting process: all work must be seen complete. Enqueues nothing.
    pub(super) fn poll_last(&mut self, index: u32, slot: &Slot) -> Option<u64> {
        let now_ns = self.client.clock.now_ns();
        if slot.event.is_pending() {
            self.query(index, slot, now_ns);
        } else if slot.state() == State::Draining {
            self.poll_draining(index, slot, now_ns);
        } else if slot.state() == State::Live
            && !slot.is_surely_complete()
            && !STREAMS.is_capturing()
        {
            let mut idle = None;
            self.in_driver(|helper| idle = helper.ask(slot));
            match idle {
                Some(Reach::Reached(mark)) => completion::complete(index, mark),
                Some(Reach::Lost(mark)) => completion::give_up(index, slot, mark),
                _ => {}
            }
        }
        let is_over = slot.is_surely_complete() || !can_progress(slot, STREAMS.is_capturing());
        (!is_over).then_some(now_ns + POLL_NS)
    }

    fn watched_mut(&mut self, index: u32) -> &mut Watched {
        let index = index as usize;
        if index >= self.watched.len() {
            let unknown = Watched {
                is_unknown: true,
                ..Watched::default()
            };
            self.watched.resize(index + 1, unknown);
        }
        &mut self.watched[index]
    }

    fn record(&mut self, index: u32, slot: &Slot) -> Recorded {
        if slot.stream_here().is_none() {
            return Recorded::Later;
        }
        if !self.enter(slot.context()) {
            return Recorded::Never;
        }
        let operations = operations::submitted(self.client);
        let recorded = stream_events::try_record(slot, operations);
        if recorded == Recorded::Pending {
            let now_ns = self.client.clock.now_ns();
            self.learner.handle_recorded(index, now_ns);
        }
        recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(of: &[Seen]) -> Vec<(u64, u64)> {
        const MS: u64 = 1_000_000;
        let mut window = Window::default();
        let mut seen = Seen::default();
        let mut said = Vec::new();
        for more in of {
            let began_ns = window.next_ns;
            seen.issued += 1;
            window.begin(began_ns, seen);
            said.push((window.length_ns / MS, began_ns / MS));
            seen.issued += 1;
            seen.unknown += more.unknown;
            seen.taught.0 += more.taught.0;
            seen.taught.1 += more.taught.1;
            window.end(window.end_ns, seen);
        }
        said
    }

    const fn seen(unknown: u64, launches: u64, kernels: usize) -> Seen {
        Seen {
            issued: 0,
            unknown,
            taught: (launches, kernels),
        }
    }

    #[test]
    fn of_known_kernels_one_percent_of_the_time_is_looked_at() {
        let known = [seen(0, 3, 1), seen(0, 5, 2), seen(0, 5, 0)];
        assert_eq!(windows(&known), [(10, 0), (10, 1_000), (10, 2_000)]);
    }

    #[test]
    fn of_known_kernels_that_are_never_seen_whole_windows_are_longer_and_rarer() {
        let deaf = [seen(0, 0, 0); 4];
        let began = [(10, 0), (40, 1_000), (160, 5_000), (640, 21_000)];
        assert_eq!(windows(&deaf), began);
    }

    #[test]
    fn of_unknown_kernels_a_tenth_until_no_further_one_is_learnt() {
        let learnt = [seen(9, 5, 2), seen(9, 5, 1), seen(9, 5, 0), seen(9, 5, 0)];
        let began = [(10, 0), (10, 100), (10, 200), (10, 1_200)];
        assert_eq!(windows(&learnt), began);
    }

    #[test]
    fn a_window_that_teaches_nothing_is_followed_by_a_longer_one() {
        let learnt = [
            seen(9, 0, 0),
            seen(9, 0, 0),
            seen(9, 40, 3),
            seen(9, 40, 0),
            seen(9, 40, 0),
        ];
        let began = [(10, 0), (40, 100), (160, 500), (160, 2_100), (160, 18_100)];
        assert_eq!(windows(&learnt), began);
    }

    #[test]
    fn where_the_longest_window_teaches_nothing_one_percent_is_looked_at_again() {
        let deaf = [seen(9, 0, 0); 6];
        let began = [
            (10, 0),
            (40, 100),
            (160, 500),
            (640, 2_100),
            (640, 66_100),
            (640, 130_100),
        ];
        assert_eq!(windows(&deaf), began);
    }
}

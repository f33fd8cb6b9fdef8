//! The helper thread learns how long best-effort kernels take, from when they were seen complete. A
//! profile may be wrong, of another GPU, or absent, but the expected duration is what bounds
//! best-effort work, so the observed one replaces it: for each kernel and shape
//! ([`crate::kernels`]) and each executable graph ([`crate::kernels::graphs`]), which share one
//! range of *numbers*. This module observes for [`policy::durations`]:
//! - A launch writes mark, number, time and epoch of an accepted launch into the stream's log.
//! - At each poll, a reached event means that everything up to its mark is complete by now; one
//!   not reached, that the work before it was incomplete when queried. If a launch went while the
//!   event was recorded, that work is more than its mark, and nothing is known.
//! - The application's waits ([`client::waited`]) show completion by their end; if long, not much
//!   earlier.
//! - The launches between two marks are a batch. Launches read what was learnt in tables.
//!
//! Learning records no extra event, none on a high-priority stream, and no *timing* event. GPU
//! timestamps would be exact where a stream always has work (half a microsecond, where a poll is 20
//! late), but do not show when a batch on an empty stream began, and are slower to record. The
//! error of a poll does not add up: the end of one batch is the beginning of the next. Kernels too
//! long to go beside high-priority work are much longer than a poll.
//!
//! Work beside the high-priority job shows only that it was not longer: a launch carries its
//! lease's epoch, which has moved on if any high-priority launch came between. Without a
//! high-priority job all work teaches. Work that counts as complete only because that was expected
//! teaches as a sum, once seen complete. Nothing is learnt from work that was given up (its stream
//! or context ended), nor from a batch that is not completely known: a launch was overwritten, seen
//! complete before it was logged, or uncharged for lack of a daemon; nor from a launch whose number
//! was reused, nor from the first launches of the number's new owner. What a stream waits for
//! between kernels (copies, events, the host) counts as its kernels' time, which costs best-effort
//! work something and high-priority work nothing. Bounds: streams with a log in [`STREAMS`];
//! [`policy::durations::LAUNCHES_MAX`] in flight on each.

use core::sync::atomic::Ordering;
use std::collections::HashMap;

use client::gate::Grant;
use client::launch_log::Launch;
use client::marks::Marks;
use policy::durations::Durations;
use protocol::longest::PLACES;
use protocol::pages::{ClientPage, Counter};

use crate::kernels::graphs::{GRAPHS, GraphName};
use crate::kernels::{KERNELS, Learnt, Name, Number};
use crate::process::Client;
use crate::progress::slot::Slot;
use crate::progress::streams::STREAMS;

mod note;
mod shares;
mod stream;

use shares::Shares;
use stream::Stream;

/// Interval of publishing the longest kernels: each time searches the tables, about 0.1 ms.
const TELL_NS: u64 = 500_000_000;

/// Interval of notes: where a kernel is new, but at least so many times the last note's duration
/// (some milliseconds); and where only durations have changed.
const NOTE_NEWS_NS: u64 = 500_000_000;
const NOTE_REST: u64 = 20;
const NOTE_NS: u64 = 30_000_000_000;

/// Most names corrected among the longest because their published duration was too long.
const SHORTER_MAX: usize = 256;

/// The driver accepted a best-effort launch; `mark` is after it in the count of its stream.
#[inline]
pub(crate) fn handle_launch(slot: u32, mark: u64, grant: &Grant, number: Number) {
    if let Some(recent) = STREAMS.log(slot) {
        recent.push(&Launch {
            // 0, before the first charged launch, would be no launch.
            mark: mark.max(1),
            cost_ns: grant.cost_ns as u32,
            kernel: number.place,
            generation: number.generation,
            at_ns: grant.at_ns,
            epoch: grant.epoch(),
        });
    }
}

#[derive(Default)]
pub(crate) struct Learner {
    is_on: bool,
    durations: Durations,
    /// By slot, up to the highest polled.
    streams: Vec<Stream>,
    graphs: Generations,
    shares: Shares,
    is_untold: bool,
    tell_ns: u64,
    is_unnoted: bool,
    noted: Noted,
}

#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    /// Or when there first was something to note; 0 before that.
    at_ns: u64,
    took_ns: u64,
    /// Kernels seen by then.
    kernels: usize,
}

impl Learner {
    /// Polls whether the daemon wants durations learnt. If not, the profile's hold again.
    pub(crate) fn poll_switch(&mut self, client: &Client) -> bool {
        let wanted = client.link.daemon.learnt_durations.load(Ordering::Relaxed) != 0;
        let is_on = wanted && !client.is_high_priority();
        if self.is_on && !is_on {
            self.forget(&client.page);
        }
        self.is_on = is_on;
        is_on
    }

    /// The event behind `mark` had not been reached at `asked_ns`.
    pub(crate) fn handle_not_yet(&mut self, slot: u32, mark: u64, asked_ns: u64) {
        if let Some(stream) = self.streams.get_mut(slot as usize) {
            stream.handle_not_yet(mark, asked_ns);
        }
    }

    /// The event of a slot was recorded, by `now_ns` at the latest.
    pub(crate) fn handle_recorded(&mut self, slot: u32, now_ns: u64) {
        if let Some(stream) = self.streams.get_mut(slot as usize) {
            stream.recorded_ns = now_ns;
        }
    }

    pub(crate) fn poll_slot(&mut self, client: &Client, index: u32, slot: &Slot) {
        let Some(recent) = STREAMS.log(index) else {
            return;
        };
        let index = index as usize;
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, Stream::default);
        }
        self.forget_stale();
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        // In this order: known work was not complete before, and was given up before, if it was.
        let after_ns = slot.waited().busy_until_ns();
        let done = slot.known();
        let given_up = slot.given_up();
        if done == stream.done && recent.is_read(stream.seen) {
            return;
        }
        let now_ns = client.clock.now_ns();
        let unknown_ns = client.link.daemon.unknown_ns.load(Ordering::Relaxed);
        let (graphs, shares) = (&mut self.graphs, &mut self.shares);
        let durations = &mut self.durations;
        stream.read(recent, now_ns, |launch| {
            let number = Number {
                place: launch.kernel,
                generation: launch.generation,
            };
            if number == Number::COPY {
                return None;
            }
            let index = index_of(number.place);
            let learnt = learnt_of(number.place).filter(|learnt| graphs.note(number, learnt));
            let is_seen = durations.is_seen(index);
            shares.handle_launch(launch.cost_ns.into(), index, learnt.as_ref(), is_seen);
            let learnt = learnt?;
            let unknown_ns = unknown_ns.saturating_mul(learnt.unknown);
            let told_ns = learnt.told_ns.saturating_add(unknown_ns).max(1);
            Some((told_ns, learnt.unknown == 0))
        });
        shares.tell(&client.page);
        let by_ns = slot.waited().by_ns(done).unwrap_or(now_ns).min(now_ns);
        let waited = (after_ns, by_ns);
        let is_alone = |epoch| is_alone(client, epoch);
        let complete = stream.complete((done, given_up), waited, is_alone, durations);
        let mut is_changed = false;
        let is_complete = !complete.is_empty();
        for launched in complete {
            let generation = self.graphs.generation(launched.kernel);
            is_changed |= publish(durations, launched.kernel, generation);
        }
        self.is_untold |= is_changed;
        if is_complete && client.notes.are_read() {
            self.is_unnoted = true;
            if self.noted.at_ns == 0 {
                self.noted.at_ns = now_ns;
            }
        }
    }

    pub(crate) fn taught(&self) -> (u64, usize) {
        let durations = &self.durations;
        (durations.taught_launches(), durations.taught_kernels())
    }

    pub(crate) fn poll_longest(&mut self, client: &Client) {
        if !self.is_untold {
            return;
        }
        let now_ns = client.clock.now_ns();
        if now_ns < self.tell_ns {
            return;
        }
        self.tell_ns = now_ns.saturating_add(TELL_NS);
        self.is_untold = false;
        self.tell(client);
    }

    /// Notes what was learnt for the program's next start, if due and a daemon reads it.
    pub(crate) fn poll_note(&mut self, client: &Client) {
        let now_ns = client.clock.now_ns();
        if self.note_ns().is_none_or(|note_ns| now_ns < note_ns) {
            return;
        }
        self.note(client, now_ns);
    }

    pub(crate) fn note_last(&mut self, client: &Client) {
        if self.is_unnoted {
            self.note(client, client.clock.now_ns());
        }
    }

    fn note(&mut self, client: &Client, now_ns: u64) {
        // First, so that a panic costs this note, and not every later poll.
        self.is_unnoted = false;
        self.noted.at_ns = now_ns;
        self.noted.kernels = self.durations.seen_kernels();
        let unknown_ns = client.link.daemon.unknown_ns.load(Ordering::Relaxed);
        let notes = &client.notes;
        notes.write(|| note::text(client, &self.durations, unknown_ns));
        self.noted.took_ns = client.clock.now_ns().saturating_sub(now_ns);
    }

    fn note_ns(&self) -> Option<u64> {
        let noted = &self.noted;
        let is_news = self.durations.seen_kernels() != noted.kernels;
        let pause_ns = match is_news {
            true => NOTE_NEWS_NS.max(noted.took_ns.saturating_mul(NOTE_REST)),
            false => NOTE_NS,
        };
        self.is_unnoted
            .then(|| noted.at_ns.saturating_add(pause_ns))
    }

    /// When to poll although nothing is in flight. A process that is leaving notes once nothing is.
    pub(crate) fn next_ns(&self, is_leaving: bool) -> Option<u64> {
        let tell_ns = self.is_untold.then_some(self.tell_ns);
        let note_ns = self.note_ns().filter(|_| !is_leaving);
        tell_ns.into_iter().chain(note_ns).min()
    }

    fn forget_stale(&mut self) {
        for index in &self.graphs.stale {
            self.shares.forget(*index);
        }
        self.graphs.poll(&mut self.durations, &mut self.streams);
    }

    fn forget(&mut self, page: &ClientPage) {
        for index in 0..policy::durations::KERNELS_MAX as u32 {
            let is_learnt = self.durations.expected_ns(index, 0) != 0;
            if let Some(learnt) = learnt_of(index as u16 + 1).filter(|_| is_learnt) {
                learnt.taken.set(self.graphs.generation(index), 0);
            }
        }
        self.durations = Durations::default();
        self.shares = Shares::default();
        self.shares.tell(page);
        self.is_unnoted = false;
        page.told.longest.forget();
        self.is_untold = true;
        self.tell_ns = 0;
    }

    fn tell(&self, client: &Client) {
        client
            .page
            .tell(Counter::KernelsLearnt, self.durations.learnt() as u64);
        let mut by_name: HashMap<Said, Longest> = HashMap::new();
        for (name, _, sm_needed, learnt) in KERNELS.of_client(client) {
            let longest = by_name.entry(Said::Name(name)).or_default();
            longest.add(sm_needed, &learnt);
        }
        for (place, kernels, sm_needed, learnt) in GRAPHS.all() {
            if self.durations.expected_ns(index_of(place), 0) != 0 {
                let longest = by_name.entry(Said::Graph(kernels)).or_default();
                longest.add(sm_needed, &learnt);
            }
        }
        tell_longest(&client.page, by_name);
    }
}

/// Publishes the longest kernels, and corrects published ones that are no longer as long.
fn tell_longest(page: &ClientPage, by_name: HashMap<Said, Longest>) {
    let table = &page.told.longest;
    let least_ns = table.least_ns();
    let mut all: Vec<(Said, Longest)> = by_name.into_iter().collect();
    // By name too, so that the order is the same each time.
    all.sort_unstable_by_key(|(said, longest)| (core::cmp::Reverse(longest.ns), *said));
    let (longest, others) = all.split_at(all.len().min(PLACES));
    let shorter = others
        .iter()
        .filter(|(_, longest)| longest.told_ns > longest.ns && longest.told_ns >= least_ns)
        .take(SHORTER_MAX);
    for (said, longest) in shorter.chain(longest) {
        let name = match said {
            Said::Name(name) => KERNELS.say_name(name),
            Said::Graph(kernels) => GraphName(*kernels).to_string(),
        };
        table.set(longest.ns, longest.sm_needed, name);
    }
}

#[derive(Default)]
struct Generations {
    /// By index in `policy::durations`.
    of: HashMap<u32, u32>,
    /// Reused numbers, whose durations are to be forgotten.
    stale: Vec<u32>,
}

impl Generations {
    /// Forgets the durations of reused numbers; their launches in flight teach nothing.
    fn poll(&mut self, durations: &mut Durations, streams: &mut [Stream]) {
        for index in self.stale.drain(..) {
            self.of.remove(&index);
            durations.forget(index);
            let all = streams.iter_mut();
            all.for_each(|stream| stream.in_flight.forget(index));
        }
    }

    /// Notes a launch of this number. Returns whether it may teach: not if the number was reused,
    /// nor while it still has its previous owner's durations.
    fn note(&mut self, number: Number, learnt: &Learnt<'_>) -> bool {
        let (generation, _) = learnt.taken.read();
        if generation as u8 != number.generation {
            return false;
        }
        let index = index_of(number.place);
        let is_its = *self.of.entry(index).or_insert(generation) == generation;
        if !is_its {
            self.stale.push(index);
        }
        is_its
    }

    /// 0 for a number without observations.
    fn generation(&self, index: u32) -> u32 {
        self.of.get(&index).copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Said {
    Name(Name),
    Graph(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    /// Expected duration, ns; 0: unknown.
    ns: u64,
    sm_needed: u32,
    /// The name's longest duration from the profile, ns.
    told_ns: u64,
}

impl Longest {
    fn add(&mut self, sm_needed: u32, learnt: &Learnt<'_>) {
        let ns = match learnt.taken.ns() {
            0 => learnt.told_ns,
            learnt_ns => learnt_ns,
        };
        if ns > self.ns {
            (self.ns, self.sm_needed) = (ns, sm_needed);
        }
        self.told_ns = self.told_ns.max(learnt.told_ns);
    }
}

/// Whether there was no high-priority launch since launches of this epoch went.
fn is_alone(client: &Client, epoch: u64) -> bool {
    match epoch {
        Launch::BESIDE => false,
        Launch::UNGATED if !client.is_high_priority() => {
            let terms = client.link.lease.terms();
            terms.is_some_and(|(_, terms)| terms.is_for_nobody())
        }
        // Acquire pairs with the Release of the thread that raises it.
        _ => Launch::low(client.link.hp.epoch.load(Ordering::Acquire)) == epoch,
    }
}

/// The knowledge about a place; `None` for 0, and for a place no longer kept.
fn learnt_of(place: u16) -> Option<Learnt<'static>> {
    KERNELS.learnt(place).or_else(|| GRAPHS.learnt(place))
}

/// A place's index in `policy::durations`. 0, no number, has no index there.
fn index_of(place: u16) -> u32 {
    u32::from(place).wrapping_sub(1)
}

fn publish(durations: &Durations, index: u32, generation: u32) -> bool {
    let learnt_ns = durations.expected_ns(index, 0);
    let place = u16::try_from(index.wrapping_add(1)).unwrap_or(0);
    let learnt = learnt_of(place).filter(|_| learnt_ns != 0);
    learnt.is_some_and(|learnt| learnt.taken.set(generation, learnt_ns))
}

#[cfg(test)]
mod tests {
    use policy::durations::{Completed, Launched};

    use super::*;
    use crate::kernels;

    const US: u64 = 1_000;

    #[test]
    fn a_graph_is_not_taught_by_the_launches_of_the_one_that_had_its_number() {
        use abi::types::CUgraphExec;
        let exec = CUgraphExec(core::ptr::without_provenance_mut(0x7e57_0000));
        let made = || {
            GRAPHS.handle_made(exec, Some(Vec::new()));
            GRAPHS.launched(exec).1.number
        };
        let mut graphs = Generations::default();
        let (mut durations, mut streams) = (Durations::default(), vec![Stream::default()]);
        let note = |graphs: &mut Generations, number: Number| {
            graphs.note(number, &learnt_of(number.place).unwrap())
        };
        let first = made();
        let index = index_of(first.place);
        graphs.poll(&mut durations, &mut streams);
        assert!(note(&mut graphs, first));
        let launched = Launched {
            kernel: index,
            told_ns: US,
            is_told: true,
        };
        streams[0].in_flight.handle_launch(1, launched, 0);
        GRAPHS.handle_ending(exec);
        let second = made();
        assert!(first.place == second.place && first != second);
        // A launch that is read late, and one of the second graph before the first is forgotten.
        assert!(!note(&mut graphs, first) && !note(&mut graphs, second));
        graphs.poll(&mut durations, &mut streams);
        let completed = Completed {
            after_ns: 4_980 * US,
            by_ns: 5_000 * US,
            is_waited: false,
        };
        let in_flight = &mut streams[0].in_flight;
        in_flight.handle_complete(1, completed, true, &mut durations);
        assert_eq!(durations.learnt(), 0);
        assert!(note(&mut graphs, second));
        let completed = Completed {
            after_ns: 5_980 * US,
            by_ns: 6_000 * US,
            is_waited: false,
        };
        in_flight.handle_launch(2, launched, 5_000 * US);
        in_flight.handle_complete(2, completed, true, &mut durations);
        assert!(publish(&durations, index, graphs.generation(index)));
        assert!((900 * US..=1_020 * US).contains(&GRAPHS.launched(exec).1.kernel.expected_ns));
        // The number is reused before its learnt duration is published, which is then dropped.
        GRAPHS.handle_ending(exec);
        made();
        assert!(!publish(&durations, index, graphs.generation(index)));
        assert!(!GRAPHS.launched(exec).1.is_learnt);
        GRAPHS.handle_ending(exec);
    }

    #[test]
    fn a_kernel_is_not_taught_by_the_launches_of_the_one_that_had_its_number() {
        use core::sync::atomic::AtomicU64;
        // As the table of shapes writes it when it reuses the place.
        let word = AtomicU64::new(kernels::Taken::fresh(0));
        let taken = kernels::Taken(&word);
        let learnt = Learnt {
            told_ns: US,
            unknown: 0,
            is_classed: false,
            taken,
        };
        let number = |generation| Number {
            place: 7,
            generation,
        };
        let index = index_of(7);
        let launched = Launched {
            kernel: index,
            told_ns: US,
            is_told: true,
        };
        let completed = |by_us: u64| Completed {
            after_ns: (by_us - 20) * US,
            by_ns: by_us * US,
            is_waited: false,
        };
        let mut noted = Generations::default();
        let mut durations = Durations::default();
        let mut streams = [(); 2].map(|()| Stream::default());
        // The first one is learnt, and in flight on two streams.
        assert!(noted.note(number(0), &learnt));
        let [one, other] = &mut streams;
        one.in_flight.handle_launch(1, launched, 0);
        let all = &mut durations;
        one.in_flight
            .handle_complete(1, completed(1_000), true, all);
        assert!(taken.set(noted.generation(index), durations.expected_ns(index, 0)));
        one.in_flight.handle_launch(2, launched, 1_000 * US);
        other.in_flight.handle_launch(1, launched, 1_000 * US);
        // Another shape has the place, and is launched.
        word.store(kernels::Taken::fresh(1), Ordering::Relaxed);
        assert!(!noted.note(number(0), &learnt), "read late");
        assert!(
            !noted.note(number(1), &learnt),
            "before the first is forgotten"
        );
        noted.poll(&mut durations, &mut streams);
        assert_eq!(durations.learnt(), 0);
        for stream in &mut streams {
            let all = &mut durations;
            stream
                .in_flight
                .handle_complete(2, completed(9_000), true, all);
        }
        assert_eq!(durations.learnt(), 0);
        // What is learnt from now on is the second one's.
        assert!(noted.note(number(1), &learnt));
        assert_eq!(noted.generation(index), 1);
        let [one, _] = &mut streams;
        one.in_flight.handle_launch(3, launched, 9_000 * US);
        let all = &mut durations;
        one.in_flight
            .handle_complete(3, completed(9_500), true, all);
        assert!(taken.set(noted.generation(index), durations.expected_ns(index, 0)));
        assert!(
            (400 * US..=520 * US).contains(&taken.ns()),
            "{}",
            taken.ns()
        );
    }

    #[test]
    fn graphs_and_kernels_have_numbers_that_durations_have_places_for() {
        use policy::durations::KERNELS_MAX;
        let greatest = kernels::graphs::NUMBER_MAX;
        assert_eq!(index_of(greatest) as usize, KERNELS_MAX - 1);
        assert!(learnt_of(0).is_none() && learnt_of(u16::MAX).is_none());
        assert_eq!(index_of(0), u32::MAX);
    }
}

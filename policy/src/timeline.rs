//! Which high-priority kernel executes now, and how long HP requests take.
//! ## Problem
//! An HP process launches far ahead of the GPU: at a poll hundreds of launches may be in flight,
//! and only one per stream executes. Whether a BE kernel may go beside it depends on *that*
//! kernel's class, not on the last one submitted (which Orion's published code uses). The HP
//! process reports its launches, in order, at no cost, but completions only when the application
//! synchronises anyway. The timeline predicts what happens in between.
//! ## Prediction
//! Each stream has a queue of launches in order of their sequence numbers. A launch
//! - starts when its predecessor is predicted to end, or when it arrives, if that is later;
//! - ends `expected_ns` after it starts;
//! - executes from its start until its successor's. The last launch executes until a completion is
//!   reported: a stream stays busy until then, however wrong the profile.
//!
//! A completion up to number *n* at time *t* removes everything up to *n* from the queue. If
//! prediction had not come that far, the launch after *n* starts at *t*; otherwise it stays. One
//! stream executes one launch at a time; several busy streams execute several, and a BE kernel must
//! suit all of them.
//! ```text
//! expected   a 100   b 50   c 200, all arrive at 0
//! now        0..100 a    100..150 b    150.. c
//! a complete at 130 (late news)          b started at 100, unchanged
//! a complete at 70 (profile too long)    b starts at 70, c at 120
//! ```
//! ## Requests
//! A request is a *busy period* of the client: from the first launch on an idle client until
//! everything is complete. Its length is the latency that the throttle is a fraction of. The last
//! 200 are kept, and after 50 the latency is their lower quartile. Not the mean or the median: the
//! *solo* latency counts (Orion profiles it so), but the measurements include disturbance by BE
//! work and queueing between requests, which merges two periods into one. Both only lengthen. The
//! quartile is right as long as one request in four is little disturbed; a median would let the
//! throttle widen as the disturbance it causes grows. Not the minimum: one health check of a single
//! kernel would tie BE down for 200 requests. A request that leaves the GPU idle in its middle
//! counts as several shorter ones; that error favours HP.
//!
//! A client that is busy for a second and longer (a training job that never synchronises) has no
//! requests. It is measured in *pieces* instead: from one completion to one at least 100 ms later.
//! The duration of a piece is stated for 100 ms of expected work ([`Request::measure_ns`]): pieces
//! are comparable, whatever they contain and however far profiles are off. A period without a
//! measured length (begun and ended at the same instant, as far as records show) is not counted,
//! nor is one with a lost record. The others are also handed out ([`HpTimeline::take_request`]).
//! ## Lost and late records
//! A full ring loses records: launches or completions that stay unknown. HP then counts as busy
//! until its next completion, executing unknown work ([`HpView::NOTHING_KNOWN`]). Threads have
//! their own rings, so a completion may be read before its launch, and launches of one stream out
//! of order. The timeline remembers completed numbers per stream and sorts launches in; calls for
//! one client may come in any order as long as time does not go backwards.
//!
//! Times are ns of the daemon's clock. A completion carries the time at which the client learnt of
//! it, a launch that voided a lease its own time; other launches are only known to lie between two
//! polls. A request that begins with such a launch is taken to begin in the middle, with a known
//! uncertainty ([`Request::unsure_ns`]).

use std::collections::VecDeque;

use crate::{ClassSet, HpView, Kernel};

/// Distinguishable streams of one client. A launch on a stream beyond counts as lost.
pub const STREAMS_MAX: u32 = 4_096;

/// Launches remembered per stream; beyond it the two oldest become one. PyTorch runs at most a few
/// thousand launches ahead (the driver's own queue holds 1024 and then blocks), so only streams
/// without synchronisation reach this. 16384 × 32 bytes = 512 KiB.
pub const LAUNCHES_MAX: usize = 16_384;

/// Launches of one client with unconditional room, 2 MiB: four streams without synchronisation, or
/// a lying client. Beyond it no stream's room grows, and a drained stream gives its room back.
pub const ROOM_MAX: usize = 4 * LAUNCHES_MAX;

/// How far back from the end a late launch is sorted in: amply more than the rings (64) of threads
/// that launch on one stream at the same moment.
pub const REORDER_MAX: usize = 256;

/// Requests until their latency counts as known (design: "until 50 requests were seen").
pub const REQUESTS_MIN: usize = 50;

/// Requests remembered: the quartile follows a change of batch size within 50 to 150 requests,
/// which takes seconds.
pub const REQUESTS_KEPT: usize = 200;

/// Ended requests not taken; beyond it the oldest is dropped. A punctual poll brings one or two.
pub const ENDED_MAX: usize = 64;

/// Launches with predicted ends, plus one of each further stream; later ones count as far off.
const OUTLOOK_MAX: usize = 64;

/// A longer busy period is cut into pieces: hardly a request or training iteration is that long.
pub const LONG_NS: u64 = 1_000_000_000;

/// Least length of a piece, and the expected work that its measure refers to.
pub const PIECE_NS: u64 = 100_000_000;

/// An ended request of one client, or a piece of one that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When its first launch was made, as far as known.
    pub began_ns: u64,
    /// When its last completion was known to the client; later than `began_ns`.
    pub ended_ns: u64,
    /// Its launches; `u64::MAX` for a piece, so that pieces are alike.
    pub launches: u64,
    /// For a piece the expected ns completed in it; 0 for a request.
    pub work_ns: u64,
    /// The uncertainty of its beginning, ns, in both directions.
    pub unsure_ns: u64,
}

impl Request {
    /// For comparisons: a request's duration; a piece's duration for 100 ms of expected work.
    #[must_use]
    pub fn measure_ns(&self) -> u64 {
        match self.work_ns {
            0 => self.took_ns(),
            work_ns => (self.took_ns() as f64 * (PIECE_NS as f64 / work_ns as f64)) as u64,
        }
    }

    /// Its duration.
    #[must_use]
    pub const fn took_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// The prediction for high-priority work in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// When it is over; not in the future if overdue, `u64::MAX` if beyond the search limit.
    pub ends_ns: u64,
    /// When a stream executes other classes, or nothing; in the past if overdue.
    pub changes_ns: u64,
}

impl Outlook {
    /// Nothing is in flight at `now_ns`.
    #[must_use]
    pub const fn idle(now_ns: u64) -> Self {
        Self {
            ends_ns: now_ns,
            changes_ns: u64::MAX,
        }
    }

    /// For two clients: over when both are, and changed when one is.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            ends_ns: self.ends_ns.max(other.ends_ns),
            changes_ns: self.changes_ns.min(other.changes_ns),
        }
    }
}

/// One launch of a high-priority client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index of the stream in the client, below [`STREAMS_MAX`]. Reuse continues the numbers.
    pub stream: u32,
    /// Number in that stream, from 1 upwards.
    pub seq: u64,
    /// What was launched.
    pub kernel: Kernel,
}

/// One high-priority client: its work in flight, the executing part, and its requests. `handle_*`
/// take events, [`HpTimeline::poll_view`] returns the state. Time must not go backwards except
/// between two of these, where records carry their own times.
#[derive(Debug, Default)]
pub struct HpTimeline {
    /// By stream index; grows to the highest index seen.
    streams: Vec<Stream>,
    /// Indices of the streams with launches in flight, so that a poll visits only these.
    busy_streams: Vec<u32>,
    /// Launches that the streams have room for.
    room: usize,
    /// A record was lost, and no completion was reported since.
    lost: bool,
    /// When the current busy period began; `None` iff idle.
    busy_since_ns: Option<u64>,
    idle_since_ns: u64,
    period_unsure_ns: u64,
    /// A record was lost during the current busy period.
    period_tainted: bool,
    period_launches: u64,
    /// The current piece of a long busy period: its beginning, and the expected ns completed in it.
    piece: Option<(u64, u64)>,
    period_work_ns: u64,
    pieces: u64,
    launched: bool,
    requests: Requests,
    ended: VecDeque<Request>,
}

impl HpTimeline {
    /// A client that has just attached.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A launch was made at `at_ns`.
    pub fn handle_launch(&mut self, launch: &Launch, at_ns: u64) {
        self.handle_launch_since(launch, at_ns, at_ns);
    }

    /// A launch was made at `since_ns` or later, and is read at `at_ns`.
    pub fn handle_launch_since(&mut self, launch: &Launch, since_ns: u64, at_ns: u64) {
        self.launched = true;
        let may_grow = self.room < ROOM_MAX;
        let Some(stream) = self.stream_mut(launch.stream) else {
            return self.handle_dropped(at_ns);
        };
        if launch.seq <= stream.done_seq {
            return; // Its completion was read first.
        }
        let was_idle = stream.entries.is_empty();
        let room_before = stream.entries.capacity();
        stream.push(launch, at_ns, may_grow);
        let room_after = stream.entries.capacity();
        self.room = self.room.saturating_sub(room_before) + room_after;
        self.period_launches += 1;
        if was_idle {
            self.busy_streams.push(launch.stream);
        }
        if self.busy_since_ns.is_none() {
            // In the middle of both, so that the mean of many is right.
            let half_ns = at_ns.saturating_sub(since_ns.max(self.idle_since_ns)) / 2;
            self.busy_since_ns = Some(at_ns - half_ns);
            self.period_unsure_ns = half_ns;
        }
    }

    /// Everything on `stream` up to and including number `seq` is complete, as known since `at_ns`.
    pub fn handle_complete(&mut self, stream: u32, seq: u64, at_ns: u64) {
        self.lost = false;
        let is_full = self.room >= ROOM_MAX;
        if let Some(done) = self.stream_mut(stream) {
            let was_busy = !done.entries.is_empty();
            let work_ns = done.complete(seq, at_ns);
            let is_through = was_busy && done.entries.is_empty();
            let given_back = match is_through && is_full {
                true => std::mem::take(&mut done.entries).capacity(),
                false => 0,
            };
            if is_through {
                self.busy_streams.retain(|&index| index != stream);
            }
            self.room = self.room.saturating_sub(given_back);
            self.period_work_ns = self.period_work_ns.saturating_add(work_ns);
            if let Some((_, sum_ns)) = &mut self.piece {
                *sum_ns = sum_ns.saturating_add(work_ns);
            }
        }
        if self.busy_streams.is_empty() {
            self.end_period(at_ns);
        } else {
            self.end_piece(at_ns);
        }
    }

    /// Records of this client were lost, found out at `at_ns`. Call after handling its rings: the
    /// contents of a full ring are older than the lost records.
    pub fn handle_dropped(&mut self, at_ns: u64) {
        self.lost = true;
        self.launched = true;
        self.period_tainted = true;
        self.busy_since_ns.get_or_insert(at_ns);
    }

    /// The state at `now_ns`. `&mut self`, because prediction walks past each launch once.
    #[must_use]
    pub fn poll_view(&mut self, now_ns: u64) -> HpView {
        let mut executing = ClassSet::EMPTY;
        if self.lost {
            executing = HpView::NOTHING_KNOWN;
        }
        for &index in &self.busy_streams {
            let stream = &mut self.streams[index as usize];
            executing = executing.union(stream.executing(now_ns));
        }
        let latency_ns = self.requests.latency_ns;
        let view = HpView {
            present: true,
            busy: self.busy_since_ns.is_some(),
            since_ns: self.busy_since_ns.unwrap_or(self.idle_since_ns),
            executing,
            latency_ns,
            learning: self.launched && latency_ns.is_none(),
            requests_least: match self.launched {
                true => self.requests.count as u64 + self.pieces,
                false => u64::MAX,
            },
        };
        debug_assert!(view.is_valid());
        view
    }

    /// The next ended request, in order, if any has ended since the last call.
    pub fn take_request(&mut self) -> Option<Request> {
        self.ended.pop_front()
    }

    /// Whether anything is in flight, or may be because a record was lost.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy_since_ns.is_some()
    }

    /// Whether everything on that stream up to that number is complete, as far as known; nothing is
    /// in flight on an indistinguishable stream.
    #[must_use]
    pub fn is_complete(&self, stream: u32, seq: u64) -> bool {
        let stream = self.streams.get(stream as usize);
        stream.is_none_or(|stream| seq <= stream.done_seq)
    }

    /// When all work in flight is predicted to be over, and when a stream first executes other
    /// classes than at `now_ns`, or none; `u64::MAX` if later than `until_ns`. Call after
    /// [`HpTimeline::poll_view`] of that moment.
    #[must_use]
    pub fn outlook(&self, now_ns: u64, until_ns: u64) -> Outlook {
        let mut outlook = Outlook {
            ends_ns: now_ns,
            changes_ns: u64::MAX,
        };
        let mut looked_at = 0;
        for &index in &self.busy_streams {
            let stream = &self.streams[index as usize];
            let mut end_ns = stream.cursor_start_ns;
            // How long the executing classes stay the same.
            let (mut changes_ns, mut executing) = (None, None);
            for entry in stream.entries.range(stream.cursor..) {
                if changes_ns.is_none() && *executing.get_or_insert(entry.classes) != entry.classes
                {
                    changes_ns = Some(end_ns);
                }
                end_ns = end_ns
                    .max(entry.arrival_ns)
                    .saturating_add(entry.expected_ns);
                looked_at += 1;
                if end_ns > until_ns || looked_at >= OUTLOOK_MAX {
                    end_ns = u64::MAX;
                    break;
                }
            }
            outlook.ends_ns = outlook.ends_ns.max(end_ns);
            outlook.changes_ns = outlook.changes_ns.min(changes_ns.unwrap_or(end_ns));
        }
        outlook
    }

    /// Known work in flight, without lost records: launches (merged ones as one) and ns.
    #[must_use]
    pub fn in_flight(&self) -> (u64, u64) {
        let streams = self.busy_streams.iter();
        let entries = streams.flat_map(|&index| &self.streams[index as usize].entries);
        entries.fold((0, 0), |(launches, ns), entry| {
            (launches + 1, ns.saturating_add(entry.expected_ns))
        })
    }

    /// A request's undisturbed duration; `None` until [`REQUESTS_MIN`] were seen.
    #[must_use]
    pub fn latency_ns(&self) -> Option<u64> {
        self.requests.latency_ns
    }

    fn stream_mut(&mut self, index: u32) -> Option<&mut Stream> {
        if index >= STREAMS_MAX {
            return None;
        }
        let index = index as usize;
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, Stream::default);
        }
        Some(&mut self.streams[index])
    }

    fn end_piece(&mut self, at_ns: u64) {
        let Some(since_ns) = self.busy_since_ns else {
            return;
        };
        let (began_ns, work_ns) = self.piece.unwrap_or((since_ns, self.period_work_ns));
        let is_long = at_ns.saturating_sub(since_ns) >= LONG_NS;
        if !is_long || at_ns.saturating_sub(began_ns) < PIECE_NS || work_ns == 0 {
            return;
        }
        self.piece = Some((at_ns, 0));
        self.pieces += 1;
        self.push_ended(Request {
            began_ns,
            ended_ns: at_ns,
            launches: u64::MAX,
            work_ns,
            unsure_ns: 0,
        });
    }

    fn push_ended(&mut self, request: Request) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(request);
    }

    fn end_period(&mut self, at_ns: u64) {
        self.period_work_ns = 0;
        let is_cut = self.piece.take().is_some();
        let tainted = std::mem::take(&mut self.period_tainted);
        let launches = std::mem::take(&mut self.period_launches);
        let Some(since_ns) = self.busy_since_ns.take() else {
            return;
        };
        self.idle_since_ns = at_ns;
        let request = Request {
            began_ns: since_ns,
            ended_ns: at_ns,
            launches,
            work_ns: 0,
            unsure_ns: self.period_unsure_ns,
        };
        if tainted || request.took_ns() == 0 {
            return;
        }
        self.requests.push(request.took_ns());
        if !is_cut {
            self.push_ended(request);
        }
    }
}

/// One launch, or several in a row after a merge.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The (last) number; the entry is complete when this is.
    seq: u64,
    /// When the (first) launch was made, or read if its record has no time.
    arrival_ns: u64,
    expected_ns: u64,
    classes: ClassSet,
}

/// What one stream has in flight: `entries` sorted by `seq`, all above `done_seq`; `cursor` names
/// one, if any.
#[derive(Debug, Default)]
struct Stream {
    entries: VecDeque<Entry>,
    done_seq: u64,
    /// Index of the entry predicted to execute, as of the last poll.
    cursor: usize,
    cursor_start_ns: u64,
}

impl Stream {
    /// `may_grow`: there is room for more launches than it has had at once.
    fn push(&mut self, launch: &Launch, at_ns: u64, may_grow: bool) {
        let is_full = self.entries.len() == self.entries.capacity();
        let must_stay = is_full && !may_grow && self.entries.len() >= 2;
        if self.entries.len() >= LAUNCHES_MAX || must_stay {
            self.merge_oldest();
        }
        if self.entries.is_empty() {
            self.cursor = 0;
            self.cursor_start_ns = at_ns;
        }
        let floor = self.entries.len().saturating_sub(REORDER_MAX);
        let mut index = self.entries.len();
        while index > floor && self.entries[index - 1].seq > launch.seq {
            index -= 1;
        }
        // Beyond the reach of sorting the number is raised to its place's, so that the order holds;
        // such a launch counts as complete slightly late.
        let before_seq = index
            .checked_sub(1)
            .map_or(0, |before| self.entries[before].seq);
        let entry = Entry {
            seq: launch.seq.max(before_seq),
            arrival_ns: at_ns,
            expected_ns: launch.kernel.expected_ns,
            classes: launch.kernel.class.into(),
        };
        if index < self.entries.len() && index <= self.cursor {
            self.cursor += 1; // It came before the one that executes: it has run.
        }
        self.entries.insert(index, entry);
        debug_assert!(self.is_valid());
    }

    fn complete(&mut self, seq: u64, at_ns: u64) -> u64 {
        self.advance(at_ns);
        self.done_seq = self.done_seq.max(seq);
        let (mut done, mut work_ns) = (0, 0_u64);
        while let Some(entry) = self.entries.front().filter(|entry| entry.seq <= seq) {
            work_ns = work_ns.saturating_add(entry.expected_ns);
            self.entries.pop_front();
            done += 1;
        }
        if done > self.cursor {
            // The device is ahead of the prediction: the next one has started, at the latest now.
            self.cursor = 0;
            self.cursor_start_ns = at_ns;
        } else {
            self.cursor -= done;
        }
        debug_assert!(self.is_valid());
        work_ns
    }

    /// Classes of what executes at `now_ns`; empty iff nothing is in flight.
    fn executing(&mut self, now_ns: u64) -> ClassSet {
        self.advance(now_ns);
        self.entries
            .get(self.cursor)
            .map_or(ClassSet::EMPTY, |entry| entry.classes)
    }

    fn advance(&mut self, now_ns: u64) {
        while let Some(next) = self.entries.get(self.cursor + 1) {
            let expected_ns = self.entries[self.cursor].expected_ns;
            let end_ns = self.cursor_start_ns.saturating_add(expected_ns);
            if end_ns > now_ns {
                return;
            }
            self.cursor += 1;
            self.cursor_start_ns = end_ns.max(next.arrival_ns);
        }
    }

    /// Merges the two oldest entries: as long as both, of both classes, complete with the younger.
    fn merge_oldest(&mut self) {
        let Some(oldest) = self.entries.pop_front() else {
            return;
        };
        let Some(next) = self.entries.front_mut() else {
            return;
        };
        next.expected_ns = next.expected_ns.saturating_add(oldest.expected_ns);
        next.classes = next.classes.union(oldest.classes);
        next.arrival_ns = oldest.arrival_ns;
        if self.cursor == 1 {
            // The younger half executes; the whole started before it.
            self.cursor_start_ns = self.cursor_start_ns.saturating_sub(oldest.expected_ns);
        }
        self.cursor = self.cursor.saturating_sub(1);
    }

    fn is_valid(&self) -> bool {
        let in_place = self.entries.is_empty() || self.cursor < self.entries.len();
        let above_done = self
            .entries
            .front()
            .is_none_or(|entry| entry.seq > self.done_seq);
        in_place && above_done && self.entries.len() <= LAUNCHES_MAX
    }
}

#[derive(Debug)]
struct Requests {
    took_ns: [u64; REQUESTS_KEPT],
    count: usize,
    next: usize,
    latency_ns: Option<u64>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            took_ns: [0; REQUESTS_KEPT],
            count: 0,
            next: 0,
            latency_ns: None,
        }
    }
}

impl Requests {
    fn push(&mut self, took_ns: u64) {
        self.took_ns[self.next] = took_ns;
        self.next = (self.next + 1) % REQUESTS_KEPT;
        self.count = (self.count + 1).min(REQUESTS_KEPT);
        if self.count < REQUESTS_MIN {
            return;
        }
        let mut sorted = self.took_ns;
        let kept = &mut sorted[..self.count];
        let (_, quartile, _) = kept.select_nth_unstable(self.count / 4);
        self.latency_ns = Some(*quartile);
    }
}

#[cfg(test)]
mod tests;

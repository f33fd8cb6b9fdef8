//! Which high-priority kernel executes now, and how long HP requests take.
//!
//! ## Problem
//!
//! An HP process launches far ahead of the GPU: when the daemon looks, hundreds
//! of launches may be in flight, and only one per stream executes. Whether a BE
//! kernel may go beside it depends on *that* kernel's class, not on the last one
//! submitted (which is what Orion's published code looks at). The HP process
//! tells what it launched, in order, at no cost, but what has completed only
//! when the application synchronises anyway. In between we predict.
//!
//! ## Prediction
//!
//! Per stream a queue of launches in order of their sequence numbers. A launch
//!
//! - starts when its predecessor is predicted to end, or when it arrives, if
//!   that is later;
//! - ends `expected_ns` after it starts;
//! - executes from its start until its successor's. So when prediction has run
//!   out and no completion was seen, the last launch is the one executing:
//!   a stream is busy until told otherwise, however wrong the profile.
//!
//! A completion up to number *n* at time *t* takes everything up to *n* out of
//! the queue. If prediction had not come that far, the launch after *n* starts
//! at *t*; if it was already further, it stays there. One stream executes one
//! launch at a time; several busy streams execute several, and a BE kernel must
//! suit all of them.
//!
//! ```text
//! expected   a 100   b 50   c 200, all arrive at 0
//! now        0..100 a    100..150 b    150.. c
//! a complete at 130 (late news)          b started at 100, unchanged
//! a complete at 70 (profile too long)    b starts at 70, c at 120
//! ```
//!
//! ## Requests
//!
//! A request is a *busy period* of the client: from the first launch on an idle
//! client until everything is complete. Its length is the latency that the
//! throttle is a fraction of. The last 200 are kept, and after 50 the latency is
//! their lower quartile. Why not the mean or the median: what counts is how long
//! a request takes *alone* (Orion profiles it so), but we measure while BE work
//! disturbs it and while requests queue behind each other, which merges two
//! periods into one. Both only lengthen. The quartile is right as long as one
//! request in four is little disturbed; a median would let the throttle widen as
//! the disturbance it causes grows. Why not the minimum: one health check of a
//! single kernel would tie BE down for 200 requests. A request that leaves the
//! GPU idle in its middle counts as several shorter ones; that errs to HP's side.
//!
//! A period that began and ended in the same poll has no measured length and is
//! not counted, nor is one in which a record was lost. Those that count are also
//! handed out one by one ([`HpTimeline::take_request`]).
//!
//! ## Lost and late records
//!
//! When a ring was full, records are lost: launches nobody knows of, or
//! completions. Then HP counts as busy until its next completion, executing
//! something of which nothing is known ([`HpView::NOTHING_KNOWN`]).
//!
//! Threads have their own rings, so a completion may be read before the launch
//! it is about, and launches of one stream out of order. Completed numbers are
//! remembered per stream, launches sorted in; calls for one client may come in
//! any order as long as time does not go backwards.
//!
//! Times are ns of the daemon's clock; `at_ns` is when the record was read, so
//! they are as exact as the poll is frequent.

use std::collections::VecDeque;

use crate::{ClassSet, HpView, Kernel};

/// Streams of one client that can be told apart. A launch on a stream beyond
/// counts as lost.
pub const STREAMS_MAX: u32 = 4_096;

/// Launches remembered per stream; beyond it the two oldest become one. PyTorch
/// runs at most a few thousand launches ahead (the driver's own queue holds
/// 1024 and then blocks), so this is met only by streams that are never
/// synchronised. 16384 × 32 bytes = 512 KiB.
pub const LAUNCHES_MAX: usize = 16_384;

/// How far back from the end a launch that was read late is sorted in. Only
/// threads that launch on one stream at the same moment are read out of order,
/// so this exceeds their rings' number (64) amply.
pub const REORDER_MAX: usize = 256;

/// Requests that must be seen before their latency counts as known (design:
/// "until 50 requests were seen").
pub const REQUESTS_MIN: usize = 50;

/// Requests remembered. Four times the minimum: the quartile of the last 200
/// follows a change of batch size within 50 to 150 requests, seconds.
pub const REQUESTS_KEPT: usize = 200;

/// Requests that have ended and nobody has taken; beyond it the oldest is
/// forgotten. A poll of 50 µs brings one, after a pause of the daemon some more.
pub const ENDED_MAX: usize = 64;

/// A request of one client that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When its first launch was read.
    pub began_ns: u64,
    /// When its last completion was read; later than `began_ns`.
    pub ended_ns: u64,
    /// Launches in it.
    pub launches: u64,
}

impl Request {
    /// How long it took.
    #[must_use]
    pub const fn took_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// One launch of a high-priority client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index of the stream in the client, below [`STREAMS_MAX`]. When an index
    /// is used for a new stream, numbers go on where the old one stopped.
    pub stream: u32,
    /// Number in that stream, from 1 upwards.
    pub seq: u64,
    /// What was launched.
    pub kernel: Kernel,
}

/// What one high-priority client has in flight, what of it executes, and how
/// long its requests take.
///
/// Methods are of two kinds: `handle_*` for what happened, and
/// [`HpTimeline::poll_view`] for how things stand. Time must not go backwards.
#[derive(Debug, Default)]
pub struct HpTimeline {
    /// By stream index; grows to the highest index seen.
    streams: Vec<Stream>,
    /// Indices of the streams that have launches in flight, so that a poll
    /// looks at nothing else.
    busy_streams: Vec<u32>,
    /// A record was lost and no completion has come since.
    lost: bool,
    /// When the current busy period began; `None` iff idle.
    busy_since_ns: Option<u64>,
    /// A record was lost during the current busy period.
    period_tainted: bool,
    /// Launches read in the current busy period.
    period_launches: u64,
    /// The client has launched at least once.
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

    /// A launch was read at `at_ns`.
    pub fn handle_launch(&mut self, launch: &Launch, at_ns: u64) {
        self.launched = true;
        let Some(stream) = self.stream_mut(launch.stream) else {
            return self.handle_dropped(at_ns);
        };
        if launch.seq <= stream.done_seq {
            return; // Its completion was read first.
        }
        let was_idle = stream.entries.is_empty();
        stream.push(launch, at_ns);
        self.period_launches += 1;
        if was_idle {
            self.busy_streams.push(launch.stream);
        }
        self.busy_since_ns.get_or_insert(at_ns);
    }

    /// Everything on `stream` up to and including number `seq` is complete, as
    /// read at `at_ns`.
    pub fn handle_complete(&mut self, stream: u32, seq: u64, at_ns: u64) {
        self.lost = false;
        if let Some(done) = self.stream_mut(stream) {
            let was_busy = !done.entries.is_empty();
            done.complete(seq, at_ns);
            if was_busy && done.entries.is_empty() {
                self.busy_streams.retain(|&index| index != stream);
            }
        }
        if self.busy_streams.is_empty() {
            self.end_period(at_ns);
        }
    }

    /// Records of this client were lost, found out at `at_ns`. Call it after
    /// everything that its rings still held was handled: what was in a full
    /// ring is older than what did not get in.
    pub fn handle_dropped(&mut self, at_ns: u64) {
        self.lost = true;
        self.launched = true;
        self.period_tainted = true;
        self.busy_since_ns.get_or_insert(at_ns);
    }

    /// How things stand at `now_ns`. Takes `&mut self` because prediction walks
    /// each launch once, when time has passed it, and never again.
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
            executing,
            latency_ns,
            learning: self.launched && latency_ns.is_none(),
        };
        debug_assert!(view.is_valid());
        view
    }

    /// The next request that has ended, in order, if any has since this was asked
    /// last.
    pub fn take_request(&mut self) -> Option<Request> {
        self.ended.pop_front()
    }

    /// Whether anything is in flight, or may be because a record was lost.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy_since_ns.is_some()
    }

    /// How long a request takes undisturbed; `None` until [`REQUESTS_MIN`] were
    /// seen.
    #[must_use]
    pub fn latency_ns(&self) -> Option<u64> {
        self.requests.latency_ns
    }

    /// The stream's queue, or `None` when the index is out of bounds.
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

    fn end_period(&mut self, at_ns: u64) {
        let tainted = std::mem::take(&mut self.period_tainted);
        let launches = std::mem::take(&mut self.period_launches);
        let Some(since_ns) = self.busy_since_ns.take() else {
            return;
        };
        let request = Request {
            began_ns: since_ns,
            ended_ns: at_ns,
            launches,
        };
        if tainted || request.took_ns() == 0 {
            return;
        }
        self.requests.push(request.took_ns());
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(request);
    }
}

/// One or, after a merge, several launches in a row.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The (last) number; the entry is complete when this is.
    seq: u64,
    /// When the (first) launch was read.
    arrival_ns: u64,
    expected_ns: u64,
    classes: ClassSet,
}

/// What one stream has in flight, in order.
///
/// Invariant: `entries` are sorted by `seq`, all above `done_seq`; `cursor`
/// names one of them unless there are none.
#[derive(Debug, Default)]
struct Stream {
    entries: VecDeque<Entry>,
    /// Highest number known to be complete.
    done_seq: u64,
    /// Index of the entry predicted to execute, as of the last look.
    cursor: usize,
    /// When that entry started, as predicted.
    cursor_start_ns: u64,
}

impl Stream {
    fn push(&mut self, launch: &Launch, at_ns: u64) {
        if self.entries.len() >= LAUNCHES_MAX {
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
        // Beyond the reach of sorting the number is raised to its place's, so
        // that the order holds; such a launch is believed complete a bit late.
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

    fn complete(&mut self, seq: u64, at_ns: u64) {
        self.advance(at_ns);
        self.done_seq = self.done_seq.max(seq);
        let mut done = 0;
        while self.entries.front().is_some_and(|entry| entry.seq <= seq) {
            self.entries.pop_front();
            done += 1;
        }
        if done > self.cursor {
            // The device is ahead of the prediction: the next one has started,
            // at the latest now.
            self.cursor = 0;
            self.cursor_start_ns = at_ns;
        } else {
            self.cursor -= done;
        }
        debug_assert!(self.is_valid());
    }

    /// Classes of what executes at `now_ns`; empty iff nothing is in flight.
    fn executing(&mut self, now_ns: u64) -> ClassSet {
        self.advance(now_ns);
        self.entries
            .get(self.cursor)
            .map_or(ClassSet::EMPTY, |entry| entry.classes)
    }

    /// Moves the cursor to the entry that executes at `now_ns`.
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

    /// Makes one entry of the two oldest. It executes as long as both, is of
    /// both classes, and completes with the younger: busy until then.
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

/// Lengths of the last busy periods.
#[derive(Debug)]
struct Requests {
    took_ns: [u64; REQUESTS_KEPT],
    /// How many of `took_ns` are filled.
    count: usize,
    /// Where the next one goes.
    next: usize,
    /// Their lower quartile, once there are enough.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Class;

    const COMPUTE: ClassSet = ClassSet::EMPTY.with(Class::Compute);
    const MEMORY: ClassSet = ClassSet::EMPTY.with(Class::Memory);
    const UNKNOWN: ClassSet = ClassSet::EMPTY.with(Class::Unknown);

    fn launch(stream: u32, seq: u64, class: Class, expected_ns: u64) -> Launch {
        Launch {
            stream,
            seq,
            kernel: Kernel {
                class,
                sm_needed: 80,
                expected_ns,
            },
        }
    }

    /// The module's example: a 100 compute, b 50 memory, c 200 unknown, at 0.
    fn three() -> HpTimeline {
        let mut timeline = HpTimeline::new();
        timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
        timeline.handle_launch(&launch(0, 2, Class::Memory, 50), 0);
        timeline.handle_launch(&launch(0, 3, Class::Unknown, 200), 0);
        timeline
    }

    fn executing(timeline: &mut HpTimeline, now_ns: u64) -> ClassSet {
        timeline.poll_view(now_ns).executing
    }

    #[test]
    fn launches_execute_one_after_the_other_as_expected() {
        let mut timeline = three();
        assert_eq!(executing(&mut timeline, 0), COMPUTE);
        assert_eq!(executing(&mut timeline, 99), COMPUTE);
        assert_eq!(executing(&mut timeline, 100), MEMORY); // a ends: 0 + 100
        assert_eq!(executing(&mut timeline, 149), MEMORY);
        assert_eq!(executing(&mut timeline, 150), UNKNOWN); // b ends: 100 + 50
    }

    #[test]
    fn the_last_launch_executes_until_its_completion_is_seen() {
        let mut timeline = three();
        // c is predicted to end at 150 + 200; an hour later it is still busy.
        assert_eq!(executing(&mut timeline, 3_600_000_000_000), UNKNOWN);
        assert!(timeline.is_busy());
        timeline.handle_complete(0, 3, 3_600_000_000_001);
        assert_eq!(
            timeline.poll_view(3_600_000_000_001).executing,
            ClassSet::EMPTY
        );
        assert!(!timeline.is_busy());
    }

    #[test]
    fn a_launch_starts_no_earlier_than_it_arrives() {
        let mut timeline = HpTimeline::new();
        timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
        // a is predicted to end at 100, b arrives at 500, c with it: b 500..550.
        timeline.handle_launch(&launch(0, 2, Class::Memory, 50), 500);
        timeline.handle_launch(&launch(0, 3, Class::Compute, 10), 500);
        assert_eq!(executing(&mut timeline, 549), MEMORY);
        assert_eq!(executing(&mut timeline, 550), COMPUTE);
    }

    #[test]
    fn an_early_completion_moves_the_prediction_forward() {
        let mut timeline = three();
        timeline.handle_complete(0, 1, 70);
        assert_eq!(executing(&mut timeline, 70), MEMORY); // b starts at 70
        assert_eq!(executing(&mut timeline, 119), MEMORY);
        assert_eq!(executing(&mut timeline, 120), UNKNOWN); // 70 + 50
    }

    #[test]
    fn late_news_of_a_completion_leaves_the_prediction_where_it_was() {
        let mut timeline = three();
        timeline.handle_complete(0, 1, 130);
        assert_eq!(executing(&mut timeline, 149), MEMORY); // still 100..150
        assert_eq!(executing(&mut timeline, 150), UNKNOWN);
    }

    #[test]
    fn every_busy_stream_executes_something() {
        let mut timeline = three();
        timeline.handle_launch(&launch(7, 1, Class::Memory, 120), 0);
        assert_eq!(executing(&mut timeline, 10), COMPUTE.union(MEMORY));
        assert_eq!(executing(&mut timeline, 110), MEMORY);
        assert_eq!(executing(&mut timeline, 200), MEMORY.union(UNKNOWN));
        timeline.handle_complete(7, 1, 210);
        assert_eq!(executing(&mut timeline, 210), UNKNOWN);
    }

    #[test]
    fn a_completion_read_before_its_launch_counts() {
        let mut timeline = HpTimeline::new();
        timeline.handle_complete(0, 2, 5);
        timeline.handle_launch(&launch(0, 1, Class::Compute, 10), 5);
        timeline.handle_launch(&launch(0, 2, Class::Compute, 10), 5);
        assert!(!timeline.is_busy());
        timeline.handle_launch(&launch(0, 3, Class::Memory, 10), 6);
        assert_eq!(executing(&mut timeline, 6), MEMORY);
    }

    #[test]
    fn launches_read_out_of_order_execute_in_order() {
        let mut timeline = HpTimeline::new();
        timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
        timeline.handle_launch(&launch(0, 3, Class::Unknown, 100), 0);
        timeline.handle_launch(&launch(0, 2, Class::Memory, 100), 1);
        assert_eq!(executing(&mut timeline, 150), MEMORY);
        assert_eq!(executing(&mut timeline, 250), UNKNOWN);
        timeline.handle_complete(0, 2, 260);
        assert_eq!(executing(&mut timeline, 260), UNKNOWN);
        timeline.handle_complete(0, 3, 270);
        assert!(!timeline.is_busy());
    }

    #[test]
    fn a_launch_read_after_its_successor_started_is_believed_to_have_run() {
        let mut timeline = HpTimeline::new();
        timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
        timeline.handle_launch(&launch(0, 3, Class::Unknown, 100), 0);
        timeline.handle_launch(&launch(0, 4, Class::Compute, 100), 0);
        assert_eq!(executing(&mut timeline, 150), UNKNOWN);
        timeline.handle_launch(&launch(0, 2, Class::Memory, 100), 160);
        assert_eq!(executing(&mut timeline, 160), UNKNOWN);
        assert_eq!(executing(&mut timeline, 200), COMPUTE); // 100 + 100
    }

    #[test]
    fn after_a_lost_record_nothing_known_executes_until_the_next_completion() {
        let mut timeline = HpTimeline::new();
        timeline.handle_dropped(10);
        let view = timeline.poll_view(1_000_000);
        assert!(view.busy && view.learning);
        assert_eq!(view.executing, HpView::NOTHING_KNOWN);
        timeline.handle_complete(0, 40, 1_000_001);
        assert!(!timeline.poll_view(1_000_001).busy);
        // The period was not a measured one.
        assert_eq!(timeline.requests.count, 0);
    }

    #[test]
    fn what_is_known_stays_in_flight_beside_what_was_lost() {
        let mut timeline = three();
        timeline.handle_dropped(5);
        assert_eq!(executing(&mut timeline, 6), HpView::NOTHING_KNOWN);
        timeline.handle_complete(0, 1, 20);
        assert_eq!(executing(&mut timeline, 20), MEMORY);
        assert!(timeline.is_busy());
    }

    #[test]
    fn a_stream_index_out_of_bounds_counts_as_lost() {
        let mut timeline = HpTimeline::new();
        timeline.handle_launch(&launch(STREAMS_MAX, 1, Class::Memory, 1), 0);
        assert_eq!(executing(&mut timeline, 1), HpView::NOTHING_KNOWN);
        timeline.handle_complete(u32::MAX, 1, 2);
        assert!(!timeline.is_busy());
    }

    #[test]
    fn beyond_the_bound_the_oldest_merge_and_stay_busy_until_complete() {
        let mut timeline = HpTimeline::new();
        let count = LAUNCHES_MAX as u64 + 2;
        timeline.handle_launch(&launch(0, 1, Class::Compute, 10), 0);
        for seq in 2..=count {
            timeline.handle_launch(&launch(0, seq, Class::Memory, 10), 0);
        }
        assert_eq!(timeline.streams[0].entries.len(), LAUNCHES_MAX);
        // Numbers 1, 2, 3 are one entry of 30 ns, compute and memory.
        assert_eq!(executing(&mut timeline, 29), COMPUTE.union(MEMORY));
        assert_eq!(executing(&mut timeline, 30), MEMORY);
        timeline.handle_complete(0, 2, 31);
        assert_eq!(timeline.streams[0].entries.len(), LAUNCHES_MAX);
        timeline.handle_complete(0, 3, 32);
        assert_eq!(timeline.streams[0].entries.len(), LAUNCHES_MAX - 1);
        timeline.handle_complete(0, count, 33);
        assert!(!timeline.is_busy());
    }

    /// One request of `took_ns` on an idle client, and when it ended.
    fn request(timeline: &mut HpTimeline, seq: u64, start_ns: u64, took_ns: u64) -> u64 {
        timeline.handle_launch(&launch(0, seq, Class::Compute, 10), start_ns);
        timeline.handle_complete(0, seq, start_ns + took_ns);
        start_ns + took_ns
    }

    #[test]
    fn latency_is_known_after_fifty_requests_and_is_their_lower_quartile() {
        let mut timeline = HpTimeline::new();
        assert!(!timeline.poll_view(0).learning);
        let mut now_ns = 0;
        for seq in 1..=50 {
            assert_eq!(timeline.latency_ns(), None);
            // 1000, 1001, … 1049: the 13th smallest (index 50 / 4 = 12) is 1012.
            now_ns = request(&mut timeline, seq, now_ns + 1, 999 + seq);
            assert_eq!(timeline.poll_view(now_ns).learning, seq < 50);
        }
        assert_eq!(timeline.latency_ns(), Some(1_012));
    }

    #[test]
    fn two_disturbed_requests_of_three_do_not_move_the_latency() {
        let mut timeline = HpTimeline::new();
        let mut now_ns = 0;
        for seq in 1..=300 {
            let took_ns = if seq % 3 == 0 { 1_000 } else { 5_000 };
            now_ns = request(&mut timeline, seq, now_ns + 1, took_ns);
        }
        assert_eq!(timeline.latency_ns(), Some(1_000));
    }

    #[test]
    fn old_requests_are_forgotten() {
        let mut timeline = HpTimeline::new();
        let mut now_ns = 0;
        for seq in 1..=400 {
            let took_ns = if seq <= 200 { 1_000 } else { 8_000 };
            now_ns = request(&mut timeline, seq, now_ns + 1, took_ns);
        }
        assert_eq!(timeline.latency_ns(), Some(8_000));
    }

    #[test]
    fn a_request_lasts_from_the_first_launch_to_the_last_completion() {
        let mut timeline = HpTimeline::new();
        timeline.handle_launch(&launch(0, 1, Class::Compute, 10), 100);
        timeline.handle_launch(&launch(1, 1, Class::Memory, 10), 150);
        timeline.handle_complete(0, 1, 200);
        timeline.handle_launch(&launch(0, 2, Class::Compute, 10), 250);
        timeline.handle_complete(0, 2, 300);
        timeline.handle_complete(1, 1, 400);
        assert_eq!(timeline.requests.count, 1);
        assert_eq!(timeline.requests.took_ns[0], 300);
        // One poll brings both ends: no length was measured.
        request(&mut timeline, 3, 500, 0);
        assert_eq!(timeline.requests.count, 1);
        let ended = timeline.take_request();
        let expected = Request {
            began_ns: 100,
            ended_ns: 400,
            launches: 3,
        };
        assert_eq!(ended, Some(expected));
        assert_eq!(timeline.take_request(), None);
    }

    #[test]
    fn requests_that_nobody_takes_are_bounded_and_the_youngest_stay() {
        let mut timeline = HpTimeline::new();
        let mut now_ns = 0;
        for seq in 1..=ENDED_MAX as u64 + 3 {
            now_ns = request(&mut timeline, seq, now_ns + 1, seq);
        }
        let first = timeline.take_request().expect("the oldest that is left");
        assert_eq!(first.took_ns(), 4);
        assert_eq!(timeline.ended.len(), ENDED_MAX - 1);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Launch {
            stream: u32,
            seq: u64,
            class: usize,
            expected_ns: u64,
        },
        Complete {
            stream: u32,
            seq: u64,
        },
        Dropped,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            6 => (0..3_u32, 1..40_u64, 0..3_usize, 0..100_u64).prop_map(
                |(stream, seq, class, expected_ns)| Event::Launch { stream, seq, class, expected_ns }
            ),
            3 => (0..3_u32, 1..40_u64).prop_map(|(stream, seq)| Event::Complete { stream, seq }),
            1 => Just(Event::Dropped),
        ]
    }

    proptest! {
        /// Whatever the order of records: the view is valid, the client is busy
        /// as long as a launch above its stream's last completion is known, and
        /// idle after everything was completed.
        #[test]
        fn busy_exactly_while_a_launch_is_not_known_to_be_complete(
            events in prop::collection::vec((0..50_u64, event()), 0..80),
        ) {
            let mut timeline = HpTimeline::new();
            let mut now_ns = 0;
            let mut done = [0_u64; 3];
            let mut last = [0_u64; 3];
            let mut lost = false;
            for (step_ns, event) in events {
                now_ns += step_ns;
                match event {
                    Event::Launch { stream, seq, class, expected_ns } => {
                        let launch = launch(stream, seq, Class::ALL[class], expected_ns);
                        timeline.handle_launch(&launch, now_ns);
                        last[stream as usize] = last[stream as usize].max(seq);
                    }
                    Event::Complete { stream, seq } => {
                        timeline.handle_complete(stream, seq, now_ns);
                        done[stream as usize] = done[stream as usize].max(seq);
                        lost = false;
                    }
                    Event::Dropped => {
                        timeline.handle_dropped(now_ns);
                        lost = true;
                    }
                }
                let view = timeline.poll_view(now_ns);
                prop_assert!(view.is_valid());
                let in_flight = (0..3).any(|stream| last[stream] > done[stream]);
                prop_assert_eq!(view.busy, in_flight || lost);
            }
            for stream in 0..3 {
                timeline.handle_complete(stream, 40, now_ns + 1);
            }
            prop_assert!(!timeline.is_busy());
        }
    }
}

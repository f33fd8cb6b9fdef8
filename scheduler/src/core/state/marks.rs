//! A high-priority client's requests, until the policy gets them.
//! - **Marked or inferred.** Requests are inferred from launches until [`SURE`] marked ones have
//!   ended: marking a single thing must not lose the others. From then on only marked requests
//!   count. A client without marks for [`SILENT_NS`] that makes [`SILENT_REQUESTS`] inferred
//!   requests meanwhile returns to inferred ones. Both changes discard what was learnt of the other
//!   kind.
//! - **Order.** Threads have their own rings, which are read one after the other: the end of a
//!   request may be read before its begin, if different threads report them. So marks wait here
//!   until all records pushed before them have been read, and are handed over in order of time.

use policy::{Gate, HpTimeline, Mark, Request};
use protocol::record::{Begin, End, Record, has_arrived};

use super::range_ends::{Ended, RangeEnds};
use super::{Client, Requests, State};
use crate::core::event::{Draft, Kind};

/// Marked requests that must end before inferred ones stop counting.
const SURE: u64 = 16;

/// A client that makes requests without marks for this long is silent, ns.
const SILENT_NS: u64 = 10_000_000_000;

/// Inferred requests meanwhile: an idle hour, or few launches outside requests, are no silence.
const SILENT_REQUESTS: u64 = 8;

/// A time further ahead of the read of the rings is clamped, ns: the read takes less.
const AHEAD_NS: u64 = 1_000_000;

/// Recent marks searched for a begin at the end's ns. A program in real time has none.
const LOOKED_BACK: usize = 16;

/// Kinds of requests with their own target; further ones are ignored.
const TARGETS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    #[default]
    Inferred,
    Marks,
    Nvtx,
}

impl Source {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Inferred => "inferred",
            Self::Marks => "marks",
            Self::Nvtx => "nvtx",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Marks {
    are_used: bool,
    is_nvtx: bool,
    /// Read and not handed over; with the batch of a begin.
    waiting: Vec<(Mark, u32)>,
    ended: u64,
    /// Of those, since inferred ones count.
    ended_unused: u64,
    marked_ns: u64,
    inferred: u64,
    all_inferred: u64,
    ranges: RangeEnds,
    /// The program's targets for its kinds of requests, and whether the policy knows them.
    targets: Vec<Mark>,
    are_targets_told: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The client's ring; the shared one is the last.
    pub(crate) ring: usize,
    pub(crate) looked_ns: u64,
    pub(crate) now_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Marked,
    Silent,
}

impl Marks {
    pub(crate) fn handle(&mut self, record: &Record, read: &Read, timeline: &HpTimeline) -> bool {
        // A client's time is trusted only within what is possible.
        let latest_ns = read.now_ns.saturating_add(AHEAD_NS);
        let earliest_ns = read.looked_ns.min(read.now_ns);
        let believed = |at_ns: u64| at_ns.clamp(earliest_ns, latest_ns);
        match *record {
            Record::Begin(Begin {
                id,
                kind,
                batch,
                arrived_ns,
                at_ns,
                is_nvtx,
            }) => {
                let at_ns = believed(at_ns);
                if !has_arrived(arrived_ns, at_ns) {
                    return false;
                }
                self.is_nvtx = is_nvtx;
                if is_nvtx {
                    self.ranges.handle_begin(read.ring);
                }
                let begin = Mark::Begin {
                    id,
                    kind,
                    arrived_ns,
                    at_ns,
                };
                self.end_after_begin(id, at_ns);
                self.waiting.push((begin, batch));
            }
            Record::End(End {
                id,
                at_ns,
                is_cancelled,
                with_launches,
            }) => {
                self.ended += 1;
                self.ended_unused += 1;
                let ended = Ended {
                    id,
                    at_ns: self.after_begin(id, believed(at_ns)),
                    is_cancelled,
                };
                let ended = match with_launches {
                    true => self.ranges.handle_end(read.ring, ended, timeline),
                    false => Some(ended),
                };
                self.waiting.extend(ended.map(end));
            }
            Record::Target {
                kind,
                ns,
                per_mille,
            } => {
                self.handle_target(kind, ns, per_mille);
                return true;
            }
            _ => return true,
        }
        self.marked_ns = read.now_ns;
        self.inferred = 0;
        true
    }

    /// A request begins whose end, in the same ns, was read earlier from another ring.
    fn end_after_begin(&mut self, of_id: u64, begun_ns: u64) {
        for (mark, _) in self.waiting.iter_mut().rev().take(LOOKED_BACK) {
            match mark {
                Mark::End { id, at_ns, .. } if *id == of_id && *at_ns == begun_ns => *at_ns += 1,
                _ => {}
            }
        }
    }

    /// The end of a request reported for `at_ns`: a ns later if it begins at that time.
    fn after_begin(&self, of_id: u64, end_ns: u64) -> u64 {
        let begins = |(mark, _): &(Mark, u32)| matches!(*mark, Mark::Begin { id, at_ns, .. } if id == of_id && at_ns == end_ns);
        let mut last = self.waiting.iter().rev().take(LOOKED_BACK);
        end_ns + u64::from(last.any(begins))
    }

    fn handle_target(&mut self, kind: u32, ns: u64, per_mille: u32) {
        let is_of = |target: &Mark| matches!(*target, Mark::Target { kind: of, .. } if of == kind);
        self.targets.retain(|target| !is_of(target));
        if self.targets.len() < TARGETS_MAX {
            self.targets.push(Mark::Target {
                kind,
                ns,
                per_mille,
            });
        }
        self.are_targets_told = false;
    }

    pub(super) fn target_ns(&self, of_kind: u32) -> Option<u64> {
        let mut targets = self.targets.iter();
        targets.find_map(|target| match *target {
            Mark::Target { kind, ns, .. } if kind == of_kind => Some(ns),
            _ => None,
        })
    }

    /// The client marked requests under the previous daemon, so marked ones count from the start.
    pub(super) fn begin_used(&mut self, now_ns: u64) {
        self.are_used = true;
        self.marked_ns = now_ns;
    }

    pub(super) fn handle_new_gate(&mut self) {
        self.are_targets_told = false;
    }

    pub(crate) fn handle_launch(&mut self, ring: usize, stream: u32, seq: u64) {
        self.ranges.handle_launch(ring, stream, seq);
    }

    /// All work on that stream up to that number is complete, known since `at_ns`.
    pub(crate) fn handle_complete(&mut self, stream: u32, seq: u64, at_ns: u64) {
        let waiting = &mut self.waiting;
        self.ranges
            .handle_complete(stream, seq, at_ns, |ended| waiting.push(end(ended)));
    }

    /// Whether the program marks requests, so that inferred ones are duplicates or spurious.
    fn are_marked(&self, now_ns: u64) -> bool {
        self.marked_ns > 0 && now_ns.saturating_sub(self.marked_ns) < SILENT_NS
    }

    fn handle_inferred(&mut self) {
        self.inferred += 1;
        self.all_inferred += 1;
    }

    pub(crate) fn source(&self) -> Source {
        match (self.are_used, self.is_nvtx) {
            (false, _) => Source::Inferred,
            (true, false) => Source::Marks,
            (true, true) => Source::Nvtx,
        }
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    pub(crate) fn all_inferred(&self) -> u64 {
        self.all_inferred
    }

    fn poll_turn(&mut self, now_ns: u64) -> Option<Turn> {
        let is_quiet = now_ns.saturating_sub(self.marked_ns) >= SILENT_NS;
        let turn = match self.are_used {
            false if self.ended_unused >= SURE => Turn::Marked,
            true if is_quiet && self.inferred >= SILENT_REQUESTS => Turn::Silent,
            _ => return None,
        };
        self.are_used = turn == Turn::Marked;
        self.are_targets_told = false;
        self.ended_unused = 0;
        Some(turn)
    }

    /// Hands over marks until `now_ns`, in order of time; all records until then have been read.
    /// The third argument of `hand` is whether the policy receives the mark.
    fn take(&mut self, now_ns: u64, mut hand: impl FnMut(&Mark, u32, bool)) {
        if self.are_used && !std::mem::replace(&mut self.are_targets_told, true) {
            self.targets.iter().for_each(|target| hand(target, 0, true));
        }
        // A sequential client may end a request in the ns of the next begin: never two are open.
        self.waiting
            .sort_by_key(|(mark, _)| (at_ns(mark), matches!(mark, Mark::Begin { .. })));
        let ripe = self
            .waiting
            .partition_point(|(mark, _)| at_ns(mark) <= now_ns);
        for (mark, batch) in self.waiting.drain(..ripe) {
            hand(&mark, batch, self.are_used);
        }
    }
}

fn end(ended: Ended) -> (Mark, u32) {
    let end = Mark::End {
        id: ended.id,
        at_ns: ended.at_ns,
        is_cancelled: ended.is_cancelled,
    };
    (end, 0)
}

pub(super) fn count_rest(requests: &mut Requests, gate: &Gate, client: &mut Client, now_ns: u64) {
    let Some(hp_client) = &mut client.hp_client else {
        return;
    };
    while let Some(request) = hp_client.timeline().take_request() {
        count_inferred(requests, hp_client.marks(), &request, now_ns);
    }
    let marks = hp_client.marks_mut();
    marks.take(u64::MAX, |mark, _, _| {
        count(requests, gate, client.id, mark)
    });
}

fn count_inferred(requests: &mut Requests, marks: &Marks, request: &Request, now_ns: u64) {
    // A slice of a job that is never idle is no request.
    if request.work_ns == 0 && !marks.are_marked(now_ns) {
        requests.handle_inferred(request.ended_ns, request.took_ns());
    }
}

fn count(requests: &mut Requests, gate: &Gate, client: u64, mark: &Mark) {
    match *mark {
        Mark::Begin {
            id,
            kind,
            arrived_ns,
            at_ns,
        } => requests.handle_begin(client, id, kind, arrived_ns.min(at_ns)),
        Mark::End {
            id,
            at_ns,
            is_cancelled,
        } => {
            let kind = requests.kind_of(client, id);
            let target = kind.and_then(|kind| gate.request_target(client, kind));
            requests.handle_end(client, id, at_ns, is_cancelled, target);
        }
        Mark::Target { .. } => {}
    }
}

fn at_ns(mark: &Mark) -> u64 {
    match *mark {
        Mark::Begin { at_ns, .. } | Mark::End { at_ns, .. } => at_ns,
        Mark::Target { .. } => 0,
    }
}

impl State {
    pub(super) fn hand_over_requests(&mut self, now_ns: u64) {
        self.hand_over_goals();
        self.hand_over_learnt(now_ns);
        let (gate, tuning) = (&mut self.gate, &mut self.tuning);
        for job in &mut self.jobs {
            let requests = &mut job.requests;
            for client in &mut job.clients {
                let Client {
                    id,
                    goal_told,
                    hp_client: Some(hp_client),
                    ..
                } = client
                else {
                    continue;
                };
                while let Some(request) = hp_client.timeline().take_request() {
                    hp_client.marks_mut().handle_inferred();
                    count_inferred(requests, hp_client.marks(), &request, now_ns);
                    gate.handle_request(*id, &request);
                }
                let marks = hp_client.marks_mut();
                let turn = marks.poll_turn(now_ns);
                if turn.is_some() {
                    gate.handle_detach(*id);
                    // The detach discarded the goal.
                    gate.handle_goal(*id, *goal_told);
                }
                if turn == Some(Turn::Silent) {
                    let text = format!(
                        "client {} ({}) of job {} has stopped marking requests: they are inferred \
                         from its launches again",
                        client.peer.pid, client.name, job.key.id
                    );
                    let news = Draft::new(Kind::MarksSilent, text);
                    self.marks_news
                        .push(news.of_job(&job.key).pid(client.peer.pid));
                }
                marks.take(now_ns, |mark, batch, is_used| {
                    // Before the policy gets it, because that may change the target.
                    count(requests, gate, *id, mark);
                    if is_used {
                        gate.handle_mark(*id, mark);
                        tuning.handle_mark(*id, mark, batch);
                    }
                });
            }
        }
    }

    pub(crate) fn take_marks_news(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.marks_news)
    }
}

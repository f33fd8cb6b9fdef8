//! What a high-priority client says of its requests, until the policy hears of it.
//!
//! **Marked or inferred.** Requests are inferred from launches until [`SURE`] that the program has
//! marked have ended: one that marks a single thing does not lose the others. From then on what it
//! marks counts, and inferred requests no more. A client that goes on without marks for
//! [`SILENT_NS`], and makes [`SILENT_REQUESTS`] requests as they are inferred, is back to these.
//! What was learnt of the other kind of requests is forgotten at both changes.
//!
//! **Order.** Threads have rings of their own, which are read one after the other: the end of a
//! request may be read before its beginning, if two threads say them. So marks wait here until all
//! that was pushed before them has been read, and are handed over in the order of their times.

use policy::{Gate, HpTimeline, Mark, Request};
use protocol::record::{Begin, End, Record, has_arrived};

use super::range_ends::{Ended, RangeEnds};
use super::{Client, Requests, State};
use crate::core::event::{Draft, Kind};

/// Marked requests that end before inferred ones count no more.
const SURE: u64 = 16;

/// So long a client that makes requests may mark none, ns.
const SILENT_NS: u64 = 10_000_000_000;

/// So many it makes meanwhile. One that rests for an hour is not silent, and what it launches
/// outside its requests is little.
const SILENT_REQUESTS: u64 = 8;

/// What is said to happen later than this after rings were read, happens then, ns: reading them
/// takes less.
const AHEAD_NS: u64 = 1_000_000;

/// So many of the last marks are looked through for the beginning of a request that ends in the
/// same ns. A program in real time has none.
const LOOKED_BACK: usize = 16;

/// Kinds of requests with a target of their own; those of further ones do not count.
const TARGETS_MAX: usize = 8;

/// Where the requests of a client are known from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// What it launches, and when that completes.
    #[default]
    Inferred,
    /// Its program says so by our interface.
    Marks,
    /// Ranges of NVTX say so.
    Nvtx,
}

impl Source {
    /// The word in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Inferred => "inferred",
            Self::Marks => "marks",
            Self::Nvtx => "nvtx",
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Whether they count, and not what is inferred.
    are_used: bool,
    /// Whether ranges of NVTX made the last one.
    is_nvtx: bool,
    /// Read, and not handed over; with the batch of a beginning.
    waiting: Vec<(Mark, u32)>,
    /// Marked requests that have ended.
    ended: u64,
    /// Of them so many since inferred ones count.
    ended_unused: u64,
    /// When the last mark was read.
    marked_ns: u64,
    /// Requests inferred since then.
    inferred: u64,
    /// Requests inferred.
    all_inferred: u64,
    ranges: RangeEnds,
    /// What the program asks for its kinds of requests, and whether the policy has heard of it.
    targets: Vec<Mark>,
    are_targets_told: bool,
}

/// Where and when a mark was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// In which of the client's rings; the shared one comes after the others.
    pub(crate) ring: usize,
    /// When the rings were read before.
    pub(crate) looked_ns: u64,
    /// They are read now, or soon after.
    pub(crate) now_ns: u64,
}

/// Other requests count from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Those that are marked.
    Marked,
    /// Those that are inferred, as no more are marked.
    Silent,
}

impl Marks {
    /// Takes in a mark; whether it can be true.
    pub(crate) fn handle(&mut self, record: &Record, read: &Read, timeline: &HpTimeline) -> bool {
        // What a client says of a time is believed as far as it can be true.
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

    /// A request begins of which the end, in the same ns, was read from another ring before.
    fn end_after_begin(&mut self, of_id: u64, begun_ns: u64) {
        for (mark, _) in self.waiting.iter_mut().rev().take(LOOKED_BACK) {
            match mark {
                Mark::End { id, at_ns, .. } if *id == of_id && *at_ns == begun_ns => *at_ns += 1,
                _ => {}
            }
        }
    }

    /// When a request ends that is said to end at `at_ns`: a ns later where it has just begun then.
    fn after_begin(&self, of_id: u64, end_ns: u64) -> u64 {
        let begins = |(mark, _): &(Mark, u32)| matches!(*mark, Mark::Begin { id, at_ns, .. } if id == of_id && at_ns == end_ns);
        let mut last = self.waiting.iter().rev().take(LOOKED_BACK);
        end_ns + u64::from(last.any(begins))
    }

    /// Requests of a kind have another target from now on.
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

    /// What its program asks of requests of a kind, ns.
    pub(super) fn target_ns(&self, of_kind: u32) -> Option<u64> {
        let mut targets = self.targets.iter();
        targets.find_map(|target| match *target {
            Mark::Target { kind, ns, .. } if kind == of_kind => Some(ns),
            _ => None,
        })
    }

    /// The client marked its requests under the daemon before, so those count from the first on.
    pub(super) fn begin_used(&mut self, now_ns: u64) {
        self.are_used = true;
        self.marked_ns = now_ns;
    }

    /// The policy has forgotten everything.
    pub(super) fn handle_new_gate(&mut self) {
        self.are_targets_told = false;
    }

    /// A launch was read from that ring.
    pub(crate) fn handle_launch(&mut self, ring: usize, stream: u32, seq: u64) {
        self.ranges.handle_launch(ring, stream, seq);
    }

    /// All on that stream up to that number is complete, as is known since `at_ns`.
    pub(crate) fn handle_complete(&mut self, stream: u32, seq: u64, at_ns: u64) {
        let waiting = &mut self.waiting;
        self.ranges
            .handle_complete(stream, seq, at_ns, |ended| waiting.push(end(ended)));
    }

    /// Whether the program marks requests, so that inferred ones are the same or none.
    fn are_marked(&self, now_ns: u64) -> bool {
        self.marked_ns > 0 && now_ns.saturating_sub(self.marked_ns) < SILENT_NS
    }

    /// A request was inferred.
    fn handle_inferred(&mut self) {
        self.inferred += 1;
        self.all_inferred += 1;
    }

    /// Where its requests are known from.
    pub(crate) fn source(&self) -> Source {
        match (self.are_used, self.is_nvtx) {
            (false, _) => Source::Inferred,
            (true, false) => Source::Marks,
            (true, true) => Source::Nvtx,
        }
    }

    /// Marked requests that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Requests that were inferred, whether or not these count.
    pub(crate) fn all_inferred(&self) -> u64 {
        self.all_inferred
    }

    /// Whether other requests count from now on.
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

    /// What has happened until `now_ns`, in that order; all that was pushed until then has been
    /// read.
    /// The third argument of `hand` says whether the policy receives the mark.
    fn take(&mut self, now_ns: u64, mut hand: impl FnMut(&Mark, u32, bool)) {
        if self.are_used && !std::mem::replace(&mut self.are_targets_told, true) {
            self.targets.iter().for_each(|target| hand(target, 0, true));
        }
        // A client that works on one request after the other may end one in the ns in which the
        // next begins, and has never two open.
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

/// Counts what a client that goes has said, and what it has launched, since the last poll.
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

/// Counts a request that was inferred from launches.
fn count_inferred(requests: &mut Requests, marks: &Marks, request: &Request, now_ns: u64) {
    // A piece of a job that is never idle is none.
    if request.work_ns == 0 && !marks.are_marked(now_ns) {
        requests.handle_inferred(request.ended_ns, request.took_ns());
    }
}

/// Counts a request that a client's program marks.
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

/// When it happened.
fn at_ns(mark: &Mark) -> u64 {
    match *mark {
        Mark::Begin { at_ns, .. } | Mark::End { at_ns, .. } => at_ns,
        // Does not wait here.
        Mark::Target { .. } => 0,
    }
}

impl State {
    /// Tells the policy of the requests that rings have told until `now_ns`, marked or inferred.
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
                    // Forgotten with the rest.
                    gate.handle_goal(*id, *goal_told);
                }
                if turn == Some(Turn::Silent) {
                    let text = format!(
                        "client {} ({}) of job {} marks no requests any more: they are inferred from its launches again",
                        client.peer.pid, client.name, job.key.id
                    );
                    let news = Draft::new(Kind::MarksSilent, text);
                    self.marks_news
                        .push(news.of_job(&job.key).pid(client.peer.pid));
                }
                marks.take(now_ns, |mark, batch, is_used| {
                    // Before the policy hears of it, as the target may be another then.
                    count(requests, gate, *id, mark);
                    if is_used {
                        gate.handle_mark(*id, mark);
                        tuning.handle_mark(*id, mark, batch);
                    }
                });
            }
        }
    }

    /// What is to be told of clients that mark no requests any more, since this was last asked.
    pub(crate) fn take_marks_news(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.marks_news)
    }
}

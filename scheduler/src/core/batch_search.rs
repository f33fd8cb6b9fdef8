//! The search for the batch of one kind of requests of one high-priority client.
//!
//! [`policy::tuner`] says which batch to try next. Here is what it goes by: what is measured of a
//! batch that is wanted, and when that has been measured for long enough; and when a search begins.
//!
//! **Measured** is a batch by [`BatchSearch::settle`] requests of it at least that were begun after
//! it was wanted: their p99 from begin to end, and what best-effort jobs did meanwhile. Of a job
//! that marks its iterations that is the time of one; of another the time in which it completes a
//! millisecond of work, as that is expected to take. Of several jobs the geometric mean counts, as
//! their iterations are of different lengths. W is the sum of the batches that were begun in the
//! last ten seconds, or of the last 256 if these took longer, by that time.
//!
//! **A search** begins with the batch that the program has by itself, or has from the search
//! before. It begins anew where best-effort jobs come or go, the target is another one, W has
//! changed by half, or no batch was safe for [`RETRY_NS`]. While no best-effort job is there
//! nothing is wanted.
//!
//! **What is expected** of batches is on a line (of logarithms) between those that were measured. A
//! batch twice as large as the largest of them is expected to take half as long again, and larger
//! ones as much longer as they are larger; a smaller batch than all as long as the smallest. With
//! the tuner's bound of what is uncertain, a third, the first is what a batch takes whose time is
//! all in its requests; so the safe set grows by doubling, as far as what is measured bears it out.
//!
//! **Ignored**: of the requests begun since a batch is wanted more than `settle`, and more than
//! half, are of other batches. Then nothing is wanted until a search begins anew.

use std::collections::VecDeque;

use policy::JobId;
use policy::tuner::{Choice, Observation, Prediction, RATE_CHANGE, Tuner, TunerParams};
use protocol::batches::Range;

/// After so long without a safe batch one is searched anew, ns: what was measured may have been bad
/// luck, and best-effort jobs would be paused for good.
pub(crate) const RETRY_NS: u64 = 300_000_000_000;

/// Requests of a batch that do not count: they may have waited for the last of the batch before.
const SKIPPED: usize = 2;

/// An evaluation goes on, up to so many times as many requests, until each best-effort job has made
/// [`PROGRESS_MIN`].
const LONGER_MAX: usize = 4;

/// Iterations, or milliseconds of work: of fewer the mean is off by too much.
const PROGRESS_MIN: f64 = 8.0;

/// Requests that are open at once: what a client's library keeps of them.
const OPEN_MAX: usize = 256;

/// A program that has ended no request for so long is not waited for, ns.
const SILENT_NS: u64 = 10_000_000_000;

/// W is of so long at least, ns, and of so many requests.
const RATE_NS: u64 = 10_000_000_000;
/// See [`RATE_NS`].
const RATE_REQUESTS: u64 = 256;
/// Of fewer nothing is said.
const RATE_REQUESTS_MIN: u64 = 8;
/// Points that W is told from are that far apart, ns: a thousand at most.
const RATE_STEP_NS: u64 = RATE_NS / 1_000;

/// A pause is looked at anew where W has changed by this share.
const RATE_NEWS: f64 = 0.05;

/// A millisecond of work stands for an iteration of a job that marks none.
const WORK_NS: f64 = 1e6;

const SECOND_NS: f64 = 1e9;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct BatchSearch {
    range: Range,
    /// Requests that a batch is judged by.
    settle: usize,
    rate: Rate,
    open: VecDeque<Open>,
    stand: Stand,
    evaluation: Evaluation,
    begun: Begun,
    /// Of this search.
    seen: Vec<Observation>,
    wanted: Option<u32>,
    /// W by which the tuner was asked last.
    judged_per_s: f64,
    /// When a request of the kind ended last, or when that was first looked at.
    heard_ns: Option<u64>,
}

/// How a search stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// There is nothing to search by.
    NoTarget,
    /// There is nobody to search for.
    Alone,
    /// Another search is under way or has best-effort jobs paused, or no request comes.
    Waiting,
    /// The batch that the program has by itself is measured.
    Looking,
    /// This one is.
    Trying(u32),
    /// It has ended.
    Kept(u32),
    /// No batch is safe, since then, ns: best-effort jobs are paused.
    Infeasible(u64),
    /// The program does not do what is wanted.
    Ignored,
}

impl Stand {
    /// The word in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoTarget => "no-target",
            Self::Alone => "alone",
            Self::Waiting => "waiting",
            Self::Looking => "looking",
            Self::Trying(_) => "trying",
            Self::Kept(_) => "kept",
            Self::Infeasible(_) => "infeasible",
            Self::Ignored => "ignored",
        }
    }
}

/// What a search is told of what is around it.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    /// Within this a request is to be answered, ns.
    pub(crate) slo_ns: Option<u64>,
    /// Best-effort jobs and what they have done.
    pub(crate) best_effort: &'a [Work],
    /// No other search is under way.
    pub(crate) is_free: bool,
}

/// What a best-effort job has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) job: JobId,
    /// It marks its iterations.
    pub(crate) has_iterations: bool,
    /// Iterations, or ns of work, ever.
    pub(crate) done: u64,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// This batch is tried.
    Wanted(u32),
    /// It stays.
    Kept(u32),
    /// None is safe.
    Infeasible,
    /// That batch was wanted, and others were begun.
    Ignored(u32),
}

/// A request that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    batch: u32,
    begun_ns: u64,
}

/// By what a search has begun.
#[derive(Debug, Default)]
struct Begun {
    jobs: Vec<(JobId, bool)>,
    slo_ns: u64,
    /// None before it is known.
    rate_per_s: Option<f64>,
}

impl BatchSearch {
    /// One that has not begun.
    pub(crate) fn new(range: Range, settle: usize) -> Self {
        Self {
            range,
            settle: settle.max(1),
            rate: Rate::default(),
            open: VecDeque::new(),
            stand: Stand::Alone,
            evaluation: Evaluation::default(),
            begun: Begun::default(),
            seen: Vec::new(),
            wanted: None,
            judged_per_s: 0.0,
            heard_ns: None,
        }
    }

    /// The batches that the program can take.
    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// How it stands.
    pub(crate) fn stand(&self) -> Stand {
        self.stand
    }

    /// Whether batches are measured, so that another search would be in the way.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stand, Stand::Looking | Stand::Trying(_))
    }

    /// The batch that the program is to take; `None`: as it likes.
    pub(crate) fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    /// Batches that were measured in this search.
    pub(crate) fn evaluations(&self) -> usize {
        self.seen.len()
    }

    /// What was measured last.
    pub(crate) fn last(&self) -> Option<Observation> {
        self.seen.last().copied()
    }

    /// W, requests per second; `None` while that is not known.
    pub(crate) fn rate_per_s(&self, now_ns: u64) -> Option<f64> {
        self.rate.per_s(now_ns)
    }

    /// A request of the kind begins.
    pub(crate) fn handle_begin(&mut self, id: u64, batch: u32, at_ns: u64) {
        self.rate.handle_begin(at_ns, batch.max(1));
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(Open {
            id,
            batch,
            begun_ns: at_ns,
        });
    }

    /// A request ends, of that kind or another.
    pub(crate) fn handle_end(&mut self, id: u64, at_ns: u64, is_cancelled: bool) {
        let place = self.open.iter().position(|open| open.id == id);
        let Some(open) = place.and_then(|place| self.open.remove(place)) else {
            return;
        };
        self.heard_ns = self.heard_ns.max(Some(at_ns));
        if !is_cancelled {
            let room = self.settle * LONGER_MAX;
            self.evaluation.handle_request(&open, at_ns, room);
        }
    }

    /// Looks whether a batch has been measured, and what follows.
    pub(crate) fn look(&mut self, now_ns: u64, around: &Around<'_>) -> Option<News> {
        let slo_ns = match (around.best_effort, around.slo_ns) {
            ([], _) => return self.rest(Stand::Alone),
            (_, None) => return self.rest(Stand::NoTarget),
            (_, Some(slo_ns)) => slo_ns,
        };
        self.heard_ns.get_or_insert(now_ns);
        let is_under_way = self.is_under_way() || matches!(self.stand, Stand::Infeasible(_));
        if self.is_silent(now_ns) && is_under_way {
            // It holds up nobody: neither other searches nor best-effort jobs.
            return self.rest(Stand::Waiting);
        }
        if self.is_over(now_ns, around, slo_ns) {
            if !around.is_free || self.is_silent(now_ns) {
                self.stand = Stand::Waiting;
                return None;
            }
            self.begin(now_ns, around, slo_ns);
        }
        match self.stand {
            Stand::Looking | Stand::Trying(_) => self.look_at_evaluation(now_ns, around),
            Stand::Infeasible(_) => self.look_at_pause(now_ns),
            _ => None,
        }
    }

    /// Whether no request of the kind has ended for long.
    fn is_silent(&self, now_ns: u64) -> bool {
        let is_recent = |heard_ns: u64| now_ns.saturating_sub(heard_ns) <= SILENT_NS;
        !self.heard_ns.is_some_and(is_recent)
    }

    /// Nothing is wanted.
    fn rest(&mut self, stand: Stand) -> Option<News> {
        self.stand = stand;
        self.wanted = None;
        self.seen.clear();
        None
    }

    /// Whether a search is to begin.
    fn is_over(&mut self, now_ns: u64, around: &Around<'_>, slo_ns: u64) -> bool {
        if matches!(self.stand, Stand::NoTarget | Stand::Alone | Stand::Waiting) {
            return true;
        }
        let jobs = around.best_effort.iter().map(Work::key);
        if slo_ns != self.begun.slo_ns || !jobs.eq(self.begun.jobs.iter().copied()) {
            return true;
        }
        let rates = self.begun.rate_per_s.zip(self.rate.per_s(now_ns));
        if rates.is_some_and(|(begun, now)| (now - begun).abs() >= RATE_CHANGE * begun) {
            // Of the rate before nothing is to be left in the next search's.
            self.rate = Rate::default();
            return true;
        }
        matches!(self.stand, Stand::Infeasible(since_ns) if now_ns.saturating_sub(since_ns) >= RETRY_NS)
    }

    fn begin(&mut self, now_ns: u64, around: &Around<'_>, slo_ns: u64) {
        self.stand = Stand::Looking;
        self.evaluation = Evaluation::begin(now_ns, None);
        self.seen.clear();
        self.begun = Begun {
            jobs: around.best_effort.iter().map(Work::key).collect(),
            slo_ns,
            rate_per_s: None,
        };
    }

    fn look_at_evaluation(&mut self, now_ns: u64, around: &Around<'_>) -> Option<News> {
        let evaluation = &mut self.evaluation;
        if let Some(batch) = evaluation.batch
            && evaluation.is_ignored(self.settle)
        {
            self.rest(Stand::Ignored);
            return Some(News::Ignored(batch));
        }
        let seen = evaluation.look(now_ns, around.best_effort, self.settle)?;
        // Where requests are so seldom that there is none, the evaluation goes on.
        let rate_per_s = self.rate.per_s(now_ns)?;
        self.begun.rate_per_s.get_or_insert(rate_per_s);
        self.seen.push(seen);
        self.advance(now_ns, rate_per_s)
    }

    /// While best-effort jobs are paused: whether a batch is safe by now, as there are more or
    /// fewer requests.
    fn look_at_pause(&mut self, now_ns: u64) -> Option<News> {
        let rate_per_s = self.rate.per_s(now_ns)?;
        let is_news = (rate_per_s - self.judged_per_s).abs() > RATE_NEWS * self.judged_per_s;
        match is_news {
            true => self.advance(now_ns, rate_per_s),
            false => None,
        }
    }

    /// What to do next, by all that was measured.
    fn advance(&mut self, now_ns: u64, rate_per_s: f64) -> Option<News> {
        self.judged_per_s = rate_per_s;
        let choice = self.tuner(rate_per_s).map(|tuner| tuner.next());
        match choice {
            Some(Choice::Try(batch)) => {
                let is_same = self.wanted == Some(batch);
                self.wanted = Some(batch);
                self.stand = Stand::Trying(batch);
                self.evaluation = Evaluation::begin(now_ns, Some(batch));
                (!is_same).then_some(News::Wanted(batch))
            }
            Some(Choice::Keep(batch)) => {
                self.wanted = Some(batch);
                self.stand = Stand::Kept(batch);
                Some(News::Kept(batch))
            }
            Some(Choice::Infeasible) | None => {
                let was = matches!(self.stand, Stand::Infeasible(_));
                if !was {
                    self.stand = Stand::Infeasible(now_ns);
                }
                self.wanted = self.least_late(rate_per_s).or(self.wanted);
                (!was).then_some(News::Infeasible)
            }
        }
    }

    /// The tuner with all that was measured in this search; `None` where it takes none of that.
    fn tuner(&self, rate_per_s: f64) -> Option<Tuner> {
        let params = TunerParams {
            batches: self.range.batches().collect(),
            rate_per_s,
            slo_ns: self.begun.slo_ns,
        };
        let mut tuner = Tuner::new(params, &predictions(&self.seen)).ok()?;
        for seen in &self.seen {
            tuner.handle_observation(*seen);
        }
        Some(tuner)
    }

    /// Of the batches that were measured the one in which requests are answered soonest.
    fn least_late(&self, rate_per_s: f64) -> Option<u32> {
        let seen = self.seen.iter();
        let seen = seen.filter(|seen| self.range.contains(seen.batch));
        let late_ns =
            |of: &Observation| f64::from(of.batch - 1) / rate_per_s * SECOND_NS + of.p99_ns as f64;
        let least = seen.min_by(|one, other| late_ns(one).total_cmp(&late_ns(other)));
        least.map(|least| least.batch)
    }
}

/// What is expected of batches, by those that were measured.
fn predictions(seen: &[Observation]) -> Vec<Prediction> {
    let measured = seen.iter().map(|seen| Prediction {
        batch: seen.batch,
        p99_ns: seen.p99_ns,
    });
    let largest = measured.clone().max_by_key(|of| (of.batch, of.p99_ns));
    let doubled = largest.map(|of| Prediction {
        batch: of.batch.saturating_mul(2),
        p99_ns: of.p99_ns.saturating_add(of.p99_ns / 2),
    });
    measured.chain(doubled).collect()
}

impl Work {
    fn key(&self) -> (JobId, bool) {
        (self.job, self.has_iterations)
    }
}

/// What is measured of one batch.
#[derive(Debug, Default)]
struct Evaluation {
    since_ns: u64,
    /// None: whichever the program takes.
    batch: Option<u32>,
    /// From begin to end, of requests of it.
    took_ns: Vec<u64>,
    /// Their batches, summed up.
    batches: u64,
    skipped: usize,
    /// Requests of other batches.
    others: usize,
    /// What best-effort jobs had done when these began to count, and when that was.
    work: Option<(u64, Vec<u64>)>,
}

impl Evaluation {
    fn begin(now_ns: u64, batch: Option<u32>) -> Self {
        Self {
            since_ns: now_ns,
            batch,
            ..Self::default()
        }
    }

    fn handle_request(&mut self, request: &Open, ended_ns: u64, room: usize) {
        if request.begun_ns < self.since_ns {
            return;
        }
        if self.batch.is_some_and(|batch| batch != request.batch) {
            self.others += 1;
        } else if self.skipped < SKIPPED {
            self.skipped += 1;
        } else if self.took_ns.len() < room {
            self.took_ns
                .push(ended_ns.saturating_sub(request.begun_ns).max(1));
            self.batches += u64::from(request.batch.max(1));
        }
    }

    fn is_ignored(&self, settle: usize) -> bool {
        self.others > settle && self.others > self.took_ns.len()
    }

    /// What was seen of the batch, once that is enough.
    fn look(&mut self, now_ns: u64, work: &[Work], settle: usize) -> Option<Observation> {
        let done = || work.iter().map(|work| work.done);
        let Some((since_ns, before)) = &self.work else {
            if self.skipped >= SKIPPED {
                self.work = Some((now_ns, done().collect()));
            }
            return None;
        };
        let (since_ns, count) = (*since_ns, self.took_ns.len());
        let progress = work.iter().zip(before);
        let progress = progress.map(|(work, before)| work.progress(*before));
        let is_enough = progress.clone().all(|done| done >= PROGRESS_MIN);
        // Of a job that does as good as nothing the batch is not the reason.
        let progress = progress.filter(|done| *done >= PROGRESS_MIN);
        let jobs = progress.clone().count();
        if count < settle
            || !(is_enough || count >= settle * LONGER_MAX)
            || now_ns <= since_ns
            || jobs == 0
        {
            return None;
        }
        let wall_ns = (now_ns - since_ns) as f64;
        let logarithms = progress.map(|done| (wall_ns / done).ln());
        let mean = logarithms.sum::<f64>() / jobs as f64;
        self.took_ns.sort_unstable();
        let rank = (count * 99).div_ceil(100).saturating_sub(1);
        Some(Observation {
            batch: self.batch.unwrap_or_else(|| {
                let mean = self.batches.div_ceil(count as u64);
                u32::try_from(mean).unwrap_or(u32::MAX)
            }),
            p99_ns: *self.took_ns.get(rank)?,
            iteration_ns: (mean.exp() as u64).max(1),
        })
    }
}

impl Work {
    /// Iterations since it had done that, or milliseconds of work.
    fn progress(&self, before: u64) -> f64 {
        let done = self.done.saturating_sub(before) as f64;
        match self.has_iterations {
            true => done,
            false => done / WORK_NS,
        }
    }
}

/// Requests per second, by the batches that begin.
#[derive(Debug, Default)]
struct Rate {
    /// The oldest first.
    points: VecDeque<Point>,
    last: Option<Point>,
}

/// A moment at which a batch began.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_ns: u64,
    /// Batches and their requests until then, this one among them.
    batches: u64,
    requests: u64,
}

impl Rate {
    fn handle_begin(&mut self, at_ns: u64, batch: u32) {
        let last = self.last.map_or((0, 0), |of| (of.batches, of.requests));
        let point = Point {
            at_ns,
            batches: last.0 + 1,
            requests: last.1 + u64::from(batch),
        };
        self.last = Some(point);
        let noted = self.points.back();
        if noted.is_none_or(|noted| at_ns >= noted.at_ns.saturating_add(RATE_STEP_NS)) {
            self.points.push_back(point);
        }
        let oldest_ns = at_ns.saturating_sub(RATE_NS);
        let is_left =
            |next: &Point| next.at_ns <= oldest_ns && point.batches - next.batches >= RATE_REQUESTS;
        while self.points.get(1).is_some_and(is_left) {
            self.points.pop_front();
        }
    }

    /// What arrived between two beginnings was begun by the second. Of a program that has begun
    /// nothing for long nothing is known.
    fn per_s(&self, now_ns: u64) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.last?);
        let span_ns = last.at_ns.saturating_sub(first.at_ns);
        let is_silent = now_ns.saturating_sub(last.at_ns) > span_ns.max(RATE_NS);
        if last.batches - first.batches < RATE_REQUESTS_MIN || span_ns == 0 || is_silent {
            return None;
        }
        Some((last.requests - first.requests) as f64 / span_ns as f64 * SECOND_NS)
    }
}

#[cfg(test)]
mod tests;

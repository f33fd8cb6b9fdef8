//! The search for the batch size of one kind of requests of one high-priority client.
//! [`policy::tuner`] chooses the next batch to try. This file measures wanted batches, decides when
//! a measurement is long enough, and when a search begins.
//! - **Measurement.** A batch is measured by at least [`BatchSearch::settle`] requests of it, all
//!   begun after the batch was wanted: their p99 from begin to end, and the progress of best-effort
//!   jobs meanwhile. For a job that marks its iterations, progress is the time of one iteration;
//!   for another job, the time in which it completes a millisecond of expected work. Several jobs
//!   count by their geometric mean, as their iterations differ in length. W is the sum of the
//!   batches begun in the last ten seconds, or of the last 256 if these took longer, divided by
//!   that time.
//! - **A search** begins with the batch that the program chooses by itself, or with the result of
//!   the search before. It restarts when best-effort jobs come or go, the target changes, W changes
//!   by half, or no batch was safe for [`RETRY_NS`]. Without best-effort jobs no batch is wanted.
//! - **Predictions** lie on a logarithmic line between measured batches. Twice the largest measured
//!   batch is predicted to take half as long again; larger ones extrapolate in proportion to their
//!   size. Batches below all measured ones are predicted to take as long as the smallest. With the
//!   tuner's uncertainty bound of a third, the first is the time of a batch whose duration is
//!   entirely per request. The safe set thus grows by doubling, as far as measurements confirm it.
//! - **Ignored**: of the requests begun since a batch was wanted, more than `settle`, and more than
//!   half, have other batches. Nothing is wanted then until a new search begins.

use std::collections::VecDeque;

use policy::JobId;
use policy::tuner::{Choice, Observation, Prediction, RATE_CHANGE, Tuner, TunerParams};
use protocol::batches::Range;

/// Retry when no batch was safe for so long, ns: after bad luck, jobs would stay paused for good.
pub(crate) const RETRY_NS: u64 = 300_000_000_000;

/// Requests of a new batch to skip: they may have queued behind the last of the previous batch.
const SKIPPED: usize = 2;

/// An evaluation that waits for [`PROGRESS_MIN`] of each job ends after this many times `settle`
/// requests.
const LONGER_MAX: usize = 4;

/// Iterations, or milliseconds of work: the mean of fewer is too inaccurate.
const PROGRESS_MIN: f64 = 8.0;

/// Open requests at once: the limit of the client library.
const OPEN_MAX: usize = 256;

/// A program that has ended no request for this long is not waited for, ns.
const SILENT_NS: u64 = 10_000_000_000;

/// W covers at least this long, ns, and [`RATE_REQUESTS`] requests.
const RATE_NS: u64 = 10_000_000_000;
const RATE_REQUESTS: u64 = 256;
/// With fewer requests W is unknown.
const RATE_REQUESTS_MIN: u64 = 8;
/// Least distance of the points from which W is computed, ns: a thousand at most.
const RATE_STEP_NS: u64 = RATE_NS / 1_000;

/// Re-evaluate a pause when W has changed by this share.
const RATE_NEWS: f64 = 0.05;

/// A millisecond of work stands for an iteration of a job that marks none.
const WORK_NS: f64 = 1e6;

const SECOND_NS: f64 = 1e9;

#[derive(Debug)]
pub(crate) struct BatchSearch {
    range: Range,
    settle: usize,
    rate: Rate,
    open: VecDeque<Open>,
    stand: Stand,
    evaluation: Evaluation,
    begun: Begun,
    seen: Vec<Observation>,
    wanted: Option<u32>,
    judged_per_s: f64,
    /// When a request of the kind last ended, or when the search first polled.
    heard_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    NoTarget,
    Alone,
    /// Another search is under way or has paused best-effort jobs, or no request arrives.
    Waiting,
    Looking,
    Trying(u32),
    Kept(u32),
    /// No batch is safe since this time, ns: best-effort jobs are paused.
    Infeasible(u64),
    Ignored,
}

impl Stand {
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

#[derive(Debug)]
pub(crate) struct Around<'a> {
    pub(crate) slo_ns: Option<u64>,
    pub(crate) best_effort: &'a [Work],
    pub(crate) is_free: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) job: JobId,
    pub(crate) has_iterations: bool,
    /// Iterations, or ns of work, ever.
    pub(crate) done: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Wanted(u32),
    Kept(u32),
    Infeasible,
    Ignored(u32),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    batch: u32,
    begun_ns: u64,
}

#[derive(Debug, Default)]
struct Begun {
    jobs: Vec<(JobId, bool)>,
    slo_ns: u64,
    rate_per_s: Option<f64>,
}

impl BatchSearch {
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

    pub(crate) fn range(&self) -> Range {
        self.range
    }

    pub(crate) fn stand(&self) -> Stand {
        self.stand
    }

    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stand, Stand::Looking | Stand::Trying(_))
    }

    /// The batch that the program should take; `None`: its own choice.
    pub(crate) fn wanted(&self) -> Option<u32> {
        self.wanted
    }

    pub(crate) fn evaluations(&self) -> usize {
        self.seen.len()
    }

    pub(crate) fn last(&self) -> Option<Observation> {
        self.seen.last().copied()
    }

    /// W, requests per second; `None` while unknown.
    pub(crate) fn rate_per_s(&self, now_ns: u64) -> Option<f64> {
        self.rate.per_s(now_ns)
    }

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

    pub(crate) fn look(&mut self, now_ns: u64, around: &Around<'_>) -> Option<News> {
        let slo_ns = match (around.best_effort, around.slo_ns) {
            ([], _) => return self.rest(Stand::Alone),
            (_, None) => return self.rest(Stand::NoTarget),
            (_, Some(slo_ns)) => slo_ns,
        };
        self.heard_ns.get_or_insert(now_ns);
        let is_under_way = self.is_under_way() || matches!(self.stand, Stand::Infeasible(_));
        if self.is_silent(now_ns) && is_under_way {
            // A silent program must not block other searches, nor best-effort jobs.
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

    /// Whether no request of the kind has ended for [`SILENT_NS`].
    fn is_silent(&self, now_ns: u64) -> bool {
        let is_recent = |heard_ns: u64| now_ns.saturating_sub(heard_ns) <= SILENT_NS;
        !self.heard_ns.is_some_and(is_recent)
    }

    fn rest(&mut self, stand: Stand) -> Option<News> {
        self.stand = stand;
        self.wanted = None;
        self.seen.clear();
        None
    }

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
            // The next search must not count the old rate.
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
        // The evaluation continues while requests are too rare for a rate.
        let rate_per_s = self.rate.per_s(now_ns)?;
        self.begun.rate_per_s.get_or_insert(rate_per_s);
        self.seen.push(seen);
        self.advance(now_ns, rate_per_s)
    }

    /// While best-effort jobs are paused: checks whether a changed rate makes a batch safe.
    fn look_at_pause(&mut self, now_ns: u64) -> Option<News> {
        let rate_per_s = self.rate.per_s(now_ns)?;
        let is_news = (rate_per_s - self.judged_per_s).abs() > RATE_NEWS * self.judged_per_s;
        match is_news {
            true => self.advance(now_ns, rate_per_s),
            false => None,
        }
    }

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

    /// The tuner with all measurements of this search; `None` if it rejects them.
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

    fn least_late(&self, rate_per_s: f64) -> Option<u32> {
        let seen = self.seen.iter();
        let seen = seen.filter(|seen| self.range.contains(seen.batch));
        let late_ns =
            |of: &Observation| f64::from(of.batch - 1) / rate_per_s * SECOND_NS + of.p99_ns as f64;
        let least = seen.min_by(|one, other| late_ns(one).total_cmp(&late_ns(other)));
        least.map(|least| least.batch)
    }
}

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

#[derive(Debug, Default)]
struct Evaluation {
    since_ns: u64,
    /// None: any batch that the program takes.
    batch: Option<u32>,
    took_ns: Vec<u64>,
    batches: u64,
    skipped: usize,
    others: usize,
    /// Best-effort progress at the first counted request, and that time.
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
        // A job that makes practically no progress is not held up by the batch.
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
    /// Iterations, or milliseconds of work, since `before`.
    fn progress(&self, before: u64) -> f64 {
        let done = self.done.saturating_sub(before) as f64;
        match self.has_iterations {
            true => done,
            false => done / WORK_NS,
        }
    }
}

#[derive(Debug, Default)]
struct Rate {
    /// Oldest first.
    points: VecDeque<Point>,
    last: Option<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at_ns: u64,
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

    /// Arrivals between two begins belong to the second; long after a begin the rate is unknown.
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

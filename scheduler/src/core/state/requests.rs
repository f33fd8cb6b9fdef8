//! Durations of a high-priority job's requests: a histogram of each kind, and the number within
//! target.
//!
//! A marked request counts from its arrival to its end, an inferred one
//! ([`policy::HpTimeline::take_request`]) from its first launch to its last completion. Whether the
//! policy uses marks does not matter here: the first marked request counts. Inferred requests count
//! while the program has marked nothing for ten seconds: a request counts twice only if it is
//! marked, is open for longer than that, and its launches look like a request, too.
//!
//! The histogram leaves out a request that its program cancels. If its target had passed, it counts
//! as over target, as the policy judges it. Sums, counts and buckets span the whole life of the job
//! under this daemon. Quantiles span the last minute: they come from slices of five seconds, each
//! an HDR histogram of microseconds with two significant digits, so that a quantile is off by one
//! per cent at most.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use policy::RequestTarget;

/// Buckets' upper bounds, ns: equal everywhere, so that histograms of jobs and machines add up.
pub(crate) const BUCKETS_NS: [u64; 12] = [
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
];

/// Kinds with their own record, the first ones seen; all others share one.
const KINDS_MAX: usize = 4;

/// Open marked requests; beyond it the oldest is forgotten.
const OPEN_MAX: usize = 1024;

/// Length of a slice, ns, and slices kept: a minute, and the one being filled.
const SLICE_NS: u64 = 5_000_000_000;
const SLICES: usize = 13;

const DIGITS: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Requests {
    all: Record,
    kinds: Vec<(u32, Record)>,
    other: Option<Record>,
    open: VecDeque<Open>,
    /// While a trace is taken: ended requests, until the trace takes them.
    pub(super) traced: Option<Vec<Traced>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Traced {
    pub(super) kind: Option<u32>,
    pub(super) arrived_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) is_cancelled: bool,
    pub(super) target_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    client: u64,
    id: u64,
    kind: u32,
    arrived_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    at_ns: u64,
    took_ns: u64,
    target: Option<RequestTarget>,
    is_cancelled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) count: u64,
    pub(crate) sum_ns: u64,
    buckets: [u64; BUCKETS_NS.len()],
    pub(crate) target_ns: Option<u64>,
    pub(crate) judged: u64,
    pub(crate) over_target: u64,
    slices: VecDeque<Slice>,
    last: Option<Recent>,
}

#[derive(Debug)]
struct Slice {
    began_ns: u64,
    took_us: Histogram<u32>,
    judged: u64,
    over_target: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    pub(crate) over_ns: u64,
    pub(crate) count: u64,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) within_target: Option<f64>,
}

impl Requests {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.count == 0 && self.all.judged == 0
    }

    pub(crate) fn all(&self) -> &Record {
        &self.all
    }

    /// Marked requests by kind; none stands for all further kinds.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (Option<u32>, &Record)> {
        let kinds = self.kinds.iter();
        let kinds = kinds.map(|(kind, record)| (Some(*kind), record));
        kinds.chain(self.other.iter().map(|record| (None, record)))
    }

    pub(super) fn handle_begin(&mut self, client: u64, id: u64, kind: u32, arrived_ns: u64) {
        self.open
            .retain(|open| (open.client, open.id) != (client, id));
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(Open {
            client,
            id,
            kind,
            arrived_ns,
        });
    }

    pub(super) fn kind_of(&self, client: u64, id: u64) -> Option<u32> {
        let mut open = self.open.iter();
        let found = open.find(|open| (open.client, open.id) == (client, id));
        found.map(|open| open.kind)
    }

    pub(super) fn handle_end(
        &mut self,
        client: u64,
        id: u64,
        at_ns: u64,
        is_cancelled: bool,
        target: Option<RequestTarget>,
    ) {
        let mut places = self.open.iter();
        let place = places.position(|open| (open.client, open.id) == (client, id));
        let Some(open) = place.and_then(|place| self.open.remove(place)) else {
            return;
        };
        let ended = Ended {
            at_ns,
            took_ns: at_ns.saturating_sub(open.arrived_ns),
            target,
            is_cancelled,
        };
        self.all.handle_ended(&ended);
        self.record_of(open.kind).handle_ended(&ended);
        self.trace(Some(open.kind), &ended);
    }

    pub(super) fn handle_inferred(&mut self, at_ns: u64, took_ns: u64) {
        let ended = Ended {
            at_ns,
            took_ns,
            target: None,
            is_cancelled: false,
        };
        self.all.handle_ended(&ended);
        self.trace(None, &ended);
    }

    fn trace(&mut self, kind: Option<u32>, ended: &Ended) {
        if let Some(traced) = &mut self.traced {
            traced.push(Traced {
                kind,
                arrived_ns: ended.at_ns.saturating_sub(ended.took_ns),
                ended_ns: ended.at_ns,
                is_cancelled: ended.is_cancelled,
                // A mean bounds no single request.
                target_ns: ended
                    .target
                    .filter(|target| !target.is_mean)
                    .map(|target| target.ns),
            });
        }
    }

    /// The job has ended: freezes the quantiles of its last minute, and frees their histograms.
    pub(super) fn settle(&mut self, now_ns: u64) {
        let kinds = self.kinds.iter_mut().map(|(_, record)| record);
        for record in kinds.chain(&mut self.other).chain([&mut self.all]) {
            record.last = Some(record.recent(now_ns));
            record.slices = VecDeque::new();
        }
        self.open = VecDeque::new();
        self.traced = None;
    }

    /// A client has left: its open requests do not end.
    pub(super) fn handle_detach(&mut self, client: u64) {
        self.open.retain(|open| open.client != client);
    }

    fn record_of(&mut self, kind: u32) -> &mut Record {
        let place = self.kinds.iter().position(|(known, _)| *known == kind);
        match place {
            Some(place) => &mut self.kinds[place].1,
            None if self.kinds.len() < KINDS_MAX => {
                self.kinds.push((kind, Record::default()));
                let last = self.kinds.len() - 1;
                &mut self.kinds[last].1
            }
            None => self.other.get_or_insert_default(),
        }
    }
}

impl Record {
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut sum = 0;
        BUCKETS_NS
            .iter()
            .zip(self.buckets)
            .map(move |(&le_ns, count)| {
                sum += count;
                (le_ns, sum)
            })
    }

    pub(crate) fn recent(&self, now_ns: u64) -> Recent {
        if let Some(last) = self.last {
            return last;
        }
        let is_recent = |slice: &&Slice| !slice.is_over(now_ns);
        let slices = || self.slices.iter().filter(is_recent);
        let Some(first) = slices().next() else {
            return Recent::default();
        };
        let mut took_us = new_histogram();
        let (mut judged, mut over_target) = (0, 0);
        for slice in slices() {
            // Only an addition to a histogram that cannot grow fails.
            let _ = took_us.add(&slice.took_us);
            judged += slice.judged;
            over_target += slice.over_target;
        }
        let count = took_us.len();
        let quantile =
            |of: f64| (count > 0).then(|| took_us.value_at_quantile(of).saturating_mul(1_000));
        Recent {
            over_ns: now_ns.saturating_sub(first.began_ns),
            count,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            within_target: (judged > 0).then(|| 1.0 - over_target as f64 / judged as f64),
        }
    }

    fn handle_ended(&mut self, ended: &Ended) {
        self.last = None;
        let single = ended.target.filter(|target| !target.is_mean);
        let is_over = single.is_some_and(|target| ended.took_ns > target.ns);
        let is_judged = single.is_some() && (is_over || !ended.is_cancelled);
        self.target_ns = ended
            .target
            .map_or(self.target_ns, |target| Some(target.ns));
        self.judged += u64::from(is_judged);
        self.over_target += u64::from(is_over);
        let slice = slice_at(&mut self.slices, ended.at_ns);
        slice.judged += u64::from(is_judged);
        slice.over_target += u64::from(is_over);
        if ended.is_cancelled {
            return;
        }
        // A histogram grows with its largest time.
        slice.took_us.record(took_us(ended.took_ns)).unwrap_or(());
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ended.took_ns);
        let place = BUCKETS_NS.partition_point(|le_ns| *le_ns < ended.took_ns);
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += 1;
        }
    }
}

impl Slice {
    fn is_over(&self, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.began_ns);
        age_ns >= SLICE_NS * SLICES as u64
    }
}

/// The slice of that time; reuses the oldest if all are taken.
fn slice_at(slices: &mut VecDeque<Slice>, at_ns: u64) -> &mut Slice {
    let is_within = |slice: &Slice| at_ns < slice.began_ns.saturating_add(SLICE_NS);
    if !slices.back().is_some_and(is_within) {
        let spent = slices.front().is_some_and(|slice| slice.is_over(at_ns));
        let mut slice = match slices.pop_front_if(|_| spent) {
            Some(slice) => slice,
            None => Slice {
                began_ns: 0,
                took_us: new_histogram(),
                judged: 0,
                over_target: 0,
            },
        };
        slice.began_ns = at_ns - at_ns % SLICE_NS;
        slice.took_us.clear();
        (slice.judged, slice.over_target) = (0, 0);
        slices.push_back(slice);
    }
    let last = slices.len() - 1;
    &mut slices[last]
}

/// Cap in the quantiles: clients report arrivals, and a histogram of an hour takes 13 KiB.
const TOOK_NS_MAX: u64 = 3_600_000_000_000;

fn took_us(took_ns: u64) -> u64 {
    took_ns.min(TOOK_NS_MAX) / 1_000
}

fn new_histogram() -> Histogram<u32> {
    Histogram::new(DIGITS).expect("two digits are a precision that it has")
}

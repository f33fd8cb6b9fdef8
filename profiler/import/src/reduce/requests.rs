//! Requests: batches or iterations, their launches in order, and solo durations. Two rules:
//! - *range*: a range that the program named holds a request's launches: those called while it was
//!   open. Where ranges of that name overlap (several threads serve), the thread counts too. A name
//!   that ends in `*` is a prefix: PyTorch numbers its steps, `ProfilerStep#6`.
//! - *gaps*: the GPU is idle longer between requests than within them. The sorted idle times split
//!   into short and long ones at the greatest ratio of neighbours, which must be [`GAP_STEP_MIN`]
//!   or more, the long ones [`GAP_NS_MIN`] or more, and the requests between them alike:
//!   [`ALIKE_MIN_PCT`] of them, the first and the last excluded, must launch equally many kernels.
//!   Otherwise the profile has no requests.

use std::collections::HashMap;

use profiler::profile::{Durations, RequestRule, Requests};

use crate::error::Error;
use crate::source::{Launch, Range, Source};

const TORCH_STEPS: &str = "ProfilerStep#*";

const GAP_STEP_MIN: f64 = 3.0;

/// The shortest gap between requests, ns: launches of one request are often this far apart.
const GAP_NS_MIN: u64 = 20_000;

const ALIKE_MIN_PCT: usize = 60;

const REQUESTS_MIN: usize = 3;

const ORDER_RUNS_MAX: usize = 1 << 16;

const NAMES_MAX: usize = 5;

#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) kernel: u32,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    request: Option<u32>,
}

impl Timed {
    pub(super) fn of(launch: &Launch, kernel: u32) -> Option<Self> {
        let start_ns = launch.start_ns?;
        let duration_ns = i64::try_from(launch.duration_ns?).ok()?;
        Some(Self {
            kernel,
            start_ns,
            end_ns: start_ns.saturating_add(duration_ns),
            request: None,
        })
    }
}

/// The requests of `source`; `launches` are those on the GPU with times, by their indices in it.
/// # Errors
/// [`Error::NoSuchRange`] if `asked` names a range that the source does not have.
pub(super) fn requests(
    source: &Source,
    mut launches: Vec<(usize, Timed)>,
    asked: Option<&str>,
) -> Result<Option<Requests>, Error> {
    let has_steps = source
        .range_names
        .iter()
        .any(|name| is_named(name, TORCH_STEPS));
    let name = asked.or(has_steps.then_some(TORCH_STEPS));
    let rule = match name {
        Some(name) => {
            let ranges = ranges_of(source, name)?;
            assign_ranges(source, &ranges, &mut launches);
            RequestRule::Range(name.to_owned())
        }
        None => {
            launches.sort_by_key(|(_, launch)| launch.start_ns);
            let Some(gap_ns) = gap(&launches) else {
                return Ok(None);
            };
            assign_gaps(gap_ns, &mut launches);
            RequestRule::Gap(gap_ns)
        }
    };
    let found = summed(&launches, rule);
    if name.is_none() && !found.as_ref().is_some_and(|(_, is_alike)| *is_alike) {
        return Ok(None);
    }
    Ok(found.map(|(requests, _)| requests))
}

fn is_named(name: &str, asked: &str) -> bool {
    match asked.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == asked,
    }
}

fn ranges_of(source: &Source, name: &str) -> Result<Vec<Range>, Error> {
    let is_meant = |range: &&Range| {
        let found = source.range_names.get(range.name as usize);
        found.is_some_and(|found| is_named(found, name))
    };
    let mut ranges: Vec<Range> = source.ranges.iter().filter(is_meant).copied().collect();
    ranges.sort_by_key(|range| range.start_ns);
    if ranges.is_empty() {
        return Err(Error::NoSuchRange {
            asked: name.to_owned(),
            label: source.label.clone(),
            names: usual_names(source),
        });
    }
    Ok(ranges)
}

fn usual_names(source: &Source) -> Vec<String> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for range in &source.ranges {
        *counts.entry(range.name).or_default() += 1;
    }
    let mut counts: Vec<(u32, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    let names = counts.iter().take(NAMES_MAX);
    names
        .filter_map(|&(name, _)| source.range_names.get(name as usize).cloned())
        .collect()
}

fn assign_ranges(source: &Source, ranges: &[Range], launches: &mut [(usize, Timed)]) {
    let overlap = ranges.is_sorted_by(|a, b| a.end_ns <= b.start_ns);
    let by_time_alone = overlap;
    for (index, launch) in launches {
        let call = source.launches.get(*index).and_then(|launch| launch.call);
        let Some(call) = call else {
            continue;
        };
        // The last that began before the call, or, if they overlap, the last that holds it.
        let begun = ranges.partition_point(|range| range.start_ns <= call.at_ns);
        let mut before = ranges.iter().enumerate().take(begun).rev();
        let holds = |range: &Range| call.at_ns <= range.end_ns;
        let found = if by_time_alone {
            before.next().filter(|(_, range)| holds(range))
        } else {
            const BACK_MAX: usize = 256;
            before
                .take(BACK_MAX)
                .find(|(_, range)| range.thread == call.thread && holds(range))
        };
        launch.request = found.and_then(|(request, _)| u32::try_from(request).ok());
    }
}

/// The shortest of the long gaps; `None` if gaps do not split into short and long ones.
fn gap(launches: &[(usize, Timed)]) -> Option<u64> {
    let mut gaps: Vec<u64> = gaps(launches)
        .map(|(_, gap)| gap)
        .filter(|&gap| gap > 0)
        .collect();
    gaps.sort_unstable();
    let steps = gaps.windows(2).filter_map(|pair| {
        let &[short, long] = pair else { return None };
        (long >= GAP_NS_MIN).then(|| (long as f64 / short as f64, long))
    });
    let (step, long) = steps.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (step >= GAP_STEP_MIN).then_some(long)
}

/// For each launch but the first: its place, and the idle time of the GPU before it.
fn gaps(launches: &[(usize, Timed)]) -> impl Iterator<Item = (usize, u64)> {
    let mut busy_until = launches.first().map_or(0, |(_, launch)| launch.end_ns);
    launches
        .iter()
        .enumerate()
        .skip(1)
        .map(move |(place, (_, launch))| {
            let gap = launch.start_ns.saturating_sub(busy_until);
            busy_until = busy_until.max(launch.end_ns);
            (place, u64::try_from(gap).unwrap_or(0))
        })
}

fn assign_gaps(gap_ns: u64, launches: &mut [(usize, Timed)]) {
    let begins: Vec<usize> = gaps(launches)
        .filter(|&(_, gap)| gap >= gap_ns)
        .map(|(place, _)| place)
        .collect();
    for (place, (_, launch)) in launches.iter_mut().enumerate() {
        let request = begins.partition_point(|&begin| begin <= place);
        launch.request = u32::try_from(request).ok();
    }
}

#[derive(Default)]
struct Request {
    kernels: Vec<u32>,
    start_ns: i64,
    end_ns: i64,
}

fn summed(launches: &[(usize, Timed)], rule: RequestRule) -> Option<(Requests, bool)> {
    let mut requests: Vec<Request> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut sorted: Vec<&Timed> = launches.iter().map(|(_, launch)| launch).collect();
    sorted.sort_by_key(|launch| launch.start_ns);
    for launch in sorted {
        let Some(request) = launch.request else {
            continue;
        };
        let place = *places.entry(request).or_insert(requests.len());
        if place == requests.len() {
            requests.push(Request {
                kernels: Vec::new(),
                start_ns: launch.start_ns,
                end_ns: launch.end_ns,
            });
        }
        if let Some(request) = requests.get_mut(place) {
            request.kernels.push(launch.kernel);
            request.end_ns = request.end_ns.max(launch.end_ns);
        }
    }
    let mut latencies: Vec<u64> = requests
        .iter()
        .map(|request| {
            request
                .end_ns
                .saturating_sub(request.start_ns)
                .max(1)
                .cast_unsigned()
        })
        .collect();
    let latency = Durations::of_samples(&mut latencies)?;
    let mut orders: HashMap<&[u32], u64> = HashMap::new();
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for request in &requests {
        *orders.entry(&request.kernels).or_default() += 1;
    }
    // A capture begins and ends anywhere, so the first and the last may be truncated.
    let inner = requests
        .get(1..requests.len().saturating_sub(1))
        .unwrap_or(&[]);
    for request in inner {
        *lengths.entry(request.kernels.len()).or_default() += 1;
    }
    let alike = lengths.values().copied().max().unwrap_or(0);
    let is_alike = requests.len() >= REQUESTS_MIN && alike * 100 >= inner.len() * ALIKE_MIN_PCT;
    let usual = requests
        .iter()
        .rev()
        .max_by_key(|request| orders.get(request.kernels.as_slice()))?;
    let order = runs(&usual.kernels);
    Some((
        Requests {
            rule,
            count: requests.len() as u64,
            latency,
            same_order: orders.get(usual.kernels.as_slice()).copied().unwrap_or(0),
            order: if order.len() > ORDER_RUNS_MAX {
                Vec::new()
            } else {
                order
            },
        },
        is_alike,
    ))
}

fn runs(kernels: &[u32]) -> Vec<(u32, u32)> {
    kernels
        .chunk_by(|a, b| a == b)
        .filter_map(|run| Some((*run.first()?, u32::try_from(run.len()).ok()?)))
        .collect()
}

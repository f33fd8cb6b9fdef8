//! Joins the launches of all sources by kernel and shape.

use std::collections::HashMap;
use std::sync::Arc;

use profiler::{KernelProfile, Operator};

use super::choose::Choice;
use crate::detect::Format;
use crate::source::{Counters, Kernel, Source, Summary, Work};

pub(super) struct Group<'a> {
    /// The kernel, as its first source describes it.
    pub(super) kernel: &'a Kernel,
    /// The kernel as the source with counters describes it, if different.
    pub(super) counted: Option<&'a Kernel>,
    pub(super) durations_ns: Vec<u64>,
    pub(super) summaries: Vec<Summary>,
    pub(super) counters: Vec<&'a Counters>,
    pub(super) known: Option<&'a KernelProfile>,
    pub(super) work: Option<&'a Work>,
}

pub(super) struct Grouped<'a> {
    /// In the order of their first launch in the sources, best source first.
    pub(super) groups: Vec<Group<'a>>,
    /// For each source, best first: its index, and the group of each of its kernels.
    pub(super) places: Vec<(usize, Vec<Option<usize>>)>,
}

/// The identity of launches in a profile: name, grid, block, dynamic shared memory and operator.
type Key = (
    Arc<str>,
    Option<[u32; 3]>,
    Option<[u32; 3]>,
    u32,
    Option<Arc<Operator>>,
);

const NAMED_MAX: usize = 3;

/// A source's disturbance of its measurements; the least gives the durations.
fn rank(format: &Format) -> u32 {
    match format {
        Format::NsysSqlite => 0,
        Format::Json => 1,
        Format::NsysStats => 2,
        Format::NcuReport | Format::NcuCsv => 4,
        _ => 3,
    }
}

/// Dynamic shared memory as requested at launch; if only the sum with the static is known, that.
pub(super) fn shared_bytes(kernel: &Kernel) -> u32 {
    let shared = &kernel.shared;
    shared.dynamic_bytes.or(shared.both_bytes).unwrap_or(0)
}

fn key_of(kernel: &Kernel) -> Key {
    let name = Arc::clone(&kernel.names.shown);
    let operator = kernel.operator.clone();
    let shared_bytes = shared_bytes(kernel);
    (name, kernel.grid, kernel.block, shared_bytes, operator)
}

pub(super) fn group<'a>(
    sources: &'a [Source],
    choice: &Choice,
    notices: &mut Vec<String>,
) -> Grouped<'a> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|&index| sources.get(index).map(|source| rank(&source.format)));
    let mut groups = Groups::default();
    let mut best = None;
    let mut all_places = Vec::new();
    for index in order {
        let Some(source) = sources.get(index) else {
            continue;
        };
        let rank = rank(&source.format);
        let is_best = *best.get_or_insert(rank) == rank;
        let (apart, places) = groups.add(source, index, is_best, choice);
        all_places.push((index, places));
        if !apart.is_empty() {
            notices.push(not_joined(source, &apart));
        }
    }
    groups.share_counters();
    Grouped {
        groups: groups.groups,
        places: all_places,
    }
}

fn not_joined(source: &Source, apart: &[&Kernel]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for kernel in apart {
        if !names.contains(&&*kernel.names.base) {
            names.push(&kernel.names.base);
        }
    }
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "{}: {} of its kernels and shapes match none of the other files: {}{more}",
        source.label,
        apart.len(),
        names.join(", "),
    )
}

#[derive(Default)]
struct Groups<'a> {
    groups: Vec<Group<'a>>,
    by_key: HashMap<Key, usize>,
    by_mangled: HashMap<ShapeKey<'a>, Vec<usize>>,
    by_base: HashMap<ShapeKey<'a>, Vec<usize>>,
}

type ShapeKey<'a> = (&'a str, Option<[u32; 3]>, Option<[u32; 3]>);

impl<'a> Groups<'a> {
    /// Adds a source. Returns the kernels that join nothing, and each launched kernel's group.
    fn add(
        &mut self,
        source: &'a Source,
        index: usize,
        is_best: bool,
        choice: &Choice,
    ) -> (Vec<&'a Kernel>, Vec<Option<usize>>) {
        let known = self.groups.len();
        let mut places: Vec<Option<usize>> = vec![None; source.kernels.len()];
        let mut apart = Vec::new();
        let mut place = |groups: &mut Self, kernel: u32| {
            let slot = places.get_mut(kernel as usize)?;
            if slot.is_none() {
                let kernel = source.kernels.get(kernel as usize)?;
                let found = groups.find(kernel, is_best);
                let is_new = found.is_none();
                *slot = Some(found.unwrap_or_else(|| groups.push(kernel)));
                if is_new && !is_best {
                    apart.push(kernel);
                }
            }
            *slot
        };
        for launch in &source.launches {
            if !choice.takes(index, launch) {
                continue;
            }
            let Some(place) = place(self, launch.kernel) else {
                continue;
            };
            let Some(group) = self.groups.get_mut(place) else {
                continue;
            };
            if is_best || place >= known {
                group.durations_ns.extend(launch.duration_ns);
            }
            if let Some(counters) = &launch.counters {
                group.counters.push(counters);
                group.counted = source.kernels.get(launch.kernel as usize);
            }
            group.work = group.work.or(launch.work.as_deref());
        }
        for summary in &source.summaries {
            let Some(place) = place(self, summary.kernel) else {
                continue;
            };
            let Some(group) = self.groups.get_mut(place) else {
                continue;
            };
            if is_best || place >= known {
                group.summaries.push(*summary);
            }
            group.known = group.known.or(source.known.get(&summary.kernel));
        }
        (apart, places)
    }

    /// The group of `kernel`. In the best kind of source names are equal; in others not.
    fn find(&self, kernel: &'a Kernel, is_best: bool) -> Option<usize> {
        let exact = self.by_key.get(&key_of(kernel)).copied();
        if is_best || exact.is_some() {
            return exact;
        }
        let shape = (kernel.grid, kernel.block);
        let only = |found: Option<&Vec<usize>>| self.one_of(found?);
        let mangled = kernel.names.mangled.as_deref();
        let mangled = mangled.and_then(|name| only(self.by_mangled.get(&(name, shape.0, shape.1))));
        mangled.or_else(|| only(self.by_base.get(&(&*kernel.names.base, shape.0, shape.1))))
    }

    /// The only place, or the first of several operators' ([`Groups::share_counters`]).
    fn one_of(&self, places: &[usize]) -> Option<usize> {
        let (first, rest) = places.split_first()?;
        let apart_from_operator = |place: &usize| {
            let (name, grid, block, shared_bytes, _) = key_of(self.groups.get(*place)?.kernel);
            Some((name, grid, block, shared_bytes))
        };
        let is_alike = |place| apart_from_operator(place) == apart_from_operator(first);
        rest.iter().all(is_alike).then_some(*first)
    }

    /// Shares counters between operators, as counting tools know none: they hold in all of them.
    fn share_counters(&mut self) {
        for places in self.by_base.values() {
            let counted = places.iter().filter_map(|&place| self.groups.get(place));
            let Some((counters, counted)) = counted
                .filter(|group| !group.counters.is_empty())
                .map(|group| (group.counters.clone(), group.counted))
                .next()
            else {
                continue;
            };
            if self.one_of(places).is_none() {
                continue;
            }
            for &place in places {
                if let Some(group) = self.groups.get_mut(place)
                    && group.counters.is_empty()
                {
                    group.counters.clone_from(&counters);
                    group.counted = counted;
                }
            }
        }
    }

    fn push(&mut self, kernel: &'a Kernel) -> usize {
        let place = self.groups.len();
        self.groups.push(Group {
            kernel,
            counted: None,
            durations_ns: Vec::new(),
            summaries: Vec::new(),
            counters: Vec::new(),
            known: None,
            work: None,
        });
        self.by_key.insert(key_of(kernel), place);
        let shape = (kernel.grid, kernel.block);
        let base: &'a str = &kernel.names.base;
        let in_base = self.by_base.entry((base, shape.0, shape.1)).or_default();
        in_base.push(place);
        if let Some(mangled) = kernel.names.mangled.as_deref() {
            let in_mangled = self.by_mangled.entry((mangled, shape.0, shape.1));
            in_mangled.or_default().push(place);
        }
        place
    }
}

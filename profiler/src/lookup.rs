//! Look-up of a launch in a profile. The library looks up every launch, so a look-up neither
//! allocates nor locks: two binary searches, one by name once per kernel
//! ([`ProfileIndex::name_id`]) and one by shape at each launch ([`ProfileIndex::find_shape`]).
//!
//! The driver knows a kernel by its mangled name. A profile has that where a source stated it, and
//! otherwise perhaps only the display name; a launch is then found by the base name of the two
//! ([`crate::base_name`]), among the profile's kernels without a mangled name. Before that,
//! [`ProfileIndex::find_in_any_spelling`] compares whole names in one spelling ([`crate::names`]),
//! which distinguishes template instances; it allocates, so it runs once per shape. A launch whose
//! exact shape was never measured is judged by its nearest relative. The order:
//! 1. [`Match::Exact`]: same name, grid, block and shared memory.
//! 2. [`Match::WithoutShared`]: same name, grid and block.
//! 3. [`Match::NameOnly`]: same name.
//! 4. [`Match::Unknown`]: nothing; the caller has its own rule for unknown kernels.
//!
//! A launch in an operator (a call of cuBLAS or cuDNN, [`Operator`]) is looked up among the
//! profile's kernels in that operator ([`ProfileIndex::find_launch`]); if none matches as well as
//! one found without it, by the kernel alone. For an operator with unknown kernels there is
//! [`ProfileIndex::of_operator`]. Of equally good matches the one with the largest p95 is taken:
//! too much costs best-effort work a little, too little costs high-priority latency.

use std::cmp::Reverse;

use crate::ResourceClass;
use crate::base_name::base;
use crate::names;
use crate::profile::{KernelProfile, Operator, Profile};

/// The quality of a match, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    /// Name, grid, block and shared memory are the same.
    Exact,
    /// Name, grid and block are the same; of several, the longest.
    WithoutShared,
    /// The name is the same; of several, the longest.
    NameOnly,
    /// The profile does not have the name.
    Unknown,
}

/// The result of [`ProfileIndex::find_launch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The kernel; present unless the match is [`Match::Unknown`].
    pub kernel: Option<&'a KernelProfile>,
    /// The match's quality.
    pub quality: Match,
    /// Whether it was found by its operator.
    pub is_in_operator: bool,
}

/// A profile's knowledge of an operator as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfOperator {
    /// The class of its longest kernel.
    pub class: ResourceClass,
    /// The greatest SM need of its kernels.
    pub sm_needed: u32,
    /// The sum of its kernels' p95, ns; the longest alone where calls' sizes are not stated.
    pub expected_ns: u64,
}

/// A name in a particular [`ProfileIndex`]. Keep it with the kernel, not across indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameId {
    group: u32,
    is_base: bool,
}

/// A profile, ordered for look-up.
#[derive(Clone, Debug)]
pub struct ProfileIndex {
    profile: Profile,
    /// All kernels, by their driver name, where the profile knows it.
    named: Groups,
    /// Kernels without a known driver name, by base name.
    based: Groups,
    /// Their names in canonical spelling, sorted, with their positions in `named.names`.
    spellings: Vec<(String, u32)>,
    has_operators: bool,
}

#[derive(Clone, Debug)]
struct Groups {
    names: Vec<NameGroup>,
    /// Positions in `profile.kernels` by (name, grid, block, p95, shared memory): longest last.
    order: Vec<u32>,
}

/// The kernels of one name: `order[first..end]`, never empty.
#[derive(Clone, Copy, Debug)]
struct NameGroup {
    first: u32,
    end: u32,
    /// Position in `profile.kernels` of the one with the largest p95.
    longest: u32,
}

fn driver_name(kernel: &KernelProfile) -> &str {
    kernel.mangled.as_deref().unwrap_or(&kernel.name)
}

fn base_name(kernel: &KernelProfile) -> &str {
    base(&kernel.name)
}

/// Whether the profile has only a display name: one with brackets, spaces or colons.
fn is_demangled(kernel: &KernelProfile) -> bool {
    kernel.mangled.is_none() && kernel.name.contains(['(', '<', ' ', ':'])
}

impl Groups {
    fn new(
        kernels: &[KernelProfile],
        has: fn(&KernelProfile) -> bool,
        name: fn(&KernelProfile) -> &str,
    ) -> Self {
        let count = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
        let of = |index: u32| &kernels[index as usize];
        let mut order: Vec<u32> = (0..count).filter(|&index| has(of(index))).collect();
        order.sort_by(|&a, &b| {
            let key = |kernel: &'_ KernelProfile| {
                let p95_ns = kernel.durations.p95_ns;
                (kernel.grid, kernel.block, p95_ns, kernel.shared_bytes)
            };
            let (a, b) = (of(a), of(b));
            name(a).cmp(name(b)).then_with(|| key(a).cmp(&key(b)))
        });
        let mut names = Vec::new();
        let mut first = 0;
        for group in order.chunk_by(|&a, &b| name(of(a)) == name(of(b))) {
            // As many as `order` has, which 32 bits hold.
            let end = first + group.len() as u32;
            let p95_ns = |&index: &u32| of(index).durations.p95_ns;
            if let Some(longest) = group.iter().copied().max_by_key(p95_ns) {
                names.push(NameGroup {
                    first,
                    end,
                    longest,
                });
            }
            first = end;
        }
        Self { names, order }
    }

    fn find(
        &self,
        kernels: &[KernelProfile],
        wanted: &str,
        name: fn(&KernelProfile) -> &str,
    ) -> Option<u32> {
        let found = self.names.binary_search_by(|group| {
            let kernel = kernels.get(group.longest as usize);
            kernel.map_or("", name).cmp(wanted)
        });
        found.ok().and_then(|index| u32::try_from(index).ok())
    }
}

impl ProfileIndex {
    /// Orders `profile` for look-up. Kernels beyond the first 2³² are not found.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let named = Groups::new(&profile.kernels, |_| true, driver_name);
        let based = Groups::new(&profile.kernels, is_demangled, base_name);
        let spellings = spelt(&profile.kernels, &named);
        let mut kernels = profile.kernels.iter();
        let has_operators = kernels.any(|kernel| kernel.operator.is_some());
        Self {
            profile,
            named,
            based,
            spellings,
            has_operators,
        }
    }

    /// Whether any kernel states its operator: otherwise operators make no difference.
    #[must_use]
    pub const fn has_operators(&self) -> bool {
        self.has_operators
    }

    /// The profile it was made from.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The best match for a launch, and its quality; `None` for [`Match::Unknown`].
    #[must_use]
    pub fn find(
        &self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> (Option<&KernelProfile>, Match) {
        self.find_shape(self.name_id(name), grid, block, shared_bytes)
    }

    /// The best match for a launch of a kernel that the profile may spell differently: by the name
    /// as it is, then by the whole name in one spelling, then as [`ProfileIndex::find`]. Allocates.
    #[must_use]
    pub fn find_in_any_spelling(
        &self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> (Option<&KernelProfile>, Match) {
        let ids = self.ids_in_any_spelling(name).into_iter();
        ids.map(|id| self.find_shape(Some(id), grid, block, shared_bytes))
            .min_by_key(|(kernel, quality)| (*quality, Reverse(p95_ns(*kernel))))
            .unwrap_or((None, Match::Unknown))
    }

    /// The best match for a launch, possibly in an operator, of a kernel that the profile may spell
    /// differently: among kernels in operators that cover this one, most stated first; else, or if
    /// less good than the best of all, by [`ProfileIndex::find_in_any_spelling`]. Allocates.
    #[must_use]
    pub fn find_launch(
        &self,
        operator: Option<&Operator>,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> Found<'_> {
        let (kernel, quality) = self.find_in_any_spelling(name, grid, block, shared_bytes);
        let alone = Found {
            kernel,
            quality,
            is_in_operator: false,
        };
        let Some(operator) = operator.filter(|_| self.has_operators) else {
            return alone;
        };
        let quality_of = |kernel: &KernelProfile| {
            if (kernel.grid, kernel.block) != (grid, block) {
                Match::NameOnly
            } else if kernel.shared_bytes == shared_bytes {
                Match::Exact
            } else {
                Match::WithoutShared
            }
        };
        let best = self
            .ids_in_any_spelling(name)
            .into_iter()
            .flat_map(|id| self.kernels_of(id))
            .filter(|kernel| covered(kernel, operator))
            .map(|kernel| (quality_of(kernel), kernel))
            .min_by_key(|&(quality, kernel)| {
                let p95_ns = kernel.durations.p95_ns;
                (quality, Reverse(stated(kernel)), Reverse(p95_ns))
            });
        match best {
            Some((quality, kernel)) if quality <= alone.quality => Found {
                kernel: Some(kernel),
                quality,
                is_in_operator: true,
            },
            _ => alone,
        }
    }

    /// The profile's knowledge of an operator with unknown kernels, from those in operators that
    /// cover this one and state most, if any. With stated sizes they belong to one call, which
    /// takes as long as all. Without, they belong to every call of that name (a network's plans of
    /// `cudnnBackendExecute`, say), unknown which one launches which: the longest is assumed.
    #[must_use]
    pub fn of_operator(&self, operator: &Operator) -> Option<OfOperator> {
        let covered = || {
            self.profile
                .kernels
                .iter()
                .filter(|kernel| covered(kernel, operator))
        };
        let most = covered().map(stated).max()?;
        let mut kernels: Vec<_> = covered().filter(|kernel| stated(kernel) == most).collect();
        // Of a kernel launched in several shapes, the longest.
        kernels.sort_by_key(|kernel| (driver_name(kernel), Reverse(kernel.durations.p95_ns)));
        kernels.dedup_by_key(|kernel| driver_name(kernel));
        let longest = kernels
            .iter()
            .max_by_key(|kernel| kernel.durations.p95_ns)?;
        Some(OfOperator {
            class: longest.class,
            sm_needed: kernels.iter().map(|kernel| kernel.sm_needed).max()?,
            expected_ns: if has_sizes(longest) {
                kernels
                    .iter()
                    .fold(0, |sum, kernel| kernel.durations.p95_ns.saturating_add(sum))
            } else {
                longest.durations.p95_ns
            },
        })
    }

    fn ids_in_any_spelling(&self, name: &str) -> Vec<NameId> {
        let kernels = &self.profile.kernels;
        if self.named.find(kernels, name, driver_name).is_none() {
            let spelling = names::canonical(name);
            let ids: Vec<NameId> = ids_of(&self.spellings, &spelling).collect();
            if !ids.is_empty() {
                return ids;
            }
        }
        self.name_id(name).into_iter().collect()
    }

    fn kernels_of(&self, name: NameId) -> impl Iterator<Item = &KernelProfile> {
        let groups = if name.is_base {
            &self.based
        } else {
            &self.named
        };
        let group = groups.names.get(name.group as usize);
        let range = group.map_or(0..0, |group| group.first as usize..group.end as usize);
        let order = groups.order.get(range).unwrap_or(&[]);
        order
            .iter()
            .filter_map(|&index| self.profile.kernels.get(index as usize))
    }

    /// The first half of [`ProfileIndex::find`]: the name, if the profile has it.
    #[must_use]
    pub fn name_id(&self, name: &str) -> Option<NameId> {
        let kernels = &self.profile.kernels;
        if let Some(group) = self.named.find(kernels, name, driver_name) {
            let is_base = false;
            return Some(NameId { group, is_base });
        }
        // A plain name lacks nothing; it would have been found.
        let mangled = name.starts_with("_Z").then_some(name)?;
        let group = self.based.find(kernels, base(mangled), base_name)?;
        let is_base = true;
        Some(NameId { group, is_base })
    }

    /// The second half of [`ProfileIndex::find`]: the launch shape among the kernels of a name.
    #[must_use]
    pub fn find_shape(
        &self,
        name: Option<NameId>,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> (Option<&KernelProfile>, Match) {
        let groups = match name {
            Some(NameId { is_base: true, .. }) => &self.based,
            _ => &self.named,
        };
        let Some(group) = name.and_then(|name| groups.names.get(name.group as usize)) else {
            return (None, Match::Unknown);
        };
        let group_order = groups
            .order
            .get(group.first as usize..group.end as usize)
            .unwrap_or(&[]);
        let shape = |&index: &u32| {
            self.profile
                .kernels
                .get(index as usize)
                .map(|kernel| (kernel.grid, kernel.block))
        };
        let wanted = Some((grid, block));
        let start = group_order.partition_point(|index| shape(index) < wanted);
        let same_shape = group_order.get(start..).unwrap_or(&[]);
        let end = same_shape.partition_point(|index| shape(index) <= wanted);
        let same_shape = same_shape.get(..end).unwrap_or(&[]);
        let kernel = |&index: &u32| self.profile.kernels.get(index as usize);
        let mut kernels = same_shape.iter().filter_map(kernel);
        // The last is the longest; an exact one is seldom among more than two or three.
        if let Some(exact) = kernels
            .clone()
            .rfind(|kernel| kernel.shared_bytes == shared_bytes)
        {
            return (Some(exact), Match::Exact);
        }
        match kernels.next_back() {
            Some(longest) => (Some(longest), Match::WithoutShared),
            None => match kernel(&group.longest) {
                Some(longest) => (Some(longest), Match::NameOnly),
                None => (None, Match::Unknown),
            },
        }
    }
}

fn has_sizes(kernel: &KernelProfile) -> bool {
    let stated = kernel.operator.as_ref();
    stated.is_some_and(|stated| !stated.sizes.is_empty())
}

fn covered(kernel: &KernelProfile, operator: &Operator) -> bool {
    let stated = kernel.operator.as_ref();
    stated.is_some_and(|stated| stated.covers(operator))
}

fn stated(kernel: &KernelProfile) -> usize {
    kernel.operator.as_ref().map_or(0, Operator::stated)
}

fn p95_ns(kernel: Option<&KernelProfile>) -> u64 {
    kernel.map_or(0, |kernel| kernel.durations.p95_ns)
}

fn spelt(kernels: &[KernelProfile], named: &Groups) -> Vec<(String, u32)> {
    let mut spellings = Vec::new();
    for (position, group) in (0..).zip(&named.names) {
        let kernel = kernels.get(group.longest as usize);
        if let Some(kernel) = kernel.filter(|kernel| is_demangled(kernel)) {
            spellings.push((names::canonical(&kernel.name), position));
        }
    }
    spellings.sort_unstable();
    spellings
}

fn ids_of<'a>(spellings: &'a [(String, u32)], wanted: &'a str) -> impl Iterator<Item = NameId> {
    let first = spellings.partition_point(|(spelling, _)| spelling.as_str() < wanted);
    spellings
        .get(first..)
        .unwrap_or(&[])
        .iter()
        .take_while(move |(spelling, _)| spelling == wanted)
        .map(|&(_, group)| NameId {
            group,
            is_base: false,
        })
}

#[cfg(test)]
mod tests;

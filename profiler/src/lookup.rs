//! Look-up of a launch in a profile.
//!
//! The library asks at every launch, so a look-up neither allocates nor locks: two binary
//! searches, of which the one by name can be done once per kernel ([`ProfileIndex::name_id`]) and
//! only the one by shape at each launch ([`ProfileIndex::find_shape`]).
//!
//! A launch whose exact shape was never measured is judged by its nearest relative. The order:
//!
//! 1. [`Match::Exact`]: same name, grid, block and shared memory.
//! 2. [`Match::WithoutShared`]: same name, grid and block.
//! 3. [`Match::NameOnly`]: same name.
//! 4. [`Match::Unknown`]: nothing; the caller has its own rule for unknown kernels.
//!
//! Where several kernels match equally well, the one with the largest p95 is taken: to expect too
//! much costs best-effort work a little, to expect too little costs the high-priority job latency.

use crate::profile::{KernelProfile, Profile};

/// How well a look-up matched, best first.
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

/// A name that a particular [`ProfileIndex`] has. Keep it with the kernel, not across indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameId(u32);

/// A profile, ordered for look-up.
#[derive(Clone, Debug)]
pub struct ProfileIndex {
    profile: Profile,
    /// Kernels of one name, sorted by name.
    names: Vec<NameGroup>,
    /// Positions in `profile.kernels` sorted by (name, grid, block, p95, shared memory): kernels
    /// that differ in shared memory only are neighbours, and the last of them is the longest.
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

impl ProfileIndex {
    /// Orders `profile` for look-up. Kernels beyond the first 2³² are not found.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let kernels = &profile.kernels;
        let count = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by(|&a, &b| {
            let key = |index: u32| {
                let kernel = &kernels[index as usize];
                let p95_ns = kernel.durations.p95_ns;
                (
                    &kernel.name,
                    kernel.grid,
                    kernel.block,
                    p95_ns,
                    kernel.shared_bytes,
                )
            };
            key(a).cmp(&key(b))
        });
        let mut names = Vec::new();
        let mut first = 0;
        for group in order.chunk_by(|&a, &b| kernels[a as usize].name == kernels[b as usize].name) {
            // As many as `order` has, which 32 bits hold.
            let end = first + group.len() as u32;
            let p95_ns = |&index: &u32| kernels[index as usize].durations.p95_ns;
            if let Some(longest) = group.iter().copied().max_by_key(p95_ns) {
                names.push(NameGroup {
                    first,
                    end,
                    longest,
                });
            }
            first = end;
        }
        Self {
            profile,
            names,
            order,
        }
    }

    /// The profile it was made from.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The best match for a launch, and how good it is; the kernel is there unless the match is
    /// [`Match::Unknown`].
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

    /// The first half of [`ProfileIndex::find`]: the name, if the profile has it.
    #[must_use]
    pub fn name_id(&self, name: &str) -> Option<NameId> {
        let found = self.names.binary_search_by(|group| {
            let kernel = self.profile.kernels.get(group.longest as usize);
            kernel.map_or("", |kernel| &kernel.name).cmp(name)
        });
        found
            .ok()
            .and_then(|index| u32::try_from(index).ok())
            .map(NameId)
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
        let Some(group) = name.and_then(|NameId(index)| self.names.get(index as usize)) else {
            return (None, Match::Unknown);
        };
        let group_order = self
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

#[cfg(test)]
mod tests;

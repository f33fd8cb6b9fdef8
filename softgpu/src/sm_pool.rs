//! The SMs: the free resources of each, and the placement of blocks. Every SM is counted
//! separately, because the rest of two half-full SMs does not make a whole one: two kernels whose
//! blocks take more than half of an SM's shared memory exclude each other, as Conv2d beside Conv2d
//! does in Orion's Table 2. Blocks spread over the SMs before they stack up, lowest SM first among
//! equals. A limited context has the last SMs of the device, as many as its limit, and shares them
//! with all. For speed only, neighbours with equal free resources are one *run*, and blocks are
//! placed run by run: there are seldom more than a handful. Tests compare it with counting SMs one
//! by one.

use core::ops::Range;

use crate::kernel::Footprint;
use devices::Device;

/// How many blocks went to each SM, from the first SM on.
pub(crate) type Placement = Vec<Placed>;

/// The same number of blocks on each of several neighbouring SMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    sms: u32,
    blocks: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct SmPool {
    empty: Sm,
    /// All SMs in order; neighbours differ.
    runs: Vec<Run>,
    sms_busy: u32,
    spare: Vec<Placement>,
    scratch: Vec<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    sms: u32,
    each: Sm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sm {
    threads: u32,
    registers: u32,
    shared_bytes: u32,
    slots: u32,
}

impl SmPool {
    pub(crate) fn new(device: &Device) -> Self {
        let empty = Sm {
            threads: device.threads_per_sm,
            registers: device.registers_per_sm,
            shared_bytes: device.shared_bytes_per_sm,
            slots: device.blocks_per_sm,
        };
        Self {
            empty,
            runs: vec![Run {
                sms: device.sms,
                each: empty,
            }],
            sms_busy: 0,
            spare: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(crate) fn sms_busy(&self) -> u32 {
        self.sms_busy
    }

    /// Places as many of `wanted` blocks as fit now on these SMs. `None` if no block fits.
    pub(crate) fn try_place(
        &mut self,
        footprint: &Footprint,
        wanted: u64,
        range: Range<u32>,
    ) -> Option<(u64, Placement)> {
        let mut placement = self.spare.pop().unwrap_or_default();
        placement.clear();
        let mut fit = 0;
        let mut at = 0;
        for run in &self.runs {
            let (from, to) = (at, at + run.sms);
            at = to;
            let [first, end] =
                [range.start, range.end.max(range.start)].map(|sm| sm.clamp(from, to));
            let parts = [
                (first - from, false),
                (end - first, true),
                (to - end, false),
            ];
            for (sms, is_in) in parts.into_iter().filter(|(sms, _)| *sms > 0) {
                let blocks = if is_in { run.each.fits(footprint) } else { 0 };
                fit += u64::from(sms) * u64::from(blocks);
                placement.push(Placed { sms, blocks });
            }
        }
        if fit == 0 || wanted == 0 {
            self.spare.push(placement);
            return None;
        }
        if fit > wanted {
            spread(&mut placement, wanted, self.empty.slots);
        }
        self.change(&placement, |sm, blocks| sm.take(footprint, blocks));
        Some((fit.min(wanted), placement))
    }

    pub(crate) fn release(&mut self, footprint: &Footprint, placement: Placement) {
        self.change(&placement, |sm, blocks| sm.give(footprint, blocks));
        self.spare.push(placement);
    }

    /// Applies the placement's change to each SM.
    fn change(&mut self, placement: &Placement, change: impl Fn(&mut Sm, u32)) {
        let mut changed = std::mem::take(&mut self.scratch);
        changed.clear();
        let mut placed = placement.iter().copied();
        // A fill or a copy has no placement.
        let mut here = placed.next().unwrap_or(Placed { sms: 0, blocks: 0 });
        let mut sms_busy = 0;
        for run in &self.runs {
            let mut left = run.sms;
            while left > 0 {
                if here.sms == 0 {
                    here = placed.next().unwrap_or(Placed {
                        sms: left,
                        blocks: 0,
                    });
                }
                let sms = left.min(here.sms);
                let mut each = run.each;
                change(&mut each, here.blocks);
                sms_busy += if each == self.empty { 0 } else { sms };
                match changed.last_mut() {
                    Some(last) if last.each == each => last.sms += sms,
                    _ => changed.push(Run { sms, each }),
                }
                left -= sms;
                here.sms -= sms;
            }
        }
        self.sms_busy = sms_busy;
        self.scratch = std::mem::replace(&mut self.runs, changed);
    }

    pub(crate) fn is_valid<'a>(
        &self,
        placements: impl Iterator<Item = (&'a Footprint, &'a Placement)>,
    ) -> bool {
        let count = self.runs.iter().map(|run| run.sms as usize).sum();
        let mut sms = vec![self.empty; count];
        for (footprint, placement) in placements {
            let each = placement.iter().flat_map(|p| (0..p.sms).map(|_| p.blocks));
            for (sm, blocks) in sms.iter_mut().zip(each) {
                if blocks > sm.fits(footprint) {
                    return false;
                }
                sm.take(footprint, blocks);
            }
        }
        let busy = sms.iter().filter(|&&sm| sm != self.empty).count();
        let runs = self.runs.iter();
        let mine = runs.flat_map(|run| (0..run.sms).map(|_| run.each));
        let neighbours_differ = self
            .runs
            .windows(2)
            .all(|pair| pair[0].each != pair[1].each);
        mine.eq(sms) && busy == self.sms_busy as usize && neighbours_differ
    }
}

/// A set of SMs: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SmSet([u64; Self::WORDS]);

impl SmSet {
    const WORDS: usize = 4;

    /// The SMs with at least one block. An SM beyond the 256th is in no set; no device has one.
    pub(crate) fn of(placement: &Placement) -> Self {
        let mut set = Self::default();
        let mut from = 0;
        for placed in placement {
            let to = from + placed.sms;
            if placed.blocks > 0 {
                for (index, word) in set.0.iter_mut().enumerate() {
                    let at = |sm: u32| sm.saturating_sub(64 * index as u32).min(64);
                    let below = |count: u32| u64::MAX.checked_shr(64 - count).unwrap_or(0);
                    *word |= below(at(to)) & !below(at(from));
                }
            }
            from = to;
        }
        set
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    pub(crate) fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

impl Sm {
    fn fits(&self, footprint: &Footprint) -> u32 {
        let of = |free: u32, each: u32| free.checked_div(each).unwrap_or(u32::MAX);
        self.slots
            .min(of(self.threads, footprint.threads))
            .min(of(self.registers, footprint.registers))
            .min(of(self.shared_bytes, footprint.shared_bytes))
    }

    fn take(&mut self, footprint: &Footprint, blocks: u32) {
        self.threads -= footprint.threads * blocks;
        self.registers -= footprint.registers * blocks;
        self.shared_bytes -= footprint.shared_bytes * blocks;
        self.slots -= blocks;
    }

    fn give(&mut self, footprint: &Footprint, blocks: u32) {
        self.threads += footprint.threads * blocks;
        self.registers += footprint.registers * blocks;
        self.shared_bytes += footprint.shared_bytes * blocks;
        self.slots += blocks;
    }
}

/// Turns what would fit on each SM into a placement of `wanted` blocks, fewer than fit: level by
/// level, with the incomplete level on the first SMs.
fn spread(fits: &mut Placement, wanted: u64, slots: u32) {
    let mut level = 0;
    let mut placed = 0;
    while level < slots {
        let above = fits.iter().filter(|fit| fit.blocks > level);
        let next: u64 = above.map(|fit| u64::from(fit.sms)).sum();
        if placed + next > wanted {
            break;
        }
        placed += next;
        level += 1;
    }
    let mut rest = wanted - placed;
    let mut cut = None;
    for (index, fit) in fits.iter_mut().enumerate() {
        let sms = if fit.blocks > level {
            rest.min(u64::from(fit.sms))
        } else {
            0
        };
        rest -= sms;
        let lower = fit.blocks.min(level);
        if sms == u64::from(fit.sms) {
            fit.blocks = lower + 1;
        } else {
            fit.blocks = lower;
            // Only where the rest ends does one run have SMs of both kinds.
            if sms > 0 {
                cut = Some((index, u32::try_from(sms).unwrap_or(fit.sms)));
            }
        }
    }
    if let Some((index, sms)) = cut {
        let blocks = fits[index].blocks + 1;
        fits[index].sms -= sms;
        fits.insert(index, Placed { sms, blocks });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool() -> SmPool {
        SmPool::new(&Device::by_name("V100-SXM2-16GB").unwrap())
    }

    const CONV: Footprint = Footprint {
        threads: 512,
        registers: 32_768,
        shared_bytes: 65_536,
    };
    const NORM: Footprint = Footprint {
        threads: 768,
        registers: 12_288,
        shared_bytes: 0,
    };

    #[test]
    fn blocks_that_take_more_than_half_an_sm_exclude_their_like() {
        let mut pool = pool();
        let (placed, _) = pool.try_place(&CONV, 1000, 0..80).unwrap();
        assert_eq!(placed, 80);
        assert!(pool.try_place(&CONV, 1, 0..80).is_none());
        assert_eq!(pool.try_place(&NORM, 1000, 0..80).unwrap().0, 160);
    }

    #[test]
    fn blocks_spread_before_they_stack() {
        let mut pool = pool();
        let (placed, placement) = pool.try_place(&NORM, 100, 0..80).unwrap();
        assert_eq!(placed, 100);
        let placed = |sms, blocks| Placed { sms, blocks };
        assert_eq!(placement, [placed(20, 2), placed(60, 1)]);
        assert_eq!(pool.sms_busy(), 80);
    }

    #[test]
    fn who_has_a_limit_has_the_last_sms() {
        let mut pool = pool();
        let (placed, limited) = pool.try_place(&CONV, 1000, 50..80).unwrap();
        assert_eq!((placed, pool.sms_busy()), (30, 30));
        assert!(pool.try_place(&CONV, 1, 50..80).is_none());
        let (placed, other) = pool.try_place(&CONV, 1000, 0..80).unwrap();
        assert_eq!((placed, pool.sms_busy()), (50, 80));
        let sets = [&limited, &other].map(SmSet::of);
        assert_eq!(sets.map(SmSet::count), [30, 50]);
        let mut all = sets[0];
        all.add(sets[1]);
        all.add(sets[0]);
        assert_eq!(all.count(), 80);
    }

    #[test]
    fn what_is_released_is_free_again() {
        let mut pool = pool();
        let (_, conv) = pool.try_place(&CONV, 7, 0..80).unwrap();
        let (_, norm) = pool.try_place(&NORM, 9, 0..80).unwrap();
        assert_eq!(pool.sms_busy(), 9);
        assert!(pool.is_valid([(&CONV, &conv), (&NORM, &norm)].into_iter()));
        assert!(!pool.is_valid([(&CONV, &conv)].into_iter()));
        pool.release(&CONV, conv);
        pool.release(&NORM, norm);
        assert_eq!(pool.sms_busy(), 0);
        assert!(pool.is_valid(std::iter::empty()));
    }

    /// Counts SMs one by one, as the module's text describes.
    struct OneByOne {
        empty: Sm,
        sms: Vec<Sm>,
    }

    impl OneByOne {
        fn try_place(
            &mut self,
            footprint: &Footprint,
            wanted: u64,
            range: Range<u32>,
        ) -> Option<Vec<u32>> {
            let mut fits: Vec<u32> = self.sms.iter().map(|sm| sm.fits(footprint)).collect();
            for (sm, fit) in fits.iter_mut().enumerate() {
                *fit = if range.contains(&(sm as u32)) {
                    *fit
                } else {
                    0
                };
            }
            let fit: u64 = fits.iter().map(|&blocks| u64::from(blocks)).sum();
            if fit == 0 || wanted == 0 {
                return None;
            }
            if fit > wanted {
                let mut level = 0;
                let mut placed = 0;
                while level < self.empty.slots {
                    let next = fits.iter().filter(|&&fit| fit > level).count() as u64;
                    if placed + next > wanted {
                        break;
                    }
                    placed += next;
                    level += 1;
                }
                let mut rest = wanted - placed;
                for fit in &mut fits {
                    let one_more = rest > 0 && *fit > level;
                    rest -= u64::from(one_more);
                    *fit = (*fit).min(level) + u32::from(one_more);
                }
            }
            for (sm, &blocks) in self.sms.iter_mut().zip(&fits) {
                sm.take(footprint, blocks);
            }
            Some(fits)
        }
    }

    fn footprint() -> impl Strategy<Value = Footprint> {
        (1u32..=32, 0u32..=20_000, 0u32..=70_000).prop_map(|(warps, registers, shared_bytes)| {
            Footprint {
                threads: warps * 32,
                registers,
                shared_bytes,
            }
        })
    }

    proptest! {
        #[test]
        fn runs_of_sms_are_what_counting_one_by_one_gives(
            calls in prop::collection::vec(
                (footprint(), 1u64..400, any::<u16>(), any::<bool>(), prop_oneof![Just(0..80_u32), (0..81_u32, 0..81_u32).prop_map(|(a, b)| a..b)]),
                1..120,
            ),
        ) {
            let mut pool = pool();
            let mut one_by_one = OneByOne { empty: pool.empty, sms: vec![pool.empty; 80] };
            let mut taken: Vec<(Footprint, Placement)> = Vec::new();
            for (footprint, wanted, which, is_release, range) in calls {
                if is_release && !taken.is_empty() {
                    let index = usize::from(which) % taken.len();
                    let (footprint, placement) = taken.swap_remove(index);
                    let each = placement.iter().flat_map(|p| (0..p.sms).map(|_| p.blocks));
                    for (sm, blocks) in one_by_one.sms.iter_mut().zip(each) {
                        sm.give(&footprint, blocks);
                    }
                    pool.release(&footprint, placement);
                } else {
                    let placed = pool.try_place(&footprint, wanted, range.clone());
                    let expected = one_by_one.try_place(&footprint, wanted, range);
                    prop_assert_eq!(placed.is_some(), expected.is_some());
                    if let (Some((blocks, placement)), Some(expected)) = (placed, expected) {
                        let sum: u64 = expected.iter().map(|&blocks| u64::from(blocks)).sum();
                        prop_assert_eq!(blocks, sum);
                        let each = placement.iter().flat_map(|p| (0..p.sms).map(|_| p.blocks));
                        prop_assert_eq!(each.collect::<Vec<_>>(), &*expected);
                        let busy = expected.iter().filter(|&&blocks| blocks > 0).count();
                        prop_assert_eq!(SmSet::of(&placement).count() as usize, busy);
                        taken.push((footprint, placement));
                    }
                }
                prop_assert!(pool.is_valid(taken.iter().map(|(f, p)| (f, p))));
                let each = pool.runs.iter().flat_map(|run| (0..run.sms).map(|_| run.each));
                prop_assert!(each.eq(one_by_one.sms.iter().copied()));
            }
        }
    }
}

//! The SMs: what of each is free, and where blocks go.
//!
//! Every SM is counted alone, because what is left on two half-full SMs does not make a whole one:
//! two kernels whose blocks take more than half of an SM's shared memory exclude each other, as
//! Conv2d beside Conv2d does in Orion's Table 2. Blocks spread over the SMs before they stack up,
//! lowest SM first among equals.

use crate::kernel::Footprint;
use devices::Device;

/// How many blocks went to each SM, by its index.
pub(crate) type Placement = Vec<u32>;

/// All SMs of a device.
#[derive(Clone, Debug)]
pub(crate) struct SmPool {
    empty: Sm,
    sms: Vec<Sm>,
    sms_busy: u32,
    /// Placements that were released, to be used again.
    spare: Vec<Placement>,
}

/// What is free on one SM.
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
            sms: vec![empty; device.sms as usize],
            sms_busy: 0,
            spare: Vec::new(),
        }
    }

    /// SMs with at least one block.
    pub(crate) fn sms_busy(&self) -> u32 {
        self.sms_busy
    }

    /// Places as many of `wanted` blocks as fit now. `None` where not one does.
    pub(crate) fn try_place(
        &mut self,
        footprint: &Footprint,
        wanted: u64,
    ) -> Option<(u64, Placement)> {
        let mut placement = self.spare.pop().unwrap_or_default();
        placement.clear();
        placement.extend(self.sms.iter().map(|sm| sm.fits(footprint)));
        let fit: u64 = placement.iter().map(|&blocks| u64::from(blocks)).sum();
        if fit == 0 || wanted == 0 {
            self.spare.push(placement);
            return None;
        }
        if fit > wanted {
            spread(&mut placement, wanted, self.empty.slots);
        }
        for (sm, &blocks) in self.sms.iter_mut().zip(&placement) {
            self.sms_busy += u32::from(blocks > 0 && *sm == self.empty);
            sm.take(footprint, blocks);
        }
        Some((fit.min(wanted), placement))
    }

    /// Gives back what [`Self::try_place`] took.
    pub(crate) fn release(&mut self, footprint: &Footprint, placement: Placement) {
        for (sm, &blocks) in self.sms.iter_mut().zip(&placement) {
            sm.give(footprint, blocks);
            self.sms_busy -= u32::from(blocks > 0 && *sm == self.empty);
        }
        self.spare.push(placement);
    }

    /// Whether `placements` are exactly what is taken.
    pub(crate) fn is_valid<'a>(
        &self,
        placements: impl Iterator<Item = (&'a Footprint, &'a Placement)>,
    ) -> bool {
        let mut sms = vec![self.empty; self.sms.len()];
        for (footprint, placement) in placements {
            for (sm, &blocks) in sms.iter_mut().zip(placement) {
                if blocks > sm.fits(footprint) {
                    return false;
                }
                sm.take(footprint, blocks);
            }
        }
        let busy = sms.iter().filter(|&&sm| sm != self.empty).count();
        sms == self.sms && busy == self.sms_busy as usize
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
/// level, the level that is not full on the first SMs.
fn spread(fits: &mut Placement, wanted: u64, slots: u32) {
    let mut level = 0;
    let mut placed = 0;
    while level < slots {
        let next = fits.iter().filter(|&&fit| fit > level).count() as u64;
        if placed + next > wanted {
            break;
        }
        placed += next;
        level += 1;
    }
    let mut rest = wanted - placed;
    for fit in fits {
        let one_more = rest > 0 && *fit > level;
        rest -= u64::from(one_more);
        *fit = (*fit).min(level) + u32::from(one_more);
    }
}

#[cfg(test)]
mod tests {
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
        let (placed, _) = pool.try_place(&CONV, 1000).unwrap();
        assert_eq!(placed, 80);
        assert!(pool.try_place(&CONV, 1).is_none());
        assert_eq!(pool.try_place(&NORM, 1000).unwrap().0, 160);
    }

    #[test]
    fn blocks_spread_before_they_stack() {
        let mut pool = pool();
        let (placed, placement) = pool.try_place(&NORM, 100).unwrap();
        assert_eq!(placed, 100);
        assert_eq!(placement.iter().filter(|&&blocks| blocks == 2).count(), 20);
        assert_eq!(placement.iter().filter(|&&blocks| blocks == 1).count(), 60);
        assert_eq!(pool.sms_busy(), 80);
    }

    #[test]
    fn what_is_released_is_free_again() {
        let mut pool = pool();
        let (_, conv) = pool.try_place(&CONV, 7).unwrap();
        let (_, norm) = pool.try_place(&NORM, 9).unwrap();
        assert_eq!(pool.sms_busy(), 9);
        assert!(pool.is_valid([(&CONV, &conv), (&NORM, &norm)].into_iter()));
        assert!(!pool.is_valid([(&CONV, &conv)].into_iter()));
        pool.release(&CONV, conv);
        pool.release(&NORM, norm);
        assert_eq!(pool.sms_busy(), 0);
        assert!(pool.is_valid(std::iter::empty()));
    }
}

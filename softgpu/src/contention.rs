//! How much kernels that run together slow each other down. Each cohort of blocks demands a
//! fraction of the device's compute throughput and of its memory bandwidth. C and M are the sums
//! over all that runs; copies over the bus add to M. Everything that runs is slowed down by
//! ```text
//! M' = M            where M <= 1
//!      M ^ 1.1      above: excess demand loses bandwidth, as rows of DRAM are opened again
//! slowdown = max(1, (C⁵ + M'⁵)^⅕) x (1 + 0.2 x mixed)
//! ```
//! The mean makes opposite demands nearly free and equal ones additive. A solo kernel is slowed
//! down only if its two demands together exceed the device. *mixed* models what neither sum shows:
//! caches, address translation and issue slots that several kernels share. Each kernel that runs or
//! waits for room has a weight w, the greater of its two demands. With W their sum, mixed = (W² -
//! Σw²) ÷ max(1, W²): 0 for one kernel, ½ for two that could each fill the device, nearly 0 if one
//! of them is small. A waiting kernel counts, because what it displaces when its turn comes is
//! missed then; the loss is spread evenly.
//!
//! `docs/model.md` documents what the three numbers are fitted to and their errors elsewhere.
//! Demands and rates are fixed-point numbers with 32 fractional bits (`q32`), so adding and
//! removing a cohort leaves no residue, in any order.

/// The value 1 with 32 fractional bits.
pub(crate) const ONE_Q32: u64 = 1 << 32;

/// Parameters of the law, [`Contention::CALIBRATED`], or others to test a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Exponent of the mean of the two demands, 5: in Orion's Table 2, Conv2d beside BN2d is 1.41
    /// times as fast as one after the other.
    pub mean_exponent: i32,
    /// Exponent of demanded bandwidth beyond the device's, 1.1: BN2d beside BN2d is 1.08x as fast.
    pub overload_exponent: f64,
    /// Slowdown of a wholly mixed load beyond 1, 0.2; for two kernels that could each fill the
    /// device, half of it. Fitted to half of Gavel's pairs on a V100, as far as Conv2d beside
    /// Conv2d in Table 2 (0.98 times as fast) allows.
    pub interference: f64,
    /// Factor on the loss: 1 is the law, 0.5 halves every slowdown beyond 1. Not fitted.
    pub scale: f64,
}

/// The demands of running work, as fractions of the device's peaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) compute_q32: u64,
    pub(crate) bandwidth_q32: u64,
}

impl Demand {
    /// From fractions, which must be finite and not negative.
    pub(crate) fn new(compute: f64, bandwidth: f64) -> Self {
        Self {
            compute_q32: to_q32(compute),
            bandwidth_q32: to_q32(bandwidth),
        }
    }

    /// The demand of `blocks` of a kernel's `resident` ones.
    pub(crate) fn share(self, blocks: u64, resident: u64) -> Self {
        let part = |whole: u64| {
            let scaled = u128::from(whole) * u128::from(blocks) / u128::from(resident.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self {
            compute_q32: part(self.compute_q32),
            bandwidth_q32: part(self.bandwidth_q32),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            compute_q32: self.compute_q32 + other.compute_q32,
            bandwidth_q32: self.bandwidth_q32 + other.bandwidth_q32,
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            compute_q32: self.compute_q32 - other.compute_q32,
            bandwidth_q32: self.bandwidth_q32 - other.bandwidth_q32,
        }
    }

    fn greater_q32(self) -> u64 {
        self.compute_q32.max(self.bandwidth_q32)
    }

    /// As [`Load::rate_q32`], for one solo kernel under the calibrated law.
    pub(crate) fn rate_q32(self) -> u64 {
        Contention::CALIBRATED.rate_q32(self, 0.0)
    }
}

/// The device's whole load: sums that follow kernels and their blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Of the running blocks.
    pub(crate) demand: Demand,
    /// Over the kernels that run or wait for room: the sum of their weights, and of the squares.
    weight_q32: u64,
    squares_q64: u128,
}

impl Load {
    /// Adds a kernel with its demand at full residency.
    pub(crate) fn add_kernel(&mut self, demand: Demand) {
        let weight_q32 = demand.greater_q32();
        self.weight_q32 += weight_q32;
        self.squares_q64 += square_q64(weight_q32);
    }

    pub(crate) fn remove_kernel(&mut self, demand: Demand) {
        let weight_q32 = demand.greater_q32();
        self.weight_q32 -= weight_q32;
        self.squares_q64 -= square_q64(weight_q32);
    }

    /// Nanoseconds of work done per nanosecond of time: 1 ÷ slowdown, never 0. `copies` run beside.
    pub(crate) fn rate_q32(&self, law: &Contention, copies: Demand) -> u64 {
        let sum_q64 = square_q64(self.weight_q32);
        // 0 for one kernel, 1/2 for two equal ones that could each fill the device.
        let mixed = match sum_q64 - self.squares_q64 {
            0 => 0.0,
            cross_q64 => cross_q64 as f64 / sum_q64.max(1 << 64) as f64,
        };
        law.rate_q32(self.demand.plus(copies), mixed)
    }
}

fn square_q64(q32: u64) -> u128 {
    u128::from(q32) * u128::from(q32)
}

impl Contention {
    /// The values derived from the facts in `docs/model.md`.
    pub const CALIBRATED: Self = Self {
        mean_exponent: 5,
        overload_exponent: 1.1,
        interference: 0.2,
        scale: 1.0,
    };

    /// As [`Load::rate_q32`], for a load of which the fraction `mixed` (0 to 1) is mixed.
    fn rate_q32(&self, demand: Demand, mixed: f64) -> u64 {
        let (compute, bandwidth) = (from_q32(demand.compute_q32), from_q32(demand.bandwidth_q32));
        let bandwidth = if bandwidth <= 1.0 {
            bandwidth
        } else {
            bandwidth.powf(self.overload_exponent)
        };
        let sum = compute.powi(self.mean_exponent) + bandwidth.powi(self.mean_exponent);
        let overlap = if sum <= 1.0 {
            1.0
        } else {
            sum.powf(1.0 / f64::from(self.mean_exponent))
        };
        let slowdown = overlap * (1.0 + self.interference * mixed);
        // Skipped when it changes nothing: a sum would round differently, and the model is frozen.
        let slowdown = if self.scale == 1.0 {
            slowdown
        } else {
            1.0 + self.scale * (slowdown - 1.0)
        };
        if slowdown <= 1.0 {
            return ONE_Q32;
        }
        // Truncated on purpose: the rate is rounded down, so completions are never early.
        ((ONE_Q32 as f64 / slowdown) as u64).max(1)
    }
}

/// Time that `work_ns` takes at a rate, rounded up.
pub(crate) fn time_ns_at(rate_q32: u64, work_ns: u64) -> u64 {
    let time = (u128::from(work_ns) << 32).div_ceil(u128::from(rate_q32));
    u64::try_from(time).unwrap_or(u64::MAX)
}

fn to_q32(fraction: f64) -> u64 {
    debug_assert!(fraction.is_finite());
    debug_assert!(fraction >= 0.0);
    (fraction.min(DEMAND_MAX) * ONE_Q32 as f64).round() as u64
}

fn from_q32(value: u64) -> f64 {
    value as f64 / ONE_Q32 as f64
}

/// Upper limit of one kernel's demand, in devices; it keeps the sums far below overflow.
const DEMAND_MAX: f64 = 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Contention = Contention::CALIBRATED;

    fn slowdown(compute: f64, bandwidth: f64) -> f64 {
        ONE_Q32 as f64 / Demand::new(compute, bandwidth).rate_q32() as f64
    }

    #[test]
    fn what_fits_the_device_is_not_slowed_down() {
        assert_eq!(Demand::new(0.89, 0.20).rate_q32(), ONE_Q32);
        assert_eq!(Demand::new(1.0, 0.0).rate_q32(), ONE_Q32);
        assert_eq!(Demand::new(0.0, 1.0).rate_q32(), ONE_Q32);
        assert_eq!(Demand::default().rate_q32(), ONE_Q32);
    }

    #[test]
    fn a_scale_multiplies_what_is_lost_and_nothing_else() {
        let lost = |scale: f64, demand: Demand| {
            let law = Contention { scale, ..LAW };
            ONE_Q32 as f64 / law.rate_q32(demand, 0.5) as f64 - 1.0
        };
        let heavy = Demand::new(1.78, 0.4);
        let usual = lost(1.0, heavy);
        assert!(usual > 0.5, "{usual}");
        for scale in [0.5, 2.0, 4.0] {
            let scaled = lost(scale, heavy);
            assert!((scaled - scale * usual).abs() < 1e-6, "{scale}: {scaled}");
        }
    }

    #[test]
    fn overlapping_demands_slow_down_as_fitted() {
        assert!((slowdown(0.28, 1.60) - 1.677).abs() < 0.001);
        assert!((slowdown(1.03, 1.00) - 1.166).abs() < 0.001);
        assert!((slowdown(2.0, 0.0) - 2.0).abs() < 0.001);
    }

    fn interference(kernels: &[(f64, f64)]) -> f64 {
        let mut load = Load::default();
        for &(compute, bandwidth) in kernels {
            load.add_kernel(Demand::new(compute, bandwidth));
        }
        ONE_Q32 as f64 / load.rate_q32(&LAW, Demand::default()) as f64
    }

    #[test]
    fn kernels_interfere_as_far_as_each_could_fill_the_device() {
        let (conv, norm, small) = ((0.89, 0.2), (0.14, 0.8), (0.01, 0.0));
        assert!((interference(&[conv]) - 1.0).abs() < 1e-9);
        assert!((interference(&[conv, conv]) - 1.1).abs() < 0.001);
        assert!((interference(&[conv, norm]) - 1.1).abs() < 0.001);
        assert!((interference(&[conv, small]) - 1.003).abs() < 0.001);
        assert!((interference(&[small, small]) - 1.0).abs() < 0.001);
        // Any number of them loses less than a fifth.
        assert!(interference(&[conv; 100]) < 1.2);
    }

    #[test]
    fn copies_take_their_share_of_the_bandwidth() {
        let load = Load {
            demand: Demand::new(0.0, 0.95),
            ..Load::default()
        };
        let copies = Demand::new(0.0, 0.1);
        assert_eq!(load.rate_q32(&LAW, Demand::default()), ONE_Q32);
        assert!(load.rate_q32(&LAW, copies) < ONE_Q32);
    }

    #[test]
    fn sums_leave_no_residue() {
        let parts: Vec<_> = (1..100)
            .map(|i| Demand::new(0.89, 0.2).share(i, 97))
            .collect();
        let sum = parts
            .iter()
            .fold(Demand::default(), |sum, part| sum.plus(*part));
        let rest = parts.iter().rev().fold(sum, |sum, part| sum.minus(*part));
        assert_eq!(rest, Demand::default());
    }

    #[test]
    fn times_round_up() {
        assert_eq!(time_ns_at(ONE_Q32, 1000), 1000);
        assert_eq!(time_ns_at(ONE_Q32 - 1, 1000), 1001);
        assert_eq!(time_ns_at(ONE_Q32 / 2, 1000), 2000);
    }
}

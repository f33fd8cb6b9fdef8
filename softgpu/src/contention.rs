//! How much kernels that run side by side slow each other down.
//!
//! Each cohort of blocks demands a fraction of the device's compute throughput and of its memory
//! bandwidth. With C and M the sums over all that runs, everything that runs is slowed down by
//!
//! ```text
//! M' = M            where M <= 1
//!      M ^ 1.3      above: bandwidth that is asked for twice is lost, as rows of DRAM are opened again
//! slowdown = max(1, cbrt(C³ + M'³))
//! ```
//!
//! The cubic mean makes opposite demands nearly free and equal ones additive; a kernel alone is not
//! slowed down unless its two demands together exceed the device. The exponent 3 and 1.3 are fitted
//! to Table 2 of the Orion paper (V100, Conv2d with C = .89, M = .20, BN2d with C = .14, M = .80;
//! speed-up over sequential execution 1.08 for two BN2d, 1.41 for one of each); `tests/table2.rs`
//! holds the model to it.
//!
//! Demands and rates are fixed-point numbers with 32 fractional bits (`q32`), so that adding and
//! removing a cohort leaves no residue, in whichever order.

/// The value 1 with 32 fractional bits.
pub(crate) const ONE_Q32: u64 = 1 << 32;

/// What something that runs asks of the device, as fractions of its peaks.
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

    /// The share of a kernel of which only `blocks` of `resident` run.
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

    /// Nanoseconds of work done per nanosecond of time: 1 ÷ slowdown, never 0.
    pub(crate) fn rate_q32(self) -> u64 {
        let (compute, bandwidth) = (from_q32(self.compute_q32), from_q32(self.bandwidth_q32));
        let bandwidth = if bandwidth <= 1.0 {
            bandwidth
        } else {
            bandwidth.powf(OVERLOAD_EXPONENT)
        };
        let cubes = compute.powi(3) + bandwidth.powi(3);
        if cubes <= 1.0 {
            return ONE_Q32;
        }
        // Truncation is meant: the rate is rounded down, so completions are never early.
        ((ONE_Q32 as f64 / cubes.cbrt()) as u64).max(1)
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

/// Fitted to BN2d beside BN2d in Orion's Table 2.
const OVERLOAD_EXPONENT: f64 = 1.3;

/// One kernel cannot ask for more than this many devices; it bounds the sums far below overflow.
const DEMAND_MAX: f64 = 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn overlapping_demands_slow_down_as_fitted() {
        assert!((slowdown(0.28, 1.60) - 1.844).abs() < 0.001);
        assert!((slowdown(1.03, 1.00) - 1.279).abs() < 0.001);
        assert!((slowdown(2.0, 0.0) - 2.0).abs() < 0.001);
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

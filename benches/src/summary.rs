//! Quantiles of the measurements, and of the difference. A median is the cost of a typical call and
//! hardly moves when some calls are interrupted; means would be dominated by the interruptions. The
//! certainty of a difference shows in the same difference taken pair of blocks by pair of blocks:
//! if its 10 % and 90 % quantiles are far apart, the machine was not quiet.

use serde::{Deserialize, Serialize};

use crate::alternate::Samples;

/// Quantiles of one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of measurements.
    pub count: usize,
    /// The least.
    pub min: f64,
    /// The 10 % quantile.
    pub p10: f64,
    /// The median.
    pub median: f64,
    /// The 90 % quantile.
    pub p90: f64,
}

/// Two sides and their difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Without Pillion.
    pub bare: Quantiles,
    /// With it.
    pub with: Quantiles,
    /// Difference of the medians: the cost.
    pub difference: f64,
    /// The 10 % quantile of that difference over pairs of blocks.
    pub difference_p10: f64,
    /// The 90 % quantile of the same.
    pub difference_p90: f64,
    /// Ratio of the medians; none if the bare one is zero.
    pub ratio: Option<f64>,
}

impl Quantiles {
    /// The quantiles of `values`.
    /// # Panics
    /// If there are none: a bench without measurements is a bug of ours.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        // Nearest rank.
        let at = |per_mille: usize| sorted[(sorted.len() * per_mille).div_ceil(1000).max(1) - 1];
        Self {
            count: sorted.len(),
            min: sorted[0],
            p10: at(100),
            median: at(500),
            p90: at(900),
        }
    }
}

impl Comparison {
    /// Compares the two sides of the measurements.
    #[must_use]
    pub fn of(samples: &Samples) -> Self {
        let (bare, with) = (Quantiles::of(&samples.bare), Quantiles::of(&samples.with));
        let block = samples.block.max(1);
        let pairs = samples.bare.chunks(block).zip(samples.with.chunks(block));
        let differences: Vec<f64> = pairs
            .map(|(bare, with)| Quantiles::of(with).median - Quantiles::of(bare).median)
            .collect();
        let differences = Quantiles::of(&differences);
        Self {
            bare,
            with,
            difference: with.median - bare.median,
            difference_p10: differences.p10,
            difference_p90: differences.p90,
            ratio: (bare.median > 0.0).then(|| with.median / bare.median),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let quantiles = Quantiles::of(&values);
        assert_eq!(
            (
                quantiles.min,
                quantiles.p10,
                quantiles.median,
                quantiles.p90
            ),
            (1.0, 1.0, 5.0, 9.0)
        );
        let one = Quantiles::of(&[7.0]);
        assert_eq!((one.p10, one.median, one.p90), (7.0, 7.0, 7.0));
    }

    #[test]
    fn a_drift_that_both_sides_share_is_not_a_difference() {
        // Each pair of blocks is 100 slower than the previous one, and `with` 5 slower than `bare`.
        let bare: Vec<f64> = (0..40).map(|i| f64::from(i / 4) * 100.0).collect();
        let with = bare.iter().map(|ns| ns + 5.0).collect();
        let comparison = Comparison::of(&Samples {
            block: 4,
            bare,
            with,
        });
        assert_eq!(comparison.difference, 5.0);
        assert_eq!(
            (comparison.difference_p10, comparison.difference_p90),
            (5.0, 5.0)
        );
    }
}

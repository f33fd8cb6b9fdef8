//! Nearest-rank quantiles: the q-quantile of n sorted values is the ⌈q·n⌉-th, a measured value.
//! Without an interpolation rule programs agree on it, and a small sample's tail is not flattered.

/// The nearest-rank quantile of `sorted` (ascending) at `per_mille` thousandths: 500 is the median,
/// 950 p95, 990 p99. 0 is the least value; 1000 and above the greatest. `None` for no values.
#[must_use]
pub fn nearest_rank(sorted: &[u64], per_mille: u32) -> Option<u64> {
    debug_assert!(sorted.is_sorted(), "quantiles are of sorted values");
    // In 128 bits the product cannot overflow whatever the length.
    let rank = (sorted.len() as u128 * u128::from(per_mille.min(1000))).div_ceil(1000);
    let index = usize::try_from(rank).ok()?.saturating_sub(1);
    sorted.get(index).copied()
}

/// The median.
pub const MEDIAN_PER_MILLE: u32 = 500;

/// A kernel's expected duration at the gate: seldom exceeded, and one outlier does not shut it.
pub const P95_PER_MILLE: u32 = 950;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::nearest_rank;

    #[test]
    fn quantiles_are_the_ones_of_the_textbook_example() {
        let sorted = [15, 20, 35, 40, 50];
        for (per_mille, expected) in [
            (0, 15),
            (50, 15),
            (300, 20),
            (400, 20),
            (500, 35),
            (1000, 50),
            (5000, 50),
        ] {
            assert_eq!(
                nearest_rank(&sorted, per_mille),
                Some(expected),
                "{per_mille}"
            );
        }
        assert_eq!(nearest_rank(&[], 500), None);
        assert_eq!(nearest_rank(&[7], 1), Some(7));
    }

    proptest! {
        #[test]
        fn at_least_the_asked_share_is_not_above_a_quantile(
            mut values in prop::collection::vec(any::<u64>(), 1..200),
            per_mille in 1u32..=1000,
        ) {
            values.sort_unstable();
            let quantile = nearest_rank(&values, per_mille).expect("there are values");
            let not_above = values.iter().filter(|&&value| value <= quantile).count();
            let below = values.iter().filter(|&&value| value < quantile).count();
            prop_assert!(not_above * 1000 >= values.len() * per_mille as usize);
            prop_assert!(below * 1000 < values.len() * per_mille as usize);
        }
    }
}

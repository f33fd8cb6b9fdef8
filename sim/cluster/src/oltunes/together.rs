//! How fast latency-critical tasks are expected to be beside each other on a GPU, learnt from those
//! that were. Speeds beside several multiply: if additional times add instead, that is the worse of
//! both.

use std::collections::BTreeMap;

/// Speed of a pair that was never seen: the share of two equal tasks that fill a GPU.
const UNSEEN: f64 = 0.5;

/// Weight of an observation above the expected speed. A lower one replaces it: to expect too much
/// makes tasks late, to expect too little leaves them apart.
const RAISE: f64 = 0.5;

const SPEED_MIN: f64 = 0.02;

type Pair = (usize, usize, usize);

#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    speeds: BTreeMap<Pair, f64>,
}

impl Pairs {
    /// Learns the part of its speed alone that a task had beside that neighbour from its start.
    pub(crate) fn learn(&mut self, pair: Pair, speed: f64) {
        let expected = self.speeds.entry(pair).or_insert(UNSEEN);
        let speed = speed.clamp(SPEED_MIN, 1.0);
        *expected = if speed < *expected {
            speed
        } else {
            *expected + RAISE * (speed - *expected)
        };
    }

    pub(crate) fn speed(&self, gpu: usize, of: usize, beside: &[usize]) -> f64 {
        let speed = |&other: &usize| {
            self.speeds
                .get(&(gpu, of, other))
                .copied()
                .unwrap_or(UNSEEN)
        };
        let together: f64 = beside.iter().map(speed).product();
        together.max(SPEED_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_pair_is_believed_at_once_and_a_faster_one_by_and_by() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.speed(0, 1, &[]), 1.0);
        assert_eq!(pairs.speed(0, 1, &[2]), UNSEEN);
        pairs.learn((0, 1, 2), 0.1);
        assert_eq!(pairs.speed(0, 1, &[2]), 0.1);
        pairs.learn((0, 1, 2), 0.9);
        assert!((pairs.speed(0, 1, &[2]) - 0.5).abs() < 1e-9);
        assert!((pairs.speed(0, 1, &[2, 3]) - 0.25).abs() < 1e-9);
        assert_eq!(pairs.speed(1, 1, &[2]), UNSEEN);
    }
}

//! The random numbers of FGD's published runs. The authors' simulator is written in Go and draws
//! from `math/rand`, whose stream for a seed is part of Go's promise of compatibility. With the
//! same numbers a run here meets the same jobs in the same order with the same ties, and can be
//! compared with the published run of that seed to the last decimal, where means over ten seeds of
//! another generator differ by up to half a point. The generator is an additive lagged Fibonacci
//! generator (Knuth, TAOCP 2, 3.2.2): modulo 2⁶⁴ X_n = X_{n−607} + X_{n−273}. It starts from the
//! state after 7.8·10¹² steps from a start by the seed 1, exclusive-or a start by the seed itself.
//! Go has that state as a table. Here it is computed: the state after N steps is linear in the
//! first, with coefficients x^N modulo x⁶⁰⁷ − x³³⁴ − 1.

use std::sync::LazyLock;

const LENGTH: usize = 607;

/// The nearer of the two added values, counted back.
const TAP: usize = 273;

const STEPS: u64 = 7_800_000_000_000;

/// The common state, in the order in which values are drawn. Go takes it by place, not by age:
/// after so many steps the oldest value is not at the first place.
static COMMON: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut state = after(STEPS, &start(1, [20, 10]));
    state.rotate_right((STEPS % LENGTH as u64) as usize);
    state
});

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct PublishedRandom {
    /// The last values, the oldest at `next`.
    state: Vec<u64>,
    next: usize,
}

impl PublishedRandom {
    /// The stream of that seed.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let own = start(seed, [40, 20]);
        Self {
            state: own.iter().zip(&*COMMON).map(|(a, b)| a ^ b).collect(),
            next: 0,
        }
    }

    fn draw(&mut self) -> u64 {
        let near = (self.next + LENGTH - TAP) % LENGTH;
        let value = self.state[self.next].wrapping_add(self.state[near]);
        self.state[self.next] = value;
        self.next = (self.next + 1) % LENGTH;
        value
    }

    /// 63 bits, as `Int63`.
    pub fn bits(&mut self) -> u64 {
        self.draw() & (u64::MAX >> 1)
    }

    /// One of so many, as `Intn`: 31 bits, drawn again above the last whole multiple.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: u32) -> u32 {
        let mut draw = || (self.bits() >> 32) as u32;
        if count.is_power_of_two() {
            return draw() & (count - 1);
        }
        let range = 1u32 << 31;
        let last = range - 1 - range % count;
        loop {
            let value = draw();
            if value <= last {
                return value % count;
            }
        }
    }

    /// Shuffles the values as `Shuffle`, which takes the upper half of a product.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            let count = last as u32 + 1;
            let mut product = (self.bits() >> 31) * u64::from(count);
            if (product as u32) < count {
                let least = count.wrapping_neg() % count;
                while (product as u32) < least {
                    product = (self.bits() >> 31) * u64::from(count);
                }
            }
            values.swap(last, (product >> 32) as usize);
        }
    }

    /// A permutation of the numbers below `count`, as `Perm`.
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut all = vec![0; count];
        for number in 0..count {
            let at = self.below(number as u32 + 1) as usize;
            all[number] = all[at];
            all[at] = number;
        }
        all
    }
}

/// Three draws of x ← 48271 x modulo 2³¹ − 1 for each value, one above the other.
fn start(seed: u32, shifts: [u32; 2]) -> Vec<u64> {
    let modulus = (1u64 << 31) - 1;
    let mut x = u64::from(seed) % modulus;
    if x == 0 {
        x = 89_482_311;
    }
    let mut step = || {
        x = 48_271 * x % modulus;
        x
    };
    for _ in 0..20 {
        step();
    }
    let mut by_place = vec![0; LENGTH];
    for value in &mut by_place {
        *value = step() << shifts[0] ^ step() << shifts[1] ^ step();
    }
    // The first value that is replaced lies at 333, the next below it.
    let first = LENGTH - TAP - 1;
    let drawn = (0..LENGTH).map(|n| by_place[(first + LENGTH - n) % LENGTH]);
    drawn.collect()
}

fn after(steps: u64, state: &[u64]) -> Vec<u64> {
    let mut power = vec![0; LENGTH];
    power[0] = 1;
    for bit in (0..u64::BITS - steps.leading_zeros()).rev() {
        power = squared(&power);
        if steps >> bit & 1 == 1 {
            power = times_x(&power);
        }
    }
    let mut later = Vec::with_capacity(LENGTH);
    for _ in 0..LENGTH {
        let terms = power.iter().zip(state);
        later.push(terms.fold(0u64, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b))));
        power = times_x(&power);
    }
    later
}

/// x·p modulo x⁶⁰⁷ − x³³⁴ − 1.
fn times_x(p: &[u64]) -> Vec<u64> {
    let mut product = vec![0; LENGTH];
    product[1..].copy_from_slice(&p[..LENGTH - 1]);
    let high = p[LENGTH - 1];
    product[0] = high;
    product[LENGTH - TAP] = product[LENGTH - TAP].wrapping_add(high);
    product
}

/// p² modulo x⁶⁰⁷ − x³³⁴ − 1.
fn squared(p: &[u64]) -> Vec<u64> {
    let mut product = vec![0u64; 2 * LENGTH - 1];
    for (i, a) in p.iter().enumerate() {
        for (j, b) in p.iter().enumerate() {
            product[i + j] = product[i + j].wrapping_add(a.wrapping_mul(*b));
        }
    }
    for degree in (LENGTH..product.len()).rev() {
        let high = std::mem::take(&mut product[degree]);
        for lower in [degree - LENGTH, degree - TAP] {
            product[lower] = product[lower].wrapping_add(high);
        }
    }
    product.truncate(LENGTH);
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by Go 1.19.
    #[test]
    fn the_stream_is_that_of_go() {
        let mut random = PublishedRandom::new(42);
        let drawn: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        let go = [3440579354231278675, 608747136543856411, 5571782338101878760];
        assert_eq!(drawn, go);
    }

    #[test]
    fn permutations_and_shuffles_are_those_of_go() {
        let mut random = PublishedRandom::new(42);
        assert_eq!(random.permutation(10), [7, 5, 8, 9, 2, 1, 6, 0, 3, 4]);
        let mut values: Vec<u32> = (0..10).collect();
        random.shuffle(&mut values);
        assert_eq!(values, [6, 8, 5, 4, 9, 3, 0, 2, 1, 7]);
        assert_eq!((random.below(1000), random.below(8152)), (504, 4962));
    }
}

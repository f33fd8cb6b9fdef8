//! Compares two ways of doing the same thing, in alternated blocks, one call at a time. A machine's
//! speed drifts (clock frequency, neighbours, caches), by more than the measured differences. So
//! both ways are measured in one process and in short blocks that alternate, each pair of blocks in
//! the opposite order of the previous pair: drift affects both alike. Calls are *paced*: each
//! begins a fixed time after the one before. Back to back, the processor predicts and prefetches
//! everything and the consumer at the other end of a ring finds a batch; real programs launch a
//! kernel every few microseconds and do something else in between.

use std::hint::{black_box, spin_loop};

use crate::timer::{self, Timer};

/// The size of a measurement, and its pace.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Calls in a block.
    pub block: usize,
    /// Pairs of blocks. Each side has `block * pairs` calls.
    pub pairs: usize,
    /// From the beginning of a call to the beginning of the next, ns.
    pub pace_ns: u64,
}

impl Plan {
    /// Calls of each side.
    #[must_use]
    pub const fn calls(&self) -> usize {
        self.block * self.pairs
    }
}

/// The measurements of each call, in order; ns from [`alternate`].
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Calls in a block.
    pub block: usize,
    /// The bare side.
    pub bare: Vec<f64>,
    /// The side with Pillion.
    pub with: Vec<f64>,
}

impl Samples {
    /// Times of processes that `start` starts, with and without Pillion, in alternation, as it
    /// returns them. A few of each are discarded first.
    /// # Errors
    /// That of `start`.
    pub fn of_starts(
        pairs: usize,
        warm_up: usize,
        block: usize,
        start: impl Fn(bool) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Self> {
        for _ in 0..warm_up {
            start(false)?;
            start(true)?;
        }
        let (bare, with) = sides(pairs, |_, is_with| start(is_with))?;
        Ok(Self { block, bare, with })
    }
}

/// Results of `measure` for the bare side and for the one with Pillion, in alternated pairs; it
/// gets the number of the pair, and whether it is with Pillion.
/// # Errors
/// That of `measure`.
pub fn sides<T>(
    pairs: usize,
    mut measure: impl FnMut(usize, bool) -> anyhow::Result<T>,
) -> anyhow::Result<(Vec<T>, Vec<T>)> {
    let (mut bare, mut with) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Each pair in the opposite order of the previous one.
        let mut sides = [false, true];
        sides.rotate_left(pair % 2);
        for is_with in sides {
            let side = if is_with { &mut with } else { &mut bare };
            side.push(measure(pair, is_with)?);
        }
    }
    Ok((bare, with))
}

/// One of the two ways.
pub trait Side {
    /// The timed part.
    fn call(&mut self);
    /// Runs after each call, not timed.
    #[inline]
    fn handle_call_end(&mut self) {}
    /// Runs after each block, not timed.
    fn handle_block_end(&mut self) {}
}

impl<F: FnMut()> Side for F {
    fn call(&mut self) {
        self();
    }
}

/// A side that does nothing: the cost of the timer itself.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Side for Nothing {
    #[inline]
    fn call(&mut self) {
        black_box(());
    }
}

/// Measures both sides.
pub fn alternate(plan: Plan, timer: &Timer, bare: &mut impl Side, with: &mut impl Side) -> Samples {
    // Written once, so that no page fault falls into a measurement.
    let mut bare_ticks = vec![1_u64; plan.calls()];
    let mut with_ticks = vec![1_u64; plan.calls()];
    let pace = timer.ticks(plan.pace_ns);
    let blocks = bare_ticks
        .chunks_exact_mut(plan.block)
        .zip(with_ticks.chunks_exact_mut(plan.block));
    for (pair, (bare_block, with_block)) in blocks.enumerate() {
        if pair % 2 == 0 {
            run_block(bare_block, pace, bare);
            run_block(with_block, pace, with);
        } else {
            run_block(with_block, pace, with);
            run_block(bare_block, pace, bare);
        }
    }
    let ns = |ticks: Vec<u64>| ticks.into_iter().map(|ticks| timer.ns(ticks)).collect();
    Samples {
        block: plan.block,
        bare: ns(bare_ticks),
        with: ns(with_ticks),
    }
}

#[inline(never)]
fn run_block(ticks: &mut [u64], pace: u64, side: &mut impl Side) {
    let mut next = timer::before() + pace;
    for tick in ticks {
        // Terminates: `pace` is microseconds.
        while timer::before() < next {
            spin_loop();
        }
        let start = timer::before();
        side.call();
        *tick = timer::after().wrapping_sub(start);
        side.handle_call_end();
        // After an interruption the pace continues from now, without a burst.
        next = start + pace;
    }
    side.handle_block_end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_called_as_planned_and_in_alternated_blocks() {
        let plan = Plan {
            block: 3,
            pairs: 2,
            pace_ns: 0,
        };
        let order = std::cell::RefCell::new(String::new());
        let samples = alternate(
            plan,
            &Timer::calibrated(),
            &mut || order.borrow_mut().push('b'),
            &mut || order.borrow_mut().push('w'),
        );
        assert_eq!(order.into_inner(), "bbbwwwwwwbbb");
        assert_eq!((samples.bare.len(), samples.with.len()), (6, 6));
    }
}

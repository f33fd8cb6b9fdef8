//! Reads the time around a few nanoseconds of code. On x86-64 it is the time stamp counter, fenced:
//! everything before the first reading has been executed, nothing after it has begun, and the
//! second reading waits for the measured code. So a call is measured as if nothing around it
//! overlapped with it, which in a real program some of it does: the numbers err upwards. Elsewhere
//! it is `CLOCK_MONOTONIC`. Both sides of a comparison are read in the same way, so the cost of
//! reading cancels out in the difference. Ticks are converted to nanoseconds only afterwards.

#![expect(unsafe_code, reason = "reads the processor's counter of cycles")]

use protocol::clock::Clock;

/// How long the counter is compared with the clock. The error of two readings of the clock, some
/// 100 ns, is then below 10 ppm.
const CALIBRATION_NS: u64 = 20_000_000;

/// Knows the length of a tick.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    ns_per_tick: f64,
}

impl Timer {
    /// A timer, calibrated against `CLOCK_MONOTONIC`. Takes 20 ms.
    #[must_use]
    pub fn calibrated() -> Self {
        let clock = Clock::monotonic();
        let (start_ns, start) = (clock.now_ns(), before());
        let mut now_ns = start_ns;
        while now_ns - start_ns < CALIBRATION_NS {
            now_ns = clock.now_ns();
        }
        let ticks = after().wrapping_sub(start).max(1);
        Self {
            ns_per_tick: (now_ns - start_ns) as f64 / ticks as f64,
        }
    }

    /// Ticks as ns.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// ns as ticks.
    #[must_use]
    pub fn ticks(&self, ns: u64) -> u64 {
        (ns as f64 / self.ns_per_tick) as u64
    }
}

/// The time before the measured code, in ticks.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[must_use]
pub fn before() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 has both instructions, and Linux lets programs read the counter.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// The time after the measured code, in ticks.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[must_use]
pub fn after() -> u64 {
    before()
}

/// The time before the measured code, in ticks.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
#[must_use]
pub fn before() -> u64 {
    Clock::monotonic().now_ns()
}

/// The time after the measured code, in ticks.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
#[must_use]
pub fn after() -> u64 {
    Clock::monotonic().now_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let mut last = before();
        for _ in 0..1000 {
            let now = after();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn ticks_and_ns_are_two_words_for_the_same_time() {
        let timer = Timer::calibrated();
        let ns = timer.ns(timer.ticks(1_000_000));
        assert!((ns - 1e6).abs() < 10.0, "{ns}");
    }
}

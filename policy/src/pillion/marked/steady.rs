//! How many of the last requests came under one load: only these determine a kind's solo latency. A
//! quantile of few latencies is imprecise, above all where requests queue: at 70 % load the p99 of
//! 2048 is off by up to 12 %. More are better, but only if they arrived as often, and took as long
//! to serve, as the last ones.

/// The number of last requests used under any load: two minutes at 15 requests a second.
const LEAST: usize = 2_048;

/// The greatest number used.
pub(super) const MOST: usize = 8_192;

/// The horizon of the fast mean of times between arrivals, in requests.
const FAST: f64 = 256.0;

/// The horizon of the slow mean that it is compared with.
const SLOW: f64 = 2_048.0;

/// The ratio of the means of a changed load. The fast mean is off by 4.4 % at random arrivals.
const CHANGED: f64 = 1.25;

/// The cap on a pause, in usual gaps: jobs that rest for an hour come back unchanged.
const PAUSE: f64 = 16.0;

#[derive(Debug, Default)]
pub(super) struct Steady {
    since: usize,
    arrived_ns: Option<u64>,
    /// Mean times between arrivals, ns, and how many were averaged.
    fast_ns: f64,
    slow_ns: f64,
    seen: f64,
    service_ns: u64,
}

impl Steady {
    pub(super) fn handle_request(&mut self, arrived_ns: u64, service_ns: u64) {
        self.since += 1;
        if let Some(before_ns) = self.arrived_ns {
            self.handle_gap(arrived_ns.saturating_sub(before_ns) as f64);
        }
        self.arrived_ns = self.arrived_ns.max(Some(arrived_ns));
        if is_changed(service_ns as f64, self.service_ns as f64) {
            self.service_ns = service_ns;
            self.since = 0;
        }
    }

    fn handle_gap(&mut self, gap_ns: f64) {
        self.seen += 1.0;
        let gap_ns = match self.seen > FAST && self.slow_ns > 0.0 {
            true => gap_ns.min(self.slow_ns * PAUSE),
            false => gap_ns,
        };
        self.fast_ns += (gap_ns - self.fast_ns) / self.seen.min(FAST);
        self.slow_ns += (gap_ns - self.slow_ns) / self.seen.min(SLOW);
        if is_changed(self.fast_ns, self.slow_ns) {
            self.slow_ns = self.fast_ns;
            self.since = 0;
        }
    }

    /// How many of the last latencies describe the present load.
    pub(super) fn count(&self) -> usize {
        self.since.clamp(LEAST, MOST)
    }
}

fn is_changed(now: f64, before: f64) -> bool {
    now > before * CHANGED || before > now * CHANGED
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Random arrivals, `count` of them, one in `every_ns` on average; returns the last one's time.
    fn arrive(
        steady: &mut Steady,
        from_ns: u64,
        every_ns: u64,
        count: u64,
        service_ns: u64,
    ) -> u64 {
        (0..count).fold(from_ns, |at_ns, n| {
            let share =
                (n.wrapping_mul(crate::pillion::GOLDEN) >> 11) as f64 / (1_u64 << 53) as f64;
            let gap_ns = -(1.0 - share).ln() * every_ns as f64;
            let at_ns = at_ns + gap_ns as u64;
            steady.handle_request(at_ns, service_ns);
            at_ns
        })
    }

    #[test]
    fn under_one_load_all_that_are_kept_count() {
        let mut steady = Steady::default();
        assert_eq!(steady.count(), LEAST);
        let at_ns = arrive(&mut steady, 0, 20 * MS, 10_000, 10 * MS);
        assert_eq!(steady.count(), MOST);
        // A night without requests, and the same again.
        arrive(
            &mut steady,
            at_ns + 8 * 3_600_000 * MS,
            20 * MS,
            3_000,
            10 * MS,
        );
        assert_eq!(steady.count(), MOST);
    }

    #[test]
    fn after_a_step_the_last_count_until_more_came_under_the_new_load() {
        for (every_ns, service_ns) in [(50, 10), (8, 10), (20, 20), (20, 5)] {
            let mut steady = Steady::default();
            let at_ns = arrive(&mut steady, 0, 20 * MS, 10_000, 10 * MS);
            let at_ns = arrive(&mut steady, at_ns, every_ns * MS, 600, service_ns * MS);
            assert_eq!(steady.count(), LEAST, "{every_ns} ms, {service_ns} ms");
            arrive(&mut steady, at_ns, every_ns * MS, 4_000, service_ns * MS);
            assert!((3_900..4_700).contains(&steady.count()), "{steady:?}");
        }
    }
}

//! The pace: how many expected ns of BE work the device completes in a ns.
//!
//! With right profiles it is 1 while the device is kept busy; where kernels take ten times as long as
//! expected it is 0.1, and a bound in expected ns would let ten times as much harm in flight. So bounds are
//! multiplied by it where it is below 1. It is measured while HP is idle and BE work in flight, from what
//! was seen complete, in pieces of [`PIECE_NS`], and the greatest of the pieces counts, slowly forgotten: a
//! job that launches slower than the device runs says nothing about its profile until it is faster. What is
//! above 1 (profiles that expect too much, several kernels at once) widens nothing.

/// The pace of all BE jobs together.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the last snapshot was made, if HP was idle in it and BE work in flight.
    since_ns: Option<u64>,
    completed_total_ns: u64,
    /// Of the piece in progress.
    busy_ns: u64,
    completed_ns: u64,
    greatest: Option<f64>,
}

impl Pace {
    /// What bounds are multiplied by; 1 until a piece was measured.
    pub(crate) fn value(&self) -> f64 {
        self.greatest
            .map_or(1.0, |pace| (pace * ALLOWANCE).clamp(PACE_MIN, 1.0))
    }

    /// At `now_ns` so much of all jobs has completed, and whether only BE work executes.
    pub(crate) fn handle_snapshot(&mut self, now_ns: u64, completed_total_ns: u64, is_alone: bool) {
        let before_ns = std::mem::replace(&mut self.completed_total_ns, completed_total_ns);
        if let Some(since_ns) = self.since_ns.take() {
            self.busy_ns += now_ns.saturating_sub(since_ns);
            self.completed_ns += completed_total_ns.saturating_sub(before_ns);
        }
        if is_alone {
            self.since_ns = Some(now_ns);
        }
        if self.busy_ns >= PIECE_NS {
            let pace = self.completed_ns as f64 / self.busy_ns as f64;
            let known = self.greatest.map_or(0.0, |known| known * FORGET);
            self.greatest = Some(known.max(pace));
            (self.busy_ns, self.completed_ns) = (0, 0);
        }
    }
}

/// Long against what a completion is seen late.
const PIECE_NS: u64 = 2_000_000;

/// Per piece: half is forgotten in 0.7 s of best-effort work.
const FORGET: f64 = 0.998;

/// Gaps between kernels, and completions that are seen late, lower a right profile's pace by so much.
const ALLOWANCE: f64 = 1.25;

/// Profiles are off by a factor of ten, not of a hundred; and work that hangs is no reason to let less go
/// than a tenth of what may.
const PACE_MIN: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten ms in which `completed_ns` of each 50 µs complete.
    fn after(completed_ns: u64) -> f64 {
        let mut pace = Pace::default();
        for look in 0..200 {
            pace.handle_snapshot(look * 50_000, look * completed_ns, true);
        }
        pace.value()
    }

    #[test]
    fn kernels_that_take_ten_times_as_long_as_expected_have_a_tenth_of_the_pace() {
        assert_eq!(Pace::default().value(), 1.0);
        assert!((after(5_000) - 0.125).abs() < 1e-3);
        assert_eq!(after(50_000), 1.0);
        assert_eq!(after(500_000), 1.0, "what is too long widens nothing");
    }

    #[test]
    fn time_beside_hp_or_without_work_does_not_count() {
        let mut pace = Pace::default();
        for look in 0..200 {
            // Two looks with work, of which all completes, then an hour without.
            let hour_ns = look / 2 * 3_600_000_000_000;
            let now_ns = hour_ns + look % 2 * 50_000;
            pace.handle_snapshot(now_ns, look.div_ceil(2) * 50_000, look % 2 == 0);
        }
        assert_eq!(pace.value(), 1.0);
    }

    #[test]
    fn one_busy_piece_outweighs_slow_ones_for_a_while() {
        let mut pace = Pace::default();
        let mut completed_ns = 0;
        for look in 0..10_000 {
            completed_ns += if look < 50 { 50_000 } else { 5_000 };
            pace.handle_snapshot(look * 50_000, completed_ns, true);
            if look == 2_000 {
                assert!(pace.value() > 0.9, "{}", pace.value());
            }
        }
        // Half a second later: 1.25 × 0.998^250.
        assert!((0.6..0.9).contains(&pace.value()), "{}", pace.value());
    }
}

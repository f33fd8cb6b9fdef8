//! The integral of a value that changes at events, by day.

/// One day.
pub const DAY_NS: u64 = 86_400 * 1_000_000_000;

/// The meter. Its value is 0 until something is added.
#[derive(Clone, Debug)]
pub struct Meter {
    value: f64,
    most: f64,
    since_ns: u64,
    horizon_ns: u64,
    /// Value times seconds, for each day before the horizon.
    days: Vec<f64>,
    after: f64,
}

impl Meter {
    /// For that time.
    #[must_use]
    pub fn new(horizon_ns: u64) -> Self {
        Self {
            value: 0.0,
            most: 0.0,
            since_ns: 0,
            horizon_ns,
            days: vec![0.0; usize::try_from(horizon_ns.div_ceil(DAY_NS)).unwrap_or(0)],
            after: 0.0,
        }
    }

    /// From then on the value is greater by that.
    pub fn add(&mut self, now_ns: u64, change: f64) {
        if change == 0.0 {
            return;
        }
        self.pass(now_ns);
        self.value += change;
        self.most = self.most.max(self.value);
    }

    /// Time passes.
    pub fn pass(&mut self, now_ns: u64) {
        while self.since_ns < now_ns {
            let seconds = |until: u64| (until - self.since_ns) as f64 / 1e9;
            if self.since_ns >= self.horizon_ns {
                self.after += self.value * seconds(now_ns);
                self.since_ns = now_ns;
                return;
            }
            let day = self.since_ns / DAY_NS;
            let until = ((day + 1) * DAY_NS).min(self.horizon_ns).min(now_ns);
            self.days[day as usize] += self.value * seconds(until);
            self.since_ns = until;
        }
    }

    /// Time passes to the last event, and to the horizon if that is later.
    pub fn pass_to_end(&mut self, last_ns: u64) {
        self.pass(last_ns.max(self.horizon_ns));
    }

    /// The mean of each day; of the last to the horizon.
    #[must_use]
    pub fn daily(&self) -> Vec<f64> {
        let days = self.days.iter().enumerate();
        let mean = |(day, sum): (usize, &f64)| {
            let from = day as u64 * DAY_NS;
            let length = (from + DAY_NS).min(self.horizon_ns) - from;
            sum / (length as f64 / 1e9)
        };
        days.map(mean).collect()
    }

    /// The mean to the horizon.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.days.iter().sum::<f64>() / (self.horizon_ns.max(1) as f64 / 1e9)
    }

    /// The integral to the horizon, times seconds.
    #[must_use]
    pub fn within(&self) -> f64 {
        self.days.iter().sum()
    }

    /// The integral to the end, times seconds.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.days.iter().sum::<f64>() + self.after
    }

    /// The greatest value.
    #[must_use]
    pub const fn most(&self) -> f64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_mean() {
        let mut meter = Meter::new(2 * DAY_NS);
        meter.add(0, 2.0);
        meter.add(DAY_NS / 2, 2.0);
        meter.pass(3 * DAY_NS);
        assert_eq!(meter.daily(), [3.0, 4.0]);
        assert!((meter.mean() - 3.5).abs() < 1e-9);
        assert!((meter.total() - 11.0 * 86_400.0).abs() < 1e-6);
        assert!((meter.most() - 4.0).abs() < 1e-9);
    }
}

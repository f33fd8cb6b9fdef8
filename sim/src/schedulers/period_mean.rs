//! The mean latency of the high-priority job's requests, period by period.

#[derive(Debug)]
pub(super) struct PeriodMean {
    period_ns: u64,
    pub(super) end_ns: u64,
    sum_ns: u128,
    requests: u32,
}

impl PeriodMean {
    pub(super) fn new(period_s: f64) -> Self {
        let period_ns = ns(period_s).max(1);
        Self {
            period_ns,
            end_ns: period_ns,
            sum_ns: 0,
            requests: 0,
        }
    }

    pub(super) fn handle_latency(&mut self, latency_ns: u64) {
        self.sum_ns += u128::from(latency_ns);
        self.requests += 1;
    }

    /// The mean of the period that has ended by `now_ns`, ms, if any; inner `None`: no request.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<Option<f64>> {
        if now_ns < self.end_ns {
            return None;
        }
        self.end_ns = now_ns.saturating_add(self.period_ns);
        let sum_ns = std::mem::take(&mut self.sum_ns) as f64;
        let requests = std::mem::take(&mut self.requests);
        Some((requests > 0).then(|| sum_ns / f64::from(requests) / 1e6))
    }
}

pub(super) fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

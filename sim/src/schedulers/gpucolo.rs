//! `gpucolo`: best-effort jobs sleep after each of their iterations, for as long as makes the mean
//! latency of high-priority requests the target; seldom their share of the SMs is adjusted too
//! (Chen et al., "Latency-guaranteed Co-location of Inference and Training for Reducing Data Center
//! Expenses", 2024, sections IV and V).
//!
//! *Inner loop.* At the end of each period (4 s), from the mean l of its requests, the target L,
//! and the previously identified slope m < 0 of the mean over the sleep:
//! ```text
//! s += (L − l)/m      within 0 to 1 s
//! ```
//! *Outer loop.* In every 25th period, if l is off by more than 2 %, the share p of best-effort
//! jobs follows the same law with the slope of the mean over the share, `p += (L − l)/m_p` within 1
//! to 100 %, and they are restarted. That loop is "similar and so omitted" in the paper. The
//! high-priority job has all SMs and is never restarted.
//!
//! A sleep takes effect at once; the paper's 2 to 5 ms of a signal are not modelled. A training
//! step that waits for its sleep to end stands before its first launch or copy.

use crate::experiment::Experiment;
use crate::job::JobClass;
use crate::scheduler::{ClientId, Issue, Placement, Restart, Scheduler, SmShare, State};

use super::GpuColoSpec;
use super::period_mean::{PeriodMean, ns};

/// "(e.g., 2%)": the share is adjusted where the mean is off by more.
const OUTER_THRESHOLD: f64 = 0.02;

/// The longest sleep, ms: "their upper bounds (e.g., 1s and 100%)".
const SLEEP_MS_MAX: f64 = 1_000.0;

#[derive(Debug)]
pub(super) struct GpuColo {
    spec: GpuColoSpec,
    mean: PeriodMean,
    periods: u32,
    sleep_ms: f64,
    share_pct: f64,
    classes: Vec<JobClass>,
    asleep_ns: Vec<u64>,
    restarts: Vec<Restart>,
}

impl GpuColo {
    pub(super) fn new(spec: &GpuColoSpec, experiment: &Experiment) -> Self {
        let classes: Vec<JobClass> = experiment.jobs.iter().map(|job| job.class).collect();
        Self {
            spec: *spec,
            mean: PeriodMean::new(spec.period_s),
            periods: 0,
            sleep_ms: spec.sleep_ms,
            share_pct: spec.share_pct.into(),
            asleep_ns: vec![0; classes.len()],
            classes,
            restarts: Vec::new(),
        }
    }

    fn handle_period(&mut self, mean_ms: f64) {
        let slo_ms = self.spec.slo_mean_ms;
        self.sleep_ms = next_sleep_ms(self.sleep_ms, mean_ms - slo_ms, self.spec.slope_ms_per_s);
        self.periods += 1;
        let is_off = (mean_ms - slo_ms).abs() > OUTER_THRESHOLD * slo_ms;
        if is_off && self.periods.is_multiple_of(self.spec.outer_periods) {
            self.adjust_share(mean_ms - slo_ms);
        }
    }

    fn adjust_share(&mut self, error_ms: f64) {
        let before = self.percent();
        let share_pct = self.share_pct - error_ms / self.spec.share_slope_ms;
        self.share_pct = share_pct.clamp(1.0, 100.0);
        if self.percent() == before {
            return;
        }
        let clients = (0..self.classes.len()).map(ClientId);
        let best_effort = clients.filter(|client| self.is_best_effort(*client));
        let restarts = best_effort.map(|client| Restart {
            client,
            share: self.best_effort_share(),
            outage_ns: ns(self.spec.restart_s),
        });
        self.restarts = restarts.collect();
    }

    fn is_best_effort(&self, client: ClientId) -> bool {
        self.classes[client.0] == JobClass::BestEffort
    }

    fn percent(&self) -> u32 {
        self.share_pct.round() as u32
    }

    fn best_effort_share(&self) -> SmShare {
        SmShare {
            percent: self.percent(),
            first: false,
        }
    }
}

/// `slope`: ms by which the mean falls with each second of sleep; `error_ms`: mean above target.
fn next_sleep_ms(sleep_ms: f64, error_ms: f64, slope: f64) -> f64 {
    (sleep_ms + error_ms / slope * 1_000.0).clamp(0.0, SLEEP_MS_MAX)
}

impl Scheduler for GpuColo {
    fn placement(&self) -> Placement {
        Placement {
            one_context: false,
            priorities: false,
        }
    }

    fn handle_request_end(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        match self.classes[client.0] {
            JobClass::HighPriority => self.mean.handle_latency(now_ns - arrival_ns),
            JobClass::BestEffort => {
                self.asleep_ns[client.0] = now_ns.saturating_add(ns(self.sleep_ms / 1e3));
            }
        }
    }

    fn admits_copy(&mut self, now_ns: u64, client: ClientId, _bytes: u64) -> bool {
        self.asleep_ns[client.0] <= now_ns
    }

    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        if let Some(Some(mean_ms)) = self.mean.poll(now_ns)
            && self.spec.slo_mean_ms > 0.0
        {
            self.handle_period(mean_ms);
        }
        for (index, client) in state.clients.iter().enumerate() {
            if self.asleep_ns[index] <= now_ns {
                self.asleep_ns[index] = 0;
                let client_id = ClientId(index);
                issues.extend((0..client.queued).map(|_| Issue { client: client_id }));
            }
        }
    }

    fn share(&self, client: ClientId) -> Option<SmShare> {
        self.is_best_effort(client)
            .then(|| self.best_effort_share())
    }

    fn take_restarts(&mut self, restarts: &mut Vec<Restart>) {
        restarts.append(&mut self.restarts);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let asleep_ns = self.asleep_ns.iter().copied().filter(|&ns| ns > 0);
        asleep_ns.chain([self.mean.end_ns]).min()
    }

    fn rule(&self, _client: ClientId) -> &'static str {
        "sleep"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sleep_moves_by_what_the_slope_says_would_meet_the_target_and_saturates() {
        assert_eq!(next_sleep_ms(200.0, 0.0, 10.0), 200.0);
        assert_eq!(next_sleep_ms(200.0, 3.0, 10.0), 500.0);
        assert_eq!(next_sleep_ms(500.0, -3.0, 10.0), 200.0);
        assert_eq!(next_sleep_ms(900.0, 3.0, 10.0), 1_000.0);
        assert_eq!(next_sleep_ms(100.0, -3.0, 10.0), 0.0);
    }
}

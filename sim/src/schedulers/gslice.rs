//! `gslice`: only shares of the SMs, adjusted to the requests' latency: GSLICE (2020, Dhakal et
//! al.) as GPUColo's authors extended it to a training job (sections VI and VII-A). Both shares
//! are a hundred together. At the end of each period, from the mean l of its requests and the
//! target L, the high-priority job's share x becomes
//! ```text
//! x + x (l − L)/L      the difference rounded away from 0, within 1 to 99
//! ```
//! and both jobs restart, without launches for `restart_s`. That publication does not print the
//! law, and says that the jobs restart in every period; rounding away from 0 achieves that here.
//! The shares are of different SMs, as in GSLICE.

use crate::experiment::Experiment;
use crate::job::JobClass;
use crate::scheduler::{ClientId, Issue, Placement, Restart, Scheduler, SmShare, State};

use super::GsliceSpec;
use super::period_mean::{PeriodMean, ns};

#[derive(Debug)]
pub(super) struct Gslice {
    slo_ms: f64,
    restart_ns: u64,
    mean: PeriodMean,
    share_pct: u32,
    classes: Vec<JobClass>,
    restarts: Vec<Restart>,
}

impl Gslice {
    pub(super) fn new(spec: &GsliceSpec, experiment: &Experiment) -> Self {
        Self {
            slo_ms: spec.slo_mean_ms,
            restart_ns: ns(spec.restart_s),
            mean: PeriodMean::new(spec.period_s),
            share_pct: spec.share_pct,
            classes: experiment.jobs.iter().map(|job| job.class).collect(),
            restarts: Vec::new(),
        }
    }

    fn share_of(&self, client: ClientId) -> SmShare {
        let is_hp = self.classes[client.0] == JobClass::HighPriority;
        SmShare {
            percent: match is_hp {
                true => self.share_pct,
                false => 100 - self.share_pct,
            },
            first: is_hp,
        }
    }

    fn adjust(&mut self, mean_ms: f64) {
        let before = self.share_pct;
        self.share_pct = next_share(before, mean_ms / self.slo_ms);
        if self.share_pct == before {
            return;
        }
        let clients = (0..self.classes.len()).map(ClientId);
        let restarts = clients.map(|client| Restart {
            client,
            share: self.share_of(client),
            outage_ns: self.restart_ns,
        });
        self.restarts = restarts.collect();
    }
}

/// `times`: the mean over the target.
fn next_share(share: u32, times: f64) -> u32 {
    let step = f64::from(share) * (times - 1.0);
    let step = step.abs().ceil().copysign(step);
    (f64::from(share) + step).clamp(1.0, 99.0) as u32
}

impl Scheduler for Gslice {
    fn placement(&self) -> Placement {
        Placement {
            one_context: false,
            priorities: false,
        }
    }

    fn handle_request_end(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        if self.classes[client.0] == JobClass::HighPriority {
            self.mean.handle_latency(now_ns - arrival_ns);
        }
    }

    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        if let Some(Some(mean_ms)) = self.mean.poll(now_ns)
            && self.slo_ms > 0.0
        {
            self.adjust(mean_ms);
        }
        for (index, client) in state.clients.iter().enumerate() {
            let client_id = ClientId(index);
            issues.extend((0..client.queued).map(|_| Issue { client: client_id }));
        }
    }

    fn share(&self, client: ClientId) -> Option<SmShare> {
        Some(self.share_of(client))
    }

    fn take_restarts(&mut self, restarts: &mut Vec<Restart>) {
        restarts.append(&mut self.restarts);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        Some(self.mean.end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_what_requests_took_over_the_target_and_stays_within_its_ends() {
        assert_eq!(next_share(50, 1.0), 50);
        assert_eq!(next_share(50, 1.2), 60);
        assert_eq!(next_share(50, 0.8), 40);
        assert_eq!([next_share(50, 1.001), next_share(50, 0.999)], [51, 49]);
        assert_eq!([next_share(90, 3.0), next_share(1, 0.5)], [99, 1]);
    }
}

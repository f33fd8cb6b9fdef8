//! The laws for all best-effort jobs together: the throttle ([`policy::throttle`]), and their share
//! of the GPU ([`policy::share`]).

use policy::share::outer::Held;
use policy::{ShareView, Sharing, SloEnd};

use super::State;
use super::be_job::BeJob;
use crate::config::Config;
use crate::core::job_key::JobKey;

/// Use counts as known if this much of the GPU time is of known kernels, per cent.
const KNOWN_PCT: u64 = 90;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Together {
    /// 0.02 to 1.
    pub(crate) share: f64,
    pub(crate) by: &'static str,
}

impl State {
    pub(super) fn configure_laws(&mut self, config: &Config) {
        self.gate.handle_throttle(config.throttle);
        self.share.set(config.share);
        self.tuning.configure(config.tuner);
        self.jobs.iter_mut().for_each(|job| job.cap.forget_rules());
    }

    /// Turns high-priority launches into the others' share, and in time slices into a bound of
    /// their time. Before the policy gets the use.
    pub(super) fn hand_over_share(&mut self, now_ns: u64) {
        if self.share.is_dynamic() {
            let clients = self.jobs.iter_mut().flat_map(|job| &mut job.clients);
            let clients = clients.filter_map(|client| client.hp_client.as_mut());
            let (mut used_ns, mut all, mut known) = (0.0, 0, 0);
            for client in clients {
                used_ns += client.take_sm_ns();
                let time = client.gpu_time();
                (all, known) = (all + time.all_ns / 100, known + time.known_ns / 100);
            }
            // Unknown kernels are no evidence.
            match self.hp.present && known >= all / 100 * KNOWN_PCT {
                true => self.share.handle_used(now_ns, used_ns),
                false => self.share.pause(),
            }
        }
        if self.share.is_by_target() {
            let held = self.held().filter(|_| self.is_share_in_force());
            self.share.handle_held(now_ns, held);
        }
        self.gate.handle_share(self.share_of_time().unwrap_or(1.0));
    }

    /// Always in time slices; under MPS if restartable jobs are present, all started with it.
    fn is_share_in_force(&self) -> bool {
        if self.ways.in_force() != Sharing::Mps {
            return true;
        }
        let mut with = self.jobs.iter().filter_map(|job| job.cap.started_with);
        let percent = self.share.percent();
        let first = with.next();
        first.is_some() && first == percent && with.all(|with| Some(with) == percent)
    }

    /// The job with the least level; `None` where nothing is judged or best-effort jobs idle.
    fn held(&self) -> Option<Held> {
        let be_jobs = self.jobs.iter().filter_map(|job| job.be_job.as_ref());
        if !self.hp.present || !be_jobs.into_iter().any(BeJob::is_active) {
            return None;
        }
        let views = self.jobs.iter().filter_map(|job| self.slo_view(job));
        let known = views.filter_map(|view| {
            let measured = view.measured_ns? as f64 / view.target_ns?.max(1) as f64;
            (view.end != SloEnd::Learning).then_some(Held {
                level: view.level,
                measured,
                is_top: view.end == SloEnd::Top,
                is_floor: view.end == SloEnd::Floor,
                requests: view.requests,
            })
        });
        known.min_by(|a, b| a.level.total_cmp(&b.level))
    }

    pub(crate) fn share_view(&self) -> Option<ShareView> {
        self.share.view()
    }

    /// The bound of best-effort time; `None` if the share is one of SMs, or unknown.
    pub(crate) fn share_of_time(&self) -> Option<f64> {
        if self.ways.in_force() == Sharing::Mps {
            return None;
        }
        Some(f64::from(self.share.percent()?) / 100.0)
    }

    /// A job to end, for its supervisor to restart it with another share of the SMs, and both
    /// shares, per cent. Once for each of its runs; not if it came with the share that it was ended
    /// for (a restart would change nothing), nor without a high-priority job (nobody needs the
    /// share then).
    pub(crate) fn take_stale(&mut self, now_ns: u64) -> Option<(JobKey, [u32; 2])> {
        let percent = self.share.percent()?;
        if self.ways.in_force() != Sharing::Mps || !self.hp.present {
            return None;
        }
        let (share, jobs) = (&self.share, &mut self.jobs);
        jobs.iter_mut().find_map(|job| {
            let cap = &mut job.cap;
            let with = cap.started_with.filter(|_| !cap.is_stale)?;
            let first_ns = job.clients.iter().map(|client| client.attached_ns).min()?;
            let is_stale = share.is_stale(with, now_ns.saturating_sub(first_ns));
            cap.is_stale = is_stale && cap.ended_with != Some(with);
            cap.is_stale.then(|| (job.key.clone(), [with, percent]))
        })
    }

    pub(crate) fn handle_not_ended(&mut self, key: &JobKey) {
        let jobs = self.jobs.iter_mut().filter(|job| job.key == *key);
        jobs.for_each(|job| job.cap.is_stale = false);
    }

    /// The tightest joint bound; `None` if no law has one.
    pub(crate) fn together(&self, now_ns: u64) -> Option<Together> {
        let throttle = self.gate.throttle_view(now_ns);
        let throttle = throttle.filter(|_| self.is_throttled());
        let throttle = throttle.map(|view| (view.rate, "the throttle"));
        let is_held = self.hp_for_policy(now_ns).present;
        let share = self.share_of_time().filter(|_| is_held);
        let share = share.map(|share| (share, "their share beside high-priority work"));
        let laws = throttle.into_iter().chain(share);
        let (share, by) = laws.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Together { share, by })
    }
}

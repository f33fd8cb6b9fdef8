//! Arriving jobs, and the hold of best-effort ones while the GPU is in trouble ([`policy::probe`]).

use std::os::fd::OwnedFd;

use policy::JobId;
use protocol::hello::JobClass;
use protocol::pages::LeasePage;
use protocol::segment::Mapping;

use super::goals::JobGoal;
use super::promises::JobCap;
use super::slo_watch::SloWatch;
use super::{BeJob, Job, State};
use crate::core::job_key::JobKey;

impl State {
    /// A job arrives. `is_new`: it has launched nothing under a previous daemon.
    pub(super) fn add_job(
        &mut self,
        key: JobKey,
        lease: (OwnedFd, Mapping<LeasePage>),
        is_new: bool,
    ) -> &mut Job {
        if is_new && key.class == JobClass::BestEffort {
            self.hold_as_comer(&key);
        }
        let ended = self.ended.iter().position(|job| job.key == key);
        let ended = ended.and_then(|index| self.ended.remove(index));
        if ended.is_none() {
            self.users.handle_new_job(key.uid);
        }
        let cap = ended.as_ref().map_or_else(JobCap::default, |job| job.cap);
        let (past, requests) =
            ended.map_or_else(Default::default, |job| (job.totals, job.requests));
        self.jobs_ever += 1;
        let id = JobId(self.jobs_ever);
        let be_job = match key.class {
            JobClass::BestEffort => Some(BeJob::new(id, lease.0, lease.1)),
            JobClass::HighPriority => None,
        };
        let be_job = be_job.map(|mut be_job| {
            be_job.set_held(self.holds.is_held(&key));
            be_job
        });
        self.jobs.push(Job {
            key,
            clients: Vec::new(),
            past,
            be_job,
            goal: JobGoal::default(),
            requests,
            slo_watch: SloWatch::default(),
            cap,
            is_collective_told: false,
        });
        self.jobs.last_mut().expect("it was just added")
    }

    /// With a reason, arriving best-effort jobs wait, with `is_for_returned` also those of a
    /// previous daemon. Without one, waiting jobs continue; the caller rings the bell on true.
    pub(crate) fn hold_comers(&mut self, why: Option<String>, is_for_returned: bool) -> bool {
        let goes_on = why.is_none() && !self.holds.waiting.is_empty();
        self.holds.is_for_returned = is_for_returned;
        self.holds.probe = why;
        if self.holds.probe.is_none() {
            self.holds.waiting.clear();
        }
        self.apply_holds();
        goes_on
    }

    pub(crate) fn hold_as_comer(&mut self, key: &JobKey) {
        let jobs = &self.jobs;
        let holds = &mut self.holds;
        (holds.waiting).retain(|waiting| jobs.iter().any(|job| job.key == *waiting));
        if holds.probe.is_some() && !holds.waiting.contains(key) {
            holds.waiting.push(key.clone());
        }
        self.apply_holds();
    }
}

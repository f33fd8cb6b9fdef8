//! Record of grants to best-effort jobs, their waits, and the rules behind them.
//! Off by default ([`State::start_record`]); then every poll that changes something adds an
//! [`Entry`] per job, which the poller collects and writes ([`State::take_record`]). The record
//! samples at the daemon's polls: a hold that begins and ends between two is only in the counters.

use std::fmt;

use policy::{ClassSet, JobId, Limit};
use protocol::lease::Terms;
use protocol::pages::LEASE_BESIDE_HP;

use super::{BeJob, State};

/// A best-effort job from one moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Since when, ns of the daemon's clock.
    pub at_ns: u64,
    /// The job's id.
    pub job: String,
    /// The grant.
    pub grant: Grant,
    /// Whether a thread waits at the gate.
    pub waiting: bool,
    /// The rule behind the lease, and so behind the wait.
    pub limit: Limit,
}

/// Terms of a lease, for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Nothing.
    Closed,
    /// Everything.
    Ungated,
    /// The terms' content.
    Open {
        /// Granted while HP work executed.
        beside_hp: bool,
        /// Resource classes.
        classes: ClassSet,
        /// Most SMs of a kernel; `u32::MAX`: unlimited.
        sms_max: u32,
        /// Expected ns that may still be charged.
        budget_ns: u64,
    },
}

impl fmt::Display for Entry {
    /// One line: time, job, grant, classes, SMs, budget, waiting, limit; separated by tabs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, classes, sms_max, budget_ns) = match self.grant {
            Grant::Closed => ("closed", 0, 0, 0),
            Grant::Ungated => ("ungated", ClassSet::ALL.bits(), u32::MAX, u64::MAX),
            Grant::Open {
                beside_hp,
                classes,
                sms_max,
                budget_ns,
            } => {
                let word = if beside_hp { "beside-hp" } else { "open" };
                (word, classes.bits(), sms_max, budget_ns)
            }
        };
        let job: String = self.job.chars().filter(|c| !c.is_control()).collect();
        write!(
            f,
            "{}\t{job}\t{word}\t{classes}\t{sms_max}\t{budget_ns}\t{}\t{}",
            self.at_ns,
            u8::from(self.waiting),
            self.limit.name()
        )
    }
}

#[derive(Debug, Default)]
pub(super) struct Record {
    entries: Vec<Entry>,
    leases: Leases,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    last: Vec<(JobId, Known)>,
}

type Known = (Terms, bool, Limit);

impl Leases {
    /// The grant, if it, the waiting or the limit has changed.
    pub(super) fn changed(&mut self, be_job: &BeJob) -> Option<Grant> {
        // A renewal moves the expiry only.
        let terms = Terms {
            expiry_ns: 0,
            ..*be_job.published()
        };
        let view = be_job.view();
        let known = (terms, view.waiting, be_job.limit());
        match self.last.iter_mut().find(|(job, _)| *job == be_job.id()) {
            Some((_, before)) if *before == known => return None,
            Some((_, before)) => *before = known,
            None => self.last.push((be_job.id(), known)),
        }
        Some(grant(&terms, view.charged_total_ns))
    }

    pub(super) fn retain<'j>(&mut self, be_jobs: impl Iterator<Item = &'j BeJob> + Clone) {
        self.last
            .retain(|(id, _)| be_jobs.clone().any(|be_job| be_job.id() == *id));
    }
}

fn grant(terms: &Terms, charged_total_ns: u64) -> Grant {
    if terms.ungated() {
        return Grant::Ungated;
    }
    let classes = ClassSet::from_bits_truncate(terms.terms);
    if classes.is_empty() {
        return Grant::Closed;
    }
    Grant::Open {
        beside_hp: terms.terms & LEASE_BESIDE_HP != 0,
        classes,
        sms_max: terms.sms_max,
        budget_ns: terms.limit_total_ns.saturating_sub(charged_total_ns),
    }
}

impl State {
    /// Records from the next poll on, for [`State::take_record`].
    pub fn start_record(&mut self) {
        self.record = Some(Record::default());
    }

    /// Entries since the last call, in order.
    pub fn take_record(&mut self) -> Vec<Entry> {
        let record = self.record.as_mut();
        record.map_or_else(Vec::new, |record| std::mem::take(&mut record.entries))
    }

    pub(super) fn note(&mut self, now_ns: u64) {
        let Some(record) = &mut self.record else {
            return;
        };
        let be_jobs = self.jobs.iter().filter_map(|job| job.be_job.as_ref());
        record.leases.retain(be_jobs);
        for job in &self.jobs {
            if let Some(be_job) = &job.be_job
                && let Some(grant) = record.leases.changed(be_job)
            {
                record.entries.push(Entry {
                    at_ns: now_ns,
                    job: job.key.id.clone(),
                    grant,
                    waiting: be_job.view().waiting,
                    limit: be_job.limit(),
                });
            }
        }
    }
}

//! The terms promised to best-effort jobs: a weight against each other, and a least share.
//!
//! **Weight.** While several jobs wait, a job's turn lasts as many quanta as its weight
//! ([`crate::gate`], "Turns"): in the long run two jobs that always want to launch charge expected
//! work in the ratio of their weights.
//!
//! **Least share** (`min_progress`). The gate's caller compares a job's share with the promised one
//! ([`crate::progress`]) and reports whether the job is *behind*. Waiting jobs that are behind have
//! every second turn, so that no other job starves. While one waits, the bounds of
//! [`crate::pillion`] are no narrower than [`BEHIND_IDLE`] and [`BEHIND_BESIDE`] slacks, if HP's
//! requests are within their target (a gain of 1 or more). Otherwise HP wins.

use crate::{JobId, JobView};

/// A best-effort job's terms, and whether they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTerms {
    /// Quanta in a turn, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// The job gets less than its least share.
    pub is_behind: bool,
}

impl Default for JobTerms {
    fn default() -> Self {
        Self {
            weight: 1,
            is_behind: false,
        }
    }
}

/// Greatest weight: a turn of a hundred quanta is a second for the others at the widest bounds.
pub const WEIGHT_MAX: u32 = 100;

/// Least bound on expected BE ns in flight while HP is idle and a job is behind, in slacks.
pub const BEHIND_IDLE: f64 = 4.0;

/// The same while HP is busy.
pub const BEHIND_BESIDE: f64 = 1.0;

#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// At most [`crate::JOBS_MAX`]; others have the default.
    jobs: Vec<(JobId, JobTerms)>,
}

impl Terms {
    pub(crate) fn of(&self, id: JobId) -> JobTerms {
        let found = self.jobs.iter().find(|(job, _)| *job == id);
        found.map_or_else(JobTerms::default, |(_, terms)| *terms)
    }

    pub(crate) fn set(&mut self, id: JobId, terms: JobTerms) {
        let terms = JobTerms {
            weight: terms.weight.clamp(1, WEIGHT_MAX),
            ..terms
        };
        match self.jobs.iter_mut().find(|(job, _)| *job == id) {
            Some((_, old)) => *old = terms,
            None if terms == JobTerms::default() => {}
            None => self.jobs.push((id, terms)),
        }
    }

    pub(crate) fn retain(&mut self, jobs: &[JobView]) {
        self.jobs
            .retain(|(id, _)| jobs.iter().any(|job| job.id == *id));
    }

    pub(crate) fn is_any_behind(&self, jobs: &[JobView]) -> bool {
        let mut waiting = jobs.iter().filter(|job| job.waiting);
        !self.jobs.is_empty() && waiting.any(|job| self.of(job.id).is_behind)
    }
}

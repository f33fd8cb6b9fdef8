//! The BE work launched since the last drain: the sum by which Orion throttles. Launched kernels
//! cannot be stopped. Orion therefore sums their expected durations. Over the bound nothing goes
//! until all work is complete; then the sum restarts from zero. A drain below the bound does not
//! zero the sum, in Listing 1 neither; such a sum holds no job. The daemon sees no launches but,
//! per job, a growing sum of charges, and adds its increments. Charges may be taken back (the sum
//! shrinks a little). An attaching job adds its work in flight; a detaching job leaves its charges,
//! which may still execute.

use crate::{JobId, JobView, Snapshot};

/// `be_duration` of Listing 1, in ns, over all BE jobs.
#[derive(Debug, Default)]
pub(crate) struct DrainSum {
    be_duration_ns: u64,
    /// Each job's charges at the last snapshot. At most [`crate::JOBS_MAX`].
    seen: Vec<(JobId, u64)>,
}

impl DrainSum {
    pub(crate) fn be_duration_ns(&self) -> u64 {
        self.be_duration_ns
    }

    /// Handles a snapshot: zeroes the sum if it is over `over_ns` and all work is complete.
    pub(crate) fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>, over_ns: u64) {
        self.handle_jobs(snapshot.be);
        match snapshot.hp.present {
            true => self.lift_if_drained(snapshot.be, over_ns),
            false => self.restart(snapshot.be),
        }
    }

    fn handle_jobs(&mut self, jobs: &[JobView]) {
        for job in jobs {
            let seen = self.seen.iter().find(|(id, _)| *id == job.id);
            let before_ns = seen.map_or_else(
                || job.charged_total_ns.saturating_sub(job.in_flight_ns()),
                |&(_, charged_ns)| charged_ns,
            );
            // One of the two differences is zero.
            self.be_duration_ns = self
                .be_duration_ns
                .saturating_add(job.charged_total_ns.saturating_sub(before_ns))
                .saturating_sub(before_ns.saturating_sub(job.charged_total_ns));
        }
        self.seen.clear();
        self.seen
            .extend(jobs.iter().map(|job| (job.id, job.charged_total_ns)));
    }

    /// Lines 12 to 14 of Listing 1: over the threshold and finished → zero.
    fn lift_if_drained(&mut self, jobs: &[JobView], bound_ns: u64) {
        if self.be_duration_ns > bound_ns && jobs.iter().all(|job| job.drained) {
            self.be_duration_ns = 0;
        }
    }

    /// Restarts with the work in flight.
    fn restart(&mut self, jobs: &[JobView]) {
        self.be_duration_ns = jobs
            .iter()
            .fold(0, |sum, job| sum.saturating_add(job.in_flight_ns()));
    }

    pub(crate) fn budget_ns(&self, bound_ns: u64) -> u64 {
        (bound_ns + 1).saturating_sub(self.be_duration_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, charged_total_ns: u64, completed_total_ns: u64) -> JobView {
        JobView {
            id: JobId(id),
            charged_total_ns,
            completed_total_ns,
            drained: charged_total_ns == completed_total_ns,
            waiting: false,
        }
    }

    #[test]
    fn charges_of_all_jobs_add_up_and_completions_do_not_count() {
        let mut sum = DrainSum::default();
        // 200 of its 300 charged are complete: 100 in flight.
        sum.handle_jobs(&[job(1, 300, 200)]);
        assert_eq!(sum.be_duration_ns(), 100);
        // Job 1 charges 50 more and completes all; job 2 attaches with 30 in flight.
        sum.handle_jobs(&[job(1, 350, 350), job(2, 30, 0)]);
        assert_eq!(sum.be_duration_ns(), 180); // 100 + 50 + 30
    }

    #[test]
    fn a_charge_taken_back_leaves_no_trace() {
        let mut sum = DrainSum::default();
        sum.handle_jobs(&[job(1, 0, 0)]);
        sum.handle_jobs(&[job(1, 500, 0)]);
        sum.handle_jobs(&[job(1, 100, 0)]);
        sum.handle_jobs(&[job(1, 160, 0)]);
        assert_eq!(sum.be_duration_ns(), 160);
    }

    #[test]
    fn lifts_only_when_over_the_bound_and_everything_is_complete() {
        let mut sum = DrainSum::default();
        let launched = [job(1, 100, 0), job(2, 50, 50)];
        sum.handle_jobs(&launched);
        // Job 2 attached with nothing in flight: 100 in flight, the bound is 100.
        sum.lift_if_drained(&[job(1, 100, 100), job(2, 50, 50)], 100);
        assert_eq!(sum.be_duration_ns(), 100);
        assert_eq!(sum.budget_ns(100), 1);
        sum.handle_jobs(&[job(1, 101, 100), job(2, 50, 50)]);
        sum.lift_if_drained(&[job(1, 101, 100), job(2, 50, 50)], 100);
        assert_eq!(sum.budget_ns(100), 0);
        sum.lift_if_drained(&[job(1, 101, 101), job(2, 50, 50)], 100);
        assert_eq!(sum.budget_ns(100), 101);
    }

    #[test]
    fn a_job_that_leaves_leaves_its_charges() {
        let mut sum = DrainSum::default();
        sum.handle_jobs(&[job(1, 80, 0), job(2, 30, 0)]);
        sum.handle_jobs(&[job(2, 30, 0)]);
        assert_eq!(sum.be_duration_ns(), 110);
        sum.lift_if_drained(&[job(2, 30, 30)], 100);
        assert_eq!(sum.be_duration_ns(), 0);
    }
}

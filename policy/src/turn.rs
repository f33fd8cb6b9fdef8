//! The turn among best-effort jobs: the holder, its charges in it, and since when they have not
//! moved. [`crate::gate`], "Turns", has the rules.

use crate::terms::Terms;
use crate::{JobId, JobView, Snapshot};

/// How long a holder may charge nothing, though it could, before the turn passes to a waiting job.
/// Ten times the time to wake a sleeper (40 to 90 µs, measured): with less, a job would lose its
/// turn before it wakes, repeatedly. It delays others only while the holder is stalled.
pub const TURN_PATIENCE_NS: u64 = 1_000_000;

/// How long turns last, and which jobs come first.
#[derive(Debug)]
pub(crate) struct Rules<'a> {
    /// For a job of weight 1.
    pub(crate) quantum_ns: u64,
    pub(crate) terms: &'a Terms,
}

impl Rules<'_> {
    pub(crate) fn quantum_ns(&self, id: JobId) -> u64 {
        let weight = self.terms.of(id).weight;
        self.quantum_ns.saturating_mul(weight.into())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Turn {
    holder: Option<JobId>,
    /// The holders of the last turn by order of ids, and of the last for a job that was behind.
    ordinary: Option<JobId>,
    promised: Option<JobId>,
    /// This turn is for a job that was behind.
    was_promised: bool,
    contended: bool,
    /// The holder's charges when its turn began, or at the last poll at which no other job waited.
    began_charged_ns: u64,
    last_charged_ns: u64,
    /// When the holder last charged something, or could not have.
    moved_at_ns: u64,
}

impl Turn {
    fn used_ns(&self, job: &JobView) -> u64 {
        job.charged_total_ns.saturating_sub(self.began_charged_ns)
    }

    /// What `job` may charge as far as turns go; `None` if it is not its turn.
    pub(crate) fn budget_ns(&self, job: &JobView, quantum_ns: u64) -> Option<u64> {
        if self.holder != Some(job.id) {
            return None;
        }
        if !self.contended {
            return Some(u64::MAX);
        }
        Some(quantum_ns.saturating_sub(self.used_ns(job)))
    }

    /// The law of turns: the job has the turn, and no other waits or its quantum is not used up.
    pub(crate) fn admits(&self, job: &JobView, spent_ns: u64, quantum_ns: u64) -> bool {
        let used_ns = self.used_ns(job).saturating_add(spent_ns);
        self.holder == Some(job.id) && (!self.contended || used_ns < quantum_ns)
    }

    /// [`Turn::handle_jobs`] without promises. Without HP the holder could always launch.
    pub(crate) fn handle_snapshot(
        &mut self,
        snapshot: &Snapshot<'_>,
        quantum_ns: u64,
        is_open: bool,
    ) {
        let terms = &Terms::default();
        let rules = Rules { quantum_ns, terms };
        let is_open = !snapshot.hp.present || is_open;
        self.handle_jobs(snapshot.now_ns, snapshot.be, &rules, is_open);
    }

    /// Passes the turn if it is over. `is_open`: the throttle and HP let the holder launch now.
    pub(crate) fn handle_jobs(
        &mut self,
        now_ns: u64,
        jobs: &[JobView],
        rules: &Rules<'_>,
        is_open: bool,
    ) {
        let holder = jobs.iter().find(|job| Some(job.id) == self.holder);
        let Some(holder) = holder else {
            return self.pass(now_ns, jobs, rules);
        };
        if holder.charged_total_ns != self.last_charged_ns || !is_open {
            self.last_charged_ns = holder.charged_total_ns;
            self.moved_at_ns = now_ns;
        }
        self.contended = self.is_waited_for(jobs);
        if !self.contended {
            self.began_charged_ns = holder.charged_total_ns;
        } else if self.is_over(now_ns, holder, rules.quantum_ns(holder.id)) {
            self.pass(now_ns, jobs, rules);
        }
    }

    fn is_over(&self, now_ns: u64, holder: &JobView, quantum_ns: u64) -> bool {
        let is_idle = !holder.waiting && holder.drained;
        let stalled_ns = now_ns.saturating_sub(self.moved_at_ns);
        self.used_ns(holder) >= quantum_ns || is_idle || stalled_ns >= TURN_PATIENCE_NS
    }

    /// Gives the turn to the next waiting job, or to the next at all if none waits: a job alone
    /// need not wait first. Every second turn is for the next waiting job that is behind.
    fn pass(&mut self, now_ns: u64, jobs: &[JobView], rules: &Rules<'_>) {
        let is_behind = |job: &JobView| job.waiting && rules.terms.of(job.id).is_behind;
        let promised = match self.was_promised {
            true => None,
            false => next(self.promised, jobs, is_behind),
        };
        self.was_promised = promised.is_some();
        let next = match promised {
            Some(job) => {
                self.promised = Some(job.id);
                Some(job)
            }
            None => {
                let ordinary = next(self.ordinary, jobs, |job| job.waiting)
                    .or_else(|| next(self.ordinary, jobs, |_| true));
                self.ordinary = ordinary.map(|job| job.id);
                ordinary
            }
        };
        self.holder = next.map(|job| job.id);
        self.began_charged_ns = next.map_or(0, |job| job.charged_total_ns);
        self.last_charged_ns = self.began_charged_ns;
        self.moved_at_ns = now_ns;
        self.contended = self.is_waited_for(jobs);
    }

    fn is_waited_for(&self, jobs: &[JobView]) -> bool {
        jobs.iter()
            .any(|job| job.waiting && Some(job.id) != self.holder)
    }
}

/// The job with the smallest id above `last`, else the smallest id, among those accepted by `may`.
fn next(last: Option<JobId>, jobs: &[JobView], may: impl Fn(&JobView) -> bool) -> Option<&JobView> {
    let comes_round = |job: &JobView| last.is_some_and(|last| job.id <= last);
    jobs.iter()
        .filter(|job| may(job))
        .min_by_key(|job| (comes_round(job), job.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM_NS: u64 = 101;

    fn rules(terms: &Terms) -> Rules<'_> {
        Rules {
            quantum_ns: QUANTUM_NS,
            terms,
        }
    }

    fn job(id: u64, charged_total_ns: u64, waiting: bool) -> JobView {
        JobView {
            id: JobId(id),
            charged_total_ns,
            completed_total_ns: 0,
            drained: false,
            waiting,
        }
    }

    fn step(turn: &mut Turn, now_ns: u64, jobs: &[JobView]) -> u64 {
        turn.handle_jobs(now_ns, jobs, &rules(&Terms::default()), true);
        turn.holder.expect("there are jobs").0
    }

    #[test]
    fn a_job_alone_has_the_turn_without_asking_and_without_end() {
        let mut turn = Turn::default();
        for charged_ns in [0, 500, 90_000] {
            assert_eq!(step(&mut turn, 0, &[job(4, charged_ns, false)]), 4);
            let budget_ns = turn.budget_ns(&job(4, charged_ns, false), QUANTUM_NS);
            assert_eq!(budget_ns, Some(u64::MAX));
        }
    }

    #[test]
    fn the_turn_passes_after_a_quantum_in_order_of_ids() {
        let mut turn = Turn::default();
        assert_eq!(
            step(
                &mut turn,
                0,
                &[job(3, 0, true), job(1, 0, true), job(2, 0, true)]
            ),
            1
        );
        let jobs = [job(3, 0, true), job(1, 100, true), job(2, 0, true)];
        assert_eq!(step(&mut turn, 1, &jobs), 1); // 100 < 101
        assert_eq!(turn.budget_ns(&jobs[1], QUANTUM_NS), Some(1));
        assert_eq!(turn.budget_ns(&jobs[0], QUANTUM_NS), None);
        assert_eq!(
            step(
                &mut turn,
                2,
                &[job(3, 0, true), job(1, 101, true), job(2, 0, true)]
            ),
            2
        );
        assert_eq!(
            step(
                &mut turn,
                3,
                &[job(3, 0, true), job(1, 101, true), job(2, 400, true)]
            ),
            3
        );
        // Round to the first again; its earlier charges do not count.
        let jobs = [job(3, 150, true), job(1, 101, true), job(2, 400, true)];
        assert_eq!(step(&mut turn, 4, &jobs), 1);
        assert_eq!(turn.budget_ns(&jobs[1], QUANTUM_NS), Some(101));
    }

    #[test]
    fn charges_made_while_nobody_waited_do_not_count() {
        let mut turn = Turn::default();
        step(&mut turn, 0, &[job(1, 0, false), job(2, 0, false)]);
        assert_eq!(
            step(&mut turn, 1, &[job(1, 9_000, false), job(2, 0, false)]),
            1
        );
        assert_eq!(
            step(&mut turn, 2, &[job(1, 9_100, false), job(2, 0, true)]),
            1
        );
        assert_eq!(
            step(&mut turn, 3, &[job(1, 9_101, false), job(2, 0, true)]),
            2
        );
    }

    #[test]
    fn an_idle_holder_yields_to_who_waits() {
        let mut turn = Turn::default();
        let idle = JobView {
            drained: true,
            ..job(1, 0, false)
        };
        assert_eq!(step(&mut turn, 0, &[idle, job(2, 0, false)]), 1);
        assert_eq!(step(&mut turn, 1, &[idle, job(2, 0, false)]), 1);
        assert_eq!(step(&mut turn, 2, &[idle, job(2, 0, true)]), 2);
    }

    #[test]
    fn a_stalled_holder_loses_the_turn_after_the_patience() {
        let mut turn = Turn::default();
        let jobs = [job(1, 0, true), job(2, 0, true)];
        assert_eq!(step(&mut turn, 0, &jobs), 1);
        assert_eq!(step(&mut turn, TURN_PATIENCE_NS - 1, &jobs), 1);
        assert_eq!(step(&mut turn, TURN_PATIENCE_NS, &jobs), 2);
        assert_eq!(step(&mut turn, 2 * TURN_PATIENCE_NS - 1, &jobs), 2);
        assert_eq!(step(&mut turn, 2 * TURN_PATIENCE_NS, &jobs), 1);
    }

    #[test]
    fn time_in_which_nobody_could_launch_does_not_count_as_stalled() {
        let mut turn = Turn::default();
        let jobs = [job(1, 0, true), job(2, 0, true)];
        step(&mut turn, 0, &jobs);
        let terms = Terms::default();
        turn.handle_jobs(50 * TURN_PATIENCE_NS, &jobs, &rules(&terms), false);
        assert_eq!(step(&mut turn, 51 * TURN_PATIENCE_NS - 1, &jobs), 1);
        assert_eq!(step(&mut turn, 51 * TURN_PATIENCE_NS, &jobs), 2);
    }

    #[test]
    fn the_turn_of_a_job_that_left_goes_to_the_next_and_of_nobody_to_nobody() {
        let mut turn = Turn::default();
        assert_eq!(
            step(
                &mut turn,
                0,
                &[job(1, 0, true), job(2, 0, true), job(5, 0, true)]
            ),
            1
        );
        assert_eq!(step(&mut turn, 1, &[job(2, 0, false), job(5, 0, true)]), 5);
        turn.handle_jobs(2, &[], &rules(&Terms::default()), true);
        assert_eq!(turn.holder, None);
    }

    #[test]
    fn a_job_that_is_behind_has_every_second_turn_and_the_others_go_round() {
        let mut terms = Terms::default();
        let behind = crate::JobTerms {
            is_behind: true,
            ..crate::JobTerms::default()
        };
        terms.set(JobId(2), behind);
        let mut turn = Turn::default();
        let mut charged_ns = [0; 4];
        let mut holders = Vec::new();
        for now_ns in 0..9 {
            let jobs: Vec<JobView> = (1..)
                .zip(charged_ns)
                .map(|(id, ns)| job(id, ns, true))
                .collect();
            turn.handle_jobs(now_ns, &jobs, &rules(&terms), true);
            let holder = turn.holder.expect("there are jobs").0;
            charged_ns[holder as usize - 1] += QUANTUM_NS;
            holders.push(holder);
        }
        assert_eq!(holders, [2, 1, 2, 2, 2, 3, 2, 4, 2]);
    }
}

//! The jobs that wait. High-priority jobs are tried first, and while one waits no best-effort job
//! is placed on a model of GPU that it may have. Within a class jobs go in order of arrival, but a
//! job that fits nowhere lets later ones pass, until it has waited for the queue's patience: from
//! then on no job of its class that may have one of its models passes it. So within a class no job
//! starves; best-effort jobs get what high-priority jobs leave, which may be nothing. A job that
//! fits nowhere does not fit until something is released: a policy's [`Decision::Wait`] lasts until
//! then. Failed demands are remembered, so a long queue costs a look-up per job, not a search.

use std::collections::{HashSet, VecDeque};

use crate::job::{Class, JobId, JobSpec, Models};
use crate::placement::{Decision, Part, Placement, Reason};
use crate::view::View;

/// Waiting jobs of one class that are tried at a time; those behind them wait for these.
pub const TRIED_MAX: usize = 256;

/// Waiting high-priority jobs whose models are kept free of best-effort jobs.
const BLOCKING_MAX: usize = 1024;

/// Failed demands that are remembered at a time.
const FAILED_MAX: usize = 4096;

struct Waiting {
    job: JobSpec,
    since_ns: u64,
}

/// The fate of a waiting job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is placed there.
    Placed(JobId, Vec<Part>),
    /// It fits into no empty cluster, and is not in the queue any more.
    Refused(JobId),
}

/// The queue.
pub struct Queue {
    classes: [VecDeque<Waiting>; 2],
    patience_ns: u64,
    /// Demands that fitted nowhere since the last release.
    failed: HashSet<JobSpec>,
}

const CLASSES: [Class; 2] = [Class::HighPriority, Class::BestEffort];

impl Queue {
    /// With that patience.
    #[must_use]
    pub fn new(patience_ns: u64) -> Self {
        Self {
            classes: [VecDeque::new(), VecDeque::new()],
            patience_ns,
            failed: HashSet::new(),
        }
    }

    /// How many jobs wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A job arrived.
    pub fn push(&mut self, job: JobSpec, now_ns: u64) {
        let waiting = Waiting {
            job,
            since_ns: now_ns,
        };
        self.classes[place(waiting.job.class)].push_back(waiting);
    }

    /// Something was released: jobs that fitted nowhere may fit.
    pub fn handle_release(&mut self) {
        self.failed.clear();
    }

    /// Places the jobs that fit, in `view`.
    pub fn poll(
        &mut self,
        view: &mut View,
        policy: &mut dyn Placement,
        now_ns: u64,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut blocked = Models::NONE;
        for class in CLASSES {
            self.poll_class(class, blocked, view, policy, now_ns, &mut outcomes);
            let waiting = self.classes[place(class)].iter().take(BLOCKING_MAX);
            blocked = waiting.fold(blocked, |all, waiting| all.and(waiting.job.models));
        }
        outcomes
    }

    /// Places no job that may have a `blocked` model.
    fn poll_class(
        &mut self,
        class: Class,
        mut blocked: Models,
        view: &mut View,
        policy: &mut dyn Placement,
        now_ns: u64,
        outcomes: &mut Vec<Outcome>,
    ) {
        let patience_ns = if policy.is_strict() {
            0
        } else {
            self.patience_ns
        };
        let queue = &mut self.classes[place(class)];
        let (mut passed, mut tried) = (0, 0);
        while passed < queue.len() && tried < TRIED_MAX {
            let waiting = &queue[passed];
            let job = &waiting.job;
            if job.models.meets(blocked) {
                passed += 1;
                continue;
            }
            tried += 1;
            let asked = job.without_id();
            let decision = if self.failed.contains(&asked) {
                Decision::Wait(Reason::Busy)
            } else {
                policy.place(view, job, now_ns, None)
            };
            match decision {
                Decision::Place(parts) => {
                    view.place(job, &parts);
                    outcomes.push(Outcome::Placed(job.id, parts));
                    queue.remove(passed);
                }
                Decision::Refuse(_) => {
                    outcomes.push(Outcome::Refused(job.id));
                    queue.remove(passed);
                }
                Decision::Wait(_) => {
                    if now_ns.saturating_sub(waiting.since_ns) >= patience_ns {
                        blocked = blocked.and(job.models);
                    }
                    if self.failed.len() >= FAILED_MAX {
                        self.failed.clear();
                    }
                    self.failed.insert(asked);
                    passed += 1;
                }
            }
        }
    }
}

const fn place(class: Class) -> usize {
    match class {
        Class::HighPriority => 0,
        Class::BestEffort => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Inventory, Model};
    use crate::placement::Holding;
    use crate::placement::best::Best;
    use crate::placement::fits::FirstFit;
    use crate::placement::strict::Strict;

    const HP: Class = Class::HighPriority;
    const BE: Class = Class::BestEffort;

    struct Scene {
        view: View,
        policy: Best<FirstFit>,
        queue: Queue,
    }

    fn scene() -> Scene {
        let model = Model::new("T4", 0);
        let view = View::new(Inventory::uniform(model, 1, 2).unwrap());
        Scene {
            policy: Best::new(FirstFit, Holding::DEMAND, &view),
            view,
            queue: Queue::new(10),
        }
    }

    impl Scene {
        fn placed(&mut self, jobs: &[JobSpec], now_ns: u64) -> Vec<u64> {
            for job in jobs {
                self.queue.push(job.clone(), now_ns);
            }
            let outcomes = self.queue.poll(&mut self.view, &mut self.policy, now_ns);
            let placed = outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Placed(job, _) => Some(job.0),
                Outcome::Refused(_) => None,
            });
            placed.collect()
        }

        fn release(&mut self, job: u64) {
            self.view.release(JobId(job));
            self.queue.handle_release();
        }
    }

    #[test]
    fn a_job_that_does_not_fit_lets_others_pass_until_its_patience_ends() {
        let mut scene = scene();
        let first = [JobSpec::new(1, BE, 1, 1000), JobSpec::new(2, BE, 2, 1000)];
        assert_eq!(scene.placed(&first, 0), [1]);
        assert_eq!(scene.placed(&[JobSpec::new(3, BE, 1, 500)], 5), [3]);
        scene.release(3);
        assert_eq!(scene.placed(&[JobSpec::new(4, BE, 1, 500)], 10), [0; 0]);
        scene.release(1);
        assert_eq!(scene.placed(&[], 11), [2]);
    }

    #[test]
    fn best_effort_jobs_wait_while_a_high_priority_job_waits() {
        let mut scene = scene();
        let jobs = [JobSpec::new(1, BE, 2, 1000), JobSpec::new(2, HP, 1, 500)];
        assert_eq!(scene.placed(&jobs[..1], 0), [1]);
        assert_eq!(scene.placed(&jobs[1..], 1), [0; 0]);
        scene.queue.push(JobSpec::new(3, BE, 1, 500), 2);
        scene.release(1);
        assert_eq!(scene.placed(&[], 3), [2, 3]);
    }

    #[test]
    fn under_a_strict_policy_no_job_passes() {
        let mut scene = scene();
        let mut strict = Strict(Box::new(Best::new(FirstFit, Holding::DEMAND, &scene.view)));
        let jobs = [(1, 1000), (2, 1000), (1, 500)];
        for (number, (gpus, milli)) in jobs.into_iter().enumerate() {
            let job = JobSpec::new(number as u64, BE, gpus, milli);
            scene.queue.push(job, 0);
        }
        let outcomes = scene.queue.poll(&mut scene.view, &mut strict, 0);
        assert_eq!(outcomes.len(), 1);
        assert_eq!(scene.queue.len(), 2);
    }

    #[test]
    fn a_job_that_never_fits_is_refused() {
        let mut scene = scene();
        scene.queue.push(JobSpec::new(1, BE, 3, 1000), 0);
        let outcomes = scene.queue.poll(&mut scene.view, &mut scene.policy, 0);
        assert_eq!(outcomes, [Outcome::Refused(JobId(1))]);
        assert!(scene.queue.is_empty());
    }
}

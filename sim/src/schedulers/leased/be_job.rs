//! A best-effort client from the view of the daemon and its own library.

use std::collections::VecDeque;

use policy::{ClassSet, JobId, JobTerms, JobView, Kernel, Lease, Limit, Progress, admits};

use crate::host::HostModel;
use crate::scheduler::Launch;
use crate::schedulers::helper::Helper;
use crate::schedulers::learner::Learner;

#[derive(Debug)]
pub(super) struct BeJob {
    /// Number and cost of launches that went and were not seen complete.
    pub(super) in_flight: VecDeque<(u64, u64)>,
    pub(super) learner: Option<Box<Learner>>,
    pub(super) charged_ns: u64,
    pub(super) completed_ns: u64,
    pub(super) helper: Helper,
    pub(super) weight: u32,
    pub(super) min_progress: f64,
    pub(super) max_share: f64,
    pub(super) progress: Progress,
    pub(super) view: JobView,
    pub(super) limit: Limit,
    /// The policy's grant as of the last poll, up to a sum of charges.
    pub(super) granted: Terms,
    pub(super) published: Terms,
    pub(super) wait: Option<Wait>,
    held_since_ns: Option<u64>,
    pub(super) copies_ns: VecDeque<u64>,
    /// A launch was made and not tried yet; valid only while no thread waits.
    pub(super) is_fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) lease: Lease,
    pub(super) limit_total_ns: u64,
    /// `max_hold` lets nothing go.
    pub(super) is_held: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// When it goes without a lease.
    pub(super) end_ns: u64,
    pub(super) retry_ns: u64,
}

impl BeJob {
    pub(super) fn new(index: usize, learns_durations: bool) -> Self {
        Self {
            in_flight: VecDeque::new(),
            learner: learns_durations.then(Box::default),
            charged_ns: 0,
            completed_ns: 0,
            helper: Helper::new(),
            weight: 1,
            min_progress: 0.0,
            max_share: 1.0,
            progress: Progress::default(),
            view: JobView {
                id: JobId(index as u64),
                charged_total_ns: 0,
                completed_total_ns: 0,
                drained: true,
                waiting: false,
            },
            limit: Limit::Throttle,
            granted: CLOSED,
            published: CLOSED,
            wait: None,
            held_since_ns: None,
            copies_ns: VecDeque::new(),
            is_fresh: false,
        }
    }

    pub(super) fn read(&mut self) {
        self.view.charged_total_ns = self.charged_ns;
        self.view.completed_total_ns = self.completed_ns;
        self.view.drained = self.in_flight.is_empty() && self.copies_ns.is_empty();
        self.view.waiting = self.wait.is_some();
    }

    pub(super) fn terms(&self) -> JobTerms {
        let share = self.progress.share().map_or(1.0, |share| share.value());
        JobTerms {
            weight: self.weight,
            is_behind: share < self.min_progress,
        }
    }

    pub(super) fn grant(&mut self, lease: Lease, limit: Limit) {
        self.limit = limit;
        self.granted = if lease.ungated {
            Terms {
                lease: Lease::ungated(0),
                limit_total_ns: u64::MAX,
                is_held: false,
            }
        } else if matches!(limit, Limit::Paused | Limit::Rate) {
            Terms {
                is_held: true,
                ..CLOSED
            }
        } else if lease.budget_ns == 0 || lease.classes.is_empty() {
            CLOSED
        } else {
            Terms {
                lease: Lease {
                    budget_ns: 0,
                    ..lease
                },
                limit_total_ns: self.view.charged_total_ns.saturating_add(lease.budget_ns),
                is_held: false,
            }
        };
    }

    /// Publishes the grant if it changed, and wakes the threads waiting for it. Returns whether a
    /// lease is out that a high-priority launch must void.
    pub(super) fn publish(&mut self, now_ns: u64, host: &HostModel) -> bool {
        let clock_ns = host.clock_ns(now_ns);
        let expiry_ns = self.published.lease.expiry_ns;
        let mut renewed = self.granted;
        renewed.lease.expiry_ns = expiry_ns;
        let is_same = renewed == self.published;
        let is_open = self.granted.limit_total_ns > 0;
        let is_gated = is_open && !self.granted.lease.ungated && !self.granted.lease.standing;
        if is_same {
            let left_ns = expiry_ns.saturating_sub(clock_ns);
            let whole_ns = self.granted.lease.expiry_ns.saturating_sub(clock_ns);
            if !is_gated || left_ns >= whole_ns / 2 {
                return is_gated;
            }
        }
        let is_renewal = is_same && clock_ns < expiry_ns;
        self.published = self.granted;
        if self.published.is_held {
            self.held_since_ns.get_or_insert(now_ns);
        } else if let Some(since_ns) = self.held_since_ns.take()
            && let Some(wait) = &mut self.wait
        {
            // Held time does not count.
            let began_ns = wait.end_ns.saturating_sub(host.max_hold_ns);
            wait.end_ns += now_ns.saturating_sub(since_ns.max(began_ns));
        }
        if let Some(wait) = self.wait.as_mut().filter(|_| !is_renewal)
            && is_open
        {
            wait.retry_ns = wait.retry_ns.min(now_ns + host.wake_ns);
        }
        is_gated
    }

    pub(super) fn tries_ns(&self) -> u64 {
        match self.wait {
            None if self.is_fresh => 0,
            None => u64::MAX,
            Some(wait) if self.published.is_held => wait.retry_ns,
            Some(wait) => wait.retry_ns.min(wait.end_ns),
        }
    }

    /// Whether the launch goes, now and by the clock; if so, charges it.
    pub(super) fn try_go(&mut self, now: (u64, u64), epoch: u64, launch: &Launch) -> bool {
        self.is_fresh = false;
        let kernel = self.judged(launch);
        let Some(is_alone) = self.try_charge(now, epoch, &kernel) else {
            return false;
        };
        if let Some(learner) = &mut self.learner {
            learner.handle_launch(now.0, launch, if is_alone { epoch } else { 0 });
        }
        self.in_flight.push_back((launch.seq, kernel.expected_ns));
        self.helper.issued = launch.seq;
        true
    }

    pub(super) fn try_copy(&mut self, now: (u64, u64), epoch: u64, bytes: u64) -> bool {
        if self.wait.is_some() && self.tries_ns() > now.0 {
            return false;
        }
        let kernel = Kernel::of_copy(bytes, false);
        let goes = self.try_charge(now, epoch, &kernel).is_some();
        if goes {
            self.copies_ns.push_back(kernel.expected_ns);
        }
        goes
    }

    /// Its oldest large copy was seen complete; returns whether a waiting thread rings.
    pub(super) fn complete_copy(&mut self) -> bool {
        let cost_ns = self.copies_ns.pop_front();
        self.completed_ns += cost_ns.unwrap_or(0);
        cost_ns.is_some() && self.wait.is_some()
    }

    /// Charges a launch or copy that goes, and returns whether no high-priority work is beside it.
    fn try_charge(
        &mut self,
        (now_ns, clock_ns): (u64, u64),
        epoch: u64,
        kernel: &Kernel,
    ) -> Option<bool> {
        let terms = &self.published;
        let budget_ns = terms.limit_total_ns.saturating_sub(self.charged_ns);
        let lease = Lease {
            budget_ns,
            ..terms.lease
        };
        let is_current = lease.standing || lease.epoch == epoch;
        let is_live = lease.ungated || (is_current && clock_ns < lease.expiry_ns);
        let is_forced = (self.wait).is_some_and(|wait| !terms.is_held && wait.end_ns <= now_ns);
        if !(is_forced || is_live && admits(&lease, 0, kernel)) {
            if let Some(wait) = &mut self.wait {
                wait.retry_ns = u64::MAX;
            }
            return None;
        }
        self.wait = None;
        self.charged_ns += kernel.expected_ns;
        Some(is_live && !lease.ungated && !lease.standing && !lease.beside_hp)
    }

    pub(super) fn judged(&self, launch: &Launch) -> Kernel {
        let told = launch.kernel;
        let learnt = self.learner.as_ref().map(|learner| &learner.durations);
        Kernel {
            expected_ns: learnt.map_or(told.expected_ns, |durations| {
                durations.expected_ns(launch.kernel_index, told.expected_ns)
            }),
            ..told
        }
    }

    /// Launches to `seq` were seen complete, between both polls; returns whether a waiter rings.
    pub(super) fn complete(&mut self, seq: u64, (after_ns, by_ns): (u64, u64), epoch: u64) -> bool {
        if let Some(learner) = &mut self.learner {
            learner.handle_complete(seq, (after_ns, by_ns), epoch);
        }
        let before = self.in_flight.len();
        while let Some(&(number, cost_ns)) = self.in_flight.front()
            && number <= seq
        {
            self.in_flight.pop_front();
            self.completed_ns += cost_ns;
        }
        self.in_flight.len() != before && self.wait.is_some()
    }
}

const CLOSED: Terms = Terms {
    lease: Lease {
        epoch: 0,
        expiry_ns: 0,
        classes: ClassSet::EMPTY,
        sms_max: 0,
        budget_ns: 0,
        beside_hp: false,
        whole: false,
        standing: false,
        ungated: false,
    },
    limit_total_ns: 0,
    is_held: false,
};

//! Caps on the GPU's time for best-effort jobs, independent of all other work.
//!
//! **Law.** A capped job has a token bucket of expected ns. It fills with time, by the job's share
//! of it; each launch takes its expected duration; the depth is [`PERIOD_NS`] of the share. An
//! empty bucket closes the job until it is half full, so that the job goes in bursts and is not
//! woken for each kernel. The kernel that empties the bucket may be longer than the rest: the
//! difference is a debt that time pays, so the share is exact over any time that is long beside one
//! kernel. Nobody sleeps for the debt: the lease has a budget.
//!
//! **Trim.** Beside other processes a kernel takes longer than expected under MPS; in time slices
//! an interrupted kernel looks longer; an unknown kernel counts as 100 us. Each launch therefore
//! costs its expected duration times the job's *factor*: the measured compute time of the last
//! seconds over the charges in them, both with weights that fall by half in [`HALF_NS`]. Earlier
//! charges that cost too little or too much are owed, and paid by the rate of the bucket. Without a
//! measurement the factor stays, and after [`BLIND_NS`] of work without one it is 1 at least. A cap
//! is independent of high-priority work: it holds without any, and nothing lifts it, neither
//! `max_hold` nor a promise. A job that it closes counts as not waiting.
//!
//! Source: ByteCUDA's throttle in MuxFlow §4.1 delays launches by a PID controller on the device's
//! utilisation, which is shared and late: HAMi-core's caps of 30 and 70 % gave 46 and 55. Charges
//! are the job's own and known before the launch.

use crate::lease::Lease;
use crate::{JobId, JobView, Limit, Snapshot};

/// The time that fills a bucket, ns.
pub const PERIOD_NS: u64 = 20_000_000;

/// The age at which a measurement counts half, ns.
pub const HALF_NS: u64 = 700_000_000;

/// Time without a measurement after which a working job's factor is at least 1: the job gets no
/// more than its charges allow, ns.
pub const BLIND_NS: u64 = 10_000_000_000;

/// The factor's bounds: unknown kernels count as 100 us and take from 6 us to 6 ms. A measurement
/// beyond them is wrong, or of other work.
pub const FACTOR: [f64; 2] = [1.0 / 16.0, 64.0];

/// The least share: with one kernel of a second that is a hold of 100 s.
pub const SHARE_MIN: f64 = 0.01;

/// Whether `share` is a valid part of the GPU's time for a cap, [`SHARE_MIN`] to 1; 1 is no cap.
#[must_use]
pub fn is_share(share: f64) -> bool {
    (SHARE_MIN..=1.0).contains(&share)
}

#[derive(Debug, Default)]
pub(crate) struct Caps {
    /// At most [`crate::JOBS_MAX`].
    jobs: Vec<Capped>,
}

/// What a detached job has used beyond its share: the next job under its name pays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    ns: u64,
    at_ns: u64,
}

#[derive(Debug)]
struct Capped {
    id: JobId,
    share: f64,
    seen: Option<Seen>,
    /// Expected ns that it may charge; below 0 a debt.
    level_ns: f64,
    is_open: bool,
    trim: Trim,
    /// Measured compute time beyond the cost of its charges, ns; below 0 less. Paid by the rate.
    owed_ns: f64,
}

/// A job's measured compute time, and its charges meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Trim {
    last: Option<Seen>,
    /// When it was last seen to compute, or first seen at all.
    worked: Option<Seen>,
    has_worked: bool,
    busy_ns: f64,
    charged_ns: f64,
    factor: Option<f64>,
    /// Compute time beyond the cost of its charges since it was last seen to compute, ns.
    residual_ns: f64,
}

impl Trim {
    /// The job recently computed for that share of the time; returns the compute time beyond the
    /// cost of its charges, ns. Charges before the first measurement are ignored. Absence is no
    /// evidence until the job computes again: it may have been lost.
    fn handle_busy(&mut self, now: Seen, share: f64) -> f64 {
        if share <= 0.0 && (!self.has_worked || self.is_blind(now)) {
            return 0.0;
        }
        let Some(last) = self.last.replace(now) else {
            return 0.0;
        };
        let passed_ns = now.at_ns.saturating_sub(last.at_ns) as f64;
        let keeps = (-passed_ns / HALF_NS as f64).exp2();
        self.busy_ns = self.busy_ns * keeps + share * passed_ns;
        let charged_ns = now.charged_ns.saturating_sub(last.charged_ns) as f64;
        self.charged_ns = self.charged_ns * keeps + charged_ns;
        self.residual_ns += share * passed_ns - charged_ns * self.factor.unwrap_or(1.0);
        if share <= 0.0 {
            return 0.0;
        }
        if self.is_blind(now) {
            self.residual_ns = 0.0;
        }
        self.worked = Some(now);
        self.has_worked = true;
        if self.charged_ns >= EVIDENCE_NS {
            let factor = self.busy_ns / self.charged_ns;
            self.factor = Some(factor.clamp(FACTOR[0], FACTOR[1]));
        }
        std::mem::take(&mut self.residual_ns)
    }

    fn is_blind(&self, now: Seen) -> bool {
        let worked = self.worked.unwrap_or(now);
        let charged_ns = now.charged_ns.saturating_sub(worked.charged_ns) as f64;
        now.at_ns.saturating_sub(worked.at_ns) >= BLIND_NS && charged_ns >= EVIDENCE_NS
    }

    fn factor(&self, now: Seen) -> f64 {
        let factor = self.factor.unwrap_or(1.0);
        match self.is_blind(now) {
            true => factor.max(1.0),
            false => factor,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    at_ns: u64,
    charged_ns: u64,
}

impl Caps {
    /// Sets a job's share; an invalid one, or 1, is no cap.
    pub(crate) fn set(&mut self, id: JobId, share: f64) {
        let is_cap = is_share(share) && share < 1.0;
        let place = self.jobs.iter().position(|job| job.id == id);
        match place {
            Some(place) if is_cap => self.jobs[place].set(share),
            Some(place) => _ = self.jobs.swap_remove(place),
            None if is_cap => self.jobs.push(Capped::new(id, share)),
            None => {}
        }
    }

    pub(crate) fn share(&self, id: JobId) -> f64 {
        self.of(id).map_or(1.0, |job| job.share)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs' charges as of now; other jobs are seen later.
    pub(crate) fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        for capped in &mut self.jobs {
            if let Some(job) = jobs.iter().find(|job| job.id == capped.id) {
                capped.handle_charges(now_ns, job.charged_total_ns);
            }
        }
    }

    pub(crate) fn handle_gone(&mut self, id: JobId) -> Option<Debt> {
        let place = self.jobs.iter().position(|job| job.id == id)?;
        let job = self.jobs.swap_remove(place);
        Some(Debt {
            ns: (-job.level_ns).max(0.0) as u64,
            at_ns: job.seen?.at_ns,
        })
    }

    pub(crate) fn restore(&mut self, now_ns: u64, id: JobId, debt: Debt) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            let paid_ns = now_ns.saturating_sub(debt.at_ns) as f64 * job.share;
            job.level_ns = (paid_ns - debt.ns as f64).min(job.level_ns);
            job.is_open &= job.level_ns > 0.0;
        }
    }

    /// Further measurements of the job are of other processes: trimming restarts.
    pub(crate) fn handle_other_processes(&mut self, id: JobId) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.trim.last = None;
            job.trim.residual_ns = 0.0;
        }
    }

    /// The job recently computed for that share of the time: finite, from 0 on, above 1 with
    /// several processes. 0 means nothing before the job computed.
    pub(crate) fn handle_busy(&mut self, now_ns: u64, id: JobId, share: f64) {
        let known = self.jobs.iter_mut().find(|job| job.id == id);
        // No device has more processes: a greater share is an error.
        let is_share = (0.0..=256.0).contains(&share);
        if let Some(job) = known.filter(|_| is_share)
            && let Some(seen) = job.seen
        {
            let now = Seen {
                at_ns: now_ns,
                ..seen
            };
            let owed_ns = job.owed_ns + job.trim.handle_busy(now, share);
            let most_ns = OWED_MAX_NS as f64 * job.share;
            job.owed_ns = owed_ns.clamp(-most_ns, most_ns);
        }
    }

    /// The factor on a capped job's charges, and whether it was not measured for [`BLIND_NS`].
    pub(crate) fn factor(&self, now_ns: u64, id: JobId) -> Option<(f64, bool)> {
        let job = self.of(id)?;
        let now = Seen {
            at_ns: now_ns,
            charged_ns: job.seen.map_or(0, |seen| seen.charged_ns),
        };
        Some((job.trim.factor(now), job.trim.is_blind(now)))
    }

    pub(crate) fn is_closed(&self, id: JobId) -> bool {
        self.of(id).is_some_and(|job| !job.is_open)
    }

    pub(crate) fn meet(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        (lease, limit): (Lease, Limit),
    ) -> (Lease, Limit) {
        let Some(capped) = self.of(snapshot.be[job].id) else {
            return (lease, limit);
        };
        bounded(snapshot, (lease, limit), capped.is_open, capped.budget_ns())
    }

    /// The cap's law for one kernel of job `id`, after `spent_ns` were charged.
    pub(crate) fn admits(&self, id: JobId, spent_ns: u64, is_whole: bool) -> bool {
        self.of(id)
            .is_none_or(|job| job.is_open && (is_whole || (spent_ns as f64) < job.chargeable_ns()))
    }

    /// When the next waiting, closed job opens; `None` if there is none.
    pub(crate) fn opens_ns(&self, jobs: &[JobView]) -> Option<u64> {
        let is_waited_for =
            |capped: &&Capped| jobs.iter().any(|job| job.id == capped.id && job.waiting);
        let closed = self.jobs.iter().filter(|capped| !capped.is_open);
        closed.filter(is_waited_for).map(Capped::opens_ns).min()
    }

    fn of(&self, id: JobId) -> Option<&Capped> {
        self.jobs.iter().find(|job| job.id == id)
    }
}

impl Capped {
    fn new(id: JobId, share: f64) -> Self {
        Self {
            id,
            share,
            seen: None,
            level_ns: depth_ns(share),
            is_open: true,
            trim: Trim::default(),
            owed_ns: 0.0,
        }
    }

    fn set(&mut self, share: f64) {
        self.share = share;
        self.level_ns = self.level_ns.min(depth_ns(share));
    }

    fn handle_charges(&mut self, now_ns: u64, charged_ns: u64) {
        let seen = Seen {
            at_ns: now_ns,
            charged_ns,
        };
        let last = self.seen.replace(seen).unwrap_or(seen);
        self.trim.worked.get_or_insert(seen);
        let passed_ns = now_ns.saturating_sub(last.at_ns) as f64;
        let spent_ns = (charged_ns as f64 - last.charged_ns as f64) * self.trim.factor(seen);
        let depth_ns = depth_ns(self.share);
        let rate = self.rate();
        self.owed_ns -= passed_ns * (self.share - rate);
        self.level_ns = (self.level_ns + passed_ns * rate - spent_ns).min(depth_ns);
        if self.level_ns <= 0.0 {
            self.is_open = false;
        } else if self.level_ns >= depth_ns * OPENS_AT {
            self.is_open = true;
        }
    }

    /// The rate at which the bucket fills: the share, less what is owed of it.
    fn rate(&self) -> f64 {
        let paid = self.owed_ns / PAYS_NS as f64;
        (self.share - paid).clamp(self.share * 0.5, self.share * 1.5)
    }

    /// What it may charge while it is open: charges that cost less than the level.
    fn chargeable_ns(&self) -> f64 {
        let now = self.seen.unwrap_or_default();
        self.level_ns / self.trim.factor(now)
    }

    fn budget_ns(&self) -> u64 {
        self.chargeable_ns().ceil() as u64
    }

    fn opens_ns(&self) -> u64 {
        let missing_ns = depth_ns(self.share) * OPENS_AT - self.level_ns;
        let at_ns = self.seen.map_or(0, |seen| seen.at_ns);
        // Rounded up, so that it is not early.
        at_ns.saturating_add((missing_ns / self.rate()).max(0.0) as u64 + 1)
    }
}

/// Limits a decision about a job by its bucket, which is open or not and allows `budget_ns`.
pub(crate) fn bounded(
    snapshot: &Snapshot<'_>,
    (lease, limit): (Lease, Limit),
    is_open: bool,
    budget_ns: u64,
) -> (Lease, Limit) {
    // A pause is stronger: it holds collective kernels, too.
    if limit == Limit::Paused {
        return (lease, limit);
    }
    if !is_open {
        let closed = Lease {
            standing: lease.ungated || lease.standing,
            ..Lease::closed(snapshot.epoch, lease.expiry_ns)
        };
        return (closed, Limit::Rate);
    }
    if budget_ns == u64::MAX {
        return (lease, limit);
    }
    if lease.ungated {
        let lease = Lease {
            ungated: false,
            standing: true,
            budget_ns,
            ..lease
        };
        return (lease, Limit::Budget);
    }
    // A kernel must fit into the rest of another law's bound, not into that of the bucket. One
    // number cannot state both; the bound is short, and the excess over the bucket is a debt.
    let lease = match lease.whole {
        true => lease,
        false => Lease {
            budget_ns: lease.budget_ns.min(budget_ns),
            ..lease
        },
    };
    (lease, limit)
}

fn depth_ns(share: f64) -> f64 {
    share * PERIOD_NS as f64
}

/// The time in which the debt is paid, ns: twice the measurements' interval avoids oscillation.
const PAYS_NS: u64 = 400_000_000;

const OWED_MAX_NS: u64 = 200_000_000;

/// Charges below this are no evidence for a factor, ns.
const EVIDENCE_NS: f64 = 2e6;

/// The level at which a closed job's bucket opens.
pub(crate) const OPENS_AT: f64 = 0.5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Class, ClassSet, HpView, Kernel, Sharing, admits};

    const MS: u64 = 1_000_000;

    fn job(charged_total_ns: u64, waiting: bool) -> JobView {
        JobView {
            id: JobId(1),
            charged_total_ns,
            completed_total_ns: charged_total_ns,
            drained: true,
            waiting,
        }
    }

    fn snapshot(be: &[JobView]) -> Snapshot<'_> {
        Snapshot {
            now_ns: 0,
            sharing: Sharing::Mps,
            sms: 80,
            epoch: 7,
            hp: HpView::ABSENT,
            be,
        }
    }

    #[test]
    fn a_job_goes_in_bursts_and_pays_for_a_kernel_that_is_longer_than_what_was_left() {
        let mut caps = Caps::default();
        caps.set(JobId(1), 0.25);
        // Full at first: 5 ms.
        caps.handle_jobs(100 * MS, &[job(0, true)]);
        let be = [job(0, true)];
        let (lease, limit) = caps.meet(&snapshot(&be), 0, (Lease::ungated(7), Limit::Ungated));
        assert_eq!((lease.budget_ns, limit), (5 * MS, Limit::Budget));
        assert!(!lease.ungated && lease.standing && lease.classes == ClassSet::ALL);
        // 15 ms are 10 too much. 2.5 more are needed to go on: 50 ms from then on.
        caps.handle_jobs(100 * MS, &[job(15 * MS, true)]);
        assert!(caps.is_closed(JobId(1)));
        assert_eq!(caps.opens_ns(&[job(15 * MS, true)]), Some(150 * MS + 1));
        assert_eq!(caps.opens_ns(&[job(15 * MS, false)]), None);
        let be = [job(15 * MS, true)];
        let closed = caps.meet(&snapshot(&be), 0, (Lease::ungated(7), Limit::Ungated));
        assert_eq!(
            (closed.0.budget_ns, closed.0.ungated, closed.1),
            (0, false, Limit::Rate)
        );
        caps.handle_jobs(149 * MS, &[job(15 * MS, true)]);
        assert!(caps.is_closed(JobId(1)));
        caps.handle_jobs(150 * MS, &[job(15 * MS, true)]);
        assert!(!caps.is_closed(JobId(1)));
        // Refunded charges were never used; the bucket overflows.
        caps.handle_jobs(150 * MS, &[job(0, true)]);
        assert!(caps.admits(JobId(1), 5 * MS - 1, false));
        assert!(!caps.admits(JobId(1), 5 * MS, false));
    }

    #[test]
    fn a_share_that_is_none_or_all_is_no_cap() {
        let mut caps = Caps::default();
        for share in [1.0, 0.0, 0.009, -0.3, 1.1, f64::NAN, f64::INFINITY] {
            caps.set(JobId(1), share);
            assert!(caps.is_empty(), "{share}");
            caps.set(JobId(1), 0.3);
            assert!(!caps.is_empty());
            caps.set(JobId(1), share);
            assert!(caps.is_empty(), "{share}");
        }
        caps.set(JobId(1), SHARE_MIN);
        assert_eq!(caps.share(JobId(1)), SHARE_MIN);
        caps.handle_jobs(0, &[]);
        assert!(!caps.is_empty());
        assert_eq!(caps.handle_gone(JobId(1)), None);
        assert!(caps.is_empty());
    }

    #[test]
    fn a_job_that_is_lost_sight_of_is_not_given_more_and_one_that_is_gone_owes_what_it_used() {
        let mut caps = Caps::default();
        caps.set(JobId(1), 0.5);
        let step = |caps: &mut Caps, step: u64, busy: f64| {
            caps.handle_jobs(step * 200 * MS, &[job(step * 100 * MS, true)]);
            caps.handle_busy(step * 200 * MS, JobId(1), busy);
        };
        (0..10).for_each(|at| step(&mut caps, at, 0.5));
        assert_eq!(caps.factor(1_800 * MS, JobId(1)), Some((1.0, false)));
        (10..50).for_each(|at| step(&mut caps, at, 0.0));
        assert_eq!(caps.factor(9_800 * MS, JobId(1)), Some((1.0, false)));
        assert_eq!((caps.jobs[0].owed_ns, caps.jobs[0].rate()), (0.0, 0.5));
        // Other processes have no factor until two readings are of them.
        caps.handle_other_processes(JobId(1));
        step(&mut caps, 50, 4.0);
        assert_eq!(caps.factor(10_000 * MS, JobId(1)), Some((1.0, false)));

        caps.handle_jobs(10_000 * MS, &[job(8_000 * MS, true)]);
        let level_ns = caps.jobs[0].level_ns;
        let debt = caps.handle_gone(JobId(1)).unwrap();
        caps.set(JobId(2), 0.5);
        caps.restore(10_100 * MS, JobId(2), debt);
        let left_ns = caps.jobs[0].level_ns;
        assert!(
            (left_ns - level_ns - 50e6).abs() < 2.0,
            "{left_ns} of {level_ns}"
        );
        assert!(caps.is_closed(JobId(2)));
    }

    #[test]
    fn charges_that_say_too_little_cost_more_and_unmeasured_ones_what_they_say() {
        let mut caps = Caps::default();
        caps.set(JobId(1), 0.5);
        let factor = |caps: &Caps, ms: u64| caps.factor(ms * MS, JobId(1)).unwrap();
        assert_eq!(factor(&caps, 0), (1.0, false));
        // Per 200 ms, 50 are charged, and it computes for 80.
        for step in 0..10 {
            caps.handle_jobs(step * 200 * MS, &[job(step * 50 * MS, true)]);
            caps.handle_busy(step * 200 * MS, JobId(1), 0.4);
        }
        let (known, is_blind) = factor(&caps, 1_800);
        assert!((known - 1.6).abs() < 1e-9 && !is_blind, "{known}");
        // A charge of 4 ms costs 6.4.
        let level_ns = caps.jobs[0].level_ns;
        caps.handle_jobs(1_800 * MS, &[job(454 * MS, true)]);
        let spent_ns = level_ns - caps.jobs[0].level_ns;
        assert!((spent_ns - 6.4e6).abs() < 1.0, "{spent_ns}");
        assert_eq!(factor(&caps, 11_799), (known, false));
        assert_eq!(factor(&caps, 11_800), (known, true));
        for step in 60..70 {
            caps.handle_jobs(step * 200 * MS, &[job(step * 50 * MS, true)]);
            caps.handle_busy(step * 200 * MS, JobId(1), 0.125);
        }
        let (known, is_blind) = factor(&caps, 13_800);
        assert!((0.5..0.56).contains(&known) && !is_blind, "{known}");
        assert_eq!(factor(&caps, 23_800), (known, false));
        caps.handle_jobs(23_800 * MS, &[job(3_455 * MS, true)]);
        assert_eq!(factor(&caps, 23_800), (1.0, true));
    }

    fn lease() -> impl Strategy<Value = Lease> {
        let bits = any::<[bool; 4]>();
        (0..8_u32, 0..20 * MS, bits).prop_map(|(classes, budget_ns, bits)| Lease {
            epoch: 7,
            expiry_ns: MS,
            classes: ClassSet::from_bits_truncate(classes),
            sms_max: u32::MAX,
            budget_ns,
            beside_hp: bits[0],
            whole: bits[1],
            standing: bits[2],
            ungated: bits[3],
        })
    }

    proptest! {
        /// A further law never grants more: the bucket's part of a decision is within it.
        #[test]
        fn a_bucket_admits_nothing_that_was_not_admitted_before(
            (is_open, left_ns, budget_ns) in (any::<bool>(), 0..4_u64, 0..4_u64),
            flags in any::<[bool; 4]>(),
            (spent_ns, expected_ns, sms_max) in (0..4_u64, 0..4_u64, 0..3_u32),
        ) {
            let before = Lease {
                budget_ns,
                sms_max,
                beside_hp: flags[0],
                whole: flags[1],
                standing: flags[2],
                ..Lease::ungated(7)
            };
            let before = Lease { ungated: flags[3], ..before };
            let snapshot = snapshot(&[]);
            let (after, _) = bounded(&snapshot, (before, Limit::Budget), is_open, left_ns);
            let kernel = Kernel { class: Class::Compute, sm_needed: 1, expected_ns };
            prop_assert!(!admits(&after, spent_ns, &kernel) || admits(&before, spent_ns, &kernel));
            prop_assert!(is_open || !admits(&after, spent_ns, &kernel));
        }
    }

    proptest! {
        #[test]
        fn a_cap_never_grants_more(
            share in SHARE_MIN..1.0,
            charges in prop::collection::vec((0..300 * MS, 0..30 * MS, any::<f64>(), 0.0..4.0), 0..20),
            lease in lease(),
            (spent_ns, expected_ns) in (0..20 * MS, 0..20 * MS),
        ) {
            let mut caps = Caps::default();
            caps.set(JobId(1), share);
            let mut view = job(0, true);
            let mut now_ns = 0;
            for (passed_ns, charged_ns, nonsense, busy) in charges {
                now_ns += passed_ns;
                view.charged_total_ns += charged_ns;
                caps.handle_jobs(now_ns, &[view]);
                for share in [nonsense, busy] {
                    caps.handle_busy(now_ns, JobId(1), share);
                    let (factor, _) = caps.factor(now_ns, JobId(1)).unwrap();
                    prop_assert!((FACTOR[0]..=FACTOR[1]).contains(&factor), "{}", factor);
                }
            }
            let be = [view];
            let (capped, _) = caps.meet(&snapshot(&be), 0, (lease, Limit::Budget));
            let kernel = Kernel { class: Class::Compute, sm_needed: 1, expected_ns };
            prop_assert!(!admits(&capped, spent_ns, &kernel) || admits(&lease, spent_ns, &kernel));
            prop_assert!(!capped.ungated);
            let most_ns = share * PERIOD_NS as f64 / FACTOR[0];
            prop_assert!(capped.whole || capped.budget_ns <= most_ns.ceil() as u64);
        }
    }
}

//! How much of the GPU's time a best-effort job may use: caps, whoever else is there.
//!
//! **Law.** A capped job has a token bucket of expected ns. It fills with time, by the job's share
//! of it; each launch takes what it is expected to take; the depth is [`PERIOD_NS`] of the share.
//! An empty bucket closes the job, and it opens again once the bucket is half full, so that it goes
//! in bursts and is not woken for each kernel. The kernel that empties it may be longer than what
//! was left: the rest is a debt, which time pays, so the share is exact over any time that is long
//! beside one kernel. Nothing is held back longer than the debt lasts, and nobody sleeps for it:
//! the lease has a budget.
//!
//! **Trim.** What is expected is not what it took: beside other processes a kernel takes longer
//! under MPS, and where processes take turns a kernel that was cut is taken for a longer one; a
//! kernel that nobody knows counts as 100 us. So each launch costs what it is expected to take,
//! times the job's *factor*: what it was measured to compute in the last seconds over what it has
//! charged in them, both with weights that fall by half in [`HALF_NS`]. What charges cost too
//! little or too much until then is owed, and paid by the rate of the bucket. Without a measurement
//! the factor stays, and after [`BLIND_NS`] of work without one it is 1 at least.
//!
//! A cap is no matter of high-priority work: it holds without any, and nothing lifts it, neither
//! `max_hold` nor a promise. While a job is closed by it, it wants no turn, and other laws take it
//! for one that does not wait.
//!
//! Source: ByteCUDA's throttle as MuxFlow §4.1 has it delays launches by a PID controller on the
//! device's utilisation. A utilisation is everybody's and comes late: HAMi-core's caps of 30 and 70
//! % gave 46 and 55. Charges are the job's own and known before the launch.

use crate::lease::Lease;
use crate::{JobId, JobView, Limit, Snapshot};

/// A bucket holds what fills it in so long, ns.
pub const PERIOD_NS: u64 = 20_000_000;

/// What was measured so long ago counts half, ns.
pub const HALF_NS: u64 = 700_000_000;

/// A job that works and of which nothing was measured for so long is not trimmed to more than its
/// charges, ns.
pub const BLIND_NS: u64 = 10_000_000_000;

/// The factor's bounds: kernels that nobody knows count as 100 us and take from 6 us to 6 ms. A
/// measurement beyond them is wrong, or not of what was charged.
pub const FACTOR: [f64; 2] = [1.0 / 16.0, 64.0];

/// The least share: with one kernel of a second that is a hold of 100 s.
pub const SHARE_MIN: f64 = 0.01;

/// A part of the GPU's time as a cap has it, [`SHARE_MIN`] to 1; 1 is no cap.
#[must_use]
pub fn is_share(share: f64) -> bool {
    (SHARE_MIN..=1.0).contains(&share)
}

/// The caps of the jobs that have one.
#[derive(Debug, Default)]
pub(crate) struct Caps {
    /// At most [`crate::JOBS_MAX`].
    jobs: Vec<Capped>,
}

/// What a job that has gone has used beyond its share: whoever comes again under its name pays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    ns: u64,
    at_ns: u64,
}

#[derive(Debug)]
struct Capped {
    id: JobId,
    share: f64,
    /// None before the job was first seen.
    seen: Option<Seen>,
    /// Expected ns that it may charge; below 0 a debt.
    level_ns: f64,
    is_open: bool,
    trim: Trim,
    /// What it was measured to compute more than its charges cost, ns; below 0 less. Paid by the
    /// rate.
    owed_ns: f64,
}

/// What a job was measured to compute, and what it has charged meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Trim {
    last: Option<Seen>,
    /// When it was last seen to compute, or first seen at all.
    worked: Option<Seen>,
    has_worked: bool,
    busy_ns: f64,
    charged_ns: f64,
    factor: Option<f64>,
    /// What it computed more than its charges cost since it was last seen to compute, ns.
    residual_ns: f64,
}

impl Trim {
    /// In the last moments the job computed in that share of the time; by now it has charged so
    /// much. Returns what it computed more than its charges cost, ns. What was charged before the
    /// first measurement is of no use. That it did not compute is no evidence before it is seen to
    /// compute again: whoever measures may have lost sight of it.
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

    /// It works, and nothing of that was seen for long.
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
    /// A job's share from now on; one that is none, or all, is no cap.
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

    /// The job's share; 1 if it has no cap.
    pub(crate) fn share(&self, id: JobId) -> f64 {
        self.of(id).map_or(1.0, |job| job.share)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// What the jobs have charged by now; of others it is seen later.
    pub(crate) fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        for capped in &mut self.jobs {
            if let Some(job) = jobs.iter().find(|job| job.id == capped.id) {
                capped.handle_charges(now_ns, job.charged_total_ns);
            }
        }
    }

    /// The job has gone; what it owes.
    pub(crate) fn handle_gone(&mut self, id: JobId) -> Option<Debt> {
        let place = self.jobs.iter().position(|job| job.id == id)?;
        let job = self.jobs.swap_remove(place);
        Some(Debt {
            ns: (-job.level_ns).max(0.0) as u64,
            at_ns: job.seen?.at_ns,
        })
    }

    /// A job that has a cap owes that since it was here before.
    pub(crate) fn restore(&mut self, now_ns: u64, id: JobId, debt: Debt) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            let paid_ns = now_ns.saturating_sub(debt.at_ns) as f64 * job.share;
            job.level_ns = (paid_ns - debt.ns as f64).min(job.level_ns);
            job.is_open &= job.level_ns > 0.0;
        }
    }

    /// What is measured of the job from now on is of other processes: it begins anew.
    pub(crate) fn handle_other_processes(&mut self, id: JobId) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.trim.last = None;
            job.trim.residual_ns = 0.0;
        }
    }

    /// The job was measured to compute in that share of the time lately: a finite number from 0 on.
    /// More than 1 is possible where it has several processes. 0 says nothing of a job that was
    /// never seen to compute.
    pub(crate) fn handle_busy(&mut self, now_ns: u64, id: JobId, share: f64) {
        let known = self.jobs.iter_mut().find(|job| job.id == id);
        // No device has more processes.
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

    /// What a capped job's charges cost times what they say, and whether nothing was measured of it
    /// for [`BLIND_NS`]; `None` of a job without a cap.
    pub(crate) fn factor(&self, now_ns: u64, id: JobId) -> Option<(f64, bool)> {
        let job = self.of(id)?;
        let now = Seen {
            at_ns: now_ns,
            charged_ns: job.seen.map_or(0, |seen| seen.charged_ns),
        };
        Some((job.trim.factor(now), job.trim.is_blind(now)))
    }

    /// Whether the job may charge nothing now.
    pub(crate) fn is_closed(&self, id: JobId) -> bool {
        self.of(id).is_some_and(|job| !job.is_open)
    }

    /// A decision about the job at index `job`, and the job's cap.
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

    /// The law for one kernel of the job at index `job`, as far as the cap goes, after `spent_ns`
    /// were charged.
    pub(crate) fn admits(&self, id: JobId, spent_ns: u64, is_whole: bool) -> bool {
        self.of(id)
            .is_none_or(|job| job.is_open && (is_whole || (spent_ns as f64) < job.chargeable_ns()))
    }

    /// When the next job opens that waits and is closed; `None` if there is none.
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
        // Charges that were taken back come back.
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

    /// How fast the bucket fills: the share, less what is owed of it.
    fn rate(&self) -> f64 {
        let paid = self.owed_ns / PAYS_NS as f64;
        (self.share - paid).clamp(self.share * 0.5, self.share * 1.5)
    }

    /// What it may charge while it is open: a sum that costs less than the level.
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
        // Not before it is there, whatever was rounded.
        at_ns.saturating_add((missing_ns / self.rate()).max(0.0) as u64 + 1)
    }
}

/// A decision about a job whose bucket is open or not, and leaves it so much.
pub(crate) fn bounded(
    snapshot: &Snapshot<'_>,
    (lease, limit): (Lease, Limit),
    is_open: bool,
    budget_ns: u64,
) -> (Lease, Limit) {
    // What pauses it is stronger: it holds collective kernels, too.
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
    // A kernel must fit into what is left of another law's bound, and need not fit into what is
    // left of the bucket. One number cannot say both; the bound is short, and what goes beyond
    // the bucket is a debt.
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

/// What is owed is paid at the rate that would take so long, ns: twice what lies between two
/// measurements, so that it does not swing.
const PAYS_NS: u64 = 400_000_000;

/// So much of a job's share is owed at most, ns.
const OWED_MAX_NS: u64 = 200_000_000;

/// Charges below that say nothing of a factor, ns.
const EVIDENCE_NS: f64 = 2e6;

/// So full a bucket must be for a job that was closed to go on.
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
        // What was taken back was never used; the bucket overflows.
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
        // It is not seen for a while, and has gone.
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
        // Of other processes nothing follows until two readings are of them.
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
        // In each 200 ms 50 are charged, and it computes for 80.
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
        // It stays where nothing is measured, and where nothing was charged, of which nothing
        // follows.
        assert_eq!(factor(&caps, 11_799), (known, false));
        assert_eq!(factor(&caps, 11_800), (known, true));
        // What made it cheap is forgotten then.
        for step in 60..70 {
            caps.handle_jobs(step * 200 * MS, &[job(step * 50 * MS, true)]);
            caps.handle_busy(step * 200 * MS, JobId(1), 0.125);
        }
        let (known, is_blind) = factor(&caps, 13_800);
        assert!((0.5..0.56).contains(&known) && !is_blind, "{known}");
        // It rests, and then works unseen.
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
        /// One more law never grants more: what a bucket leaves of a decision is within it.
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

//! How a best-effort launch is charged, and how a high-priority launch revokes. Each party's steps
//! are on its own words, so that no lock is needed:
//! - *High-priority launch* ([`announce`]): push the record; fence; if live leases name the current
//!   epoch, bump the epoch. From then on every earlier lease is stale.
//! - *Best-effort launch* ([`LeasePage::try_charge`]): read the terms; charge; fence; read the
//!   epoch and the terms' generation again. A mismatch refunds. After the driver call the caller
//!   reads the epoch once more ([`slipped`]): it counts a launch that the epoch overtook between
//!   check and driver call, at most one per thread.
//! - *Daemon* ([`announce_live`], drain the rings, [`LeasePage::publish`]): name the epoch live;
//!   fence; drain the rings once more; write the lease only if nothing arrived.
//!
//! The fences pair up: either the high-priority thread sees the epoch named live and bumps it, or
//! the daemon sees its record. (If the lease were published before the second drain, a launch could
//! be granted between publication and the daemon's own bump, and its slip go uncounted.)

use crate::pages::{
    ClientPage, DaemonPage, HpPage, LEASE_BESIDE_HP, LEASE_HELD, LEASE_PAUSED, LEASE_RATED,
    LEASE_STANDING, LEASE_UNGATED, LEASE_WHOLE, LeasePage,
};
use crate::sync::{AtomicU64, Ordering, REFUND, fence};

/// Initial value of a job's sum of charges, high to keep the sum from wrapping: a charge refunded
/// after its daemon was replaced reduces the new lease's sum, which never had it.
pub const FIRST_TOTAL_NS: u64 = 1 << 62;

/// Attempts to read a job's sums without a refund in between. An attempt takes less time than a
/// refused launch, so the second nearly always succeeds; a job that scribbles gets nothing.
pub const READ_TRIES_MAX: usize = 4;

/// The terms of a lease as one consistent copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// `hp_epoch` under which the lease was made.
    pub epoch: u64,
    /// When the lease ends, on the shared clock.
    pub expiry_ns: u64,
    /// Charges before a launch must be below this sum; `u64::MAX` is no limit.
    pub limit_total_ns: u64,
    /// Most SMs a kernel may need.
    pub sms_max: u32,
    /// `policy::ClassSet` bits in the low byte, then the `LEASE_` bits of [`crate::pages`].
    pub terms: u32,
}

impl Terms {
    /// Allowed classes as `policy::ClassSet` bits.
    pub fn class_bits(&self) -> u32 {
        self.terms & 0xff
    }

    /// Whether the lease was made while high-priority work was in flight.
    pub fn beside_hp(&self) -> bool {
        self.terms & LEASE_BESIDE_HP != 0
    }

    /// Whether a launch must fit into the budget, its own cost included.
    pub fn whole(&self) -> bool {
        self.terms & LEASE_WHOLE != 0
    }

    /// Whether no high-priority work voids the lease.
    pub fn standing(&self) -> bool {
        self.terms & LEASE_STANDING != 0
    }

    /// Whether every launch may go.
    pub fn ungated(&self) -> bool {
        self.terms & LEASE_UNGATED != 0
    }

    /// Whether no job is protected from this one: it is ungated, or limited by its own share alone.
    pub fn is_for_nobody(&self) -> bool {
        self.ungated() || self.standing()
    }
}

/// Why a launch may not go now. The caller waits for the lease's bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The daemon was writing the terms, or has changed them since.
    Torn,
    /// High-priority work was announced after the lease was made.
    Stale,
    /// The lease has ended.
    Expired,
    /// The lease does not admit this kernel, or its budget is used up.
    NotAdmitted,
}

impl LeasePage {
    /// Charges `cost_ns` for one launch if the lease admits it, else leaves no trace.
    /// `admits(terms, remaining_ns)` is the policy's decision on class, size and budget;
    /// `remaining_ns` is the chargeable rest before this launch; `client_charged_ns` is
    /// [`crate::pages::ClientPage::charged_ns`], charged first: so a launch in the job's sum is in
    /// the daemon's sum over clients, and the daemon errs towards granting less.
    #[inline]
    pub fn try_charge(
        &self,
        client_charged_ns: &AtomicU64,
        hp: &HpPage,
        now_ns: u64,
        cost_ns: u64,
        admits: impl FnOnce(&Terms, u64) -> bool,
    ) -> Result<Terms, Refusal> {
        let (generation, terms) = self.terms().ok_or(Refusal::Torn)?;
        if terms.ungated() {
            self.charge(client_charged_ns, cost_ns);
            return Ok(terms);
        }
        let before = self.charge(client_charged_ns, cost_ns);
        // Pairs with the fence in `announce`: either this thread sees the bumped epoch, or the
        // high-priority thread's launch comes after this check and the slip is counted.
        fence(Ordering::SeqCst);
        let refusal = if !self.generation.is_still(generation, 0) {
            Refusal::Torn
        } else if !terms.standing() && hp.epoch.load(Ordering::Acquire) != terms.epoch {
            Refusal::Stale
        } else if now_ns >= terms.expiry_ns {
            Refusal::Expired
        } else if !admits(&terms, terms.limit_total_ns.saturating_sub(before)) {
            Refusal::NotAdmitted
        } else {
            return Ok(terms);
        };
        self.refund(client_charged_ns, cost_ns);
        Err(refusal)
    }

    /// Charges without a check, for a launch whose wait ended. Returns the job's sum before it.
    #[inline]
    pub fn charge(&self, client_charged_ns: &AtomicU64, cost_ns: u64) -> u64 {
        client_charged_ns.fetch_add(cost_ns, Ordering::Relaxed);
        self.charges.total_ns.fetch_add(cost_ns, Ordering::AcqRel)
    }

    /// Charges to this lease what the client has in flight from earlier daemons, which its own sums
    /// include already. The client calls this before its launches are charged here.
    pub fn bring(&self, client: &ClientPage) {
        // Acquire keeps the load of the charged sum behind the load of the completed sum. Otherwise
        // a charge and its completion between the two loads would make the difference 0, and work
        // in flight would be missing here. AcqRel: as in `charge`.
        let completed_ns = client.completed_ns.load(Ordering::Acquire);
        let charged_ns = client.charged_ns.load(Ordering::Relaxed);
        let in_flight_ns = charged_ns.saturating_sub(completed_ns);
        self.charges
            .total_ns
            .fetch_add(in_flight_ns, Ordering::AcqRel);
    }

    /// Whether no launch goes, not even after `max_hold` ([`LEASE_HELD`]). Relaxed: a word by
    /// itself, polled.
    pub fn is_held(&self) -> bool {
        self.terms.load(Ordering::Relaxed) & LEASE_HELD != 0
    }

    /// Whether a law of the policy holds the job. Relaxed, as above.
    pub fn is_paused(&self) -> bool {
        self.terms.load(Ordering::Relaxed) & LEASE_PAUSED != 0
    }

    /// Whether the job has used its share of the GPU's time. Relaxed, as above.
    pub fn is_rated(&self) -> bool {
        self.terms.load(Ordering::Relaxed) & LEASE_RATED != 0
    }

    /// Whether no high-priority work voids the lease. Relaxed, as above.
    pub fn is_standing(&self) -> bool {
        self.terms.load(Ordering::Relaxed) & LEASE_STANDING != 0
    }

    /// Whether every launch may go. Relaxed, as above.
    pub fn is_ungated(&self) -> bool {
        self.terms.load(Ordering::Relaxed) & LEASE_UNGATED != 0
    }

    /// Refunds a charge: the launch did not go, or the driver refused it.
    #[inline]
    pub fn refund(&self, client_charged_ns: &AtomicU64, cost_ns: u64) {
        self.charges.total_ns.fetch_sub(cost_ns, Ordering::AcqRel);
        // Counted between the two sums: a daemon that reads the one above with the charge and the
        // one below without sees a changed count. Release pairs with its first Acquire load.
        self.charges.refunds.fetch_add(1, Ordering::Release);
        client_charged_ns.fetch_sub(cost_ns, REFUND);
    }

    /// Reads the job's sum and, by `read`, its clients' work in flight, with no refund in between:
    /// else the sum could have a charge that the work in flight lacks, and the next lease, which
    /// begins at the sum, would be longer by it. `None` if [`READ_TRIES_MAX`] attempts met refunds:
    /// grant nothing. `read` must load the clients' `charged_ns` with Acquire.
    pub fn read_settled<T>(&self, mut read: impl FnMut(u64) -> T) -> Option<T> {
        for _ in 0..READ_TRIES_MAX {
            // Acquire pairs with `refund`'s Release: once counted, the charge is out of the sum.
            let refunds = self.charges.refunds.load(Ordering::Acquire);
            let found = read(self.charges.total_ns.load(Ordering::Acquire));
            // Orders `read`'s Acquire loads, which pair with `REFUND`, before the next load.
            fence(Ordering::Acquire);
            if self.charges.refunds.load(Ordering::Relaxed) == refunds {
                return Some(found);
            }
        }
        None
    }

    /// The terms with their generation, or `None` while the daemon writes them.
    pub fn terms(&self) -> Option<(u64, Terms)> {
        self.generation.read(|| Terms {
            epoch: self.epoch.load(Ordering::Relaxed),
            expiry_ns: self.expiry_ns.load(Ordering::Relaxed),
            limit_total_ns: self.limit_total_ns.load(Ordering::Relaxed),
            sms_max: self.sms_max.load(Ordering::Relaxed),
            terms: self.terms.load(Ordering::Relaxed),
        })
    }

    /// Replaces the terms. Only the daemon calls this, under one lock.
    pub fn publish(&self, terms: &Terms) {
        self.generation.write(|| {
            self.epoch.store(terms.epoch, Ordering::Relaxed);
            self.expiry_ns.store(terms.expiry_ns, Ordering::Relaxed);
            self.limit_total_ns
                .store(terms.limit_total_ns, Ordering::Relaxed);
            self.sms_max.store(terms.sms_max, Ordering::Relaxed);
            self.terms.store(terms.terms, Ordering::Relaxed);
        });
    }
}

/// Whether high-priority work submitted now revokes live leases, so that its record has the time.
/// If other threads submit now, the answer may be wrong: the time is missing, or superfluous.
#[inline]
#[must_use]
pub fn is_live(daemon: &DaemonPage, hp: &HpPage) -> bool {
    daemon.live_epoch.load(Ordering::Relaxed) == hp.epoch.load(Ordering::Relaxed)
}

/// Announces submitted high-priority work to best-effort jobs. Call after the push and before the
/// driver call. Costs one fence and two loads unless a live lease must be revoked.
#[inline]
pub fn announce(daemon: &DaemonPage, hp: &HpPage) {
    // Pairs with the fence in `announce_live`: see the module's text.
    fence(Ordering::SeqCst);
    let live = daemon.live_epoch.load(Ordering::Relaxed);
    if live == hp.epoch.load(Ordering::Relaxed) {
        // If this fails, another thread bumped the epoch. Release publishes the push to readers.
        let _ = hp.epoch.compare_exchange(
            live,
            live.wrapping_add(1),
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

/// Names `epoch` as that of live leases (0: none), before the rings are drained and leases made.
pub fn announce_live(daemon: &DaemonPage, epoch: u64) {
    daemon.live_epoch.store(epoch, Ordering::Relaxed);
    // Pairs with the fence in `announce`.
    fence(Ordering::SeqCst);
}

/// Whether high-priority work overtook a launch made under `terms`.
#[inline]
pub fn slipped(hp: &HpPage, terms: &Terms) -> bool {
    !terms.is_for_nobody() && hp.epoch.load(Ordering::Acquire) != terms.epoch
}

//! What a best-effort job may launch without asking. The daemon publishes one lease per BE job,
//! which checks every launch against it locally. A lease is terms (classes, SMs, budget) plus two
//! ends, an *epoch* and an *expiry*.
//!
//! **Epoch.** There is one `hp_epoch` per GPU, raised when an HP process launches while live leases
//! name the current one. A lease carries the epoch of its snapshot ([`crate::Snapshot::epoch`]).
//! When the two differ, HP has done something unknown to the decision, and the lease is void.
//! **Expiry** voids the lease when the daemon stops renewing.
//!
//! **Budget.** Nanoseconds of expected work that the job may still charge, counted from the
//! snapshot. *Spent* is what was charged since, before the kernel in question. A kernel goes while
//! spent < budget, so a job overshoots by at most one kernel, as in Orion, and a kernel longer than
//! any budget still runs when nothing else is spent. A daemon that keeps two sums that only grow
//! publishes `limit_total_ns = charged_total_ns + budget_ns`, with the `charged_total_ns` of the
//! snapshot; then spent < budget ⇔ charged < limit at any time, with charges before publication.
//!
//! **Whole.** With this flag a kernel must fit into the rest of the budget: it goes iff spent +
//! expected ≤ budget. Nothing overshoots, and a kernel longer than the budget does not go at all.
//!
//! **Standing.** With this flag the epoch is ignored: no high-priority work needs protection from
//! the job, so its launches do not void the lease. Its budget is the job's cap ([`crate::usage`]).
//!
//! **Ungated.** The job is not held: epoch, expiry and budget are ignored, until another lease is
//! published. Launches are still charged and completed, so that the work in flight is known when
//! the gate closes. The holder compares epoch and expiry; [`admits`] is the rest.

use crate::{ClassSet, Kernel};

/// The terms under which a best-effort job may launch. See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The `hp_epoch` of this lease; void once it has moved on.
    pub epoch: u64,
    /// When the lease expires, in ns of the shared clock.
    pub expiry_ns: u64,
    /// Resource classes that may be launched.
    pub classes: ClassSet,
    /// A kernel is admitted iff it needs at most this many SMs.
    pub sms_max: u32,
    /// Expected ns that may still be charged, from the snapshot on.
    pub budget_ns: u64,
    /// Granted while an HP kernel was executing. Its launches count as "beside a busy HP".
    pub beside_hp: bool,
    /// The budget is not overshot, not even by one kernel.
    pub whole: bool,
    /// High-priority launches do not void it: the budget is a cap of the job's own.
    pub standing: bool,
    /// The job is not held.
    pub ungated: bool,
}

impl Lease {
    /// The lease of a job where no high-priority work needs protection.
    #[must_use]
    pub const fn ungated(epoch: u64) -> Self {
        Self {
            epoch,
            expiry_ns: u64::MAX,
            classes: ClassSet::ALL,
            sms_max: u32::MAX,
            budget_ns: u64::MAX,
            beside_hp: false,
            whole: false,
            standing: false,
            ungated: true,
        }
    }

    /// The lease that admits nothing.
    #[must_use]
    pub const fn closed(epoch: u64, expiry_ns: u64) -> Self {
        Self {
            epoch,
            expiry_ns,
            classes: ClassSet::EMPTY,
            sms_max: 0,
            budget_ns: 0,
            beside_hp: false,
            whole: false,
            standing: false,
            ungated: false,
        }
    }

    /// The same with the same expiry, but it admits every kernel until `budget_ns` are spent.
    #[must_use]
    pub const fn with_budget(self, budget_ns: u64) -> Self {
        Self {
            classes: ClassSet::ALL,
            sms_max: u32::MAX,
            budget_ns,
            ..self
        }
    }
}

/// Whether `lease` lets `kernel` go after `spent_ns` have been charged to it. On the launch path:
/// comparisons of values in registers, no allocation, nothing that can fail.
#[inline]
#[must_use]
pub const fn admits(lease: &Lease, spent_ns: u64, kernel: &Kernel) -> bool {
    // `&`, not `&&`: comparisons are cheaper than an unpredictable branch.
    let after_ns = spent_ns.saturating_add(kernel.expected_ns);
    lease.ungated
        || (spent_ns < lease.budget_ns)
            & (!lease.whole | (after_ns <= lease.budget_ns))
            & lease.classes.contains(kernel.class)
            & (kernel.sm_needed <= lease.sms_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    const KERNEL: Kernel = Kernel {
        class: Class::Memory,
        sm_needed: 40,
        expected_ns: 1_000,
    };

    fn lease() -> Lease {
        Lease {
            epoch: 3,
            expiry_ns: 1_000_000,
            classes: ClassSet::from(Class::Memory),
            sms_max: 40,
            budget_ns: 500,
            beside_hp: true,
            whole: false,
            standing: false,
            ungated: false,
        }
    }

    #[test]
    fn each_term_alone_can_refuse() {
        assert!(admits(&lease(), 0, &KERNEL));
        assert!(admits(&lease(), 499, &KERNEL));
        assert!(!admits(&lease(), 500, &KERNEL));
        assert!(!admits(
            &lease(),
            0,
            &Kernel {
                sm_needed: 41,
                ..KERNEL
            }
        ));
        assert!(!admits(
            &lease(),
            0,
            &Kernel {
                class: Class::Compute,
                ..KERNEL
            }
        ));
        assert!(!admits(
            &lease(),
            0,
            &Kernel {
                class: Class::Unknown,
                ..KERNEL
            }
        ));
    }

    #[test]
    fn into_a_whole_lease_a_kernel_must_fit() {
        let whole = Lease {
            whole: true,
            budget_ns: 2_500,
            ..lease()
        };
        // 1000 ns each: two fit into 2500, the third would end at 3000.
        assert!(admits(&whole, 1_500, &KERNEL));
        assert!(!admits(&whole, 1_501, &KERNEL));
        assert!(!admits(&whole, u64::MAX, &KERNEL));
        let endless = Kernel {
            expected_ns: u64::MAX,
            ..KERNEL
        };
        assert!(!admits(&whole, 1, &endless));
    }

    #[test]
    fn ungated_admits_everything_and_closed_nothing() {
        let huge = Kernel {
            class: Class::Compute,
            sm_needed: u32::MAX,
            expected_ns: u64::MAX,
        };
        let least = Kernel {
            class: Class::Unknown,
            sm_needed: 0,
            expected_ns: 0,
        };
        for kernel in [huge, KERNEL, least] {
            assert!(admits(&Lease::ungated(1), u64::MAX, &kernel));
            assert!(!admits(&Lease::closed(1, 5), 0, &kernel));
        }
    }
}

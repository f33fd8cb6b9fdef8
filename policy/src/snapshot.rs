//! The complete input of a gate, as plain values at one moment. The daemon fills it each poll
//! without allocation: the list of jobs borrows the daemon's buffer.

use crate::{Class, ClassSet};

/// How processes share the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Under MPS kernels of different processes execute at once.
    Mps,
    /// Without MPS processes take turns by time slice and never overlap.
    TimeSlice,
}

/// Names a best-effort job for the daemon's lifetime; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// The state at the moment of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Now, in ns of the shared clock. Never goes backwards.
    pub now_ns: u64,
    /// How processes share the GPU.
    pub sharing: Sharing,
    /// SMs of the device.
    pub sms: u32,
    /// `hp_epoch` when the HP rings were drained for this snapshot. Its leases carry it.
    pub epoch: u64,
    /// The HP side, all its clients together.
    pub hp: HpView,
    /// The BE jobs, at most [`crate::JOBS_MAX`], in any order; ids differ.
    pub be: &'a [JobView],
}

/// The high-priority side: one client ([`crate::HpTimeline::poll_view`]) or all
/// ([`HpView::merge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HpView {
    /// An HP client is attached, whether or not it has launched anything.
    pub present: bool,
    /// HP work is in flight.
    pub busy: bool,
    /// Since when HP is busy, or idle, ns; 0: unknown, as before it was ever busy.
    pub since_ns: u64,
    /// Classes of the executing HP kernels, one per busy stream; a launch beside HP must suit each.
    pub executing: ClassSet,
    /// The undisturbed duration of an HP request, the smallest known of all clients.
    pub latency_ns: Option<u64>,
    /// Some client has launched but its latency is not known yet.
    pub learning: bool,
    /// Observed requests, the least of the clients that have launched; `u64::MAX` if none has.
    pub requests_least: u64,
}

impl HpView {
    /// No HP client is attached.
    pub const ABSENT: Self = Self {
        present: false,
        busy: false,
        since_ns: 0,
        executing: ClassSet::EMPTY,
        latency_ns: None,
        learning: false,
        requests_least: u64::MAX,
    };

    /// Attached, and nothing in flight.
    pub const IDLE: Self = Self {
        present: true,
        ..Self::ABSENT
    };

    /// Classes of unknown work, for example after a dropped record. Both compute and memory, so
    /// that only an unknown kernel suits it: the victim is assumed to be sensitive. (A launch whose
    /// *kernel* is unknown suits everything: those are "very small" in practice, Orion §5.2.)
    pub const NOTHING_KNOWN: ClassSet = ClassSet::EMPTY.with(Class::Compute).with(Class::Memory);

    /// All clients as one: busy if any is, executing what any executes, with the least latency. No
    /// client at all is [`HpView::ABSENT`].
    #[must_use]
    pub fn merge(views: impl IntoIterator<Item = Self>) -> Self {
        views.into_iter().fold(Self::ABSENT, |all, one| Self {
            present: all.present || one.present,
            busy: all.busy || one.busy,
            since_ns: match (all.busy, one.busy) {
                (true, true) => all.since_ns.min(one.since_ns),
                (true, false) => all.since_ns,
                (false, true) => one.since_ns,
                (false, false) => all.since_ns.max(one.since_ns),
            },
            executing: all.executing.union(one.executing),
            latency_ns: match (all.latency_ns, one.latency_ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            learning: all.learning || one.learning,
            requests_least: all.requests_least.min(one.requests_least),
        })
    }

    /// Whether the fields agree.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.busy != self.executing.is_empty() && (self.present || !self.busy)
    }
}

/// One best-effort job at one moment. The two sums only grow, except that a charge is taken back
/// when its launch did not go. They come from memory that the job can write: too large a sum in
/// flight holds all BE jobs, as an endless kernel does, so a daemon detaches such a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Which job.
    pub id: JobId,
    /// Expected ns charged since the job attached: every launch that went or is about to.
    pub charged_total_ns: u64,
    /// Expected ns of the launches seen complete (or given back because their process died) since
    /// the job attached; the same numbers as were charged.
    pub completed_total_ns: u64,
    /// Every submitted launch is complete; counts launches, not ns, which may be 0.
    pub drained: bool,
    /// At least one of its threads is held at the gate.
    pub waiting: bool,
}

impl JobView {
    /// Expected ns launched and not seen complete.
    #[must_use]
    pub const fn in_flight_ns(&self) -> u64 {
        self.charged_total_ns
            .saturating_sub(self.completed_total_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_is_absent_and_one_is_itself() {
        assert_eq!(HpView::merge([]), HpView::ABSENT);
        let view = HpView {
            latency_ns: Some(7),
            ..HpView::IDLE
        };
        assert_eq!(HpView::merge([view]), view);
    }

    #[test]
    fn merged_clients_are_as_busy_as_any_and_as_quick_as_the_quickest() {
        let conv = HpView {
            busy: true,
            executing: ClassSet::from(Class::Compute),
            latency_ns: Some(9),
            ..HpView::IDLE
        };
        let batch_norm = HpView {
            executing: ClassSet::from(Class::Memory),
            latency_ns: Some(4),
            ..conv
        };
        let new = HpView {
            learning: true,
            requests_least: 3,
            ..HpView::IDLE
        };
        let all = HpView::merge([new, conv, batch_norm]);
        assert_eq!(
            all.executing,
            ClassSet::EMPTY.with(Class::Compute).with(Class::Memory)
        );
        assert_eq!((all.latency_ns, all.requests_least), (Some(4), 3));
        assert!(all.present && all.busy && all.learning && all.is_valid());
    }

    #[test]
    fn work_in_flight_without_a_kernel_or_a_client_is_not_valid() {
        assert!(HpView::ABSENT.is_valid() && HpView::IDLE.is_valid());
        assert!(
            !HpView {
                busy: true,
                ..HpView::IDLE
            }
            .is_valid()
        );
        let executing = ClassSet::from(Class::Compute);
        assert!(
            !HpView {
                executing,
                ..HpView::IDLE
            }
            .is_valid()
        );
        assert!(
            !HpView {
                busy: true,
                executing,
                ..HpView::ABSENT
            }
            .is_valid()
        );
    }
}

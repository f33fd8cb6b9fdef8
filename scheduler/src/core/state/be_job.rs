//! One best-effort job as the daemon sees it: its charges and its lease.
//!
//! **Sums.** All launches of the job are in one sum, `charges.total_ns` of its lease page (*T*),
//! and again in `charged_ns` of the client that made them (*H*, one per client); completions are in
//! the client's `completed_ns` (*C*). A launch adds to H first and to T second, a refund takes from
//! T first. The daemon reads T, then for each client C, then H. Therefore
//! - the work in flight, the sum of H − C, is never too low for T: an error grants less, for one
//!   poll;
//! - a client with C ≥ H had nothing in flight when C was read, and none of its charges in T is
//!   incomplete;
//! - charges after the read of T count against the lease, because its limit is T + budget;
//! - T contains nothing that was refunded before H was read (`LeasePage::read_settled`): otherwise
//!   the limit would be too high by a refused launch. A job for which that cannot be shown is
//!   granted nothing until the next poll.
//!
//! A dead client's work in flight vanishes with it: it is in no H any more. H and C span all
//! daemons of a client. A client's work in flight when it attaches was charged to a lease of the
//! previous daemon; the client charges it to this lease before its threads see the lease
//! (`LeasePage::bring`). Until then T lacks it: the daemon never takes T as less than what is in
//! flight.
//! - **Trust.** The job writes these words itself. C above H is no completion: then nothing is in
//!   flight, never less. T may drop by a refund, but by no more than the policy's throttle has
//!   added for this job since it last restarted, and rise by no more than an hour at a time
//!   ([`BelievedSum`]). Otherwise a job that charges and refunds could erase what *others* charged
//!   to the throttle. A job that does not drain for [`DRAIN_NS_MAX`] while it is granted nothing is
//!   left out of the decision until it does ([`BeJob::is_stalled`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use policy::{JobId, JobView, Lease, Limit, Progress};
use protocol::lease::{FIRST_TOTAL_NS, Terms};
use protocol::pages::{
    ClientPage, Counter, LEASE_BESIDE_HP, LEASE_HELD, LEASE_PAUSED, LEASE_RATED, LEASE_STANDING,
    LEASE_UNGATED, LEASE_WHOLE, LeasePage,
};
use protocol::record::EXPECTED_NS_MAX;
use protocol::segment::Mapping;
use protocol::sync::Ordering;

use super::used::Used;

/// A job that was granted nothing for this long and has not drained is lying or hung: decisions
/// about other jobs treat it as having nothing in flight. Twenty times the longest shipped
/// `max_hold`; kernels of seconds exist, but are rare.
pub const DRAIN_NS_MAX: u64 = 2_000_000_000;

/// Terms that admit nothing, whatever is charged or refunded.
const CLOSED: Terms = Terms {
    epoch: 0,
    expiry_ns: 0,
    limit_total_ns: 0,
    sms_max: 0,
    terms: 0,
};

/// As [`CLOSED`], and `max_hold` admits nothing either.
const HELD: Terms = Terms {
    terms: LEASE_HELD,
    ..CLOSED
};
/// Terms while a law of the policy lets nothing go.
const PAUSED: Terms = Terms {
    terms: LEASE_HELD | LEASE_PAUSED,
    ..HELD
};

/// Terms of a job that has used its share.
const RATED: Terms = Terms {
    terms: PAUSED.terms | LEASE_RATED,
    ..HELD
};

/// Whether these terms admit nothing, not even after `max_hold`.
fn is_for_good(terms: &Terms) -> bool {
    terms.terms & LEASE_HELD != 0
}

#[derive(Debug)]
pub(crate) struct BeJob {
    id: JobId,
    page: Mapping<LeasePage>,
    fd: Arc<OwnedFd>,
    /// As last written to the page, which is never read back.
    published: Terms,
    charged: BelievedSum,
    /// T at the last read.
    total_ns: u64,
    view: JobView,
    lease: Lease,
    limit: Limit,
    used: Used,
    progress: Progress,
    /// Since when nothing has been granted while work is in flight.
    closed_since_ns: Option<u64>,
    is_stalled: bool,
    is_held: bool,
    has_collectives: bool,
    is_refused: bool,
    is_counted: bool,
    /// Its sums were read without a concurrent refund.
    is_settled: bool,
    /// Work was in flight at the last read, or completed since the one before.
    has_worked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Terms that no high-priority launch can invalidate: grant nothing, or hold nothing back.
    AtOnce(Terms),
    /// Terms valid only while no high-priority work arrives.
    Open(Terms),
}

impl BeJob {
    pub(crate) fn new(id: JobId, fd: OwnedFd, page: Mapping<LeasePage>) -> Self {
        Self {
            id,
            page,
            fd: Arc::new(fd),
            published: CLOSED,
            charged: BelievedSum::new(FIRST_TOTAL_NS),
            total_ns: FIRST_TOTAL_NS,
            view: JobView {
                id,
                charged_total_ns: 0,
                completed_total_ns: 0,
                drained: true,
                waiting: false,
            },
            lease: Lease::closed(0, 0),
            limit: Limit::Throttle,
            used: Used::default(),
            progress: Progress::default(),
            closed_since_ns: None,
            is_stalled: false,
            is_held: false,
            has_collectives: false,
            is_refused: false,
            is_counted: false,
            is_settled: true,
            has_worked: false,
        }
    }

    pub(crate) fn id(&self) -> JobId {
        self.id
    }

    pub(crate) fn page(&self) -> &LeasePage {
        &self.page
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    pub(crate) fn view(&self) -> &JobView {
        &self.view
    }

    pub(crate) fn published(&self) -> &Terms {
        &self.published
    }

    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.published == CLOSED || is_for_good(&self.published)
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn used(&self) -> Used {
        self.used
    }

    /// Whether each read of its sums met a refund, so that it is granted nothing.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.is_settled
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Holds the job for a fault at once; a release takes effect at the next publication.
    pub(crate) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
        // In effect before it is reported. No high-priority launch can invalidate it.
        if is_held && self.published != HELD {
            self.page.publish(&HELD);
            self.published = HELD;
        }
    }

    pub(crate) fn has_collectives(&self) -> bool {
        self.has_collectives
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Held or refused: it does nothing beside high-priority work, whatever the policy decides.
    pub(crate) fn is_out(&self) -> bool {
        self.is_held || self.is_refused
    }

    /// From the next decision on, refuses the job if it has launched collectives. A refused job is
    /// left out of the decision: its work in flight may wait for other GPUs and never complete.
    pub(crate) fn set_refusing(&mut self, refuses: bool) {
        self.is_refused = refuses && self.has_collectives;
    }

    /// Whether a thread waits for the policy, not for an operator or the last high-priority client.
    pub(crate) fn is_waiting_for_policy(&self) -> bool {
        self.view.waiting && !self.is_held && !self.is_refused
    }

    /// Whether a job left out of the decision had work in flight since the last one.
    pub(crate) fn is_excluded_at_work(&self) -> bool {
        !self.is_counted && self.has_worked
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_waiting_for_policy() || !self.view.drained
    }

    /// The job as passed to the policy: a held job wants no work, no turn and no promise.
    fn view_for_policy(&self) -> JobView {
        JobView {
            waiting: self.is_waiting_for_policy(),
            ..self.view
        }
    }

    pub(crate) fn is_gated(&self) -> bool {
        !self.published.is_for_nobody()
    }

    /// Reads the job's words. The module's text explains the order of the loads.
    pub(crate) fn read<'p>(&mut self, clients: impl Iterator<Item = &'p ClientPage> + Clone) {
        // The sum is read with Acquire, which pairs with the AcqRel add in `LeasePage::charge`: the
        // clients' sums, read later, hold at least what it does.
        let mut last = None;
        if !self.has_collectives {
            let mut counts = clients
                .clone()
                .map(|page| page.counted(Counter::Collectives));
            self.has_collectives = counts.any(|count| count > 0);
        }
        let settled = self.page.read_settled(|total_ns| {
            last = Some((total_ns, InFlight::of(clients.clone())));
        });
        self.is_settled = settled.is_some();
        let Some((total_ns, found)) = last else {
            return;
        };
        self.total_ns = total_ns;
        let in_flight_ns = FIRST_TOTAL_NS.saturating_add(found.ns);
        let charged_total_ns = self.charged.handle_reading(total_ns.max(in_flight_ns));
        let completed_total_ns = charged_total_ns.saturating_sub(found.ns);
        self.has_worked = found.ns > 0 || completed_total_ns != self.view.completed_total_ns;
        self.view = JobView {
            id: self.id,
            charged_total_ns,
            completed_total_ns,
            drained: found.ns == 0,
            waiting: found.waiting,
        };
    }

    /// The view for the policy; `None` if the job is left out. `begins_anew`: the throttle may
    /// forget what it has added, because nothing is in flight or nobody is protected. The same
    /// holds for a job that was not in the previous decision.
    pub(crate) fn poll_view(&mut self, begins_anew: bool) -> Option<JobView> {
        if begins_anew || !self.is_counted {
            self.charged.settle();
        }
        self.is_counted = !self.is_stalled && !self.is_refused;
        self.is_counted.then(|| self.view_for_policy())
    }

    /// The policy knows no earlier charges: a refund must not reduce what it will add.
    pub(crate) fn handle_new_gate(&mut self) {
        self.is_counted = false;
    }

    /// The policy's decision at `now_ns`; `None`: the job has stalled or is refused.
    pub(crate) fn handle_lease(
        &mut self,
        lease: Option<(Lease, Limit)>,
        epoch: u64,
        now_ns: u64,
        hp_present: bool,
    ) {
        let limit = match self.is_refused {
            true => Limit::Collectives,
            false => Limit::Throttle,
        };
        (self.lease, self.limit) = lease.unwrap_or((Lease::closed(epoch, now_ns), limit));
        let view = JobView {
            waiting: self.view.waiting && !self.is_held,
            ..self.view
        };
        self.progress
            .handle_decision(now_ns, &view, self.limit, hp_present);
        self.used.handle_charges(now_ns, self.view.charged_total_ns);
        if self.view.drained || self.is_refused || !admits_nothing(&self.lease) {
            self.closed_since_ns = None;
            self.is_stalled = false;
            return;
        }
        // A used-up share, perhaps by others, is no evidence about work in flight.
        if self.limit == Limit::Rate {
            return;
        }
        let since_ns = *self.closed_since_ns.get_or_insert(now_ns);
        self.is_stalled |= now_ns.saturating_sub(since_ns) >= DRAIN_NS_MAX;
    }

    /// Nobody is protected any more, so this job can harm nobody.
    pub(crate) fn forgive(&mut self) {
        self.is_stalled = false;
    }

    pub(crate) fn need(&self, now_ns: u64) -> Need {
        let terms = self.terms();
        if terms.is_for_nobody() || terms == CLOSED || is_for_good(&terms) {
            return if self.published == terms {
                Need::Nothing
            } else {
                Need::AtOnce(terms)
            };
        }
        let expiry_ns = self.published.expiry_ns;
        let same_but_expiry = Terms { expiry_ns, ..terms } == self.published;
        let left_ns = expiry_ns.saturating_sub(now_ns);
        let whole_ns = terms.expiry_ns.saturating_sub(now_ns);
        if same_but_expiry && left_ns >= whole_ns / 2 {
            Need::Nothing
        } else {
            Need::Open(terms)
        }
    }

    /// Publishes terms at `now_ns`. Returns whether a waiter may go now, or must check.
    pub(crate) fn publish(&mut self, terms: &Terms, now_ns: u64) -> bool {
        self.page.publish(terms);
        let before = std::mem::replace(&mut self.published, *terms);
        let is_renewal = Terms {
            expiry_ns: before.expiry_ns,
            ..*terms
        } == before
            && now_ns < before.expiry_ns;
        // A job held for a fault polls rarely, and may have waited its time already.
        let is_let_go = is_for_good(&before) && !is_for_good(terms);
        is_let_go || *terms != CLOSED && !is_for_good(terms) && !is_renewal
    }

    /// Closes an ungated lease, whose terms ignore the epoch, so that the next gated one is obeyed.
    pub(crate) fn close_if_ungated(&mut self) {
        if self.published.is_for_nobody() {
            self.page.publish(&CLOSED);
            self.published = CLOSED;
        }
    }

    fn terms(&self) -> Terms {
        let lease = &self.lease;
        let standing = if lease.standing { LEASE_STANDING } else { 0 };
        // A pause overrides `max_hold`.
        match (self.is_held, self.limit) {
            (true, _) => return HELD,
            (false, Limit::Paused) => return PAUSED,
            (false, Limit::Rate) => {
                return Terms {
                    terms: RATED.terms | standing,
                    ..RATED
                };
            }
            (false, _) => {}
        }
        if lease.ungated {
            return Terms {
                epoch: 0,
                expiry_ns: u64::MAX,
                limit_total_ns: u64::MAX,
                sms_max: u32::MAX,
                terms: lease.classes.bits() | LEASE_UNGATED,
            };
        }
        if admits_nothing(lease) || !self.is_settled {
            return CLOSED;
        }
        let beside_hp = if lease.beside_hp { LEASE_BESIDE_HP } else { 0 };
        let whole = if lease.whole { LEASE_WHOLE } else { 0 };
        Terms {
            epoch: lease.epoch,
            expiry_ns: lease.expiry_ns,
            limit_total_ns: self.total_ns.saturating_add(lease.budget_ns),
            sms_max: lease.sms_max,
            terms: lease.classes.bits() | beside_hp | whole | standing,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// 0 only if each of them has drained.
    ns: u64,
    waiting: bool,
}

impl InFlight {
    fn of<'p>(clients: impl Iterator<Item = &'p ClientPage>) -> Self {
        let mut found = Self {
            ns: 0,
            waiting: false,
        };
        for page in clients {
            // The first Acquire keeps the load of the charges after the load of the completions.
            // The second pairs with `REFUND` in `LeasePage::refund`, as `read_settled` demands.
            let completed_ns = page.completed_ns.load(Ordering::Acquire);
            let charged_ns = page.charged_ns.load(Ordering::Acquire);
            let client_ns = charged_ns.saturating_sub(completed_ns);
            found.ns = found.ns.saturating_add(client_ns.min(EXPECTED_NS_MAX));
            found.waiting |= page.waiting.load(Ordering::Relaxed) != 0;
        }
        found
    }
}

fn admits_nothing(lease: &Lease) -> bool {
    !lease.ungated && (lease.budget_ns == 0 || lease.classes.is_empty())
}

/// A sum that its owner may raise, and lower by at most what it raised since it last settled.
#[derive(Clone, Copy, Debug, Default)]
struct BelievedSum {
    read_ns: u64,
    believed_ns: u64,
    /// Invariant: at most `believed_ns`.
    settled_ns: u64,
}

impl BelievedSum {
    fn new(first_ns: u64) -> Self {
        Self {
            read_ns: first_ns,
            ..Self::default()
        }
    }

    fn handle_reading(&mut self, read_ns: u64) -> u64 {
        let raised_ns = read_ns.saturating_sub(self.read_ns).min(EXPECTED_NS_MAX);
        let lowered_ns = self.read_ns.saturating_sub(read_ns);
        self.believed_ns = self
            .believed_ns
            .saturating_add(raised_ns)
            .saturating_sub(lowered_ns)
            .max(self.settled_ns);
        self.read_ns = read_ns;
        self.believed_ns
    }

    fn settle(&mut self) {
        self.settled_ns = self.believed_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_leaves_no_trace_in_what_is_believed() {
        let mut sum = BelievedSum::default();
        assert_eq!(sum.handle_reading(500), 500);
        assert_eq!(sum.handle_reading(100), 100);
        assert_eq!(sum.handle_reading(160), 160);
    }

    #[test]
    fn what_was_settled_cannot_be_taken_back_and_later_charges_count_in_full() {
        let mut sum = BelievedSum::default();
        sum.handle_reading(500);
        sum.settle();
        assert_eq!(sum.handle_reading(0), 500);
        assert_eq!(sum.handle_reading(70), 570);
        assert_eq!(sum.handle_reading(20), 520);
    }

    #[test]
    fn a_sum_jumps_by_an_hour_at_most() {
        let mut sum = BelievedSum::default();
        assert_eq!(sum.handle_reading(u64::MAX), EXPECTED_NS_MAX);
        assert_eq!(sum.handle_reading(u64::MAX), EXPECTED_NS_MAX);
    }
}

//! One best-effort job as the daemon sees it: what it has charged, and the lease it has.
//!
//! **Sums.** All launches of the job are in one sum, `charges.total_ns` of its lease page (*T*), and
//! again in `charged_ns` of the client that made them (*H*, one per client); completions are in the
//! client's `completed_ns` (*C*). A launch adds to H first and to T second, a refund takes from T
//! first. They are read in the order T, then per client C, then H, so that
//!
//! - in flight, the sum of H − C, is never too low for what T says: it errs towards granting less,
//!   for one poll;
//! - a client with C ≥ H had nothing in flight when C was read, and T holds nothing of it that has
//!   not completed;
//! - what is charged after T was read counts against the lease, because its limit is T + budget;
//! - nothing is in T that was taken back before H was read (`LeasePage::read_settled`): the limit would be too high by
//!   a launch that was refused. A job for which that cannot be shown is granted nothing until the next look.
//!
//! What a dead client had in flight vanishes with it: it is in no H any more. H and C are of all
//! the client's daemons. What a client has in flight when it attaches was charged to a lease of an
//! earlier daemon; the client charges it to this lease before its threads see the lease
//! (`LeasePage::bring`). Until then T lacks it: the daemon never takes T for less than what is in
//! flight.
//!
//! **Belief.** These words are the job's to write. C above H is no completion of anything: nothing
//! is in flight then, and never less than nothing. T may go down by a refund, but by no more than
//! what the policy's throttle has added of this job since it last began anew, and up by no more than
//! an hour at a time ([`BelievedSum`]); otherwise a job that adds and takes back could erase what
//! *others* charged to the throttle. A job that does not drain for [`DRAIN_NS_MAX`] while nothing is
//! granted to it is left out of the decision until it does ([`BeJob::is_stalled`]).

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

/// A job that was granted nothing for so long and still is not drained is believed to lie, or to
/// hang: other jobs are decided about as if it had nothing in flight. Twenty times the longest
/// `max_hold` that is shipped; kernels of seconds exist, but not many.
pub const DRAIN_NS_MAX: u64 = 2_000_000_000;

/// The terms that admit nothing, whatever is charged or taken back.
const CLOSED: Terms = Terms {
    epoch: 0,
    expiry_ns: 0,
    limit_total_ns: 0,
    sms_max: 0,
    terms: 0,
};

/// The same, and nothing goes by `max_hold` either.
const HELD: Terms = Terms {
    terms: LEASE_HELD,
    ..CLOSED
};
/// Those where a law of the policy lets nothing go.
const PAUSED: Terms = Terms {
    terms: LEASE_HELD | LEASE_PAUSED,
    ..HELD
};

/// Those of a job that has used its share.
const RATED: Terms = Terms {
    terms: PAUSED.terms | LEASE_RATED,
    ..HELD
};

/// Whether nothing goes under these terms, `max_hold` or not.
fn is_for_good(terms: &Terms) -> bool {
    terms.terms & LEASE_HELD != 0
}

/// A best-effort job's account and lease.
#[derive(Debug)]
pub(crate) struct BeJob {
    id: JobId,
    page: Mapping<LeasePage>,
    fd: Arc<OwnedFd>,
    /// As last written to the page, which is never read back.
    published: Terms,
    charged: BelievedSum,
    /// T as last read.
    total_ns: u64,
    view: JobView,
    /// What the policy grants as of the last decision.
    lease: Lease,
    /// The rule behind it.
    limit: Limit,
    used: Used,
    progress: Progress,
    /// Since when nothing has been granted though work is in flight.
    closed_since_ns: Option<u64>,
    is_stalled: bool,
    /// Because of a fault, until an operator says otherwise.
    is_held: bool,
    /// A client of it has launched kernels of collective communication.
    has_collectives: bool,
    /// Because of these, while a high-priority client is attached.
    is_refused: bool,
    /// It was part of the last decision.
    is_counted: bool,
    /// Its sums were read without a refund in between.
    is_settled: bool,
    /// Work of it was in flight at the last reading, or completed since the one before.
    has_worked: bool,
}

/// What must be published for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// What is published is right.
    Nothing,
    /// Terms that no high-priority launch can make wrong: nothing is granted, or nothing is held.
    AtOnce(Terms),
    /// Terms that hold only while no high-priority work arrives.
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

    /// Whether what is published admits nothing.
    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.published == CLOSED || is_for_good(&self.published)
    }

    /// The rule behind the lease of the last decision.
    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// What it gets of what it wants.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// How much of the GPU's time it has used lately.
    pub(crate) fn used(&self) -> Used {
        self.used
    }

    /// Whether charges were taken back whenever its sums were read, so that it is granted nothing.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.is_settled
    }

    /// Whether the job has not drained for too long and is left out of the decision.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Holds the job because of a fault, from now on; or not any more, from the next time that something is published for it.
    pub(crate) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
        // Whoever is told of it is to find it so. It is what no high-priority launch can make wrong.
        if is_held && self.published != HELD {
            self.page.publish(&HELD);
            self.published = HELD;
        }
    }

    /// Whether a client of the job has launched kernels of collective communication.
    pub(crate) fn has_collectives(&self) -> bool {
        self.has_collectives
    }

    /// Whether the job is granted nothing because of these.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Whether an operator, a rule or its collectives hold it, so that it does nothing beside
    /// high-priority work whatever the policy says.
    pub(crate) fn is_out(&self) -> bool {
        self.is_held || self.is_refused
    }

    /// From the next decision on, the job is granted nothing if it has launched kernels of
    /// collective communication; or it is granted what the policy says. A job that is refused is
    /// left out of the decision: what it has in flight may wait for other GPUs and never
    /// completes in time for anybody else.
    pub(crate) fn set_refusing(&mut self, refuses: bool) {
        self.is_refused = refuses && self.has_collectives;
    }

    /// Whether a thread of the job waits for what the policy will say, and not for an operator or
    /// the end of the last high-priority client.
    pub(crate) fn is_waiting_for_policy(&self) -> bool {
        self.view.waiting && !self.is_held && !self.is_refused
    }

    /// Whether work of a job that is left out of the decision was in flight since the last one.
    pub(crate) fn is_excluded_at_work(&self) -> bool {
        !self.is_counted && self.has_worked
    }

    /// Whether the job needs the daemon's attention often.
    pub(crate) fn is_active(&self) -> bool {
        self.is_waiting_for_policy() || !self.view.drained
    }

    /// The job as the policy is to see it: one that is held wants nothing of it, no turn and nothing that it was promised.
    fn view_for_policy(&self) -> JobView {
        JobView {
            waiting: self.is_waiting_for_policy(),
            ..self.view
        }
    }

    /// Whether a lease is out that a high-priority launch must be able to revoke.
    pub(crate) fn is_gated(&self) -> bool {
        !self.published.is_for_nobody()
    }

    /// Reads the job's words. The order of the loads is argued in the module's text.
    pub(crate) fn read<'p>(&mut self, clients: impl Iterator<Item = &'p ClientPage> + Clone) {
        // The sum is read with Acquire, which pairs with the AcqRel add in `LeasePage::charge`: the clients' sums read
        // after it hold at least what it does.
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

    /// What the policy is told of the job; `None` if it is left out. `begins_anew`: the throttle may
    /// forget what it has added, because nothing is in flight or nobody is to be protected. So it
    /// does for a job that it has not seen in the decision before.
    pub(crate) fn poll_view(&mut self, begins_anew: bool) -> Option<JobView> {
        if begins_anew || !self.is_counted {
            self.charged.settle();
        }
        self.is_counted = !self.is_stalled && !self.is_refused;
        self.is_counted.then(|| self.view_for_policy())
    }

    /// The policy knows nothing of what was charged before: none of it can be taken back from what it will add.
    pub(crate) fn handle_new_gate(&mut self) {
        self.is_counted = false;
    }

    /// The policy's decision of `now_ns`; `None`: it was not asked, because the job has stalled or
    /// is refused.
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
        // A share that is used up, by others it may be, says nothing of its work in flight.
        if self.limit == Limit::Rate {
            return;
        }
        let since_ns = *self.closed_since_ns.get_or_insert(now_ns);
        self.is_stalled |= now_ns.saturating_sub(since_ns) >= DRAIN_NS_MAX;
    }

    /// Nobody is to be protected any more, so nobody can be harmed by this job.
    pub(crate) fn forgive(&mut self) {
        self.is_stalled = false;
    }

    /// What to publish after the last decision, at `now_ns`.
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

    /// Publishes terms, at `now_ns`. Returns whether somebody who waits may go now, or must look.
    pub(crate) fn publish(&mut self, terms: &Terms, now_ns: u64) -> bool {
        self.page.publish(terms);
        let before = std::mem::replace(&mut self.published, *terms);
        let is_renewal = Terms {
            expiry_ns: before.expiry_ns,
            ..*terms
        } == before
            && now_ns < before.expiry_ns;
        // Who was held for a fault sleeps long, and may have waited for its time already.
        let is_let_go = is_for_good(&before) && !is_for_good(terms);
        is_let_go || *terms != CLOSED && !is_for_good(terms) && !is_renewal
    }

    /// Closes a lease that was for nobody's protection, so that the gated one that follows is the first to be
    /// obeyed: such terms stay in force whatever the epoch.
    pub(crate) fn close_if_ungated(&mut self) {
        if self.published.is_for_nobody() {
            self.page.publish(&CLOSED);
            self.published = CLOSED;
        }
    }

    /// The lease as the page has it.
    fn terms(&self) -> Terms {
        let lease = &self.lease;
        let standing = if lease.standing { LEASE_STANDING } else { 0 };
        // What pauses it is stronger than `max_hold`.
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

/// What the clients of a job have in flight, by their own sums.
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
            // Acquire keeps the load of what is charged behind the load of what is complete.
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

/// A sum that its owner may raise, and lower by what it has raised since it was last settled.
#[derive(Clone, Copy, Debug, Default)]
struct BelievedSum {
    /// As last read.
    read_ns: u64,
    believed_ns: u64,
    /// Invariant: at most `believed_ns`.
    settled_ns: u64,
}

impl BelievedSum {
    /// Of a sum that begins there.
    fn new(first_ns: u64) -> Self {
        Self {
            read_ns: first_ns,
            ..Self::default()
        }
    }

    /// The sum was read as `read_ns`; returns what is believed of it.
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

//! Everything the daemon knows of its GPU's clients, and what follows from it.
//! No IO and no clock: events arrive through `handle_` functions, [`State::poll`] decides, and time
//! is an argument. The only outputs are shared memory (atomics in pages) and a list of bells that
//! the caller rings ([`State::ring_bells`]).
//! ## One poll
//! 1. Read the epoch, then drain the rings of all high-priority clients. In that order: work
//!    announced after the read has a new epoch and voids this decision.
//! 2. Read the best-effort jobs' sums, ask the policy ([`policy::Gate`]).
//! 3. Publish what is valid whatever high-priority clients do meanwhile: closed leases, and ungated
//!    ones where nobody is protected.
//! 4. Make the epoch live (`protocol::lease::announce_live`), drain again. If nothing arrived,
//!    publish the open leases. Else raise the epoch and decide again, at most [`ROUNDS_MAX`] times;
//!    a high-priority client that keeps launching meanwhile keeps the old leases stale, as
//!    intended.
//!
//! A lease that is closed stays live until high-priority work raises the epoch. A best-effort
//! thread between check and driver call at that moment therefore still counts its slip, at the cost
//! of one compare-and-swap for the next high-priority launch. A hold for a fault is published at
//! once, between polls: no high-priority launch can invalidate it.
//! ## Poll interval
//! With nobody to protect once a second, for status, and when a job that has used its share may go
//! on; without clients never ([`Look`]). Beside a high-priority client every millisecond, so that
//! its rings do not fill; while best-effort work waits or runs, when the decision may change by
//! itself ([`Gate::next_look_ns`]), but at least `poll_us` apart.

mod be_job;
mod bells;
mod collectives;
mod comers;
mod death;
mod faulty;
mod goals;
mod gpu_time;
mod hp_client;
mod kept;
mod leaving;
mod marks;
mod promises;
mod range_ends;
mod record;
mod rejected;
mod requests;
mod rings;
mod room;
mod share;
mod slo_watch;
mod stop;
mod stopping;
mod totals;
mod trace;
mod tuning;
mod used;
mod users;
mod words;

use core::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use policy::{BeShare, Gate, Goal, HpView, JOBS_MAX, JobView, Outlook, Sharing, Snapshot};
use protocol::hello::{Attach, JobClass};
use protocol::lease::announce_live;
use protocol::pages::{ClientPage, Counter, LeasePage};
use protocol::segment::Mapping;
use protocol::sync::Ordering;

use crate::config::limits::{CLIENTS_MAX, HpAccess, Limits};
use crate::config::{Config, JobRule, OnCollectives};
use crate::core::block_priority::Counting;
use crate::core::event::Draft;
use crate::core::job_key::{JobKey, Peer, job_key};
use crate::core::pages::GpuPages;
use crate::core::sharing::{Ways, sharing_by};

pub(crate) use be_job::BeJob;
pub use be_job::DRAIN_NS_MAX;
use be_job::Need;
use bells::Wake;
use death::End;
pub(crate) use death::{Death, How};
use faulty::Holds;
pub(crate) use faulty::{
    HELD_JOBS_PER_USER, HELD_USERS_MAX, JobProgress, NewlyHeld, Progress, Released, Sticky, Whose,
};
pub(crate) use goals::{JobGoal, Origin};
pub(crate) use gpu_time::GpuTime;
pub use hp_client::Faults;
use hp_client::HpClient;
use kept::Expected;
pub use kept::KeptRequests;
pub(crate) use leaving::{EndedJob, Gone};
pub(crate) use marks::Source;
use promises::JobCap;
use record::Record;
pub use record::{Entry, Grant};
pub(crate) use rejected::Rejected;
pub use rejected::{Listed, TurnedAway};
pub(crate) use requests::{Recent, Record as RequestRecord, Requests};
pub use room::Refused;
use slo_watch::SloWatch;
pub use stop::Stopped;
pub use stopping::Moment;
use stopping::Stopping;
pub(crate) use totals::Totals;
pub(crate) use trace::{Traced, Tracing};
pub(crate) use tuning::TunerView;
use tuning::Tuning;
use users::Users;

/// Ended jobs that are still listed: the most recent, divided fairly among users.
pub const ENDED_MAX: usize = 256;

/// Pages of departed clients whose totals are kept in case they return.
const LEFT_MAX: usize = 256;

/// Decisions per poll. Usually one; each further one means that high-priority work arrived within
/// the microsecond between two drains.
pub const ROUNDS_MAX: usize = 4;

/// Poll interval with nobody to protect, ns. Clients take five missed ones for the daemon's end.
const ALONE_POLL_NS: u64 = 1_000_000_000;

/// Poll interval without best-effort work: a ring's 1024 records, at a launch every microsecond.
const IDLE_POLL_NS: u64 = 1_000_000;

/// Wait for the previous daemon's clients, which retry every 500 ms (`client/src/reconnect.rs`).
pub const RETURN_NS: u64 = 1_000_000_000;

/// When to poll next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At this time, or earlier if the bell rings.
    At(u64),
    /// When the bell rings: no clients.
    WhenRung,
}

/// The pages of an attaching client.
#[derive(Debug)]
pub struct NewPages {
    /// The client's own page, which it brought.
    pub client: Mapping<ClientPage>,
    /// Identity of that file ([`protocol::segment::identity`]).
    pub file: (u64, u64),
    /// The job's lease page, used if this is the first client of a best-effort job.
    pub lease: (OwnedFd, Mapping<LeasePage>),
}

/// The answer to an attached client.
#[derive(Debug)]
pub struct Attached {
    /// Its number.
    pub client: u64,
    /// The job's lease page, if best-effort.
    pub lease: Option<Arc<OwnedFd>>,
    /// Why the GPU is drained, for a new high-priority job.
    pub draining: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: JobKey,
    pub(crate) clients: Vec<Client>,
    pub(crate) past: Totals,
    pub(crate) be_job: Option<BeJob>,
    /// The job's own request target, if it overrides the configuration.
    pub(crate) goal: JobGoal,
    pub(crate) requests: Requests,
    pub(crate) slo_watch: SloWatch,
    cap: JobCap,
    is_collective_told: bool,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: Peer,
    pub(crate) name: String,
    pub(crate) profile: String,
    pub(crate) profile_fit: String,
    pub(crate) attached_ns: u64,
    /// Until when the daemon itself ends the process, ns of real time; 0: it does not.
    ended_from_here_until_ns: Cell<u64>,
    /// The kernel signals the process when its parent ends.
    pub(crate) falls_with_parent: bool,
    pub(crate) sharing: Option<Sharing>,
    pub(crate) denied: Option<JobClass>,
    pub(crate) page: Mapping<ClientPage>,
    file: (u64, u64),
    /// The part of its page's totals that is in the job's `past`.
    counted: Totals,
    /// Peak of the charge in its page, expected ns ([`Client::page_totals`]).
    charged_ns_most: Cell<u64>,
    is_sticky_taken: bool,
    pub(crate) hp_client: Option<Box<HpClient>>,
    /// The goal last passed to the policy; none: the policy's default.
    goal_told: Option<Goal>,
    end: End,
}

impl Client {
    /// Clears what the previous daemon, or this one in another connection, left in the page.
    fn begin_serving(&self) {
        let page = &self.page;
        page.detached.store(0, Ordering::Relaxed);
        page.probe.store(0, Ordering::Relaxed);
        page.told.batches.want_nothing();
        page.seen_to_until_s.store(0, Ordering::Relaxed);
        // A client that has seen the request to end no longer attaches.
        page.stop.store(0, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> Totals {
        self.page_totals().since(&self.counted)
    }

    /// Totals since the process started. The charge never decreases, despite lies and refunds.
    pub(crate) fn page_totals(&self) -> Totals {
        let charged_ns = self.page.charged_ns.load(Ordering::Relaxed);
        let charged_ns = charged_ns.max(self.charged_ns_most.get());
        self.charged_ns_most.set(charged_ns);
        let mut totals = Totals {
            counters: core::array::from_fn(|i| self.page.counted(Counter::ALL[i])),
            charged_ns,
            faults: self.faults(),
        };
        if let Some(hp_client) = &self.hp_client {
            hp_client.gpu_time().count(&mut totals);
            totals.set(Counter::RequestsMarked, hp_client.marks().ended());
            totals.set(Counter::RequestsInferred, hp_client.marks().all_inferred());
        }
        totals
    }

    pub(crate) fn faults(&self) -> Faults {
        self.hp_client
            .as_ref()
            .map_or_else(Faults::default, |hp_client| hp_client.faults())
    }
}

/// State of the daemon; see the module's text.
#[derive(Debug)]
pub struct State {
    pub(crate) pages: Arc<GpuPages>,
    pub(crate) ways: Ways,
    pub(crate) block_priority: Counting,
    pub(crate) sms: u32,
    poll_ns: u64,
    unknown_ns: u64,
    on_collectives: OnCollectives,
    rules: Vec<JobRule>,
    share: BeShare,
    /// Who may be high-priority; `None`: everybody.
    pub(crate) access: Option<HpAccess>,
    pub(crate) limits: Limits,
    pub(crate) gate: Gate,
    pub(crate) jobs: Vec<Job>,
    pub(crate) ended: VecDeque<EndedJob>,
    users: Users,
    pub(crate) hp: HpView,
    /// Next poll while best-effort work waits or runs, from the last decision.
    next_look_ns: u64,
    views: Vec<JobView>,
    /// A high-priority client, or another policy, has come since the last poll.
    is_gating: bool,
    wakes: Vec<Wake>,
    record: Option<Record>,
    /// Set while a trace is taken, and until it is collected.
    trace: Option<Box<Tracing>>,
    is_trace_new: bool,
    clients_ever: u64,
    jobs_ever: u64,
    /// Until then clients of the previous daemon may return.
    returning_until_ns: u64,
    is_closed: bool,
    stickies: Vec<Sticky>,
    /// Totals of departed clients' pages, most recent last: the process may return.
    left: VecDeque<((u64, u64), Totals)>,
    deaths: Vec<Death>,
    pub(crate) holds: Holds,
    pub(crate) rejected: Rejected,
    stopping: Stopping,
    marks_news: Vec<Draft>,
    slo_news: Vec<Draft>,
    tuning: Tuning,
    expected: Expected,
    pub(crate) config_error: Option<String>,
}

impl State {
    /// For a GPU with `sms` SMs and no client.
    #[must_use]
    pub fn new(config: &Config, sms: u32, pages: Arc<GpuPages>) -> Self {
        let mut state = Self {
            pages,
            ways: Ways::new(config.sharing),
            block_priority: Counting::new(config.block_priority),
            sms,
            poll_ns: config.poll_ns,
            unknown_ns: config.unknown_kernel_ns,
            on_collectives: config.on_collectives,
            rules: config.jobs.clone(),
            share: BeShare::default(),
            access: config.high_priority.clone(),
            limits: config.limits,
            gate: Gate::new(config.policy),
            jobs: Vec::new(),
            ended: VecDeque::new(),
            users: Users::default(),
            hp: HpView::ABSENT,
            next_look_ns: 0,
            views: Vec::with_capacity(JOBS_MAX),
            is_gating: false,
            wakes: Vec::new(),
            record: None,
            trace: None,
            is_trace_new: false,
            clients_ever: 0,
            jobs_ever: 0,
            returning_until_ns: 0,
            is_closed: false,
            stickies: Vec::new(),
            left: VecDeque::new(),
            deaths: Vec::new(),
            holds: Holds::default(),
            rejected: Rejected::default(),
            stopping: Stopping::default(),
            marks_news: Vec::new(),
            slo_news: Vec::new(),
            tuning: Tuning::default(),
            expected: Expected::default(),
            config_error: None,
        };
        state.configure_laws(config);
        state
    }

    /// A previous daemon's clients return one by one ([`RETURN_NS`]): best-effort ones that come
    /// first must not run as if alone.
    pub fn expect_returning(&mut self, now_ns: u64) {
        self.returning_until_ns = now_ns.saturating_add(RETURN_NS);
    }

    fn hp_for_policy(&self, now_ns: u64) -> HpView {
        match self.is_expecting(now_ns) {
            true => HpView::IDLE,
            false => self.hp,
        }
    }

    /// Whether no high-priority client is attached, but one of the previous daemon may return.
    pub(crate) fn is_expecting(&self, now_ns: u64) -> bool {
        !self.hp.present && now_ns < self.returning_until_ns
    }

    /// Applies another configuration from the next poll on; a changed policy or number restarts
    /// learning.
    pub fn reconfigure(&mut self, config: &Config) {
        // A withdrawn promise must not stay in the old gate.
        if *self.gate.policy() != config.policy || promises::differ(&self.rules, &config.jobs) {
            self.gate = self.gate.replaced(config.policy);
            let clients = self.jobs.iter_mut().flat_map(|job| &mut job.clients);
            clients.for_each(|client| client.goal_told = None);
            let be_jobs = self.jobs.iter_mut().filter_map(|job| job.be_job.as_mut());
            be_jobs.for_each(BeJob::handle_new_gate);
            let clients = self.jobs.iter_mut().flat_map(|job| &mut job.clients);
            let hp_clients = clients.filter_map(|client| client.hp_client.as_mut());
            hp_clients.for_each(|hp_client| hp_client.marks_mut().handle_new_gate());
            self.is_gating = true;
        }
        self.poll_ns = config.poll_ns;
        self.block_priority.configured = config.block_priority;
        self.unknown_ns = config.unknown_kernel_ns;
        self.on_collectives = config.on_collectives;
        self.rules.clone_from(&config.jobs);
        self.access.clone_from(&config.high_priority);
        self.limits = config.limits;
        self.configure_laws(config);
        self.pages.configure(config);
        self.config_error = None;
    }

    /// The re-read configuration is invalid: the state stays unchanged, and status reports why.
    pub fn handle_config_error(&mut self, why: String) {
        self.config_error = Some(why);
    }

    /// A process attaches at `now_ns`. The caller rings the daemon's bell before it answers the
    /// client, so that a high-priority client is known, and leases are gated, before it launches.
    /// # Errors
    /// A table is full; the reason is for the client's log.
    pub fn handle_attach(
        &mut self,
        now_ns: u64,
        peer: Peer,
        attach: Attach,
        pages: NewPages,
    ) -> Result<Attached, Refused> {
        let key = job_key(&attach.job, attach.class, peer);
        let (job, mut counted) = self.take_comer(now_ns, &key, pages.file)?;
        if key.class == JobClass::HighPriority {
            // Its records are summed again.
            counted.set(Counter::RequestsMarked, 0);
            counted.set(Counter::RequestsInferred, 0);
        }
        let has_past = job.is_some() || self.ended.iter().any(|ended| ended.key == key);
        if key.class == JobClass::HighPriority || !has_past {
            // A best-effort client counts what it has learnt as known from the first launch on.
            // Without the job's earlier reading, a difference of its sums means nothing.
            GpuTime::default().count(&mut counted);
        }
        // Accept it all the same, as best-effort jobs are: refused, it would run unmanaged.
        let is_new_hp = key.class == JobClass::HighPriority && job.is_none();
        let draining = self.holds.draining().filter(|_| is_new_hp);
        let draining = draining.map(str::to_owned);
        self.clients_ever += 1;
        let mut client = Client {
            id: self.clients_ever,
            peer,
            name: attach.name,
            profile: attach.profile,
            profile_fit: attach.profile_fit,
            attached_ns: now_ns,
            ended_from_here_until_ns: Cell::new(0),
            falls_with_parent: attach.falls_with_parent,
            sharing: attach.is_on_mps.map(sharing_by),
            denied: None,
            is_sticky_taken: false,
            hp_client: (key.class == JobClass::HighPriority)
                .then(|| Box::new(HpClient::new(now_ns, &pages.client, self.sms))),
            page: pages.client,
            file: pages.file,
            charged_ns_most: Cell::new(counted.charged_ns),
            counted,
            goal_told: None,
            end: End::default(),
        };
        client.begin_serving();
        if let Some(trace) = &mut self.trace {
            trace.handle_attach(&key, &mut client);
        }
        if key.class == JobClass::HighPriority {
            // Before the hello is answered: ungated leases must be gated now.
            let be_jobs = self.jobs.iter_mut().filter_map(|job| job.be_job.as_mut());
            be_jobs.for_each(BeJob::close_if_ungated);
            self.is_gating = true;
        }
        let job = match job {
            Some(index) => &mut self.jobs[index],
            None => {
                // Earlier launches were made under a previous daemon.
                let has_run = client.page.counted(Counter::Launches) > 0;
                let is_new = !has_run || self.holds.is_for_returned;
                self.add_job(key, pages.lease, is_new)
            }
        };
        let attached = Attached {
            client: client.id,
            lease: job.be_job.as_ref().map(BeJob::fd),
            draining,
        };
        job.goal.handle_asked(&job.key, &attach.slo);
        job.cap
            .handle_asked(&job.key, &attach.compute, &attach.restartable);
        job.clients.push(client);
        let by = Gone {
            key: job.key.clone(),
            pid: peer.pid,
        };
        self.note_words(&by);
        Ok(attached)
    }

    /// A client asked for a class without permission, and has the other.
    pub fn handle_denied(&mut self, client: u64, asked: JobClass) {
        let mut clients = self.jobs.iter_mut().flat_map(|job| &mut job.clients);
        if let Some(client) = clients.find(|known| known.id == client) {
            client.denied = Some(asked);
        }
    }

    /// Reads, decides and publishes at `now_ns`; returns when to poll next.
    pub fn poll(&mut self, now_ns: u64) -> Look {
        self.wakes.clear();
        if self.is_closed {
            return Look::WhenRung;
        }
        let daemon = &self.pages.daemon;
        daemon.heartbeat_ns.store(now_ns, Ordering::Relaxed);
        // Release: a client that sees the daemon awake sees the heartbeat above, not an older one.
        daemon.asleep.store(0, Ordering::Release);
        if std::mem::take(&mut self.is_gating) {
            self.wake_best_effort();
        }
        for _ in 0..ROUNDS_MAX {
            if self.poll_round(now_ns) {
                break;
            }
        }
        let gated = self.jobs.iter().filter_map(|job| job.be_job.as_ref());
        if !gated.into_iter().any(BeJob::is_gated) {
            let live_epoch = &self.pages.daemon.live_epoch;
            // Load first: a store takes the cache line from every following high-priority launch.
            if live_epoch.load(Ordering::Relaxed) != 0 {
                live_epoch.store(0, Ordering::Relaxed);
            }
        }
        self.poll_questions(now_ns);
        self.note(now_ns);
        self.poll_trace(now_ns);
        self.look(now_ns)
    }

    /// With nobody to protect helpers do not poll completions: sums in flight are then too high.
    fn wake_best_effort(&mut self) {
        for (job, known) in self.jobs.iter().enumerate() {
            if known.be_job.is_some() {
                let places = 0..known.clients.len();
                let wakes = places.map(|client| Wake::Helper { job, client });
                self.wakes.extend(wakes);
            }
        }
    }

    /// One decision. False: high-priority work arrived before the leases were published.
    fn poll_round(&mut self, now_ns: u64) -> bool {
        // Acquire pairs with the Release of the bump in `protocol::lease::announce`: once the bump
        // is visible, the push is drained.
        let epoch = self.pages.hp.epoch.load(Ordering::Acquire);
        self.drain(now_ns);
        self.decide(now_ns, epoch);
        if !self.publish_at_once(now_ns) {
            return true;
        }
        // 0 is never live: only a corrupt page has it as the epoch.
        let is_overtaken = epoch == 0 || {
            announce_live(&self.pages.daemon, epoch);
            self.drain(now_ns)
        };
        if is_overtaken {
            // Losing the race to a client's bump is equally good.
            let _ = self.pages.hp.epoch.compare_exchange(
                epoch,
                epoch.wrapping_add(1).max(1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            return false;
        }
        self.publish_open(now_ns);
        true
    }

    fn drain(&mut self, now_ns: u64) -> bool {
        let unknown_ns = self.unknown_ns;
        let mut is_busier = false;
        for client in self.jobs.iter_mut().flat_map(|job| &mut job.clients) {
            if let Some(hp_client) = &mut client.hp_client {
                is_busier |= hp_client.drain(&client.page, now_ns, unknown_ns);
            }
        }
        is_busier
    }

    fn decide(&mut self, now_ns: u64, epoch: u64) {
        let mut is_drained = true;
        for job in &mut self.jobs {
            let Some(be_job) = &mut job.be_job else {
                continue;
            };
            be_job.read(job.clients.iter().map(|client| &*client.page));
            is_drained &= be_job.view().drained || be_job.is_stalled() || be_job.is_refused();
        }
        let is_active = self.be_jobs().any(BeJob::is_active);
        let hp_clients = self.jobs.iter_mut().flat_map(|job| &mut job.clients);
        let hp_clients = hp_clients.filter_map(|client| client.hp_client.as_mut());
        let mut outlook = Outlook::idle(now_ns);
        self.hp = HpView::merge(hp_clients.map(|hp_client| {
            let view = hp_client.timeline().poll_view(now_ns);
            let until_ns = now_ns.saturating_add(IDLE_POLL_NS);
            if is_active {
                outlook = outlook.merge(hp_client.timeline().outlook(now_ns, until_ns));
            }
            view
        }));
        let hp = self.hp_for_policy(now_ns);
        self.views.clear();
        let refuses = hp.present && self.refuses_collectives();
        for be_job in self.jobs.iter_mut().filter_map(|job| job.be_job.as_mut()) {
            if !hp.present {
                be_job.forgive();
            }
            be_job.set_refusing(refuses);
            // Refunded charges do not count in a share.
            let begins_anew = is_drained || (!hp.present && self.gate.cap(be_job.id()) >= 1.0);
            self.views.extend(be_job.poll_view(begins_anew));
        }
        self.hand_over_caps(now_ns);
        self.hand_over_share(now_ns);
        self.tune(now_ns);
        self.hand_over_terms();
        // The policy must know the requests before it judges the jobs.
        self.gate.handle_jobs(now_ns, &self.views);
        if self.be_jobs().any(BeJob::is_excluded_at_work) {
            self.gate.handle_excluded(now_ns);
        }
        self.hand_over_requests(now_ns);
        self.watch_targets(now_ns);
        let snapshot = Snapshot {
            now_ns,
            sharing: self.ways.in_force(),
            sms: self.sms,
            epoch,
            hp,
            be: &self.views,
        };
        self.gate.handle_snapshot(&snapshot);
        let plain_priority = &self.pages.daemon.plain_priority;
        let is_plain = u32::from(self.gate.gives_priority());
        // Load first: a store takes the cache line from every following high-priority launch.
        if plain_priority.load(Ordering::Relaxed) != is_plain {
            plain_priority.store(is_plain, Ordering::Relaxed);
        }
        self.next_look_ns = match hp.present {
            true => self.gate.next_look_ns(&snapshot, &outlook, self.poll_ns),
            // A job whose sums are unreadable is closed, and no bell rings for it.
            false if self.be_jobs().any(BeJob::is_unsettled) => now_ns,
            false => self.gate.opens_ns(&snapshot).unwrap_or(u64::MAX),
        };
        for be_job in self.jobs.iter_mut().filter_map(|job| job.be_job.as_mut()) {
            let place = self.views.iter().position(|view| view.id == be_job.id());
            let lease = place.map(|place| self.gate.gate_with_limit(&snapshot, place));
            be_job.handle_lease(lease, epoch, now_ns, hp.present);
        }
    }

    /// Publishes what no high-priority launch can invalidate; returns whether open leases remain.
    fn publish_at_once(&mut self, now_ns: u64) -> bool {
        let mut is_open_left = false;
        for (index, job) in self.jobs.iter_mut().enumerate() {
            let Some(be_job) = &mut job.be_job else {
                continue;
            };
            match be_job.need(now_ns) {
                Need::Nothing => {}
                Need::AtOnce(terms) => {
                    if be_job.publish(&terms, now_ns) {
                        self.wakes.push(Wake::Lease { job: index });
                    }
                }
                Need::Open(_) => {
                    be_job.close_if_ungated();
                    is_open_left = true;
                }
            }
        }
        is_open_left
    }

    fn publish_open(&mut self, now_ns: u64) {
        for (index, job) in self.jobs.iter_mut().enumerate() {
            let Some(be_job) = &mut job.be_job else {
                continue;
            };
            if let Need::Open(terms) = be_job.need(now_ns)
                && be_job.publish(&terms, now_ns)
            {
                self.wakes.push(Wake::Lease { job: index });
            }
        }
    }

    fn poll_questions(&mut self, now_ns: u64) {
        let someone_waits = self.be_jobs().any(BeJob::is_waiting_for_policy);
        for (job, clients) in self.jobs.iter_mut().map(|job| &mut job.clients).enumerate() {
            for (place, client) in clients.iter_mut().enumerate() {
                let Some(hp_client) = &mut client.hp_client else {
                    continue;
                };
                if hp_client.poll_question(&client.page, now_ns, someone_waits) {
                    let client = place;
                    self.wakes.push(Wake::Helper { job, client });
                }
            }
        }
    }

    fn look(&self, now_ns: u64) -> Look {
        let next_ns = self.trace.as_ref().and_then(|trace| trace.next_ns(now_ns));
        match (self.look_for_work(now_ns), next_ns) {
            (Look::At(at_ns), Some(next_ns)) => Look::At(at_ns.min(next_ns)),
            (Look::WhenRung, Some(next_ns)) => Look::At(next_ns),
            (look, None) => look,
        }
    }

    fn look_for_work(&self, now_ns: u64) -> Look {
        if self.jobs.is_empty() {
            // Release: a client that sees the daemon asleep may see its heartbeat age.
            self.pages.daemon.asleep.store(1, Ordering::Release);
            return Look::WhenRung;
        }
        if !self.hp_for_policy(now_ns).present {
            let next_ns = self.next_look_ns.max(now_ns + self.poll_ns);
            return Look::At(next_ns.min(now_ns + ALONE_POLL_NS));
        }
        if !self.be_jobs().any(BeJob::is_active) {
            return Look::At(now_ns + IDLE_POLL_NS);
        }
        Look::At(self.next_look_ns.min(now_ns + IDLE_POLL_NS))
    }

    /// The daemon ends: clients see its end at once. The caller rings the waiters' bells
    /// ([`State::ring_bells`]); they then follow `on_daemon_loss`.
    pub fn close(&mut self) {
        self.is_closed = true;
        let daemon = &self.pages.daemon;
        daemon.live_epoch.store(0, Ordering::Relaxed);
        daemon.plain_priority.store(0, Ordering::Relaxed);
        daemon.trace.store(0, Ordering::Relaxed);
        daemon.asleep.store(0, Ordering::Relaxed);
        daemon.heartbeat_ns.store(0, Ordering::Release);
        self.wakes.clear();
        let leases = self.jobs.iter().enumerate();
        let leases = leases.filter(|(_, job)| job.be_job.is_some());
        self.wakes
            .extend(leases.map(|(job, _)| Wake::Lease { job }));
    }

    pub(crate) fn has_clients(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(crate) fn be_jobs(&self) -> impl Iterator<Item = &BeJob> {
        self.jobs.iter().filter_map(|job| job.be_job.as_ref())
    }
}

#[cfg(test)]
mod tests;

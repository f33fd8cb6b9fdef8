//! The daemon's status as one JSON document (`schema_version` 1) for `pillion status`.
//! Field names carry their unit. Times are on the daemon's clock, whose zero is arbitrary, so they
//! are useful only together with `daemon.now_ns`. Counters are clients' own and not checked; a
//! client that lies about them misreports only itself.

mod control;
mod device;
mod enforcing;
mod hold;
mod mps;
mod probe;
mod requests;
mod unmanaged;
mod users;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use policy::{Class, ClassSet, Policy, Sharing};
use protocol::VERSION;
use protocol::hello::JobClass;
use protocol::lease::Terms;
use protocol::pages::{Counter, LeasePage};
use protocol::sync::Ordering;
use serde::Serialize;

use crate::config::gpu::Gpu;
use crate::config::{AUTO, sharing_name};
use crate::core::ledgers::{Ledgers, MemoryStatus};
use crate::core::sharing::sharing_by;
use crate::core::state::{
    BeJob, Client, EndedJob, Faults, GpuTime, Job, Listed, Source, State, Totals, Whose,
};
use crate::host::device_release::Released;
use crate::host::realtime;
use crate::report::events::EventsStatus;

pub use control::{ControlStatus, ShareStatus, SloStatus, ThrottleStatus, TunerStatus};
pub use device::DeviceStatus;
pub use hold::{ProgressStatus, TooLong};
pub use mps::MpsStatus;
pub use probe::{MetricStatus, ProbeStatus};
pub use requests::{BucketStatus, KindStatus, RecentStatus, RequestsStatus};
pub use unmanaged::{UnmanagedProcess, UnmanagedStatus};
pub use users::UserStatus;

/// Version of this document: changes when a reader of the old one would be misled.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The answering process.
    pub daemon: DaemonStatus,
    /// The GPU that it schedules.
    pub gpu: GpuStatus,
    /// Why the GPU is drained, by a rule or an operator: no new high-priority job should start
    /// there. None: it is not.
    pub draining: Option<String>,
    /// Holds that the viewer may see, with or without such jobs present.
    pub held: Vec<HeldStatus>,
    /// MPS; none if the daemon does not manage it.
    pub mps: Option<MpsStatus>,
    /// The rules, and their present effect.
    pub policy: PolicyStatus,
    /// The high-priority side.
    pub hp: HpStatus,
    /// Jobs with clients, then ended jobs, oldest first; those that the viewer may see
    /// ([`Viewer`]).
    pub jobs: Vec<JobStatus>,
    /// Use of all jobs of each user, by user id; of users with visible jobs.
    pub users: Vec<UserStatus>,
    /// Jobs with clients that the viewer may not see.
    pub others: OthersStatus,
    /// Refused processes, oldest first; the last 32.
    pub turned_away: Vec<Listed>,
    /// Processes that use the GPU outside Pillion; none if NVML cannot list them.
    pub unmanaged: Option<UnmanagedStatus>,
    /// Numbers of events, by kind; `pillion events` shows them.
    pub events: EventsStatus,
}

/// The viewer of a status. Only the operator sees the names, use and state of other users' jobs;
/// others see their number, and the policy's view of all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Root, or the daemon's own user: sees everything.
    Operator,
    /// Sees this user's jobs.
    User(u32),
}

impl Viewer {
    /// The viewer that a user is.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        let own = rustix::process::geteuid();
        match uid == 0 || uid == own.as_raw() {
            true => Self::Operator,
            false => Self::User(uid),
        }
    }

    pub(crate) fn sees(self, owner: u32) -> bool {
        self == Self::Operator || self == Self::User(owner)
    }
}

/// A hold, which lasts until `pillion resume`, or until MPS serves again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldStatus {
    /// Id of the held job; none: all best-effort jobs, or all of a user.
    pub job: Option<String>,
    /// User of the held jobs; none: all users.
    pub uid: Option<u32>,
    /// The reason.
    pub why: String,
    /// It ends when MPS serves again.
    pub until_mps_serves: bool,
}

impl HeldStatus {
    fn for_mps(why: &str) -> Self {
        Self {
            job: None,
            uid: None,
            why: why.to_owned(),
            until_mps_serves: true,
        }
    }

    fn of((whose, why): (Whose<'_>, &str), viewer: Viewer) -> Option<Self> {
        let (job, uid) = match whose {
            Whose::Job(key) => (Some(key.id.clone()), Some(key.uid)),
            Whose::User(uid) => (None, Some(uid)),
            Whose::Everybody => (None, None),
        };
        uid.is_none_or(|uid| viewer.sees(uid)).then(|| Self {
            job,
            uid,
            why: why.to_owned(),
            until_mps_serves: false,
        })
    }
}

/// A released device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReleasedStatus {
    /// Since when, on the daemon's clock.
    pub since_ns: u64,
    /// Parts of the daemon that still have it open, as the driver has not answered them; 0: none.
    pub open: usize,
}

/// Jobs of other users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OthersStatus {
    /// High-priority jobs.
    pub high_priority: usize,
    /// Best-effort jobs.
    pub best_effort: usize,
}

impl OthersStatus {
    fn of(state: &State, viewer: Viewer) -> Self {
        let hidden = || state.jobs.iter().filter(|job| !viewer.sees(job.key.uid));
        let best_effort = hidden().filter(|job| job.be_job.is_some()).count();
        Self {
            high_priority: hidden().count() - best_effort,
            best_effort,
        }
    }
}

pub(crate) const CONFIG_ERROR_OF_OTHERS: &str =
    "only the daemon's user and root may read the reason";

/// The daemon itself.
#[derive(Clone, Debug, Serialize)]
pub struct DaemonStatus {
    /// Version of the program.
    pub version: &'static str,
    /// Version of the protocol with clients.
    pub protocol: String,
    /// Process id.
    pub pid: u32,
    /// Its socket.
    pub socket: String,
    /// The present time, on its clock.
    pub now_ns: u64,
    /// Since its start.
    pub uptime_ns: u64,
    /// Whether the poll thread has real-time priority ([`realtime`]).
    pub real_time: bool,
    /// Idle time until the daemon ends, s; none: it stays.
    pub ends_when_idle_s: Option<u64>,
}

/// The GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuStatus {
    /// As NVML prints it.
    pub uuid: String,
    /// Model.
    pub name: String,
    /// PCI bus id.
    pub pci: String,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Memory, bytes; 0 if the driver does not report it.
    pub memory_bytes: u64,
    /// The way by which leases are made: `mps` or `timeslice`.
    pub sharing: &'static str,
    /// `[gpu] sharing`: one of these, or `auto`.
    pub sharing_configured: &'static str,
    /// The source of `sharing`: `clients`, `configuration`, `control-daemon` (MPS's), or
    /// `assumption` if there is none.
    pub sharing_known_by: &'static str,
    /// `[gpu] sharing` differs from clients' reports.
    pub sharing_wrong: bool,
    /// Some clients share it by MPS, others in time slices.
    pub sharing_mixed: bool,
    /// The folder of MPS's pipes, if it is missing for the daemon; none: it exists, or MPS does not
    /// share the GPU. Without it MPS cannot be asked to end a job's work.
    pub mps_unseen: Option<String>,
    /// NVML is closed until `pillion resume`; none: it is not.
    pub released: Option<ReleasedStatus>,
    /// Clock, power and temperature; none while no law needs them, and nobody reads them.
    pub device: Option<DeviceStatus>,
    /// State of the probe, and its holds; none without `[probe]`.
    pub probe: Option<ProbeStatus>,
}

/// The policy in force.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyStatus {
    /// As in the configuration.
    pub name: &'static str,
    /// Its parameters, by name.
    pub params: BTreeMap<&'static str, f64>,
    /// Bound on expected best-effort work in flight at this moment; none if it never holds.
    pub dur_threshold_ns: Option<u64>,
    /// Duration of a high-priority request alone, once known.
    pub hp_latency_ns: Option<u64>,
    /// The delay that a request can afford: under `pillion` its slack over its duration alone,
    /// under `orion` and `temporal` the same as `dur_threshold_ns`.
    pub affordable_ns: Option<u64>,
    /// Whether the policy relies on priorities between blocks of different processes.
    pub block_priority: BlockPriorityStatus,
    /// The bounds of `pillion` at this moment; none under another policy.
    pub bounds: Option<BoundsStatus>,
    /// The throttle's state, and its bound on best-effort jobs; none without `[throttle]`.
    pub throttle: Option<ThrottleStatus>,
    /// The best-effort share beside high-priority jobs; none without `[share]`.
    pub share: Option<ShareStatus>,
    /// Why the last reload was rejected; none if it was not.
    pub config_error: Option<String>,
}

/// Whether the policy relies on priorities between blocks, which only `pillion` does.
#[derive(Clone, Debug, Serialize)]
pub struct BlockPriorityStatus {
    /// `[policy] block_priority`; none: `auto`.
    pub configured: Option<bool>,
    /// Whether it does.
    pub on: bool,
    /// The reason, for display.
    pub why: String,
}

/// The bounds of `pillion`.
#[derive(Clone, Debug, Serialize)]
pub struct BoundsStatus {
    /// Expected best-effort work in flight while high-priority jobs are idle.
    pub idle_ns: u64,
    /// The same while they are busy.
    pub beside_ns: u64,
    /// Ratio of the first bound to what a request can afford, by measured requests; below 1 while
    /// they are being hurt.
    pub gain: f64,
    /// The first bound is raised above the gain's result, to Orion's bound.
    pub floor: bool,
    /// A kernel must fit into the rest of the bound while they are idle, too.
    pub whole: bool,
    /// Kernels beside them must use another resource and fewer SMs than the device has.
    pub pairs: bool,
}

/// The high-priority side.
#[derive(Clone, Debug, Serialize)]
pub struct HpStatus {
    /// A high-priority client is attached.
    pub present: bool,
    /// Its work is in flight.
    pub busy: bool,
    /// Resource classes of the kernels that execute now, as predicted.
    pub executing: Vec<&'static str>,
    /// Requests are still being measured.
    pub learning: bool,
    /// The current `hp_epoch`.
    pub epoch: u64,
    /// The epoch that open leases name; 0: none.
    pub live_epoch: u64,
}

/// A job.
#[derive(Clone, Debug, Serialize)]
pub struct JobStatus {
    /// Its id.
    pub job: String,
    /// Its user.
    pub uid: u32,
    /// `high-priority` or `best-effort`.
    pub class: &'static str,
    /// What Pillion does to it, for display.
    pub enforcing: String,
    /// End of its last client; none while it has clients.
    pub ended_ns: Option<u64>,
    /// Its processes.
    pub clients: Vec<ClientStatus>,
    /// Of all its clients, including departed ones, by name of [`Counter`].
    pub totals: BTreeMap<&'static str, u64>,
    /// GPU time: expected ns of its launches alone, of all its clients, including departed ones.
    /// Never decreases while the daemon lives. (In `totals` a best-effort job's is a sample.)
    pub gpu_time_ns: u64,
    /// Part of its GPU time in kernels of known duration (from a profile, saved, or learnt), 0 to
    /// 100, since it came; none at zero GPU time, and for best-effort libraries before protocol
    /// 3.2.
    pub gpu_time_known_pct: Option<f64>,
    /// Part in kernels with a resource class (compute or memory).
    pub gpu_time_classed_pct: Option<f64>,
    /// How its requests are known: `marks` (its program marks begin and end), `nvtx` (ranges of
    /// NVTX) or `inferred` (from its launches); none for best-effort and ended jobs. Of several
    /// processes any that is not `inferred`.
    pub requests_source: Option<&'static str>,
    /// Durations of its requests; none for best-effort jobs, and before one has ended.
    pub requests: Option<RequestsStatus>,
    /// The laws that control it; none for ended jobs, and for high-priority ones under a policy
    /// without request targets.
    pub control: Option<ControlStatus>,
    /// Expected ns of its launches in flight.
    pub in_flight_ns: u64,
    /// Expected ns of all its launches, including departed clients'.
    pub charged_ns: u64,
    /// Some of its threads wait at the gate.
    pub waiting: bool,
    /// What they wait for, a word of the policy; none without waiters.
    pub held_by: Option<&'static str>,
    /// Granted part of its demand, and what limited it; none for high-priority and ended jobs.
    pub progress: Option<ProgressStatus>,
    /// Its kernels that by themselves make a high-priority request late, the worst first.
    pub too_long: Vec<TooLong>,
    /// It has not drained for too long and is left out of decisions.
    pub stalled: bool,
    /// Its published lease; none for high-priority and ended jobs.
    pub lease: Option<LeaseStatus>,
    /// Defects found in its clients' memory.
    pub faults: Faults,
    /// Its GPU memory; none if no client has an account.
    pub memory: Option<MemoryStatus>,
}

/// A process of a job.
#[derive(Clone, Debug, Serialize)]
pub struct ClientStatus {
    /// Number, unique while the daemon lives.
    pub client: u64,
    /// Process id; 0 if invisible from the daemon's PID namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Program.
    pub name: String,
    /// Profile file; empty: none, and all its kernels are unknown.
    pub profile: String,
    /// GPU on which the profile was measured and how it was adapted; empty: this model.
    pub profile_fit: String,
    /// True: listed clients are attached. (Refused processes are listed separately.)
    pub attached: bool,
    /// How it shares the GPU, `mps` or `timeslice`: by its own report, else as assumed.
    pub sharing: &'static str,
    /// The class that it asked for without permission; none if it has what it asked for.
    pub denied: Option<&'static str>,
    /// Time of its attach.
    pub attached_ns: u64,
    /// The kernel signals it when its parent ends (`PR_SET_PDEATHSIG`), as its library knows.
    pub falls_with_parent: bool,
    /// A signal asked its process to end, and its drain timed out (`PILLION_DRAIN_MS`) with work in
    /// flight: under MPS it waits for its supervisor.
    pub overdue: bool,
    /// By name of [`Counter`].
    pub counters: BTreeMap<&'static str, u64>,
    /// Defects found in its memory.
    pub faults: Faults,
}

/// A lease as published.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseStatus {
    /// Nothing is held back.
    pub ungated: bool,
    /// Made while high-priority work was in flight.
    pub beside_hp: bool,
    /// The epoch under which it was made.
    pub epoch: u64,
    /// Expiry time.
    pub expiry_ns: u64,
    /// Admitted resource classes.
    pub classes: Vec<&'static str>,
    /// Most SMs of a kernel.
    pub sms_max: u32,
    /// Expected ns that may still be charged.
    pub budget_ns: u64,
}

/// Parts of a status that the state does not know.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The GPU.
    pub gpu: Gpu,
    /// The daemon's socket.
    pub socket: String,
    /// The daemon's start, on its clock.
    pub started_ns: u64,
    /// Idle time until it ends; none: it stays.
    pub ends_when_idle: Option<Duration>,
}

impl Status {
    /// The status of `state` at `now_ns`, as far as the viewer may see it. Takes no lock and does
    /// no IO: serialise it after releasing the state.
    #[must_use]
    pub(crate) fn of(
        state: &State,
        ledgers: &Ledgers,
        events: EventsStatus,
        identity: &Identity,
        now_ns: u64,
        viewer: Viewer,
    ) -> Self {
        let live = state.jobs.iter().filter(|job| viewer.sees(job.key.uid));
        let live = live.map(|job| job_status(state, ledgers, now_ns, job));
        let ended = state.ended.iter().filter(|job| viewer.sees(job.key.uid));
        let ended = ended.map(|job| ended_status(ledgers, job));
        Self {
            schema_version: SCHEMA_VERSION,
            daemon: DaemonStatus {
                version: env!("CARGO_PKG_VERSION"),
                protocol: VERSION.to_string(),
                pid: std::process::id(),
                socket: identity.socket.clone(),
                now_ns,
                uptime_ns: now_ns.saturating_sub(identity.started_ns),
                real_time: realtime::is_held(),
                ends_when_idle_s: identity.ends_when_idle.map(|idle| idle.as_secs()),
            },
            gpu: GpuStatus {
                uuid: identity.gpu.uuid.clone(),
                name: identity.gpu.name.clone(),
                pci: identity.gpu.pci.to_string(),
                sms: identity.gpu.sms,
                memory_bytes: identity.gpu.memory_bytes,
                sharing: sharing_name(state.ways.in_force()),
                sharing_configured: state.ways.configured().map_or(AUTO, sharing_name),
                sharing_known_by: state.ways.known_by().name(),
                sharing_wrong: state.ways.is_wrong(),
                sharing_mixed: state.ways.is_differing(),
                mps_unseen: None,
                released: None,
                device: None,
                probe: None,
            },
            draining: state.holds.draining().map(str::to_owned),
            held: (state.holds.listed())
                .filter_map(|hold| HeldStatus::of(hold, viewer))
                .chain(state.holds.for_mps().map(HeldStatus::for_mps))
                .collect(),
            mps: None,
            policy: policy_status(state, now_ns, viewer),
            hp: HpStatus {
                present: state.hp.present,
                busy: state.hp.busy,
                executing: class_names(state.hp.executing),
                learning: state.hp.learning,
                epoch: state.pages.hp.epoch.load(Ordering::Relaxed),
                live_epoch: state.pages.daemon.live_epoch.load(Ordering::Relaxed),
            },
            jobs: live.chain(ended).collect(),
            users: users::users(state, viewer),
            others: OthersStatus::of(state, viewer),
            turned_away: (state.rejected.listed())
                .filter(|listed| viewer.sees(listed.process.uid))
                .cloned()
                .collect(),
            unmanaged: None,
            events,
        }
    }

    /// The folder of MPS's pipes is missing for the daemon.
    pub(crate) fn note_unseen(&mut self, pipes: Option<PathBuf>) {
        let is_on_mps = self.gpu.sharing == sharing_name(Sharing::Mps);
        let pipes = pipes.filter(|_| is_on_mps || self.gpu.sharing_mixed);
        self.gpu.mps_unseen = pipes.map(|folder| folder.display().to_string());
    }

    pub(crate) fn note_released(&mut self, released: Option<Released>) {
        self.gpu.released =
            released.map(|Released { since_ns, open }| ReleasedStatus { since_ns, open });
    }

    /// The JSON document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and maps with string keys only")
    }
}

fn policy_status(state: &State, now_ns: u64, viewer: Viewer) -> PolicyStatus {
    let params = state.gate.policy().throttle_params();
    let error = state.config_error.as_ref();
    PolicyStatus {
        name: state.gate.policy().name(),
        params: params_by_name(state),
        dur_threshold_ns: params.map(|params| params.dur_threshold_ns(&state.hp)),
        hp_latency_ns: state.gate.solo_ns().or(state.hp.latency_ns),
        affordable_ns: hold::affordable_ns(state),
        block_priority: BlockPriorityStatus {
            configured: state.block_priority.configured,
            on: state.block_priority.is_on(),
            why: state.block_priority.why(),
        },
        bounds: bounds_status(state),
        throttle: ThrottleStatus::of(state, now_ns),
        share: ShareStatus::of(state),
        config_error: error.map(|error| match viewer {
            Viewer::Operator => error.clone(),
            Viewer::User(_) => CONFIG_ERROR_OF_OTHERS.to_owned(),
        }),
    }
}

fn bounds_status(state: &State) -> Option<BoundsStatus> {
    let (bounds, gain) = state.gate.ceiling().zip(state.gate.gain())?;
    Some(BoundsStatus {
        idle_ns: bounds.idle_ns,
        beside_ns: bounds.beside_ns,
        gain,
        floor: bounds.floor,
        whole: bounds.whole,
        pairs: bounds.pairs,
    })
}

fn params_by_name(state: &State) -> BTreeMap<&'static str, f64> {
    let mut by_name = BTreeMap::new();
    let policy = state.gate.policy();
    if let Some(params) = policy.throttle_params() {
        by_name.insert("dur_threshold_pct", params.dur_threshold_pct);
        by_name.insert("residual_us", params.residual_ns_unknown as f64 / 1e3);
    }
    if let Policy::Listed(numbers) = policy {
        let plain = numbers.entry().params().iter();
        by_name.extend(plain.filter_map(|param| Some((param.key, numbers.get(param.key)?))));
    }
    if let Some(lease_ns) = policy.lease_ns() {
        by_name.insert("lease_ms", lease_ns as f64 / 1e6);
    }
    if let Some(sms) = state.gate.sm_threshold(state.sms) {
        by_name.insert("sm_threshold", sms.into());
    }
    by_name
}

fn job_status(state: &State, ledgers: &Ledgers, now_ns: u64, job: &Job) -> JobStatus {
    let mut totals = job.past;
    for client in &job.clients {
        totals.add(&client.totals());
    }
    let be_job = job.be_job.as_ref();
    JobStatus {
        job: job.key.id.clone(),
        uid: job.key.uid,
        class: job.key.class.name(),
        enforcing: be_job.map_or_else(
            || "goes first; never held".to_owned(),
            |be_job| enforcing::enforcing(state, now_ns, job, be_job),
        ),
        ended_ns: None,
        clients: (job.clients.iter())
            .map(|client| client_status(state, client))
            .collect(),
        totals: counters_by_name(&totals),
        gpu_time_ns: totals.gpu_time_ns(job.key.class),
        gpu_time_known_pct: GpuTime::of(&totals).known_pct(),
        gpu_time_classed_pct: GpuTime::of(&totals).classed_pct(),
        requests_source: requests_source(state, job).map(Source::name),
        requests: RequestsStatus::of(&job.requests, job.slo_watch.is_missed(), now_ns),
        control: ControlStatus::of(state, now_ns, job),
        in_flight_ns: be_job.map_or(0, |be_job| be_job.view().in_flight_ns()),
        charged_ns: totals.charged_ns,
        waiting: be_job.is_some_and(|be_job| be_job.view().waiting),
        held_by: be_job
            .filter(|be_job| be_job.view().waiting)
            .map(|be_job| be_job.limit().name()),
        progress: be_job.map(|be_job| ProgressStatus::of(be_job.progress())),
        too_long: match be_job {
            Some(_) => hold::too_long(state, job),
            None => Vec::new(),
        },
        stalled: be_job.is_some_and(BeJob::is_stalled),
        lease: be_job.map(|be_job| lease_status(be_job.published(), be_job.page())),
        faults: totals.faults,
        memory: ledgers.status_of(&job.key),
    }
}

fn ended_status(ledgers: &Ledgers, job: &EndedJob) -> JobStatus {
    JobStatus {
        job: job.key.id.clone(),
        uid: job.key.uid,
        class: job.key.class.name(),
        enforcing: "ended".to_owned(),
        ended_ns: Some(job.ended_ns),
        clients: Vec::new(),
        totals: counters_by_name(&job.totals),
        gpu_time_ns: job.totals.gpu_time_ns(job.key.class),
        gpu_time_known_pct: GpuTime::of(&job.totals).known_pct(),
        gpu_time_classed_pct: GpuTime::of(&job.totals).classed_pct(),
        requests_source: None,
        requests: RequestsStatus::of(&job.requests, false, job.ended_ns),
        control: None,
        in_flight_ns: 0,
        charged_ns: job.totals.charged_ns,
        waiting: false,
        held_by: None,
        progress: None,
        too_long: Vec::new(),
        stalled: false,
        lease: None,
        faults: job.totals.faults,
        memory: ledgers.status_of(&job.key),
    }
}

fn requests_source(state: &State, job: &Job) -> Option<Source> {
    let hp_clients = job.clients.iter().filter_map(|c| c.hp_client.as_ref());
    let mut sources = hp_clients.map(|hp_client| hp_client.marks().source());
    let first = sources.next()?;
    match first {
        // A policy without request targets ignores marks.
        _ if state.pillion().is_none() => Some(Source::Inferred),
        Source::Inferred => Some(sources.find(|source| *source != first).unwrap_or(first)),
        told => Some(told),
    }
}

fn client_status(state: &State, client: &Client) -> ClientStatus {
    ClientStatus {
        client: client.id,
        pid: client.peer.pid,
        uid: client.peer.uid,
        name: client.name.clone(),
        profile: client.profile.clone(),
        profile_fit: client.profile_fit.clone(),
        attached: true,
        sharing: sharing_name(sharing_by(state.is_on_mps(client))),
        denied: client.denied.map(JobClass::name),
        attached_ns: client.attached_ns,
        falls_with_parent: client.falls_with_parent,
        overdue: client.is_overdue(),
        counters: counters_by_name(&client.page_totals()),
        faults: client.faults(),
    }
}

fn lease_status(terms: &Terms, page: &LeasePage) -> LeaseStatus {
    let charged_ns = page.charges.total_ns.load(Ordering::Relaxed);
    LeaseStatus {
        ungated: terms.ungated(),
        beside_hp: terms.beside_hp(),
        epoch: terms.epoch,
        expiry_ns: terms.expiry_ns,
        classes: class_names(ClassSet::from_bits_truncate(terms.class_bits())),
        sms_max: terms.sms_max,
        budget_ns: match terms.ungated() {
            true => u64::MAX,
            false => terms.limit_total_ns.saturating_sub(charged_ns),
        },
    }
}

fn counters_by_name(totals: &Totals) -> BTreeMap<&'static str, u64> {
    let names = Counter::ALL.iter().map(|counter| counter.name());
    names.zip(totals.counters).collect()
}

fn class_names(classes: ClassSet) -> Vec<&'static str> {
    Class::ALL
        .into_iter()
        .filter(|&class| classes.contains(class))
        .map(Class::name)
        .collect()
}

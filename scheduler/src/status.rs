//! What the daemon is doing, as one JSON document (`schema_version` 1) for `pillion status`.
//!
//! Field names carry their unit; times are on the daemon's clock, whose zero is arbitrary, so each
//! is useful only next to `daemon.now_ns`. Counters are clients' own and not checked; a client that
//! lies about them shows lies about itself.

use std::collections::BTreeMap;

use policy::{Class, ClassSet, Policy, Sharing};
use protocol::VERSION;
use protocol::lease::Terms;
use protocol::pages::{Counter, LeasePage};
use protocol::sync::Ordering;
use serde::Serialize;

use crate::config::sharing_name;
use crate::gpu::Gpu;
use crate::ledgers::{Ledgers, MemoryStatus};
use crate::state::{Client, EndedJob, Faults, Job, Lessee, State, Totals, TurnedAway};

/// The version of this document: changes when a reader of the old one would be misled.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The process that answers.
    pub daemon: DaemonStatus,
    /// What it schedules.
    pub gpu: GpuStatus,
    /// The rules, and what follows from them now.
    pub policy: PolicyStatus,
    /// The high-priority side.
    pub hp: HpStatus,
    /// Jobs with clients, then jobs that have ended, the oldest first.
    pub jobs: Vec<JobStatus>,
    /// Processes that wanted to be clients and are not, the oldest first; the last 32.
    pub turned_away: Vec<TurnedAway>,
}

/// The daemon itself.
#[derive(Clone, Debug, Serialize)]
pub struct DaemonStatus {
    /// Of the program.
    pub version: &'static str,
    /// Of the protocol that it speaks with clients.
    pub protocol: String,
    /// Process id.
    pub pid: u32,
    /// Where clients find it.
    pub socket: String,
    /// Now, on its clock.
    pub now_ns: u64,
    /// Since its start.
    pub uptime_ns: u64,
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
    /// Memory, bytes; 0 if the driver does not say.
    pub memory_bytes: u64,
    /// `mps` or `timeslice`.
    pub sharing: &'static str,
}

/// The policy in force.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyStatus {
    /// As in the configuration.
    pub name: &'static str,
    /// Its numbers, by name.
    pub params: BTreeMap<&'static str, f64>,
    /// Expected best-effort work in flight that it allows at this moment; none if it never holds.
    pub dur_threshold_ns: Option<u64>,
    /// Length of a high-priority request undisturbed, once known.
    pub hp_latency_ns: Option<u64>,
    /// The bounds of `pillion` at this moment; none under another policy.
    pub bounds: Option<BoundsStatus>,
    /// Why the last reading of the configuration changed nothing; none if it did not fail.
    pub config_error: Option<String>,
}

/// The bounds of `pillion`.
#[derive(Clone, Debug, Serialize)]
pub struct BoundsStatus {
    /// Expected best-effort work in flight while high-priority jobs are idle.
    pub idle_ns: u64,
    /// The same while they are busy.
    pub beside_ns: u64,
    /// How many times what a request can afford the first is; below 1 where requests are being hurt.
    pub gain: f64,
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
    /// Whose it is.
    pub uid: u32,
    /// `high-priority` or `best-effort`.
    pub class: &'static str,
    /// What Pillion does to it, in words.
    pub enforcing: String,
    /// When its last client ended; none while it has clients.
    pub ended_ns: Option<u64>,
    /// Its processes.
    pub clients: Vec<ClientStatus>,
    /// Of all its clients, also those that have gone, by name of [`Counter`].
    pub totals: BTreeMap<&'static str, u64>,
    /// Expected ns of its launches that are not seen complete.
    pub in_flight_ns: u64,
    /// Expected ns of all its launches, also of clients that have gone.
    pub charged_ns: u64,
    /// Threads of it wait at the gate.
    pub waiting: bool,
    /// What they wait for, a word of the policy; none while nobody waits.
    pub held_by: Option<&'static str>,
    /// It has not drained for too long and is left out of decisions.
    pub stalled: bool,
    /// What it may launch now; none for high-priority jobs and jobs that have ended.
    pub lease: Option<LeaseStatus>,
    /// What was wrong with its clients' memory.
    pub faults: Faults,
    /// What it holds of the GPU's memory; none if none of its clients keeps an account.
    pub memory: Option<MemoryStatus>,
}

/// A process of a job.
#[derive(Clone, Debug, Serialize)]
pub struct ClientStatus {
    /// Number, unique while the daemon lives.
    pub client: u64,
    /// Process id; 0 if it cannot be seen from the daemon's PID namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Program.
    pub name: String,
    /// Profile file; empty: none, all its kernels are unknown.
    pub profile: String,
    /// Where that was measured and what was done about it; empty: on this model of GPU.
    pub profile_fit: String,
    /// True: a client that is listed is attached. (Processes that were turned away are listed by themselves.)
    pub attached: bool,
    /// When it attached.
    pub attached_ns: u64,
    /// By name of [`Counter`].
    pub counters: BTreeMap<&'static str, u64>,
    /// What was wrong with its memory.
    pub faults: Faults,
}

/// A lease as published.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseStatus {
    /// Nothing is held.
    pub ungated: bool,
    /// Made while high-priority work was in flight.
    pub beside_hp: bool,
    /// Epoch it was made under.
    pub epoch: u64,
    /// When it ends by itself.
    pub expiry_ns: u64,
    /// Resource classes that may be launched.
    pub classes: Vec<&'static str>,
    /// Most SMs a kernel may need.
    pub sms_max: u32,
    /// Expected ns that may still be charged.
    pub budget_ns: u64,
}

/// What a status says that the state does not know.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The GPU.
    pub gpu: Gpu,
    /// Where clients find the daemon.
    pub socket: String,
    /// When the daemon started, on its clock.
    pub started_ns: u64,
}

impl Status {
    /// The status of `state` at `now_ns`. Takes no lock and does no IO: serialise it after the state
    /// is released.
    #[must_use]
    pub(crate) fn of(state: &State, ledgers: &Ledgers, identity: &Identity, now_ns: u64) -> Self {
        let params = state.gate.policy().throttle_params();
        let live = state.jobs.iter().map(|job| job_status(state, ledgers, job));
        let ended = state.ended.iter().map(|job| ended_status(ledgers, job));
        Self {
            schema_version: SCHEMA_VERSION,
            daemon: DaemonStatus {
                version: env!("CARGO_PKG_VERSION"),
                protocol: VERSION.to_string(),
                pid: std::process::id(),
                socket: identity.socket.clone(),
                now_ns,
                uptime_ns: now_ns.saturating_sub(identity.started_ns),
            },
            gpu: GpuStatus {
                uuid: identity.gpu.uuid.clone(),
                name: identity.gpu.name.clone(),
                pci: identity.gpu.pci.to_string(),
                sms: identity.gpu.sms,
                memory_bytes: identity.gpu.memory_bytes,
                sharing: sharing_name(state.sharing),
            },
            policy: PolicyStatus {
                name: state.gate.policy().name(),
                params: params_by_name(state),
                dur_threshold_ns: params.map(|params| params.dur_threshold_ns(&state.hp)),
                hp_latency_ns: state.gate.solo_ns().or(state.hp.latency_ns),
                bounds: bounds_status(state),
                config_error: state.config_error.clone(),
            },
            hp: HpStatus {
                present: state.hp.present,
                busy: state.hp.busy,
                executing: class_names(state.hp.executing),
                learning: state.hp.learning,
                epoch: state.pages.hp.epoch.load(Ordering::Relaxed),
                live_epoch: state.pages.daemon.live_epoch.load(Ordering::Relaxed),
            },
            jobs: live.chain(ended).collect(),
            turned_away: state.turned_away.iter().cloned().collect(),
        }
    }

    /// The document.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and maps with string keys only")
    }
}

fn bounds_status(state: &State) -> Option<BoundsStatus> {
    let (bounds, gain) = state.gate.bounds().zip(state.gate.gain())?;
    Some(BoundsStatus {
        idle_ns: bounds.idle_ns,
        beside_ns: bounds.beside_ns,
        gain,
    })
}

fn params_by_name(state: &State) -> BTreeMap<&'static str, f64> {
    let mut by_name = BTreeMap::new();
    let policy = state.gate.policy();
    if let Some(params) = policy.throttle_params() {
        by_name.insert("dur_threshold_pct", params.dur_threshold_pct);
        by_name.insert("residual_us", params.residual_ns_unknown as f64 / 1e3);
    }
    if let Some(lease_ns) = policy.lease_ns() {
        by_name.insert("lease_ms", lease_ns as f64 / 1e6);
    }
    if let Some(sms) = state.gate.sm_threshold(state.sms) {
        by_name.insert("sm_threshold", sms.into());
    }
    by_name
}

fn job_status(state: &State, ledgers: &Ledgers, job: &Job) -> JobStatus {
    let mut totals = job.past;
    for client in &job.clients {
        totals.add(&client.totals());
    }
    let lessee = job.lessee.as_ref();
    JobStatus {
        job: job.key.id.clone(),
        uid: job.key.uid,
        class: job.key.class.name(),
        enforcing: lessee.map_or_else(
            || "goes first; never held".to_owned(),
            |lessee| enforcing(state, lessee),
        ),
        ended_ns: None,
        clients: job.clients.iter().map(client_status).collect(),
        totals: counters_by_name(&totals),
        in_flight_ns: lessee.map_or(0, |lessee| lessee.view().in_flight_ns()),
        charged_ns: totals.charged_ns,
        waiting: lessee.is_some_and(|lessee| lessee.view().waiting),
        held_by: lessee
            .filter(|lessee| lessee.view().waiting)
            .map(|lessee| lessee.limit().name()),
        stalled: lessee.is_some_and(Lessee::is_stalled),
        lease: lessee.map(|lessee| lease_status(lessee.published(), lessee.page())),
        faults: totals.faults,
        memory: ledgers.status_of(&job.key),
    }
}

fn ended_status(ledgers: &Ledgers, job: &EndedJob) -> JobStatus {
    JobStatus {
        job: job.key.id.clone(),
        uid: job.key.uid,
        class: job.key.class.name(),
        enforcing: "nothing: it has ended".to_owned(),
        ended_ns: Some(job.ended_ns),
        clients: Vec::new(),
        totals: counters_by_name(&job.totals),
        in_flight_ns: 0,
        charged_ns: job.totals.charged_ns,
        waiting: false,
        held_by: None,
        stalled: false,
        lease: None,
        faults: job.totals.faults,
        memory: ledgers.status_of(&job.key),
    }
}

fn client_status(client: &Client) -> ClientStatus {
    ClientStatus {
        client: client.id,
        pid: client.peer.pid,
        uid: client.peer.uid,
        name: client.name.clone(),
        profile: client.profile.clone(),
        profile_fit: client.profile_fit.clone(),
        attached: true,
        attached_ns: client.attached_ns,
        counters: counters_by_name(&client.totals()),
        faults: client.faults(),
    }
}

fn lease_status(terms: &Terms, page: &LeasePage) -> LeaseStatus {
    let charged_ns = page.charged_total_ns.load(Ordering::Relaxed);
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

/// What the policy does to a best-effort job now, for people.
fn enforcing(state: &State, lessee: &Lessee) -> String {
    let policy = state.gate.policy();
    if *policy == Policy::None {
        return "nothing: the policy is none".to_owned();
    }
    if lessee.is_stalled() {
        return "held: its work in flight does not complete".to_owned();
    }
    if !state.hp.present {
        return "nothing: no high-priority job is attached".to_owned();
    }
    if let Some(bounds) = state.gate.bounds() {
        let (idle_us, beside_us) = (bounds.idle_ns as f64 / 1e3, bounds.beside_ns as f64 / 1e3);
        let beside = match state.sharing {
            Sharing::Mps => format!("{beside_us:.0} us beside them"),
            Sharing::TimeSlice => "none beside them".to_owned(),
        };
        return format!(
            "{idle_us:.0} us of expected work in flight while high-priority jobs are idle, {beside}"
        );
    }
    let Some(params) = policy.throttle_params() else {
        return "one launch in flight, and only while high-priority jobs are idle".to_owned();
    };
    let bound_us = params.dur_threshold_ns(&state.hp) as f64 / 1e3;
    match (state.gate.sm_threshold(state.sms), state.sharing) {
        (Some(sms), Sharing::Mps) => format!(
            "{bound_us:.0} us of expected work in flight; beside high-priority kernels only \
             those of another class that need fewer than {sms} SMs"
        ),
        _ => format!(
            "{bound_us:.0} us of expected work in flight, and only while high-priority jobs are \
             idle"
        ),
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

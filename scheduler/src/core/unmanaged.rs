//! Processes that use the GPU outside Pillion: which are named, when, and which are ended.
//! NVML lists the GPU's processes about once a second. A *stranger* is a listed process that is no
//! client. A stranger is *named* (status, event, log, doctor) once two polls at least [`APART_NS`]
//! apart have found the same process (by id and start), so that short-lived processes are never
//! named, and:
//! - at once, if the process cannot attach: it has not mapped the library, or the library is
//!   switched off;
//! - after [`GRACE_NS`] since it was first seen, if the process may still attach: it has mapped the
//!   library, and a context exists before its process is a client. A client that has detached and
//!   is ending has the same grace period;
//! - if the process cannot be inspected (another user's, and this daemon lacks CAP_SYS_PTRACE): at
//!   once if NVML has seen it compute, because a process computes only after the library has
//!   attached; after the grace period otherwise. Computing proves nothing for a recent client, nor
//!   for a client of the previous daemon, which may attach in the first [`GRACE_NS`] of this one.
//!
//! Never named: MPS, graphics, Pillion itself, and ending processes ([`Sight::Exempt`];
//! [`crate::host::unmanaged`] recognises them). A process leaves the list at the first poll that
//! does not find it, or finds it a client.
//! - **Process ids.** NVML may report ids of the host while this daemon is in a container. Its ids
//!   are trusted in the machine's first PID namespace, or once NVML has listed one of our clients
//!   under its id. Until then no process is looked up by id: it is counted, and not named. While
//!   there are clients and NVML lists none of them, clients and strangers are indistinguishable,
//!   and nothing is reported.
//! - **Eviction**, if so configured: a process that is *surely named* ([`Known::is_sure`]) is asked
//!   to end (SIGTERM) after the rule's grace since it was first seen, and killed [`KILL_NS`] later.
//!   Processes of root only if the rule says so.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::unmanaged_rules::{OnUnmanaged, UnmanagedRules};
use crate::core::unaccounted_memory::Process;

/// Least time between the two polls that name a process, ns. Half of the usual poll interval.
const APART_NS: u64 = 500_000_000;

/// Time to attach since first seen, ns; a process that waits for a daemon retries every few s.
pub(crate) const GRACE_NS: u64 = 15_000_000_000;

/// Least polls for such a process: while this daemon is stopped, it has no chance to attach.
const GRACE_LOOKS: u32 = 10;

/// Processes asked to end, neither gone nor killed, at once: limits the harm of a wrong rule.
const ASKED_MAX: usize = 8;

/// A process counts as a recent client for this long after its connection ended, ns.
const FORMER_NS: u64 = 60_000_000_000;

/// Time from the request to end until the kill, ns: as for `restart-job`.
pub(crate) const KILL_NS: u64 = 10_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Never named while listed.
    Exempt,
    MayAttach(Known),
    /// Cannot be inspected.
    Unclear(Known),
    /// Cannot attach.
    Past(Known),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// None if invisible.
    pub(crate) uid: Option<u32>,
    /// Program; empty if invisible.
    pub(crate) name: String,
    /// Job named by its environment; empty if none.
    pub(crate) job: String,
    /// Why it is no client, as far as visible.
    pub(crate) reason: String,
    /// The id surely refers to the process that NVML lists, which may therefore be ended by rule.
    pub(crate) is_sure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) pid: u32,
    /// Start in clock ticks since boot; 0 if invisible.
    pub(crate) started_ticks: u64,
    pub(crate) since_ns: u64,
    /// Memory on the device, bytes; none if NVML does not report it.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) known: Known,
}

/// Shared between the daemon's threads: the rule in force, and the last result.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) rules: UnmanagedRules,
    /// None if NVML cannot list processes: it is missing, silent or closed, or time is virtual.
    pub(crate) named: Option<Vec<Named>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    pub(crate) process: Named,
    pub(crate) uid: u32,
    pub(crate) is_kill: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) named: Vec<Named>,
    /// Were named, and have ended or are clients.
    pub(crate) gone: Vec<Named>,
}

#[derive(Debug, Default)]
pub(crate) struct Strangers {
    by_pid: BTreeMap<u32, Stranger>,
    /// NVML's ids are those of this daemon's PID namespace.
    are_numbers_ours: bool,
    /// The daemon is in the first PID namespace, so NVML's ids are certainly its own.
    is_first_namespace: bool,
    /// Recent clients, and when each was last one.
    clients: BTreeMap<u32, u64>,
    began_ns: Option<u64>,
}

#[derive(Debug)]
struct Stranger {
    named: Named,
    looks: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Seen,
    Exempt,
    Named,
    Asked(u64),
    /// Being killed, or unreachable.
    Settled,
}

impl Stage {
    const fn is_named(self) -> bool {
        matches!(self, Self::Named | Self::Asked(_) | Self::Settled)
    }
}

pub(crate) trait Eyes {
    fn started_ticks(&self, pid: u32) -> u64;

    fn look_into(&self, pid: u32) -> Sight;

    fn has_computed(&self, pid: u32) -> bool;
}

impl Strangers {
    pub(crate) fn new(is_first_namespace: bool) -> Self {
        Self {
            is_first_namespace,
            are_numbers_ours: is_first_namespace,
            ..Self::default()
        }
    }

    /// Whether the next poll may name a stranger: NVML must then list graphics and computing ones.
    pub(crate) fn has_unnamed(&self) -> bool {
        let mut strangers = self.by_pid.values();
        strangers.any(|stranger| stranger.stage == Stage::Seen)
    }

    /// NVML's current list. None if strangers cannot be distinguished.
    pub(crate) fn handle_listed(
        &mut self,
        now_ns: u64,
        listed: &[Process],
        clients: &BTreeSet<u32>,
        eyes: &impl Eyes,
    ) -> Option<Change> {
        self.are_numbers_ours |= listed.iter().any(|process| clients.contains(&process.pid));
        if !self.are_numbers_ours && !clients.is_empty() && !listed.is_empty() {
            self.by_pid.clear();
            return None;
        }
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        self.note_clients(now_ns, clients);
        let is_old = now_ns.saturating_sub(began_ns) >= GRACE_NS;
        let mut before = std::mem::take(&mut self.by_pid);
        let mut change = Change::default();
        let strangers = listed.iter().filter(|it| !clients.contains(&it.pid));
        for process in strangers {
            let started_ticks = match self.are_numbers_ours {
                true => eyes.started_ticks(process.pid),
                false => 0,
            };
            let known = before.remove(&process.pid);
            let stranger = match known {
                Some(known) if known.named.started_ticks == started_ticks => known,
                other => {
                    change.gone.extend(other.and_then(Stranger::into_named));
                    let stranger = Stranger::new(process.pid, started_ticks, now_ns);
                    self.by_pid
                        .insert(process.pid, stranger.with_memory(process));
                    continue;
                }
            };
            let mut stranger = stranger.with_memory(process);
            let has_computed = || {
                is_old && !self.clients.contains_key(&process.pid) && eyes.has_computed(process.pid)
            };
            let look_into = || match self.are_numbers_ours {
                true => eyes.look_into(process.pid),
                false => Sight::MayAttach(unseen()),
            };
            if stranger.poll_named(now_ns, look_into, has_computed) {
                change.named.push(stranger.named.clone());
            }
            self.by_pid.insert(process.pid, stranger);
        }
        let gone = before.into_values().filter_map(Stranger::into_named);
        change.gone.extend(gone);
        Some(change)
    }

    fn note_clients(&mut self, now_ns: u64, clients: &BTreeSet<u32>) {
        self.clients
            .retain(|_, last_ns| now_ns.saturating_sub(*last_ns) < FORMER_NS);
        let now = clients.iter().map(|&pid| (pid, now_ns));
        self.clients.extend(now);
    }

    pub(crate) fn named(&self) -> impl Iterator<Item = &Named> {
        let named = self.by_pid.values();
        let named = named.filter(|stranger| stranger.stage.is_named());
        named.map(|stranger| &stranger.named)
    }

    pub(crate) fn poll_evictions(&mut self, now_ns: u64, rules: &UnmanagedRules) -> Vec<Eviction> {
        // A client listed under its id may be a coincidence: enough to name, not to end.
        if rules.action != OnUnmanaged::Evict || !self.is_first_namespace {
            return Vec::new();
        }
        let is_asked = |it: &&Stranger| matches!(it.stage, Stage::Asked(_));
        let mut room = ASKED_MAX.saturating_sub(self.by_pid.values().filter(is_asked).count());
        let mut evictions = Vec::new();
        for stranger in self.by_pid.values_mut() {
            let eviction = stranger.poll_eviction(now_ns, rules, room > 0);
            if eviction.as_ref().is_some_and(|it| !it.is_kill) {
                room -= 1;
            }
            evictions.extend(eviction);
        }
        evictions
    }

    /// NVML was silent, or is closed: a single sighting is void.
    pub(crate) fn handle_silence(&mut self) {
        self.by_pid.retain(|_, it| it.stage != Stage::Seen);
    }

    /// Ending a process was postponed for lack of room or descriptors: the next poll retries.
    pub(crate) fn handle_put_off(&mut self, eviction: &Eviction, now_ns: u64) {
        if let Some(stranger) = self.by_pid.get_mut(&eviction.process.pid) {
            stranger.stage = match eviction.is_kill {
                true => Stage::Asked(now_ns.saturating_sub(KILL_NS)),
                false => Stage::Named,
            };
        }
    }

    pub(crate) fn handle_out_of_reach(&mut self, pid: u32) {
        if let Some(stranger) = self.by_pid.get_mut(&pid) {
            stranger.stage = Stage::Settled;
        }
    }
}

impl Stranger {
    fn new(pid: u32, started_ticks: u64, since_ns: u64) -> Self {
        let named = Named {
            pid,
            started_ticks,
            since_ns,
            memory_bytes: None,
            known: Known::default(),
        };
        Self {
            named,
            looks: 1,
            stage: Stage::Seen,
        }
    }

    fn with_memory(mut self, process: &Process) -> Self {
        self.named.memory_bytes = process.used_bytes;
        self
    }

    fn into_named(self) -> Option<Named> {
        self.stage.is_named().then_some(self.named)
    }

    /// The process is seen again. Returns whether it is named from now on.
    fn poll_named(
        &mut self,
        now_ns: u64,
        look_into: impl FnOnce() -> Sight,
        has_computed: impl FnOnce() -> bool,
    ) -> bool {
        let since_ns = now_ns.saturating_sub(self.named.since_ns);
        if self.stage != Stage::Seen || since_ns < APART_NS {
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        let has_had_its_grace = since_ns >= GRACE_NS && self.looks >= GRACE_LOOKS;
        let sight = look_into();
        let known = match sight {
            Sight::Exempt => {
                self.stage = Stage::Exempt;
                return false;
            }
            Sight::MayAttach(_) if !has_had_its_grace => return false,
            Sight::Unclear(_) if !has_had_its_grace && !has_computed() => return false,
            Sight::MayAttach(known) | Sight::Unclear(known) | Sight::Past(known) => known,
        };
        // A known start shows that the process did not go meanwhile.
        let is_sure = known.is_sure && self.named.started_ticks != 0;
        self.named.known = Known { is_sure, ..known };
        self.stage = Stage::Named;
        true
    }

    /// Whether to end it now; `may_ask`: there is room to ask one more process.
    fn poll_eviction(
        &mut self,
        now_ns: u64,
        rules: &UnmanagedRules,
        may_ask: bool,
    ) -> Option<Eviction> {
        let Known { uid, is_sure, .. } = self.named.known;
        let uid = uid.filter(|&uid| is_sure && (uid != 0 || rules.root))?;
        let (stage, is_kill) = match self.stage {
            Stage::Named
                if may_ask && now_ns.saturating_sub(self.named.since_ns) >= rules.grace_ns =>
            {
                (Stage::Asked(now_ns), false)
            }
            Stage::Asked(asked_ns) if now_ns.saturating_sub(asked_ns) >= KILL_NS => {
                (Stage::Settled, true)
            }
            _ => return None,
        };
        self.stage = stage;
        Some(Eviction {
            process: self.named.clone(),
            uid,
            is_kill,
        })
    }
}

fn unseen() -> Known {
    let reason = "it uses the GPU; NVML may report process ids of the host, but this daemon is in \
                  a container, so it does not look the process up (run the daemon in the host's \
                  PID namespace)";
    Known {
        reason: reason.to_owned(),
        ..Known::default()
    }
}

#[cfg(test)]
mod tests;

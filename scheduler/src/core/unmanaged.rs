//! Processes that use the GPU past Pillion: which are named, when, and which are ended.
//!
//! NVML lists the processes of the GPU about once a second. A *stranger* is a listed process that
//! is no client. A stranger is *named* (status, event, log, doctor) once two looks in a row, at
//! least [`APART_NS`] apart, have found the same process (by number and start), so that what comes
//! and goes between two looks is never named, and:
//!
//! - at once, if the process cannot attach: the library is not mapped in it, or is switched off;
//! - after [`GRACE_NS`] since it was first seen, if the process may still attach: the library is
//!   mapped, and a context exists before its process is a client. A client that has detached and is
//!   ending has that grace, too;
//! - of a process that cannot be looked into (another user's, where this daemon has no
//!   CAP_SYS_PTRACE), at once if NVML has seen it compute, and after that grace otherwise: a
//!   process computes only after the library has attached. That it computes says nothing of a
//!   client of lately, nor of a client of the daemon before, which may come in the first
//!   [`GRACE_NS`] of this one.
//!
//! Never named: the processes of MPS, graphics, Pillion's own, and those that are ending
//! ([`Sight::Exempt`]; [`crate::host::unmanaged`] tells which these are). A process leaves the list
//! at the first look that does not find it, or finds it a client.
//!
//! **Numbers.** NVML may count processes as the host does while this daemon is in a container. Its
//! numbers are taken for ours where this is the machine's first PID namespace, or once NVML has
//! listed a client of ours under its number. Until then no process is looked up by its number: it
//! is counted, and its name is not told. While there are clients and none of them is listed, nobody
//! can tell clients from strangers, and nothing is said at all.
//!
//! **Eviction**, where the rule is so: a process that is *surely named* ([`Known::is_sure`]) is
//! asked to end (SIGTERM) after the rule's grace since it was first seen, and made to [`KILL_NS`]
//! later. Processes of root only where the rule says so.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::unmanaged_rules::{OnUnmanaged, UnmanagedRules};
use crate::core::unaccounted_memory::Process;

/// Least time between the two looks that name a process, ns. Half of the usual time between looks.
const APART_NS: u64 = 500_000_000;

/// How long a process that may attach is given to do so after it was first seen, ns. One that waits
/// for a daemon asks every few seconds.
pub(crate) const GRACE_NS: u64 = 15_000_000_000;

/// Looks that such a process is given at least: where this daemon was stopped, time alone gives
/// none.
const GRACE_LOOKS: u32 = 10;

/// Processes that have been asked to end, and are neither gone nor made to end, at once. A rule
/// that is wrong does no more harm than that before somebody sees it.
const ASKED_MAX: usize = 8;

/// So long after its connection has ended a process counts as a client of lately, ns.
const FORMER_NS: u64 = 60_000_000_000;

/// From the time that a process is asked to end until it is made to, ns: as `restart-job` gives.
pub(crate) const KILL_NS: u64 = 10_000_000_000;

/// What is seen of a stranger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It is never named, for as long as it is listed.
    Exempt,
    /// It may attach still.
    MayAttach(Known),
    /// It cannot be looked into.
    Unclear(Known),
    /// It cannot attach.
    Past(Known),
}

/// What is known of a process that uses the GPU past Pillion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// None where it cannot be seen.
    pub(crate) uid: Option<u32>,
    /// Program; empty where it cannot be seen.
    pub(crate) name: String,
    /// Job that its environment names; empty where there is none.
    pub(crate) job: String,
    /// Why it is no client, as far as that can be seen.
    pub(crate) reason: String,
    /// The process of this number is the one that NVML means, and it may be ended by rule.
    pub(crate) is_sure: bool,
}

/// A process that is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// As NVML says.
    pub(crate) pid: u32,
    /// When it started, in clock ticks since boot; 0 if that cannot be seen.
    pub(crate) started_ticks: u64,
    /// First seen, on the daemon's clock.
    pub(crate) since_ns: u64,
    /// What it has of the device, bytes; none where NVML does not say.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) known: Known,
}

/// What the daemon's threads share of it: the rule in force, and what was found last.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) rules: UnmanagedRules,
    /// None where NVML cannot tell: it is missing, silent or closed, or time is virtual.
    pub(crate) named: Option<Vec<Named>>,
}

/// A process that is to end by rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    pub(crate) process: Named,
    /// Its user.
    pub(crate) uid: u32,
    /// It was asked and did not.
    pub(crate) is_kill: bool,
}

/// What a look has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Named from now on.
    pub(crate) named: Vec<Named>,
    /// Were named, and are gone or clients.
    pub(crate) gone: Vec<Named>,
}

/// The strangers of a GPU. See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    by_pid: BTreeMap<u32, Stranger>,
    /// NVML's numbers are those of this daemon's PID namespace.
    are_numbers_ours: bool,
    /// The daemon is in the first PID namespace, so that NVML's numbers are its own for sure.
    is_first_namespace: bool,
    /// The clients of lately, and when each was last one.
    clients: BTreeMap<u32, u64>,
    /// When NVML listed processes for the first time.
    began_ns: Option<u64>,
}

#[derive(Debug)]
struct Stranger {
    named: Named,
    /// In a row.
    looks: u32,
    stage: Stage,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not named yet.
    Seen,
    Exempt,
    Named,
    /// It was asked to end, at that time.
    Asked(u64),
    /// It is made to end, or cannot be.
    Settled,
}

impl Stage {
    const fn is_named(self) -> bool {
        matches!(self, Self::Named | Self::Asked(_) | Self::Settled)
    }
}

/// The view of a stranger's process that decisions are made from.
pub(crate) trait Eyes {
    /// When the process of this number started, in clock ticks since boot; 0 if that cannot be
    /// seen.
    fn started_ticks(&self, pid: u32) -> u64;

    /// What is seen of the process of this number.
    fn look_into(&self, pid: u32) -> Sight;

    /// Whether NVML has seen the process of this number compute since the look before.
    fn has_computed(&self, pid: u32) -> bool;
}

impl Strangers {
    /// None yet. Whether this daemon is in the machine's first PID namespace.
    pub(crate) fn new(is_first_namespace: bool) -> Self {
        Self {
            is_first_namespace,
            are_numbers_ours: is_first_namespace,
            ..Self::default()
        }
    }

    /// Whether a stranger may be named at the next look: NVML is then asked which processes draw,
    /// and which compute.
    pub(crate) fn has_unnamed(&self) -> bool {
        let mut strangers = self.by_pid.values();
        strangers.any(|stranger| stranger.stage == Stage::Seen)
    }

    /// NVML lists these processes now. None if it cannot be told which of them are strangers.
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

    /// Those that are named, by number.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Named> {
        let named = self.by_pid.values();
        let named = named.filter(|stranger| stranger.stage.is_named());
        named.map(|stranger| &stranger.named)
    }

    /// The processes that are to end now by this rule.
    pub(crate) fn poll_evictions(&mut self, now_ns: u64, rules: &UnmanagedRules) -> Vec<Eviction> {
        // A client that NVML lists under its number may be a coincidence: enough to name, not to
        // end.
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

    /// NVML was silent, or is closed: what was seen once is as if never seen.
    pub(crate) fn handle_silence(&mut self) {
        self.by_pid.retain(|_, it| it.stage != Stage::Seen);
    }

    /// A process could not be asked to end, or made to, for want of room or descriptors: it is its
    /// turn again at the next look.
    pub(crate) fn handle_put_off(&mut self, eviction: &Eviction, now_ns: u64) {
        if let Some(stranger) = self.by_pid.get_mut(&eviction.process.pid) {
            stranger.stage = match eviction.is_kill {
                true => Stage::Asked(now_ns.saturating_sub(KILL_NS)),
                false => Stage::Named,
            };
        }
    }

    /// A process may not be signalled by this daemon.
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

    /// It is seen again. Whether it is named from now on.
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
        // A number that is looked up has a start: the process has not gone meanwhile.
        let is_sure = known.is_sure && self.named.started_ticks != 0;
        self.named.known = Known { is_sure, ..known };
        self.stage = Stage::Named;
        true
    }

    /// Whether it is to end now; `may_ask`: there is room to ask one more process.
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

/// What is known of a process whose number is not looked up.
fn unseen() -> Known {
    let reason = "it uses the GPU; NVML may count processes as the host does, and this daemon is in a container, so the process is not \
                  looked up by its number (run the daemon in the host's PID namespace)";
    Known {
        reason: reason.to_owned(),
        ..Known::default()
    }
}

#[cfg(test)]
mod tests;

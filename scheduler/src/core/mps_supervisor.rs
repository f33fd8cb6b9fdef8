//! State machine of a daemon that manages MPS (`[mps] manage`), polled every few seconds. No IO,
//! and time is an argument; its thread is `daemon::mps_watch`.
//!
//! | state | meaning | what follows |
//! |---|---|---|
//! | `absent` | no control daemon | the supervising daemon starts one at once |
//! | `starting` | the start command has run | failure after [`START_NS`] |
//! | `running` | it answers, and no server is broken | nothing |
//! | `fault` | it does not answer, or a server is broken | see below |
//! | `restarting` | it has ended | start after 1, 2, 4, … s |
//! | `given-up` | hourly limit of restarts reached | nothing, until well or `pillion resume` |
//!
//! In `fault`, best-effort jobs wait for a broken server, lost clients are terminated, and **only
//! unused parts are restarted**: a control daemon that does not answer and has no server, or one
//! whose broken server has only clients that reported their contexts as lost. Where a process may
//! still compute, a person decides, or a rule of `[faults]` that a person wrote (`mps-fault`,
//! `restart-mps`): the fault is reported like any other. Work in flight on a server does not need
//! the control daemon.
//!
//! One daemon of a machine supervises. The others poll, hold their own best-effort jobs and
//! terminate their own lost clients, but start nothing. A daemon that takes over continues from
//! what its predecessor left ([`Past`]).

use std::collections::VecDeque;

use crate::core::event::{Draft, Kind};
use crate::core::mps_servers::{Found, ORPHANS_MAX, Server, Trouble};

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3_600 * SECOND_NS;
/// Poll interval while all is well.
pub(crate) const LOOK_NS: u64 = 5 * SECOND_NS;
/// Poll interval while waiting for a change.
pub(crate) const SOON_NS: u64 = SECOND_NS;
/// Consecutive polls without an answer before it counts as hung: one may hit a busy machine.
pub(crate) const SILENT_LOOKS: u32 = 3;
/// A broken server waits for its clients to end, then serves again (NVIDIA's guide on errors).
pub(crate) const MEND_NS: u64 = 30 * SECOND_NS;
/// Time for the control daemon to appear: its command returns once it listens (manual page).
pub(crate) const START_NS: u64 = 5 * SECOND_NS;
/// The longest delay before a restart is 2 to this power, s.
const POWER_MAX: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Absent,
    Starting,
    Running,
    Fault,
    Restarting,
    GivenUp,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Fault => "fault",
            Self::Restarting => "restarting",
            Self::GivenUp => "given-up",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Start,
    Restart,
}

#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) order: Option<Order>,
    /// Why best-effort jobs are held from now on; none: they are not.
    pub(crate) held: Option<String>,
    pub(crate) news: Vec<Draft>,
    pub(crate) fault: Option<String>,
    pub(crate) wait_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// On the daemon's clock, oldest first.
    pub(crate) restarts_ns: Vec<u64>,
    pub(crate) started_ns: Option<u64>,
    /// Why restarts have stopped until an operator resumes them.
    pub(crate) given_up: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    per_hour: usize,
    phase: Phase,
    since_ns: u64,
    /// The control daemon at the last poll; 0: in another PID namespace.
    pid: Option<u32>,
    restarts: VecDeque<u64>,
    /// It existed once, or was started: any further start is a restart.
    was_there: bool,
    /// The first start, by this daemon or in the hour before it.
    started_ns: Option<u64>,
    is_expected: bool,
    due_ns: u64,
    silent: u32,
    trouble: Option<(u64, Trouble)>,
    why: Option<String>,
    is_ordered: bool,
}

impl Supervisor {
    pub(crate) fn new(now_ns: u64, per_hour: u32) -> Self {
        Self {
            per_hour: per_hour as usize,
            phase: Phase::Absent,
            since_ns: now_ns,
            pid: None,
            restarts: VecDeque::new(),
            was_there: false,
            started_ns: None,
            is_expected: false,
            due_ns: now_ns,
            silent: 0,
            trouble: None,
            why: None,
            is_ordered: false,
        }
    }

    pub(crate) fn seen(&self, now_ns: u64, is_ours: bool, servers: &[Server]) -> Seen {
        let is_recent = |at_ns: &&u64| now_ns.saturating_sub(**at_ns) < HOUR_NS;
        Seen {
            state: self.phase.name(),
            since_ns: self.since_ns,
            pid: self.pid.filter(|&pid| pid != 0),
            servers: servers.iter().map(|server| server.pid).collect(),
            restarts: self.restarts.iter().filter(is_recent).count(),
            is_ours,
            why: self.why.clone(),
        }
    }

    pub(crate) fn past(&self) -> Past {
        let is_given_up = self.phase == Phase::GivenUp;
        Past {
            restarts_ns: self.restarts.iter().copied().collect(),
            started_ns: self.started_ns,
            given_up: is_given_up.then(|| self.why.clone().unwrap_or_default()),
        }
    }

    pub(crate) fn take_over(&mut self, now_ns: u64, past: Past) -> Option<Draft> {
        let is_recent = |at_ns: &u64| now_ns.saturating_sub(*at_ns) < HOUR_NS;
        let restarts = past.restarts_ns.into_iter();
        self.restarts = restarts.filter(is_recent).collect();
        // A start or restart means that it existed: another start is a restart.
        self.started_ns = past.started_ns.filter(is_recent);
        self.was_there |= !self.restarts.is_empty() || self.started_ns.is_some();
        let why = past.given_up?;
        self.enter(now_ns, Phase::GivenUp);
        let text = format!(
            "MPS is not restarted until `pillion resume`: the previous daemon gave up ({why})"
        );
        self.why = Some(why);
        Some(Draft::new(Kind::MpsGivenUp, text))
    }

    /// An operator requests another try (`pillion resume`): the count of restarts begins again.
    pub(crate) fn resume(&mut self, now_ns: u64) {
        if self.phase == Phase::GivenUp {
            self.restarts.clear();
            self.started_ns = None;
            self.silent = 0;
            self.trouble = None;
            self.enter(now_ns, Phase::Absent);
        }
    }

    pub(crate) fn order_restart(&mut self) {
        self.is_ordered = true;
    }

    /// The start command failed. The next poll may find a control daemon started by another.
    pub(crate) fn handle_failure(&mut self, now_ns: u64, why: String) {
        self.why = Some(why);
        // Stop waiting, and treat whatever appears as started by another.
        self.is_expected = false;
        self.since_ns = now_ns.saturating_sub(START_NS);
    }

    pub(crate) fn handle_look(
        &mut self,
        now_ns: u64,
        found: &Found,
        trouble: Option<Trouble>,
        is_ours: bool,
    ) -> Decision {
        let is_recent = |at_ns: &u64| now_ns.saturating_sub(*at_ns) < HOUR_NS;
        self.restarts.retain(is_recent);
        let mut decision = Decision {
            wait_ns: LOOK_NS,
            held: self
                .trouble
                .as_ref()
                .map(|(_, trouble)| trouble.text.clone()),
            ..Decision::default()
        };
        match found {
            Found::Nothing => self.handle_nothing(now_ns, is_ours, &mut decision),
            Found::Silent { pid, has_servers } => {
                self.note_pid(*pid, is_ours, &mut decision);
                self.handle_silence(now_ns, !has_servers && is_ours, &mut decision);
            }
            // Known only to exist: no consequence.
            Found::Unknown { pid } => self.note_pid(*pid, is_ours, &mut decision),
            Found::Answers { pid, .. } => {
                self.note_pid(*pid, is_ours, &mut decision);
                self.silent = 0;
                self.handle_trouble(now_ns, trouble, is_ours, &mut decision);
            }
        }
        let is_ordered = std::mem::take(&mut self.is_ordered);
        if is_ordered && decision.order.is_none() {
            self.obey(now_ns, is_ours, &mut decision);
        }
        let is_waiting = match self.phase {
            Phase::Starting | Phase::Restarting => true,
            // What does not recover may last.
            Phase::Fault => now_ns.saturating_sub(self.since_ns) <= MEND_NS,
            Phase::Absent | Phase::Running | Phase::GivenUp => self.silent > 0,
        };
        if is_waiting {
            decision.wait_ns = SOON_NS;
        }
        decision
    }

    fn enter(&mut self, now_ns: u64, phase: Phase) {
        if self.phase != phase {
            (self.phase, self.since_ns) = (phase, now_ns);
        }
    }

    fn note_pid(&mut self, pid: u32, is_ours: bool, decision: &mut Decision) {
        let was = self.pid.replace(pid);
        let is_expected = std::mem::take(&mut self.is_expected);
        if was == Some(pid) {
            return;
        }
        let shown = match pid {
            0 => String::new(),
            pid => format!(" (pid {pid})"),
        };
        let (kind, text) = match (is_expected, self.restarts.len()) {
            (true, 0) => (
                Kind::MpsStarted,
                format!("MPS's control daemon has started{shown}"),
            ),
            (true, restarts) => {
                let text = format!(
                    "MPS's control daemon has restarted{shown}: restart {restarts} of at most {} \
                     in an hour",
                    self.per_hour
                );
                (Kind::MpsRestarted, text)
            }
            (false, _) => {
                let who = match is_ours {
                    true => "this daemon supervises it, and restarts it when it exits",
                    false => "another daemon supervises it",
                };
                (
                    Kind::MpsAdopted,
                    format!("MPS's control daemon is running{shown}: {who}"),
                )
            }
        };
        self.was_there = true;
        decision.news.push(Draft::new(kind, text));
    }

    fn handle_nothing(&mut self, now_ns: u64, is_ours: bool, decision: &mut Decision) {
        (self.pid, self.silent) = (None, 0);
        // Its trouble ends with it.
        self.let_go(decision);
        match self.phase {
            Phase::GivenUp => {}
            _ if !is_ours => {
                self.is_expected = false;
                self.enter(now_ns, Phase::Absent);
            }
            Phase::Starting if now_ns.saturating_sub(self.since_ns) < START_NS => {}
            Phase::Restarting if now_ns < self.due_ns => {}
            Phase::Restarting => {
                self.restarts.push_back(now_ns);
                self.start(now_ns, Order::Start, decision);
            }
            Phase::Absent if !self.was_there => {
                self.was_there = true;
                self.started_ns = Some(now_ns);
                self.start(now_ns, Order::Start, decision);
            }
            Phase::Absent | Phase::Starting | Phase::Running | Phase::Fault => {
                self.plan(now_ns, decision);
            }
        }
    }

    fn start(&mut self, now_ns: u64, order: Order, decision: &mut Decision) {
        decision.order = Some(order);
        (self.is_expected, self.why) = (true, None);
        // Restart the phase, also from `starting`.
        (self.phase, self.since_ns) = (Phase::Starting, now_ns);
    }

    fn plan(&mut self, now_ns: u64, decision: &mut Decision) {
        let why = self
            .why
            .take()
            .unwrap_or_else(|| "it has exited".to_owned());
        self.is_expected = false;
        if self.restarts.len() >= self.per_hour {
            return self.give_up(now_ns, &why, decision);
        }
        let seconds = 1 << self.restarts.len().min(POWER_MAX);
        self.due_ns = now_ns.saturating_add(seconds * SECOND_NS);
        self.enter(now_ns, Phase::Restarting);
        let text = format!("MPS's control daemon will be restarted in {seconds} s: {why}");
        decision.news.push(Draft::new(Kind::MpsGone, text));
        self.why = Some(why);
    }

    fn restart(&mut self, now_ns: u64, decision: &mut Decision) {
        if self.restarts.len() >= self.per_hour {
            let why = self
                .why
                .clone()
                .unwrap_or_else(|| "a rule requires a restart".to_owned());
            return self.give_up(now_ns, &why, decision);
        }
        self.restarts.push_back(now_ns);
        self.silent = 0;
        // One without a known id looks the same afterwards.
        self.pid = self.pid.filter(|&pid| pid != 0);
        if let Some((began_ns, _)) = &mut self.trouble {
            *began_ns = now_ns;
        }
        self.start(now_ns, Order::Restart, decision);
    }

    fn obey(&mut self, now_ns: u64, is_ours: bool, decision: &mut Decision) {
        let why = match (is_ours, self.pid) {
            (false, _) => "another daemon supervises it",
            (true, None) if self.phase == Phase::GivenUp => {
                "it has reached the limit of restarts in an hour; run `pillion resume`"
            }
            (true, None) => "it is not running, and its start is already planned",
            (true, Some(_)) if self.restarts.len() >= self.per_hour => {
                "it has reached the limit of restarts in an hour"
            }
            (true, Some(_)) => return self.restart(now_ns, decision),
        };
        let text = format!("restart-mps: MPS's control daemon is not restarted: {why}");
        (decision.news).push(Draft::new(Kind::ActionFailed, text));
        if is_ours && self.pid.is_some() {
            self.restart(now_ns, decision);
        }
    }

    fn give_up(&mut self, now_ns: u64, why: &str, decision: &mut Decision) {
        if self.phase == Phase::GivenUp {
            return;
        }
        self.enter(now_ns, Phase::GivenUp);
        self.why = Some(why.to_owned());
        let text = format!(
            "MPS is not restarted until `pillion resume`: {} restarts in an hour are the limit \
             ({why})",
            self.restarts.len()
        );
        decision.news.push(Draft::new(Kind::MpsGivenUp, text));
    }

    /// `may_restart`: it has no server, so it is unused, and this daemon supervises.
    fn handle_silence(&mut self, now_ns: u64, may_restart: bool, decision: &mut Decision) {
        self.silent = self.silent.saturating_add(1);
        if self.silent < SILENT_LOOKS {
            return;
        }
        if self.silent == SILENT_LOOKS {
            let what = "MPS's control daemon does not answer: processes that begin to use the GPU \
                        wait for it; running work continues";
            decision.fault = Some(what.to_owned());
            self.why = Some("it does not answer".to_owned());
        }
        if self.phase == Phase::GivenUp {
            return;
        }
        self.enter(now_ns, Phase::Fault);
        if may_restart {
            self.restart(now_ns, decision);
        }
    }

    fn handle_trouble(
        &mut self,
        now_ns: u64,
        trouble: Option<Trouble>,
        is_ours: bool,
        decision: &mut Decision,
    ) {
        let Some(trouble) = trouble else {
            let was_broken = matches!(self.phase, Phase::Fault | Phase::GivenUp);
            if self.let_go(decision) || was_broken {
                let text = "MPS serves again";
                decision.news.push(Draft::new(Kind::MpsBack, text));
            }
            self.why = None;
            return self.enter(now_ns, Phase::Running);
        };
        let (began_ns, is_used) = match &self.trouble {
            // The time to recover begins when the last user has left.
            Some((_, before)) if before.is_used && !trouble.is_used => (now_ns, false),
            Some((began_ns, _)) => (*began_ns, trouble.is_used),
            None => {
                decision.fault = Some(trouble.text.clone());
                (now_ns, trouble.is_used)
            }
        };
        decision.held = Some(trouble.text.clone());
        self.why = Some(trouble.text.clone());
        self.trouble = Some((began_ns, trouble));
        if self.phase == Phase::GivenUp {
            return;
        }
        self.enter(now_ns, Phase::Fault);
        if !is_used && is_ours && now_ns.saturating_sub(began_ns) >= MEND_NS {
            self.restart(now_ns, decision);
        }
    }

    fn let_go(&mut self, decision: &mut Decision) -> bool {
        decision.held = None;
        self.trouble.take().is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// [`Phase::name`].
    pub(crate) state: &'static str,
    pub(crate) since_ns: u64,
    pub(crate) pid: Option<u32>,
    pub(crate) servers: Vec<u32>,
    pub(crate) restarts: usize,
    pub(crate) is_ours: bool,
    pub(crate) why: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Desk {
    /// None if MPS is not managed.
    pub(crate) seen: Option<Seen>,
    pub(crate) is_resumed: bool,
    pub(crate) is_ordered: bool,
    pub(crate) orphans: Vec<u32>,
}

impl Desk {
    /// An operator resumes; true if the supervisor had given up.
    pub(crate) fn resume(&mut self) -> bool {
        let given_up = |seen: &Seen| seen.state == Phase::GivenUp.name();
        self.is_resumed = self.seen.as_ref().is_some_and(given_up);
        self.is_resumed
    }

    /// A rule orders a restart from the watching thread; none if this daemon does not manage MPS.
    pub(crate) fn order_restart(&mut self) -> Option<Result<(), String>> {
        let seen = self.seen.as_ref()?;
        if !seen.is_ours {
            let why = "another daemon supervises MPS: put the rule into its configuration";
            return Some(Err(why.to_owned()));
        }
        self.is_ordered = true;
        Some(Ok(()))
    }

    /// These clients reported their server as unreachable. Returns whether this daemon manages MPS.
    pub(crate) fn note_orphans(&mut self, pids: impl Iterator<Item = u32>) -> bool {
        if self.seen.is_none() {
            return false;
        }
        let before = self.orphans.len();
        let room = ORPHANS_MAX.saturating_sub(before);
        self.orphans.extend(pids.take(room));
        self.orphans.len() > before
    }
}

#[cfg(test)]
mod tests;

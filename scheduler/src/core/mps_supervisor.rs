//! What a daemon that manages MPS (`[mps] manage`) does about it, by what it finds every few
//! seconds. No IO, and time is an argument; the thread around it is in `daemon::mps_watch`.
//!
//! | state | meaning | what follows |
//! |---|---|---|
//! | `absent` | there is no control daemon | started at once, by the daemon that supervises |
//! | `starting` | the command that starts it has run | [`START_NS`], then that was a failure |
//! | `running` | it answers, and no server is broken | nothing |
//! | `fault` | it does not answer, or a server is broken | best-effort jobs wait for a broken server; lost clients are terminated; restarted where nobody uses it |
//! | `restarting` | it has ended | started anew after 1, 2, 4, … s |
//! | `given-up` | it was restarted as often as is allowed in an hour | nothing, until it is there and well, or an operator says `pillion resume` |
//!
//! **Only what nobody uses any more is restarted**: a control daemon that is gone; one that does
//! not answer and has no server; one whose broken server has no client but those that have told
//! this daemon that their contexts are lost. Where somebody may still compute, a person decides, or
//! a rule of `[faults]` that a person has written (`mps-fault`, `restart-mps`): a fault is reported
//! like any other. Work that is in flight on a server does not need the control daemon.
//!
//! One daemon of a machine supervises; the others look, hold their own best-effort jobs and
//! terminate their own lost clients, and start nothing. One that takes over goes on with what the
//! one before has left ([`Past`]).

use std::collections::VecDeque;

use crate::core::event::{Draft, Kind};
use crate::core::mps_servers::{Found, ORPHANS_MAX, Server, Trouble};

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3_600 * SECOND_NS;
/// Between two looks while all is well.
pub(crate) const LOOK_NS: u64 = 5 * SECOND_NS;
/// Between two looks while something is being waited for.
pub(crate) const SOON_NS: u64 = SECOND_NS;
/// After so many looks in a row without an answer it hangs: one may meet a busy machine.
pub(crate) const SILENT_LOOKS: u32 = 3;
/// So long a broken server has to mend itself: it waits for its clients to end, and then serves
/// again (NVIDIA's guide on errors of clients).
pub(crate) const MEND_NS: u64 = 30 * SECOND_NS;
/// So long a control daemon has to be there after its command came back, which it does once that
/// listens (its manual page).
pub(crate) const START_NS: u64 = 5 * SECOND_NS;
/// Longest wait before it is started anew is 2 to this power, s.
const POWER_MAX: usize = 6;

/// See the module's text.
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
    /// The word in JSON.
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

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The control daemon is to be started; there is none.
    Start,
    /// It is to be ended, and started.
    Restart,
}

/// What follows from a look.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) order: Option<Order>,
    /// Why best-effort jobs are held from now on; none: they are not.
    pub(crate) held: Option<String>,
    /// What is told.
    pub(crate) news: Vec<Draft>,
    /// What is a fault, for the rules.
    pub(crate) fault: Option<String>,
    /// Until the next look, ns.
    pub(crate) wait_ns: u64,
}

/// What the daemon that supervises next has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// When MPS was restarted, on the daemon's clock, the oldest first.
    pub(crate) restarts_ns: Vec<u64>,
    /// When it was started for the first time.
    pub(crate) started_ns: Option<u64>,
    /// Why it is not started anew until somebody says so.
    pub(crate) given_up: Option<String>,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    per_hour: usize,
    phase: Phase,
    /// When that phase began.
    since_ns: u64,
    /// The control daemon, as of the last look; 0: in another PID namespace.
    pid: Option<u32>,
    /// When it was restarted, in the last hour.
    restarts: VecDeque<u64>,
    /// It was there once, or was started: whatever follows is a restart.
    was_there: bool,
    /// When it was started for the first time, by this daemon or in the hour before it.
    started_ns: Option<u64>,
    /// It is started from here and has not been seen since.
    is_expected: bool,
    /// When it is to be started.
    due_ns: u64,
    /// Looks in a row without an answer.
    silent: u32,
    /// Since when there is trouble, and which.
    trouble: Option<(u64, Trouble)>,
    /// Why it is not as it should be, for people.
    why: Option<String>,
    /// A rule wants it restarted, used or not.
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

    /// What people and programs are told of it.
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

    /// What the daemon that supervises next is to know.
    pub(crate) fn past(&self) -> Past {
        let is_given_up = self.phase == Phase::GivenUp;
        Past {
            restarts_ns: self.restarts.iter().copied().collect(),
            started_ns: self.started_ns,
            given_up: is_given_up.then(|| self.why.clone().unwrap_or_default()),
        }
    }

    /// This daemon supervises from now on, and another one has before. What is to be told.
    pub(crate) fn take_over(&mut self, now_ns: u64, past: Past) -> Option<Draft> {
        let is_recent = |at_ns: &u64| now_ns.saturating_sub(*at_ns) < HOUR_NS;
        let restarts = past.restarts_ns.into_iter();
        self.restarts = restarts.filter(is_recent).collect();
        // It was there if it was started or restarted: another start is a restart.
        self.started_ns = past.started_ns.filter(is_recent);
        self.was_there |= !self.restarts.is_empty() || self.started_ns.is_some();
        let why = past.given_up?;
        self.enter(now_ns, Phase::GivenUp);
        let text = format!(
            "MPS is not started anew until `pillion resume`: the daemon before has given it up ({why})"
        );
        self.why = Some(why);
        Some(Draft::new(Kind::MpsGivenUp, text))
    }

    /// An operator wants another try (`pillion resume`): what was done so far counts no more.
    pub(crate) fn resume(&mut self, now_ns: u64) {
        if self.phase == Phase::GivenUp {
            self.restarts.clear();
            self.started_ns = None;
            self.silent = 0;
            self.trouble = None;
            self.enter(now_ns, Phase::Absent);
        }
    }

    /// A rule wants it restarted, whoever uses it.
    pub(crate) fn order_restart(&mut self) {
        self.is_ordered = true;
    }

    /// The command that was to start it has failed. At the next look it may be there all the same,
    /// because somebody else has started it.
    pub(crate) fn handle_failure(&mut self, now_ns: u64, why: String) {
        self.why = Some(why);
        // Nothing is waited for, and whatever comes is none of ours.
        self.is_expected = false;
        self.since_ns = now_ns.saturating_sub(START_NS);
    }

    /// What follows from a look. `is_ours`: this daemon supervises.
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
            // Nothing follows from that.
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
            // What does not mend itself may last.
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

    /// A control daemon is there.
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
                format!("MPS's control daemon is started{shown}"),
            ),
            (true, restarts) => {
                let text = format!(
                    "MPS's control daemon is started anew{shown}, {restarts} times in the last hour; at most {}",
                    self.per_hour
                );
                (Kind::MpsRestarted, text)
            }
            (false, _) => {
                let who = match is_ours {
                    true => "it is watched, and started anew when it ends",
                    false => "another daemon supervises it",
                };
                (
                    Kind::MpsAdopted,
                    format!("MPS's control daemon is there{shown}: {who}"),
                )
            }
        };
        self.was_there = true;
        decision.news.push(Draft::new(kind, text));
    }

    fn handle_nothing(&mut self, now_ns: u64, is_ours: bool, decision: &mut Decision) {
        (self.pid, self.silent) = (None, 0);
        // With it goes what was wrong with it.
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
        // Anew, also where it was starting before.
        (self.phase, self.since_ns) = (Phase::Starting, now_ns);
    }

    /// It is to be started anew after a while, or never.
    fn plan(&mut self, now_ns: u64, decision: &mut Decision) {
        let why = self.why.take().unwrap_or_else(|| "it has ended".to_owned());
        self.is_expected = false;
        if self.restarts.len() >= self.per_hour {
            return self.give_up(now_ns, &why, decision);
        }
        let seconds = 1 << self.restarts.len().min(POWER_MAX);
        self.due_ns = now_ns.saturating_add(seconds * SECOND_NS);
        self.enter(now_ns, Phase::Restarting);
        let text = format!("MPS's control daemon is started anew in {seconds} s: {why}");
        decision.news.push(Draft::new(Kind::MpsGone, text));
        self.why = Some(why);
    }

    /// One that is there and broken is to be restarted at once, or never.
    fn restart(&mut self, now_ns: u64, decision: &mut Decision) {
        if self.restarts.len() >= self.per_hour {
            let why = self
                .why
                .clone()
                .unwrap_or_else(|| "a rule wants that".to_owned());
            return self.give_up(now_ns, &why, decision);
        }
        self.restarts.push_back(now_ns);
        self.silent = 0;
        // One without a number looks the same afterwards.
        self.pid = self.pid.filter(|&pid| pid != 0);
        if let Some((began_ns, _)) = &mut self.trouble {
            // What is there then has its own time to mend.
            *began_ns = now_ns;
        }
        self.start(now_ns, Order::Restart, decision);
    }

    /// A rule wants it restarted. That it is not is told.
    fn obey(&mut self, now_ns: u64, is_ours: bool, decision: &mut Decision) {
        let why = match (is_ours, self.pid) {
            (false, _) => "another daemon supervises it",
            (true, None) => "it is not there, and started as that says",
            (true, Some(_)) if self.restarts.len() >= self.per_hour => {
                "it was restarted as often as is allowed in an hour"
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
            "MPS is not started anew until `pillion resume`: {} times in an hour were enough ({why})",
            self.restarts.len()
        );
        decision.news.push(Draft::new(Kind::MpsGivenUp, text));
    }

    /// `may_restart`: it has no server, so nobody uses it, and this daemon supervises.
    fn handle_silence(&mut self, now_ns: u64, may_restart: bool, decision: &mut Decision) {
        self.silent = self.silent.saturating_add(1);
        if self.silent < SILENT_LOOKS {
            return;
        }
        if self.silent == SILENT_LOOKS {
            let what = "MPS's control daemon does not answer: processes that begin to use the GPU wait for it, what runs goes on";
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
            // From when nobody uses it any more it has its time to mend.
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

    /// Whether anything was held.
    fn let_go(&mut self, decision: &mut Decision) -> bool {
        decision.held = None;
        self.trouble.take().is_some()
    }
}

/// MPS as a daemon that manages it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// [`Phase::name`].
    pub(crate) state: &'static str,
    /// Since when, on the daemon's clock.
    pub(crate) since_ns: u64,
    pub(crate) pid: Option<u32>,
    pub(crate) servers: Vec<u32>,
    /// In the last hour.
    pub(crate) restarts: usize,
    /// This daemon supervises it.
    pub(crate) is_ours: bool,
    /// Why it is not as it should be.
    pub(crate) why: Option<String>,
}

/// What the thread that watches MPS and the others leave for each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk {
    /// None where MPS is not managed.
    pub(crate) seen: Option<Seen>,
    /// An operator says that everything may go on.
    pub(crate) is_resumed: bool,
    /// A rule wants it restarted.
    pub(crate) is_ordered: bool,
    /// Clients that have said that their server cannot be reached.
    pub(crate) orphans: Vec<u32>,
}

impl Desk {
    /// An operator says so; true if it was given up.
    pub(crate) fn resume(&mut self) -> bool {
        let given_up = |seen: &Seen| seen.state == Phase::GivenUp.name();
        self.is_resumed = self.seen.as_ref().is_some_and(given_up);
        self.is_resumed
    }

    /// A rule wants MPS restarted: done by the thread that watches it. None where that is nobody's
    /// here, so that the rule's own commands do.
    pub(crate) fn order_restart(&mut self) -> Option<Result<(), String>> {
        let seen = self.seen.as_ref()?;
        if !seen.is_ours {
            let why = "another daemon supervises MPS: the rule belongs into its configuration";
            return Some(Err(why.to_owned()));
        }
        self.is_ordered = true;
        Some(Ok(()))
    }

    /// These clients say that their server cannot be reached. Whether that is anybody's here to
    /// know.
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

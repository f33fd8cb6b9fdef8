//! The thread that watches MPS if this daemon manages it (`[mps] manage`): it polls the control
//! daemon, and executes [`Supervisor`]'s decisions. Real time, and nobody waits for it: its
//! commands may hang, and are killed when late.
//! The control daemon outlives this one: it starts a session of its own, with `/dev/null` for its
//! standard streams (observed with R550), and nothing here ends it with the daemon. The next daemon
//! finds it by its lock.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use protocol::clock::Clock;
use protocol::ending::TERMINATE_NS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::config::fault_rules::FaultKind;
use crate::config::mps_rules::MpsRules;
use crate::core::event::{Draft, Kind};
use crate::core::fault::Fault;
use crate::core::mps_servers::{Found, Servers};
use crate::core::mps_supervisor::{Decision, Order, Past, Supervisor};
use crate::daemon::shared::Shared;
use crate::host::mps::{Control, Doomed};
use crate::host::mps_daemon::{self, name_of_pipes};
use crate::host::mps_lock::MpsLock;
use crate::report::events::unix_ms;

/// Lost clients that MPS is asked to terminate per poll.
const TERMINATED_MAX: usize = 8;

pub(super) struct MpsWatch {
    shared: Arc<Shared>,
    rules: MpsRules,
    lock: MpsLock,
    control: Control,
    supervisor: Supervisor,
    /// Saved state for the next daemon; none if not supervising, or to replace what it found.
    kept: Option<Past>,
    is_told: bool,
    servers: Servers,
    process: Option<(u32, OwnedFd)>,
    terminated: BTreeSet<u32>,
    is_holding: bool,
    clock: Clock,
}

impl MpsWatch {
    /// None if this daemon does not manage MPS, or time is virtual. `socket` is the daemon's own.
    pub(super) fn new(shared: Arc<Shared>, rules: &MpsRules, socket: &Path) -> Option<Self> {
        if !rules.manage || shared.clock().is_virtual() {
            return None;
        }
        let stop = shared.stop_fd().try_clone_to_owned();
        let control = match stop {
            Ok(stop) => Control::until(stop),
            Err(error) => {
                tracing::warn!("MPS is not managed: {error}");
                return None;
            }
        };
        let clock = Clock::monotonic();
        let now_ns = clock.now_ns();
        let folder = socket.parent().unwrap_or(Path::new("/"));
        let watch = Self {
            shared,
            rules: rules.clone(),
            lock: MpsLock::new(folder, &name_of_pipes()),
            control,
            supervisor: Supervisor::new(now_ns, rules.restarts_per_hour),
            kept: None,
            is_told: false,
            servers: Servers::default(),
            process: None,
            terminated: BTreeSet::new(),
            is_holding: false,
            clock,
        };
        // From now on this thread executes a rule's restart.
        watch.publish(false);
        Some(watch)
    }

    pub(super) fn run(mut self) {
        loop {
            #[cfg(test)]
            self.shared.panic_if_asked();
            let wait_ns = self.look();
            if !self.wait(wait_ns) {
                return;
            }
        }
    }

    fn look(&mut self) -> u64 {
        let was_ours = self.lock.is_held();
        let is_ours = self.lock.try_hold();
        if is_ours && !was_ours {
            self.take_over();
        }
        let found = mps_daemon::look(&mut self.control, &self.rules.terminate, &self.clock);
        if self.shared.is_stopping() {
            // The poll was cut short: its result is void.
            return 0;
        }
        let now_ns = self.clock.now_ns();
        self.take_orders(now_ns);
        let lost = self.shared.state().lost_clients();
        let trouble = self.servers.handle_look(now_ns, &found, &lost);
        let decision = (self.supervisor).handle_look(now_ns, &found, trouble, is_ours);
        self.note(&found);
        self.handle_decision(decision, is_ours, &lost)
    }

    fn take_over(&mut self) {
        let now = self.now();
        let told = match self.lock.past(now) {
            Ok(past) => {
                self.kept = Some(past.clone());
                self.supervisor.take_over(now.0, past)
            }
            Err(error) => {
                let path = self.lock.path().display();
                let text = format!(
                    "cannot read how often MPS was restarted, counting from zero ({path}: {error})"
                );
                Some(Draft::new(Kind::ActionFailed, text))
            }
        };
        if let Some(draft) = told {
            self.shared.tell(draft);
        }
    }

    /// Saves the state for the next daemon, before acting on it.
    fn keep(&mut self, is_ours: bool) {
        let past = self.supervisor.past();
        if !is_ours || self.kept.as_ref() == Some(&past) {
            return;
        }
        match self.lock.keep(&past, self.now()) {
            Ok(()) => self.kept = Some(past),
            Err(error) if !std::mem::replace(&mut self.is_told, true) => {
                let path = self.lock.path().display();
                tracing::warn!(
                    "cannot save how often MPS was restarted for the next daemon: {path}: {error}"
                );
            }
            Err(_) => {}
        }
    }

    /// The time on the daemon's clock, ns, and in seconds since 1970.
    fn now(&self) -> (u64, u64) {
        (self.clock.now_ns(), unix_ms() / 1_000)
    }

    fn take_orders(&mut self, now_ns: u64) {
        let (is_resumed, is_ordered, orphans) = {
            let mut desk = self.shared.mps_desk();
            (
                std::mem::take(&mut desk.is_resumed),
                std::mem::take(&mut desk.is_ordered),
                std::mem::take(&mut desk.orphans),
            )
        };
        for pid in orphans {
            self.servers.handle_orphan(now_ns, pid);
        }
        if is_resumed {
            self.supervisor.resume(now_ns);
        }
        if is_ordered {
            self.supervisor.order_restart();
        }
    }

    fn note(&mut self, found: &Found) {
        let pid = match found {
            Found::Nothing => None,
            Found::Silent { pid, .. } | Found::Unknown { pid } | Found::Answers { pid, .. } => {
                Some(*pid)
            }
        };
        if self.process.as_ref().map(|(pid, _)| *pid) != pid {
            let process = pid.and_then(mps_daemon::process_of);
            self.process = pid.zip(process);
        }
    }

    fn handle_decision(&mut self, decision: Decision, is_ours: bool, lost: &BTreeSet<u32>) -> u64 {
        self.hold(decision.held.as_deref());
        for draft in decision.news {
            self.shared.tell(draft);
        }
        if let Some(text) = decision.fault {
            let fault = Fault::of_gpu(FaultKind::MpsFault, None, text);
            self.shared.inbox().put_report(fault);
            self.shared.alarm();
        }
        self.publish(is_ours);
        self.keep(is_ours);
        if decision.held.is_some() {
            self.terminate(lost);
        } else {
            self.terminated.clear();
        }
        match decision.order {
            None => decision.wait_ns,
            Some(order) => {
                self.carry_out(order);
                self.publish(is_ours);
                // Publish the result at once.
                0
            }
        }
    }

    fn publish(&self, is_ours: bool) {
        let now_ns = self.clock.now_ns();
        let seen = self.supervisor.seen(now_ns, is_ours, self.servers.now());
        self.shared.mps_desk().seen = Some(seen);
    }

    fn hold(&mut self, why: Option<&str>) {
        let is_holding = why.is_some();
        // An operator may have released the hold, and is right.
        if std::mem::replace(&mut self.is_holding, is_holding) == is_holding {
            return;
        }
        let is_news = self.shared.state().hold_for_mps(why);
        self.shared.ring();
        if let (Some(why), true) = (why, is_news) {
            let text = format!("best-effort jobs are held until MPS serves again: {why}");
            self.shared.tell(Draft::new(Kind::Held, text));
        }
    }

    /// Makes MPS end the work of this daemon's clients with lost contexts: their server waits for
    /// them, and none of their work can continue.
    fn terminate(&mut self, lost: &BTreeSet<u32>) {
        let broken = self
            .servers
            .now()
            .iter()
            .filter(|server| server.is_broken());
        let clients: BTreeSet<u32> = broken
            .flat_map(|server| server.clients.iter().flatten())
            .copied()
            .collect();
        let wanted = clients.intersection(lost).copied();
        let wanted: Vec<u32> = wanted
            .filter(|pid| !self.terminated.contains(pid))
            .take(TERMINATED_MAX)
            .collect();
        for pid in wanted {
            let Some(doomed) = self.doomed(pid) else {
                continue;
            };
            self.terminated.insert(pid);
            let end_ns = self.clock.now_ns().saturating_add(TERMINATE_NS);
            let command = &self.rules.terminate;
            let told = (self.control).terminate(command, &doomed, &self.clock, end_ns);
            let draft = match told {
                Ok(()) => Draft::new(
                    Kind::ActionDone,
                    format!("MPS has terminated process {pid}, whose context was lost"),
                ),
                Err(why) => Draft::new(
                    Kind::ActionFailed,
                    format!("MPS has not terminated process {pid}, whose context is lost: {why}"),
                ),
            };
            self.shared.tell(draft.pid(pid));
        }
    }

    fn doomed(&self, pid: u32) -> Option<Doomed> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
        // Checked again: the id was this client's when its descriptor was opened.
        let uid = self.shared.state().lost_client(pid)?;
        Some(Doomed {
            pid,
            process: Arc::new(process),
            uid,
        })
    }

    fn carry_out(&mut self, order: Order) {
        if order == Order::Restart
            && !mps_daemon::end(&mut self.control, &self.rules.control, &self.clock)
        {
            let why = "the previous control daemon does not exit".to_owned();
            self.supervisor.handle_failure(self.clock.now_ns(), why);
            return;
        }
        if order == Order::Restart {
            // The loss of servers under their clients is expected.
            self.servers = Servers::default();
        }
        let command = self.rules.start_command();
        let started = mps_daemon::start(&mut self.control, &command, &self.clock);
        if let Err(why) = started.as_ref() {
            if self.shared.is_stopping() {
                return;
            }
            tracing::warn!("cannot start MPS: {why}");
            self.supervisor
                .handle_failure(self.clock.now_ns(), why.clone());
        }
    }

    /// Waits this long, or for the control daemon's end or a request; false when this daemon stops.
    fn wait(&mut self, wait_ns: u64) -> bool {
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (wait_ns % 1_000_000_000).cast_signed(),
        };
        let (stop, bell) = (self.shared.stop_fd(), self.shared.mps_bell_fd());
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(bell, PollFlags::IN),
        ];
        let process = self.process.as_ref().map(|(_, process)| process.as_fd());
        fds.extend(process.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Interrupted or not, another poll does no harm.
        let _ = poll(&mut fds, Some(&timeout));
        let is_set = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (is_stopped, is_rung, has_ended) = (is_set(0), is_set(1), is_set(2));
        if is_rung {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        if has_ended {
            self.process = None;
        }
        !is_stopped
    }
}

//! The threads that look for faults. One waits for NVML's events, because that call cannot be
//! interrupted; it wakes the other, which polls everything else, applies the rules and their
//! actions. A third reads the device's gauges for the second, which does not wait for it, because
//! these calls may hang ([`Meter`]).
//! All run in real time, as their sources do. Waiting for events is bounded by [`REPORT_MS`], so
//! that thread ends soon after the daemon, which does not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::clock::Clock;
use protocol::ending::SEEN_TO_NS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::config::Config;
use crate::config::fault_rules::FaultKind;
use crate::config::fault_rules::{Action, FaultRules};
use crate::config::mps_rules::MpsRules;
use crate::core::event::{Draft, Kind};
use crate::core::fault::Fault;
use crate::core::fault_rules::{Book, Decision};
use crate::core::job_key::JobKey;
use crate::core::state::{HELD_JOBS_PER_USER, HELD_USERS_MAX, NewlyHeld, Progress, Whose};
use crate::daemon::shared::Shared;
use crate::faults::act::{Doings, Step};
use crate::faults::ending::{Begun, Evicted};
use crate::faults::meter::{Gauge, Meter, Reading};
use crate::faults::mps::Follower;
use crate::faults::stuck::{News, Stuck, StuckJobs};
use crate::host::device_release::User;
use crate::host::mps;
use crate::host::mps_daemon::{PROGRAM_NS, QUIT};
use crate::host::nvml::{Ecc, NvmlError, Report, Reports};

/// Poll interval with clients, or while an action is in progress.
const LOOK_NS: u64 = 100_000_000;
/// Poll interval of the device's utilisation, and of MPS's logs without clients.
const SLOW_LOOK_NS: u64 = 1_000_000_000;
const ECC_NS: u64 = 10_000_000_000;
/// Time for a job that is ended for another share, or by the probe, to save its state, as for
/// `pillion stop`.
const GRACE_NS: u64 = 10_000_000_000;
/// Least time between ending two jobs for another share.
const STALE_APART_NS: u64 = 60_000_000_000;
/// Longest wait for an event of NVML, ms; also the retry interval when it fails.
const REPORT_MS: u32 = 500;

pub(crate) struct FaultWatch {
    shared: Arc<Shared>,
    uuid: String,
    rules: FaultRules,
    mps: MpsRules,
    book: Book,
    followers: Vec<Follower>,
    stuck: Stuck,
    stuck_jobs: StuckJobs,
    doings: Doings,
    /// None on the virtual clock, and while the device is released.
    meter: Option<Meter>,
    opened: Option<u64>,
    ecc: Option<Ecc>,
    progress: Option<(u64, Progress)>,
    clock: Clock,
    looked: Looked,
    has_mps: bool,
    /// A query of MPS's control daemon is under way. It orders no other access.
    is_asking: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Looked {
    logs_ns: u64,
    use_ns: u64,
    ecc_ns: u64,
    control_daemon_ns: Option<u64>,
    stale_ns: Option<u64>,
}

impl FaultWatch {
    pub(crate) fn new(shared: Arc<Shared>, uuid: &str, config: &Config) -> Self {
        let (rules, mps) = (&config.faults, &config.mps);
        let doings = Doings::new(&mps.terminate);
        let mut watch = Self {
            shared,
            uuid: uuid.to_owned(),
            rules: rules.clone(),
            mps: mps.clone(),
            book: Book::new(rules),
            followers: Vec::new(),
            stuck: Stuck::default(),
            stuck_jobs: StuckJobs::default(),
            doings,
            meter: None,
            opened: None,
            ecc: None,
            progress: None,
            clock: Clock::monotonic(),
            looked: Looked::default(),
            has_mps: false,
            is_asking: Arc::default(),
        };
        watch.follow_logs();
        watch.look_at_sharing();
        watch
    }

    fn look_at_sharing(&mut self) {
        let now_ns = self.clock.now_ns();
        // Clients whose drivers do not report may come without end.
        let may_ask = self.is_real()
            && !self.is_asking.load(Ordering::Relaxed)
            && (self.looked.control_daemon_ns)
                .is_none_or(|asked_ns| now_ns.saturating_sub(asked_ns) >= SLOW_LOOK_NS);
        let (has_mps, is_wanted) = {
            let mut state = self.shared.state();
            let is_wanted = may_ask && state.take_control_daemon_wanted();
            (state.ways.has_mps(), is_wanted)
        };
        let is_new = has_mps && !std::mem::replace(&mut self.has_mps, has_mps);
        self.doings.set_on_mps(has_mps);
        if !self.is_real() {
            return;
        }
        if let Some(folder) = mps::unseen_pipes().filter(|_| is_new) {
            tracing::warn!(
                "{} does not exist for this daemon: MPS cannot be asked to end the work of jobs \
                 that are killed (set {} to MPS's folder; a service with PrivateTmp does not see \
                 /tmp of the host)",
                folder.display(),
                mps::PIPES_ENV
            );
        }
        if is_wanted {
            self.looked.control_daemon_ns = Some(now_ns);
            self.ask_control_daemon();
        }
    }

    /// Its answer, or silence, ends the querying thread, at the latest with the daemon.
    fn ask_control_daemon(&self) {
        let (shared, command) = (Arc::clone(&self.shared), self.mps.terminate.clone());
        let is_asking = Arc::clone(&self.is_asking);
        is_asking.store(true, Ordering::Relaxed);
        let asking = move || {
            let is_there = mps::is_there(&command, shared.stop_fd());
            shared.state().handle_control_daemon(is_there);
            shared.tell_sharing();
            is_asking.store(false, Ordering::Relaxed);
        };
        if let Err(error) = self.shared.start_thread("pillion-there", asking) {
            self.is_asking.store(false, Ordering::Relaxed);
            tracing::warn!("cannot start a thread to ask MPS's control daemon: {error}");
        }
    }

    /// Whether to access the device: not on the virtual clock, whose seconds are not NVML's.
    fn is_real(&self) -> bool {
        !self.shared.clock().is_virtual()
    }

    pub(crate) fn run(mut self) {
        self.keep_to_grip();
        while self.wait() {
            #[cfg(test)]
            self.shared.panic_if_asked();
            self.keep_to_grip();
            let given = std::mem::take(&mut *self.shared.inbox());
            if given.is_memory_news {
                self.looked.ecc_ns = 0;
            }
            if let Some(rules) = given.rules.filter(|rules| *rules != self.rules) {
                self.book = Book::new(&rules);
                self.rules = rules;
            }
            let mut faults: Vec<Fault> = given.reports.into();
            self.look(&mut faults);
            for fault in faults {
                self.handle_fault(&fault);
            }
            for evicted in given.evicted {
                self.evict(evicted);
            }
            if let Some(why) = given.trouble {
                self.end_best_effort(&why);
            }
            self.go_on();
        }
    }

    fn keep_to_grip(&mut self) {
        let opened = self.shared.device_release().opened();
        if !self.is_real() || opened == self.opened {
            return;
        }
        self.opened = opened;
        (self.meter, self.progress) = (None, None);
        if opened.is_none() {
            return;
        }
        let mut meter = Meter::new(&self.uuid, self.shared.device_release());
        self.looked.ecc_ns = self.clock.now_ns();
        meter.want(Gauge::Ecc);
        let _ = meter.poll(self.looked.ecc_ns);
        self.meter = Some(meter);
        // Taken here: a thread that begins only after the next release ends at once.
        let Some(user) = self.shared.device_release().user() else {
            return;
        };
        let (shared, uuid) = (Arc::clone(&self.shared), self.uuid.clone());
        let waiting = move || wait_for_reports(&shared, &uuid, &user);
        if let Err(error) = self.shared.start_thread("pillion-nvml", waiting) {
            tracing::warn!("cannot start a thread for NVML's events: {error}");
        }
    }

    fn follow_logs(&mut self) {
        for path in &self.mps.logs {
            let mut follower = Follower::new(path);
            // Skip its present content, which is old; it is read from here at the next poll.
            let _ = follower.poll(&[]);
            self.followers.push(follower);
        }
    }

    fn wait(&self) -> bool {
        let has_clients = self.shared.state().has_clients();
        let look_ns = match () {
            () if has_clients || !self.doings.is_idle() => Some(LOOK_NS),
            () if !self.followers.is_empty() => Some(SLOW_LOOK_NS),
            () if self.meter.as_ref().is_some_and(Meter::is_asking) => Some(SLOW_LOOK_NS),
            () if self.meter.as_ref().is_some_and(Meter::is_there) => Some(ECC_NS),
            () => None,
        };
        let look = look_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000).cast_signed(),
            tv_nsec: (ns % 1_000_000_000).cast_signed(),
        });
        let (stop, alarm) = (self.shared.stop_fd(), self.shared.alarm_fd());
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(alarm, PollFlags::IN),
        ];
        let answered = self.meter.as_ref().and_then(Meter::answered);
        let others = self.doings.descriptors().chain(answered);
        fds.extend(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Interrupted or not, another poll does no harm.
        let _ = poll(&mut fds, look.as_ref());
        let is_stopped = !fds[0].revents().is_empty();
        let is_called = !fds[1].revents().is_empty();
        if is_called {
            let _ = rustix::io::read(alarm, &mut [0; 8]);
        }
        !is_stopped
    }

    fn look(&mut self, faults: &mut Vec<Fault>) {
        self.look_at_sharing();
        let (stickies, deaths) = {
            let mut state = self.shared.state();
            (state.take_stickies(), state.take_deaths())
        };
        self.shared.tell_of_clients();
        self.shared.note_orphans(&stickies);
        faults.extend(stickies.into_iter().map(Fault::of_sticky));
        faults.extend(deaths.into_iter().map(Fault::of_death));
        if !self.is_real() {
            return;
        }
        let now_ns = self.clock.now_ns();
        let is_due = |last_ns: &mut u64, ns: u64| {
            let is_due = now_ns.saturating_sub(*last_ns) >= ns;
            if is_due {
                *last_ns = now_ns;
            }
            is_due
        };
        // Slightly less than the interval: polls come a little early or late.
        if is_due(&mut self.looked.logs_ns, LOOK_NS / 2) {
            self.read_logs(now_ns, faults);
        }
        if is_due(&mut self.looked.use_ns, SLOW_LOOK_NS - LOOK_NS / 2) {
            self.look_at_jobs(now_ns, faults);
            self.look_at_use(now_ns, faults);
            self.look_at_share(now_ns);
        }
        if is_due(&mut self.looked.ecc_ns, ECC_NS - LOOK_NS / 2) {
            self.want(Gauge::Ecc);
        }
        self.poll_meter(now_ns, faults);
    }

    /// Ends a job for its supervisor to restart it with another share of the SMs; one at a time.
    fn look_at_share(&mut self, now_ns: u64) {
        // A static partition is the operator's: a job has it from start to end.
        if self.mps.static_partitioning {
            return;
        }
        let last_ns = self.looked.stale_ns;
        if last_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < STALE_APART_NS) {
            return;
        }
        let stale = self.shared.state().take_stale(self.shared.clock.now_ns());
        let Some((key, [with, percent])) = stale else {
            return;
        };
        self.looked.stale_ns = Some(now_ns);
        let name = format!("changed share ({with} to {percent} % of the SMs)");
        if let Err(why) = self.end_job(now_ns, &key, &name, GRACE_NS) {
            self.shared.state().handle_not_ended(&key);
            self.tell_of(Some(&key), Kind::ActionFailed, format!("{name}: {why}"));
        }
    }

    fn end_best_effort(&mut self, why: &str) {
        let jobs = self.shared.state().best_effort_jobs();
        for key in jobs {
            if let Err(failed) = self.end_job(self.clock.now_ns(), &key, why, GRACE_NS) {
                self.shared.state().hold_as_comer(&key);
                let text = format!("{why}: cannot end the job, so it waits: {failed}");
                self.tell_of(Some(&key), Kind::ActionFailed, text);
            }
        }
    }

    fn want(&mut self, gauge: Gauge) {
        if let Some(meter) = &mut self.meter {
            meter.want(gauge);
        }
    }

    fn poll_meter(&mut self, now_ns: u64, faults: &mut Vec<Fault>) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        let reading = meter.poll(now_ns);
        if let Some(text) = meter.poll_news() {
            self.shared.tell(Draft::new(Kind::NvmlSilent, text));
        }
        match reading {
            Some(Reading::Ecc(ecc)) => {
                // Earlier counts are unknown; pages that wait for a reset are reported even if they
                // did so before this daemon.
                let before = self.ecc.replace(ecc).unwrap_or_default();
                faults.extend(news_of_memory(&before, &ecc));
            }
            Some(Reading::Use(busy_pct)) => {
                let asked = self.progress.take();
                if let Some((at_ns, progress)) = asked
                    && let Some(busy_pct) = busy_pct
                {
                    self.handle_use(at_ns, busy_pct, progress, faults);
                }
            }
            Some(Reading::Missing(_)) | None => {}
        }
    }

    fn read_logs(&mut self, now_ns: u64, faults: &mut Vec<Fault>) {
        let is_on_mps = self.has_mps;
        for follower in &mut self.followers {
            let lines = follower.poll(&self.mps.patterns);
            let trouble = follower.take_trouble();
            if let Some(kind) = trouble {
                let path = follower.path().display();
                let text = format!("{path}: {kind}; faults that MPS logs there are not detected");
                self.shared.tell(Draft::new(Kind::MpsLogSilent, text));
            }
            if follower.take_absence(now_ns) && is_on_mps {
                let path = follower.path().display();
                let text = format!(
                    "{path}: has not existed for a minute; faults that MPS logs there are not \
                     detected"
                );
                self.shared.tell(Draft::new(Kind::MpsLogSilent, text));
            }
            let path = follower.path().display();
            let lines = lines.iter().map(|line| format!("MPS ({path}): {line}"));
            faults.extend(lines.map(|text| Fault::of_gpu(FaultKind::MpsFault, None, text)));
        }
    }

    fn look_at_jobs(&mut self, now_ns: u64, faults: &mut Vec<Fault>) {
        let Some(limit_ns) = self.rules.stuck_ns else {
            self.stuck_jobs = StuckJobs::default();
            return;
        };
        let (all, jobs) = {
            let state = self.shared.state();
            (state.progress(), state.job_progress())
        };
        for (key, news) in self.stuck_jobs.handle_look(now_ns, all, jobs, limit_ns) {
            match news {
                News::Stuck(ns) => faults.push(Fault::of_stuck_job(key, ns)),
                News::Moves => {
                    let text = format!("job {:?} is no longer stuck", key.id);
                    self.tell_of(Some(&key), Kind::StuckEnded, text);
                }
            }
        }
    }

    fn look_at_use(&mut self, now_ns: u64, faults: &mut Vec<Fault>) {
        let meter = self.meter.as_ref().filter(|meter| meter.is_there());
        let Some(meter) = meter.filter(|_| self.rules.stuck_ns.is_some()) else {
            self.progress = None;
            return self.stuck.forget();
        };
        let is_asked = meter.asks(Gauge::Use);
        let progress = self.shared.state().progress();
        if !progress.is_waiting {
            // NVML costs the driver time: do not ask, nor use an answer, without waiting work.
            self.progress = None;
            return self.handle_use(now_ns, 0, progress, faults);
        }
        if !is_asked {
            self.progress = Some((now_ns, progress));
            self.want(Gauge::Use);
        }
    }

    fn handle_use(
        &mut self,
        now_ns: u64,
        busy_pct: u32,
        progress: Progress,
        faults: &mut Vec<Fault>,
    ) {
        let Some(limit_ns) = self.rules.stuck_ns else {
            return;
        };
        let news = self.stuck.handle_look(now_ns, busy_pct, progress, limit_ns);
        self.tell_of_progress(news, faults);
    }

    fn tell_of_progress(&self, news: Option<News>, faults: &mut Vec<Fault>) {
        match news {
            Some(News::Stuck(ns)) => {
                let seconds = ns / 1_000_000_000;
                let text = format!(
                    "the GPU is busy, but no work of any client has completed or begun for \
                     {seconds} s"
                );
                faults.push(Fault::of_gpu(FaultKind::Stuck, None, text));
            }
            Some(News::Moves) => {
                let text = "the GPU is no longer stuck: some work has completed, begun or ended";
                self.shared.tell(Draft::new(Kind::StuckEnded, text));
            }
            None => {}
        }
    }

    fn handle_fault(&mut self, fault: &Fault) {
        self.shared.tell(fault.draft());
        if fault.kind == FaultKind::Xid {
            // Counters follow an Xid of memory.
            self.looked.ecc_ns = 0;
        }
        let now_ns = self.clock.now_ns();
        for decision in self.book.handle_fault(now_ns, fault) {
            match decision {
                Decision::TooOften(action, per_hour) => {
                    let text = format!(
                        "{action} was skipped: per_hour = {per_hour} of its rule is reached ({})",
                        fault.text
                    );
                    self.tell_of(fault.job.as_ref(), Kind::ActionLimited, text);
                }
                Decision::Act(action) => {
                    if let Err(why) = self.act(now_ns, &action, fault) {
                        let text = format!("{}: {why}", action.name());
                        self.tell_of(fault.job.as_ref(), Kind::ActionFailed, text);
                    }
                }
            }
        }
    }

    fn tell_of(&self, job: Option<&JobKey>, kind: Kind, text: String) {
        let draft = Draft::new(kind, text);
        self.shared.tell(match job {
            Some(key) => draft.of_job(key),
            None => draft,
        });
    }

    fn act(&mut self, now_ns: u64, action: &Action, fault: &Fault) -> Result<(), String> {
        match action {
            Action::Report => Ok(()),
            Action::HoldBe => {
                self.hold(fault);
                Ok(())
            }
            Action::DrainGpu => {
                let why = fault.text_for_all();
                if self.shared.drain(&why) {
                    let text = format!(
                        "the GPU is drained until `pillion resume`: best-effort jobs are held, and no new \
                         high-priority job should be started here: {why}"
                    );
                    self.tell_of(None, Kind::Draining, text);
                }
                self.shared.ring();
                Ok(())
            }
            Action::RestartJob { grace_ns } => {
                let key = fault.job.as_ref().ok_or("the fault belongs to no job")?;
                self.end_job(now_ns, key, action.name(), *grace_ns)
            }
            Action::RestartMps => {
                // If managed, one thread alone starts and ends MPS.
                let ordered = self.shared.mps_desk().order_restart();
                if let Some(result) = ordered {
                    result?;
                    self.shared.wake_mps();
                    let text = format!(
                        "{}: passed to the thread that supervises MPS, which restarts it",
                        action.name()
                    );
                    self.tell_of(fault.job.as_ref(), Kind::Action, text);
                    return Ok(());
                }
                let step = |command: &[String], input, may_fail| Step {
                    command: command.to_vec(),
                    input,
                    may_fail,
                    timeout_ns: PROGRAM_NS,
                };
                // A control daemon that has exited cannot receive `quit`.
                let quit = step(&self.mps.control, QUIT, true);
                let start = step(&self.mps.start, "", false);
                self.start_commands(now_ns, action, vec![quit, start], fault)
            }
        }
    }

    fn hold(&self, fault: &Fault) {
        let whose = fault.whose();
        let why = fault.text_for_all();
        let newly = self.shared.state().hold(whose, &why);
        self.shared.ring();
        let Some(newly) = newly else { return };
        if let NewlyHeld::Nobody(uid) = newly {
            let text = format!(
                "best-effort jobs of user {uid} are not held: those of {HELD_USERS_MAX} users, the \
                 limit, are already ({why})"
            );
            return self.tell_of(fault.job.as_ref(), Kind::ActionFailed, text);
        }
        let (who, what) = match (newly, whose) {
            (NewlyHeld::Job, Whose::Job(key)) => (
                format!("job {:?} is", key.id),
                format!("`pillion resume {}`", key.id),
            ),
            (NewlyHeld::User(uid), Whose::Job(_)) => (
                format!(
                    "{HELD_JOBS_PER_USER} jobs of user {uid} are held by name; now all its best-effort jobs are"
                ),
                "`pillion resume`".to_owned(),
            ),
            (NewlyHeld::User(uid), _) => (
                format!("best-effort jobs of user {uid} are"),
                "`pillion resume`".to_owned(),
            ),
            (NewlyHeld::All | NewlyHeld::Job | NewlyHeld::Nobody(_), _) => (
                "best-effort jobs are".to_owned(),
                "`pillion resume`".to_owned(),
            ),
        };
        let text = format!("{who} held until {what}: {why}");
        // A hold of everybody is reported to everybody.
        self.tell_of(fault.job.as_ref(), Kind::Held, text);
    }

    fn end_job(
        &mut self,
        now_ns: u64,
        key: &JobKey,
        name: &str,
        grace_ns: u64,
    ) -> Result<(), String> {
        let pids = self.shared.state().pids_of(key);
        let mut processes = Vec::new();
        for pid in pids {
            let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
            match id.map_or(Err(Errno::SRCH), |id| pidfd_open(id, PidfdFlags::empty())) {
                Ok(process) => processes.push((pid, Arc::new(process))),
                Err(Errno::SRCH) => {}
                Err(error) => return Err(format!("process {pid} of job {:?}: {error}", key.id)),
            }
        }
        // Checked again: an id may have been reused in between.
        let still = self.shared.state().pids_of(key);
        processes.retain(|(pid, _)| still.contains(pid));
        if processes.is_empty() {
            let text = format!("{name}: job {:?} has ended by itself", key.id);
            self.tell_of(Some(key), Kind::ActionDone, text);
            return Ok(());
        }
        let pids: Vec<u32> = processes.iter().map(|(pid, _)| *pid).collect();
        let within_ns = grace_ns.saturating_add(SEEN_TO_NS);
        self.see_to(key, &pids, within_ns);
        let Begun { count, denied } = self.doings.end_job(now_ns, key, processes, grace_ns)?;
        if count > 0 {
            let (which, are, by) = match count {
                1 => ("process".to_owned(), "is", "only by its library".to_owned()),
                _ => {
                    let by = format!("{denied} of them only by their library");
                    (format!("{count} processes"), "are", by)
                }
            };
            let how = match denied {
                0 => String::new(),
                _ => format!(", {by}: this daemon runs as another user and has no CAP_KILL"),
            };
            let text = format!(
                "{name}: the {which} of job {:?} {are} asked to end{how}; the job's supervisor \
                 restarts it",
                key.id
            );
            self.tell_of(Some(key), Kind::Action, text);
        }
        Ok(())
    }

    fn see_to(&self, key: &JobKey, pids: &[u32], within_ns: u64) {
        let (state, now_ns) = (self.shared.state(), self.clock.now_ns());
        state.see_to_processes(key, pids, now_ns, within_ns);
    }

    fn evict(&mut self, evicted: Evicted) {
        let (job, pid, is_client) = (evicted.job.clone(), evicted.pid, evicted.is_client);
        let why = evicted.why;
        self.see_to(&job, &[pid], SEEN_TO_NS);
        let how = match (self.doings.evict(self.clock.now_ns(), evicted), is_client) {
            (Ok(true), true) => "will be drained and killed",
            (Ok(true), false) => "will be killed",
            (Ok(false), _) => "is being ended with its job, now without grace",
            (Err(failed), _) => {
                let is_news = self.shared.ledgers().handle_put_off(pid, true);
                if is_news {
                    let text = format!("cannot end process {pid} yet: {failed}");
                    self.tell_of(Some(&job), Kind::ActionFailed, text);
                }
                return;
            }
        };
        self.shared.ledgers().handle_begun(pid);
        let text = format!("process {pid} {how}: it did not end when asked; {why}");
        let draft = Draft::new(Kind::Evicted, text);
        self.shared.tell(draft.of_job(&job).pid(pid));
    }

    fn start_commands(
        &mut self,
        now_ns: u64,
        action: &Action,
        steps: Vec<Step>,
        fault: &Fault,
    ) -> Result<(), String> {
        let words: Vec<String> = steps.iter().map(|step| step.command.join(" ")).collect();
        let (name, job) = (action.name(), fault.job.as_ref());
        self.doings.run(now_ns, name, steps, job)?;
        let text = format!("{name}: {}", words.join(", then "));
        self.tell_of(job, Kind::Action, text);
        Ok(())
    }

    fn go_on(&mut self) {
        let (now_ns, mut outcomes) = (self.clock.now_ns(), Vec::new());
        if !self.doings.is_idle() {
            let overdue = self.shared.state().overdue();
            self.doings.handle_overdue(now_ns, &overdue);
        }
        let shared = &self.shared;
        let handle_spared = |pid| shared.state().note_spared(pid);
        for (key, pids) in self.doings.poll(now_ns, &mut outcomes, handle_spared) {
            let clock = self.shared.clock();
            self.shared.state().stop_processes(&key, &pids, clock);
        }
        for outcome in outcomes {
            let kind = match outcome.is_success {
                true => Kind::ActionDone,
                false => Kind::ActionFailed,
            };
            self.tell_of(outcome.job.as_ref(), kind, outcome.text);
            if let Some(pid) = outcome.out_of_reach {
                self.shared.ledgers().handle_out_of_reach(pid);
            }
        }
    }
}

/// News between two reads of the counters. A counter that decreased was reset.
fn news_of_memory(before: &Ecc, now: &Ecc) -> Vec<Fault> {
    let more = |before: Option<u64>, now: Option<u64>| {
        let more = now?.saturating_sub(before?);
        (more > 0).then_some(more)
    };
    let mut faults = Vec::new();
    if let Some(count) = more(before.uncorrected, now.uncorrected) {
        let text = format!("{count} more uncorrectable errors in the GPU's memory");
        faults.push(Fault::of_gpu(FaultKind::Ecc, Some(count), text));
    }
    if let Some(count) = more(before.corrected, now.corrected) {
        let text = format!("{count} more corrected errors in the GPU's memory");
        faults.push(Fault::of_gpu(FaultKind::EccCorrected, Some(count), text));
    }
    if now.is_pending == Some(true) && before.is_pending != Some(true) {
        let text = "rows or pages of the GPU's memory wait for a reset to be replaced";
        faults.push(Fault::of_gpu(FaultKind::Ecc, None, text.to_owned()));
    }
    faults
}

/// Forwards NVML's events until the daemon stops or the device is released. `user` outlives the
/// reports: NVML is closed before the status shows the release.
fn wait_for_reports(shared: &Shared, uuid: &str, user: &User) {
    let reports = match Reports::open(uuid) {
        Ok(reports) => reports,
        Err(error) => {
            let text = format!("{error}; Xids are not detected");
            shared.tell(Draft::new(Kind::NvmlSilent, text));
            return;
        }
    };
    tracing::info!("NVML reports Xids and errors in memory");
    let clock = Clock::monotonic();
    let mut is_failing = false;
    while !shared.is_stopping() && !user.is_over() {
        match reports.wait(REPORT_MS) {
            Ok(report) => {
                is_failing = false;
                match report {
                    None => continue,
                    Some(Report::Xid(xid)) => shared.inbox().put_report(Fault::of_xid(xid)),
                    // The counters have the numbers.
                    Some(Report::MemoryError) => shared.inbox().is_memory_news = true,
                }
                shared.alarm();
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tell_of_silence(shared, &error);
                }
                clock.sleep_until(clock.now_ns() + u64::from(REPORT_MS) * 1_000_000);
            }
        }
    }
}

fn tell_of_silence(shared: &Shared, error: &NvmlError) {
    let text = format!("{error}; until it answers again, Xids are not detected");
    shared.tell(Draft::new(Kind::NvmlSilent, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_grown_is_news_of_memory() {
        let ecc = |corrected, uncorrected, is_pending| Ecc {
            corrected: Some(corrected),
            uncorrected: Some(uncorrected),
            is_pending: Some(is_pending),
        };
        let kinds = |before: Ecc, now: Ecc| -> Vec<_> {
            let faults = news_of_memory(&before, &now);
            faults
                .iter()
                .map(|fault| (fault.kind, fault.code))
                .collect()
        };
        assert_eq!(kinds(ecc(5, 1, true), ecc(5, 1, true)), []);
        assert_eq!(kinds(ecc(5, 1, false), ecc(0, 0, false)), [], "reset");
        let all = [
            (FaultKind::Ecc, Some(2)),
            (FaultKind::EccCorrected, Some(1)),
            (FaultKind::Ecc, None),
        ];
        assert_eq!(kinds(ecc(5, 1, false), ecc(6, 3, true)), all);
        assert_eq!(
            kinds(Ecc::default(), ecc(6, 3, false)),
            [],
            "counts of a time before ours"
        );
    }
}

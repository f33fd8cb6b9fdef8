//! What is done about a fault and takes its time: the processes of a job are ended, commands are run. Nobody waits for any of it.
//!
//! **A job is ended** as [`super::ending`] says.
//!
//! **A command** is a program and its arguments, without a shell, with the daemon's own rights, in a process group of its own,
//! its standard input empty and its output in the daemon's log. It is told about the fault in its environment
//! (`PILLION_FAULT_…`). What takes too long is killed with its group. At most [`COMMANDS_MAX`] run at once, [`COMMANDS_PER_USER`] of
//! them for faults of one user's jobs, and [`COMMANDS_OF_GPU`] only for the GPU's own.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::Fault;
use super::asking::Asker;
use super::ending::{Begun, Ending, Evicted, ToStop};
use crate::program::{self, Output, Started};
use crate::state::{CLIENTS_MAX, JobKey};

/// Commands at once.
pub(crate) const COMMANDS_MAX: usize = 8;
/// Of these for faults of one user's jobs.
const COMMANDS_PER_USER: usize = 2;
/// Places that faults of jobs, whosever they are, leave to those of the GPU.
const COMMANDS_OF_GPU: usize = 2;
/// Processes that are ended at once. Each takes a descriptor.
pub(crate) const ENDINGS_MAX: usize = 4 * CLIENTS_MAX;
/// Of these by rule, of one user's jobs: as many as can be clients.
const RESTARTS_PER_USER: usize = CLIENTS_MAX;
/// Places that rules leave to evictions.
const ENDINGS_OF_EVICTION: usize = 64;
/// Evictions of one user's processes at once.
const EVICTIONS_PER_USER: usize = 16;

/// One program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// What it reads.
    pub(crate) input: &'static str,
    /// It may fail, and the next is run all the same.
    pub(crate) may_fail: bool,
    pub(crate) timeout_ns: u64,
}

/// What came of something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_success: bool,
    pub(crate) job: Option<JobKey>,
    pub(crate) text: String,
    /// A process that was to be evicted, and this daemon may not kill.
    pub(crate) out_of_reach: Option<u32>,
}

/// What is being done.
#[derive(Debug, Default)]
pub(crate) struct Doings {
    commands: Vec<Running>,
    endings: Vec<Ending>,
    /// Asks MPS before a kill, where that shares the GPU.
    asker: Option<Asker>,
}

/// A command that runs, and those that follow it.
#[derive(Debug)]
struct Running {
    /// The action, for people.
    name: &'static str,
    job: Option<JobKey>,
    step: Step,
    rest: Vec<Step>,
    environment: Vec<CString>,
    started: Started,
    end_ns: u64,
    is_killed: bool,
}

impl Doings {
    /// Nothing yet. Where MPS shares the GPU it is asked before a kill, by this command.
    pub(crate) fn new(mps: Option<&[String]>) -> Self {
        Self {
            asker: mps.map(Asker::new),
            ..Self::default()
        }
    }

    /// MPS is asked by this command from now on, where it shares the GPU.
    pub(crate) fn set_mps(&mut self, command: &[String]) {
        if let Some(asker) = &mut self.asker {
            asker.set_command(command);
        }
    }

    /// Descriptors that are readable when something goes on.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let commands = self.commands.iter();
        let commands = commands.map(|running| running.started.process.as_fd());
        let endings = self.endings.iter().flat_map(Ending::descriptors);
        let answered = self.asker.as_ref().and_then(Asker::answered);
        commands.chain(endings).chain(answered)
    }

    /// Whether anything is being done.
    pub(crate) fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.endings.is_empty()
    }

    /// Begins to end these processes of a job; of none if it is being ended already.
    pub(crate) fn end_job(
        &mut self,
        now_ns: u64,
        job: &JobKey,
        processes: Vec<(u32, Arc<OwnedFd>)>,
        grace_ns: u64,
    ) -> Result<Begun, String> {
        if self.endings.iter().any(|ending| ending.is_of_job(job)) {
            return Ok(Begun::default());
        }
        if processes.is_empty() {
            return Err(format!("job {:?} has no process that can be seen", job.id));
        }
        self.check_restarts(job.uid, processes.len())?;
        let (ending, begun) = Ending::of_job(now_ns, job, processes, grace_ns);
        self.endings.push(ending);
        Ok(begun)
    }

    /// Begins to end a process that was asked to and did not. One that is being ended already with its job has no grace any more;
    /// then it is false.
    pub(crate) fn evict(&mut self, now_ns: u64, evicted: Evicted) -> Result<bool, String> {
        let pid = evicted.pid;
        let mut endings = self.endings.iter_mut();
        if let Some(ending) = endings.find(|ending| ending.has(pid)) {
            ending.cut_grace(now_ns);
            return Ok(false);
        }
        self.check_evictions(evicted.job.uid)?;
        self.endings.push(Ending::of_process(now_ns, evicted));
        Ok(true)
    }

    /// How many processes are being ended, of those endings.
    fn count(&self, is_counted: impl Fn(&Ending) -> bool) -> usize {
        let counted = self.endings.iter().filter(|ending| is_counted(ending));
        counted.map(Ending::left).sum()
    }

    /// Whether there is room for so many more processes of this user's that are ended by rule.
    fn check_restarts(&self, uid: u32, more: usize) -> Result<(), String> {
        let of_user = self.count(|ending| !ending.is_eviction() && ending.uid() == uid);
        if of_user + more > RESTARTS_PER_USER {
            return Err(format!(
                "{of_user} processes of this user are being ended already"
            ));
        }
        let evictions = self.count(Ending::is_eviction).max(ENDINGS_OF_EVICTION);
        let restarts = self.count(|ending| !ending.is_eviction());
        match restarts + more + evictions > ENDINGS_MAX {
            true => Err(format!("{restarts} processes are being ended already")),
            false => Ok(()),
        }
    }

    /// Whether there is a place for one more process of this user that is evicted.
    fn check_evictions(&self, uid: u32) -> Result<(), String> {
        let of_user = self.count(|ending| ending.is_eviction() && ending.uid() == uid);
        if of_user >= EVICTIONS_PER_USER {
            return Err(format!(
                "{of_user} processes of this user are being ended already"
            ));
        }
        match self.count(|_| true) {
            ENDINGS_MAX.. => Err(format!("{ENDINGS_MAX} are being ended already")),
            _ => Ok(()),
        }
    }

    /// Runs commands one after the other.
    pub(crate) fn run(
        &mut self,
        now_ns: u64,
        name: &'static str,
        steps: Vec<Step>,
        fault: &Fault,
        about: &About<'_>,
    ) -> Result<(), String> {
        let mut steps = steps.into_iter();
        let Some(step) = steps.next() else {
            return Ok(());
        };
        self.check_room(fault.job.as_ref())?;
        let environment = environment(fault, about);
        let started = step.start(&environment)?;
        self.commands.push(Running {
            name,
            job: fault.job.clone(),
            end_ns: now_ns.saturating_add(step.timeout_ns),
            step,
            rest: steps.collect(),
            environment,
            started,
            is_killed: false,
        });
        Ok(())
    }

    /// Whether there is a place for one more command, for a fault of this job or of the GPU.
    fn check_room(&self, job: Option<&JobKey>) -> Result<(), String> {
        if self.commands.len() >= COMMANDS_MAX {
            return Err(format!("{COMMANDS_MAX} commands run already"));
        }
        let Some(JobKey { uid, .. }) = job else {
            return Ok(());
        };
        let of_jobs = || {
            self.commands
                .iter()
                .filter_map(|running| running.job.as_ref())
        };
        if of_jobs().filter(|key| key.uid == *uid).count() >= COMMANDS_PER_USER {
            return Err(format!(
                "{COMMANDS_PER_USER} commands for faults of this user's jobs run already"
            ));
        }
        const OF_JOBS: usize = COMMANDS_MAX - COMMANDS_OF_GPU;
        if of_jobs().count() >= OF_JOBS {
            return Err(format!("{OF_JOBS} commands for faults of jobs run already"));
        }
        Ok(())
    }

    /// Goes on with everything; what is done is in `outcomes`. Returns whose processes are to be asked to drain.
    pub(crate) fn poll(&mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) -> Vec<ToStop> {
        self.commands = std::mem::take(&mut self.commands)
            .into_iter()
            .filter_map(|running| running.poll(now_ns, outcomes))
            .collect();
        let mut to_stop = Vec::new();
        let is_on_mps = self.asker.is_some();
        if let Some(asker) = &mut self.asker {
            asker.poll_answer(&mut self.endings);
        }
        self.endings
            .retain_mut(|ending| ending.poll(now_ns, is_on_mps, outcomes, &mut to_stop));
        if let Some(asker) = &mut self.asker {
            asker.poll_question(now_ns, &mut self.endings);
        }
        to_stop
    }
}

impl Step {
    fn start(&self, environment: &[CString]) -> Result<Started, String> {
        program::spawn(&self.command, self.input, &Output::Log, environment)
    }
}

impl Running {
    /// Itself, or what follows it, if it goes on.
    fn poll(mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) -> Option<Self> {
        let status = match waitpid(self.started.child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {
                if now_ns >= self.end_ns && !self.is_killed {
                    self.is_killed = true;
                    self.started.kill();
                }
                return Some(self);
            }
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            Ok(WaitStatus::Exited(_, code)) => Err(format!("ended with {code}")),
            Ok(WaitStatus::Signaled(..)) if self.is_killed => {
                Err("took too long and was killed".to_owned())
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Err(format!("died of {signal}")),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        };
        let told = match status {
            Err(why) if !self.step.may_fail => Err(why),
            _ if self.rest.is_empty() => Ok(()),
            _ => {
                let step = self.rest.remove(0);
                match step.start(&self.environment) {
                    Ok(started) => {
                        self.end_ns = now_ns.saturating_add(step.timeout_ns);
                        (self.step, self.started) = (step, started);
                        self.is_killed = false;
                        return Some(self);
                    }
                    Err(why) => {
                        outcomes.push(Outcome {
                            is_success: false,
                            text: format!("{}: {why}", self.name),
                            job: self.job,
                            ..Outcome::default()
                        });
                        return None;
                    }
                }
            }
        };
        let program = &self.step.command[0];
        outcomes.push(Outcome {
            is_success: told.is_ok(),
            text: match told {
                Ok(()) => format!("{}: {program} has ended well", self.name),
                Err(why) => format!("{}: {program} {why}", self.name),
            },
            job: self.job,
            ..Outcome::default()
        });
        None
    }
}

/// What a command is told beside the fault.
pub(crate) struct About<'a> {
    pub(crate) gpu: &'a str,
    /// Of the fault's event.
    pub(crate) seq: u64,
}

/// Our own environment, and the fault. Jobs choose what they are called: these are data, never to be evaluated.
fn environment(fault: &Fault, about: &About<'_>) -> Vec<CString> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let job = fault.job.as_ref();
    let of_fault = [
        ("KIND", fault.kind.name().to_owned()),
        ("CODE", number(fault.code)),
        ("JOB", job.map_or_else(String::new, |key| key.id.clone())),
        ("UID", number(job.map(|key| key.uid.into()))),
        ("PID", number(fault.pid.map(u64::from))),
        ("GPU", about.gpu.to_owned()),
        ("SEQ", about.seq.to_string()),
        ("TEXT", fault.text.clone()),
    ];
    let of_fault = of_fault.map(|(name, value)| {
        let name = OsString::from(format!("PILLION_FAULT_{name}"));
        (name, OsString::from(value))
    });
    let is_left_out = |name: &OsStr| name.as_bytes().starts_with(b"PILLION_FAULT_");
    program::environment(is_left_out, of_fault)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use protocol::ending::{DRAIN_NS, FROZEN_NS, KILL_NS, TERMINATE_NS};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;
    use crate::faults::FaultKind;

    const PATIENCE_NS: u64 = 60_000_000_000;

    fn shell(script: &str) -> Step {
        Step {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            input: "",
            may_fail: false,
            timeout_ns: PATIENCE_NS,
        }
    }

    fn fault() -> Fault {
        Fault {
            kind: FaultKind::StickyError,
            code: Some(700),
            job: Some(JobKey {
                id: "a job; rm -rf /\n".to_owned(),
                uid: 1000,
                class: protocol::hello::JobClass::BestEffort,
            }),
            pid: Some(7),
            text: "what\0 happened".to_owned(),
        }
    }

    fn run(doings: &mut Doings, steps: Vec<Step>) -> Result<(), String> {
        let about = About {
            gpu: "GPU-1",
            seq: 3,
        };
        doings.run(0, "run", steps, &fault(), &about)
    }

    /// Goes on until everything is done; time stands at `now_ns`.
    fn outcomes(doings: &mut Doings, now_ns: u64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        loop {
            let _ = doings.poll(now_ns, &mut outcomes);
            if doings.is_idle() {
                return outcomes;
            }
            let mut fds: Vec<PollFd<'_>> = doings
                .descriptors()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let patience = Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            };
            assert_eq!(
                poll(&mut fds, Some(&patience)).map(|ready| ready > 0),
                Ok(true)
            );
        }
    }

    #[test]
    fn a_command_is_told_of_the_fault_and_no_shell_sees_what_a_job_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let script = format!(
            "printf '%s|' \"$PILLION_FAULT_KIND\" \"$PILLION_FAULT_CODE\" \"$PILLION_FAULT_JOB\" \"$PILLION_FAULT_UID\" \
             \"$PILLION_FAULT_PID\" \"$PILLION_FAULT_GPU\" \"$PILLION_FAULT_SEQ\" \"$PILLION_FAULT_TEXT\" > {}",
            out.display()
        );
        let mut doings = Doings::default();
        run(&mut doings, vec![shell(&script)]).unwrap();
        let told = outcomes(&mut doings, 0);
        assert!(told.len() == 1 && told[0].is_success, "{told:?}");
        let expected = "sticky-error|700|a job; rm -rf /\n|1000|7|GPU-1|3|what happened|";
        assert_eq!(std::fs::read_to_string(out).unwrap(), expected);
    }

    #[test]
    fn one_that_fails_ends_what_would_follow_unless_it_may() {
        for (may_fail, is_success, text) in [
            (false, false, "run: /bin/sh ended with 3"),
            (true, true, "run: /bin/sh has ended well"),
        ] {
            let mut doings = Doings::default();
            let first = Step {
                may_fail,
                ..shell("exit 3")
            };
            let second = Step {
                input: "quit\n",
                ..shell("read word; [ \"$word\" = quit ]")
            };
            run(&mut doings, vec![first, second]).unwrap();
            let [told] = &outcomes(&mut doings, 0)[..] else {
                panic!("one")
            };
            assert_eq!((told.is_success, told.text.as_str()), (is_success, text));
        }
    }

    #[test]
    fn one_that_takes_too_long_is_killed_with_all_that_it_started() {
        let mut doings = Doings::default();
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // It ignores what the daemon would be ended by, and its child holds on.
        let script = format!(
            "exec 9>{}; trap '' TERM INT HUP; sleep 1000 & wait",
            pipe.display()
        );
        run(&mut doings, vec![shell(&script)]).unwrap();
        let mut pipe = File::open(pipe).unwrap();
        let [told] = &outcomes(&mut doings, PATIENCE_NS)[..] else {
            panic!("one")
        };
        assert_eq!(told.text, "run: /bin/sh took too long and was killed");
        // Ends when nobody has the other end any more.
        assert_eq!(std::io::Read::read(&mut pipe, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_faults_of_one_users_jobs_leave_places_for_others_and_for_the_gpus() {
        let mut doings = Doings::default();
        let about = About {
            gpu: "GPU-1",
            seq: 3,
        };
        let mut run_for =
            |fault: &Fault| doings.run(0, "run", vec![shell("read word")], fault, &about);
        let of_user = |uid: u32| {
            let mut fault = fault();
            let key = fault.job.as_mut().unwrap();
            (key.uid, key.id) = (uid, uid.to_string());
            fault
        };
        for uid in 0..COMMANDS_MAX as u32 {
            let fault = of_user(uid);
            let taken = (0..10).filter(|_| run_for(&fault).is_ok()).count();
            assert_eq!(taken, if uid < 3 { COMMANDS_PER_USER } else { 0 }, "{uid}");
        }
        let of_gpu = Fault::of_xid(79);
        assert!((0..COMMANDS_OF_GPU).all(|_| run_for(&of_gpu).is_ok()));
        assert_eq!(run_for(&of_gpu).unwrap_err(), "8 commands run already");
        outcomes(&mut doings, 0);
    }

    #[test]
    fn there_are_never_too_many_and_what_is_not_there_is_said() {
        let mut doings = Doings::default();
        let missing = Step {
            command: vec!["/no/such/program".to_owned()],
            ..shell("")
        };
        let why = run(&mut doings, vec![missing]).unwrap_err();
        assert!(why.starts_with("/no/such/program cannot be run: "), "{why}");
        for _ in 0..COMMANDS_PER_USER {
            run(&mut doings, vec![shell("read word")]).unwrap();
        }
        let why = run(&mut doings, vec![shell("true")]).unwrap_err();
        assert_eq!(why, "2 commands for faults of this user's jobs run already");
        assert_eq!(outcomes(&mut doings, 0).len(), COMMANDS_PER_USER);
    }

    /// A process that does not end when it is asked to.
    struct Deaf(std::process::Child);

    impl Deaf {
        fn start() -> Self {
            let mut child = std::process::Command::new("/bin/sh")
                .args(["-c", "trap '' TERM; echo ready; exec sleep 1000"])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut ready = [0; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            Self(child)
        }

        fn open(&self) -> (u32, Arc<OwnedFd>) {
            let id = Pid::from_child(&self.0);
            let process = pidfd_open(id, PidfdFlags::empty()).unwrap();
            (self.0.id(), Arc::new(process))
        }

        /// To be evicted, as of this user's, under this number.
        fn evicted(&self, uid: u32, pid: u32) -> Evicted {
            Evicted {
                job: job_of(uid, "evicted"),
                pid,
                process: self.open().1,
                is_client: true,
            }
        }
    }

    impl Drop for Deaf {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn job_of(uid: u32, id: &str) -> JobKey {
        JobKey {
            id: id.to_owned(),
            uid,
            ..fault().job.unwrap()
        }
    }

    #[test]
    fn processes_that_may_not_be_sent_signals_are_asked_by_their_library_and_not_called_killed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be somebody else");
            return;
        }
        let deaf = Deaf::start();
        let (pid, process) = deaf.open();
        let end = move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let mut doings = Doings::default();
            let job = fault().job.unwrap();
            let begun = doings.end_job(5, &job, vec![(pid, process)], 10).unwrap();
            assert_eq!((begun.count, begun.denied), (1, 1));
            let mut told = Vec::new();
            assert_eq!(doings.poll(5, &mut told), [(job, vec![pid])]);
            assert_eq!(doings.poll(5 + DRAIN_NS, &mut told), []);
            // Its library may end it still.
            assert_eq!(doings.poll(5 + DRAIN_NS + KILL_NS, &mut told), []);
            assert_eq!(told, []);
            assert_eq!(doings.poll(5 + DRAIN_NS + FROZEN_NS, &mut told), []);
            told
        };
        let told = std::thread::spawn(end).join().unwrap();
        let text = told[0].text.as_str();
        assert!(
            text.contains("1 of 1 processes have not ended") && text.ends_with("no CAP_KILL"),
            "{text}"
        );
    }

    #[test]
    fn a_process_that_is_asked_and_does_not_end_is_drained_and_killed() {
        let mut deaf = Deaf::start();
        let pid = deaf.0.id();
        let job = fault().job.unwrap();
        let mut doings = Doings::default();
        let begun = doings.end_job(0, &job, vec![deaf.open()], 10).unwrap();
        assert_eq!((begun.count, begun.denied), (1, 0));
        let again = doings.end_job(0, &job, vec![deaf.open()], 10);
        assert_eq!(again, Ok(Begun::default()));
        let mut told = Vec::new();
        assert_eq!(doings.poll(9, &mut told), []);
        assert_eq!(doings.poll(10, &mut told), [(job.clone(), vec![pid])]);
        assert_eq!(doings.poll(10 + DRAIN_NS, &mut told), []);
        assert_eq!(told, []);
        deaf.0.wait().unwrap();
        let told = outcomes(&mut doings, 10 + DRAIN_NS);
        assert_eq!(
            told[0].text,
            "job \"a job; rm -rf /\\n\": its 1 processes have ended"
        );
    }

    #[test]
    fn a_process_that_is_evicted_while_its_job_is_being_ended_has_no_grace_any_more() {
        let deaf = Deaf::start();
        let pid = deaf.0.id();
        let job = job_of(7, "job");
        let mut doings = Doings::default();
        let grace_ns = 1_000_000;
        doings
            .end_job(0, &job, vec![deaf.open()], grace_ns)
            .unwrap();
        let mut told = Vec::new();
        assert_eq!(doings.poll(5, &mut told), []);
        assert_eq!(doings.evict(5, deaf.evicted(7, pid)), Ok(false));
        assert_eq!(doings.poll(5, &mut told), [(job, vec![pid])]);
    }

    #[test]
    fn one_users_jobs_leave_places_for_others_and_all_of_them_for_evictions() {
        const PER_JOB: usize = 32;
        let deaf = Deaf::start();
        let (_, process) = deaf.open();
        let mut doings = Doings::default();
        // Under numbers that no process has.
        let mut numbers = 1 << 30..;
        let mut restarts = |uid: u32| {
            let mut end = |place: &usize| {
                let pids = numbers.by_ref().take(PER_JOB);
                let processes = pids.map(|pid| (pid, Arc::clone(&process))).collect();
                let job = job_of(uid, &place.to_string());
                doings.end_job(0, &job, processes, 1).is_ok()
            };
            (0..RESTARTS_PER_USER / PER_JOB + 3)
                .filter(&mut end)
                .count()
        };
        let counts = [1, 2, 3, 4, 5].map(&mut restarts);
        assert_eq!(counts, [8, 8, 8, 6, 0]);
        let mut evictions = |uid: u32| {
            let mut evict = |pid: &u32| {
                let process = Arc::clone(&process);
                let evicted = Evicted {
                    job: job_of(uid, "evicted"),
                    pid: *pid,
                    process,
                    is_client: true,
                };
                doings.evict(0, evicted) == Ok(true)
            };
            let some = numbers.by_ref().take(EVICTIONS_PER_USER + 3);
            some.filter(|pid| evict(pid)).count()
        };
        let counts = [1, 2, 3, 4, 5].map(&mut evictions);
        assert_eq!(counts, [16, 16, 16, 16, 0]);
        assert_eq!(doings.count(|_| true), ENDINGS_MAX);
        let more = doings.end_job(0, &job_of(6, "more"), vec![(1, process)], 1);
        assert!(more.is_err());
    }

    /// Goes on, time at `now_ns`, until as many outcomes were told.
    fn wait_for_told(doings: &mut Doings, now_ns: u64, told: &mut Vec<Outcome>, count: usize) {
        loop {
            assert_eq!(doings.poll(now_ns, told), []);
            if told.len() >= count {
                return;
            }
            let minute = Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            };
            let mut fds: Vec<PollFd<'_>> = doings
                .descriptors()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            assert_ne!(poll(&mut fds, Some(&minute)), Ok(0), "{told:?}");
        }
    }

    #[test]
    fn mps_is_asked_before_a_kill_and_what_it_does_not_do_is_told() {
        let mut deaf = Deaf::start();
        let pid = deaf.0.id();
        let mut doings = Doings::new(Some(&["/no/such/program".to_owned()]));
        assert_eq!(doings.evict(0, deaf.evicted(7, pid)), Ok(true));
        let mut told = Vec::new();
        let job = job_of(7, "evicted");
        assert_eq!(doings.poll(0, &mut told), [(job, vec![pid])]);
        assert_eq!(doings.poll(DRAIN_NS, &mut told), []);
        assert!(deaf.0.try_wait().unwrap().is_none(), "MPS is asked first");
        wait_for_told(&mut doings, DRAIN_NS, &mut told, 2);
        assert!(deaf.0.wait().unwrap().code().is_none(), "it was killed");
        let expected = format!(
            "job \"evicted\": MPS did not end the work of 1 of its processes, which may take others along when they end; \
             of process {pid}: /no/such/program cannot be run: "
        );
        assert!(told[0].text.starts_with(&expected), "{told:?}");
        assert_eq!(
            told[1].text,
            format!("job \"evicted\": its process {pid} has ended")
        );
    }

    /// Whom a slow machine does not keep from asking.
    fn patient(command: &[String]) -> Doings {
        let mut doings = Doings::new(Some(command));
        doings.asker.as_mut().unwrap().patience = 1_000;
        doings
    }

    /// A control daemon's program that knows every process, and writes down which it is to end the work of.
    fn control(asked: &std::path::Path, pids: &[u32]) -> [String; 3] {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let script = format!(
            "read -r word server pid; case $word in get_server_list) echo 5 ;; \
             get_client_list) for pid in {}; do echo $pid; done ;; terminate_client) echo $pid >>{} ;; esac",
            pids.join(" "),
            asked.display()
        );
        ["/bin/sh".to_owned(), "-c".to_owned(), script]
    }

    #[test]
    fn users_take_turns_in_asking_mps() {
        let folder = tempfile::tempdir().unwrap();
        let asked = folder.path().join("asked");
        let many = [Deaf::start(), Deaf::start(), Deaf::start()];
        let one = Deaf::start();
        let pids: Vec<u32> = many.iter().chain([&one]).map(|deaf| deaf.0.id()).collect();
        let mut doings = patient(&control(&asked, &pids));
        let opened = many.iter().map(Deaf::open).collect();
        doings.end_job(0, &job_of(7, "many"), opened, 0).unwrap();
        doings.evict(0, one.evicted(8, one.0.id())).unwrap();
        let mut told = Vec::new();
        assert_eq!(doings.poll(0, &mut told).len(), 2);
        wait_for_told(&mut doings, DRAIN_NS, &mut told, 2);
        let order = std::fs::read_to_string(&asked).unwrap();
        let order: Vec<u32> = order.lines().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(order, [pids[0], pids[3], pids[1], pids[2]]);
        assert!(told.iter().all(|outcome| outcome.is_success), "{told:?}");
        assert_eq!(doings.descriptors().count(), 0, "nothing wakes who waits");
    }

    #[test]
    fn who_is_not_asked_for_in_time_is_killed_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // While this is open it does not answer.
        let silence = File::options().read(true).write(true).open(&pipe).unwrap();
        let script = format!("read word <{}", pipe.display());
        let control = ["/bin/sh".to_owned(), "-c".to_owned(), script];
        let mut doings = patient(&control);
        let late = [Deaf::start(), Deaf::start()];
        for (uid, late) in (7..).zip(&late) {
            doings.evict(0, late.evicted(uid, late.0.id())).unwrap();
        }
        let mut told = Vec::new();
        assert_eq!(doings.poll(0, &mut told).len(), 2);
        assert_eq!(doings.poll(DRAIN_NS, &mut told), []);
        assert_eq!(doings.poll(DRAIN_NS + TERMINATE_NS, &mut told), []);
        let texts: Vec<&str> = told.iter().map(|told| told.text.as_str()).collect();
        let [late, unasked] = texts.as_slice() else {
            panic!("{texts:?}");
        };
        assert!(late.ends_with("it has not answered in time"), "{late}");
        assert!(
            unasked.ends_with("it was not asked: others took the time"),
            "{unasked}"
        );
        wait_for_told(&mut doings, DRAIN_NS + TERMINATE_NS, &mut told, 4);
        drop(silence);
    }
}

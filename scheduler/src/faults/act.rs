//! What is done about a fault and takes its time: the processes of a job are ended, commands are run. Nobody waits for any of it.
//!
//! **A job is ended** as `pillion stop` does it: SIGTERM, on which it may save what it has; after the grace its processes are
//! asked to launch nothing more and to die once nothing is in flight; then SIGKILL. Only those that were clients when it began:
//! its supervisor may start new ones meanwhile.
//!
//! **A command** is a program and its arguments, without a shell, with the daemon's own rights, in a process group of its own,
//! its standard input empty and its output in the daemon's log. It is told about the fault in its environment
//! (`PILLION_FAULT_…`). What takes too long is killed with its group. At most [`COMMANDS_MAX`] run at once, [`COMMANDS_PER_USER`] of
//! them for faults of one user's jobs, and [`COMMANDS_OF_GPU`] only for the GPU's own.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid as NixPid;
use protocol::ending::{DRAIN_NS, KILL_NS};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::Fault;
use crate::memory::has_ended;
use crate::state::JobKey;

/// Commands at once.
pub(crate) const COMMANDS_MAX: usize = 8;
/// Of these for faults of one user's jobs.
const COMMANDS_PER_USER: usize = 2;
/// Places that faults of jobs, whosever they are, leave to those of the GPU.
const COMMANDS_OF_GPU: usize = 2;
/// Jobs that are ended at once: more than there can be best-effort ones.
const ENDINGS_MAX: usize = 64;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_success: bool,
    pub(crate) job: Option<JobKey>,
    pub(crate) text: String,
}

/// What is being done.
#[derive(Debug, Default)]
pub(crate) struct Doings {
    commands: Vec<Running>,
    endings: Vec<Ending>,
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
    child: NixPid,
    process: OwnedFd,
    end_ns: u64,
    is_killed: bool,
}

/// A job whose processes are to end.
#[derive(Debug)]
struct Ending {
    job: JobKey,
    processes: Vec<(u32, OwnedFd)>,
    count: usize,
    stage: Stage,
    /// When the next stage begins.
    next_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Draining,
    Killed,
}

/// Of how many processes the end has begun, and how many of them may not be sent signals by this daemon (no CAP_KILL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) count: usize,
    pub(crate) denied: usize,
}

/// A job whose processes are to launch nothing more and to end.
pub(crate) type ToStop = (JobKey, Vec<u32>);

impl Doings {
    /// Descriptors that are readable when something goes on.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let commands = self.commands.iter().map(|running| running.process.as_fd());
        let processes = self.endings.iter().flat_map(|ending| &ending.processes);
        commands.chain(processes.map(|(_, process)| process.as_fd()))
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
        processes: Vec<(u32, OwnedFd)>,
        grace_ns: u64,
    ) -> Result<Begun, String> {
        if self.endings.iter().any(|ending| ending.job == *job) {
            return Ok(Begun::default());
        }
        if processes.is_empty() {
            return Err(format!("job {:?} has no process that can be seen", job.id));
        }
        if self.endings.len() >= ENDINGS_MAX {
            return Err(format!("{ENDINGS_MAX} jobs are being ended already"));
        }
        let mut ending = Ending {
            job: job.clone(),
            count: processes.len(),
            processes,
            stage: Stage::Asked,
            next_ns: now_ns.saturating_add(grace_ns),
        };
        let begun = Begun {
            count: ending.count,
            denied: ending.signal(Signal::TERM),
        };
        if begun.denied == begun.count {
            // Nobody was asked, so there is no grace: each process's own library is asked at once.
            ending.next_ns = now_ns;
        }
        self.endings.push(ending);
        Ok(begun)
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
        let (child, process) = spawn(&step, &environment)?;
        self.commands.push(Running {
            name,
            job: fault.job.clone(),
            end_ns: now_ns.saturating_add(step.timeout_ns),
            step,
            rest: steps.collect(),
            environment,
            child,
            process,
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
        self.endings
            .retain_mut(|ending| ending.poll(now_ns, outcomes, &mut to_stop));
        to_stop
    }
}

impl Running {
    /// Itself, or what follows it, if it goes on.
    fn poll(mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) -> Option<Self> {
        let status = match waitpid(self.child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {
                if now_ns >= self.end_ns && !self.is_killed {
                    self.is_killed = true;
                    kill_group(self.child);
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
                match spawn(&step, &self.environment) {
                    Ok((child, process)) => {
                        self.end_ns = now_ns.saturating_add(step.timeout_ns);
                        (self.step, self.child, self.process) = (step, child, process);
                        self.is_killed = false;
                        return Some(self);
                    }
                    Err(why) => {
                        outcomes.push(Outcome {
                            is_success: false,
                            text: format!("{}: {why}", self.name),
                            job: self.job,
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
        });
        None
    }
}

impl Ending {
    /// Returns how many may not be sent it. One that has ended needs none.
    fn signal(&self, signal: Signal) -> usize {
        let is_denied = |process| pidfd_send_signal(process, signal) == Err(Errno::PERM);
        let processes = self.processes.iter();
        processes.filter(|(_, process)| is_denied(process)).count()
    }

    /// Whether it goes on.
    fn poll(
        &mut self,
        now_ns: u64,
        outcomes: &mut Vec<Outcome>,
        to_stop: &mut Vec<ToStop>,
    ) -> bool {
        self.processes.retain(|(_, process)| !has_ended(process));
        let (id, count, left) = (&self.job.id, self.count, self.processes.len());
        let text = match left {
            0 => Some(format!("job {id:?}: its {count} processes have ended")),
            _ if now_ns >= self.next_ns && self.stage == Stage::Killed => Some(format!(
                "job {id:?}: {left} of {count} processes do not end although they were killed"
            )),
            _ => None,
        };
        if let Some(text) = text {
            outcomes.push(Outcome {
                is_success: left == 0,
                job: Some(self.job.clone()),
                text,
            });
            return false;
        }
        if now_ns >= self.next_ns {
            self.advance(now_ns, to_stop);
        }
        true
    }

    fn advance(&mut self, now_ns: u64, to_stop: &mut Vec<ToStop>) {
        let next_ns = match self.stage {
            Stage::Asked => {
                self.stage = Stage::Draining;
                let pids = self.processes.iter().map(|(pid, _)| *pid).collect();
                to_stop.push((self.job.clone(), pids));
                DRAIN_NS
            }
            Stage::Draining | Stage::Killed => {
                self.stage = Stage::Killed;
                self.signal(Signal::KILL);
                KILL_NS
            }
        };
        self.next_ns = now_ns.saturating_add(next_ns);
    }
}

/// What a command is told beside the fault.
pub(crate) struct About<'a> {
    pub(crate) gpu: &'a str,
    /// Of the fault's event.
    pub(crate) seq: u64,
}

/// The daemon's own environment but for what is its service manager's word to it, and the fault. Jobs choose what they are
/// called: these are data, never to be evaluated.
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
    let own = std::env::vars_os().filter(|(name, _)| {
        name != "NOTIFY_SOCKET" && !name.as_bytes().starts_with(b"PILLION_FAULT_")
    });
    let own = own.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let of_fault = of_fault
        .iter()
        .map(|(name, value)| format!("PILLION_FAULT_{name}={value}").into_bytes());
    own.chain(of_fault)
        .map(|bytes| text_of(bytes.as_slice()))
        .collect()
}

/// A C string; what could not be in one is left out.
fn text_of(bytes: &[u8]) -> CString {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != 0).collect();
    CString::new(bytes).expect("no byte of it is zero")
}

/// Starts a program.
fn spawn(step: &Step, environment: &[CString]) -> Result<(NixPid, OwnedFd), String> {
    let program = step.command.first().ok_or("no program is named")?;
    let failed = |error: &dyn std::fmt::Display| format!("{program} cannot be run: {error}");
    let input = input_of(step.input).map_err(|error| failed(&error))?;
    let mut files = PosixSpawnFileActions::init().map_err(|error| failed(&error))?;
    let mut how = PosixSpawnAttr::init().map_err(|error| failed(&error))?;
    let prepared = files
        .add_dup2(input.as_raw_fd(), 0)
        .and_then(|()| files.add_dup2(2, 1))
        // The daemon's threads have signals blocked that would end it.
        .and_then(|()| how.set_sigmask(&SigSet::empty()))
        .and_then(|()| how.set_sigdefault(&SigSet::all()))
        .and_then(|()| how.set_pgroup(NixPid::from_raw(0)))
        .and_then(|()| {
            how.set_flags(
                PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
                    | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                    | PosixSpawnFlags::POSIX_SPAWN_SETPGROUP,
            )
        });
    prepared.map_err(|error| failed(&error))?;
    let arguments: Vec<CString> = step
        .command
        .iter()
        .map(|word| text_of(word.as_bytes()))
        .collect();
    let path = OsStr::new(program);
    let child = posix_spawn(path, &files, &how, &arguments, environment);
    let child = child.map_err(|error| failed(&error))?;
    let process = Pid::from_raw(child.as_raw())
        .ok_or_else(|| failed(&"it has no process id"))
        .and_then(|pid| {
            pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
                kill_group(child);
                failed(&error)
            })
        });
    Ok((child, process?))
}

/// A file with that text, at its beginning.
fn input_of(text: &str) -> std::io::Result<File> {
    if text.is_empty() {
        return File::open("/dev/null");
    }
    let mut file = File::from(memfd_create("pillion-input", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn kill_group(child: NixPid) {
    if let Some(group) = Pid::from_raw(child.as_raw()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::faults::FaultKind;

    const PATIENCE_NS: u64 = 30_000_000_000;

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
                tv_sec: 30,
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

    #[test]
    fn processes_that_may_not_be_sent_signals_are_asked_by_their_library_at_once() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be somebody else");
            return;
        }
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = child.id();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let end = move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let mut doings = Doings::default();
            let job = fault().job.unwrap();
            let begun = doings.end_job(5, &job, vec![(pid, process)], 10);
            (begun.unwrap(), doings.poll(5, &mut Vec::new()), job)
        };
        let (begun, to_stop, job) = std::thread::spawn(end).join().unwrap();
        assert_eq!((begun.count, begun.denied), (1, 1));
        assert_eq!(to_stop, [(job, vec![pid])]);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_asked_and_does_not_end_is_drained_and_killed() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; echo ready; exec sleep 1000"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let pid = child.id();
        let open = || pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let job = fault().job.unwrap();
        let mut doings = Doings::default();
        let begun = doings.end_job(0, &job, vec![(pid, open())], 10).unwrap();
        assert_eq!((begun.count, begun.denied), (1, 0));
        let again = doings.end_job(0, &job, vec![(pid, open())], 10);
        assert_eq!(again, Ok(Begun::default()));
        let mut told = Vec::new();
        assert_eq!(doings.poll(9, &mut told), []);
        assert_eq!(doings.poll(10, &mut told), [(job.clone(), vec![pid])]);
        assert_eq!(doings.poll(10 + DRAIN_NS, &mut told), []);
        assert_eq!(told, []);
        child.wait().unwrap();
        let told = outcomes(&mut doings, 10 + DRAIN_NS);
        assert_eq!(
            told[0].text,
            "job \"a job; rm -rf /\\n\": its 1 processes have ended"
        );
    }
}

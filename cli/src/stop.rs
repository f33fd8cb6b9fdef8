//! `pillion stop`: ends a running job without harm to others.
//!
//! The job consists of its clients and of those of their ancestors that have its id in their
//! environment, as these may restart processes ([`job`]). Processes that join meanwhile are asked
//! to end as well, and the job has ended once no process is left. The daemons know about the stop
//! from beginning to end: they inform a process that joins between two polls before it launches
//! anything, and one that was started meanwhile and attaches later.
//!
//! First the daemons inform each process that its end is supervised. Then a process that drains by
//! itself does not die with work in flight (`protocol::pages::STOP_OVERDUE`), and MPS is asked for
//! the termination at once, within the grace.
//!
//! Three steps follow, each for the processes that the previous one did not end:
//!
//! 1. SIGTERM: the job may save its state and launch (`--grace`).
//! 2. The daemon asks its processes to launch nothing more and to die once nothing is in flight.
//! 3. SIGKILL.
//!
//! The kernel sends some clients a signal when their parent ends (`PR_SET_PDEATHSIG`). Such a
//! parent is asked once the client has ended, and has a grace of its own then.
//!
//! If the command itself is ended (Ctrl-C), it tells the daemons that nobody supervises the job's
//! end any more, and then ends; processes that were asked stay asked. If it is killed, the daemons
//! see that by its process.
//!
//! A kill with work in flight can take other clients of MPS along. Therefore it comes last, and on
//! a GPU shared by MPS only after MPS was asked to end the work in flight ([`Control::terminate`]).

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;
use protocol::clock::Clock;
use protocol::ending::{DRAIN_NS, KILL_NS, SEEN_TO_NS, TERMINATE_NS};
use protocol::hello::{Ending, Reply, Request, Stop, ask_once};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use scheduler::host::mps::{CONTROL, Control, Doomed};
use serde_json::{Value, json};

use crate::daemons::PATIENCE;
use crate::deferred::Deferred;
use crate::failure::Failure;
use crate::out;
use crate::profile::output::counted;
use crate::run::every_socket;
use crate::times;

use job::{Job, Looked};

mod job;

/// Ends a running job: by SIGTERM, and by force after a grace.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion stop 4711-1c0ffee --grace 30s\n\n\
                  Each process of the job that uses the GPU gets SIGTERM. So do its ancestors that belong to the job (PILLION_JOB in their \
                  environment), and processes that attach meanwhile. After the grace the remaining processes launch nothing more, and exit \
                  once the GPU has finished their work. A process that does not exit then is killed, under MPS after \
                  nvidia-cuda-mps-control was asked to terminate its work. A process that handles no SIGTERM and has work on the GPU after \
                  PILLION_DRAIN_MS is killed within the grace if MPS terminates that work; if MPS cannot, the work has the rest of the grace to \
                  complete.\n\n\
                  `pillion status` lists the jobs. A process that starts during the stop is ended, too, if it attaches within a minute; a \
                  process that started earlier and attaches after the stop continues. Exit 0 if all processes have ended and no new one has \
                  attached.")]
pub(crate) struct Options {
    /// Id of the job, as `pillion status` shows it.
    #[arg(value_name = "JOB")]
    job: String,
    /// User id of the job's owner, if several users have a job of that id (root may end any job).
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// Time for the job to exit by itself, such as 500ms, 30s or 2m; a bare number is seconds.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = times::read)]
    grace: u64,
    /// Print one JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

/// Longer waits are reported.
const SILENT_NS: u64 = 1_000_000_000;
/// Interval for polling the daemons about the processes, ns.
const LOOK_NS: u64 = 250_000_000;
/// Time for a process to end by itself before it is killed, ns.
const ENDING_NS: u64 = 1_000_000;
/// [`ENDING_NS`] after MPS has ended its work: the process then exits by itself.
const ENDING_AFTER_MPS_NS: u64 = 1_000_000_000;

struct Process {
    pid: i32,
    name: String,
    /// Its user when it attached.
    uid: u32,
    /// Whether it is a daemon's client; if not, it has started one.
    is_client: bool,
    /// SIGTERM was sent.
    is_asked: bool,
    /// SIGTERM had to wait for other processes, so it has a grace of its own.
    has_waited: bool,
    /// Ancestors at whose end the kernel may send it a signal.
    falls_with: Vec<i32>,
    /// A pidfd: never refers to a later process with the same id.
    fd: Arc<OwnedFd>,
    /// Whether its GPU is shared by MPS, according to its daemon.
    is_on_mps: bool,
    /// The result of asking MPS to end its work, if that was asked.
    terminated: Option<Result<(), String>>,
    /// How it will have ended if it ends now.
    how: &'static str,
    /// How it ended, and when, ns after the start.
    ended: Option<(&'static str, u64)>,
}

const ASKED: &str = "on SIGTERM";
const KILLED: &str = "killed";

impl Process {
    /// Has MPS end its work, by the program in the search path.
    fn terminate(&self, control: &mut Control, clock: &Clock, end_ns: u64) -> Result<(), String> {
        let doomed = Doomed {
            pid: self.pid.cast_unsigned(),
            process: Arc::clone(&self.fd),
            uid: self.uid,
        };
        control.terminate(&[CONTROL.to_owned()], &doomed, clock, end_ns)
    }
}

/// Exits 69 if no daemon answers; 1 if none has the job or a part of it still runs.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let clock = Clock::monotonic();
    let mut job = Job::new(&options.job, options.user, sockets());
    let mut processes = job.processes()?;
    let (control, deferred) = interruptible();
    let mut stopping = Stopping {
        options,
        begun_ns: clock.now_ns(),
        clock,
        job,
        control,
        deferred,
        is_said: false,
        is_frozen: false,
    };
    let is_ended = stopping.end_all(&mut processes);
    stopping.leave(is_ended.is_ok() && left(&mut processes).next().is_none());
    // A deferred signal to this command takes effect here.
    drop(stopping);
    is_ended?;
    report(options, &processes)
}

struct Stopping<'a> {
    options: &'a Options,
    clock: Clock,
    begun_ns: u64,
    job: Job<'a>,
    control: Control,
    /// Defers signals that would end this command; none if that is impossible.
    deferred: Option<Deferred>,
    /// The wait was reported.
    is_said: bool,
    /// Its clients were asked to launch nothing more.
    is_frozen: bool,
}

impl Stopping<'_> {
    /// Tells the daemons that this command supervises the job's end; old daemons ignore that.
    fn see_to(&self, within_ns: u64) {
        self.tell(within_ns, false);
    }

    /// Tells the daemons that the supervision ends: it is over, or given up.
    fn leave(&self, is_over: bool) {
        self.tell(0, is_over);
    }

    fn tell(&self, within_ns: u64, is_over: bool) {
        let ending = Request::Ending(Ending {
            job: self.options.job.clone(),
            user: self.job.user,
            within_ns,
            is_over,
        });
        for socket in self.job.sockets() {
            let _ = ask_once(socket, &ending, PATIENCE);
        }
    }

    /// Asks its clients to launch nothing more and to end. Under a daemon that cannot do that, only
    /// the kill remains.
    fn freeze(&mut self) -> bool {
        self.is_frozen = true;
        let stop = Request::Stop(Stop {
            job: self.options.job.clone(),
            user: self.job.user,
        });
        let is_asked =
            |socket: &&PathBuf| matches!(ask_once(socket, &stop, PATIENCE), Ok(Reply::Done));
        // Every daemon is asked: a job may use several GPUs.
        self.job.sockets().iter().filter(is_asked).count() > 0
    }

    fn grace_left_ns(&self) -> u64 {
        let spent_ns = self.clock.now_ns() - self.begun_ns;
        self.options.grace.saturating_sub(spent_ns)
    }

    /// Ends all processes, those too that joined while the daemons heard that it is over; after the
    /// grace such processes remain.
    fn end_all(&mut self, processes: &mut Vec<Process>) -> Result<(), Failure> {
        self.see_to(self.options.grace.saturating_add(SEEN_TO_NS));
        ask(processes)?;
        loop {
            self.end(processes)?;
            if left(processes).next().is_some() {
                return Ok(());
            }
            // A process missing in this poll joins later: if it is an older one, daemons handle it.
            self.leave(true);
            self.look(processes)?;
            if left(processes).next().is_none() || self.grace_left_ns() == 0 {
                return Ok(());
            }
        }
    }

    /// Waits for the processes that were asked, and ends those that remain.
    fn end(&mut self, processes: &mut Vec<Process>) -> Result<(), Failure> {
        self.wait(processes, self.grace_left_ns())?;
        if left(processes).next().is_none() {
            return Ok(());
        }
        if self.freeze() {
            let its = left(processes).filter(|process| process.is_client && process.is_asked);
            its.for_each(|process| process.how = "drained");
            self.wait(processes, DRAIN_NS)?;
        }
        // Processes that wait for others' end have not been asked, or had no time since.
        let asked = left(processes).filter(|process| process.is_asked && !process.has_waited);
        let asked: Vec<i32> = asked.map(|process| process.pid).collect();
        self.kill(processes, &asked)?;
        self.wait_for_end(processes, KILL_NS)?;
        if left(processes).any(|process| process.how != KILLED) {
            self.wait(processes, self.options.grace)?;
            let others = left(processes).filter(|process| process.how != KILLED);
            let others: Vec<i32> = others.map(|process| process.pid).collect();
            self.kill(processes, &others)?;
            self.wait_for_end(processes, KILL_NS)?;
        }
        // Processes that have joined since remain.
        self.look(processes).map(drop)
    }

    /// Waits at most `longest_ns` until no process is left, new ones included. MPS is asked to end
    /// the work of those whose time to drain runs out.
    fn wait(&mut self, processes: &mut Vec<Process>, longest_ns: u64) -> Result<(), Failure> {
        let end_ns = self.clock.now_ns().saturating_add(longest_ns);
        loop {
            let overdue = self.look(processes)?;
            self.end_work(processes, &overdue)?;
            let left_ns = end_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 || left(processes).next().is_none() {
                return Ok(());
            }
            self.wait_for_end(processes, left_ns.min(LOOK_NS))?;
        }
    }

    /// Asks processes that have joined the job to end, too. Returns the overdue ones.
    fn look(&mut self, processes: &mut Vec<Process>) -> Result<Vec<i32>, Failure> {
        let Looked {
            new,
            overdue,
            are_anew,
        } = self.job.look(processes)?;
        if are_anew || !new.is_empty() {
            // This tells all daemons: for those that know it the deadline stays, or moves a little.
            self.see_to(self.grace_left_ns().saturating_add(SEEN_TO_NS));
            processes.extend(new);
            ask(processes)?;
            if self.is_frozen {
                self.freeze();
            }
        }
        let is_alive = |process: &Process| process.ended.is_none() && process.how != KILLED;
        let its = processes.iter().filter(|process| is_alive(process));
        let its = its.map(|process| process.pid);
        Ok(its.filter(|pid| overdue.contains(pid)).collect())
    }

    /// Has MPS end the work that is in flight after its process's time to drain, and kills that
    /// process. If MPS refuses, the work may still end within the grace, and then harms nobody.
    fn end_work(&mut self, processes: &mut [Process], pids: &[i32]) -> Result<(), Failure> {
        let is_new = |process: &&mut Process| {
            pids.contains(&process.pid) && !matches!(process.terminated, Some(Err(_)))
        };
        let new: Vec<i32> = left(processes).filter(is_new).map(|new| new.pid).collect();
        self.terminate(processes, &new);
        let mut ended = Vec::new();
        for process in left(processes).filter(|process| new.contains(&process.pid)) {
            match &process.terminated {
                Some(Err(why)) if !self.options.json => out::note(format_args!(
                    "{} {}: its work is still on the GPU, and MPS does not terminate it: {why}; it has the rest of its grace",
                    process.pid, process.name
                )),
                Some(Err(_)) => {}
                _ => ended.push(process.pid),
            }
        }
        self.kill(processes, &ended)
    }

    /// Asks MPS to end the work of those of these processes that are alive, unless it has.
    fn terminate(&mut self, processes: &mut [Process], pids: &[i32]) {
        let is_meant = |process: &&mut Process| {
            pids.contains(&process.pid) && process.is_on_mps && process.terminated != Some(Ok(()))
        };
        let end_ns = self.clock.now_ns().saturating_add(TERMINATE_NS);
        for process in left(processes).filter(is_meant) {
            let terminated = process.terminate(&mut self.control, &self.clock, end_ns);
            process.terminated = Some(terminated);
        }
    }

    /// Kills those of these processes that are alive; MPS is asked to end their work first.
    fn kill(&mut self, processes: &mut [Process], pids: &[i32]) -> Result<(), Failure> {
        if pids.is_empty() {
            return Ok(());
        }
        self.terminate(processes, pids);
        let is_meant = |process: &&mut Process| pids.contains(&process.pid);
        let ending_ns = match left(processes).any(|process| process.terminated == Some(Ok(()))) {
            true => ENDING_AFTER_MPS_NS,
            false => ENDING_NS,
        };
        // A process that ended meanwhile was not killed.
        self.wait_for_end(processes, ending_ns)?;
        for process in left(processes).filter(is_meant) {
            send(std::slice::from_ref(process), Signal::KILL)?;
            process.how = KILLED;
        }
        Ok(())
    }

    fn wait_for_end(&mut self, processes: &mut [Process], ns: u64) -> Result<(), Failure> {
        let is_quiet = self.options.json;
        let (clock, begun_ns) = (&self.clock, self.begun_ns);
        let has_come = self.deferred.as_ref().map(|deferred| &deferred.has_come);
        let is_said = &mut self.is_said;
        wait(clock, begun_ns, processes, ns, has_come, is_said, is_quiet)
    }
}

fn left(processes: &mut [Process]) -> impl Iterator<Item = &mut Process> {
    processes
        .iter_mut()
        .filter(|process| process.ended.is_none())
}

/// A control that works until this command is to end, and the deferral until the daemons know it.
fn interruptible() -> (Control, Option<Deferred>) {
    let deferred = Deferred::begin().ok();
    let has_come = deferred.as_ref();
    let has_come = has_come.and_then(|deferred| deferred.has_come.try_clone().ok());
    (
        has_come.map_or_else(Control::default, Control::until),
        deferred,
    )
}

fn sockets() -> Vec<PathBuf> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    named.map_or_else(every_socket, |path| vec![path])
}

/// Sends SIGTERM to the living processes without one; to ancestors whose end would make the kernel
/// kill other processes, only once those have ended.
fn ask(processes: &mut [Process]) -> Result<(), Failure> {
    let waited_for: Vec<i32> = left(processes)
        .flat_map(|process| process.falls_with.clone())
        .collect();
    for process in left(processes).filter(|process| !process.is_asked) {
        if waited_for.contains(&process.pid) {
            process.has_waited = true;
        } else {
            send(std::slice::from_ref(process), Signal::TERM)?;
            process.is_asked = true;
        }
    }
    Ok(())
}

fn send(processes: &[Process], signal: Signal) -> Result<(), Failure> {
    for process in processes.iter().filter(|process| process.ended.is_none()) {
        match pidfd_send_signal(&process.fd, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(Errno::PERM) => {
                return Err(anyhow!(
                    "process {} ({}) belongs to another user: only that user and root may stop it",
                    process.pid,
                    process.name
                )
                .into());
            }
            Err(error) => return Err(anyhow!("process {}: {error}", process.pid).into()),
        }
    }
    Ok(())
}

/// Waits until all have ended or the time is over, records how, and asks those that waited for
/// them. Fails once `has_come` is readable: this command is to end.
fn wait(
    clock: &Clock,
    begun_ns: u64,
    processes: &mut [Process],
    longest_ns: u64,
    has_come: Option<&OwnedFd>,
    is_said: &mut bool,
    is_quiet: bool,
) -> Result<(), Failure> {
    let end_ns = clock.now_ns().saturating_add(longest_ns);
    loop {
        ask(processes)?;
        let now_ns = clock.now_ns();
        let mut waiting: Vec<&mut Process> = processes
            .iter_mut()
            .filter(|process| process.ended.is_none())
            .collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if !*is_said && !is_quiet && now_ns - begun_ns >= SILENT_NS {
            *is_said = true;
            let count = counted(waiting.len() as u64, "process", "processes");
            out::note(format_args!("waiting for {count} of the job to exit"));
        }
        let left_ns = end_ns.saturating_sub(now_ns).min(SILENT_NS);
        let timeout = Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let mut fds: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|process| PollFd::new(&process.fd, PollFlags::IN))
            .collect();
        fds.extend(has_come.map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(anyhow!("cannot wait for processes: {error}").into()),
        }
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ended.get(waiting.len()) == Some(&true) {
            return Err(Failure::silent());
        }
        let after_ns = clock.now_ns() - begun_ns;
        for (process, _) in waiting.iter_mut().zip(ended).filter(|(_, ended)| *ended) {
            process.ended = Some((process.how, after_ns));
        }
        if now_ns >= end_ns {
            return Ok(());
        }
    }
}

fn report(options: &Options, processes: &[Process]) -> Result<(), Failure> {
    let left = processes.iter().filter(|process| process.ended.is_none());
    let is_over = left.count() == 0;
    if options.json {
        let processes: Vec<Value> = processes
            .iter()
            .map(|process| {
                let (how, after_ns) = process.ended.unzip();
                let after_ms = after_ns.map(|ns| ns as f64 / 1e6);
                let mps = process.terminated.as_ref().map(|terminated| match terminated {
                    Ok(()) => "terminated",
                    Err(why) => why,
                });
                json!({
                    "pid": process.pid, "name": process.name, "client": process.is_client, "ended": how, "after_ms": after_ms, "mps": mps,
                })
            })
            .collect();
        out::line(format_args!(
            "{}",
            json!({"schema_version": 1, "job": options.job, "processes": processes})
        ))?;
    } else {
        for process in processes {
            let (pid, name) = (process.pid, &process.name);
            if let (Some(Err(why)), Some((KILLED, _)) | None) = (&process.terminated, process.ended)
            {
                out::note(format_args!(
                    "{pid} {name}: MPS did not terminate its work before the kill, which may end other jobs: {why}"
                ));
            }
            match process.ended {
                Some((how, after_ns)) => {
                    let after_ms = after_ns as f64 / 1e6;
                    out::line(format_args!(
                        "{pid} {name}: ended {how} after {after_ms:.0} ms"
                    ))?;
                }
                None => out::line(format_args!("{pid} {name}: still running"))?,
            }
        }
    }
    if is_over {
        Ok(())
    } else {
        Err(Failure::silent())
    }
}

//! Finds the processes of a job that is to end: its clients, as the daemons report them, and the
//! ancestors that started them and belong to the job. A job is an id and a user. An ancestor of the
//! same user with the job's id in its environment (`PILLION_JOB`) may restart what has ended, and
//! so belongs to the job; ancestors of this command are spared. Siblings without a client among
//! their descendants are not searched: the job must end its helpers (workers that load data).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use protocol::hello::connect_to;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use scheduler::host::peer;
use scheduler::host::unattached::{ancestors, supervisors};
use serde_json::Value;

use super::Process;
use crate::daemons::none_answers;
use crate::failure::Failure;
use crate::profile::output::counted;
use crate::status;

pub(super) struct Job<'a> {
    id: &'a str,
    pub(super) user: Option<u32>,
    sockets: Vec<PathBuf>,
    /// The clients seen so far: the daemon's index and their number there.
    known: BTreeSet<(usize, u64)>,
}

#[derive(Default)]
pub(super) struct Looked {
    pub(super) new: Vec<Process>,
    pub(super) overdue: BTreeSet<i32>,
    /// A client has changed its daemon: one that replaced another knows nothing about the stop.
    pub(super) are_anew: bool,
}

struct Client {
    name: String,
    uid: u32,
    is_on_mps: bool,
    /// Its time to drain is over, and it waits for the supervisor of its end.
    is_overdue: bool,
    /// The kernel sends it a signal when its parent ends.
    falls_with_parent: bool,
    /// A process that uses several GPUs is several clients.
    numbers: Vec<(usize, u64)>,
}

struct Told {
    clients: BTreeMap<i32, Client>,
    jobs: Vec<String>,
}

impl<'a> Job<'a> {
    pub(super) fn new(id: &'a str, user: Option<u32>, sockets: Vec<PathBuf>) -> Self {
        Self {
            id,
            user,
            sockets,
            known: BTreeSet::new(),
        }
    }

    pub(super) fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Its processes: at least one, all of one user.
    pub(super) fn processes(&mut self) -> Result<Vec<Process>, Failure> {
        let told = self.told()?;
        let (id, users) = (self.id, told.users());
        if users.len() > 1 {
            let users: Vec<String> = users.iter().map(u32::to_string).collect();
            let users = users.join(", ");
            return Err(anyhow!(
                "several users have a job {id:?} ({users}): choose one with --user"
            )
            .into());
        }
        // From here on the job is that user's, even if others have one of that id.
        self.user = users.first().copied().or(self.user);
        let known = match told.jobs.as_slice() {
            [] => "no job is running".to_owned(),
            jobs => format!("running jobs: {}", jobs.join(", ")),
        };
        let processes = self.take_new(&told, &[])?;
        if processes.is_empty() {
            return Err(anyhow!("no process of a job {id:?} uses a GPU; {known}").into());
        }
        Ok(processes)
    }

    /// New and overdue processes; none if no daemon answers.
    pub(super) fn look(&mut self, processes: &[Process]) -> Result<Looked, Failure> {
        let Ok(told) = self.told() else {
            return Ok(Looked::default());
        };
        let clients = told.clients.iter();
        let overdue = clients.filter(|(_, client)| client.is_overdue);
        let mut numbers = told.clients.values().flat_map(|client| &client.numbers);
        Ok(Looked {
            overdue: overdue.map(|(pid, _)| *pid).collect(),
            are_anew: numbers.any(|number| !self.known.contains(number)),
            new: self.take_new(&told, processes)?,
        })
    }

    /// New clients and their supervisors, except processes that are already known and alive.
    fn take_new(&mut self, told: &Told, there: &[Process]) -> Result<Vec<Process>, Failure> {
        let is_there = |pid: i32, found: &[Process]| {
            let mut all = there.iter().chain(found);
            all.any(|process| process.pid == pid && process.ended.is_none())
        };
        let mut new = Vec::new();
        for (&pid, client) in &told.clients {
            let is_seen = client
                .numbers
                .iter()
                .all(|number| self.known.contains(number));
            self.known.extend(&client.numbers);
            if !is_seen && !is_there(pid, &new) {
                let process = open(pid)?.map(|fd| process(pid, client, fd));
                new.extend(process);
            }
        }
        if new.is_empty() {
            return Ok(new);
        }
        // Check again after opening: an id that was free in between would be another process's.
        let still = self.told()?;
        new.retain(|process| still.clients.contains_key(&process.pid));
        let own: BTreeSet<u32> = [std::process::id()]
            .into_iter()
            .chain(ancestors(std::process::id()))
            .collect();
        for place in 0..new.len() {
            let (client, uid) = (new[place].pid.cast_unsigned(), new[place].uid);
            let falls = still.clients.get(&new[place].pid);
            // Later processes delay nobody: with constant restarts there would always be one.
            let falls = there.is_empty() && falls.is_some_and(|client| client.falls_with_parent);
            for supervisor in supervisors(client, self.id, uid) {
                let pid = supervisor.cast_signed();
                if falls {
                    new[place].falls_with.push(pid);
                }
                if own.contains(&supervisor) || is_there(pid, &new) {
                    continue;
                }
                let Some(fd) = open(pid)? else { continue };
                // Check again after opening, as above: the id may be another process's by now.
                if supervisors(client, self.id, uid).contains(&supervisor) {
                    new.push(supervising(pid, command_name(pid), uid, fd));
                }
            }
        }
        Ok(new)
    }

    fn told(&self) -> Result<Told, Failure> {
        let sockets = self.sockets.iter().enumerate();
        let mut silent = Vec::new();
        let mut statuses: Vec<(usize, &PathBuf, Value)> = Vec::new();
        for (place, socket) in sockets {
            match status::ask(socket) {
                Ok(status) => statuses.push((place, socket, status)),
                Err(error) => silent.push(format!("{}: {error}", socket.display())),
            }
        }
        if statuses.is_empty() {
            return Err(none_answers(&silent));
        }
        let mut told = Told {
            clients: BTreeMap::new(),
            jobs: Vec::new(),
        };
        for (place, socket, status) in &statuses {
            for job in all(status, "jobs") {
                let clients = all(job, "clients");
                let id = job["job"].as_str().unwrap_or_default();
                if !clients.is_empty() && !told.jobs.iter().any(|job| job == id) {
                    told.jobs.push(id.to_owned());
                }
                if id == self.id && !clients.is_empty() {
                    let is_meant = |client: &&Value| {
                        let user = self.user.map(u64::from);
                        user.is_none() || client["uid"].as_u64() == user
                    };
                    let is_unseen = |client: &&Value| client["pid"] == 0;
                    let unseen = clients.iter().filter(is_meant).filter(is_unseen).count();
                    check_numbers(id, socket, status, unseen)?;
                    for client in clients {
                        self.add(&mut told, *place, client);
                    }
                }
            }
        }
        Ok(told)
    }

    fn add(&self, told: &mut Told, place: usize, client: &Value) {
        let pid = client["pid"].as_i64().and_then(|pid| pid.try_into().ok());
        let uid = client["uid"].as_u64().and_then(|uid| uid.try_into().ok());
        // No user's, if the daemon does not report one.
        let uid = uid.unwrap_or(u32::MAX);
        // 0 is a process that the daemon cannot see, which `check_numbers` reports.
        let Some(pid) = pid.filter(|&pid| pid > 0 && self.user.is_none_or(|user| user == uid))
        else {
            return;
        };
        let known = told.clients.entry(pid).or_insert_with(|| Client {
            name: client["name"].as_str().unwrap_or_default().to_owned(),
            uid,
            is_on_mps: false,
            is_overdue: false,
            falls_with_parent: false,
            numbers: Vec::new(),
        });
        known.is_on_mps |= client["sharing"] == "mps";
        known.is_overdue |= client["overdue"] == true;
        known.falls_with_parent |= client["falls_with_parent"] == true;
        let number = client["client"].as_u64();
        known.numbers.extend(number.map(|number| (place, number)));
    }
}

impl Told {
    fn users(&self) -> Vec<u32> {
        let users: BTreeSet<u32> = self.clients.values().map(|client| client.uid).collect();
        users.into_iter().collect()
    }
}

fn all<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Process ids belong to the daemon's PID namespace. Fails in another one, where they are other
/// processes', and if the daemon cannot number `unseen` of the job's processes.
fn check_numbers(id: &str, socket: &Path, status: &Value, unseen: usize) -> Result<(), Failure> {
    let of_daemon = |status: &Value| status["daemon"]["pid"].as_u64();
    let is_ours = |status: &Value| {
        let listener = connect_to(socket).ok();
        let pid = listener.and_then(|socket| peer::number_of(&socket));
        pid.is_some() && pid.map(u64::from) == of_daemon(status)
    };
    // Ask again: another daemon may have taken over between status and number.
    if !is_ours(status) && !status::ask(socket).is_ok_and(|status| is_ours(&status)) {
        return Err(anyhow!(
            "the daemon at {} is in another PID namespace (in a container, or this command is), so its process ids mean other processes here; run \
             `pillion stop` in the daemon's namespace",
            socket.display()
        )
        .into());
    }
    if unseen > 0 {
        let count = counted(unseen as u64, "process", "processes");
        return Err(anyhow!(
            "the daemon at {} does not see {count} of job {id:?} in a PID namespace outside its own; end what is left of the job in that \
             namespace, or run the daemon in a namespace that contains it",
            socket.display()
        )
        .into());
    }
    Ok(())
}

fn open(pid: i32) -> Result<Option<OwnedFd>, Failure> {
    let Some(id) = Pid::from_raw(pid) else {
        return Ok(None);
    };
    match pidfd_open(id, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(anyhow!("process {pid}: {error}").into()),
    }
}

fn command_name(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn process(pid: i32, client: &Client, fd: OwnedFd) -> Process {
    Process {
        is_client: true,
        is_on_mps: client.is_on_mps,
        ..supervising(pid, client.name.clone(), client.uid, fd)
    }
}

/// A process that is no client and has started one.
fn supervising(pid: i32, name: String, uid: u32, fd: OwnedFd) -> Process {
    Process {
        pid,
        name,
        uid,
        is_client: false,
        is_asked: false,
        has_waited: false,
        falls_with: Vec::new(),
        fd: Arc::new(fd),
        is_on_mps: false,
        terminated: None,
        how: super::ASKED,
        ended: None,
    }
}

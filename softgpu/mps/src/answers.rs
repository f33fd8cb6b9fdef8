//! The control daemon's answers to commands. If no server has the given number, the answers are
//! NVIDIA's, word by word, as is everything about settings. If there is one:
//!
//! | command | answer | from |
//! |---|---|---|
//! | `get_server_list` | its number | observed |
//! | `get_server_status` | `INITIALIZING` | observed |
//! | | `ACTIVE`, `FAULT` | NVIDIA's guide on errors has these two states |
//! | `get_client_list` | a number on each line | NVIDIA's man page: a list of numbers |
//! | `terminate_client` | `1` if it has no such client | refusals end so |
//! | | `0` | assumed: the same kind of number |
//! | `…active_thread_percentage PID` | as of the default | assumed |
//! | `shutdown_server`, `start_server` | nothing | observed with a server that does not answer |
//! | `…device_pinned_mem_limit PID` | nothing | likewise |
//! | `get_device_client_list`, `ps` | a line: not imitated | no text known to us has their form |
//!
//! A server that is not ready gets no requests: as with NVIDIA's, it counts as not found, or the
//! answer is empty. NVIDIA's `get_client_list` waits until it is ready; this one returns nothing.

use crate::daemon::{Daemon, Pending};
use crate::device;
use crate::process::Process;
use crate::settings::number;

const NO_QUIT: &str = "Not enough privilege to execute quit command\n";
const NOT_IMITATED: &str = "the software GPU does not imitate this answer\n";
/// `INVALID_VALUE`, and the answer for success.
const REFUSED: &str = "1\n";
const TERMINATED: &str = "0\n";

impl Daemon {
    /// The answer to a user's command; `None` if it comes later, or never.
    pub(crate) fn answer(&mut self, line: &str, front: u64, uid: u32) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, words) = words.split_first().unwrap_or((&"", &[]));
        let word = |index: usize| words.get(index).copied();
        let pid = word(0).map_or(0, number);
        let settings = &mut self.settings;
        Some(match *command {
            "get_server_list" => self.server_list(),
            "get_server_status" if self.release.has_server_status() => self.server_status(pid),
            "start_server" => self.start_server(words, uid),
            "shutdown_server" => self.shutdown_server(pid, word(1) == Some("-f")),
            "get_client_list" => self.of_server(pid, client_list),
            "get_device_client_list" if words.is_empty() && self.server.is_none() => String::new(),
            "get_device_client_list" if words.is_empty() => NOT_IMITATED.to_owned(),
            "get_device_client_list" => self.of_server(pid, |_| NOT_IMITATED.to_owned()),
            "ps" => self.ps(words),
            "terminate_client" => self.terminate_client(pid, word(1).map_or(0, number)),
            "get_default_active_thread_percentage" => settings.percentage(),
            "get_default_device_pinned_mem_limit" => settings.pinned(word(0)),
            "get_default_client_priority" => settings.priority(),
            "set_default_active_thread_percentage"
            | "set_default_device_pinned_mem_limit"
            | "set_default_client_priority" => self.set_default(command, words, uid),
            "get_active_thread_percentage" => {
                self.of_server(pid, |server| server.percentage.clone())
            }
            "set_active_thread_percentage" => self.set_percentage(pid, word(1)),
            "get_device_pinned_mem_limit" | "set_device_pinned_mem_limit" => {
                self.of_server(pid, |_| String::new())
            }
            "quit" if !is_owner(uid) => NO_QUIT.to_owned(),
            "quit" => {
                let patience = (word(0) == Some("-t")).then(|| word(1).map_or(0, number));
                self.begin_to_quit(front, patience.and_then(|s| s.try_into().ok()));
                return None;
            }
            other => format!("Unknown command \"{other}\"\n"),
        })
    }

    fn server_list(&self) -> String {
        let server = self.server.as_ref();
        server.map_or_else(String::new, |server| format!("{}\n", server.pid()))
    }

    fn server(&self, pid: i32) -> Option<&Process> {
        let server = self.server.as_ref();
        server.filter(|server| i64::from(server.pid()) == i64::from(pid))
    }

    /// The answer of a server; empty for one that is not ready.
    fn of_server(&self, pid: i32, answer: impl FnOnce(&Process) -> String) -> String {
        match self.server(pid) {
            None => not_found(pid),
            Some(server) if server.is_ready() => answer(server),
            Some(_) => String::new(),
        }
    }

    fn server_status(&self, pid: i32) -> String {
        if pid == 0 {
            return "A server PID is required\n".to_owned();
        }
        match self.server(pid) {
            None => not_found(pid),
            Some(server) if !server.is_ready() => "INITIALIZING\n".to_owned(),
            Some(_) => match device::clients().is_ok_and(|clients| clients.is_in_fault) {
                true => "FAULT\n".to_owned(),
                false => "ACTIVE\n".to_owned(),
            },
        }
    }

    fn start_server(&mut self, words: &[&str], uid: u32) -> String {
        let of = words.windows(2).find(|pair| pair[0] == "-uid");
        let of = of.map(|pair| pair[1]);
        let is_number = |word: &&str| {
            let digits = word.strip_prefix('-').unwrap_or(word);
            digits.starts_with(|first: char| first.is_ascii_digit())
        };
        let Some(of) = of.filter(is_number) else {
            return "A user id (UID) is required to start a new server\n".to_owned();
        };
        let of = number(of) as u32;
        if uid != 0 && uid != of {
            return match self.release.guards_settings() {
                true => format!(
                    "Insufficient privileges for UID {uid}. Only the root user may start server for another user.\n"
                ),
                false => format!("Insufficient privileges for UID {uid}\n"),
            };
        }
        self.await_server(Pending {
            uid: of,
            tries_left: 1,
            is_of_client: false,
        });
        String::new()
    }

    fn shutdown_server(&mut self, pid: i32, is_forced: bool) -> String {
        if self.server(pid).is_none() {
            return not_found(pid);
        }
        if let Some(server) = &mut self.server {
            match is_forced {
                true => server.force(),
                false => server.is_to_end = true,
            }
        }
        if is_forced {
            self.log.write(&format!("Force shutting down server {pid}"));
        }
        String::new()
    }

    fn ps(&self, words: &[&str]) -> String {
        if self.server.as_ref().is_some_and(Process::is_ready) {
            return NOT_IMITATED.to_owned();
        }
        if words.first() != Some(&"-p") {
            return "Server not found\n".to_owned();
        }
        let pid = words.get(1).map_or(0, |word| number(word));
        let times = if self.server(pid).is_some() { 1 } else { 2 };
        format!("{}\n", not_found(pid).repeat(times))
    }

    fn terminate_client(&self, server: i32, client: i32) -> String {
        let refused = format!("Server {server} not found!\n{REFUSED}");
        match self.server(server) {
            None => not_found(server) + &refused,
            Some(server) if !server.is_ready() => refused,
            Some(server) => match terminate(server.pid(), client) {
                true => TERMINATED.to_owned(),
                false => REFUSED.to_owned(),
            },
        }
    }

    fn set_default(&mut self, command: &str, words: &[&str], uid: u32) -> String {
        if self.release.guards_settings() && !is_owner(uid) {
            return format!(
                "Insufficient privileges for UID {uid}. Control deamon settings can only be modified by the user started it or by the \
                 root user.\n"
            );
        }
        let word = |index: usize| words.get(index).copied();
        let settings = &mut self.settings;
        match command {
            "set_default_active_thread_percentage" => {
                settings.set_percentage(word(0));
                settings.percentage()
            }
            "set_default_device_pinned_mem_limit" => {
                settings.set_pinned(word(0), word(1));
                String::new()
            }
            _ => settings.set_priority(word(0)).to_owned(),
        }
    }

    fn set_percentage(&mut self, pid: i32, word: Option<&str>) -> String {
        let mut settings = self.settings.clone();
        let is_ready = self.server(pid).is_some_and(Process::is_ready);
        if let Some(server) = self.server.as_mut().filter(|_| is_ready) {
            settings.set_percentage(Some(&server.percentage));
            settings.set_percentage(word);
            server.percentage = settings.percentage();
        }
        self.of_server(pid, |server| server.percentage.clone())
    }
}

fn not_found(pid: i32) -> String {
    format!("Server {pid} not found\n")
}

/// Whether that user started the daemon, or is root.
fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn client_list(server: &Process) -> String {
    let clients = device::clients().map(|all| all.clients).unwrap_or_default();
    let clients = clients
        .iter()
        .filter(|client| client.server == server.pid());
    clients.map(|client| format!("{}\n", client.pid)).collect()
}

/// Terminates the work in flight of that server's client; false if it has no such client.
fn terminate(server: u32, pid: i32) -> bool {
    let Ok(pid) = u32::try_from(pid) else {
        return false;
    };
    let clients = device::clients().map(|all| all.clients).unwrap_or_default();
    let is_client = clients
        .iter()
        .any(|client| (client.server, client.pid) == (server, pid));
    is_client && device::terminate(pid).is_ok()
}

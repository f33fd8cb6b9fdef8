//! Asks all daemons at once; a silent one delays the page by one to three seconds, and is 0 on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use protocol::clock::Clock;
use serde_json::Value;

use super::encode::Format;
use super::metrics::{self, Answer, Host, Memory};
use super::pod;
use crate::daemons;
use crate::status::ask_within;

const STEP_PATIENCE: Duration = Duration::from_secs(1);
/// Timeout for all daemons together, ns. Prometheus waits ten seconds for a page by default.
const PATIENCE_NS: u64 = 3_000_000_000;
/// Limit on the daemons asked, a thread each: sixteen GPUs in seven parts each, and some more.
const DAEMONS_MAX: usize = 128;
const GPUS: &str = "/proc/driver/nvidia/gpus";

#[derive(Debug, Default)]
pub(super) struct Collector {
    memory: Mutex<Memory>,
    /// Sockets whose answer is pending: a daemon that never answers is asked once, by one thread.
    asked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Collector {
    /// The current page. One at a time, to limit the load on daemons.
    pub(super) fn page(&self, format: Format) -> String {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = self.ask(daemons::sockets());
        let machine = Machine::of(Path::new(GPUS));
        format.write(&metrics::page(&answers, &machine, &mut memory))
    }

    /// Each daemon's answer, without a status if it did not arrive in time.
    fn ask(&self, mut sockets: Vec<PathBuf>) -> Vec<Answer> {
        sockets.dedup();
        sockets.truncate(DAEMONS_MAX);
        let (sender, receiver) = channel();
        let mut awaited: BTreeSet<PathBuf> = BTreeSet::new();
        for socket in &sockets {
            if !locked(&self.asked).insert(socket.clone()) {
                continue;
            }
            let (asked, sender, to) = (Arc::clone(&self.asked), sender.clone(), socket.clone());
            let ask = move || {
                let status: Option<Value> = ask_within(&to, STEP_PATIENCE).ok();
                locked(&asked).remove(&to);
                // The page may have been written without this answer.
                let _ = sender.send((to, status));
            };
            match thread::Builder::new().spawn(ask) {
                Ok(_) => drop(awaited.insert(socket.clone())),
                Err(_) => drop(locked(&self.asked).remove(socket)),
            }
        }
        let clock = Clock::monotonic();
        let until_ns = clock.now_ns() + PATIENCE_NS;
        let mut answers: Vec<Answer> = Vec::new();
        while !awaited.is_empty() {
            let left = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
            match receiver.recv_timeout(left) {
                Ok((socket, status)) => {
                    awaited.remove(&socket);
                    answers.push(Answer { socket, status });
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        for socket in sockets {
            if !answers.iter().any(|answer| answer.socket == socket) {
                let status = None;
                answers.push(Answer { socket, status });
            }
        }
        answers.sort_by(|a, b| a.socket.cmp(&b.socket));
        answers
    }
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Machine {
    /// PCI bus ids of its GPUs in the driver's order.
    gpus: Vec<Bus>,
}

/// Domain, bus, and device with function.
type Bus = (u32, u32, String);

impl Machine {
    fn of(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut gpus: Vec<Bus> = names.filter_map(|name| bus_of(&name)).collect();
        gpus.sort();
        Self { gpus }
    }
}

impl Host for Machine {
    fn pod_of(&self, pid: u64) -> Option<String> {
        pod::uid_in(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
    }

    fn index_of(&self, pci: &str) -> Option<String> {
        let bus = bus_of(pci)?;
        let place = self.gpus.iter().position(|gpu| *gpu == bus)?;
        Some(place.to_string())
    }
}

/// Parses `0000:01:00.0`; NVML writes eight digits of the domain.
fn bus_of(text: &str) -> Option<Bus> {
    let mut parts = text.splitn(3, ':');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let (domain, bus) = (number()?, number()?);
    Some((domain, bus, parts.next()?.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_numbered_by_its_place_on_the_bus() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "0000:c1:00.0",
            "0000:1A:00.0",
            "10000:01:00.0",
            "0000:02:00.0",
            "no",
        ] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let machine = Machine::of(folder.path());
        for (pci, index) in [
            ("0000:02:00.0", Some("0")),
            ("00000000:1a:00.0", Some("1")),
            ("0000:c1:00.0", Some("2")),
            ("10000:01:00.0", Some("3")),
            ("0000:03:00.0", None),
            ("N/A", None),
        ] {
            assert_eq!(machine.index_of(pci).as_deref(), index, "{pci}");
        }
        assert_eq!(Machine::of(&folder.path().join("none")).gpus, []);
    }

    #[test]
    fn sockets_at_which_nobody_listens_are_listed_as_silent_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("b.sock");
        std::fs::write(&left, "").unwrap();
        let none = folder.path().join("a.sock");
        let collector = Collector::default();
        for _ in 0..2 {
            let answers = collector.ask(vec![left.clone(), none.clone()]);
            let silent = answers.iter().filter(|answer| answer.status.is_none());
            let sockets: Vec<&PathBuf> = silent.map(|answer| &answer.socket).collect();
            assert_eq!(sockets, [&none, &left]);
        }
        assert!(locked(&collector.asked).is_empty());
    }

    /// The socket accepts and never answers, like that of a stopped daemon.
    #[test]
    fn a_daemon_that_was_asked_and_has_not_answered_is_not_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("stopped.sock");
        let _listener = protocol::hello::listen_at(&socket).unwrap();
        let collector = Collector::default();
        locked(&collector.asked).insert(socket.clone());
        let answers = collector.ask(vec![socket.clone()]);
        assert!(answers[0].status.is_none());
        assert!(locked(&collector.asked).contains(&socket));
        locked(&collector.asked).clear();
        // Asked, and abandoned after the timeout of a step.
        assert!(collector.ask(vec![socket])[0].status.is_none());
    }
}

//! Faults of MPS servers, from polls every few seconds and from clients' reports. No IO, and time
//! is an argument.
//!
//! A server ends normally once its last client has left, to make room for another user's server.
//! The clients at the last poll do not distinguish that from its death: a client that destroys its
//! contexts leaves MPS and lives on, and one that has ended may have left before. So **a server has
//! died under its clients when one of them reports** CUDA's 806, which a job under Pillion reports
//! as its `sticky-error`. Such a report may be false. It counts only from a process that the
//! control daemon listed as a client of a healthy server that ended within [`LATELY_NS`] of the
//! report. Nothing is known of clients without Pillion, nor of one that came after the last poll.
//!
//! Servers end with their control daemon: those of the next one are new.

use std::collections::{BTreeSet, VecDeque};

/// A client reports the loss at its next call, and polls are a few seconds apart: events further
/// apart than this are unrelated.
const LATELY_NS: u64 = 60_000_000_000;
/// Recently ended servers: MPS has one at a time for each waiting user.
const GONE_MAX: usize = 8;
/// Recent reporters of 806: more than a server's clients (60 by NVIDIA's guide).
pub(crate) const ORPHANS_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) pid: u32,
    /// Status `FAULT`: it accepts no clients until its present ones have left. None if unreported.
    pub(crate) is_broken: Option<bool>,
    /// Process ids of its clients; none if not reported.
    pub(crate) clients: Option<Vec<u32>>,
}

impl Server {
    pub(crate) fn unknown(pid: u32) -> Self {
        Self {
            pid,
            ..Self::default()
        }
    }

    /// Keeps the previous values of what is not reported.
    fn or_as_before(&mut self, before: &[Self]) {
        let before = before.iter().find(|known| known.pid == self.pid);
        self.is_broken = self.is_broken.or(before.and_then(|known| known.is_broken));
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken == Some(true)
    }

    fn may_have(&self, is_it: impl Fn(u32) -> bool) -> bool {
        let clients = self.clients.as_ref();
        clients.is_none_or(|clients| clients.iter().any(|&pid| is_it(pid)))
    }

    fn has(&self, is_it: impl Fn(u32) -> bool) -> bool {
        let mut clients = self.clients.iter().flatten();
        clients.any(|&pid| is_it(pid))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// A control daemon that does not answer in time.
    Silent {
        pid: u32,
        has_servers: bool,
    },
    /// A control daemon known only to exist.
    Unknown {
        pid: u32,
    },
    /// A control daemon that answers, with the servers that it reports.
    Answers {
        pid: u32,
        servers: Vec<Server>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) text: String,
    pub(crate) is_used: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Servers {
    /// The servers' control daemon; 0: in another PID namespace.
    control_daemon: Option<u32>,
    now: Vec<Server>,
    /// Servers that ended without an observed fault, and when.
    gone: VecDeque<(u64, Server)>,
    orphans: VecDeque<(u64, u32)>,
}

impl Servers {
    pub(crate) fn now(&self) -> &[Server] {
        &self.now
    }

    pub(crate) fn handle_orphan(&mut self, now_ns: u64, pid: u32) {
        push(&mut self.orphans, ORPHANS_MAX, (now_ns, pid));
    }

    /// What is wrong, if anything. `lost`: clients that reported their contexts as lost.
    pub(crate) fn handle_look(
        &mut self,
        now_ns: u64,
        found: &Found,
        lost: &BTreeSet<u32>,
    ) -> Option<Trouble> {
        let (pid, mut servers) = match found {
            Found::Nothing => {
                *self = Self::default();
                return None;
            }
            Found::Silent { .. } | Found::Unknown { .. } => return None,
            Found::Answers { pid, servers } => (*pid, servers.clone()),
        };
        if self.control_daemon.replace(pid) != Some(pid) {
            self.now.clear();
            self.gone.clear();
        }
        for server in &mut servers {
            server.or_as_before(&self.now);
        }
        for before in std::mem::replace(&mut self.now, servers) {
            let is_there = self.now.iter().any(|server| server.pid == before.pid);
            // Its fault was reported already.
            if !is_there && !before.is_broken() {
                push(&mut self.gone, GONE_MAX, (now_ns, before));
            }
        }
        let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < LATELY_NS;
        self.gone.retain(|(at_ns, _)| is_recent(*at_ns));
        self.orphans.retain(|(at_ns, _)| is_recent(*at_ns));
        self.broken(lost).or_else(|| self.take_dead())
    }

    fn broken(&self, lost: &BTreeSet<u32>) -> Option<Trouble> {
        let broken = self.now.iter().find(|server| server.is_broken())?;
        let is_used = self.now.iter().any(|server| match server.is_broken() {
            true => server.may_have(|pid| !lost.contains(&pid)),
            false => server.may_have(|_| true),
        });
        let text = format!(
            "MPS's server {} has failed and accepts no new clients until its present clients have \
             exited",
            broken.pid
        );
        Some(Trouble { text, is_used })
    }

    /// A server that died under its clients, once. A client's server is the last known one.
    fn take_dead(&mut self) -> Option<Trouble> {
        let Self {
            now, gone, orphans, ..
        } = self;
        let is_orphan = |pid| {
            let has_none = !now.iter().any(|server| server.has(|client| client == pid));
            has_none && orphans.iter().any(|(_, orphan)| *orphan == pid)
        };
        let is_dead = |server: &Server| server.has(is_orphan);
        let dead = gone.iter().rev().find(|(_, server)| is_dead(server))?.1.pid;
        gone.retain(|(_, server)| !is_dead(server));
        Some(Trouble {
            text: format!("MPS's server {dead} has exited while clients used it"),
            is_used: true,
        })
    }
}

fn push<T>(queue: &mut VecDeque<T>, most: usize, item: T) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(pid: u32, is_broken: bool, clients: &[u32]) -> Server {
        let clients = Some(clients.to_vec());
        Server {
            pid,
            is_broken: Some(is_broken),
            clients,
        }
    }

    #[derive(Default)]
    struct Seen {
        servers: Servers,
        now_ns: u64,
        lost: BTreeSet<u32>,
    }

    impl Seen {
        fn look_at(&mut self, pid: u32, servers: &[Server]) -> Option<Trouble> {
            let servers = servers.to_vec();
            self.now_ns += 5_000_000_000;
            let found = Found::Answers { pid, servers };
            self.servers.handle_look(self.now_ns, &found, &self.lost)
        }

        fn look(&mut self, servers: &[Server]) -> Option<Trouble> {
            self.look_at(7, servers)
        }

        fn say(&mut self, pid: u32) {
            self.servers.handle_orphan(self.now_ns, pid);
        }
    }

    const DEAD: &str = "MPS's server 9 has exited while clients used it";

    #[test]
    fn a_server_that_ends_when_its_clients_have_left_has_not_died_whether_they_live_or_not() {
        let mut seen = Seen::default();
        assert_eq!(seen.look(&[server(9, false, &[1, 2])]), None);
        assert_eq!(seen.look(&[server(10, false, &[3])]), None);
        // A lost context, or another server's client, proves nothing about this server.
        seen.lost.insert(1);
        seen.say(4);
        assert_eq!(seen.look(&[server(10, false, &[3])]), None);
    }

    #[test]
    fn a_server_has_died_when_a_client_of_it_says_so_before_its_end_is_seen_or_after() {
        for is_before in [true, false] {
            let mut seen = Seen::default();
            seen.look(&[server(9, false, &[1, 2])]);
            if is_before {
                seen.say(2);
                assert_eq!(seen.look(&[server(9, false, &[1, 2])]), None, "not yet");
            } else {
                assert_eq!(seen.look(&[]), None, "not known yet");
                seen.say(2);
            }
            let trouble = seen.look(&[server(11, false, &[5])]).unwrap();
            assert_eq!((trouble.text.as_str(), trouble.is_used), (DEAD, true));
            seen.say(1);
            assert_eq!(seen.look(&[server(11, false, &[5])]), None, "told once");
        }
    }

    #[test]
    fn a_client_that_has_had_two_servers_has_lost_the_second() {
        let mut seen = Seen::default();
        seen.look(&[server(8, false, &[1])]);
        seen.look(&[]);
        seen.look(&[server(9, false, &[1])]);
        seen.say(1);
        assert_eq!(seen.look(&[server(9, false, &[1])]), None, "not yet");
        let trouble = seen.look(&[]).unwrap();
        assert_eq!(trouble.text, DEAD);
        assert_eq!(seen.look(&[]), None, "told once");
    }

    #[test]
    fn a_word_that_comes_long_before_or_after_has_nothing_to_do_with_it() {
        let mut seen = Seen::default();
        seen.look(&[server(9, false, &[1])]);
        seen.say(1);
        seen.now_ns += LATELY_NS;
        assert_eq!(seen.look(&[server(9, false, &[1])]), None);
        assert_eq!(seen.look(&[]), None);
        seen.now_ns += LATELY_NS;
        seen.say(1);
        assert_eq!(seen.look(&[]), None);
    }

    #[test]
    fn servers_that_go_with_their_control_daemon_or_after_a_fault_that_was_told_are_not_told_of() {
        let mut seen = Seen::default();
        seen.look(&[server(9, false, &[1])]);
        seen.say(1);
        assert_eq!(seen.look_at(8, &[]), None);
        let mut seen = Seen::default();
        seen.look(&[server(9, false, &[1])]);
        seen.say(1);
        let nobody = BTreeSet::new();
        assert_eq!(
            seen.servers
                .handle_look(seen.now_ns, &Found::Nothing, &nobody),
            None
        );
        assert_eq!(seen.look(&[]), None);
        let mut seen = Seen::default();
        assert!(seen.look(&[server(9, true, &[1])]).is_some());
        seen.say(1);
        assert_eq!(seen.look(&[]), None);
    }

    #[test]
    fn a_look_that_tells_nothing_of_servers_changes_nothing() {
        let mut seen = Seen::default();
        seen.look(&[server(9, false, &[1])]);
        seen.say(1);
        let silent = Found::Silent {
            pid: 7,
            has_servers: true,
        };
        for found in [silent, Found::Unknown { pid: 7 }] {
            assert_eq!(
                seen.servers.handle_look(seen.now_ns, &found, &seen.lost),
                None
            );
            assert_eq!(seen.servers.now(), [server(9, false, &[1])]);
        }
        assert_eq!(
            seen.look(&[]).map(|trouble| trouble.text).as_deref(),
            Some(DEAD)
        );
    }

    #[test]
    fn what_is_not_told_of_a_server_is_as_it_was() {
        let mut untold = Server::unknown(9);
        untold.or_as_before(&[server(8, false, &[]), server(9, true, &[])]);
        assert!(untold.is_broken());
        untold.is_broken = Some(false);
        untold.or_as_before(&[server(9, true, &[])]);
        assert!(!untold.is_broken());
    }

    #[test]
    fn a_broken_server_is_used_by_whoever_has_not_said_that_it_has_lost_all() {
        let is_used = |now: &[Server]| {
            let lost = BTreeSet::from([1, 2]);
            let mut seen = Seen {
                lost,
                ..Seen::default()
            };
            seen.look(now).map(|trouble| trouble.is_used)
        };
        assert_eq!(is_used(&[server(9, false, &[1])]), None);
        assert_eq!(is_used(&[server(9, true, &[1, 2])]), Some(false));
        assert_eq!(is_used(&[server(9, true, &[])]), Some(false));
        assert_eq!(is_used(&[server(9, true, &[1, 3])]), Some(true));
        let beside = [server(9, true, &[1]), server(10, false, &[4])];
        assert_eq!(is_used(&beside), Some(true), "another user's");
        let unknown = Server {
            clients: None,
            ..server(9, true, &[])
        };
        assert_eq!(is_used(&[unknown]), Some(true), "nobody knows");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut seen = Seen::default();
        for pid in 100..200 {
            seen.look(&[server(pid, false, &[pid])]);
            seen.now_ns = 0;
            seen.say(pid + 1_000);
        }
        assert_eq!(seen.servers.gone.len(), GONE_MAX);
        assert_eq!(seen.servers.orphans.len(), ORPHANS_MAX);
    }
}

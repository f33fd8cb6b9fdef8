//! A daemon started by `pillion run`, which ends when no job uses it.
//! It stays while it has clients, and while a process lives that announced to become one: a job may
//! load data for an hour before it touches the GPU. Real time: none runs on the virtual clock.

use std::os::fd::OwnedFd;
use std::time::Duration;

use protocol::clock::Clock;
use protocol::hello::{Reply, send};
use rustix::event::Timespec;

use super::away::refuse;
use super::{Control, peer};
use crate::core::event::{Draft, Kind};

const EXPECTED_MAX: usize = 256;

pub(super) struct Idle {
    after: Option<Duration>,
    since_ns: Option<u64>,
    pub(super) expected: Vec<Expected>,
}

pub(super) struct Expected {
    pid: u32,
    pub(super) process: OwnedFd,
}

impl Idle {
    pub(super) fn new(after: Option<Duration>) -> Self {
        Self {
            after,
            since_ns: None,
            expected: Vec::new(),
        }
    }

    fn left(&mut self, is_used: bool) -> Option<Duration> {
        let after = self.after?;
        if is_used {
            self.since_ns = None;
            return None;
        }
        let now_ns = Clock::monotonic().now_ns();
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        Some(after.saturating_sub(Duration::from_nanos(now_ns.saturating_sub(since_ns))))
    }
}

impl Control {
    /// Time left until the daemon ends; none: unlimited. A new connection is handled first.
    pub(super) fn idle_left(&mut self) -> Option<Timespec> {
        let is_used = !self.clients.is_empty() || !self.idle.expected.is_empty();
        let left = self.idle.left(is_used)?;
        // The idle time continues meanwhile: reading the status is no use.
        let left = Some(left).filter(|_| self.unheard.is_empty());
        left.and_then(|left| Timespec::try_from(left).ok())
    }

    pub(super) fn tell_idle(&self) {
        let idle_s = self.idle.after.unwrap_or_default().as_secs();
        let text = format!("ending: no job has used the GPU for {idle_s} s");
        self.shared.tell(Draft::new(Kind::DaemonEnding, text));
    }

    pub(super) fn expect(&mut self, socket: &OwnedFd) {
        let process = match peer::of(socket) {
            Ok((peer, Some(process))) => Expected {
                pid: peer.pid,
                process,
            },
            Ok((_, None)) => {
                let why = "cannot identify your process: it may be in another PID namespace";
                return refuse(socket, why.to_owned());
            }
            Err(error) => {
                return refuse(
                    socket,
                    format!("cannot determine the user of your process: {error}"),
                );
            }
        };
        self.drop_dead_expected();
        if self.idle.after.is_some() {
            if self.idle.expected.len() >= EXPECTED_MAX {
                let reason =
                    format!("the daemon already waits for {EXPECTED_MAX} processes, the limit");
                return refuse(socket, reason);
            }
            // A process may announce itself repeatedly.
            self.idle.expected.retain(|known| known.pid != process.pid);
            self.idle.expected.push(process);
        }
        let _ = send(socket, &Reply::Done.encode(), &[]);
    }

    pub(super) fn drop_dead_expected(&mut self) {
        self.idle
            .expected
            .retain(|expected| !peer::has_ended(&expected.process));
    }
}

//! A daemon that `pillion run` has started, which ends when no job uses it.
//!
//! It stays while it has clients, and while a process lives that has said that it is to become one:
//! a job may load data for an hour before it touches the GPU. Real time: nobody has such a daemon
//! on the virtual clock.

use std::os::fd::OwnedFd;
use std::time::Duration;

use protocol::clock::Clock;
use protocol::hello::{Reply, send};
use rustix::event::Timespec;

use super::away::refuse;
use super::{Control, peer};
use crate::core::event::{Draft, Kind};

/// Most processes that are waited for.
const EXPECTED_MAX: usize = 256;

/// Who uses the daemon besides its clients, and since when nobody does.
pub(super) struct Idle {
    /// None: the daemon stays whoever uses it.
    after: Option<Duration>,
    since_ns: Option<u64>,
    /// Those that are to become clients, while they live.
    pub(super) expected: Vec<Expected>,
}

/// A process that is to become a client.
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

    /// How long the daemon still waits for a job that uses it; none: for ever.
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
    /// How long the daemon still waits; none: for ever. A new connection is heard first.
    pub(super) fn idle_left(&mut self) -> Option<Timespec> {
        let is_used = !self.clients.is_empty() || !self.idle.expected.is_empty();
        let left = self.idle.left(is_used)?;
        // The time goes on meanwhile: a reader of the status uses nothing.
        let left = Some(left).filter(|_| self.unheard.is_empty());
        left.and_then(|left| Timespec::try_from(left).ok())
    }

    /// Says that the daemon ends because no job uses it.
    pub(super) fn tell_idle(&self) {
        let idle_s = self.idle.after.unwrap_or_default().as_secs();
        let text = format!("ending: no job has used the GPU for {idle_s} s");
        self.shared.tell(Draft::new(Kind::DaemonEnding, text));
    }

    /// The process that asks is to become a client.
    pub(super) fn expect(&mut self, socket: &OwnedFd) {
        let process = match peer::of(socket) {
            Ok((peer, Some(process))) => Expected {
                pid: peer.pid,
                process,
            },
            Ok((_, None)) => {
                return refuse(socket, "your process cannot be seen from here".to_owned());
            }
            Err(error) => return refuse(socket, format!("who you are cannot be seen: {error}")),
        };
        self.drop_dead_expected();
        if self.idle.after.is_some() {
            if self.idle.expected.len() >= EXPECTED_MAX {
                let reason = format!("{EXPECTED_MAX} processes are waited for already");
                return refuse(socket, reason);
            }
            // It may say so more than once.
            self.idle.expected.retain(|known| known.pid != process.pid);
            self.idle.expected.push(process);
        }
        let _ = send(socket, &Reply::Done.encode(), &[]);
    }

    /// Those that have ended become nothing any more.
    pub(super) fn drop_dead_expected(&mut self) {
        self.idle
            .expected
            .retain(|expected| !peer::has_ended(&expected.process));
    }
}

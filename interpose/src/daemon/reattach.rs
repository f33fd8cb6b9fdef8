//! Handles the end of a client's daemon, and the next daemon. A daemon is gone when it has ended
//! the connection. A thread waits for that and wakes the helper
//! ([`crate::daemon::disconnect_watcher`]); without such a thread the helper polls every
//! [`LOOK_NS`]. A silent daemon is only slow, or stopped, and this process is still its client.
//! After the end the helper asks for a new daemon at the old address, at the times of
//! [`client::reconnect`]. Meanwhile jobs follow `on_daemon_loss` ([`client::gate`]).
//!
//! **A new daemon.** The client continues: its page, with all counts since its beginning, goes to
//! the new daemon, whose pages replace the previous ones ([`client::link`]). So the new daemon
//! counts everything from the beginning of the process, and work in flight weighs at the gate. A
//! thread at the gate continues its wait for the new daemon's lease. A high-priority client
//! announces its work in flight again ([`client::announce::again`]).
//!
//! **Memory.** The process brings its job's ledger along: the first one of a job makes it the new
//! daemon's, and it continues unchanged. If the job has another ledger there by then (of a process
//! that began meanwhile), this process's memory is booked in that, whatever the quota. If the
//! daemon keeps no ledger, the process keeps the one it has. On virtual time nothing of this
//! happens: the moment would be left to chance.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::PoisonError;

use client::announce;
use client::reconnect::{Failure, LOOK_NS, Reconnect};

use crate::daemon::attach::{self, Met, Unmanaged};
use crate::daemon::disconnect_watcher::{DisconnectWatcher, Said};
use crate::platform::log::{self, Level};
use crate::process::{self, Client, account};
use crate::progress::contexts::CONTEXTS;
use crate::progress::streams::STREAMS;

pub(crate) struct Watch {
    client: &'static Client,
    watcher: Option<DisconnectWatcher>,
    reconnect: Reconnect<Listener>,
}

/// Distinguishes a daemon's socket from the next one's: device and inode, and time of creation.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    file: (u64, u64),
    changed: (i64, i64),
}

impl Listener {
    /// The first one that exists.
    fn at(sockets: &[PathBuf]) -> Option<Self> {
        let file = sockets
            .iter()
            .find_map(|socket| socket.symlink_metadata().ok())?;
        Some(Self {
            file: (file.dev(), file.ino()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

impl Watch {
    /// Used by the client's helper, which the daemon's end wakes. `is_refused`: the first daemon
    /// was there and refused the client.
    pub(crate) fn new(client: &'static Client, is_refused: bool) -> Self {
        let (now_ns, seed) = (client.clock.now_ns(), std::process::id());
        let refused_by = || is_refused.then(|| Listener::at(&client.sought));
        match client.is_taken() {
            true => Self {
                client,
                watcher: listen_for_end(client),
                reconnect: Reconnect::of_taken(now_ns, seed),
            },
            false => Self {
                client,
                watcher: None,
                reconnect: Reconnect::of_untaken(now_ns, seed, refused_by()),
            },
        }
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.client.clock.is_virtual() {
            return None;
        }
        let said = match &self.watcher {
            Some(watcher) if !self.reconnect.is_away() => watcher.said(),
            _ => Said::Nothing,
        };
        next_look_ns(said, self.reconnect.next_ns())
    }

    pub(crate) fn poll(&mut self) {
        let now_ns = self.client.clock.now_ns();
        if self.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
            self.look();
            self.reconnect.handle_look(self.client.clock.now_ns());
        }
    }

    fn look(&mut self) {
        if !self.reconnect.is_away() {
            let said = self.watcher.as_ref().map(DisconnectWatcher::said);
            if said == Some(Said::Over) || self.client.connection.is_over() {
                self.handle_end();
            }
            // A daemon that has just ended has no successor yet; its socket may outlive it.
            return;
        }
        // Before the attempt: a daemon that listens there afterwards is asked in any case.
        let listener = Listener::at(&self.client.sought);
        let now_ns = self.client.clock.now_ns();
        if !self.reconnect.may_ask(listener.as_ref(), now_ns) {
            return;
        }
        // Always set: the settings were read before the first client was made.
        let config = process::config().ok_or(Unmanaged::NoUuid(abi::types::CUresult::SUCCESS));
        match config.and_then(|config| attach::meet(config, self.client)) {
            Ok(met) => self.handle_met(met),
            Err(reason) => self.handle_failure(&reason, listener),
        }
    }

    fn handle_end(&mut self) {
        self.watcher = None;
        self.client.handle_end();
        self.reconnect.handle_end(self.client.clock.now_ns());
        let socket = self.client.socket.lock();
        let socket = socket.unwrap_or_else(PoisonError::into_inner);
        let socket = socket.display();
        log::say(
            Level::Info,
            format_args!(
                "lost the connection to the daemon at {socket}; [policy] on_daemon_loss decides \
                 about best-effort launches until this process has attached again"
            ),
        );
    }

    fn handle_failure(&mut self, reason: &Unmanaged, by: Option<Listener>) {
        let failure = match (reason.is_absence(), reason.is_refusal()) {
            (true, _) => Failure::Absent,
            (_, true) => Failure::Refused,
            _ => Failure::Unanswered,
        };
        let now_ns = self.client.clock.now_ns();
        if self.reconnect.handle_failure(failure, by, now_ns) {
            log::say(Level::Warn, format_args!("cannot attach again: {reason}"));
        }
    }

    fn handle_met(&mut self, mut met: Met) {
        let client = self.client;
        if client.is_high_priority() {
            announce::again(client, &client.thread(), STREAMS.used_by(client.index));
        }
        if let Some(ledger) = &*client.ledger() {
            account::go_on(client.index, client.device, ledger.page, ledger.slot);
        }
        if met.is_first {
            client.count_unmanaged();
            // Only a daemon states what a context takes.
            if CONTEXTS.count_on(client.device) > 0 {
                account::handle_context(client.device);
            }
        }
        self.watcher = listen_for_end(client);
        self.reconnect.handle_met();
        if let Some(config) = process::config() {
            met.ask_kept(config, client);
        }
        log::say(Level::Info, format_args!("{met}"));
    }
}

fn listen_for_end(client: &'static Client) -> Option<DisconnectWatcher> {
    if client.clock.is_virtual() {
        return None;
    }
    let watcher = DisconnectWatcher::watch(client);
    if let Err(error) = &watcher {
        let every_ms = LOOK_NS / 1_000_000;
        log::say(
            Level::Info,
            format_args!(
                "cannot watch the daemon connection; polling every {every_ms} ms: {error}"
            ),
        );
    }
    watcher.ok()
}

/// When to poll; `clock_ns` is when it is due by the clock.
fn next_look_ns(said: Said, clock_ns: u64) -> Option<u64> {
    match said {
        Said::Over => Some(0),
        Said::WillTell => None,
        Said::Nothing => Some(clock_ns),
    }
}

#[cfg(test)]
mod tests {
    use core::slice;

    use super::*;

    #[test]
    fn who_will_be_told_does_not_look_by_the_clock_and_who_will_not_does() {
        assert_eq!(next_look_ns(Said::WillTell, 9), None);
        assert_eq!(next_look_ns(Said::Over, 9), Some(0));
        assert_eq!(next_look_ns(Said::Nothing, 9), Some(9));
    }

    #[test]
    fn a_daemon_in_the_place_of_another_is_known_by_its_sockets_file() {
        let folder = std::env::temp_dir().join(format!("pillion-reattach-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("s.sock");
        let listener = || Listener::at(slice::from_ref(&socket));
        std::fs::write(&socket, "").unwrap();
        let first = listener();
        assert_eq!(listener(), first);
        let next = folder.join("next.sock");
        std::fs::write(&next, "").unwrap();
        std::fs::rename(next, &socket).unwrap();
        assert!(listener().is_some() && listener() != first);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(listener().is_none());
    }
}

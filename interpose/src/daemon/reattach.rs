//! What happens when a client's daemon goes, and when one is there again.
//!
//! A daemon is gone when it has ended the connection, which a thread waits for that wakes the
//! helper ([`crate::daemon::disconnect_watcher`]); where there is none the helper looks every
//! [`LOOK_NS`]. Until then a daemon that says nothing is slow, or stopped, and this process is
//! still its client. Afterwards the helper asks for a new one where the old one listened, as
//! [`client::reconnect`] says when. Meanwhile jobs go on as `on_daemon_loss` says
//! ([`client::gate`]).
//!
//! **A new daemon.** The client stays what it is: its page, with all that it has counted since it
//! began, goes to the new daemon, and the pages of that one take the places of those before
//! ([`client::link`]). So the new daemon counts everything from the beginning of the process, and
//! what is in flight weighs at the gate. A thread that waits there goes on waiting for the new
//! daemon's lease. What a high-priority client has in flight is announced again
//! ([`client::announce::again`]).
//!
//! **Memory.** The process brings its job's ledger along: the first one of a job makes it the new
//! daemon's, and it goes on as if nothing had been. Where the job has another there by then (a
//! process that began meanwhile came first), what this one holds is booked in that, whatever the
//! quota says; where the daemon keeps none, the process goes on with the ledger that it has.
//!
//! On virtual time nothing of this happens: there the moment would be left to chance.

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

/// What one client's helper knows of its daemon.
pub(crate) struct Watch {
    client: &'static Client,
    /// Who tells when the daemon goes; `None` where nobody does.
    watcher: Option<DisconnectWatcher>,
    reconnect: Reconnect<Listener>,
}

/// What tells a daemon's socket from the next one's in its place: device and number of its file,
/// and when that was made.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    file: (u64, u64),
    changed: (i64, i64),
}

impl Listener {
    /// The first that listens there, if one does.
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
    /// Called by the client's helper, which is woken when the daemon goes. `is_refused`: the first
    /// daemon was there, and did not want the client.
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

    /// When to look next; nothing on virtual time, nor where there is nothing to see until somebody
    /// tells.
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

    /// Looks if it is time to.
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
            // A daemon that is only just gone is not replaced yet, and its socket may outlive its
            // connections for a moment.
            return;
        }
        // Before it is asked: the next one that listens there is asked in any case.
        let listener = Listener::at(&self.client.sought);
        let now_ns = self.client.clock.now_ns();
        if !self.reconnect.may_ask(listener.as_ref(), now_ns) {
            return;
        }
        // Never without one: it was read before the first client was made.
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
        log::say(Level::Info, format_args!("the daemon at {socket} is gone"));
    }

    fn handle_failure(&mut self, reason: &Unmanaged, by: Option<Listener>) {
        let failure = match (reason.is_absence(), reason.is_refusal()) {
            (true, _) => Failure::Absent,
            (_, true) => Failure::Refused,
            _ => Failure::Unanswered,
        };
        let now_ns = self.client.clock.now_ns();
        if self.reconnect.handle_failure(failure, by, now_ns) {
            log::say(Level::Warn, format_args!("not attached again: {reason}"));
        }
    }

    /// A daemon has taken the client, and its pages are in place.
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
            // What a context takes only a daemon says.
            if CONTEXTS.count_on(client.device) > 0 {
                account::handle_context(client.device);
            }
        }
        self.watcher = listen_for_end(client);
        self.reconnect.handle_met();
        if let Some(config) = process::config() {
            met.ask_kept(config, client);
        }
        let again = if met.is_first { "" } else { ", again" };
        log::say(Level::Info, format_args!("{met}{again}"));
    }
}

/// Has the helper woken when the client's daemon goes, if that can be.
fn listen_for_end(client: &'static Client) -> Option<DisconnectWatcher> {
    if client.clock.is_virtual() {
        return None;
    }
    let watcher = DisconnectWatcher::watch(client);
    if let Err(error) = &watcher {
        let every_ms = LOOK_NS / 1_000_000;
        log::say(
            Level::Info,
            format_args!("that the daemon goes is looked for every {every_ms} ms: {error}"),
        );
    }
    watcher.ok()
}

/// When to look, `clock_ns` being when it is time by the clock.
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

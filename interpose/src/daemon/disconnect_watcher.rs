//! The thread that notices at once that a client's daemon is gone. A helper sleeps on a futex, so
//! that launches wake it cheaply, and a killed daemon rings nothing. So while a client has a
//! daemon, a second thread waits for the end of its connection (`recv`), reports it to the helper
//! and the threads at the gate, and ends. It uses no clock, so an idle process does not wake up for
//! it. It only saves time: without it (no more threads can be started, or the application closed
//! the connection's descriptor) the helper polls ([`crate::daemon::reattach`]).
//!
//! **The descriptor.** A program that closes descriptors it does not own may have another file
//! under the connection's number. The kernel resolves the number when a call begins, and again
//! where it restarts a call by itself: after SIGSTOP and SIGCONT (signal(7)). So the receive
//! timeout is set, with which `recv` returns instead, and the descriptor is checked before each
//! call. A call in progress holds the connection itself: a process that loses the descriptor
//! meanwhile stays the daemon's client until the call ends, and notices the daemon's end like any
//! other. A forked child does not have the thread, and is no client.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::thread::Builder;

use client::connection::Connection;

use crate::platform::sys;
use crate::process::Client;
use crate::progress::waking;

/// Longest call of `recv`. Bounded, see above; so long that it costs nothing.
const RECEIVE: Duration = Duration::from_hours(1);

/// The thread's stack, bytes. Its own part is small; the program's thread-locals need the rest.
const STACK_BYTES: usize = 256 << 10;

const WAITS: u32 = 0;
const OVER: u32 = 1;
/// The connection's number is not our socket any more.
const BLIND: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    WillTell,
    Over,
    Nothing,
}

pub(crate) struct DisconnectWatcher(Arc<AtomicU32>);

impl DisconnectWatcher {
    /// Starts a thread for the client's connection. It inherits the caller's signal mask: a
    /// helper's, which blocks all. Errors: no thread, or no connection.
    pub(crate) fn watch(client: &'static Client) -> io::Result<Self> {
        client.connection.set_receive_timeout(RECEIVE)?;
        let said = Arc::new(AtomicU32::new(WAITS));
        let says = Arc::clone(&said);
        let number = client.connection.number();
        let wait = move || {
            let is_over = wait_for_end(&client.connection, number);
            if is_over {
                tell_gate(client, number);
            }
            // Release pairs with the Acquire in `said`; before the bell, which wakes the helper.
            says.store(if is_over { OVER } else { BLIND }, Ordering::Release);
            waking::wake_surely(client);
        };
        let builder = Builder::new().name("pillion-hangup".into());
        // Detached: it lives as long as the connection, or the process.
        builder.stack_size(STACK_BYTES).spawn(wait).map(drop)?;
        Ok(Self(said))
    }

    pub(crate) fn said(&self) -> Said {
        // Acquire: see `watch`.
        match self.0.load(Ordering::Acquire) {
            WAITS => Said::WillTell,
            OVER => Said::Over,
            _ => Said::Nothing,
        }
    }
}

fn tell_gate(client: &Client, number: u64) {
    client.connection.note_end(number);
    if !client.is_high_priority() {
        client.link.lease.bell.ring(&client.clock);
    }
}

fn wait_for_end(connection: &Connection, number: u64) -> bool {
    while connection.number() == number {
        let Some(number) = connection.number_to_wait_on() else {
            return false;
        };
        match sys::peek(number).map_err(|error| error.kind()) {
            Ok(0) | Err(io::ErrorKind::ConnectionReset) => return true,
            // Timeout, or the process was stopped and continued.
            Err(io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // Another file by now, or none; an established connection carries no data.
            Ok(_) | Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::mpsc;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (Connection, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.unwrap();
        let connection = Connection::default();
        connection.begin(ours);
        (connection, theirs)
    }

    /// Puts another file under its number, like a program that closes descriptors it does not own.
    #[expect(
        unsafe_code,
        reason = "the number is known, and its owner is not to know"
    )]
    fn replace(connection: &Connection, other: &OwnedFd) {
        let number = connection.number_to_wait_on().unwrap();
        // SAFETY: both are open; the number is the test's own.
        let replaced = unsafe { libc::dup2(other.as_raw_fd(), number) };
        assert_eq!(replaced, number);
    }

    /// No clock takes part: the timeout is an hour.
    #[test]
    fn the_end_of_the_other_side_ends_the_wait() {
        let (connection, daemon) = pair();
        connection.set_receive_timeout(RECEIVE).unwrap();
        let (begins, begun) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            begins.send(()).unwrap();
            wait_for_end(&connection, 1)
        });
        begun.recv().unwrap();
        drop(daemon);
        assert!(waits.join().unwrap());
        let (connection, daemon) = pair();
        drop(daemon);
        assert!(wait_for_end(&connection, 1));
    }

    #[test]
    fn an_end_before_all_was_read_is_one_too() {
        let (connection, daemon) = pair();
        let packet = [1; 8];
        connection.with(|ours| protocol::hello::send(ours, &packet, &[]).unwrap());
        // Data that the daemon has not read turns its end into a reset.
        drop(daemon);
        assert!(wait_for_end(&connection, 1));
    }

    #[test]
    fn who_has_something_else_under_the_number_does_not_wait_for_it() {
        let (connection, _daemon) = pair();
        let (other, _peer) = pair();
        other.with(|other| replace(&connection, other));
        assert!(!wait_for_end(&connection, 1));
        connection.close();
        assert!(!wait_for_end(&connection, 1));
    }

    /// As after a stop, the call ends and the next one would resolve the number anew.
    #[test]
    fn who_loses_the_descriptor_while_waiting_stops_waiting_when_the_call_ends() {
        let (connection, _daemon) = pair();
        let (other, _peer) = pair();
        let connection = Arc::new(connection);
        connection
            .set_receive_timeout(Duration::from_millis(1))
            .unwrap();
        let waits = std::thread::spawn({
            let connection = Arc::clone(&connection);
            move || wait_for_end(&connection, 1)
        });
        other.with(|other| replace(&connection, other));
        assert!(!waits.join().unwrap());
    }

    #[test]
    fn on_a_connection_on_which_something_is_said_nobody_spins() {
        let (connection, daemon) = pair();
        protocol::hello::send(&daemon, &[1], &[]).unwrap();
        assert!(!wait_for_end(&connection, 1));
    }
}

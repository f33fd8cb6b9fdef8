//! Traces: requested here, taken by the poll thread, sent by a thread of their own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use protocol::hello::{Reply, send};
use protocol::segment::{read_only, sealed_text};
use protocol::trace::LENGTH_NS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Control;
use super::away::refuse;
use crate::core::state::{Traced, Tracing};
use crate::daemon::shared::Shared;
use crate::host::fd_reaper::UntrustedSocket;
use crate::report::status::{Identity, Viewer};
use crate::report::trace::document;

const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// A trace in progress. It ends with its thread, so that another may be taken.
struct Taking {
    shared: Arc<Shared>,
    number: u32,
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.shared.state().drop_trace(self.number);
    }
}

impl Control {
    pub(super) fn take_trace(&self, socket: UntrustedSocket, uid: u32, length_ns: u64) {
        if !LENGTH_NS.contains(&length_ns) {
            let (least_ns, most_ns) = LENGTH_NS.into_inner();
            let reason = format!(
                "a trace of {length_ns} ns is not possible; expected {least_ns} to {most_ns} ns"
            );
            return refuse(&socket, reason);
        }
        let viewer = Viewer::of(uid);
        let whose = match viewer {
            Viewer::Operator => None,
            Viewer::User(uid) => Some(uid),
        };
        let now_ns = self.shared.clock().now_ns();
        let begun = self.shared.state().begin_trace(now_ns, length_ns, whose);
        let number = match begun {
            Ok(number) => number,
            Err(busy) => return refuse(&socket, busy.to_string()),
        };
        let taking = Taking {
            shared: Arc::clone(&self.shared),
            number,
        };
        self.shared.ring();
        tracing::info!("user {uid} takes a trace of {} ms", length_ns / 1_000_000);
        if send(&*socket, &Reply::Done.encode(), &[]).is_err() {
            return;
        }
        let identity = self.identity.clone();
        let take = move || {
            let sent = match wait(&taking, &socket) {
                Waited::Ended(trace) => {
                    let traced = trace.into_traced();
                    send_trace(&taking.shared, &socket, traced, &identity)
                }
                Waited::Displaced => {
                    let why = "root or the daemon's user has started another trace";
                    refuse(&socket, why.to_owned());
                    Ok(())
                }
                Waited::Unwanted => Ok(()),
            };
            if let Err(error) = sent {
                tracing::debug!("cannot send a trace: {error}");
            }
        };
        // Without a thread the connection is closed, and the trace ends.
        if let Err(error) = self.shared.start_thread("pillion-trace", take) {
            tracing::warn!("cannot start a thread for a trace: {error}");
        }
    }
}

enum Waited {
    Ended(Box<Tracing>),
    /// A trace of all jobs replaced it.
    Displaced,
    Unwanted,
}

/// Waits until the trace has ended; the client ends it early by shutting down its side.
fn wait(taking: &Taking, socket: &OwnedFd) -> Waited {
    let Taking { shared, number } = taking;
    let mut is_wanted = true;
    loop {
        let taken = shared.state().take_trace(*number);
        if let Some(trace) = taken {
            return Waited::Ended(trace);
        }
        if !shared.state().has_trace(*number) {
            return Waited::Displaced;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(shared.stop_fd(), PollFlags::IN)];
        if is_wanted {
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        // An interruption counts as a timeout.
        let _ = poll(&mut fds, Some(&LOOK));
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let is_gone = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::HUP);
        if fds.first().is_some_and(is_ready) || fds.get(1).is_some_and(is_gone) {
            return Waited::Unwanted;
        }
        if fds.get(1).is_some_and(is_ready) {
            is_wanted = false;
            let now_ns = shared.clock().now_ns();
            shared.state().end_trace(*number, now_ns);
            shared.ring();
        }
    }
}

fn send_trace(
    shared: &Shared,
    socket: &OwnedFd,
    traced: Traced,
    identity: &Identity,
) -> std::io::Result<()> {
    let sms = shared.state().sms;
    let file = sealed_text("pillion-trace", &document(traced, identity, sms))?;
    let file = read_only(&file)?;
    send(socket, &Reply::Done.encode(), &[file.as_fd()])
}

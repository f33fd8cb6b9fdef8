//! Refusals: the reply with the reason, the entry in the status, and an event the first time.

use std::os::fd::OwnedFd;

use protocol::hello::{Reply, send};

use super::Control;
use crate::core::event::{Draft, Kind};
use crate::core::job_key::Peer;
use crate::core::ledgers::Image;
use crate::core::state::TurnedAway;
use crate::host::peer;

impl Control {
    pub(super) fn turn_away_unknown(&self, socket: &OwnedFd, reason: String) {
        match peer::of(socket) {
            Ok((peer, _)) => self.turn_away(socket, peer, Default::default(), reason),
            Err(_) => refuse(socket, reason),
        }
    }

    pub(super) fn turn_away(
        &self,
        socket: &OwnedFd,
        peer: Peer,
        (name, job): (String, String),
        reason: String,
    ) {
        let is_news = self.shared.state().handle_turned_away(TurnedAway {
            pid: peer.pid,
            started_ticks: Image::of(peer.pid).started_ticks,
            uid: peer.uid,
            name: name.clone(),
            job: job.clone(),
            attached: false,
            reason: reason.clone(),
            at_ns: self.shared.clock().now_ns(),
        });
        if is_news {
            let who = if name.is_empty() { "a process" } else { &name };
            let text = format!("turned away: {who}, job {job:?}: {reason}");
            let draft = Draft::new(Kind::TurnedAway, text);
            self.shared.tell(draft.of(&job, peer.uid).pid(peer.pid));
        }
        refuse(socket, reason);
    }
}

/// Sends the reason. Whether the peer reads it does not matter.
pub(super) fn refuse(socket: &OwnedFd, reason: String) {
    let _ = send(socket, &Reply::Refused { reason }.encode(), &[]);
}

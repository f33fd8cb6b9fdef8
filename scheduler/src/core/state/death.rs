//! Processes that died with work in flight, as far as they had reported completions: a client that
//! drains reports before it ends.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use abi::types::CUresult;
use policy::Sharing;
use protocol::pages::{STOP_ASKED, STOP_GAVE_UP, STOP_OVERDUE};
use protocol::record::EXPECTED_NS_MAX;

use super::{Client, Job, State};
use crate::core::job_key::JobKey;

/// Uncollected deaths: more than there can be clients.
const DEATHS_MAX: usize = super::CLIENTS_MAX;

#[derive(Debug, Default)]
pub(super) struct End {
    /// Until when its end is supervised, ns of real time.
    pub(super) seen_to_until_ns: Cell<u64>,
    is_spared: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Death {
    pub(crate) key: JobKey,
    pub(crate) pid: u32,
    pub(crate) in_flight_ns: u64,
    /// Number of launches; best-effort clients do not report it.
    pub(crate) launches: Option<u64>,
    pub(crate) how: How,
    pub(crate) is_on_mps: bool,
    /// Its end was supervised, by the daemon's knowledge or the process's report: no rule applies.
    pub(crate) is_seen_to: bool,
}

/// Except for [`How::Spared`] the process's own report, trusted only for the text of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// MPS ended its work on this daemon's request.
    Spared,
    GaveUp,
    /// Its end was supervised. Whether MPS was asked is unknown.
    SeenTo,
    Unasked,
}

impl Client {
    /// Work in flight, ns, and a high-priority client's launches, as reported by `now_ns`.
    fn in_flight(&mut self, now_ns: u64, unknown_ns: u64) -> (u64, Option<u64>) {
        if let Some(hp_client) = &mut self.hp_client {
            hp_client.drain(&self.page, now_ns, unknown_ns);
            let (launches, ns) = hp_client.timeline().in_flight();
            return (ns, Some(launches));
        }
        // The first Acquire keeps the load of charges after that of completions: in flight is never
        // negative. Nothing depends on the second.
        let completed_ns = self.page.completed_ns.load(Ordering::Acquire);
        let charged_ns = self.page.charged_ns.load(Ordering::Acquire);
        let ns = charged_ns.saturating_sub(completed_ns);
        (ns.min(EXPECTED_NS_MAX), None)
    }

    fn how(&self, now_ns: u64) -> How {
        let until_s = self.page.seen_to_until_s.load(Ordering::SeqCst);
        if self.end.is_spared {
            return How::Spared;
        }
        match self.page.stop.load(Ordering::SeqCst) {
            STOP_GAVE_UP => How::GaveUp,
            STOP_ASKED | STOP_OVERDUE => How::SeenTo,
            _ if u64::from(until_s) > now_ns / 1_000_000_000 => How::SeenTo,
            _ => How::Unasked,
        }
    }
}

impl State {
    /// A client's process has ended by `now_ns` (real: `real_ns`), after reporting its completions.
    /// Call before [`State::handle_detach`].
    pub(crate) fn handle_death(&mut self, now_ns: u64, real_ns: u64, client: u64) {
        let has_mps = self.ways.has_mps();
        let (unknown_ns, has_room) = (self.unknown_ns, self.deaths.len() < DEATHS_MAX);
        let jobs = self.jobs.iter_mut();
        let mut clients = jobs.flat_map(|Job { key, clients, .. }| {
            let key = &*key;
            clients.iter_mut().map(move |client| (key, client))
        });
        let Some((key, client)) = clients.find(|(_, known)| known.id == client) else {
            return;
        };
        // The GPU executes nothing of a lost context.
        let sticky = client.page.sticky.load(Ordering::Relaxed);
        if CUresult(sticky).is_sticky() || !has_room {
            return;
        }
        let (in_flight_ns, launches) = client.in_flight(now_ns, unknown_ns);
        if in_flight_ns == 0 && launches.is_none_or(|count| count == 0) {
            return;
        }
        let how = client.how(real_ns);
        let is_seen_to = matches!(how, How::Spared | How::SeenTo);
        let death = Death {
            key: key.clone(),
            pid: client.peer.pid,
            in_flight_ns,
            launches,
            how,
            is_on_mps: client
                .sharing
                .map_or(has_mps, |sharing| sharing == Sharing::Mps),
            is_seen_to: is_seen_to || client.end.seen_to_until_ns.get() > real_ns,
        };
        self.deaths.push(death);
    }

    pub(crate) fn note_spared(&mut self, pid: u32) {
        let clients = self.jobs.iter_mut().flat_map(|job| &mut job.clients);
        for client in clients.filter(|client| client.peer.pid == pid) {
            client.end.is_spared = true;
        }
    }

    pub(crate) fn take_deaths(&mut self) -> Vec<Death> {
        std::mem::take(&mut self.deaths)
    }
}

//! How long HP's requests take alone.
//!
//! Only requests count that met no BE work, or the least that the policy allows, or that were shorter
//! than what is believed by more than 3 %, which is proof that alone they are. So what BE work does to
//! requests never raises what they are held against: else the bounds would widen as the harm grows.
//! Of the last [`KEPT`] such requests the lower quartile is the latency, once [`REQUESTS_MIN`] were seen:
//! what disturbs a request only lengthens it.

use crate::timeline::REQUESTS_MIN;

/// Requests remembered of each client.
const KEPT: usize = 64;

/// HP clients remembered; the oldest is forgotten for one more. As many as a daemon serves.
const CLIENTS_MAX: usize = 256;

/// What is known of each HP client.
#[derive(Debug, Default)]
pub(crate) struct Solo {
    clients: Vec<Client>,
    least_ns: Option<u64>,
}

#[derive(Debug)]
struct Client {
    id: u64,
    took_ns: [u64; KEPT],
    count: usize,
    next: usize,
    latency_ns: Option<u64>,
    /// By how much nine of ten exceed that at most.
    spread_ns: u64,
}

impl Solo {
    /// The latency of a client's requests alone, once it is known.
    pub(crate) fn latency_ns(&self, id: u64) -> Option<u64> {
        self.client(id)?.latency_ns
    }

    /// By how much the requests of a client differ alone: nine of ten are so much longer than
    /// [`Solo::latency_ns`] or less; 0 while that is not known.
    pub(crate) fn spread_ns(&self, id: u64) -> u64 {
        self.client(id).map_or(0, |client| client.spread_ns)
    }

    /// The shortest of all clients whose latency is known.
    pub(crate) fn least_ns(&self) -> Option<u64> {
        self.least_ns
    }

    /// A request of a client took so long; `is_alone`: it met as good as no BE work.
    pub(crate) fn handle_request(&mut self, id: u64, took_ns: u64, is_alone: bool) {
        let known_ns = self.latency_ns(id);
        let is_shorter = known_ns.is_some_and(|known_ns| took_ns < known_ns - known_ns / 33);
        if !is_alone && !is_shorter {
            return;
        }
        if self.client(id).is_none() {
            if self.clients.len() >= CLIENTS_MAX {
                self.clients.remove(0);
            }
            self.clients.push(Client {
                id,
                took_ns: [0; KEPT],
                count: 0,
                next: 0,
                latency_ns: None,
                spread_ns: 0,
            });
        }
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.push(took_ns);
        }
        self.note_least();
    }

    /// A client has gone.
    pub(crate) fn handle_detach(&mut self, id: u64) {
        self.clients.retain(|client| client.id != id);
        self.note_least();
    }

    fn client(&self, id: u64) -> Option<&Client> {
        self.clients.iter().find(|client| client.id == id)
    }

    fn note_least(&mut self) {
        let known = self.clients.iter().filter_map(|client| client.latency_ns);
        self.least_ns = known.min();
    }
}

impl Client {
    fn push(&mut self, took_ns: u64) {
        self.took_ns[self.next] = took_ns;
        self.next = (self.next + 1) % KEPT;
        self.count = (self.count + 1).min(KEPT);
        if self.count >= REQUESTS_MIN {
            let mut sorted = self.took_ns;
            let kept = &mut sorted[..self.count];
            kept.sort_unstable();
            let quartile_ns = kept[self.count / 4];
            self.latency_ns = Some(quartile_ns);
            self.spread_ns = kept[self.count * 9 / 10] - quartile_ns;
        }
    }
}

//! The solo latency of HP's requests. Only these requests count: those that met no BE work; all
//! before [`REQUESTS_MIN`] were seen; while the gain is at its least, those that met at most the
//! work that it allows (without the floor), or at most `residual_ns_unknown` and a quarter of the
//! slack; and those shorter than the current estimate by more than 3 %, which proves that the solo
//! latency is shorter. BE work's effect therefore never raises the reference: otherwise the bounds
//! would widen as the harm grows. The latency is the lower quartile of the last [`KEPT`] such
//! requests, once [`REQUESTS_MIN`] were seen: disturbances only lengthen a request.
//! # Kinds
//! A client may make requests of several lengths, and a request that leaves the device idle in its
//! middle is seen as two. Requests are therefore compared with others of their *kind*: of the same
//! client and, within a fifth, as many launches. A client's slack follows from its *main* kind: the
//! quickest of those with a quarter of its launches, else the one with most. This excludes a health
//! check of one kernel, or a piece of a request. A kind that is neither main nor known yet is
//! learnt from all of its requests, which the main kind's bounds protect. If it becomes main, these
//! are forgotten.

/// Requests remembered of each kind, and of each client to determine its main kind.
const KEPT: usize = 64;

/// Requests that must be seen first: four of sixteen are as short as the quartile or shorter;
/// shorter ones correct the rest, and the feedback tolerates it. 50 of a job with four a second
/// take 13 s, in which BE work gets a tenth.
pub(crate) const REQUESTS_MIN: usize = 16;

/// HP clients remembered, as many as a daemon serves; one more displaces the oldest.
const CLIENTS_MAX: usize = 256;

/// Kinds remembered of each client; one more displaces the one with the fewest launches.
const KINDS_MAX: usize = 8;

/// The main kind has at least this part of a client's launches, as a divisor.
const MAIN_SHARE: u64 = 4;

#[derive(Debug, Default)]
pub(crate) struct Solo {
    clients: Vec<Client>,
    least_ns: Option<u64>,
    is_learning: bool,
    shortest_ns: Option<u64>,
}

#[derive(Debug)]
struct Client {
    id: u64,
    kinds: Vec<Kind>,
    recent: [(u32, u64); KEPT],
    count: usize,
    next: usize,
    main_ns: Option<u64>,
}

#[derive(Debug)]
struct Kind {
    number: u32,
    took_ns: [u64; KEPT],
    count: usize,
    next: usize,
    latency_ns: Option<u64>,
    /// Nine of ten requests exceed `latency_ns` by at most this, ns.
    spread_ns: u64,
    has_harmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alone {
    pub(crate) latency_ns: u64,
    /// The spread: nine of ten are longer by this or less.
    pub(crate) spread_ns: u64,
}

impl Solo {
    /// The solo latency of a client's requests of this many launches, once known.
    pub(crate) fn alone(&self, id: u64, launches: u64) -> Option<Alone> {
        let kind = self.client(id)?.kind(number(launches))?;
        Some(Alone {
            latency_ns: kind.latency_ns?,
            spread_ns: kind.spread_ns,
        })
    }

    pub(crate) fn least_ns(&self) -> Option<u64> {
        self.least_ns
    }

    pub(crate) fn mains(&self) -> impl Iterator<Item = (u64, u64)> {
        let clients = self.clients.iter();
        clients.filter_map(|client| Some((client.id, client.main_ns?)))
    }

    /// Whether a client has made requests and its main kind is not known.
    pub(crate) fn is_learning(&self) -> bool {
        self.is_learning
    }

    pub(crate) fn shortest_ns(&self) -> Option<u64> {
        self.shortest_ns
    }

    /// A request of a client has ended; `is_alone`: it met practically no BE work.
    pub(crate) fn handle_request(&mut self, id: u64, launches: u64, took_ns: u64, is_alone: bool) {
        if self.client(id).is_none() {
            if self.clients.len() >= CLIENTS_MAX {
                self.clients.remove(0);
            }
            self.clients.push(Client::new(id));
        }
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.handle_request(launches, took_ns, is_alone);
        }
        self.note();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub(crate) fn handle_detach(&mut self, id: u64) {
        self.clients.retain(|client| client.id != id);
        self.note();
    }

    fn client(&self, id: u64) -> Option<&Client> {
        self.clients.iter().find(|client| client.id == id)
    }

    fn note(&mut self) {
        for client in &mut self.clients {
            client.main_ns = client.main_ns();
        }
        let known = self.clients.iter().map(|client| client.main_ns);
        self.least_ns = known.clone().flatten().min();
        self.is_learning = known.clone().any(|main_ns| main_ns.is_none());
        let learning = self.clients.iter().filter(|it| it.main_ns.is_none());
        self.shortest_ns = learning.filter_map(Client::shortest_ns).min();
    }
}

/// The kind of requests of this many launches: four to a power of two.
fn number(launches: u64) -> u32 {
    let launches = launches.max(1);
    let power = launches.ilog2();
    let quarter = (launches << 2 >> power) & 3;
    power * 4 + quarter as u32
}

impl Client {
    fn new(id: u64) -> Self {
        Self {
            id,
            kinds: Vec::with_capacity(KINDS_MAX),
            recent: [(0, 0); KEPT],
            count: 0,
            next: 0,
            main_ns: None,
        }
    }

    fn kind(&self, number: u32) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.number == number)
    }

    fn handle_request(&mut self, launches: u64, took_ns: u64, is_alone: bool) {
        let number = number(launches);
        // A request of more launches than fit in memory would outweigh all others without reason.
        self.recent[self.next] = (number, launches.clamp(1, u64::from(u32::MAX)));
        self.next = (self.next + 1) % KEPT;
        self.count = (self.count + 1).min(KEPT);
        if self.kind(number).is_none() {
            self.make_room();
            self.kinds.push(Kind::new(number));
        }
        let is_main = self.is_main(number);
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.number == number) {
            if is_main && kind.has_harmed {
                *kind = Kind::new(number);
            }
            let is_shorter = kind
                .latency_ns
                .is_some_and(|known_ns| took_ns < known_ns - known_ns / 33);
            if is_alone || is_shorter || (kind.latency_ns.is_none() && !is_main) {
                kind.has_harmed |= !is_alone && !is_shorter;
                kind.push(took_ns);
            }
        }
    }

    fn shortest_ns(&self) -> Option<u64> {
        let kinds = self.kinds.iter().filter(|kind| self.is_main(kind.number));
        kinds
            .flat_map(|kind| &kind.took_ns[..kind.count])
            .copied()
            .min()
    }

    fn main_ns(&self) -> Option<u64> {
        let kinds = self.kinds.iter().filter(|kind| self.is_main(kind.number));
        kinds.filter_map(|kind| kind.latency_ns).min()
    }

    fn launches(&self, number: u32) -> u64 {
        let recent = self.recent[..self.count].iter();
        let same = recent.filter(|(kind, _)| *kind == number);
        same.map(|(_, launches)| launches).sum()
    }

    fn is_main(&self, number: u32) -> bool {
        let all = self.recent[..self.count].iter();
        let all = all.map(|(_, launches)| launches).sum::<u64>();
        let own = self.launches(number);
        own >= all / MAIN_SHARE
            || self
                .kinds
                .iter()
                .all(|kind| self.launches(kind.number) <= own)
    }

    fn make_room(&mut self) {
        if self.kinds.len() < KINDS_MAX {
            return;
        }
        let places = 0..self.kinds.len();
        if let Some(place) = places.min_by_key(|&place| self.launches(self.kinds[place].number)) {
            self.kinds.swap_remove(place);
        }
    }
}

impl Kind {
    fn new(number: u32) -> Self {
        Self {
            number,
            took_ns: [0; KEPT],
            count: 0,
            next: 0,
            latency_ns: None,
            spread_ns: 0,
            has_harmed: false,
        }
    }

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
            // A difference that BE work caused is not their spread.
            self.spread_ns = match self.has_harmed {
                true => 0,
                false => kept[self.count * 9 / 10] - quartile_ns,
            };
        }
    }
}

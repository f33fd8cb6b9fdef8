//! A trace: what all jobs do for some seconds, for `pillion trace`.
//! While a trace is taken, the daemon's page says so ([`protocol::pages::DaemonPage::trace`]),
//! clients report more, and each poll notes their reports in the format of [`protocol::trace`].
//! Polls then come every millisecond, so that the rings do not fill. Otherwise nothing is reported
//! or noted. A launch around the begin or end of a trace is included if it was made between the two
//! moments. Kernels' names are reported later, so names are read for [`NAMES_NS`] after the end.

use std::collections::HashMap;

use policy::Limit;
use protocol::pages::{ClientPage, Counter};
use protocol::record::{NamePart, RECORD_WORDS, Record};
use protocol::sync::Ordering;
use protocol::trace::{ENTRIES_MAX, Entry, Grant, Lease, Request};

use super::record::Leases;
use super::requests;
use super::rings::Rings;
use super::{BeJob, Client, IDLE_POLL_NS, Job, State, Wake};
use crate::core::job_key::JobKey;

/// Names are read this long after the end: helpers report every 20 ms (`progress/traced.rs`).
const NAMES_NS: u64 = 150_000_000;

/// Kernels whose names are kept; each may take 384 bytes.
const KERNELS_MAX: usize = 16_384;

/// Entries of one allocation: a poll that finds one full does not copy it.
const CHUNK: usize = 4096;

/// Listed clients; reports of further ones are dropped.
const CLIENTS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another trace is being taken; it ends within a minute")]
pub(crate) struct Busy;

#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) is_full: bool,
    pub(crate) dropped: u64,
    pub(crate) jobs: Vec<JobKey>,
    pub(crate) clients: Vec<TracedClient>,
    pub(crate) kernels: Vec<((u64, u64), String)>,
    pub(crate) entries: Vec<Vec<[u64; RECORD_WORDS]>>,
}

#[derive(Clone, Debug)]
pub(crate) struct TracedClient {
    pub(crate) id: u64,
    pub(crate) job: u32,
    pub(crate) pid: u32,
    pub(crate) name: String,
}

#[derive(Debug)]
pub(crate) struct Tracing {
    number: u32,
    /// Of this user's jobs; none: of all.
    uid: Option<u32>,
    /// From then on only names are noted.
    until_ns: u64,
    traced: Traced,
    is_over: bool,
    entries: usize,
    readers: Vec<Reader>,
    leases: Leases,
    told: Vec<Lease>,
    names: HashMap<(u64, u64), Name>,
}

#[derive(Debug)]
struct Reader {
    client: u64,
    /// Part of the trace. Others' reports are read, too, so that they do not count as lost.
    is_seen: bool,
    /// Of a best-effort client. A high-priority client's are read all the time.
    rings: Option<Rings>,
    dropped: u64,
}

#[derive(Debug, Default)]
struct Name {
    bytes: Vec<u8>,
    parts: u8,
}

impl Name {
    /// A part out of order was lost, or is a liar's: the name ends before it.
    fn handle_part(&mut self, part: &NamePart) {
        if part.part == self.parts {
            self.parts += 1;
            let text = part.text.split(|&byte| byte == 0).next();
            self.bytes.extend_from_slice(text.unwrap_or_default());
        }
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        text.chars().filter(|c| !c.is_control()).collect()
    }
}

impl Tracing {
    fn new(now_ns: u64, length_ns: u64, uid: Option<u32>) -> Self {
        let until_ns = now_ns.saturating_add(length_ns);
        Self {
            // Never 0, and hardly ever that of another trace.
            number: (now_ns >> 10) as u32 | 1,
            uid,
            until_ns,
            traced: Traced {
                began_ns: now_ns,
                ended_ns: until_ns,
                is_full: false,
                dropped: 0,
                jobs: Vec::new(),
                clients: Vec::new(),
                kernels: Vec::new(),
                entries: Vec::new(),
            },
            is_over: false,
            entries: 0,
            readers: Vec::new(),
            leases: Leases::default(),
            told: Vec::new(),
            names: HashMap::new(),
        }
    }

    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        (!self.is_over).then_some(now_ns + IDLE_POLL_NS)
    }

    fn sees(&self, key: &JobKey) -> bool {
        !self.is_over && self.uid.is_none_or(|uid| uid == key.uid)
    }

    fn job(&mut self, key: &JobKey) -> u32 {
        let jobs = &mut self.traced.jobs;
        let place = jobs.iter().position(|known| known == key);
        place.unwrap_or_else(|| {
            jobs.push(key.clone());
            jobs.len() - 1
        }) as u32
    }

    pub(super) fn handle_attach(&mut self, key: &JobKey, client: &mut Client) {
        if self.is_over {
            return;
        }
        let is_seen = self.sees(key) && self.traced.clients.len() < CLIENTS_MAX;
        let rings = match &mut client.hp_client {
            Some(hp_client) => {
                hp_client.traced = is_seen.then(Vec::new);
                None
            }
            None => Some(Rings::new(&client.page)),
        };
        self.readers.push(Reader {
            client: client.id,
            is_seen,
            rings,
            dropped: client.page.counted(Counter::Dropped),
        });
        if !is_seen {
            return;
        }
        let number = self.job(key);
        self.traced.clients.push(TracedClient {
            id: client.id,
            job: number,
            pid: client.peer.pid,
            name: client.name.clone(),
        });
    }

    /// A client leaves; a high-priority one's rings have been read.
    pub(super) fn handle_detach(&mut self, job: &mut Job, client: &mut Client, now_ns: u64) {
        self.read(client, now_ns);
        self.count_dropped(client.id, &client.page);
        self.readers.retain(|reader| reader.client != client.id);
        if !self.sees(&job.key) {
            return;
        }
        self.note_requests(job);
        if job.clients.is_empty()
            && job.be_job.is_some()
            && let Some(job) = self.traced.jobs.iter().position(|key| *key == job.key)
        {
            // If it returns, its lease is noted again.
            self.told.retain(|told| told.job != job as u32);
            self.push(&Entry::Lease(Lease {
                job: job as u32,
                at_ns: now_ns.min(self.until_ns),
                grant: Grant::Ended,
                is_waiting: false,
                limit: 0,
                classes: 0,
                sms_max: 0,
                budget_ns: 0,
            }));
        }
    }

    fn count_dropped(&mut self, client: u64, page: &ClientPage) {
        let reader = self.readers.iter_mut().find(|known| known.client == client);
        if let Some(reader) = reader.filter(|reader| reader.is_seen) {
            let dropped = page.counted(Counter::Dropped);
            self.traced.dropped += dropped.saturating_sub(reader.dropped);
            reader.dropped = dropped;
        }
    }

    fn read(&mut self, client: &mut Client, now_ns: u64) {
        if let Some(hp_client) = &mut client.hp_client {
            let Some(traced) = &mut hp_client.traced else {
                return;
            };
            for words in core::mem::take(traced) {
                self.handle(client.id, &words, now_ns);
            }
            return;
        }
        let mut readers = self.readers.iter_mut();
        let Some(reader) = readers.find(|reader| reader.client == client.id) else {
            return;
        };
        let is_seen = reader.is_seen;
        let Some(mut rings) = reader.rings.take() else {
            return;
        };
        let mut round = rings.begin(&client.page);
        while let Some((_, words)) = rings.next(&client.page, &mut round) {
            if is_seen {
                self.handle(client.id, &words, now_ns);
            }
        }
        let mut readers = self.readers.iter_mut();
        if let Some(reader) = readers.find(|reader| reader.client == client.id) {
            reader.rings = Some(rings);
        }
    }

    fn handle(&mut self, client: u64, words: &[u64; RECORD_WORDS], now_ns: u64) {
        let Ok(record) = Record::decode(words) else {
            return;
        };
        let at_ns = match &record {
            Record::Name(part) => return self.handle_name(client, part),
            Record::Launch(launch) => launch.at_ns,
            Record::Memcpy(copy) => copy.at_ns,
            Record::Complete { at_ns, .. } => *at_ns,
            // Requests are noted when they end.
            Record::Begin(_) | Record::End(_) | Record::Target { .. } => return,
        };
        let at_ns = if at_ns == 0 { now_ns } else { at_ns };
        if (self.traced.began_ns..=self.until_ns).contains(&at_ns) {
            self.push(&Entry::Record {
                client,
                read_ns: now_ns,
                record,
            });
        }
    }

    fn handle_name(&mut self, client: u64, part: &NamePart) {
        let key = (client, part.kernel);
        if part.part == 0 && self.names.len() < KERNELS_MAX {
            self.names.insert(key, Name::default());
        }
        if let Some(name) = self.names.get_mut(&key) {
            name.handle_part(part);
        }
    }

    fn note_requests(&mut self, job: &mut Job) {
        let Some(ended) = &mut job.requests.traced else {
            return;
        };
        let ended = core::mem::take(ended);
        let number = self.job(&job.key);
        for request in ended {
            self.note_request(number, &request);
        }
    }

    fn note_request(&mut self, job: u32, request: &requests::Traced) {
        if (self.traced.began_ns..=self.until_ns).contains(&request.ended_ns) {
            self.push(&Entry::Request(Request {
                job,
                arrived_ns: request.arrived_ns,
                ended_ns: request.ended_ns,
                kind: request.kind,
                is_cancelled: request.is_cancelled,
                target_ns: request.target_ns.unwrap_or(0),
            }));
        }
    }

    fn note_lease(&mut self, key: &JobKey, be_job: &BeJob, now_ns: u64) {
        let Some(grant) = self.leases.changed(be_job) else {
            return;
        };
        if now_ns > self.until_ns {
            return;
        }
        let job = self.job(key);
        let limit = Limit::ALL.iter().position(|limit| *limit == be_job.limit());
        let (grant, classes, sms_max, budget_ns) = match grant {
            super::Grant::Closed => (Grant::Closed, 0, 0, 0),
            super::Grant::Ungated => (Grant::Ungated, 0, u32::MAX, u64::MAX),
            super::Grant::Open {
                beside_hp,
                classes,
                sms_max,
                budget_ns,
            } => {
                let grant = if beside_hp {
                    Grant::BesideHp
                } else {
                    Grant::Open
                };
                (grant, classes.bits() as u8, sms_max, budget_ns)
            }
        };
        let lease = Lease {
            job,
            at_ns: now_ns,
            grant,
            is_waiting: be_job.view().waiting,
            limit: limit.unwrap_or(0) as u8,
            classes,
            sms_max,
            budget_ns,
        };
        // A change of only the budget waits for another change: there are thousands a second.
        let is_news = |before: &Lease| {
            let (at_ns, budget_ns) = (before.at_ns, before.budget_ns);
            *before
                != Lease {
                    at_ns,
                    budget_ns,
                    ..lease
                }
        };
        let place = self.told.iter().position(|before| before.job == job);
        match place.and_then(|place| self.told.get_mut(place)) {
            Some(before) if !is_news(before) => return,
            Some(before) => *before = lease,
            None => self.told.push(lease),
        }
        self.push(&Entry::Lease(lease));
    }

    fn push(&mut self, entry: &Entry) {
        if self.entries >= ENTRIES_MAX {
            return;
        }
        let chunks = &mut self.traced.entries;
        let words = entry.encode();
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(words),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(words);
                chunks.push(chunk);
            }
        }
        self.entries += 1;
    }

    fn end(&mut self, at_ns: u64) {
        self.until_ns = self.until_ns.min(at_ns);
        self.traced.ended_ns = self.until_ns;
    }

    pub(crate) fn into_traced(self) -> Traced {
        let names = self.names.into_iter();
        let mut kernels: Vec<_> = names.map(|(key, name)| (key, name.text())).collect();
        kernels.sort_unstable();
        Traced {
            kernels,
            ..self.traced
        }
    }
}

impl State {
    /// Begins a trace at `now_ns`, of user `uid` or of all; returns its number. Error: another one
    /// is taken or not collected, but a trace of all jobs replaces one of a user's. The caller
    /// rings the daemon's bell.
    pub(crate) fn begin_trace(
        &mut self,
        now_ns: u64,
        length_ns: u64,
        uid: Option<u32>,
    ) -> Result<u32, Busy> {
        match &self.trace {
            Some(trace) if uid.is_none() && trace.uid.is_some() => {
                let number = trace.number;
                self.drop_trace(number);
            }
            Some(_) => return Err(Busy),
            None => {}
        }
        self.drain(now_ns);
        let mut trace = Box::new(Tracing::new(now_ns, length_ns, uid));
        for job in &mut self.jobs {
            for client in &mut job.clients {
                trace.handle_attach(&job.key, client);
            }
            if job.be_job.is_none() && trace.sees(&job.key) {
                job.requests.traced = Some(Vec::new());
            }
        }
        let number = trace.number;
        self.trace = Some(trace);
        // No load pairs with this Release: clients load the word Relaxed. Entries from before the
        // beginning are left out when read, so no order is needed.
        self.pages.daemon.trace.store(number, Ordering::Release);
        self.is_trace_new = true;
        Ok(number)
    }

    pub(crate) fn end_trace(&mut self, number: u32, now_ns: u64) {
        let trace = self.trace.as_mut();
        if let Some(trace) = trace.filter(|trace| trace.number == number) {
            trace.end(now_ns);
        }
    }

    /// Returns the trace of that number once it has ended; then another may begin.
    pub(crate) fn take_trace(&mut self, number: u32) -> Option<Box<Tracing>> {
        let is_it = |trace: &mut Box<Tracing>| trace.is_over && trace.number == number;
        self.trace.take_if(is_it)
    }

    pub(crate) fn has_trace(&self, number: u32) -> bool {
        let trace = self.trace.as_ref();
        trace.is_some_and(|trace| trace.number == number)
    }

    pub(crate) fn drop_trace(&mut self, number: u32) {
        if self.has_trace(number) {
            self.close_trace();
            self.trace = None;
        }
    }

    pub(super) fn poll_trace(&mut self, now_ns: u64) {
        let Some(trace) = self.trace.as_mut().filter(|trace| !trace.is_over) else {
            return;
        };
        let be_jobs = self.jobs.iter().filter_map(|job| job.be_job.as_ref());
        trace.leases.retain(be_jobs);
        for (index, job) in self.jobs.iter_mut().enumerate() {
            for client in &mut job.clients {
                trace.read(client, now_ns);
            }
            if !trace.sees(&job.key) {
                continue;
            }
            if self.is_trace_new {
                let clients = 0..job.clients.len();
                let wakes = clients.map(|client| Wake::Helper { job: index, client });
                self.wakes.extend(wakes);
            }
            match &job.be_job {
                Some(be_job) => trace.note_lease(&job.key, be_job, now_ns),
                None => {
                    job.requests.traced.get_or_insert_default();
                    trace.note_requests(job);
                }
            }
        }
        self.is_trace_new = false;
        if trace.entries >= ENTRIES_MAX && now_ns < trace.until_ns {
            trace.traced.is_full = true;
            trace.end(now_ns);
        }
        if now_ns >= trace.until_ns.saturating_add(NAMES_NS) {
            self.close_trace();
        }
    }

    fn close_trace(&mut self) {
        self.pages.daemon.trace.store(0, Ordering::Relaxed);
        let Some(trace) = &mut self.trace else { return };
        for job in &mut self.jobs {
            job.requests.traced = None;
            for client in &mut job.clients {
                trace.count_dropped(client.id, &client.page);
                if let Some(hp_client) = &mut client.hp_client {
                    hp_client.traced = None;
                }
            }
        }
        trace.is_over = true;
    }
}

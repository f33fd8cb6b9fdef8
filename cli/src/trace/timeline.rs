//! Draws a trace as a timeline: the Trace Event Format, a process for each job. A job's process has
//! a track for its requests, or for its leases and its waits, and one for each stream of each of
//! its processes. Measured are the times of launches, and the times at which a high-priority stream
//! was known to be complete. The duration of a kernel is not measured: the expected duration is
//! drawn, from the launch or from the end of the previous kernel of the stream. Work seen complete,
//! because the program waited for it or a client asked the driver, ends at that time at the latest;
//! kernels without a known duration share the time until then. So a part of a stream is drawn only
//! once its completion is known. Records of one stream may come by several rings, so a completion
//! may be read before its launch.

use std::collections::{BTreeMap, HashMap, VecDeque};

use policy::{Class, ClassSet};
use profiler::base_name::base;
use protocol::record::{EXPECTED_NS_MAX, Launch, Memcpy, Record};
use protocol::trace::{Entry, Grant, Lease, Request};
use serde::Serialize;
use serde_json::{Value, json};

use super::document::Document;
use crate::perfetto::{Track, Writer};

const REQUESTS_TRACK: u64 = 1;
const LEASES_TRACK: u64 = 2;
const WAITS_TRACK: u64 = 3;
const STREAMS_TRACK: u64 = 4;

/// Limit on a kernel's name in the file, bytes; `otherData` has the whole name.
const NAME_BYTES_MAX: usize = 40;

/// The least drawn duration of a kernel of unknown duration, ns.
const UNKNOWN_NS: u64 = 1_000;

#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) jobs: Vec<JobCounts>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct JobCounts {
    pub(super) job: String,
    pub(super) class: String,
    pub(super) uid: u32,
    pub(super) launches: u64,
    pub(super) copies: u64,
    pub(super) requests: u64,
    /// Changes of its lease.
    pub(super) leases: u64,
}

impl Counts {
    pub(super) fn all(&self) -> JobCounts {
        let mut all = JobCounts::default();
        for job in &self.jobs {
            all.launches += job.launches;
            all.copies += job.copies;
            all.requests += job.requests;
            all.leases += job.leases;
        }
        all
    }
}

pub(super) fn timeline(document: &Document) -> (String, Counts) {
    let mut drawing = Drawing::new(document);
    for entry in &document.entries {
        drawing.entry(entry);
    }
    drawing.finish();
    let header = &document.header;
    let other = json!({
        "gpu": header.gpu,
        "model": header.model,
        "sms": header.sms,
        "pillion_version": env!("CARGO_PKG_VERSION"),
        "daemon_version": header.daemon_version,
        "began_ns": header.began_ns,
        "ended_ns": header.ended_ns,
        "is_full": header.is_full,
        "records_dropped": header.dropped,
        "jobs": drawing.counts.jobs,
        "kernels": drawing.kernels(),
    });
    (drawing.writer.document(&other), drawing.counts)
}

struct Drawing<'d> {
    document: &'d Document,
    writer: Writer,
    counts: Counts,
    /// Index of a client in the header.
    clients: HashMap<u64, usize>,
    streams: HashMap<(u64, u32), Stream>,
    /// Streams with a track, by job.
    tracks: Vec<u64>,
    /// The jobs' current leases.
    leases: Vec<Option<Lease>>,
    /// Since when a job has waited, and by which rule.
    waits: Vec<Option<(u64, u8)>>,
    /// The drawn kernels, by client and kernel.
    kernels: HashMap<(u64, u64), Drawn>,
}

struct Drawn {
    number: usize,
    name: String,
    sm_needed: u32,
}

/// A stream with the operations that are not drawn yet.
struct Stream {
    track: Track,
    /// The end of the drawn operations.
    end_ns: u64,
    waiting: VecDeque<Item>,
    /// Its last launch.
    seq: u64,
    /// The launch up to which it is complete, and since when.
    done: (u64, u64),
}

struct Item {
    seq: u64,
    at_ns: u64,
    what: What,
}

enum What {
    Kernel(Launch),
    Copy(Memcpy),
}

impl Item {
    fn length_ns(&self) -> Option<u64> {
        match &self.what {
            What::Kernel(launch) => Some(launch.expected_ns).filter(|&ns| ns != 0),
            What::Copy(copy) => Some(copy.expected_ns),
        }
    }
}

impl<'d> Drawing<'d> {
    fn new(document: &'d Document) -> Self {
        let header = &document.header;
        let mut writer = Writer::default();
        let mut counts = Counts::default();
        for (place, job) in header.jobs.iter().enumerate() {
            let pid = pid_of(place);
            writer.name_process(pid, &format!("{} ({})", job.job, job.class));
            let track = |tid| Track { pid, tid };
            if job.class == "high-priority" {
                writer.name_track(track(REQUESTS_TRACK), "requests");
            } else {
                writer.name_track(track(LEASES_TRACK), "may launch");
                writer.name_track(track(WAITS_TRACK), "waits because of");
            }
            counts.jobs.push(JobCounts {
                job: job.job.clone(),
                class: job.class.clone(),
                uid: job.uid,
                ..JobCounts::default()
            });
        }
        let clients = header.clients.iter().enumerate();
        Self {
            document,
            writer,
            counts,
            clients: clients
                .map(|(place, client)| (client.client, place))
                .collect(),
            streams: HashMap::new(),
            tracks: vec![STREAMS_TRACK; header.jobs.len()],
            leases: vec![None; header.jobs.len()],
            waits: vec![None; header.jobs.len()],
            kernels: HashMap::new(),
        }
    }

    fn entry(&mut self, entry: &Entry) {
        match *entry {
            Entry::Record {
                client,
                read_ns,
                record,
            } => self.record(client, read_ns, record),
            Entry::Lease(lease) => self.lease(lease),
            Entry::Request(request) => self.request(&request),
        }
    }

    fn record(&mut self, client: u64, read_ns: u64, record: Record) {
        match record {
            Record::Launch(launch) => {
                let at_ns = if launch.at_ns == 0 {
                    read_ns
                } else {
                    launch.at_ns
                };
                self.count(client, |counts| counts.launches += 1);
                let Some(stream) = self.stream(client, launch.stream) else {
                    return;
                };
                stream.add(Item {
                    seq: launch.seq,
                    at_ns,
                    what: What::Kernel(launch),
                });
                let (done, by_ns) = stream.done;
                if launch.seq <= done {
                    self.draw(client, launch.stream, done, Some(by_ns));
                }
            }
            Record::Memcpy(copy) => {
                self.count(client, |counts| counts.copies += 1);
                let Some(stream) = self.stream(client, copy.stream) else {
                    return;
                };
                let seq = stream.seq;
                stream.add(Item {
                    seq,
                    at_ns: copy.at_ns,
                    what: What::Copy(copy),
                });
                if copy.waited_ns != 0 {
                    // The copy and all work before it were complete when the call returned.
                    let by_ns = copy.at_ns.saturating_add(copy.waited_ns);
                    self.draw(client, copy.stream, seq, Some(by_ns));
                }
            }
            Record::Complete {
                stream: index,
                seq,
                at_ns,
            } => {
                let at_ns = if at_ns == 0 { read_ns } else { at_ns };
                if let Some(stream) = self.stream(client, index) {
                    if seq > stream.done.0 {
                        stream.done = (seq, at_ns);
                    }
                    self.draw(client, index, seq, Some(at_ns));
                }
            }
            Record::Begin(_) | Record::End(_) | Record::Target { .. } | Record::Name(_) => {}
        }
    }

    fn job_of(&self, client: u64) -> Option<usize> {
        let place = *self.clients.get(&client)?;
        Some(self.document.header.clients.get(place)?.job)
    }

    fn count(&mut self, client: u64, count: impl FnOnce(&mut JobCounts)) {
        let job = self.job_of(client);
        if let Some(counts) = job.and_then(|job| self.counts.jobs.get_mut(job)) {
            count(counts);
        }
    }

    /// A client's stream, which gets a track when first seen.
    fn stream(&mut self, client: u64, index: u32) -> Option<&mut Stream> {
        if !self.streams.contains_key(&(client, index)) {
            let is = self
                .document
                .header
                .clients
                .get(*self.clients.get(&client)?)?;
            let tid = self.tracks.get_mut(is.job)?;
            let track = Track {
                pid: pid_of(is.job),
                tid: *tid,
            };
            *tid += 1;
            let title = format!("{} {} stream {index}", is.name, is.pid);
            self.writer.name_track(track, &title);
            let stream = Stream {
                track,
                end_ns: 0,
                waiting: VecDeque::new(),
                seq: 0,
                done: (0, 0),
            };
            self.streams.insert((client, index), stream);
        }
        self.streams.get_mut(&(client, index))
    }

    /// Draws a stream's operations up to launch `seq`, which was complete by `by_ns`, if known.
    fn draw(&mut self, client: u64, index: u32, seq: u64, by_ns: Option<u64>) {
        let Some(stream) = self.streams.get_mut(&(client, index)) else {
            return;
        };
        let count = stream.waiting.iter().take_while(|item| item.seq <= seq);
        let count = count.count();
        let items: Vec<Item> = stream.waiting.drain(..count).collect();
        let mut end_ns = stream.end_ns;
        let track = stream.track;
        let share_ns = share_of_unknown(&items, end_ns, by_ns);
        for item in items {
            let by_ns = by_ns.unwrap_or(u64::MAX);
            let begin_ns = item.at_ns.max(end_ns).min(by_ns);
            let length_ns = item.length_ns().unwrap_or(share_ns);
            end_ns = begin_ns.saturating_add(length_ns).min(by_ns);
            self.item(client, track, &item, (begin_ns, end_ns));
        }
        if let Some(stream) = self.streams.get_mut(&(client, index)) {
            stream.end_ns = end_ns;
        }
    }

    fn item(&mut self, client: u64, track: Track, item: &Item, span_ns: (u64, u64)) {
        let span_ns = self.within(span_ns);
        match &item.what {
            What::Kernel(launch) => {
                let name = self.name_of(client, launch);
                let class = Class::from_bits(launch.class.into()).name();
                let args = match launch.expected_ns {
                    0 => json!({"guess": true}),
                    _ => Value::Null,
                };
                self.writer.span(track, (class, &name), span_ns, &args);
            }
            What::Copy(copy) => {
                let args = json!({"bytes": copy.bytes});
                self.writer
                    .span(track, ("copy", copy.direction.name()), span_ns, &args);
            }
        }
    }

    /// Times within the trace, relative to its beginning.
    fn within(&self, (from_ns, to_ns): (u64, u64)) -> (u64, u64) {
        let header = &self.document.header;
        let place = |ns: u64| ns.clamp(header.began_ns, header.ended_ns) - header.began_ns;
        let from_ns = place(from_ns);
        (from_ns, place(to_ns).max(from_ns))
    }

    /// The name of a kernel in this document, which ends in its number.
    fn name_of(&mut self, client: u64, launch: &Launch) -> String {
        let of = (client, launch.kernel);
        let whole = self.document.kernels.get(&of);
        let number = self.kernels.len() + 1;
        let drawn = self.kernels.entry(of).or_insert_with(|| {
            let short = match whole {
                Some(whole) => short(whole),
                None if launch.kernel == 0 => "not identified".to_owned(),
                None => "name unknown".to_owned(),
            };
            Drawn {
                number,
                name: format!("{short} #{number}"),
                sm_needed: launch.sm_needed,
            }
        });
        drawn.name.clone()
    }

    /// The drawn kernels, by number: their whole names, and the SMs that they need.
    fn kernels(&self) -> BTreeMap<usize, Value> {
        let kernels = self.kernels.iter();
        let all = kernels.map(|(of, drawn)| {
            let sms = Some(drawn.sm_needed).filter(|&sms| sms != 0 && sms != u32::MAX);
            let name = self.document.kernels.get(of);
            (drawn.number, json!({"name": name, "sms": sms}))
        });
        all.collect()
    }

    fn request(&mut self, request: &Request) {
        let job = request.job as usize;
        let Some(counts) = self.counts.jobs.get_mut(job) else {
            return;
        };
        counts.requests += 1;
        let id = counts.requests;
        let took_ns = request.ended_ns.saturating_sub(request.arrived_ns);
        let name = match (request.kind, request.is_cancelled, request.target_ns) {
            (None, ..) => "inferred request",
            (_, true, _) => "cancelled request",
            (_, _, target_ns) if target_ns != 0 && took_ns > target_ns => "request over its target",
            _ => "request",
        };
        let track = Track {
            pid: pid_of(job),
            tid: REQUESTS_TRACK,
        };
        let span_ns = self.within((request.arrived_ns, request.ended_ns));
        self.writer.request(track, id, name, span_ns);
    }

    fn lease(&mut self, lease: Lease) {
        let job = lease.job as usize;
        if job >= self.leases.len() {
            return;
        }
        self.counts.jobs[job].leases += 1;
        self.end_lease(job, lease.at_ns);
        let wait = self.waits[job];
        if wait.map(|(_, limit)| limit) != lease.is_waiting.then_some(lease.limit) {
            self.end_wait(job, lease.at_ns);
            self.waits[job] = lease.is_waiting.then_some((lease.at_ns, lease.limit));
        }
        self.leases[job] = Some(lease);
    }

    /// Draws the job's lease up to that time.
    fn end_lease(&mut self, job: usize, at_ns: u64) {
        let Some(lease) = self.leases[job].take() else {
            return;
        };
        let args = match lease.grant {
            Grant::Closed | Grant::Ended => return,
            Grant::Ungated => json!({}),
            Grant::Open | Grant::BesideHp => {
                let mut args = json!({"classes": classes(lease.classes).join(" ")});
                if lease.sms_max != u32::MAX {
                    args["sms"] = lease.sms_max.into();
                }
                // A greater budget bounds nothing.
                if lease.budget_ns <= EXPECTED_NS_MAX {
                    args["budget_us"] = (lease.budget_ns / 1_000).into();
                }
                args
            }
        };
        let track = Track {
            pid: pid_of(job),
            tid: LEASES_TRACK,
        };
        let span_ns = self.within((lease.at_ns, at_ns));
        self.writer
            .span(track, ("lease", lease.grant.name()), span_ns, &args);
    }

    fn end_wait(&mut self, job: usize, at_ns: u64) {
        let Some((since_ns, limit)) = self.waits[job].take() else {
            return;
        };
        let track = Track {
            pid: pid_of(job),
            tid: WAITS_TRACK,
        };
        let span_ns = self.within((since_ns, at_ns));
        let name = self.limit(limit).to_owned();
        self.writer
            .span(track, ("wait", &name), span_ns, &json!({}));
    }

    fn limit(&self, limit: u8) -> &str {
        let limits = &self.document.header.limits;
        limits.get(usize::from(limit)).map_or("", String::as_str)
    }

    fn finish(&mut self) {
        let mut streams: Vec<(u64, u32)> = self.streams.keys().copied().collect();
        streams.sort_unstable();
        for (client, index) in streams {
            self.draw(client, index, u64::MAX, None);
        }
        let ended_ns = self.document.header.ended_ns;
        for job in 0..self.leases.len() {
            self.end_lease(job, ended_ns);
            self.end_wait(job, ended_ns);
        }
    }
}

impl Stream {
    /// Adds an item after all those launched before it.
    fn add(&mut self, item: Item) {
        self.seq = self.seq.max(item.seq);
        let behind = self.waiting.iter().rev();
        let behind = behind.take_while(|other| other.seq > item.seq).count();
        self.waiting.insert(self.waiting.len() - behind, item);
    }
}

/// A kernel's own name, cut if it is too long.
fn short(name: &str) -> String {
    // A graph's name is a sentence.
    let base = match name.contains(' ') && !name.contains('(') {
        true => name,
        false => base(name),
    };
    let mut bytes = 0;
    let mut short = String::new();
    for c in base.chars() {
        bytes += match c {
            '"' | '\\' => 2,
            c => c.len_utf8(),
        };
        if bytes > NAME_BYTES_MAX {
            short.push('…');
            break;
        }
        short.push(c);
    }
    short
}

/// The drawn duration of each unknown kernel: they share the time that known ones leave.
fn share_of_unknown(items: &[Item], end_ns: u64, by_ns: Option<u64>) -> u64 {
    let (Some(by_ns), Some(first)) = (by_ns, items.first()) else {
        return UNKNOWN_NS;
    };
    let known_ns: u64 = items.iter().filter_map(Item::length_ns).sum();
    let unknown = items.iter().filter(|item| item.length_ns().is_none());
    let all_ns = by_ns.saturating_sub(first.at_ns.max(end_ns));
    let free_ns = all_ns.saturating_sub(known_ns);
    let share_ns = free_ns.checked_div(unknown.count() as u64);
    share_ns.unwrap_or(0).max(UNKNOWN_NS)
}

fn pid_of(job: usize) -> u64 {
    job as u64 + 1
}

fn classes(bits: u8) -> Vec<&'static str> {
    let set = ClassSet::from_bits_truncate(bits.into());
    let all = Class::ALL.into_iter();
    all.filter(|class| set.contains(*class))
        .map(Class::name)
        .collect()
}

#[cfg(test)]
mod tests;

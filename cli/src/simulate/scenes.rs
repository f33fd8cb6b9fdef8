//! `timeline.json` of `--out`: the work around the slowest request, under each policy. It covers
//! the first pair of jobs and the first seed: a process for each policy (or other swept value),
//! with a track for high-priority requests, one for each job's kernels and copies, and one for its
//! holds. The request is the slowest of the first process; all have the same arrivals. Runs are
//! repeated for this: recording every run would take more memory than all the rest.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sim::scenario::Scenario;
use sim::{ClientId, JobClass, Launch, Observer};
use softgpu::{CopyDirection, OpKind};

use crate::perfetto::{Track, Writer};
use crate::simulate::outcomes::Group;
use crate::simulate::runner::Run;

/// Around the request's arrival, as in the demo.
const HALF_WINDOW_NS: u64 = 250_000_000;

const SCENES_MAX: usize = 12;

const REQUESTS_TRACK: u64 = 1;
/// First track of kernels.
const JOBS_TRACK: u64 = 100;
const HOLDS_TRACK: u64 = 200;

/// Fails as a run does.
pub(crate) fn timeline(runs: &[Run<'_>]) -> Result<String, sim::Error> {
    let mut writer = Writer::default();
    let mut about = Map::new();
    let Some(first) = runs.first() else {
        return Ok(writer.document(&json!({})));
    };
    let heading = |run: &Run<'_>| Group::all(&[run]).first().map(Group::heading);
    let same = runs
        .iter()
        .filter(|run| run.seed == first.seed && heading(run) == heading(first));
    let at_ns = slowest_ns(first.scenario, first.seed)?;
    for (pid, run) in (1..).zip(same.take(SCENES_MAX)) {
        let name = Group::all(&[run])
            .first()
            .map_or(String::new(), Group::series);
        let scene = Scene::record(run, at_ns)?;
        about.insert(name.clone(), scene.write(&mut writer, pid, &name));
    }
    let other = json!({
        "jobs": heading(first),
        "seed": first.seed,
        "slowest_request_arrived_ns": at_ns,
        "scenes": about,
    });
    Ok(writer.document(&other))
}

fn slowest_ns(scenario: &Scenario, seed: u64) -> Result<u64, sim::Error> {
    struct Slowest {
        is_hp: Vec<bool>,
        latency_ns: u64,
        arrival_ns: u64,
    }
    impl Observer for Slowest {
        fn request_ended(&mut self, now_ns: u64, client: ClientId, _: u64, arrival_ns: u64) {
            let latency_ns = now_ns.saturating_sub(arrival_ns);
            if self.is_hp[client.0] && latency_ns > self.latency_ns {
                (self.latency_ns, self.arrival_ns) = (latency_ns, arrival_ns);
            }
        }
    }
    let experiment = scenario.with_seed(seed);
    let mut slowest = Slowest {
        is_hp: is_hp(scenario),
        latency_ns: 0,
        arrival_ns: 0,
    };
    experiment.run(&mut slowest)?;
    Ok(slowest.arrival_ns)
}

fn is_hp(scenario: &Scenario) -> Vec<bool> {
    let jobs = scenario.experiment.jobs.iter();
    jobs.map(|job| job.class == JobClass::HighPriority)
        .collect()
}

struct Span {
    client: usize,
    what: What,
    span_ns: (u64, u64),
}

enum What {
    /// Index in the job's trace.
    Kernel(u32),
    Copy(OpKind),
}

struct Scene<'p> {
    scenario: &'p Scenario,
    is_hp: Vec<bool>,
    window_ns: (u64, u64),
    spans: Vec<Span>,
    /// By job: since when, and by which rule.
    held: BTreeMap<usize, (u64, &'static str)>,
    /// Job, span, rule; for each job in order of time, without overlap.
    holds: Vec<(usize, (u64, u64), &'static str)>,
    requests: Vec<(u64, u64)>,
}

impl<'p> Scene<'p> {
    /// Repeats a run, and keeps the events in the window around `at_ns`.
    fn record(run: &Run<'p>, at_ns: u64) -> Result<Self, sim::Error> {
        // The whole run, because a policy may depend on all of it.
        let experiment = run.scenario.with_seed(run.seed);
        let to_ns = at_ns.saturating_add(HALF_WINDOW_NS);
        let mut scene = Self {
            scenario: run.scenario,
            is_hp: is_hp(run.scenario),
            window_ns: (at_ns.saturating_sub(HALF_WINDOW_NS), to_ns),
            spans: Vec::new(),
            held: BTreeMap::new(),
            holds: Vec::new(),
            requests: Vec::new(),
        };
        experiment.run(&mut scene)?;
        Ok(scene)
    }

    const fn is_shown(&self, (start_ns, end_ns): (u64, u64)) -> bool {
        end_ns >= self.window_ns.0 && start_ns <= self.window_ns.1
    }

    /// Returns the entry in `otherData`.
    fn write(&self, writer: &mut Writer, pid: u64, name: &str) -> Value {
        writer.name_process(pid, name);
        let track = |tid: u64| Track { pid, tid };
        if !self.requests.is_empty() {
            writer.name_track(track(REQUESTS_TRACK), "HP requests");
        }
        for (id, &span_ns) in self.requests.iter().enumerate() {
            let name = format!("request {id}");
            writer.request(track(REQUESTS_TRACK), id as u64, &name, span_ns);
        }
        let mut launches = Map::new();
        let jobs = self.scenario.experiment.jobs.iter();
        for (index, (job, shown)) in jobs.zip(&self.scenario.shown).enumerate() {
            let class = if self.is_hp[index] { "HP" } else { "BE" };
            let title = format!("{class} {} {}", job.name, shown.trace);
            let tid = JOBS_TRACK + index as u64;
            writer.name_track(track(tid), &title);
            let spans = self.spans.iter().filter(|span| span.client == index);
            let mut kernels = 0_u64;
            for span in spans {
                let (cat, name, args) = match span.what {
                    What::Kernel(place) => {
                        kernels += 1;
                        let kernel = job.trace.launches.get(place as usize);
                        let kernel = kernel.and_then(|&k| job.trace.kernels.get(k as usize));
                        let name = kernel.map_or("", |kernel| kernel.name.as_str());
                        ("kernel", name, json!({"launch": place}))
                    }
                    What::Copy(OpKind::Copy(CopyDirection::HostToDevice)) => {
                        ("copy", "h2d", json!({"bytes": job.copies.to_device_bytes}))
                    }
                    What::Copy(_) => ("copy", "d2h", json!({"bytes": job.copies.to_host_bytes})),
                };
                writer.span(track(tid), (cat, name), span.span_ns, &args);
            }
            launches.insert(title.clone(), kernels.into());
            let holds = || self.holds.iter().filter(|(held, _, _)| *held == index);
            if holds().next().is_some() {
                let tid = HOLDS_TRACK + index as u64;
                writer.name_track(track(tid), &format!("{class} {} held (rule)", job.name));
                for &(_, span_ns, rule) in holds() {
                    writer.span(track(tid), ("hold", rule), span_ns, &json!({}));
                }
            }
        }
        let (from_ns, to_ns) = self.window_ns;
        json!({"pid": pid, "from_ns": from_ns, "to_ns": to_ns, "launches": launches})
    }
}

impl Observer for Scene<'_> {
    fn request_ended(&mut self, now_ns: u64, client: ClientId, _: u64, arrival_ns: u64) {
        let span_ns = (arrival_ns, now_ns);
        if self.is_hp[client.0] && self.is_shown(span_ns) {
            self.requests.push(span_ns);
        }
    }

    fn hold_started(&mut self, now_ns: u64, launch: &Launch, rule: &'static str) {
        // A queue's hold has the reason of its first launch.
        self.held.entry(launch.client.0).or_insert((now_ns, rule));
    }

    fn hold_ended(&mut self, now_ns: u64, launch: &Launch) {
        let client = launch.client.0;
        let Some((start_ns, rule)) = self.held.remove(&client) else {
            return;
        };
        let last = self.holds.iter_mut().rev().find(|hold| hold.0 == client);
        if let Some(last) = last.filter(|hold| hold.1.1 == start_ns && hold.2 == rule) {
            last.1.1 = now_ns;
        } else if now_ns > start_ns && self.is_shown((start_ns, now_ns)) {
            self.holds.push((client, (start_ns, now_ns), rule));
        }
    }

    fn kernel_completed(&mut self, started_ns: u64, now_ns: u64, launch: &Launch) {
        let span_ns = (started_ns, now_ns);
        if self.is_shown(span_ns) {
            self.spans.push(Span {
                client: launch.client.0,
                what: What::Kernel(launch.place),
                span_ns,
            });
        }
    }

    fn copy_completed(&mut self, started_ns: u64, now_ns: u64, client: ClientId, kind: OpKind) {
        let span_ns = (started_ns, now_ns);
        if self.is_shown(span_ns) {
            self.spans.push(Span {
                client: client.0,
                what: What::Copy(kind),
                span_ns,
            });
        }
    }
}

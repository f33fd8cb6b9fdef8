//! `timeline.json`: the work around one slow request, in every phase, for Perfetto.
//!
//! It is in the Trace Event Format ("JSON object format"): a process per phase with a track for
//! high-priority requests, a track per stream, the counter of busy SMs, and under Pillion the
//! best-effort job's leases and holds. Timestamps are microseconds of the phase's clock. Only
//! [`HALF_WINDOW_NS`] before and after the request's arrival are written: a whole minute has a
//! quarter of a million kernels. `otherData` counts the launches before and after.

use policy::{Class, ClassSet};
use serde_json::{Map, Value, json};

use crate::demo::phase::Phase;
use crate::demo::record::{Gate, Launch, Op, Record, What, Who, name_of};
use crate::perfetto::{Track, Writer};

pub(crate) const HALF_WINDOW_NS: u64 = 250_000_000;

const REQUESTS_TRACK: u64 = 1;
const LEASES_TRACK: u64 = 2;
const HOLDS_TRACK: u64 = 3;
const STREAMS_TRACK: u64 = 4;

#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) phase: Phase,
    pub(crate) record: Record,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

pub(crate) fn timeline(header: &Value, scenes: &[Scene], launches: [&[Launch]; 2]) -> String {
    let mut writer = Scenes::default();
    let mut about = Map::new();
    for (index, scene) in scenes.iter().enumerate() {
        let counts = writer.scene(index as u64 + 1, scene, launches);
        about.insert(scene.phase.key().to_owned(), counts);
    }
    let other = json!({"results": header, "phases": about});
    writer.0.document(&other)
}

#[derive(Default)]
struct Scenes(Writer);

impl Scenes {
    /// Writes a phase; returns its entry in `otherData`.
    fn scene(&mut self, pid: u64, scene: &Scene, launches: [&[Launch]; 2]) -> Value {
        self.0.name_process(pid, scene.phase.title());
        let mut counts = json!({"pid": pid, "from_ns": scene.from_ns, "to_ns": scene.to_ns});
        self.requests(pid, scene);
        let mut streams: Vec<(Who, u64)> = Vec::new();
        for op in &scene.record.ops {
            if matches!(op.what, What::Kernel(_)) {
                let place = scene.place(op.start_ns);
                let count = &mut counts["launches"][op.who.key()][place];
                *count = (count.as_u64().unwrap_or(0) + 1).into();
            }
            if scene.place(op.start_ns) != "shown" {
                continue;
            }
            let of = (op.who, op.stream);
            let place = streams.iter().position(|known| *known == of);
            let place = place.unwrap_or_else(|| {
                streams.push(of);
                let title = format!("{} stream {}", job_title(op.who), op.stream);
                let tid = STREAMS_TRACK + streams.len() as u64 - 1;
                self.0.name_track(Track { pid, tid }, &title);
                streams.len() - 1
            });
            self.op(pid, STREAMS_TRACK + place as u64, op, launches);
        }
        for &(at_ns, sms) in scene.record.sms_within(scene.from_ns, scene.to_ns) {
            self.0.busy_sms(pid, at_ns.max(scene.from_ns), sms);
        }
        if scene.phase.has_pillion() {
            self.gates(pid, scene);
        }
        counts
    }

    fn requests(&mut self, pid: u64, scene: &Scene) {
        if scene.record.requests.is_empty() {
            return;
        }
        self.0.name_track(
            Track {
                pid,
                tid: REQUESTS_TRACK,
            },
            "HP requests",
        );
        for (id, request) in scene.record.requests.iter().enumerate() {
            if scene.place(request.arrived_ns) != "shown" {
                continue;
            }
            let track = Track {
                pid,
                tid: REQUESTS_TRACK,
            };
            let span_ns = (request.arrived_ns, request.done_ns);
            let name = format!("request {id}");
            self.0.request(track, id as u64, &name, span_ns);
        }
    }

    fn op(&mut self, pid: u64, tid: u64, op: &Op, launches: [&[Launch]; 2]) {
        let (cat, name, args) = match op.what {
            What::Kernel(nth) => {
                let launches = launches[op.who as usize];
                ("kernel", name_of(launches, nth), json!({"launch": nth}))
            }
            What::Move(word, bytes) => ("copy", word, json!({"bytes": bytes})),
        };
        self.0.span(
            Track { pid, tid },
            (cat, name),
            (op.start_ns, op.end_ns),
            &args,
        );
    }

    /// Writes leases and holds: each entry lasts until the next.
    fn gates(&mut self, pid: u64, scene: &Scene) {
        let [leases, holds] = [LEASES_TRACK, HOLDS_TRACK].map(|tid| Track { pid, tid });
        self.0.name_track(leases, "BE lease");
        self.0.name_track(holds, "BE held (rule)");
        for (lease, span_ns) in scene.runs(|gate| gate.grant != "closed", same_lease) {
            let classes = ClassSet::from_bits_truncate(lease.classes);
            let named = Class::ALL.into_iter().filter(|&c| classes.contains(c));
            let named: Vec<_> = named.map(Class::name).collect();
            let mut args = json!({"classes": named.join("+")});
            if lease.sms_max != u32::MAX {
                args["sms_max"] = lease.sms_max.into();
            }
            if lease.grant != "ungated" {
                args["budget_us"] = (lease.budget_ns as f64 / 1e3).into();
            }
            self.0.span(leases, ("lease", &lease.grant), span_ns, &args);
        }
        for (hold, span_ns) in scene.holds() {
            let args = json!({"lease": hold.grant});
            self.0.span(holds, ("hold", &hold.limit), span_ns, &args);
        }
    }
}

impl Scene {
    /// The window is around `at_ns`, or at the beginning.
    pub(crate) fn around(phase: Phase, record: Record, at_ns: Option<u64>) -> Self {
        let at_ns = at_ns.unwrap_or(HALF_WINDOW_NS);
        Self {
            phase,
            record,
            from_ns: at_ns.saturating_sub(HALF_WINDOW_NS),
            to_ns: at_ns.saturating_add(HALF_WINDOW_NS),
        }
    }

    fn place(&self, at_ns: u64) -> &'static str {
        match at_ns {
            at_ns if at_ns < self.from_ns => "before",
            at_ns if at_ns <= self.to_ns => "shown",
            _ => "after",
        }
    }

    pub(crate) fn holds(&self) -> Vec<(Gate, (u64, u64))> {
        self.runs(|gate| gate.waiting, |a, b| a.limit == b.limit)
    }

    /// Maximal runs of entries of one kind, clipped to the window, each with its first entry.
    fn runs(
        &self,
        is_meant: impl Fn(&Gate) -> bool,
        is_same: impl Fn(&Gate, &Gate) -> bool,
    ) -> Vec<(Gate, (u64, u64))> {
        let mut runs: Vec<(Gate, (u64, u64))> = Vec::new();
        let gates = &self.record.gates;
        for (index, gate) in gates.iter().enumerate() {
            let end_ns = gates.get(index + 1).map_or(self.to_ns, |next| next.at_ns);
            let span_ns = (gate.at_ns.max(self.from_ns), end_ns.min(self.to_ns));
            if span_ns.0 >= span_ns.1 || !is_meant(gate) {
                continue;
            }
            match runs.last_mut() {
                Some((first, run)) if run.1 == span_ns.0 && is_same(first, gate) => {
                    run.1 = span_ns.1
                }
                _ => runs.push((gate.clone(), span_ns)),
            }
        }
        runs
    }
}

/// Whether both are one lease: a later budget under the same terms is the lease's remainder.
fn same_lease(a: &Gate, b: &Gate) -> bool {
    (&a.grant, a.classes, a.sms_max) == (&b.grant, b.classes, b.sms_max)
        && a.budget_ns >= b.budget_ns
}

fn job_title(who: Who) -> &'static str {
    match who {
        Who::Hp => "HP",
        Who::Be => "BE",
    }
}

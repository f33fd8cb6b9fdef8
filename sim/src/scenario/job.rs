//! Reads the `[[jobs]]` of a scenario file.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use policy::terms::WEIGHT_MAX;
use policy::usage::SHARE_MIN;
use profiler::nearest::nearest;
use profiler::settings::{self, Decimal, Reader, Table, Whole, or_nearest};
use profiler::{ResourceClass, Trace};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use softgpu::Device;
use toml::Spanned;
use toml::de::DeTable;
use workloads::BATCH_MAX;

use super::Shown;
use super::parse::SECONDS_MAX;
use super::size::Size;
use crate::arrivals::{Arrivals, Phase};
use crate::job::{Batch, Copies, Job, JobClass, JobKind, THREADS_MAX, TracePhase};
use crate::library::{Library, shown_name};
use crate::synthetic::Synthetic;

pub(crate) const ARRIVALS: [&str; 4] = ["closed", "poisson", "bursts", "uniform"];
const LAUNCHES_DEFAULT: u64 = 100;
/// Most requests per second: no device ends a launch in less than a microsecond.
pub const RATE_MAX: f64 = 1e6;

type Seconds = Decimal<{ SECONDS_MAX as u64 }>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobSection {
    name: Option<String>,
    class: Option<JobClass>,
    kind: Option<JobKind>,
    trace: Source,
    #[serde(default)]
    batches: Vec<Whole<1, { BATCH_MAX as u64 }>>,
    arrivals: Option<Candidates>,
    rate: Option<Decimal<{ RATE_MAX as u64 }>>,
    #[serde(default)]
    phases: Vec<PhaseSection>,
    on_s: Option<Seconds>,
    off_s: Option<Seconds>,
    arrivals_stream: Option<Whole<0, 10_000>>,
    #[serde(default)]
    stretch: bool,
    memory: Option<Size>,
    copy_in: Option<Size>,
    copy_out: Option<Size>,
    launch_gap_ns: Option<Whole<0, 1_000_000_000>>,
    threads: Option<Whole<1, { THREADS_MAX as u64 }>>,
    start_s: Option<Seconds>,
    death_s: Option<Seconds>,
    marks: Option<bool>,
    weight: Option<Whole<1, { WEIGHT_MAX as u64 }>>,
    min_progress: Option<Decimal<1>>,
    #[serde(default, deserialize_with = "max_share")]
    max_share: Option<f64>,
}

fn max_share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    settings::number(deserializer, SHARE_MIN..=1.0).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseSection {
    at_s: Seconds,
    rate: Option<Decimal<{ RATE_MAX as u64 }>>,
    trace: Option<Source>,
}

/// A text, or a list, from which the first available entry is taken.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "no arrivals, expected closed, poisson, bursts, uniform, a file of arrivals, or a list of these (the first that exists is used)"
)]
enum Candidates {
    One(String),
    Some(Vec<String>),
}

enum Source {
    Named(Candidates),
    Made(MadeSection),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MadeSection {
    kernel_us: Decimal<1_000_000>,
    block_us: Option<Decimal<1_000_000>>,
    #[serde(default, deserialize_with = "resource_class")]
    class: Option<ResourceClass>,
    launches: Option<Whole<1, 100_000>>,
}

fn resource_class<'de, D>(deserializer: D) -> Result<Option<ResourceClass>, D::Error>
where
    D: Deserializer<'de>,
{
    let words = ResourceClass::ALL.map(ResourceClass::word);
    settings::word(deserializer, &words).map(|index| Some(ResourceClass::ALL[index]))
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

struct SourceVisitor;

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = Source;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a file of launches, the name of a built-in workload, a list of these (the first that \
             exists is used), or a table such as { kernel_us = 1000 }",
        )
    }

    fn visit_str<E>(self, name: &str) -> Result<Source, E> {
        Ok(Source::Named(Candidates::One(name.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<Source, A::Error> {
        let names = Vec::deserialize(SeqAccessDeserializer::new(names))?;
        Ok(Source::Named(Candidates::Some(names)))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Source, A::Error> {
        MadeSection::deserialize(MapAccessDeserializer::new(table)).map(Source::Made)
    }
}

pub(super) struct JobReader<'r, 'f, 'i> {
    pub(super) reader: &'r mut Reader<'f>,
    pub(super) document: &'r DeTable<'i>,
    pub(super) folder: &'r Path,
    pub(super) library: &'r mut Library,
    pub(super) device: &'r Device,
}

impl JobReader<'_, '_, '_> {
    pub(super) fn jobs(&mut self, sections: Vec<Table<JobSection>>) -> Option<Vec<(Job, Shown)>> {
        // All jobs are read before a fault ends it, so that all faults are found.
        let sections = sections.into_iter().enumerate();
        let jobs: Vec<_> = sections
            .map(|(index, job)| self.job(index, job.0))
            .collect();
        jobs.into_iter().collect()
    }

    fn fault(&mut self, index: usize, key: &str, what: impl fmt::Display) {
        let offset = settings::offset(self.document, &format!("jobs.{index}.{key}"));
        self.reader.fault(offset, what);
    }

    fn job(&mut self, index: usize, job: JobSection) -> Option<(Job, Shown)> {
        let batches = self.batches(index, &job);
        let trace = match batches.as_deref() {
            Some([(name, first), ..]) => Some((name.clone(), Arc::clone(&first.trace))),
            Some([]) => self.trace(index, "trace", &job.trace),
            None => None,
        };
        let arrivals = self.arrivals(index, &job);
        let later = self.trace_phases(index, &job.phases);
        let ((mut trace_name, trace), (mut arrivals_name, arrivals)) = (trace?, arrivals?);
        let mut trace_phases = Vec::new();
        for (at_s, name, phase) in later? {
            let _ = write!(trace_name, ", from {at_s} s {name}");
            trace_phases.push(phase);
        }
        for PhaseSection { at_s, rate, .. } in &job.phases {
            if let Some(rate) = rate {
                let _ = write!(arrivals_name, ", from {} s {}/s", at_s.0, rate.0);
            }
        }
        let bytes = |size: Option<Size>| size.map(|size| size.bytes_of(self.device.memory_bytes));
        let phases = job.phases.iter().filter_map(|phase| {
            Some(Phase {
                start_ns: ns_of(&phase.at_s),
                per_s: phase.rate.as_ref()?.0,
            })
        });
        let job = Job {
            phases: phases.collect(),
            trace_phases,
            batches: batches?.into_iter().map(|(_, batch)| batch).collect(),
            told_ns: Vec::new(),
            name: job.name.unwrap_or_else(|| index.to_string()),
            // A job without a class is best-effort, here as everywhere.
            class: job.class.unwrap_or(JobClass::BestEffort),
            kind: job.kind.unwrap_or_else(|| kind_of(&arrivals)),
            trace,
            arrivals,
            memory_bytes: bytes(job.memory),
            copies: Copies {
                to_device_bytes: bytes(job.copy_in).unwrap_or(0),
                to_host_bytes: bytes(job.copy_out).unwrap_or(0),
            },
            launch_gap_ns: job.launch_gap_ns.map(|ns| ns.0),
            threads: job.threads.map_or(1, |threads| threads.0 as u32),
            start_ns: job.start_s.as_ref().map_or(0, ns_of),
            death_ns: job.death_s.as_ref().map(ns_of),
            marks: job.marks.unwrap_or(false),
            weight: job.weight.map_or(1, |weight| weight.0 as u32),
            min_progress: job.min_progress.map_or(0.0, |share| share.0),
            max_share: job.max_share.unwrap_or(1.0),
        };
        let shown = Shown {
            trace: trace_name,
            arrivals: arrivals_name,
        };
        Some((job, shown))
    }

    fn batches(&mut self, index: usize, job: &JobSection) -> Option<Vec<(String, Batch)>> {
        if job.batches.is_empty() {
            return Some(Vec::new());
        }
        let Source::Named(Candidates::One(name)) = &job.trace else {
            let what = "batches need a built-in workload as the trace; nearest is trace = \"resnet50-inference\"";
            self.fault(index, "batches", what);
            return None;
        };
        let batches = job.batches.iter().enumerate().map(|(place, size)| {
            let sized = Source::Named(Candidates::One(format!("{name}@{}", size.0)));
            let (shown, trace) = self.trace(index, &format!("batches.{place}"), &sized)?;
            let requests = size.0 as u32;
            Some((shown, Batch { requests, trace }))
        });
        batches.collect()
    }

    fn trace_phases(
        &mut self,
        index: usize,
        phases: &[PhaseSection],
    ) -> Option<Vec<(f64, String, TracePhase)>> {
        let mut is_right = true;
        let mut found = Vec::new();
        for (number, phase) in phases.iter().enumerate() {
            let key = format!("phases.{number}");
            let Some(source) = &phase.trace else {
                if phase.rate.is_none() {
                    let at_s = phase.at_s.0;
                    let what =
                        format!("the phase from {at_s} s on changes nothing, expected a rate");
                    self.fault(index, &key, what + " or a trace; nearest is rate = 15");
                    is_right = false;
                }
                continue;
            };
            let Some((name, trace)) = self.trace(index, &format!("{key}.trace"), source) else {
                is_right = false;
                continue;
            };
            let start_ns = ns_of(&phase.at_s);
            found.push((phase.at_s.0, name, TracePhase { start_ns, trace }));
        }
        is_right.then_some(found)
    }

    /// One trace, or the first available one of a list; `key` is its place in the job.
    fn trace(&mut self, index: usize, key: &str, source: &Source) -> Option<(String, Arc<Trace>)> {
        let names = match source {
            Source::Named(names) => names,
            Source::Made(section) => return self.synthetic(index, key, section),
        };
        let (path, name) = self.first_there_is(index, key, names)?;
        match self.library.trace(name, self.folder, self.device) {
            Ok(trace) => Some((shown_name(name).to_owned(), trace)),
            Err(error) => {
                self.fault(index, &path, format!("trace {name:?}: {error}"));
                None
            }
        }
    }

    fn synthetic(
        &mut self,
        index: usize,
        key: &str,
        trace: &MadeSection,
    ) -> Option<(String, Arc<Trace>)> {
        let kernel_us = trace.kernel_us.0;
        let block_us = trace.block_us.map_or(kernel_us, |us| us.0);
        if block_us > kernel_us {
            let path = format!("jobs.{index}.{key}.block_us");
            let span = settings::at(self.document, &path).map_or(0..0, Spanned::span);
            let wanted = format!("a number above 0 and at most {kernel_us}");
            let near = format!("{wanted}; nearest is {kernel_us}");
            self.reader.bad(span, "block_us", near);
            return None;
        }
        let ns = |us: f64| ((us * 1e3) as u64).max(1);
        let launches = trace.launches.map_or(LAUNCHES_DEFAULT, |count| count.0);
        let synthetic = Synthetic {
            kernel_ns: ns(kernel_us),
            block_ns: ns(block_us),
            class: trace.class.unwrap_or(ResourceClass::Compute),
            launches: launches as u32,
        };
        let trace = self.library.synthetic(synthetic, self.device);
        Some((synthetic.name(), trace))
    }

    /// A text, or of a list the first that is no path or an existing one, else the last; its place.
    fn first_there_is<'t>(
        &mut self,
        index: usize,
        key: &str,
        candidates: &'t Candidates,
    ) -> Option<(String, &'t str)> {
        let names = match candidates {
            Candidates::One(name) => return Some((key.to_owned(), name)),
            Candidates::Some(names) => names,
        };
        let is_there = |name: &String| !name.contains('/') || self.folder.join(name).exists();
        let last = names.len().checked_sub(1);
        let Some(last) = last else {
            self.fault(
                index,
                key,
                format!("{key} is []; must be a text or a list of at least one text"),
            );
            return None;
        };
        let first = names.iter().position(is_there).unwrap_or(last);
        Some((format!("{key}.{first}"), &names[first]))
    }

    fn arrivals(&mut self, index: usize, job: &JobSection) -> Option<(String, Arrivals)> {
        let (path, word) = match &job.arrivals {
            None => ("arrivals".to_owned(), "closed"),
            Some(candidates) => self.first_there_is(index, "arrivals", candidates)?,
        };
        let stream = job.arrivals_stream.map_or(0, |stream| stream.0);
        let is_kind = ARRIVALS.contains(&word);
        // A word that is neither a kind nor a file is reported before conflicting keys.
        let recorded = match is_kind {
            true => None,
            false => Some(self.recorded(index, &path, word, stream)?),
        };
        let has_rate = matches!(word, "poisson" | "bursts" | "uniform");
        // With a list, keys may belong to an entry that was not taken.
        let is_list = matches!(job.arrivals, Some(Candidates::Some(_)));
        let rate = job.rate.map(|rate| rate.0);
        let rate = rate.filter(|_| !is_list || has_rate || job.stretch);
        if job.stretch && is_kind && !is_list {
            let what = format!("stretch is set, but arrivals {word} are not a file");
            self.fault(index, "stretch", what);
            return None;
        }
        for (key, seconds) in [("on_s", job.on_s), ("off_s", job.off_s)] {
            if seconds.is_some() && word != "bursts" && !is_list {
                let what = format!("{key} is set, but arrivals {word} have no bursts");
                self.fault(index, key, what + "; nearest is arrivals = \"bursts\"");
                return None;
            }
        }
        let [on_s, off_s] = [job.on_s, job.off_s].map(|seconds| seconds.map_or(1.0, |s| s.0));
        if is_kind && !is_list && job.arrivals_stream.is_some() {
            let what = format!("arrivals_stream is set, but arrivals {word} are not a file");
            self.fault(index, &path, what);
            return None;
        }
        match (word, rate) {
            ("poisson", Some(per_s)) => {
                Some((format!("poisson {per_s}/s"), Arrivals::Poisson { per_s }))
            }
            ("uniform", Some(per_s)) => {
                Some((format!("uniform {per_s}/s"), Arrivals::Uniform { per_s }))
            }
            ("bursts", Some(per_s)) => {
                let shown = format!("bursts {per_s}/s, {on_s} s on, {off_s} s off");
                Some((shown, Arrivals::Bursts { per_s, on_s, off_s }))
            }
            ("poisson" | "bursts" | "uniform", None) => {
                let what = format!("arrivals {word} need a rate, in requests per second");
                self.fault(index, &path, what + "; nearest is rate = 15");
                None
            }
            (path, Some(per_s)) if job.stretch && !is_kind => {
                let Some(stretched) = recorded?.stretched(per_s) else {
                    self.fault(index, "stretch", format!("{path} spans no time"));
                    return None;
                };
                let shown = shown_arrivals(path, stream);
                Some((format!("{shown} {per_s}/s"), stretched))
            }
            (_, None) if job.stretch && !is_kind => {
                let what = "stretch needs a rate, in requests per second; nearest is rate = 15";
                self.fault(index, "stretch", what);
                None
            }
            (_, Some(_)) => {
                let what = format!("rate is set, but arrivals {word} take no rate");
                self.fault(index, &path, what + "; nearest is arrivals = \"poisson\"");
                None
            }
            ("closed", None) => Some((word.to_owned(), Arrivals::Closed)),
            (path, None) => Some((shown_arrivals(path, stream), recorded?)),
        }
    }

    fn recorded(&mut self, index: usize, path: &str, name: &str, stream: u64) -> Option<Arrivals> {
        match Arrivals::read(&self.folder.join(name), stream as usize) {
            Ok(arrivals) => Some(arrivals),
            Err(error) => {
                let near = nearest(name, ARRIVALS).map(|word| format!("\"{word}\""));
                self.fault(index, path, format!("{error}{}", or_nearest(near)));
                None
            }
        }
    }
}

fn ns_of(seconds: &Seconds) -> u64 {
    (seconds.0 * 1e9) as u64
}

/// A job in a closed loop trains; a job with requests from elsewhere answers them.
#[must_use]
pub fn kind_of(arrivals: &Arrivals) -> JobKind {
    match arrivals {
        Arrivals::Closed => JobKind::Training,
        _ => JobKind::Inference,
    }
}

/// The name of arrivals from a file in results: the file's name, and its list if not the first.
#[must_use]
pub fn shown_arrivals(path: &str, stream: u64) -> String {
    match stream {
        0 => shown_name(path).to_owned(),
        _ => format!("{}:{stream}", shown_name(path)),
    }
}

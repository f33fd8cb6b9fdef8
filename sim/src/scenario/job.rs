//! Reads the `[[jobs]]` of a scenario file.

use std::path::Path;
use std::sync::Arc;

use policy::terms::WEIGHT_MAX;
use profiler::settings::{Reader, Section, Value};
use profiler::{ResourceClass, Trace};
use softgpu::Device;
use toml::de::{DeTable, DeValue};

use super::Shown;
use super::parse::{SECOND_NS, SECONDS_MAX};
use super::size::parse_size;
use crate::arrivals::Arrivals;
use crate::job::{Copies, Job, JobClass, JobKind, THREADS_MAX};
use crate::library::{Library, shown_name};
use crate::synthetic::Synthetic;

const KEYS: [&str; 18] = [
    "name",
    "class",
    "kind",
    "trace",
    "arrivals",
    "rate",
    "on_s",
    "off_s",
    "arrivals_stream",
    "memory",
    "copy_in",
    "copy_out",
    "launch_gap_ns",
    "threads",
    "start_s",
    "death_s",
    "weight",
    "min_progress",
];
/// Keys of a trace that is a table.
const TRACE_KEYS: [&str; 4] = ["kernel_us", "block_us", "class", "launches"];
/// The words of `class`, and of `kind`.
const CLASSES: [&str; 2] = ["high-priority", "best-effort"];
const KINDS: [&str; 2] = ["inference", "training"];
/// Arrivals that are no file.
pub(crate) const ARRIVALS: [&str; 4] = ["closed", "poisson", "bursts", "uniform"];
/// Launches of a request of a synthetic job, where it does not say.
const LAUNCHES_DEFAULT: u64 = 100;
/// Most requests per second: no device ends a launch in less than a microsecond.
pub const RATE_MAX: f64 = 1e6;
/// Longest kernel of a synthetic job, us.
const KERNEL_US_MAX: f64 = 1e6;
/// Lists in a file of arrivals.
const STREAM_MAX: u64 = 10_000;

/// Reads jobs that run on `device`.
pub(super) struct JobReader<'r, 'f> {
    pub(super) reader: &'r mut Reader<'f>,
    pub(super) folder: &'r Path,
    pub(super) library: &'r mut Library,
    pub(super) device: &'r Device,
}

impl JobReader<'_, '_> {
    /// All jobs, or `None` with the faults.
    pub(super) fn jobs(&mut self, document: &DeTable<'_>) -> Option<Vec<(Job, Shown)>> {
        let near = Some("[[jobs]]".to_owned());
        let Some(value) = document.get("jobs") else {
            self.reader.fault(0, "the file has no job", near);
            return None;
        };
        let tables = match value.get_ref() {
            DeValue::Array(values) if !values.is_empty() => values.iter().map(|job| {
                let table = job.get_ref().as_table();
                table.map(|table| (job.span().start, table))
            }),
            _ => {
                let wanted = "a list of tables, one for each job";
                self.reader.bad(value.span(), "jobs", wanted, near);
                return None;
            }
        };
        let Some(tables) = tables.collect::<Option<Vec<_>>>() else {
            let wanted = "a list of tables, one for each job";
            self.reader.bad(value.span(), "jobs", wanted, near);
            return None;
        };
        // All of them are read before one that is wrong ends it, so that all faults are found.
        let jobs: Vec<_> = tables
            .into_iter()
            .enumerate()
            .map(|(index, (offset, table))| {
                let section = Section {
                    offset,
                    table: Some(table),
                };
                self.job(index, &section)
            })
            .collect();
        jobs.into_iter().collect()
    }

    fn job(&mut self, index: usize, job: &Section<'_, '_>) -> Option<(Job, Shown)> {
        if let Some(table) = job.table {
            self.reader.check_keys("a job", table, &KEYS);
        }
        // A job without a class is best-effort, here as everywhere.
        let class = self.reader.word(job, "class", &CLASSES);
        let class =
            class.map(|index| [JobClass::HighPriority, JobClass::BestEffort][index.unwrap_or(1)]);
        let name = self.reader.text(job, "name", "a text");
        let trace = self.trace(job);
        let arrivals = self.arrivals(job);
        let kind = self.reader.word(job, "kind", &KINDS);
        let memory = self.size(job, "memory");
        let copies = (self.size(job, "copy_in"), self.size(job, "copy_out"));
        let launch_gap_ns = job
            .get("launch_gap_ns")
            .map(|_| self.reader.number(job, "launch_gap_ns", 0..=SECOND_NS, 0));
        let threads = self
            .reader
            .number(job, "threads", 1..=u64::from(THREADS_MAX), 1);
        let (start_s, death_s) = (self.seconds(job, "start_s"), self.seconds(job, "death_s"));
        let weight = self
            .reader
            .number(job, "weight", 1..=u64::from(WEIGHT_MAX), 1);
        let min_progress = job.get("min_progress").map_or(Some(0.0), |_| {
            self.reader.decimal(job, "min_progress", 1.0, 0.1)
        });
        let (trace_name, trace) = trace?;
        let (arrivals_name, arrivals) = arrivals?;
        let kind = kind?.map_or_else(
            || kind_of(&arrivals),
            |index| [JobKind::Inference, JobKind::Training][index],
        );
        let name = name?.map_or_else(|| index.to_string(), |(_, name)| name.to_owned());
        let job = Job {
            name,
            class: class?,
            kind,
            trace,
            arrivals,
            memory_bytes: memory?,
            copies: Copies {
                to_device_bytes: copies.0?.unwrap_or(0),
                to_host_bytes: copies.1?.unwrap_or(0),
            },
            launch_gap_ns: match launch_gap_ns {
                Some(given) => Some(given?),
                None => None,
            },
            threads: threads? as u32,
            start_ns: start_s?.unwrap_or(0),
            death_ns: death_s?,
            weight: weight? as u32,
            min_progress: min_progress?,
        };
        let shown = Shown {
            trace: trace_name,
            arrivals: arrivals_name,
        };
        Some((job, shown))
    }

    /// One trace, or of a list the first that there is.
    fn trace(&mut self, job: &Section<'_, '_>) -> Option<(String, Arc<Trace>)> {
        let wanted = "a file of launches, the name of a built-in workload, a list of such (the first there is), \
                      or a table such as { kernel_us = 1000 }";
        let Some(value) = job.get("trace") else {
            let near = Some("trace = \"resnet50-training\"".to_owned());
            self.reader.fault(job.offset, "the job has no trace", near);
            return None;
        };
        if let Some(table) = value.get_ref().as_table() {
            let section = Section {
                offset: value.span().start,
                table: Some(table),
            };
            return self.synthetic(&section);
        }
        let (offset, name) = self.first_there_is("trace", value, wanted)?;
        match self.library.trace(name, self.folder, self.device) {
            Ok(trace) => Some((shown_name(name).to_owned(), trace)),
            Err(error) => {
                let what = format!("trace {name:?}: {error}");
                self.reader.fault(offset, what, None);
                None
            }
        }
    }

    /// A trace that is a table: one kernel of a given length, again and again.
    fn synthetic(&mut self, trace: &Section<'_, '_>) -> Option<(String, Arc<Trace>)> {
        if let Some(table) = trace.table {
            self.reader.check_keys("a trace", table, &TRACE_KEYS);
        }
        let classes = ResourceClass::ALL.map(ResourceClass::word);
        let class = self.reader.word(trace, "class", &classes);
        let launches = self
            .reader
            .number(trace, "launches", 1..=100_000, LAUNCHES_DEFAULT);
        if trace.get("kernel_us").is_none() {
            let near = Some("kernel_us = 1000".to_owned());
            let what = "a trace that is a table needs kernel_us";
            self.reader.fault(trace.offset, what, near);
            return None;
        }
        let kernel_us = self
            .reader
            .decimal(trace, "kernel_us", KERNEL_US_MAX, 1_000.0)?;
        let block_us = self.reader.decimal(trace, "block_us", kernel_us, kernel_us);
        let ns = |us: f64| ((us * 1e3) as u64).max(1);
        let synthetic = Synthetic {
            kernel_ns: ns(kernel_us),
            block_ns: ns(block_us?),
            class: class?.map_or(ResourceClass::Compute, |index| ResourceClass::ALL[index]),
            launches: launches? as u32,
        };
        let trace = self.library.synthetic(synthetic, self.device);
        Some((synthetic.name(), trace))
    }

    /// A time after the start of the run, ns.
    fn seconds(&mut self, job: &Section<'_, '_>, key: &str) -> Option<Option<u64>> {
        if job.get(key).is_none() {
            return Some(None);
        }
        let seconds = self.reader.decimal(job, key, SECONDS_MAX, 1.0)?;
        Some(Some((seconds * 1e9) as u64))
    }

    /// A text, or of a list of texts the first that is no path or the path of a file, else the last;
    /// and its place.
    fn first_there_is<'t>(
        &mut self,
        key: &str,
        value: &'t Value<'_>,
        wanted: &str,
    ) -> Option<(usize, &'t str)> {
        let candidates: &[Value<'_>] = match value.get_ref() {
            DeValue::Array(values) => values,
            _ => std::slice::from_ref(value),
        };
        let texts = candidates.iter();
        let texts: Option<Vec<(usize, &str)>> = texts
            .map(|value| Some((value.span().start, value.get_ref().as_str()?)))
            .collect();
        let is_there = |name: &str| !name.contains('/') || self.folder.join(name).exists();
        let texts = texts.unwrap_or_default();
        let first = texts.iter().find(|(_, name)| is_there(name));
        let first = first.or(texts.last()).copied();
        if first.is_none() {
            self.reader.bad(value.span(), key, wanted, None);
        }
        first
    }

    fn arrivals(&mut self, job: &Section<'_, '_>) -> Option<(String, Arrivals)> {
        let wanted = "closed, poisson, bursts, uniform, a file of arrivals, or a list of such: the first there is";
        let word = match job.get("arrivals") {
            None => None,
            Some(value) => Some(self.first_there_is("arrivals", value, wanted)?),
        };
        let rate = match job.get("rate") {
            Some(_) => self.reader.decimal(job, "rate", RATE_MAX, 15.0).map(Some),
            None => Some(None),
        };
        let stream = self
            .reader
            .number(job, "arrivals_stream", 0..=STREAM_MAX, 0);
        let (offset, word) = word.unwrap_or((job.offset, "closed"));
        let is_kind = ARRIVALS.contains(&word);
        // A word that is neither a kind nor a file is said before what does not go with it.
        let recorded = match is_kind {
            true => None,
            false => Some(self.recorded(word, offset, stream.unwrap_or(0))?),
        };
        let (rate, stream) = (rate?, stream?);
        // Of a list, keys may be those of a candidate that was not taken.
        let is_list = job
            .get("arrivals")
            .is_some_and(|value| value.get_ref().is_array());
        let rate = rate.filter(|_| !is_list || matches!(word, "poisson" | "bursts" | "uniform"));
        let burst = self.burst(job, word, is_list)?;
        if is_kind && !is_list && job.get("arrivals_stream").is_some() {
            let what = format!("arrivals_stream is set, but arrivals {word} are no file");
            self.reader.fault(offset, what, None);
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
                let [on_s, off_s] = burst;
                let shown = format!("bursts {per_s}/s, {on_s} s on, {off_s} s off");
                Some((shown, Arrivals::Bursts { per_s, on_s, off_s }))
            }
            ("poisson" | "bursts" | "uniform", None) => {
                let what = format!("arrivals {word} without a rate, requests per second");
                self.reader
                    .fault(offset, what, Some("rate = 15".to_owned()));
                None
            }
            (_, Some(_)) => {
                let what = format!("rate is set, but arrivals {word} have none");
                let near = Some("arrivals = \"poisson\"".to_owned());
                self.reader.fault(offset, what, near);
                None
            }
            ("closed", None) => Some((word.to_owned(), Arrivals::Closed)),
            (path, None) => Some((shown_arrivals(path, stream), recorded?)),
        }
    }

    /// Arrivals from a file.
    fn recorded(&mut self, path: &str, offset: usize, stream: u64) -> Option<Arrivals> {
        match Arrivals::read(&self.folder.join(path), stream as usize) {
            Ok(arrivals) => Some(arrivals),
            Err(error) => {
                let near = profiler::nearest::nearest(path, ARRIVALS);
                let near = near.map(|word| format!("\"{word}\""));
                self.reader.fault(offset, error, near);
                None
            }
        }
    }

    /// Mean lengths of bursts and of silences, s; faults where other arrivals have them.
    fn burst(&mut self, job: &Section<'_, '_>, word: &str, is_list: bool) -> Option<[f64; 2]> {
        for key in ["on_s", "off_s"] {
            if let Some(value) = job.get(key).filter(|_| word != "bursts" && !is_list) {
                let what = format!("{key} is set, but arrivals {word} have no bursts");
                let near = Some("arrivals = \"bursts\"".to_owned());
                self.reader.fault(value.span().start, what, near);
                return None;
            }
        }
        let on_s = self.reader.decimal(job, "on_s", SECONDS_MAX, 1.0);
        let off_s = self.reader.decimal(job, "off_s", SECONDS_MAX, 1.0);
        Some([on_s?, off_s?])
    }

    /// Bytes: a whole number, or a text such as "4 GiB" or "40%" (of the device's memory).
    fn size(&mut self, job: &Section<'_, '_>, key: &str) -> Option<Option<u64>> {
        let Some(value) = job.get(key) else {
            return Some(None);
        };
        let whole = |text: &str| parse_size(text, self.device.memory_bytes);
        let bytes = match value.get_ref() {
            DeValue::String(text) => whole(text),
            DeValue::Integer(integer) if integer.radix() == 10 => whole(integer.as_str()),
            _ => None,
        };
        if bytes.is_none() {
            let wanted = "bytes, or a text such as \"4 GiB\", \"512 MiB\" or \"40%\"";
            self.reader
                .bad(value.span(), key, wanted, Some("\"4 GiB\"".to_owned()));
        }
        bytes.map(Some)
    }
}

/// A job that starts its next request when the last is done trains; one whose requests come from
/// elsewhere answers them.
#[must_use]
pub fn kind_of(arrivals: &Arrivals) -> JobKind {
    match arrivals {
        Arrivals::Closed => JobKind::Training,
        _ => JobKind::Inference,
    }
}

/// What results call arrivals from a file: its name, and which of its lists if not the first.
#[must_use]
pub fn shown_arrivals(path: &str, stream: u64) -> String {
    match stream {
        0 => shown_name(path).to_owned(),
        _ => format!("{}:{stream}", shown_name(path)),
    }
}

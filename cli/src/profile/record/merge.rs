//! Merges the records of all processes of a job.
//!
//! A process's record is merged and its file removed soon after its end: a job of ten thousand
//! processes has only as many files as live processes. A record is final when nobody holds its
//! lock, which a process keeps while the file is open, and no process has that id: a program may
//! close descriptors that are not its own. A file is mapped only once its first word shows that its
//! pages have memory: access to a mapped page for which the file system had no room raises SIGBUS.
//!
//! Bounds: [`KERNELS_MAX`] kernels and shapes; about [`SAMPLES_MAX`] durations of each, beyond
//! which one of two neighbours stands for both.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use profiler::profile::{Measured, Operator};
use protocol::recording::{Cupti, Entry, FILE_SUFFIX, GpuWords, Kind, MAGIC, RecordPage, Why};
use protocol::segment::{Access, Mapping};
use serde_json::{Map, Value};

use super::is_gone;
use crate::out;

/// Launches of further kernels and shapes count as [`Why::NoRoom`].
const KERNELS_MAX: usize = 1 << 16;
const SAMPLES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) gpu: String,
    /// The driver's name.
    pub(super) name: String,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) operator: Option<Operator>,
}

#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) key: Key,
    pub(super) launches: u64,
    pub(super) graph_launches: u64,
    pub(super) static_shared_bytes: u32,
    pub(super) registers: u32,
    pub(super) sm_needed: u32,
    pub(super) blocks_per_sm: u32,
    pub(super) kind: Kind,
    pub(super) measured: u64,
    pub(super) measured_ns: u64,
    /// Durations, ns, each with the number of launches that it stands for.
    pub(super) samples: Vec<(f32, f64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Merged {
    /// In order of first launch, process by process.
    pub(super) kernels: Vec<Kernel>,
    pub(super) gpus: HashMap<String, Measured>,
    pub(super) processes: u64,
    /// Other jobs used the job's GPU, as a daemon of that GPU reported.
    pub(super) is_beside_others: bool,
    /// Processes with launches, by their use of CUPTI.
    pub(super) cupti: BTreeMap<Cupti, u64>,
    reasons: HashMap<&'static str, u64>,
    places: HashMap<Key, usize>,
}

/// With their names in JSON.
const REASONS: [(Why, &str); 18] = [
    (Why::Capture, "capture"),
    (Why::Crowded, "streams_share_queues"),
    (Why::Deep, "queue_deep"),
    (Why::Full, "events_waiting"),
    (Why::Programmatic, "programmatic_launch"),
    (Why::HighPriority, "high_priority"),
    (Why::NoEvent, "no_event"),
    (Why::NoSlot, "no_stream_slot"),
    (Why::NoRoom, "no_room_in_record"),
    (Why::Graphs, "graphs"),
    (Why::UnknownGraphs, "graphs_unknown"),
    (Why::Operators, "operators_unseen"),
    (Why::Streams, "streams"),
    (Why::Gated, "gated"),
    (Why::Brief, "shorter_than_launch"),
    (Why::CuptiDropped, "cupti_dropped"),
    (Why::CuptiUntimed, "cupti_without_times"),
    (Why::CuptiUnknown, "cupti_of_no_launch"),
];
/// These do not say why a launch was not timed.
const NO_REASONS: [&str; 3] = ["graphs", "streams", "gated"];

impl Merged {
    /// Merges and removes the records of ended processes.
    pub(super) fn take_ended(&mut self, folder: &Path) {
        for path in records(folder) {
            // An unreadable record is reported at the job's end.
            let Ok(Some((file, page))) = open(&path) else {
                continue;
            };
            // Read the record after this check, so that its final counts are included.
            let is_over = file.try_lock().is_ok() && is_ended(page.pid.load(Ordering::Relaxed));
            // A record that cannot be removed is merged at the job's end.
            if is_over && fs::remove_file(&path).is_ok() {
                self.add_page(&page);
            }
        }
    }

    pub(super) fn add_all(&mut self, folder: &Path) {
        for path in records(folder) {
            match open(&path) {
                Ok(Some((_, page))) => self.add_page(&page),
                Ok(None) => {}
                Err(error) => out::note(format_args!("pillion: {}: {error}", path.display())),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.launches() == 0
    }

    pub(super) fn launches(&self) -> u64 {
        let of = |kernel: &Kernel| kernel.launches + kernel.graph_launches;
        self.kernels.iter().map(of).sum()
    }

    pub(super) fn count_of(&self, why: Why) -> u64 {
        let word = REASONS.iter().find(|(reason, _)| *reason == why);
        let count = word.and_then(|(_, word)| self.reasons.get(word));
        count.copied().unwrap_or(0)
    }

    pub(super) fn reasons(&self) -> Value {
        let reasons = REASONS
            .iter()
            .filter(|(_, word)| !NO_REASONS.contains(word));
        let counted = reasons.map(|(why, word)| ((*word).to_owned(), self.count_of(*why).into()));
        Value::Object(counted.collect::<Map<_, _>>())
    }

    fn add_page(&mut self, page: &RecordPage) {
        let before = self.launches();
        for (why, _) in REASONS {
            self.count(why, page.count_of(why));
        }
        for entry in page.used() {
            self.add(kernel_of(page, entry));
        }
        for gpu in &page.gpus {
            let name = model_name(gpu);
            if !name.is_empty() {
                self.gpus.entry(name).or_insert_with(|| measured_of(gpu));
            }
        }
        if self.launches() > before {
            self.processes += 1;
            let is = Cupti::of(page.cupti.load(Ordering::Relaxed));
            *self.cupti.entry(is).or_default() += 1;
        }
    }

    fn count(&mut self, why: Why, count: u64) {
        if let Some((_, word)) = REASONS.iter().find(|(reason, _)| *reason == why) {
            let sum = self.reasons.entry(word).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds a kernel to its key's entry; of two kinds of samples the better one stays.
    pub(super) fn add(&mut self, kernel: Kernel) {
        let place = self.places.get(&kernel.key);
        let Some(known) = place.and_then(|&place| self.kernels.get_mut(place)) else {
            if self.kernels.len() >= KERNELS_MAX {
                let launches = kernel.launches.saturating_add(kernel.graph_launches);
                return self.count(Why::NoRoom, launches);
            }
            self.places.insert(kernel.key.clone(), self.kernels.len());
            self.kernels.push(kernel);
            return;
        };
        known.launches = known.launches.saturating_add(kernel.launches);
        known.graph_launches = known.graph_launches.saturating_add(kernel.graph_launches);
        for (known, other) in [
            (&mut known.static_shared_bytes, kernel.static_shared_bytes),
            (&mut known.registers, kernel.registers),
            (&mut known.sm_needed, kernel.sm_needed),
            (&mut known.blocks_per_sm, kernel.blocks_per_sm),
        ] {
            if *known == 0 {
                *known = other;
            }
        }
        if kernel.kind > known.kind {
            known.kind = kernel.kind;
            (known.measured, known.measured_ns) = (kernel.measured, kernel.measured_ns);
            known.samples = kernel.samples;
        } else if kernel.kind == known.kind {
            known.measured = known.measured.saturating_add(kernel.measured);
            known.measured_ns = known.measured_ns.saturating_add(kernel.measured_ns);
            known.samples.extend(kernel.samples);
            known.bound_samples();
        }
    }
}

impl Kernel {
    /// By nearest rank over the durations up to `most`, ns.
    pub(super) fn quantile_ns(&self, per_mille: u32, most: f32) -> Option<f32> {
        let mut samples = self.samples.clone();
        samples.retain(|(ns, _)| *ns <= most);
        samples.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let all: f64 = samples.iter().map(|(_, weight)| weight).sum();
        let rank = all * f64::from(per_mille) / 1e3;
        let mut passed = 0.0;
        let found = samples.iter().find(|(_, weight)| {
            passed += weight;
            // Sums of equal weights are slightly inexact.
            passed >= rank - 1e-6
        });
        found.or(samples.last()).map(|(ns, _)| *ns)
    }

    /// Halves the samples beyond twice the limit: one of two neighbours stands for both.
    fn bound_samples(&mut self) {
        if self.samples.len() <= 2 * SAMPLES_MAX {
            return;
        }
        self.samples.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let pairs = self.samples.chunks(2).enumerate();
        let halved = pairs.filter_map(|(place, pair)| {
            // Keep the lesser and the greater one in turn, to avoid a bias.
            let kept = pair.get(place % 2).or(pair.first())?;
            Some((kept.0, pair.iter().map(|(_, weight)| weight).sum()))
        });
        self.samples = halved.collect();
    }
}

fn records(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(FILE_SUFFIX))
        .collect();
    files.sort();
    files
}

/// `None` if the record is not in use yet, or removed.
fn open(path: &Path) -> io::Result<Option<(File, Mapping<RecordPage>)>> {
    let opened = File::open(path).and_then(|file| {
        let mut magic = [0; size_of_val(&MAGIC)];
        file.read_exact_at(&mut magic, 0)?;
        match u64::from_ne_bytes(magic) == MAGIC {
            true => Ok(Some((Mapping::open(&file, Access::Read)?, file))),
            false => Ok(None),
        }
    });
    match opened {
        Ok(opened) => Ok(opened.map(|(page, file)| (file, page))),
        // Just removed, or just created.
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether no process has that id in this pid namespace.
fn is_ended(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().filter(|&pid| pid > 0);
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
}

fn kernel_of(page: &RecordPage, entry: &Entry) -> Kernel {
    let of = |word: &std::sync::atomic::AtomicU32| word.load(Ordering::Relaxed);
    let samples = entry.samples_ns();
    let measured = entry.measured.load(Ordering::Relaxed);
    let weight = measured as f64 / samples.len().max(1) as f64;
    let gpu = page.gpus.get(of(&entry.gpu) as usize);
    Kernel {
        key: Key {
            gpu: gpu.map_or_else(String::new, model_name),
            name: page.text(&entry.name),
            grid: entry.grid.each_ref().map(of),
            block: entry.block.each_ref().map(of),
            shared_bytes: of(&entry.shared_bytes),
            operator: Operator::of_line(&page.text(&entry.operator)),
        },
        launches: entry.launches.load(Ordering::Relaxed),
        graph_launches: entry.graph_launches.load(Ordering::Relaxed),
        static_shared_bytes: of(&entry.static_shared_bytes),
        registers: of(&entry.registers),
        sm_needed: of(&entry.sm_needed),
        blocks_per_sm: of(&entry.blocks_per_sm),
        kind: Kind::of(of(&entry.kind)),
        measured,
        measured_ns: entry.measured_ns.load(Ordering::Relaxed),
        samples: samples.into_iter().map(|ns| (ns, weight)).collect(),
    }
}

/// The device table's name, else the driver's.
fn model_name(gpu: &GpuWords) -> String {
    let name = gpu.name();
    let model = devices::model_of(&name).map(|device| device.name.clone());
    model.unwrap_or(name)
}

fn measured_of(gpu: &GpuWords) -> Measured {
    let of = |word: &std::sync::atomic::AtomicU32| {
        Some(word.load(Ordering::Relaxed)).filter(|&value| value > 0)
    };
    Measured {
        sms: of(&gpu.sms),
        compute_capability: of(&gpu.major).map(|major| (major, of(&gpu.minor).unwrap_or(0))),
        clock_mhz: of(&gpu.clock_mhz),
        bandwidth_gb_s: of(&gpu.bandwidth_gb_s),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn kernel(name: &str, kind: Kind, samples: &[f32]) -> Kernel {
        Kernel {
            key: Key {
                gpu: "V100-SXM2-16GB".to_owned(),
                name: name.to_owned(),
                grid: [4, 1, 1],
                block: [256, 1, 1],
                shared_bytes: 0,
                operator: None,
            },
            launches: 10,
            graph_launches: 0,
            static_shared_bytes: 0,
            registers: 32,
            sm_needed: 4,
            blocks_per_sm: 8,
            kind,
            measured: samples.len() as u64,
            measured_ns: samples.iter().map(|ns| *ns as u64).sum(),
            samples: samples.iter().map(|ns| (*ns, 1.0)).collect(),
        }
    }

    #[test]
    fn counts_of_processes_add_up_and_their_samples_too() {
        let mut merged = Merged::default();
        merged.add(kernel("k", Kind::Busy, &[10.0, 30.0]));
        merged.add(kernel("k", Kind::Busy, &[20.0]));
        merged.add(kernel("other", Kind::Busy, &[5.0]));
        assert_eq!((merged.kernels.len(), merged.launches()), (2, 30));
        let first = &merged.kernels[0];
        assert_eq!((first.measured, first.measured_ns), (3, 60));
        assert_eq!(first.quantile_ns(500, f32::MAX), Some(20.0));
        assert_eq!(first.quantile_ns(950, f32::MAX), Some(30.0));
        assert_eq!(first.quantile_ns(950, 25.0), Some(20.0));
    }

    #[test]
    fn a_better_kind_of_sample_in_any_process_replaces_lesser_ones() {
        for order in [[0, 1], [1, 0]] {
            let two = [
                kernel("k", Kind::Share, &[900.0, 900.0]),
                kernel("k", Kind::Busy, &[50.0]),
            ];
            let mut merged = Merged::default();
            order
                .iter()
                .for_each(|&index| merged.add(two[index].clone()));
            let only = &merged.kernels[0];
            assert_eq!((only.launches, only.measured), (20, 1));
            assert_eq!(only.quantile_ns(500, f32::MAX), Some(50.0));
        }
    }

    #[test]
    fn a_sample_counts_as_often_as_it_stands_for() {
        let mut much = kernel("k", Kind::Busy, &[10.0]);
        much.samples[0].1 = 9.0;
        let mut merged = Merged::default();
        merged.add(much);
        merged.add(kernel("k", Kind::Busy, &[90.0]));
        let only = &merged.kernels[0];
        let quantiles = [500, 900, 950].map(|part| only.quantile_ns(part, f32::MAX).unwrap());
        assert_eq!(quantiles, [10.0, 10.0, 90.0]);
    }

    /// A file as a process leaves it: of full size, with `bytes` written.
    fn record_of(folder: &Path, pid: u32, bytes: usize) -> PathBuf {
        let path = folder.join(format!("{pid}-1{FILE_SUFFIX}"));
        let file = File::create(&path).unwrap();
        file.set_len(size_of::<RecordPage>() as u64).unwrap();
        let mut head = MAGIC.to_ne_bytes().to_vec();
        head.extend(pid.to_ne_bytes());
        file.write_all_at(&head[..bytes], 0).unwrap();
        path
    }

    #[test]
    fn what_ended_processes_leave_is_taken_once_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let own = std::process::id();
        // No process has an id so large (proc(5), `pid_max`).
        let gone = [1 << 23, (1 << 23) + 1, (1 << 23) + 2];
        let [over, held, unused] = gone.map(|pid| record_of(folder, pid, 12));
        let alive = record_of(folder, own, 12);
        File::options()
            .write(true)
            .open(&unused)
            .unwrap()
            .write_all_at(&[0; 8], 0)
            .unwrap();
        let lock = File::open(&held).unwrap();
        lock.try_lock().unwrap();
        let mut merged = Merged::default();
        merged.take_ended(folder);
        assert!(!over.exists());
        assert!(alive.exists() && held.exists() && unused.exists());
        drop(lock);
        merged.take_ended(folder);
        assert!(!held.exists() && alive.exists());
    }

    #[test]
    fn samples_and_kernels_of_any_number_of_processes_are_bounded() {
        let mut merged = Merged::default();
        let samples: Vec<f32> = (0..100).map(|n| n as f32).collect();
        for _ in 0..500 {
            merged.add(kernel("k", Kind::Busy, &samples));
        }
        let only = &merged.kernels[0];
        assert!(only.samples.len() <= 2 * SAMPLES_MAX);
        let weights: f64 = only.samples.iter().map(|(_, weight)| weight).sum();
        assert!((weights - 50_000.0).abs() < 1e-6, "{weights}");
        let near = |per_mille, wanted: f32| {
            let ns = only.quantile_ns(per_mille, f32::MAX).unwrap();
            assert!((ns - wanted).abs() <= 1.0, "{per_mille}: {ns}");
        };
        near(500, 49.0);
        near(950, 94.0);
        for n in 0..KERNELS_MAX {
            merged.add(kernel(&format!("k{n}"), Kind::Busy, &[1.0]));
        }
        assert_eq!(merged.kernels.len(), KERNELS_MAX);
        assert_eq!(merged.count_of(Why::NoRoom), 10);
    }
}

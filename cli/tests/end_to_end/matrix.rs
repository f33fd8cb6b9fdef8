//! The matrix: whatever a program does about SIGTERM and SIGINT, and wherever they reach it, it
//! prints the same as without us, ends the same, and leaves no work behind on the device.
//!
//! A cell combines:
//!
//! - what is asked to end: a C program with the default, SIG_IGN, a handler, a handler with
//!   SA_SIGINFO on a stack of its own, signalfd, sigwait; a Python program with Python's defaults,
//!   with handlers; the parent of a DataLoader's workers; an agent like torchrun's with its
//!   workers; a pipeline of a shell's;
//! - the signal: SIGTERM, SIGINT;
//! - where: idle, launching, synchronising, capturing, each with work in flight; held at the gate
//!   with work in flight.
//!
//! Every cell is run without us and in both classes. Only best-effort jobs are held, by a rule of
//! faults: without end, until the signal comes or, if the program goes on after it, until
//! `pillion resume`. After the signal the device still has earlier work of the process in flight;
//! if it has none, because the machine was slow, the cell is run again with longer work. The cells
//! of one row are run a few at a time.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use protocol::hello::JobClass;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::common::{Cuda, Daemon, Ended, Gpu, Job, Process, Program, tools, try_until, workspace};
use crate::torch::python as python_with_torch;

const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];
const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
const PLACES: [&str; 5] = ["idle", "launching", "synchronising", "capturing", HELD];
const HELD: &str = "held";
/// Duration of each of the two first kernels in flight, ns: in the first run, and in further ones.
const LASTING_NS: [u64; 4] = [150_000_000, 600_000_000, 2_400_000_000, 6_000_000_000];
/// The number of these kernels; nothing launched after them is complete before they are.
const LASTING: u64 = 2;
/// Limit on a process's wait for work in flight: longer than the longest kernels, shorter than the
/// tests' timeout. A process stopped with a lock that the wait needs (docs/limits.md) ends late; a
/// hang is visible.
const DRAIN_MS: &str = "30000";
/// Cells of one row at a time.
const AT_ONCE: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// `asked_to_end.c` with this disposition.
    C(&'static str),
    /// `asked_to_end.py` with this one.
    Python(&'static str),
    /// An agent that forwards the signal to two workers.
    Elastic,
    /// The process group of `asked_to_end | cat`, where `cat` outlives it.
    Pipeline,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    signal: Signal,
    place: &'static str,
}

fn cells() -> impl Iterator<Item = Cell> {
    SIGNALS
        .into_iter()
        .flat_map(|signal| PLACES.map(|place| Cell { signal, place }))
}

/// Two GPUs with a daemon each: for running jobs, and for held best-effort jobs, one at a time.
struct Stage {
    gpu: Gpu,
    daemon: Daemon,
    held: Gpu,
    holding: Daemon,
    holds: Mutex<()>,
}

impl Stage {
    fn new() -> Self {
        let (gpu, held) = (Gpu::start("mps"), Gpu::start("mps"));
        let daemon = gpu.daemon("");
        let rule =
            "[faults]\n[[faults.rules]]\nfault = \"xid\"\ncodes = [92]\naction = \"hold-be\"\n";
        let holding = held.daemon(rule);
        holding.wait_for_reports();
        Self {
            gpu,
            daemon,
            held,
            holding,
            holds: Mutex::new(()),
        }
    }

    /// Where that cell is run in that class, if it can be.
    fn at(&self, place: &str, class: JobClass) -> Option<(&Gpu, &Daemon)> {
        match (place, class) {
            (HELD, JobClass::HighPriority) => None,
            (HELD, JobClass::BestEffort) => Some((&self.held, &self.holding)),
            _ => Some((&self.gpu, &self.daemon)),
        }
    }

    /// The number of complete launches of that label: each process's in order.
    fn completed(gpu: &Gpu, label: &str) -> u64 {
        gpu.counts(label)["launches_completed"]
            .as_u64()
            .unwrap_or(0)
    }

    fn wait_until_there(&self, place: &str, label: &str) {
        if place == HELD {
            self.held.inject("xid 92");
            let is_held = |job: &Value| {
                let enforcing = job["enforcing"].as_str().unwrap_or_default();
                job["waiting"] == true && enforcing.starts_with("held until `pillion resume`")
            };
            self.holding
                .job_when(label, "a thread held for the fault", is_held);
        }
    }

    fn resume(&self) {
        let resumed = self.held.tell(&self.holding, &["resume"]);
        let is_nothing = resumed.errors.contains("nothing is held");
        assert!(is_nothing || resumed.status.success(), "{resumed:#?}");
    }

    /// Runs a cell until it had work in flight when it was signalled.
    fn signalled(&self, row: Row, cell: Cell, class: JobClass, python: Option<&Path>) -> Ended {
        let Cell { signal, place } = cell;
        let (gpu, daemon) = self.at(place, class).expect("it runs there");
        let _alone = (place == HELD).then(|| self.holds.lock());
        for lasting_ns in LASTING_NS {
            let label = format!("{} {signal:?} {place} {lasting_ns}", class.name());
            let job = row.job(gpu, &label, place, python);
            let job = job
                .under(daemon.socket(), class)
                .env("LASTING_NS", lasting_ns.to_string())
                .env("PILLION_DRAIN_MS", DRAIN_MS)
                // Hides that its kernels are in no profile.
                .env("PILLION_LOG", "error");
            let mut is_with_work = false;
            let is_sent = || {
                is_with_work = Self::completed(gpu, &label) < LASTING;
                if place == HELD && row.goes_on(signal) {
                    self.resume();
                }
            };
            let there = || self.wait_until_there(place, &label);
            let ended = row.signalled(job, signal, there, is_sent);
            if place == HELD {
                self.resume();
            }
            expect_drained(gpu, daemon, &label);
            if is_with_work {
                return ended;
            }
        }
        panic!("{row:?}, {cell:?}, {class:?}: its work was complete whenever it was signalled");
    }

    fn expect_unchanged(&self, row: Row, cell: Cell, python: Option<&Path>) {
        let Cell { signal, place } = cell;
        let label = format!("alone {signal:?} {place}");
        let job = row.job(&self.gpu, &label, place, python);
        let alone = row.signalled(job, signal, || (), || ());
        for class in CLASSES {
            if self.at(place, class).is_none() {
                continue;
            }
            let ended = self.signalled(row, cell, class, python);
            let case = format!("{row:?}, {cell:?}, {class:?}");
            assert_eq!(told(&ended), told(&alone), "{case}: {ended:#?}");
            assert_eq!(ended.status, alone.status, "{case}: {ended:#?}");
            assert_eq!(
                row.complaint(&ended),
                row.complaint(&alone),
                "{case}: {ended:#?}"
            );
        }
    }
}

fn expect_drained(gpu: &Gpu, daemon: &Daemon, label: &str) {
    daemon.wait_for_clients(label, 0);
    let counts = gpu.counts(label);
    let launches = &counts["launches"];
    assert!(launches.as_u64() > Some(0), "{label}: {counts:#}");
    assert_eq!(&counts["launches_completed"], launches, "{label}");
}

/// Its output, without process ids.
fn told(ended: &Ended) -> Vec<&str> {
    let lines = ended.output.lines();
    lines.filter(|line| !line.starts_with("pids ")).collect()
}

impl Row {
    fn job(self, gpu: &Gpu, label: &str, place: &str, python: Option<&Path>) -> Job {
        let program = Program::Linked("asked_to_end").path();
        let script = workspace().join("cli/tests/programs/asked_to_end.py");
        let python = || python.expect("looked for by who has rows of Python");
        match self {
            Self::C(how) => gpu.job_of(label, &program).args(&[how, place]),
            Self::Python(how) => gpu.job_of(label, python()).arg(script).args(&[how, place]),
            Self::Elastic => gpu
                .job_of(label, python())
                .arg(script)
                .arg("elastic")
                .arg(program)
                .arg(place),
            Self::Pipeline => {
                // Job control gives the pipeline its own group; in the foreground, as a shell that
                // is not in its `wait` yet forgets a job that ends in the background.
                let text = format!(
                    "set -m -o pipefail\n\
                     {} default {place} | (trap '' TERM INT; echo pids $(cut -d' ' -f5 /proc/self/stat); exec cat)\n\
                     echo status $?",
                    program.display()
                );
                gpu.job_of(label, "/bin/bash".as_ref()).args(&["-c", &text])
            }
        }
    }

    fn goes_on(self, signal: Signal) -> bool {
        match self {
            Self::C(how) => how != "default",
            // Python's own handler only sets a flag: the launch has to return first.
            Self::Python(how) => how == "handler" || signal == Signal::INT,
            Self::Elastic | Self::Pipeline => false,
        }
    }

    fn signalled(
        self,
        job: Job,
        signal: Signal,
        wait_until_there: impl FnOnce(),
        is_sent: impl FnOnce(),
    ) -> Ended {
        let mut process = job.start();
        let mut group = None;
        let mut is_ready = false;
        while !is_ready || (self == Self::Pipeline && group.is_none()) {
            let line = process.next_line();
            is_ready |= line == "ready";
            if let Some(pids) = line.strip_prefix("pids ") {
                group = pids.parse().ok().and_then(Pid::from_raw);
            }
        }
        wait_until_there();
        match group {
            Some(group) => kill_process_group(group, signal).unwrap(),
            None => process.signal(signal),
        }
        is_sent();
        match self {
            Self::C("ignored") => process.finish(),
            _ => process.finish_untold(),
        }
    }

    /// Its standard error: of Python the last line, as the one before names the interrupted line of
    /// the script; a shell's has process ids.
    fn complaint(self, ended: &Ended) -> Option<&str> {
        match self {
            Self::C(_) => Some(&ended.errors),
            Self::Python(_) => ended.errors.lines().last(),
            Self::Elastic | Self::Pipeline => None,
        }
    }

    fn expect_unchanged(self) {
        let python = match self {
            Self::Python(_) | Self::Elastic => Some(tools::python(&[])),
            Self::C(_) | Self::Pipeline => None,
        };
        let stage = Stage::new();
        let cells: Vec<Cell> = cells().collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                stage.expect_unchanged(self, *cell, python.as_deref());
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(work);
            }
        });
    }
}

// census: G2
#[test]
fn a_process_that_would_die_of_the_signal_dies_of_it_when_its_work_is_done() {
    Row::C("default").expect_unchanged();
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    Row::C("ignored").expect_unchanged();
}

#[test]
fn a_handler_of_the_applications_is_called_and_may_launch() {
    Row::C("handler").expect_unchanged();
}

// census: G2
#[test]
fn a_handler_that_asks_for_details_and_a_stack_gets_them_as_from_the_kernel() {
    Row::C("siginfo").expect_unchanged();
}

#[test]
fn a_signal_that_is_blocked_and_read_from_a_descriptor_is_found_there() {
    Row::C("signalfd").expect_unchanged();
}

#[test]
fn a_signal_that_is_blocked_and_waited_for_is_found_so() {
    Row::C("sigwait").expect_unchanged();
}

#[test]
fn a_python_program_is_interrupted_and_terminated_as_without_us() {
    Row::Python("default").expect_unchanged();
}

#[test]
fn a_python_program_that_catches_its_interruption_goes_on_as_without_us() {
    Row::Python("caught").expect_unchanged();
}

#[test]
fn a_handler_in_python_is_called_as_without_us() {
    Row::Python("handler").expect_unchanged();
}

/// As torchrun does: workers are started, signalled, awaited, and judged by how they end.
// census: G7
#[test]
fn an_agent_that_passes_the_signal_on_sees_its_workers_end_as_without_us() {
    Row::Elastic.expect_unchanged();
}

#[test]
fn a_pipeline_ends_as_without_us() {
    Row::Pipeline.expect_unchanged();
}

/// A program that has imported PyTorch, once for all its cells.
struct Loader {
    process: Process,
    /// Parents and workers so far.
    pids: Vec<i32>,
}

impl Loader {
    fn start(job: Job) -> Self {
        let script = workspace().join("cli/tests/programs/asked_to_end.py");
        let mut process = job.arg("-B").arg(script).arg("loader").start();
        process.wait_whenever("imported");
        Self {
            process,
            pids: Vec::new(),
        }
    }

    fn signalled(
        &mut self,
        cell: Cell,
        lasting_ns: u64,
        wait_until_there: impl Fn(),
        mut is_sent: impl FnMut(),
    ) -> Vec<String> {
        self.process
            .write(&format!("{} {lasting_ns}\n", cell.place));
        let mut said = Vec::new();
        let mut parent = None;
        while said
            .last()
            .is_none_or(|line: &String| !line.starts_with("ended "))
        {
            let line = self.process.next_line();
            if let Some(pids) = line.strip_prefix("pids ") {
                let pids: Vec<i32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
                parent = pids.first().copied().and_then(Pid::from_raw);
                self.pids.extend(pids);
                continue;
            }
            if line == "ready" {
                wait_until_there();
                kill_process(parent.expect("told before"), cell.signal).unwrap();
                is_sent();
            }
            said.push(line);
        }
        said
    }

    /// Workers end with their parent; PyTorch's check every five seconds whether it lives.
    fn finish(self) {
        let are_gone = || self.pids.iter().all(|pid| is_gone(*pid));
        let ended = try_until(are_gone);
        // Nobody else would end them.
        let left = self.pids.iter().filter(|pid| !is_gone(**pid));
        for pid in left.copied().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        assert_eq!(ended, Some(()), "workers outlive their parent");
        self.process.finish().expect_success();
    }
}

/// Whether that process has ended. Its new parent may not have reaped it.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    stat.is_empty() || state.starts_with('Z')
}

#[test]
fn the_parent_of_a_dataloaders_workers_ends_as_without_us() {
    let python = python_with_torch(Cuda::V13);
    let stage = Stage::new();
    let job = |gpu: &Gpu, label: &str| gpu.job_of(label, &python);
    let under = |place: &str, class: JobClass| {
        let (gpu, daemon) = stage.at(place, class)?;
        let job = job(gpu, class.name()).under(daemon.socket(), class);
        let job = job.env("PILLION_DRAIN_MS", DRAIN_MS);
        Some(job.env("PILLION_LOG", "error"))
    };
    let mut alone = Loader::start(job(&stage.gpu, "alone"));
    let expected: Vec<_> = cells()
        .map(|cell| alone.signalled(cell, LASTING_NS[0], || (), || ()))
        .collect();
    alone.finish();
    for (is_held, class) in [false, true]
        .into_iter()
        .flat_map(|h| CLASSES.map(|c| (h, c)))
    {
        let here = |place: &str| (place == HELD) == is_held;
        let place = PLACES.into_iter().find(|place| here(place)).unwrap();
        let (Some(job), Some((gpu, daemon))) = (under(place, class), stage.at(place, class)) else {
            continue;
        };
        let mut loader = Loader::start(job);
        let theirs = cells().zip(&expected).filter(|(cell, _)| here(cell.place));
        for (cell, expected) in theirs {
            let is_as_expected = |lasting_ns| {
                let mut is_with_work = false;
                let (place, label) = (cell.place, class.name());
                let before = Stage::completed(gpu, label);
                let is_sent = || {
                    is_with_work = Stage::completed(gpu, label) - before < LASTING;
                    if is_held && cell.signal == Signal::INT {
                        stage.resume();
                    }
                };
                let there = || stage.wait_until_there(place, label);
                let said = loader.signalled(cell, lasting_ns, there, is_sent);
                if is_held {
                    stage.resume();
                }
                assert_eq!(&said, expected, "{class:?}, {cell:?}");
                expect_drained(gpu, daemon, class.name());
                is_with_work
            };
            let is_shown = LASTING_NS.into_iter().any(is_as_expected);
            assert!(
                is_shown,
                "{class:?}, {cell:?}: its work was complete whenever it was signalled"
            );
        }
        loader.finish();
    }
}

//! The matrix: whatever a program does about SIGTERM and SIGINT, and wherever they meet it, it prints what it prints without
//! us, ends as it ends without us, and leaves no work behind on the device.
//!
//! | what is asked to end | × signal | × where |
//! |---|---|---|
//! | a C program with the default, SIG_IGN, a handler, a handler with SA_SIGINFO on a stack of its own, signalfd, sigwait; a Python program with Python's defaults, with handlers; the parent of a DataLoader's workers; an agent like torchrun's with its workers; a pipeline of a shell's | SIGTERM, SIGINT | idle, launching, synchronising, capturing, each with work in flight; held at the gate |
//!
//! Every cell is run without us and in both classes; held are best-effort jobs only, each of whose launches waits for 300 ms
//! beside a high-priority job that never ends. The cells of one row are run a few at a time.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use protocol::hello::JobClass;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::common::{Cuda, Daemon, Ended, Gpu, Job, Process, Program, tools, try_until, workspace};
use crate::torch::python as python_with_torch;

const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];
const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
const PLACES: [&str; 5] = ["idle", "launching", "synchronising", "capturing", HELD];
const HELD: &str = "held";
const FOR_EVER_NS: &str = "3600000000000";
/// It drains for as long as a busy machine takes.
const PATIENT_MS: &str = "60000";
/// Cells of one row at a time.
const AT_ONCE: usize = 3;

/// What is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// `asked_to_end.c` with this disposition.
    C(&'static str),
    /// `asked_to_end.py` with this one.
    Python(&'static str),
    /// An agent that passes the signal on to two workers.
    Elastic,
    /// The group of processes of `asked_to_end | cat`, where `cat` outlives it.
    Pipeline,
}

/// A place in a row.
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

/// Two GPUs with a daemon each: one for jobs that run, and one where best-effort jobs are held.
struct Stage {
    gpu: Gpu,
    daemon: Daemon,
    busy: Gpu,
    holding: Daemon,
    _hung: Process,
}

impl Stage {
    fn new() -> Self {
        let (gpu, busy) = (Gpu::start("mps"), Gpu::start("mps"));
        let daemon = gpu.daemon("");
        let holding = busy.daemon("name = \"temporal\"\nmax_hold_ms = 300");
        let hung = busy.job("hung", Program::Linked("hang"));
        let mut hung = hung
            .args(&[FOR_EVER_NS, "1"])
            .high_priority(&holding)
            .start();
        hung.wait_for("launched", 1);
        Self {
            gpu,
            daemon,
            busy,
            holding,
            _hung: hung,
        }
    }

    /// Where that cell is run in that class, if it can be.
    fn at(&self, place: &str, class: JobClass) -> Option<(&Gpu, &Daemon)> {
        match (place, class) {
            (HELD, JobClass::HighPriority) => None,
            (HELD, JobClass::BestEffort) => Some((&self.busy, &self.holding)),
            _ => Some((&self.gpu, &self.daemon)),
        }
    }

    fn expect_unchanged(&self, row: Row, cell: Cell, python: Option<&Path>) {
        let Cell { signal, place } = cell;
        let name = format!("{signal:?} {place}");
        let job = row.job(&self.gpu, &format!("alone {name}"), place, python);
        let alone = row.signalled(job, signal, || ());
        for class in CLASSES {
            let Some((gpu, daemon)) = self.at(place, class) else {
                continue;
            };
            let label = format!("{} {name}", class.name());
            let job = row.job(gpu, &label, place, python);
            // Not that its kernels are in no profile.
            let job = job
                .under(daemon.socket(), class)
                .env("PILLION_LOG", "error")
                .env("PILLION_DRAIN_MS", PATIENT_MS);
            let ended = row.signalled(job, signal, || {
                if place == HELD {
                    daemon.wait_until_held(&label);
                }
            });
            let case = format!("{row:?}, {label}");
            assert_eq!(told(&ended), told(&alone), "{case}: {ended:#?}");
            assert_eq!(ended.status, alone.status, "{case}: {ended:#?}");
            assert_eq!(
                row.complaint(&ended),
                row.complaint(&alone),
                "{case}: {ended:#?}"
            );
            expect_drained(gpu, daemon, &label, place);
        }
    }
}

/// All that it launched is complete when it has ended; what is held may have launched nothing yet.
fn expect_drained(gpu: &Gpu, daemon: &Daemon, label: &str, place: &str) {
    daemon.wait_for_clients(label, 0);
    let counts = gpu.counts(label);
    let launches = &counts["launches"];
    assert!(
        place == HELD || launches.as_u64() > Some(0),
        "{label}: {counts:#}"
    );
    assert_eq!(&counts["launches_completed"], launches, "{label}");
}

/// What it printed, without process ids.
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
                // Job control gives the pipeline a group of its own, and leaves SIGINT as it is.
                let text = format!(
                    "set -m -o pipefail\n\
                     {} default {place} | (trap '' TERM INT; exec cat) &\n\
                     echo pids $(jobs -p)\n\
                     wait %1\n\
                     echo status $?",
                    program.display()
                );
                gpu.job_of(label, "/bin/bash".as_ref()).args(&["-c", &text])
            }
        }
    }

    /// Starts it, sends the signal once it is ready and where it is to be met, and waits for its end.
    fn signalled(self, job: Job, signal: Signal, wait_until_there: impl Fn()) -> Ended {
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
        match self {
            Self::C("ignored") => process.finish(),
            _ => process.finish_untold(),
        }
    }

    /// What it wrote to standard error. Of Python's the last line, as before it comes the line of the script that was
    /// interrupted, which is a race's; a shell names processes by their ids.
    fn complaint(self, ended: &Ended) -> Option<&str> {
        match self {
            Self::C(_) => Some(&ended.errors),
            Self::Python(_) => ended.errors.lines().last(),
            Self::Elastic | Self::Pipeline => None,
        }
    }

    fn expect_unchanged(self) {
        let python = match self {
            Self::Python(_) | Self::Elastic => match tools::python(&[]) {
                Some(python) => Some(python),
                None => return,
            },
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

/// As torchrun does: started, forwarded to, waited for, and judged by how they end.
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

    /// What the parent of a DataLoader's workers says and how it ends when it is signalled there.
    fn signalled(&mut self, cell: Cell, wait_until_there: impl Fn()) -> Vec<String> {
        self.process.write(&format!("{}\n", cell.place));
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
            }
            said.push(line);
        }
        said
    }

    /// Workers end with their parent; PyTorch's look every five seconds whether it is there.
    fn finish(self) {
        let are_gone = || self.pids.iter().all(|pid| is_gone(*pid)).then_some(());
        let ended = try_until(are_gone);
        // Nobody else would.
        let left = self.pids.iter().filter(|pid| !is_gone(**pid));
        for pid in left.copied().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        assert_eq!(ended, Some(()), "workers outlive their parent");
        self.process.finish().expect_success();
    }
}

/// Whether that process has ended. Whoever it was left to may not have noticed.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    stat.is_empty() || state.starts_with('Z')
}

#[test]
fn the_parent_of_a_dataloaders_workers_ends_as_without_us() {
    let Some(python) = python_with_torch(Cuda::V13) else {
        return;
    };
    let stage = Stage::new();
    let job = |gpu: &Gpu, label: &str| gpu.job_of(label, &python);
    let under = |place: &str, class: JobClass| {
        let (gpu, daemon) = stage.at(place, class)?;
        let job = job(gpu, class.name()).under(daemon.socket(), class);
        let job = job.env("PILLION_LOG", "error");
        Some(job.env("PILLION_DRAIN_MS", PATIENT_MS))
    };
    let mut alone = Loader::start(job(&stage.gpu, "alone"));
    let expected: Vec<_> = cells().map(|cell| alone.signalled(cell, || ())).collect();
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
            let said = loader.signalled(cell, || {
                if is_held {
                    daemon.wait_until_held(class.name());
                }
            });
            assert_eq!(&said, expected, "{class:?}, {cell:?}");
            expect_drained(gpu, daemon, class.name(), cell.place);
        }
        loader.finish();
    }
}

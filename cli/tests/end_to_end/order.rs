//! Programs whose streams wait for each other through memory. Under Pillion they end as without it,
//! with the same results, and independent kernels run at the same times. `programs/order.c` submits
//! work before the work it waits for; each test is a row of kinds of streams. If Pillion adds an
//! edge to the order of the program's work, the program hangs or computes something else. A round
//! that hangs for 30 s ends the program, and its last line names the round.
//! `programs/independent.c` runs on the virtual clock, where the device's record has the times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::clock::{CLOCK_ENV, RANK_ENV};
use protocol::hello::JobClass::{self, BestEffort, HighPriority};
use protocol::hello::connect_to;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    Daemon, Ended, Gpu, Job, Process, Program, cargo_folder, clean_command, driver_folder, library,
    until,
};

/// Rounds of each shape with each number of streams and threads. A row has at least 15 shapes and
/// six such numbers, so it has more than 200 rounds.
const ROUNDS: &str = "3";
const ROUNDS_ENV: &str = "PILLION_TEST_ROUNDS";
/// The host's time of two launches on the virtual clock, ns.
const LAUNCHES_NS: u64 = 10_000;
/// A shape launches hundreds of kernels behind a wait. None completes while the thread is at the
/// gate, so beside a high-priority job each launch waits for all of `max_hold`.
const POLICY: &str = "max_hold_ms = 2";
/// The device's counters of operations in a process's streams, and of its streams.
const ENQUEUED: [&str; 3] = ["launches", "events_recorded", "streams_created"];

fn order(gpu: &Gpu, label: &str, row: &str) -> Job {
    let rounds = std::env::var(ROUNDS_ENV).unwrap_or_else(|_| ROUNDS.to_owned());
    gpu.job(label, "order").args(&[row, &rounds])
}

fn expect_equal(what: &str, bare: &Ended, ours: &Ended) {
    let mut lines = bare.output.lines().zip(ours.output.lines());
    let first = lines.find(|(bare, ours)| bare != ours);
    assert_eq!(first, None, "{what} (bare, ours): {}", ours.errors);
    assert_eq!(ours.code(), 0, "{what}: {ours:#?}");
    assert_eq!(ours.output, bare.output, "{what}");
}

fn expect_nothing_enqueued(what: &str, bare: &Value, ours: &Value) {
    for counted in ENQUEUED {
        assert_eq!(ours[counted], bare[counted], "{what}: {counted}");
    }
}

/// A job of the other class. A high-priority one pauses after each request.
fn companion(gpu: &Gpu, daemon: &Daemon, class: JobClass) -> Process {
    let pause_ms = if class == HighPriority { "1" } else { "0" };
    let job = gpu.job("companion", "steady").args(&[pause_ms]);
    job.under(daemon.socket(), class).start_until("round")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Nobody,
    Stays,
    ComeAndGo,
}

fn expect_same_order_where(sharing: &'static str, row: &str) {
    let (gpu, daemon) = Gpu::with_daemon(sharing, POLICY);
    let bare = order(&gpu, "bare", row).run();
    assert_eq!((bare.code(), &*bare.errors), (0, ""), "{bare:#?}");
    let of_bare = gpu.counts("bare");
    for (class, other) in [
        (BestEffort, Other::Nobody),
        (HighPriority, Other::Nobody),
        (BestEffort, Other::Stays),
        (HighPriority, Other::Stays),
        (BestEffort, Other::ComeAndGo),
    ] {
        let label = format!("{}-{other:?}", class.name());
        let job = order(&gpu, &label, row).under(daemon.socket(), class);
        let ended = beside(&gpu, &daemon, (class, other), job);
        expect_equal(&format!("{row}, {sharing}, {label}"), &bare, &ended);
        if class == HighPriority {
            expect_nothing_enqueued(&label, &of_bare, &gpu.counts(&label));
        }
    }
}

fn beside(gpu: &Gpu, daemon: &Daemon, (class, other): (JobClass, Other), job: Job) -> Ended {
    let other_class = match class {
        HighPriority => BestEffort,
        BestEffort => HighPriority,
    };
    match other {
        Other::Nobody => job.run(),
        Other::Stays => {
            let other = companion(gpu, daemon, other_class);
            let ended = job.run();
            other.finish().expect_success();
            ended
        }
        Other::ComeAndGo => {
            let mut job = job.start();
            while job.is_running() {
                companion(gpu, daemon, other_class)
                    .finish()
                    .expect_success();
            }
            job.finish()
        }
    }
}

fn expect_same_order(row: &str) {
    std::thread::scope(|scope| {
        let both = ["mps", "timeslice"]
            .map(|sharing| scope.spawn(move || expect_same_order_where(sharing, row)));
        for one in both {
            if let Err(panic) = one.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[test]
fn non_blocking_streams_that_wait_for_each_other_end_as_they_do_bare() {
    expect_same_order("non-blocking");
}

#[test]
fn blocking_streams_that_wait_for_each_other_end_as_they_do_bare() {
    expect_same_order("blocking");
}

#[test]
fn per_thread_streams_that_wait_for_each_other_end_as_they_do_bare() {
    expect_same_order("per-thread");
}

#[test]
fn the_legacy_stream_and_non_blocking_ones_that_wait_for_each_other_end_as_they_do_bare() {
    expect_same_order("pytorch");
}

#[test]
fn blocking_streams_that_wait_for_each_other_beside_the_legacy_stream_end_as_they_do_bare() {
    expect_same_order("legacy");
}

#[test]
fn streams_of_both_kinds_that_wait_for_each_other_beside_the_legacy_stream_end_as_they_do_bare() {
    expect_same_order("mixed");
}

#[test]
fn streams_that_wait_for_each_other_beside_a_capture_end_as_they_do_bare() {
    expect_same_order("capturing");
}

#[test]
fn a_program_that_leaves_streams_waiting_for_ever_ends_as_it_does_bare() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for row in [
        "non-blocking",
        "blocking",
        "per-thread",
        "pytorch",
        "legacy",
        "mixed",
    ] {
        let job = |label| gpu.job(label, "order").args(&[row, "leave"]);
        let bare = job("bare").run().expect_success();
        for class in [BestEffort, HighPriority] {
            let job = job(class.name()).under(daemon.socket(), class);
            let ended = job.env("PILLION_DRAIN_MS", "100").run();
            assert_eq!(
                (ended.code(), &ended.output),
                (0, &bare.output),
                "{row}: {ended:#?}"
            );
        }
    }
}

/// A folder with a software GPU on the virtual clock.
pub(crate) struct Clocked {
    folder: TempDir,
    server: Process,
}

impl Clocked {
    /// Time begins when so many processes take part in it.
    pub(crate) fn start(sharing: &str, processes: &str) -> Self {
        Self::start_device(&["--device", "V100-SXM2-16GB"], sharing, processes)
    }

    /// [`Self::start`] for the device that these arguments of its server describe.
    pub(crate) fn start_device(device: &[&str], sharing: &str, processes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut server = Command::new(cargo_folder().join("softgpu-server"));
        server.arg("--socket").arg(path("gpu.sock"));
        server.arg("--clock-page").arg(path("clock"));
        server.arg("--record").arg(path("record"));
        server.args(device).args(["--sharing", sharing]);
        server.args(["--processes", processes]);
        let server = Process::start("softgpu-server", server);
        until("the device server", || connect_to(&path("gpu.sock")).ok());
        Self { folder, server }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command on the clock; at equal times the lower rank runs first.
    pub(crate) fn command(&self, program: &Path, rank: &str) -> Command {
        let mut command = clean_command(program);
        command
            .env("LD_LIBRARY_PATH", driver_folder())
            .env("SOFTGPU_SOCKET", self.path("gpu.sock"))
            .env(CLOCK_ENV, self.path("clock"))
            .env(RANK_ENV, rank);
        command
    }

    pub(crate) fn daemon(&self, sharing: &str) -> Process {
        self.daemon_with(sharing, "")
    }

    pub(crate) fn daemon_with(&self, sharing: &str, policy: &str) -> Process {
        let socket = self.path("pillion.sock");
        let config = format!(
            "[gpu]\nindex = 0\nsharing = {sharing:?}\n[socket]\npath = {socket:?}\n[policy]\n{policy}\n"
        );
        std::fs::write(self.path("gpu0.toml"), config).unwrap();
        let mut daemon = self.command(&cargo_folder().join("pilliond"), "0");
        daemon.arg("--config").arg(self.path("gpu0.toml"));
        let daemon = Process::start("pilliond", daemon);
        until("the daemon's socket", || connect_to(&socket).ok());
        daemon
    }

    pub(crate) fn finish(self) -> Vec<Vec<(u64, u64)>> {
        kernels_of_record(&self.finish_record())
    }

    /// Ends the device; returns its record (`softgpu-server --record`).
    pub(crate) fn finish_record(self) -> String {
        let record = self.path("record");
        self.server.signal(Signal::TERM);
        self.server.finish().expect_success();
        std::fs::read_to_string(record).unwrap()
    }
}

/// Start and end of each kernel of `independent`, from the first kernel's start, ns; by stream, in
/// the order of their creation.
fn kernels_on_virtual_time(
    (row, streams, connections): (&str, &str, &str),
    sharing: &str,
    class: Option<JobClass>,
) -> Vec<Vec<(u64, u64)>> {
    let clocked = Clocked::start(sharing, if class.is_some() { "2" } else { "1" });
    let daemon = class.map(|_| clocked.daemon(sharing));
    let mut program = clocked.command(&Program::Linked("independent").path(), "1");
    program.args([row, streams]);
    program.env("CUDA_DEVICE_MAX_CONNECTIONS", connections);
    if let Some(class) = class {
        program
            .env("LD_PRELOAD", library())
            .env("PILLION_CLASS", class.name())
            .env("PILLION_JOB", class.name())
            .env("PILLION_SOCKET", clocked.path("pillion.sock"));
    }
    let program = Process::start("independent", program);
    program.finish().expect_success();
    drop(daemon);
    clocked.finish()
}

fn kernels_of_record(record: &str) -> Vec<Vec<(u64, u64)>> {
    let mut streams: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for line in record.lines().filter(|line| line.starts_with("kernel\t")) {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        let kernel = (number(3), number(4));
        streams.entry(number(2)).or_default().push(kernel);
    }
    let kernels = streams.values().flatten();
    let first_ns = kernels.map(|kernel| kernel.0).min().expect("kernels ran");
    let from_first = |kernels: Vec<(u64, u64)>| {
        let shifted = kernels
            .into_iter()
            .map(|(start_ns, end_ns)| (start_ns - first_ns, end_ns - first_ns));
        shifted.collect()
    };
    // The device numbers streams in order of creation.
    streams.into_values().map(from_first).collect()
}

/// Start and end differ by at most 1 % or two launches from those of the program alone.
fn is_as_bare(bare: &[Vec<(u64, u64)>], ours: &[Vec<(u64, u64)>]) -> bool {
    let is_near =
        |bare_ns: u64, ours_ns: u64| bare_ns.abs_diff(ours_ns) <= (bare_ns / 100).max(LAUNCHES_NS);
    let mut streams = bare.iter().zip(ours);
    bare.len() == ours.len()
        && streams.all(|(bare, ours)| {
            let mut kernels = bare.iter().zip(ours);
            bare.len() == ours.len()
                && kernels.all(|(bare, ours)| is_near(bare.0, ours.0) && is_near(bare.1, ours.1))
        })
}

/// Differences in the times of a row's kernels, with fewer streams than connections and with more.
fn differences_of_times(row: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (streams, connections) in [("1", "8"), ("8", "8"), ("9", "8"), ("3", "1")] {
        let what = (row, streams, connections);
        for (sharing, classes) in [
            ("mps", &[BestEffort, HighPriority][..]),
            ("timeslice", &[BestEffort]),
        ] {
            let bare = kernels_on_virtual_time(what, sharing, None);
            for &class in classes {
                let ours = kernels_on_virtual_time(what, sharing, Some(class));
                if !is_as_bare(&bare, &ours) {
                    let what = format!("{what:?}, {}, {sharing}", class.name());
                    found.push(format!("{what}: {ours:?}, bare {bare:?}"));
                }
            }
        }
    }
    found
}

fn expect_same_times(row: &str) {
    let found = differences_of_times(row);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn independent_kernels_of_created_streams_start_and_end_when_they_do_bare() {
    expect_same_times("non-blocking");
    expect_same_times("blocking");
}

#[test]
fn independent_kernels_of_a_threads_stream_start_and_end_when_they_do_bare() {
    expect_same_times("per-thread");
}

#[test]
fn kernels_beside_the_legacy_stream_start_and_end_when_they_do_bare() {
    expect_same_times("pytorch");
    expect_same_times("legacy");
}

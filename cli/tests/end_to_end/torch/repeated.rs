//! Scenarios repeated on one device with one daemon: none hangs, each behaves as the first did, and
//! nothing is left.
//!
//! Four times each, or 200 times, which takes hours on a busy machine:
//!
//! ```text
//! PILLION_TEST_LONG=1 cargo test --release -p pillion-cli --test end_to_end -- \
//!     torch::repeated --nocapture
//! ```
//!
//! Another number in `PILLION_TEST_LONG` is the number of times.

use std::collections::BTreeSet;
use std::{env, fs};

use protocol::hello::JobClass;

use super::{Scenario, Stage, python};
use crate::common::{Cuda, until};

const TIMES: u32 = 4;
const TIMES_LONG: u32 = 200;

#[test]
fn a_data_loader_run_again_and_again_leaves_nothing_behind() {
    repeat(Scenario::of("loader"));
}

#[test]
fn a_captured_graph_run_again_and_again_leaves_nothing_behind() {
    repeat(Scenario::of("graph"));
}

fn times() -> u32 {
    let asked = env::var("PILLION_TEST_LONG").ok();
    match asked.and_then(|text| text.parse().ok()) {
        None | Some(0) => TIMES,
        Some(1) => TIMES_LONG,
        Some(times) => times,
    }
}

fn repeat(scenario: Scenario) {
    let python = python(Cuda::V13);
    let stage = Stage::new(python);
    let found = segments();
    let pids = stage.gpu.path("pids");
    let times = times();
    let mut first = None;
    let mut open = None;
    for time in 1..=times {
        // One of each class, then the other way round, so that each follows each.
        let class = match time % 4 {
            1 | 0 => JobClass::HighPriority,
            _ => JobClass::BestEffort,
        };
        let launches_before = launches(&stage, class);
        let mark = format!("{}-{}-{time}", scenario.program, std::process::id());
        let job = stage.under_pillion(scenario, class);
        let job = job.env(MARK, &mark).env(PIDS, &pids);
        let ended = job.start().finish_whenever();
        let did = (
            ended.expect_success().output,
            launches(&stage, class) - launches_before,
        );
        assert_ne!(did.1, 0, "{did:#?}");
        assert_eq!(
            first.get_or_insert_with(|| did.clone()),
            &did,
            "the first time and time {time}"
        );
        until("the end of every process of the run", || {
            marked(&mark).is_empty()
        });
        until("no client", || {
            let status = stage.daemon.status();
            let mut jobs = status["jobs"].as_array()?.iter();
            jobs.all(|job| job["clients"].as_array().is_none_or(Vec::is_empty))
                .then_some(())
        });
        // Resources opened once exist after the second time.
        if time > 2 {
            let open = *open.get_or_insert_with(|| descriptors(&stage));
            until(
                "as many descriptors as before, with daemon and device",
                || {
                    let now = descriptors(&stage);
                    now[0] <= open[0] && now[1] <= open[1]
                },
            );
        }
        if times > TIMES {
            eprintln!("{}: {time} of {times}", scenario.program);
        }
    }
    let pids = fs::read_to_string(pids).unwrap();
    let pids: BTreeSet<&str> = pids.lines().collect();
    assert!(pids.len() >= times as usize, "{pids:?}");
    // Other processes' leftovers are not ours.
    until("no segment that a process left behind", || {
        let mut left = segments().into_iter().filter(|name| !found.contains(name));
        let is_ours = |name: String| creator(&name).is_some_and(|pid| pids.contains(pid));
        !left.any(is_ours)
    });
}

/// Marks the processes of a run: all have it in their environment.
const MARK: &str = "PILLION_TEST_RUN";
/// Names the file to which each of them adds its process id.
const PIDS: &str = "PILLION_TEST_PIDS";

fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let of = |process: &str| fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    processes()
        .into_iter()
        .filter(|process| {
            of(process)
                .split(|&byte| byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        })
        .collect()
}

fn processes() -> BTreeSet<String> {
    names("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// PyTorch's shared memory, named after processes (`torch_PID_…`) of which none is alive. Pillion's
/// and the device's has no name: it lasts as long as a descriptor, which [`descriptors`] counts.
fn segments() -> BTreeSet<String> {
    let living = processes();
    names("/dev/shm")
        .into_iter()
        .filter(|name| {
            let process = creator(name);
            process.is_some_and(|process| !living.contains(process))
        })
        .collect()
}

fn creator(segment: &str) -> Option<&str> {
    segment.strip_prefix("torch_")?.split('_').next()
}

/// The open descriptors of daemon and device server, except those of ledgers: the daemon remembers
/// jobs that have ended, each with one.
fn descriptors(stage: &Stage) -> [usize; 2] {
    let of = |id: u32| names(&format!("/proc/{id}/fd")).len();
    let status = stage.daemon.status();
    let jobs = status["jobs"].as_array().map_or(0, Vec::len);
    [of(stage.daemon.pid()) - jobs, of(stage.gpu.server_pid())]
}

fn launches(stage: &Stage, class: JobClass) -> u64 {
    let counts = stage.gpu.counts(class.name());
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    count("launches") + count("graph_kernels")
}

//! The next start of a program knows what a run has learnt, in real processes.

use std::path::{Path, PathBuf};

use profiler::Profile;
use serde_json::Value;

use crate::common::{Daemon, Gpu, Job, Process, Program, collect, until};

/// `load` launches `long`, which takes 2 ms; unknown kernels are assumed to take 100 µs.
const LONG_NS: u64 = 2_000_000;

fn load(gpu: &Gpu, daemon: &Daemon, label: &str) -> Job {
    let job = gpu.job(label, "load 16").best_effort(daemon);
    job.without_profile()
}

fn learn(daemon: &Daemon, label: &str) {
    daemon.job_when(label, "a kernel is learnt", |job| {
        job["totals"]["kernels_learnt"].as_u64() > Some(0)
    });
}

/// Runs until the daemon knows the kernel's duration and the job has noted it.
fn teach(gpu: &Gpu, daemon: &Daemon, label: &str) -> Process {
    let mut job = load(gpu, daemon, label).start();
    learn(daemon, label);
    // The job takes a note half a second after its first seen completion, in the first round.
    job.wait_for_new("round", 40);
    job
}

fn listed(gpu: &Gpu, daemon: &Daemon) -> Vec<Value> {
    let said = gpu.tell(daemon, &["profile", "learnt", "--json"]);
    let document: Value = serde_json::from_str(&said.expect_success().output).unwrap();
    document["programs"].as_array().unwrap().clone()
}

fn wait_until_kept(gpu: &Gpu, daemon: &Daemon) -> Value {
    until("something that is kept", || listed(gpu, daemon).pop())
}

/// Runs the program again in this class, and shows that no launch was unknown.
fn expect_known(gpu: &Gpu, daemon: &Daemon, label: &str, job: Job) {
    // The daemon may still be writing the previous entry to a busy disk, and no job waits for that.
    // The answer to this query comes after it.
    let path = Program::Linked("load").path();
    let arguments = ["profile", "learnt", path.to_str().unwrap()];
    gpu.tell(daemon, &arguments).expect_success();
    let mut job = job.start();
    job.wait_for("round", 3);
    let ended = job.finish().expect_success();
    assert_eq!(ended.errors, "", "{label}");
    assert_eq!(daemon.total(label, "launches_unknown"), 0, "{label}");
    assert!(daemon.total(label, "launches") > 0);
}

#[test]
fn the_second_start_knows_the_kernels_of_the_first_in_either_class() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    let said = gpu.tell(&daemon, &["profile", "learnt"]);
    assert!(said.output.starts_with("nothing is learnt yet"), "{said:?}");

    teach(&gpu, &daemon, "first").finish().expect_success();
    assert!(daemon.total("first", "launches_unknown") > 0);
    let program = wait_until_kept(&gpu, &daemon);
    let path = Program::Linked("load").path();
    assert_eq!(program["program"], path.to_str().unwrap(), "{program}");
    assert_eq!(program["kernels"], 1, "{program}");

    let file = gpu.path("load.toml");
    let name = path.file_name().unwrap().to_str().unwrap();
    let arguments = ["profile", "learnt", name, "-o", file.to_str().unwrap()];
    gpu.tell(&daemon, &arguments).expect_success();
    let profile = Profile::load(&file).unwrap();
    let long = &profile.kernels[0];
    let off_ns = long.durations.median_ns.abs_diff(LONG_NS);
    // As precise as a launch that is seen with others is learnt (docs/limits.md).
    assert!(long.name == "long" && off_ns < LONG_NS / 5, "{long:?}");

    expect_known(&gpu, &daemon, "second", load(&gpu, &daemon, "second"));
    let hp = gpu.job("hp", "load 16").high_priority(&daemon);
    expect_known(&gpu, &daemon, "hp", hp.without_profile());
    // Another program starts from nothing.
    let other = gpu.job("other", "steady").best_effort(&daemon);
    let mut other = other.without_profile().start();
    other.wait_for("round", 1);
    other.finish().expect_success();
    assert!(daemon.total("other", "launches_unknown") > 0);
}

#[test]
fn launches_in_a_profile_that_a_job_was_given_are_not_those_of_runs() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    teach(&gpu, &daemon, "first").finish().expect_success();
    let program = wait_until_kept(&gpu, &daemon)["program"].clone();
    let file = gpu.path("load.toml");
    let path = file.to_str().unwrap();
    let arguments = ["profile", "learnt", program.as_str().unwrap(), "-o", path];
    gpu.tell(&daemon, &arguments).expect_success();
    let mut profile = Profile::load(&file).unwrap();
    profile.kernels[0].count = 1_000_000;
    // A run notes nothing that the profile has right.
    let told_ns = 3 * LONG_NS;
    let durations = &mut profile.kernels[0].durations;
    (durations.median_ns, durations.p95_ns) = (told_ns, told_ns);
    durations.sum_ns = told_ns * 1_000_000;
    std::fs::write(&file, profile.write()).unwrap();
    let mut last = listed(&gpu, &daemon).pop().unwrap()["launches"]
        .as_u64()
        .unwrap();
    for label in ["second", "third"] {
        let job = load(&gpu, &daemon, label).env("PILLION_PROFILE", &file);
        let mut job = job.start();
        learn(&daemon, label);
        job.wait_for_new("round", 40);
        job.finish().expect_success();
        let launches = until("its note", || {
            let launches = listed(&gpu, &daemon).pop()?["launches"].as_u64()?;
            (launches > last).then_some(launches)
        });
        assert!(launches < 1_000_000, "{label}: {launches}");
        last = launches;
    }
}

/// A disk may take seconds to answer while others write to it.
#[test]
fn what_a_daemon_says_late_is_taken_all_the_same() {
    let gpu = Gpu::start("mps");
    let slow = gpu.path("slow");
    let disk = Program::Library("slow_disk").path();
    let daemon = gpu.daemon_in(&[("LD_PRELOAD", &disk), ("SLOW_WHILE", &slow)]);
    teach(&gpu, &daemon, "first").finish().expect_success();
    wait_until_kept(&gpu, &daemon);
    let hp = gpu.job("hp", "load 16").high_priority(&daemon);
    for job in [load(&gpu, &daemon, "second"), hp.without_profile()] {
        std::fs::write(&slow, "").unwrap();
        let mut job = job.env("PILLION_LOG", "info").start();
        job.wait_for("round", 3);
        until("that it is late", || {
            job.errors()
                .contains("still waiting for the kept durations")
                .then_some(())
        });
        std::fs::remove_file(&slow).unwrap();
        until("that it is taken", || {
            let is_taken = job
                .errors()
                .contains("1 kernel and shape known from earlier runs of");
            is_taken.then_some(())
        });
        job.finish().expect_success();
    }
}

#[test]
fn a_run_that_is_killed_leaves_what_it_has_noted() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    teach(&gpu, &daemon, "first").kill();
    wait_until_kept(&gpu, &daemon);
    expect_known(&gpu, &daemon, "second", load(&gpu, &daemon, "second"));
}

/// The run exits before the half second after which a note is taken.
#[test]
fn a_run_that_exits_leaves_what_it_learnt_last() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    let half = [("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")];
    for (label, environment) in [("whole", &half[..0]), ("half", &half)] {
        let mut job = load(&gpu, &daemon, label);
        for (name, value) in environment {
            job = job.env(name, value);
        }
        let job = job.start();
        learn(&daemon, label);
        job.finish().expect_success();
        wait_until_kept(&gpu, &daemon);
    }
    // With a share of the SMs a kernel takes longer.
    let programs = until("two programs", || {
        let listed = listed(&gpu, &daemon);
        (listed.len() == 2).then_some(listed)
    });
    let mut names: Vec<&str> = programs
        .iter()
        .flat_map(|p| p["program"].as_str())
        .collect();
    names.sort_unstable();
    let path = Program::Linked("load").path();
    let path = path.to_str().unwrap();
    assert_eq!(names, [path, &format!("{path} (on 50 % of the SMs)")]);
}

/// One daemon is killed with a run's note, and one ends while the run goes on.
#[test]
fn the_next_daemon_keeps_what_a_run_notes() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    let mut job = teach(&gpu, &daemon, "first");
    daemon.kill();
    let daemon = gpu.daemon("name = \"pillion\"");
    daemon.wait_for_clients("first", 1);
    job.wait_for_new("round", 5);
    job.finish().expect_success();
    wait_until_kept(&gpu, &daemon);
    let job = teach(&gpu, &daemon, "second");
    let before = listed(&gpu, &daemon).pop().unwrap();
    daemon.end();
    let daemon = gpu.daemon("name = \"pillion\"");
    let after = listed(&gpu, &daemon).pop().unwrap();
    assert!(
        after["launches"].as_u64() > before["launches"].as_u64(),
        "{after} {before}"
    );
    job.finish().expect_success();
}

#[test]
fn a_daemon_that_ends_waits_for_a_slow_fsync() {
    let gpu = Gpu::start("mps");
    let slow = Program::Library("slow_fsync").path();
    let daemon = gpu.daemon_in(&[("LD_PRELOAD", &slow)]);
    let job = teach(&gpu, &daemon, "first");
    daemon.end();
    // So that the next daemon does not read its notes.
    job.kill();
    let daemon = gpu.daemon("name = \"pillion\"");
    assert_eq!(listed(&gpu, &daemon).len(), 1);
}

fn events(gpu: &Gpu, daemon: &Daemon) -> Vec<String> {
    let said = gpu.tell(daemon, &["events", "--json"]);
    let document: Value = serde_json::from_str(&said.expect_success().output).unwrap();
    let events = document["daemons"][0]["events"].as_array().unwrap().iter();
    let ours = events.filter(|event| event["kind"] == "learnt-not-kept");
    ours.map(|event| event["text"].as_str().unwrap().to_owned())
        .collect()
}

/// As on a full disk, or on a read-only one.
#[test]
fn where_nothing_can_be_kept_that_is_said_once_and_jobs_go_on() {
    let gpu = Gpu::start("mps");
    std::fs::write(gpu.path("state"), "no folder").unwrap();
    let daemon = gpu.daemon("name = \"pillion\"");
    for label in ["first", "second"] {
        teach(&gpu, &daemon, label)
            .finish()
            .expect_success()
            .expect_errors(&["long"]);
        until("an event", || {
            (!events(&gpu, &daemon).is_empty()).then_some(())
        });
    }
    assert_eq!(listed(&gpu, &daemon), Vec::<Value>::new());
    let said = events(&gpu, &daemon);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("cannot keep kernel durations in"),
        "{said:?}"
    );
    // Once there is room again it is kept.
    std::fs::remove_file(gpu.path("state")).unwrap();
    teach(&gpu, &daemon, "third").finish().expect_success();
    wait_until_kept(&gpu, &daemon);
}

#[test]
fn a_damaged_file_disturbs_no_job_and_is_replaced() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    teach(&gpu, &daemon, "first").finish().expect_success();
    wait_until_kept(&gpu, &daemon);
    let file = only_file(&gpu.path("state"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 20]).unwrap();
    teach(&gpu, &daemon, "second").finish().expect_success();
    assert!(daemon.total("second", "launches_unknown") > 0);
    until("an event", || events(&gpu, &daemon).pop());
    expect_known(&gpu, &daemon, "third", load(&gpu, &daemon, "third"));
}

fn only_file(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut paths = entries.map(|entry| entry.path());
    let wanted =
        |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|suffix| suffix == "toml");
    let found = paths.find(wanted).expect("something that is kept");
    match found.is_dir() {
        true => only_file(&found),
        false => found,
    }
}

#[test]
fn where_keeping_is_off_nothing_is_kept_and_the_command_says_so() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("name = \"pillion\"\n[learnt]\nkeep = false");
    teach(&gpu, &daemon, "first").finish().expect_success();
    let said = gpu.tell(&daemon, &["profile", "learnt"]);
    assert_eq!(said.code(), 1);
    assert!(said.errors.contains("[learnt] keep = false"), "{said:?}");
    assert!(!gpu.path("state").exists());
    let command = gpu.pillion(&daemon, &["profile", "learnt"]);
    daemon.end();
    assert_eq!(collect(command).code(), 69);
}

//! A process that begins while no daemon answers, or that is refused at first, attaches to the
//! first daemon that accepts it: gated or protected from then on, and counted from the beginning.
//! Until then it ends as a client does, with nothing in flight.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use protocol::hello::JobClass;
use rustix::process::Signal;

use crate::common::{Daemon, Gpu, HANG, Process, library, until};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
const POLICIES: [&str; 2] = [
    "on_daemon_loss = \"run\"",
    "on_daemon_loss = \"hold\"\nmax_hold_ms = 10000",
];

/// The socket of a daemon that has ended.
fn left_by(gpu: &Gpu, signal: Signal, policy: &str) -> PathBuf {
    let daemon = gpu.daemon(policy);
    let socket = daemon.socket().to_owned();
    daemon.signal(signal);
    daemon.finish();
    socket
}

fn steady(gpu: &Gpu, label: &str, socket: &Path, class: JobClass) -> Process {
    let mut process = gpu.job(label, "steady").under(socket, class).start();
    process.wait_for("round", 3);
    process
}

fn expect_to_be_clients(gpu: &Gpu, daemon: &Daemon, jobs: Vec<(&str, Process)>) {
    for (label, process) in jobs {
        daemon.wait_for_clients(label, 1);
        daemon.job_when(label, "the memory that it has", |job| {
            job["memory"]["held_bytes"] == gpu.held_by(&[process.pid()])
        });
        let mut process = process;
        process.wait_for_new("round", 3);
        assert!(gpu.held_by(&[process.pid()]) > 0);
        let ended = gpu.expect_right_end(label, process, daemon);
        assert_eq!(ended.errors.matches("unmanaged").count(), 1, "{ended:#?}");
        assert_eq!(ended.errors.lines().count(), 1, "{ended:#?}");
    }
}

#[test]
fn who_begins_between_two_daemons_is_the_nexts_client_and_is_counted_from_its_beginning() {
    for (policy, signal) in POLICIES.into_iter().zip([Signal::TERM, Signal::KILL]) {
        let gpu = Gpu::start("mps");
        let socket = left_by(&gpu, signal, policy);
        let start = |class: JobClass| (class.name(), steady(&gpu, class.name(), &socket, class));
        let jobs = CLASSES.map(start).into();
        let daemon = gpu.daemon(policy);
        let name = JobClass::BestEffort.name();
        daemon.job_when(name, "its launches until then", |job| {
            job["totals"]["launches_unmanaged"].as_u64() >= Some(30)
        });
        expect_to_be_clients(&gpu, &daemon, jobs);
    }
}

#[test]
fn who_begins_before_the_first_daemon_is_its_client() {
    let gpu = Gpu::start("timeslice");
    let socket = gpu.path("pillion.sock");
    let start = |class: JobClass| (class.name(), steady(&gpu, class.name(), &socket, class));
    let jobs = CLASSES.map(start).into();
    let daemon = gpu.daemon("");
    expect_to_be_clients(&gpu, &daemon, jobs);
}

/// Work from before the daemon keeps others from launching beside it; a waiting process then goes
/// on.
#[test]
fn what_is_in_flight_from_before_the_first_daemon_holds_others_back_until_it_ends() {
    for on_loss in ["run", "hold"] {
        let policy =
            format!("name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"{on_loss}\"");
        let gpu = Gpu::start("mps");
        let socket = left_by(&gpu, Signal::KILL, &policy);
        let hp = gpu.job("hp", HANG).under(&socket, JobClass::HighPriority);
        let hp = hp.start_until("launched");
        let mut be = steady(&gpu, "be", &socket, JobClass::BestEffort);
        let daemon = gpu.daemon(&policy);
        daemon.wait_for_clients("hp", 1);
        daemon.wait_for_clients("be", 1);
        daemon.wait_until_held("be");
        assert_eq!(daemon.job("hp")["totals"]["launches"], 1);
        hp.signal(Signal::KILL);
        be.wait_for_new("round", 5);
        gpu.expect_right_end("be", be, &daemon);
        assert_eq!(daemon.total("be", "launches_forced"), 0);
    }
}

#[test]
fn best_effort_work_in_flight_from_before_the_first_daemon_is_in_flight_there() {
    let gpu = Gpu::start("mps");
    let socket = gpu.path("pillion.sock");
    let be = gpu.job("be", "hang 3600000000000 2");
    let mut be = be.under(&socket, JobClass::BestEffort).start();
    be.wait_for("launched", 1);
    let daemon = gpu.daemon("");
    daemon.job_when("be", "its work in flight", |job| {
        job["totals"]["launches"] == 2 && job["in_flight_ns"].as_u64() > Some(1000)
    });
    be.signal(Signal::KILL);
}

/// The ending process always has a kernel in flight; without a wait its neighbour is lost.
#[test]
fn who_is_asked_to_end_before_any_daemon_is_there_takes_nobody_along() {
    for class in CLASSES {
        let gpu = Gpu::start_contagious();
        let socket = gpu.path("pillion.sock");
        let mut neighbour = steady(&gpu, "neighbour", &socket, JobClass::HighPriority);
        let job = gpu.job("ends", "hang 300000000 3").under(&socket, class);
        let job = job.env("PILLION_DRAIN_MS", "60000").start_until("launched");
        job.signal(Signal::TERM);
        let ended = job.finish_untold();
        let signal = Some(Signal::TERM.as_raw());
        assert_eq!(ended.status.signal(), signal, "{ended:#?}");
        neighbour.wait_for_new("round", 5);
        neighbour.finish().expect_success();
    }
}

#[test]
fn who_is_refused_at_first_is_a_client_once_there_is_room() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "\n[limits]\nclients_per_user = 1\n");
    let mut first = gpu.job("first", "steady").best_effort(&daemon).start();
    first.wait_for("round", 1);
    daemon.wait_for_clients("first", 1);
    let second = steady(&gpu, "second", daemon.socket(), JobClass::BestEffort);
    assert!(
        second.errors().contains("refused this process"),
        "{}",
        second.errors()
    );
    first.finish().expect_success();
    expect_to_be_clients(&gpu, &daemon, vec![("second", second)]);
}

#[test]
fn who_is_refused_at_first_is_the_next_daemons_client_where_that_allows_it() {
    let gpu = Gpu::start("mps");
    let first = gpu.daemon("\n[limits]\nclients_per_user = 1\n");
    let mut other = gpu.job("other", "steady").best_effort(&first).start();
    other.wait_for("round", 1);
    first.wait_for_clients("other", 1);
    let socket = first.socket().to_owned();
    let jobs = CLASSES.map(|class| (class.name(), steady(&gpu, class.name(), &socket, class)));
    first.kill();
    let second = gpu.daemon("");
    expect_to_be_clients(&gpu, &second, jobs.into());
    second.wait_for_clients("other", 1);
    other.finish().expect_success();
}

/// The process itself keeps the quota until a daemon keeps it for the job.
#[test]
fn a_quota_that_no_daemon_keeps_at_first_is_the_jobs_at_the_next_one() {
    let gpu = Gpu::start("mps");
    let socket = left_by(&gpu, Signal::KILL, "");
    let job = gpu.job("job", "steady");
    let job = job.under(&socket, JobClass::BestEffort);
    let mut job = job.env("PILLION_MEMORY", "256MiB").start();
    job.wait_for("round", 3);
    let daemon = gpu.daemon("");
    daemon.job_when("job", "its memory and quota", |found| {
        let memory = &found["memory"];
        memory["held_bytes"] == gpu.held_by(&[job.pid()]) && memory["quota_bytes"] == 256 << 20
    });
    job.finish().expect_success();
    daemon.job_when("job", "nothing", |found| {
        found["memory"]["held_bytes"] == 0 && found["memory"]["processes"] == 0
    });
}

/// A library that is preloaded everywhere must cost unmanaged processes nothing.
#[test]
fn whom_nobody_wants_to_be_managed_gets_no_thread_and_says_nothing() {
    let gpu = Gpu::start("mps");
    let threads = |process: &Process| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid()));
        tasks.unwrap().count()
    };
    let bare = || {
        let job = gpu.job("bare", "steady");
        job.env("XDG_RUNTIME_DIR", gpu.path("nowhere"))
    };
    let mut alone = bare().start();
    let mut preloaded = bare().env("LD_PRELOAD", library()).start();
    for process in [&mut alone, &mut preloaded] {
        process.wait_for("round", 3);
    }
    let counts = until("the threads that both keep", || {
        let counts = [&alone, &preloaded].map(threads);
        (counts[0] == counts[1]).then_some(counts)
    });
    assert_eq!(counts[0], counts[1]);
    alone.finish().expect_success();
    let ended = preloaded.finish().expect_success();
    assert_eq!(ended.errors, "");
}

//! A job learns of its daemon's death without polling by a clock, whatever the application does
//! with descriptors and processes.

use std::fs;
use std::path::PathBuf;

use protocol::clock::Clock;
use rustix::process::Signal;

use crate::common::{Daemon, Gpu, Process, try_until, until};

const HELPER: &str = "pillion";
const LISTENER: &str = "pillion-hangup";

/// The number of `recvfrom` in proc(5) (Linux, `asm/unistd_64.h`, `asm-generic/unistd.h`).
const RECVFROM: &str = match cfg!(target_arch = "x86_64") {
    true => "45 ",
    false => "207 ",
};

/// If the library polls by the clock, it polls four times in this time.
const IDLE_NS: u64 = 1_000_000_000;

/// Processes of one user: more than a daemon serves at once, which hangs up on the longest silent.
const MANY: usize = 40;
/// [`MANY`] for a long run: a daemon accepts 192 of one user by default.
const MANY_LONG: usize = 150;

fn replaced(gpu: &Gpu, daemon: Daemon) -> Daemon {
    daemon.kill();
    gpu.null_daemon()
}

fn start(gpu: &Gpu, daemon: &Daemon, way: &str) -> Process {
    let job = gpu.job(way, "lost").args(&[way]);
    let job = job.env("SOFTGPU_NULL", gpu.null());
    job.high_priority(daemon).start()
}

fn lost(gpu: &Gpu, daemon: &Daemon, way: &str) -> Process {
    let mut job = start(gpu, daemon, way);
    job.wait_for("attached", 1);
    daemon.wait_for_clients(way, 1);
    until("its thread that waits for the daemon's end", || {
        is_listening(&job)
    });
    job
}

fn tasks(process: &Process) -> impl Iterator<Item = PathBuf> {
    let folder = format!("/proc/{}/task", process.pid());
    fs::read_dir(folder)
        .unwrap()
        .map(|task| task.unwrap().path())
}

fn is_listening(process: &Process) -> bool {
    let says = |task: &PathBuf, file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    tasks(process).any(|task| {
        says(&task, "comm").trim() == LISTENER && says(&task, "syscall").starts_with(RECVFROM)
    })
}

/// How often the library's threads went to sleep.
fn sleeps(process: &Process) -> u64 {
    let of = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.expect("proc(5)").trim().to_owned()
        };
        let is_ours = [HELPER, LISTENER].contains(&value("Name:").as_str());
        let times = value("voluntary_ctxt_switches:").parse::<u64>().unwrap();
        if is_ours { times } else { 0 }
    };
    tasks(process).map(of).sum()
}

/// The job does not poll by the clock, so only the notification makes it attach again.
#[test]
fn a_job_that_sleeps_is_woken_by_nothing_but_its_daemons_death() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    let mut job = lost(&gpu, &daemon, "sleeps");
    job.write("\n");
    job.wait_for("done", 1);
    let clock = Clock::monotonic();
    until("a second in which it sleeps", || {
        let (before, end_ns) = (sleeps(&job), clock.now_ns() + IDLE_NS);
        let _ = try_until(|| clock.now_ns() >= end_ns);
        sleeps(&job) == before
    });
    let daemon = replaced(&gpu, daemon);
    daemon.wait_for_clients("sleeps", 1);
    let ended = job.finish().expect_success();
    assert_eq!(daemon.total("sleeps", "launches"), ended.asked("launches"));
}

/// The wait holds the connection itself, whatever becomes of its number.
#[test]
fn a_job_that_closes_all_descriptors_is_attached_again() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    let mut job = lost(&gpu, &daemon, "closes");
    job.write("\n");
    job.wait_for("round", 5);
    let daemon = replaced(&gpu, daemon);
    daemon.wait_for_clients("closes", 1);
    job.wait_for_new("round", 5);
    let ended = job.finish().expect_success();
    assert_eq!(daemon.total("closes", "launches"), ended.asked("launches"));
}

/// The wait ends with the stop, and another one would use the application's own file.
#[test]
fn a_job_that_closes_all_descriptors_and_is_stopped_goes_on_without_a_daemon() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    let mut job = lost(&gpu, &daemon, "closes");
    job.write("\n");
    job.wait_for("done", 1);
    job.stop();
    job.signal(Signal::CONT);
    until("the end of the wait", || !is_listening(&job));
    job.wait_for_new("round", 5);
    let daemon = replaced(&gpu, daemon);
    job.wait_for_new("round", 5);
    job.finish().expect_success();
    drop(daemon);
}

/// A stop alone changes nothing.
#[test]
fn a_job_that_was_stopped_is_told_of_its_daemons_death() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    let mut job = lost(&gpu, &daemon, "sleeps");
    job.stop();
    job.signal(Signal::CONT);
    job.write("\n");
    job.wait_for("done", 1);
    until("its wait", || is_listening(&job));
    let daemon = replaced(&gpu, daemon);
    daemon.wait_for_clients("sleeps", 1);
    job.finish().expect_success();
}

/// The child also has the connection, and does not close it.
#[test]
fn a_job_whose_child_has_its_descriptors_is_told_of_its_daemons_death() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    let mut job = lost(&gpu, &daemon, "forks");
    job.write("\n");
    job.wait_for("done", 1);
    let daemon = replaced(&gpu, daemon);
    daemon.wait_for_clients("forks", 1);
    job.wait_for_new("round", 5);
    let ended = job.finish().expect_success();
    assert_eq!(daemon.total("forks", "launches"), ended.asked("launches"));
}

/// All ask at once, and repeatedly: all attach, silently. The time is printed.
#[test]
fn many_processes_that_lose_their_daemon_at_once_are_all_attached_to_the_next_one() {
    let is_long = std::env::var_os("PILLION_TEST_LONG").is_some_and(|value| value == "1");
    let count = if is_long { MANY_LONG } else { MANY };
    let (gpu, daemon) = Gpu::with_null_daemon();
    let mut jobs: Vec<Process> = (0..count).map(|_| start(&gpu, &daemon, "sleeps")).collect();
    for job in &mut jobs {
        job.write("\n");
        job.wait_for("done", 1);
    }
    daemon.wait_for_clients("sleeps", count);
    let daemon = replaced(&gpu, daemon);
    let clock = Clock::monotonic();
    let listens_ns = clock.now_ns();
    daemon.wait_for_clients("sleeps", count);
    let took_ms = (clock.now_ns() - listens_ns) / 1_000_000;
    println!("{count} processes are clients {took_ms} ms after the next daemon listens");
    for job in jobs {
        assert_eq!(job.finish().expect_success().errors, "");
    }
}

//! Many deaths in a row: processes that are killed while they hold every resource and do various
//! things, and daemons that are killed under load. Other processes meet no failed call, and the
//! gate works again each time. The recovery time is printed beside two controls: processes without
//! Pillion, and processes that attach for the first time. Times are real and not asserted. A seed
//! (`PILLION_TEST_SEED`) determines what a process does when it is killed, and for how long it has
//! done that. With `PILLION_TEST_LONG=1` 200 processes and 50 daemons die.

use std::time::Duration;

use protocol::clock::Clock;
use protocol::hello::{JobClass, ask_events};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::Value;

use crate::chaos::{Left, Random, seed};
use crate::common::{Daemon, Gpu, PATIENCE_NS, Process, until};

/// For tests where it matters what let a launch go.
const HOLD: &str = "on_daemon_loss = \"hold\"";
/// A victim's quota, filled in pieces of at most 16 MiB: a pool may take 32 MiB at once besides.
const QUOTA: &str = "512MiB";
const PIECES: &str = "29";

/// A victim's activity at its death (`chaos.c`). Only a high-priority one's launches use rings.
const VICTIMS: [(&str, JobClass); 7] = [
    ("nothing", JobClass::BestEffort),
    (AT_THE_GATE, JobClass::BestEffort),
    ("memory", JobClass::BestEffort),
    ("storm", JobClass::HighPriority),
    ("copy", JobClass::BestEffort),
    ("capture", JobClass::BestEffort),
    ("storm", JobClass::BestEffort),
];
const AT_THE_GATE: &str = "launch";
const BUSY_NS_MAX: u64 = 20_000_000;

fn count(long: usize, short: usize) -> usize {
    let is_long = std::env::var_os("PILLION_TEST_LONG").is_some_and(|value| value == "1");
    if is_long { long } else { short }
}

fn job(gpu: &Gpu, label: &str, what: &[&str], class: JobClass) -> Process {
    let job = gpu.job(label, "chaos").args(what);
    let job = job.under(&gpu.path("pillion.sock"), class);
    job.env("PILLION_MEMORY", QUOTA).start()
}

fn start_hp(gpu: &Gpu) -> Process {
    job(gpu, "hp", &["hp"], JobClass::HighPriority)
}

fn start_be(gpu: &Gpu, label: &str) -> Process {
    job(gpu, label, &["be"], JobClass::BestEffort)
}

#[test]
fn processes_killed_while_they_hold_everything_leave_nothing_behind() {
    let (gpu, daemon) = Gpu::with_daemon("timeslice", HOLD);
    let mut times = [const { Vec::new() }; 5];
    let [ended, forgotten, back, plain_ended, plain_back] = &mut times;
    let before = after_a_short_life(&gpu, &daemon);
    let mut hp = start_hp(&gpu);
    let mut other = start_be(&gpu, "other");
    other.wait_for("round", 1);
    hp.next_new_line();
    let hp_bytes = gpu.held_by(&[hp.pid()]);
    let mut seen = 0;
    let mut random = Random(seed());
    println!("PILLION_TEST_SEED={}", seed());
    let first = random.below(VICTIMS.len() as u64) as usize;
    for number in 0..count(200, 8) {
        let (what, class) = VICTIMS[(first + number) % VICTIMS.len()];
        let mut victim = job(&gpu, "victim", &["hold", PIECES, what], class);
        victim.wait_for("holding", 1);
        wait_until_busy(&daemon, what, class, random.below(BUSY_NS_MAX));
        let killed_ns = kill(&victim, ended);
        let event = event_after(&daemon, &mut seen, "detached", victim.pid());
        forgotten.push(event.saturating_sub(killed_ns));
        let gone = daemon.job_when("victim", "nothing held", |job| {
            job["memory"]["held_bytes"] == 0 && job["memory"]["processes"] == 0
        });
        back.push(Clock::monotonic().now_ns() - killed_ns);
        assert_eq!(
            (&gone["in_flight_ns"], &gone["waiting"]),
            (&0.into(), &false.into())
        );
        other.wait_for_new("round", 1);
        hp.next_new_line();

        let plain = gpu.job("plain", "chaos").args(&["hold", PIECES, what]);
        let plain = plain.start_until("holding");
        let killed_ns = kill(&plain, plain_ended);
        until("the plain process's memory", || {
            gpu.held_by(&[plain.pid()]) == 0
        });
        plain_back.push(Clock::monotonic().now_ns() - killed_ns);
    }
    assert_eq!(gpu.held_by(&[hp.pid()]), hp_bytes);
    for survivor in [hp, other] {
        survivor.finish().expect_success();
    }
    before.expect_no_more(&gpu, &daemon);
    for (what, times) in [
        ("killed until its process has ended", ended),
        ("killed until the daemon has forgotten it", forgotten),
        ("killed until its job holds no memory", back),
        ("control: plain process until it has ended", plain_ended),
        (
            "control: plain process until the device has its memory",
            plain_back,
        ),
    ] {
        print(what, times);
    }
}

#[test]
fn daemons_killed_under_load_are_succeeded_and_the_gate_works_again() {
    let gpu = Gpu::start("timeslice");
    let mut daemon = gpu.daemon(HOLD);
    let before = after_a_short_life(&gpu, &daemon);
    let mut times = [const { Vec::new() }; 3];
    let [again, first_again, newcomers] = &mut times;
    let mut hp = start_hp(&gpu);
    let mut jobs = ["be1", "be2"].map(|label| (label, start_be(&gpu, label)));
    for _ in 0..count(50, 4) {
        for (label, process) in &mut jobs {
            daemon.wait_for_clients(label, 1);
            process.wait_for_new("round", 1);
        }
        daemon.wait_for_clients("hp", 1);
        let held = jobs
            .each_ref()
            .map(|(label, _)| launches_held(&daemon.job(label)));
        daemon.kill();
        daemon = gpu.daemon(HOLD);
        let began_ns = event_after(&daemon, &mut 0, "daemon-started", 0);
        let mut attached = [&hp, &jobs[0].1, &jobs[1].1]
            .map(|process| event_after(&daemon, &mut 0, "attached", process.pid()) - began_ns);
        attached.sort_unstable();
        first_again.push(attached[0]);
        again.extend(attached);
        for ((label, process), held) in jobs.iter_mut().zip(held) {
            expect_to_be_held_again(&daemon, label, process, held.expect("it was attached"));
        }
        hp.next_new_line();

        let begun_ns = Clock::monotonic().now_ns();
        let newcomer = start_be(&gpu, "newcomer");
        newcomers.push(event_after(&daemon, &mut 0, "attached", newcomer.pid()) - begun_ns);
        newcomer.finish().expect_success();
    }
    hp.finish().expect_success();
    for (label, process) in jobs {
        gpu.expect_right_end(label, process, &daemon);
        assert_eq!(daemon.totals(label)["panics_caught"], 0);
    }
    before.expect_no_more(&gpu, &daemon);
    for (what, times) in [
        ("daemon listens until a job is its client", again),
        (
            "daemon listens until the first job is its client",
            first_again,
        ),
        (
            "control: a new process is started until it is a client",
            newcomers,
        ),
    ] {
        print(what, times);
    }
}

/// Waits until the victim has been active for so long; at the gate, until one of its threads waits.
fn wait_until_busy(daemon: &Daemon, what: &str, class: JobClass, busy_ns: u64) {
    if class == JobClass::BestEffort {
        daemon.job_when("victim", "work in flight", |job| {
            job["in_flight_ns"].as_u64().is_some_and(|ns| ns > 0)
        });
    }
    if what == AT_THE_GATE {
        daemon.wait_until_held("victim");
        return;
    }
    let clock = Clock::monotonic();
    let at_ns = clock.now_ns() + busy_ns;
    until("its moment", || clock.now_ns() >= at_ns);
}

/// The resources in use after one job of each class has come and gone.
fn after_a_short_life(gpu: &Gpu, daemon: &Daemon) -> Left {
    let mut jobs = [start_hp(gpu), start_be(gpu, "first")];
    for job in &mut jobs {
        job.next_line();
    }
    for job in jobs {
        job.finish().expect_success();
    }
    Left::when_nothing_runs(gpu, daemon)
}

fn launches_held(job: &Value) -> Option<u64> {
    job["clients"][0]["counters"]["launches_held"].as_u64()
}

/// The job's launches wait for requests again. It brings its earlier count, `held`, along, and the
/// next poll adds what threads in a call wrote to its old page; so two more are waited for.
fn expect_to_be_held_again(daemon: &Daemon, label: &str, process: &mut Process, held: u64) {
    let more_than = |before: u64| {
        let job = daemon.job_when(label, "more launches held by this daemon", |job| {
            launches_held(job).is_some_and(|held| held > before)
        });
        launches_held(&job).expect("it is there")
    };
    let brought = daemon.job_when(label, "its counts", |job| {
        launches_held(job).is_some_and(|now| now >= held)
    });
    process.wait_for_new("round", 1);
    more_than(more_than(launches_held(&brought).expect("it is there")));
    let status = daemon.status();
    assert_eq!(status["hp"]["present"], true, "{status:#}");
}

/// Kills a process and waits for its end; returns the time of the kill, and adds the duration.
fn kill(process: &Process, times: &mut Vec<u64>) -> u64 {
    let pid = Pid::from_raw(process.pid().cast_signed()).expect("no process is 0");
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let clock = Clock::monotonic();
    let killed_ns = clock.now_ns();
    process.signal(Signal::KILL);
    let patience = Duration::from_nanos(PATIENCE_NS).try_into().unwrap();
    let mut fds = [PollFd::new(&descriptor, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&patience)), Ok(1));
    times.push(clock.now_ns() - killed_ns);
    killed_ns
}

/// Waits for an event of that kind and process (0: of none) after number `seen`, which it updates;
/// returns its time, ns.
fn event_after(daemon: &Daemon, seen: &mut u64, kind: &str, pid: u32) -> u64 {
    until(&format!("an event {kind} of process {pid}"), || {
        let text = ask_events(daemon.socket(), *seen, Duration::from_nanos(PATIENCE_NS)).ok()?;
        let told: Value = serde_json::from_str(&text).unwrap();
        let events = told["events"].as_array()?;
        let found = events.iter().find(|event| {
            event["kind"] == kind && event["pid"].as_u64().unwrap_or(0) == u64::from(pid)
        })?;
        *seen = found["seq"].as_u64()?;
        found["at_ns"].as_u64()
    })
}

fn print(what: &str, times: &mut [u64]) {
    times.sort_unstable();
    let last = times.len() - 1;
    let ms = |part: f64| times[(last as f64 * part).ceil() as usize] as f64 / 1e6;
    println!(
        "{what:<58} {:>4}: {:>8.2} ms median {:>8.2} p90 {:>8.2} max",
        times.len(),
        ms(0.5),
        ms(0.9),
        ms(1.0)
    );
}

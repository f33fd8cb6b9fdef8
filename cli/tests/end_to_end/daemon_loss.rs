//! A job ends correctly without a daemon and after its daemon's loss, and attaches to the next.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use protocol::clock::Clock;
use protocol::hello::JobClass;
use protocol::pages::SILENCE_NS_MAX;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Gpu, PATIENCE_NS, Process, until};
use crate::events::events;

/// How often a daemon is killed in a row.
const DEATHS: usize = 1_000;
/// After so many of them a process has all resources that it will ever have.
const DEATHS_FIRST: usize = 20;

/// A GPU, a daemon, a high-priority job whose kernel never ends, and a best-effort job at the gate.
fn held_beside_a_hung_one(policy: &str) -> (Gpu, Daemon, Process, Process) {
    let (gpu, daemon) = Gpu::with_daemon("mps", policy);
    let hp = gpu.hang(&daemon);
    let be = gpu.job("be", "steady").best_effort(&daemon).start();
    daemon.wait_until_held("be");
    (gpu, daemon, hp, be)
}

/// The job continues and ends well, and no count is lost.
fn expect_to_go_on(gpu: &Gpu, label: &str, mut process: Process, rounds: usize) {
    process.wait_for_new("round", rounds);
    let ended = process.finish().expect_success();
    let device = gpu.counts(label);
    assert_eq!(device["launches"], ended.asked("launches"), "{device:#}");
}

// census: J2, J14
#[test]
fn without_a_daemon_a_job_runs_unmanaged_and_says_so_once() {
    let gpu = Gpu::start("mps");
    let alone = gpu.job("alone", "work linked 10 3").run();
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let job = gpu.job("job", "work linked 10 3");
        let ended = job.under(&gpu.path("nobody.sock"), class).run();
        assert_eq!((ended.code(), &ended.output), (3, &alone.output));
        assert_eq!(ended.errors.matches("unmanaged").count(), 1, "{ended:#?}");
        assert!(ended.errors.contains("nobody.sock"), "{ended:#?}");
        assert_eq!(ended.errors.lines().count(), 1, "{ended:#?}");
    }
}

#[test]
fn jobs_that_are_not_held_go_on_when_the_daemon_is_killed() {
    for policy in [
        "on_daemon_loss = \"run\"",
        "on_daemon_loss = \"hold\"\nmax_hold_ms = 5",
    ] {
        let (gpu, daemon) = Gpu::with_daemon("mps", policy);
        let mut jobs = gpu.pair("steady", &daemon, "round");
        for (_, job) in &mut jobs {
            job.wait_for("round", 4);
        }
        daemon.kill();
        for (label, job) in jobs {
            expect_to_go_on(&gpu, label, job, 5);
        }
    }
}

/// By the end of its connection: five seconds of silence would end the wait, too.
// census: E1
#[test]
fn a_held_job_runs_at_once_when_the_daemon_is_killed_and_loss_means_run() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"run\"";
    let clock = Clock::monotonic();
    // A machine on which this takes five seconds shows nothing.
    let is_shown = (0..3).any(|_| {
        let (gpu, daemon, hp, mut be) = held_beside_a_hung_one(policy);
        let killed_ns = clock.now_ns();
        daemon.kill();
        be.wait_for_new("round", 1);
        let after_ns = clock.now_ns() - killed_ns;
        println!(
            "a round of ten launches {} us after the signal",
            after_ns / 1_000
        );
        expect_to_go_on(&gpu, "be", be, 5);
        hp.finish().expect_success();
        after_ns < SILENCE_NS_MAX
    });
    assert!(is_shown, "only the daemon's silence ended the wait");
}

#[test]
fn a_held_job_is_held_for_max_hold_at_most_when_the_daemon_is_killed_and_loss_means_hold() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 30\non_daemon_loss = \"hold\"";
    let (gpu, daemon, hp, be) = held_beside_a_hung_one(policy);
    daemon.kill();
    expect_to_go_on(&gpu, "be", be, 2);
    hp.finish().expect_success();
}

#[test]
fn sigterm_ends_the_daemon_in_order_and_held_jobs_go_on() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000";
    let (gpu, daemon, hp, be) = held_beside_a_hung_one(policy);
    let socket = daemon.socket().to_owned();
    daemon.end();
    assert!(!socket.exists());
    expect_to_go_on(&gpu, "be", be, 5);
    hp.finish().expect_success();
}

#[test]
fn a_service_manager_is_told_when_the_daemon_is_ready_reads_its_configuration_again_and_ends() {
    let gpu = Gpu::start("mps");
    let path = gpu.path("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    let patience = Duration::from_nanos(PATIENCE_NS);
    manager.set_read_timeout(Some(patience)).unwrap();
    let said = || {
        let mut text = [0; 4096];
        let bytes = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..bytes]).trim().to_owned()
    };
    let daemon = gpu.daemon_with("NOTIFY_SOCKET", &path);
    assert_eq!(said(), "READY=1");
    let reload = |policy: &str| {
        gpu.config(daemon.socket(), policy);
        daemon.signal(Signal::HUP);
        let (begun, over) = (said(), said());
        let at_us = begun.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let at_us = at_us.and_then(|at_us| at_us.parse::<u64>().ok());
        assert!(at_us > Some(0), "{begun}");
        over
    };
    assert_eq!(reload("name = \"orion\""), "READY=1\nSTATUS=");
    let wrong = reload("name = \"orino\"");
    let why = "READY=1\nSTATUS=unchanged, because the new configuration is invalid: ";
    assert!(wrong.starts_with(why) && wrong.contains("orino"), "{wrong}");
    daemon.end();
    assert_eq!(said(), "STOPPING=1");
}

#[test]
fn a_service_manager_with_a_watchdog_is_told_that_the_daemon_works_as_long_as_it_does() {
    let gpu = Gpu::start("mps");
    let path = gpu.path("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_nanos(PATIENCE_NS)))
        .unwrap();
    let beats = |count: usize| {
        let mut seen = 0;
        while seen < count {
            let mut text = [0; 4096];
            let bytes = manager.recv(&mut text).unwrap();
            seen += usize::from(text[..bytes].starts_with(b"WATCHDOG=1"));
        }
    };
    let environment = [
        ("NOTIFY_SOCKET", path.as_path()),
        ("WATCHDOG_USEC", Path::new("200000")),
    ];
    let daemon = gpu.daemon_in(&environment);
    beats(5);
    let mut job = gpu.job("be", "steady").best_effort(&daemon).start();
    job.wait_for("round", 3);
    beats(5);
    job.finish().expect_success();
    daemon.end();
}

// census: E10
#[test]
fn jobs_that_start_after_a_daemon_was_killed_attach_to_its_successor() {
    let gpu = Gpu::start("mps");
    let first = gpu.daemon("");
    first.kill();
    assert!(
        gpu.path("pillion.sock").exists(),
        "a killed daemon leaves its socket behind"
    );
    let second = gpu.daemon("");
    let job = gpu.job("job", "work linked 10 0").best_effort(&second);
    let ended = job.run().expect_success();
    gpu.expect_equal_counts("job", &ended, &second);
}

/// Waits until a daemon has the job and its earlier counts (the copies at a program's beginning).
fn wait_until_again(daemon: &Daemon, label: &str) -> Value {
    daemon.wait_for_clients(label, 1);
    daemon.job_when(label, "what it counted before", |job| {
        job["totals"]["copied_h2d_bytes"].as_u64() > Some(0)
    })
}

fn replaced(gpu: &Gpu, daemon: Daemon, policy: &str) -> Daemon {
    daemon.kill();
    gpu.daemon(policy)
}

#[test]
fn jobs_that_outlive_their_daemon_attach_to_the_next_one_and_everything_is_counted() {
    let gpu = Gpu::start("mps");
    let first = gpu.daemon("");
    let mut jobs = gpu.pair("steady", &first, "round");
    for (_, job) in &mut jobs {
        job.wait_for("round", 4);
    }
    let second = replaced(&gpu, first, "");
    for (label, job) in &mut jobs {
        wait_until_again(&second, label);
        job.wait_for_new("round", 5);
    }
    for (label, job) in jobs {
        gpu.expect_right_end(label, job, &second);
    }
}

/// The call is counted on the page where it began, which nobody polls again in time.
#[test]
fn a_call_that_lasts_from_one_daemon_to_the_next_is_counted_although_the_process_ends_with_it() {
    let gpu = Gpu::start("mps");
    let first = gpu.daemon("");
    let jobs = gpu.pair("outlast copy", &first, "waits");
    let second = replaced(&gpu, first, "");
    for (label, _) in &jobs {
        wait_until_again(&second, label);
    }
    for (label, job) in jobs {
        // The end of its input is the end of the call, and then its own.
        gpu.expect_right_end(label, job, &second);
    }
}

/// The process is refused as long as that daemon runs; asking all the time would help nobody.
#[test]
fn who_the_next_daemon_refuses_asks_ever_more_seldom_is_told_once_and_attaches_to_the_one_after_it()
{
    let gpu = Gpu::start("mps");
    let first = gpu.daemon("");
    let mut jobs = ["a", "b"].map(|label| {
        let job = gpu.job(label, "steady");
        (label, job.best_effort(&first).start())
    });
    for (_, job) in &mut jobs {
        job.wait_for("round", 1);
    }
    let second = replaced(&gpu, first, "\n[limits]\nclients_per_user = 1\n");
    let turned_away = until("the third time", || {
        let listed = second.status()["turned_away"][0].clone();
        (listed["times"].as_u64() >= Some(3)).then_some(listed)
    });
    let told = events(&gpu, &second, &[]);
    let told = told.iter().filter(|event| event["kind"] == "turned-away");
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0]["pid"], turned_away["pid"]);
    // Three quarters of one second, and of two.
    let at_ns = |value: &Value| value["at_ns"].as_u64().unwrap();
    let between_ns = at_ns(&turned_away) - at_ns(told[0]);
    assert!(between_ns >= 2_250_000_000, "{turned_away:#}");
    assert_eq!(second.log().matches("turned away").count(), 1);
    let third = replaced(&gpu, second, "");
    let mut said = 0;
    for (label, mut job) in jobs {
        wait_until_again(&third, label);
        job.wait_for_new("round", 2);
        let ended = gpu.expect_right_end(label, job, &third);
        said += ended.errors.matches("refused this process").count();
    }
    assert_eq!(said, 1);
}

/// Replaces a daemon so often, each time when the last one has both jobs.
fn replaced_often(
    gpu: &Gpu,
    mut daemon: Daemon,
    policy: &str,
    times: usize,
    labels: [&str; 2],
) -> Daemon {
    for _ in 0..times {
        daemon = replaced(gpu, daemon, policy);
        for label in labels {
            daemon.wait_for_clients(label, 1);
        }
    }
    daemon
}

fn wait_for_totals(daemon: &Daemon, label: &str, said: &str) {
    daemon.job_when(label, said, |job| {
        said.split_ascii_whitespace().all(|counted| {
            let (name, count) = counted.split_once('=').unwrap();
            job["totals"][name] == count.parse::<u64>().unwrap()
        })
    });
}

#[test]
fn a_call_that_lasts_over_several_daemons_is_counted_by_the_last_one() {
    for restarts in [2, 3] {
        let gpu = Gpu::start("mps");
        let first = gpu.daemon("");
        let jobs = gpu.pair("outlast copy", &first, "waits");
        let last = replaced_often(&gpu, first, "", restarts, ["hp", "be"]);
        for (label, mut job) in jobs {
            job.write("\n");
            job.wait_for("over", 1);
            wait_for_totals(&last, label, &job.next_line());
            gpu.expect_right_end(label, job, &last);
        }
    }
}

/// A launch is charged before its driver call, which ends under a later daemon.
#[test]
fn what_a_call_was_charged_over_several_daemons_is_complete_at_the_last_one() {
    let policy = "name = \"pillion\"\non_daemon_loss = \"hold\"\nmax_hold_ms = 10000";
    let gpu = Gpu::start("mps");
    let number = |job: &Value, name: &str| job[name].as_u64().unwrap();
    for restarts in [2, 3] {
        let label = format!("launch-{restarts}");
        let first = gpu.daemon(policy);
        let mut hp = gpu.job("hp", "hang 1000 1").high_priority(&first).start();
        hp.wait_for("launched", 1);
        let job = gpu.job(&label, "outlast launch").best_effort(&first);
        let mut job = job.start_until("idle");
        // The charge is current, and the work in flight as of the daemon's last poll.
        let before_ns = number(&first.job(&label), "charged_ns");
        job.write("\n");
        job.wait_for("waits", 1);
        let seen = first.job_when(&label, "a launch in flight", |job| {
            let launch_ns = number(job, "charged_ns") - before_ns;
            launch_ns > 0 && number(job, "in_flight_ns") == launch_ns
        });
        let launch_ns = number(&seen, "in_flight_ns");
        let last = replaced_often(&gpu, first, policy, restarts, ["hp", &label]);
        last.job_when(&label, "the launch in flight", |job| {
            number(job, "in_flight_ns") == launch_ns
                && number(job, "charged_ns") == before_ns + launch_ns
        });
        job.write("\n");
        job.wait_for("over", 1);
        wait_for_totals(&last, &label, &job.next_line());
        let seen = last.job_when(&label, "nothing in flight", |job| {
            number(job, "in_flight_ns") == 0
        });
        assert_eq!(number(&seen, "charged_ns"), before_ns + launch_ns);
        job.finish().expect_success();
        hp.finish().expect_success();
    }
}

/// The bound is a second; here the tests' timeout applies, and the time is printed. The library's
/// tests assert that none of its waits between two polls is longer.
#[test]
fn a_running_jobs_totals_are_what_it_asked_for_soon_after_it_is_attached_again() {
    let gpu = Gpu::start("mps");
    let first = gpu.daemon("");
    let clock = Clock::monotonic();
    let mut jobs = gpu.pair("outlast copy", &first, "waits");
    let mut said = Vec::new();
    for (_, job) in &mut jobs {
        job.write("\n");
        job.wait_for("over", 1);
        said.push(job.next_line());
    }
    // Nothing is launched any more, and nothing ends.
    let mut daemon = first;
    for _ in 0..5 {
        daemon = replaced(&gpu, daemon, "");
        for ((label, _), said) in jobs.iter().zip(&said) {
            let seen = daemon.wait_for_clients(label, 1);
            wait_for_totals(&daemon, label, said);
            let exact_ns = clock.now_ns();
            let attached_ns = seen["clients"][0]["attached_ns"].as_u64().unwrap();
            let after_ms = exact_ns.saturating_sub(attached_ns) / 1_000_000;
            println!("{label}: exact at most {after_ms} ms after it attached");
        }
    }
    for (label, job) in jobs {
        gpu.expect_right_end(label, job, &daemon);
    }
}

/// It would wait for a lost daemon until `max_hold` is over, at most the library's ten seconds.
#[test]
fn a_launch_that_waits_for_a_daemons_return_goes_on_waiting_at_the_next_one_and_goes_when_that_allows_it()
 {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"hold\"";
    // A machine on which all this takes ten seconds shows nothing.
    let is_shown = (0..3).any(|_| {
        let (gpu, first, hp, mut be) = held_beside_a_hung_one(policy);
        let second = replaced(&gpu, first, policy);
        second.wait_for_clients("hp", 1);
        wait_until_again(&second, "be");
        second.wait_until_held("be");
        let forced = |job: &Value| job["totals"]["launches_forced"].as_u64().unwrap();
        let was_forced = forced(&second.job("be")) > 0;
        hp.signal(Signal::KILL);
        be.wait_for_new("round", 5);
        let seen = second.job_when("be", "no thread at the gate", |job| job["waiting"] == false);
        gpu.expect_right_end("be", be, &second);
        assert_eq!(second.total("be", "launches_unmanaged"), 0);
        let held = second.total("be", "launches_held");
        assert!(held >= 1 && second.total("be", "held_ns") > 0, "{seen:#}");
        !was_forced && second.total("be", "launches_forced") == 0
    });
    assert!(is_shown, "it went by force each time");
}

#[test]
fn what_is_in_flight_from_one_daemon_to_the_next_holds_others_back_until_it_ends() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"run\"";
    let (gpu, first, hp, mut be) = held_beside_a_hung_one(policy);
    let second = replaced(&gpu, first, policy);
    second.wait_for_clients("hp", 1);
    wait_until_again(&second, "be");
    second.wait_until_held("be");
    wait_for_totals(&second, "hp", "launches=1");
    hp.signal(Signal::KILL);
    be.wait_for_new("round", 5);
    gpu.expect_right_end("be", be, &second);
    assert_eq!(second.total("be", "launches_forced"), 0);
}

/// The job would count as busy until it completes something, which it may never do.
#[test]
fn who_has_launched_nothing_holds_nobody_back_at_the_next_daemon() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"run\"";
    let gpu = Gpu::start("mps");
    let first = gpu.daemon(policy);
    let mut hp = gpu.job("hp", "hang 1000 0").high_priority(&first).start();
    hp.wait_for("launched", 1);
    let mut be = gpu.job("be", "steady").best_effort(&first).start();
    be.wait_for("round", 5);
    let second = replaced(&gpu, first, policy);
    second.wait_for_clients("hp", 1);
    wait_until_again(&second, "be");
    be.wait_for_new("round", 5);
    gpu.expect_right_end("be", be, &second);
    assert_eq!(second.total("be", "launches_forced"), 0);
    hp.finish().expect_success();
}

/// A process's mappings of our memory, and its descriptors, both as counts.
fn holdings(process: &Process) -> (usize, usize) {
    let of = |name: &str| format!("/proc/{}/{name}", process.pid());
    let maps = std::fs::read_to_string(of("maps")).unwrap();
    let ours = maps.lines().filter(|line| line.contains("memfd:pillion"));
    (ours.count(), std::fs::read_dir(of("fd")).unwrap().count())
}

#[test]
fn a_daemon_killed_a_thousand_times_under_load_fails_no_call_loses_no_count_and_leaves_nothing() {
    let gpu = Gpu::start("mps");
    let mut daemon = gpu.daemon("");
    let mut jobs = gpu.pair("steady", &daemon, "round");
    let mut first = Vec::new();
    for round in 0..DEATHS {
        if round == DEATHS_FIRST {
            for (label, job) in &mut jobs {
                daemon.wait_for_clients(label, 1);
                // The daemon knows it a moment before its pages are in place.
                job.wait_for_new("round", 20);
                first.push(holdings(job));
            }
        }
        // Some while jobs are attached, some before all of them are again.
        for (label, job) in &mut jobs {
            if round % 3 != 2 {
                daemon.wait_for_clients(label, 1);
            }
            job.wait_for_new("round", 1);
        }
        daemon = replaced(&gpu, daemon, "");
    }
    for ((label, job), first) in jobs.into_iter().zip(first) {
        wait_until_again(&daemon, label);
        until("what it had after the first daemons, and no more", || {
            holdings(&job) == first
        });
        gpu.expect_right_end(label, job, &daemon);
    }
}

/// Best-effort threads' launches and their ns beside the high-priority job while the daemon was
/// stopped, by the device's count. `None` if the daemon was silent so long that it counts as gone.
fn launched_beside_a_stopped_daemon(threads: u64, max_hold_ms: u64) -> Option<(u64, u64)> {
    let clock = Clock::monotonic();
    let gpu = Gpu::start("mps");
    let policy = format!("name = \"temporal\"\nmax_hold_ms = {max_hold_ms}");
    let daemon = gpu.daemon(&policy);
    let hp = gpu.hang(&daemon);
    let be = gpu.job("be", "threads");
    let be = be.args(&["exit", &threads.to_string(), "1000000"]);
    let be = be.best_effort(&daemon).start();
    daemon.wait_until_held("be");
    let beside = || {
        let count = gpu.counts("be")["launches_beside_others"].as_u64();
        count.unwrap_or(0)
    };
    let begun_ns = clock.now_ns();
    daemon.signal(Signal::STOP);
    let before = beside();
    let launched = until("three launches of each thread", || {
        let launched = beside() - before;
        (launched >= 3 * threads).then_some(launched)
    });
    let lasted_ns = clock.now_ns() - begun_ns;
    daemon.signal(Signal::CONT);
    assert_eq!(be.finish().code(), 5);
    hp.finish().expect_success();
    let unmanaged = daemon.total("be", "launches_unmanaged");
    println!(
        "{threads} threads: {launched} launches in {} ms, {unmanaged} unmanaged",
        lasted_ns / 1_000_000
    );
    (lasted_ns < SILENCE_NS_MAX && unmanaged == 0).then_some((launched, lasted_ns))
}

// census: E1
#[test]
fn a_daemon_that_is_stopped_lets_one_best_effort_launch_go_for_each_max_hold_and_thread() {
    const MAX_HOLD_MS: u64 = 100;
    for threads in [1, 2] {
        // A machine on which this takes five seconds shows nothing.
        let shown = (0..3).find_map(|_| launched_beside_a_stopped_daemon(threads, MAX_HOLD_MS));
        let (launched, lasted_ns) = shown.expect("the daemon counted as gone each time");
        // Each thread may have waited for long when the daemon was stopped.
        let holds = lasted_ns / (MAX_HOLD_MS * 1_000_000) + 1;
        assert!(
            launched <= threads * holds,
            "{launched} launches of {threads} threads in {lasted_ns} ns"
        );
    }
}

#[test]
fn a_daemon_that_is_stopped_for_longer_than_five_seconds_holds_launches_where_loss_means_hold() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 200\non_daemon_loss = \"hold\"";
    let clock = Clock::monotonic();
    let (gpu, daemon, hp, mut be) = held_beside_a_hung_one(policy);
    daemon.signal(Signal::STOP);
    let begun_ns = clock.now_ns();
    // Ten launches each, the first of which may have begun: longer than the silence.
    be.wait_for_new("round", 4);
    assert!(clock.now_ns() - begun_ns > SILENCE_NS_MAX);
    daemon.signal(Signal::CONT);
    hp.signal(Signal::KILL);
    gpu.expect_right_end("be", be, &daemon);
    assert_eq!(daemon.total("be", "launches_unmanaged"), 0);
    assert!(daemon.total("be", "launches_forced") > 0);
}

// census: E1
#[test]
fn a_daemon_that_is_stopped_for_five_seconds_is_as_good_as_gone_until_it_goes_on() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000";
    let (gpu, daemon, hp, mut be) = held_beside_a_hung_one(policy);
    daemon.signal(Signal::STOP);
    be.wait_for_new("round", 5);
    daemon.signal(Signal::CONT);
    daemon.wait_until_held("be");
    hp.signal(Signal::KILL);
    be.wait_for_new("round", 5);
    gpu.expect_right_end("be", be, &daemon);
    assert!(daemon.total("be", "launches_unmanaged") > 0);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
}

#[test]
fn launches_that_a_stopped_daemon_never_heard_of_hold_nobody_back_for_ever() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    let hp = gpu.job("hp", "hang");
    // Many more than a ring holds, a microsecond each, never synchronised.
    let hp = hp.args(&["1000", "20000"]).high_priority(&daemon);
    let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
    be.wait_for("round", 1);
    let mut hp = hp.start();
    daemon.wait_for_clients("hp", 1);
    daemon.signal(Signal::STOP);
    hp.wait_for("launched", 1);
    daemon.signal(Signal::CONT);
    be.wait_for_new("round", 5);
    let job = daemon.job("hp");
    assert_eq!(job["totals"]["launches"], 20_000, "{job:#}");
    // How many depends on when the daemon was stopped.
    println!("{} records dropped", job["totals"]["records_dropped"]);
    hp.finish().expect_success();
    gpu.expect_right_end("be", be, &daemon);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
}

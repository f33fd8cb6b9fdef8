//! Adverse jobs and machines: programs that use the GPU without Pillion, an old processor.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Signal, getuid};
use serde_json::{Value, json};

use crate::common::{Control, Daemon, Gpu, Process, Program, tools, until};

/// A program without the library that holds memory and rests.
fn stranger(gpu: &Gpu, label: &str) -> Process {
    let job = gpu.job(label, "load").args(&["64", "rest"]);
    job.start_until("ready")
}

fn named(daemon: &Daemon) -> Vec<u64> {
    let status = daemon.status();
    let processes = status["unmanaged"]["processes"].as_array().cloned();
    let processes = processes.unwrap_or_default();
    assert!(
        status["unmanaged"].is_null() || status["unmanaged"]["count"] == processes.len(),
        "{status:#}"
    );
    processes
        .iter()
        .map(|it| it["pid"].as_u64().unwrap())
        .collect()
}

fn wait_for_named(daemon: &Daemon, processes: &[&Process]) {
    let mut pids: Vec<u64> = processes.iter().map(|it| it.pid().into()).collect();
    pids.sort_unstable();
    until(&format!("{pids:?} named"), || named(daemon) == pids);
}

fn count_of_events(daemon: &Daemon) -> Value {
    daemon.status()["events"]["counts"]["unmanaged"].clone()
}

/// As entry points of containers do.
#[test]
fn a_program_whose_ld_preload_was_emptied_on_the_way_is_named_unmanaged() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let load = Program::Linked("load").path();
    let text = "LD_PRELOAD= exec \"$0\" 64 rest";
    let words = ["--", "sh", "-c", text, load.to_str().unwrap()];
    let job = gpu.pillion_run("job", daemon.socket(), &words);
    let mut process = job.env("PILLION_JOB", "emptied").start_until("ready");
    wait_for_named(&daemon, &[&process]);
    let found = daemon.status()["unmanaged"]["processes"][0].clone();
    let uid = getuid().as_raw();
    for (key, expected) in [
        ("job", json!("emptied")),
        ("name", json!("load-linked")),
        ("uid", json!(uid)),
        ("memory_bytes", json!(64 << 20)),
    ] {
        assert_eq!(found[key], expected, "{found:#}");
    }
    let reason = found["reason"].as_str().unwrap();
    assert!(reason.contains("LD_PRELOAD was cleared"), "{reason}");
    // The process asked for nothing, so nothing was refused.
    assert_eq!(daemon.status()["turned_away"], json!([]));
    let ended = gpu.tell(&daemon, &["events", "--json"]).expect_success();
    let document: Value = serde_json::from_str(&ended.output).unwrap();
    let events = document["daemons"][0]["events"].as_array().unwrap();
    let mut named = events.iter().filter(|it| it["kind"] == "unmanaged");
    let event = named.next().expect("an event");
    assert_eq!(event["pid"], process.pid());
    let at_ns = |value: &Value, key: &str| value[key].as_u64().unwrap();
    assert!(at_ns(event, "at_ns") > at_ns(&found, "since_ns"));
    let checks = gpu.tell(&daemon, &["doctor", "--json"]).output;
    let checks: Value = serde_json::from_str(&checks).unwrap();
    let checks = checks["checks"].as_array().unwrap().iter();
    let mut its = checks.filter(|it| {
        it["check"]
            .as_str()
            .unwrap()
            .starts_with("unmanaged on GPU-")
    });
    let check = its.next().expect("a line of doctor's");
    assert_eq!(check["verdict"], "warning", "{check}");
    let part = format!("pid {} load-linked", process.pid());
    assert!(check["found"].as_str().unwrap().contains(&part), "{check}");
    process.write("\n");
    process.finish();
    wait_for_named(&daemon, &[]);
    assert_eq!(count_of_events(&daemon), 1);
    let log = daemon.log();
    assert!(
        log.contains("no longer uses the GPU without Pillion"),
        "{log}"
    );
}

/// Beside it run short-lived managed programs, and one with the library switched off.
#[test]
fn a_managed_process_is_never_named_from_its_start_to_its_end() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let [hp, be] = gpu.pair("load 64 rest", &daemon, "ready");
    let be_run = |label: &str| {
        gpu.job(label, "work linked 20 7")
            .best_effort(&daemon)
            .run()
    };
    for round in 0..4 {
        assert_eq!(be_run(&format!("short{round}")).code(), 7);
    }
    // Two polls that name a process have seen all others, too.
    let off = gpu.job("off", "load").args(&["64", "rest"]);
    let off = off.best_effort(&daemon).env("PILLION_DISABLE", "1");
    let off = off.start_until("ready");
    wait_for_named(&daemon, &[&off]);
    for round in 4..8 {
        assert_eq!(be_run(&format!("short{round}")).code(), 7);
    }
    let other = stranger(&gpu, "other");
    wait_for_named(&daemon, &[&off, &other]);
    for (_, job) in [hp, be] {
        job.finish().expect_success();
    }
    off.finish().expect_success();
    wait_for_named(&daemon, &[&other]);
    other.finish().expect_success();
    wait_for_named(&daemon, &[]);
    assert_eq!(count_of_events(&daemon), 2);
}

/// Waits until the daemon has polled at least three times.
fn let_it_look(daemon: &Daemon) {
    let now_ns = || daemon.status()["daemon"]["now_ns"].as_u64().unwrap();
    let until_ns = now_ns() + 4_000_000_000;
    until("some looks", || now_ns() > until_ns);
}

#[test]
fn a_process_past_pillion_is_left_alone_where_no_rule_says_otherwise() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut other = stranger(&gpu, "other");
    wait_for_named(&daemon, &[&other]);
    let_it_look(&daemon);
    assert!(other.is_running());
    other.finish().expect_success();
    assert_eq!(daemon.status()["events"]["counts"]["evicted"], 0);
}

fn rule(more: &str) -> String {
    let root = if getuid().is_root() {
        "root = true\n"
    } else {
        ""
    };
    format!("[unmanaged]\naction = \"evict\"\n{root}{more}")
}

#[test]
fn by_the_rule_a_process_past_pillion_is_asked_to_end_and_a_managed_one_is_not() {
    let (gpu, daemon) = Gpu::with_daemon("mps", &rule("grace_s = 0"));
    let job = gpu.job("be", "load 64 rest").best_effort(&daemon);
    let mut managed = job.start_until("ready");
    let mut other = stranger(&gpu, "other");
    let pid = other.pid();
    until("the end of the process", || !other.is_running());
    assert_eq!(other.finish().status.signal(), Some(Signal::TERM.as_raw()));
    wait_for_named(&daemon, &[]);
    assert!(managed.is_running());
    managed.finish().expect_success();
    daemon.signal(Signal::TERM);
    let asked =
        format!("process {pid} (load-linked) is asked to end; it uses the GPU without Pillion");
    daemon.finish().expect_errors(&[&asked]);
}

#[test]
fn roots_processes_are_ended_only_where_the_rule_says_so() {
    if !getuid().is_root() {
        testing::ignore("only root can start a process of root's");
    }
    let rule = "[unmanaged]\naction = \"evict\"\ngrace_s = 0";
    let (gpu, daemon) = Gpu::with_daemon("mps", rule);
    let mut other = stranger(&gpu, "other");
    wait_for_named(&daemon, &[&other]);
    let_it_look(&daemon);
    assert!(other.is_running());
    other.finish().expect_success();
}

#[test]
fn a_process_past_pillion_that_does_not_hear_it_is_killed_once_mps_was_asked() {
    let gpu = Gpu::start("mps");
    let control = Control::new(&gpu);
    let daemon = gpu.daemon_beside(&control, &rule("grace_s = 1"), "");
    // Ignored signals stay ignored when another program is executed (execve(2)).
    let program = Program::Linked("load").path();
    let script = format!("trap '' TERM; exec '{}' 64 rest", program.display());
    let deaf = gpu.job_of("deaf", std::path::Path::new("/bin/sh"));
    let mut deaf = deaf.args(&["-c", &script]).start_until("ready");
    let pid = deaf.pid();
    control.knows(&[pid]);
    until("its end", || !deaf.is_running());
    let ended = deaf.finish();
    assert_eq!(ended.status.signal(), Some(Signal::KILL.as_raw()));
    control.expect_terminated(pid, &daemon);
    wait_for_named(&daemon, &[]);
    daemon.signal(Signal::TERM);
    daemon.finish().expect_errors(&[
        "is asked to end; it uses the GPU without Pillion",
        "will be killed: it did not end when asked; it uses the GPU without Pillion",
        &pid.to_string(),
    ]);
}

/// Our programs must not use, unchecked, what a processor of 2009 lacks: AVX, AVX2, BMI, FMA.
#[test]
fn a_processor_without_avx_runs_job_and_daemon() {
    if std::env::consts::ARCH != "x86_64" {
        testing::ignore("there is no AVX on this architecture");
    }
    let qemu = tools::program("qemu-x86_64");
    let old = [qemu.to_str().unwrap(), "-cpu", "Nehalem"];
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon_through(&old);
    let work = Program::Linked("work").path();
    let arguments = [&old[1..], &[work.to_str().unwrap(), "linked", "20", "7"]].concat();
    let alone = gpu.job_of("alone", &qemu).args(&arguments).run();
    let ended = gpu
        .job_of("job", &qemu)
        .args(&arguments)
        .best_effort(&daemon)
        .run();
    assert_eq!(ended.output, alone.output, "{ended:#?}");
    assert_eq!((ended.code(), &*ended.errors), (7, ""), "{ended:#?}");
    gpu.expect_equal_counts("job", &ended, &daemon);
}

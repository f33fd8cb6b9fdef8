//! Best-effort jobs' share of the GPU beside high-priority ones (`[share]`), by the server's count.

use protocol::clock::Clock;
use protocol::hello::JobClass;
use rustix::process::Signal;

use crate::common::{Gpu, Process, Program, clean_command, pillion, until};
use crate::order::Clocked;
use crate::throttle::{pair, replay};

const SM_SHARE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

#[test]
fn a_job_that_is_started_has_the_share_of_the_sms_unless_it_was_given_less() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("name = \"none\"\n[share]\nmode = \"static\"\npercent = 40");
    let started = |class: &str, given: Option<&str>| {
        let mut run = gpu.pillion(&daemon, &["run", "--class", class, "--", "sh", "-c"]);
        run.arg(format!("echo ${{{SM_SHARE}-none}}"));
        if let Some(given) = given {
            run.env(SM_SHARE, given);
        }
        let run = Process::start("pillion run", run).finish();
        run.expect_success().output.trim().to_owned()
    };
    assert_eq!(started("best-effort", None), "40");
    assert_eq!(started("best-effort", Some("20.5")), "20.5");
    assert_eq!(started("best-effort", Some("60")), "40");
    assert_eq!(started("best-effort", Some("all")), "40");
    assert_eq!(started("high-priority", None), "none");
    // Inherited from an enclosing job, it is nobody's choice.
    let within = |class: &str| {
        let run = ["run", "--class", "best-effort", "--restartable", "--"];
        let mut run = gpu.pillion(&daemon, &run);
        run.arg(pillion())
            .args(["run", "--class", class, "--", "sh", "-c"]);
        run.arg(format!(
            "echo ${{{SM_SHARE}-none}} ${{PILLION_RESTARTABLE-none}}"
        ));
        let run = Process::start("pillion run", run).finish();
        run.expect_success().output.trim().to_owned()
    };
    assert_eq!(within("high-priority"), "none none");
    assert_eq!(within("best-effort"), "40 none");
    let table = daemon.explained();
    let said = "share of best-effort jobs (static): 40 % of the SMs for jobs that start now";
    assert!(table.contains(said), "{table}");

    // The remainder of high-priority work is unknown before there was any.
    gpu.config(daemon.socket(), "name = \"none\"\n[share]");
    daemon.signal(Signal::HUP);
    let is_dynamic = |status: &serde_json::Value| status["policy"]["share"]["mode"] == "dynamic";
    daemon.status_when("the share is dynamic", is_dynamic);
    assert_eq!(started("best-effort", None), "none");
}

/// The share falls, the job is ended, and its supervisor restarts it.
#[test]
fn a_job_that_may_be_started_anew_has_another_share_then() {
    let gpu = Gpu::start("mps");
    let with = |percent: u32| {
        format!("name = \"none\"\n[share]\nmode = \"static\"\npercent = {percent}\nrestart_s = 1")
    };
    let daemon = gpu.daemon(&with(80));
    let hp = gpu.job("serve", "steady 20").high_priority(&daemon);
    let hp = hp.start_until("round");
    let program = Program::Linked("load").path();
    let start = |job: &str, more: &[&str]| {
        let words = [&["--class", "best-effort"], more, &["--"]].concat();
        let run = gpu.pillion_run(job, daemon.socket(), &words);
        let run = run.arg(program.to_str().unwrap()).arg("1");
        run.env("PILLION_JOB", job).start_until("round")
    };
    let mut stays = start("stays", &[]);
    let mut job = start("train", &["--restartable"]);
    let share_is = |percent: u32| {
        gpu.config(daemon.socket(), &with(percent));
        daemon.signal(Signal::HUP);
        let is_so = |status: &serde_json::Value| status["policy"]["share"]["percent"] == percent;
        daemon.status_when("the share is another", is_so);
    };
    // Too little for a restart; the daemon checks once a second.
    share_is(75);
    let clock = Clock::monotonic();
    clock.sleep_until(clock.now_ns() + 2_500_000_000);
    assert!(job.is_running());
    share_is(60);
    until("the end of the job", || !job.is_running());
    let told = gpu.tell(&daemon, &["events"]).expect_success().output;
    let said =
        "changed share (80 to 60 % of the SMs): the process of job \"train\" is asked to end";
    assert!(told.contains(said), "{told}");
    let run = [
        "run",
        "--class",
        "best-effort",
        "--restartable",
        "--",
        "sh",
        "-c",
    ];
    let mut run = gpu.pillion(&daemon, &run);
    run.arg(format!("echo ${SM_SHARE} $PILLION_RESTARTABLE"));
    let again = Process::start("pillion run", run).finish().expect_success();
    assert_eq!(again.output.trim(), "60 60");
    stays.wait_for_new("round", 5);
    stays.finish().expect_success();
    gpu.expect_right_end("serve", hp, &daemon);
}

/// A high-priority job uses three tenths of the SMs, and one beside it all that it may.
#[test]
fn best_effort_work_has_what_high_priority_work_leaves_and_no_more_sms_than_that() {
    let clocked = Clocked::start("mps", "3");
    let daemon = clocked.daemon_with("mps", "name = \"none\"\npoll_us = 1000\n[share]");
    let hp = replay(&clocked, JobClass::HighPriority, "1", 30, "10");
    let mut be = replay(&clocked, JobClass::BestEffort, "2", 100, "");
    be.env(SM_SHARE, "70");
    let [hp, be] = [hp, be].map(|replay| Process::start("pillion-replay", replay));
    hp.finish().expect_success();
    be.finish().expect_success();
    let mut status = clean_command(pillion());
    status.env("PILLION_SOCKET", clocked.path("pillion.sock"));
    status.args(["status", "--json"]);
    let status = Process::start("pillion status", status);
    let told = status.finish().expect_success().output;
    drop(daemon);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let share = &told["daemons"][0]["policy"]["share"];
    let percent = share["percent"].as_u64().unwrap_or(0);
    assert!((67..=73).contains(&percent), "{told:#}");

    let record = clocked.finish_record();
    // SMs while it computes, of 80; fewer while both do.
    let be = {
        let is_of_be = |line: &&str| line.starts_with("use\tbest-effort\t");
        let last = record.lines().rfind(is_of_be).unwrap();
        let fields: Vec<f64> = last
            .split('\t')
            .skip(4)
            .map(|of| of.parse().unwrap())
            .collect();
        fields[1] / fields[0]
    };
    assert!(be <= 56.0 && be > 40.0, "{be}");
}

#[test]
fn in_time_slices_the_share_is_one_of_the_time() {
    let policy = "name = \"pillion\"\npoll_us = 1000\n[share]\nmode = \"static\"\npercent = 30";
    let used = pair(policy, "timeslice");
    let (hp, be) = (used["high-priority"], used["best-effort"]);
    assert!((hp - 0.2).abs() < 0.02, "{used:?}");
    assert!((be - 0.3).abs() < 0.03, "{used:?}");
}

//! A GPU that a rule drains: all commands report it, and the next daemon drains it, too.

use rustix::process::Signal;

use crate::common::{Daemon, Gpu, collect, pillion};
use crate::events::{event_when, events, text};

const HOLD_BE: &str =
    "[faults]\n[[faults.rules]]\nfault = \"xid\"\ncodes = [92]\naction = \"hold-be\"\n";

fn daemon(gpu: &Gpu) -> Daemon {
    let daemon = gpu.daemon(HOLD_BE);
    daemon.wait_for_reports();
    daemon
}

fn expect_shown(daemon: &Daemon, parts: &[&str], is_shown: bool) {
    let text = daemon.table() + &daemon.explained();
    for part in parts {
        assert_eq!(text.contains(part), is_shown, "{part}: {text}");
    }
}

fn doctor(gpu: &Gpu, daemon: &Daemon) -> (String, String) {
    let said = gpu.tell(daemon, &["doctor", "--json"]).output;
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let checks = said["checks"].as_array().unwrap().iter();
    let mut of_daemon =
        checks.filter(|check| check["check"].as_str().unwrap().starts_with("daemon at"));
    let check = of_daemon.next().expect("the daemon is looked at").clone();
    let word = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (
        word("verdict"),
        format!("{} -> {}", word("found"), word("mend")),
    )
}

/// The exit status of a high-priority job that checks first.
fn starts(gpu: &Gpu, daemon: &Daemon) -> i32 {
    let words = ["--class", "high-priority", "--require-daemon", "--", "true"];
    gpu.pillion_run("hp", daemon.socket(), &words).run().code()
}

const DRAINED: [&str; 3] = [
    "drained: no new high-priority job",
    "Xid 48",
    "`pillion resume`",
];

fn expect_drained(gpu: &Gpu, daemon: &Daemon) {
    expect_shown(daemon, &DRAINED, true);
    let (verdict, found) = doctor(gpu, daemon);
    assert_eq!(verdict, "error", "{found}");
    for part in DRAINED {
        assert!(found.contains(part), "no {part} in {found}");
    }
    assert_eq!(starts(gpu, daemon), 69);
}

#[test]
fn a_drained_gpu_is_shown_and_stays_so_under_the_next_daemon_until_somebody_resumes_it() {
    let gpu = Gpu::start("timeslice");
    let before = daemon(&gpu);
    expect_shown(&before, &DRAINED, false);
    assert_eq!(starts(&gpu, &before), 0);
    gpu.inject("xid 48");
    event_when(&gpu, &before, "draining", |_| true);
    expect_drained(&gpu, &before);
    // By the service manager's signal, and by SIGKILL.
    before.signal(Signal::TERM);
    before.finish().expect_success();
    let second = daemon(&gpu);
    expect_drained(&gpu, &second);
    second.kill();
    let third = daemon(&gpu);
    expect_drained(&gpu, &third);
    let told = event_when(&gpu, &third, "draining", |_| true);
    let text = told["text"].as_str().unwrap();
    assert!(
        text.contains("as under the previous daemon: ") && text.contains(": Xid 48"),
        "{told}"
    );
    gpu.tell(&third, &["resume"]).expect_success();
    expect_shown(&third, &DRAINED, false);
    assert_eq!(starts(&gpu, &third), 0);
    third.signal(Signal::TERM);
    third.finish().expect_success();
    let fourth = daemon(&gpu);
    assert_eq!(starts(&gpu, &fourth), 0);
    let all = events(&gpu, &fourth, &[]);
    assert!(
        all.iter().all(|event| event["kind"] != "draining"),
        "{all:#?}"
    );
}

#[test]
fn a_best_effort_job_of_a_drained_gpu_is_shown_as_held_by_that() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu);
    // It waits for a line of input.
    let _job = gpu
        .job("train", "faulty")
        .best_effort(&daemon)
        .start_until("ready");
    gpu.inject("xid 48");
    event_when(&gpu, &daemon, "draining", |_| true);
    let table = daemon.table();
    let row = table.lines().find(|line| line.contains("train"));
    let row = row.unwrap_or_else(|| panic!("no row: {table}"));
    assert!(row.contains("drained"), "{table}");
}

#[test]
fn a_word_that_cannot_be_read_drains_all_the_same() {
    let gpu = Gpu::start("timeslice");
    let uuid = {
        let before = daemon(&gpu);
        let uuid = before.status()["gpu"]["uuid"].as_str().unwrap().to_owned();
        before.signal(Signal::TERM);
        before.finish().expect_success();
        uuid
    };
    std::fs::write(gpu.path(&format!("{uuid}.drained")), [0xff, 0]).unwrap();
    let daemon = daemon(&gpu);
    expect_shown(&daemon, &["for a reason that cannot be read"], true);
    assert_eq!(starts(&gpu, &daemon), 69);
    gpu.tell(&daemon, &["resume"]).expect_success();
    assert_eq!(starts(&gpu, &daemon), 0);
    assert!(!gpu.path(&format!("{uuid}.drained")).exists());
}

#[test]
fn a_rule_for_all_xids_leaves_a_broken_gpu_drained_and_a_program_that_is_not_there_is_told_before()
{
    let gpu = Gpu::start("timeslice");
    let rule = "[mps]\nlogs = [\"/nonexistent/control.log\"]\ncontrol = [\"/bin/true\"]\n\
                start = [\"/nonexistent/start\"]\n\
                [[faults.rules]]\nfault = \"xid\"\naction = \"restart-mps\"\n";
    let daemon = gpu.daemon(rule);
    daemon.wait_for_reports();
    let told = event_when(&gpu, &daemon, "config-doubtful", |_| true);
    assert!(text(&told).contains("/nonexistent/start"), "{told}");
    gpu.inject("xid 79");
    event_when(&gpu, &daemon, "draining", |_| true);
    event_when(&gpu, &daemon, "action-failed", |_| true);
    assert_eq!(starts(&gpu, &daemon), 69);
    let file = gpu.path("gpu0.toml");
    let mut check = gpu.command(pillion());
    check.args(["config", "check"]).arg(&file);
    let checked = collect(check).expect_success();
    assert!(checked.output.ends_with("gpu0.toml: ok\n"), "{checked:#?}");
    checked.expect_errors(&[
        "warning: [mps] start: /nonexistent/start: ",
        "warning: [mps] logs: /nonexistent/control.log does not exist",
    ]);
}

#[test]
fn best_effort_jobs_that_are_held_are_shown_as_held_also_while_there_are_none() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu);
    gpu.inject("xid 92");
    event_when(&gpu, &daemon, "held", |_| true);
    let parts = [
        "best-effort jobs are held until `pillion resume`: Xid 92",
        "no jobs",
    ];
    expect_shown(&daemon, &parts, true);
    assert_eq!(doctor(&gpu, &daemon).0, "warning");
    assert!(daemon.status()["held"][0]["uid"].is_null());
    gpu.tell(&daemon, &["resume"]).expect_success();
    expect_shown(&daemon, &parts[..1], false);
    assert_eq!(doctor(&gpu, &daemon).0, "ok");
}

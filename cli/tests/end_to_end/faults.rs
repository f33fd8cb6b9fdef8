//! Injected faults of the software GPU: detected, reported, and handled by rules.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    Control, Daemon, Ended, Gpu, HANG, Process, Program, collect, pillion, until, write_script,
};
use crate::events::{event_when, events, text};

fn faulty(gpu: &Gpu, label: &str) -> crate::common::Job {
    gpu.job(label, "faulty")
}

fn ask(process: &mut Process) -> String {
    process.write("\n");
    process.next_line()
}

const WELL: &str = "launch 0 wait 0";

fn daemon(gpu: &Gpu, rules: &str) -> Daemon {
    let daemon = gpu.daemon(&format!("[faults]\n{rules}"));
    daemon.wait_for_reports();
    daemon
}

fn start(gpu: &Gpu, daemon: &Daemon, label: &str) -> Process {
    let mut process = faulty(gpu, label).best_effort(daemon).start_until("ready");
    assert_eq!(ask(&mut process), WELL);
    process
}

fn start_hp(gpu: &Gpu, daemon: &Daemon) -> Process {
    let mut process = faulty(gpu, "hp").high_priority(daemon).start_until("ready");
    assert_eq!(ask(&mut process), WELL);
    process
}

fn resume(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Ended {
    gpu.tell(daemon, &[&["resume"], arguments].concat())
}

fn is_code(code: u64) -> impl Fn(&Value) -> bool {
    move |event| event["code"] == code
}

/// A launch of the process waits although `max_hold` is long over, as another one's has passed.
fn expect_held(gpu: &Gpu, daemon: &Daemon, process: &mut Process, label: &str) {
    process.write("\n");
    daemon.wait_until_held(label);
    let held = |daemon: &Daemon| daemon.job(label)["enforcing"].as_str().unwrap().to_owned();
    assert!(
        held(daemon).starts_with("held until `pillion resume`: "),
        "{}",
        held(daemon)
    );
    // Twice as long as a launch is held otherwise, on the daemon's own clock.
    let begun_ns = daemon.status()["daemon"]["now_ns"].as_u64().unwrap();
    until("twice max_hold", || {
        let now_ns = daemon.status()["daemon"]["now_ns"].as_u64().unwrap();
        now_ns - begun_ns > 200_000_000
    });
    assert_eq!(daemon.job(label)["waiting"], true);
    assert_eq!(gpu.counts(label)["launches"], 1);
}

#[test]
fn a_lost_context_is_an_event_of_its_job_and_the_application_gets_the_drivers_word() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu, "");
    let mut broken = start(&gpu, &daemon, "broken");
    let mut other = start(&gpu, &daemon, "other");
    gpu.inject("sticky 700 broken");
    for _ in 0..3 {
        assert_eq!(ask(&mut broken), "launch 700 wait 700");
    }
    let event = event_when(&gpu, &daemon, "sticky-error", is_code(700));
    assert_eq!(
        (&event["job"], &event["pid"]),
        (&"broken".into(), &broken.pid().into())
    );
    assert!(
        text(&event).contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        "{event}"
    );
    assert_eq!(ask(&mut other), WELL);
    broken.finish().expect_success();
    other.finish().expect_success();
    event_when(&gpu, &daemon, "detached", |event| event["job"] == "other");
    let all = events(&gpu, &daemon, &[]);
    let told = all.iter().filter(|event| event["kind"] == "sticky-error");
    assert_eq!(told.count(), 1, "once, whatever followed: {all:#?}");
    assert_eq!(daemon.status()["events"]["counts"]["sticky-error"], 1);
}

/// The last report of a process is not lost with it.
#[test]
fn a_process_that_dies_of_its_error_at_once_has_told_it() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu, "");
    for code in [214_u64, 226, 702, 710, 714, 719, 806, 810] {
        let label = format!("job-{code}");
        let mut process = start(&gpu, &daemon, &label);
        gpu.inject(&format!("sticky {code} {label}"));
        process.write("\n");
        process.finish().expect_success();
        event_when(&gpu, &daemon, "sticky-error", is_code(code));
    }
    // Other results are not such errors: out of memory, not ready, MPS.
    for code in [2, 600, 807] {
        let label = format!("job-{code}");
        let mut process = start(&gpu, &daemon, &label);
        gpu.inject(&format!("sticky {code} {label}"));
        assert_eq!(ask(&mut process), format!("launch {code} wait {code}"));
        process.finish().expect_success();
        event_when(&gpu, &daemon, "detached", |event| event["job"] == label);
    }
    assert_eq!(daemon.status()["events"]["counts"]["sticky-error"], 8);
}

#[test]
fn xids_and_what_they_mean_for_programs_are_told_and_a_broken_gpu_is_drained() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu, "");
    for (xid, said) in [(13, 719), (31, 700), (43, 719), (45, 719), (94, 226)] {
        let label = format!("job-{xid}");
        let mut process = start(&gpu, &daemon, &label);
        gpu.inject(&format!("xid {xid} {label}"));
        let event = event_when(&gpu, &daemon, "xid", is_code(xid));
        assert!(text(&event).starts_with(&format!("Xid {xid}: ")), "{event}");
        assert_eq!(ask(&mut process), format!("launch {said} wait {said}"));
        process.finish().expect_success();
    }
    let mut process = start(&gpu, &daemon, "held");
    let mut hp = start_hp(&gpu, &daemon);
    gpu.inject("xid 63");
    event_when(&gpu, &daemon, "xid", is_code(63));
    event_when(&gpu, &daemon, "ecc", |event| {
        event["text"].as_str().unwrap().contains("wait for a reset")
    });
    assert_eq!(daemon.status()["events"]["counts"]["draining"], 0);
    gpu.inject("xid 64");
    event_when(&gpu, &daemon, "draining", |_| true);
    expect_held(&gpu, &daemon, &mut process, "held");
    // The high-priority job continues. Another one gets a warning, and is accepted and served.
    assert_eq!(ask(&mut hp), WELL);
    let mut second = faulty(&gpu, "hp2").high_priority(&daemon).start();
    second.wait_for("ready", 1);
    let event = event_when(&gpu, &daemon, "attached-draining", |event| {
        event["job"] == "hp2"
    });
    assert!(text(&event).contains("drained: Xid 64"), "{event}");
    assert_eq!(ask(&mut second), WELL);
    daemon.wait_for_clients("hp2", 1);
    // `--require-daemon` reports it before the start.
    let arguments = ["--class", "high-priority", "--require-daemon", "--", "true"];
    let third = gpu.pillion_run("hp3", daemon.socket(), &arguments).run();
    assert_eq!(third.code(), 69, "{third:#?}");
    third.expect_errors(&["is drained until `pillion resume`: ", "Xid 64"]);
    let mut new = faulty(&gpu, "new").best_effort(&daemon).start();
    new.wait_for("ready", 1);
    new.write("\n");
    daemon.wait_until_held("new");
    resume(&gpu, &daemon, &[]).expect_success();
    for process in [&mut process, &mut new] {
        assert_eq!(process.next_line(), WELL);
        assert_eq!(ask(process), WELL);
    }
    event_when(&gpu, &daemon, "resumed", |_| true);
    assert_eq!(daemon.status()["hp"]["present"], true);
    let again = resume(&gpu, &daemon, &[]);
    assert_eq!(again.code(), 1, "{again:#?}");
    again.expect_errors(&["nothing is held"]);
}

#[test]
fn under_mps_the_fault_of_one_is_everybodys_and_each_says_so() {
    let gpu = Gpu::start("mps");
    let daemon = daemon(&gpu, "");
    let mut processes = [
        start(&gpu, &daemon, "guilty"),
        start(&gpu, &daemon, "other"),
        start_hp(&gpu, &daemon),
    ];
    gpu.inject("xid 31 guilty");
    for process in &mut processes {
        assert_eq!(ask(process), "launch 700 wait 700");
    }
    for label in ["guilty", "other", "hp"] {
        event_when(&gpu, &daemon, "sticky-error", |event| event["job"] == label);
    }
}

#[test]
fn a_gpu_that_fell_off_the_bus_is_drained_and_nvml_says_that_it_is_lost() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu, "");
    let mut hp = start_hp(&gpu, &daemon);
    gpu.inject("xid 79");
    event_when(&gpu, &daemon, "xid", is_code(79));
    event_when(&gpu, &daemon, "draining", |_| true);
    event_when(&gpu, &daemon, "nvml-silent", |_| true);
    assert_eq!(ask(&mut hp), "launch 999 wait 999");
    assert_eq!(daemon.status()["daemon"]["pid"], daemon.pid());
}

#[test]
fn errors_in_memory_are_told_with_their_number() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu, "");
    // Counts from before the daemon's first reading are not reported as new.
    let mut corrected = 0;
    let event = until("an event ecc-corrected", || {
        corrected += 5;
        gpu.inject(&format!("ecc {corrected} 0"));
        let mut told = events(&gpu, &daemon, &[]).into_iter();
        told.find(|event| event["kind"] == "ecc-corrected")
    });
    assert_eq!(event["code"].as_u64().map(|code| code % 5), Some(0));
    gpu.inject(&format!("ecc {corrected} 2"));
    event_when(&gpu, &daemon, "ecc", is_code(2));
    gpu.inject("xid 48");
    event_when(&gpu, &daemon, "ecc", is_code(1));
    event_when(&gpu, &daemon, "draining", |_| true);
}

#[test]
fn a_gpu_that_is_busy_and_completes_nothing_is_told_and_so_is_that_it_goes_on() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(
        &gpu,
        "stuck_s = 2\n[[faults.rules]]\nfault = \"stuck\"\naction = \"hold-be\"\n",
    );
    let mut process = start(&gpu, &daemon, "job");
    gpu.inject("stuck");
    process.write("\n");
    let event = event_when(&gpu, &daemon, "stuck", |_| true);
    assert!(event["job"].is_null(), "{event}");
    event_when(&gpu, &daemon, "held", |_| true);
    gpu.inject("unstuck");
    assert_eq!(process.next_line(), WELL);
    event_when(&gpu, &daemon, "stuck-ended", |_| true);
    // A job held by a rule continues on `pillion resume`, and not by itself.
    process.write("\n");
    daemon.wait_until_held("job");
    resume(&gpu, &daemon, &[]).expect_success();
    assert_eq!(process.next_line(), WELL);
}

#[test]
fn a_job_that_hangs_beside_others_that_go_on_is_told_and_ended_by_rule() {
    let gpu = Gpu::start("mps");
    let rule = "stuck_s = 2\n[[faults.rules]]\nfault = \"job-stuck\"\naction = \"restart-job\"\ngrace_s = 0\n";
    let daemon = daemon(&gpu, rule);
    let mut steady = gpu.job("steady", "steady").best_effort(&daemon).start();
    steady.wait_for("round", 1);
    // This job's kernel ends at once; the job never waits for it, and does nothing more.
    let mut rests = gpu.job("rests", "hang 1000 1").best_effort(&daemon).start();
    rests.wait_for("launched", 1);
    let hung = gpu.job("hung", HANG).best_effort(&daemon);
    let mut hung = hung.env("PILLION_DRAIN_MS", "100").start_until("launched");
    event_when(&gpu, &daemon, "job-stuck", |event| event["job"] == "hung");
    event_when(&gpu, &daemon, "action-done", |event| event["job"] == "hung");
    assert!(!hung.is_running());
    steady.wait_for_new("round", 3);
    steady.finish().expect_success();
    rests.finish().expect_success();
    assert_eq!(daemon.status()["events"]["counts"]["stuck"], 0);
    assert_eq!(daemon.status()["events"]["counts"]["job-stuck"], 1);
}

#[test]
fn a_job_that_is_held_for_its_own_fault_is_held_alone_and_resumed_by_name() {
    let gpu = Gpu::start("timeslice");
    let rule = "[[faults.rules]]\nfault = \"sticky-error\"\ncodes = [719]\naction = \"hold-be\"\n";
    let daemon = daemon(&gpu, rule);
    let mut guilty = start(&gpu, &daemon, "guilty");
    let mut second = faulty(&gpu, "second")
        .best_effort(&daemon)
        .env("PILLION_JOB", "guilty")
        .start();
    second.wait_for("ready", 1);
    let mut other = start(&gpu, &daemon, "other");
    gpu.inject("sticky 719 guilty");
    assert_eq!(ask(&mut guilty), "launch 719 wait 719");
    let held = event_when(&gpu, &daemon, "held", |_| true);
    assert_eq!(held["job"], "guilty");
    second.write("\n");
    daemon.wait_until_held("guilty");
    assert_eq!(ask(&mut other), WELL);
    let wrong = resume(&gpu, &daemon, &["other"]);
    assert_eq!(wrong.code(), 1, "{wrong:#?}");
    resume(&gpu, &daemon, &["guilty"]).expect_success();
    assert_eq!(second.next_line(), WELL);
    // The event shows its user's own name for the job, here too.
    event_when(&gpu, &daemon, "resumed", |event| event["job"] == "guilty");
}

#[test]
fn a_job_is_restarted_by_ending_its_processes_also_one_that_does_not_listen() {
    let gpu = Gpu::start("timeslice");
    let rule = "[[faults.rules]]\nfault = \"sticky-error\"\naction = \"restart-job\"\ngrace_s = 0\nper_hour = 1\n";
    let daemon = daemon(&gpu, rule);
    let mut listens = start(&gpu, &daemon, "job");
    let deaf = faulty(&gpu, "deaf").arg("deaf").best_effort(&daemon);
    let mut deaf = deaf.env("PILLION_JOB", "job").start_until("ready");
    let mut other = start(&gpu, &daemon, "other");
    gpu.inject("sticky 700 job");
    listens.write("\n");
    event_when(&gpu, &daemon, "action", |event| event["job"] == "job");
    let done = event_when(&gpu, &daemon, "action-done", |_| true);
    assert_eq!(done["text"], "job \"job\": its 2 processes have ended");
    assert!(!listens.is_running() && !deaf.is_running());
    assert_eq!(ask(&mut other), WELL);
    // The supervisor restarts the job, and it fails again: now a person must act.
    let mut again = start_again(&gpu, &daemon);
    gpu.inject("sticky 700 job");
    assert_eq!(ask(&mut again), "launch 700 wait 700");
    event_when(&gpu, &daemon, "action-limited", |event| {
        event["job"] == "job"
    });
    assert!(again.is_running());
}

/// A supervisor restarts its job, under a name of its own choice, whenever it has ended.
#[test]
fn a_job_that_its_supervisor_names_is_restarted_so_often_in_an_hour_and_no_more() {
    let gpu = Gpu::start("timeslice");
    let rule = "[[faults.rules]]\nfault = \"sticky-error\"\naction = \"restart-job\"\ngrace_s = 0\nper_hour = 2\n";
    let daemon = daemon(&gpu, rule);
    let program = Program::Linked("faulty").path();
    let words = ["--", program.to_str().unwrap()];
    let again = || {
        let job = gpu.pillion_run("w", daemon.socket(), &words);
        let mut process = job.env("PILLION_JOB", "worker").start_until("ready");
        gpu.inject("sticky 719 w");
        process.write("\n");
        process
    };
    for round in 1..=2 {
        let mut process = again();
        until("the end of the job", || !process.is_running());
        until("one more restart", || {
            daemon.status()["events"]["counts"]["action-done"] == round
        });
    }
    let mut process = again();
    event_when(&gpu, &daemon, "action-limited", |event| {
        event["job"] == "worker"
    });
    assert!(process.is_running());
}

fn start_again(gpu: &Gpu, daemon: &Daemon) -> Process {
    faulty(gpu, "job").best_effort(daemon).start_until("ready")
}

#[test]
fn mps_is_asked_to_end_the_work_of_a_job_before_it_is_killed_by_rule() {
    let gpu = Gpu::start("mps");
    let control = Control::new(&gpu);
    // By default a job drains for two seconds and has a grace of ten.
    let rule = "[[faults.rules]]\nfault = \"sticky-error\"\naction = \"restart-job\"\n";
    let daemon = gpu.daemon_beside(&control, "", rule);
    let mut broken = start(&gpu, &daemon, "job");
    let hung = gpu.job("hung", HANG).best_effort(&daemon);
    let hung = hung.env("PILLION_JOB", "job").start_until("launched");
    let pid = hung.pid();
    control.knows(&[broken.pid(), pid]);
    gpu.inject("sticky 700 job");
    broken.write("\n");
    let done = event_when(&gpu, &daemon, "action-done", |_| true);
    assert_eq!(done["text"], "job \"job\": its 2 processes have ended");
    control.expect_terminated(pid, &daemon);
    assert_eq!(hung.finish().status.signal(), Some(9));
    // The daemon reports what it knows about MPS.
    let death = event_when(&gpu, &daemon, "died-in-flight", |event| event["pid"] == pid);
    let severity = match daemon.log().contains("MPS did not end the work of") {
        true => "error",
        false => "warning",
    };
    assert_eq!(death["severity"], severity, "{death}");
}

#[test]
fn a_fault_of_mps_is_read_in_its_log_and_mps_is_restarted_by_its_own_command() {
    let gpu = Gpu::start_logging_mps("mps");
    let (log, told) = (gpu.path("control.log"), gpu.path("told"));
    let control = gpu.path("control");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = -d ]; then echo start; else cat; fi >> {}\n",
        told.display()
    );
    write_script(&control, &script);
    let daemon = daemon(
        &gpu,
        &format!(
            "[mps]\nlogs = [{log:?}]\ncontrol = [{control:?}]\nstart = [{control:?}, \"-d\"]\n\
             [[faults.rules]]\nfault = \"mps-fault\"\naction = \"restart-mps\"\nper_hour = 1\n"
        ),
    );
    let mut process = start(&gpu, &daemon, "job");
    gpu.inject("mps-fault");
    let event = event_when(&gpu, &daemon, "mps-fault", |_| true);
    assert!(
        text(&event).contains("Server encountered a fatal exception"),
        "{event}"
    );
    event_when(&gpu, &daemon, "action-done", |event| {
        event["text"].as_str().unwrap().starts_with("restart-mps: ")
    });
    assert_eq!(
        std::fs::read_to_string(told).unwrap(),
        "quit -t 10\nstart\n"
    );
    // The second line of the same trouble asked for it again.
    event_when(&gpu, &daemon, "action-limited", |_| true);
    assert_eq!(ask(&mut process), "launch 806 wait 806");
    let refused = faulty(&gpu, "new").run();
    assert!(
        refused.errors.contains("807") || refused.output.contains("807"),
        "{refused:#?}"
    );
    process.finish().expect_success();
    let _new = faulty(&gpu, "new").start_until("ready");
}

#[test]
fn what_each_log_of_mps_says_is_told_with_its_file_and_what_is_said_in_the_course_of_things_is_not()
{
    let gpu = Gpu::start_logging_mps("mps");
    let logs = ["control.log", "server.log"].map(|name| gpu.path(name));
    let daemon = daemon(&gpu, &format!("[mps]\nlogs = {logs:?}\n"));
    let [control, server] = logs;
    let mut process = start(&gpu, &daemon, "job");
    let expect_told = |log: &std::path::Path, line: &str| {
        event_when(&gpu, &daemon, "mps-fault", |event| {
            let text = event["text"].as_str().unwrap();
            text.starts_with(&format!("MPS ({}): ", log.display())) && text.ends_with(line)
        });
    };
    // A server that does not start has no clients.
    gpu.inject("mps-fault start");
    expect_told(&control, "Failed to start : invalid argument");
    expect_told(&server, "MPS server failed to start");
    assert_eq!(ask(&mut process), WELL);
    gpu.inject("mps-fault gpu");
    expect_told(
        &server,
        "Fatal GPU error of a client. Waiting for all clients to end",
    );
    assert_eq!(ask(&mut process), "launch 719 wait 719");
    process.finish().expect_success();
    gpu.inject("mps-fault server");
    expect_told(
        &control,
        "Server encountered a fatal exception. Shutting down",
    );
    expect_told(&control, "Server 2 exited with status 1");
    let all = events(&gpu, &daemon, &[]);
    let told = all.iter().filter(|event| event["kind"] == "mps-fault");
    assert_eq!(told.count(), 5, "{all:#?}");
}

#[test]
fn a_program_of_a_rule_that_cannot_be_run_is_said() {
    let gpu = Gpu::start("mps");
    let rules = "[mps]\ncontrol = [\"/bin/true\"]\nstart = [\"/no/such/program\"]\n\
                 [[faults.rules]]\nfault = \"xid\"\ncodes = [13]\naction = \"restart-mps\"\n";
    let daemon = daemon(&gpu, rules);
    gpu.inject("xid 13");
    event_when(&gpu, &daemon, "action-failed", |event| {
        let text = event["text"].as_str().unwrap();
        text.contains("cannot run /no/such/program")
    });
}

#[test]
fn rules_that_are_wrong_are_refused_with_their_place_and_right_ones_are_in_force_after_a_reload() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu, "");
    let check = |rules: &str| {
        let path = gpu.config(daemon.socket(), &format!("[faults]\n{rules}"));
        let mut command = gpu.command(pillion());
        command.args(["config", "check"]).arg(path);
        collect(command)
    };
    for (rules, words) in [
        (
            "stuck = 5",
            "unknown key `stuck` in [faults]; keys are stuck_s",
        ),
        (
            "[[faults.rules]]\nfault = \"xid\"\naction = \"drain\"",
            "action is \"drain\"; must be one of report, hold-be",
        ),
        (
            "[[faults.rules]]\nfault = \"xdi\"\naction = \"report\"",
            "nearest is \"xid\"",
        ),
        (
            "[[faults.rules]]\nfault = \"xid\"",
            "[[faults.rules]] has no action",
        ),
        (
            "mps_start = [\"nvidia-cuda-mps-control\"]",
            "mps_start of [faults] has moved; nearest is start in [mps]",
        ),
        (
            "[[faults.rules]]\nfault = \"xid\"\naction = \"restart-job\"",
            "restart-job applies to faults of a job, but xid is a fault of the GPU",
        ),
        (
            "[[faults.rules]]\nfault = \"xid\"\naction = \"report\"\ngrace_s = 3",
            "grace_s is set, but action report ignores it",
        ),
        (
            "[[faults.rules]]\nfault = \"sticky-error\"\ncodes = [2]\naction = \"report\"",
            "codes is [2]; must be a list of CUDA result codes",
        ),
        (
            "[[faults.rules]]\nfault = \"stuck\"\ncodes = [2]\naction = \"report\"",
            "codes is set, but fault stuck has no codes",
        ),
        (
            "[mps]\nlogs = [\"control.log\"]",
            "logs is [\"control.log\"]; must be a list of at most 8 absolute paths",
        ),
    ] {
        let refused = check(rules);
        assert_eq!(refused.code(), 2, "{rules}: {refused:#?}");
        refused.expect_errors(&["gpu0.toml:", words]);
    }
    check("[[faults.rules]]\nfault = \"xid\"\ncodes = [13]\naction = \"drain-gpu\"")
        .expect_success();
    daemon.signal(Signal::HUP);
    event_when(&gpu, &daemon, "config-reloaded", |_| true);
    gpu.inject("xid 13");
    event_when(&gpu, &daemon, "draining", |_| true);
}

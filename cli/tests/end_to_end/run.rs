//! `pillion run`: the caller sees the job's own end, and `pillion status` shows the job.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;

use crate::common::{Gpu, Program, collect, pillion};

const NOBODY: &str = "/nowhere/pillion.sock";

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of these tests are text")
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let work = Program::Linked("work").path();
    let command = ["--", text(&work), "linked", "10", "7"];
    let ended = gpu.pillion_run("job", daemon.socket(), &command).run();
    assert_eq!(ended.code(), 7, "{ended:#?}");
    assert_eq!(ended.asked("launches"), 23);
    assert_eq!(gpu.counts("job")["launches"], 23);
    // `pillion run` gives the job an id of its own.
    let status = daemon.status();
    let jobs = status["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1, "{status:#}");
    assert_eq!(jobs[0]["class"], "best-effort");
    assert_eq!(jobs[0]["totals"]["launches"], 23, "{status:#}");
}

#[test]
fn a_job_is_called_what_the_flag_says_whatever_the_environment_has() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let work = Program::Linked("work").path();
    // This id looks like one from an outer run, and is the user's choice.
    let (job, work) = ("12-0123456789", text(&work));
    let words = ["--job", job, "--", work, "linked", "5", "0"];
    let run = gpu.pillion_run("label", daemon.socket(), &words);
    run.env("PILLION_JOB", "other").run().expect_success();
    assert_eq!(daemon.total(job, "launches"), 13);
}

#[test]
fn a_job_that_was_given_an_id_keeps_it_and_what_no_daemon_takes_is_refused() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let steady = Program::Linked("steady").path();
    let job = gpu.pillion_run("named", daemon.socket(), &["--", text(&steady)]);
    let mut job = job.env("PILLION_JOB", "held").start();
    job.wait_for("round", 2);
    daemon.wait_for_clients("held", 1);
    job.finish().expect_success();
    let long = "x".repeat(257);
    let job = gpu.pillion_run("long", daemon.socket(), &["--", "true"]);
    let ended = job.env("PILLION_JOB", &long).run();
    assert_eq!(ended.code(), 2, "{ended:#?}");
    ended.expect_errors(&["PILLION_JOB=", "257 bytes"]);
}

#[test]
fn the_processes_of_one_command_are_one_job() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let work = Program::Linked("work").path();
    let script = format!("{0} linked 5 0; {0} linked 5 0", text(&work));
    let arguments = ["--class", "high-priority", "--", "/bin/sh", "-c", &script];
    let ended = gpu.pillion_run("job", daemon.socket(), &arguments).run();
    let ended = ended.expect_success();
    let status = daemon.status();
    let jobs = status["jobs"].as_array().unwrap();
    let launches: u64 = jobs
        .iter()
        .map(|job| job["totals"]["launches"].as_u64().unwrap())
        .sum();
    assert_eq!(launches, ended.asked("launches"), "{status:#}");
    let ids: std::collections::BTreeSet<&str> = jobs
        .iter()
        .map(|job| job["job"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 1, "{status:#}");
    assert!(jobs.iter().all(|job| job["class"] == "high-priority"));
}

#[test]
fn a_signal_to_the_command_is_its_end_and_the_shells_143() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let steady = Program::Linked("steady").path();
    let mut job = gpu
        .pillion_run("job", daemon.socket(), &["--", text(&steady)])
        .start();
    job.wait_for("round", 2);
    // `pillion` has become the job: a signal to the one is a signal to the other.
    job.signal(Signal::TERM);
    assert_eq!(job.finish().status.signal(), Some(15));

    let script = format!(
        "{} run -- /bin/sh -c 'kill -TERM $$'; echo status $?",
        text(pillion())
    );
    let mut shell = gpu.command("/bin/sh");
    shell.args(["-c", &script]).env("PILLION_SOCKET", NOBODY);
    assert!(collect(shell).output.contains("status 143\n"));
}

#[test]
fn a_command_that_cannot_be_started_is_127_or_126() {
    let gpu = Gpu::start("mps");
    let run = |command: &str| {
        let job = gpu.pillion_run("job", Path::new(NOBODY), &["--", command]);
        job.run()
    };
    let missing = run("no-such-command-anywhere");
    assert_eq!(missing.code(), 127);
    missing.expect_errors(&["no-such-command-anywhere"]);
    let file = gpu.path("not-executable");
    std::fs::write(&file, "text").unwrap();
    assert_eq!(run(text(&file)).code(), 126);
    assert_eq!(run("/").code(), 126);
}

#[test]
fn require_daemon_without_one_is_69_and_starts_nothing() {
    let gpu = Gpu::start("mps");
    let arguments = ["--require-daemon", "--", "/bin/echo", "started"];
    let ended = gpu.pillion_run("job", Path::new(NOBODY), &arguments).run();
    assert_eq!((ended.code(), &*ended.output), (69, ""));
    ended.expect_errors(&[NOBODY]);
    let daemon = gpu.daemon("");
    let ended = gpu.pillion_run("job", daemon.socket(), &arguments).run();
    assert_eq!((ended.code(), &*ended.output), (0, "started\n"));
}

#[test]
fn without_a_daemon_the_command_runs() {
    let gpu = Gpu::start("mps");
    let work = Program::Linked("work").path();
    let command = ["--", text(&work), "linked", "10", "0"];
    let ended = gpu.pillion_run("job", Path::new(NOBODY), &command).run();
    ended.expect_success().expect_errors(&["unmanaged", NOBODY]);
}

#[test]
fn a_gpu_is_chosen_by_index_uuid_or_bus_id_and_a_bad_one_is_answered_with_the_list() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let status = daemon.status();
    let uuid = status["gpu"]["uuid"].as_str().unwrap();
    let pci = status["gpu"]["pci"].as_str().unwrap();
    for chosen in ["0", uuid, &uuid[..12], pci] {
        let arguments = [
            "--gpu",
            chosen,
            "--",
            "/bin/sh",
            "-c",
            "echo $CUDA_VISIBLE_DEVICES",
        ];
        let ended = gpu.pillion_run("job", daemon.socket(), &arguments).run();
        let ended = ended.expect_success();
        assert_eq!(ended.output.trim(), uuid, "--gpu {chosen}");
    }
    for bad in ["1", "GPU-nonsense", "0000:ff:1f.0", "fast"] {
        let arguments = ["--gpu", bad, "--", "/bin/echo", "started"];
        let ended = gpu.pillion_run("job", daemon.socket(), &arguments).run();
        assert_eq!((ended.code(), &*ended.output), (2, ""), "{bad}: {ended:#?}");
        ended.expect_errors(&[bad, uuid]);
    }
}

#[test]
fn status_shows_daemon_job_and_client_to_people_and_programs() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("my-training", "steady").best_effort(&daemon);
    let job = job.start_until("round");
    let table = daemon.table();
    for word in ["V100", "mps", "my-training", "best-effort", "steady-linked"] {
        assert!(table.contains(word), "no {word} in {table}");
    }
    let explained = daemon.explained_of("my-training");
    let pid = job.pid().to_string();
    for word in ["policy pillion", "steady-linked", "enforced: ", &pid] {
        assert!(explained.contains(word), "no {word} in {explained}");
    }
    let json = gpu.tell(&daemon, &["status", "--json"]).expect_success();
    let json: serde_json::Value = serde_json::from_str(&json.output).unwrap();
    assert_eq!(json["schema_version"], 1);
    let client = &json["daemons"][0]["jobs"][0]["clients"][0];
    assert_eq!(client["pid"], job.pid());
    assert_eq!(client["attached"], true);
    job.finish().expect_success();
}

#[test]
fn status_without_the_daemon_that_was_named_is_69() {
    let gpu = Gpu::start("mps");
    let mut command = gpu.command(pillion());
    command.arg("status").env("PILLION_SOCKET", NOBODY);
    let ended = collect(command);
    assert_eq!(ended.code(), 69);
    ended.expect_errors(&[NOBODY]);
}

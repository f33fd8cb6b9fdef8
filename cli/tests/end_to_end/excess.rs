//! Memory beyond a job's account, and rules that no job can lift: detection, reports and actions.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Signal, getuid};
use serde_json::Value;

use crate::common::{Control, Daemon, Gpu, Process, Program, library, until};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn client(gpu: &Gpu, daemon: &Daemon) -> Process {
    let job = gpu.job("job", "quota load 0 300 0").best_effort(daemon);
    let mut process = job.env("PILLION_MEMORY", "1GiB").start_until("ready");
    process.write("\n");
    assert_eq!(process.next_line(), "granted");
    process
}

/// A process of the job with the library switched off.
fn stray(gpu: &Gpu, daemon: &Daemon, mib: u64) -> Process {
    let job = gpu.job("stray", "load").args(&[&mib.to_string(), "rest"]);
    let job = job.best_effort(daemon).env("PILLION_JOB", "job");
    job.env("PILLION_DISABLE", "1").start_until("ready")
}

fn excess(job: &Value) -> Vec<(u64, u64, bool)> {
    let list = job["memory"]["excess"].as_array().expect("a list");
    let one = |excess: &Value| {
        Some((
            excess["pid"].as_u64()?,
            excess["bytes"].as_u64()?,
            excess["is_client"].as_bool()?,
        ))
    };
    list.iter()
        .map(|excess| one(excess).expect("all three"))
        .collect()
}

#[test]
fn memory_that_a_process_of_the_job_takes_past_us_is_said_and_no_more() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let client = client(&gpu, &daemon);
    let other = gpu.job("other", "load 64 rest").start_until("ready");
    let stray = stray(&gpu, &daemon, 2048);
    let expected = vec![(u64::from(stray.pid()), 2 * GIB, false)];
    daemon.job_when("job", "its excess", |job| excess(job) == expected);
    let shown = daemon.explained();
    let line = format!(
        "pid {} holds 2.00 GiB of the GPU's memory and is not a client",
        stray.pid()
    );
    assert!(shown.contains(&line), "{shown}");
    // The process is left alone, although the job exceeds its quota with it.
    stray.finish().expect_success();
    daemon.job_when("job", "no excess", |job| excess(job).is_empty());
    client.finish().expect_success();
    other.finish().expect_success();
    daemon.signal(Signal::TERM);
    let ended = daemon.finish();
    assert_eq!(
        ended.errors.matches("not a client, but holds").count(),
        1,
        "{ended:#?}"
    );
}

#[test]
fn who_passes_the_jobs_quota_is_asked_to_end_where_the_rule_is_so() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "[memory]\nexcess = \"evict\"");
    let mut client = client(&gpu, &daemon);
    // Within the quota, but still without an account.
    let mut small = stray(&gpu, &daemon, 64);
    let small_pid = u64::from(small.pid());
    daemon.job_when("job", "its excess", |job| {
        excess(job) == [(small_pid, 64 * MIB, false)]
    });
    let mut large = stray(&gpu, &daemon, 1024);
    until("the end of the process with the most", || {
        !large.is_running()
    });
    daemon.job_when("job", "one excess", |job| excess(job).len() == 1);
    assert!(small.is_running() && client.is_running());
    daemon.signal(Signal::TERM);
    daemon
        .finish()
        .expect_errors(&["asked to end", &large.pid().to_string()]);
    client.write("\n");
    assert_eq!(client.next_line(), "granted");
}

#[test]
fn who_is_asked_to_end_and_does_not_is_killed_once_mps_was_asked() {
    let gpu = Gpu::start("mps");
    let control = Control::new(&gpu);
    let daemon = gpu.daemon_beside(&control, "[memory]\nexcess = \"evict\"", "");
    let client = client(&gpu, &daemon);
    // Ignored signals stay ignored when another program is executed (execve(2)).
    let program = Program::Linked("load").path();
    let script = format!("trap '' TERM; exec '{}' 1024 rest", program.display());
    let deaf = gpu.job_of("deaf", std::path::Path::new("/bin/sh"));
    let deaf = deaf.args(&["-c", &script]).best_effort(&daemon);
    let deaf = deaf.env("PILLION_JOB", "job").env("PILLION_DISABLE", "1");
    let mut deaf = deaf.start_until("ready");
    deaf.signal(Signal::TERM);
    assert!(deaf.is_running(), "it does not hear it");
    let pid = deaf.pid();
    control.knows(&[pid]);
    until("its end", || !deaf.is_running());
    let ended = deaf.finish();
    assert_eq!(
        ended.status.signal(),
        Some(Signal::KILL.as_raw()),
        "{ended:#?}"
    );
    control.expect_terminated(pid, &daemon);
    daemon.job_when("job", "no excess", |job| excess(job).is_empty());
    client.finish().expect_success();
    daemon.signal(Signal::TERM);
    daemon.finish().expect_errors(&[
        "asked to end",
        "will be killed: it did not end when asked",
        &pid.to_string(),
    ]);
}

/// A client's own library could let it end when nothing is in flight; here something always is.
#[test]
fn a_client_that_is_asked_to_end_and_does_not_is_killed_once_mps_was_asked() {
    let gpu = Gpu::start("mps");
    let control = Control::new(&gpu);
    let sections = "[memory]\nexcess = \"evict\"\ncontext = \"0\"";
    let daemon = gpu.daemon_beside(&control, sections, "");
    let job = gpu.job("job", "past 2048").best_effort(&daemon);
    let mut past = job.env("PILLION_MEMORY", "1GiB").start_until("ready");
    let pid = past.pid();
    control.knows(&[pid]);
    let is_past = |job: &Value| match excess(job)[..] {
        [(of, bytes, is_client)] => is_client && of == u64::from(pid) && bytes >= 2 * GIB,
        _ => false,
    };
    daemon.job_when("job", "its excess", is_past);
    until("its end", || !past.is_running());
    assert_eq!(past.finish().status.signal(), Some(9));
    control.expect_terminated(pid, &daemon);
    daemon.wait_for_clients("job", 0);
    daemon.signal(Signal::TERM);
    daemon.finish().expect_errors(&[
        "asked to end",
        "will be drained and killed: it did not end when asked",
        &pid.to_string(),
    ]);
}

/// Whether the environment is there or not: a login by ssh, sudo or cron has none.
// census: D21, J5
#[test]
fn a_rule_holds_for_its_user_with_a_jobs_environment_and_without() {
    let gpu = Gpu::start("mps");
    let own = getuid().as_raw();
    let other = own + 1;
    let daemon = gpu.daemon(&format!(
        "[[memory.rules]]\nuser = \"{own}\"\nquota = \"1GiB\"\n\
         [[memory.rules]]\nuser = \"{other}\"\nquota = \"512MiB\"\n\
         [[memory.rules]]\nuser = \"{own}\"\ncgroup = \"/no/such/group\"\nquota = \"512MiB\"\n"
    ));
    let fill = |label: &str| gpu.job(label, "quota").args(&["fill", "0", "0", "0"]);
    for (label, asked, bytes, is_said) in [
        ("unlimited", "unlimited", GIB, true),
        ("more", "2GiB", GIB, true),
        ("less", "512MiB", GIB / 2, false),
    ] {
        let job = fill(label)
            .best_effort(&daemon)
            .env("PILLION_MEMORY", asked);
        let ended = job.run().expect_success();
        assert_eq!(ended.asked("early_total"), bytes, "{label}: {ended:#?}");
        assert_eq!(ended.asked("total"), bytes, "{label}: {ended:#?}");
        assert_eq!(
            ended.asked("blocks"),
            bytes / (64 * MIB),
            "{label}: {ended:#?}"
        );
        assert_eq!(
            ended.errors.contains("the daemon allows"),
            is_said,
            "{ended:#?}"
        );
        assert_eq!(daemon.job(label)["memory"]["most_bytes"], GIB);
    }
    let hp = fill("hp").high_priority(&daemon).run().expect_success();
    assert_eq!(hp.asked("total"), GIB);
    let bare = fill("bare").env("LD_PRELOAD", library());
    let bare = bare.env("PILLION_SOCKET", daemon.socket()).run();
    assert_eq!(bare.expect_success().asked("total"), GIB);
}

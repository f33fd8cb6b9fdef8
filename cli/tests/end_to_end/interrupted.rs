//! `pillion stop` that is itself asked to end.

use std::fs;

use protocol::hello::JobClass;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Control, Daemon, Gpu, HANG, Process, until, write_script};

fn stopping(gpu: &Gpu, daemon: &Daemon, job: &str, script: &str) -> Process {
    let control = Control::new(gpu);
    write_script(&control.program(), script);
    let command = gpu.stop(&control, daemon, &[job, "--grace", "0s", "--json"]);
    Process::start("stop", command)
}

/// The script runs in a process group of its own, which a terminal's Ctrl-C does not reach.
#[test]
fn who_ends_a_stop_that_waits_for_mps_leaves_no_program_that_asks_and_nobody_is_killed() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("hang", HANG).high_priority(&daemon);
    let job = job.env("PILLION_DRAIN_MS", "60000").start_until("launched");
    let asking = gpu.path("asking");
    let script = "#!/bin/sh\ntrap '' TERM INT HUP\nsleep 1000 &\necho $$ $! >{0}.new\nmv {0}.new {0}\nwait\n";
    let stop = stopping(
        &gpu,
        &daemon,
        "hang",
        &script.replace("{0}", &asking.display().to_string()),
    );
    let ids = until("MPS to be asked", || fs::read_to_string(&asking).ok());
    stop.signal(Signal::TERM);
    let ended = stop.finish_untold();
    // Where a busy machine delays the signal past the stop's time, the exit code shows that.
    if ended.status.code().is_some() {
        assert!(ended.output.contains("in time"), "{ended:#?}");
        testing::ignore("the machine is too busy for it: MPS answered before the signal");
    }
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&ended.status),
        Some(15)
    );
    assert_eq!(ended.output, "");
    for id in ids.split_whitespace() {
        // An unreaped process is dead, too.
        until("the end of what asks", || {
            let stat = fs::read_to_string(format!("/proc/{id}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        });
    }
    job.kill();
}

/// By then the job must launch nothing more, and processes that join must end.
#[test]
fn a_job_that_is_started_anew_after_its_stop_was_killed_is_not_stopped_by_that() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("anew", HANG).high_priority(&daemon);
    let job = job.env("PILLION_DRAIN_MS", "60000").start_until("launched");
    let asking = gpu.path("asking");
    let script = "#!/bin/sh\necho $$ >{0}.new\nmv {0}.new {0}\nexec sleep 60\n";
    let stop = stopping(
        &gpu,
        &daemon,
        "anew",
        &script.replace("{0}", &asking.display().to_string()),
    );
    let asks = until("MPS to be asked", || fs::read_to_string(&asking).ok());
    stop.signal(Signal::KILL);
    let ended = stop.finish_untold();
    if ended.status.code().is_some() {
        println!("not shown: {}", ended.output);
    }
    // Nobody else ends the script.
    let pid = Pid::from_raw(asks.trim().parse().unwrap()).unwrap();
    let _ = kill_process(pid, Signal::KILL);
    job.kill();
    daemon.wait_for_clients("anew", 0);
    let job = gpu.job("anew", "asked_to_end default idle");
    let job = job.env("PILLION_LOG", "error");
    let mut anew = job.under(daemon.socket(), JobClass::HighPriority).start();
    anew.wait_for("ready", 1);
    anew.finish().expect_success();
}

//! `pillion stop` and processes that join a job while it is being stopped, or that start others.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use protocol::hello::{Ending, JobClass, Reply, Request, Stop, ask_once};
use serde_json::Value;

use crate::common::{
    Control, Daemon, Gpu, HANG, Job, PATIENCE_NS, Process, Program, collect, pillion, tools, until,
};

const FOR_EVER_NS: &str = "3600000000000";
const LONG_NS: u64 = 3_600_000_000_000;
/// As long as the tests' own timeout.
const PATIENT_MS: &str = "60000";

fn stop(control: &Control, gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Value {
    let mut command = gpu.stop(control, daemon, arguments);
    command.arg("--json");
    let stopped = collect(command).expect_success();
    serde_json::from_str(&stopped.output).unwrap()
}

/// The first request of `pillion stop` to a daemon, if that is to last; and its last one.
fn see_to(daemon: &Daemon, job: &str, within_ns: u64) -> Reply {
    ask(
        daemon,
        &Request::Ending(Ending {
            job: job.to_owned(),
            // As the status reports it: the user of a job without clients is unknown otherwise.
            user: Some(rustix::process::getuid().as_raw()),
            within_ns,
            is_over: within_ns == 0,
        }),
    )
}

fn ask(daemon: &Daemon, request: &Request) -> Reply {
    ask_once(daemon.socket(), request, Duration::from_nanos(PATIENCE_NS)).unwrap()
}

fn hanging(gpu: &Gpu, label: &str) -> Job {
    let job = gpu.job(label, "hang");
    job.args(&[FOR_EVER_NS, "1"])
        .env("PILLION_DRAIN_MS", PATIENT_MS)
}

/// A program of a job that reports its start, and uses the GPU on request.
fn started(gpu: &Gpu, daemon: &Daemon, label: &str) -> Process {
    let job = gpu.job_of(label, "/bin/sh".as_ref());
    let job = job.args(&["-c", "echo started; read -r go; exec \"$0\" default idle"]);
    let job = job.arg(Program::Linked("asked_to_end").path());
    let job = job.under(daemon.socket(), JobClass::BestEffort);
    job.env("PILLION_LOG", "error").start_until("started")
}

/// Returns once start times differ from those before.
fn let_time_go() {
    // In hundredths of a second, the kernel's clock ticks; the idle time follows.
    let now = || {
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        uptime.split(' ').next().map(str::to_owned)
    };
    let before = now();
    until("the next tick", || now() != before);
}

fn expect_killed(mut process: Process) {
    until("the end of who has come", || !process.is_running());
    assert_eq!(process.finish_untold().status.signal(), Some(9));
}

#[test]
fn who_comes_to_a_job_whose_processes_are_to_launch_nothing_more_ends_though_nobody_sees_it() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = hanging(&gpu, "coming").best_effort(&daemon).start();
    job.wait_for("launched", 1);
    assert!(matches!(see_to(&daemon, "coming", LONG_NS), Reply::Done));
    let request = Request::Stop(Stop {
        job: "coming".to_owned(),
        user: None,
    });
    assert!(matches!(ask(&daemon, &request), Reply::Done));
    let mut comer = started(&gpu, &daemon, "coming");
    comer.write("go\n");
    expect_killed(comer);
    // The stop is given up, and the job goes on.
    let given_up = Ending {
        job: "coming".to_owned(),
        user: Some(rustix::process::getuid().as_raw()),
        within_ns: 0,
        is_over: false,
    };
    ask(&daemon, &Request::Ending(given_up));
    let mut comer = started(&gpu, &daemon, "coming");
    comer.write("go\n");
    comer.wait_for("ready", 1);
    comer.finish().expect_success();
    job.kill();
}

#[test]
fn what_was_started_while_its_job_was_stopped_ends_when_it_comes_and_what_was_started_after_goes_on()
 {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = gpu.job("over", "steady").best_effort(&daemon).start();
    job.wait_for("round", 1);
    let before = started(&gpu, &daemon, "over");
    let_time_go();
    assert!(matches!(see_to(&daemon, "over", LONG_NS), Reply::Done));
    let mut meanwhile = started(&gpu, &daemon, "over");
    let_time_go();
    job.finish().expect_success();
    daemon.wait_for_clients("over", 0);
    assert!(matches!(see_to(&daemon, "over", 0), Reply::Refused { .. }));
    let after = started(&gpu, &daemon, "over");
    meanwhile.write("go\n");
    expect_killed(meanwhile);
    for mut other in [before, after] {
        other.write("go\n");
        other.wait_for("ready", 1);
        other.finish().expect_success();
    }
}

/// All by default. The program would be gone two seconds after its handler has run, long before its
/// grace is over.
#[test]
fn mps_is_asked_to_end_what_hangs_of_a_program_that_exits_in_its_own_way() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let control = Control::new(&gpu);
    let job = gpu.job("hang", HANG).args(&["exits"]);
    let job = job.high_priority(&daemon).start_until("launched");
    let pid = job.pid();
    control.knows(&[pid]);
    let said = stop(&control, &gpu, &daemon, &["hang"]);
    assert_eq!(said["processes"][0]["mps"], "terminated", "{said:#}");
    assert_eq!(said["processes"][0]["ended"], "killed", "{said:#}");
    assert!(control.has_terminated(pid), "{:?}", control.asked());
    assert_eq!(job.finish().status.signal(), Some(9));
}

/// As under an agent or a server of workers: ended processes are restarted.
#[test]
fn what_starts_a_stopped_jobs_processes_anew_is_stopped_with_them() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job_of("again", "/bin/sh".as_ref());
    let job = job.args(&["-c", "while :; do \"$0\" default idle; done"]);
    let job = job.arg(Program::Linked("asked_to_end").path());
    let job = job.under(daemon.socket(), JobClass::BestEffort);
    let job = job.env("PILLION_LOG", "error").start_until("ready");
    daemon.wait_for_clients("again", 1);
    let said = stop(&Control::new(&gpu), &gpu, &daemon, &["again"]);
    let processes = said["processes"].as_array().unwrap();
    // Between the two signals there is time for a third process, which is asked as well.
    assert!(processes.len() >= 2, "{said:#}");
    let is_asked = |process: &Value| process["ended"] == "on SIGTERM";
    assert!(processes.iter().all(is_asked), "{said:#}");
    let supervisor = processes.iter().find(|process| process["client"] == false);
    assert_eq!(supervisor.unwrap()["pid"], job.pid(), "{said:#}");
    daemon.wait_for_clients("again", 0);
    assert_eq!(job.finish_untold().status.signal(), Some(15));
}

/// A shell dies of SIGTERM at once, and the kernel then kills the children that have asked for it.
#[test]
fn what_the_kernel_kills_with_its_parent_has_drained_before_that_is_ended() {
    tools::that_runs(&["setpriv", "--pdeathsig", "KILL"]);
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job_of("parent", "/bin/sh".as_ref());
    let job = job.args(&[
        "-c",
        // A shell's background processes have an empty standard input, whose end ends the program.
        "exec 3<&0; setpriv --pdeathsig KILL \"$0\" default launching <&3 & wait; exec sleep 1000",
    ]);
    let job = job.arg(Program::Linked("asked_to_end").path());
    let job = job.env("LASTING_NS", "1000000000");
    let job = job.env("PILLION_DRAIN_MS", PATIENT_MS);
    let job = job.under(daemon.socket(), JobClass::HighPriority);
    let job = job.env("PILLION_LOG", "error").start_until("ready");
    daemon.wait_for_clients("parent", 1);
    let said = stop(&Control::new(&gpu), &gpu, &daemon, &["parent"]);
    let processes = said["processes"].as_array().unwrap();
    let how: Vec<_> = processes.iter().map(|process| &process["ended"]).collect();
    assert_eq!(how, ["on SIGTERM", "on SIGTERM"], "{said:#}");
    assert_eq!(job.finish_untold().status.signal(), Some(15));
    daemon.wait_for_clients("parent", 0);
    let counts = gpu.counts("parent");
    assert_eq!(
        counts["launches_completed"], counts["launches"],
        "{counts:#}"
    );
}

/// Process ids belong to a PID namespace: those from the daemon are others' in another one.
#[test]
fn who_stops_a_job_in_another_pid_namespace_than_the_daemons_is_told_so_and_hits_nobody() {
    let first = ["unshare", "--pid", "--fork", "--mount-proc"];
    let unshare = tools::that_runs(&first);
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("train", "asked_to_end default idle");
    let job = job.env("PILLION_LOG", "error");
    let mut process = job.under(daemon.socket(), JobClass::BestEffort).start();
    process.wait_for("ready", 1);
    let mut stop = gpu.command(&unshare);
    stop.args(&first[1..]).arg(pillion());
    stop.args(["stop", "train"])
        .env("PILLION_SOCKET", daemon.socket());
    let stopped = collect(stop);
    assert_eq!(stopped.code(), 1, "{stopped:#?}");
    assert!(
        stopped.errors.contains("another PID namespace"),
        "{stopped:#?}"
    );
    process.finish().expect_success();
}

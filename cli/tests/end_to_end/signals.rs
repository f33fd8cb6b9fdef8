//! Jobs that are asked to end: they end as without us, and leave no work behind on the device.
//! `matrix` combines programs' reactions with the places where the signal arrives; here are special
//! cases.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use protocol::hello::{JobClass, Reply, Request, Stop, ask_once};
use rustix::process::Signal;

use crate::common::{
    Control, Daemon, Ended, Gpu, HANG, Job, PATIENCE_NS, Process, Program, collect, until,
};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];
const FOR_EVER_NS: &str = "3600000000000";
/// Less than [`PATIENT_MS`], so that a process that has waited for all of it is seen to end.
const LONG_MS: &str = "20000";
/// As long as the tests' own timeout.
const PATIENT_MS: &str = "60000";

/// A job that drains for as long as a busy machine takes, and does not report unknown kernels.
fn asked_to_end(gpu: &Gpu, label: &str, how: &str, place: &str) -> Job {
    let job = gpu.job(label, "asked_to_end").args(&[how, place]);
    let job = job.env("PILLION_LOG", "error");
    job.env("PILLION_DRAIN_MS", PATIENT_MS)
}

fn signalled(job: Job, signal: Signal) -> Ended {
    let process = job.start_until("ready");
    process.signal(signal);
    process.finish()
}

/// Runs it alone and in both classes: same output and end, and complete launches.
fn expect_same(how: &str, place: &str) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for signal in SIGNALS {
        let alone = signalled(asked_to_end(&gpu, "alone", how, place), signal);
        for class in CLASSES {
            let job = asked_to_end(&gpu, class.name(), how, place);
            let ended = signalled(job.under(daemon.socket(), class), signal);
            let case = format!("{how}, {place}, {signal:?}, {class:?}");
            assert_eq!(ended.output, alone.output, "{case}: {ended:#?}");
            assert_eq!(ended.status, alone.status, "{case}: {ended:#?}");
            assert_eq!(ended.errors, alone.errors, "{case}");
            expect_drained(&gpu, &daemon, class.name());
        }
    }
}

fn expect_drained(gpu: &Gpu, daemon: &Daemon, label: &str) {
    daemon.wait_for_clients(label, 0);
    let counts = gpu.counts(label);
    assert!(counts["launches"].as_u64() > Some(0), "{counts:#}");
    assert_eq!(counts["launches_completed"], counts["launches"], "{label}");
}

// census: G2
#[test]
fn every_function_that_sets_a_disposition_finds_the_applications_own() {
    expect_same("late", "idle");
}

#[test]
fn without_us_work_is_left_behind_which_the_count_would_show() {
    let gpu = Gpu::start("mps");
    // The job's work would outlast any delay of the signal.
    let mut job = gpu.job("alone", "hang 3600000000000 2").start();
    job.wait_for("launched", 1);
    job.signal(Signal::TERM);
    assert_eq!(job.finish_untold().status.signal(), Some(15));
    let counts = gpu.counts("alone");
    assert_eq!(counts["launches"], 2, "{counts:#}");
    assert_ne!(counts["launches_completed"], counts["launches"]);
}

/// A thread that is stopped where it keeps the helpers out of the driver lets them in.
#[test]
fn a_process_that_makes_and_ends_contexts_is_drained_as_well() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES.into_iter().cycle().take(8) {
        let job = asked_to_end(&gpu, class.name(), "default", "contexts");
        let job = job.under(daemon.socket(), class).env("PILLION_LOG", "info");
        let ended = signalled(job, Signal::TERM);
        assert_eq!(ended.status.signal(), Some(15));
        assert!(
            ended.errors.contains("with nothing in flight"),
            "{ended:#?}"
        );
    }
}

/// A thread inside the driver ends its call first: it may hold what the driver needs to wait for
/// work in flight. This concerns calls that the library does not hook and that can last.
#[test]
fn a_thread_that_loads_a_module_is_not_stopped_before_it_has() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES {
        let job = gpu.job(class.name(), "loading");
        let job = job.under(daemon.socket(), class);
        let mut job = job.env("PILLION_DRAIN_MS", PATIENT_MS).start_until("ready");
        // The thread is in the call once it has read something, and returns at the end of input.
        job.write("softgpu-");
        until("it to read", || job.unread_bytes() == 0);
        job.signal(Signal::TERM);
        until("the signal to be taken", || !job.has_pending_signals());
        job.write("module 1\n");
        until("it to read on", || job.unread_bytes() == 0);
        job.signal(Signal::KILL);
        let ended = job.finish();
        assert_eq!(ended.status.signal(), Some(9));
        assert_eq!(ended.output, "ready\n", "it stops behind its call");
    }
}

/// The thread is stopped at an arbitrary point: a helper needs no lock of the process to wait for
/// the device. A helper that learns kernels' durations needs `malloc` before.
#[test]
fn a_thread_that_is_stopped_with_a_lock_of_the_process_keeps_no_helper_waiting() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let library = Program::Library("never_loaded").path();
    for (lock, class) in [
        ("linker", JobClass::HighPriority),
        ("linker", JobClass::BestEffort),
        ("malloc", JobClass::HighPriority),
    ] {
        let job = gpu.job(class.name(), Program::Unlinked("locking"));
        let job = job.arg(lock).arg(&library).under(daemon.socket(), class);
        let job = job.env("MALLOC_ARENA_MAX", "1").env("PILLION_LOG", "info");
        let ended = signalled(job.env("PILLION_DRAIN_MS", LONG_MS), Signal::TERM);
        assert_eq!(ended.status.signal(), Some(15));
        assert!(
            ended.errors.contains("with nothing in flight"),
            "{lock}, {class:?}: {ended:#?}"
        );
    }
}

/// From its own watchdog, for instance: `kill` does not return to the sender.
#[test]
fn a_process_that_sends_it_to_itself_goes_no_further() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", "end_itself").run();
    assert_eq!(alone.status.signal(), Some(15));
    for class in CLASSES {
        let job = gpu.job(class.name(), "end_itself");
        let ended = job.under(daemon.socket(), class).run();
        assert_eq!(
            (ended.status, ended.output),
            (alone.status, alone.output.clone())
        );
        expect_drained(&gpu, &daemon, class.name());
    }
}

/// Servers and launchers do this: a handler of their own cleans up; then they restore the default
/// and send the signal again, to themselves or to their group, or they return from `main`.
#[test]
fn a_process_that_cleans_up_itself_and_ends_leaves_no_work_behind() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for how in ["kill", "killpg", "raise", "return"] {
        let job = |label: &str| {
            // A group of its own, as each job of a shell has.
            let job = gpu.job_of(label, "/usr/bin/setsid".as_ref());
            let job = job.arg(Program::Linked("clean_up").path()).arg(how);
            job.env("PILLION_LOG", "error")
                .env("PILLION_DRAIN_MS", PATIENT_MS)
        };
        let alone = signalled(job("alone"), Signal::TERM);
        for class in CLASSES {
            let label = format!("{how}, {}", class.name());
            let ended = signalled(job(&label).under(daemon.socket(), class), Signal::TERM);
            let found = (ended.status, &ended.output, &ended.errors);
            assert_eq!(
                found,
                (alone.status, &alone.output, &alone.errors),
                "{label}"
            );
            expect_drained(&gpu, &daemon, &label);
        }
    }
}

/// The sending thread waits for the GPU below its handler, so it cannot be stopped, and dies.
#[test]
fn a_handler_inside_a_call_of_cuda_does_not_outlive_the_signal_that_it_sends() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for how in ["kill-inside", "raise-inside"] {
        let job = |label: &str| {
            let job = gpu.job(label, "clean_up").args(&[how]);
            job.env("PILLION_LOG", "error")
        };
        let alone = signalled(job("alone"), Signal::TERM);
        assert_eq!(alone.status.signal(), Some(15), "{how}: {alone:#?}");
        for class in CLASSES {
            let ended = signalled(
                job(class.name()).under(daemon.socket(), class),
                Signal::TERM,
            );
            let found = (ended.status, &ended.output, &ended.errors);
            assert_eq!(found, (alone.status, &alone.output, &alone.errors), "{how}");
        }
    }
}

/// The job reports the remaining work.
#[test]
fn a_process_that_exits_with_work_that_never_ends_is_not_kept() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES {
        let job = gpu.job(class.name(), "clean_up return 3600000000000");
        let job = job.under(daemon.socket(), class);
        let ended = signalled(job.env("PILLION_DRAIN_MS", "50"), Signal::TERM);
        assert_eq!(ended.status.code(), Some(7), "{ended:#?}");
        assert!(
            ended.errors.contains("exiting with work in flight"),
            "{ended:#?}"
        );
    }
}

/// Other threads have loaded libraries with thread locals since its own last met one: the handler
/// finds its thread's variable without `malloc`, which the thread may be inside of.
#[test]
fn no_memory_is_allocated_in_the_handler_of_a_thread_that_has_not_met_new_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("local.c");
    fs::write(
        &source,
        "__thread int local; int *at(void) { return &local; }\n",
    )
    .unwrap();
    let library = folder.path().join("local.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    collect(cc).expect_success();
    let copies: Vec<_> = (0..40)
        .map(|number| {
            let copy = folder.path().join(format!("local{number}.so"));
            fs::copy(&library, &copy).unwrap();
            copy
        })
        .collect();
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES {
        let job = gpu.job(class.name(), "many_libraries");
        let ended = copies
            .iter()
            .fold(job, Job::arg)
            .under(daemon.socket(), class)
            .run();
        assert_eq!(ended.status.signal(), Some(15), "{ended:#?}");
    }
}

/// The launcher forwards the terminal's signal to the whole group.
#[test]
fn two_signals_within_milliseconds_are_one_request() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES {
        let job = asked_to_end(&gpu, class.name(), "default", "synchronising");
        let process = job.under(daemon.socket(), class).start_until("ready");
        // The process receives both when it continues, however late the second was sent.
        process.stop();
        process.signal(Signal::TERM);
        process.signal(Signal::INT);
        process.signal(Signal::CONT);
        // Whichever of two pending ones the kernel delivers first.
        let status = process.finish().status;
        assert!(matches!(status.signal(), Some(2 | 15)), "{status:?}");
        expect_drained(&gpu, &daemon, class.name());
    }
}

/// Whether SIGTERM is in that set of the process's, a field of its kernel status.
fn has_sigterm(process: &Process, field: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix(field));
    u64::from_str_radix(set.unwrap().trim(), 16).unwrap() & (1 << 14) != 0
}

fn hanging(gpu: &Gpu, daemon: &Daemon, drain_ms: &str) -> Process {
    launched(gpu.job("hang", "hang"), daemon, drain_ms)
}

/// [`hanging`] with SIGINT set by env(1) of GNU coreutils 8.31: a non-interactive shell starts
/// background processes, tests among them, with SIGINT ignored.
fn hanging_with(gpu: &Gpu, daemon: &Daemon, sigint: &str, drain_ms: &str) -> Process {
    let job = gpu.job_of("hang", "/usr/bin/env".as_ref()).arg(sigint);
    launched(job.arg(Program::Linked("hang").path()), daemon, drain_ms)
}

fn launched(job: Job, daemon: &Daemon, drain_ms: &str) -> Process {
    let job = job.args(&[FOR_EVER_NS, "1"]).high_priority(daemon);
    let mut process = job.env("PILLION_DRAIN_MS", drain_ms).start();
    process.wait_for("launched", 1);
    process
}

// census: G7
#[test]
fn work_that_never_ends_is_not_waited_for_for_ever() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = hanging(&gpu, &daemon, "50");
    assert!(has_sigterm(&job, "SigCgt:"));
    job.signal(Signal::TERM);
    until("the end of the job", || !job.is_running());
    let ended = job.finish();
    assert_eq!(ended.status.signal(), Some(15), "{ended:#?}");
    daemon.wait_for_clients("hang", 0);
}

#[test]
fn who_asks_twice_does_not_want_to_wait() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = hanging(&gpu, &daemon, PATIENT_MS);
    // Two pending ones are one to the kernel: repeat until it has ended.
    until("the end of the job", || {
        let is_running = job.is_running();
        if is_running {
            job.signal(Signal::TERM);
        }
        !is_running
    });
    assert_eq!(job.finish().status.signal(), Some(15));
}

/// The one thread is stopped on a stack without room for three of the kernel's frames.
#[test]
fn who_is_asked_many_times_within_milliseconds_dies_of_the_signal_and_not_of_its_stack() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (sigint, ended_by) in [
        ("--ignore-signal=INT", [15, 15]),
        ("--default-signal=INT", [2, 15]),
    ] {
        for _ in 0..3 {
            let mut job = hanging_with(&gpu, &daemon, sigint, PATIENT_MS);
            until("the end of the job", || {
                for signal in SIGNALS {
                    job.signal(signal);
                }
                !job.is_running()
            });
            let status = job.finish().status;
            let signal = status.signal().unwrap_or_default();
            assert!(ended_by.contains(&signal), "{sigint}: {status:?}");
        }
    }
}

/// A thread stopped earlier takes no signal for the handler.
#[test]
fn a_handler_that_is_set_while_the_process_is_dying_gets_the_next_signal() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("hang", HANG).args(&["late"]);
    let job = job.under(daemon.socket(), JobClass::BestEffort);
    let mut job = job.env("PILLION_DRAIN_MS", PATIENT_MS).start();
    job.wait_for("launched", 1);
    job.signal(Signal::TERM);
    until("the first to be taken", || !has_sigterm(&job, "ShdPnd:"));
    job.tell_to_end();
    job.wait_for("set", 1);
    job.signal(Signal::TERM);
    let ended = job.finish();
    assert_eq!(ended.status.code(), Some(7), "{ended:#?}");
    assert!(
        ended.output.contains("handled, sent by the parent"),
        "{ended:#?}"
    );
}

#[test]
fn a_job_that_is_not_to_be_waited_for_dies_at_once() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = hanging(&gpu, &daemon, "0");
    assert!(!has_sigterm(&job, "SigCgt:"));
    job.signal(Signal::TERM);
    until("the end of the job", || !job.is_running());
    assert_eq!(job.finish().status.signal(), Some(15));
}

/// Started, signalled, awaited, and judged by its status; and as a shell reports it.
#[test]
fn a_parent_and_a_shell_see_the_status_that_they_would_see() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::Linked("asked_to_end").path();
    let program = program.display();
    for (signal, expected) in [("TERM", "143 143 0"), ("INT", "130 130 0")] {
        // The shell starts background processes with SIGINT ignored, so a parent between them
        // restores the default; and with no standard input, whose end would end the program.
        let text = format!(
            "run() {{ env --default-signal=INT {program} default launching <&3 > out.$1 & eval pid$1=$!; \
               until grep -q ready out.$1; do sleep 0.01; done; }}; \
             run 1; run 2; kill -{signal} $pid1 $pid2; \
             wait $pid1; first=$?; wait $pid2; second=$?; \
             echo | {program} default idle > /dev/null; echo $first $second $?"
        );
        let folder = tempfile::tempdir().unwrap();
        for class in CLASSES {
            let shell = gpu.job_of(class.name(), "/bin/sh".as_ref());
            let cd = format!(
                "cd {} && rm -f held out.* && mkfifo held && exec 3<>held && {text}",
                folder.path().display()
            );
            let ended = shell.args(&["-c", &cd]).under(daemon.socket(), class).run();
            assert_eq!(ended.output.trim(), expected, "{class:?}: {ended:#?}");
            expect_drained(&gpu, &daemon, class.name());
        }
    }
}

/// `pillion stop` with these arguments, without an installed program of MPS's.
fn stop(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Ended {
    stop_with(&Control::new(gpu), gpu, daemon, arguments)
}

fn stop_with(control: &Control, gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Ended {
    collect(gpu.stop(control, daemon, arguments))
}

fn mps(stopped: &Ended) -> serde_json::Value {
    let said: serde_json::Value = serde_json::from_str(&stopped.output).unwrap();
    said["processes"][0]["mps"].clone()
}

fn how(stopped: &Ended) -> Vec<String> {
    let said: serde_json::Value = serde_json::from_str(&stopped.output).unwrap();
    let processes = said["processes"].as_array().unwrap().iter();
    processes
        .map(|process| process["ended"].as_str().unwrap_or("not").to_owned())
        .collect()
}

#[test]
fn a_stopped_job_ends_by_sigterm_if_it_does_and_is_frozen_and_drained_if_not() {
    for class in CLASSES {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let mut jobs = Vec::new();
        for (how, place) in [("default", "launching"), ("ignored", "launching")] {
            let job = asked_to_end(&gpu, how, how, place);
            let job = job.under(daemon.socket(), class).start_until("ready");
            jobs.push(job);
        }
        let stopped = stop(&gpu, &daemon, &["default", "--json"]).expect_success();
        assert_eq!(how(&stopped), ["on SIGTERM"], "{stopped:#?}");
        expect_drained(&gpu, &daemon, "default");
        let stopped = stop(&gpu, &daemon, &["ignored", "--grace", "10ms", "--json"]);
        assert_eq!(how(&stopped.expect_success()), ["drained"]);
        expect_drained(&gpu, &daemon, "ignored");
        let ended: Vec<_> = jobs.into_iter().map(Process::finish).collect();
        let signals: Vec<_> = ended.iter().map(|ended| ended.status.signal()).collect();
        assert_eq!(signals, [Some(15), Some(9)]);
    }
}

#[test]
fn a_job_that_hangs_is_killed_in_the_end_and_its_neighbour_goes_on() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut beside = gpu.job("beside", "steady").best_effort(&daemon).start();
    let job = hanging(&gpu, &daemon, PATIENT_MS);
    let stopped = stop(&gpu, &daemon, &["hang", "--grace", "0s", "--json"]);
    assert_eq!(how(&stopped.expect_success()), ["killed"]);
    assert_eq!(job.finish().status.signal(), Some(9));
    beside.wait_for_new("round", 3);
    beside.finish().expect_success();
}

#[test]
fn mps_is_asked_to_end_what_hangs_before_it_is_killed() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let control = Control::new(&gpu);
    let arguments = ["hang", "--grace", "0s", "--json"];
    let job = hanging(&gpu, &daemon, PATIENT_MS);
    let pid = job.pid();
    control.knows(&[pid]);
    let stopped = stop_with(&control, &gpu, &daemon, &arguments).expect_success();
    assert_eq!(
        (how(&stopped), mps(&stopped)),
        (vec!["killed".into()], "terminated".into())
    );
    let lists = [
        "get_server_list".to_owned(),
        "get_client_list 4242".to_owned(),
    ];
    let terminated = format!("terminate_client 4242 {pid}, alive");
    assert_eq!(control.asked(), [&lists[..], &[terminated]].concat());
    assert_eq!(job.finish().status.signal(), Some(9));
    // A process that MPS does not know is killed all the same, with the reason in the report.
    let job = hanging(&gpu, &daemon, PATIENT_MS);
    control.knows(&[]);
    let stopped = stop_with(&control, &gpu, &daemon, &arguments).expect_success();
    assert_eq!(mps(&stopped), "no server of MPS has it as a client");
    assert_eq!(job.finish().status.signal(), Some(9));
}

/// All by default: the job drains for two seconds, and would die long before its grace is over.
#[test]
fn mps_is_asked_to_end_what_hangs_before_it_dies_by_itself() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let control = Control::new(&gpu);
    let mut job = gpu.job("hang", HANG).high_priority(&daemon).start();
    job.wait_for("launched", 1);
    let pid = job.pid();
    control.knows(&[pid]);
    let stopped = stop_with(&control, &gpu, &daemon, &["hang", "--json"]).expect_success();
    assert_eq!(
        (how(&stopped), mps(&stopped)),
        (vec!["killed".into()], "terminated".into())
    );
    assert!(control.has_terminated(pid), "{:?}", control.asked());
    assert_eq!(job.finish().status.signal(), Some(9));
}

#[test]
fn mps_is_not_asked_where_it_shares_nothing_or_nothing_is_killed() {
    for (grace, ended, drain_ms) in [
        ("0s", "killed", PATIENT_MS),
        // The process dies by itself: nobody is hurt.
        ("60s", "on SIGTERM", "50"),
    ] {
        let (gpu, daemon) = Gpu::with_daemon("timeslice", "");
        let control = Control::new(&gpu);
        let job = hanging(&gpu, &daemon, drain_ms);
        control.knows(&[job.pid()]);
        let arguments = ["hang", "--json", "--grace", grace];
        let stopped = stop_with(&control, &gpu, &daemon, &arguments).expect_success();
        assert_eq!(how(&stopped), [ended], "{stopped:#?}");
        assert_eq!(mps(&stopped), serde_json::Value::Null);
        assert_eq!(control.asked(), [] as [&str; 0]);
    }
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let control = Control::new(&gpu);
    for way in ["default", "handler"] {
        let job = asked_to_end(&gpu, way, way, "launching");
        let mut job = job.under(daemon.socket(), JobClass::BestEffort).start();
        job.wait_for("ready", 1);
        control.knows(&[job.pid()]);
        let stopped = stop_with(&control, &gpu, &daemon, &[way, "--json"]).expect_success();
        assert_eq!(how(&stopped), ["on SIGTERM"], "{stopped:#?}");
        assert_eq!(mps(&stopped), serde_json::Value::Null);
        expect_drained(&gpu, &daemon, way);
        job.finish_untold();
    }
    assert_eq!(control.asked(), [] as [&str; 0]);
}

/// `pillion stop` and the daemon may both end before the kill.
#[test]
fn a_process_that_was_frozen_ends_although_its_gpu_hangs_and_nobody_is_left_who_asked() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = hanging(&gpu, &daemon, PATIENT_MS);
    let stop = Request::Stop(Stop {
        job: "hang".to_owned(),
        user: None,
    });
    let patience = Duration::from_nanos(PATIENCE_NS);
    let answer = ask_once(daemon.socket(), &stop, patience).unwrap();
    assert!(matches!(answer, Reply::Done), "{answer:?}");
    daemon.kill();
    until("the end of the job", || !job.is_running());
    assert_eq!(job.finish().status.signal(), Some(9));
}

#[test]
fn a_job_that_is_not_there_is_said_with_those_that_are() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = gpu.job("here", "steady").best_effort(&daemon).start();
    job.wait_for("round", 1);
    let refused = stop(&gpu, &daemon, &["nowhere"]);
    assert_eq!(refused.code(), 1);
    refused.expect_errors(&["nowhere", "here"]);
    // Another user's job is not there either.
    assert_eq!(stop(&gpu, &daemon, &["here", "--user", "4711"]).code(), 1);
    job.wait_for_new("round", 1);
    job.finish().expect_success();
    assert_eq!(stop(&gpu, &daemon, &["x", "--grace", "1d"]).code(), 2);
}

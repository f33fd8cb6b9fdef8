//! The first process of a PID namespace, such as a container's main process, and its children. The
//! kernel gives it no signal with a deadly default, whether its own namespace or the one around it
//! sends the signal. So with SIGTERM's default it is not asked to end at all, with or without
//! Pillion; with a handler of its own it is asked like any process, as are its children.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::hello::JobClass;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Daemon, Ended, Gpu, Job, Process, Program, tools, workspace};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];
/// Starts a program as the first process of a namespace, which dies with its starter.
const FIRST: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// Duration of each of the first kernels, which are in flight when the signal comes, ns.
const LASTING_NS: &str = "100000000";
/// As long as the tests' own timeout.
const PATIENT_MS: &str = "60000";
/// Forwards signals to its one child and ends like it, as `tini` and `docker run --init` do. A
/// shell gives a background child no standard input. The launcher does not report the child's end
/// to standard error, as some shells do, and needs no child id in advance, as the child may be
/// ready before.
const LAUNCHER: &str = "exec 3<&0 4>&2 2> /dev/null\n\
    trap 'kill -TERM $!' TERM\n\
    trap 'kill -INT $!' INT\n\
    \"$0\" \"$@\" <&3 2>&4 & child=$!\n\
    while kill -0 $child; do wait $child; status=$?; done\n\
    echo the job ended with $status\n\
    exit $status";

struct Stage {
    gpu: Gpu,
    daemon: Daemon,
    unshare: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let unshare = tools::that_runs(&FIRST);
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        Self {
            gpu,
            daemon,
            unshare,
        }
    }

    fn job(&self, label: &str, words: &[&str]) -> Job {
        let job = self.gpu.job_of(label, &self.unshare).args(&FIRST[1..]);
        job.args(words)
            .env("LASTING_NS", LASTING_NS)
            .env("PILLION_LOG", "error")
            .env("PILLION_DRAIN_MS", PATIENT_MS)
    }

    /// Runs it alone and in both classes: same output and end, and all its launches are complete.
    /// Returns the run alone. `case` is the jobs' name.
    fn expect_same(&self, case: &str, words: &[&str], run: impl Fn(Job) -> Ended) -> Ended {
        let alone = run(self.job("alone", words));
        for class in CLASSES {
            let label = format!("{case}, {}", class.name());
            let ours = run(self.job(&label, words).under(self.daemon.socket(), class));
            let found = (&ours.output, ours.status, last_line(&ours));
            let expected = (&alone.output, alone.status, last_line(&alone));
            assert_eq!(found, expected, "{label}: {ours:#?}");
            self.expect_drained(&label);
        }
        alone
    }

    fn expect_drained(&self, label: &str) {
        self.daemon.wait_for_clients(label, 0);
        let counts = self.gpu.counts(label);
        assert!(counts["launches"].as_u64() > Some(0), "{counts:#}");
        assert_eq!(counts["launches_completed"], counts["launches"], "{label}");
    }
}

/// The last line of standard error: before it, Python prints which line was interrupted.
fn last_line(ended: &Ended) -> Option<&str> {
    ended.errors.lines().last()
}

/// The first process of the namespace, by its id outside.
fn first(process: &Process) -> Pid {
    let pid = process.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = children
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    child.and_then(Pid::from_raw).expect("it has one child")
}

/// Sends the signal from outside once it is ready. Unless it goes on, that ends it.
fn signalled(job: Job, signal: Signal, goes_on: bool) -> Ended {
    let process = job.start_until("ready");
    kill_process(first(&process), signal).unwrap();
    match goes_on {
        true => process.finish(),
        false => process.finish_untold(),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of these tests are text")
}

// census: G2, J12
#[test]
fn the_first_process_of_a_namespace_does_not_die_of_a_default_and_its_handlers_are_called() {
    let stage = Stage::new();
    let program = Program::Linked("asked_to_end").path();
    for how in [
        "default", "ignored", "handler", "siginfo", "signalfd", "sigwait",
    ] {
        let goes_on = matches!(how, "default" | "ignored");
        for signal in SIGNALS {
            let words = [text(&program), how, "launching"];
            let case = format!("{how} {signal:?}");
            let alone = stage.expect_same(&case, &words, |job| signalled(job, signal, goes_on));
            assert_eq!(alone.code(), if goes_on { 0 } else { 7 }, "{alone:#?}");
        }
    }
}

/// After its handling of SIGINT Python also asks the kernel to kill it, and is spared.
#[test]
fn a_python_program_that_is_the_first_process_of_a_namespace_ends_as_without_us() {
    let (stage, python) = (Stage::new(), tools::python(&[]));
    let script = workspace().join("cli/tests/programs/asked_to_end.py");
    for (how, signal, code) in [
        ("default", Signal::TERM, 0),
        ("default", Signal::INT, 130),
        ("caught", Signal::INT, 0),
        ("handler", Signal::TERM, 0),
        ("handler", Signal::INT, 0),
    ] {
        let words = [text(&python), text(&script), how, "launching"];
        let case = format!("{how} {signal:?}");
        let goes_on = (how, signal) == ("default", Signal::TERM);
        let alone = stage.expect_same(&case, &words, |job| signalled(job, signal, goes_on));
        assert_eq!(alone.code(), code, "{case}: {alone:#?}");
    }
}

/// `kill` returns, and it goes on.
#[test]
fn the_first_process_of_a_namespace_that_sends_itself_a_signal_goes_on() {
    let stage = Stage::new();
    let program = Program::Linked("end_itself").path();
    let alone = stage.job("alone", &[text(&program)]).run();
    assert_eq!((alone.code(), &*alone.output), (9, "went on\n"));
    for class in CLASSES {
        let job = stage.job(class.name(), &[text(&program)]);
        let ours = job.under(stage.daemon.socket(), class).run();
        let found = (ours.status, &ours.output, &ours.errors);
        assert_eq!(found, (alone.status, &alone.output, &alone.errors));
    }
}

/// As in most containers: the first process is a shell or an `init`, and the job its child.
// census: G7
#[test]
fn a_child_of_a_namespaces_first_process_is_drained_and_dies_of_the_signal_that_is_passed_on() {
    let stage = Stage::new();
    let program = Program::Linked("asked_to_end").path();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        for place in ["launching", "synchronising"] {
            // A shell traps nothing that is ignored at its start, as SIGINT is for a test in a
            // shell's background.
            let env = ["/usr/bin/env", "--default-signal=INT"];
            let launcher = ["/bin/sh", "-c", LAUNCHER, text(&program), "default", place];
            let words = [&env[..], &launcher].concat();
            let case = format!("{place} {signal:?}");
            let alone = stage.expect_same(&case, &words, |job| signalled(job, signal, false));
            assert_eq!(alone.code(), code, "{alone:#?}");
            let said = format!("ready\nthe job ended with {code}\n");
            assert_eq!(alone.output, said);
        }
    }
}

/// SIGTERM has no effect on it; frozen and drained it exits, as it cannot kill itself.
#[test]
fn the_first_process_of_a_namespace_is_stopped_with_nothing_in_flight() {
    let stage = Stage::new();
    let program = Program::Linked("asked_to_end").path();
    for class in CLASSES {
        let label = class.name();
        let job = stage.job(label, &[text(&program), "default", "launching"]);
        let process = job.under(stage.daemon.socket(), class).start_until("ready");
        let words = ["stop", label, "--grace", "10ms", "--json"];
        let stopped = stage.gpu.tell(&stage.daemon, &words).expect_success();
        assert!(stopped.output.contains("\"drained\""), "{stopped:#?}");
        assert_eq!(process.finish_untold().code(), 137);
        stage.expect_drained(label);
    }
}

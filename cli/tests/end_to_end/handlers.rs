//! What the kernel gives an application's signal handler: arguments, the interrupted thread's
//! context, flags, masks and stacks. The library is not in between: all is as without it
//! (`flags.c`).

use std::fs;

use protocol::hello::JobClass;
use rustix::process::Signal;

use crate::common::{Ended, Gpu, Job, Process, until};

/// A handler's output for SIGTERM sent by the parent.
const SENT: &str = "handles TERM, sent by the parent of its user\n";
/// A handler's output for the second signal, which the program has raised.
const RAISED: &str = "handles TERM, raised by itself of its user\n";

fn is_asleep(process: &Process) -> bool {
    let pid = process.pid();
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
    state.is_some_and(|rest| rest.starts_with('S'))
}

fn signalled(job: Job, how: &str) -> Ended {
    let mut process = job.start_until("ready");
    match how {
        "queued" => {}
        // The program has announced its place.
        "context" => process.signal(Signal::TERM),
        _ => {
            until("it to read", || is_asleep(&process));
            process.signal(Signal::TERM);
        }
    }
    if how == "restart" {
        process.wait_for("handled", 2);
        process.write("\n");
    }
    process.finish_untold()
}

/// Alone it prints `said` and ends with that status, and so it does in both classes.
fn expect_same(how: &str, said: &[&str], code: Option<i32>) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = |label: &str| {
        let job = gpu.job(label, "flags").args(&[how]);
        job.env("PILLION_LOG", "error")
    };
    let alone = signalled(job("alone"), how);
    let said = format!("ready\n{}", said.concat());
    assert_eq!((&alone.output, alone.status.code()), (&said, code));
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let ended = signalled(job(class.name()).under(daemon.socket(), class), how);
        assert_eq!(ended.output, alone.output, "{class:?}: {ended:#?}");
        assert_eq!(ended.status, alone.status, "{class:?}: {ended:#?}");
        assert_eq!(ended.errors, alone.errors, "{class:?}");
    }
}

/// Twice: the second signal is raised in the handler, and blocked there.
fn expect_twice(how: &str, found: &str, then: &[&str]) {
    let first = [SENT, found, "USR1 inside\nhandled\n"];
    let second = [RAISED, found, "handled\n"];
    let said = [&first[..], &second[..], then].concat();
    expect_same(how, &said, Some(7));
}

// census: G2
#[test]
fn a_handler_without_flags_blocks_its_own_signal_and_interrupts() {
    let found = "blocked: TERM USR2\nnow handled SIGINFO, masks\n";
    expect_twice("plain", found, &["interrupted\nfinished\n"]);
}

#[test]
fn a_call_that_is_to_go_on_after_the_handler_does() {
    let found = "blocked: TERM USR2\nnow handled SIGINFO RESTART, masks\n";
    expect_twice("restart", found, &["read on\nfinished\n"]);
}

#[test]
fn what_the_handlers_mask_blocks_comes_after_it() {
    let found = "blocked: TERM USR1 USR2\nnow handled SIGINFO, masks USR1\n";
    let handled = "handled\n";
    let said = [SENT, found, handled, RAISED, found, handled];
    let then = ["USR1 outside\n", "interrupted\nfinished\n"];
    expect_same("mask", &[&said[..], &then[..]].concat(), Some(7));
}

#[test]
fn a_handler_that_lets_its_own_signal_in_is_called_on_top_of_itself() {
    let found = "blocked: USR2\nnow handled SIGINFO NODEFER, masks\n";
    let on_top = "handles on top TERM, raised by itself of its user\n";
    let then = "handled\nhandled\ninterrupted\nfinished\n";
    let said = [SENT, found, "USR1 inside\n", on_top, found, then];
    expect_same("nodefer", &said, Some(7));
}

/// The kernel has restored the default, so a signal raised in the handler kills once that returns.
#[test]
fn a_handler_for_one_time_is_called_once() {
    let found = "blocked: TERM USR2\nnow default SIGINFO RESETHAND, masks\n";
    expect_same("resethand", &[SENT, found, "USR1 inside\nhandled\n"], None);
}

#[test]
fn a_handler_finds_where_its_thread_was_and_puts_it_elsewhere() {
    let said = [
        SENT,
        "blocked: TERM USR2\nnow handled SIGINFO ONSTACK, masks\n",
        "met in the program\non the thread's stack\nhandled on the handler's\nwhich it names\n",
        "with its registers\nand its mask: USR2\nhandled\n",
        "goes on with the handler's\nblocked: USR1 USR2\nfinished\n",
    ];
    expect_same("context", &said, Some(7));
}

#[test]
fn a_value_that_is_queued_with_the_signal_arrives() {
    let found = "blocked: TERM USR2\nnow handled SIGINFO, masks\n";
    let queued = "handles TERM, queued with 4711 by itself of its user\n";
    let again = [RAISED, found, "handled\nfinished\n"];
    let said = [&[queued, found, "USR1 inside\nhandled\n"][..], &again[..]];
    expect_same("queued", &said.concat(), Some(7));
}

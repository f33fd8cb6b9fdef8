//! `pillion top` in real terminals, at three sizes, restored at any end; also `pillion doctor`.

use rustix::process::{Pid, Signal, kill_process};

use crate::common::terminal::Terminal;
use crate::common::{Gpu, Process, cargo_folder, collect, until};

/// What ends it, and the shell's report.
const ENDS: [(&str, Option<Signal>, u32); 4] = [
    ("q", None, 0),
    ("C-c", None, 0),
    ("SIGTERM", Some(Signal::TERM), 143),
    ("SIGINT", Some(Signal::INT), 130),
];

#[test]
fn it_shows_gpus_and_jobs_at_each_size_and_leaves_the_terminal_as_it_was() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let hp = gpu.job("serve", "steady 20").high_priority(&daemon);
    let be = gpu.job("train", "steady").best_effort(&daemon);
    let jobs: [Process; 2] = [hp.start_until("round"), be.start_until("round")];
    let pillion = cargo_folder().join("pillion");
    for (columns, rows) in [(80, 24), (100, 40), (200, 50)] {
        let terminal = Terminal::start(&gpu.pillion(&daemon, &[]), columns, rows);
        let read = |name: &str| {
            let path = gpu.path(name);
            let text = until(name, || std::fs::read_to_string(&path).ok());
            std::fs::remove_file(&path).unwrap();
            text
        };
        let settings = || {
            let path = gpu.path("settings");
            terminal.enter(&format!("stty -g >{0}.new; mv {0}.new {0}", path.display()));
            read("settings")
        };
        let before = settings();
        for (end, signal, code) in ENDS {
            let pid = gpu.path("pid");
            terminal.enter(&format!(
                "clear; sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec {1} top'",
                pid.display(),
                pillion.display()
            ));
            let pid: i32 = read("pid").trim().parse().unwrap();
            until("the jobs", || {
                let seen = terminal.seen();
                let has = |begin: &str| seen.lines().any(|row| row.starts_with(begin));
                has("serve ") && has("train ") && has("q quit") && seen.contains("HP p50")
            });
            // Between two captures it may have drawn another second.
            until("rows of their own", || {
                terminal.seen() == terminal.unwrapped()
            });
            match signal {
                Some(signal) => kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap(),
                None => terminal.press(&[end]),
            }
            until("the screen of before", || {
                !terminal.seen().contains("HP p50")
            });
            // A line of its own: a shell discards the commands after one that SIGINT ended.
            terminal.enter("echo ended with $?");
            let ended = format!("ended with {code}");
            until(&ended, || terminal.seen().contains(&ended));
        }
        assert_eq!(settings(), before);
    }
    for job in jobs {
        job.finish().expect_success();
    }
}

#[test]
fn a_key_stops_the_selected_job_and_without_a_terminal_nothing_is_shown() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let be = gpu.job("train", "steady").best_effort(&daemon);
    let job = be.start_until("round");
    let refused = collect(gpu.pillion(&daemon, &["top"]));
    assert_eq!((refused.code(), &*refused.output), (2, ""), "{refused:#?}");
    refused.expect_errors(&["needs a terminal", "status --watch"]);
    let terminal = Terminal::start(&gpu.pillion(&daemon, &[]), 100, 30);
    let pillion = cargo_folder().join("pillion");
    terminal.enter(&format!("clear; {} top", pillion.display()));
    let shows = |what: &str| until(what, || terminal.seen().contains(what));
    shows("train ");
    terminal.press(&["T"]);
    shows("stop train, as `pillion stop` does? y/n");
    terminal.press(&["y"]);
    daemon.job_when("train", "its end", |job| job["ended_ns"].is_u64());
    until("its row's end", || {
        let seen = terminal.seen();
        !seen.lines().any(|row| row.starts_with("train "))
    });
    terminal.press(&["q"]);
    drop(job);
}

#[test]
fn doctor_wraps_no_row_of_a_terminal() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let pillion = cargo_folder().join("pillion");
    for (columns, rows) in [(80, 24), (100, 40), (200, 50)] {
        // All of its rows must be visible.
        let terminal = Terminal::start(&gpu.pillion(&daemon, &[]), columns, 10 * rows);
        terminal.enter(&format!(
            "clear; {} doctor; echo ended with $?",
            pillion.display()
        ));
        until("its end", || {
            let seen = terminal.seen();
            ["ended with 0", "ended with 1"]
                .iter()
                .any(|end| seen.contains(end))
        });
        let seen = terminal.seen();
        assert!(seen.contains(" ok, "), "{seen}");
        assert_eq!(seen, terminal.unwrapped(), "{columns} columns");
    }
}

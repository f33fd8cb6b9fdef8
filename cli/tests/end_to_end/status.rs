//! `pillion status` for people: lines that fit, all about one job, ended jobs, redrawn each second.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::terminal::Terminal;
use crate::common::{Daemon, Ended, Gpu, Process, cargo_folder, collect, until};

/// A job id chosen by a user, too long for a terminal.
const LONG: &str = "training-of-the-second-stage-of-a-model-that-has-a-long-name";

/// A high-priority job and a best-effort one that run, and one that has ended.
fn stage() -> (Gpu, Daemon, [Process; 2]) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let ended = gpu.job("ended", "work linked 5 0").best_effort(&daemon);
    ended.run().expect_success();
    let hp = gpu.job("serve", "steady 20").high_priority(&daemon);
    let be = gpu.job(LONG, "steady").best_effort(&daemon);
    let jobs = [hp.start_until("round"), be.start_until("round")];
    daemon.wait_for_clients("serve", 1);
    daemon.wait_for_clients(LONG, 1);
    daemon.job_when("ended", "its end", |job| job["ended_ns"].is_u64());
    (gpu, daemon, jobs)
}

fn finish(jobs: [Process; 2]) {
    for job in jobs {
        job.finish().expect_success();
    }
}

fn status_in(gpu: &Gpu, daemon: &Daemon, columns: usize, words: &[&str]) -> Ended {
    let mut command = gpu.pillion(daemon, &[&["status"], words].concat());
    command.env("COLUMNS", columns.to_string());
    collect(command)
}

#[test]
fn no_line_is_wider_than_columns_says_and_each_job_has_one() {
    let (gpu, daemon, jobs) = stage();
    for columns in [80, 100, 200] {
        for words in [
            &[][..],
            &["--all"],
            &["--explain", "serve"],
            &["--explain", LONG],
        ] {
            let shown = status_in(&gpu, &daemon, columns, words);
            let shown = shown.expect_success().output;
            for line in shown.lines() {
                let wide = line.chars().count();
                assert!(wide <= columns, "{wide} of {columns}: {line}\n{shown}");
            }
        }
        let shown = status_in(&gpu, &daemon, columns, &[]).output;
        let of = |begin: &str| shown.lines().filter(|line| line.starts_with(begin)).count();
        assert_eq!(
            [of("GPU-"), of("serve "), of("training")],
            [1, 1, 1],
            "{shown}"
        );
        for part in ["HP P99", "TARGET", "BE SHARE", "UNMANAGED"] {
            assert!(shown.contains(part), "no {part} in {shown}");
        }
        assert!(!shown.contains("ended"), "{shown}");
    }
    finish(jobs);
}

#[test]
fn a_job_is_explained_and_a_name_that_nobody_has_is_not() {
    let (gpu, daemon, jobs) = stage();
    let explained = status_in(&gpu, &daemon, 100, &["--explain", LONG]);
    let explained = explained.expect_success().output;
    let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    let uuid = daemon.status()["gpu"]["uuid"].as_str().unwrap().to_owned();
    for part in [
        &format!("job {LONG}: best-effort, user "),
        "steady-linked",
        "enforced: ",
        "memory: ",
        "GPU time: ",
        "policy pillion",
        &uuid,
    ] {
        assert!(words.contains(part), "no {part} in {explained}");
    }
    // An ended one, and the GPU by a prefix of its UUID.
    let ended = status_in(&gpu, &daemon, 100, &["--explain", "ended"]);
    let ended = ended.expect_success().output;
    assert!(ended.contains("(ended)"), "{ended}");
    let of_gpu = status_in(&gpu, &daemon, 100, &["--explain", &uuid[..12]]);
    let of_gpu = of_gpu.expect_success().output;
    assert!(
        of_gpu.contains(&uuid) && !of_gpu.contains("job serve"),
        "{of_gpu}"
    );

    let unknown = status_in(&gpu, &daemon, 100, &["--explain", "srve"]);
    assert_eq!((unknown.code(), &*unknown.output), (1, ""), "{unknown:#?}");
    unknown.expect_errors(&[
        "\"srve\"",
        "did you mean \"serve\"?",
        "pillion status --all",
    ]);
    let refused = status_in(&gpu, &daemon, 100, &["--explain", "serve", "--json"]);
    assert_eq!(refused.code(), 2, "{refused:#?}");
    finish(jobs);
}

#[test]
fn ended_jobs_and_gpu_time_are_shown_with_all() {
    let (gpu, daemon, jobs) = stage();
    let shown = status_in(&gpu, &daemon, 200, &["--all"]);
    let shown = shown.expect_success().output;
    let row = |begin: &str| shown.lines().find(|line| line.starts_with(begin));
    let ended = row("ended ").unwrap_or_else(|| panic!("no such job in {shown}"));
    assert!(ended.contains("best-effort"), "{shown}");
    assert!(shown.contains("GPU TIME"), "{shown}");
    assert!(
        row("USER ").is_some_and(|row| row.contains("JOBS")),
        "{shown}"
    );
    finish(jobs);
}

fn watching(gpu: &Gpu, daemon: &Daemon, words: &[&str]) -> Process {
    let command = gpu.pillion(daemon, &[&["status", "--watch"], words].concat());
    Process::start("pillion status --watch", command)
}

#[test]
fn a_watch_goes_on_until_a_signal_ends_it_as_it_ends_any_program() {
    let (gpu, daemon, jobs) = stage();
    for signal in [Signal::INT, Signal::TERM] {
        let mut watch = watching(&gpu, &daemon, &[]);
        for _ in 0..2 {
            while !watch.next_line().starts_with("GPU ") {}
            while !watch.next_line().starts_with("serve ") {}
        }
        watch.signal(signal);
        let ended = watch.finish_untold();
        assert_eq!(ended.status.signal(), Some(signal.as_raw()));
        let pictures = ended.output;
        assert!(
            !pictures.contains('\u{1b}'),
            "it is no terminal: {pictures:?}"
        );
    }
    let mut watch = watching(&gpu, &daemon, &["--json"]);
    let times = [(); 2].map(|()| {
        let document: Value = serde_json::from_str(&watch.next_line()).unwrap();
        assert_eq!(document["schema_version"], 1);
        document["daemons"][0]["daemon"]["now_ns"].as_u64().unwrap()
    });
    assert!(times[1] - times[0] >= 900_000_000, "{times:?}");
    // `--watch` continues without a daemon.
    daemon.signal(Signal::KILL);
    let is_gone = |line: String| {
        let document: Value = serde_json::from_str(&line).unwrap();
        document["silent"][0]["error"].is_string()
    };
    until("a daemon that is gone", || is_gone(watch.next_line()));
    watch.signal(Signal::TERM);
    assert_eq!(watch.finish_untold().status.signal(), Some(15));
    finish(jobs);
}

#[test]
fn in_a_terminal_no_row_is_wrapped_and_it_is_left_as_it_was() {
    let (gpu, daemon, jobs) = stage();
    let pillion = cargo_folder().join("pillion");
    let pillion = pillion.to_str().unwrap();
    for (columns, rows) in [(80, 24), (100, 40), (200, 50)] {
        let terminal = Terminal::start(&gpu.pillion(&daemon, &[]), columns, rows);
        let settings = |name: &str| {
            let path = gpu.path(name);
            terminal.enter(&format!("stty -g >{0}.new; mv {0}.new {0}", path.display()));
            let settings = until("the settings", || std::fs::read_to_string(&path).ok());
            std::fs::remove_file(&path).unwrap();
            settings
        };
        let before = settings("before");
        // A whole row is the shell's output: the typed text is on the screen, too.
        let has_row = |row: &str| terminal.seen().lines().any(|seen| seen == row);
        for (number, words) in ["status", "status --all"].iter().enumerate() {
            terminal.enter(&format!(
                "clear; {pillion} {words}; echo end $((7 + {number}))"
            ));
            until(words, || has_row(&format!("end {}", 7 + number)));
            let seen = terminal.seen();
            assert!(
                seen.contains("HP P99") && seen.contains("\nserve "),
                "{seen}"
            );
            assert_eq!(seen, terminal.unwrapped(), "{words}");
        }
        terminal.enter(&format!("clear; {pillion} status --watch"));
        // The time of day is its first row, which the shell never prints.
        let is_drawn = |seen: &str| seen.starts_with("20") && seen.contains("\nserve ");
        until("a picture", || is_drawn(&terminal.seen()));
        terminal.press(&["C-c"]);
        terminal.enter("echo it ended with $?");
        // Ctrl-C may discard the rest of a picture, so the row may contain more.
        until("its end", || terminal.seen().contains("it ended with 130"));
        assert_eq!(terminal.seen(), terminal.unwrapped());
        assert_eq!(settings("after"), before);
    }
    finish(jobs);
}

//! Very many, right and bounded: children, threads, contexts, look-ups, allocations, processes.

use protocol::hello::JobClass;

use crate::common::{Daemon, Ended, Gpu, Program};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];

fn run(
    gpu: &Gpu,
    daemon: &Daemon,
    class: JobClass,
    program: &'static str,
    arguments: &[&str],
) -> Ended {
    let job = gpu.job(class.name(), Program::Linked(program));
    job.args(arguments).under(daemon.socket(), class).run()
}

fn expect_right(program: &'static str, arguments: &[&str]) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", Program::Linked(program));
    alone.args(arguments).run().expect_success();
    for class in CLASSES {
        let ended = run(&gpu, &daemon, class, program, arguments).expect_success();
        assert_eq!(ended.errors, "", "{class:?}");
        gpu.expect_equal_counts(class.name(), &ended, &daemon);
        let totals = daemon.totals(class.name());
        assert_eq!(totals["panics_caught"], 0, "{totals:#}");
    }
}

// census: F1, F8
#[test]
fn a_hundred_children_made_before_cuda_was_touched_use_it_or_not() {
    expect_right("children", &["before", "100"]);
}

// census: F2, F4, F5, F9
#[test]
fn a_hundred_children_made_while_16_threads_allocate_and_launch_harm_nobody() {
    expect_right("children", &["after", "100"]);
}

// census: F7
#[test]
fn the_last_of_a_chain_of_forks_uses_cuda() {
    expect_right("children", &["chain", "20"]);
}

// census: F3
#[test]
fn a_fork_during_the_first_call_leaves_nothing_half_done() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES {
        let ended = run(&gpu, &daemon, class, "children", &["first", "300"]);
        assert!(ended.output.starts_with("300 of 300 right\n"), "{ended:#?}");
    }
}

/// Allowed extra growth of a process that repeats the same operation.
const GROWTH_KIB_MAX: u64 = 4096;

/// Runs `soak` alone and in both classes: all parties count alike, and nothing of ours grows.
fn expect_bounded(what: &str, count: &str) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", "soak").args(&[what, count]).run();
    let alone = alone.expect_success();
    for class in CLASSES {
        let ended = run(&gpu, &daemon, class, "soak", &[what, count]).expect_success();
        assert_eq!(ended.asked("wrong"), 0, "{ended:#?}");
        assert_eq!(
            ended.asked("more_files"),
            alone.asked("more_files"),
            "{ended:#?}"
        );
        let grown_kib = ended.asked("grown_kib");
        let allowed_kib = alone.asked("grown_kib") + GROWTH_KIB_MAX;
        assert!(
            grown_kib <= allowed_kib,
            "{class:?} {what}: {grown_kib} of {allowed_kib} KiB"
        );
        gpu.expect_equal_counts(class.name(), &ended, &daemon);
        let totals = daemon.totals(class.name());
        assert_eq!(totals["panics_caught"], 0, "{totals:#}");
    }
}

#[test]
fn a_storm_of_short_lived_threads_leaves_nothing_behind() {
    expect_bounded("threads", "3200");
}

#[test]
fn a_thousand_contexts_one_after_the_other_leave_nothing_behind() {
    expect_bounded("contexts", "1000");
}

#[test]
fn ten_thousand_streams_and_events_leave_nothing_behind() {
    expect_bounded("streams", "10000");
}

#[test]
fn six_thousand_live_allocations_are_freed_from_the_middle() {
    // The stand-in's own search for room grows with their number.
    expect_bounded("blocks", "6000");
}

#[test]
fn ten_thousand_modules_are_told_apart_and_leave_nothing_behind() {
    expect_bounded("modules", "10000");
}

/// As many as the device server takes at once, all started together.
// census: E11
#[test]
fn sixty_processes_that_start_at_once_are_all_served() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let jobs = (0..60).map(|number| {
        let class = CLASSES[number % 2];
        let job = gpu.job(class.name(), "work");
        job.args(&["linked", "20", "0"])
            .under(daemon.socket(), class)
            .start()
    });
    let started: Vec<_> = jobs.collect();
    let mut asked = [0; 2];
    for (number, process) in started.into_iter().enumerate() {
        let ended = process.finish().expect_success();
        assert_eq!(ended.errors, "", "{number}");
        asked[number % 2] += ended.asked("launches");
    }
    for (class, asked) in CLASSES.into_iter().zip(asked) {
        assert_eq!(daemon.total(class.name(), "launches"), asked);
        assert_eq!(gpu.counts(class.name())["launches"], asked);
    }
}

// census: A5, A6
#[test]
fn eight_threads_look_up_forty_thousand_names_each() {
    expect_bounded("look-ups", "40000");
}

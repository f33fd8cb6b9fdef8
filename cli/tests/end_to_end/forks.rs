//! Forks before and after a process has touched CUDA.

use protocol::hello::JobClass;

use crate::common::{Ended, Gpu};

/// Runs alone and in each class, with the same output; passes on the counts in a class.
fn expect_same(how: &'static str, expect: impl Fn(&Gpu, &str, &Ended)) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = |label| gpu.job(label, "forks").args(&[how]);
    let alone = job("alone").run().expect_success();
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let ended = job(label).under(daemon.socket(), class).run();
        let ended = ended.expect_success();
        assert_eq!(ended.output, alone.output);
        assert_eq!(ended.errors, "");
        gpu.expect_equal_counts(label, &ended, &daemon);
        expect(&gpu, label, &ended);
    }
}

// census: F1, F8
#[test]
fn a_child_forked_before_cuda_was_touched_attaches_beside_its_parent() {
    expect_same("before", |gpu, label, ended| {
        assert_eq!(ended.asked("launches"), 50);
        assert_eq!(gpu.counts(label)["processes"], 2);
    });
}

// census: F4, F9
#[test]
fn children_forked_after_cuda_was_touched_get_the_drivers_errors_and_harm_nobody() {
    expect_same("after", |_, _, _| ());
}

//! Forks before and after a process has touched CUDA.

use crate::common::{Gpu, Program};

// census: F1, F8
#[test]
fn a_child_forked_before_cuda_was_touched_attaches_beside_its_parent() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    let alone = gpu.job("alone", Program::Linked("forks"));
    let alone = alone.args(&["before"]).run().expect_success();
    for label in ["hp", "be"] {
        let job = gpu.job(label, Program::Linked("forks")).args(&["before"]);
        let job = match label {
            "hp" => job.high_priority(&daemon),
            _ => job.best_effort(&daemon),
        };
        let ended = job.run().expect_success();
        assert_eq!(ended.output, alone.output);
        assert_eq!(ended.errors, "");
        assert_eq!(ended.asked("launches"), 50);
        gpu.expect_equal_counts(label, &ended, &daemon);
        assert_eq!(gpu.counts(label)["processes"], 2);
    }
}

// census: F4, F9
#[test]
fn children_forked_after_cuda_was_touched_get_the_drivers_errors_and_harm_nobody() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    let alone = gpu.job("alone", Program::Linked("forks"));
    let alone = alone.args(&["after"]).run().expect_success();
    for label in ["hp", "be"] {
        let job = gpu.job(label, Program::Linked("forks")).args(&["after"]);
        let job = match label {
            "hp" => job.high_priority(&daemon),
            _ => job.best_effort(&daemon),
        };
        let ended = job.run().expect_success();
        assert_eq!(ended.output, alone.output);
        assert_eq!(ended.errors, "");
        gpu.expect_equal_counts(label, &ended, &daemon);
    }
}

//! Forks before and after a process has touched CUDA.

use crate::common::Gpu;

// census: F1, F8
#[test]
fn a_child_forked_before_cuda_was_touched_attaches_beside_its_parent() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", "forks before").run().expect_success();
    for label in ["hp", "be"] {
        let job = gpu.job(label, "forks before");
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
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", "forks after").run().expect_success();
    for label in ["hp", "be"] {
        let job = gpu.job(label, "forks after");
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

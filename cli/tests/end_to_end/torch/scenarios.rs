//! Common uses of PyTorch, each as a program.

use protocol::hello::JobClass;
use rustix::process::Signal;

use super::{DEVICE, Scenario, Stage, python};
use crate::common::{Cuda, Process};
use crate::examples::{example, launches_shown, with_softgpu};

pub(super) const THREADS: Scenario = Scenario {
    allocates_the_same: false,
    ..Scenario::of("threads")
};

pub(super) const EXPANDABLE_SEGMENTS: Scenario = Scenario {
    allocator: "expandable_segments:True",
    ..Scenario::of("train_mlp")
};

pub(super) const ASYNCHRONOUS: Scenario = Scenario {
    allocator: "backend:cudaMallocAsync",
    // The driver's pool has PyTorch's reserved memory; PyTorch asks for its tensors.
    says_what_it_asked_for: false,
    ..Scenario::of("train_mlp")
};

pub(super) const PROCESSES: Scenario = Scenario {
    // Each reports only its own.
    says_what_it_asked_for: false,
    ..Scenario::of("processes")
};

pub(super) const SHARED: Scenario = Scenario {
    says_what_it_asked_for: false,
    ..Scenario::of("shared")
};

// census: I5
#[test]
fn a_training_step_launches_allocates_and_ends_the_same() {
    Scenario::of("train_mlp").expect_unchanged();
}

#[test]
fn the_matrix_products_of_a_training_step_carry_their_labels() {
    let python = python(Cuda::V13);
    let stage = Stage::new(python);
    // In each of three steps two products forward; backward the second layer's weights and inputs,
    // and the first layer's weights.
    const PRODUCTS: u64 = 3 * (2 + 3);
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let job = stage.under_pillion(Scenario::of("train_mlp"), class);
        let job = job.env("PILLION_LOG", "debug").start();
        let ended = job.finish_whenever().expect_success();
        let totals = stage.totals(class);
        for counter in ["calls_operator", "launches_labelled"] {
            assert_eq!(
                totals[counter], PRODUCTS,
                "{counter}: {totals:#} {ended:#?}"
            );
        }
        // The first layer's forward pass: 64 rows of 256 become 64 of 512, columns first.
        assert!(
            ended.errors.contains(" 512x64x256: first call"),
            "{ended:#?}"
        );
    }
}

#[test]
fn mixed_precision_launches_allocates_and_ends_the_same() {
    Scenario::of("train_transformer").expect_unchanged();
}

#[test]
fn convolutions_without_cudnn_launch_allocate_and_end_the_same() {
    Scenario::of("train_convolutions").expect_unchanged();
}

#[test]
fn inference_with_results_on_the_host_launches_copies_and_ends_the_same() {
    Scenario::of("infer").expect_unchanged();
}

#[test]
fn side_streams_events_and_pinned_copies_launch_and_end_the_same() {
    Scenario::of("streams").expect_unchanged();
}

#[test]
fn threads_with_backward_passes_launch_and_end_the_same() {
    THREADS.expect_unchanged();
}

#[test]
fn a_data_loader_with_forked_and_spawned_workers_launches_copies_and_ends_the_same() {
    Scenario::of("loader").expect_unchanged();
}

#[test]
fn a_captured_graph_is_replayed_as_often_and_ends_the_same() {
    Scenario::of("graph").expect_unchanged();
}

#[test]
fn kernels_of_triton_launch_and_end_the_same() {
    Scenario::of("triton_kernel").expect_unchanged();
}

// census: I12
#[test]
fn a_compiled_network_launches_allocates_and_ends_the_same() {
    Scenario::of("compiled").expect_unchanged();
}

// census: I8
#[test]
fn expandable_segments_allocate_and_end_the_same() {
    EXPANDABLE_SEGMENTS.expect_unchanged();
}

// census: I7
#[test]
fn the_asynchronous_allocator_allocates_and_ends_the_same() {
    ASYNCHRONOUS.expect_unchanged();
}

#[test]
fn processes_of_torch_multiprocessing_launch_and_end_the_same() {
    PROCESSES.expect_unchanged();
}

#[test]
fn tensors_of_the_device_that_processes_hand_to_each_other_launch_and_end_the_same() {
    SHARED.expect_unchanged();
}

#[test]
fn memory_that_is_not_there_is_refused_alike_and_what_fits_goes_on() {
    Scenario::of("memory_full").expect_unchanged();
}

/// Up to the quota, over it and on, with each of PyTorch's allocators. At each step Pillion's
/// account matches the device. PyTorch and NVML in the job report the rest of the quota, which
/// PyTorch also gives as the capacity.
#[test]
fn a_quota_is_pytorchs_capacity_and_what_is_held_is_what_the_device_has_given() {
    const LOOKS: usize = 6;
    const TOTAL: u64 = 2 << 30;
    let python = python(Cuda::V13);
    for allocator in ["", "expandable_segments:True", "backend:cudaMallocAsync"] {
        let stage = Stage::new(python.clone());
        let scenario = Scenario {
            allocator,
            ..Scenario::of("quota")
        };
        let mut process = stage
            .under_quota(scenario, JobClass::BestEffort, "2GiB")
            .start();
        let mut looks = Vec::new();
        for look in 0..LOOKS {
            process.wait_whenever("look");
            let used = stage.gpu.stats()["memory"]["used_bytes"].clone();
            let memory = stage.job(JobClass::BestEffort)["memory"].clone();
            assert_eq!(memory["held_bytes"], used, "{allocator} {look}: {memory:#}");
            let held = memory["held_bytes"].as_u64().expect("a number");
            assert!(held <= TOTAL, "{memory:#}");
            looks.push(format!(
                "free {0} of {TOTAL} by NVML {0} of {TOTAL} used {held}",
                TOTAL - held
            ));
            process.write("\n");
        }
        let ended = process.finish_whenever().expect_success();
        let told = ended.output.lines().filter(|line| line.starts_with("free"));
        assert_eq!(told.collect::<Vec<_>>(), looks, "{allocator}");
        let asked = |name| ended.asked(name);
        assert_eq!(asked("total_mib"), 2048, "{allocator}: {ended:#?}");
        assert_eq!(asked("device_mib"), 2048, "{allocator}: {ended:#?}");
        assert!(
            ended.output.contains("capacity 2.00 GiB"),
            "{allocator}: {ended:#?}"
        );
        assert!(
            (9..=10).contains(&asked("blocks")),
            "{allocator}: {ended:#?}"
        );
        assert_eq!(asked("again"), 7, "{allocator}: {ended:#?}");
    }
}

#[test]
fn ctrl_c_ends_it_the_same() {
    let python = python(Cuda::V13);
    let stage = Stage::new(python);
    let scenario = Scenario::of("interrupted");
    let jobs = [
        stage.alone(scenario),
        stage.under_pillion(scenario, JobClass::HighPriority),
        stage.under_pillion(scenario, JobClass::BestEffort),
    ];
    let ended = jobs.map(|job| {
        let mut process = job.start();
        process.wait_whenever("working");
        process.signal(Signal::INT);
        process.finish_whenever()
    });
    let [alone, ..] = &ended;
    assert!(alone.errors.contains("KeyboardInterrupt"), "{alone:#?}");
    for other in &ended {
        assert_eq!(other.status, alone.status, "{other:#?}");
        assert_eq!(other.output, alone.output, "{other:#?}");
        assert!(other.errors.contains("KeyboardInterrupt"), "{other:#?}");
    }
}

#[test]
fn the_example_serves_and_trains_beside_each_other() {
    let python = python(Cuda::V13);
    let mut command = with_softgpu();
    command.env("DEVICE", DEVICE).env("PILLION_LOG", "error");
    command.arg(example("6-pytorch/pair.sh"));
    command.arg(python).arg("50");
    let ended = Process::start("pair.sh", command).finish_whenever();
    let ended = ended.expect_success();
    assert_eq!(ended.output, "50 requests answered\n");
    // Both were jobs of the daemon, each in its class, and both launched.
    let ended = ended.expect_errors(&["median ", "trained"]);
    for (class, launches_min) in [("high-priority", 50), ("best-effort", 1)] {
        let launches = launches_shown(&ended.errors, class);
        assert!(
            launches >= launches_min,
            "{launches} {class} launches: {ended:#?}"
        );
    }
}

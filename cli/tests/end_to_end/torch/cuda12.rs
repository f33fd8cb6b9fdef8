//! The scenarios with a wheel of CUDA 12, on the stand-ins of that release.

use super::scenarios::{ASYNCHRONOUS, EXPANDABLE_SEGMENTS, PROCESSES, SHARED, THREADS};
use super::{Scenario, python};
use crate::common::Cuda;

fn expect_unchanged(scenario: Scenario) {
    let scenario = Scenario {
        cuda: Cuda::V12,
        ..scenario
    };
    scenario.expect_unchanged();
}

#[test]
fn the_wheel_is_of_cuda_12() {
    let python = python(Cuda::V12);
    let ask = "import torch; print(torch.version.cuda.split('.')[0])";
    let output = std::process::Command::new(python)
        .args(["-c", ask])
        .output();
    assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "12\n");
}

#[test]
fn training_steps_launch_allocate_and_end_the_same() {
    for program in ["train_mlp", "train_transformer", "train_convolutions"] {
        expect_unchanged(Scenario::of(program));
    }
}

#[test]
fn inference_launches_copies_and_ends_the_same() {
    expect_unchanged(Scenario::of("infer"));
}

#[test]
fn a_captured_graph_is_replayed_as_often_and_ends_the_same() {
    expect_unchanged(Scenario::of("graph"));
}

#[test]
fn both_other_allocators_allocate_and_end_the_same() {
    expect_unchanged(EXPANDABLE_SEGMENTS);
    expect_unchanged(ASYNCHRONOUS);
}

#[test]
fn streams_and_threads_launch_and_end_the_same() {
    expect_unchanged(Scenario::of("streams"));
    expect_unchanged(THREADS);
}

#[test]
fn processes_launch_and_end_the_same() {
    expect_unchanged(Scenario::of("loader"));
    expect_unchanged(PROCESSES);
    expect_unchanged(SHARED);
}

#[test]
fn kernels_of_triton_and_compiled_networks_launch_and_end_the_same() {
    expect_unchanged(Scenario::of("triton_kernel"));
    expect_unchanged(Scenario::of("compiled"));
}

#[test]
fn memory_that_is_not_there_is_refused_alike_and_what_fits_goes_on() {
    expect_unchanged(Scenario::of("memory_full"));
}

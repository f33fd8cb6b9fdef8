//! Contexts that take turns.

mod common;

use common::{
    client, copy_in, drain, end_ns, kernel, one_block, put, start_ns, time_slice, v100, whole_gpu,
};
use softgpu::{Config, Gpu, Op};

const MS: u64 = 1_000_000;

#[test]
fn two_busy_contexts_get_half_each_in_slices() {
    let mut gpu = Gpu::new(v100(), time_slice());
    let (_, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    for _ in 0..100 {
        put(&mut gpu, 0, a, kernel(one_block(MS / 2)));
        put(&mut gpu, 0, b, kernel(one_block(MS / 2)));
    }
    let done = drain(&mut gpu);
    // Slices of 2 ms hold 4 kernels each: a, b, a, b, …
    for kernel in 0..100 {
        let (slice, place) = (kernel / 4, kernel % 4 + 1);
        assert_eq!(
            end_ns(&done, a, kernel + 1),
            4 * slice * MS + place * MS / 2
        );
        assert_eq!(
            end_ns(&done, b, kernel + 1),
            (4 * slice + 2) * MS + place * MS / 2
        );
    }
}

#[test]
fn a_kernel_that_is_cut_keeps_its_progress() {
    let mut gpu = Gpu::new(v100(), time_slice());
    let (_, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(5 * MS)));
    put(&mut gpu, 0, b, kernel(whole_gpu(3, MS)));
    let done = drain(&mut gpu);
    // a 0-2, b 2-4, a 4-6, b 6-7 and ends, a 7-8 and ends.
    assert_eq!(end_ns(&done, b, 1), 7 * MS);
    assert_eq!(end_ns(&done, a, 1), 8 * MS);
}

#[test]
fn priorities_do_not_cross_contexts() {
    let mut gpu = Gpu::new(v100(), time_slice());
    let (_, be) = client(&mut gpu, 0);
    let (_, hp) = client(&mut gpu, -5);
    put(&mut gpu, 0, be, kernel(one_block(10 * MS)));
    put(&mut gpu, 100, hp, kernel(one_block(1000)));
    assert_eq!(start_ns(&drain(&mut gpu), hp, 1), 2 * MS);
}

#[test]
fn an_idle_context_passes_its_turn_early() {
    let mut gpu = Gpu::new(v100(), time_slice());
    let (_, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 0, a, copy_in(12_000));
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 0, b, kernel(one_block(10 * MS)));
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, b, 1), 1000);
    assert_eq!(
        end_ns(&done, a, 2),
        3000,
        "copies go beside another context's kernels"
    );
    assert_eq!(
        start_ns(&done, a, 3),
        1000 + 2 * MS,
        "the turn of b lasts a slice"
    );
    assert_eq!(end_ns(&done, b, 1), 2000 + 10 * MS);
}

#[test]
fn a_context_alone_goes_on_and_a_late_one_waits_for_the_end_of_the_slice() {
    let mut gpu = Gpu::new(v100(), time_slice());
    let (_, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    put(&mut gpu, 500, a, kernel(one_block(20 * MS)));
    assert_eq!(
        gpu.next_event_ns(),
        Some(500 + 20 * MS),
        "no turn passes while one is alone"
    );
    put(&mut gpu, 5 * MS, b, kernel(one_block(1000)));
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, b, 1), 6 * MS + 500);
    assert_eq!(end_ns(&done, a, 1), 20 * MS + 1500);
}

#[test]
fn three_contexts_take_turns_in_order() {
    let config = Config {
        slice_ns: 1000,
        ..time_slice()
    };
    let mut gpu = Gpu::new(v100(), config);
    let streams: Vec<_> = (0..3).map(|_| client(&mut gpu, 0).1).collect();
    for stream in &streams {
        put(&mut gpu, 0, *stream, kernel(one_block(1500)));
    }
    let done = drain(&mut gpu);
    // Slices 0-1000, 1000-2000, 2000-3000; then the remaining 500 of each.
    let ends: Vec<_> = streams
        .iter()
        .map(|stream| end_ns(&done, *stream, 1))
        .collect();
    assert_eq!(ends, [3500, 4000, 4500]);
}

/// A GPU whose switches take 700 ns.
fn with_switches() -> Gpu {
    let config = Config {
        context_switch_ns: 700,
        ..time_slice()
    };
    Gpu::new(v100(), config)
}

#[test]
fn a_switch_costs_time_except_to_the_context_that_was_last() {
    let mut gpu = with_switches();
    let (first, a) = client(&mut gpu, 0);
    let (second, b) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 2000, a, kernel(one_block(1000)));
    put(&mut gpu, 2000, b, kernel(one_block(1000)));
    let done = drain(&mut gpu);
    assert_eq!(end_ns(&done, a, 1), 1700, "nobody was on the GPU");
    assert_eq!(end_ns(&done, a, 2), 3000);
    assert_eq!(start_ns(&done, b, 1), 3700);
    assert_eq!(gpu.utilisation().busy_ns, 3000);
    assert_eq!(gpu.utilisation_of(first).busy_ns, 2000);
    assert_eq!(gpu.utilisation_of(second).busy_ns, 1000);
}

#[test]
fn a_dead_context_gives_its_turn_away() {
    let mut gpu = with_switches();
    let (dead, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    let (_, c) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(50 * MS)));
    put(&mut gpu, 1, b, kernel(one_block(1000)));
    put(&mut gpu, 1, c, Op::Wait { stream: a, seq: 1 });
    gpu.destroy_context(10_000, dead).unwrap();
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, b, 1), 10_700);
    assert_eq!(end_ns(&done, c, 1), 10_000);
    assert_eq!(gpu.utilisation().busy_ns, 10_000 - 700 + 1000);
}

#[test]
fn a_context_that_dies_while_it_is_switched_to_does_not_get_the_gpu() {
    let mut gpu = with_switches();
    let (_, a) = client(&mut gpu, 0);
    let (dead, b) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(5 * MS)));
    put(&mut gpu, 1, b, kernel(one_block(MS)));
    gpu.destroy_context(2 * MS + 1000, dead).unwrap();
    let done = drain(&mut gpu);
    // 700 at the beginning, a slice of 2 ms, 300 lost to b, then 700 to come back.
    assert_eq!(end_ns(&done, a, 1), 5 * MS + 700 + 300 + 700);
}

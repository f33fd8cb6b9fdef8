//! Limits of the device: its bandwidth, and the gap after each kernel.

mod common;

use common::{
    client, copy_in, copy_out, drain, end_ns, kernel, one_block, put, start_ns, v100, whole_gpu,
};
use softgpu::{Config, CopyDirection, Gpu, KernelShape, LAUNCH_GAP_NS, Op, Sharing};

const MS: u64 = 1_000_000;

fn gpu(sharing: Sharing) -> Gpu {
    Gpu::new(v100(), Config::new(sharing, &v100()))
}

#[test]
fn kernels_of_a_stream_keep_their_distance() {
    let mut gpu = gpu(Sharing::Mps);
    let (_, a) = client(&mut gpu, 0);
    for _ in 0..3 {
        put(&mut gpu, 0, a, kernel(one_block(1000)));
    }
    let late_ns = 3 * (1000 + LAUNCH_GAP_NS);
    put(&mut gpu, late_ns + 500, a, kernel(one_block(1000)));
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, a, 2), 1000 + LAUNCH_GAP_NS);
    assert_eq!(start_ns(&done, a, 3), 2 * (1000 + LAUNCH_GAP_NS));
    assert_eq!(
        start_ns(&done, a, 4),
        late_ns + 500,
        "it came later than that"
    );
}

#[test]
fn what_is_no_kernel_follows_at_once() {
    let mut gpu = gpu(Sharing::Mps);
    let (_, a) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 0, a, copy_in(12_000));
    put(&mut gpu, 0, a, Op::Marker);
    let done = drain(&mut gpu);
    assert_eq!((start_ns(&done, a, 2), end_ns(&done, a, 3)), (1000, 3000));
}

/// A waiting kernel takes the SMs in the gap of one with higher priority, which then waits for it.
#[test]
fn in_a_gap_the_sms_are_free_for_others_whatever_their_priority() {
    let mut gpu = gpu(Sharing::Mps);
    let (_, hp) = client(&mut gpu, -5);
    let (_, be) = client(&mut gpu, 0);
    put(&mut gpu, 0, hp, kernel(whole_gpu(1, 10_000)));
    put(&mut gpu, 0, hp, kernel(whole_gpu(1, 10_000)));
    put(&mut gpu, 5, be, kernel(whole_gpu(1, 50_000)));
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, be, 1), 10_000);
    assert_eq!(start_ns(&done, hp, 2), 60_000);
}

#[test]
fn a_context_in_a_gap_keeps_its_turn() {
    let mut gpu = gpu(Sharing::TimeSlice);
    let (_, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 0, b, kernel(one_block(1000)));
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, a, 2), end_ns(&done, a, 1) + LAUNCH_GAP_NS);
    assert!(start_ns(&done, b, 1) > end_ns(&done, a, 2));
}

#[test]
fn a_context_that_dies_in_a_gap_leaves_nothing_to_happen() {
    for sharing in [Sharing::Mps, Sharing::TimeSlice] {
        let mut gpu = gpu(sharing);
        let (dead, a) = client(&mut gpu, 0);
        put(&mut gpu, 0, a, kernel(one_block(1000)));
        put(&mut gpu, 0, a, kernel(one_block(1000)));
        let first_ns = std::iter::from_fn(|| {
            let next_ns = gpu.next_event_ns()?;
            Some(gpu.advance(next_ns))
        })
        .flatten()
        .map(|completion| completion.at_ns)
        .next();
        let now_ns = first_ns.unwrap() + LAUNCH_GAP_NS / 2;
        gpu.destroy_context(now_ns, dead).unwrap();
        assert!(gpu.is_valid());
        assert_eq!(gpu.next_event_ns(), None);
    }
}

/// Reads at the peak bandwidth while it runs.
fn streaming() -> KernelShape {
    KernelShape {
        bandwidth_demand: 1.0,
        ..whole_gpu(1, 10 * MS)
    }
}

#[test]
fn copies_over_the_bus_take_their_bandwidth_from_kernels() {
    let end = |copies: &[Op]| {
        let mut gpu = gpu(Sharing::Mps);
        let (_, a) = client(&mut gpu, 0);
        put(&mut gpu, 0, a, kernel(streaming()));
        for copy in copies {
            let (_, b) = client(&mut gpu, 0);
            put(&mut gpu, 0, b, copy.clone());
        }
        let done = drain(&mut gpu);
        let (used, end_ns) = (gpu.utilisation(), end_ns(&done, a, 1));
        let last_ns = done.iter().map(|c| c.at_ns).max().unwrap();
        assert!(used.bandwidth_ns <= last_ns, "{used:?} in {last_ns}");
        // The kernel's ten milliseconds, and 12 of 898 GB/s for each copy.
        let copied_ns = (used.copy_to_device_ns + used.copy_to_host_ns) * 12 / 898;
        assert!(
            used.bandwidth_ns.abs_diff(10 * MS + copied_ns) < 10_000,
            "{used:?}"
        );
        end_ns
    };
    let bytes = 12 * 20 * MS;
    let (alone, one, two) = (
        end(&[]),
        end(&[copy_in(bytes)]),
        end(&[copy_in(bytes), copy_out(bytes)]),
    );
    assert_eq!(alone, 10 * MS);
    assert!(one > alone + 10 * MS * 12 / 898, "{one}");
    assert!(two > one + 10 * MS * 12 / 898, "{two}");
    let mut gpu = gpu(Sharing::Mps);
    let (_, a) = client(&mut gpu, 0);
    let (_, b) = client(&mut gpu, 0);
    put(&mut gpu, 0, a, kernel(whole_gpu(1, 10 * MS)));
    let direction = CopyDirection::HostToDevice;
    put(&mut gpu, 0, b, Op::Copy { direction, bytes });
    assert_eq!(end_ns(&drain(&mut gpu), a, 1), 10 * MS);
}

//! A device whose clock is limited by power, and the cost to running work.

mod common;

use common::{client, kernel, put, v100};
use softgpu::{Config, Device, Governor, Gpu, KernelShape, Sharing};

const MS: u64 = 1_000_000;
const SECONDS: u64 = 20;

fn t4() -> Device {
    Device::by_name("T4").expect("the table has a T4")
}

fn governed(sharing: Sharing) -> Gpu {
    let config = Config {
        governor: Some(Governor::of(&t4())),
        launch_gap_ns: 0,
        context_switch_ns: 0,
        ..Config::new(sharing, &t4())
    };
    Gpu::new(t4(), config)
}

/// A tenth of a second on all SMs.
fn shape(compute_demand: f64, bandwidth_demand: f64) -> KernelShape {
    KernelShape {
        grid_blocks: 40,
        threads_per_block: 1024,
        registers_per_thread: 64,
        shared_bytes_per_block: 0,
        block_ns: 100 * MS,
        compute_demand,
        bandwidth_demand,
    }
}

/// Duration of `seconds` of such kernels.
fn took(gpu: &mut Gpu, compute: f64, bandwidth: f64) -> f64 {
    let (_, stream) = client(gpu, 0);
    let begun_ns = gpu.now_ns();
    let mut last = 0;
    for _ in 0..10 * SECONDS {
        last = put(gpu, begun_ns, stream, kernel(shape(compute, bandwidth)));
    }
    let mut done = Vec::new();
    while gpu.last_completed(stream) != Some(last) {
        gpu.advance_to_completion(u64::MAX, &mut done);
        assert!(gpu.is_valid(), "at {} ns", gpu.now_ns());
    }
    (gpu.now_ns() - begun_ns) as f64 / 1e9
}

#[test]
fn what_computes_is_slowed_down_by_as_much_as_power_costs_of_the_clock() {
    for sharing in [Sharing::Mps, Sharing::TimeSlice] {
        // (112 - 10.5) W x 0.6 r³ + 10.5 W is less than 70 W: the clock stays.
        let seconds = took(&mut governed(sharing), 0.9, 0.0);
        assert_eq!(seconds, SECONDS as f64);
        // 101.5 W x 0.92 r³ = 59.5 W: r = .86, of which 5/9 slow down.
        let mut gpu = governed(sharing);
        let seconds = took(&mut gpu, 1.0, 0.8);
        let free = took(
            &mut Gpu::new(
                t4(),
                Config {
                    governor: None,
                    ..*gpu.config()
                },
            ),
            1.0,
            0.8,
        );
        let slowdown = seconds / free;
        let held = gpu.governed().expect("it is governed");
        assert!((1.08..1.11).contains(&slowdown), "{slowdown} {held:?}");
        assert!(
            held.is_power_capped && (68.0..72.0).contains(&held.power_w),
            "{held:?}"
        );
    }
}

#[test]
fn a_clock_comes_back_when_the_device_is_idle() {
    let mut gpu = governed(Sharing::Mps);
    took(&mut gpu, 1.0, 1.0);
    let now_ns = gpu.now_ns();
    assert!(gpu.governed().expect("it is governed").clock_mhz < 1_500);
    gpu.advance(now_ns + 1_000 * MS);
    let rested = gpu.governed().expect("it is governed");
    assert_eq!((rested.clock_mhz, rested.is_power_capped), (1_590, false));
    assert_eq!(gpu.next_event_ns(), None);
    assert!(gpu.is_valid());
}

#[test]
fn a_device_that_is_not_governed_says_nothing() {
    assert_eq!(Gpu::new(v100(), common::mps()).governed(), None);
}

/// Power and clock after bursts of 3 ms each 4 ms, the first after `offset_ns`.
fn bursts(offset_ns: u64) -> (f64, u32) {
    let mut gpu = governed(Sharing::Mps);
    let (_, stream) = client(&mut gpu, 0);
    let burst = KernelShape {
        block_ns: 3 * MS,
        ..shape(1.0, 0.3)
    };
    let (mut power_w, mut readings) = (0.0, 0);
    for period in 0..2_500 {
        let now_ns = offset_ns + period * 4 * MS;
        put(&mut gpu, now_ns, stream, kernel(burst));
        gpu.advance(now_ns + 3 * MS + MS / 2);
        power_w += gpu.governed().expect("it is governed").power_w;
        readings += 1;
    }
    let governed = gpu.governed().expect("it is governed");
    (power_w / f64::from(readings), governed.clock_mhz)
}

#[test]
fn bursts_take_the_same_power_wherever_the_ticks_fall() {
    // 10.5 W + 101.5 W x (0.6 + 0.4 x 0.3) x 3/4.
    let expected_w = 10.5 + 101.5 * 0.72 * 0.75;
    for offset_ns in [0, MS, 2 * MS, 3 * MS, 3 * MS + 999_999] {
        let (power_w, clock_mhz) = bursts(offset_ns);
        assert!((power_w - expected_w).abs() < 2.0, "{offset_ns}: {power_w}");
        assert!(clock_mhz >= 1_575, "{offset_ns}: {clock_mhz}");
    }
    // Kernels that begin after a tick and end before the next one.
    let mut gpu = governed(Sharing::Mps);
    let (_, stream) = client(&mut gpu, 0);
    for tick in 0..1_000 {
        let now_ns = tick * 10 * MS + 1;
        let burst = KernelShape {
            block_ns: 9 * MS,
            ..shape(0.9, 0.0)
        };
        put(&mut gpu, now_ns, stream, kernel(burst));
        gpu.advance(now_ns + 9 * MS + MS / 2);
    }
    let power_w = gpu.governed().expect("it is governed").power_w;
    assert!(
        (power_w - 10.5 - 101.5 * 0.6 * 0.81).abs() < 1.0,
        "{power_w}"
    );
}

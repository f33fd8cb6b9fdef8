//! The law of scaling: its invariants, and its results for known GPUs.

use std::path::Path;

use devices::Device;
use proptest::prelude::*;

use super::{Fit, Gpu, scale};
use crate::ResourceClass;
use crate::profile::{ClassRule, Percent, Profile};

const KERNEL: &str = "[[kernel]]\nname = \"f\"\ngrid = [1024, 1, 1]\nblock = [256, 1, 1]\nshared_bytes = 0\n\
    count = 4\nduration_ns = { sum = 400000, median = 100000, p95 = 110000 }\nregisters = 32\nsm_needed = 128\n\
    class = \"memory\"\nclass_rule = \"throughput\"\nstatic_shared_bytes = 0\nblocks_per_sm = 8\n\
    compute_pct = 20.00\ndram_pct = 90.00\n";

fn profile(gpu: &str, from: &str, to: &str) -> Profile {
    assert!(KERNEL.contains(from), "{from}");
    let kernel = KERNEL.replacen(from, to, 1);
    let text = format!(
        "format = \"pillion-profile\"\nversion = 2\ngpu = \"{gpu}\"\nsources = []\n\n{kernel}"
    );
    Profile::parse(&text, Path::new("p")).expect("right")
}

fn device(name: &str) -> Gpu {
    Gpu::from(&Device::by_name(name).expect("in the table"))
}

#[test]
fn a_profile_of_the_same_model_stays_what_it_is() {
    let before = profile("V100-SXM2-16GB", "f", "f");
    let named = Gpu {
        name: "Tesla V100-SXM2-16GB".to_owned(),
        sms: Some(80),
        clock_mhz: Some(1597),
        ..Gpu::default()
    };
    for gpu in [device("V100-SXM2-16GB"), named] {
        let (after, fit) = scale(before.clone(), &gpu);
        assert_eq!((after, fit), (before.clone(), Fit::Measured));
    }
}

#[test]
fn a_kernel_bound_by_memory_goes_with_the_bandwidth() {
    let (after, fit) = scale(profile("T4", "f", "f"), &device("A100-SXM4-40GB"));
    let kernel = &after.kernels[0];
    // 320 to 1555 GB/s.
    assert_eq!(
        kernel.durations.p95_ns,
        (110_000.0_f64 * 320.0 / 1555.0).ceil() as u64
    );
    // A T4's SM has room for 4 of these blocks, an A100's for 8: 8 on a T4 are impossible.
    assert_eq!(
        (kernel.class, kernel.class_rule),
        (ResourceClass::Memory, ClassRule::Scaled)
    );
    assert_eq!(kernel.evidence.dram_pct, Percent::new(90.0));
    assert_eq!(fit.word(), "scaled");
    assert_eq!(after.gpu, "A100-SXM4-40GB");
    assert!(
        after.notices[0].contains("measured on T4 and scaled to A100-SXM4-40GB"),
        "{:?}",
        after.notices
    );
    assert_eq!(
        Profile::parse(&after.write(), Path::new("p")).as_ref().ok(),
        Some(&after)
    );
}

#[test]
fn a_kernel_bound_by_compute_goes_with_sms_clock_and_units() {
    let compute = "compute_pct = 90.00\ndram_pct = 20.00";
    let mut before = profile(
        "A100-SXM4-40GB",
        "compute_pct = 20.00\ndram_pct = 90.00",
        compute,
    );
    before.kernels[0].class = ResourceClass::Compute;
    let (after, _) = scale(before, &device("A40"));
    // 1024 blocks: 10 on an A100's busiest SM, 13 on an A40's; 1410, 1740 MHz; 64, 128 units.
    let expected = 110_000.0 * 13.0 / 10.0 * 1410.0 / 1740.0 / 2.0;
    assert_eq!(
        after.kernels[0].durations.p95_ns,
        f64::ceil(expected) as u64
    );
    // 1536 threads are 6 blocks.
    assert_eq!(after.kernels[0].evidence.blocks_per_sm, Some(6));
    assert_eq!(after.kernels[0].sm_needed, 171);
}

/// An estimate by name protects nobody: a wrong class must not make a launch look shorter.
#[test]
fn an_estimated_class_makes_no_launch_shorter() {
    let scaled = |class: &str, rule: &str| {
        let mut before = profile(
            "A100-SXM4-80GB",
            "compute_pct = 20.00\ndram_pct = 90.00\n",
            "",
        );
        let kernel = &mut before.kernels[0];
        kernel.class = ResourceClass::from_word(class).expect("a class");
        kernel.class_rule = ClassRule::ALL
            .into_iter()
            .find(|known| known.word() == rule)
            .expect("a rule");
        let (after, _) = scale(before, &device("H100-SXM5-80GB"));
        let kernel = &after.kernels[0];
        assert_eq!(kernel.class.word(), class);
        kernel.durations.p95_ns
    };
    let unknown_ns = scaled("unknown", "unknown");
    for class in ["compute", "memory"] {
        assert_eq!(scaled(class, "name"), unknown_ns, "{class}");
    }
    assert!(scaled("compute", "given") < unknown_ns);
}

#[test]
fn a_class_is_judged_by_the_peaks_of_the_other_gpu() {
    // An H100's ridge is twice an A100's: a kernel barely memory-bound there is not so here.
    let before = profile(
        "H100-SXM5-80GB",
        "compute_pct = 20.00\ndram_pct = 90.00",
        "compute_pct = 60.00\ndram_pct = 65.00",
    );
    let (after, _) = scale(before, &device("A100-SXM4-80GB"));
    let kernel = &after.kernels[0];
    assert_eq!(kernel.class, ResourceClass::Compute);
    assert_eq!(
        kernel.evidence.compute_pct,
        Percent::new(100.0),
        "and so it takes as long as that needs"
    );
    let tflops = |name| Device::by_name(name).expect("in the table").fp32_tflops();
    let expected = 110_000.0 * 0.6 * tflops("H100-SXM5-80GB") / tflops("A100-SXM4-80GB");
    assert!(
        (kernel.durations.p95_ns as f64 - expected).abs() < 2.0,
        "{kernel:?} {expected}"
    );
}

#[test]
fn what_is_not_known_is_used_as_it_is() {
    for (from, to, unknown) in [
        ("RTX 9090", device("T4"), "RTX 9090"),
        (
            "T4",
            Gpu {
                name: "RTX 9090".to_owned(),
                sms: Some(200),
                ..Gpu::default()
            },
            "RTX 9090",
        ),
        ("unknown", device("T4"), "unknown"),
    ] {
        let before = profile(from, "f", "f");
        let (after, fit) = scale(before.clone(), &to);
        assert_eq!(after, before);
        assert!(
            fit.to_string()
                .contains(&format!("the peaks of {unknown} are not known")),
            "{fit}"
        );
    }
}

#[test]
fn a_share_of_a_gpu_is_another_gpu() {
    let text = profile("V100-SXM2-16GB", "f", "f").write();
    let text = text.replacen("\n[[kernel]]", "\n[measured]\nsms = 16\n\n[[kernel]]", 1);
    let text = text.replacen("class = \"memory\"", "class = \"compute\"", 1);
    let text = text.replacen("dram_pct = 90.00\n", "", 1);
    let of_share = Profile::parse(&text, Path::new("p")).expect("right");
    let (after, fit) = scale(of_share, &device("V100-SXM2-16GB"));
    assert_eq!(fit.word(), "scaled");
    // 64 blocks on an SM become 13.
    assert_eq!(
        after.kernels[0].durations.p95_ns,
        (110_000.0_f64 * 13.0 / 64.0).ceil() as u64
    );
}

#[test]
fn requests_get_shorter_by_what_their_kernels_do() {
    let mut before = profile("T4", "f", "f");
    let latency = crate::Durations {
        sum_ns: 1_500_000,
        median_ns: 500_000,
        p95_ns: 510_000,
    };
    before.requests = Some(crate::profile::Requests {
        rule: crate::profile::RequestRule::Gap(5),
        count: 3,
        latency,
        same_order: 3,
        order: vec![(0, 3)],
    });
    let (after, _) = scale(before, &device("A100-SXM4-40GB"));
    // Three kernels of 100 us last 20.579 us, and the host is as slow as it was.
    let kernels_ns = 3 * after.kernels[0].durations.median_ns;
    assert_eq!(kernels_ns, 3 * 20_579);
    let latency = after.requests.expect("still there").latency;
    assert_eq!(latency.median_ns, 200_000 + kernels_ns);
    assert_eq!(latency.sum_ns, 3 * (200_000 + kernels_ns));
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let class = prop::sample::select(vec!["memory", "compute", "unknown"]);
    let rule = prop::sample::select(vec![
        "throughput",
        "roofline",
        "vendor",
        "estimated",
        "given",
        "unknown",
    ]);
    let blocks = (1u32..100_000, 1u32..=32, 0u32..=1024);
    let percents = (
        prop::option::of(0.0..=100.0f64),
        prop::option::of(0.0..=100.0f64),
        prop::option::of(0.0..=100.0f64),
    );
    let place = prop::option::of((1u64..1_000_000_000, 1u64..10_000_000));
    (class, rule, blocks, percents, place, 1u64..10_000_000_000).prop_map(
        |(class, rule, (grid, warps, registers), (compute, dram, l2), place, ns)| {
            let mut profile = profile("T4", "f", "f");
            let kernel = &mut profile.kernels[0];
            kernel.class = ResourceClass::from_word(class).expect("a class");
            kernel.class_rule = ClassRule::ALL
                .into_iter()
                .find(|known| known.word() == rule)
                .expect("a rule");
            kernel.grid = [grid, 1, 1];
            kernel.block = [warps * 32, 1, 1];
            kernel.registers = registers.min(255);
            kernel.durations = crate::Durations {
                sum_ns: ns * 4,
                median_ns: ns,
                p95_ns: ns,
            };
            kernel.evidence.compute_pct = compute.and_then(Percent::new);
            kernel.evidence.dram_pct = dram.and_then(Percent::new);
            kernel.evidence.l2_pct = l2.and_then(Percent::new);
            kernel.evidence.roofline =
                place.map(|(mflop_per_s, mbyte_per_s)| crate::profile::Roofline {
                    mflop_per_s,
                    mbyte_per_s,
                });
            profile
        },
    )
}

fn any_gpu() -> impl Strategy<Value = Gpu> {
    let capability = prop::sample::select(vec![(7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (11, 0)]);
    (1u32..300, 100u32..4000, 10u32..10_000, capability).prop_map(
        |(sms, clock, bandwidth, capability)| Gpu {
            name: "another".to_owned(),
            sms: Some(sms),
            clock_mhz: Some(clock),
            bandwidth_gb_s: Some(bandwidth),
            compute_capability: Some(capability),
        },
    )
}

proptest! {
    #[test]
    fn on_a_gpu_of_the_same_figures_nothing_changes(before in any_profile()) {
        // Throughputs below the line make no class of `throughput`.
        let twin = Gpu { name: "twin".to_owned(), ..device("T4") };
        let (after, _) = scale(before.clone(), &twin);
        let (before, after) = (&before.kernels[0], &after.kernels[0]);
        prop_assert_eq!(before.durations, after.durations);
        prop_assert_eq!(before.evidence.compute_pct, after.evidence.compute_pct);
        prop_assert_eq!(before.evidence.dram_pct, after.evidence.dram_pct);
        prop_assert_eq!(before.evidence.roofline, after.evidence.roofline);
    }

    #[test]
    fn a_better_gpu_is_never_slower(before in any_profile(), gpu in any_gpu(), more in (0u32..100, 0u32..1000, 0u32..2000)) {
        let better = Gpu {
            sms: gpu.sms.map(|sms| sms + more.0),
            clock_mhz: gpu.clock_mhz.map(|clock| clock + more.1),
            bandwidth_gb_s: gpu.bandwidth_gb_s.map(|bandwidth| bandwidth + more.2),
            ..gpu.clone()
        };
        let p95 = |gpu: &Gpu| scale(before.clone(), gpu).0.kernels[0].durations.p95_ns;
        prop_assert!(p95(&better) <= p95(&gpu), "{} on {:?}, {} on {:?}", p95(&better), better, p95(&gpu), gpu);
    }

    #[test]
    fn what_is_scaled_can_be_written_and_read(before in any_profile(), gpu in any_gpu()) {
        let (after, fit) = scale(before, &gpu);
        prop_assert_eq!(fit.word(), "scaled");
        prop_assert_eq!(Profile::parse(&after.write(), Path::new("p")).ok(), Some(after));
    }
}

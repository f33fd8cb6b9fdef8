//! The resource class of a kernel, by rules, of which the first applicable one decides. For sharing
//! a GPU, the resources matter for which two jobs contend: the SMs' execution units, device memory
//! and the level 2 cache. A kernel that saturates its own SM's L1 does not disturb a neighbour: the
//! tools' "memory throughput", the busiest of L1, L2 and device memory, is no measure of that. A
//! real `matmul_kernel` on an H100 shows SM 66 %, memory 99 %, device memory 16 %: bound by its L1,
//! and for sharing it is `compute`.
//! 1. `throughput`: SM % and DRAM % or L2 % are known. Shared memory traffic is the greater of DRAM
//!    and L2. The greater of the two sides, if it reached [`BOUND_PCT`], names the class; so does
//!    the only counted side. Orion (EuroSys'24) draws the same line, in the same way.
//! 2. `roofline`: floating-point operations and bytes were counted. Above the ridge `compute`,
//!    below it `memory`; but not where the throughputs are known and the deciding one is below
//!    [`BUSY_PCT`]: such a kernel waits for latency. The counters lack operations of tensor cores;
//!    where their pipes were busy, this rule is not used.
//! 3. `vendor`: only the tool's two throughputs are known. As Nsight Compute judges: if both are
//!    below [`BOUND_PCT`], nothing bounds the kernel; if one is greater by [`VENDOR_GAP_PCT`], that
//!    does. A kernel with low measured throughputs stays `unknown`, by `throughput` or `vendor`.
//! 4. `estimated`: no counters, but the shapes of the operator's tensors, or the sizes of the call:
//!    operations ÷ bytes against the ridge of the device, or of GPUs
//!    ([`profiler::family::Intensity`]). A kernel that only surrounds a product or convolution
//!    (change of layout, bias, sum of partial products) is judged by its name instead.
//! 5. `name`: the family of its name ([`profiler::family`]).
//! 6. `unknown`.

use profiler::family::{self, Family, Launch, rule_of};
pub use profiler::resource_class::BOUND_PCT;
use profiler::{ClassRule, Estimate, ResourceClass};

use crate::source::{Counters, Work};

/// Throughput below which a resource bounds nothing, percent of the peak: half of [`BOUND_PCT`].
pub const BUSY_PCT: f64 = 30.0;

/// The least difference of the throughputs, percentage points (NVIDIA's `SpeedOfLight.py`).
pub const VENDOR_GAP_PCT: f64 = 10.0;

/// Operations ÷ bytes at which a device goes from memory-bound to compute-bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ridge {
    /// For the FP32 units.
    pub fp32: f64,
    /// For the tensor cores.
    pub tensor: f64,
}

/// Half-precision operations per clock of the tensor cores of one SM, without sparsity, a
/// multiply-add counting as two: vendor peaks ÷ (SMs × clock). V100 125 TFLOPS, T4 65, A100 312,
/// A40 150, L40S 362, H100 SXM 989, B200 2 250.
#[must_use]
pub const fn tensor_flop_per_clock(major: u32, minor: u32) -> f64 {
    match (major, minor) {
        (8, 0) => 2048.0,
        (9, _) => 4096.0,
        (10, _) => 8192.0,
        _ => 1024.0,
    }
}

/// A class and the rule behind it.
pub type Verdict = (ResourceClass, ClassRule);

/// The class of a kernel from its mean counters, its operator's work, and its device's ridge.
#[must_use]
pub fn classify(counters: Option<&Counters>, work: Option<&Work>, ridge: Option<Ridge>) -> Verdict {
    let counted = counters.and_then(|counters| {
        by_throughput(counters)
            .or_else(|| by_roofline(counters))
            .or_else(|| by_vendor(counters))
            .or_else(|| unbound(counters))
    });
    counted
        .or_else(|| work.zip(ridge).map(|(work, ridge)| by_shapes(work, ridge)))
        .unwrap_or((ResourceClass::Unknown, ClassRule::Unknown))
}

/// Completes a verdict of [`classify`] for an operator's kernel that computes `work`: its name or
/// sizes decide if nothing was counted and no shape tells more. Returns a name's estimate.
#[must_use]
pub fn by_name(
    verdict: Verdict,
    work: Option<&Work>,
    launch: &Launch<'_>,
) -> (Verdict, Option<Estimate>) {
    let is_open = match verdict.1 {
        ClassRule::Unknown => true,
        ClassRule::Estimated => {
            work.is_some_and(Work::is_product) && is_around_a_product(launch.name)
        }
        _ => false,
    };
    if !is_open {
        return (verdict, None);
    }
    match family::estimate(launch) {
        Some(estimate) => {
            let is_by_name = estimate.rule() == ClassRule::Name;
            let verdict = (estimate.class, estimate.rule());
            (verdict, is_by_name.then_some(estimate))
        }
        None => ((ResourceClass::Unknown, ClassRule::Unknown), None),
    }
}

/// Whether the name shows that the kernel only runs before or after a product or convolution.
fn is_around_a_product(name: &str) -> bool {
    rule_of(name).is_some_and(|rule| {
        !matches!(
            rule.family,
            Family::Gemm | Family::Conv | Family::DepthwiseConv
        )
    })
}

/// Throughput of the memory shared between SMs: the greater of DRAM and L2.
fn shared_memory_pct(counters: &Counters) -> Option<f64> {
    match (counters.dram_pct, counters.l2_pct) {
        (Some(dram), Some(l2)) => Some(dram.max(l2)),
        (dram, l2) => dram.or(l2),
    }
}

fn by_throughput(counters: &Counters) -> Option<Verdict> {
    let (compute, memory) = match (counters.compute_pct, shared_memory_pct(counters)) {
        (Some(compute), Some(memory)) => (compute, memory),
        // The vendor's rule has more information.
        (Some(_), None) if counters.memory_pct.is_some() => return None,
        (Some(compute), None) => (compute, 0.0),
        (None, Some(memory)) => (0.0, memory),
        (None, None) => return None,
    };
    let class = if compute.max(memory) < BOUND_PCT {
        return None;
    } else if compute >= memory {
        ResourceClass::Compute
    } else {
        ResourceClass::Memory
    };
    Some((class, ClassRule::Throughput))
}

fn by_roofline(counters: &Counters) -> Option<Verdict> {
    if counters.tensor_pct.is_some_and(|pct| pct > 1.0) {
        return None;
    }
    let flop = counters.fp32_per_s? + counters.fp64_fp16_per_s.unwrap_or(0.0);
    let intensity = flop / counters.dram_bytes_per_s.filter(|&bytes| bytes > 0.0)?;
    let ridge = counters.fp32_peak_per_s? / counters.dram_peak_bytes_per_s.filter(|&b| b > 0.0)?;
    if flop <= 0.0 || !intensity.is_finite() || !ridge.is_finite() {
        return None;
    }
    let (class, busy) = if intensity >= ridge {
        (ResourceClass::Compute, counters.compute_pct)
    } else {
        (ResourceClass::Memory, shared_memory_pct(counters))
    };
    let is_idle = busy.is_some_and(|pct| pct < BUSY_PCT);
    (!is_idle).then_some((class, ClassRule::Roofline))
}

fn by_vendor(counters: &Counters) -> Option<Verdict> {
    if shared_memory_pct(counters).is_some() {
        return None;
    }
    let (compute, memory) = (counters.compute_pct?, counters.memory_pct?);
    if compute.max(memory) < BOUND_PCT || (compute - memory).abs() < VENDOR_GAP_PCT {
        return None;
    }
    let class = if compute > memory {
        ResourceClass::Compute
    } else {
        ResourceClass::Memory
    };
    Some((class, ClassRule::Vendor))
}

fn by_shapes(work: &Work, ridge: Ridge) -> Verdict {
    let ridge = if work.is_tensor {
        ridge.tensor
    } else {
        ridge.fp32
    };
    let class = if work.flop >= work.bytes * ridge {
        ResourceClass::Compute
    } else {
        ResourceClass::Memory
    };
    (class, ClassRule::Estimated)
}

fn unbound(counters: &Counters) -> Option<Verdict> {
    counters.compute_pct?;
    let rule = match (shared_memory_pct(counters), counters.memory_pct) {
        (Some(_), _) => ClassRule::Throughput,
        (None, Some(_)) => ClassRule::Vendor,
        (None, None) => return None,
    };
    Some((ResourceClass::Unknown, rule))
}

#[cfg(test)]
mod tests {
    use profiler::family::Intensity;
    use profiler::{ClassRule, Operator, ResourceClass};

    use super::{Launch, Ridge, by_name, classify};
    use crate::source::{Counters, Work};

    fn counters(compute: f64, memory: f64, dram: Option<f64>, l2: Option<f64>) -> Counters {
        Counters {
            compute_pct: Some(compute),
            memory_pct: Some(memory),
            dram_pct: dram,
            l2_pct: l2,
            ..Counters::default()
        }
    }

    #[test]
    fn a_kernel_bound_by_its_l1_is_not_bound_by_memory() {
        // The real H100 matmul_kernel: below the ridge of device memory, which it hardly uses.
        let matmul = Counters {
            fp32_per_s: Some(8.03e9),
            fp32_peak_per_s: Some(15.7e9),
            dram_bytes_per_s: Some(1e9),
            dram_peak_bytes_per_s: Some(1e9),
            ..counters(66.3, 99.4, Some(16.2), Some(22.7))
        };
        let expected = (ResourceClass::Compute, ClassRule::Throughput);
        assert_eq!(classify(Some(&matmul), None, None), expected);
    }

    #[test]
    fn each_rule_has_its_turn() {
        use ClassRule::{Throughput, Unknown, Vendor};
        use ResourceClass as Class;
        for (counters, expected) in [
            (
                counters(20.0, 90.0, Some(85.0), None),
                (Class::Memory, Throughput),
            ),
            (
                counters(20.0, 90.0, Some(10.0), Some(70.0)),
                (Class::Memory, Throughput),
            ),
            (
                counters(90.0, 20.0, Some(10.0), None),
                (Class::Compute, Throughput),
            ),
            (
                counters(30.0, 40.0, Some(10.0), None),
                (Class::Unknown, Throughput),
            ),
            (counters(20.0, 90.0, None, None), (Class::Memory, Vendor)),
            (counters(85.0, 90.0, None, None), (Class::Unknown, Vendor)),
            (Counters::default(), (Class::Unknown, Unknown)),
            (
                Counters {
                    compute_pct: Some(97.3),
                    ..Counters::default()
                },
                (Class::Compute, Throughput),
            ),
            (
                Counters {
                    dram_pct: Some(90.4),
                    ..Counters::default()
                },
                (Class::Memory, Throughput),
            ),
            (
                Counters {
                    compute_pct: Some(22.3),
                    ..Counters::default()
                },
                (Class::Unknown, Unknown),
            ),
        ] {
            assert_eq!(
                classify(Some(&counters), None, None),
                expected,
                "{counters:?}"
            );
        }
    }

    #[test]
    fn the_roofline_decides_where_throughputs_do_not() {
        let place = |flop: f64, tensor: Option<f64>| Counters {
            fp32_per_s: Some(flop),
            fp32_peak_per_s: Some(10.0),
            dram_bytes_per_s: Some(1.0),
            dram_peak_bytes_per_s: Some(1.0),
            tensor_pct: tensor,
            ..counters(50.0, 50.0, Some(40.0), None)
        };
        let class = |counters: &Counters| classify(Some(counters), None, None);
        let roofline = ClassRule::Roofline;
        assert_eq!(
            class(&place(20.0, None)),
            (ResourceClass::Compute, roofline)
        );
        assert_eq!(class(&place(5.0, None)), (ResourceClass::Memory, roofline));
        let throughput = ClassRule::Throughput;
        assert_eq!(
            class(&place(5.0, Some(30.0))),
            (ResourceClass::Unknown, throughput)
        );
        let idle = Counters {
            dram_pct: Some(5.0),
            ..place(5.0, None)
        };
        assert_eq!(class(&idle), (ResourceClass::Unknown, throughput));
    }

    #[test]
    fn the_name_decides_where_nothing_else_does_and_what_only_helps_an_operator() {
        use ClassRule::{Estimated, Name, Throughput, Unknown, Vendor};
        use ResourceClass as Class;
        let product = work("aten::mm");
        let layout = "void nchwToNhwcKernel<float, float, float, true, false>(int)";
        let offsets = "cask_cudnn::computeOffsetsKernel";
        let bias = "void at::native::vectorized_elementwise_kernel<4, Add>(int)";
        let sum = "void at::native::reduce_kernel<128, 4, Sum>(int)";
        for (verdict, name, expected) in [
            (
                (Class::Unknown, Unknown),
                "volta_sgemm_128x64_tn",
                (Class::Compute, Name),
            ),
            (
                (Class::Unknown, Unknown),
                "softmax_warp_forward",
                (Class::Memory, Name),
            ),
            ((Class::Unknown, Unknown), "f", (Class::Unknown, Unknown)),
            (
                (Class::Unknown, Throughput),
                "softmax",
                (Class::Unknown, Throughput),
            ),
            (
                (Class::Unknown, Vendor),
                "softmax",
                (Class::Unknown, Vendor),
            ),
            (
                (Class::Memory, Estimated),
                "sgemm",
                (Class::Memory, Estimated),
            ),
            ((Class::Compute, Estimated), layout, (Class::Memory, Name)),
            ((Class::Compute, Estimated), bias, (Class::Memory, Name)),
            ((Class::Compute, Estimated), sum, (Class::Memory, Name)),
            (
                (Class::Compute, Estimated),
                "nobody_knows_it",
                (Class::Compute, Estimated),
            ),
            (
                (Class::Compute, Estimated),
                offsets,
                (Class::Unknown, Unknown),
            ),
        ] {
            let launch = Launch {
                name,
                ..Launch::default()
            };
            let (found, estimate) = by_name(verdict, Some(&product), &launch);
            assert_eq!(found, expected, "{name}");
            assert_eq!(estimate.is_some(), expected.1 == Name, "{name}");
        }
        // For anything but a product the shapes are the kernel's.
        let launch = Launch {
            name: sum,
            ..Launch::default()
        };
        let by_shapes = (Class::Compute, Estimated);
        let found = by_name(by_shapes, Some(&work("elementwise")), &launch);
        assert_eq!(found, (by_shapes, None));
    }

    #[test]
    fn sizes_of_the_call_decide_by_the_rule_of_shapes() {
        let operator = Operator {
            name: "gemm".to_owned(),
            sizes: vec![4096, 8, 4096],
            number: Some("f16".to_owned()),
            ..Operator::default()
        };
        let launch = Launch {
            name: "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
            intensity: Intensity::of(&operator),
            ..Launch::default()
        };
        let unknown = (ResourceClass::Unknown, ClassRule::Unknown);
        let expected = (ResourceClass::Memory, ClassRule::Estimated);
        assert_eq!(by_name(unknown, None, &launch), (expected, None));
    }

    fn work(operator: &'static str) -> Work {
        Work {
            operator,
            flop: 1.0,
            bytes: 1.0,
            is_tensor: false,
            call: None,
        }
    }

    #[test]
    fn without_counters_shapes_are_an_estimate() {
        let work = |flop: f64, is_tensor| Work {
            operator: "aten::mm",
            flop,
            bytes: 1.0,
            is_tensor,
            call: None,
        };
        let ridge = Some(Ridge {
            fp32: 10.0,
            tensor: 100.0,
        });
        let class = |work: &Work| classify(None, Some(work), ridge);
        let estimated = ClassRule::Estimated;
        assert_eq!(
            class(&work(50.0, false)),
            (ResourceClass::Compute, estimated)
        );
        assert_eq!(class(&work(50.0, true)), (ResourceClass::Memory, estimated));
        let nothing = (ResourceClass::Unknown, ClassRule::Unknown);
        assert_eq!(classify(None, Some(&work(50.0, true)), None), nothing);
    }
}

//! How well inference tasks share a GPU, from properties of their models (`OLTunes` 2025, sections
//! 2.2 and 3.4.2). Two numbers per model decide. Its *ratio* compares how many of its kernels reach
//! half of the GPU's arithmetic throughput with how many reach half of its memory throughput
//! (equation 1). Its [`Variant`] is the small or the large one of its family. Models of different
//! ratio, and a small one beside a large one, hinder each other less. Scores are 0 to 100.
//!
//! # What is chosen here
//! - **No kernel of one kind.** The paper says that then "only the number of non-zero kernels" is
//!   considered. Without memory-bound kernels the ratio is the number of compute-bound ones.
//!   Without compute-bound kernels that would make the most memory-bound model the most
//!   compute-intensive; its ratio is 0, as equation 1 gives. So more compute-bound kernels never
//!   lower a ratio, and more memory-bound ones never raise it.
//! - **No variant.** Equation 11 has no value for a model without variants (GPT-2 in the paper's
//!   Table 6). Such a pair has no variant score; a batch of only such pairs is judged by workloads.
//! - **Any family.** Variants of different families count as of one: the equation says nothing
//!   else.

/// Least affinity with which a task joins a batch (the paper's default).
pub const AFFINITY_MIN: f64 = 70.0;

/// Least ratio of a compute-intensive model (section 2.2.1).
pub const COMPUTE_RATIO_MIN: f64 = 1.2;

/// How many kernels of a model reach half of the GPU's throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernels {
    /// Of the arithmetic throughput.
    pub compute: u32,
    /// Of the memory throughput.
    pub memory: u32,
}

/// The resource that a model exhausts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intensity {
    /// Arithmetic.
    Compute,
    /// Memory throughput, or nothing.
    Memory,
}

impl Kernels {
    /// Equation 1; 0 of a model without compute-bound kernels.
    #[must_use]
    pub fn ratio(self) -> f64 {
        f64::from(self.compute) / f64::from(self.memory.max(1))
    }

    /// Compute from [`COMPUTE_RATIO_MIN`] on, and where all bound kernels are compute-bound.
    #[must_use]
    pub fn intensity(self) -> Intensity {
        let has_only_compute = self.memory == 0 && self.compute > 0;
        if has_only_compute || self.ratio() >= COMPUTE_RATIO_MIN {
            Intensity::Compute
        } else {
            Intensity::Memory
        }
    }
}

/// Which of its family a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// A large one, of higher accuracy.
    High,
    /// A small one.
    Low,
    /// The family has one model.
    Only,
}

/// The properties of a task that decide affinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    /// Ratio of its model ([`Kernels::ratio`]).
    pub ratio: f64,
    /// Variant of its model.
    pub variant: Variant,
}

/// Equation 9: 50 for equal ratios, near 100 for very different ones.
#[must_use]
pub fn of_workloads(one: f64, other: f64) -> f64 {
    // Rounding would reach 100 for large differences, which the sigmoid does not.
    (100.0 / (1.0 + (-(one - other).abs()).exp())).min(100.0 - f64::EPSILON * 100.0)
}

/// Equation 11; `None` where a model has no variants.
#[must_use]
pub fn of_variants(one: Variant, other: Variant) -> Option<f64> {
    match (one, other) {
        (Variant::Only, _) | (_, Variant::Only) => None,
        (Variant::High, Variant::High) => Some(0.0),
        (Variant::Low, Variant::Low) => Some(50.0),
        (Variant::High, Variant::Low) | (Variant::Low, Variant::High) => Some(100.0),
    }
}

/// Of a task and a batch: means over the batch of each kind (equation 10), and of both; empty: 100.
#[must_use]
pub fn of_batch(task: Traits, batch: &[Traits]) -> f64 {
    if batch.is_empty() {
        return 100.0;
    }
    let workloads = batch
        .iter()
        .map(|with| of_workloads(task.ratio, with.ratio));
    let workload = workloads.sum::<f64>() / batch.len() as f64;
    let pairs = batch.iter();
    let pairs = pairs.filter_map(|with| of_variants(task.variant, with.variant));
    let (sum, count) = pairs.fold((0.0, 0.0), |(sum, count), score| (sum + score, count + 1.0));
    if count == 0.0 {
        workload
    } else {
        f64::midpoint(workload, sum / count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn traits(ratio: f64, variant: Variant) -> Traits {
        Traits { ratio, variant }
    }

    fn admits(one: Traits, other: Traits) -> bool {
        of_batch(one, &[other]) >= AFFINITY_MIN
    }

    #[test]
    fn the_two_scores_have_the_papers_values() {
        assert_eq!(of_workloads(1.0, 1.0), 50.0);
        assert!((of_workloads(0.0, 1.0) - 73.105_857_863).abs() < 1e-6);
        assert_eq!(of_variants(Variant::High, Variant::Low), Some(100.0));
        assert_eq!(of_variants(Variant::Low, Variant::Low), Some(50.0));
        assert_eq!(of_variants(Variant::High, Variant::High), Some(0.0));
        let batch = [traits(1.0, Variant::High), traits(3.0, Variant::Low)];
        let of = of_batch(traits(1.0, Variant::Low), &batch);
        let workload = f64::midpoint(50.0, of_workloads(1.0, 3.0));
        assert!((of - f64::midpoint(workload, 75.0)).abs() < 1e-9);
    }

    #[test]
    fn a_model_without_compute_kernels_is_memory_intensive_however_many_others_it_has() {
        for memory in [0, 1, 2, 100] {
            let kernels = Kernels { compute: 0, memory };
            assert_eq!(kernels.intensity(), Intensity::Memory, "{kernels:?}");
            assert_eq!(kernels.ratio(), 0.0);
        }
    }

    #[test]
    fn a_model_with_compute_kernels_alone_is_compute_intensive_and_its_ratio_is_their_number() {
        for compute in [1, 2, 100] {
            let kernels = Kernels { compute, memory: 0 };
            assert_eq!(kernels.intensity(), Intensity::Compute, "{kernels:?}");
            assert_eq!(kernels.ratio(), f64::from(compute));
        }
        let [below, above] = [119, 120].map(|compute| Kernels {
            compute,
            memory: 100,
        });
        assert_eq!(below.intensity(), Intensity::Memory);
        assert_eq!(above.intensity(), Intensity::Compute);
    }

    #[test]
    fn models_without_variants_are_judged_by_their_workloads() {
        let only = |ratio| traits(ratio, Variant::Only);
        assert_eq!(of_batch(only(1.0), &[only(1.0)]), 50.0);
        assert_eq!(of_batch(only(1.0), &[traits(1.0, Variant::High)]), 50.0);
        assert!(admits(only(0.0), only(0.86)));
        assert!(!admits(only(0.0), only(0.84)));
    }

    proptest! {
        #[test]
        fn workload_affinity_is_symmetric_and_from_50_to_below_100(a in 0.0..1e3, b in 0.0..1e3) {
            let of = of_workloads(a, b);
            prop_assert!((50.0..100.0).contains(&of), "{of}");
            prop_assert_eq!(of, of_workloads(b, a));
        }

        #[test]
        fn high_and_low_always_join_and_high_and_high_never(a in 0.0..1e3, b in 0.0..1e3) {
            prop_assert!(admits(traits(a, Variant::High), traits(b, Variant::Low)));
            prop_assert!(!admits(traits(a, Variant::High), traits(b, Variant::High)));
        }

        #[test]
        fn low_and_low_join_from_a_difference_of_ln_9_on(a in 0.0..10.0f64, by in 0.0..5.0f64) {
            let least = 9f64.ln();
            prop_assume!((by - least).abs() > 1e-9);
            let joins = admits(traits(a, Variant::Low), traits(a + by, Variant::Low));
            prop_assert_eq!(joins, by > least);
        }

        #[test]
        fn ratios_keep_the_order_of_kernel_counts(
            compute in 0u32..1000, memory in 0u32..1000, more in 0u32..1000,
        ) {
            let ratio = |compute, memory| Kernels { compute, memory }.ratio();
            prop_assert!(ratio(compute + more, memory) >= ratio(compute, memory));
            prop_assert!(ratio(compute, memory + more) <= ratio(compute, memory));
        }
    }
}

//! Look-up against a linear search through all kernels, and its order of fall-backs.

use proptest::prelude::*;

use super::{Match, ProfileIndex};
use crate::profile::Evidence;
use crate::{ClassRule, Durations, KernelProfile, Operator, Profile, ResourceClass};

fn kernel(name: &str, blocks: u32, threads: u32, shared_bytes: u32, p95_ns: u64) -> KernelProfile {
    KernelProfile {
        name: name.to_owned(),
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared_bytes,
        count: 1,
        durations: Durations {
            sum_ns: p95_ns,
            median_ns: p95_ns,
            p95_ns,
        },
        registers: 32,
        sm_needed: 1,
        class: ResourceClass::Unknown,
        class_rule: ClassRule::Given,
        mangled: None,
        evidence: Evidence::default(),
        operator: None,
    }
}

fn gemm(sizes: &[u64], layout: Option<&str>) -> Operator {
    Operator {
        name: "gemm".to_owned(),
        sizes: sizes.to_vec(),
        layout: layout.map(str::to_owned),
        ..Operator::default()
    }
}

fn within(operator: Operator, kernel: KernelProfile) -> KernelProfile {
    KernelProfile {
        operator: Some(operator),
        ..kernel
    }
}

fn index(kernels: Vec<KernelProfile>) -> ProfileIndex {
    ProfileIndex::new(Profile {
        gpu: "T4".to_owned(),
        kernels,
        ..Profile::default()
    })
}

fn found(
    index: &ProfileIndex,
    name: &str,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
) -> (Option<u64>, Match) {
    let (kernel, quality) = index.find(name, [blocks, 1, 1], [threads, 1, 1], shared_bytes);
    (kernel.map(|kernel| kernel.durations.p95_ns), quality)
}

#[test]
fn fall_backs_go_from_exact_over_shape_to_name_and_take_the_longest() {
    let index = index(vec![
        kernel("gemm", 8, 128, 0, 10),
        kernel("gemm", 8, 128, 4096, 70),
        kernel("gemm", 8, 128, 1024, 50),
        kernel("gemm", 16, 128, 0, 40),
        kernel("fill", 1, 32, 0, 3),
    ]);
    for (name, blocks, threads, shared_bytes, expected) in [
        ("gemm", 8, 128, 0, (Some(10), Match::Exact)),
        ("gemm", 8, 128, 1024, (Some(50), Match::Exact)),
        ("gemm", 8, 128, 7, (Some(70), Match::WithoutShared)),
        ("gemm", 16, 128, 7, (Some(40), Match::WithoutShared)),
        ("gemm", 16, 64, 0, (Some(70), Match::NameOnly)),
        ("fill", 2, 32, 0, (Some(3), Match::NameOnly)),
        ("gem", 8, 128, 0, (None, Match::Unknown)),
        ("", 8, 128, 0, (None, Match::Unknown)),
    ] {
        let found = found(&index, name, blocks, threads, shared_bytes);
        assert_eq!(found, expected, "{name} {blocks} {threads} {shared_bytes}");
    }
}

#[test]
fn instances_of_a_template_are_told_apart_in_any_spelling() {
    let index = index(vec![
        kernel(
            "void scale<float>(float *, float, int, double)",
            8,
            128,
            0,
            10,
        ),
        kernel(
            "void scale<double>(double*, double, int, double)",
            8,
            128,
            0,
            20,
        ),
        kernel("gemm", 4, 128, 64, 50),
    ]);
    let find = |name: &str, blocks: u32, shared_bytes: u32| {
        let (kernel, quality) =
            index.find_in_any_spelling(name, [blocks, 1, 1], [128, 1, 1], shared_bytes);
        (kernel.map(|kernel| kernel.durations.p95_ns), quality)
    };
    let float = "_Z5scaleIfEvPT_S0_id";
    assert_eq!(find(float, 8, 0), (Some(10), Match::Exact));
    assert_eq!(find(float, 8, 1), (Some(10), Match::WithoutShared));
    assert_eq!(find(float, 9, 0), (Some(10), Match::NameOnly));
    assert_eq!(find("_Z5scaleIdEvPT_S0_id", 8, 0), (Some(20), Match::Exact));
    assert_eq!(find("_Z5scaleIiEvPT_S0_id", 8, 0), (Some(20), Match::Exact));
    assert_eq!(find("gemm", 4, 64), (Some(50), Match::Exact));
    assert_eq!(find("gemm_", 4, 64), (None, Match::Unknown));
    assert_eq!(find("", 4, 64), (None, Match::Unknown));
}

#[test]
fn an_empty_profile_knows_nothing() {
    let index = index(Vec::new());
    assert_eq!(found(&index, "gemm", 1, 1, 0), (None, Match::Unknown));
    assert_eq!(index.profile().kernels.len(), 0);
}

#[test]
fn a_name_looked_up_once_finds_every_shape() {
    let index = index(vec![kernel("b", 1, 32, 0, 1), kernel("a", 1, 32, 0, 2)]);
    let name = index.name_id("a");
    assert!(name.is_some());
    assert_eq!(
        index.find_shape(name, [1; 3], [1; 3], 0),
        index.find("a", [1; 3], [1; 3], 0)
    );
    assert_eq!(
        index.find_shape(None, [1; 3], [1; 3], 0),
        (None, Match::Unknown)
    );
}

/// The module's documented rules, without any order or index.
fn plain_search(
    kernels: &[KernelProfile],
    name: &str,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
) -> (Option<u64>, Match) {
    let longest = |matches: &dyn Fn(&&KernelProfile) -> bool| {
        kernels
            .iter()
            .filter(matches)
            .map(|kernel| kernel.durations.p95_ns)
            .max()
    };
    let same_name = |kernel: &&KernelProfile| kernel.name == name;
    let same_shape = |kernel: &&KernelProfile| {
        same_name(kernel) && kernel.grid[0] == blocks && kernel.block[0] == threads
    };
    let exact = |kernel: &&KernelProfile| same_shape(kernel) && kernel.shared_bytes == shared_bytes;
    if let Some(p95_ns) = longest(&exact) {
        (Some(p95_ns), Match::Exact)
    } else if let Some(p95_ns) = longest(&same_shape) {
        (Some(p95_ns), Match::WithoutShared)
    } else if let Some(p95_ns) = longest(&same_name) {
        (Some(p95_ns), Match::NameOnly)
    } else {
        (None, Match::Unknown)
    }
}

#[test]
fn a_kernel_is_found_by_the_name_the_driver_knows() {
    let mangled = KernelProfile {
        mangled: Some("_ZN2nn4gemmILi8EEEvPf".to_owned()),
        ..kernel("void nn::gemm<8>(float *)", 8, 128, 0, 10)
    };
    let demangled = kernel(
        "void at::(anonymous namespace)::fill<float>(float*)",
        4,
        32,
        0,
        20,
    );
    let wider = kernel("void at::<unnamed>::fill<double>(double *)", 8, 32, 0, 30);
    let index = index(vec![
        mangled,
        demangled,
        wider,
        kernel("plain", 1, 32, 0, 40),
    ]);
    let driver = "_ZN2at12_GLOBAL__N_14fillIfEEvPf";
    for (name, blocks, expected) in [
        ("_ZN2nn4gemmILi8EEEvPf", 8, (Some(10), Match::Exact)),
        // The profile knows gemm's mangled name, and this is another.
        ("_ZN2nn4gemmILi4EEEvPf", 8, (None, Match::Unknown)),
        (driver, 4, (Some(20), Match::Exact)),
        (driver, 8, (Some(30), Match::Exact)),
        (driver, 5, (Some(30), Match::NameOnly)),
        ("plain", 1, (Some(40), Match::Exact)),
        ("fill", 4, (None, Match::Unknown)),
        ("_Z5plainv", 1, (None, Match::Unknown)),
    ] {
        let threads = if name.contains("gemm") { 128 } else { 32 };
        assert_eq!(found(&index, name, blocks, threads, 0), expected, "{name}");
    }
}

proptest! {
    #[test]
    fn the_index_finds_what_a_plain_search_finds(
        rows in prop::collection::vec(("[ab]{1,2}", 1u32..4, 1u32..3, 0u32..4, 1u64..9), 0..40),
        launches in prop::collection::vec(("[abc]{1,2}", 1u32..5, 1u32..4, 0u32..5), 1..40),
    ) {
        let kernels: Vec<KernelProfile> = rows
            .iter()
            .map(|(name, blocks, threads, shared, p95)| {
                kernel(name, *blocks, *threads, *shared, *p95)
            })
            .collect();
        let index = index(kernels.clone());
        for (name, blocks, threads, shared) in launches {
            prop_assert_eq!(
                found(&index, &name, blocks, threads, shared),
                plain_search(&kernels, &name, blocks, threads, shared),
                "{} {} {} {}", name, blocks, threads, shared
            );
        }
    }
}

fn launch(
    index: &ProfileIndex,
    operator: &Operator,
    blocks: u32,
    shared_bytes: u32,
) -> (Option<u64>, Match, bool) {
    let shape = ([blocks, 1, 1], [128, 1, 1]);
    let found = index.find_launch(Some(operator), "sgemm", shape.0, shape.1, shared_bytes);
    let p95_ns = found.kernel.map(|kernel| kernel.durations.p95_ns);
    (p95_ns, found.quality, found.is_in_operator)
}

#[test]
fn a_launch_in_an_operator_is_found_by_both_and_else_by_the_kernel_alone() {
    let (small, large) = (gemm(&[64, 64, 16], None), gemm(&[64, 64, 4096], None));
    let index = index(vec![
        within(small.clone(), kernel("sgemm", 8, 128, 0, 10)),
        within(large.clone(), kernel("sgemm", 8, 128, 0, 900)),
        kernel("sgemm", 16, 128, 0, 40),
    ]);
    assert!(index.has_operators());
    let other = gemm(&[1, 1, 1], None);
    for (operator, blocks, shared_bytes, expected) in [
        (&small, 8, 0, (Some(10), Match::Exact, true)),
        (&large, 8, 0, (Some(900), Match::Exact, true)),
        (&small, 8, 1, (Some(10), Match::WithoutShared, true)),
        (&other, 8, 0, (Some(900), Match::Exact, false)),
        (&small, 32, 0, (Some(10), Match::NameOnly, true)),
        (&small, 16, 0, (Some(40), Match::Exact, false)),
    ] {
        let found = launch(&index, operator, blocks, shared_bytes);
        assert_eq!(found, expected, "{operator:?} {blocks} {shared_bytes}");
    }
    let outside = index.find_launch(None, "sgemm", [8, 1, 1], [128, 1, 1], 0);
    assert_eq!(
        (outside.quality, outside.is_in_operator),
        (Match::Exact, false)
    );
}

#[test]
fn an_operator_that_states_more_comes_first() {
    let index = index(vec![
        within(gemm(&[], None), kernel("sgemm", 8, 128, 0, 500)),
        within(gemm(&[2, 3, 4], None), kernel("sgemm", 8, 128, 0, 20)),
        within(gemm(&[2, 3, 4], Some("tn")), kernel("sgemm", 8, 128, 0, 30)),
    ]);
    let of = |operator: &Operator| launch(&index, operator, 8, 0).0;
    assert_eq!(of(&gemm(&[2, 3, 4], Some("tn"))), Some(30));
    assert_eq!(of(&gemm(&[2, 3, 4], Some("nn"))), Some(20));
    assert_eq!(of(&gemm(&[9, 9, 9], Some("nn"))), Some(500));
}

/// Plans of `cudnnBackendExecute` are indistinguishable: one name covers all of a network.
#[test]
fn an_operator_whose_sizes_are_not_stated_is_its_longest_kernel() {
    let backend = |number: Option<&str>| Operator {
        name: "backend".to_owned(),
        number: number.map(str::to_owned),
        ..Operator::default()
    };
    let index = index(vec![
        within(backend(None), kernel("conv_a", 8, 128, 0, 100)),
        within(backend(None), kernel("conv_b", 80, 128, 0, 300)),
        within(backend(None), kernel("norm", 4, 64, 0, 50)),
        within(backend(Some("f16")), kernel("conv_a", 8, 128, 0, 60)),
        within(backend(Some("f16")), kernel("norm", 4, 64, 0, 20)),
    ]);
    let expected_ns = |operator| index.of_operator(&operator).unwrap().expected_ns;
    assert_eq!(expected_ns(backend(None)), 300);
    assert_eq!(expected_ns(backend(Some("f16"))), 60);
}

#[test]
fn an_operator_as_a_whole_is_each_of_its_kernels_once() {
    let both = gemm(&[64, 64, 4096], None);
    let index = index(vec![
        within(both.clone(), kernel("sgemm", 8, 128, 0, 100)),
        within(both.clone(), kernel("sgemm", 16, 128, 0, 130)),
        within(both.clone(), kernel("reduce", 4, 64, 0, 7)),
        within(gemm(&[], None), kernel("other", 4, 64, 0, 5000)),
    ]);
    let whole = index.of_operator(&both).expect("it has kernels");
    assert_eq!(whole.expected_ns, 137);
    let whole = index.of_operator(&gemm(&[1, 2, 3], None)).expect("by name");
    assert_eq!(whole.expected_ns, 5000);
    let gemv = Operator {
        name: "gemv".to_owned(),
        ..Operator::default()
    };
    assert_eq!(index.of_operator(&gemv), None);
}

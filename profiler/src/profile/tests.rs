//! Profiles: round trips, what the reader refuses, and profiles made from traces.

use std::path::Path;

use proptest::prelude::*;

use super::{
    ClassRule, Durations, Evidence, KernelProfile, Measured, Operator, Percent, Profile,
    RequestRule, Requests, Roofline,
};
use crate::ResourceClass;
use crate::family::Family;
use crate::orion::Entry;
use crate::trace::Trace;

const EXAMPLE: &str = r##"format = "pillion-profile"
version = 2
gpu = "V100-SXM2-16GB"
sources = ["resnet50_4_fwd"]

[[kernel]]
name = "Conv#c98@100000"
grid = [98, 1, 1]
block = [512, 1, 1]
shared_bytes = 65536
count = 3
duration_ns = { sum = 301440, median = 100480, p95 = 100490 }
registers = 64
sm_needed = 98
class = "compute"
class_rule = "given"

[[kernel]]
name = "say \"\\hi\""
grid = [1, 1, 1]
block = [32, 1, 1]
shared_bytes = 0
count = 1
duration_ns = { sum = 5, median = 5, p95 = 5 }
registers = 16
sm_needed = 1
class = "unknown"
class_rule = "roofline"
"##;

fn parse(text: &str) -> Result<Profile, String> {
    Profile::parse(text, Path::new("p")).map_err(|error| error.to_string())
}

#[test]
fn a_profile_reads_and_writes_back_as_it_was() {
    let profile = parse(EXAMPLE).expect("the example is right");
    assert_eq!(profile.kernels[0].durations.p95_ns, 100_490);
    assert_eq!(profile.kernels[1].name, "say \"\\hi\"");
    assert_eq!(profile.kernels[1].class_rule, ClassRule::Roofline);
    assert_eq!(profile.write(), EXAMPLE);
}

#[test]
fn one_number_of_the_two_of_a_roofline_is_refused() {
    for (given, missing) in [
        ("mflop_per_s", "mbyte_per_s"),
        ("mbyte_per_s", "mflop_per_s"),
    ] {
        let text = EXAMPLE.replacen("registers = 64", &format!("registers = 64\n{given} = 5"), 1);
        let error = parse(&text).expect_err("one of two");
        assert!(
            error.contains(missing) && error.contains("both or neither"),
            "{error}"
        );
    }
}

#[test]
fn a_profile_may_know_no_kernel_and_no_source() {
    let text = "format = \"pillion-profile\"\nversion = 2\ngpu = \"T4\"\nsources = []\n";
    assert_eq!(
        parse(text).map(|profile| profile.write()),
        Ok(text.to_owned())
    );
}

/// A part of [`EXAMPLE`], its replacement, and how the message then starts or goes on.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "version = 2",
        "version = 4",
        "p:2:11: pillion-profile version 4; this program reads versions up to 3",
    ),
    (
        "version = 2",
        "version = \"1\"",
        "p:2:11: version = `\"1\"`; expected a whole number, 0 to",
    ),
    (
        "version = 2",
        "",
        "p:1:1: the profile has no version; expected format = \"pillion-profile\" and version = 3",
    ),
    (
        "format = ",
        "fromat = ",
        "p:1:1: unknown key `fromat`; expected one of format, version,",
    ),
    (
        "\"pillion-profile\"",
        "\"profile\"",
        "p:1:10: format = `\"profile\"`; expected \"pillion-profile\"",
    ),
    (
        "gpu = ",
        "gpus = ",
        "p:3:1: unknown key `gpus`; expected one of ",
    ),
    (
        "\"V100-SXM2-16GB\"",
        "\" \"",
        "p:3:7: gpu = `\" \"`; expected a name",
    ),
    (
        "[\"resnet50_4_fwd\"]",
        "\"x\"",
        "p:4:11: sources = `\"x\"`; expected a list of names",
    ),
    (
        "[\"resnet50_4_fwd\"]",
        "[\"x\", 7]",
        "p:4:17: sources = `7`; expected a name",
    ),
    ("[[kernel]]", "[kernel]", "p:18:"),
    (
        "[98, 1, 1]",
        "[98, 1]",
        "p:8:8: grid = `[98, 1]`; expected three whole numbers, [X, Y, Z]",
    ),
    (
        "[98, 1, 1]",
        "[98, 1, 0]",
        "p:8:16: grid = `0`; expected a whole number, 1 to 65535",
    ),
    (
        "[512, 1, 1]",
        "[512, 4, 1]",
        "p:9:9: block = `[512, 4, 1]`; expected at most 1024 threads in all",
    ),
    (
        "shared_bytes = 65536",
        "shared_byte = 65536",
        "p:10:1: unknown key `shared_byte`; expected one of ",
    ),
    (
        "shared_bytes = 65536",
        "shared_bytes = -1",
        "p:10:16: shared_bytes = `-1`; expected a whole number, 0 to 1048576",
    ),
    (
        "count = 3",
        "count = 0",
        "p:11:9: count = `0`; expected a whole number, 1 to",
    ),
    (
        "count = 3",
        "count = 3.0",
        "p:11:9: count = `3.0`; expected a whole number, 1 to",
    ),
    (
        "count = 3\n",
        "",
        "p:6:1: the kernel has no count; expected every [[kernel]] to have every key",
    ),
    ("count = 3", "count = ", "p:11:9: "),
    (
        "{ sum = 301440, median = 100480, p95 = 100490 }",
        "5",
        "p:12:15: duration_ns = `5`; expected { sum = NS, median = NS, p95 = NS }",
    ),
    (
        "median = 100480",
        "mean = 100480",
        "p:12:31: unknown key `mean`; expected one of sum, median, p95; did you mean `median`?",
    ),
    (
        "p95 = 100490",
        "p95 = 7",
        "p:12:54: p95 = `7`; expected at least the median, 100480",
    ),
    (
        "sum = 301440",
        "sum = 7",
        "p:12:23: sum = `7`; expected at least the p95, 100490",
    ),
    (
        ", p95 = 100490",
        "",
        "p:12:15: duration_ns has no p95; expected { sum",
    ),
    (
        "\"compute\"",
        "\"compote\"",
        "p:15:9: class = `\"compote\"`; expected one of compute, memory, unknown; did you mean `compute`?",
    ),
    (
        "\"given\"",
        "7",
        "p:16:14: class_rule = `7`; expected one of roofline, throughput, vendor, estimated, given, scaled, unknown",
    ),
    ("\"given\"", "\"given", "p:16:20: "),
];

#[test]
fn what_is_wrong_is_named_with_its_place_and_what_would_be_right() {
    for (from, to, expected) in WRONG.iter().copied() {
        let text = EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, EXAMPLE, "{from} is in the example");
        let error = parse(&text).expect_err("the text is wrong");
        assert!(error.starts_with(expected), "{to:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

const WRONG_OPERATORS: &[(&str, &str)] = &[
    ("7", "p:17:12: operator = `7`; expected { name = "),
    (
        "{ sizes = [1] }",
        "p:17:12: operator has no name; expected { name",
    ),
    ("{ name = \"\" }", "p:17:21: name = "),
    (
        "{ name = \"gemm\", size = [1] }",
        "p:17:29: unknown key `size`; expected one of name, sizes, batch, number, layout; did you mean `sizes`?",
    ),
    (
        "{ name = \"gemm\", sizes = [] }",
        "p:17:37: sizes = `[]`; expected 1 to 10 whole numbers",
    ),
    (
        "{ name = \"gemm\", sizes = [1, -1, 2] }",
        "p:17:41: sizes = `-1`; expected a whole number, 0 to 4294967295",
    ),
    (
        "{ name = \"gemm\", batch = 0 }",
        "p:17:37: batch = `0`; expected a whole number, 1 to 4294967295",
    ),
    (
        "{ name = \"gemm\", layout = \"nx\" }",
        "p:17:38: layout = `\"nx\"`; expected two letters, each n, t or c",
    ),
    (
        "{ name = \"gemm\", number = 16 }",
        "p:17:38: number = `16`; expected a name",
    ),
];

#[test]
fn what_is_wrong_in_an_operator_is_named_with_its_place() {
    let with = |operator: &str| {
        let rule = "class_rule = \"given\"\n";
        EXAMPLE.replacen(rule, &format!("{rule}operator = {operator}\n"), 1)
    };
    for (operator, expected) in WRONG_OPERATORS.iter().copied() {
        let error = parse(&with(operator)).expect_err("the operator is wrong");
        assert!(error.starts_with(expected), "{operator}: {error}");
    }
    let text = with("{ name = \"gemm\", sizes = [64, 32, 16], number = \"f32\" }");
    let profile = Profile::parse(&text, Path::new("p")).expect("a good one");
    let operator = profile.kernels[0].operator.as_ref().expect("it has one");
    assert_eq!(operator.to_string(), "gemm f32 64x32x16");
    let old = text.replacen("version = 2", "version = 1", 1);
    assert!(
        parse(&old)
            .expect_err("version 1 has none")
            .contains("unknown key `operator`")
    );
}

#[test]
fn a_kernel_may_stand_once_for_each_operator() {
    let (head, kernel) = EXAMPLE.split_at(EXAMPLE.rfind("\n[[kernel]]").expect("two kernels"));
    let in_operator =
        |sizes: &str| format!("{kernel}operator = {{ name = \"gemm\", sizes = {sizes} }}\n");
    let (small, large) = (in_operator("[1, 2, 3]"), in_operator("[4, 5, 6]"));
    parse(&format!("{head}{kernel}{small}{large}")).expect("three kernels");
    let error = parse(&format!("{head}{small}{large}{small}")).expect_err("twice");
    assert!(error.contains(", operator gemm 1x2x3"), "{error}");
}

#[test]
fn a_kernel_may_stand_once_for_each_mangled_name() {
    let (head, kernel) = EXAMPLE.split_at(EXAMPLE.rfind("\n[[kernel]]").expect("two kernels"));
    let mangled = |name: &str| format!("{kernel}mangled = \"{name}\"\n");
    let (one, other) = (mangled("_Z1fi"), mangled("_Z1fj"));
    parse(&format!("{head}{kernel}{one}{other}")).expect("three kernels");
    let error = parse(&format!("{head}{one}{other}{one}")).expect_err("twice");
    assert!(error.contains("again; it is already at line"), "{error}");
}

#[test]
fn the_same_kernel_and_shape_twice_is_refused() {
    let (head, kernel) = EXAMPLE.split_at(EXAMPLE.rfind("\n[[kernel]]").expect("two kernels"));
    let error = parse(&format!("{head}{kernel}{kernel}")).expect_err("twice");
    assert!(
        error.starts_with("p:30:1: kernel `say \"\\hi\"` with grid [1, 1, 1]"),
        "{error}"
    );
    assert!(
        error.ends_with("again; it is already at line 18"),
        "{error}"
    );
}

#[test]
fn a_profile_of_a_trace_counts_launches_in_order_of_the_first() {
    let entry = |name: &str, duration_ns| Entry {
        name: name.to_owned(),
        class: ResourceClass::Memory,
        sm_needed: 4,
        duration_ns,
    };
    let mut trace = Trace::from_orion(&[
        entry("b", 10),
        entry("a", 20),
        entry("b", 10),
        entry("b", 10),
    ]);
    trace.kernels.push(TraceKernelNeverLaunched::like(&trace));
    let profile = Profile::from_trace(&trace);
    let summary: Vec<_> = profile
        .kernels
        .iter()
        .map(|kernel| (kernel.name.as_str(), kernel.count, kernel.durations.sum_ns))
        .collect();
    assert_eq!(summary, [("b#m4@10", 3, 30), ("a#m4@20", 1, 20)]);
    assert_eq!(profile.gpu, "V100-SXM2-16GB");
    assert_eq!(profile.kernels[0].grid, [8, 1, 1]);
    assert_eq!(parse(&profile.write()), Ok(profile));
}

struct TraceKernelNeverLaunched;

impl TraceKernelNeverLaunched {
    fn like(trace: &Trace) -> crate::TraceKernel {
        crate::TraceKernel {
            name: "never".to_owned(),
            ..trace.kernels[0].clone()
        }
    }
}

#[test]
fn durations_of_samples_are_nearest_rank_quantiles() {
    let mut samples: Vec<u64> = (1..=100).rev().collect();
    let durations = Durations {
        sum_ns: 5_050,
        median_ns: 50,
        p95_ns: 95,
    };
    assert_eq!(Durations::of_samples(&mut samples), Some(durations));
    assert_eq!(Durations::of_samples(&mut []), None);
}

fn kernel() -> impl Strategy<Value = KernelProfile> {
    let name = "[!-~é][ -~é]{0,20}[!-~é]";
    let samples = prop::collection::vec(1u64..=1 << 39, 1..50);
    let numbers = (0u32..=1 << 20, 0u32..=255, 1u32..1 << 30);
    let shape = (
        [1u32..1 << 31, 1..65_536, 1..65_536],
        [1u32..=16, 1..=16, 1..=4],
    );
    let class = prop::sample::select(ResourceClass::ALL.as_slice());
    let rule = prop::sample::select(ClassRule::ALL.as_slice());
    let evidence = (evidence(), prop::option::of(operator()));
    (name, samples, numbers, shape, class, rule, evidence).prop_map(
        |(name, mut samples, numbers, (grid, block), class, class_rule, (evidence, operator))| {
            KernelProfile {
                mangled: evidence.outliers.map(|number| format!("_Z{number}")),
                name,
                grid,
                block,
                shared_bytes: numbers.0,
                count: samples.len() as u64,
                durations: Durations::of_samples(&mut samples).expect("at least one sample"),
                registers: numbers.1,
                sm_needed: numbers.2,
                class,
                class_rule,
                evidence,
                operator,
            }
        },
    )
}

fn operator() -> impl Strategy<Value = Operator> {
    (
        "[a-z_]{1,20}",
        prop::collection::vec(any::<u32>().prop_map(u64::from), 0..=10),
        prop::option::of(1u64..1 << 32),
        prop::option::of("[a-z0-9]{1,6}"),
        prop::option::of("[ntc]{2}"),
    )
        .prop_map(|(name, sizes, batch, number, layout)| Operator {
            name,
            sizes,
            batch,
            number,
            layout,
        })
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let percent = || {
        prop::option::of((0.0..=1000.0).prop_map(|number| Percent::new(number).expect("in range")))
    };
    let numbers = (
        prop::option::of(0u32..=1 << 20),
        prop::option::of(1u32..=32),
        prop::option::of(1u64..1 << 40),
        prop::option::of((0u64..1 << 40, 0u64..1 << 40)),
    );
    let percents = [
        percent(),
        percent(),
        percent(),
        percent(),
        percent(),
        percent(),
    ];
    let family = prop::option::of(prop::sample::select(Family::ALL.as_slice()));
    (numbers, percents, family).prop_map(
        |((shared, blocks, outliers, roofline), percents, family)| {
            let [
                compute_pct,
                memory_pct,
                dram_pct,
                l2_pct,
                l1_pct,
                class_confidence_pct,
            ] = percents;
            Evidence {
                static_shared_bytes: shared,
                blocks_per_sm: blocks,
                outliers,
                compute_pct,
                memory_pct,
                dram_pct,
                l2_pct,
                l1_pct,
                roofline: roofline.map(|(mflop_per_s, mbyte_per_s)| Roofline {
                    mflop_per_s,
                    mbyte_per_s,
                }),
                class_family: family,
                class_confidence_pct,
            }
        },
    )
}

fn requests() -> impl Strategy<Value = Requests> {
    let rule = prop_oneof![
        "[!-~é]{1,20}".prop_map(RequestRule::Range),
        (1u64..1 << 40).prop_map(RequestRule::Gap),
    ];
    let samples = prop::collection::vec(1u64..=1 << 39, 1..50);
    let order = prop::collection::vec((Just(0u32), 1u32..9), 0..5);
    (rule, samples, order).prop_map(|(rule, mut samples, order)| Requests {
        rule,
        count: samples.len() as u64,
        latency: Durations::of_samples(&mut samples).expect("at least one sample"),
        same_order: 1,
        order,
    })
}

#[test]
fn an_order_names_kernels_that_are_there() {
    let requests = "[requests]\ngap_ns = 5\ncount = 3\nlatency_ns = { sum = 9, median = 3, p95 = 3 }\nsame_order = 2\n";
    let with = |order: &str| {
        EXAMPLE.replacen(
            "\n[[kernel]]",
            &format!("\n{requests}order = {order}\n\n[[kernel]]"),
            1,
        )
    };
    let right = with("[[0, 2], [1, 1]]");
    assert_eq!(parse(&right).map(|profile| profile.write()), Ok(right));
    for (order, expected) in [
        ("[[2, 1]]", "order = `2`; expected a whole number, 0 to 1"),
        ("[[0, 0]]", "order = `0`; expected a whole number, 1 to"),
        ("[[0]]", "order = `[0]`; expected [KERNEL, TIMES]"),
        ("[7]", "order = `7`; expected [KERNEL, TIMES]"),
    ] {
        let error = parse(&with(order)).expect_err("wrong");
        assert!(error.contains(expected), "{error}");
    }
    let neither = with("[]").replacen("gap_ns = 5\n", "", 1);
    assert!(parse(&neither).is_err_and(|error| error.contains("the requests has no gap_ns")));
}

fn measured() -> impl Strategy<Value = Measured> {
    let number = || prop::option::of(1u32..=1 << 20);
    let capability = prop::option::of((0u32..20, 0u32..10));
    (number(), capability, number(), number()).prop_map(
        |(sms, compute_capability, clock_mhz, bandwidth_gb_s)| Measured {
            sms,
            compute_capability,
            clock_mhz,
            bandwidth_gb_s,
        },
    )
}

#[test]
fn a_class_by_name_has_its_family_and_takes_version_3() {
    let text = EXAMPLE.replacen("version = 2", "version = 3", 1).replacen(
        "class_rule = \"given\"\n",
        "class_rule = \"name\"\nclass_family = \"conv\"\nclass_confidence_pct = 93.00\n",
        1,
    );
    let profile = parse(&text).expect("a good one");
    assert_eq!(profile.kernels[0].class_rule, ClassRule::Name);
    assert_eq!(profile.kernels[0].evidence.class_family, Some(Family::Conv));
    assert_eq!(profile.write(), text);
    let wrong = text.replacen("\"conv\"", "\"konv\"", 1);
    let error = parse(&wrong).expect_err("no such family");
    assert!(error.starts_with("p:17:16: class_family = "), "{error}");
    let old = text.replacen("version = 3", "version = 2", 1);
    let error = parse(&old).expect_err("version 2 has no such key");
    assert!(error.contains("unknown key `class_family`"), "{error}");
    let rule_alone = EXAMPLE.replacen("\"given\"", "\"name\"", 1);
    let error = parse(&rule_alone).expect_err("version 2 has no such rule");
    assert!(error.starts_with("p:16:14: class_rule = "), "{error}");
    // A profile of version 3 with nothing new is written so that older programs read it.
    let nothing_new = EXAMPLE.replacen("version = 2", "version = 3", 1);
    assert_eq!(
        parse(&nothing_new).map(|profile| profile.write()),
        Ok(EXAMPLE.to_owned())
    );
}

#[test]
fn version_1_is_read_and_has_no_keys_of_version_2() {
    let old = EXAMPLE.replacen("version = 2", "version = 1", 1);
    assert_eq!(
        parse(&old).map(|profile| profile.write()),
        Ok(EXAMPLE.to_owned())
    );
    for (key, place) in [("dram_pct = 5", "p:17:1"), ("mangled = \"f\"", "p:17:1")] {
        let text = old.replacen(
            "\n\n[[kernel]]\nname = \"say",
            &format!("\n{key}\n\n[[kernel]]\nname = \"say"),
            1,
        );
        let error = parse(&text).expect_err("version 1 has no such key");
        assert!(
            error.starts_with(&format!("{place}: unknown key")),
            "{error}"
        );
    }
    let error = parse(&old.replacen("[98, 1, 1]", "[0, 0, 0]", 1)).expect_err("no shape");
    assert!(error.starts_with("p:8:9: grid"), "{error}");
}

#[test]
fn evidence_stands_behind_what_it_is_about() {
    let text = EXAMPLE.replacen(
        "class_rule = \"given\"\n",
        "class_rule = \"given\"\nblocks_per_sm = 2\ncompute_pct = 66\ndram_pct = 16.17\n",
        1,
    );
    let profile = parse(&text).expect("right");
    let evidence = &profile.kernels[0].evidence;
    assert_eq!(evidence.blocks_per_sm, Some(2));
    assert_eq!(evidence.dram_pct.map(Percent::value), Some(16.17));
    assert!(
        profile
            .write()
            .contains("compute_pct = 66.00\ndram_pct = 16.17\n")
    );
    let unstated = EXAMPLE.replacen("[98, 1, 1]", "[0, 0, 0]", 1);
    assert_eq!(
        parse(&unstated).map(|profile| profile.write()),
        Ok(unstated)
    );
    for (wrong, expected) in [
        (
            "compute_pct = -1",
            "compute_pct = `-1`; expected a percentage, 0 to 1000",
        ),
        (
            "compute_pct = \"1\"",
            "compute_pct = `\"1\"`; expected a percentage",
        ),
        (
            "compute_pct = nan",
            "compute_pct = `nan`; expected a percentage",
        ),
        (
            "blocks_per_sm = 0",
            "blocks_per_sm = `0`; expected a whole number, 1 to",
        ),
    ] {
        let text = EXAMPLE.replacen(
            "class_rule = \"given\"",
            &format!("class_rule = \"given\"\n{wrong}"),
            1,
        );
        let error = parse(&text).expect_err("wrong");
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn a_written_profile_reads_back_equal_and_writes_the_same_text(
        gpu in "[!-~é]{1,20}",
        sources in prop::collection::vec("[!-~é]{1,20}", 0..3),
        notices in prop::collection::vec("[!-~é]{1,20}", 0..3),
        measured in prop::option::of(measured()),
        requests in prop::option::of(requests()),
        mut kernels in prop::collection::vec(kernel(), 0..6),
    ) {
        for (index, kernel) in kernels.iter_mut().enumerate() {
            kernel.name.push_str(&index.to_string());
        }
        let requests = requests.filter(|_| !kernels.is_empty());
        let profile = Profile { gpu, sources, notices, measured, requests, kernels };
        let text = profile.write();
        let read = parse(&text);
        prop_assert_eq!(read.as_ref(), Ok(&profile));
        prop_assert_eq!(read.map(|read| read.write()), Ok(text));
    }
}

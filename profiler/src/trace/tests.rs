//! Traces: round trips of our format, what its reader refuses, and Orion's rows as kernels.

use std::path::Path;

use proptest::prelude::*;

use super::{Trace, TraceKernel, two_digits};
use crate::ResourceClass;
use crate::orion::Entry;

const PATH: &str = "t";

const EXAMPLE: &str = "\
pillion-trace 1
device V100-SXM2-16GB
kernel class=compute grid=98,1,1 block=512,1,1 shared_bytes=65536 registers=64 sm_needed=98 block_ns=50240 duration_ns=100480 compute_demand=0.89 bandwidth_demand=0.2 source=\"Conv\" name=\"Conv#c98@100000\"
kernel class=memory grid=2,1,1 block=768,1,1 shared_bytes=0 registers=16 sm_needed=1 block_ns=3136 duration_ns=3136 compute_demand=0.0044 bandwidth_demand=0.025 source=\"a\\\\b\\\"c\" name=\"d\"
launch 0
launch 1 x3
launch 0
";

fn parse(text: &str) -> Result<Trace, String> {
    Trace::parse(text, Path::new(PATH)).map_err(|error| error.to_string())
}

fn entry(name: &str, class: ResourceClass, sm_needed: u32, duration_ns: u64) -> Entry {
    Entry {
        name: name.to_owned(),
        class,
        sm_needed,
        duration_ns,
    }
}

#[test]
fn the_canonical_form_reads_and_writes_back_as_it_was() {
    let trace = parse(EXAMPLE).expect("the example is right");
    assert_eq!(trace.launches, [0, 1, 1, 1, 0]);
    assert_eq!(trace.kernels[1].source_name, "a\\b\"c");
    assert_eq!(trace.duration_ns_sum(), 2 * 100_480 + 3 * 3_136);
    assert_eq!(trace.launched().count(), 5);
    assert_eq!(trace.write(), EXAMPLE);
}

#[test]
fn comments_blank_lines_key_order_and_crlf_do_not_matter() {
    let spread = EXAMPLE
        .replace(
            "launch 1 x3\n",
            "launch 1\n\n  # two more\nlaunch   1 x2  \n",
        )
        .replace("class=memory grid=2,1,1", "grid=2,1,1  class=memory")
        .replace('\n', "\r\n");
    let text = format!("# a note\n\n{spread}");
    assert_eq!(parse(&text), parse(EXAMPLE));
}

/// A part of [`EXAMPLE`], its replacement, and how the message then starts or goes on.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "trace 1",
        "trace 2",
        "t:1:15: pillion-trace version `2`; this program reads versions up to 1",
    ),
    (
        "trace 1",
        "trace",
        "t:1:14: version = ``; expected `pillion-trace 1`",
    ),
    (
        "trace 1",
        "trace 1 x",
        "t:1:17: unexpected `x` at the end of the line",
    ),
    (
        "device V100-SXM2-16GB\n",
        "",
        "t:6: the trace has no device; expected a line `device",
    ),
    (
        "device V100-SXM2-16GB",
        "device ",
        "t:2:8: device = ``; expected a name",
    ),
    (
        "launch 1 x3",
        "device T4",
        "t:6:1: device `T4` again; it is already at line 2",
    ),
    (
        "launch 1 x3",
        "lunch 1 x3",
        "t:6:1: unknown line `lunch`; expected a line that starts with device, kernel, launch or #; did you mean `launch`?",
    ),
    (
        "launch 1 x3",
        "launch 2 x3",
        "t:6:8: launch = `2`; expected the number of a kernel above, 0 to 1",
    ),
    (
        "launch 1 x3",
        "launch 1 3",
        "t:6:10: launch = `3`; expected nothing, or xN",
    ),
    ("launch 1 x3", "launch 1 x0", "t:6:10: launch = `x0`;"),
    (
        "launch 1 x3",
        "launch 1 x3 x",
        "t:6:13: unexpected `x` at the end",
    ),
    (
        "launch 1 x3",
        "launch 1 x9999999",
        "t:6:10: more than 4194304 launches",
    ),
    (
        "class=memory",
        "klass=memory",
        "t:4:8: unknown key `klass`; expected one of class, grid,",
    ),
    (
        "class=memory",
        "class",
        "t:4:13: `class` without a value; expected `class=` and the value",
    ),
    (
        "class=memory",
        "class=memori",
        "t:4:14: class = `memori`; expected compute, memory or unknown; did you mean `memory`?",
    ),
    (
        "class=memory",
        "grid=1,1,1",
        "t:4:19: key `grid` again; it is already at line 4",
    ),
    (
        "class=memory ",
        "",
        "t:4:1: the kernel has no class; expected every kernel line",
    ),
    (
        "grid=2,1,1",
        "grid=2,1",
        "t:4:26: grid = `2,1`; expected X,Y,Z, each at least 1 and at most 2147483647, 65535 and 65535",
    ),
    ("grid=2,1,1", "grid=2,0,1", "t:4:26: grid = `2,0,1`"),
    ("grid=2,1,1", "grid=2,1,1,1", "t:4:26: grid = `2,1,1,1`"),
    (
        "block=768,1,1",
        "block=768,2,1",
        "t:4:38: block = `768,2,1`; expected at most 1024 threads in all",
    ),
    (
        "registers=16",
        "registers=256",
        "t:4:71: registers = `256`; expected a whole number, 0 to 255",
    ),
    (
        "demand=0.025",
        "demand=1.01",
        "bandwidth_demand = `1.01`; expected a share, 0 to 1",
    ),
    (
        "demand=0.025",
        "demand=-0",
        "bandwidth_demand = `-0`; expected a share, 0 to 1",
    ),
    (
        "demand=0.025",
        "demand=NaN",
        "bandwidth_demand = `NaN`; expected a share, 0 to 1",
    ),
    (
        "name=\"d\"",
        "name=d",
        "name = `d`; expected a name in double quotes",
    ),
    (
        "name=\"d\"",
        "name=\"d",
        "the quote of name is not closed on this line",
    ),
    (
        "name=\"d\"",
        "name=\"d\"x=",
        "expected a space after the closing quote",
    ),
    (
        "name=\"d\"",
        "name=\"\\d\"",
        "`\\` must be followed by `\"` or",
    ),
    (
        "name=\"d\"",
        "name=\"\"",
        "name = ``; expected a name: not empty",
    ),
    (
        "name=\"d\"",
        "name=\"Conv#c98@100000\"",
        "t:4:1: kernel `Conv#c98@100000` again; it is already at line 3",
    ),
];

#[test]
fn what_is_wrong_is_named_with_its_place_and_what_would_be_right() {
    for (from, to, expected) in WRONG.iter().copied() {
        let text = EXAMPLE.replacen(from, to, 1);
        // The first kernel line has some of the same values; break the second where both have it.
        let text = if from.starts_with("block") || from.starts_with("registers") {
            EXAMPLE.replace(from, to)
        } else {
            text
        };
        assert_ne!(text, EXAMPLE, "{from} is in the example");
        let error = parse(&text).expect_err("the text is wrong");
        assert!(error.contains(expected), "{to:?}: {error}");
    }
}

#[test]
fn a_trace_without_launches_or_without_kernels_is_refused() {
    let head = "pillion-trace 1\ndevice T4\n";
    assert_eq!(
        parse(head),
        Err("t:2: no launch; expected at least one".to_owned())
    );
    assert_eq!(
        parse(&format!("{head}launch 0")),
        Err("t:3:8: launch = `0`; expected a kernel line before the first launch".to_owned())
    );
}

#[test]
fn a_file_of_another_format_is_refused_with_what_is_accepted() {
    for (text, found) in [
        ("format = \"pillion-profile\"\n", "looks like a TOML file"),
        ("\u{7f}ELF", "unknown format, starting with `\\u{7f}ELF`"),
        (" \n", "empty"),
    ] {
        let error = parse(text).expect_err("not a trace");
        assert!(
            error.starts_with(&format!("t: {found}; accepted here: a Pillion trace")),
            "{error}"
        );
        assert!(error.contains("Orion kernel file"), "{error}");
    }
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let error = Trace::read(Path::new("no/such/file"))
        .expect_err("there is none")
        .to_string();
    assert!(
        error.starts_with("no/such/file: cannot be read: "),
        "{error}"
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let error = Trace::read(folder).expect_err("a folder").to_string();
    assert!(error.contains(": cannot be read: "), "{error}");
}

#[test]
fn rows_are_one_kernel_iff_name_class_sms_and_duration_bin_are_equal() {
    use ResourceClass::{Compute, Memory};
    let trace = Trace::from_orion(&[
        entry("Conv", Compute, 98, 100_480),
        entry("Conv", Compute, 98, 104_999),
        entry("Conv", Compute, 98, 105_000),
        entry("Conv", Compute, 97, 100_480),
        entry("Conv", Memory, 98, 100_480),
        entry("Cov", Compute, 98, 100_480),
        entry("Conv", Compute, 98, 95_001),
    ]);
    assert_eq!(trace.launches, [0, 0, 1, 2, 3, 4, 5]);
    let names: Vec<&str> = trace
        .kernels
        .iter()
        .map(|kernel| kernel.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "Conv#c98@100000",
            "Conv#c98@110000",
            "Conv#c97@100000",
            "Conv#m98@100000",
            "Cov#c98@100000",
            "Conv#c98@95000",
        ]
    );
    assert_eq!(trace.kernels[0].duration_ns, 102_740);
    assert_eq!(trace.kernels[0].block_ns, 51_370);
    assert_eq!(trace.kernels[0].source_name, "Conv");
}

#[test]
fn two_digits_stay() {
    for (value, expected) in [
        (0, 0),
        (7, 7),
        (99, 99),
        (104, 100),
        (105, 110),
        (994, 990),
        (995, 1_000),
        (3_698_123, 3_700_000),
        (u64::MAX, 18_000_000_000_000_000_000),
    ] {
        assert_eq!(two_digits(value), expected, "{value}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[!-~é][ -~é]{0,20}[!-~é]|[!-~]"
}

fn class() -> impl Strategy<Value = ResourceClass> {
    prop::sample::select(ResourceClass::ALL.as_slice())
}

fn kernel() -> impl Strategy<Value = TraceKernel> {
    let numbers = (
        0u32..=1 << 20,
        0u32..=255,
        1u32..1 << 30,
        1u64..=1 << 39,
        1u64..=1 << 39,
    );
    let shape = (
        [1u32..1 << 31, 1..65_536, 1..65_536],
        [1u32..=16, 1..=16, 1..=4],
    );
    (
        name(),
        name(),
        class(),
        shape,
        numbers,
        0.0f32..=1.0,
        0.0f32..=1.0,
    )
        .prop_map(
            |(
                name,
                source_name,
                class,
                (grid, block),
                numbers,
                compute_demand,
                bandwidth_demand,
            )| {
                let (shared_bytes, registers, sm_needed, block_ns, duration_ns) = numbers;
                TraceKernel {
                    name,
                    source_name,
                    class,
                    grid,
                    block,
                    shared_bytes,
                    registers,
                    sm_needed,
                    block_ns,
                    duration_ns,
                    compute_demand,
                    bandwidth_demand,
                }
            },
        )
}

fn trace() -> impl Strategy<Value = Trace> {
    let kernels = prop::collection::vec(kernel(), 1..6).prop_map(|mut kernels| {
        for (index, kernel) in kernels.iter_mut().enumerate() {
            kernel.name.push_str(&index.to_string());
        }
        kernels
    });
    let launches = prop::collection::vec(any::<prop::sample::Index>(), 1..40);
    (name(), kernels, launches).prop_map(|(device, kernels, launches)| {
        let launches = launches
            .iter()
            .map(|index| index.index(kernels.len()) as u32)
            .collect();
        Trace {
            device,
            kernels,
            launches,
        }
    })
}

proptest! {
    #[test]
    fn a_written_trace_reads_back_equal_and_writes_the_same_text(trace in trace()) {
        let text = trace.write();
        let read = parse(&text);
        prop_assert_eq!(read.as_ref(), Ok(&trace));
        prop_assert_eq!(read.map(|read| read.write()), Ok(text));
    }

    #[test]
    fn a_trace_of_orion_rows_keeps_order_names_and_total_time(
        rows in prop::collection::vec(
            (name(), class(), 1u32..200, 1u64..10_000_000).prop_map(
                |(name, class, sm_needed, duration_ns)| Entry { name, class, sm_needed, duration_ns },
            ),
            1..60,
        ),
    ) {
        // Twice, so that identities repeat.
        let entries: Vec<Entry> = rows.iter().chain(&rows).cloned().collect();
        let trace = Trace::from_orion(&entries);
        prop_assert_eq!(trace.launches.len(), entries.len());
        for (kernel, entry) in trace.launched().zip(&entries) {
            prop_assert_eq!(&kernel.source_name, &entry.name);
            prop_assert_eq!((kernel.class, kernel.sm_needed), (entry.class, entry.sm_needed));
        }
        let wanted: u64 = entries.iter().map(|entry| entry.duration_ns).sum();
        // Each mean is rounded to a whole ns.
        prop_assert!(trace.duration_ns_sum().abs_diff(wanted) <= entries.len() as u64);
        let mut names: Vec<&String> = trace.kernels.iter().map(|kernel| &kernel.name).collect();
        names.sort();
        prop_assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "names are unique");
        prop_assert_eq!(parse(&trace.write()), Ok(trace));
    }
}

//! Operators: calls of cuBLAS, cuBLASLt and cuDNN answer as without us, and label their launches.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::hello::JobClass;

use crate::common::{Ended, Program, Stage, library};

const PROGRAM: Program = Program::Blas("operators");

impl Stage {
    fn alone(&self, arguments: &[&str]) -> Ended {
        let job = self.gpu.job("alone", PROGRAM).args(arguments);
        job.run().expect_success()
    }

    /// Runs it in a class; its output must be that of the run alone.
    fn in_class(&self, class: JobClass, arguments: &[&str], alone: &Ended) -> Ended {
        let label = label(class, arguments);
        let job = self.gpu.job(&label, PROGRAM).args(arguments);
        let job = job.under(self.daemon.socket(), class);
        let ended = job.env("PILLION_LOG", "debug").run().expect_success();
        assert_eq!(ended.output, alone.output, "{label}");
        assert_eq!(self.daemon.total(&label, "panics_caught"), 0, "{label}");
        ended
    }

    fn total(&self, class: JobClass, arguments: &[&str], counter: &str) -> u64 {
        self.daemon.total(&label(class, arguments), counter)
    }
}

fn label(class: JobClass, arguments: &[&str]) -> String {
    format!("{}-{}", class.name(), arguments.join("-"))
}

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];

#[test]
fn operators_answer_as_without_pillion_and_their_launches_carry_their_label() {
    let stage = Stage::new();
    let what = ["calls"];
    let alone = stage.alone(&what);
    for class in CLASSES {
        let ended = stage.in_class(class, &what, &alone);
        for counter in ["calls_operator", "launches_labelled"] {
            let counted = stage.total(class, &what, counter);
            assert_eq!(counted, ended.asked(counter), "{class:?}: {counter}");
        }
        let device = stage.gpu.counts(&label(class, &what));
        assert_eq!(device["launches"], ended.asked("launches_labelled"));
        assert_eq!(stage.total(class, &what, "operators_as_launches"), 0);
        for operator in [
            "gemm f32 nt 64x32x16",
            "gemm f64 tn 8x8x8 x5",
            "gemm f16 nn 128x64x96",
            "gemm bf16 tt 24x12x6 x7",
            "gemv f32 tn 100x1x50",
            // cuBLASLt, whose descriptors were queried.
            "gemm f16 tn 48x40x56",
            "gemm f16 nn 48x40x56",
        ] {
            let line = format!("operator {operator}: first call");
            assert_eq!(ended.errors.matches(&line).count(), 1, "{line}: {ended:#?}");
        }
    }
}

#[test]
fn whatever_an_operator_is_called_with_it_answers_as_without_pillion() {
    let stage = Stage::new();
    for seed in ["1", "2", "3", "4"] {
        let what = ["random", seed];
        let alone = stage.alone(&what);
        for class in CLASSES {
            let ended = stage.in_class(class, &what, &alone);
            let counted = stage.total(class, &what, "calls_operator");
            assert_eq!(counted, ended.asked("calls_operator"), "seed {seed}");
        }
    }
}

#[test]
fn operators_that_are_found_by_dlsym_are_labelled_too() {
    let stage = Stage::new();
    let what = ["open"];
    let alone = stage.alone(&what);
    let ended = stage.in_class(JobClass::HighPriority, &what, &alone);
    for counter in ["calls_operator", "launches_labelled"] {
        let counted = stage.total(JobClass::HighPriority, &what, counter);
        assert_eq!(counted, ended.asked(counter), "{counter}: {ended:#?}");
    }
}

#[test]
fn a_product_in_a_captured_graph_is_labelled_once() {
    let stage = Stage::new();
    let what = ["capture"];
    let alone = stage.alone(&what);
    for class in CLASSES {
        let ended = stage.in_class(class, &what, &alone);
        let labelled = stage.total(class, &what, "launches_labelled");
        assert_eq!(labelled, ended.asked("launches_labelled"));
        assert_eq!(stage.total(class, &what, "graph_launches"), 2);
        assert_eq!(stage.total(class, &what, "graph_kernels"), 2);
    }
}

/// A profile where the stand-in's product kernel has the duration of the operator's sizes.
const PROFILE: &str = r#"format = "pillion-profile"
version = 2
gpu = "V100-SXM2-16GB"
sources = ["a test"]
"#;

fn entry(name: &str, operator: &str, grid: u32, p95_ns: u64) -> String {
    format!(
        "
[[kernel]]
name = \"{name}\"
operator = {{ {operator} }}
grid = [{grid}, 1, 1]
block = [{}, 1, 1]
shared_bytes = 0
count = 1
duration_ns = {{ sum = {p95_ns}, median = {p95_ns}, p95 = {p95_ns} }}
registers = 32
sm_needed = 5
class = \"compute\"
class_rule = \"given\"
",
        if name == "product" { 64 } else { 128 }
    )
}

#[test]
fn a_profile_that_knows_the_operator_is_believed_before_one_that_knows_the_kernel_alone() {
    let stage = Stage::new();
    let profile = stage.gpu.path("operators.toml");
    let text = [
        PROFILE.to_owned(),
        entry(
            "softgpu_gemm_f32_nt",
            "name = \"gemm\", sizes = [64, 32, 16]",
            16,
            31_000,
        ),
        entry(
            "softgpu_gemm_f32_nt",
            "name = \"gemm\", sizes = [64, 32, 4096]",
            16,
            990_000,
        ),
        entry(
            "softgpu_gemm_f16_nn",
            "name = \"gemm\", sizes = [1, 1, 1]",
            64,
            44_000,
        ),
    ];
    std::fs::write(&profile, text.concat()).unwrap();
    for class in CLASSES {
        let job = stage.gpu.job(class.name(), PROGRAM).args(&["calls"]);
        let job = job.under(stage.daemon.socket(), class);
        let job = job.env("PILLION_PROFILE", &profile);
        let job = job.env("PILLION_LOG", "debug");
        job.run().expect_success().expect_errors(&[
            "kernel softgpu_gemm_f32_nt: grid [16, 1, 1] block [128, 1, 1] shared 0+0 registers 80: \
             Exact in gemm f32 nt 64x32x16, 5 SMs, 31000 ns",
            "kernel softgpu_gemm_f16_nn: grid [64, 1, 1] block [128, 1, 1] shared 0+0 registers 80: \
             Exact, 5 SMs, 44000 ns",
        ]);
    }
}

/// The name of the stand-in's products, `gemm`, alone means compute; 64 × 32 × 16 is memory-bound.
#[test]
fn without_a_profile_the_sizes_of_a_product_say_its_class() {
    let stage = Stage::new();
    let what = ["calls"];
    let alone = stage.alone(&what);
    for class in CLASSES {
        let ended = stage.in_class(class, &what, &alone);
        for name in ["softgpu_gemm_f32_nt", "softgpu_gemm_f16_nn"] {
            let judged = format!("kernel {name}: grid ");
            let mut lines = ended.errors.lines().filter(|line| line.contains(&judged));
            let line = lines.next().unwrap_or_default();
            assert!(line.ends_with(" ns, memory by sizes"), "{ended:#?}");
        }
        // Where the launches are not seen, of the operator itself.
        let job = stage.gpu.job(class.name(), "products");
        let job = job.under(stage.daemon.socket(), class);
        let job = job.arg(Program::Library("cublas").path());
        let job = job.args(&["10"]).env("HIDDEN_CALLS", "10");
        let ended = job.env("PILLION_LOG", "debug").run().expect_success();
        let goes = "operator gemm f32 nt 64x32x16: its launches are not seen; it counts as one launch: unknown, ";
        let mut lines = ended.errors.lines().filter(|line| line.contains(goes));
        let line = lines.next().unwrap_or_default();
        assert!(line.ends_with(" SMs, 0 ns, memory by sizes"), "{ended:#?}");
    }
}

/// Runs products of a library whose first `hidden` ones reach the driver unseen.
fn products(stage: &Stage, class: Option<JobClass>, count: u32, hidden: u32) -> Ended {
    let label = class.map_or("alone", JobClass::name);
    let job = stage.gpu.job(label, "products");
    let job = match class {
        Some(class) => job.under(stage.daemon.socket(), class),
        None => job,
    };
    let profile = stage.gpu.path("products.toml");
    let text = PROFILE.to_owned() + &entry("product", "name = \"gemm\"", 4, 12_000);
    std::fs::write(&profile, text).unwrap();
    let job = job
        .arg(Program::Library("cublas").path())
        .arg(count.to_string())
        .env("HIDDEN_CALLS", hidden.to_string())
        .env("PILLION_PROFILE", profile)
        .env("PILLION_LOG", "debug");
    job.run().expect_success()
}

#[test]
fn operators_stand_for_launches_that_are_not_seen_and_no_launch_is_counted_twice() {
    // The first three show that the library's launches are not seen.
    const SHOWN: u64 = 3;
    for (count, hidden) in [(10, 10), (10, 6), (10, 2), (10, 0)] {
        let stage = Stage::new();
        let alone = products(&stage, None, count, hidden);
        for class in CLASSES {
            let ended = products(&stage, Some(class), count, hidden);
            assert_eq!(ended.output, alone.output);
            let name = class.name();
            let totals = stage.daemon.totals(name);
            let of_device = stage.gpu.counts(name);
            let (hidden, count) = (u64::from(hidden), u64::from(count));
            assert_eq!(of_device["launches"], count, "{of_device:#}");
            assert_eq!(totals["launches"], count - hidden, "{totals:#}");
            assert_eq!(totals["launches_labelled"], count - hidden, "{totals:#}");
            let stood = hidden.saturating_sub(SHOWN);
            assert_eq!(totals["operators_as_launches"], stood, "{totals:#}");
            assert_eq!(totals["calls_operator"], count + 2, "{totals:#}");
            assert_eq!(totals["launches_unknown"], 0, "{totals:#}");
            let goes = "operator gemm f32 nt 64x32x16: its launches are not seen; it counts as one launch: \
                        profiled, 5 SMs, 12000 ns";
            assert_eq!(ended.errors.contains(goes), stood > 0, "{ended:#?}");
        }
    }
}

#[test]
fn the_calls_of_cudnn_arrive_as_they_were_made_and_label_what_they_launch() {
    let stage = Stage::new();
    let job = |label| {
        let job = stage.gpu.job(label, "layers");
        job.arg(Program::Library("cudnn").path())
    };
    let alone = job("alone").run().expect_success();
    for class in CLASSES {
        let name = class.name();
        let job = job(name).under(stage.daemon.socket(), class);
        let ended = job.env("PILLION_LOG", "debug").run().expect_success();
        assert_eq!(ended.output, alone.output);
        let totals = stage.daemon.totals(name);
        assert_eq!(totals["calls_operator"], 5, "{totals:#}");
        assert_eq!(totals["launches_labelled"], 3, "{totals:#}");
        assert_eq!(totals["panics_caught"], 0, "{totals:#}");
        ended.expect_errors(&[
            "operator conv_forward f16 32x3x224x224x64x3x7x7: first call",
            "operator batch_norm_forward f32 5x6x7: first call",
            "operator rnn_forward: first call",
            "operator backend: first call",
        ]);
    }
}

#[test]
fn convolutions_stand_for_launches_that_are_not_seen() {
    const CALLS: u64 = 10;
    let stage = Stage::new();
    let profile = stage.gpu.path("convolutions.toml");
    let known = "name = \"conv_forward\", sizes = [32, 3, 224, 224, 64, 3, 7, 7]";
    std::fs::write(
        &profile,
        PROFILE.to_owned() + &entry("product", known, 4, 15_000),
    )
    .unwrap();
    for class in CLASSES {
        let name = class.name();
        let job = stage.gpu.job(name, "layers");
        let job = job.under(stage.daemon.socket(), class);
        let job = job.arg(Program::Library("cudnn").path());
        let job = job.arg(CALLS.to_string()).env("HIDDEN", "1");
        let job = job.env("PILLION_PROFILE", &profile);
        let job = job.env("PILLION_LOG", "debug");
        job.run().expect_success().expect_errors(&[
            "operator conv_forward f16 32x3x224x224x64x3x7x7: its launches are not seen; it counts as one launch: \
             profiled, 5 SMs, 15000 ns",
        ]);
        let totals = stage.daemon.totals(name);
        assert_eq!(stage.gpu.counts(name)["launches"], CALLS);
        assert_eq!(totals["launches"], 0, "{totals:#}");
        // The first three show that the library's launches are not seen.
        assert_eq!(totals["operators_as_launches"], CALLS - 3, "{totals:#}");
    }
}

/// Runs a program with another interposer, alone and as a job with Pillion before or after it: same
/// output, and `operators` calls.
fn expect_preloads_live_together(
    program: Program,
    arguments: &[&str],
    after: &str,
    operators: u64,
) {
    let stage = Stage::new();
    let other = Program::Library("before").path().display().to_string();
    let ours = library().display().to_string();
    let run = |label: &str, preloads: [&str; 3]| {
        let job = stage.gpu.job(label, program).args(arguments);
        let job = match label {
            "alone" => job,
            _ => job.high_priority(&stage.daemon),
        };
        job.env("LD_PRELOAD", preloads.join(":"))
            .run()
            .expect_success()
    };
    let said = |ended: &Ended| {
        let lines = ended
            .errors
            .lines()
            .filter(|line| !line.starts_with("pillion: "));
        lines.collect::<Vec<_>>().join("\n")
    };
    let alone = run("alone", [&other, after, ""]);
    assert!(said(&alone).contains("before: "), "{alone:?}");
    for (label, preloads) in [
        ("first", [&other, &ours, after]),
        ("last", [&ours, &other, after]),
    ] {
        let ended = run(label, preloads);
        assert_eq!(ended.output, alone.output, "{label}");
        assert_eq!(said(&ended), said(&alone), "{label}");
        let device = stage.gpu.counts(label);
        assert_eq!(device["launches"], operators, "{label}");
        assert_eq!(stage.daemon.total(label, "launches"), operators, "{label}");
        // If the other one stands after us, a call goes to it, and from it to the library.
        let counted = if label == "first" { operators } else { 0 };
        let calls = stage.daemon.total(label, "calls_operator");
        assert_eq!(calls, counted, "{label}");
    }
}

#[test]
fn a_library_that_stands_before_or_after_us_and_asks_for_the_next_product_gets_the_next_one() {
    expect_preloads_live_together(PROGRAM, &["steady", "5"], "", 5);
}

#[test]
fn a_library_that_stands_before_or_after_us_is_reached_by_plugins_that_bring_the_real_one() {
    let plugin = Version(12).plugin().display().to_string();
    let real = Version(12).path().display().to_string();
    expect_preloads_live_together(Program::Linked("versions"), &["5", &plugin], &real, 10);
}

/// A cuBLAS of that version, with versioned names as NVIDIA's have.
#[derive(Clone, Copy)]
struct Version(u32);

impl Version {
    fn path(self) -> PathBuf {
        let name = format!("libcublas.so.{}", self.0);
        let soname = format!("-Wl,--default-symver,-soname,{name}");
        let arguments = [soname.as_ref(), "-fPIC".as_ref()];
        compile("cublas", &name, &arguments)
    }

    fn plugin(self) -> PathBuf {
        let library = self.path();
        let folder = library.parent().unwrap().display();
        let path = format!("-Wl,-rpath,{folder}");
        let name = format!("libmultiplies{}.so", self.0);
        compile(
            "multiplies",
            &name,
            &["-fPIC".as_ref(), library.as_os_str(), path.as_ref()],
        )
    }
}

/// Compiles a library of `tests/programs` under another name.
fn compile(source: &str, name: &str, arguments: &[&OsStr]) -> PathBuf {
    let built = Program::Library("before").path();
    let folder = built.parent().unwrap();
    // Tests run concurrently: an unfinished file must have no final name.
    let (to, made) = (
        folder.join(name),
        tempfile::NamedTempFile::new_in(folder).unwrap(),
    );
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-g", "-shared", "-o"])
        .arg(made.path());
    cc.arg(sources.join(source).with_extension("c"))
        .args(arguments);
    let status = cc.status().expect("a C compiler is installed as cc");
    assert!(status.success(), "{cc:?} failed");
    made.persist(&to).unwrap();
    to
}

#[test]
fn a_process_may_hold_two_versions_of_a_library_and_each_caller_reaches_its_own() {
    let stage = Stage::new();
    let plugins = [12, 13].map(|version| Version(version).plugin());
    let arguments = [
        "4",
        plugins[0].to_str().unwrap(),
        plugins[1].to_str().unwrap(),
    ];
    // The program itself loads one of them globally, or none.
    for with_global in [false, true] {
        let job = |label: &str| {
            let label = format!("{label}-{with_global}");
            let job = stage.gpu.job(&label, "versions").args(&arguments);
            (label, job)
        };
        let global = Version(13).path();
        let (_, alone) = job("alone");
        let alone = if with_global {
            alone.env("LD_PRELOAD", &global)
        } else {
            alone
        };
        let alone = alone.run().expect_success();
        for class in CLASSES {
            let (label, job) = job(class.name());
            let job = job.under(stage.daemon.socket(), class);
            let preload = format!("{}:{}", library().display(), global.display());
            let job = if with_global {
                job.env("LD_PRELOAD", preload)
            } else {
                job
            };
            let ended = job.run().expect_success();
            assert_eq!(ended.output, alone.output, "{label}");
            assert_eq!(stage.gpu.counts(&label)["launches"], 16, "{label}");
            assert_eq!(stage.daemon.total(&label, "launches"), 16, "{label}");
            // Counted are the calls of the library that was called first.
            assert_eq!(stage.daemon.total(&label, "calls_operator"), 8, "{label}");
            assert_eq!(
                stage.daemon.total(&label, "launches_labelled"),
                8,
                "{label}"
            );
        }
    }
}

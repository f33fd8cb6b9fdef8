//! Unmodified third-party programs: clients of the driver API from PyPI and crates.io. They find
//! the software GPU's driver as `libcuda.so.1`, as any program finds NVIDIA's. Kernels that they
//! compile themselves (NVRTC, NVVM) are loaded by name and take time there, and compute nothing.
//! The tests show that launches, copies and allocations work, and that program, Pillion and device
//! count them alike.

use std::path::{Path, PathBuf};

use protocol::hello::JobClass;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Job, cargo_folder, tools, workspace};

/// Current compilers generate no code for the V100 of the other tests.
const DEVICE: &str = "A100-SXM4-40GB";

fn script(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    folder.join(format!("{name}.py"))
}

fn python(gpu: &Gpu, label: &str, interpreter: &Path, name: &str) -> Job {
    let job = gpu.job_of(label, interpreter);
    // A run leaves nothing in the workspace or in a home folder.
    job.arg("-B")
        .arg(script(name))
        .env("HOME", gpu.path(""))
        .env("NUMBA_CACHE_DIR", gpu.path("numba"))
        .env("PYTHONWARNINGS", "ignore")
}

/// Runs a script alone and in both classes: same output, and all parties count alike.
fn expect_unchanged(name: &str, modules: &[&str], check: impl Fn(&Daemon, &str, &Ended)) {
    let interpreter = tools::python(modules);
    let gpu = Gpu::start_device(DEVICE, "mps");
    let daemon = gpu.daemon("name = \"orion\"");
    let alone = python(&gpu, "alone", &interpreter, name).start();
    let alone = alone.finish_whenever().expect_success();
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = python(&gpu, label, &interpreter, name).under(daemon.socket(), class);
        let job = job.env("PILLION_PROFILE", profile(&gpu));
        let ended = job.start().finish_whenever();
        assert_eq!(ended.output, alone.output, "{label}: {ended:#?}");
        assert_eq!(ended.code(), 0, "{label}: {ended:#?}");
        if ended.output.contains("copied_h2d_bytes=") {
            gpu.expect_equal_counts(label, &ended, &daemon);
        } else {
            expect_equal_sums(&gpu, label, &ended, &daemon);
        }
        let (totals, device) = (daemon.totals(label), gpu.counts(label));
        assert_eq!(
            totals["allocated_bytes"], device["allocated_bytes"],
            "{totals:#} {device:#}"
        );
        assert_eq!(totals["panics_caught"], 0, "{totals:#}");
        check(&daemon, label, &ended);
    }
}

/// [`Gpu::expect_equal_counts`] for copies of unknown direction (`cuMemcpyAsync`): only bytes
/// count.
fn expect_equal_sums(gpu: &Gpu, label: &str, ended: &Ended, daemon: &Daemon) {
    let (totals, device) = (daemon.totals(label), gpu.counts(label));
    let copied = |counts: &Value| -> u64 {
        let counts = counts.as_object().expect("counters");
        let copied = counts
            .iter()
            .filter(|(name, _)| name.starts_with("copied_") && name.ends_with("_bytes"));
        copied.filter_map(|(_, bytes)| bytes.as_u64()).sum()
    };
    for counts in [&totals, &device] {
        assert_eq!(counts["launches"], ended.asked("launches"), "{counts:#}");
        assert_eq!(copied(counts), ended.asked("copied_bytes"), "{counts:#}");
    }
}

/// Lists `scale<float>` of `client_core.py` by its demangled name.
fn profile(gpu: &Gpu) -> PathBuf {
    let path = gpu.path("client.profile.toml");
    let kernel = |name: &str, class: &str| {
        format!(
            "[[kernel]]\nname = \"{name}\"\ngrid = [4, 1, 1]\nblock = [256, 1, 1]\nshared_bytes = 0\ncount = 1\n\
             duration_ns = {{ sum = 10000, median = 10000, p95 = 10000 }}\nregisters = 32\nsm_needed = 1\n\
             class = \"{class}\"\nclass_rule = \"given\"\n"
        )
    };
    let text = format!(
        "format = \"pillion-profile\"\nversion = 1\ngpu = \"{DEVICE}\"\nsources = []\n\n{}\n{}",
        kernel("void scale<float>(float *, float, int)", "compute"),
        kernel("saxpy", "memory"),
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn cuda_bindings_run_unchanged_with_kernels_that_compute() {
    expect_unchanged(
        "client_bindings",
        &["numpy", "cuda.bindings"],
        |daemon, label, _| {
            assert_eq!(daemon.total(label, "launches_unknown"), 0);
        },
    );
}

#[test]
fn cuda_core_runs_unchanged_and_its_nvrtc_kernels_compute_nothing_but_are_known_by_name() {
    let modules = ["numpy", "cuda.core", "cuda.bindings.nvrtc", "nvidia.cu13"];
    expect_unchanged("client_core", &modules, |daemon, label, _| {
        assert_eq!(daemon.total(label, "launches_unknown"), 0);
    });
}

#[test]
fn numba_cuda_runs_unchanged_and_its_kernels_compute_nothing() {
    expect_unchanged(
        "client_numba",
        &["numpy", "numba_cuda"],
        |daemon, label, ended| {
            assert_eq!(
                daemon.total(label, "launches_unknown"),
                ended.asked("launches")
            );
        },
    );
}

/// `pillion-replay` uses the driver through the crate cudarc.
#[test]
fn a_cudarc_program_runs_unchanged_and_counts_the_same() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    let trace = workspace().join("examples/traces/synthetic-inference.trace");
    for class in [
        None,
        Some(JobClass::HighPriority),
        Some(JobClass::BestEffort),
    ] {
        let label = class.map_or("alone", |class| class.name());
        let job = gpu.job_of(label, &cargo_folder().join("pillion-replay"));
        let job = job.arg("--trace").arg(&trace).args(&["--seconds", "0.2"]);
        let job = match class {
            Some(class) => job.under(daemon.socket(), class),
            None => job,
        };
        let ended = job.run().expect_success();
        let report: Value = serde_json::from_str(&ended.output).unwrap();
        assert_eq!(report["checks_wrong"], 0, "{report:#}");
        let device = gpu.counts(label);
        for counted in ["launches", "copied_h2d_bytes", "copied_d2h_bytes"] {
            assert_eq!(device[counted], report[counted], "{counted} of {label}");
            if class.is_some() {
                assert_eq!(
                    daemon.totals(label)[counted],
                    report[counted],
                    "{counted} of {label}"
                );
            }
        }
    }
}

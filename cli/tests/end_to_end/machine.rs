//! `pillion demo --gpu` as on a machine with a GPU, on a software GPU in its place: real clock,
//! PTX, calibration by events, phases according to the available MPS. It must never pass for a GPU.

use std::path::Path;

use serde_json::Value;
use softgpu::{Builtin, Device};

use crate::common::{Ended, Gpu, Process, cargo_folder, clean_command, pillion, tools};

/// Real seconds of a phase: enough for requests of both jobs to end.
const SECONDS: &str = "1";
/// Limit on calibration's mean error, relative to a request's time. Disturbances only lengthen
/// measurements; on an idle machine the error is below 0.01.
const ERROR_MAX: f64 = 0.15;

fn demo(gpu: &Gpu, pipes: &Path, arguments: &[&str]) -> Ended {
    cargo_folder();
    let mut command = gpu.command(pillion());
    command
        .args(["demo", "--seconds", SECONDS])
        .args(arguments)
        .env("CUDA_MPS_PIPE_DIRECTORY", pipes);
    Process::start("pillion demo", command).finish_whenever()
}

fn number(results: &Value, pointer: &str) -> f64 {
    let value = results.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer} in {results:#}"))
}

fn expect_counts_to_agree(results: &Value, phases: &[&str]) {
    let counts = results["counts"].as_object().unwrap();
    let mut found: Vec<&str> = counts.keys().map(String::as_str).collect();
    let mut expected = phases.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for (phase, jobs) in counts {
        for (job, counts) in jobs.as_object().unwrap() {
            let launches = &counts["program"]["launches"];
            assert!(launches.as_u64() > Some(0), "{phase} {job}");
            assert_eq!(&counts["device"]["launches"], launches, "{phase} {job}");
            if phase.ends_with("_pillion") {
                assert_eq!(&counts["pillion"]["launches"], launches, "{phase} {job}");
            }
        }
    }
}

fn expect_a_software_gpu(results: &Value) {
    assert_eq!(results["software_gpu"], true);
    assert_eq!(results["clock"], "real");
    assert_eq!(results["device"], "V100-SXM2-16GB");
    assert!(results["gpu"]["uuid"].as_str().unwrap().starts_with("GPU-"));
    for job in ["hp", "be"] {
        let error = number(results, &format!("/calibration/{job}/error"));
        assert!(error < ERROR_MAX, "{job}: {error}");
    }
}

#[test]
fn without_mps_a_machines_gpu_is_time_sliced_and_what_was_not_done_is_said() {
    let gpu = Gpu::start("timeslice");
    let out = gpu.path("out");
    let ended = demo(
        &gpu,
        &gpu.path(""),
        &["--gpu", "0", "--out", out.to_str().unwrap()],
    );
    let table = ended.expect_success().output;
    assert!(table.starts_with("software GPU V100-SXM2-16GB"), "{table}");
    for word in [
        "the phases under MPS were skipped",
        "both, time-sliced, under Pillion",
        "CUDA 12.8",
    ] {
        assert!(table.contains(word), "no {word:?} in {table}");
    }
    assert!(!table.contains("both, under MPS"), "{table}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let results: Value = serde_json::from_str(&read("results.json")).unwrap();
    expect_a_software_gpu(&results);
    assert!(
        results["not_done"]
            .as_str()
            .unwrap()
            .contains("control daemon does not run")
    );
    let phases = ["hp_solo", "be_solo", "timeslice", "timeslice_pillion"];
    expect_counts_to_agree(&results, &phases);
    let page = read("report.html");
    assert!(
        page.contains("Nothing here was measured on hardware"),
        "{page}"
    );
    assert!(!page.contains("Measured on"), "{page}");
    let timeline: Value = serde_json::from_str(&read("timeline.json")).unwrap();
    let is_hold = |event: &&Value| event["cat"] == "hold";
    let events = timeline["traceEvents"].as_array().unwrap();
    assert!(events.iter().filter(is_hold).count() > 0);
}

#[test]
fn where_the_control_daemon_of_mps_runs_its_phases_are_run_too() {
    let gpu = Gpu::start("mps");
    let pid = std::process::id().to_string();
    std::fs::write(gpu.path("nvidia-cuda-mps-control.pid"), pid).unwrap();
    let ended = demo(&gpu, &gpu.path(""), &["--gpu", "GPU-", "--json"]);
    let results: Value = serde_json::from_str(&ended.expect_success().output).unwrap();
    expect_a_software_gpu(&results);
    assert_eq!(results["not_done"], Value::Null);
    let phases = [
        "hp_solo",
        "be_solo",
        "timeslice",
        "timeslice_pillion",
        "mps",
        "mps_pillion",
    ];
    expect_counts_to_agree(&results, &phases);
}

/// One request's durations, ns: as modelled for the calibrated kernels, and the trace's.
fn modelled_and_asked_ns(folder: &Path) -> (Vec<u64>, Vec<u64>) {
    let text = std::fs::read_to_string(folder.join("calibration.json")).unwrap();
    let calibration: Value = serde_json::from_str(&text).unwrap();
    let trace = profiler::Trace::read(&folder.join("trace")).unwrap();
    let device = Device::by_name("V100-SXM2-16GB").unwrap();
    let both = |(index, kernel): (usize, &profiler::TraceKernel)| {
        let builtin = Builtin::of_entry(&kernel.name).expect("an entry of ours");
        let [blocks, threads] = [kernel.grid, kernel.block].map(|n| n.iter().product::<u32>());
        let of = |key: &str| calibration["kernels"][index][key].as_u64().unwrap();
        let work = of("work");
        let [blocks, per_loop] = [u64::from(blocks), of("per_loop")];
        let params = [0, 0, work / blocks, work % blocks, per_loop, blocks, 0, 0];
        let shape = builtin.shape(blocks, threads, kernel.shared_bytes, &params, &device);
        (shape.unwrap().solo_ns(&device).unwrap(), of("target_ns"))
    };
    let kernels: Vec<(u64, u64)> = trace.kernels.iter().enumerate().map(both).collect();
    trace
        .launches
        .iter()
        .map(|&index| kernels[index as usize])
        .unzip()
}

#[test]
fn calibrated_kernels_last_as_long_as_those_of_the_trace() {
    let gpu = Gpu::start("mps");
    let folder = gpu.path("calibrated");
    std::fs::create_dir(&folder).unwrap();
    let trace = gpu.path("trace");
    let mut workload = clean_command(pillion());
    workload
        .args(["workload", "bert-base-inference", "-o"])
        .arg(&trace);
    crate::common::collect(workload).expect_success();
    let replay = cargo_folder().join("pillion-replay");
    let mut command = gpu.command(&replay);
    command
        .arg("--trace")
        .arg(&trace)
        .arg("--calibrate")
        .arg(&folder);
    Process::start("calibration", command)
        .finish_whenever()
        .expect_success();

    let (modelled_ns, asked_ns) = modelled_and_asked_ns(&folder);
    let off_ns: u64 = modelled_ns
        .iter()
        .zip(&asked_ns)
        .map(|(a, b)| a.abs_diff(*b))
        .sum();
    let error = off_ns as f64 / asked_ns.iter().sum::<u64>() as f64;
    assert!(error < ERROR_MAX, "{error}");

    // The calibrated kernels are the ones replayed, with right results.
    let mut command = gpu.command(&replay);
    command
        .arg("--calibrated")
        .arg(&folder)
        .args(["--seconds", "0.2"]);
    let ended = Process::start("replay", command)
        .finish_whenever()
        .expect_success();
    let report: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(
        (&report["checks_wrong"], &report["launches_told"]),
        (&0.into(), &report["launches"])
    );
}

#[test]
fn without_a_gpu_one_line_says_so_and_the_software_gpu_is_used() {
    cargo_folder();
    let mut command = clean_command(pillion());
    // An existing driver must not be found.
    let nowhere = tempfile::tempdir().unwrap();
    std::fs::write(nowhere.path().join("libcuda.so.1"), "not a library").unwrap();
    command
        .args(["demo", "--seconds", "0.1", "--json"])
        .env("LD_LIBRARY_PATH", nowhere.path());
    let ended = Process::start("pillion demo", command)
        .finish_whenever()
        .expect_success();
    let lines: Vec<&str> = ended.errors.lines().collect();
    let [line] = lines[..] else {
        panic!("{}", ended.errors)
    };
    assert!(
        line.contains("using the software GPU, because no NVIDIA GPU is usable here"),
        "{line}"
    );
    // The loader's own message, not only the failure.
    assert!(line.contains("file too short"), "{line}");
    let results: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(
        (&results["software_gpu"], &results["clock"]),
        (&true.into(), &Value::Null)
    );
}

#[test]
fn a_gpu_that_is_not_there_and_one_that_is_named_twice_are_refused() {
    let gpu = Gpu::start("timeslice");
    let ended = demo(&gpu, &gpu.path(""), &["--gpu", "7"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(ended.errors.contains("no GPU with index 7"), "{ended:#?}");
    let ended = demo(&gpu, &gpu.path(""), &["--gpu", "0", "--device", "T4"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
}

/// GPUs from Volta to Blackwell; each ptxas knows those of its time.
const ARCHITECTURES: [&str; 8] = ["70", "75", "80", "86", "89", "90", "100", "120"];

/// ptxas's result for a text: entries with the registers they use; `None` if it refuses.
fn assembled(ptxas: &Path, architecture: &str, text: &Path) -> Option<Vec<(String, u32)>> {
    let mut command = clean_command(ptxas);
    command
        .args(["-v", "-o", "/dev/null", &format!("-arch=sm_{architecture}")])
        .arg(text);
    // ptxas is silent until the end, which takes minutes on a busy machine.
    let ended = Process::start("ptxas", command).finish_whenever();
    if !ended.status.success() {
        return None;
    }
    let said = format!("{}{}", ended.output, ended.errors);
    let mut entries = Vec::new();
    for line in said.lines() {
        if let Some(name) = line
            .split('\'')
            .nth(1)
            .filter(|_| line.contains("Compiling entry"))
        {
            entries.push((name.to_owned(), 0));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "Used") {
            entries.last_mut().unwrap().1 = words[at + 1].parse().unwrap();
        }
        let spills =
            line.contains("spill") && !line.contains("0 bytes spill stores, 0 bytes spill loads");
        assert!(!spills, "sm_{architecture}: {line}");
    }
    Some(entries)
}

#[test]
fn the_ptx_of_every_kernel_is_taken_by_ptxas_for_all_architectures_with_the_registers_asked_for() {
    let assemblers = tools::python_programs("ptxas");
    let folder = tempfile::tempdir().unwrap();
    let [trace, text] = ["trace", "kernels.ptx"].map(|name| folder.path().join(name));
    let mut workload = clean_command(pillion());
    workload
        .args(["workload", "resnet50-training", "-o"])
        .arg(&trace);
    crate::common::collect(workload).expect_success();
    let mut print = clean_command(cargo_folder().join("pillion-replay"));
    print.arg("--trace").arg(&trace).arg("--print-ptx");
    let ptx = crate::common::collect(print).expect_success().output;
    std::fs::write(&text, &ptx).unwrap();
    let asked = profiler::Trace::read(&trace).unwrap().kernels;
    let mut seen = Vec::new();
    for ptxas in &assemblers {
        for architecture in ARCHITECTURES {
            let Some(entries) = assembled(ptxas, architecture, &text) else {
                continue;
            };
            seen.push(architecture);
            assert_eq!(entries.len(), asked.len() + 1, "sm_{architecture}");
            for (name, used) in entries {
                let Some((_, index)) = name.split_once('$') else {
                    continue;
                };
                let kernel = &asked[index.parse::<usize>().unwrap()];
                // Memory-bound kernels use what they need; a chain with a register too few would
                // have been optimised away.
                let near = kernel.registers * 3 / 4..=kernel.registers * 5 / 4 + 8;
                let is_right = name.starts_with("pillion_memory") || near.contains(&used);
                assert!(
                    is_right,
                    "sm_{architecture}: {name} uses {used} of {}",
                    kernel.registers
                );
            }
        }
    }
    for needed in ["70", "80", "90", "100", "120"] {
        assert!(
            seen.contains(&needed),
            "no ptxas knows sm_{needed}: {seen:?} of {assemblers:?}"
        );
    }
    // A ptxas that accepts anything would show nothing.
    std::fs::write(&text, ptx.replacen("fma.rn.f32", "fma.rn.f33", 1)).unwrap();
    assert!(
        assemblers
            .iter()
            .all(|ptxas| assembled(ptxas, "90", &text).is_none())
    );
}

//! NVTX ranges as requests: counted exactly, and invisible to the program.

use std::fs;
use std::path::Path;

use protocol::hello::JobClass;
use serde_json::Value;

use crate::common::{Daemon, Gpu, Job, Program, collect, library, pillion, tools, workspace};

/// Requests of a service: ten by each of the six ways to mark them.
const REQUESTS: u64 = 60;

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of these tests are text")
}

fn service(gpu: &Gpu, daemon: &Daemon, how: &str, flags: &[&str]) -> Job {
    let program = Program::Linked("ranges").path();
    let mut words = vec!["--class", "high-priority"];
    words.extend(flags);
    let count = REQUESTS.to_string();
    words.extend(["--", text(&program), how, &count]);
    let job = gpu.pillion_run(how, daemon.socket(), &words);
    job.env("PILLION_JOB", how)
}

/// Waits until all records are read: that source, these marked and inferred requests, iterations.
fn expect(daemon: &Daemon, label: &str, source: &str, totals: [u64; 3]) {
    let counted = |job: &Value| {
        let names = ["requests_marked", "requests_inferred", "iterations"];
        names.map(|name| job["totals"][name].as_u64().unwrap_or(0))
    };
    let are_read = |job: &Value| counted(job).iter().zip(totals).all(|(is, all)| *is >= all);
    let job = daemon.job_when(label, &format!("{totals:?}"), are_read);
    let told = job["requests_source"].as_str().unwrap_or("none");
    assert_eq!((told, counted(&job)), (source, totals), "{label}");
}

#[test]
fn ranges_the_interface_and_inference_agree_in_the_number_of_requests() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", "ranges default 6").start_until("served");
    let alone = alone.finish().expect_success();
    assert!(alone.output.contains("taken=0\n"), "{alone:#?}");
    let mut training = gpu.job("training", "steady").best_effort(&daemon).start();
    training.wait_for("round", 1);
    for (how, flags, source, marked, taken) in [
        ("none", &[][..], "inferred", 0, 0),
        ("api", &[], "marks", REQUESTS, 0),
        (
            "default",
            &["--request-range", "/forward*"],
            "nvtx",
            REQUESTS,
            2,
        ),
        (
            "domain",
            &["--request-range", "service/request"],
            "nvtx",
            REQUESTS,
            2,
        ),
    ] {
        let job = service(&gpu, &daemon, how, flags).start_until("served");
        expect(&daemon, how, source, [marked, REQUESTS, 0]);
        let ended = job.finish().expect_success();
        let line = format!("taken={taken}\n");
        assert!(ended.output.contains(&line), "{how}: {ended:#?}");
        assert_eq!(ended.asked("launches"), 3 * REQUESTS);
        gpu.expect_equal_counts(how, &ended, &daemon);
    }
    training.wait_for_new("round", 1);
    gpu.expect_right_end("training", training, &daemon);
}

#[test]
fn iterations_are_counted_of_a_best_effort_job_and_its_ranges_are_no_requests() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::Linked("ranges").path();
    let words = [
        "--request-range",
        "nobody/nothing",
        "--iteration-range",
        "forward*",
        "--",
        text(&program),
        "default",
        "60",
    ];
    let job = gpu.pillion_run("be", daemon.socket(), &words);
    let job = job.env("PILLION_JOB", "be").start_until("served");
    // The pattern also matches one inner range in each pushed one.
    let inner = REQUESTS / 6 * 5;
    expect(&daemon, "be", "none", [0, 0, REQUESTS + inner]);
    gpu.expect_right_end("be", job, &daemon);
}

#[test]
fn another_copy_of_the_library_refuses_in_one_line_and_so_does_one_without_patterns() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let copy = gpu.path("libpillion.so");
    fs::copy(library(), &copy).unwrap();
    let run = |label: &'static str, tool: &Path, range: &str| {
        let job = gpu.job(label, "ranges default 20");
        let job = job
            .in_class(JobClass::HighPriority)
            .under(daemon.socket(), JobClass::HighPriority);
        let job = job.env("NVTX_INJECTION64_PATH", tool);
        let job = job.env("PILLION_REQUEST_RANGE", range);
        let job = job.start_until("served");
        expect(&daemon, label, "inferred", [0, 20, 0]);
        let ended = job.finish().expect_success();
        assert!(ended.output.contains("taken=0\n"), "{ended:#?}");
        ended.errors
    };
    let errors = run("copy", &copy, "/forward*");
    let line = "pillion: NVTX_INJECTION64_PATH names another libpillion.so than the preloaded one";
    assert_eq!(errors.matches(line).count(), 2, "once a module: {errors}");
    let errors = run("unasked", &library(), "");
    assert!(!errors.contains("NVTX"), "{errors}");
    let errors = run("nonsense", &library(), "a*/b");
    assert!(
        errors.contains("PILLION_REQUEST_RANGE=\"a*/b\": expected DOMAIN/GLOB"),
        "{errors}"
    );
}

#[test]
fn nonsense_is_refused_before_the_job_starts_and_another_tool_goes_first() {
    let gpu = Gpu::start("mps");
    let nobody = Path::new("/nowhere/pillion.sock");
    let run = |flags: &[&str]| {
        let words = [
            flags,
            &["--", "/bin/sh", "-c", "echo $NVTX_INJECTION64_PATH"],
        ]
        .concat();
        gpu.pillion_run("job", nobody, &words)
    };
    for nonsense in ["", "triton/", "*/forward"] {
        let ended = run(&["--request-range", nonsense]).run();
        assert_eq!((ended.code(), &*ended.output), (2, ""), "{nonsense}");
        ended.expect_errors(&["expected DOMAIN/GLOB such as /forward*"]);
    }
    let ended = run(&[]).env("PILLION_ITERATION_RANGE", "a/").run();
    assert_eq!(ended.code(), 2, "{ended:#?}");
    ended.expect_errors(&["PILLION_ITERATION_RANGE=a/: expected DOMAIN/GLOB"]);
    let ended = run(&["--shim", "--request-range", "/forward*"]).run();
    assert_eq!(ended.code(), 2, "{ended:#?}");
    ended.expect_errors(&["cannot be read with --shim"]);

    let flags = ["--request-range", "/forward*"];
    let ended = run(&flags).run().expect_success();
    let ours = Path::new(ended.output.trim());
    assert_eq!(
        ours.canonicalize().unwrap(),
        library().canonicalize().unwrap()
    );
    let ended = run(&flags).env("NVTX_INJECTION64_PATH", "/opt/nsight/tool.so");
    let ended = ended.run().expect_success();
    assert_eq!(ended.output, "/opt/nsight/tool.so\n");
    ended.expect_errors(&["this tool receives the NVTX ranges instead of Pillion"]);
    assert_eq!(run(&[]).run().expect_success().output, "\n");
}

#[test]
fn doctor_says_who_hears_of_ranges() {
    let gpu = Gpu::start("mps");
    let examine = |variable: &str, value: &str| {
        let mut command = gpu.command(pillion());
        command.arg("doctor").env(variable, value);
        collect(command).output
    };
    let row = |output: &str, subject: &str| {
        let line = output.lines().find(|line| line.contains(subject));
        line.unwrap_or_else(|| panic!("{output}")).trim().to_owned()
    };
    let tool = "NVTX_INJECTION64_PATH";
    let other = examine(tool, "/opt/nsight/tool.so");
    assert!(row(&other, tool).starts_with("warning"), "{other}");
    assert!(other.contains("that tool receives the NVTX ranges instead of Pillion"));
    let range = "PILLION_REQUEST_RANGE";
    assert!(row(&examine(range, "forward"), range).ends_with("/forward"));
    assert!(row(&examine(range, "a*/b"), range).starts_with("error"));
}

/// By NVIDIA's package for Python, which is built with the public headers.
#[test]
fn nvidias_own_nvtx_tells_us_of_each_range() {
    let python = tools::python(&["nvtx"]);
    let program = workspace().join("cli/tests/programs/ranges.py");
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (how, range) in [
        ("annotate", "/forward ?*"),
        ("started", "forward*"),
        ("pushed", "service/forward"),
        ("registered", "service/*ward"),
    ] {
        let words = ["--class", "high-priority", "--request-range", range, "--"];
        let job = gpu.pillion_run(how, daemon.socket(), &words);
        let job = job.arg(&python).arg("-B").arg(&program).arg(how);
        let job = job.env("PILLION_JOB", how).start_until("served");
        expect(&daemon, how, "nvtx", [20, 0, 0]);
        job.finish().expect_success();
    }
}

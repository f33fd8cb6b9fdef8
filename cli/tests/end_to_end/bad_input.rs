//! Errors state their place, the value and what would be right; no job fails because of Pillion.

use std::path::{Path, PathBuf};

use protocol::hello::JobClass;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    Daemon, Ended, Gpu, Process, Program, cargo_folder, clean_command, collect, pillion, until,
    workspace,
};

/// Configuration files with one error each, and the expected message: line, column, and words.
const FAULTY: [(&str, &str, &[&str]); 7] = [
    (
        "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\nmax_hold_msec = 5\n",
        "5:1",
        &["max_hold_msec", "nearest is `max_hold_ms`"],
    ),
    (
        "[gpu]\nindex = \"first\"\nsharing = \"mps\"\n",
        "2:9",
        &["\"first\"", "whole number", "nearest is 0"],
    ),
    (
        "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\npoll_us = 5\n",
        "5:11",
        &["poll_us is 5", "from 10 to 1000", "nearest is 10"],
    ),
    (
        "[gpu]\nindex = 0\nsharing = \"mpss\"\n",
        "3:11",
        &["\"mpss\"", "mps, timeslice", "nearest is \"mps\""],
    ),
    (
        "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\nname = \"orient\"\n",
        "5:8",
        &[
            "\"orient\"",
            "none, pillion, orion, temporal",
            "nearest is \"orion\"",
        ],
    ),
    (
        "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\nname = \"orion\"\ndur_threshold_pct = 250\n",
        "6:21",
        &["dur_threshold_pct is 250", "at most 100", "nearest is 100"],
    ),
    ("[gpu]\nindex = \n", "2:", &[]),
];

const MALFORMED_ORION: &str =
    "Name,Profile,Memory_footprint,SM_usage,Duration\nConv,1,0,98,100480\nConv,1,0,98,soon\n";

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_faulty_configuration_is_refused_with_place_value_and_nearest() {
    let folder = tempfile::tempdir().unwrap();
    for (text, place, words) in FAULTY {
        let path = write(folder.path(), "gpu0.toml", text);
        let place = format!("{}:{place}", path.display());
        let mut check = clean_command(pillion());
        check.args(["config", "check"]).arg(&path);
        let mut daemon = clean_command(cargo_folder().join("pilliond"));
        daemon.arg("--config").arg(&path);
        for command in [check, daemon] {
            let ended = collect(command);
            assert_eq!((ended.code(), &*ended.output), (2, ""), "{text}");
            ended.expect_errors(&[&place]).expect_errors(words);
        }
    }
}

#[test]
fn every_fault_of_a_configuration_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[gpu]\nindex = 0\nsharing = 7\n[policy]\npoll = 50\nlease_ms = 0\n[sockets]\n";
    let path = write(folder.path(), "gpu0.toml", text);
    let mut check = clean_command(pillion());
    check.args(["config", "check"]).arg(&path);
    let ended = collect(check);
    assert_eq!(ended.code(), 2);
    ended.expect_errors(&[":3:11", ":5:1", ":6:12", ":7:2"]);
}

#[test]
fn the_example_configuration_is_right() {
    let mut check = clean_command(pillion());
    check.args(["config", "check"]);
    check.arg(workspace().join("examples/gpu0.toml"));
    assert!(collect(check).expect_success().output.contains("ok"));
}

fn config(folder: &Path, words: &[&str]) -> Ended {
    let mut command = clean_command(pillion());
    command.arg("config").args(words);
    command.env("PILLION_CONFIG_FOLDER", folder);
    collect(command)
}

#[test]
fn a_whole_folder_of_configurations_is_checked_and_a_gpu_has_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let empty = config(folder, &["check"]).expect_success();
    assert!(empty.output.contains("built-in defaults"), "{empty:#?}");
    write(folder, "default.toml", "[policy]\npoll_us = 100\n");
    write(folder, "gpu0.toml", "[gpu]\nindex = 0\n");
    std::fs::create_dir(folder.join("gpu0.d")).unwrap();
    write(
        &folder.join("gpu0.d"),
        "10-slo.toml",
        "[policy]\nslo_p99 = \"1.2x\"\n",
    );
    let right = config(folder, &["check"]).expect_success();
    let name = |file: &str| folder.join(file).display().to_string();
    let lines = ["default.toml", "gpu0.toml"].map(|file| format!("{}: ok\n", name(file)));
    assert_eq!(right.output, lines.concat());

    write(folder, "gpu1.toml", "[gpu]\nindex = 0\n");
    write(
        &folder.join("gpu0.d"),
        "20-late.toml",
        "[policy]\npoll = 1\n",
    );
    write(folder, "default.toml", "[gpu]\nindex = 0\n");
    let wrong = config(folder, &["check"]);
    assert_eq!((wrong.code(), &*wrong.output), (2, ""), "{wrong:#?}");
    let late = format!("{}:2:1: unknown key `poll`", name("gpu0.d/20-late.toml"));
    let named = format!(
        "{}:2:9: index selects a GPU in a file for all",
        name("default.toml")
    );
    wrong.expect_errors(&[&late, &named]);
    // A file of defaults belongs to no daemon.
    let mut daemon = clean_command(cargo_folder().join("pilliond"));
    daemon.arg("--config").arg(folder.join("default.toml"));
    let refused = collect(daemon);
    assert_eq!(refused.code(), 2, "{refused:#?}");
    refused.expect_errors(&[
        "default.toml: holds the defaults for all GPUs; pass the file of one GPU",
    ]);
    std::fs::remove_dir_all(folder.join("gpu0.d")).unwrap();
    std::fs::remove_file(folder.join("default.toml")).unwrap();
    let wrong = config(folder, &["check"]);
    let twice = format!(
        "{}: the GPU with index 0 already has the file ",
        name("gpu1.toml")
    );
    wrong.expect_errors(&[&twice]);
}

#[test]
fn a_configuration_is_checked_from_standard_input() {
    let check = |text: &str| {
        let mut command = clean_command(pillion());
        command.args(["config", "check", "-"]);
        let mut process = Process::start("check", command);
        process.write(text);
        process.finish()
    };
    let right = check("[gpu]\nindex = 0\n").expect_success();
    assert_eq!(right.output, "standard input: ok\n");
    let wrong = check("[gpu]\nindex = 999\n");
    assert_eq!(wrong.code(), 2, "{wrong:#?}");
    wrong.expect_errors(&["standard input:2:9: index is 999"]);
}

#[test]
fn a_configuration_that_does_not_fit_this_machine_is_said_to() {
    let gpu = Gpu::start("mps");
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let path = write(folder.path(), "gpu.toml", text);
        let mut command = gpu.command(pillion());
        command
            .args(["config", "check", "--this-machine"])
            .arg(path);
        collect(command)
    };
    check("[gpu]\nindex = 0\n").expect_success();
    let wrong = check("[gpu]\nindex = 3\n");
    assert_eq!(wrong.code(), 2, "{wrong:#?}");
    wrong.expect_errors(&["gpu.toml: [gpu]: no GPU with index 3; GPUs found: GPU-"]);
    let wrong = check("[gpu]\nindex = 0\n[memory]\nbest_effort = \"100GiB\"\n");
    wrong.expect_errors(&["[memory] best_effort is 102400 MiB, but the GPU has 16384 MiB"]);
}

#[test]
fn what_is_in_force_is_shown_with_its_origin_before_and_after_a_reload() {
    let gpu = Gpu::start("mps");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "default.toml", "[policy]\nmax_hold_ms = 200\n");
    let show = |socket: Option<&Path>| {
        let mut command = gpu.command(pillion());
        command.args(["config", "show", "--gpu", "0", "--json"]);
        command.env("PILLION_CONFIG_FOLDER", folder);
        command.env("XDG_RUNTIME_DIR", folder);
        if let Some(socket) = socket {
            command.env("PILLION_SOCKET", socket);
        }
        let ended = collect(command).expect_success();
        let shown: Value = serde_json::from_str(&ended.output).unwrap();
        shown["configurations"][0].clone()
    };
    let of = |shown: &Value, key: &str| {
        let settings = shown["settings"].as_array().unwrap().iter();
        let mut found = settings.filter(|setting| setting["key"] == key);
        let found = found
            .next()
            .unwrap_or_else(|| panic!("no {key}: {shown:#}"));
        (
            found["value"].clone(),
            found["origin"].as_str().unwrap().to_owned(),
        )
    };
    let planned = show(None);
    assert_eq!(planned["running"], false);
    let origin = |file: &str, place: &str| format!("{}:{place}", folder.join(file).display());
    let hold = (200.into(), origin("default.toml", "2:15"));
    assert_eq!(of(&planned, "policy.max_hold_ms"), hold);
    assert_eq!(
        of(&planned, "policy.poll_us"),
        (50.into(), "default".to_owned())
    );

    let daemon = gpu.daemon("poll_us = 100\n");
    let shown = show(Some(daemon.socket()));
    assert_eq!(shown["running"], true);
    assert_eq!(of(&shown, "policy.poll_us").0, 100);
    let path = gpu.config(daemon.socket(), "poll_us = 200\n");
    daemon.signal(Signal::HUP);
    until("what the reload has changed", || {
        of(&show(Some(daemon.socket())), "policy.poll_us").0 == 200
    });
    let (_, origin) = of(&show(Some(daemon.socket())), "policy.poll_us");
    assert!(origin.starts_with(&path.display().to_string()), "{origin}");
}

#[test]
fn a_missing_configuration_is_said_with_its_name() {
    let mut check = clean_command(pillion());
    check.args(["config", "check", "/nowhere/gpu0.toml"]);
    let ended = collect(check);
    assert_eq!(ended.code(), 2);
    ended.expect_errors(&["/nowhere/gpu0.toml"]);
}

#[test]
fn an_unknown_policy_of_the_demo_is_answered_with_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut demo = clean_command(pillion());
    demo.args(["demo", "--policy", "fair", "--out"]).arg(&out);
    let ended = collect(demo);
    assert_eq!(ended.code(), 2);
    assert!(!out.exists(), "nothing is written");
    ended.expect_errors(&["fair", "none", "orion", "temporal"]);
}

#[test]
fn unusable_input_of_the_demo_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "trace", MALFORMED_ORION);
    let place = format!("{}:3", trace.display());
    let trace = trace.to_str().unwrap();
    for (arguments, words) in [
        (["--hp", "/nowhere/trace"], ["/nowhere/trace"].as_slice()),
        (["--be", trace], &[&place, "soon"]),
        (["--device", "V100"], &["V100", "V100-SXM2-16GB"]),
        (["--seconds", "-1"], &["-1"]),
        (["--hp-rate", "0"], &["0"]),
        (["--arrivals", "often"], &["often", "poisson"]),
    ] {
        let mut demo = clean_command(pillion());
        demo.arg("demo").args(arguments);
        let ended = collect(demo);
        assert_eq!(
            (ended.code(), &*ended.output),
            (2, ""),
            "{arguments:?} {ended:#?}"
        );
        ended.expect_errors(words);
    }
}

#[test]
fn an_unknown_class_is_answered_with_the_list() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let list = ["highest", "high-priority", "best-effort"];
    let arguments = ["--class", "highest", "--", "/bin/echo", "started"];
    let ended = gpu.pillion_run("job", daemon.socket(), &arguments).run();
    assert_eq!((ended.code(), &*ended.output), (2, ""));
    ended.expect_errors(&list);
    let job = gpu.pillion_run("job", daemon.socket(), &arguments[2..]);
    let ended = job.env("PILLION_CLASS", "highest").run();
    assert_eq!((ended.code(), &*ended.output), (2, ""));
    ended.expect_errors(&list);
    // Without `pillion run` nothing refuses the job: it runs, as best-effort.
    let job = gpu.job("by-hand", "work linked 5 0").best_effort(&daemon);
    let ended = job.env("PILLION_CLASS", "highest").run().expect_success();
    assert_eq!(daemon.job("by-hand")["class"], "best-effort");
    assert_eq!(ended.errors.lines().count(), 1, "{ended:#?}");
    ended.expect_errors(&list);
}

fn expect_to_run_with_unknown_kernels(gpu: &Gpu, daemon: &Daemon, profile: &Path, said: &[&str]) {
    let expect = |label: &str, ended: Ended| {
        let ended = ended.expect_success();
        assert!(
            ended.errors.contains(&*profile.to_string_lossy()),
            "{label}: {ended:#?}"
        );
        // Reported once, with the reason; a second line about unknown kernels would repeat it.
        let said_again = ended.errors.contains("unknown duration");
        assert!(!said_again, "{label}: said once: {ended:#?}");
        assert_eq!(ended.asked("launches"), 13);
        ended
            .expect_errors(said)
            .expect_errors(&["without a profile"]);
    };
    let job = gpu.job("by-hand", "work linked 5 0").best_effort(daemon);
    let ended = job.env("PILLION_PROFILE", profile).run();
    let clients = daemon.totals("by-hand");
    assert_eq!(
        clients["launches_unknown"], clients["launches"],
        "{clients:#}"
    );
    expect("by hand", ended);
    let work = Program::Linked("work").path();
    let (profile_text, work) = (profile.to_str().unwrap(), work.to_str().unwrap());
    let command = ["--", work, "linked", "5", "0"];
    let run = gpu.pillion_run("run", daemon.socket(), &command);
    expect("pillion run", run.env("PILLION_PROFILE", profile).run());
    // A profile requested by a flag is required: nothing starts.
    let arguments = [&["--profile", profile_text], &command[..]].concat();
    let refused = gpu.pillion_run("flag", daemon.socket(), &arguments).run();
    assert_eq!((refused.code(), &*refused.output), (2, ""), "{refused:#?}");
    let named = refused.errors.matches(profile_text).count();
    assert_eq!(named, 1, "{refused:#?}");
}

#[test]
fn a_missing_profile_is_said_once_and_the_job_runs_with_unknown_kernels() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let profile = gpu.path("no-such.profile.toml");
    expect_to_run_with_unknown_kernels(&gpu, &daemon, &profile, &["cannot be read"]);
}

#[test]
fn a_malformed_profile_is_said_once_with_its_line_and_the_job_runs_with_unknown_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let builtin = workspace().join("cli/tests/programs/builtin.profile.toml");
    let builtin = std::fs::read_to_string(builtin).unwrap();
    let toml = builtin.replacen("class = \"memory\"", "class = \"memmory\"", 1);
    for (name, text, place) in [
        ("orion", MALFORMED_ORION, ":3:"),
        ("profile.toml", &toml, ":15:9"),
        (
            "version.toml",
            "format = \"pillion-profile\"\nversion = 99\n",
            ":2:",
        ),
    ] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let profile = write(folder.path(), name, text);
        expect_to_run_with_unknown_kernels(&gpu, &daemon, &profile, &[name, place]);
    }
}

#[test]
fn orions_own_malformed_file_is_said_with_its_line_and_the_job_runs() {
    let orion = crate::demo::orion_folder();
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let profile = orion.join("profiles/resnet50_32_fb1_new");
    expect_to_run_with_unknown_kernels(&gpu, &daemon, &profile, &["resnet50_32_fb1_new:"]);
}

fn unknown(class: JobClass) -> String {
    let what = match class {
        JobClass::BestEffort => " until learnt",
        JobClass::HighPriority => {
            "; run the job once as best-effort, or use `pillion profile record -o FILE -- CMD`"
        }
    };
    format!("pillion: kernels of unknown duration, the largest saxpy, count as 100 us each{what}\n")
}

#[test]
fn without_a_profile_kernels_are_unknown_which_is_said_once() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, "work linked 5 0");
        let job = job.under(daemon.socket(), class).without_profile().run();
        let ended = job.expect_success();
        assert_eq!(daemon.total(label, "launches_unknown"), 13);
        assert_eq!(ended.errors, unknown(class));
    }
}

#[test]
fn a_job_that_goes_on_is_told_of_unknown_kernels_while_it_runs() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "[learnt]\nkeep = false");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let job = gpu
            .job(class.name(), "steady")
            .under(daemon.socket(), class);
        let mut job = job.without_profile().start();
        until("the line", || job.errors() == unknown(class));
        job.wait_for_new("round", 60);
        assert_eq!(job.finish().expect_success().errors, unknown(class));
    }
}

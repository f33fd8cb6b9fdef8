//! `pillion doctor`: each check reports ok where things are right, and the fix where they are not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Ended, Gpu, clean_command, collect, pillion};

fn doctor(gpu: Option<&Gpu>, arguments: &[&str], environment: &[(&str, &str)]) -> (Ended, Value) {
    let mut command = match gpu {
        Some(gpu) => gpu.command(pillion()),
        None => clean_command(pillion()),
    };
    command.args(["doctor", "--json"]).args(arguments);
    command.env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent");
    command.envs(environment.iter().copied());
    let ended = collect(command);
    let document = serde_json::from_str(&ended.output).expect("one JSON document");
    (ended, document)
}

/// Verdict, finding and fix of the one check whose name begins so.
fn check(document: &Value, begins: &str) -> (String, String, String) {
    let checks = document["checks"].as_array().expect("a list of checks");
    let mut fitting = checks.iter().filter(|check| {
        check["check"]
            .as_str()
            .is_some_and(|name| name.starts_with(begins))
    });
    let found = fitting
        .next()
        .unwrap_or_else(|| panic!("no {begins} in {document:#}"));
    assert!(fitting.next().is_none(), "several {begins} in {document:#}");
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("found"), text("mend"))
}

#[test]
fn with_driver_and_daemon_everything_is_well() {
    let (gpu, daemon) = Gpu::with_daemon("timeslice", "");
    let socket = daemon.socket().display().to_string();
    let (ended, document) = doctor(Some(&gpu), &[], &[("PILLION_SOCKET", &socket)]);
    assert_eq!(ended.code(), 0, "{document:#}");
    assert_eq!(document["errors"], 0);
    for (name, part) in [
        ("driver", "libcuda.so"),
        ("GPU GPU-", "SMs"),
        ("NVML", "libnvidia_ml.so, driver 570."),
        ("preload library", "loads into /"),
        ("daemon at", "policy pillion, timeslice"),
        ("MPS", "does not run"),
    ] {
        let (verdict, found, _) = check(&document, name);
        assert_eq!(verdict, "ok", "{name}: {document:#}");
        assert!(found.contains(part), "{name}: {found}");
    }
}

#[test]
fn without_a_driver_that_is_said_once_with_what_to_do() {
    let (ended, document) = doctor(None, &[], &[]);
    if check(&document, "driver").0 == "ok" {
        testing::ignore("this machine has a driver");
    }
    assert_eq!(ended.code(), 1);
    let (verdict, found, mend) = check(&document, "driver");
    assert_eq!((&*verdict, &document["errors"]), ("error", &Value::from(1)));
    assert!(found.contains("libcuda.so.1"), "{found}");
    assert!(mend.contains("LD_LIBRARY_PATH"), "{mend}");
    assert_eq!(check(&document, "NVML").0, "warning");
}

#[test]
fn a_driver_without_a_device_is_an_error() {
    let gpu = Gpu::start("mps");
    let (ended, document) = doctor(Some(&gpu), &[], &[("SOFTGPU_SOCKET", "/nonexistent")]);
    assert_eq!(ended.code(), 1);
    let (verdict, found, mend) = check(&document, "GPUs");
    assert_eq!(verdict, "error");
    assert!(found.contains("100"), "{found}");
    assert!(mend.contains("nvidia-smi"), "{mend}");
}

#[test]
fn a_gpu_without_a_daemon_is_a_warning_and_a_dead_daemons_socket_an_error() {
    let gpu = Gpu::start("mps");
    let folder = tempfile::tempdir().unwrap();
    let runtime = folder.path().display().to_string();
    let (ended, document) = doctor(Some(&gpu), &[], &[("XDG_RUNTIME_DIR", &runtime)]);
    assert_eq!(ended.code(), 0, "{document:#}");
    let (verdict, found, mend) = check(&document, "daemon of GPU-");
    assert_eq!(verdict, "warning");
    assert!(found.contains(&runtime), "{found}");
    assert!(mend.contains("pilliond --config"), "{mend}");

    let (ended, document) = doctor(Some(&gpu), &[], &[("PILLION_SOCKET", "/nonexistent.sock")]);
    assert_eq!(ended.code(), 1);
    let (verdict, _, mend) = check(&document, "daemon at /nonexistent.sock");
    assert_eq!(verdict, "error");
    assert!(mend.contains("unset PILLION_SOCKET"), "{mend}");
}

#[test]
fn where_mps_shares_the_gpu_it_is_said_what_a_killed_job_does_and_how_to_end_one() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let socket = daemon.socket().display().to_string();
    let (_, document) = doctor(Some(&gpu), &[], &[("PILLION_SOCKET", &socket)]);
    let (verdict, found, _) = check(&document, "killed jobs");
    assert_eq!(verdict, "ok", "{found}");
    for part in [
        "may terminate all others",
        "`pillion stop`",
        "PILLION_DRAIN_MS",
        "terminationGracePeriodSeconds",
    ] {
        assert!(found.contains(part), "no {part} in {found}");
    }
    for (ms, told) in [(None, "(2000 here)"), (Some("60000"), "(60000 here)")] {
        let mut environment = vec![("PILLION_SOCKET", &*socket)];
        environment.extend(ms.map(|ms| ("PILLION_DRAIN_MS", ms)));
        let (_, document) = doctor(Some(&gpu), &[], &environment);
        let (_, found, _) = check(&document, "killed jobs");
        assert!(found.contains(told), "no {told} in {found}");
    }
    let environment = [("PILLION_SOCKET", &*socket), ("PILLION_DRAIN_MS", "0")];
    let (_, document) = doctor(Some(&gpu), &[], &environment);
    let (verdict, _, mend) = check(&document, "killed jobs");
    assert_eq!(verdict, "warning");
    assert!(mend.contains("unset PILLION_DRAIN_MS"), "{mend}");
    let (gpu, daemon) = Gpu::with_daemon("timeslice", "");
    let socket = daemon.socket().display().to_string();
    let (_, document) = doctor(Some(&gpu), &[], &[("PILLION_SOCKET", &socket)]);
    let checks = document["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["check"] != "killed jobs"));
}

#[test]
fn mps_and_the_daemon_must_agree() {
    let (gpu, daemon) = Gpu::with_daemon("timeslice", "");
    let socket = daemon.socket().display().to_string();
    let pipes = tempfile::tempdir().unwrap();
    let pid_file = pipes.path().join("nvidia-cuda-mps-control.pid");
    let pipes = pipes.path().display().to_string();
    let environment = [
        ("PILLION_SOCKET", &*socket),
        ("CUDA_MPS_PIPE_DIRECTORY", &*pipes),
    ];
    let verdict = || check(&doctor(Some(&gpu), &[], &environment).1, "MPS");
    fs::write(&pid_file, std::process::id().to_string()).unwrap();
    let (kind, found, mend) = verdict();
    assert_eq!(kind, "warning", "{found}");
    assert!(mend.contains("sharing = \"auto\""), "{mend}");
    // No process has this number: PID_MAX_LIMIT is 2^22.
    fs::write(&pid_file, "4999999").unwrap();
    assert_eq!(verdict().0, "ok");
}

#[test]
fn a_daemon_that_does_not_see_the_pipes_of_mps_is_a_warning_and_says_so_in_its_log() {
    let gpu = Gpu::start("mps");
    let pipes = tempfile::tempdir().unwrap();
    let pid_file = pipes.path().join("nvidia-cuda-mps-control.pid");
    fs::write(pid_file, std::process::id().to_string()).unwrap();
    let shown = pipes.path().display().to_string();
    for (folder, is_seen) in [
        (Path::new("/nonexistent/pipes"), false),
        (pipes.path(), true),
    ] {
        let daemon = gpu.daemon_with("CUDA_MPS_PIPE_DIRECTORY", folder);
        let socket = daemon.socket().display().to_string();
        let environment = [
            ("PILLION_SOCKET", &*socket),
            ("CUDA_MPS_PIPE_DIRECTORY", &*shown),
        ];
        let (_, document) = doctor(Some(&gpu), &[], &environment);
        assert_eq!(check(&document, "MPS").0, "ok");
        let log = "/nonexistent/pipes does not exist for this daemon";
        assert_eq!(daemon.log().contains(log), !is_seen, "{}", daemon.log());
        match is_seen {
            true => {
                let checks = document["checks"].as_array().unwrap();
                assert!(checks.iter().all(|check| check["check"] != "pipes of MPS"));
            }
            false => {
                let (verdict, found, mend) = check(&document, "pipes of MPS");
                assert_eq!(verdict, "warning", "{found}");
                assert!(found.contains("/nonexistent/pipes"), "{found}");
                assert!(mend.contains("PrivateTmp"), "{mend}");
            }
        }
        daemon.signal(rustix::process::Signal::TERM);
        daemon.finish().expect_success();
    }
}

#[test]
fn a_daemon_that_was_told_of_mps_where_there_is_none_is_a_warning() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let socket = daemon.socket().display().to_string();
    let (_, document) = doctor(Some(&gpu), &[], &[("PILLION_SOCKET", &socket)]);
    let (verdict, found, _) = check(&document, "MPS");
    assert_eq!(verdict, "warning", "{found}");
}

#[test]
fn a_program_is_judged_by_what_the_loader_can_do_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("empty.c"), "int main(void) { return 0; }\n").unwrap();
    let compile = |out: &str, flags: &[&str]| {
        let mut cc = Command::new("cc");
        let status = cc
            .args(flags)
            .arg("-o")
            .arg(path(out))
            .arg(path("empty.c"))
            .status();
        assert!(status.unwrap().success(), "{cc:?}");
    };
    compile("dynamic", &[]);
    compile("static", &["-static"]);
    compile("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    let script = |name: &str, text: &str| {
        fs::write(path(name), text).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("script", &format!("#!{}\n", path("dynamic")));
    script("lost", "#!/nonexistent/interpreter\n");
    script("text", "no program\n");
    for (name, verdict, part) in [
        ("dynamic", "ok", "dynamically linked"),
        ("static", "error", "statically linked"),
        ("musl", "error", "musl"),
        ("script", "ok", "dynamic"),
        ("lost", "error", "/nonexistent/interpreter"),
        ("text", "error", "neither a script nor"),
        ("absent", "error", "not found"),
    ] {
        let program = path(name);
        let (_, document) = doctor(None, &[&program], &[]);
        let (found_verdict, found, _) = check(&document, "program ");
        assert_eq!(found_verdict, verdict, "{name}: {found}");
        assert!(found.contains(part), "{name}: {found}");
    }
    let (_, document) = doctor(None, &["sh"], &[("PATH", "/bin:/usr/bin")]);
    assert_eq!(check(&document, "program sh").0, "ok");
}

#[test]
fn a_program_that_changes_its_user_is_an_error() {
    if !rustix::process::getuid().is_root() {
        testing::ignore("only root can give a file to another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("other");
    fs::copy("/bin/true", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let program = program.display().to_string();
    let (_, document) = doctor(None, &[&program], &[]);
    let (verdict, found, _) = check(&document, "program ");
    assert_eq!(verdict, "error");
    assert!(found.contains("set-user-ID"), "{found}");
}

#[test]
fn configuration_profile_and_environment_are_read_as_daemon_and_library_would() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.toml");
    fs::write(&good, "[gpu]\nindex = 0\nsharing = \"mps\"\n").unwrap();
    let bad = folder.path().join("bad.toml");
    fs::write(&bad, "[gpu]\nindex = 0\nsharing = \"mpss\"\n").unwrap();
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/builtin.profile.toml");
    let [good, bad, profile] = [&good, &bad, &profile].map(|p| p.display().to_string());
    let environment = [
        ("PILLION_PROFILE", &*profile),
        ("PILLION_CLASS", "best-effort"),
    ];
    let (_, document) = doctor(None, &["--config", &good, "--config", &bad], &environment);
    let verdict = |name: &str| check(&document, name).0;
    assert_eq!(verdict(&format!("configuration {good}")), "ok");
    assert_eq!(verdict("profile "), "ok");
    assert_eq!(verdict("PILLION_CLASS"), "ok");
    let (kind, found, _) = check(&document, &format!("configuration {bad}"));
    assert_eq!(kind, "error");
    assert!(found.contains("3:11"), "{found}");

    let environment = [
        ("PILLION_PROFILE", "/nonexistent.toml"),
        ("PILLION_CLASS", "highest"),
        ("PILLION_DISABLE", "1"),
    ];
    let (ended, document) = doctor(None, &[], &environment);
    assert_eq!(ended.code(), 1);
    for (name, verdict) in [
        ("profile /nonexistent.toml", "error"),
        ("PILLION_CLASS", "error"),
        ("PILLION_DISABLE", "warning"),
    ] {
        let (found, _, mend) = check(&document, name);
        assert_eq!(found, verdict, "{name}");
        assert!(!mend.is_empty(), "{name}");
    }
}

#[test]
fn the_table_has_every_check_and_its_mend() {
    let gpu = Gpu::start("mps");
    let mut command = gpu.command(pillion());
    command.args(["doctor", "/nonexistent/program"]);
    let ended = collect(command);
    assert_eq!(ended.code(), 1);
    for part in [
        "VERDICT",
        "ok       driver",
        "error    program",
        "-> give the path",
        " ok, ",
        " 1 error",
    ] {
        assert!(ended.output.contains(part), "{part} in {}", ended.output);
    }
}

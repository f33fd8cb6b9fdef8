//! `pillion doctor --bundle`: all that a maintainer asks for, and no name of a job, program, user,
//! host, path or secret.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Gpu, cargo_folder, clean_command, collect, pillion, until};

type Files = BTreeMap<String, String>;

fn unpacked(bundle: &Path, to: &Path) -> Files {
    fs::create_dir(to).unwrap();
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(bundle)
        .arg("-C")
        .arg(to)
        .status();
    assert!(unpacked.is_ok_and(|status| status.success()));
    let mut files = Files::new();
    let root = to.join("pillion-bundle");
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    files.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    files
}

fn json(files: &Files, name: &str) -> Value {
    let text = files.get(name);
    let text = text.unwrap_or_else(|| panic!("no {name} in {:?}", files.keys()));
    serde_json::from_str(text).unwrap()
}

/// The manifest lists each file with its size, and a reason for each missing one.
fn expect_true(files: &Files, manifest: &Value) {
    assert_eq!(manifest["schema_version"], 1);
    let listed: BTreeMap<&str, u64> = manifest["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            (
                file["path"].as_str().unwrap(),
                file["bytes"].as_u64().unwrap(),
            )
        })
        .collect();
    let found: BTreeMap<&str, u64> = files
        .iter()
        .filter(|(name, _)| *name != "manifest.json")
        .map(|(name, text)| (&**name, text.len() as u64))
        .collect();
    assert_eq!(listed, found);
    for missing in manifest["missing"].as_array().unwrap() {
        let path = missing["path"].as_str().unwrap();
        assert!(!files.contains_key(path), "{path} is there");
        assert!(!missing["why"].as_str().unwrap().is_empty(), "{missing}");
    }
}

/// None of these occurs anywhere, and this host's name nowhere as a word.
fn expect_no_name(files: &Files, names: &[&str]) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (file, text) in files {
        for name in names {
            assert!(!text.contains(name), "{name} is in {file}:\n{text}");
        }
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
        assert!(
            !words.any(|word| word == host.trim()),
            "{host} is in {file}:\n{text}"
        );
    }
}

/// Secrets of the environment by variable; none may be in a bundle.
const SECRETS: [(&str, &str); 7] = [
    ("NVIDIA_API_KEY", "nvapi-zqkey"),
    ("AWS_SECRET_ACCESS_KEY", "zqaws"),
    ("PILLION_REQUEST_RANGE", "zqdomain/zqrange"),
    ("USER", "zqalice"),
    ("HOME", "/users/zqalice"),
    ("PILLION_JOB", "zqown-job"),
    ("PILLION_PROFILE", "zqteam/zqresnet.toml"),
];

#[test]
fn a_bundle_with_a_daemon_and_jobs_has_all_of_it_and_no_name() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "poll_us = 50 # of zqteam");
    let hp = gpu.job("zqserve", "load 64 rest").high_priority(&daemon);
    let hp = hp.start_until("ready");
    let be = gpu.job("zqtrain", "load 64 rest").best_effort(&daemon);
    let be = be.start_until("ready");
    daemon.wait_for_clients("zqserve", 1);
    daemon.wait_for_clients("zqtrain", 1);
    until("both in the log", || {
        daemon.log().contains("zqserve") && daemon.log().contains("zqtrain")
    });
    let bundle = gpu.path("bundle.tar.gz");
    let mut command = gpu.pillion(&daemon, &["doctor", "--bundle"]);
    command.arg(&bundle).envs(SECRETS);
    let ended = collect(command).expect_success();
    assert!(
        ended.output.contains("inspect it before you send it"),
        "{ended:#?}"
    );
    assert!(ended.output.contains("daemons/1/status.json"), "{ended:#?}");
    assert_eq!(
        fs::metadata(&bundle).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let files = unpacked(&bundle, &gpu.path("unpacked"));
    let manifest = json(&files, "manifest.json");
    expect_true(&files, &manifest);

    let folder = gpu.path("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    expect_no_name(&files, &[folder, "zq", "load-linked"]);
    let status = json(&files, "daemons/1/status.json");
    let jobs = status["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2, "{status:#}");
    for job in jobs {
        let id = job["job"].as_str().unwrap();
        assert!(id.starts_with("job-"), "{id}");
        let log = &files["daemons/1/log.txt"];
        assert!(log.contains(&format!("job \"{id}\"")), "{id} in {log}");
        let events = &files["daemons/1/events.json"];
        assert!(events.contains(id), "{id} in {events}");
    }
    assert_eq!(status["gpu"]["name"], daemon.status()["gpu"]["name"]);
    assert_eq!(status["gpu"]["uuid"], daemon.status()["gpu"]["uuid"]);
    let configuration = &files["configurations/1.toml"];
    assert!(
        configuration.contains("poll_us = 50 #\n"),
        "{configuration}"
    );
    let environment = json(&files, "environment.json");
    assert_eq!(
        environment["set_without_value"][0], "NVIDIA_API_KEY",
        "{environment:#}"
    );
    assert_eq!(environment["set_without_value"][1], "PILLION_REQUEST_RANGE");
    assert_eq!(
        json(&files, "versions.json")["pillion"],
        env!("CARGO_PKG_VERSION")
    );
    hp.finish().expect_success();
    be.finish().expect_success();
}

#[test]
fn a_bundle_without_daemon_and_gpu_is_made_and_says_what_is_missing() {
    cargo_folder();
    let folder = tempfile::tempdir().unwrap();
    let mut command = clean_command(pillion());
    command.env("PILLION_SOCKET", folder.path().join("none.sock"));
    command
        .args(["doctor", "--json", "--bundle"])
        .arg(folder.path().join("b.tar.gz"));
    let ended = collect(command).expect_success();
    let files = unpacked(
        &folder.path().join("b.tar.gz"),
        &folder.path().join("unpacked"),
    );
    let manifest = json(&files, "manifest.json");
    assert_eq!(
        serde_json::from_str::<Value>(&ended.output).unwrap(),
        manifest
    );
    expect_true(&files, &manifest);
    let missing = manifest["missing"].as_array().unwrap();
    assert!(
        missing
            .iter()
            .any(|file| file["path"] == "daemons/1/status.json"),
        "{manifest:#}"
    );
    assert!(files["doctor.txt"].contains("VERDICT"));
}

#[test]
fn a_bundle_is_written_over_nothing_and_to_the_standard_output_whole() {
    cargo_folder();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.tar.gz");
    let run = |to: &Path| {
        let mut command = clean_command(pillion());
        command.args(["doctor", "--bundle"]).arg(to);
        collect(command)
    };
    fs::write(&path, "mine").unwrap();
    let refused = run(&path);
    assert_eq!((refused.code(), &*refused.output), (2, ""), "{refused:#?}");
    refused.expect_errors(&["already exists", path.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    let nowhere = run(&folder.path().join("no/b.tar.gz"));
    assert_eq!((nowhere.code(), &*nowhere.output), (2, ""), "{nowhere:#?}");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    // As a shell writes it.
    let mut shell = clean_command("sh");
    shell
        .args(["-c", "\"$0\" doctor --bundle - > \"$1\""])
        .arg(pillion());
    let piped = folder.path().join("piped.tar.gz");
    let ended = collect({
        shell.arg(&piped);
        shell
    });
    let ended = ended.expect_success();
    ended.expect_errors(&["inspect it before you send it"]);
    expect_whole(&piped, folder.path());
}

fn expect_whole(bundle: &Path, folder: &Path) {
    let files = unpacked(bundle, &folder.join("unpacked"));
    expect_true(&files, &json(&files, "manifest.json"));
}

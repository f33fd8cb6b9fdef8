//! `pillion simulate` as tests run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_ascii_whitespace()
}

pub(crate) fn simulate(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
    command.arg("simulate").args(words(line));
    command.env_remove("PILLION_DATA").current_dir(workspace());
    command.output().expect("it runs")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

pub(crate) fn expect_success(ended: &Output) {
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

pub(crate) fn expect_said(ended: &Output, said: &str) {
    let errors = text(&ended.stderr);
    assert!(errors.contains(said), "{said}:\n{errors}");
}

/// A command line that is refused with this reason, and nothing is run.
pub(crate) fn expect_refused(line: &str, said: &str) {
    let ended = simulate(line);
    assert_eq!(ended.status.code(), Some(2), "{line}");
    assert!(ended.stdout.is_empty(), "{line}");
    expect_said(&ended, said);
}

/// The lines of JSON of a command that must succeed.
pub(crate) fn lines(line: &str) -> Vec<Value> {
    let ended = simulate(&format!("{line} --json"));
    expect_success(&ended);
    let lines = text(&ended.stdout).lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

pub(crate) fn written(scenario: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("room");
    let path = folder.path().join("s.toml");
    fs::write(&path, scenario).expect("room");
    let path = path.display().to_string();
    (folder, path)
}

/// A short pair, under a policy that the caller names.
pub(crate) const PAIR: &str = "seconds = 2\n[policy]\nname = \"mps\"\n\
    [[jobs]]\nname = \"hp\"\nclass = \"high-priority\"\ntrace = \"resnet50-inference\"\n\
    arrivals = \"poisson\"\nrate = 30\n\
    [[jobs]]\nname = \"be\"\ntrace = \"mobilenetv2-training@8\"\n";

//! The commands of `benches/README.md`, with a part that takes a second, as CI has no minutes for
//! the others.

use std::process::Command;

use serde_json::Value;

use crate::common::{Process, cargo_folder, workspace};

#[test]
fn a_bench_runs_with_the_options_of_its_document() {
    let built = cargo_folder();
    let target = built.parent().expect("<target>/<profile>");
    let profile = built.file_name().filter(|name| *name != "debug");
    let out = tempfile::tempdir().unwrap();
    let (json, markdown) = (out.path().join("mine.json"), out.path().join("mine.md"));
    // Of the workspace: with -p dependencies have fewer features, and are built again.
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(workspace())
        .args(["bench", "--quiet", "--workspace", "--bench", "overhead"])
        .arg("--target-dir")
        .arg(target)
        .arg("--profile")
        .arg(profile.unwrap_or("dev".as_ref()))
        .args(["--", "--quick", "--only", "ring", "--built"])
        .arg(built)
        .arg("--json")
        .arg(&json)
        .arg("--markdown")
        .arg(&markdown);
    let ended = Process::start("cargo bench", cargo).finish_whenever();
    let ended = ended.expect_success();
    assert!(ended.output.contains("No GPU involved"), "{ended:#?}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = report["rows"].as_array().expect("a list of rows");
    assert!(!rows.is_empty(), "{report:#}");
    assert!(std::fs::read_to_string(markdown).unwrap().contains("ring"));
}

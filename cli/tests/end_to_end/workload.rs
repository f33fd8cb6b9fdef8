//! `pillion workload` writes traces that the other commands accept.

use std::fs;
use std::path::Path;

use profiler::Trace;

use crate::common::{Ended, clean_command, collect, pillion};

fn workload(arguments: &[&str], folder: &Path) -> Ended {
    let mut command = clean_command(pillion());
    command.arg("workload").args(arguments).current_dir(folder);
    collect(command)
}

#[test]
fn a_built_in_workload_becomes_a_file_or_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["resnet50-inference", "--batch", "8", "--device", "T4"];
    let written = [&arguments[..], &["-o", "hp.trace"]].concat();
    let ended = workload(&written, folder.path()).expect_success();
    assert_eq!(ended.output, "");
    assert!(ended.errors.starts_with("hp.trace: 175 launches of "));
    let file = fs::read_to_string(folder.path().join("hp.trace")).unwrap();
    let trace = Trace::parse(&file, Path::new("hp.trace")).unwrap();
    assert_eq!((&*trace.device, trace.launches.len()), ("T4", 175));
    let printed = [&arguments[..], &["-o", "-"]].concat();
    assert_eq!(workload(&printed, folder.path()).output, file);
}

#[test]
fn without_a_name_the_workloads_are_listed() {
    let ended = workload(&[], Path::new("/")).expect_success();
    for name in [
        "resnet50-inference",
        "bert-large-training",
        "gpt-1.3b-decode",
    ] {
        assert!(ended.output.contains(name), "{}", ended.output);
    }
}

#[test]
fn a_workload_that_cannot_be_is_refused_and_nothing_is_written() {
    for (arguments, said) in [
        (
            &["resnet51-inference"][..],
            "did you mean \"resnet50-inference\"?",
        ),
        (
            &["resnet50-inference", "--batch", "0"],
            "expected 1 to 4096",
        ),
        (
            &["resnet50-inference", "--device", "V101"],
            "V100-SXM2-16GB",
        ),
        (&["resnet50-inference", "--precision", "fp8"], "fp32, fp16"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = [arguments, &["-o", "x.trace"]].concat();
        let ended = workload(&arguments, folder.path());
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(ended.errors.contains(said), "{ended:#?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let ended = workload(&["resnet50-inference"], Path::new("/"));
    assert_eq!(ended.code(), 2);
    assert!(ended.errors.contains("-o FILE"), "{ended:#?}");
}

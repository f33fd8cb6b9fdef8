//! Files by path: examples of `docs/formats.md`, committed traces as profiles, unusable paths.

use std::path::Path;

use profiler::{Error, Profile, Trace, orion, read_text};

fn in_repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn documented_examples() -> Vec<String> {
    let path = in_repository("docs/formats.md");
    let text = std::fs::read_to_string(path).expect("the document is in the repository");
    let blocks = text.split("\n```").skip(1).step_by(2);
    blocks
        .map(|block| {
            block
                .split_once('\n')
                .expect("a fence has a line of its own")
                .1
                .to_owned()
        })
        .collect()
}

#[test]
fn the_documented_examples_are_right() {
    let path = Path::new("formats.md");
    let [trace, profile, orion] = &documented_examples()[..] else {
        panic!("three examples")
    };
    let rows = orion::parse(orion, path).expect("the Orion example");
    let trace = Trace::parse(trace, path).expect("the trace example");
    assert_eq!(trace.launches, [0, 1, 1, 1]);
    assert_eq!(
        trace.kernels,
        Trace::from_orion(&rows).kernels,
        "the same two kernels"
    );
    let read = Profile::parse(profile, path).expect("the profile example");
    assert_eq!(
        read.write().trim_end(),
        profile.trim_end(),
        "the example is canonical"
    );
}

#[test]
fn a_trace_is_accepted_as_a_profile_and_a_profile_not_as_a_trace() {
    let path = in_repository("examples/traces/synthetic-inference.trace");
    let profile = Profile::load(&path).expect("a trace says how long its kernels last");
    assert_eq!(profile.sources, ["synthetic-inference.trace"]);
    assert_eq!(profile.kernels.len(), 10);
    assert!(profile.kernels.iter().all(|kernel| kernel.count == 6));

    let error = Trace::parse(&profile.write(), &path).expect_err("a profile has no order");
    assert!(matches!(error, Error::UnknownFormat { .. }), "{error}");
}

#[test]
fn what_is_no_profile_is_refused_with_what_is_accepted() {
    let path = in_repository("LICENSE-of-nothing");
    let error = Profile::load(&path).expect_err("no such file");
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    let error = Profile::load(Path::new("/dev/null"))
        .expect_err("empty")
        .to_string();
    assert!(
        error.starts_with("/dev/null: empty; accepted here: a Pillion profile"),
        "{error}"
    );
}

#[test]
fn an_endless_file_is_read_up_to_the_bound_only() {
    let error = read_text(Path::new("/dev/zero")).expect_err("endless");
    assert!(matches!(error, Error::TooLong { .. }), "{error}");
}

//! Other libraries that interpose `getenv` and `dlsym` coexist with ours, before and after it.

use std::ffi::OsString;

use crate::common::{Gpu, Program, library};

/// Whether a job under such a preload is expected to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attach {
    Yes,
    /// The other library answers every `dlsym` before ours; then the program runs as without us.
    Maybe,
}

fn expect_unchanged(program: Program, door: &str, preloads: &[Option<Program>], attach: Attach) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let arguments = [door, "20", "5"];
    let alone = gpu.job("alone", program).args(&arguments).run();
    let paths = preloads
        .iter()
        .map(|other| other.map_or_else(library, Program::path));
    let mut preload = OsString::new();
    for path in paths {
        preload.push(path);
        preload.push(":");
    }
    let job = gpu.job("job", program).args(&arguments);
    let ended = job.best_effort(&daemon).env("LD_PRELOAD", &preload).run();
    assert_eq!(ended.output, alone.output, "{preload:?} {ended:#?}");
    assert_eq!(ended.code(), 5, "{preload:?} {ended:#?}");
    let device = gpu.counts("job");
    assert_eq!(device["launches"], ended.asked("launches"), "{preload:?}");
    if attach == Attach::Yes {
        gpu.expect_equal_counts("job", &ended, &daemon);
    }
}

const GETENV: Option<Program> = Some(Program::Library("wrap_getenv"));
const DLSYM: Option<Program> = Some(Program::Library("wrap_dlsym"));
const OURS: Option<Program> = None;

// census: A7
#[test]
fn another_getenv_is_preloaded_before_or_after_ours() {
    for preloads in [[GETENV, OURS], [OURS, GETENV]] {
        expect_unchanged(Program::Linked("work"), "linked", &preloads, Attach::Yes);
        expect_unchanged(Program::Unlinked("work"), "proc", &preloads, Attach::Yes);
    }
}

// census: A4, A7
#[test]
fn another_dlsym_is_preloaded_before_or_after_ours() {
    for preloads in [[DLSYM, OURS], [OURS, DLSYM]] {
        expect_unchanged(Program::Linked("work"), "linked", &preloads, Attach::Yes);
    }
    for door in ["dlsym", "proc"] {
        expect_unchanged(Program::Unlinked("work"), door, &[OURS, DLSYM], Attach::Yes);
        expect_unchanged(
            Program::Unlinked("work"),
            door,
            &[DLSYM, OURS],
            Attach::Maybe,
        );
    }
}

#[test]
fn another_getenv_and_another_dlsym_are_preloaded_around_ours() {
    // With that `dlsym` before that `getenv` the two conflict, with or without us: calling instead
    // of jumping makes `RTLD_NEXT` mean what comes after itself.
    for preloads in [
        [GETENV, DLSYM, OURS],
        [OURS, GETENV, DLSYM],
        [GETENV, OURS, DLSYM],
    ] {
        expect_unchanged(Program::Linked("work"), "linked", &preloads, Attach::Yes);
        expect_unchanged(Program::Unlinked("work"), "proc", &preloads, Attach::Maybe);
    }
}

#[test]
fn another_launch_that_is_preloaded_before_ours_is_called_and_hands_on_to_ours() {
    let wrapper = Program::Library("wrap_launch").path();
    for (program, door) in [
        (Program::Linked("work"), "linked"),
        (Program::Unlinked("work"), "default"),
    ] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let arguments = [door, "20", "5"];
        let alone = gpu.job("alone", program).args(&arguments);
        let alone = alone.env("LD_PRELOAD", &wrapper).run();
        assert!(alone.errors.contains("wrapped: "), "{door}: {alone:#?}");
        let mut preload = wrapper.clone().into_os_string();
        preload.push(":");
        preload.push(library());
        let job = gpu.job("job", program).args(&arguments);
        let ended = job.best_effort(&daemon).env("LD_PRELOAD", &preload).run();
        assert_eq!(ended.output, alone.output, "{door}: {ended:#?}");
        assert_eq!(ended.errors, alone.errors, "{door}: {ended:#?}");
        assert_eq!(ended.code(), 5, "{door}: {ended:#?}");
        gpu.expect_equal_counts("job", &ended, &daemon);
    }
}

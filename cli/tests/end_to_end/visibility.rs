//! A job's look-ups, calls and bypasses are in the status, and in words with `PILLION_LOG=debug`.

use protocol::hello::{Attach, JobClass, Request, connect_to, receive, send};

use crate::common::{Daemon, Ended, Gpu, Program};

fn work(gpu: &Gpu, daemon: &Daemon, program: Program, door: &str, log: &str) -> Ended {
    let job = gpu.job("job", program).args(&[door, "20", "7"]);
    let ended = job.best_effort(daemon).env("PILLION_LOG", log).run();
    assert_eq!(ended.code(), 7, "{ended:#?}");
    ended
}

#[test]
fn the_status_tells_hooks_by_family_and_how_entry_points_were_obtained() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let ended = work(&gpu, &daemon, Program::Unlinked("work"), "proc", "warn");
    assert_eq!(ended.errors, "");
    let totals = daemon.totals("job");
    let count = |name: &str| totals[name].as_u64().unwrap();
    // Before `cuInit` has succeeded nothing is counted.
    assert_eq!(count("calls_entry"), 0, "{totals:#}");
    assert_eq!(count("calls_memory"), count("allocations") + count("frees"));
    assert_eq!(count("calls_copy"), count("copies"), "{totals:#}");
    assert_eq!(count("calls_stream"), 1, "{totals:#}");
    assert!(count("calls_context") >= 2, "{totals:#}");
    assert!(count("calls_module") >= 5, "{totals:#}");
    assert!(count("calls_sync") >= 1, "{totals:#}");
    assert_eq!(count("calls_nested"), 0, "{totals:#}");
    assert_eq!(count("launches_foreign"), 0, "{totals:#}");
    // `work` asks for fifteen functions and both forms of the resolver; cuDeviceGet is the
    // driver's.
    assert_eq!(
        count("resolved_hooked") + count("resolved_passed"),
        16,
        "{totals:#}"
    );
    assert!(count("resolved_hooked") >= 13, "{totals:#}");
    assert!(count("resolved_passed") >= 1, "{totals:#}");
    assert_eq!(count("resolved_unknown"), 0, "{totals:#}");
}

#[test]
fn the_debug_log_names_each_entry_point_with_its_door() {
    for (program, door, said) in [
        (
            Program::Linked("work"),
            "linked",
            "hooked, by exported symbols:",
        ),
        (Program::Unlinked("work"), "dlsym", "hooked, by dlsym:"),
        (
            Program::Unlinked("work"),
            "proc",
            "hooked, by cuGetProcAddress:",
        ),
    ] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let ended = work(&gpu, &daemon, program, door, "debug");
        for when in ["so far", "in all"] {
            let start = format!("pillion: {when}, {said}");
            let found = ended.errors.lines().any(|line| line.starts_with(&start));
            assert!(found, "{door} {when}: {ended:#?}");
        }
        let in_all = |word: &str| {
            let mut lines = ended.errors.lines();
            lines.any(|line| line.starts_with("pillion: in all,") && line.contains(word))
        };
        assert!(in_all(" cuLaunchKernel"), "{door}: {ended:#?}");
        assert!(in_all("calls_memory"), "{door}: {ended:#?}");
        if door != "linked" {
            // Nothing for us to do: it is passed through, and named.
            let door = said.trim_start_matches("hooked, by ");
            let start = format!("pillion: in all, the driver's own, by {door}");
            let mut lines = ended.errors.lines();
            let passed = lines.find(|line| line.starts_with(&start)).unwrap();
            assert!(passed.contains(" cuDeviceGet"), "{passed}");
        }
    }
}

#[test]
fn a_process_that_was_turned_away_is_in_the_status_with_the_reason() {
    let (_gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut packet = Request::Attach(Attach {
        class: JobClass::BestEffort,
        job: "from the future".to_owned(),
        name: "time machine".to_owned(),
        ..Attach::default()
    })
    .encode();
    // The major version, after the magic.
    packet[4] = packet[4].wrapping_add(1);
    let socket = connect_to(daemon.socket()).unwrap();
    send(&socket, &packet, &[]).unwrap();
    assert!(!receive(&socket).unwrap().0.is_empty());
    let status = daemon.status();
    let process = &status["turned_away"][0];
    assert_eq!(process["pid"], std::process::id(), "{status:#}");
    assert_eq!(process["attached"], false, "{status:#}");
    let reason = process["reason"].as_str().unwrap();
    assert!(reason.contains("speaks protocol"), "{reason}");
    let shown = daemon.explained();
    let line = format!("  pid {}  is not attached: {reason}", std::process::id());
    assert!(shown.contains(&line), "{shown}");
}

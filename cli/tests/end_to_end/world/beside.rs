//! Other libraries beside ours in every process: an allocator, and a false clock.

use std::ffi::OsString;
use std::path::Path;

use crate::common::{Gpu, Program, library, tools};

const DOORS: [(Program, &str); 3] = [
    (Program::Linked("work"), "linked"),
    (Program::Unlinked("work"), "dlsym"),
    (Program::Unlinked("work"), "proc"),
];

/// Runs `work` alone, with the other library, and with both in both orders, while a high-priority
/// job is attached, so that leases are gated and the clock matters.
fn expect_unchanged_beside(other: &Path, variables: &[(&str, &str)]) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut hp = gpu.job("hp", "idle").high_priority(&daemon).start();
    hp.wait_for("ready", 1);
    for (program, door) in DOORS {
        for ours_is_first in [true, false] {
            let label = format!("{door}-{ours_is_first}");
            let make = || {
                let job = gpu.job(&label, program).args(&[door, "20", "7"]);
                variables
                    .iter()
                    .fold(job, |job, (name, value)| job.env(name, value))
            };
            let alone = make()
                .env("SOFTGPU_LABEL", "alone")
                .env("LD_PRELOAD", other)
                .run();
            assert_eq!(alone.code(), 7, "{alone:#?}");
            let library = library();
            let pair = if ours_is_first {
                [&*library, other]
            } else {
                [other, &*library]
            };
            let preload: OsString = [pair[0].as_os_str(), ":".as_ref(), pair[1].as_os_str()]
                .into_iter()
                .collect();
            let ours = make().best_effort(&daemon).env("LD_PRELOAD", preload).run();
            assert_eq!(
                (ours.code(), &ours.output),
                (7, &alone.output),
                "{label}: {ours:#?}"
            );
            assert_eq!(ours.errors, alone.errors, "{label}");
            gpu.expect_equal_counts(&label, &ours, &daemon);
        }
    }
    hp.finish().expect_success();
}

#[test]
fn jemalloc_before_or_after_ours_changes_nothing() {
    let jemalloc = tools::debian_file("libjemalloc2", "/libjemalloc.so.2");
    expect_unchanged_beside(&jemalloc, &[]);
}

#[test]
fn libfaketime_before_or_after_ours_changes_nothing_and_does_not_confuse_our_clock() {
    for name in ["/libfaketime.so.1", "/libfaketimeMT.so.1"] {
        let faketime = tools::debian_file("libfaketime", name);
        // Long ago, and a thousand times faster: every heartbeat of the daemon would be late.
        expect_unchanged_beside(&faketime, &[("FAKETIME", "@2001-02-03 04:05:06 x1000")]);
        expect_unchanged_beside(&faketime, &[("FAKETIME", "-40y x0.001")]);
    }
}

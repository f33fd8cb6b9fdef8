//! However a process ends, executes another, or goes into the background: its parent sees the same.

use std::fs;

use crate::common::{Gpu, until};

use super::text;

const WAYS: [&str; 13] = [
    "return",
    "exit",
    "_exit",
    "quick_exit",
    "exit-thread",
    "abort",
    "segv",
    "kill",
    "term",
    "int",
    "hup",
    "usr1",
    "pipe",
];

// census: G1, G2, G3
#[test]
fn every_way_to_end_is_seen_as_without_us() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for how in WAYS {
        let alone = gpu.job("alone", "endings").args(&[how]).run();
        let job = gpu.job(how, "endings").args(&[how]).best_effort(&daemon);
        let ours = job.run();
        assert_eq!(ours.status, alone.status, "{how}: {ours:#?}");
        assert_eq!(ours.output, alone.output, "{how}");
        assert_eq!(ours.errors, alone.errors, "{how}");
        // Whatever happened to it, its work is counted.
        gpu.expect_equal_counts(how, &ours, &daemon);
    }
}

#[test]
fn a_chain_of_programs_in_one_process_is_a_client_each() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let arguments = ["exec", "exec", "exec", "abort"];
    let alone = gpu.job("alone", "endings").args(&arguments).run();
    let job = gpu.job("chain", "endings").args(&arguments);
    let ours = job.high_priority(&daemon).run();
    assert_eq!(ours.status, alone.status, "{ours:#?}");
    assert_eq!(ours.output, alone.output);
    // The output has the counts of all four; so have daemon and device.
    gpu.expect_equal_counts("chain", &ours, &daemon);
    assert_eq!(daemon.total("chain", "launches"), 20);
}

// census: G4
#[test]
fn a_process_that_goes_into_the_background_is_managed_there() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let report = |label: &str| gpu.path(&format!("report-{label}"));
    let said = |label: &str| until("the report", || fs::read_to_string(report(label)).ok());
    let job = |label: &str| {
        let job = gpu.job(label, "background");
        job.args(&[text(&report(label))])
    };
    let alone = job("alone").run();
    let ours = job("job").best_effort(&daemon).run();
    assert_eq!((alone.code(), ours.code()), (4, 4), "{ours:#?}");
    assert_eq!(said("job"), said("alone"));
    assert_eq!(said("job"), "launches=9 umask=077\n");
    assert_eq!(daemon.total("job", "launches"), 9);
    assert_eq!(gpu.counts("job")["launches"], 9);
}

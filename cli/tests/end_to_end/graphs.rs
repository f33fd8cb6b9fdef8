//! Graphs, captures and host functions, end to end.

use protocol::hello::JobClass;

use crate::common::{Daemon, Ended, Gpu, Machine, Process, Program};

/// A kernel that outlasts every test, ns.
const FOR_EVER_NS: &str = "3600000000000";
/// Counts of graphs with the same name in program, Pillion and device.
const COUNTED: [&str; 4] = [
    "graph_launches",
    "graph_kernels",
    "launches_captured",
    "host_calls",
];
/// Bytes that the programs allocate in a capture.
const CAPTURED_BYTES: u64 = 1 << 20;
/// The profile's duration of the kernel that never ends, ns.
const HANG_NS: u64 = 10_000_000;
/// Default charge for an unknown kernel, ns.
const UNKNOWN_NS: u64 = 100_000;

fn expect_equal_graph_counts(gpu: &Gpu, label: &str, ended: &Ended, daemon: &Daemon) {
    let (totals, device) = (daemon.totals(label), gpu.counts(label));
    for counted in COUNTED {
        let asked = ended.asked(counted);
        assert_eq!(totals[counted], asked, "Pillion: {counted}: {totals:#}");
        assert_eq!(device[counted], asked, "device: {counted}: {device:#}");
    }
    gpu.expect_equal_counts(label, ended, daemon);
}

/// A high-priority job whose only work is one graph that never ends.
fn hang_in_a_graph(gpu: &Gpu, daemon: &Daemon, steps: &str) -> Process {
    let hp = gpu.job("hp", "graph_hang").args(&[FOR_EVER_NS, "3", steps]);
    hp.high_priority(daemon).start_until("launched")
}

// census: H2
#[test]
fn a_job_that_runs_in_graphs_only_is_protected() {
    for sharing in ["mps", "timeslice"] {
        let (gpu, daemon) = Gpu::with_daemon(sharing, "name = \"temporal\"\nmax_hold_ms = 20");
        let hp = hang_in_a_graph(&gpu, &daemon, "");
        let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
        daemon.wait_until_held("be");
        be.wait_for("round", 2);
        gpu.expect_right_end("be", be, &daemon);
        let totals = daemon.totals("be");
        // Only launches that waited for all of max_hold go.
        assert_eq!(totals["launches_forced"], totals["launches"], "{totals:#}");
        hp.finish().expect_success();
    }
}

// census: H2
#[test]
fn with_the_policy_none_a_graph_holds_nobody() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"none\"\nmax_hold_ms = 10000");
    let hp = hang_in_a_graph(&gpu, &daemon, "");
    let mut be = gpu.job("be", "graph_steady").best_effort(&daemon).start();
    be.wait_for("round", 10);
    let ended = be.finish().expect_success();
    expect_equal_graph_counts(&gpu, "be", &ended, &daemon);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
    hp.finish().expect_success();
}

// census: H2
#[test]
fn a_best_effort_graph_is_held_as_one_launch() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 20");
    let hp = hang_in_a_graph(&gpu, &daemon, "c");
    let mut be = gpu.job("be", "graph_steady").best_effort(&daemon).start();
    be.wait_for("round", 3);
    let ended = be.finish().expect_success();
    expect_equal_graph_counts(&gpu, "be", &ended, &daemon);
    let totals = daemon.totals("be");
    // One wait for each graph, however many kernels it has; captured launches did not wait.
    for counter in ["launches_held", "launches_forced"] {
        assert_eq!(totals[counter], totals["graph_launches"], "{totals:#}");
    }
    assert_eq!(totals["launches_unknown"], 0, "{totals:#}");
    hp.finish().expect_success();
}

#[test]
fn a_graph_is_charged_the_sum_of_the_kernels_that_it_runs_now() {
    for (steps, kernels) in [("", 3), ("u", 3), ("d", 2), ("ud", 2), ("uc", 3)] {
        for (is_profiled, each_ns) in [(true, HANG_NS), (false, UNKNOWN_NS)] {
            let gpu = Gpu::start("mps");
            // Launches that go because a busy machine delays the daemon are not charged.
            let daemon = gpu.daemon("name = \"orion\"");
            let be = gpu.job("be", "graph_hang").args(&[FOR_EVER_NS, "3", steps]);
            let be = be.best_effort(&daemon);
            let be = if is_profiled {
                be
            } else {
                be.without_profile()
            };
            let be = be.start_until("launched");
            let what = format!("{kernels} kernels in flight ({steps})");
            daemon.job_when("be", &what, |job| job["in_flight_ns"] == kernels * each_ns);
            be.finish().expect_success();
            let totals = daemon.totals("be");
            let unknown = if is_profiled { 0 } else { kernels };
            assert_eq!(totals["graph_kernels"], kernels, "{steps}: {totals:#}");
            assert_eq!(totals["launches_unknown"], unknown, "{steps}: {totals:#}");
        }
    }
}

// census: I1, I15, D13, D14
#[test]
fn graphs_compute_under_pillion_as_without_and_all_three_count_alike() {
    for (sharing, class) in [("mps", "hp"), ("timeslice", "hp"), ("mps", "be")] {
        let (gpu, daemon) = Gpu::with_daemon(sharing, "");
        let bare = gpu.job("bare", "graph_work").run().expect_success();
        let job = gpu.job(class, "graph_work");
        let job = match class {
            "hp" => job.high_priority(&daemon),
            _ => job.best_effort(&daemon),
        };
        let ended = job.run().expect_success();
        assert_eq!(ended.output, bare.output);
        expect_equal_graph_counts(&gpu, class, &ended, &daemon);
        let (totals, device) = (daemon.totals(class), gpu.counts(class));
        assert_eq!(totals["panics_caught"], 0);
        // The device takes captured memory at once; Pillion counts requests outside captures.
        let [counted, taken] =
            [&totals, &device].map(|counts| counts["allocated_bytes"].as_u64().unwrap());
        assert_eq!(counted + CAPTURED_BYTES, taken);
        assert_eq!(device["faults"], 0, "{device:#}");
    }
}

// census: H15, I1
#[test]
fn captures_are_never_voided_while_another_thread_is_gated_and_the_helper_looks() {
    // High-priority work that begins and ends all the time, where the machine determines how often
    // the other is held; and work that never ends, beside which it is every time.
    for hp_ends in [true, false] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 5");
        let hp = if hp_ends {
            let mut hp = gpu.job("hp", "graph_steady").high_priority(&daemon).start();
            hp.wait_for("round", 1);
            hp
        } else {
            hang_in_a_graph(&gpu, &daemon, "")
        };
        let be = gpu.job("be", "capture_beside 60").best_effort(&daemon);
        let be = be.start_until("launched");
        // Whatever became of its captures, the helper polls again.
        daemon.wait_until_nothing_in_flight("be");
        let ended = be.finish().expect_success();
        expect_equal_graph_counts(&gpu, "be", &ended, &daemon);
        let totals = daemon.totals("be");
        let ended = hp.finish().expect_success();
        if hp_ends {
            expect_equal_graph_counts(&gpu, "hp", &ended, &daemon);
        } else {
            assert!(totals["launches_held"].as_u64() > Some(0), "{totals:#}");
        }
    }
}

#[test]
fn a_graph_made_while_an_unmanaged_device_is_current_is_known_where_it_is_launched() {
    let machine = Machine::start("mps", 2);
    let daemon = machine.daemon(0, "");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = machine.job(label, "graph_far").in_class(class).run();
        let ended = job.expect_success();
        expect_equal_graph_counts(machine.gpu(0), label, &ended, &daemon);
        assert_eq!(daemon.totals(label)["launches_unknown"], 0);
    }
}

// census: L4
#[test]
fn host_functions_that_call_the_driver_are_answered_as_without_us() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::Linked("host_driver");
    let alone = gpu.job("alone", program).run().expect_success();
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, program).under(daemon.socket(), class);
        let ended = job.run().expect_success();
        assert_eq!((&ended.output, &*ended.errors), (&alone.output, ""));
        let (ours, device) = (daemon.totals(label), gpu.counts(label));
        for counted in ["launches", "allocations", "host_calls"] {
            assert_eq!(ours[counted], device[counted], "{label}: {counted}");
        }
    }
}

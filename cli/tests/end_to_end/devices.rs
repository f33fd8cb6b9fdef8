//! One process on two devices: a client of two daemons, each of which sees only its device's work.

use protocol::hello::JobClass;

use crate::common::{Daemon, Ended, Gpu, HANG, Machine, Program, until};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
/// Counted alike by program, Pillion and device.
const COUNTED: [&str; 3] = ["launches", "copied_h2d_bytes", "copied_d2h_bytes"];

/// Program, daemon and device server agree for one device, and nothing is in flight.
fn expect_equal(machine: &Machine, index: usize, daemon: &Daemon, label: &str, ended: &Ended) {
    let device = machine.gpu(index).counts(label);
    let totals = daemon.totals(label);
    for counted in COUNTED {
        let asked = ended.asked(&format!("{counted}_{index}"));
        assert_eq!(
            device[counted], asked,
            "device {index}: {counted}: {device:#}"
        );
        assert_eq!(
            totals[counted], asked,
            "Pillion {index}: {counted}: {totals:#}"
        );
    }
    assert_eq!(device["launches"], device["launches_completed"]);
    assert_eq!(totals["panics_caught"], 0, "{totals:#}");
    let job = daemon.job(label);
    assert_eq!(job["in_flight_ns"], 0, "{job:#}");
}

fn expect_counts(how: &str) {
    let machine = Machine::start("mps", 2);
    let daemons = [0, 1].map(|index| machine.daemon(index, "name = \"orion\""));
    let arguments = [how, "60"];
    let program = Program::Linked("devices");
    let alone = machine.job("alone", program).args(&arguments).run();
    let alone = alone.expect_success();
    for class in CLASSES {
        let label = class.name();
        let job = machine.job(label, program).args(&arguments);
        let ended = job.in_class(class).run().expect_success();
        assert_eq!((&ended.output, &*ended.errors), (&alone.output, ""));
        for (index, daemon) in daemons.iter().enumerate() {
            expect_equal(&machine, index, daemon, label, &ended);
        }
    }
}

#[test]
fn one_thread_on_two_devices_is_counted_on_each_whichever_is_current() {
    expect_counts("both");
}

#[test]
fn two_threads_that_make_contexts_on_two_devices_at_once_attach_to_both() {
    expect_counts("threads");
}

#[test]
fn a_device_without_a_daemon_does_not_keep_another_from_attaching() {
    // The process touches device 1 first, then device 0.
    for managed in [0, 1] {
        let machine = Machine::start("mps", 2);
        let daemon = machine.daemon(managed, "");
        for class in CLASSES {
            let label = class.name();
            let job = machine.job(label, "devices one 40").in_class(class).run();
            let ended = job.expect_success();
            expect_equal(&machine, managed, &daemon, label, &ended);
            let unmanaged = machine.gpu(1 - managed).counts(label);
            assert_eq!(
                unmanaged["launches"],
                ended.asked(&format!("launches_{}", 1 - managed))
            );
            assert!(ended.errors.contains("no daemon answers at"), "{ended:#?}");
        }
    }
}

#[test]
fn a_daemon_that_is_named_by_its_socket_serves_its_own_device_and_no_other() {
    let machine = Machine::start("mps", 2);
    let daemon = machine.daemon(0, "");
    for class in CLASSES {
        let label = class.name();
        let job = machine.job(label, "devices one 40");
        let ended = job.under(daemon.socket(), class).run().expect_success();
        expect_equal(&machine, 0, &daemon, label, &ended);
        let ended = ended.expect_errors(&[
            "refused this process: this daemon schedules GPU-",
            "but the process uses GPU-",
        ]);
        assert_eq!(ended.errors.lines().count(), 1, "{ended:#?}");
    }
}

#[test]
fn a_high_priority_job_on_one_device_does_not_hold_a_best_effort_job_on_another() {
    let machine = Machine::start("timeslice", 2);
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"hold\"";
    let daemons = [0, 1].map(|index| machine.daemon(index, policy));
    // A kernel on device 0 that outlasts the test.
    let hp = machine.job("hp", HANG).env("CUDA_VISIBLE_DEVICES", "0");
    let hp = hp.in_class(JobClass::HighPriority).start_until("launched");
    let be = machine.job("be", "devices steady 0");
    let mut be = be.in_class(JobClass::BestEffort).start();
    daemons[0].wait_until_held("be");
    be.wait_for("round 1", 20);
    // The first launch may come before the first lease.
    let free = daemons[1].job("be");
    assert!(
        free["totals"]["launches_held"].as_u64() <= Some(1),
        "{free:#}"
    );
    let held = daemons[0].job("be");
    assert_eq!(held["totals"]["launches"], 0, "{held:#}");
    hp.finish().expect_success();
    be.wait_for("round 0", 5);
    let ended = be.finish().expect_success();
    for (index, daemon) in daemons.iter().enumerate() {
        expect_equal(&machine, index, daemon, "be", &ended);
    }
}

// census: D8
#[test]
fn a_process_that_sees_only_the_second_device_is_a_client_of_its_daemon_alone() {
    let machine = Machine::start("mps", 2);
    let daemons = [0, 1].map(|index| machine.daemon(index, ""));
    let job = machine.job("be", "steady").env("CUDA_VISIBLE_DEVICES", "1");
    let mut job = job.in_class(JobClass::BestEffort).start();
    job.wait_for("round", 3);
    until("its client", || {
        (daemons[1].job("be")["clients"].as_array()?.len() == 1).then_some(())
    });
    assert!(daemons[0].job("be").is_null());
    let ended = job.finish().expect_success();
    machine
        .gpu(1)
        .expect_equal_counts("be", &ended, &daemons[1]);
    assert!(machine.gpu(0).counts("be").is_null());
}

#[test]
fn a_streams_priority_set_by_attribute_is_mapped_and_read_back_as_asked() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::Linked("priorities");
    let alone = gpu.job("alone", program).run().expect_success();
    assert!(alone.output.contains("beyond: 1\n"), "{alone:#?}");
    assert_eq!(alone.asked("levels"), 6);
    // The program launches once at the lowest level, twice at the next, and so on.
    let bare = serde_json::json!({"0": 1, "-1": 2, "-2": 3, "-3": 4, "-4": 5, "-5": 6});
    assert_eq!(gpu.counts("alone")["launches_by_priority"], bare);
    for class in CLASSES {
        let label = class.name();
        let job = gpu.job(label, program).under(daemon.socket(), class);
        let ended = job.run().expect_success();
        assert_eq!((&ended.output, &*ended.errors), (&alone.output, ""));
        gpu.expect_equal_counts(label, &ended, &daemon);
        // The default and the next level stay separate, the others share one; the order stays, and
        // every level of a high-priority job is above all others.
        let seen = match class {
            JobClass::HighPriority => serde_json::json!({"-3": 1, "-4": 2, "-5": 18}),
            JobClass::BestEffort => serde_json::json!({"0": 1, "-1": 2, "-2": 18}),
        };
        assert_eq!(gpu.counts(label)["launches_by_priority"], seen, "{label}");
        assert_eq!(daemon.totals(label)["priorities_shared"], 3, "{label}");
    }
}

// census: L7
#[test]
fn streams_of_green_contexts_are_accounted_and_nothing_of_them_stays_in_flight() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    let program = Program::Linked("green");
    let alone = gpu.job("alone", program).args(&["counts"]).run();
    let alone = alone.expect_success();
    for class in CLASSES {
        let label = class.name();
        let job = gpu.job(label, program).args(&["counts"]);
        let ended = job.under(daemon.socket(), class).run().expect_success();
        assert_eq!((&ended.output, &*ended.errors), (&alone.output, ""));
        gpu.expect_equal_counts(label, &ended, &daemon);
        assert_eq!(daemon.job(label)["in_flight_ns"], 0);
        let label = format!("{label} ends");
        let job = gpu.job(&label, program).args(&["ends"]);
        let job = job.under(daemon.socket(), class).start_until("ended");
        // The process lives on, so that only its own account can show it.
        daemon.wait_until_nothing_in_flight(&label);
        gpu.expect_right_end(&label, job, &daemon);
    }
}

// census: L7
#[test]
fn a_best_effort_job_is_held_on_a_green_contexts_stream() {
    let gpu = Gpu::start("mps");
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"hold\"";
    let daemon = gpu.daemon(policy);
    // A kernel that outlasts the test.
    let hp = gpu.hang(&daemon);
    let mut be = gpu.job("be", "green steady").best_effort(&daemon).start();
    daemon.wait_until_held("be");
    assert_eq!(daemon.job("be")["totals"]["launches"], 0);
    hp.finish().expect_success();
    be.wait_for("round", 3);
    gpu.expect_right_end("be", be, &daemon);
}

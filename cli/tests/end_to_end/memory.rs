//! Memory in every form: programs that allocate, copy and fill it run as without Pillion, and
//! program, Pillion and device count each family alike.

use protocol::hello::JobClass;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Program};

const COUNTED: [&str; 5] = [
    "allocations",
    "allocated_bytes",
    "frees",
    "copies",
    "set_bytes",
];

/// The bytes of copies by direction: Pillion's name, the device's.
const DIRECTIONS: [(&str, &str); 3] = [
    ("copied_h2d_bytes", "copied_h2d_bytes"),
    ("copied_d2h_bytes", "copied_d2h_bytes"),
    ("copied_other_bytes", "copied_d2d_bytes"),
];

/// Whether the calls of a family state the directions of their copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Yes,
    /// The driver finds the direction: only the sum is the same.
    No,
}

fn expect_equal(family: &str, named: Named) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::Linked("memory");
    let alone = gpu.job("alone", program).args(&[family]).run();
    assert_eq!((alone.code(), &*alone.errors), (0, ""), "{alone:#?}");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, program).args(&[family]);
        let ended = job.under(daemon.socket(), class).run();
        assert_eq!((ended.code(), &*ended.errors), (0, ""), "{ended:#?}");
        assert_eq!(ended.output, alone.output, "{label}");
        expect_counts(&gpu, &daemon, label, &ended, named);
    }
}

fn expect_counts(gpu: &Gpu, daemon: &Daemon, label: &str, ended: &Ended, named: Named) {
    let totals = daemon.totals(label);
    let device = gpu.counts(label);
    for counted in COUNTED {
        let asked = ended.asked(counted);
        assert_eq!(totals[counted], asked, "Pillion: {counted}: {totals:#}");
        assert_eq!(device[counted], asked, "device: {counted}: {device:#}");
    }
    let sum = |counts: &Value, name: fn(&(&'static str, &'static str)) -> &'static str| -> u64 {
        let bytes = DIRECTIONS.iter().map(|pair| counts[name(pair)].as_u64());
        bytes.map(|bytes| bytes.expect("a number")).sum()
    };
    for (ours, devices) in DIRECTIONS {
        let asked = ended.asked(ours);
        assert_eq!(totals[ours], asked, "Pillion: {ours}: {totals:#}");
        if named == Named::Yes {
            assert_eq!(device[devices], asked, "device: {devices}: {device:#}");
        }
    }
    assert_eq!(sum(&totals, |pair| pair.0), sum(&device, |pair| pair.1));
    let host_bytes = ended.asked("host_bytes");
    assert_eq!(totals["host_bytes"], host_bytes, "{totals:#}");
    assert_eq!(totals["panics_caught"], 0, "{totals:#}");
    assert_eq!(device["faults"], 0, "{device:#}");
}

// census: B2, D22
#[test]
fn device_memory_of_every_age_is_counted_and_frees_of_anything_else_get_the_drivers_answer() {
    expect_equal("plain", Named::Yes);
}

#[test]
fn pinned_and_registered_memory_is_counted_apart_from_the_devices() {
    expect_equal("host", Named::Yes);
}

// census: B5
#[test]
fn managed_memory_is_the_devices_and_host_and_device_see_the_same() {
    expect_equal("managed", Named::Yes);
}

// census: B3, D2, D18, I11
#[test]
fn memory_from_pools_is_counted_wherever_the_pool_is_from() {
    expect_equal("pools", Named::Yes);
}

// census: C1, C2, C3, D5, D6, L3
#[test]
fn physical_memory_needs_no_context_and_lives_until_its_last_name_and_mapping() {
    expect_equal("physical", Named::Yes);
}

// census: D22
#[test]
fn arrays_are_counted_as_their_elements() {
    expect_equal("arrays", Named::Yes);
}

#[test]
fn copies_of_one_dimension_are_counted_in_every_version_and_flavour() {
    expect_equal("copies", Named::Yes);
}

#[test]
fn rectangles_and_boxes_arrive_and_are_counted_as_their_descriptors_say() {
    expect_equal("boxes", Named::Yes);
}

// census: L8
#[test]
fn batches_are_counted_copy_by_copy() {
    expect_equal("batches", Named::No);
}

#[test]
fn fills_of_every_width_and_shape_are_counted() {
    expect_equal("sets", Named::Yes);
}

/// Counted for each device by the program, Pillion and the device.
const OWNED: [&str; 3] = ["allocations", "allocated_bytes", "frees"];

// census: D4
#[test]
fn memory_is_counted_on_its_own_device_whichever_is_current() {
    let gpus = [Gpu::start("mps"), Gpu::start("mps")];
    let sockets = std::env::join_paths(gpus.each_ref().map(|gpu| gpu.path("gpu.sock"))).unwrap();
    for (managed, gpu) in gpus.iter().enumerate() {
        let daemon = gpu.daemon("");
        // Where clients look for it by its device, which nothing states to them.
        let status = daemon.status();
        let uuid = status["gpu"]["uuid"].as_str().expect("an identity");
        let runtime = gpu.path("runtime");
        std::fs::create_dir_all(runtime.join("pillion")).unwrap();
        let socket = runtime.join("pillion").join(format!("{uuid}.sock"));
        std::os::unix::fs::symlink(daemon.socket(), socket).unwrap();
        for class in [JobClass::HighPriority, JobClass::BestEffort] {
            let label = format!("{}-{managed}", class.name());
            let job = gpu.job(&label, "memory_devices");
            let job = job.under(daemon.socket(), class);
            let job = job.env("SOFTGPU_SOCKET", &sockets);
            let job = job.env("PILLION_SOCKET", "");
            let ended = job.env("XDG_RUNTIME_DIR", &runtime).run().expect_success();
            let totals = daemon.totals(&label);
            for counted in OWNED {
                for (index, gpu) in gpus.iter().enumerate() {
                    let asked = ended.asked(&format!("{counted}_{index}"));
                    assert_eq!(gpu.counts(&label)[counted], asked, "device {index}");
                }
                let asked = ended.asked(&format!("{counted}_{managed}"));
                assert_eq!(totals[counted], asked, "{counted} of {label}: {totals:#}");
            }
        }
    }
}

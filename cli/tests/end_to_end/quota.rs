//! A job's memory quota: exact to the byte, over every way to allocate, across its processes.

use std::path::Path;

use protocol::hello::JobClass;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Job, Machine, PATIENCE_NS, Process, until};
use crate::events::{event_when, events};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Size of an allocation of `fill`.
const BLOCK_BYTES: u64 = 64 * MIB;
/// The memory of a V100 with 16 GiB, as the software GPU has it.
const DEVICE_BYTES: u64 = 16 * GIB;

fn program(gpu: &Gpu, label: &str, mode: &str, numbers: [u64; 3]) -> Job {
    let numbers = numbers.map(|number| number.to_string());
    let job = gpu.job(label, "quota");
    job.arg(mode).args(&numbers.each_ref().map(String::as_str))
}

fn fill(gpu: &Gpu, label: &str) -> Job {
    program(gpu, label, "fill", [0; 3])
}

fn expect_filled(ended: &Ended, bytes: u64) {
    let blocks = bytes / BLOCK_BYTES;
    let asked = |name| ended.asked(name);
    assert_eq!(
        (asked("total"), asked("free")),
        (bytes, bytes),
        "{ended:#?}"
    );
    let totals = [asked("early_total"), asked("device_total")];
    assert_eq!(totals, [bytes; 2], "{ended:#?}");
    assert_eq!(asked("blocks"), blocks, "{ended:#?}");
    assert_eq!(asked("left"), bytes - blocks * BLOCK_BYTES, "{ended:#?}");
    assert_eq!(asked("free_again"), bytes, "{ended:#?}");
}

fn held(daemon: &Daemon, label: &str) -> u64 {
    number(&daemon.job(label)["memory"], "held_bytes")
}

fn number(memory: &Value, name: &str) -> u64 {
    let value = memory[name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {memory:#}"))
}

fn used(gpu: &Gpu) -> u64 {
    number(&gpu.stats()["memory"], "used_bytes")
}

// census: B4, B7, B8, B9, B14
#[test]
fn a_job_sees_its_quota_as_the_device_and_gets_all_of_it() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (label, memory, bytes) in [
        ("bytes", "1GiB", GIB),
        ("part", "25%", DEVICE_BYTES / 4),
        ("odd", "100000KiB", 100_000 * 1024),
    ] {
        let job = fill(&gpu, label).best_effort(&daemon);
        let ended = job.env("PILLION_MEMORY", memory).run().expect_success();
        expect_filled(&ended, bytes);
        let memory = &daemon.job_when(label, "nothing held", |job| {
            job["memory"]["held_bytes"] == 0 && job["memory"]["processes"] == 0
        })["memory"];
        assert_eq!(number(memory, "quota_bytes"), bytes);
        assert_eq!(
            number(memory, "peak_bytes"),
            bytes / BLOCK_BYTES * BLOCK_BYTES
        );
        assert_eq!(number(memory, "refused"), 1);
    }
    assert_eq!(used(&gpu), 0);
}

// census: B10
#[test]
fn a_best_effort_job_has_forty_percent_and_a_high_priority_job_the_device() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let be = fill(&gpu, "be").best_effort(&daemon).run().expect_success();
    expect_filled(&be, (DEVICE_BYTES as f64 * 0.4) as u64);
    let hp = fill(&gpu, "hp").high_priority(&daemon).run();
    expect_filled(&hp.expect_success(), DEVICE_BYTES);
    for memory in ["17GiB", "100%", "unlimited"] {
        let job = fill(&gpu, memory).best_effort(&daemon);
        let ended = job.env("PILLION_MEMORY", memory).run().expect_success();
        expect_filled(&ended, DEVICE_BYTES);
    }
}

// census: B15, D16, D17
#[test]
fn the_quota_is_of_all_processes_of_the_job_together() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let start = || {
        let job = program(&gpu, "job", "load", [0, 300, 0]).best_effort(&daemon);
        job.env("PILLION_MEMORY", "1GiB").start_until("ready")
    };
    let mut processes = [start(), start()];
    let mut granted = 0;
    for turn in 0..4 {
        let process = &mut processes[turn % 2];
        process.write("\n");
        granted += usize::from(process.next_line() == "granted");
    }
    assert_eq!(granted, 3, "of four times 300 MiB");
    assert_eq!(held(&daemon, "job"), 900 * MIB);
    assert_eq!(used(&gpu), 900 * MIB);
    // The other process may have what one gives back.
    let [first, mut second] = processes;
    first.finish().expect_success();
    daemon.job_when("job", "one process", |job| job["memory"]["processes"] == 1);
    second.write("\n");
    assert_eq!(second.next_line(), "granted");
}

// census: D1, D2, D5, D6, D13, D14, D22
#[test]
fn whatever_is_allocated_and_freed_held_is_what_the_device_counts() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    // Each kind by itself, then all together with several seeds.
    for (kind, seed) in (1..=9)
        .map(|kind| (kind, 1))
        .chain((2..=6).map(|seed| (0, seed)))
    {
        let label = format!("kind {kind} seed {seed}");
        let job = program(&gpu, &label, "mixed", [seed, 25, kind]).best_effort(&daemon);
        // Room for half of what it would like to have.
        let mut process = job.env("PILLION_MEMORY", "40MiB").start();
        for _ in 0..25 {
            process.write("\n");
            process.wait_for("look", 1);
            let memory = &daemon.job(&label)["memory"];
            // The software GPU's managed memory is not on the device.
            let managed = number(&memory["by_kind"], "managed");
            let held = number(memory, "held_bytes");
            assert_eq!(held - managed, used(&gpu), "{label}: {memory:#}");
            assert!(held <= 40 * MIB, "{label}: {memory:#}");
            let kinds = memory["by_kind"].as_object().expect("numbers by name");
            let sum: u64 = kinds.values().filter_map(Value::as_u64).sum();
            assert_eq!(sum, held, "{label}: {memory:#}");
        }
        process.write("\n");
        let freed = process.next_line();
        let is_refused = !freed.ends_with("refused=0");
        assert!(
            !freed.contains("granted=0 ") && (kind != 0 || is_refused),
            "{label}: {freed}"
        );
        assert_eq!((held(&daemon, &label), used(&gpu)), (0, 0), "{label}");
        process.finish().expect_success();
    }
}

// census: D7
#[test]
fn what_a_context_takes_is_charged_as_configured_and_once() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("[memory]\ncontext = \"300MiB\"\nbest_effort = \"1GiB\"");
    let start = || {
        let job = program(&gpu, "job", "load", [0, 300, 0]).best_effort(&daemon);
        job.start_until("ready")
    };
    let (first, mut second) = (start(), start());
    assert_eq!(held(&daemon, "job"), 600 * MIB);
    second.write("\n");
    assert_eq!(second.next_line(), "granted");
    second.write("\n");
    assert_eq!(second.next_line(), "refused");
    first.finish().expect_success();
    daemon.job_when("job", "one context", |job| {
        job["memory"]["held_bytes"] == 600 * MIB
    });
    second.finish().expect_success();
}

// census: D20
#[test]
fn what_a_killed_process_held_comes_back_when_the_device_has_it() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let start = || {
        let job = program(&gpu, "job", "load", [0, 700, 0]).best_effort(&daemon);
        job.env("PILLION_MEMORY", "1GiB").start_until("ready")
    };
    let (mut first, mut second) = (start(), start());
    first.write("\n");
    assert_eq!(first.next_line(), "granted");
    second.write("\n");
    assert_eq!(second.next_line(), "refused");
    first.signal(Signal::KILL);
    let memory =
        &daemon.job_when("job", "one process", |job| job["memory"]["processes"] == 1)["memory"];
    assert_eq!((number(memory, "held_bytes"), used(&gpu)), (0, 0));
    second.write("\n");
    assert_eq!(second.next_line(), "granted");
}

#[test]
fn what_a_process_holds_it_holds_under_the_next_daemon_too() {
    let gpu = Gpu::start("mps");
    let start = |daemon: &Daemon| {
        let job = program(&gpu, "job", "load", [0, 700, 0]).best_effort(daemon);
        job.env("PILLION_MEMORY", "1GiB").start_until("ready")
    };
    let daemon = gpu.daemon("");
    let mut first = start(&daemon);
    first.write("\n");
    assert_eq!(first.next_line(), "granted");
    daemon.kill();
    let daemon = gpu.daemon("");
    daemon.job_when("job", "what it holds", |job| {
        job["memory"]["held_bytes"] == 700 * MIB
    });
    let mut second = start(&daemon);
    second.write("\n");
    assert_eq!(second.next_line(), "refused");
    first.signal(Signal::KILL);
    daemon.job_when("job", "one process", |job| job["memory"]["processes"] == 1);
    second.write("\n");
    assert_eq!(second.next_line(), "granted");
}

fn pids(processes: &[(&'static str, Process)], label: &str) -> Vec<u32> {
    let its = processes.iter().filter(|(its, _)| *its == label);
    its.map(|(_, process)| process.pid()).collect()
}

/// Jobs `a` and `b` have these processes as clients, and hold the device's allocations for these,
/// under 40 MiB.
fn expect_equal(gpu: &Gpu, daemon: &Daemon, processes: &[(&'static str, Process)]) {
    for label in ["a", "b"] {
        let pids = pids(processes, label);
        let job = daemon.job_when(label, "all its processes and no other", |job| {
            job["clients"].as_array().map(Vec::len) == Some(pids.len())
                && job["memory"]["processes"] == pids.len()
                && job["memory"]["leaving"] == 0
        });
        let memory = &job["memory"];
        let managed = number(&memory["by_kind"], "managed");
        let held = number(memory, "held_bytes");
        assert_eq!(held - managed, gpu.held_by(&pids), "{label}: {memory:#}");
        assert!(held <= 40 * MIB, "{label}: {memory:#}");
        assert_eq!(number(memory, "quota_bytes"), 40 * MIB, "{label}");
    }
}

/// Two jobs, one of two processes, hold memory of every kind and go on while there is no daemon.
/// Each daemon's account matches the device to the byte, with the quota that was set; a process
/// that ends in between leaves nothing.
#[test]
fn a_daemon_that_is_killed_leaves_its_successor_every_byte_and_the_quota_holds_meanwhile() {
    let gpu = Gpu::start("mps");
    let mut daemon = gpu.daemon("");
    let start = |label, seed| {
        let job = program(&gpu, label, "mixed", [seed, u64::from(u32::MAX >> 1), 0]);
        job.best_effort(&daemon)
            .env("PILLION_MEMORY", "32MiB")
            .start()
    };
    let mut processes = vec![
        ("a", start("a", 1)),
        ("a", start("a", 2)),
        ("b", start("b", 3)),
    ];
    let step = |processes: &mut Vec<(&str, Process)>| {
        for (_, process) in processes {
            process.write("\n");
            // One line each: earlier output must count.
            process.wait_for("look", 1);
        }
    };
    step(&mut processes);
    for label in ["a", "b"] {
        let words = ["set", label, "--memory", "40MiB"];
        gpu.tell(&daemon, &words).expect_success();
    }
    for round in 0..4 {
        (0..3).for_each(|_| step(&mut processes));
        expect_equal(&gpu, &daemon, &processes);
        let refused = number(&daemon.job("a")["memory"], "refused");
        daemon.kill();
        for _ in 0..5 {
            step(&mut processes);
            for label in ["a", "b"] {
                let held = gpu.held_by(&pids(&processes, label));
                assert!(held <= 40 * MIB, "{label} has {held} without a daemon");
            }
        }
        if round == 2 {
            let (_, killed) = processes.remove(0);
            killed.signal(Signal::KILL);
        }
        daemon = gpu.daemon("");
        expect_equal(&gpu, &daemon, &processes);
        assert!(number(&daemon.job("a")["memory"], "refused") >= refused.max(1));
    }
    for (label, mut process) in processes {
        process.signal(Signal::KILL);
        until("its end", || !process.is_running());
        daemon.job_when(label, "nothing held", |job| {
            job["memory"]["held_bytes"] == 0
        });
    }
}

/// The device cannot free it: its server is stopped, so NVML does not answer. The daemon does.
// census: D20
#[test]
fn what_the_device_has_not_freed_is_charged_although_its_process_has_ended() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let start = || {
        let job = program(&gpu, "job", "load", [0, 700, 0]).best_effort(&daemon);
        job.env("PILLION_MEMORY", "1GiB").start_until("ready")
    };
    let ask = |process: &mut Process| {
        process.write("\n");
        process.next_line()
    };
    let (mut first, mut second) = (start(), start());
    assert_eq!(ask(&mut first), "granted");
    gpu.signal(Signal::STOP);
    first.signal(Signal::KILL);
    daemon.wait_for_clients("job", 1);
    let memory = daemon.job("job")["memory"].clone();
    // The daemon's timeout for NVML; if a busy machine lets it expire, this shows nothing.
    let is_given_up = || {
        let told = events(&gpu, &daemon, &[]);
        told.iter().any(|event| event["kind"] == "nvml-silent")
    };
    if !is_given_up() {
        assert_eq!(number(&memory, "held_bytes"), 700 * MIB);
        let processes = (number(&memory, "processes"), number(&memory, "leaving"));
        assert_eq!(processes, (2, 1));
    }
    // The driver is not called: it would not return.
    second.write("\n");
    let is_early = !is_given_up();
    if is_early {
        assert_eq!(second.next_line(), "refused");
    }
    gpu.signal(Signal::CONT);
    if !is_early {
        let said = second.next_line();
        testing::ignore(format!("the machine is too busy for it: {said}"));
    }
    let memory =
        &daemon.job_when("job", "one process", |job| job["memory"]["processes"] == 1)["memory"];
    assert_eq!((number(memory, "held_bytes"), used(&gpu)), (0, 0));
    assert_eq!(ask(&mut second), "granted");
}

/// A stopped device server blocks NVML. The daemon waits for a while, reports that once, and loses
/// only NVML's information.
#[test]
fn nvml_that_does_not_come_back_is_said_once_and_nothing_else_waits_for_it() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let start = || {
        let job = program(&gpu, "job", "load", [0, 700, 0]).best_effort(&daemon);
        job.env("PILLION_MEMORY", "1GiB").start_until("ready")
    };
    let is_of_memory = |event: &Value| {
        let text = event["text"].as_str().expect("a text");
        text.contains("has not answered for 5 s")
            && text.contains("unaccounted memory is not detected")
    };
    let mut first = start();
    first.write("\n");
    assert_eq!(first.next_line(), "granted");
    gpu.signal(Signal::STOP);
    event_when(&gpu, &daemon, "nvml-silent", is_of_memory);
    // The memory of an ended process comes back without NVML's report.
    first.signal(Signal::KILL);
    daemon.job_when("job", "nothing held", |job| {
        job["memory"]["held_bytes"] == 0 && job["memory"]["processes"] == 0
    });
    gpu.signal(Signal::CONT);
    let second = start();
    until("NVML's answer", || {
        daemon
            .log()
            .contains("unaccounted memory is detected again")
    });
    let told = events(&gpu, &daemon, &[]);
    let told = told.iter().filter(|event| event["kind"] == "nvml-silent");
    assert_eq!(told.filter(|event| is_of_memory(event)).count(), 1);
    second.finish().expect_success();
}

#[test]
fn a_quota_is_changed_while_the_job_runs() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = program(&gpu, "job", "load", [0, 300, 0]).best_effort(&daemon);
    let mut process = job.env("PILLION_MEMORY", "1GiB").start_until("ready");
    let ask = |process: &mut Process| {
        process.write("\n");
        process.next_line()
    };
    let set = |job: &str, memory: &str| gpu.tell(&daemon, &["set", job, "--memory", memory]);
    assert_eq!(ask(&mut process), "granted");
    set("job", "200MiB").expect_success();
    assert_eq!(ask(&mut process), "refused");
    assert_eq!(held(&daemon, "job"), 300 * MIB);
    set("job", "50%").expect_success();
    assert_eq!(ask(&mut process), "granted");
    let ended = set("nobody", "1GiB");
    assert_eq!(ended.code(), 1);
    ended.expect_errors(&["no job \"nobody\""]);
    let ended = set("job", "plenty");
    assert_eq!(ended.code(), 2);
    ended.expect_errors(&["plenty", "10GiB"]);
    process.finish().expect_success();
}

/// Memory fails closed: a requested quota is always enforced.
#[test]
fn without_a_daemon_each_process_keeps_the_quota_by_itself() {
    let gpu = Gpu::start("mps");
    let nowhere = Path::new("/nowhere/pillion.sock");
    let job = fill(&gpu, "alone").under(nowhere, JobClass::BestEffort);
    let ended = job.env("PILLION_MEMORY", "1GiB").run().expect_success();
    expect_filled(&ended, GIB);
    ended.expect_errors(&["no daemon enforces the quota", "1073741824B"]);
    // Without a request there is none.
    let job = fill(&gpu, "free").under(nowhere, JobClass::BestEffort);
    expect_filled(&job.run().expect_success(), DEVICE_BYTES);
}

#[test]
fn without_a_daemon_the_quota_of_a_second_device_is_kept_too() {
    let machine = Machine::start("mps", 2);
    let job = machine.job("two", "quota fill 0 1 0");
    let job = job.in_class(JobClass::BestEffort);
    let ended = job.env("CUDA_DEVICE_MEMORY_LIMIT_1", "1g").run();
    expect_filled(&ended.expect_success(), GIB);
}

// census: B11
#[test]
fn a_quota_that_cannot_be_read_grants_nothing_and_is_said() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = fill(&gpu, "job").best_effort(&daemon);
    let ended = job.env("PILLION_MEMORY", "0m").run().expect_success();
    assert_eq!(ended.asked("blocks"), 0);
    ended.expect_errors(&[
        "PILLION_MEMORY=\"0m\"",
        "every allocation on the GPU will fail; correct the value",
    ]);
    let run = gpu.pillion_run("job", daemon.socket(), &["--memory", "0m", "--", "true"]);
    let ended = run.run();
    assert_eq!(ended.code(), 2);
    ended.expect_errors(&["0m", "10GiB"]);
    // A forgotten unit: nobody wants a quota of ten bytes.
    let run = gpu.pillion_run("job", daemon.socket(), &["--memory", "10", "--", "true"]);
    let ended = run.run();
    assert_eq!(ended.code(), 2);
    ended.expect_errors(&["1MiB at least"]);
}

#[test]
fn the_variables_of_other_systems_are_understood() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (name, value) in [
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "1024m"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
        ("GPU_MEMORY_LIMIT", "1024Mi"),
    ] {
        let job = fill(&gpu, name).best_effort(&daemon).env(name, value);
        expect_filled(&job.run().expect_success(), GIB);
    }
}

/// Threads of many processes at once, some of which are killed: see [`storm`]. The environment
/// selects the full length of a minute.
// census: D17
#[test]
fn no_storm_of_processes_passes_the_quota() {
    if std::env::var_os("PILLION_TEST_LONG").is_some_and(|value| value == "1") {
        storm(32, 8, 60_000_000_000);
    } else {
        storm(6, 4, 3_000_000_000);
    }
}

/// `count` processes of one job, each with threads that allocate and free at random around the
/// quota; now and then one is killed and another started. At no instant has the device allocated
/// more than the quota; at the end nothing is held. Refusals but "out of memory" end the program.
fn storm(count: usize, threads: u64, duration_ns: u64) {
    const QUOTA_BYTES: u64 = 256 * MIB;
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut seed = 0;
    let mut start = || {
        seed += 1;
        let job = program(&gpu, "storm", "storm", [seed, 0, threads]).best_effort(&daemon);
        let quota = (QUOTA_BYTES / MIB).to_string() + "MiB";
        job.env("PILLION_MEMORY", quota).start_until("ready")
    };
    let mut processes: Vec<Process> = (0..count).map(|_| start()).collect();
    let clock = protocol::clock::Clock::monotonic();
    let (mut looks, mut kills) = (0_u64, 0_u64);
    let begun_ns = clock.now_ns();
    // For so long, and until the quota was met: on a busy machine that comes later.
    let is_met = || {
        let memory = &daemon.job("storm")["memory"];
        number(memory, "refused") > 0 && number(memory, "peak_bytes") > QUOTA_BYTES / 2
    };
    while clock.now_ns() < begun_ns + duration_ns
        || (!is_met() && clock.now_ns() < begun_ns + duration_ns + PATIENCE_NS)
    {
        let used = used(&gpu);
        assert!(used <= QUOTA_BYTES, "the device has given {used}");
        looks += 1;
        if looks.is_multiple_of(40) {
            let victim = (looks / 40) as usize % count;
            let dead = std::mem::replace(&mut processes[victim], start());
            dead.signal(Signal::KILL);
            kills += 1;
        }
    }
    let lasted_ns = clock.now_ns() - begun_ns;
    let [mut refused, mut granted] = [0; 2];
    for process in processes {
        let ended = process.finish().expect_success();
        refused += ended.asked("refused");
        granted += ended.asked("granted");
    }
    let peak = number(&gpu.stats()["memory"], "peak_bytes");
    assert!(peak <= QUOTA_BYTES, "the device has given {peak}");
    let memory = &daemon.job_when("storm", "nothing held", |job| {
        job["memory"]["held_bytes"] == 0 && job["memory"]["processes"] == 0
    })["memory"];
    let refused_to_all = number(memory, "refused");
    assert!(
        refused_to_all > 0 && peak > QUOTA_BYTES / 2,
        "{refused_to_all} refused, peak {peak}"
    );
    assert!(number(memory, "peak_bytes") <= QUOTA_BYTES, "{memory:#}");
    until("the device to have everything", || used(&gpu) == 0);
    println!(
        "{count} processes of {threads} threads for {} ms: {looks} looks, {kills} killed, the device's peak {peak} of {QUOTA_BYTES} \
         bytes, of those that were not killed {granted} granted and {refused} refused, held at the end {}",
        lasted_ns / 1_000_000,
        number(memory, "held_bytes")
    );
}

//! Third-party monitors: inside a job they show its share of the device and its own processes;
//! outside, and in a job without a quota, NVML's data.

use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Daemon, Gpu, Process, Program, collect, library, tools};

const MIB: u64 = 1 << 20;
/// The memory of a V100 with 16 GiB, as the software GPU has it.
const DEVICE_MIB: u64 = 16 << 10;
const QUOTA_MIB: u64 = 1 << 10;
/// Memory of the job, and of a process outside.
const HELD_MIB: u64 = 300;
const OTHER_MIB: u64 = 64;

struct Two {
    gpu: Gpu,
    daemon: Daemon,
    job: Process,
    other: Process,
}

impl Two {
    fn start() -> Self {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let job = gpu.job("job", "quota");
        let held = HELD_MIB.to_string();
        let mut job = job
            .args(&["load", "0", &held, "0"])
            .best_effort(&daemon)
            .env("PILLION_MEMORY", format!("{QUOTA_MIB}MiB"))
            .start();
        job.wait_for("ready", 1);
        job.write("\n");
        assert_eq!(job.next_line(), "granted");
        let other = gpu.job("other", "load");
        let mut other = other.args(&[&OTHER_MIB.to_string(), "rest"]).start();
        other.wait_for("ready", 1);
        Self {
            gpu,
            daemon,
            job,
            other,
        }
    }

    /// A Python program of `module`, which leaves nothing in a home folder.
    fn python(&self, module: &str) -> Command {
        let mut command = self.gpu.command(tools::python(&[module]));
        command.arg("-B").env("HOME", self.gpu.path(""));
        command
    }

    /// Makes a command a process of the job of that id and class.
    fn inside(&self, mut command: Command, id: &str, class: &str) -> Command {
        command
            .env("LD_PRELOAD", library())
            .env("PILLION_SOCKET", self.daemon.socket())
            .env("PILLION_JOB", id)
            .env("PILLION_CLASS", class);
        command
    }

    fn monitor(&self, job: Option<(&str, &str)>) -> Value {
        let mut command = self.python("pynvml");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        command.arg(folder.join("monitor.py"));
        let command = match job {
            Some((id, class)) => self.inside(command, id, class),
            None => command,
        };
        let ended = collect(command).expect_success();
        let mut document: Value = serde_json::from_str(&ended.output).expect("one JSON document");
        document["devices"][0].take()
    }

    fn everybody(&self) -> Vec<(u32, u64)> {
        let mut all = vec![
            (self.job.pid(), HELD_MIB * MIB),
            (self.other.pid(), OTHER_MIB * MIB),
        ];
        all.sort_unstable();
        all
    }
}

/// Checks both versions of the memory query, and all lists of processes.
fn expect(said: &Value, [total, used, free]: [u64; 3], processes: &[(u32, u64)]) {
    for memory in ["memory", "memory_v2"] {
        let said = &said[memory];
        let expected = json!([total * MIB, used * MIB, free * MIB]);
        let told = json!([said["total"], said["used"], said["free"]]);
        assert_eq!(told, expected, "{memory}: {said:#}");
    }
    assert_eq!(said["memory_v2"]["reserved"], 0);
    assert_eq!(said["memory_v2"]["version"], 40 | 2 << 24);
    for list in ["compute", "mps"] {
        assert_eq!(said[list], json!(processes), "{list}: {said:#}");
    }
    assert_eq!(said["graphics"], json!([]));
}

// census: B12, D23
#[test]
fn nvidia_ml_py_in_a_job_says_what_the_job_has_and_outside_what_the_device_has() {
    let two = Two::start();
    let all = DEVICE_MIB - HELD_MIB - OTHER_MIB;
    let device = [DEVICE_MIB, HELD_MIB + OTHER_MIB, all];
    let outside = two.monitor(None);
    let ask = |id, class| two.monitor(Some((id, class)));
    expect(&outside, device, &two.everybody());
    let own = [(two.job.pid(), HELD_MIB * MIB)];
    let inside = ask("job", "best-effort");
    expect(&inside, [QUOTA_MIB, HELD_MIB, QUOTA_MIB - HELD_MIB], &own);
    // A job without a quota sees the device; so does a process of no job.
    expect(&ask("hp", "high-priority"), device, &two.everybody());
    expect(&ask("", "best-effort"), device, &two.everybody());
    // A quota can exceed the free memory.
    let words = ["set", "job", "--memory", "100%"];
    two.gpu.tell(&two.daemon, &words).expect_success();
    expect(
        &ask("job", "best-effort"),
        [DEVICE_MIB, HELD_MIB, all],
        &own,
    );
    // Everything else is reported unchanged.
    let mut same = [outside, inside];
    for said in &mut same {
        for own in [
            "memory",
            "memory_v2",
            "compute",
            "mps",
            "samples",
            "history",
        ] {
            said[own] = Value::Null;
        }
    }
    assert_eq!(same[0], same[1]);
}

#[test]
fn a_switched_off_library_changes_nothing_of_nvml() {
    let two = Two::start();
    let mut command = two.python("pynvml");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    command.arg(folder.join("monitor.py"));
    let mut command = two.inside(command, "job", "best-effort");
    command.env("PILLION_DISABLE", "1");
    let ended = collect(command).expect_success();
    let document: Value = serde_json::from_str(&ended.output).expect("one JSON document");
    let used = HELD_MIB + OTHER_MIB;
    let device = [DEVICE_MIB, used, DEVICE_MIB - used];
    expect(&document["devices"][0], device, &two.everybody());
}

#[test]
fn gpustat_and_nvitop_in_a_job_show_what_the_job_has() {
    let two = Two::start();
    let mut command = two.python("gpustat");
    command.args(["-m", "gpustat", "--json"]);
    let ended = collect(two.inside(command, "job", "best-effort")).expect_success();
    let document: Value = serde_json::from_str(&ended.output).expect("one JSON document");
    let said = &document["gpus"][0];
    let memory = (&said["memory.used"], &said["memory.total"]);
    assert_eq!(memory, (&json!(HELD_MIB), &json!(QUOTA_MIB)));
    let processes = said["processes"].as_array().expect("a list");
    assert_eq!(
        (processes.len(), &processes[0]["pid"]),
        (1, &json!(two.job.pid()))
    );

    let mut command = two.python("nvitop");
    command.args(["-m", "nvitop", "--once", "--ascii", "--colorful"]);
    command.env("COLUMNS", "120").env("TERM", "dumb");
    let ended = collect(two.inside(command, "job", "best-effort")).expect_success();
    let shows = |part: &str| ended.output.contains(part);
    assert!(
        shows("300.0MiB / 1024MiB") || shows("300.00MiB / 1024MiB"),
        "{}",
        ended.output
    );
    assert!(shows(&format!(" {} ", two.job.pid())), "{}", ended.output);
    assert!(
        !shows(&format!(" {} ", two.other.pid())),
        "{}",
        ended.output
    );
}

/// The program is linked with NVML, finds it with `dlsym`, and asks in a child of a fork that has
/// memory of its own.
#[test]
fn a_program_that_holds_memory_is_told_by_nvml_what_the_driver_tells_it() {
    let two = Two::start();
    let start = |quota: Option<&str>, socket: &std::path::Path| {
        let job = two.gpu.job("own", Program::Nvml("monitor_inside"));
        let job = job.under(socket, protocol::hello::JobClass::BestEffort);
        let job = match quota {
            Some(quota) => job.env("PILLION_MEMORY", quota),
            None => job,
        };
        job.args(&["128"]).run().expect_success()
    };
    let ended = start(Some("512MiB"), two.daemon.socket());
    let asked = |name: &str| ended.asked(name) / MIB;
    for way in ["linked", "found", "forked"] {
        let told = ["total", "used", "free"].map(|what| asked(&format!("{way}_{what}")));
        assert_eq!(told, [512, 128, 384], "{way}: {ended:#?}");
        assert_eq!(
            ended.asked(&format!("{way}_others")),
            0,
            "{way}: {ended:#?}"
        );
        assert_eq!(ended.asked(&format!("{way}_own")), 1, "{way}: {ended:#?}");
    }
    assert_eq!((asked("driver_total"), asked("driver_free")), (512, 384));
    // Without a daemon each process keeps the quota by itself; the job's others are unknown.
    let nowhere = std::path::Path::new("/nowhere/pillion.sock");
    let ended = start(Some("512MiB"), nowhere);
    for (way, used) in [("linked", 128), ("found", 128), ("forked", 0)] {
        let told =
            ["total", "used", "free"].map(|what| ended.asked(&format!("{way}_{what}")) / MIB);
        assert_eq!(told, [512, used, 512 - used], "{way}: {ended:#?}");
        assert_eq!(
            ended.asked(&format!("{way}_others")),
            2,
            "{way}: {ended:#?}"
        );
    }
}

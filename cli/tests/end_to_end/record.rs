//! `pillion profile record` against the device server's own record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler::{KernelProfile, Profile};
use protocol::recording::RecordPage;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{
    Daemon, Ended, Gpu, Machine, Process, Program, collect, pillion, tools, until, write_script,
};

mod cupti;

/// Shorter kernels are not compared: an event takes the device half a microsecond.
const COMPARED_NS: u64 = 20_000;
/// Tolerance of a median, percent.
const OFF_PCT: u64 = 5;
/// Tolerance with idle streams, less the host's time, ns: a busy machine's delay between calls.
const IDLE_OFF_NS: u64 = 5_000;

struct Stage {
    gpu: Gpu,
    device: PathBuf,
    profile: PathBuf,
}

/// The device's kernels by blocks: the durations, ns, sorted.
type Ran = BTreeMap<u64, Vec<u64>>;

impl Stage {
    fn new() -> Self {
        let gpu = Gpu::start_recording("mps");
        let (device, profile) = (gpu.path("device.tsv"), gpu.path("job.profile.toml"));
        Self {
            gpu,
            device,
            profile,
        }
    }

    fn record(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.gpu.command(pillion());
        command.env("SOFTGPU_LABEL", "job");
        command.args(["profile", "record", "--json", "-o"]);
        command
            .arg(&self.profile)
            .arg("--")
            .arg(program)
            .args(arguments);
        command
    }

    fn profile(&self) -> Profile {
        Profile::read(&self.profile).unwrap()
    }

    fn ran(self) -> Ran {
        // The folder of the path goes with the GPU.
        let text = self.gpu.end_recording(&self.device);
        let mut ran = Ran::new();
        for line in text
            .lines()
            .filter(|line| line.starts_with("kernel\tjob\t"))
        {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |index: usize| fields[index].parse::<u64>().unwrap();
            let durations = ran.entry(number(5)).or_default();
            durations.push(number(4) - number(3));
        }
        ran.values_mut()
            .for_each(|durations| durations.sort_unstable());
        ran
    }
}

fn summary(ended: &Ended) -> Value {
    serde_json::from_str(ended.output.lines().last().unwrap()).unwrap()
}

fn blocks(kernel: &KernelProfile) -> u64 {
    kernel
        .grid
        .iter()
        .map(|&extent| u64::from(extent))
        .product()
}

/// Checks that the profile has every launch, and that the timed medians are right.
fn expect_as_ran(profile: &Profile, ran: &Ran) {
    expect_within(profile, ran, |was| was * OFF_PCT / 100);
}

fn expect_within(profile: &Profile, ran: &Ran, off_ns: impl Fn(u64) -> u64) {
    let mut counts = BTreeMap::new();
    for kernel in &profile.kernels {
        *counts.entry(blocks(kernel)).or_default() += kernel.count;
    }
    let launched: BTreeMap<u64, u64> = ran
        .iter()
        .map(|(&blocks, all)| (blocks, all.len() as u64))
        .collect();
    assert_eq!(counts, launched);
    for kernel in &profile.kernels {
        let all = &ran[&blocks(kernel)];
        let (told, was) = (kernel.durations.median_ns, all[all.len() / 2]);
        println!(
            "{}: {told} ns, the device took {was} ns, {} launches",
            kernel.name, kernel.count
        );
        if was >= COMPARED_NS {
            assert!(
                told.abs_diff(was) <= off_ns(was),
                "{}: {told} {was}",
                kernel.name
            );
        }
    }
}

#[test]
fn a_recorded_profile_has_every_launch_and_the_devices_own_durations() {
    let stage = Stage::new();
    let program = Program::Linked("record").path();
    let bare = stage
        .gpu
        .job("bare", Program::Linked("record"))
        .args(&["rounds", "30"])
        .run();
    let ended = collect(stage.record(&program, &["rounds", "30"]));
    assert_eq!((ended.code(), bare.code()), (7, 7));
    assert!(ended.output.starts_with(&bare.output), "{ended:#?}");
    let (profile, told) = (stage.profile(), summary(&ended));
    assert_eq!(profile.gpu, "V100-SXM2-16GB");
    assert_eq!(profile.sources, ["recorded: record-linked"]);
    let launches = ended.asked("launches");
    assert_eq!(
        (&told["launches"], &told["exit_code"]),
        (&launches.into(), &7.into())
    );
    assert_eq!(told["left_out"]["kernels"], 0);
    let waves = profile
        .kernels
        .iter()
        .find(|kernel| kernel.name == "waves")
        .unwrap();
    assert_eq!(
        (
            waves.registers,
            waves.evidence.blocks_per_sm,
            waves.sm_needed
        ),
        (128, Some(2), 256)
    );
    expect_as_ran(&profile, &stage.ran());
}

#[test]
fn what_is_waited_for_after_each_launch_is_timed_too() {
    let stage = Stage::new();
    let ended = collect(stage.record(&Program::Linked("record").path(), &["idle", "10"]));
    assert_eq!(ended.code(), 7);
    let profile = stage.profile();
    expect_within(&profile, &stage.ran(), |was| {
        IDLE_OFF_NS.max(was * OFF_PCT / 100)
    });
}

/// Compares the device's own mean with the profile's.
#[test]
fn a_program_that_launches_a_kernel_in_turns_is_not_always_seen_at_the_same_turn() {
    let stage = Stage::new();
    let ended = collect(stage.record(&Program::Linked("record").path(), &["turns", "300"]));
    assert_eq!(ended.code(), 7, "{ended:#?}");
    let profile = stage.profile();
    let turn = profile.kernels.iter().find(|kernel| kernel.name == "turn");
    let turn = turn.unwrap();
    let all = &stage.ran()[&4];
    let was_ns = all.iter().sum::<u64>() / all.len() as u64;
    let told_ns = turn.durations.sum_ns / turn.count;
    println!("{told_ns} ns in the mean, the device took {was_ns} ns");
    assert_eq!(turn.count, all.len() as u64);
    // One launch in 32 takes 300 us, the others 30: 38 us. About 350 are timed, 11 of these are
    // long, give or take 3.3; with always the same turn the mean would be 200 us and more.
    assert!(told_ns < 2 * was_ns, "{told_ns} {was_ns}");
}

/// The library allocates its file's memory; libc's calls for that are cancellation points.
#[test]
fn a_thread_that_was_cancelled_launches_recorded_as_bare() {
    let stage = Stage::new();
    // More kernels and shapes than one piece of the file has room for.
    let ended = collect(stage.record(&Program::Linked("record").path(), &["cancel", "900"]));
    assert_eq!(ended.code(), 7, "{ended:#?}");
    assert_eq!(
        summary(&ended)["launches"],
        900 - summary(&ended)["left_out"]["launches"].as_u64().unwrap()
    );
}

#[test]
fn a_job_that_may_not_write_so_large_a_file_runs_as_without() {
    let program = Program::Linked("record").path();
    // In units of 512 bytes: 12 MiB are less than a record, 1 MiB than a page of the library's.
    for limit in [24_576, 2_048] {
        let stage = Stage::new();
        let script = format!("ulimit -f {limit}; exec \"$0\" rounds 3");
        let arguments = ["-c", &script, program.to_str().unwrap()];
        let ended = collect(stage.record(Path::new("sh"), &arguments));
        assert_eq!(ended.code(), 7, "{ended:#?}");
        let why = "the file size limit (ulimit -f) is";
        assert!(ended.errors.contains(why), "{ended:#?}");
        assert!(ended.errors.contains("nothing was recorded"), "{ended:#?}");
    }
}

/// A record has its head in a page, and more from its first kernel on.
#[test]
fn a_job_whose_shared_memory_is_nearly_full_runs_as_without_and_leaves_others_their_part() {
    let unshare = tools::that_runs(&["unshare", "--mount"]);
    let program = Program::Linked("record").path();
    for (size, why) in [
        ("4k", "this process is not recorded"),
        ("256k", "had no room for the records"),
    ] {
        let stage = Stage::new();
        let free = stage.gpu.path("free");
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs /dev/shm && \"$@\"; code=$?; \
             stat -f -c '%a %b' /dev/shm > '{}'; exit $code",
            free.display()
        );
        let recording = stage.record(&program, &["rounds", "3"]);
        let mut command = stage.gpu.command(&unshare);
        command.env("SOFTGPU_LABEL", "job");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command
            .arg(recording.get_program())
            .args(recording.get_args());
        let ended = collect(command);
        assert_eq!(ended.code(), 7, "{ended:#?}");
        assert!(ended.errors.contains(why), "{ended:#?}");
        let free = std::fs::read_to_string(free).unwrap();
        let blocks: Vec<u64> = free
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        let [free, all] = *blocks else {
            panic!("{blocks:?}")
        };
        assert!(free * 4 >= all, "{free} of {all}");
    }
}

/// A sweep of ten thousand programs needs no more room than one of them.
#[test]
fn what_a_process_of_the_job_leaves_is_added_up_soon_after_its_end() {
    let stage = Stage::new();
    let program = Program::Linked("record").path();
    let script = "\"$0\" rounds 3; \"$0\" rounds 3; \
                  for i in $(seq 300); do [ -z \"$(ls \"$PILLION_RECORD_SPOOL\")\" ] && exit 5; sleep 0.1; done; exit 6";
    let ended = collect(stage.record(Path::new("sh"), &["-c", script, program.to_str().unwrap()]));
    assert_eq!(ended.code(), 5, "{ended:#?}");
    let told = summary(&ended);
    assert_eq!(told["processes"], 2, "{told:#}");
    assert_eq!(told["launches"], ended.asked("launches"), "{ended:#?}");
    expect_as_ran(&stage.profile(), &stage.ran());
}

/// A shell without job control may ignore SIGCHLD, and some supervisors do.
#[test]
fn a_job_whose_starter_ignores_the_ends_of_children_has_its_own_code() {
    let stage = Stage::new();
    let recording = stage.record(&Program::Linked("record").path(), &["rounds", "3"]);
    let mut command = stage.gpu.command("sh");
    command.args(["-c", "trap '' CHLD; exec \"$@\"", "sh"]);
    command
        .arg(recording.get_program())
        .args(recording.get_args());
    let ended = collect(command);
    assert_eq!(ended.code(), 7, "{ended:#?}");
}

/// `pilliond` has a variable of that name for a file.
#[test]
fn the_daemons_own_variable_means_nothing_to_the_library() {
    let gpu = Gpu::start("mps");
    let job = gpu
        .job("job", Program::Linked("record"))
        .args(&["rounds", "1"]);
    let ended = job
        .env("PILLION_RECORD", gpu.path("granted").to_str().unwrap())
        .run();
    assert_eq!((ended.code(), &*ended.errors), (7, ""), "{ended:#?}");
}

#[test]
fn what_cannot_be_written_at_the_end_is_kept_elsewhere_and_the_job_has_its_own_code() {
    for (code, expected) in [(5, 5), (0, 1)] {
        let stage = Stage::new();
        let folder = stage.gpu.path("gone");
        std::fs::create_dir(&folder).unwrap();
        let kept = stage.gpu.path("kept");
        std::fs::create_dir(&kept).unwrap();
        let program = Program::Linked("record").path();
        let script = format!("\"$0\" rounds 3; rm -r \"$1\"; exit {code}");
        let mut command = stage.gpu.command(pillion());
        command
            .env("TMPDIR", &kept)
            .args(["profile", "record", "-o"]);
        command.arg(folder.join("job.profile.toml"));
        command
            .args(["--", "sh", "-c", &script])
            .arg(&program)
            .arg(&folder);
        let ended = collect(command);
        assert_eq!(ended.code(), expected, "{ended:#?}");
        let copies: Vec<PathBuf> = std::fs::read_dir(&kept)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let [copy] = &*copies else {
            panic!("{copies:?}: {ended:#?}")
        };
        assert!(
            ended.errors.contains(&*copy.to_string_lossy()),
            "{ended:#?}"
        );
        assert!(!Profile::read(copy).unwrap().kernels.is_empty());
    }
}

#[test]
fn profile_and_summary_do_not_both_go_to_the_standard_output() {
    let gpu = Gpu::start("mps");
    let mut command = gpu.command(pillion());
    command.args(["profile", "record", "--json", "-o", "-", "--", "true"]);
    let ended = collect(command);
    assert_eq!((ended.code(), &*ended.output), (2, ""), "{ended:#?}");
}

#[test]
fn a_job_under_its_recorded_profile_launches_nothing_unknown() {
    let stage = Stage::new();
    let program = Program::Linked("record").path();
    assert_eq!(collect(stage.record(&program, &["rounds", "3"])).code(), 7);
    let daemon = stage.gpu.daemon("");
    let (profile, program) = (stage.profile.to_str().unwrap(), program.to_str().unwrap());
    let arguments = ["--profile", profile, "--", program, "rounds", "3"];
    let job = stage.gpu.pillion_run("job", daemon.socket(), &arguments);
    let ended = job.env("PILLION_JOB", "job").run();
    assert_eq!((ended.code(), &*ended.errors), (7, ""));
    let totals = daemon.totals("job");
    assert_eq!(totals["launches"], ended.asked("launches"));
    assert_eq!(totals["launches_unknown"], 0, "{totals:#}");
    for command in [
        vec!["show", profile],
        vec!["compare", profile, profile],
        vec!["check", profile],
    ] {
        let mut pillion = stage.gpu.command(pillion());
        pillion.arg("profile").args(command);
        let ended = collect(pillion);
        assert!(!ended.output.is_empty(), "{ended:#?}");
        assert_ne!(ended.code(), 2, "{ended:#?}");
    }
}

#[test]
fn a_job_that_is_killed_leaves_what_it_had_launched() {
    let stage = Stage::new();
    let command = stage.record(&Program::Linked("record").path(), &["for-ever", "1"]);
    let mut job = Process::start("record", command);
    let pid: i32 = job.next_line().parse().unwrap();
    job.wait_for("round", 20);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let ended = job.finish_untold();
    assert_eq!(ended.code(), 137, "{ended:#?}");
    let profile = stage.profile();
    let of = |name: &str| {
        let kernel = profile.kernels.iter().find(|kernel| kernel.name == name);
        kernel.unwrap_or_else(|| panic!("no {name}")).count
    };
    // Twenty rounds were over; more may have been begun.
    assert!(of("brief") >= 100 && of("middle") >= 100 && of("lengthy") >= 100 && of("waves") >= 20);
}

#[test]
fn signals_to_the_command_reach_the_job_and_its_profile_is_written() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let stage = Stage::new();
        let command = stage.record(&Program::Linked("record").path(), &["for-ever", "1"]);
        let mut job = Process::start("record", command);
        job.wait_for("round", 2);
        job.signal(signal);
        let ended = job.finish_untold();
        assert_eq!(ended.code(), code, "{ended:#?}");
        assert_eq!(summary(&ended)["exit_code"], code);
        // Two rounds of 16 launches; pending ones are left out.
        let told = summary(&ended);
        let counted = told["launches"].as_u64().unwrap();
        let left_out = told["left_out"]["launches"].as_u64().unwrap();
        assert!(counted + left_out >= 32, "{told:#}");
        assert!(!stage.profile().kernels.is_empty());
    }
}

/// A command that leads a terminal's session, as long as the process; its job writes to a file:
/// first the id of the command.
fn on_a_terminal(gpu: &Gpu, job: &str) -> (Process, PathBuf, Pid) {
    let (said, script) = (gpu.path("said"), gpu.path("job"));
    let text = format!("#!/bin/sh\nexec >'{}'\n{job}\n", said.display());
    write_script(&script, &text);
    let line = format!(
        "exec '{}' profile record -o '{}' -- '{}'",
        pillion().display(),
        gpu.path("job.profile.toml").display(),
        script.display()
    );
    let mut command = gpu.command("script");
    command.args(["-qc", &line, "/dev/null"]);
    let terminal = Process::start("script", command);
    let pid = until("the job", || {
        let said = std::fs::read_to_string(&said).ok()?;
        said.strip_suffix("\n")?.parse().ok()
    });
    (terminal, said, Pid::from_raw(pid).unwrap())
}

fn wait_for_said(said: &Path, text: &str) {
    until(text, || {
        std::fs::read_to_string(said).is_ok_and(|said| said.contains(text))
    });
}

/// The kernel signals the session's leader alone.
#[test]
fn a_terminal_that_hangs_up_ends_the_job() {
    let gpu = Gpu::start("mps");
    let job = "trap 'echo hung; exit 3' HUP; echo $PPID; while :; do sleep 0.05; done";
    let (terminal, said, _) = on_a_terminal(&gpu, job);
    terminal.kill();
    wait_for_said(&said, "hung");
}

/// The kernel signals the whole foreground group.
#[test]
fn ctrl_c_on_a_terminal_reaches_the_job_once() {
    let gpu = Gpu::start("mps");
    let job = "trap 'echo int' INT; trap 'echo end; exit 3' USR1; echo $PPID; while :; do sleep 0.05; done";
    let (mut terminal, said, command) = on_a_terminal(&gpu, job);
    terminal.write("\x03");
    wait_for_said(&said, "int");
    // Forwarded after the earlier one.
    kill_process(command, Signal::USR1).unwrap();
    wait_for_said(&said, "end");
    let said = std::fs::read_to_string(&said).unwrap();
    assert_eq!(said.matches("int").count(), 1, "{said}");
    terminal.finish_untold();
}

#[test]
fn kernels_of_graphs_are_counted_and_share_what_their_graphs_took() {
    let stage = Stage::new();
    let program = Program::Linked("record").path();
    let ended = collect(stage.record(&program, &["capture", "40"]));
    assert_eq!(ended.code(), 7, "{ended:#?}");
    let (profile, told) = (stage.profile(), summary(&ended));
    // Nothing was timed beside the capture, and nothing of the capture voided.
    assert_eq!(told["not_timed"]["capture"], 200, "{told:#}");
    let named = |name: &str| profile.kernels.iter().find(|kernel| kernel.name == name);
    assert!(named("brief").is_none(), "{told:#}");
    assert_eq!(told["left_out"]["launches"], 200);
    let left_out = "1 kernel and shape with 200 launches were never timed and are left out: brief";
    let has = |notice: &str| profile.notices.iter().any(|text| text == notice);
    assert!(has(left_out), "{:?}", profile.notices);
    let (middle, lengthy) = (named("middle").unwrap(), named("lengthy").unwrap());
    assert_eq!((middle.count, lengthy.count), (40, 40));
    // 120 and 600 us.
    let together = middle.durations.median_ns + lengthy.durations.median_ns;
    assert!((700_000..760_000).contains(&together), "{profile:#?}");
    let notice = "2 kernels and shapes were measured only in CUDA graphs, or by CUPTI in several operators at once, and have a share of the time of these";
    assert!(
        profile.notices.iter().any(|text| text == notice),
        "{:?}",
        profile.notices
    );
    let ran = stage.ran();
    assert_eq!([1, 2, 3].map(|blocks| ran[&blocks].len()), [200, 40, 40]);
}

#[test]
fn a_graph_job_computes_as_without_and_every_kernel_is_counted() {
    let stage = Stage::new();
    let bare = stage.gpu.job("bare", "graph_work").run().expect_success();
    let ended = collect(stage.record(&Program::Linked("graph_work").path(), &[]));
    assert!(ended.expect_success().output.starts_with(&bare.output));
    let profile = stage.profile();
    let ran = stage.ran();
    let launched: u64 = profile.kernels.iter().map(|kernel| kernel.count).sum();
    assert_eq!(
        launched,
        ran.values().map(|all| all.len() as u64).sum::<u64>()
    );
}

/// The programs of `order` hang, or compute something else, if an operation of ours adds an edge.
#[test]
fn streams_that_wait_for_each_other_end_recorded_as_they_do_bare() {
    let rows = [
        "non-blocking",
        "blocking",
        "per-thread",
        "pytorch",
        "legacy",
        "mixed",
        "capturing",
    ];
    for row in rows {
        let gpu = Gpu::start("mps");
        let bare = gpu.job("bare", "order").args(&[row, "1"]).run();
        assert_eq!((bare.code(), &*bare.errors), (0, ""), "{bare:#?}");
        let mut command = gpu.command(pillion());
        command.env("SOFTGPU_LABEL", "job");
        command.args(["profile", "record", "-o"]);
        command.arg(gpu.path("job.profile.toml")).arg("--");
        command
            .arg(Program::Linked("order").path())
            .args([row, "1"]);
        let ours = collect(command);
        let mut lines = bare.output.lines().zip(ours.output.lines());
        let first = lines.find(|(bare, ours)| bare != ours);
        assert_eq!(first, None, "{row} (bare, recorded): {}", ours.errors);
        assert_eq!(
            (ours.code(), &ours.output),
            (0, &bare.output),
            "{row}: {}",
            ours.errors
        );
    }
}

#[test]
fn all_processes_of_a_job_are_in_its_profile_also_one_that_ends_at_once() {
    let stage = Stage::new();
    let ended = collect(stage.record(&Program::Linked("record").path(), &["forks", "3"]));
    assert_eq!(ended.code(), 7, "{ended:#?}");
    assert_eq!(summary(&ended)["processes"], 2);
    expect_as_ran(&stage.profile(), &stage.ran());
}

#[test]
fn launches_on_two_gpus_of_one_model_are_in_one_profile() {
    let machine = Machine::start("mps", 2);
    let profile = machine.gpu(0).path("job.profile.toml");
    let program = Program::Linked("devices").path();
    let arguments = ["profile", "record", "-o", profile.to_str().unwrap(), "--"];
    let job = machine.command("job", pillion(), &arguments);
    let ended = job
        .arg(&program)
        .args(&["both", "60"])
        .run()
        .expect_success();
    let asked = [0, 1].map(|index| ended.asked(&format!("launches_{index}")));
    let told = Profile::read(&profile).unwrap();
    let launched: u64 = told.kernels.iter().map(|kernel| kernel.count).sum();
    assert_eq!(launched, asked.iter().sum::<u64>());
    // One entry for both devices.
    assert_eq!(told.kernels.len(), 1, "{told:#?}");
}

#[test]
fn where_the_profile_cannot_be_written_the_job_is_not_started() {
    let gpu = Gpu::start("mps");
    let marker = gpu.path("started");
    for output in ["/nowhere/job.profile.toml", "/proc/job.profile.toml", "/"] {
        let mut command = gpu.command(pillion());
        command.args(["profile", "record", "-o", output, "--", "touch"]);
        command.arg(&marker);
        let ended = collect(command);
        assert_eq!((ended.code(), &*ended.output), (2, ""), "{ended:#?}");
        assert!(
            ended.errors.starts_with(&format!("pillion: {output}: ")),
            "{ended:#?}"
        );
        assert!(!marker.exists());
    }
}

#[test]
fn a_job_without_a_launch_leaves_no_profile_and_ends_with_its_own_code_or_1() {
    let gpu = Gpu::start("mps");
    let output = gpu.path("job.profile.toml");
    for (script, code) in [("exit 0", 1), ("exit 3", 3), ("kill -KILL $$", 137)] {
        let mut command = gpu.command(pillion());
        command.args(["profile", "record", "-o"]).arg(&output);
        command.args(["--", "sh", "-c", script]);
        let ended = collect(command);
        assert_eq!(ended.code(), code, "{ended:#?}");
        assert!(ended.errors.contains("nothing was recorded"), "{ended:#?}");
        assert!(!output.exists());
    }
    let mut command = gpu.command(pillion());
    command.args(["profile", "record", "-o"]).arg(&output);
    command.args(["--", "/no/such/program"]);
    assert_eq!(collect(command).code(), 127);
}

#[test]
fn beside_another_job_that_is_said() {
    let stage = Stage::new();
    let daemon: Daemon = stage.gpu.daemon("");
    let other = stage.gpu.job("other", "steady").best_effort(&daemon);
    let other = other.start_until("round");
    let mut command = stage.record(&Program::Linked("record").path(), &["rounds", "3"]);
    command.env("PILLION_SOCKET", daemon.socket());
    assert_eq!(collect(command).code(), 7);
    let notice = "another job used the GPU, and beside it kernels take longer than alone";
    let notices = stage.profile().notices;
    assert!(notices.iter().any(|text| text == notice), "{notices:?}");
    other.finish().expect_success();
}

/// A process outlives the one that was started, so that the daemon still has a client of the job.
#[test]
fn the_job_itself_is_no_other_job() {
    let stage = Stage::new();
    let daemon: Daemon = stage.gpu.daemon("");
    let program = Program::Linked("record").path();
    let script = "\"$0\" for-ever 1 </dev/zero >/dev/null 2>&1 & \"$0\" rounds 3; echo $! >\"$1\"";
    let left = stage.gpu.path("left");
    let (program, path) = (program.to_str().unwrap(), left.to_str().unwrap());
    let mut command = stage.record(Path::new("sh"), &["-c", script, program, path]);
    command.env("PILLION_SOCKET", daemon.socket());
    let ended = collect(command);
    let pid: i32 = std::fs::read_to_string(&left)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    assert_eq!(ended.code(), 0, "{ended:#?}");
    let notices = stage.profile().notices;
    assert!(
        !notices.iter().any(|text| text.contains("another job")),
        "{notices:?}"
    );
}

/// Process ids mean nothing where the folder may come from another container.
#[test]
fn a_folder_is_somebodys_while_he_has_its_lock() {
    let gpu = Gpu::start("mps");
    let folder = |pid: u32, name: &str| {
        let folder = PathBuf::from(format!(
            "/dev/shm/pillion-spool-{pid}-{name}-{}",
            std::process::id()
        ));
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    // No process has this id, and this one is alive.
    let (locked, left) = (
        folder(1 << 30, "locked"),
        folder(std::process::id(), "left"),
    );
    let lock = std::fs::File::open(&locked).unwrap();
    lock.lock().unwrap();
    let mut command = gpu.command(pillion());
    command
        .args(["profile", "record", "-o"])
        .arg(gpu.path("x"))
        .args(["--", "true"]);
    assert_eq!(collect(command).code(), 1);
    let found = (locked.exists(), left.exists());
    let _ = (std::fs::remove_dir(&locked), std::fs::remove_dir(&left));
    assert_eq!(found, (true, false));
}

#[test]
fn nothing_is_left_in_the_spool_and_a_killed_commands_folder_is_removed() {
    let stage = Stage::new();
    let command = stage.record(&Program::Linked("record").path(), &["for-ever", "1"]);
    let mut job = Process::start("record", command);
    let pid: i32 = job.next_line().parse().unwrap();
    job.wait_for("round", 1);
    let command_pid = job.pid();
    let folders = || -> Vec<PathBuf> {
        let all = std::fs::read_dir("/dev/shm")
            .into_iter()
            .flatten()
            .flatten();
        let prefix = format!("pillion-spool-{command_pid}-");
        let is_its = |path: &PathBuf| path.to_string_lossy().contains(&prefix);
        all.map(|entry| entry.path()).filter(is_its).collect()
    };
    assert_eq!(folders().len(), 1);
    let files = std::fs::read_dir(&folders()[0]).unwrap().flatten();
    let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(
        bytes,
        size_of::<RecordPage>() as u64,
        "of full size from the start"
    );
    job.kill();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let again = collect(stage.record(&Program::Linked("record").path(), &["rounds", "1"]));
    assert_eq!(again.code(), 7);
    until("the folder to be removed", || folders().is_empty());
}

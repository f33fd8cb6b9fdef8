//! `pillion profile record` with kernels timed by CUPTI: by its stand-in, with the server's times.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use profiler::Profile;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Ran, Stage, blocks, expect_as_ran, summary};
use crate::common::{Ended, Gpu, Machine, Process, Program, cargo_folder, collect, pillion};

const WORDS: &str = "SOFTGPU_CUPTI";
/// The beginning of the message if CUPTI is not used.
const DECLINED: &str = "kernels were timed by events and not by CUPTI: ";

fn library() -> PathBuf {
    cargo_folder().join("libcupti.so")
}

impl Stage {
    fn record_by_cupti(&self, words: &str, arguments: &[&str]) -> Command {
        let mut command = self.gpu.command(pillion());
        command.env("SOFTGPU_LABEL", "job").env(WORDS, words);
        command.args(["profile", "record", "--json", "--cupti"]);
        command.arg(library()).arg("-o").arg(&self.profile);
        command
            .arg("--")
            .arg(Program::Linked("record").path())
            .args(arguments);
        command
    }

    fn recorded_by_cupti(&self, words: &str, arguments: &[&str]) -> Ended {
        let ended = collect(self.record_by_cupti(words, arguments));
        assert_eq!(ended.code(), 7, "{ended:#?}");
        ended
    }
}

/// Checks that every kernel, also a short one, has every launch and the device's median.
fn expect_exactly(profile: &Profile, ran: &Ran) {
    expect_as_ran(profile, ran);
    for kernel in &profile.kernels {
        let all = &ran[&blocks(kernel)];
        let (told, was) = (kernel.durations.median_ns, all[all.len() / 2]);
        assert!(
            told.abs_diff(was) * 20 <= was,
            "{}: {told} {was}",
            kernel.name
        );
    }
}

fn count(told: &Value, what: &str) -> u64 {
    told[what].as_u64().unwrap()
}

fn has(profile: &Profile, beginning: &str) -> bool {
    let mut notices = profile.notices.iter();
    notices.any(|notice| notice.starts_with(beginning))
}

#[test]
fn cupti_times_every_launch_as_the_device_does() {
    for how in ["rounds", "idle", "brief"] {
        let stage = Stage::new();
        let ended = stage.recorded_by_cupti("", &[how, "30"]);
        let (profile, told) = (stage.profile(), summary(&ended));
        let launches = ended.asked("launches");
        assert_eq!(
            count(&told, "launches_timed_by_cupti"),
            launches,
            "{told:#}"
        );
        assert_eq!(count(&told, "launches_timed"), launches);
        let text = format!("recorded by CUPTI, which timed {launches} of {launches} launches");
        assert!(has(&profile, &text), "{:?}", profile.notices);
        assert!(!has(&profile, DECLINED));
        expect_exactly(&profile, &stage.ran());
    }
}

#[test]
fn cupti_times_kernels_of_graphs_and_beside_captures() {
    let stage = Stage::new();
    let ended = stage.recorded_by_cupti("", &["capture", "40"]);
    let (profile, told) = (stage.profile(), summary(&ended));
    assert_eq!(told["not_timed"]["capture"], 0, "{told:#}");
    assert_eq!(told["left_out"]["launches"], 0);
    // 200 launches, and 40 of a graph of two kernels.
    assert_eq!(count(&told, "launches_timed_by_cupti"), 280);
    expect_exactly(&profile, &stage.ran());
}

#[test]
fn cupti_times_two_devices_each_by_its_own() {
    let machine = Machine::start("mps", 2);
    let profile = machine.gpu(0).path("job.profile.toml");
    let library = library();
    let arguments = ["profile", "record", "--json", "-o"];
    let job = machine.command("job", pillion(), &arguments);
    let job = job.arg(&profile).arg("--cupti").arg(&library).arg("--");
    let job = job.arg(Program::Linked("devices").path());
    let ended = job.args(&["both", "60"]).run().expect_success();
    let asked = [0, 1].map(|index| ended.asked(&format!("launches_{index}")));
    let told = summary(&ended);
    let all: u64 = asked.iter().sum();
    assert_eq!(count(&told, "launches_timed_by_cupti"), all, "{told:#}");
}

#[test]
fn cupti_leaves_most_of_what_it_told_of_a_job_that_is_killed() {
    let stage = Stage::new();
    let mut job = Process::start("record", stage.record_by_cupti("", &["for-ever", "1"]));
    let pid: i32 = job.next_line().parse().unwrap();
    // Fewer launches than fit in a buffer, none of which was returned unasked, in more time than
    // passes between two queries of CUPTI.
    job.wait_for("round", 70);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let ended = job.finish_untold();
    assert_eq!(ended.code(), 137, "{ended:#?}");
    let told = summary(&ended);
    let timed = count(&told, "launches_timed_by_cupti");
    let launches = count(&told, "launches");
    assert!(launches >= 1120 && timed * 3 > launches, "{told:#}");
}

#[test]
fn cupti_is_declined_with_a_sentence_and_events_time_the_job() {
    let injected = ("CUDA_INJECTION64_PATH", "/no/such/tool.so");
    for (words, variable, sentence) in [
        ("subscribed", None, "another tool in the process uses CUPTI"),
        (
            "refuses",
            None,
            "cuptiActivityEnable failed with 35 (only an administrator may profile, see NVIDIA's ERR_NVGPUCTRPERM)",
        ),
        (
            "version=9",
            None,
            "CUPTI's version 9 does not fit this driver, or is older than CUDA 11.0",
        ),
        (
            // The stand-in driver is of CUDA 12.
            "version=130001",
            None,
            "CUPTI's version 130001 does not fit this driver, or is older than CUDA 11.0",
        ),
        (
            "",
            Some(injected),
            "the environment shows that a tool of NVIDIA profiles the process",
        ),
    ] {
        let stage = Stage::new();
        let mut command = stage.record_by_cupti(words, &["rounds", "5"]);
        command.envs(variable);
        let ended = collect(command);
        assert_eq!(ended.code(), 7, "{ended:#?}");
        let (profile, told) = (stage.profile(), summary(&ended));
        let notice = format!("{DECLINED}{sentence}");
        assert!(profile.notices.contains(&notice), "{:?}", profile.notices);
        assert_eq!(count(&told, "launches_timed_by_cupti"), 0, "{told:#}");
        assert!(count(&told, "launches_timed") > 0, "{told:#}");
        expect_as_ran(&profile, &stage.ran());
    }
}

#[test]
fn cupti_is_not_loaded_on_the_software_gpu_unless_a_file_is_named() {
    for (asked, sentence) in [
        ("auto", Some("the software GPU has no CUPTI")),
        ("off", None),
    ] {
        let stage = Stage::new();
        // The dynamic linker's search path has it.
        let link = stage.gpu.path("libcupti.so.12");
        std::os::unix::fs::symlink(library(), &link).unwrap();
        let mut command = stage.gpu.command(pillion());
        let folders = stage.gpu.path("").display().to_string();
        let known = command
            .get_envs()
            .find(|(name, _)| *name == "LD_LIBRARY_PATH");
        let known = known.unwrap().1.unwrap().to_str().unwrap();
        let folders = format!("{known}:{folders}");
        let log = stage.gpu.path("cupti.log");
        command.env("LD_LIBRARY_PATH", folders);
        command.env("SOFTGPU_CUPTI_LOG", &log);
        command.args(["profile", "record", "--json", "--cupti", asked, "-o"]);
        command.arg(&stage.profile).arg("--");
        command.arg(Program::Linked("record").path());
        let ended = collect({
            command.args(["rounds", "2"]);
            command
        });
        assert_eq!(ended.code(), 7, "{ended:#?}");
        assert!(!log.exists(), "it was loaded");
        let notices = stage.profile().notices;
        let said = notices.iter().find_map(|text| text.strip_prefix(DECLINED));
        assert_eq!(said, sentence);
        let mut named = stage.record_by_cupti("", &["rounds", "2"]);
        named.env("SOFTGPU_CUPTI_LOG", &log);
        assert_eq!(collect(named).code(), 7);
        assert!(log.exists(), "the log tells nothing");
    }
}

#[test]
fn cupti_that_is_not_there_is_refused_before_the_job() {
    let gpu = Gpu::start("mps");
    let mut command = gpu.command(pillion());
    command.args(["profile", "record", "--cupti", "/no/such/libcupti.so"]);
    command.args(["-o"]).arg(gpu.path("x.profile.toml"));
    command.args(["--", "sh", "-c", "echo started"]);
    let ended = collect(command);
    assert_eq!((ended.code(), &*ended.output), (2, ""), "{ended:#?}");
    assert!(ended.errors.contains("--cupti /no/such"), "{ended:#?}");
}

#[test]
fn cupti_records_that_are_lost_or_of_no_use_are_counted_and_said() {
    let launches = 16 * 30;
    for (word, reason, notice) in [
        (
            "drops",
            "cupti_dropped",
            "not timed: 240 launches for which CUPTI had no room",
        ),
        (
            "untimed",
            "cupti_without_times",
            "not timed: 240 launches whose CUPTI record has no times",
        ),
        (
            "renames",
            "cupti_of_no_launch",
            "not in the profile: 240 records of CUPTI about kernels whose launches were not seen, or that had another name",
        ),
    ] {
        let stage = Stage::new();
        let ended = stage.recorded_by_cupti(word, &["rounds", "30"]);
        let (profile, told) = (stage.profile(), summary(&ended));
        let reasons: BTreeMap<String, u64> =
            serde_json::from_value(told["not_timed"].clone()).unwrap();
        assert_eq!(reasons[reason], launches / 2, "{told:#}");
        assert_eq!(count(&told, "launches_timed_by_cupti"), launches / 2);
        assert!(has(&profile, notice), "{:?}", profile.notices);
        expect_exactly(&profile, &stage.ran());
    }
}

#[test]
fn cupti_that_another_tool_takes_over_is_said_and_events_go_on() {
    let stage = Stage::new();
    // 24000 launches in some seconds; those of the first two do not count.
    let ended = stage.recorded_by_cupti("stolen=2", &["rounds", "1500"]);
    let (profile, told) = (stage.profile(), summary(&ended));
    let notice = "CUPTI reported kernels until another tool in the process took it over; from then on events timed the kernels that CUPTI had not reported";
    assert!(
        profile.notices.iter().any(|text| text == notice),
        "{told:#}"
    );
    // Two records of the first two kernels; events of the others.
    assert_eq!(count(&told, "launches_timed_by_cupti"), 2, "{told:#}");
    assert_eq!(told["left_out"]["launches"], 0, "{told:#}");
    expect_as_ran(&profile, &stage.ran());
}

#[test]
fn cupti_that_gives_full_buffers_alone_leaves_the_rest_untimed() {
    let stage = Stage::new();
    let ended = stage.recorded_by_cupti("never-flushes", &["rounds", "100"]);
    let told = summary(&ended);
    // A buffer of 256 KiB and records of 208 bytes.
    assert_eq!(count(&told, "launches_timed_by_cupti"), 1260, "{told:#}");
    assert_eq!(count(&told, "launches"), 1600);
}

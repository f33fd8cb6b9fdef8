//! How the GPU is shared, and whether block priorities work there: detected, reported, and acted
//! on, whatever was configured.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use protocol::clock::Clock;
use protocol::hello::{Attach, JobClass, Reply, Request, connect_to, receive, send};
use protocol::segment::client_page;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Control, Daemon, Gpu, Process, collect, pillion, until};
use crate::events::{event_when, events};

const WAYS: [&str; 2] = ["mps", "timeslice"];
const SECOND_NS: u64 = 1_000_000_000;

/// A daemon with this value of `sharing`, which asks no control daemon of this machine's.
fn daemon(gpu: &Gpu, sharing: &str) -> Daemon {
    gpu.daemon_told(sharing, "[mps]\nterminate = [\"/no/such/program\"]")
}

/// Verdict and finding of `pillion doctor` on this subject; none if it has none.
fn examined(gpu: &Gpu, daemon: &Daemon, subject: &str) -> Option<(String, String)> {
    let mut command = gpu.command(pillion());
    command
        .args(["doctor", "--json"])
        .env("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent")
        .env("PILLION_SOCKET", daemon.socket());
    let document: Value = serde_json::from_str(&collect(command).output).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == subject)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("verdict"), text("found")))
}

fn of_kind(gpu: &Gpu, daemon: &Daemon, kind: &str) -> Vec<Value> {
    let all = events(gpu, daemon, &[]).into_iter();
    all.filter(|event| event["kind"] == kind).collect()
}

fn starts(gpu: &Gpu, daemon: &Daemon, class: JobClass) -> Process {
    let job = gpu.job(class.name(), "steady");
    job.under(daemon.socket(), class).start_until("round")
}

fn enforced(daemon: &Daemon) -> String {
    let job = daemon.job_when("best-effort", "a bound", |job| {
        let enforcing = job["enforcing"].as_str();
        enforcing.is_some_and(|words| words.contains("beside them"))
    });
    job["enforcing"].as_str().unwrap().to_owned()
}

/// The policy follows the sharing: kernels run beside high-priority ones under MPS alone.
fn expect_enforced(daemon: &Daemon, sharing: &str) {
    let words = enforced(daemon);
    let is_sliced = words.ends_with("none beside them");
    assert_eq!(is_sliced, sharing == "timeslice", "{sharing}: {words}");
}

#[test]
fn how_a_gpu_is_shared_is_found_out_by_its_first_client_and_acted_on_as_if_it_were_configured() {
    for sharing in WAYS {
        let gpu = Gpu::start(sharing);
        for configured in ["auto", sharing] {
            let daemon = daemon(&gpu, configured);
            let before = daemon.status()["gpu"].clone();
            assert_eq!(before["sharing_configured"], configured);
            match configured {
                "auto" => {
                    assert_eq!(before["sharing"], "timeslice", "what is cautious");
                    assert_eq!(before["sharing_known_by"], "assumption");
                    assert!(daemon.explained().contains("timeslice (auto; assumed"));
                }
                _ => assert_eq!(before["sharing_known_by"], "configuration"),
            }
            let [hp, be] = [JobClass::HighPriority, JobClass::BestEffort]
                .map(|class| starts(&gpu, &daemon, class));
            let now = daemon.status()["gpu"].clone();
            assert_eq!(now["sharing"], sharing, "{now:#}");
            assert_eq!(now["sharing_known_by"], "clients");
            assert_eq!(
                [&now["sharing_wrong"], &now["sharing_mixed"]],
                [false, false]
            );
            expect_enforced(&daemon, sharing);
            let told = of_kind(&gpu, &daemon, "sharing-known");
            assert_eq!(told.len(), usize::from(configured == "auto"), "{told:#?}");
            let line = match configured {
                "auto" => format!("  {sharing} (auto)  policy pillion"),
                _ => format!("  {sharing}  policy pillion"),
            };
            assert!(daemon.explained().contains(&line));
            assert_eq!(examined(&gpu, &daemon, "sharing"), None);
            hp.finish().expect_success();
            be.finish().expect_success();
            daemon.end();
        }
    }
}

#[test]
fn a_wrong_way_is_an_error_within_a_second_of_the_first_client_and_nothing_acts_on_it() {
    for (configured, sharing) in [("mps", "timeslice"), ("timeslice", "mps")] {
        let gpu = Gpu::start(sharing);
        let daemon = daemon(&gpu, configured);
        assert_eq!(daemon.status()["gpu"]["sharing"], configured);
        let be = starts(&gpu, &daemon, JobClass::BestEffort);
        let event = event_when(&gpu, &daemon, "sharing-wrong", |_| true);
        assert_eq!(event["severity"], "error");
        assert_eq!(event["pid"], be.pid());
        let text = event["text"].as_str().unwrap();
        assert!(
            text.contains(&format!("sharing is \"{configured}\"")),
            "{text}"
        );
        let attached = event_when(&gpu, &daemon, "attached", |_| true);
        let at_ns = |event: &Value| event["at_ns"].as_u64().unwrap();
        assert!(at_ns(&event) - at_ns(&attached) < SECOND_NS);
        let hp = starts(&gpu, &daemon, JobClass::HighPriority);
        let status = daemon.status()["gpu"].clone();
        assert_eq!(status["sharing"], sharing, "{status:#}");
        assert_eq!(status["sharing_configured"], configured);
        assert_eq!(status["sharing_wrong"], true);
        expect_enforced(&daemon, sharing);
        let shown = daemon.explained();
        assert!(
            shown.contains(&format!("{sharing} (configured: {configured})")),
            "{shown}"
        );
        assert!(shown.contains("which is wrong"), "{shown}");
        let (verdict, found) = examined(&gpu, &daemon, "sharing").unwrap();
        assert_eq!(verdict, "error", "{found}");
        hp.finish().expect_success();
        be.finish().expect_success();
        let all = of_kind(&gpu, &daemon, "sharing-wrong");
        assert_eq!(all.len(), 1, "said once: {all:#?}");
    }
}

/// A client that claims this sharing, as long as the connection is held.
fn client_of(daemon: &Daemon, is_on_mps: bool) -> OwnedFd {
    let attach = Request::Attach(Attach {
        class: JobClass::BestEffort,
        job: "hidden".to_owned(),
        name: "hidden".to_owned(),
        memory: Some(String::new()),
        is_on_mps: Some(is_on_mps),
        ..Attach::default()
    });
    let socket = connect_to(daemon.socket()).unwrap();
    let (page, _mapping) = client_page(&Clock::process()).unwrap();
    send(&socket, &attach.encode(), &[page.as_fd()]).unwrap();
    let (packet, _) = receive(&socket).unwrap();
    let reply = Reply::decode(&packet).unwrap();
    assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
    socket
}

#[test]
fn where_a_client_is_hidden_from_mps_nothing_goes_beside_and_who_it_is_is_said_until_it_is_gone() {
    let gpu = Gpu::start("mps");
    let daemon = daemon(&gpu, "mps");
    let [hp, be] =
        [JobClass::HighPriority, JobClass::BestEffort].map(|class| starts(&gpu, &daemon, class));
    expect_enforced(&daemon, "mps");
    let hidden = client_of(&daemon, false);
    let event = event_when(&gpu, &daemon, "sharing-mixed", |_| true);
    assert_eq!(event["severity"], "warning");
    assert_eq!(event["pid"], std::process::id());
    let status = daemon.status();
    let told = &status["gpu"];
    assert_eq!(
        [&told["sharing_mixed"], &told["sharing_wrong"]],
        [true, false]
    );
    expect_enforced(&daemon, "timeslice");
    // MPS is asked before one of its own clients is killed, and not before the other is.
    assert_eq!(daemon.job("hidden")["clients"][0]["sharing"], "timeslice");
    assert_eq!(daemon.job("best-effort")["clients"][0]["sharing"], "mps");
    let shown = daemon.explained_of("hidden");
    let line = format!(
        "  pid {} shares the GPU by \"timeslice\"",
        std::process::id()
    );
    assert!(shown.contains(&line), "{shown}");
    assert_eq!(examined(&gpu, &daemon, "sharing").unwrap().0, "warning");
    drop(hidden);
    event_when(&gpu, &daemon, "sharing-known", |_| true);
    assert_eq!(daemon.status()["gpu"]["sharing_mixed"], false);
    expect_enforced(&daemon, "mps");
    hp.finish().expect_success();
    be.finish().expect_success();
}

#[test]
fn before_there_is_a_client_the_control_daemon_is_asked_and_a_client_knows_better() {
    let gpu = Gpu::start("timeslice");
    let control = Control::new(&gpu);
    let faults = format!("[mps]\nterminate = [{:?}]", control.program());
    let daemon = gpu.daemon_told("auto", &faults);
    let known = |by: &str| {
        until(by, || {
            let gpu = daemon.status()["gpu"].clone();
            (gpu["sharing_known_by"] == by).then_some(gpu)
        })
    };
    assert_eq!(known("control-daemon")["sharing"], "mps");
    assert!(
        daemon
            .explained()
            .contains("mps (auto; MPS's control daemon answers")
    );
    let be = starts(&gpu, &daemon, JobClass::BestEffort);
    assert_eq!(known("clients")["sharing"], "timeslice");
    be.finish().expect_success();
    assert_eq!(control.asked(), ["get_server_list"]);
}

/// Whether block priorities are relied on, and the line of `pillion status` about them.
fn block_priority(daemon: &Daemon) -> (bool, Option<String>) {
    let status = daemon.status();
    let is_on = status["policy"]["block_priority"]["on"].as_bool().unwrap();
    let shown = daemon.explained();
    let line = shown
        .lines()
        .find(|line| line.contains("block_priority is off, "));
    (is_on, line.map(|line| line.trim().to_owned()))
}

#[test]
fn whether_blocks_have_priorities_a_software_gpus_server_says_and_the_configuration_may() {
    const LINE: &str = "[policy] block_priority is off, as the software GPU reports";
    let [with, without] = [Gpu::start("mps"), Gpu::start_without_block_priority("mps")];
    for (gpu, keys, is_on, line) in [
        (&with, "", true, None),
        (&without, "", false, Some(LINE)),
        (&without, "block_priority = \"auto\"", false, Some(LINE)),
        (&without, "block_priority = true", true, None),
        (&with, "block_priority = false", false, None),
    ] {
        let daemon = gpu.daemon(keys);
        let line = line.map(str::to_owned);
        assert_eq!(block_priority(&daemon), (is_on, line), "{keys}");
        daemon.end();
    }
}

#[test]
fn what_nobody_measured_is_off_until_there_is_a_file_that_says_otherwise() {
    let gpu = Gpu::start("mps");
    let folder = gpu.path("state");
    fs::create_dir(&folder).unwrap();
    // In the null mode the daemon asks no device server, as with NVIDIA's drivers.
    let daemon = gpu.null_daemon_in(&[("STATE_DIRECTORY", &folder)]);
    let uuid = daemon.status()["gpu"]["uuid"].as_str().unwrap().to_owned();
    let file = folder.join(format!("{uuid}.measured"));
    let expect = |is_on: bool, part: &str| {
        until(part, || {
            let (found, line) = block_priority(&daemon);
            found == is_on && line.unwrap_or_default().contains(part)
        });
    };
    let not_measured =
        "[policy] block_priority is off, because its effect on this GPU has not been measured";
    expect(false, not_measured);
    expect(false, &file.display().to_string());
    let measured = |works: bool, cuda: i32| {
        let text = format!(
            "schema_version = 1\nuuid = \"{uuid}\"\ncuda_driver = {cuda}\nblock_priority = {works}\n"
        );
        write(&file, &text);
        daemon.signal(Signal::HUP);
    };
    measured(true, softgpu::CUDA_VERSION);
    expect(true, "");
    measured(false, softgpu::CUDA_VERSION);
    expect(false, "[policy] block_priority is off, as measured");
    measured(true, softgpu::CUDA_VERSION - 10);
    expect(false, "it was measured with a driver of CUDA");
    event_when(&gpu, &daemon, "config-doubtful", |event| {
        event["text"]
            .as_str()
            .unwrap()
            .contains("[policy] block_priority is off")
    });
    write(&file, "block_priority = maybe");
    daemon.signal(Signal::HUP);
    expect(false, "GPU-");
    expect(false, ".measured:1:18");
}

/// The file is complete at any moment.
fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

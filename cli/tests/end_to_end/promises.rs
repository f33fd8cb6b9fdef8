//! Promises to best-effort jobs, changed while they run (`set --weight`, `set --min-progress`).

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::common::{Daemon, Ended, Gpu};

fn told(daemon: &Daemon, weight: (u64, &str), least: (Option<f64>, &str)) {
    let is_so = |job: &serde_json::Value| {
        let promise = &job["control"]["promise"];
        promise["weight"] == weight.0
            && promise["weight_source"] == weight.1
            && promise["min_progress"].as_f64() == least.0
            && promise["min_progress_source"] == least.1
    };
    daemon.job_when("training", &format!("{weight:?}, {least:?}"), is_so);
}

/// The daemon's files about its promises.
fn granted(daemon: &Daemon) -> Vec<PathBuf> {
    let folder = daemon.socket().parent().unwrap();
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == "promises"))
        .collect()
}

fn killed(daemon: Daemon) {
    daemon.signal(Signal::KILL);
    drop(daemon.finish());
}

#[test]
fn promises_are_changed_told_and_the_next_daemon_keeps_those_that_were_given() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("training", "steady").best_effort(&daemon);
    let mut training = job.start_until("round");
    told(&daemon, (1, "configuration"), (None, "configuration"));
    let set = |daemon: &Daemon, words: &[&str]| gpu.tell(daemon, &[&["set"], words].concat());
    let said = set(
        &daemon,
        &["training", "--weight", "3", "--min-progress", "30%"],
    );
    let said = said.expect_success().output;
    let expected = "weight 3 (set), at least 30 % of its rate alone (set)";
    assert!(said.contains(expected), "{said}");
    let explained = daemon.explained();
    assert!(explained.contains(expected), "{explained}");
    let refused = |ended: Ended, code: i32, part: &str| {
        assert_eq!(ended.code(), code, "{ended:#?}");
        ended.expect_errors(&[part]);
    };
    let nobodys = set(&daemon, &["nobody", "--weight", "2"]);
    refused(nobodys, 1, "no job \"nobody\"");
    refused(
        set(&daemon, &["training", "--weight", "0"]),
        2,
        "from 1 to 100",
    );
    let share = set(&daemon, &["training", "--min-progress", "30"]);
    refused(share, 2, "above 0 to 1");

    killed(daemon);
    let daemon = gpu.daemon("[jobs.training]\nweight = 2");
    told(&daemon, (3, "set"), (Some(0.3), "set"));
    let said = set(&daemon, &["training", "--weight", "default"]);
    let said = said.expect_success().output;
    assert!(
        said.contains("weight 2 (configuration), at least 30 %"),
        "{said}"
    );
    told(&daemon, (2, "configuration"), (Some(0.3), "set"));

    // The job's ledger still contains the values, as if the job had written them there.
    let files = granted(&daemon);
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::remove_file(&files[0]).unwrap();
    killed(daemon);
    let daemon = gpu.daemon("");
    training.wait_for_new("round", 1);
    told(&daemon, (1, "configuration"), (None, "configuration"));
    set(&daemon, &["training", "--weight", "4"]).expect_success();
    assert_eq!(granted(&daemon).len(), 1);
    let said = set(&daemon, &["training", "--weight", "default"]);
    let said = said.expect_success().output;
    let usual = "weight 1 (configuration), no least share (configuration)";
    assert!(said.contains(usual), "{said}");
    assert_eq!(granted(&daemon).len(), 0);
    gpu.expect_right_end("training", training, &daemon);
}

#[test]
fn a_promise_is_refused_where_it_cannot_be_kept_and_taken_back_when_the_job_has_gone() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("training", "steady").best_effort(&daemon);
    let training = job.start_until("round");
    let set = |words: &[&str]| gpu.tell(&daemon, &[&["set", "training"], words].concat());
    let over = set(&["--compute", "20%", "--min-progress", "30%"]);
    assert_eq!(over.code(), 1, "{over:#?}");
    over.expect_errors(&["least share 30% exceeds the cap", "nearest is 20%"]);
    set(&["--weight", "4"]).expect_success();
    let file = granted(&daemon).remove(0);
    let mode = |mode: u32| set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    // The daemon trusts the file no more: anybody could have written it.
    mode(0o666);
    for words in [["--weight", "default"], ["--min-progress", "30%"]] {
        let refused = set(&[&words[..], &["--memory", "1GiB"]].concat());
        assert_eq!(refused.code(), 1, "{refused:#?}");
        refused.expect_errors(&["cannot save weights and least shares", ".promises"]);
    }
    told(&daemon, (4, "set"), (None, "configuration"));
    assert_ne!(daemon.job("training")["memory"]["quota_bytes"], 1_u64 << 30);
    mode(0o600);
    gpu.expect_right_end("training", training, &daemon);
    let back = ["--weight", "default", "--min-progress", "default"];
    let is_ended = |job: &serde_json::Value| job["ended_ns"].is_u64();
    daemon.job_when("training", "it has ended", is_ended);
    set(&back).expect_success();
    assert_eq!(granted(&daemon).len(), 0);
    let again = set(&back);
    assert_eq!(again.code(), 1, "{again:#?}");
    again.expect_errors(&["no job \"training\""]);
}

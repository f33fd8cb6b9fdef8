//! The shipped systemd unit: it matches the daemon's design, and does not hinder its work.

use std::process::Command;

use crate::common::{Gpu, cargo_folder, clean_command, collect, workspace};

fn lines() -> Vec<String> {
    lines_of("pilliond@.service")
}

fn lines_of(name: &str) -> Vec<String> {
    let path = workspace().join("packaging/systemd").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn it_starts_another_daemon_for_every_end_but_that_of_a_file_that_cannot_be_used() {
    let lines = lines();
    for line in [
        "Restart=always",
        "RestartSec=500ms",
        "RestartPreventExitStatus=2",
        "StartLimitIntervalSec=0",
        "WatchdogSec=30s",
        "Type=notify",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 0",
        "ExecStartPre=-+/usr/bin/nvidia-smi -L",
        "SyslogLevel=warning",
        "Slice=pillion.slice",
        "RestrictRealtime=no",
        "LimitRTPRIO=1",
        "LimitRTTIME=1s",
        "RuntimeDirectory=pillion",
        "RuntimeDirectoryPreserve=yes",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ReadWritePaths=/tmp",
        "RestrictAddressFamilies=AF_UNIX",
        "DeviceAllow=char-nvidia* rwm",
        "SystemCallFilter=~@cpu-emulation @module @mount @obsolete @raw-io @reboot @swap",
        "SystemCallErrorNumber=EPERM",
    ] {
        assert!(lines.iter().any(|found| found == line), "no {line}");
    }
    // The unit's comments explain why these are absent.
    for name in [
        "PrivateTmp",
        "PrivateNetwork",
        "ProtectProc",
        "ProcSubset",
        "MemoryDenyWriteExecute",
        "PrivateDevices",
        "PrivateUsers",
    ] {
        let is_set = |line: &String| line.starts_with(&format!("{name}="));
        assert!(!lines.iter().any(is_set), "{name} is set");
    }
}

/// From systemd 253 on; without the empty ExecReload= two ways to reload would be set.
#[test]
fn a_drop_in_has_reload_wait_for_the_daemon() {
    let lines = lines_of("notify-reload.conf");
    assert_eq!(lines, ["[Service]", "Type=notify-reload", "ExecReload="]);
}

/// A nested slice would show in its name, and its weight would count only there.
#[test]
fn its_slice_is_at_the_top_and_has_a_weight() {
    assert!(lines_of("pillion.slice").contains(&"CPUWeight=10000".to_owned()));
}

/// As under systemd, with a file in place of the journal.
#[test]
fn in_the_journal_an_error_that_ends_the_daemon_has_the_priority_of_one() {
    let script = "JOURNAL_STREAM=$(stat -Lc %d:%i /dev/stderr) exec \"$0\" --config missing.toml";
    let mut command = clean_command("sh");
    command
        .args(["-c", script])
        .arg(cargo_folder().join("pilliond"));
    let ended = collect(command);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(
        ended.errors.starts_with("<3>pilliond: /") && ended.errors.contains("/missing.toml: "),
        "{ended:#?}"
    );
}

#[test]
fn elsewhere_each_line_of_the_log_begins_with_the_time_of_day() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    let log = daemon.log();
    let times = log.lines().map(|line| line.split(' ').next().unwrap());
    let times: Vec<_> = times.map(str::parse::<jiff::Timestamp>).collect();
    assert!(
        !times.is_empty() && times.iter().all(Result::is_ok),
        "{log}"
    );
    daemon.end();
}

/// Where systemd is installed, by its own judgement; running or not.
#[test]
fn systemd_understands_it_and_finds_little_that_is_open() {
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output();
    if analyze(&["--version"]).is_err() {
        testing::ignore("no systemd-analyze");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pilliond@gpu0.service");
    let program = cargo_folder().join("pilliond");
    let text = lines().join("\n");
    let text = text.replace("/usr/bin/pilliond", program.to_str().unwrap());
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let slice = folder.path().join("pillion.slice");
    std::fs::write(&slice, lines_of("pillion.slice").join("\n")).unwrap();
    let slice = slice.to_str().unwrap();
    let verified = analyze(&["verify", "--man=no", path, slice]).unwrap();
    let said = String::from_utf8(verified.stderr).unwrap();
    let is_about_it =
        |line: &&str| line.contains("pilliond@gpu0") || line.contains("pillion.slice");
    let complaints: Vec<&str> = said.lines().filter(is_about_it).collect();
    assert!(verified.status.success() && complaints.is_empty(), "{said}");
    // Of 10 it is 2.8 for systemd 252.
    let judged = analyze(&["security", "--offline=true", "--threshold=40", path]).unwrap();
    let table = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(judged.status.success(), "{table}");
}

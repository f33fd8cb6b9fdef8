//! MPS managed by a daemon (`[mps] manage`), with a script as its control daemon, and with NVIDIA's
//! own, which runs without a GPU.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Daemon, Gpu, Process, until, write_script};
use crate::events::{event_when, events, text};
use crate::real_driver::brought;

const PIPES_ENV: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// A control daemon as files: it runs while `running` exists, and cannot start while `broken` does.
struct Script {
    folder: PathBuf,
}

impl Script {
    fn new(gpu: &Gpu) -> Self {
        let folder = gpu.path("mps");
        fs::create_dir_all(&folder).unwrap();
        let script = Self { folder };
        for name in ["servers", "status", "clients"] {
            script.set(name, "");
        }
        let text = format!(
            "#!/bin/sh\n\
             cd {}\n\
             if [ \"$1\" = -d ]; then\n\
             echo start >> asked; [ -e broken ] && exit 3; touch running; exit 0\n\
             fi\n\
             [ -e running ] || {{ echo Cannot find MPS control daemon process; exit 1; }}\n\
             read -r command\n\
             echo $command >> asked\n\
             case $command in\n\
             get_server_list) cat servers ;;\n\
             get_server_status*) cat status ;;\n\
             get_client_list*) cat clients ;;\n\
             quit*) rm running; echo ACTIVE > status ;;\n\
             esac\n",
            script.folder.display()
        );
        write_script(&script.program(), &text);
        script
    }

    fn program(&self) -> PathBuf {
        self.folder.join("control")
    }

    fn set(&self, name: &str, text: &str) {
        // In one step: it may be read at any moment.
        let part = self.folder.join("part");
        fs::write(&part, text).unwrap();
        fs::rename(part, self.folder.join(name)).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).unwrap();
    }

    fn daemon(&self, gpu: &Gpu, socket: PathBuf, more: &str) -> Daemon {
        let program = self.program();
        let sections = format!(
            "[mps]\nmanage = true\ncontrol = [{program:?}]\nstart = [{program:?}, \"-d\"]\nterminate = [{program:?}]\n{more}"
        );
        gpu.daemon_at_with(socket, &sections, (PIPES_ENV, &self.folder))
    }

    fn count(&self, word: &str) -> usize {
        let asked = fs::read_to_string(self.folder.join("asked")).unwrap_or_default();
        asked.lines().filter(|line| line.starts_with(word)).count()
    }
}

fn mps(daemon: &Daemon) -> Value {
    daemon.status()["mps"].clone()
}

fn state_when(daemon: &Daemon, state: &str) -> Value {
    daemon.status_when(state, |status| status["mps"]["state"] == state)["mps"].clone()
}

fn start(gpu: &Gpu, daemon: &Daemon, label: &str) -> Process {
    let job = gpu.job(label, "faulty");
    let job = match label {
        "hp" => job.high_priority(daemon),
        _ => job.best_effort(daemon),
    };
    let mut process = job.start_until("ready");
    launch(&mut process);
    process
}

fn launch(process: &mut Process) {
    process.write("\n");
    assert_eq!(process.next_line(), "launch 0 wait 0");
}

#[test]
fn mps_is_started_where_there_is_none_and_anew_when_it_ends_and_given_up_when_that_is_of_no_use() {
    let gpu = Gpu::start("mps");
    let script = Script::new(&gpu);
    let daemon = script.daemon(&gpu, gpu.path("pillion.sock"), "");
    event_when(&gpu, &daemon, "mps-started", |_| true);
    let running = state_when(&daemon, "running");
    assert_eq!(running["supervised_by_us"], true, "{running}");
    assert_eq!(running["restarts"], 0, "{running}");
    script.set("broken", "");
    script.remove("running");
    let told = event_when(&gpu, &daemon, "mps-given-up", |_| true);
    assert!(text(&told).contains("3 restarts in an hour"), "{told}");
    assert!(text(&told).contains("exited with status 3"), "{told}");
    assert_eq!(mps(&daemon)["restarts"], 3);
    assert_eq!(script.count("start"), 4);
    let table = daemon.explained();
    let line = "MPS is not restarted until `pillion resume`";
    assert!(table.contains(line), "{table}");
    script.remove("broken");
    gpu.tell(&daemon, &["resume"]).expect_success();
    event_when(&gpu, &daemon, "mps-restarted", |_| true);
    assert_eq!(script.count("start"), 5);
    state_when(&daemon, "running");
}

#[test]
fn best_effort_jobs_wait_for_a_broken_server_that_is_used_and_nobody_restarts_it() {
    let gpu = Gpu::start("mps");
    let script = Script::new(&gpu);
    // With a client that has reported no loss.
    script.set("servers", "4242\n");
    script.set("status", "ACTIVE\n");
    script.set("clients", "1\n");
    let daemon = script.daemon(&gpu, gpu.path("pillion.sock"), "");
    let mut hp = start(&gpu, &daemon, "hp");
    let mut be = start(&gpu, &daemon, "be");
    state_when(&daemon, "running");
    script.set("status", "FAULT\n");
    state_when(&daemon, "fault");
    let told = event_when(&gpu, &daemon, "mps-fault", |_| true);
    assert!(text(&told).contains("server 4242 has failed"), "{told}");
    event_when(&gpu, &daemon, "held", |_| true);
    be.write("\n");
    daemon.wait_until_held("be");
    let enforcing = daemon.job("be")["enforcing"].clone();
    let enforcing = enforcing.as_str().unwrap();
    assert!(
        enforcing.starts_with("held until MPS serves again: "),
        "{enforcing}"
    );
    let table = daemon.explained();
    let line = "best-effort jobs are held until MPS serves again: ";
    assert!(table.contains(line), "{table}");
    launch(&mut hp);
    script.set("status", "ACTIVE\n");
    assert_eq!(be.next_line(), "launch 0 wait 0");
    event_when(&gpu, &daemon, "mps-back", |_| true);
    assert_eq!((script.count("quit"), script.count("terminate")), (0, 0));
    assert_eq!(script.count("start"), 1);
}

#[test]
fn a_server_has_ended_under_its_clients_where_one_of_them_says_so_and_not_where_they_have_left() {
    let gpu = Gpu::start("mps");
    let script = Script::new(&gpu);
    let daemon = script.daemon(&gpu, gpu.path("pillion.sock"), "");
    let mut be = start(&gpu, &daemon, "be");
    script.set("clients", &be.pid().to_string());
    let has_server = |pid: Option<u32>| {
        let servers = pid.map_or_else(String::new, |pid| format!("{pid}\n"));
        script.set("servers", &servers);
        let seen: Vec<u32> = pid.into_iter().collect();
        daemon.status_when("its server", |status| {
            status["mps"]["servers"] == Value::from(seen.clone())
        });
    };
    has_server(Some(4242));
    // As if it had destroyed its contexts: it lives on.
    has_server(None);
    launch(&mut be);
    has_server(Some(4243));
    gpu.inject("sticky 806 be");
    be.write("\n");
    assert_eq!(be.next_line(), "launch 806 wait 806");
    event_when(&gpu, &daemon, "sticky-error", |event| event["code"] == 806);
    has_server(None);
    let told = event_when(&gpu, &daemon, "mps-fault", |_| true);
    assert!(
        text(&told).contains("server 4243 has exited while clients used it"),
        "{told}"
    );
    assert_eq!(daemon.status()["events"]["counts"]["mps-fault"], 1);
}

#[test]
fn a_rule_restarts_a_broken_server_that_is_used_by_whoever_supervises() {
    let gpu = Gpu::start("mps");
    let script = Script::new(&gpu);
    script.set("servers", "4242\n");
    script.set("clients", "1\n");
    script.set("status", "FAULT\n");
    let rule = "[[faults.rules]]\nfault = \"mps-fault\"\naction = \"restart-mps\"\n";
    let daemon = script.daemon(&gpu, gpu.path("pillion.sock"), rule);
    event_when(&gpu, &daemon, "mps-restarted", |_| true);
    state_when(&daemon, "running");
    assert_eq!((script.count("quit -t 10"), script.count("start")), (1, 2));
}

#[test]
fn one_of_two_daemons_starts_mps_and_the_other_supervises_when_that_has_ended() {
    let (gpu, other) = (Gpu::start("mps"), Gpu::start("mps"));
    let script = Script::new(&gpu);
    let first = script.daemon(&gpu, gpu.path("a.sock"), "");
    state_when(&first, "running");
    let second = script.daemon(&other, gpu.path("b.sock"), "");
    let seen = state_when(&second, "running");
    assert_eq!(seen["supervised_by_us"], false, "{seen}");
    let told = event_when(&other, &second, "mps-adopted", |_| true);
    assert!(
        text(&told).contains("another daemon supervises it"),
        "{told}"
    );
    first.kill();
    second.status_when("it supervises", |status| {
        status["mps"]["supervised_by_us"] == true
    });
    assert_eq!(script.count("start"), 1);
    script.remove("running");
    event_when(&other, &second, "mps-restarted", |_| true);
    assert_eq!(script.count("start"), 2);
}

#[test]
fn restarts_count_on_when_pilliond_is_killed_and_what_was_given_up_stays_so() {
    let gpu = Gpu::start("mps");
    let script = Script::new(&gpu);
    let start = || script.daemon(&gpu, gpu.path("pillion.sock"), "");
    let daemon = start();
    state_when(&daemon, "running");
    script.remove("running");
    event_when(&gpu, &daemon, "mps-restarted", |_| true);
    daemon.kill();
    let daemon = start();
    let seen = state_when(&daemon, "running");
    assert_eq!(seen["restarts"], 1, "{seen}");
    script.set("broken", "");
    script.remove("running");
    event_when(&gpu, &daemon, "mps-given-up", |_| true);
    assert_eq!(script.count("start"), 4);
    daemon.kill();
    let daemon = start();
    let told = event_when(&gpu, &daemon, "mps-given-up", |_| true);
    assert!(
        text(&told).contains("the previous daemon gave up"),
        "{told}"
    );
    let seen = state_when(&daemon, "given-up");
    assert_eq!(seen["restarts"], 3, "{seen}");
    daemon.kill();
    assert_eq!(script.count("start"), 4);
    // An unreadable file stops nothing.
    let folder = fs::read_dir(gpu.path(".")).unwrap();
    let mut paths = folder.map(|entry| entry.unwrap().path());
    let is_lock = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("mps-") && name.ends_with(".lock")
    };
    fs::write(paths.find(is_lock).unwrap(), "{").unwrap();
    script.remove("broken");
    let daemon = start();
    let told = event_when(&gpu, &daemon, "action-failed", |_| true);
    assert!(text(&told).contains("counting from zero"), "{told}");
    let seen = state_when(&daemon, "running");
    assert_eq!(seen["restarts"], 0, "{seen}");
}

/// NVIDIA's control daemon of a series, with folders of its own; ended on drop.
struct Nvidia {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Nvidia {
    fn new(series: &str) -> Self {
        let program = brought(series).join("usr/bin/nvidia-cuda-mps-control");
        let folder = tempfile::tempdir().unwrap();
        Self { program, folder }
    }

    fn daemon(&self, gpu: &Gpu) -> Daemon {
        let program = &self.program;
        let log = format!("CUDA_MPS_LOG_DIRECTORY={}", self.folder.path().display());
        let sections = format!(
            "[mps]\nmanage = true\ncontrol = [{program:?}]\nterminate = [{program:?}]\n\
             start = [\"/usr/bin/env\", {log:?}, {program:?}, \"-d\"]\n"
        );
        let socket = gpu.path("pillion.sock");
        gpu.daemon_at_with(socket, &sections, (PIPES_ENV, self.folder.path()))
    }

    fn pid(mps: &Value) -> Pid {
        let pid = mps["pid"].as_i64().expect("the lock's holder");
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }
}

impl Drop for Nvidia {
    fn drop(&mut self) {
        let mut command = Command::new(&self.program);
        command.env(PIPES_ENV, self.folder.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let Ok(mut quit) = command.spawn() else {
            return;
        };
        let _ = std::io::Write::write_all(quit.stdin.as_mut().unwrap(), b"quit -t 1\n");
        let _ = quit.wait();
    }
}

/// Ensures that a failed test leaves no stopped process.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn nvidias_control_daemon_outlives_a_killed_daemon_and_the_next_one_adopts_it() {
    for series in ["R535", "R550"] {
        let gpu = Gpu::start("mps");
        let nvidia = Nvidia::new(series);
        let daemon = nvidia.daemon(&gpu);
        event_when(&gpu, &daemon, "mps-started", |_| true);
        let running = state_when(&daemon, "running");
        let pid = Nvidia::pid(&running);
        daemon.kill();
        let daemon = nvidia.daemon(&gpu);
        let adopted = event_when(&gpu, &daemon, "mps-adopted", |_| true);
        let pid_shown = format!("(pid {})", pid.as_raw_nonzero());
        assert!(text(&adopted).contains(&pid_shown), "{adopted}");
        let seen = state_when(&daemon, "running");
        assert_eq!(Nvidia::pid(&seen), pid);
        assert_eq!(seen["supervised_by_us"], true, "{seen}");
        // The daemon notices the end at once, and another one runs after a second.
        kill_process(pid, Signal::KILL).unwrap();
        event_when(&gpu, &daemon, "mps-restarted", |_| true);
        let anew = state_when(&daemon, "running");
        assert_ne!(Nvidia::pid(&anew), pid);
        assert_eq!(anew["restarts"], 1, "{anew}");
    }
}

#[test]
fn a_control_daemon_that_hangs_delays_nobody_and_is_replaced_where_it_has_no_server() {
    let gpu = Gpu::start("mps");
    let nvidia = Nvidia::new("R550");
    let daemon = nvidia.daemon(&gpu);
    let running = state_when(&daemon, "running");
    let pid = Nvidia::pid(&running);
    let mut hp = start(&gpu, &daemon, "hp");
    let mut be = start(&gpu, &daemon, "be");
    let has_event = |kind: &str, words: &str| {
        let all = events(&gpu, &daemon, &[]);
        let mut of_kind = all.iter().filter(|event| event["kind"] == kind);
        of_kind.any(|event| text(event).contains(words))
    };
    let stopped = Stopped(pid);
    kill_process(pid, Signal::STOP).unwrap();
    until("that it hangs is told", || {
        // Jobs launch, and events are listed, meanwhile.
        launch(&mut hp);
        launch(&mut be);
        has_event("mps-fault", "does not answer")
    });
    let _newcomer = start(&gpu, &daemon, "new");
    until("another one is there", || {
        launch(&mut hp);
        has_event("mps-restarted", "")
    });
    drop(stopped);
    assert_ne!(Nvidia::pid(&state_when(&daemon, "running")), pid);
}

//! The control daemon of MPS: NVIDIA's own, which answers without a GPU, and the stand-in with the
//! same answers, and servers and clients besides (`softgpu/mps`; `docs/mps.md` lists the queries).

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use protocol::clock::Clock;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open};
use scheduler::host::mps::{self, Doomed};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    Daemon, Ended, Gpu, Process, cargo_folder, clean_command, collect, copy_program, tools, until,
};
use crate::events::event_when;
use crate::real_driver::brought;

/// Releases of NVIDIA's that were queried.
const RELEASES: [&str; 3] = ["535", "550", "555"];
const OTHER: u32 = 4321;
/// Exit status of a program whose call failed (`cuda_min.h`).
const CUDA_FAILED: i32 = 90;
const WELL: &str = "launch 0 wait 0";

struct Mps {
    folder: TempDir,
    program: PathBuf,
    environment: Vec<(&'static str, OsString)>,
}

impl Mps {
    fn real(release: &str) -> Self {
        let root = brought(&format!("R{release}"));
        let libraries = root.join("usr/lib/x86_64-linux-gnu/nvidia/current");
        let search = format!("{}:/usr/bin:/bin", root.join("usr/sbin").display());
        let program = root.join("usr/bin/nvidia-cuda-mps-control");
        let environment = vec![
            ("LD_LIBRARY_PATH", libraries.into()),
            ("PATH", search.into()),
        ];
        Self::of(&program, environment)
    }

    /// The stand-in, in the words of a release.
    fn stand_in(release: &str) -> Self {
        let program = cargo_folder().join("softgpu-mps-control");
        Self::of(&program, vec![("SOFTGPU_MPS_RELEASE", release.into())])
    }

    /// The stand-in beside a GPU, where other users find it.
    fn beside(gpu: &Gpu) -> Self {
        let mps = Self::unstarted(gpu);
        mps.start();
        mps
    }

    /// [`Self::beside`], to be started by somebody else.
    fn unstarted(gpu: &Gpu) -> Self {
        let mut mps = Self::stand_in("550");
        let socket = gpu.socket();
        mps.environment.push(("SOFTGPU_SOCKET", socket.into()));
        mps
    }

    fn managed(&self, gpu: &Gpu) -> Daemon {
        let program = self.words();
        let start = [program.as_slice(), &["-d".to_owned()]].concat();
        let sections = format!(
            "[mps]\nmanage = true\ncontrol = {program:?}\nstart = {start:?}\nterminate = {program:?}"
        );
        let pipes = self.folder.path().join("pipes");
        let environment = ("CUDA_MPS_PIPE_DIRECTORY", pipes.as_path());
        gpu.daemon_at_with(gpu.path("pillion.sock"), &sections, environment)
    }

    fn of(program: &Path, mut environment: Vec<(&'static str, OsString)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let copy = folder.path().join("nvidia-cuda-mps-control");
        copy_program(program, &copy);
        for (name, of) in [
            ("CUDA_MPS_PIPE_DIRECTORY", "pipes"),
            ("CUDA_MPS_LOG_DIRECTORY", "logs"),
        ] {
            let path = folder.path().join(of);
            fs::create_dir(&path).unwrap();
            environment.push((name, path.into()));
        }
        Self {
            folder,
            program: copy,
            environment,
        }
    }

    fn in_environment(&self, mut command: Command) -> Command {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = clean_command(&self.program);
        command.args(arguments);
        collect(self.in_environment(command))
    }

    fn start(&self) {
        self.run(&["-d"]).expect_success();
    }

    fn say(&self, text: &str) -> Ended {
        self.say_as(&[], text)
    }

    fn say_as(&self, words: &[&str], text: &str) -> Ended {
        let mut command = clean_command("sh");
        command.args(["-c", "text=$1; shift; printf %s \"$text\" | \"$@\"", "sh"]);
        command.arg(text).args(words).arg(&self.program);
        collect(self.in_environment(command))
    }

    fn ask(&self, command: &str) -> String {
        self.say(&format!("{command}\n")).expect_success().output
    }

    fn server(&self) -> Option<u32> {
        let list = self.ask("get_server_list");
        let pids: Vec<u32> = list.lines().map(|pid| pid.parse().unwrap()).collect();
        assert!(pids.len() <= 1, "{list}");
        pids.first().copied()
    }

    /// Another server than that one, once it is ready.
    fn server_after(&self, gone: u32) -> u32 {
        until("another server", || {
            let server = self.server().filter(|&server| server != gone)?;
            let status = self.ask(&format!("get_server_status {server}"));
            (status == "ACTIVE\n").then_some(server)
        })
    }

    fn daemon_pid(&self) -> Pid {
        let file = self.folder.path().join("pipes/nvidia-cuda-mps-control.pid");
        let pid = fs::read_to_string(file).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("logs/control.log")).unwrap()
    }

    /// Whether no daemon holds the lock.
    fn has_ended(&self) -> bool {
        let lock = self.folder.path().join("pipes/control_lock");
        let Ok(lock) = File::options().write(true).open(lock) else {
            return true;
        };
        fcntl_lock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// The command line for callers that ask MPS by its program.
    fn words(&self) -> Vec<String> {
        let variables = self.environment.iter();
        let variables = variables.map(|(name, value)| format!("{name}={}", value.display()));
        let program = self.program.display().to_string();
        let words = ["/usr/bin/env".to_owned()].into_iter().chain(variables);
        words.chain([program]).collect()
    }

    fn is_there(&self) -> bool {
        let (stop, _kept) = rustix::pipe::pipe().unwrap();
        mps::is_there(&self.words(), stop.as_fd())
    }

    fn terminate(&self, pid: u32) -> Result<(), String> {
        let number = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        let process: OwnedFd = pidfd_open(number, PidfdFlags::empty()).unwrap();
        let doomed = Doomed {
            pid,
            process: Arc::new(process),
            uid: geteuid().as_raw(),
        };
        let clock = Clock::monotonic();
        mps::Control::default().terminate(&self.words(), &doomed, &clock, u64::MAX)
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.say("quit -t 1\n");
            until("the end of the control daemon", || self.has_ended());
        }
    }
}

fn said(ended: Ended) -> (i32, String, String) {
    (ended.code(), ended.output, ended.errors)
}

fn launch(process: &mut Process) -> String {
    process.write("\n");
    process.next_line()
}

fn start(gpu: &Gpu, label: &str) -> Process {
    let mut process = gpu.job(label, "faulty").start_until("ready");
    assert_eq!(launch(&mut process), WELL);
    process
}

fn expect_refused(gpu: &Gpu, code: u32) {
    let ended = gpu.job("refused", "faulty").run();
    assert_eq!(ended.code(), CUDA_FAILED, "{ended:#?}");
    ended.expect_errors(&[&format!("CUresult {code}\n")]);
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Every command with an answer without a device, in this order: settings persist.
const COMMANDS: [&str; 79] = [
    "",
    "   ",
    "nonsense",
    "help",
    "GET_SERVER_LIST",
    "get_server_listx",
    " get_server_list ",
    "get_server_list 1",
    "get_server_status",
    "get_server_status 1",
    "get_server_status x",
    "get_client_list",
    "get_client_list 1",
    "get_client_list -5",
    "get_client_list 99999999999",
    "get_device_client_list",
    "get_device_client_list 1",
    "ps",
    "ps 1",
    "ps -p",
    "ps -p 1",
    "terminate_client",
    "terminate_client 1",
    "terminate_client 1 2",
    "terminate_client x y",
    "get_default_active_thread_percentage",
    "set_default_active_thread_percentage 50",
    "get_default_active_thread_percentage",
    "set_default_active_thread_percentage",
    "set_default_active_thread_percentage 0",
    "set_default_active_thread_percentage 101",
    "set_default_active_thread_percentage x",
    "set_default_active_thread_percentage nan",
    "set_default_active_thread_percentage 12.3456789",
    "set_default_active_thread_percentage 1e1",
    "set_default_active_thread_percentage 60%",
    "get_active_thread_percentage",
    "get_active_thread_percentage 1",
    "set_active_thread_percentage 1 50",
    "get_default_device_pinned_mem_limit",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 2G",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 5",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 1.5G",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 2T",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 x",
    "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 31 1G",
    "get_default_device_pinned_mem_limit 31",
    "set_default_device_pinned_mem_limit 32 1G",
    "get_default_device_pinned_mem_limit 32",
    "get_device_pinned_mem_limit",
    "get_device_pinned_mem_limit 1 0",
    "set_device_pinned_mem_limit 1 0 1G",
    "get_default_client_priority",
    "set_default_client_priority 1",
    "get_default_client_priority",
    "set_default_client_priority 2",
    "set_default_client_priority x",
    "get_default_client_priority",
    "lspart",
    "sm_partition add 0 1",
    "sm_partition rm 0 x",
    "server list",
    "client list --all",
    "shutdown_server",
    "shutdown_server 1",
    "shutdown_server 1 -f",
    "shutdown_server -f",
    "start_server",
    "start_server 0",
    "start_server -uid",
    "start_server -uid x",
    "get_server_list\nget_default_client_priority",
    "quit",
];

/// NVIDIA's answers to all commands here are the stand-in's.
#[test]
fn the_stand_in_answers_every_command_as_nvidias_control_daemon_does_without_a_device() {
    for release in RELEASES {
        let [theirs, ours] = [Mps::real(release), Mps::stand_in(release)];
        let both = |what: &str, ask: &dyn Fn(&Mps) -> Ended| {
            let [theirs, ours] = [&theirs, &ours].map(|mps| said(ask(mps)));
            assert_eq!(theirs, ours, "R{release}: {what:?}");
            theirs
        };
        let none = both("no daemon", &|mps| mps.say("get_server_list\n"));
        let none_said = (
            1,
            String::new(),
            "Cannot find MPS control daemon process\n".to_owned(),
        );
        assert_eq!(none, none_said);
        both("no daemon, no command", &|mps| mps.say(""));
        both("-d", &|mps| mps.run(&["-d"]));
        let (code, output, _) = both("-d again", &|mps| mps.run(&["-d"]));
        assert_eq!(code, 1);
        assert_eq!(output, "An instance of this daemon is already running\n");
        both("-f beside -d", &|mps| mps.run(&["-f"]));
        both("no newline", &|mps| mps.say("get_default_client_priority"));
        for command in COMMANDS {
            both(command, &|mps| mps.say(&format!("{command}\n")));
        }
        for mps in [&theirs, &ours] {
            until("the end of the control daemon", || mps.has_ended());
        }
    }
}

/// No release states its number: R535, R550 and R555 have no `-v`, and no help for it. Their
/// refusals distinguish them.
#[test]
fn releases_are_told_apart_by_what_they_say() {
    for release in RELEASES {
        for mps in [Mps::real(release), Mps::stand_in(release)] {
            // The program connects to a daemon even for an unknown option.
            let option = mps.run(&["-v"]);
            assert_eq!(option.code(), 1);
            let is_text = option.errors.is_empty() && !option.output.is_empty();
            assert_eq!(is_text, release == "555", "{option:#?}");
            mps.start();
            let status = mps.ask("get_server_status 1");
            let is_unknown = status == "Unknown command \"get_server_status\"\n";
            assert_eq!(is_unknown, release == "535", "{status}");
        }
    }
}

/// A refusal is no error of the program's: it exits with 0, and only the text shows it.
#[test]
fn nvidias_control_daemon_is_found_and_its_refusals_are_taken_for_such() {
    for release in RELEASES {
        for mps in [Mps::real(release), Mps::stand_in(release)] {
            assert!(!mps.is_there());
            mps.start();
            assert!(mps.is_there());
            let refused = mps.ask("terminate_client 1 2");
            assert_eq!(refused, "Server 1 not found\nServer 1 not found!\n1\n");
            let why = mps.terminate(std::process::id()).unwrap_err();
            assert_eq!(why, "MPS has no server");
        }
    }
}

/// In the foreground there are no log files.
#[test]
fn a_control_daemon_in_the_foreground_writes_its_log_to_standard_output_alone() {
    for release in RELEASES {
        for mps in [Mps::real(release), Mps::stand_in(release)] {
            let mut command = clean_command(&mps.program);
            command.arg("-f");
            let mut daemon = Process::start("mps", mps.in_environment(command));
            let line = daemon.next_line();
            assert!(
                line.contains("] Starting control daemon using socket /"),
                "{line}"
            );
            until("the control daemon", || mps.say("quit\n").code() == 0);
            let ended = daemon.finish().expect_success();
            assert!(ended.output.contains("Exit with status 0"), "{ended:#?}");
            assert!(!mps.folder.path().join("logs/control.log").exists());
        }
    }
}

/// The rights of a user who did not start the daemon.
#[test]
fn another_user_may_ask_and_not_end_nvidias_control_daemon() {
    let words = ["setpriv", "--reuid", "4321", "--clear-groups", "--"];
    let setpriv = tools::that_runs(&words);
    let words = [&[setpriv.to_str().unwrap()], &words[1..]].concat();
    for release in RELEASES {
        let [theirs, ours] = [Mps::real(release), Mps::stand_in(release)];
        for mps in [&theirs, &ours] {
            mps.start();
        }
        for command in [
            "get_server_list",
            "set_default_active_thread_percentage 30",
            "set_default_client_priority 1",
            "set_default_device_pinned_mem_limit 0 1G",
            "start_server -uid 0",
            "start_server",
            "terminate_client 1 1",
            "quit",
            "get_server_list",
        ] {
            let [theirs, ours] =
                [&theirs, &ours].map(|mps| said(mps.say_as(&words, &format!("{command}\n"))));
            assert_eq!(theirs, ours, "R{release}: {command}");
            assert_eq!(theirs.0, 0, "a refusal ends with 0, too");
        }
    }
}

#[test]
fn a_context_needs_a_control_daemon_and_gets_the_server_of_its_user() {
    let gpu = Gpu::start_with_mps_apart();
    expect_refused(&gpu, 805);
    let mps = Mps::beside(&gpu);
    assert_eq!(mps.server(), None, "none before there is a client");
    let mut first = start(&gpu, "first");
    let server = mps.server().unwrap();
    let second = start(&gpu, "second");
    assert_eq!(mps.server(), Some(server), "one for both");
    let status = mps.ask(&format!("get_server_status {server}"));
    assert_eq!(status, "ACTIVE\n");
    let clients = mps.ask(&format!("get_client_list {server}"));
    assert_eq!(clients, format!("{}\n{}\n", first.pid(), second.pid()));
    // A server that is asked to end waits for its clients.
    assert_eq!(mps.ask(&format!("shutdown_server {server}")), "");
    assert_eq!(launch(&mut first), WELL);
    for process in [first, second] {
        process.finish().expect_success();
    }
    until("the server's end", || mps.server().is_none());
    let ended = format!("Server {server} exited with status 0\n");
    assert!(mps.log().contains(&ended), "{}", mps.log());
    start(&gpu, "third").finish().expect_success();
    assert_ne!(mps.server(), Some(server));
}

#[test]
fn a_servers_death_takes_its_clients_and_newcomers_are_refused_until_these_are_gone() {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::beside(&gpu);
    let mut lost = start(&gpu, "lost");
    let server = mps.server().unwrap();
    kill(server);
    until("the loss", || launch(&mut lost) == "launch 806 wait 806");
    expect_refused(&gpu, 807);
    assert_eq!(launch(&mut lost), "launch 806 wait 806");
    lost.finish().expect_success();
    let mut next = start(&gpu, "next");
    assert_ne!(mps.server(), Some(server));
    assert_eq!(launch(&mut next), WELL);
    // NVIDIA's daemon reports this for a server that a signal has ended.
    let ended = format!("Server {server} exited with status 0\n");
    assert!(mps.log().contains(&ended), "{}", mps.log());
    next.finish().expect_success();
}

#[test]
fn a_server_that_is_started_by_hand_serves_newcomers_beside_those_that_are_lost() {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::beside(&gpu);
    let mut lost = start(&gpu, "lost");
    let server = mps.server().unwrap();
    assert_eq!(mps.ask(&format!("shutdown_server {server} -f")), "");
    until("the loss", || launch(&mut lost) == "launch 806 wait 806");
    expect_refused(&gpu, 807);
    mps.ask(&format!("start_server -uid {}", geteuid().as_raw()));
    mps.server_after(server);
    start(&gpu, "next").finish().expect_success();
    assert_eq!(launch(&mut lost), "launch 806 wait 806");
    lost.finish().expect_success();
}

#[test]
fn jobs_under_us_get_the_drivers_word_when_their_server_dies_and_the_next_ones_run() {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::beside(&gpu);
    let daemon = gpu.daemon("");
    let best_effort = |label: &str| {
        let job = gpu.job(label, "faulty").best_effort(&daemon);
        let mut process = job.start_until("ready");
        assert_eq!(launch(&mut process), WELL);
        process
    };
    let mut lost = best_effort("lost");
    kill(mps.server().unwrap());
    until("the loss", || launch(&mut lost) == "launch 806 wait 806");
    event_when(&gpu, &daemon, "sticky-error", |event| event["code"] == 806);
    let refused = gpu.job("refused", "faulty").best_effort(&daemon).run();
    assert_eq!(refused.code(), CUDA_FAILED, "{refused:#?}");
    refused.expect_errors(&["CUresult 807\n"]);
    lost.finish().expect_success();
    best_effort("next").finish().expect_success();
    daemon.wait_for_clients("next", 0);
}

#[test]
fn where_a_daemon_manages_mps_jobs_come_back_after_their_servers_death_and_the_next_daemon_adopts_it()
 {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::unstarted(&gpu);
    let daemon = mps.managed(&gpu);
    let is_running = |status: &Value| status["mps"]["state"] == "running";
    daemon.status_when("MPS", is_running);
    let start = |label: &str, daemon: &Daemon| {
        let job = gpu.job(label, "faulty");
        let job = match label {
            "hp" => job.high_priority(daemon),
            _ => job.best_effort(daemon),
        };
        let mut process = job.start_until("ready");
        assert_eq!(launch(&mut process), WELL);
        process
    };
    let mut jobs = ["hp", "be"].map(|label| start(label, &daemon));
    let (server, control) = (mps.server().unwrap(), mps.daemon_pid());
    // While both are at work.
    kill(server);
    let clock = Clock::monotonic();
    let killed_ns = clock.now_ns();
    for job in &mut jobs {
        until("the loss", || launch(job) == "launch 806 wait 806");
    }
    // Their supervisor restarts them.
    for job in jobs {
        job.finish().expect_success();
    }
    let mut jobs = ["hp", "be"].map(|label| start(label, &daemon));
    let after_ms = (clock.now_ns() - killed_ns) / 1_000_000;
    println!("both jobs had launched again {after_ms} ms after the death of their server");
    let mut serve = || {
        for job in &mut jobs {
            assert_eq!(launch(job), WELL);
        }
    };
    serve();
    assert_ne!(mps.server(), Some(server));
    assert_eq!(mps.daemon_pid(), control, "it mends itself");
    daemon.status_when("MPS", is_running);
    daemon.signal(Signal::KILL);
    let _ = daemon.finish();
    serve();
    let next = mps.managed(&gpu);
    let status = next.status_when("MPS", is_running);
    assert_eq!(status["mps"]["pid"], control.as_raw_pid(), "{status}");
    assert_eq!(status["mps"]["restarts"], 0, "{status}");
    serve();
    for job in jobs {
        job.finish().expect_success();
    }
}

#[test]
fn a_client_that_mps_is_asked_to_terminate_is_the_only_one_that_is_lost() {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::beside(&gpu);
    let [mut doomed, mut other] = ["doomed", "other"].map(|label| start(&gpu, label));
    let server = mps.server().unwrap();
    let nobody = format!("terminate_client {server} {}", std::process::id());
    assert_eq!(mps.ask(&nobody), "1\n");
    mps.terminate(doomed.pid()).unwrap();
    assert_eq!(launch(&mut doomed), "launch 810 wait 810");
    assert_eq!(launch(&mut other), WELL);
    let why = mps.terminate(std::process::id()).unwrap_err();
    assert_eq!(why, "no server of MPS has it as a client");
    for process in [doomed, other] {
        process.finish().expect_success();
    }
}

#[test]
fn a_stopped_control_daemon_answers_nobody_and_newcomers_wait_for_it() {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::beside(&gpu);
    let daemon = mps.daemon_pid();
    kill_process(daemon, Signal::STOP).unwrap();
    let mut waiting = gpu.job("waiting", "faulty").start();
    assert!(!mps.is_there(), "asked in vain for five seconds");
    kill_process(daemon, Signal::CONT).unwrap();
    waiting.wait_for("ready", 1);
    assert!(mps.is_there());
    waiting.finish().expect_success();
}

#[test]
fn a_control_daemon_quits_when_its_clients_have_ended_or_its_patience_has() {
    let gpu = Gpu::start_with_mps_apart();
    let mps = Mps::beside(&gpu);
    let mut client = start(&gpu, "client");
    let ended = mps.say("quit -t 1\n");
    assert_eq!(said(ended), (1, String::new(), String::new()));
    until("the loss", || launch(&mut client) == "launch 806 wait 806");
    client.finish().expect_success();
    until("the end of the control daemon", || mps.has_ended());
    expect_refused(&gpu, 805);
    mps.start();
    start(&gpu, "another").finish().expect_success();
    let ended = mps.say("quit\n");
    assert_eq!(said(ended), (0, String::new(), String::new()));
}

/// One server at a time, of one user.
#[test]
fn a_client_of_another_user_waits_for_the_end_of_the_first_users() {
    let words = ["setpriv", "--reuid", "4321", "--clear-groups", "--"];
    let setpriv = tools::that_runs(&words);
    let gpu = Gpu::start_with_mps_apart();
    for (path, mode) in [(gpu.path("."), 0o755), (gpu.socket(), 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mps = Mps::beside(&gpu);
    let mut first = start(&gpu, "first");
    let program = crate::common::Program::Linked("faulty").path();
    let other = gpu.job_of("other", &setpriv).args(&words[1..]);
    let mut other = other.arg(program).start();
    let awaited = format!("from user {OTHER}: Server is not ready");
    until("the other user", || mps.log().contains(&awaited));
    let of_first = mps.server().unwrap();
    assert_eq!(launch(&mut first), WELL);
    first.finish().expect_success();
    other.wait_for("ready", 1);
    assert_eq!(launch(&mut other), WELL);
    let of_other = mps.server().unwrap();
    assert_ne!(of_other, of_first);
    let user = fs::metadata(format!("/proc/{of_other}")).unwrap().uid();
    assert_eq!(user, OTHER);
    other.finish().expect_success();
}

//! `pillion run` without a daemon: it starts one of the user's, which ends by itself. The tests run
//! as root, whose daemons listen where this machine's own would. So the jobs are another user's,
//! with an installation and a runtime folder of the test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::clock::Clock;
use protocol::hello::{HelloError, ask_status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    Ended, Gpu, Process, Program, cargo_folder, collect, copy_program, library, pillion, tools,
    until,
};

/// The jobs' user, and another.
const USER: u32 = 65_534;
const OTHER: u32 = 61_005;

/// A world-readable installation, and software GPUs.
struct Desk {
    folder: TempDir,
    gpus: Vec<Gpu>,
    setpriv: PathBuf,
}

impl Desk {
    fn with_gpus(count: usize) -> Self {
        let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        let setpriv = tools::that_runs(&[["setpriv"].as_slice(), &words].concat());
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        for part in ["bin", "lib", "lib/pillion", "driver"] {
            fs::create_dir(folder.path().join(part)).unwrap();
        }
        let copy = |from: &Path, to: &str| {
            let to = folder.path().join(to);
            copy_program(from, &to);
            open(&to, 0o755);
        };
        copy(pillion(), "bin/pillion");
        copy(&cargo_folder().join("pilliond"), "bin/pilliond");
        copy(&library(), "lib/pillion/libpillion.so");
        copy(&cargo_folder().join("libcuda.so"), "driver/libcuda.so.1");
        copy(
            &cargo_folder().join("libnvidia_ml.so"),
            "driver/libnvidia-ml.so.1",
        );
        for program in ["work", "steady"] {
            copy(&Program::Linked(program).path(), &format!("bin/{program}"));
        }
        let gpus: Vec<Gpu> = (0..count).map(|_| Gpu::start("timeslice")).collect();
        for gpu in &gpus {
            open(&gpu.path(""), 0o755);
            open(&gpu.socket(), 0o777);
        }
        for user in [USER, OTHER] {
            let own = folder.path().join(format!("of-{user}"));
            fs::create_dir(&own).unwrap();
            chown(&own, Some(user), Some(user)).unwrap();
        }
        Self {
            folder,
            gpus,
            setpriv,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn uuid(&self, gpu: usize) -> String {
        self.gpus[gpu].stats()["uuid"].as_str().unwrap().to_owned()
    }

    /// A program of the installation, run by a user with a runtime folder.
    fn command(&self, user: u32, program: &str, arguments: &[&str]) -> Command {
        let own = self.path(&format!("of-{user}"));
        let sockets = std::env::join_paths(self.gpus.iter().map(Gpu::socket)).unwrap();
        let mut command = self.gpus[0].command(&self.setpriv);
        command
            .arg(format!("--reuid={user}"))
            .arg(format!("--regid={user}"))
            .args(["--clear-groups", "--"])
            .arg(self.path("bin").join(program))
            .args(arguments)
            .env_remove("PILLION_AUTOSTART")
            .env("HOME", &own)
            .env("XDG_RUNTIME_DIR", &own)
            .env("XDG_CONFIG_HOME", own.join("config"))
            .env("PILLION_CONFIG_FOLDER", own.join("etc"))
            .env("SOFTGPU_SOCKET", sockets)
            .env("LD_LIBRARY_PATH", self.path("driver"))
            .env("COLUMNS", "10000");
        command
    }

    fn job(&self, options: &[&str], arguments: &[&str]) -> Command {
        let work = self.path("bin/work");
        let words = [
            &["run"],
            options,
            &["--", work.to_str().unwrap()],
            arguments,
        ]
        .concat();
        self.command(USER, "pillion", &words)
    }

    /// Runs a command in namespaces of its own: `unshare` with these words.
    fn apart(&self, words: &[&str], inner: &Command) -> Ended {
        let unshare = tools::that_runs(&["unshare", words[0], "--fork", "--"]);
        let mut command = self.gpus[0].command(&unshare);
        command.args(words).arg(inner.get_program());
        command.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        collect(command)
    }

    fn daemon(&self, gpu: usize) -> Started {
        let folder = self.path(&format!("of-{USER}")).join("pillion");
        Started {
            socket: folder.join(format!("{}.sock", self.uuid(gpu))),
        }
    }
}

struct Started {
    socket: PathBuf,
}

impl Started {
    fn try_status(&self) -> Result<Value, HelloError> {
        ask_status(&self.socket).map(|text| serde_json::from_str(&text).unwrap())
    }

    fn status(&self) -> Value {
        self.try_status().unwrap()
    }

    fn pid(&self) -> i32 {
        let pid = self.status()["daemon"]["pid"].as_i64().unwrap();
        pid.try_into().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let pid = self.try_status().ok();
        let pid = pid.and_then(|status| status["daemon"]["pid"].as_i64()?.try_into().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

const STARTED: &str = "pillion: started a daemon for ";

fn expect_launches(ended: &Ended, launches: u64) {
    assert_eq!(ended.code(), 0, "{ended:#?}");
    assert_eq!(ended.asked("launches"), launches, "{ended:#?}");
}

/// `pillion run` did not mention daemons.
fn expect_no_word(ended: &Ended) {
    let errors = &ended.errors;
    let is_silent = !errors.contains(STARTED) && !errors.contains("no daemon serves");
    assert!(is_silent, "{ended:#?}");
}

#[test]
fn a_job_has_a_daemon_that_is_nobodys_child_and_shows_when_it_ends() {
    let desk = Desk::with_gpus(1);
    let steady = desk.path("bin/steady");
    let words = ["run", "--job", "train", "--", steady.to_str().unwrap()];
    let mut job = Process::start("job", desk.command(USER, "pillion", &words));
    job.wait_for("round", 1);
    let daemon = desk.daemon(0);
    let status = daemon.status();
    assert_eq!(status["daemon"]["ends_when_idle_s"], 60, "{status:#}");
    assert_eq!(status["jobs"][0]["job"], "train", "{status:#}");
    let pid = daemon.pid();
    let of = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(!of.contains(&format!("PPid:\t{}\n", job.pid())), "{of}");
    let shown = collect(desk.command(USER, "pillion", &["status"]));
    assert!(
        shown.output.contains("exits 60 s after its last job"),
        "{shown:#?}"
    );
    assert!(job.errors().contains(STARTED), "{}", job.errors());
    let ended = job.finish();
    assert_eq!(ended.code(), 0, "{ended:#?}");
    let ended = collect(desk.job(&[], &["linked", "10", "0"]));
    expect_launches(&ended, 23);
    expect_no_word(&ended);
    assert_eq!(daemon.pid(), pid);
}

#[test]
fn twenty_jobs_that_begin_at_once_start_one_daemon() {
    let desk = Desk::with_gpus(1);
    let jobs: Vec<Process> = (0..20)
        .map(|_| Process::start("job", desk.job(&[], &["linked", "5", "0"])))
        .collect();
    let ended: Vec<Ended> = jobs.into_iter().map(Process::finish).collect();
    let daemon = desk.daemon(0);
    let started = ended.iter().filter(|job| job.errors.contains(STARTED));
    assert_eq!(started.count(), 1, "{ended:#?}");
    for job in &ended {
        expect_launches(job, 13);
    }
    let status = daemon.status();
    let launches = status["users"][0]["launches"].as_u64();
    let jobs = status["jobs"].as_array().unwrap();
    let seen = jobs
        .iter()
        .filter_map(|job| job["totals"]["launches"].as_u64());
    assert_eq!(
        launches.unwrap_or_else(|| seen.sum()),
        20 * 13,
        "{status:#}"
    );
}

#[test]
fn no_daemon_is_started_where_that_is_not_wanted() {
    let desk = Desk::with_gpus(1);
    let expect_none = |command: Command| {
        let ended = collect(command);
        expect_launches(&ended, 13);
        expect_no_word(&ended);
        assert!(desk.daemon(0).try_status().is_err());
    };
    expect_none(desk.job(&["--no-daemon"], &["linked", "5", "0"]));
    for (name, value) in [("PILLION_AUTOSTART", "0"), ("PILLION_DISABLE", "1")] {
        let mut command = desk.job(&[], &["linked", "5", "0"]);
        command.env(name, value);
        expect_none(command);
    }
    let both = collect(desk.job(&["--no-daemon", "--require-daemon"], &["linked", "5", "0"]));
    assert_eq!(both.code(), 2, "{both:#?}");
}

#[test]
fn a_daemon_that_cannot_start_is_one_sentence_and_the_job_runs() {
    let desk = Desk::with_gpus(1);
    let config = desk.path(&format!("of-{USER}/etc"));
    fs::create_dir(&config).unwrap();
    fs::write(config.join("default.toml"), "[policy]\npoll_us = 5\n").unwrap();
    let why =
        "default.toml:2:11: poll_us is 5; must be a whole number from 10 to 1000; nearest is 10";
    let ended = collect(desk.job(&[], &["linked", "5", "0"]));
    expect_launches(&ended, 13);
    let said = ended
        .errors
        .lines()
        .filter(|line| line.contains("daemon: ") || line.contains("no daemon serves"));
    assert_eq!(said.count(), 1, "{ended:#?}");
    let consequence = "; the job runs unmanaged until a daemon serves its GPU";
    ended.expect_errors(&["no daemon serves GPU-", why, consequence]);
    let required = collect(desk.job(&["--require-daemon"], &["linked", "5", "0"]));
    assert_eq!(required.code(), 69, "{required:#?}");
    required.expect_errors(&["no daemon serves GPU-", why]);
}

#[test]
fn another_users_daemon_is_named_with_whom_to_ask() {
    let desk = Desk::with_gpus(1);
    let arguments = ["--gpu", "0", "--detach"];
    let first = collect(desk.command(OTHER, "pilliond", &arguments));
    assert_eq!(first.code(), 0, "{first:#?}");
    let socket = desk.path(&format!("of-{OTHER}/pillion/{}.sock", desk.uuid(0)));
    let others = Started { socket };
    let ready = format!(
        "ready: {} socket {}\n",
        desk.uuid(0),
        others.socket.display()
    );
    assert_eq!(first.output, ready);
    let pid = others.pid();
    let ended = collect(desk.job(&[], &["linked", "5", "0"]));
    expect_launches(&ended, 13);
    let asks = format!(
        "(process {pid}) has the GPU and serves only user {OTHER}; ask user {OTHER} to end it"
    );
    ended.expect_errors(&[&asks]);
    let required = collect(desk.job(&["--require-daemon"], &["linked", "5", "0"]));
    assert_eq!(required.code(), 69, "{required:#?}");
    required.expect_errors(&[&asks]);
}

#[test]
fn beside_a_daemon_of_the_systems_none_is_started_not_even_while_that_is_away() {
    let desk = Desk::with_gpus(1);
    let run = desk.path("run");
    fs::create_dir_all(run.join("pillion")).unwrap();
    for folder in ["run", "run/pillion"] {
        fs::set_permissions(desk.path(folder), Permissions::from_mode(0o755)).unwrap();
    }
    // Mounted as the job's /run.
    let mount = "mount --bind \"$0\" /run && exec \"$@\"";
    let job = |options: &[&str]| {
        let words = ["--mount", "--", "sh", "-c", mount, run.to_str().unwrap()];
        desk.apart(&words, &desk.job(options, &["linked", "5", "0"]))
    };
    let socket = run.join("pillion").join(format!("{}.sock", desk.uuid(0)));
    let daemon = desk.gpus[0].daemon_at(socket, "");
    let ended = job(&["--job", "train"]);
    expect_launches(&ended, 13);
    expect_no_word(&ended);
    assert_eq!(daemon.total("train", "launches"), 13);
    daemon.end();
    let ended = job(&[]);
    expect_launches(&ended, 13);
    ended.expect_errors(&["the daemon installed for this GPU does not answer at /run/pillion/"]);
    assert!(desk.daemon(0).try_status().is_err());
}

/// A folder that is removed before a test and after it.
struct Removed<'p>(&'p Path);

impl<'p> Removed<'p> {
    fn new(path: &'p Path) -> Self {
        let _ = fs::remove_dir_all(path);
        Self(path)
    }
}

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

#[test]
fn without_a_runtime_folder_the_socket_is_in_a_folder_of_tmp_that_is_checked() {
    let desk = Desk::with_gpus(1);
    let run = || {
        let mut command = desk.job(&["--job", "train"], &["linked", "5", "0"]);
        command.env_remove("XDG_RUNTIME_DIR");
        collect(command)
    };
    let folder = PathBuf::from(format!("/tmp/pillion-{USER}"));
    let _guard = Removed::new(&folder);
    let ended = run();
    let daemon = Started {
        socket: folder.join(format!("{}.sock", desk.uuid(0))),
    };
    expect_launches(&ended, 13);
    ended.expect_errors(&[STARTED]);
    let found = folder.symlink_metadata().unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (USER, 0o700));
    assert_eq!(daemon.status()["jobs"][0]["totals"]["launches"], 13);
    let socket = daemon.socket.clone();
    drop(daemon);
    until("its end", || !socket.exists());
    // Anybody who may write there could replace the daemon's socket.
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let ended = run();
    expect_launches(&ended, 13);
    let why = format!(
        "{}: exists but is not a folder of this user alone",
        folder.display()
    );
    ended.expect_errors(&[&why]);
}

#[test]
fn of_several_gpus_each_that_the_job_may_use_gets_one() {
    let desk = Desk::with_gpus(2);
    let second = collect(desk.job(&["--gpu", &desk.uuid(1)], &["linked", "5", "0"]));
    expect_launches(&second, 13);
    let daemons = [desk.daemon(0), desk.daemon(1)];
    assert!(daemons[0].try_status().is_err());
    let pid = daemons[1].pid();
    let any = collect(desk.job(&[], &["linked", "5", "0"]));
    expect_launches(&any, 13);
    any.expect_errors(&[&format!("{STARTED}{}", desk.uuid(0))]);
    assert_eq!(daemons[1].pid(), pid);
    assert_ne!(daemons[0].pid(), pid);
}

#[test]
fn a_daemon_stays_for_a_job_that_has_not_used_the_gpu_yet_and_ends_after_it() {
    let desk = Desk::with_gpus(1);
    // Long enough for the job to attach before the daemon ends, however busy the machine is.
    let arguments = ["--gpu", "0", "--end-when-idle", "3", "--detach"];
    let words = ["run", "--", "/bin/cat"];
    let first = collect(desk.command(USER, "pilliond", &arguments));
    assert_eq!(first.code(), 0, "{first:#?}");
    let job = Process::start("job", desk.command(USER, "pillion", &words));
    let daemon = desk.daemon(0);
    // Nobody queries the daemon meanwhile.
    let clock = Clock::monotonic();
    let old_ns = clock.now_ns() + 6_000_000_000;
    until("twice as long as it stays without jobs", || {
        clock.now_ns() > old_ns || !daemon.socket.exists()
    });
    let status = daemon.status();
    assert_eq!(
        status["jobs"].as_array().map(Vec::len),
        Some(0),
        "{status:#}"
    );
    let ended = job.finish();
    assert_eq!(ended.code(), 0, "{ended:#?}");
    assert_eq!(ended.errors, "");
    let lock = daemon.socket.with_extension("sock.lock");
    until("the end of daemon and lock", || {
        !daemon.socket.exists() && !lock.exists()
    });
}

#[test]
fn a_daemon_ends_although_somebody_reads_its_status_all_the_time() {
    let desk = Desk::with_gpus(1);
    let arguments = ["--gpu", "0", "--end-when-idle", "1", "--detach"];
    let first = collect(desk.command(USER, "pilliond", &arguments));
    assert_eq!(first.code(), 0, "{first:#?}");
    let daemon = desk.daemon(0);
    until("its end", || {
        daemon.try_status().is_err() && !daemon.socket.exists()
    });
}

#[test]
fn a_job_that_adopts_processes_gets_no_daemon_for_a_child() {
    let desk = Desk::with_gpus(1);
    let words = ["--pid", "--fork", "--"];
    let ended = desk.apart(&words, &desk.job(&[], &["linked", "5", "0"]));
    expect_launches(&ended, 13);
    ended.expect_errors(&[
        "no daemon serves GPU-",
        ": the job adopts orphaned processes",
    ]);
    assert!(desk.daemon(0).try_status().is_err());
}

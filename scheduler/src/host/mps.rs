//! Requests to NVIDIA's MPS, above all to end a client's work in flight before a kill
//! (`terminate_client`). Shared by `pillion stop`, the rule `restart-job` and `[memory] excess =
//! "evict"`.
//! MPS is asked through its own program: a command on standard input, the answer on standard
//! output, errors on standard error. That may take long; no thread that serves clients does it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use protocol::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::geteuid;

use crate::host::peer::has_ended;
use crate::host::program::{self, Output, Started};
use crate::host::unattached::real_uid;

/// Environment variable for the folder of the pipes (NVIDIA's MPS guide).
pub const PIPES_ENV: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// NVIDIA's program that talks to the control daemon.
pub const CONTROL: &str = "nvidia-cuda-mps-control";
/// Limit of an answer, bytes: the size of a pipe.
const ANSWER_BYTES_MAX: u64 = 1 << 16;
/// Wait for a killed program, ns. One that hangs in the kernel ends later.
const KILLED_NS: u64 = 1_000_000_000;
/// Reported part of a failing answer, characters.
const TOLD_CHARS_MAX: usize = 200;

/// Time for the control daemon to answer that it exists, ns.
const THERE_NS: u64 = 5_000_000_000;

/// Whether MPS's control daemon answers this command, so that programs that look for MPS where this
/// process does become its clients. The query starts nothing. False once `stop` is readable.
#[must_use]
pub fn is_there(command: &[String], stop: BorrowedFd<'_>) -> bool {
    let Ok(stop) = stop.try_clone_to_owned() else {
        return false;
    };
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns().saturating_add(THERE_NS);
    let answer = Control::until(stop).ask(command, "get_server_list", &[], &clock, end_ns);
    // The program prints "Cannot find MPS control daemon process"; its exit status is undocumented.
    answer.is_ok_and(|answer| !answer.words().contains("Cannot find"))
}

/// A process to be killed.
#[derive(Debug)]
pub struct Doomed {
    /// Its id, as MPS knows it.
    pub pid: u32,
    /// Refers to this process, even if its id is reused.
    pub process: Arc<OwnedFd>,
    /// User of its job, as reported by the kernel at its attach.
    pub uid: u32,
}

/// Talks to the control daemon, one question at a time.
#[derive(Debug, Default)]
pub struct Control {
    /// A killed program that has not ended. Until it has, nothing more is asked.
    left: Option<Started>,
    /// Once readable, nothing more is asked.
    stop: Option<OwnedFd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Ended,
    Late,
    Stopped,
}

impl Control {
    /// Asks until `stop` is readable. A program running then is ended, and its question fails.
    #[must_use]
    pub fn until(stop: OwnedFd) -> Self {
        Self {
            left: None,
            stop: Some(stop),
        }
    }

    /// Makes MPS end a client's work in flight and remove the client from its server
    /// (`terminate_client`; NVIDIA's MPS guide), so that killing it afterwards affects no other
    /// client. The process lives on. Waits until `end_ns` on `clock` at most.
    ///
    /// `command` is the program, by path or name on the search path, with its arguments. It asks
    /// the servers of the control daemon that our own environment names; else of the one that the
    /// process's environment names, if the process is our own user's ([`pipes_of`]); else of
    /// NVIDIA's default. A control daemon in another PID namespace knows the process by another id:
    /// it does not find the process, or finds another.
    /// # Errors
    /// The reason, as text: no such program, no server with this client, a refusal or an unknown
    /// answer, a timeout, or a stop.
    pub fn terminate(
        &mut self,
        command: &[String],
        doomed: &Doomed,
        clock: &Clock,
        end_ns: u64,
    ) -> Result<(), String> {
        let pipes = pipes_of(doomed).map(|folder| (OsString::from(PIPES_ENV), folder));
        let is_replaced = |name: &OsStr| pipes.is_some() && name == PIPES_ENV;
        let environment = program::environment(is_replaced, pipes.clone());
        let mut ask = |words: &str| self.ask(command, words, &environment, clock, end_ns);
        let pid = doomed.pid;
        let servers = ask("get_server_list")?;
        let mut has_servers = false;
        for server in numbers_of(&servers.output) {
            has_servers = true;
            let clients = ask(&format!("get_client_list {server}"))?;
            if !numbers_of(&clients.output).any(|client| client == pid) {
                continue;
            }
            let answer = ask(&format!("terminate_client {server} {pid}"))?;
            return match answer.is_success() {
                true => Ok(()),
                false => Err(format!("terminate_client: {}", answer.words())),
            };
        }
        Err(match has_servers {
            true => "no server of MPS has it as a client".to_owned(),
            false => ["MPS has no server", &servers.words()]
                .join(" ")
                .trim()
                .to_owned(),
        })
    }

    /// The control daemon's answer to one command, by `end_ns`; else the reason, as text.
    pub(crate) fn ask(
        &mut self,
        command: &[String],
        words: &str,
        environment: &[CString],
        clock: &Clock,
        end_ns: u64,
    ) -> Result<Answer, String> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(command, &error));
        let (output, to_output) = pipe()?;
        let (errors, to_errors) = pipe()?;
        let to_program = Output::To([to_output, to_errors]);
        let input = format!("{words}\n");
        let started = self.spawn(command, &input, &to_program, environment)?;
        drop(to_program);
        let what = format!("after {words:?}");
        let late = format!("answer {words:?}");
        let status = self.wait(command, started, clock, end_ns, &late)?;
        let answer = Answer {
            output: text_in(output),
            errors: text_in(errors),
        };
        let name = name_of(command);
        match status {
            WaitStatus::Exited(_, 0) => Ok(answer),
            WaitStatus::Exited(_, code) => Err(format!(
                "{name} exited with status {code} {what}: {}",
                answer.words()
            )),
            _ => Err(format!("{name} was killed {what}")),
        }
    }

    /// Runs a program that reads `input`, until `end_ns` at most; its output goes to our log.
    pub(crate) fn run(
        &mut self,
        command: &[String],
        input: &str,
        environment: &[CString],
        clock: &Clock,
        end_ns: u64,
    ) -> Result<(), String> {
        let started = self.spawn(command, input, &Output::Log, environment)?;
        let words = command.join(" ");
        match self.wait(command, started, clock, end_ns, "exit")? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, code) => Err(format!("{words} exited with status {code}")),
            _ => Err(format!("{words} was killed")),
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.left.is_some()
    }

    /// Waits until `end_ns` for a process that is no child of ours.
    pub(crate) fn wait_until(&self, process: &OwnedFd, clock: &Clock, end_ns: u64) -> Waited {
        wait_until_ended(clock, process, end_ns, self.stop.as_ref())
    }

    pub(crate) fn wait_for(&self, process: &OwnedFd, clock: &Clock) {
        let end_ns = clock.now_ns().saturating_add(KILLED_NS);
        wait_until_ended(clock, process, end_ns, self.stop.as_ref());
    }

    fn spawn(
        &mut self,
        command: &[String],
        input: &str,
        output: &Output,
        environment: &[CString],
    ) -> Result<Started, String> {
        if let Some(left) = &self.left {
            match waitpid(left.child, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => {
                    let what = "an earlier process of it was killed and has not exited";
                    return Err(failed(command, &what));
                }
                _ => self.left = None,
            }
        }
        program::spawn(command, input, output, environment)
    }

    /// Waits for a program, and kills it at `end_ns`; `late` describes its failure then.
    fn wait(
        &mut self,
        command: &[String],
        started: Started,
        clock: &Clock,
        end_ns: u64,
        late: &str,
    ) -> Result<WaitStatus, String> {
        let waited = wait_until_ended(clock, &started.process, end_ns, self.stop.as_ref());
        if waited == Waited::Ended {
            return waitpid(started.child, None).map_err(|error| failed(command, &error));
        }
        started.kill();
        let killed_ns = clock.now_ns().saturating_add(KILLED_NS);
        match wait_until_ended(clock, &started.process, killed_ns, None) {
            Waited::Ended => drop(waitpid(started.child, None)),
            _ => self.left = Some(started),
        }
        Err(match waited {
            Waited::Stopped => failed(command, &"the daemon is ending"),
            _ => format!("{} does not {late} in time", name_of(command)),
        })
    }
}

fn name_of(command: &[String]) -> &str {
    command.first().map_or(CONTROL, String::as_str)
}

fn failed(command: &[String], error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", name_of(command))
}

/// Process ids, one at the beginning of each line.
fn numbers_of(answer: &str) -> impl Iterator<Item = u32> + '_ {
    let firsts = answer
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    firsts.filter_map(|word| word.parse().ok())
}

#[derive(Debug, Default)]
pub(crate) struct Answer {
    output: String,
    errors: String,
}

impl Answer {
    /// NVIDIA's guide documents no text for success; known ones are empty, 0, and the result's
    /// name. Any other text, and anything on standard error, may be a refusal.
    fn is_success(&self) -> bool {
        let is_known = matches!(self.output.trim(), "" | "0" | "CUDA_SUCCESS");
        is_known && self.errors.trim().is_empty()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        numbers_of(&self.output)
    }

    pub(crate) fn has_word(&self, word: &str) -> bool {
        let mut words = self.output.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|said| said.eq_ignore_ascii_case(word))
    }

    /// All of it in one line, truncated.
    pub(crate) fn words(&self) -> String {
        let words = self.output.split_whitespace();
        let words: Vec<&str> = words.chain(self.errors.split_whitespace()).collect();
        words.join(" ").chars().take(TOLD_CHARS_MAX).collect()
    }
}

const PIPES: &str = "/tmp/nvidia-mps";

/// The folder of the pipes, from this process's environment or NVIDIA's default.
#[must_use]
pub fn pipes() -> PathBuf {
    std::env::var_os(PIPES_ENV)
        .filter(|value| !value.is_empty())
        .map_or_else(|| PathBuf::from(PIPES), PathBuf::from)
}

/// That folder if it is missing for this process, which may run in a private file system
/// (`PrivateTmp`, a container).
#[must_use]
pub fn unseen_pipes() -> Option<PathBuf> {
    Some(pipes()).filter(|folder| !folder.is_dir())
}

/// The folder of the pipes in a process's environment, if our own names none. Only for our own
/// user's processes: another user could name a folder where writing does harm. The user is that of
/// its job, and its real user by the kernel's report, not its effective one: a process that
/// executes a setuid program has root's rights and keeps its user's environment.
fn pipes_of(doomed: &Doomed) -> Option<OsString> {
    let own = geteuid().as_raw();
    let is_named = std::env::var_os(PIPES_ENV).is_some_and(|value| !value.is_empty());
    if is_named || doomed.uid != own || real_uid(doomed.pid) != Some(own) {
        return None;
    }
    let environment = fs::read(format!("/proc/{}/environ", doomed.pid)).ok()?;
    // The environment read is this process's, if it still exists.
    if has_ended(&doomed.process) {
        return None;
    }
    let name = format!("{PIPES_ENV}=");
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes()))?;
    Some(OsString::from_vec(value.to_vec())).filter(|value| !value.as_bytes().is_empty())
}

/// Content of the pipe, which holds the longest lists. Does not wait for the program's children.
fn text_in(pipe: OwnedFd) -> String {
    let mut bytes = Vec::new();
    let _ = rustix::io::ioctl_fionbio(&pipe, true);
    let pipe = fs::File::from(pipe);
    let _: io::Result<usize> = pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wait_until_ended(
    clock: &Clock,
    process: &OwnedFd,
    end_ns: u64,
    stop: Option<&OwnedFd>,
) -> Waited {
    loop {
        let left_ns = end_ns.saturating_sub(clock.now_ns());
        let timeout = Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let watched = [Some(process), stop].into_iter().flatten();
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(1..) if !fds[0].revents().is_empty() => return Waited::Ended,
            Ok(1..) => return Waited::Stopped,
            _ => return Waited::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use protocol::ending::TERMINATE_NS;
    use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};

    use super::*;

    /// A process that lives until killed, with a folder of pipes in its environment.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        fn start() -> Self {
            // No shell: some drop rights that they were not started with.
            let mut command = Command::new("/bin/cat");
            command.env(PIPES_ENV, "/its/own");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // Until it answers, its environment may not be set up.
            let heard = child.stdin.as_mut().unwrap();
            heard.write_all(b"!").unwrap();
            let said = child.stdout.as_mut().unwrap();
            said.read_exact(&mut [0; 1]).unwrap();
            Self(child)
        }

        fn doomed(&self, uid: u32) -> Doomed {
            let id = Pid::from_child(&self.0);
            Doomed {
                pid: self.0.id(),
                process: Arc::new(pidfd_open(id, PidfdFlags::empty()).unwrap()),
                uid,
            }
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_folder_of_pipes_is_that_of_a_process_which_is_our_users_in_every_way() {
        let own = getuid().as_raw();
        let its_own = Some(OsString::from("/its/own"));
        if std::env::var_os(PIPES_ENV).is_some() {
            testing::ignore("here all are told which folder it is");
        }
        let sleeper = Sleeper::start();
        assert_eq!(pipes_of(&sleeper.doomed(own)), its_own);
        assert_eq!(pipes_of(&sleeper.doomed(own + 1)), None, "another's job");
        if !geteuid().is_root() {
            testing::ignore("only root can be somebody else");
        }
        // As a user's process after it has executed a program that is setuid root.
        let start = || {
            let (nobody, root) = (
                rustix::process::Uid::from_raw(65_534),
                rustix::process::Uid::ROOT,
            );
            rustix::thread::set_thread_res_uid(nobody, root, root).unwrap();
            Sleeper::start()
        };
        let raised = std::thread::spawn(start).join().unwrap();
        let folder = fs::metadata(format!("/proc/{}", raised.0.id())).unwrap();
        assert_eq!(folder.uid(), 0, "root's rights");
        for uid in [0, 65_534] {
            assert_eq!(pipes_of(&raised.doomed(uid)), None, "{uid}");
        }
    }

    /// Asks this script, in place of the control daemon's program, about a process of ours.
    fn ask(script: &str, limit_ns: u64) -> Result<(), String> {
        let control = ["/bin/sh", "-c", script].map(str::to_owned);
        let sleeper = Sleeper::start();
        let clock = Clock::monotonic();
        let doomed = sleeper.doomed(getuid().as_raw());
        let end_ns = clock.now_ns().saturating_add(limit_ns);
        Control::default().terminate(&control, &doomed, &clock, end_ns)
    }

    #[test]
    fn a_control_daemon_that_does_not_answer_is_not_waited_for_and_nothing_of_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let held = rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).unwrap();
        let hold = format!("exec 9>{}; sleep 1000 & wait", pipe.display());
        let why = ask(&hold, 1_500_000_000).unwrap_err();
        assert_eq!(why, "/bin/sh does not answer \"get_server_list\" in time");
        // Returns 0 when nobody has the other end any more.
        while rustix::io::read(&held, &mut [0; 1]) != Ok(0) {
            let minute = Timespec {
                tv_sec: 60,
                tv_nsec: 0,
            };
            let mut fds = [PollFd::new(&held, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&minute)), Ok(1));
        }
    }

    #[test]
    fn who_asks_no_more_waits_no_longer_and_nothing_of_the_program_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (stop, to_stop) = rustix::pipe::pipe().unwrap();
        let script = format!("exec 9>{}; echo >&9; sleep 1000 & wait", pipe.display());
        let stopping = std::thread::spawn(move || {
            let mut held = fs::File::open(pipe).unwrap();
            held.read_exact(&mut [0; 1]).unwrap();
            rustix::io::write(&to_stop, b"!").unwrap();
            held
        });
        let command = ["/bin/sh".to_owned(), "-c".to_owned(), script];
        let sleeper = Sleeper::start();
        let doomed = sleeper.doomed(getuid().as_raw());
        let mut control = Control::until(stop);
        let clock = Clock::monotonic();
        let why = control.terminate(&command, &doomed, &clock, u64::MAX);
        assert_eq!(why.unwrap_err(), "/bin/sh: the daemon is ending");
        assert_eq!(stopping.join().unwrap().read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn what_the_program_says_is_told_as_it_is() {
        const LONG_NS: u64 = 12 * TERMINATE_NS;
        for (script, why) in [
            (
                "exit 3",
                "/bin/sh exited with status 3 after \"get_server_list\": ",
            ),
            ("kill -9 $$", "/bin/sh was killed after \"get_server_list\""),
            ("true", "MPS has no server"),
            (
                "echo no such folder >&2",
                "MPS has no server no such folder",
            ),
            (
                "read a b; [ $a = get_server_list ] && echo 5",
                "/bin/sh exited with status 1 after \"get_client_list 5\": ",
            ),
            ("echo 5", "no server of MPS has it as a client"),
        ] {
            assert_eq!(ask(script, LONG_NS).unwrap_err(), why, "{script}");
        }
        let missing = ["/no/such/program".to_owned()];
        let clock = Clock::monotonic();
        let doomed = Sleeper::start().doomed(0);
        let mut control = Control::default();
        let why = control.terminate(&missing, &doomed, &clock, u64::MAX);
        let why = why.unwrap_err();
        assert!(why.starts_with("cannot run /no/such/program: "), "{why}");
    }

    #[test]
    fn a_control_daemon_is_there_if_it_answers_and_not_if_its_program_says_that_it_finds_none() {
        let (stop, to_stop) = rustix::pipe::pipe().unwrap();
        let answers = |script: &str| {
            let command = ["/bin/sh", "-c", script].map(str::to_owned);
            is_there(&command, stop.as_fd())
        };
        assert!(answers("read word; test $word = get_server_list"));
        assert!(answers("echo 4242"));
        assert!(!answers("echo Cannot find MPS control daemon process"));
        assert!(!answers("exit 1"));
        let missing = ["/no/such/program".to_owned()];
        assert!(!is_there(&missing, stop.as_fd()));
        rustix::io::write(&to_stop, b"!").unwrap();
        assert!(!answers("exec sleep 1000"), "the daemon ends");
    }

    #[test]
    fn only_what_is_known_to_be_success_is_taken_for_it_and_the_rest_is_told() {
        let list = "4242\n 17 something\nno server\n\n";
        assert_eq!(numbers_of(list).collect::<Vec<_>>(), [4242, 17]);
        let answer = |output: &str, errors: &str| Answer {
            output: output.to_owned(),
            errors: errors.to_owned(),
        };
        for success in ["", "0\n", "CUDA_SUCCESS\n"] {
            assert!(answer(success, "").is_success(), "{success:?}");
            assert!(!answer(success, "no such client\n").is_success());
        }
        for failure in [
            "1",
            "CUDA_ERROR_INVALID_VALUE",
            "Command not recognized",
            "not CUDA_SUCCESS",
        ] {
            assert!(!answer(failure, "").is_success(), "{failure:?}");
        }
        assert_eq!(answer("a\n b", "c\n").words(), "a b c");
        let long = answer("", &"x".repeat(2 * TOLD_CHARS_MAX));
        assert_eq!(long.words().len(), TOLD_CHARS_MAX);
    }
}

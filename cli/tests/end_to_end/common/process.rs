//! A child process whose output is read while it runs, and which never outlives its test.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{PATIENCE_NS, WHENEVER_NS, stacks, try_until, until};

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    /// Never locked: makes the type shareable between threads.
    lines: Mutex<Receiver<String>>,
    said: String,
    errors: PathBuf,
    _folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Process {
    pub(crate) fn start(name: &str, mut command: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let errors = folder.path().join("stderr");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            name: name.to_owned(),
            child,
            lines: Mutex::new(lines),
            said: String::new(),
            errors,
            _folder: folder,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn lines(&mut self) -> &mut Receiver<String> {
        self.lines.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line of its output, or `None` at the end; fails if silent longer than
    /// `patience_ns`.
    fn try_next_line(&mut self, patience_ns: u64) -> Option<String> {
        match self.lines().recv_timeout(Duration::from_nanos(patience_ns)) {
            Ok(line) => {
                self.said.push_str(&line);
                self.said.push('\n');
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.fail("says nothing"),
        }
    }

    pub(crate) fn next_line(&mut self) -> String {
        self.next_line_within(PATIENCE_NS)
    }

    fn next_line_within(&mut self, patience_ns: u64) -> String {
        self.try_next_line(patience_ns)
            .unwrap_or_else(|| self.fail("closed its output too early"))
    }

    /// Reads lines until it has printed `line` for the `count`th time from now.
    pub(crate) fn wait_for(&mut self, line: &str, count: usize) {
        for _ in 0..count {
            while self.next_line() != line {}
        }
    }

    /// Reads lines until it has printed `line`, however long that takes: a cold import of PyTorch
    /// takes minutes on a slow machine.
    pub(crate) fn wait_whenever(&mut self, line: &str) {
        while self.next_line_within(WHENEVER_NS) != line {}
    }

    /// Drops its output so far and waits for `count` more of `line`.
    pub(crate) fn wait_for_new(&mut self, line: &str, count: usize) {
        self.skip_said();
        self.wait_for(line, count);
    }

    pub(crate) fn next_new_line(&mut self) -> String {
        self.skip_said();
        self.next_line()
    }

    fn skip_said(&mut self) {
        while let Ok(line) = self.lines().try_recv() {
            self.said.push_str(&line);
            self.said.push('\n');
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // The child is reaped only by us, so its id is still its own.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        self.finish();
    }

    /// Stops it, and waits until all its threads are: each stops when it gets a processor.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        until("its threads to stop", || self.is_stopped());
    }

    /// Whether all its threads are stopped (proc_pid_stat(5), field 3).
    fn is_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.pid());
        let tasks = std::fs::read_dir(tasks).unwrap().map(|task| {
            let stat = task.unwrap().path().join("stat");
            std::fs::read_to_string(stat).unwrap_or_default()
        });
        let mut states = tasks.map(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()));
        states.all(|rest| rest.is_some_and(|rest| rest.starts_with('T')))
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is still open");
        // A program that ended without reading is judged by its output.
        let _ = stdin.write_all(text.as_bytes());
    }

    /// Bytes in its standard input that it has not read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let stdin = self.child.stdin.as_ref().expect("it is still open");
        rustix::io::ioctl_fionread(stdin).unwrap()
    }

    /// Whether a signal is pending for any of its threads (proc_pid_status(5)).
    pub(crate) fn has_pending_signals(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let pending = |line: &str| {
            let (name, set) = line.split_once(":\t")?;
            matches!(name, "SigPnd" | "ShdPnd").then(|| u64::from_str_radix(set, 16) != Ok(0))
        };
        status
            .lines()
            .filter_map(pending)
            .any(|is_pending| is_pending)
    }

    /// Closes its standard input, which tells the programs to end.
    pub(crate) fn tell_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn errors(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.errors).unwrap()).into_owned()
    }

    /// Tells it to end and waits until it has.
    pub(crate) fn finish(mut self) -> Ended {
        self.tell_to_end();
        self.finish_untold()
    }

    /// Waits until it ends without closing its input.
    pub(crate) fn finish_untold(self) -> Ended {
        self.finish_within(PATIENCE_NS)
    }

    /// [`Self::finish`] of a process that may be silent for minutes on a slow machine.
    pub(crate) fn finish_whenever(mut self) -> Ended {
        self.tell_to_end();
        self.finish_within(WHENEVER_NS)
    }

    fn finish_within(mut self, patience_ns: u64) -> Ended {
        while self.try_next_line(patience_ns).is_some() {}
        let status = try_until(|| self.child.try_wait().unwrap());
        let Some(status) = status else {
            self.fail("does not end")
        };
        Ended {
            status,
            output: std::mem::take(&mut self.said),
            errors: self.errors(),
        }
    }

    fn fail(&self, what: &str) -> ! {
        let (name, said, errors) = (&self.name, &self.said, self.errors());
        let stacks = stacks::of_processes(self.pid());
        panic!("{name} {what}\n--- stdout\n{said}--- stderr\n{errors}{stacks}")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn collect(command: Command) -> Ended {
    let name = format!("{command:?}");
    Process::start(&name, command).finish()
}

impl Ended {
    /// The exit code; a death by signal fails the test.
    pub(crate) fn code(&self) -> i32 {
        let Some(code) = self.status.code() else {
            panic!("died of signal {:?}: {self:#?}", self.status.signal())
        };
        code
    }

    pub(crate) fn expect_success(self) -> Self {
        assert_eq!(self.code(), 0, "{self:#?}");
        self
    }

    pub(crate) fn expect_errors(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.errors.contains(part), "no {part:?} in {self:#?}");
        }
        self
    }

    /// The program's own count: the number after `name=`, summed over its lines.
    pub(crate) fn asked(&self, name: &str) -> u64 {
        let numbers = self.output.split_whitespace().filter_map(|word| {
            let number = word.strip_prefix(name)?.strip_prefix('=')?;
            Some(number.parse::<u64>().unwrap())
        });
        let numbers: Vec<u64> = numbers.collect();
        assert!(!numbers.is_empty(), "no {name}= in {self:#?}");
        numbers.iter().sum()
    }
}

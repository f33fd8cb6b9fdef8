//! The logs, in the line format of NVIDIA's daemon:
//! `[2026-11-28 01:28:11.130 Control 30544] NEW UI`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

/// Environment variable for the folder of the logs (NVIDIA's MPS guide).
const LOGS_ENV: &str = "CUDA_MPS_LOG_DIRECTORY";
const LOGS: &str = "/var/log/nvidia-mps";

pub(crate) fn folder() -> PathBuf {
    let folder = std::env::var_os(LOGS_ENV).filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from(LOGS), PathBuf::from)
}

/// One of the two logs; `None` if it cannot be written.
#[derive(Debug)]
pub(crate) struct Log {
    who: &'static str,
    file: Option<File>,
}

impl Log {
    pub(crate) fn both_in_files() -> [Self; 2] {
        let logs = [("Control", "control.log"), ("Server", "server.log")];
        logs.map(|(who, name)| Self::open(who, name))
    }

    /// Both logs on standard output, for a daemon in the foreground.
    pub(crate) fn both_on_stdout() -> [Self; 2] {
        ["Control", "Server"].map(|who| {
            let stdout = std::io::stdout().as_fd().try_clone_to_owned();
            let file = stdout.ok().map(File::from);
            Self { who, file }
        })
    }

    fn open(who: &'static str, name: &str) -> Self {
        let folder = folder();
        let _ = std::fs::create_dir_all(&folder);
        let path = folder.join(name);
        let file = OpenOptions::new().append(true).create(true).open(path).ok();
        Self { who, file }
    }

    /// A log on standard error, for servers, whose daemon has opened the file.
    pub(crate) fn on_stderr() -> Self {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned();
        Self {
            who: "Other",
            file: stderr.ok().map(File::from),
        }
    }

    /// For a server's standard error.
    pub(crate) fn file(&self) -> Option<File> {
        self.file.as_ref()?.try_clone().ok()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Writes a line; a failure is ignored.
    pub(crate) fn write(&self, line: &str) {
        let Some(mut file) = self.file.as_ref() else {
            return;
        };
        let now = jiff::Zoned::now();
        let at = now.strftime("%Y-%m-%d %H:%M:%S.%3f");
        let pid = std::process::id();
        let _ = writeln!(file, "[{at} {} {pid:5}] {line}", self.who);
    }
}

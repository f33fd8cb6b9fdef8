//! A terminal of a given size with a shell, each its own tmux server: shows rows, presses keys.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{collect, tools, until};

#[derive(Debug)]
pub(crate) struct Terminal {
    tmux: PathBuf,
    folder: TempDir,
}

impl Terminal {
    /// A terminal of that size, with a shell in this environment. Without tmux the test is ignored.
    pub(crate) fn start(environment: &Command, columns: usize, rows: usize) -> Self {
        let terminal = Self {
            tmux: tools::program("tmux"),
            folder: tempfile::tempdir().unwrap(),
        };
        let mut tmux = terminal.tmux();
        for (name, value) in environment.get_envs() {
            match value {
                Some(value) => tmux.env(name, value),
                None => tmux.env_remove(name),
            };
        }
        tmux.env("LC_ALL", "C.UTF-8");
        tmux.env_remove("TMUX").env_remove("ENV");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        tmux.args(["-f", "/dev/null", "new-session", "-d"]);
        tmux.args(["-x", &columns, "-y", &rows, "sh", ";"]);
        // No row is tmux's own.
        tmux.args(["set-option", "-g", "status", "off", ";"]);
        tmux.args(["resize-window", "-x", &columns, "-y", &rows]);
        collect(tmux).expect_success();
        until("the shell's prompt", || !terminal.seen().is_empty());
        terminal
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new(&self.tmux);
        tmux.arg("-u")
            .arg("-S")
            .arg(self.folder.path().join("tmux"));
        tmux
    }

    pub(crate) fn seen(&self) -> String {
        self.captured(&[])
    }

    /// [`Self::seen`] with rows joined that the terminal has wrapped.
    pub(crate) fn unwrapped(&self) -> String {
        self.captured(&["-J"])
    }

    /// All rows since its start, long ones unwrapped.
    pub(crate) fn history(&self) -> String {
        self.captured(&["-J", "-S", "-"])
    }

    fn captured(&self, more: &[&str]) -> String {
        let mut tmux = self.tmux();
        tmux.args(["capture-pane", "-p"]).args(more);
        let seen = collect(tmux).expect_success().output;
        let rows: Vec<&str> = seen.lines().map(str::trim_end).collect();
        rows.join("\n").trim_end().to_owned()
    }

    pub(crate) fn enter(&self, line: &str) {
        let mut tmux = self.tmux();
        tmux.args(["send-keys", "-l", line, ";", "send-keys", "Enter"]);
        collect(tmux).expect_success();
    }

    /// Presses keys, by tmux's names, such as `C-c`.
    pub(crate) fn press(&self, keys: &[&str]) {
        let mut tmux = self.tmux();
        tmux.arg("send-keys").args(keys);
        collect(tmux).expect_success();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is no server if it did not start.
        let _ = self.tmux().arg("kill-server").output();
    }
}

//! docs/tutorial.md, typed line by line into a terminal. Every block of output must appear.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use protocol::clock::Clock;

use super::text::{Fenced, fenced, missing};
use crate::common::terminal::Terminal;
use crate::common::{Cuda, cargo_folder, clean_command, collect, until, workspace, write_script};
use crate::torch;

/// As wide as the tables of the document.
const COLUMNS: usize = 130;

/// A folder like a fresh clone that has been built: `cargo` finds nothing left to do.
pub(super) fn built_clone(folder: &Path) {
    fs::create_dir_all(folder.join("target")).unwrap();
    symlink(cargo_folder(), folder.join("target/release")).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(workspace().join("examples")).arg(folder);
    collect(copy).expect_success();
    fs::create_dir(folder.join("bin")).unwrap();
    let cargo = "#!/bin/sh\n[ \"$*\" = 'build --release' ]\n";
    write_script(&folder.join("bin/cargo"), cargo);
}

struct Reader {
    terminal: Terminal,
    /// Marks that have been printed.
    marks: usize,
}

impl Reader {
    fn in_folder(folder: &Path) -> Self {
        let mut shell = clean_command("sh");
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}/bin:{path}", folder.display()));
        shell.env("HOME", folder).env("PILLION_LOG", "warn");
        let terminal = Terminal::start(&shell, COLUMNS, 50);
        terminal.enter(&format!("cd {}", folder.display()));
        Self { terminal, marks: 0 }
    }

    /// Enters a line that prints a mark, which separates the output of blocks.
    fn mark(&mut self) -> String {
        self.marks += 1;
        self.terminal
            .enter(&format!("echo mark {} status $?", self.marks));
        format!("mark {} status ", self.marks)
    }

    /// The exit status after a mark, once it is printed.
    fn status(&self, mark: &str) -> String {
        let found = patiently(|| {
            let history = self.terminal.history();
            history.lines().find_map(|line| status_in(line, mark))
        });
        found.unwrap_or_else(|| panic!("no {mark}: {}", self.terminal.history()))
    }

    fn printed_after(&self, mark: &str) -> String {
        let history = self.terminal.history();
        let lines = history.lines();
        let lines = lines.skip_while(|line| status_in(line, mark).is_none());
        let lines: Vec<&str> = lines.skip(1).collect();
        lines.join("\n")
    }

    /// Enters the lines of a block, which end with this status; returns the mark before its output.
    fn enter(&mut self, commands: &str, status: &str) -> String {
        let before = self.mark();
        self.status(&before);
        for line in commands.lines() {
            self.terminal.enter(line);
            if line == "pillion top" {
                until("top's display", || {
                    let seen = self.terminal.seen();
                    seen.contains("q quit") && seen.contains("serve ") && seen.contains("train ")
                });
                self.terminal.press(&["q"]);
            }
        }
        let after = self.mark();
        assert_eq!(
            self.status(&after),
            status,
            "{commands}: {}",
            self.printed_after(&before)
        );
        before
    }

    /// Whether the block's output appears: of a status or `pillion set`, when asked again and
    /// again. On a busy machine the service may not have marked a request yet.
    fn expect(&mut self, commands: &str, shown: &str) {
        // An uncaught exception of Python's is an exit with 1.
        let status = if shown.contains("Error: ") { "1" } else { "0" };
        let mut mark = self.enter(commands, status);
        let is_asked_again = commands == "pillion status" || commands.starts_with("pillion set");
        let is_exact = ["pillion demo", "pillion simulate", "pillion set"]
            .iter()
            .any(|exact| commands.contains(exact));
        let found = patiently(|| {
            if is_asked_again {
                mark = self.enter(commands, status);
            }
            missing(&self.printed_after(&mark), shown, is_exact)
                .is_none()
                .then_some(())
        });
        let printed = self.printed_after(&mark);
        assert!(
            found.is_some(),
            "{commands} does not print {:?}, but\n{printed}",
            missing(&printed, shown, is_exact)
        );
    }
}

/// The status that a line prints after the mark. The shell's prompt may precede the mark.
fn status_in(line: &str, mark: &str) -> Option<String> {
    let (_, status) = line.split_once(mark)?;
    let is_number = !status.is_empty() && status.chars().all(|c| c.is_ascii_digit());
    is_number.then(|| status.to_owned())
}

/// Polls a few times a second, as each poll starts tmux, for five minutes at most: PyTorch may take
/// minutes to start on a busy machine.
fn patiently<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Clock::monotonic();
    (0..1500).find_map(|_| {
        let found = ask();
        if found.is_none() {
            clock.sleep_until(clock.now_ns() + 200_000_000);
        }
        found
    })
}

#[test]
fn the_tutorial_runs_as_written() {
    let folder = tempfile::tempdir().unwrap();
    built_clone(folder.path());
    let python = torch::python(Cuda::V13);
    let environment = python.parent().unwrap().parent().unwrap();
    symlink(environment, folder.path().join(".venv-torch")).unwrap();
    let document = fs::read_to_string(workspace().join("docs/tutorial.md")).unwrap();
    let blocks = fenced(&document);
    let commands = blocks.iter().filter(|block| block.language == "sh").count();
    assert!(commands > 10, "{commands} blocks of commands");
    let mut reader = Reader::in_folder(folder.path());
    let mut blocks = blocks.iter().peekable();
    while let Some(Fenced { language, text }) = blocks.next() {
        assert_eq!(language, "sh", "output without commands: {text}");
        match blocks.next_if(|next| next.language == "text") {
            Some(shown) => reader.expect(text, &shown.text),
            None => drop(reader.enter(text, "0")),
        }
    }
}

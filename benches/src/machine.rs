//! The machine of a measurement. A number without its machine means nothing. Nothing here
//! identifies the machine or its owner, so that results can be published.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// The machine, its load and the measured tree.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of its processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Whether it is a guest of a hypervisor.
    pub is_virtual: bool,
    /// Version of the kernel, without a distributor's suffix.
    pub kernel: String,
    /// Load average of the last minute before the start.
    pub load_1min: f64,
    /// The compiler.
    pub rustc: String,
    /// The commit, with `-dirty` if the tree was changed.
    pub commit: String,
    /// UTC.
    pub date: String,
}

impl Machine {
    /// This machine now.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            is_virtual: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map(|release| version(&release).to_owned())
                .unwrap_or_default(),
            load_1min: load
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(f64::NAN),
            rustc: said_by("rustc", &["--version"]),
            commit: said_by(
                "git",
                &[
                    "-C",
                    env!("CARGO_MANIFEST_DIR"),
                    "describe",
                    "--always",
                    "--dirty",
                ],
            ),
            date: said_by("date", &["-u", "+%Y-%m-%d %H:%M"]),
        }
    }

    /// A short description for people.
    #[must_use]
    pub fn kind(&self) -> String {
        let (cpus, guest) = (
            self.cpus,
            if self.is_virtual {
                "vCPU guest"
            } else {
                "CPUs"
            },
        );
        format!("{cpus} {guest}, {}, Linux {}", self.cpu, self.kernel)
    }
}

/// The numbers that a release begins with.
fn version(release: &str) -> &str {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    &release[..end.unwrap_or(release.len())]
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// A program's output; "unknown" if it cannot be run.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let said = output.ok().filter(|output| output.status.success());
    said.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_by_its_numbers() {
        assert_eq!(version("6.1.0-13-amd64\n"), "6.1.0");
        assert_eq!(version("6.12.1\n"), "6.12.1");
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 207\nmodel name\t: A CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(field(text, "name"), None);
    }
}

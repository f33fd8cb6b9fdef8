//! What is kept of the runs before this one, and who is to keep what this one learns.
//!
//! Once a daemon has taken the process, it is asked what it keeps of the process's program, on a
//! connection of its own (`protocol::hello::Request::Learnt`). That is a profile, and serves as one
//! where the job has none; where it has one, it says what that does not name. The process's notebook
//! goes along if it is best-effort, and what the learner notes there
//! ([`crate::progress::learner`]) the daemon reads when the connection ends.
//!
//! The daemon answers within a millisecond, or its disk takes its time: after [`PATIENCE`] the
//! process goes on with what it has. The answer is the daemon's file, which this process reads, so
//! a disk that hangs between the two holds it. Nothing here is an error for the application, and
//! nothing of it is asked of the driver.
//!
//! Kernels that were launched before the answer came stay as they were judged: that is so in a
//! process whose first daemon comes after its first launches.

use core::time::Duration;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use profiler::{Profile, ProfileIndex, learnt, scale};
use protocol::hello::{self, HelloError, LearntOf};
use protocol::notebook;

use crate::platform::log::{self, Level};
use crate::platform::stdio_guard::Occupied;
use crate::process::Client;

/// Longest wait for one step of the answer.
const PATIENCE: Duration = Duration::from_millis(250);

/// Longest profile that is taken, bytes: a daemon keeps no longer one.
const BYTES_MAX: u64 = notebook::TEXT_BYTES_MAX as u64;

/// Asks the daemon at `socket`, and takes what it keeps beside what the process knows already.
pub(crate) fn begin(client: &Client, socket: &Path, given: Option<&'static ProfileIndex>) {
    let _occupied = Occupied::new();
    let Some(program) = program() else {
        return;
    };
    match ask(client, socket, &program) {
        Ok(Some(kept)) => take(client, kept, &program, given),
        Ok(None) => {}
        Err(error) => log::say(
            Level::Debug,
            format_args!("what runs of {program} have taught is not known: {error}"),
        ),
    }
}

/// What is kept of the program, if anything is. The connection stays open for the notebook.
fn ask(client: &Client, socket: &Path, program: &str) -> Result<Option<OwnedFd>, HelloError> {
    let notebook = match client.is_high_priority() {
        true => None,
        false => client.notes.file(),
    };
    let connection = hello::connect_within(socket, PATIENCE)?;
    let of = LearntOf {
        program: program.to_owned(),
        device: client.uuid.clone(),
        user: None,
    };
    let notebook = notebook.as_ref().map(OwnedFd::as_fd);
    let kept = hello::ask_learnt(&connection, &of, notebook)?;
    if notebook.is_some() {
        client.notes.begin(connection);
    }
    Ok(kept)
}

fn take(client: &Client, kept: OwnedFd, program: &str, given: Option<&'static ProfileIndex>) {
    let mut text = String::new();
    let mut file = File::from(kept).take(BYTES_MAX);
    let read = file
        .read_to_string(&mut text)
        .map_err(|error| error.to_string());
    let path = Path::new(program);
    let parsed = read.and_then(|_| Profile::parse(&text, path).map_err(|error| error.to_string()));
    let kept = match parsed {
        Ok(kept) => scale::scale(kept, &client.gpu).0,
        // The daemon says so to the operator, and replaces it with what this run learns.
        Err(error) => {
            let why = format_args!("what runs of {program} have taught cannot be used: {error}");
            return log::say(Level::Info, why);
        }
    };
    let kernels = kept.kernels.len();
    let known = match given {
        Some(given) => learnt::completed(given.profile().clone(), kept),
        None => kept,
    };
    // It is read without a lock for as long as the process lives; one for each daemon that it has.
    client
        .known
        .set(Box::leak(Box::new(ProfileIndex::new(known))));
    log::say(
        Level::Info,
        format_args!("{kernels} kernels and shapes are known from runs of {program} before"),
    );
}

/// What this process's program is called: the path of its script where an interpreter of Python runs
/// one, else of its executable.
fn program() -> Option<String> {
    let executable = std::fs::read_link("/proc/self/exe").ok()?;
    let arguments = std::fs::read("/proc/self/cmdline").ok()?;
    let arguments = arguments.split(|byte| *byte == 0).skip(1);
    let arguments: Vec<String> = arguments
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let name = program_of(&executable, &arguments, |script| {
        let absolute = std::path::absolute(script).ok()?;
        Some(std::fs::canonicalize(&absolute).unwrap_or(absolute))
    });
    // What a profile can have for a source.
    let name: String = name.trim().replace(char::is_control, "?");
    (!name.is_empty()).then(|| hello::program_key(&name))
}

/// The same from the executable and what follows it; `resolve` finds a script.
fn program_of(
    executable: &Path,
    arguments: &[String],
    resolve: impl Fn(&str) -> Option<PathBuf>,
) -> String {
    let text = executable.to_string_lossy();
    let text = text.strip_suffix(" (deleted)").unwrap_or(&text);
    let name = Path::new(text).file_name().unwrap_or_default();
    if !name.to_string_lossy().starts_with("python") {
        return text.to_owned();
    }
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            // A module, by its name: where it lies is not told.
            "-m" => return format!("{text} -m {}", arguments.next().unwrap_or_default()),
            // These have another one behind them (python(1)).
            "-W" | "-X" | "--check-hash-based-pycs" => _ = arguments.next(),
            "-c" | "-" | "" => break,
            option if option.starts_with('-') => {}
            script => {
                let found = resolve(script).map(|path| path.to_string_lossy().into_owned());
                return found.unwrap_or_else(|| script.to_owned());
            }
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_script_or_its_executable() {
        let named = |executable: &str, arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
            program_of(Path::new(executable), &arguments, |script| {
                Some(Path::new("/jobs").join(script))
            })
        };
        for (arguments, program) in [
            (&["train.py", "--lr", "1"][..], "/jobs/train.py"),
            (&["-u", "-W", "ignore", "/a/b.py"], "/a/b.py"),
            (
                &["-X", "dev", "-Bu", "serve.py", "-m", "x"],
                "/jobs/serve.py",
            ),
            (
                &["-m", "torch.distributed.run", "t.py"],
                "/usr/bin/python3.12 -m torch.distributed.run",
            ),
            (&["-c", "import torch", "x.py"], "/usr/bin/python3.12"),
            (&[], "/usr/bin/python3.12"),
        ] {
            assert_eq!(named("/usr/bin/python3.12", arguments), program);
        }
        assert_eq!(named("/opt/serve", &["x.py"]), "/opt/serve");
        assert_eq!(named("/opt/serve (deleted)", &[]), "/opt/serve");
    }
}

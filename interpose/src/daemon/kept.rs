//! The durations kept of earlier runs, and the notebook for those that this run learns. Once a
//! daemon has accepted the process, the process asks for what it keeps of the program, on a
//! separate connection (`protocol::hello::Request::Learnt`). The answer is a profile. It serves as
//! the job's profile if there is none, or else adds the kernels that the job's profile lacks. A
//! best-effort process sends its notebook along; the learner writes to it
//! ([`crate::progress::learner`]), and the daemon reads it every minute and when the connection
//! ends.
//!
//! The daemon answers within a millisecond, unless its disk is slow. After [`PATIENCE`] the process
//! goes on with what it has. The daemon has the notebook all the same, and the helper polls for the
//! answer ([`poll_late`]). The answer is a memory file, which reads without waiting. Only the first
//! answer is used: those of later daemons contain this very process's notes. Nothing here is an
//! error for the application, and there is no driver call. Kernels launched before the answer keep
//! their judgement, as in a process whose first daemon comes after its first launches.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use profiler::{Profile, ProfileIndex, learnt, scale};
use protocol::hello::{self, HelloError, LearntOf};
use protocol::notebook;

use crate::platform::log::{self, Level};
use crate::platform::stdio_guard::Occupied;
use crate::process::Client;

/// Longest wait for one step of the answer.
const PATIENCE: Duration = Duration::from_millis(250);

/// Interval of polling for a late answer, and for how long, ns.
const LATE_LOOK_NS: u64 = 250_000_000;
const LATE_NS: u64 = 60_000_000_000;

/// Longest accepted profile, bytes: a daemon keeps no longer one.
const BYTES_MAX: u64 = notebook::TEXT_BYTES_MAX as u64;

pub(crate) fn begin(client: &Client, socket: &Path, given: Option<&'static ProfileIndex>) {
    let _occupied = Occupied::new();
    let Some(program) = client.notes.program(program) else {
        return;
    };
    client.notes.wait_until(None);
    match ask(client, socket, program) {
        Ok(kept) if !client.notes.is_first_answer() => drop(kept),
        Ok(Some(kept)) => take(client, kept, program, given),
        Ok(None) => {}
        Err(error) => {
            let why = format_args!("cannot get the kept durations of {program}: {error}");
            log::say(Level::Debug, why);
        }
    }
}

/// For the helper: takes a late answer, if there is one. Returns when to poll again.
pub(crate) fn poll_late(client: &Client) -> Option<u64> {
    let until_ns = client.notes.late_until_ns()?;
    let now_ns = client.clock.now_ns();
    let look_ns = client.notes.late_look_ns();
    if now_ns < look_ns {
        return Some(look_ns);
    }
    let _occupied = Occupied::new();
    let answer = client
        .notes
        .answer(|connection| hello::learnt_answer(connection));
    if answer.is_none() && now_ns < until_ns {
        client.notes.look_late_at(now_ns + LATE_LOOK_NS);
        return Some(now_ns + LATE_LOOK_NS);
    }
    client.notes.wait_until(None);
    let program = client.notes.program(|| None).unwrap_or_default();
    match answer {
        Some(Ok(Some(kept))) => take(client, kept, program, client.profile()),
        Some(Ok(None)) => {}
        Some(Err(error)) => {
            let why = format_args!("cannot get the kept durations of {program}: {error}");
            log::say(Level::Info, why);
        }
        None => {
            let why = format_args!("the daemon did not send the kept durations of {program}");
            log::say(Level::Info, why);
        }
    }
    None
}

/// Requests what is kept of the program. The connection stays open for the notebook.
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
    let kept = hello::ask_learnt(&connection, &of, notebook);
    let is_late = kept.as_ref().is_err_and(is_late);
    match notebook {
        // A daemon that is only late has it.
        Some(_) if is_late || kept.is_ok() => client.notes.begin(connection),
        None if is_late => client.notes.hold(connection),
        _ => {}
    }
    // A later daemon's answer contains this run's own notes, which the earlier one had.
    if is_late && (notebook.is_none() || client.notes.is_first_answer()) {
        let why = format_args!("still waiting for the kept durations of {program} from the daemon");
        log::say(Level::Info, why);
        client
            .notes
            .wait_until(Some(client.clock.now_ns() + LATE_NS));
    }
    kept
}

fn is_late(error: &HelloError) -> bool {
    // A receive timeout (socket(7)).
    matches!(error, HelloError::Io(error) if error.kind() == io::ErrorKind::WouldBlock)
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
        // The daemon also logs it, and replaces it with what this run learns.
        Err(error) => {
            let why = format_args!("cannot use the kept durations of {program}: {error}");
            return log::say(Level::Info, why);
        }
    };
    let kernels = kept.kernels.len();
    // Read without a lock for the life of the process; one for each daemon.
    let index = |profile| &*Box::leak(Box::new(ProfileIndex::new(profile)));
    let known = given.map(|given| learnt::completed(given.profile().clone(), kept.clone()));
    let kept = index(kept);
    client.notes.set_kept(kept);
    client.known.set(known.map_or(kept, index));
    let noun = match kernels {
        1 => "kernel and shape",
        _ => "kernels and shapes",
    };
    log::say(
        Level::Info,
        format_args!("{kernels} {noun} known from earlier runs of {program}"),
    );
}

/// This process's program: the path of its script if a Python interpreter runs one, else of its
/// executable; and the share of the SMs requested from MPS, on which durations depend.
fn program() -> Option<String> {
    let executable = std::fs::read_link("/proc/self/exe").ok()?;
    let arguments = std::fs::read("/proc/self/cmdline").ok()?;
    let arguments = arguments.split(|byte| *byte == 0).skip(1);
    let arguments: Vec<String> = arguments
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    let mut name = program_of(&executable, &arguments, resolve);
    if let Some(share) = std::env::var(SM_SHARE_ENV)
        .ok()
        .and_then(|of| sm_share(&of))
    {
        name = format!("{name} (on {share} % of the SMs)");
    }
    // The characters that a profile's source may have.
    let name: String = name.trim().replace(char::is_control, "?");
    (!name.is_empty()).then(|| hello::program_key(&name))
}

/// Documented by NVIDIA ("Multi-Process Service", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
const SM_SHARE_ENV: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

fn sm_share(text: &str) -> Option<f32> {
    let share: f32 = text.trim().parse().ok()?;
    (share > 0.0 && share < 100.0).then_some(share)
}

fn resolve(script: &str) -> Option<PathBuf> {
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    let mut words = environment.split(|byte| *byte == 0);
    let started = words.find_map(|word| word.strip_prefix(b"PWD="));
    let started = started.map(|folder| Path::new(OsStr::from_bytes(folder)));
    let here = std::env::current_dir().ok();
    script_in(here.as_deref(), started, script)
}

/// The script's path, from the working directory, or if the program has left that, from where it
/// `started`.
fn script_in(here: Option<&Path>, started: Option<&Path>, script: &str) -> Option<PathBuf> {
    let places = [here, started].map(|folder| Some(folder?.join(script)));
    let found = places
        .iter()
        .flatten()
        .flat_map(std::fs::canonicalize)
        .next();
    found.or_else(|| places.into_iter().flatten().next())
}

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
        match PythonWord::of(argument) {
            PythonWord::Option => {}
            PythonWord::OptionOfTwo => _ = arguments.next(),
            PythonWord::NoScript => break,
            // By its name: its path is not given.
            PythonWord::Module(module) => {
                let module = module.or_else(|| arguments.next());
                return format!("{text} -m {}", module.unwrap_or_default());
            }
            PythonWord::Script => {
                let found = resolve(argument).map(|path| path.to_string_lossy().into_owned());
                return found.unwrap_or_else(|| argument.to_owned());
            }
        }
    }
    text.to_owned()
}

/// A word of Python's command line, up to the script (python(1)).
enum PythonWord<'a> {
    /// One or several options in one word.
    Option,
    /// The same; the last one takes the next word.
    OptionOfTwo,
    /// No script follows: `-c`, or the standard input.
    NoScript,
    /// `-m`, with its module if that is in the same word.
    Module(Option<&'a str>),
    Script,
}

impl<'a> PythonWord<'a> {
    fn of(word: &'a str) -> Self {
        let options = match word.strip_prefix('-') {
            None if word.is_empty() => return Self::NoScript,
            None => return Self::Script,
            Some("") => return Self::NoScript,
            Some("-check-hash-based-pycs") => return Self::OptionOfTwo,
            Some(long) if long.starts_with('-') => return Self::Option,
            Some(options) => options,
        };
        // The rest of the word after an option with a value is its value.
        for (at, option) in options.char_indices() {
            let value = options.get(at + 1..).filter(|value| !value.is_empty());
            match option {
                'c' => return Self::NoScript,
                'm' => return Self::Module(value),
                'W' | 'X' if value.is_none() => return Self::OptionOfTwo,
                'W' | 'X' => return Self::Option,
                _ => {}
            }
        }
        Self::Option
    }
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
            (&["-x", "old.py"], "/jobs/old.py"),
            (&["-uB", "x.py", "-c"], "/jobs/x.py"),
            (&["-BWignore", "-uX", "dev", "x.py"], "/jobs/x.py"),
            (
                &["-Xdev", "--check-hash-based-pycs", "always", "x.py"],
                "/jobs/x.py",
            ),
            (&["-um", "a.b", "x.py"], "/usr/bin/python3.12 -m a.b"),
            (&["-ma.b", "x.py"], "/usr/bin/python3.12 -m a.b"),
            (&["-c", "import torch", "x.py"], "/usr/bin/python3.12"),
            (&["-uc", "import torch", "x.py"], "/usr/bin/python3.12"),
            (&["-", "x.py"], "/usr/bin/python3.12"),
            (&[], "/usr/bin/python3.12"),
        ] {
            assert_eq!(named("/usr/bin/python3.12", arguments), program);
        }
        assert_eq!(named("/opt/serve", &["x.py"]), "/opt/serve");
        assert_eq!(named("/opt/serve (deleted)", &[]), "/opt/serve");
    }

    #[test]
    fn a_share_of_the_sms_is_told_if_it_is_less_than_all() {
        for (text, share) in [
            ("50", Some(50.0)),
            (" 12.5", Some(12.5)),
            ("100", None),
            ("0", None),
            ("", None),
            ("nan", None),
            ("many", None),
        ] {
            assert_eq!(sm_share(text), share, "{text:?}");
        }
    }

    #[test]
    fn a_script_is_where_the_program_was_started_if_it_is_not_here() {
        let name = format!("pillion-kept-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let [here, started] = ["here", "started"].map(|name| folder.join(name));
        for folder in [&here, &started] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("both.py"), "").unwrap();
        }
        std::fs::write(started.join("left.py"), "").unwrap();
        let find = |script| script_in(Some(&here), Some(&started), script).unwrap();
        assert!(find("both.py").ends_with("here/both.py"));
        assert!(find("left.py").ends_with("started/left.py"));
        assert!(find("gone.py").ends_with("here/gone.py"));
        assert_eq!(find("/proc/version"), Path::new("/proc/version"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

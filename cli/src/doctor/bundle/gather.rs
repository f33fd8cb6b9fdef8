//! Gathers the contents of a bundle, before scrubbing. A daemon and a program have a timeout, a
//! program's output and a file a size limit. A missing answer is listed with the reason.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use protocol::VERSION;
use protocol::hello::{ask_events, ask_learnt_list};
use scheduler::host::{device, nvml};
use serde_json::{Map, Value, json};

use super::configuration::WORDS;
use super::read::{answer_of, end_of_answer, head, tail};
use super::scrub::{Class, Scrubber, kept_of};
use crate::daemons::{self, PATIENCE};
use crate::doctor::{Finding, Options, environment, rendered};
use crate::mps::Mps;
use crate::status;

const LOG_LINES: usize = 2_000;
const DAEMONS_MAX: usize = 64;
/// First uid of regular users (login.defs(5)).
const FIRST_USER: u32 = 1_000;
const NOBODY: u32 = 65_534;

pub(super) enum Content {
    Text(String),
    Json(Value),
    Configuration(String),
}

/// Each file with its place in the bundle, or the reason why it is missing.
pub(super) struct Gathered {
    pub(super) files: Vec<(String, Result<Content, String>)>,
    pub(super) names: Names,
}

#[derive(Default)]
pub(super) struct Names {
    hosts: Vec<String>,
    users: Vec<(u32, String)>,
    /// Values of variables that are listed by name only, and the parts of them that a check quotes.
    words: Vec<String>,
    /// Relative paths in variables and on the command line, and file names.
    paths: Vec<String>,
    programs: Vec<String>,
}

impl Names {
    pub(super) fn teach(&self, scrubber: &mut Scrubber) {
        self.hosts
            .iter()
            .for_each(|host| scrubber.learn(Class::Host, host));
        for (uid, name) in &self.users {
            scrubber.learn_user(*uid, name);
        }
        for (class, texts) in [
            (Class::Program, &self.programs),
            (Class::Path, &self.paths),
            (Class::Word, &self.words),
        ] {
            texts.iter().for_each(|text| scrubber.learn(class, text));
        }
    }
}

pub(super) fn everything(options: &Options, findings: &[Finding]) -> Gathered {
    let checks: Vec<Value> = findings.iter().map(Finding::json).collect();
    let mut files = vec![
        (
            "doctor.txt".to_owned(),
            Ok(Content::Text(rendered(findings))),
        ),
        (
            "doctor.json".to_owned(),
            Ok(Content::Json(json!({"checks": checks}))),
        ),
        ("versions.json".to_owned(), Ok(Content::Json(versions()))),
        (
            "environment.json".to_owned(),
            Ok(Content::Json(variables(std::env::vars_os()))),
        ),
        ("machine.json".to_owned(), Ok(Content::Json(machine()))),
        ("mps.json".to_owned(), Ok(Content::Json(mps()))),
        (
            "driver.txt".to_owned(),
            text_of(Path::new("/proc/driver/nvidia/version")),
        ),
        ("journal.txt".to_owned(), journal()),
    ];
    let mut configurations: BTreeSet<PathBuf> = BTreeSet::new();
    let mut uids = BTreeSet::new();
    let sockets = daemons::sockets();
    if sockets.is_empty() {
        files.push(("daemons".to_owned(), Err("no daemon is running".to_owned())));
    }
    for (index, socket) in sockets.iter().take(DAEMONS_MAX).enumerate() {
        let folder = format!("daemons/{}", index + 1);
        files.extend(of_daemon(&folder, socket, &mut configurations, &mut uids));
    }
    configurations.extend(environment::files_and_drop_ins(&options.config));
    if configurations.is_empty() {
        let why = "no file in /etc/pillion, and no daemon was started with one".to_owned();
        files.push(("configurations".to_owned(), Err(why)));
    }
    for (index, path) in configurations.iter().enumerate() {
        let name = format!("configurations/{}.toml", index + 1);
        let read = head(path).map(Content::Configuration);
        files.push((name, read.map_err(|error| unread(path, &error))));
    }
    Gathered {
        files,
        names: names(&uids, options),
    }
}

fn of_daemon(
    folder: &str,
    socket: &Path,
    configurations: &mut BTreeSet<PathBuf>,
    uids: &mut BTreeSet<u32>,
) -> Vec<(String, Result<Content, String>)> {
    let named = |name: &str| format!("{folder}/{name}");
    let said = |error: String| format!("{}: {error}", socket.display());
    let status = match status::ask_within(socket, PATIENCE) {
        Ok(status) => status,
        Err(error) => return vec![(named("status.json"), Err(said(error.to_string())))],
    };
    let json_of = |text: Result<String, String>| {
        let value = text.and_then(|text| {
            serde_json::from_str(&text).map_err(|_| "the answer is not JSON".to_owned())
        });
        value.map(Content::Json).map_err(said)
    };
    let events = ask_events(socket, 0, PATIENCE).map_err(|error| error.to_string());
    let learnt = ask_learnt_list(socket, PATIENCE).map_err(|error| error.to_string());
    uids_of(&status, uids);
    let pid = status["daemon"]["pid"].as_u64().unwrap_or(0);
    let process = PathBuf::from(format!("/proc/{pid}"));
    let log = match is_pilliond(&process) {
        true => {
            configurations.extend(configuration_of(&process));
            log_of(&process)
        }
        false => Err(format!(
            "cannot see the daemon's process {pid} here; it may run in another pid namespace"
        )),
    };
    vec![
        (named("status.json"), Ok(Content::Json(status))),
        (named("events.json"), json_of(events)),
        (named("learnt.json"), json_of(learnt)),
        (named("log.txt"), log),
    ]
}

/// Collects the users whose processes a document describes.
fn uids_of(value: &Value, uids: &mut BTreeSet<u32>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| uids_of(item, uids)),
        Value::Object(fields) => {
            let own = fields.get("uid").or_else(|| fields.get("user"));
            let own = own.and_then(Value::as_u64);
            uids.extend(own.and_then(|uid| u32::try_from(uid).ok()));
            fields.values().for_each(|field| uids_of(field, uids));
        }
        _ => {}
    }
}

fn words_of(process: &Path) -> Vec<String> {
    let words = fs::read(process.join("cmdline")).unwrap_or_default();
    let words = words.split(|&byte| byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// Verifies the process: a number from another pid namespace may belong to another process here.
fn is_pilliond(process: &Path) -> bool {
    let words = words_of(process);
    let mut words = words.iter().take(4);
    words.any(|word| {
        Path::new(word)
            .file_name()
            .is_some_and(|name| name == "pilliond")
    })
}

fn configuration_of(process: &Path) -> Option<PathBuf> {
    let words = words_of(process);
    let at = words.iter().position(|word| word.starts_with("--config"))?;
    let path = match words[at].split_once('=') {
        Some((_, path)) => path,
        None => words.get(at + 1)?,
    };
    let folder = fs::read_link(process.join("cwd")).unwrap_or_default();
    Some(folder.join(path))
}

/// The end of a daemon's log, if its standard error is a file; else the journal has it.
fn log_of(process: &Path) -> Result<Content, String> {
    let path = process.join("fd/2");
    let is_file = fs::metadata(&path).map(|found| found.is_file());
    match is_file {
        Ok(true) => {}
        Ok(false) => {
            return Err("the daemon's standard error is not a file; see journal.txt".to_owned());
        }
        Err(error) => {
            return Err(format!(
                "the daemon's standard error cannot be opened: {error}"
            ));
        }
    }
    let text = tail(&path).map_err(|error| format!("the daemon's log cannot be read: {error}"))?;
    Ok(Content::Text(last_lines(&text)))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    lines[first..]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}

fn unread(path: &Path, error: &io::Error) -> String {
    format!("{}: cannot be read: {error}", path.display())
}

fn text_of(path: &Path) -> Result<Content, String> {
    let read = head(path).map(Content::Text);
    read.map_err(|error| unread(path, &error))
}

fn journal() -> Result<Content, String> {
    let lines = LOG_LINES.to_string();
    let text = end_of_answer(&[
        "journalctl",
        "--unit=pilliond*",
        "--no-pager",
        "--quiet",
        "--output=short-unix",
        "--no-hostname",
        "--lines",
        &lines,
    ])?;
    match text.trim().is_empty() {
        true => Err("the journal has no entry of pilliond* that this user may read".to_owned()),
        false => Ok(Content::Text(text)),
    }
}

fn versions() -> Value {
    const OF_RELEASE: [&str; 5] = ["ID", "ID_LIKE", "NAME", "VERSION_ID", "PRETTY_NAME"];
    let release = head(Path::new("/etc/os-release")).unwrap_or_default();
    let release = release.lines().filter_map(|line| line.split_once('='));
    let release: Map<String, Value> = release
        .filter(|(key, _)| OF_RELEASE.contains(key))
        .map(|(key, value)| (key.to_lowercase(), value.trim_matches('"').into()))
        .collect();
    let kernel = head(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    let libc = answer_of(&["getconf", "GNU_LIBC_VERSION"]);
    let libc = libc.unwrap_or_else(|why| format!("unknown: {why}"));
    let nvml = nvml::ask();
    json!({
        "pillion": env!("CARGO_PKG_VERSION"),
        "protocol": VERSION.to_string(),
        "kernel": kernel.trim(),
        "architecture": std::env::consts::ARCH,
        "libc": libc.trim(),
        "distribution": release,
        "driver": nvml.as_ref().map_or_else(ToString::to_string, |nvml| nvml.driver_version.clone()),
        "nvml": nvml.ok().and_then(|nvml| nvml.library).map(|path| path.display().to_string()),
        "cuda_driver": device::driver_version().ok(),
    })
}

/// Variables whose values show how a job is started and how the GPU is shared. Other variables with
/// these prefixes are listed by name only, as their values may be anything (`NVIDIA_API_KEY`); all
/// others are only counted.
const TOLD: [&str; 47] = [
    "CUDA_CACHE_DISABLE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_DATA_LOADING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES",
    "LD_PRELOAD",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_PRODUCT_NAME",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_VISIBLE_DEVICES",
    "NVTX_INJECTION64_PATH",
    "PILLION_AUTOSTART",
    "PILLION_CLASS",
    "PILLION_COMPUTE",
    "PILLION_DISABLE",
    "PILLION_DRAIN_MS",
    "PILLION_DRIVER",
    "PILLION_GPU",
    "PILLION_JOB",
    "PILLION_LOG",
    "PILLION_MEMORY",
    "PILLION_NO_DAEMON",
    "PILLION_PROFILE",
    "PILLION_RECORD",
    "PILLION_REQUIRE_DAEMON",
    "PILLION_RESTARTABLE",
    "PILLION_SHIM",
    "PILLION_SLO",
    "PILLION_SOCKET",
    "LD_LIBRARY_PATH",
    "PILLION_CUPTI",
    "PILLION_SPOOL",
];

fn is_near(name: &str) -> bool {
    let beginnings = ["PILLION_", "CUDA_", "NVIDIA_"];
    beginnings.iter().any(|prefix| name.starts_with(prefix))
}

/// Variables of [`TOLD`] whose values are paths, or lists of them.
const PATHS: [&str; 12] = [
    "CUDA_MPS_LOG_DIRECTORY",
    "CUDA_MPS_PIPE_DIRECTORY",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVTX_INJECTION64_PATH",
    "PILLION_CUPTI",
    "PILLION_DRIVER",
    "PILLION_PROFILE",
    "PILLION_RECORD",
    "PILLION_SHIM",
    "PILLION_SOCKET",
    "PILLION_SPOOL",
];
/// Variables whose values are not listed, but which a check quotes, also in parts.
const QUOTED: [&str; 2] = ["PILLION_REQUEST_RANGE", "PILLION_ITERATION_RANGE"];

fn texts(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (String, String)> {
    let text = |part: OsString| part.to_string_lossy().into_owned();
    all.map(move |(name, value)| (text(name), text(value)))
}

/// Values of variables listed by name only, which a check may quote in parts. Paths are scrubbed
/// anywhere; a version or a keyword of Pillion is no name.
fn untold(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let untold = texts(all).filter(|(name, _)| is_near(name) && !TOLD.contains(&&**name));
    let words = untold.flat_map(|(name, value)| {
        let is_version = value.chars().all(|c| c.is_ascii_digit() || c == '.');
        let (parts, is_name) = match QUOTED.contains(&&*name) {
            true => (
                value
                    .split(['/', ',', ':', '*', '?'])
                    .map(str::to_owned)
                    .collect(),
                true,
            ),
            false => (
                Vec::new(),
                !is_version && !value.starts_with('/') && !is_common(&value),
            ),
        };
        let whole = is_name.then_some(value);
        parts.into_iter().chain(whole).collect::<Vec<_>>()
    });
    words.filter(|word| word.chars().count() > 2).collect()
}

/// Whether a text identifies no user of the machine, and occurs in much that is kept.
fn is_common(text: &str) -> bool {
    const COMMON: [&str; 8] = [
        "all", "none", "lib", "lib64", "bin", "tmp", "pillion", "pilliond",
    ];
    const LIBRARIES: [&str; 3] = ["libpillion", "libcuda", "libnv"];
    let is_dots = text.chars().all(|c| c == '.');
    let is_library = LIBRARIES.iter().any(|name| text.starts_with(name)) && !text.contains('/');
    is_dots || is_library || COMMON.contains(&text) || WORDS.contains(&text)
}

/// The names to learn from a user's path. The scrubber finds an absolute path, but not its file
/// name.
fn parts_of(path: &str) -> Vec<String> {
    let trimmed = path.trim_start_matches("./").trim_end_matches('/');
    let name = Path::new(path).file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let parts = match path.starts_with('/') {
        true if kept_of(path).is_some() || !name.contains('.') => Vec::new(),
        true => vec![name],
        false => vec![path.to_owned(), trimmed.to_owned(), name],
    };
    let parts = parts.into_iter();
    parts
        .filter(|part| !part.is_empty() && !is_common(part))
        .collect()
}

/// The names to learn from a program: always also its file name.
fn program_of(path: &str) -> Vec<String> {
    let name = Path::new(path).file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let name = Some(name).filter(|name| !is_common(name));
    parts_of(path).into_iter().chain(name).collect()
}

fn paths(all: impl Iterator<Item = (OsString, OsString)>, configs: &[PathBuf]) -> Vec<String> {
    let values = texts(all).filter(|(name, _)| PATHS.contains(&&**name));
    let parts = values.flat_map(|(_, value)| {
        let parts = value.split([':', ',', ';', ' ', '=']).map(str::to_owned);
        parts.chain([value.clone()]).collect::<Vec<_>>()
    });
    let configs = configs
        .iter()
        .map(|path| path.to_string_lossy().into_owned());
    let parts: Vec<String> = parts.chain(configs).collect();
    parts.iter().flat_map(|path| parts_of(path)).collect()
}

fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Value {
    let (mut told, mut names, mut others) = (Map::new(), Vec::new(), 0_u64);
    for (name, value) in all {
        let name = name.to_string_lossy().into_owned();
        match TOLD.contains(&&*name) {
            // Always a job id, whatever it looks like.
            true if name == "PILLION_JOB" => {
                let job = json!({"job": value.to_string_lossy()});
                told.insert(name, job);
            }
            true => {
                told.insert(name, value.to_string_lossy().into());
            }
            false if is_near(&name) => names.push(name),
            false => others += 1,
        }
    }
    names.sort();
    json!({"variables": told, "set_without_value": names, "others": others})
}

/// Limits, control groups and devices of this process show the effects of a container.
fn machine() -> Value {
    let lines = |path: &str| {
        let text = head(Path::new(path)).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let devices = fs::read_dir("/dev").into_iter().flatten().flatten();
    let devices = devices.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut devices: Vec<String> = devices.filter(|name| name.starts_with("nvidia")).collect();
    devices.sort();
    let mut memory = lines("/proc/meminfo");
    memory.truncate(3);
    json!({
        "limits": lines("/proc/self/limits"),
        "cgroup": lines("/proc/self/cgroup"),
        "docker": Path::new("/.dockerenv").exists(),
        "podman": Path::new("/run/.containerenv").exists(),
        "kubernetes": Path::new("/var/run/secrets/kubernetes.io").exists(),
        "systemd": Path::new("/run/systemd/system").exists(),
        "devices": devices,
        "memory": memory,
        "processors": thread::available_parallelism().map_or(0, usize::from),
    })
}

fn mps() -> Value {
    let mps = Mps::look();
    json!({"pipes": mps.folder.display().to_string(), "control_pid": mps.pid, "state": mps.state()})
}

/// Names of this machine and of its users: in its user list, the environment, and of GPU users.
fn names(uids: &BTreeSet<u32>, options: &Options) -> Names {
    let mut names = Names {
        words: untold(std::env::vars_os()),
        paths: paths(std::env::vars_os(), &options.config),
        programs: options
            .program
            .iter()
            .flat_map(|path| program_of(&path.to_string_lossy()))
            .collect(),
        ..Names::default()
    };
    let read = |path: &str| head(Path::new(path)).unwrap_or_default();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    for host in [
        read("/proc/sys/kernel/hostname"),
        read("/etc/hostname"),
        variable("HOSTNAME"),
    ] {
        let host = host.trim();
        let short = host.split('.').next().unwrap_or_default();
        names.hosts.extend([host, short].map(str::to_owned));
    }
    names
        .hosts
        .retain(|host| !host.is_empty() && host != "localhost");
    let mut entries: Vec<(u32, String)> = read("/etc/passwd").lines().flat_map(user_of).collect();
    for uid in uids
        .iter()
        .filter(|&&uid| uid >= FIRST_USER && uid != NOBODY)
    {
        if entries.iter().all(|(known, _)| known != uid) {
            // A directory service on another machine may know the user.
            let entry = answer_of(&["getent", "passwd", &uid.to_string()]);
            entries.extend(entry.unwrap_or_default().lines().flat_map(user_of));
        }
    }
    let own = rustix::process::geteuid().as_raw();
    let home = variable("HOME");
    let home = Path::new(&home).file_name().unwrap_or_default();
    for name in [
        variable("USER"),
        variable("LOGNAME"),
        home.to_string_lossy().into_owned(),
    ] {
        entries.push((own, name));
    }
    for (uid, name) in entries
        .into_iter()
        .filter(|(_, name)| !name.is_empty() && name != "root")
    {
        // Other names with root's uid are names of people, too.
        names
            .users
            .push((if uid == 0 { u32::MAX } else { uid }, name));
    }
    names
}

/// The login name and the full name of a person in a user list (passwd(5)).
fn user_of(line: &str) -> Vec<(u32, String)> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, _, full, ..] = fields[..] else {
        return Vec::new();
    };
    match uid.parse() {
        Ok(uid) if (FIRST_USER..u32::MAX).contains(&uid) && uid != NOBODY => {
            let full = full.split(',').next().unwrap_or_default();
            vec![(uid, name.to_owned()), (uid, full.to_owned())]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_variables_that_may_hold_anything_no_value_is_taken() {
        let all = [
            ("PILLION_CLASS", "best-effort"),
            ("PILLION_JOB", "train"),
            ("NVIDIA_API_KEY", "secret-1"),
            ("PILLION_REQUEST_RANGE", "secret-2/x"),
            ("AWS_SECRET_ACCESS_KEY", "secret-3"),
            ("HOME", "/users/secret-4"),
        ];
        let all = all.map(|(name, value)| (name.into(), value.into()));
        let found = variables(all.into_iter());
        assert_eq!(
            found,
            json!({
                "variables": {"PILLION_CLASS": "best-effort", "PILLION_JOB": {"job": "train"}},
                "set_without_value": ["NVIDIA_API_KEY", "PILLION_REQUEST_RANGE"],
                "others": 2,
            })
        );
    }

    #[test]
    fn what_a_check_may_quote_of_them_is_a_name_in_parts_too() {
        let all = [
            ("PILLION_REQUEST_RANGE", "domain/fwd*"),
            ("PILLION_CLASS", "best-effort"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("NVIDIA_API_KEY", "nvapi/key"),
            ("CUDA_HOME", "/usr/local/cuda"),
            ("CUDA_DRIVER_VERSION", "550.54.15"),
            ("NVIDIA_FEATURES", "all"),
        ];
        let all = all.map(|(name, value)| (name.into(), value.into()));
        let expected = ["domain", "fwd", "domain/fwd*", "nvapi/key"];
        assert_eq!(untold(all.into_iter()), expected);
    }

    #[test]
    fn relative_paths_are_names_and_so_are_names_of_files() {
        let all = [
            ("PILLION_PROFILE", "apollo/resnet.toml"),
            ("LD_PRELOAD", "/data/acme.so:/usr/lib/libm.so:./gemini.so"),
            (
                "LD_LIBRARY_PATH",
                "/usr/local/cuda/lib64:/data/lib:mercury/lib",
            ),
            ("PILLION_SHIM", "off"),
        ];
        let all = all.map(|(name, value)| (name.into(), value.into()));
        let configs = [
            PathBuf::from("vostok.toml"),
            PathBuf::from("/etc/pillion/a.toml"),
        ];
        let names = Names {
            paths: paths(all.into_iter(), &configs),
            programs: program_of("./train_apollo"),
            ..Names::default()
        };
        let mut scrubber = Scrubber::default();
        names.teach(&mut scrubber);
        let said = "apollo/resnet.toml, resnet.toml acme.so libm.so ./gemini.so: gemini.so \
                    mercury/lib off ./train_apollo train_apollo vostok.toml /etc/pillion/a.toml \
                    /usr/local/cuda/lib64";
        let made = scrubber.text(said, &mut Default::default());
        for name in ["apollo", "resnet", "acme", "gemini", "mercury", "vostok"] {
            assert!(!made.contains(name), "{name} in {made}");
        }
        let stays = [
            "libm.so",
            " off ",
            "/etc/pillion/a.toml /usr/local/cuda/lib64",
        ];
        for word in stays {
            assert!(made.contains(word), "{word} is not in {made}");
        }
    }

    #[test]
    fn people_are_in_the_list_of_users_with_both_their_names() {
        let alice = user_of("alice:x:1000:1000:Alice Example,,,:/users/alice:/bin/bash");
        assert_eq!(
            alice,
            [
                (1000, "alice".to_owned()),
                (1000, "Alice Example".to_owned())
            ]
        );
        assert!(user_of("daemon:x:1:1:daemon:/usr/sbin:/bin/false").is_empty());
        assert!(user_of("nobody:x:65534:65534:nobody:/:/bin/false").is_empty());
        assert!(user_of("broken").is_empty());
    }
}

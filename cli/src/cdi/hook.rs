//! The hook of the CDI file: checks a container's image before the container starts. A runtime runs
//! it (`createContainer` of the OCI runtime specification) in the container's mount namespace,
//! after all mounts and before the root changes from the host's. If the image's C library cannot
//! load the preload library, no program of the image would start. The hook then unmounts the
//! library, and `LD_PRELOAD` names an empty file: musl ignores that silently, glibc with a message.
//! The container starts whatever the hook finds, and the daemon reports its processes as unmanaged.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::chroot;
use serde_json::Value;

use super::LIBRARY;
use crate::artifacts;
use crate::out;
use crate::program::{located, why_not_loadable};

/// Limit on the size of state and configuration, bytes.
const BYTES_MAX: u64 = 16 << 20;
/// Limit on a logged text, characters.
const CHARS_MAX: usize = 1024;
/// Limit on the examined arguments of the entry point: launchers come first (`docker run --init`).
const ARGUMENTS_MAX: usize = 16;
/// Syslog priority: a warning (4) of a daemon (3).
const WARNING: u32 = 3 << 3 | 4;
/// The path of a container that states none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Reports to the host's log: runtimes do not forward a hook's standard error.
pub(super) fn run() {
    let log = UnixDatagram::unbound();
    let log = log.and_then(|log| log.connect("/dev/log").map(|()| log));
    // A log that accepts nothing must not keep the container from starting.
    let log = log.and_then(|log| log.set_nonblocking(true).map(|()| log));
    let said = match look() {
        Ok(None) => return,
        Ok(Some(said)) => said,
        Err(error) => format!("cannot check a container: {error:#}"),
    };
    // The image controls part of this text.
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let said: String = said.chars().take(CHARS_MAX).map(shown).collect();
    out::note(format_args!("pillion: {said}"));
    if let Ok(log) = log {
        // There is nowhere to report that logging failed.
        let _ = log.send(format!("<{WARNING}>pillion: {said}").as_bytes());
    }
}

/// Why the container's programs will run without Pillion, if they will.
fn look() -> anyhow::Result<Option<String>> {
    let mut state = String::new();
    let input = std::io::stdin().lock();
    input.take(BYTES_MAX).read_to_string(&mut state)?;
    let state: Value =
        serde_json::from_str(&state).context("cannot parse the state of the container")?;
    let id = state["id"].as_str().unwrap_or("?");
    let bundle = state["bundle"]
        .as_str()
        .context("the state of the container has no bundle")?;
    let bundle = Path::new(bundle);
    let config = bundle.join("config.json");
    let text = std::fs::read_to_string(&config);
    let text = text.with_context(|| config.display().to_string())?;
    let config: Value =
        serde_json::from_str(&text).context("cannot parse the config.json of the container")?;
    // Compare with the mounted file, wherever links lead, so that nothing else is unmounted.
    let ours = artifacts::find(artifacts::LIBRARY)?.metadata()?;
    let root = config["root"]["path"].as_str().unwrap_or("rootfs");
    chroot(bundle.join(root)).context("cannot enter the root of the container")?;
    std::env::set_current_dir("/")?;
    let library = Path::new(LIBRARY);
    let programs = programs(&config);
    let unloadable = programs
        .iter()
        .find_map(|program| why_not_loadable(program, library));
    let Some(unloadable) = unloadable else {
        let why = preloads_something_else(&config);
        return Ok(why.map(|why| format!("container {id} runs without Pillion: {why}")));
    };
    let (why, mend) = (unloadable.why, unloadable.mend);
    let there = library.symlink_metadata()?;
    ensure!(
        (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        "container {id}: {why}; {LIBRARY} in the container is not the host's file, so it stays, and programs may fail to start; {mend}"
    );
    unmount(LIBRARY, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .with_context(|| format!("container {id}: {why}, and {LIBRARY} cannot be unmounted"))?;
    Ok(Some(format!(
        "container {id} runs without Pillion: {why}; {mend}"
    )))
}

fn variable<'c>(config: &'c Value, name: &str) -> Option<&'c str> {
    let all = config["process"]["env"].as_array()?;
    let all = all.iter().filter_map(Value::as_str);
    // The last entry counts.
    all.rev()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

fn preloads_something_else(config: &Value) -> Option<String> {
    let preload = variable(config, "LD_PRELOAD").unwrap_or("");
    let has_ours = preload.split([':', ' ']).any(|path| path == LIBRARY);
    (!has_ours).then(|| {
        format!("its LD_PRELOAD is {preload:?} and must contain {LIBRARY} (docs/containers.md, ld.so.preload)")
    })
}

/// Programs that the container may start: its entry point, any among the arguments, and the shell.
fn programs(config: &Value) -> Vec<PathBuf> {
    let arguments = config["process"]["args"].as_array().into_iter().flatten();
    let names = arguments.filter_map(Value::as_str).take(ARGUMENTS_MAX);
    let names = names.chain(["/bin/sh"]);
    names.filter_map(|name| found(config, name)).collect()
}

fn found(config: &Value, name: &str) -> Option<PathBuf> {
    let folder = Path::new(config["process"]["cwd"].as_str().unwrap_or("/"));
    if name.contains('/') {
        return located(&folder.join(name));
    }
    let path = variable(config, "PATH").unwrap_or(PATH);
    let mut places = path.split(':').map(|place| folder.join(place).join(name));
    places.find_map(|place| located(&place))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(env: &[&str]) -> Value {
        json!({ "process": { "env": env, "args": ["true"], "cwd": "/srv" } })
    }

    #[test]
    fn a_container_whose_environment_names_another_library_is_said_to() {
        let ours = format!("LD_PRELOAD={LIBRARY}");
        let both = format!("LD_PRELOAD=/x.so:{LIBRARY}");
        for env in [&*ours, &both] {
            assert_eq!(preloads_something_else(&config(&[env])), None, "{env}");
        }
        let other = preloads_something_else(&config(&[&ours, "LD_PRELOAD=/x.so"]));
        assert!(other.is_some_and(|why| why.contains("\"/x.so\"")));
        assert!(preloads_something_else(&config(&[])).is_some());
    }

    #[test]
    fn programs_are_found_as_the_runtime_finds_them_and_behind_an_init() {
        let found = |args: &[&str]| {
            let mut config = config(&["PATH=/nowhere:/bin"]);
            config["process"]["args"] = json!(args);
            programs(&config)
        };
        assert_eq!(
            found(&["true"]),
            [Path::new("/bin/true"), Path::new("/bin/sh")]
        );
        let behind = found(&["/sbin/no-init", "--", "true", "no-program"]);
        assert_eq!(behind, [Path::new("/bin/true"), Path::new("/bin/sh")]);
        let mut relative = config(&[]);
        relative["process"]["cwd"] = "/bin".into();
        relative["process"]["args"][0] = "./true".into();
        assert_eq!(programs(&relative)[0], Path::new("/bin/./true"));
    }
}

//! `pillion cdi`: gives containers the library and the daemons' sockets, by a file of the Container
//! Device Interface (CDI). It names two devices, one per class. A container that requests one gets
//! the preload library, the folder of the sockets, and the variables that make its programs jobs. A
//! hook checks the image before the container starts.

mod hook;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use protocol::hello::{JobClass, SYSTEM_FOLDER, own_socket_folder};
use serde_json::{Value, json};

use crate::artifacts;
use crate::failure::Failure;
use crate::out;
use crate::profile::output;

/// Gives containers access to Pillion, by the Container Device Interface (CDI).
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Generate(Options),
    /// Checks a container before it starts (run by container runtimes; reads the container's
    /// state).
    #[command(hide = true, after_help = "Example: pillion cdi hook <state.json")]
    Hook,
}

/// Writes the file by which container runtimes give containers the library and the sockets.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion cdi generate -o /etc/cdi/pillion.json\n         \
                  podman run --device nvidia.com/gpu=0 --device pillion/job=best-effort IMAGE\n\n\
                  docs/containers.md covers Docker, Kubernetes, SELinux, and images that cannot load the library."
)]
pub(crate) struct Options {
    /// The file to write; `-` is standard output (default).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The CDI kind: vendor before the slash, class after it.
const KIND: &str = "pillion/job";
/// An early version of CDI: the file uses nothing that was added later.
const CDI_VERSION: &str = "0.3.0";
/// The library's path in a container.
const LIBRARY: &str = "/usr/lib/pillion/libpillion.so";
/// The runtime's timeout for the hook, s.
const HOOK_S: u32 = 10;

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Generate(options) => generate(options),
        Command::Hook => {
            hook::run();
            Ok(())
        }
    }
}

fn generate(options: &Options) -> Result<(), Failure> {
    let library = artifacts::find(artifacts::LIBRARY)?;
    let program = std::env::current_exe()?;
    let sockets = own_socket_folder();
    let document = document(&library, &program, &sockets);
    if let Some(folder) = options.output.as_deref().and_then(Path::parent) {
        // Runtimes do not create it. If creation fails, writing the file reports the error.
        let _ = std::fs::create_dir_all(folder);
    }
    output::write(&format!("{document:#}\n"), options.output.as_deref())?;
    if !sockets.is_dir() {
        let sockets = sockets.display();
        out::note(format_args!(
            "pillion: {sockets} does not exist: containers with these devices cannot start before a daemon has created it"
        ));
    }
    Ok(())
}

/// Everything is stated per device: not every schema of CDI knows edits of the whole file.
fn document(library: &Path, program: &Path, sockets: &Path) -> Value {
    let devices = JobClass::NAMES.map(|class| {
        json!({
            "name": class,
            "containerEdits": {
                "env": [format!("LD_PRELOAD={LIBRARY}"), format!("PILLION_CLASS={class}")],
                "mounts": [
                    mount(library, LIBRARY),
                    // Root's daemons are found there; also a user's, in a container of that user's.
                    mount(sockets, SYSTEM_FOLDER),
                ],
                "hooks": [{
                    "hookName": "createContainer",
                    "path": program,
                    "args": ["pillion", "cdi", "hook"],
                    // Otherwise the hook inherits the container's environment, with LD_PRELOAD.
                    "env": ["PATH=/usr/bin:/bin"],
                    "timeout": HOOK_S,
                }],
            },
        })
    });
    json!({ "cdiVersion": CDI_VERSION, "kind": KIND, "devices": devices })
}

/// Read-only: connecting to a socket needs no write access to its mount.
fn mount(from: &Path, to: &str) -> Value {
    json!({
        "hostPath": from,
        "containerPath": to,
        "options": ["ro", "nosuid", "nodev", "rbind"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_a_device_and_all_have_library_sockets_and_hook() {
        let at = |path: &'static str| Path::new(path);
        let document = document(at("/l/libpillion.so"), at("/b/pillion"), at("/run/pillion"));
        let devices = document["devices"].as_array().unwrap();
        let named: Vec<_> = devices.iter().map(|device| &device["name"]).collect();
        assert_eq!(named, ["high-priority", "best-effort"]);
        for device in devices {
            let edits = &device["containerEdits"];
            let class = device["name"].as_str().unwrap();
            let place = edits["mounts"][0]["containerPath"].as_str().unwrap();
            let env = [
                format!("LD_PRELOAD={place}"),
                format!("PILLION_CLASS={class}"),
            ];
            assert_eq!(edits["env"], json!(env));
            assert_eq!(edits["mounts"][0]["hostPath"], "/l/libpillion.so");
            assert_eq!(edits["mounts"][1]["containerPath"], "/run/pillion");
            assert_eq!(edits["hooks"][0]["path"], "/b/pillion");
            let env = edits["hooks"][0]["env"].to_string();
            assert!(!env.contains("LD_PRELOAD"), "{env}");
        }
    }
}

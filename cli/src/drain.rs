//! `pillion drain`: a GPU accepts no more work, and can be released for a reset.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use protocol::clock::Clock;
use protocol::hello::{Request, ask_status_within};
use scheduler::config::gpu::{self, Gpu, Select};
use serde_json::Value;

use crate::daemons::{self, PATIENCE};
use crate::failure::Failure;
use crate::out;
use crate::run;
use crate::status::for_faults;

/// Drains a GPU until `pillion resume`: holds best-effort jobs and warns of new high-priority
/// jobs.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion drain --gpu 0000:01:00.0 --release\n\n\
                  Work in flight completes, and running high-priority jobs continue; `pillion run --require-daemon` starts no new \
                  high-priority job. The GPU stays drained until root or the daemon's user runs `pillion resume`, even if the daemon is \
                  restarted.\n\n\
                  With --release the daemon closes the device, so that the GPU can be reset, and lists its clients that still have the \
                  device open: end these first (`pillion stop`). docs/faults.md describes the whole procedure. Exit 0 on success.")]
pub(crate) struct Options {
    /// The GPU: index, UUID or UUID prefix, or PCI bus id (default: all GPUs that have a daemon).
    /// An index is looked up in the driver, which needs a working GPU; the others are not.
    #[arg(long, value_name = "G")]
    gpu: Option<String>,
    /// Also close NVML, which has the device open.
    #[arg(long)]
    release: bool,
}

/// Timeout for the daemon to close the device, ns.
const RELEASE_NS: u64 = 8_000_000_000;
/// Poll interval, ns.
const LOOK_NS: u64 = 50_000_000;

/// Exits 69 if no daemon answers; 1 if one refuses, does not answer or still has the device open.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let sockets = daemons::sockets();
    let sockets = match &options.gpu {
        Some(name) => vec![the_one(&sockets, name)?],
        None => sockets,
    };
    let request = Request::Drain {
        is_release: options.release,
    };
    let told = daemons::tell_each(&sockets, &request, PATIENCE);
    let done = told.done.clone();
    let mut troubles = told.troubles();
    told.into_result()?;
    // Each reports the remaining users of its GPU, even if a daemon has not closed its device.
    for socket in done.iter().filter(|_| options.release) {
        let released = say_released(socket);
        troubles.extend(released.err().map(|failure| failure.why()));
    }
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("{}", troubles.join("; ")).into()),
    }
}

/// The socket of the daemon whose GPU has this name.
pub(crate) fn the_one(sockets: &[PathBuf], name: &str) -> Result<PathBuf, Failure> {
    let mut silent = Vec::new();
    let mut found: Vec<(&PathBuf, Gpu)> = Vec::new();
    for socket in sockets {
        match named(socket) {
            Ok(gpu) => found.push((socket, gpu)),
            Err(error) => silent.push(format!("{}: {error}", socket.display())),
        }
    }
    if found.is_empty() {
        return Err(daemons::none_answers(&silent));
    }
    let gpus = found.iter().map(|(_, gpu)| gpu.clone()).collect();
    let gpu = match run::select_of(name) {
        // An index counts all GPUs of the machine, not those with a daemon.
        Select::Index(_) => run::select(name).map_err(Failure::usage)?,
        other => gpu::choose(gpus, &other).map_err(Failure::usage)?,
    };
    let mut found = found.into_iter();
    let socket = found.find(|(_, of)| of.uuid == gpu.uuid);
    let socket = socket.map(|(socket, _)| socket.clone());
    socket.ok_or_else(|| Failure::unavailable(anyhow!("no daemon answers for GPU {}", gpu.uuid)))
}

#[derive(serde::Deserialize)]
struct Named {
    uuid: String,
    name: String,
    pci: String,
}

impl From<Named> for Gpu {
    fn from(named: Named) -> Self {
        Self {
            uuid: named.uuid,
            name: named.name,
            pci: named.pci.parse().unwrap_or_default(),
            sms: 0,
            memory_bytes: 0,
            cuda_driver: 0,
            block_priority: None,
        }
    }
}

fn named(socket: &Path) -> anyhow::Result<Gpu> {
    let gpu = ask(socket)?["gpu"].take();
    Ok(serde_json::from_value::<Named>(gpu)?.into())
}

fn ask(socket: &Path) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&ask_status_within(socket, PATIENCE)?)?)
}

/// Waits until a daemon has closed its device, and reports the clients that still have it open.
fn say_released(socket: &Path) -> Result<(), Failure> {
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns() + RELEASE_NS;
    let status = loop {
        let status = ask(socket).map_err(Failure::unavailable)?;
        let is_closed = status["gpu"]["released"]["open"] == 0;
        if is_closed || clock.now_ns() >= end_ns {
            break status;
        }
        clock.sleep_until(clock.now_ns() + LOOK_NS);
    };
    for line in for_faults(&status).into_iter().chain(holders(&status)) {
        out::line(format_args!("{line}"))?;
    }
    let released = &status["gpu"]["released"];
    match released["open"].as_u64() {
        Some(0) => Ok(()),
        Some(_) => Err(anyhow!(
            "the driver does not answer, so the daemon still has the device open; `pillion status` shows when the device is closed. If that does \
             not happen, end the daemon (pid {}). A process that waits in the driver cannot be killed: then only a reboot helps",
            status["daemon"]["pid"]
        )
        .into()),
        None => Err(anyhow!("the GPU was resumed in the meantime (`pillion resume`)").into()),
    }
}

/// The daemon's clients, which also have the device open; a line each.
fn holders(status: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for job in status["jobs"].as_array().into_iter().flatten() {
        let id = job["job"].as_str().unwrap_or("N/A");
        for client in job["clients"].as_array().into_iter().flatten() {
            let text = format!(
                "pid {} {} of job {id} has the device open: end it with `pillion stop {id}`",
                client["pid"],
                client["name"].as_str().unwrap_or("N/A"),
            );
            let legible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
            lines.push(text.chars().map(legible).collect());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_client_is_named_with_what_ends_it() {
        let client = |pid: u32, name: &str| json!({"pid": pid, "name": name});
        let jobs = json!([
            {"job": "train", "clients": [client(7, "python"), client(8, "a\u{1b}b")]},
            {"job": "over", "clients": []},
        ]);
        assert_eq!(
            holders(&json!({ "jobs": jobs })),
            [
                "pid 7 python of job train has the device open: end it with `pillion stop train`",
                "pid 8 a\u{fffd}b of job train has the device open: end it with `pillion stop train`"
            ]
        );
    }
}

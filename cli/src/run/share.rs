//! The share of the SMs that a job is started with (`[share]` of a daemon's configuration, MPS). A
//! running process cannot change it, so it is queried before the job begins.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use protocol::clock::Clock;
use protocol::hello::{ask_status_within, connect_to, socket_paths};
use scheduler::config::gpu::Gpu;
use serde_json::Value;

use super::every_socket;
use crate::daemons::PATIENCE;
use crate::out;

/// MPS's variable for a process's share of the SMs, per cent. Without MPS the driver ignores it.
const SM_SHARE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// The share that `pillion run` itself has set, not the user: for a nested `pillion run`.
const OURS: &str = "PILLION_SM_SHARE";
const RESTARTABLE: &str = "PILLION_RESTARTABLE";

/// Gives a best-effort job the share that daemons report, unless the user gave it less; a
/// high-priority job keeps the user's. The share of an enclosing job counts for neither.
pub(super) fn take(
    command: &mut Command,
    gpu: Option<&Gpu>,
    is_best_effort: bool,
    is_restartable: bool,
) {
    let set = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let inherited = set(OURS);
    let given = set(SM_SHARE).filter(|given| inherited.as_ref() != Some(given));
    if inherited.is_some() {
        command.env_remove(OURS);
        if given.is_none() {
            command.env_remove(SM_SHARE);
        }
    }
    command.env_remove(RESTARTABLE);
    if !is_best_effort {
        return;
    }
    let shares = shares(gpu);
    // Which of several GPUs the job will use is unknown: the least share fits each.
    let percent = shares.iter().copied().min().unwrap_or(100);
    let less = given.filter(|given| {
        let given = given.trim().parse::<f64>();
        given.is_ok_and(|given| given <= percent as f64)
    });
    if less.is_none() && percent < 100 {
        command.env(SM_SHARE, percent.to_string());
        command.env(OURS, percent.to_string());
    }
    match (is_restartable, shares.len(), less) {
        (false, ..) => {}
        (true, _, Some(less)) => out::note(format_args!(
            "pillion: --restartable has no effect: {SM_SHARE}={less} already limits the job to its share or less"
        )),
        (true, 2.., None) => out::note(format_args!(
            "pillion: --restartable has no effect: several daemons have a share, and the GPU of the job is unknown; \
             name it with --gpu"
        )),
        (true, _, None) => _ = command.env(RESTARTABLE, percent.to_string()),
    }
}

/// The daemons' shares of the SMs, per cent: 100 if a daemon does not know its share yet, no entry
/// if it has none.
fn shares(gpu: Option<&Gpu>) -> Vec<u64> {
    let sockets = match (std::env::var_os("PILLION_SOCKET"), gpu) {
        (Some(path), _) => vec![PathBuf::from(path)],
        (None, Some(gpu)) => socket_paths(&gpu.uuid),
        (None, None) => every_socket(),
    };
    let clock = Clock::monotonic();
    let until_ns = clock.now_ns() + PATIENCE.as_nanos() as u64;
    let mut shares = Vec::new();
    for socket in sockets.iter().filter(|socket| connect_to(socket).is_ok()) {
        // One timeout for all daemons, but at least a little for each.
        let left = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
        let answer = ask_status_within(socket, left.max(Duration::from_millis(10)));
        match answer {
            Ok(json) => shares.extend(share(&json)),
            Err(error) => out::note(format_args!(
                "pillion: cannot ask the daemon at {} for the best-effort share of the SMs: {error}; the job starts without a limit from that daemon",
                socket.display()
            )),
        }
    }
    shares
}

fn share(json: &str) -> Option<u64> {
    let status: Value = serde_json::from_str(json).ok()?;
    let share = &status["policy"]["share"];
    let is_of_sms = share["of"] == "sms";
    // Not known yet: the job starts with all SMs.
    is_of_sms.then(|| share["percent"].as_u64().unwrap_or(100))
}

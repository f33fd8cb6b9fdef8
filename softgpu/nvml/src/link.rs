//! Requests to the device servers.

use std::path::{Path, PathBuf};

use protocol::hello::{connect_to, receive, send};
use rustix::time::{ClockId, clock_gettime};
use softgpu::wire::{DEVICES, Monitor, Reply, Request};

pub(crate) fn sockets() -> Result<Vec<PathBuf>, String> {
    let sockets = std::env::var_os("SOFTGPU_SOCKET").unwrap_or_default();
    let paths: Vec<PathBuf> = std::env::split_paths(&sockets)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    match paths.len() {
        0 => Err("SOFTGPU_SOCKET is not set: expected the socket of a softgpu-server".to_owned()),
        1..=DEVICES => Ok(paths),
        _ => Err(format!("SOFTGPU_SOCKET names more than {DEVICES} devices")),
    }
}

/// The present state, as a server reports it.
pub(crate) fn ask(path: &Path) -> Result<Monitor, String> {
    let failed = |error: String| format!("SOFTGPU_SOCKET={}: {error}", path.display());
    let told = || {
        let socket = connect_to(path)?;
        send(&socket, &Request::Monitor.encode(), &[])?;
        receive(&socket)
    };
    let (packet, _) = told().map_err(|error: std::io::Error| failed(error.to_string()))?;
    match Reply::decode(&packet) {
        Ok(Reply::Monitor(monitor)) => Ok(monitor),
        Ok(_) => Err(failed(
            "the server sent a reply of the wrong kind".to_owned(),
        )),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Microseconds of the Unix epoch, with which NVML stamps samples. Nothing is measured with it.
pub(crate) fn unix_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let us = now.tv_sec.saturating_mul(1_000_000) + now.tv_nsec / 1000;
    us.try_into().unwrap_or(0)
}

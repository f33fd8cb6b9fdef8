//! Status of MPS, if the daemon manages it.

use serde::Serialize;

use crate::core::mps_supervisor::Seen;

/// MPS at this daemon's last poll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MpsStatus {
    /// `absent`, `starting`, `running`, `fault`, `restarting` or `given-up`.
    pub state: &'static str,
    /// Begin of the state, on the daemon's clock.
    pub since_ns: u64,
    /// The control daemon's process id; none: absent, or in another PID namespace.
    pub pid: Option<u32>,
    /// Process ids of its servers; none before the first client.
    pub servers: Vec<u32>,
    /// Restarts in the last hour.
    pub restarts: usize,
    /// This daemon starts and restarts it; else another one of the machine does.
    pub supervised_by_us: bool,
    /// What is wrong.
    pub why: Option<String>,
}

impl From<&Seen> for MpsStatus {
    fn from(seen: &Seen) -> Self {
        Self {
            state: seen.state,
            since_ns: seen.since_ns,
            pid: seen.pid,
            servers: seen.servers.clone(),
            restarts: seen.restarts,
            supervised_by_us: seen.is_ours,
            why: seen.why.clone(),
        }
    }
}

//! What the stand-in of MPS says to the device server, if that leaves MPS to it (`--mps-managed`).
//!
//! The *control daemon* is one connection for as long as it lives; over it the server says which
//! user has a client that waits ([`super::Reply::MpsWanted`]). Each *MPS server* is a process with
//! a connection of its own, of the user that the kernel names: it is ready when it is welcome, and
//! gone when the connection or the process ends.

use serde::{Deserialize, Serialize};

use super::WireError;

/// Clients that are told, at most.
pub const MPS_CLIENTS_MAX: usize = 1024;

/// What is asked for MPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpsRequest {
    /// First message of the control daemon. Refused if there is one.
    Control,
    /// From the control daemon: the MPS server that was wanted did not start, and it tries no more.
    NotStarted,
    /// First message of an MPS server, ready for the clients of its user. Refused if there is one.
    Server,
    /// Who uses which MPS server, in one packet; then the connection is closed.
    Clients,
    /// This MPS server is to take no more clients. Refused while it has one. Then the connection is
    /// closed.
    End {
        /// Its process.
        server: u32,
    },
}

/// A process that has a context in the care of an MPS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpsClient {
    /// The server's process.
    pub server: u32,
    /// The client's process.
    pub pid: u32,
}

/// An answer to [`MpsRequest::Clients`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpsClients {
    /// Whether a fault is waited out: nobody gets a context.
    pub is_in_fault: bool,
    /// By client.
    pub clients: Vec<MpsClient>,
}

impl MpsClients {
    /// Whether it is one that a server sends.
    pub(super) fn check(&self) -> Result<(), WireError> {
        let is_bounded = self.clients.len() <= MPS_CLIENTS_MAX;
        is_bounded.then_some(()).ok_or(WireError::Unknown("count"))
    }
}

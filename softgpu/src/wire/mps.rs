//! Messages between the stand-in MPS and a device server that leaves MPS to it (`--mps-managed`).
//! The *control daemon* has one connection for its whole life. Over it, the server reports the
//! users of waiting clients ([`super::Reply::MpsWanted`]). Each *MPS server* is a process with a
//! connection of its own, of the user that the kernel reports: it is ready when it is welcomed, and
//! ends with the connection or the process.

use serde::{Deserialize, Serialize};

use super::WireError;

/// Most clients in a reply.
pub const MPS_CLIENTS_MAX: usize = 1024;

/// A request of the stand-in MPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpsRequest {
    /// First message of the control daemon. Refused if there is one.
    Control,
    /// From the control daemon: the wanted MPS server did not start; no further attempt.
    NotStarted,
    /// First message of an MPS server, ready for the clients of its user. Refused if there is one.
    Server,
    /// List the clients of each MPS server, in one packet, then close the connection.
    Clients,
    /// Close this MPS server to clients, then close the connection. Refused while it has one.
    End {
        /// Its pid.
        server: u32,
    },
}

/// A process with a context under an MPS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpsClient {
    /// The server's pid.
    pub server: u32,
    /// The client's pid.
    pub pid: u32,
}

/// An answer to [`MpsRequest::Clients`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpsClients {
    /// Whether MPS is waiting out a fault: no client gets a context.
    pub is_in_fault: bool,
    /// Sorted by client.
    pub clients: Vec<MpsClient>,
}

impl MpsClients {
    pub(super) fn check(&self) -> Result<(), WireError> {
        let is_bounded = self.clients.len() <= MPS_CLIENTS_MAX;
        is_bounded.then_some(()).ok_or(WireError::Unknown("count"))
    }
}

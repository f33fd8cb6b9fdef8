//! MPS managed by its stand-in (`--mps-managed`; `softgpu/mps`): contexts need their user's server.
//!
//! | there is | a new context of user U |
//! |---|---|
//! | no control daemon | 805, connection failed |
//! | a control daemon, no server | waits; the control daemon is notified that U wants one |
//! | a server of U | is assigned to it |
//! | a server of another user | waits for the end of that one, which the control daemon arranges |
//! | a server that takes no more clients | waits |
//! | clients of a server that is gone | 807, not ready ([`super::faults`]) |
//! | a control daemon that could start no server | 805, for the next request |
//!
//! There is one server at a time: NVIDIA's man page states it for servers of different users, and
//! one server serves all GPUs that its control daemon sees. If NVIDIA's driver finds no control
//! daemon the program continues without MPS (the same page). Here it does not: the device is
//! assumed to be one that only MPS may use (compute mode EXCLUSIVE_PROCESS, which NVIDIA's guide
//! recommends).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::hello::send;
use softgpu::wire::{MPS_CLIENTS_MAX, MpsClient, MpsClients, Reply};

use super::{ClientId, World};

/// CUDA_ERROR_MPS_CONNECTION_FAILED.
const MPS_CONNECTION_FAILED: u32 = 805;

#[derive(Debug, Default)]
pub(super) struct ManagedMps {
    control: Option<Arc<OwnedFd>>,
    server: Option<Server>,
    /// The user whose server the control daemon was asked for, until one is there.
    wanted: Option<u32>,
    /// No server could be started, and no client was notified yet.
    is_start_failed: bool,
}

#[derive(Debug)]
struct Server {
    pid: u32,
    uid: u32,
    is_ending: bool,
}

impl World {
    pub(crate) fn manage_mps(&mut self) {
        self.mps = Some(ManagedMps::default());
    }

    pub(crate) fn note_user(&mut self, id: ClientId, uid: Option<u32>) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.uid = uid;
        }
    }

    /// Registers a control daemon; refuses a second one, and any if MPS is not managed.
    pub(crate) fn try_add_mps_control(&mut self, socket: &Arc<OwnedFd>) -> bool {
        let Some(mps) = &mut self.mps else {
            return false;
        };
        let is_first = mps.control.is_none();
        if is_first {
            mps.control = Some(Arc::clone(socket));
        }
        is_first
    }

    pub(crate) fn remove_mps_control(&mut self) {
        if let Some(mps) = &mut self.mps {
            (mps.control, mps.wanted, mps.is_start_failed) = (None, None, false);
        }
    }

    pub(crate) fn handle_mps_not_started(&mut self) {
        if let Some(mps) = &mut self.mps {
            (mps.wanted, mps.is_start_failed) = (None, true);
        }
    }

    /// Registers an MPS server; one at a time.
    pub(crate) fn try_add_mps_server(&mut self, pid: u32, uid: u32) -> bool {
        let Some(mps) = self.mps.as_mut().filter(|mps| mps.server.is_none()) else {
            return false;
        };
        mps.server = Some(Server {
            pid,
            uid,
            is_ending: false,
        });
        (mps.wanted, mps.is_start_failed) = (None, false);
        self.end_mps_fault();
        true
    }

    pub(crate) fn remove_mps_server(&mut self, pid: u32) {
        self.step();
        let Some(mps) = &mut self.mps else { return };
        mps.server.take_if(|server| server.pid == pid);
        self.lose_mps_server(pid);
        self.ring_doorbell();
    }

    /// Closes an MPS server to clients; refused if it has some, or does not exist.
    pub(crate) fn try_end_mps_server(&mut self, pid: u32) -> bool {
        let has_clients = !self.clients_of(pid).is_empty();
        let server = self.mps.as_mut().and_then(|mps| mps.server.as_mut());
        let Some(server) = server.filter(|server| server.pid == pid && !has_clients) else {
            return false;
        };
        server.is_ending = true;
        true
    }

    pub(crate) fn mps_clients(&mut self) -> MpsClients {
        let server = self.mps.as_ref().and_then(|mps| mps.server.as_ref());
        let clients = server.map(|server| self.clients_of(server.pid));
        MpsClients {
            is_in_fault: self.is_mps_in_fault(),
            clients: clients.unwrap_or_default(),
        }
    }

    fn clients_of(&self, server: u32) -> Vec<MpsClient> {
        let clients = self.clients.values();
        let clients = clients.filter(|client| {
            client.mps_server == Some(server) && client.contexts.iter().any(Option::is_some)
        });
        let pids = clients.filter_map(|client| client.pid);
        let clients = pids.map(|pid| MpsClient { server, pid });
        clients.take(MPS_CLIENTS_MAX).collect()
    }

    /// Whether a new context of a client must wait for an MPS server. If not, it joins that server.
    pub(super) fn is_mps_awaited(&mut self, id: ClientId) -> Result<bool, u32> {
        let uid = self.client(id).uid;
        let Some(mps) = &mut self.mps else {
            return Ok(false);
        };
        let control = mps.control.as_ref().zip(uid);
        let (control, uid) = control.ok_or(MPS_CONNECTION_FAILED)?;
        if std::mem::take(&mut mps.is_start_failed) {
            return Err(MPS_CONNECTION_FAILED);
        }
        if let Some(server) = &mps.server
            && server.uid == uid
            && !server.is_ending
        {
            let pid = server.pid;
            self.client(id).mps_server = Some(pid);
            return Ok(false);
        }
        if mps.wanted.is_none() {
            // A daemon that does not receive it has ended, which the socket's end will show.
            let _ = send(&**control, &Reply::MpsWanted { uid }.encode(), &[]);
            mps.wanted = Some(uid);
        }
        Ok(true)
    }
}

//! The connection to the device server (`softgpu-server --mps-managed`), by the first socket that
//! `SOFTGPU_SOCKET` names.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use protocol::hello::{connect_within, receive, send};
use softgpu::wire::{Injection, MpsClients, MpsRequest, Reply, Request};

const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that begins with this request, if the server accepts it.
pub(crate) fn register(request: MpsRequest) -> io::Result<OwnedFd> {
    let (socket, reply) = ask(&Request::Mps(request))?;
    match reply {
        Reply::Done => Ok(socket),
        _ => Err(io::Error::other("the device server refused the request")),
    }
}

pub(crate) fn clients() -> io::Result<MpsClients> {
    match ask(&Request::Mps(MpsRequest::Clients))?.1 {
        Reply::MpsClients(clients) => Ok(clients),
        _ => Err(io::Error::other(
            "the device server sent a reply of the wrong kind",
        )),
    }
}

/// Closes a server to clients if it has none; returns whether it did.
pub(crate) fn try_end(server: u32) -> io::Result<bool> {
    let (_, reply) = ask(&Request::Mps(MpsRequest::End { server }))?;
    Ok(reply == Reply::Done)
}

pub(crate) fn terminate(pid: u32) -> io::Result<()> {
    ask(&Request::Inject(Injection::TerminateClient(pid))).map(drop)
}

fn ask(request: &Request) -> io::Result<(OwnedFd, Reply)> {
    let sockets = std::env::var_os("SOFTGPU_SOCKET").unwrap_or_default();
    let path: Option<PathBuf> = std::env::split_paths(&sockets).next();
    let path = path.ok_or_else(|| {
        io::Error::other("SOFTGPU_SOCKET is not set: expected the socket of a softgpu-server")
    })?;
    let socket = connect_within(&path, PATIENCE)?;
    send(&socket, &request.encode(), &[])?;
    let (packet, _) = receive(&socket)?;
    let reply = Reply::decode(&packet).map_err(io::Error::other)?;
    Ok((socket, reply))
}

pub(crate) fn tell(socket: &OwnedFd, request: MpsRequest) {
    let _ = send(socket, &Request::Mps(request).encode(), &[]);
}

/// The user whose client wants a server, from the next packet of the control daemon's connection.
/// Fails if the device server has ended, or sends anything unexpected.
pub(crate) fn wanted(socket: &OwnedFd) -> io::Result<u32> {
    let (packet, _) = receive(socket)?;
    match Reply::decode(&packet) {
        Ok(Reply::MpsWanted { uid }) => Ok(uid),
        _ => Err(io::Error::other(
            "the device server closed the connection or sent an unknown packet",
        )),
    }
}

//! What a command says to the daemons: to the one that `PILLION_SOCKET` names, else to each that this user's jobs may find.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use protocol::hello::{Reply, Request, ask_once};

use crate::failure::Failure;
use crate::run::every_socket;

/// Longest wait for a daemon's answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Says it to each.
///
/// # Errors
///
/// No daemon does it: the first reason that one gave, or, with exit status 69, that none answers.
pub(crate) fn tell(request: &Request) -> Result<(), Failure> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.map_or_else(every_socket, |path| vec![path]);
    let (mut done, mut reasons, mut silent) = (0_usize, Vec::new(), Vec::new());
    for socket in sockets {
        match ask_once(&socket, request, PATIENCE) {
            Ok(Reply::Done) => done += 1,
            Ok(Reply::Refused { reason }) => reasons.push(reason),
            Ok(_) => reasons.push(format!("{}: another answer", socket.display())),
            Err(error) => silent.push(format!("{}: {error}", socket.display())),
        }
    }
    match (done, reasons.first()) {
        (1.., _) => Ok(()),
        (0, Some(reason)) => Err(anyhow!("{reason}").into()),
        (0, None) if silent.is_empty() => {
            Err(Failure::unavailable(anyhow!("no daemon is running")))
        }
        (0, None) => Err(Failure::unavailable(anyhow!(
            "no daemon answers: {}",
            silent.join(", ")
        ))),
    }
}

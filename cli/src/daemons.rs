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
    tell_each(&sockets(), request, PATIENCE).into_result()
}

/// Where they listen.
pub(crate) fn sockets() -> Vec<PathBuf> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    named.map_or_else(every_socket, |path| vec![path])
}

/// What came of saying something to several.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Who has done it.
    pub(crate) done: Vec<PathBuf>,
    /// Who has not, and why.
    pub(crate) refused: Vec<(PathBuf, String)>,
    /// Who does not answer, in words.
    pub(crate) silent: Vec<String>,
}

/// Says it to each of these, which have so long to answer.
pub(crate) fn tell_each(sockets: &[PathBuf], request: &Request, patience: Duration) -> Told {
    let mut told = Told::default();
    for socket in sockets {
        match ask_once(socket, request, patience) {
            Ok(Reply::Done) => told.done.push(socket.clone()),
            Ok(Reply::Refused { reason }) => told.refused.push((socket.clone(), reason)),
            Ok(_) => {
                let reason = format!("{}: another answer", socket.display());
                told.refused.push((socket.clone(), reason));
            }
            Err(error) => told.silent.push(format!("{}: {error}", socket.display())),
        }
    }
    told
}

impl Told {
    /// What is wrong with those that have not done it: those that refuse, then those that do not answer.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let refused = self.refused.iter().map(|(_, reason)| reason.clone());
        let silent = self.silent.iter();
        let silent = silent.map(|error| format!("a daemon does not answer: {error}"));
        refused.chain(silent).collect()
    }

    /// Whether anybody has done it; see [`tell`].
    pub(crate) fn into_result(self) -> Result<(), Failure> {
        match (self.done.is_empty(), self.refused.first()) {
            (false, _) => Ok(()),
            (true, Some((_, reason))) => Err(anyhow!("{reason}").into()),
            (true, None) if self.silent.is_empty() => {
                Err(Failure::unavailable(anyhow!("no daemon is running")))
            }
            (true, None) => Err(Failure::unavailable(anyhow!(
                "no daemon answers: {}",
                self.silent.join(", ")
            ))),
        }
    }
}

//! What a command says to the daemons: to the one that `PILLION_SOCKET` names, else to each that this user's jobs may find.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use protocol::hello::{HelloError, Reply, Request, ask_once};

use crate::failure::Failure;
use crate::run::every_socket;

/// Longest wait for a daemon's answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Says it to each; which have done it.
///
/// # Errors
///
/// No daemon does it: the first reason that one gave, or, with exit status 69, that none answers.
pub(crate) fn tell(request: &Request) -> Result<Vec<PathBuf>, Failure> {
    let told = tell_each(&sockets(), request, PATIENCE);
    let done = told.done.clone();
    told.into_result().map(|()| done)
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
    /// Daemons that are there and do not answer, in words.
    pub(crate) silent: Vec<String>,
    /// Sockets at which nobody listens, in words: a daemon that was killed leaves its file behind.
    absent: Vec<String>,
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
            Err(error) => {
                let list = match is_absence(&error) {
                    true => &mut told.absent,
                    false => &mut told.silent,
                };
                list.push(format!("{}: {error}", socket.display()));
            }
        }
    }
    told
}

/// Whether nobody listens there.
fn is_absence(error: &HelloError) -> bool {
    let HelloError::Io(error) = error else {
        return false;
    };
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound
    )
}

impl Told {
    /// What is wrong with those that have not done it: those that refuse, then those that do not
    /// answer.
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
            (true, None) if self.silent.is_empty() && self.absent.is_empty() => {
                Err(Failure::unavailable(anyhow!("no daemon is running")))
            }
            (true, None) => Err(Failure::unavailable(anyhow!(
                "no daemon answers: {}",
                [self.silent, self.absent].concat().join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_at_which_nobody_listens_is_no_daemon_that_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left.sock");
        std::fs::write(&left, "").unwrap();
        let sockets = [left, folder.path().join("none.sock")];
        let told = tell_each(&sockets, &Request::Status, PATIENCE);
        assert!(told.troubles().is_empty(), "{told:?}");
        assert_eq!(told.absent.len(), 2, "{told:?}");
        let failure = told.into_result().unwrap_err();
        assert!(failure.why().contains("left.sock"), "{failure:?}");
    }
}

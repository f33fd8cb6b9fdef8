//! Sends requests to the daemon that `PILLION_SOCKET` names, else to each that this user may find.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use protocol::hello::{HelloError, Reply, Request, ask_with_version};
use protocol::{VERSION, Version};

use crate::failure::Failure;
use crate::run::every_socket;

/// Timeout for a daemon's answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// First minor versions in which daemons accept a job's latency target, its cap on the GPU's time,
/// and a best-effort job's promised share ([`protocol::VERSION`]).
const SLO_MINOR: u16 = 4;
const CAP_MINOR: u16 = 6;
const PROMISE_MINOR: u16 = 9;

/// Exit 69: no daemon answered, with the reason at each socket.
pub(crate) fn none_answers(why: &[String]) -> Failure {
    Failure::unavailable(match why.is_empty() {
        true => anyhow!("no daemon is running"),
        false => anyhow!("no daemon answers: {}", why.join(", ")),
    })
}

/// Returns the daemons that carried the request out. If there is none, the error is the first
/// refusal, or, with exit status 69, that none answers.
pub(crate) fn tell(request: &Request) -> Result<Vec<PathBuf>, Failure> {
    let told = tell_each(&sockets(), request, PATIENCE);
    let done = told.done.clone();
    told.into_result().map(|()| done)
}

pub(crate) fn sockets() -> Vec<PathBuf> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    named.map_or_else(every_socket, |path| vec![path])
}

#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) done: Vec<PathBuf>,
    pub(crate) refused: Vec<(PathBuf, String)>,
    /// Daemons that exist and do not answer, as messages.
    pub(crate) silent: Vec<String>,
    /// Sockets where nobody listens, as messages: a killed daemon leaves its file behind.
    absent: Vec<String>,
}

pub(crate) fn tell_each(sockets: &[PathBuf], request: &Request, patience: Duration) -> Told {
    let mut told = Told::default();
    for socket in sockets {
        let answer = ask_with_version(socket, request, patience);
        let answer = answer.map(|(reply, version)| match left_out(request, version) {
            None => reply,
            Some(what) => Reply::Refused {
                reason: older(socket, version, what, &reply),
            },
        });
        match answer {
            Ok(Reply::Done) => told.done.push(socket.clone()),
            Ok(Reply::Refused { reason }) => told.refused.push((socket.clone(), reason)),
            Ok(_) => {
                let reason = format!("{}: unexpected reply", socket.display());
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

/// The changes of a request that a daemon of `version` ignores, and the first minor version that
/// makes all of them.
fn left_out(request: &Request, version: Version) -> Option<(String, u16)> {
    let Request::Set(set) = request else {
        return None;
    };
    let changes = [
        (&set.slo, "target", SLO_MINOR),
        (&set.compute, "share of the GPU's time", CAP_MINOR),
        (&set.weight, "weight", PROMISE_MINOR),
        (&set.min_progress, "least share", PROMISE_MINOR),
    ];
    let ignored = changes
        .into_iter()
        .filter(|(value, _, minor)| !value.is_empty() && version.minor < *minor);
    let (names, minors): (Vec<&str>, Vec<u16>) =
        ignored.map(|(_, name, minor)| (name, minor)).unzip();
    let minor = minors.into_iter().max()?;
    Some((format!("changing a job's {}", names.join(", ")), minor))
}

/// Why a daemon that is too old does not carry the request out, whatever its reply.
fn older(socket: &Path, version: Version, (what, minor): (String, u16), reply: &Reply) -> String {
    let (path, major) = (socket.display(), VERSION.major);
    let rest = match reply {
        Reply::Done => "; the other changes are in force",
        _ => "",
    };
    format!(
        "{path}: this daemon is too old for {what}: it speaks protocol {version}, but {major}.{minor} is needed; \
         restart it with the pilliond of this version{rest}"
    )
}

/// Whether the error means that nobody listens there.
pub(crate) fn is_absence(error: &HelloError) -> bool {
    let HelloError::Io(error) = error else {
        return false;
    };
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound
    )
}

impl Told {
    /// The failures: refusals first, then daemons that do not answer.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let refused = self.refused.iter().map(|(_, reason)| reason.clone());
        let silent = self.silent.iter();
        let silent = silent.map(|error| format!("a daemon does not answer: {error}"));
        refused.chain(silent).collect()
    }

    pub(crate) fn into_result(self) -> Result<(), Failure> {
        match (self.done.is_empty(), self.refused.first()) {
            (false, _) => Ok(()),
            (true, Some((_, reason))) => Err(anyhow!("{reason}").into()),
            (true, None) => Err(none_answers(&[self.silent, self.absent].concat())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use protocol::hello::{Set, listen_at, receive, send};

    use super::*;

    fn told_by(minor: u16, reply: &Reply, request: &Request) -> Told {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pilliond.sock");
        let listener = listen_at(&path).unwrap();
        let mut packet = reply.encode();
        packet[6..8].copy_from_slice(&minor.to_le_bytes());
        let daemon = thread::spawn(move || {
            let asker = rustix::net::accept(&listener).unwrap();
            receive(&asker).unwrap();
            send(&asker, &packet, &[]).unwrap();
        });
        let told = tell_each(&[path], request, PATIENCE);
        daemon.join().unwrap();
        told
    }

    #[test]
    fn a_daemon_that_is_too_old_for_a_change_of_the_target_is_called_that() {
        let set = |memory: &str, slo: &str| {
            Request::Set(Set {
                job: "serve".into(),
                memory: memory.into(),
                slo: slo.into(),
                ..Set::default()
            })
        };
        let refused = Reply::Refused {
            reason: "the quota of memory is \"\"".into(),
        };
        let why = |told: Told| told.into_result().unwrap_err().why();
        let said = why(told_by(3, &refused, &set("", "2x")));
        assert!(said.contains("too old for changing a job's target"));
        assert!(said.contains("speaks protocol 3.3, but 3.4 is needed; restart it"));
        assert!(!said.contains("memory"), "{said}");
        // The daemon changed the memory and ignored the target.
        let said = why(told_by(3, &Reply::Done, &set("1GiB", "2x")));
        assert!(said.contains("too old"), "{said}");
        assert!(said.ends_with("; the other changes are in force"), "{said}");
        // It names all of them, and the version that makes all.
        let mut all = set("1GiB", "2x");
        if let Request::Set(set) = &mut all {
            (set.compute, set.weight) = ("50%".into(), "2".into());
        }
        let said = why(told_by(3, &Reply::Done, &all));
        let expected =
            "a job's target, share of the GPU's time, weight: it speaks protocol 3.3, but 3.9";
        assert!(said.contains(expected), "{said}");
        for (minor, request) in [(3, set("1GiB", "")), (4, set("", "2x"))] {
            assert_eq!(told_by(minor, &Reply::Done, &request).done.len(), 1);
            let told = told_by(minor, &refused, &request);
            assert_eq!(why(told), "the quota of memory is \"\"");
        }
    }

    #[test]
    fn a_daemon_that_is_too_old_for_a_promise_is_called_that() {
        let set = |weight: &str, min_progress: &str| {
            Request::Set(Set {
                job: "train".into(),
                weight: weight.into(),
                min_progress: min_progress.into(),
                ..Set::default()
            })
        };
        for (request, what) in [(set("3", ""), "weight"), (set("", "30%"), "least share")] {
            let said = told_by(8, &Reply::Done, &request).into_result();
            let said = said.unwrap_err().why();
            let expected = format!(
                "too old for changing a job's {what}: it speaks protocol 3.8, but 3.9 is needed"
            );
            assert!(said.contains(&expected), "{said}");
            assert_eq!(told_by(9, &Reply::Done, &request).done.len(), 1);
        }
    }

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

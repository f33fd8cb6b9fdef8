//! Faults that a software GPU is made to have: how they are asked for.
//!
//! A text, so that people can write it: `sticky 700`, `xid 31 train`, `ecc 5 1`, `stuck`, `unstuck`, `mps-fault`, `mps-fault gpu`,
//! `terminate-client 4711`. What each does is the server's affair; a *label* is that of a process in its statistics, and where it is
//! missing every process is meant.

use std::fmt;
use std::str::FromStr;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The contexts of processes of this label get nothing more done: every call answers this CUDA result.
    Sticky {
        /// The CUDA result.
        code: u32,
        /// Whose.
        label: Option<String>,
    },
    /// The driver reports this Xid, and contexts fail as NVIDIA's catalogue says of it.
    Xid {
        /// Its number.
        number: u32,
        /// Whose program caused it, of those that are some program's.
        label: Option<String>,
    },
    /// So many more errors in memory.
    Ecc {
        /// That were corrected.
        corrected: u64,
        /// That were not.
        uncorrected: u64,
    },
    /// Nothing completes any more, and the device is busy; or it goes on.
    Stuck(bool),
    /// MPS fails.
    MpsFault(MpsFault),
    /// MPS is asked to end the work of this process, as by `terminate_client`: no fault, but what is done before a kill.
    TerminateClient(u32),
}

/// What of MPS fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpsFault {
    /// The server dies.
    Server,
    /// A server does not start.
    Start,
    /// The server tells of a client's fatal fault.
    Gpu,
}

impl MpsFault {
    /// By the word that follows `mps-fault`.
    const WORDS: [(Self, &str); 3] = [
        (Self::Server, "server"),
        (Self::Start, "start"),
        (Self::Gpu, "gpu"),
    ];
}

/// What of a text is no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no such fault; faults are `sticky CODE [LABEL]`, `xid NUMBER [LABEL]`, `ecc CORRECTED UNCORRECTED`, `stuck`, `unstuck`, \
     `mps-fault [server|start|gpu]`, and beside them `terminate-client PID`"
)]
pub struct NoFault;

impl FromStr for Injection {
    type Err = NoFault;

    fn from_str(text: &str) -> Result<Self, NoFault> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let label = |label: &[&str]| label.first().map(|&label| label.to_owned());
        match &words[..] {
            ["sticky", code, of @ ..] if of.len() <= 1 => Ok(Self::Sticky {
                // A context without an error has 0.
                code: code.parse().ok().filter(|&code| code != 0).ok_or(NoFault)?,
                label: label(of),
            }),
            ["xid", number, of @ ..] if of.len() <= 1 => Ok(Self::Xid {
                number: number.parse().map_err(|_| NoFault)?,
                label: label(of),
            }),
            ["ecc", corrected, uncorrected] => Ok(Self::Ecc {
                corrected: corrected.parse().map_err(|_| NoFault)?,
                uncorrected: uncorrected.parse().map_err(|_| NoFault)?,
            }),
            ["stuck"] => Ok(Self::Stuck(true)),
            ["unstuck"] => Ok(Self::Stuck(false)),
            ["mps-fault"] => Ok(Self::MpsFault(MpsFault::Server)),
            ["mps-fault", what] => {
                let mut words = MpsFault::WORDS.iter();
                let found = words.find(|(_, word)| word == what);
                found
                    .map(|(fault, _)| Self::MpsFault(*fault))
                    .ok_or(NoFault)
            }
            ["terminate-client", pid] => {
                let pid = pid.parse().ok().filter(|&pid| pid != 0);
                pid.map(Self::TerminateClient).ok_or(NoFault)
            }
            _ => Err(NoFault),
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |label: &Option<String>| {
            label
                .as_ref()
                .map_or_else(String::new, |label| format!(" {label}"))
        };
        match self {
            Self::Sticky { code, label } => write!(f, "sticky {code}{}", of(label)),
            Self::Xid { number, label } => write!(f, "xid {number}{}", of(label)),
            Self::Ecc {
                corrected,
                uncorrected,
            } => write!(f, "ecc {corrected} {uncorrected}"),
            Self::Stuck(true) => f.write_str("stuck"),
            Self::Stuck(false) => f.write_str("unstuck"),
            Self::MpsFault(fault) => {
                let mut words = MpsFault::WORDS.iter();
                let word = words.find_map(|(known, word)| (known == fault).then_some(*word));
                write!(f, "mps-fault {}", word.unwrap_or_default())
            }
            Self::TerminateClient(pid) => write!(f, "terminate-client {pid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_what_it_is_written_as_and_nothing_else() {
        for text in [
            "sticky 700",
            "sticky 719 be",
            "xid 31 train",
            "xid 79",
            "ecc 5 1",
            "stuck",
            "unstuck",
            "mps-fault server",
            "mps-fault start",
            "mps-fault gpu",
            "terminate-client 4711",
        ] {
            assert_eq!(text.parse::<Injection>().unwrap().to_string(), text);
        }
        let shorter = "mps-fault".parse();
        assert_eq!(shorter, Ok(Injection::MpsFault(MpsFault::Server)));
        for text in [
            "",
            "sticky",
            "sticky 0",
            "sticky 700 a b",
            "xid -1",
            "ecc 1",
            "stuck now",
            "mps fault",
            "mps-fault client",
            "terminate-client",
            "terminate-client 0",
        ] {
            assert_eq!(text.parse::<Injection>(), Err(NoFault), "{text}");
        }
    }
}

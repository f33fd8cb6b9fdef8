//! Injected faults of a software GPU, and their text form: `sticky 700`, `xid 31 train`, `ecc 5 1`,
//! `stuck`, `unstuck`, `mps-fault`, `mps-fault gpu`, `terminate-client 4711`. The server implements
//! their effects. A *label* is that of a process in the server's statistics; without one, every
//! process is affected.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{TEXT_BYTES_MAX, WireError};

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Injection {
    /// Every further call in contexts of processes with this label fails with this CUDA result.
    Sticky {
        /// The CUDA result.
        code: u32,
        /// The label.
        label: Option<String>,
    },
    /// The driver reports this Xid, and contexts fail as NVIDIA's catalogue describes it.
    Xid {
        /// Its number.
        number: u32,
        /// Label of the program that caused it, for Xids that a program causes.
        label: Option<String>,
    },
    /// Adds memory errors.
    Ecc {
        /// Number of corrected errors.
        corrected: u64,
        /// Number of uncorrected errors.
        uncorrected: u64,
    },
    /// True: nothing completes any more, and the device is busy; false: it continues.
    Stuck(bool),
    /// MPS fails.
    MpsFault(MpsFault),
    /// MPS ends this process's work, as by `terminate_client`: no fault, but a step before a kill.
    TerminateClient(u32),
}

/// The part of MPS that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MpsFault {
    /// The server dies.
    Server,
    /// A server fails to start.
    Start,
    /// The server reports a client's fatal fault.
    Gpu,
}

/// The text is not a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown fault: faults are `sticky CODE [LABEL]`, `xid NUMBER [LABEL]`, `ecc CORRECTED UNCORRECTED`, `stuck`, `unstuck`, \
     `mps-fault [server|start|gpu]`; also accepted: `terminate-client PID`"
)]
pub struct NoFault;

impl Injection {
    pub(super) fn check(&self) -> Result<(), WireError> {
        let is_word = |label: &str| {
            let is_one = !label.is_empty() && !label.contains(char::is_whitespace);
            is_one && label.len() <= TEXT_BYTES_MAX
        };
        let is_one = match self {
            Self::Sticky { code: 0, .. } | Self::TerminateClient(0) => false,
            Self::Sticky { label, .. } | Self::Xid { label, .. } => {
                label.as_deref().is_none_or(is_word)
            }
            _ => true,
        };
        is_one.then_some(()).ok_or(WireError::Unknown("fault"))
    }
}

impl FromStr for Injection {
    type Err = NoFault;

    fn from_str(text: &str) -> Result<Self, NoFault> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let label = |label: &[&str]| label.first().map(|&label| label.to_owned());
        match &words[..] {
            ["sticky", code, of @ ..] if of.len() <= 1 => Ok(Self::Sticky {
                // 0 would mean a context without an error.
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
            ["mps-fault"] | ["mps-fault", "server"] => Ok(Self::MpsFault(MpsFault::Server)),
            ["mps-fault", "start"] => Ok(Self::MpsFault(MpsFault::Start)),
            ["mps-fault", "gpu"] => Ok(Self::MpsFault(MpsFault::Gpu)),
            ["terminate-client", pid] => {
                let pid = pid.parse().ok().filter(|&pid| pid != 0);
                pid.map(Self::TerminateClient).ok_or(NoFault)
            }
            _ => Err(NoFault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_what_it_is_written_as_and_nothing_else() {
        use Injection::{Ecc, Sticky, Stuck, TerminateClient, Xid};
        let owned = |label: &str| Some(label.to_owned()).filter(|label| !label.is_empty());
        let sticky = |code, label| Sticky {
            code,
            label: owned(label),
        };
        let xid = |number, label| Xid {
            number,
            label: owned(label),
        };
        let [corrected, uncorrected] = [5, 1];
        for (text, fault) in [
            ("sticky 700", sticky(700, "")),
            ("sticky 719 be", sticky(719, "be")),
            ("xid 31 train", xid(31, "train")),
            ("xid 79", xid(79, "")),
            (
                "ecc 5 1",
                Ecc {
                    corrected,
                    uncorrected,
                },
            ),
            ("stuck", Stuck(true)),
            ("unstuck", Stuck(false)),
            ("mps-fault", Injection::MpsFault(MpsFault::Server)),
            ("mps-fault server", Injection::MpsFault(MpsFault::Server)),
            ("mps-fault start", Injection::MpsFault(MpsFault::Start)),
            ("mps-fault gpu", Injection::MpsFault(MpsFault::Gpu)),
            ("terminate-client 4711", TerminateClient(4711)),
        ] {
            assert_eq!(text.parse(), Ok(fault), "{text}");
        }
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

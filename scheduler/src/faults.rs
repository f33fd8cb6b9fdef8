//! Faults: what breaks on a GPU, how it is recognised, and what is done about it.
//!
//! | fault | how it is seen |
//! |---|---|
//! | `sticky-error` | a client's word in its page: a CUDA result after which its context is lost ([`crate::state`]) |
//! | `xid` | NVML's events of the device |
//! | `ecc`, `ecc-corrected` | NVML's counters, and rows or pages that wait to be replaced |
//! | `mps-fault` | lines in the logs of MPS ([`mps`]) |
//! | `stuck` | the device is busy and nothing of any client moves ([`stuck`]) |
//!
//! Each is an event ([`crate::events`]); rules say what else is done ([`rules`]). [`watch`] is the thread that looks and does it;
//! [`act`] what takes time: running commands, and ending a job's processes ([`ending`]). No decision about launches waits for any of this.
//!
//! On the virtual clock only sticky errors are looked for: a second there is none of NVML's.

pub(crate) mod act;
mod asking;
pub(crate) mod ending;
mod meter;
pub mod mps;
pub mod rules;
pub(crate) mod stuck;
pub(crate) mod watch;

use std::fmt;

use abi::types::CUresult;
use protocol::hello::JobClass;

use crate::events::{Draft, Kind};
use crate::state::{JobKey, Sticky, Whose};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A client's context is lost.
    StickyError,
    /// The driver reports an Xid.
    Xid,
    /// Memory of the GPU was wrong and could not be corrected, or waits to be replaced.
    Ecc,
    /// Memory of the GPU was wrong and was corrected.
    EccCorrected,
    /// MPS's control daemon or server says that it failed.
    MpsFault,
    /// The GPU is busy and nothing completes.
    Stuck,
}

impl FaultKind {
    /// The words of the file, in the order of [`FaultKind::ALL`].
    pub const NAMES: [&'static str; 6] = [
        "sticky-error",
        "xid",
        "ecc",
        "ecc-corrected",
        "mps-fault",
        "stuck",
    ];
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::StickyError,
        Self::Xid,
        Self::Ecc,
        Self::EccCorrected,
        Self::MpsFault,
        Self::Stuck,
    ];

    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    const fn event(self) -> Kind {
        match self {
            Self::StickyError => Kind::StickyError,
            Self::Xid => Kind::Xid,
            Self::Ecc => Kind::Ecc,
            Self::EccCorrected => Kind::EccCorrected,
            Self::MpsFault => Kind::MpsFault,
            Self::Stuck => Kind::Stuck,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// A CUDA result, an Xid, a number of errors; none for the rest.
    pub(crate) code: Option<u64>,
    /// The job that it is about; none: the GPU.
    pub(crate) job: Option<JobKey>,
    pub(crate) pid: Option<u32>,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn of_gpu(kind: FaultKind, code: Option<u64>, text: String) -> Self {
        Self {
            kind,
            code,
            job: None,
            pid: None,
            text,
        }
    }

    pub(crate) fn of_sticky(sticky: Sticky) -> Self {
        let name = CUresult(sticky.code).name();
        let name = name.map_or_else(Default::default, |name| name.to_string_lossy());
        let text = format!(
            "job {:?}: {name} ({}): this process gets nothing more done on the GPU",
            sticky.key.id, sticky.code
        );
        Self {
            kind: FaultKind::StickyError,
            code: Some(sticky.code.into()),
            job: Some(sticky.key),
            pid: Some(sticky.pid),
            text,
        }
    }

    pub(crate) fn of_xid(xid: u64) -> Self {
        let text = match meaning_of_xid(xid) {
            Some(meaning) => format!("Xid {xid}: {meaning}"),
            None => format!("Xid {xid}"),
        };
        Self::of_gpu(FaultKind::Xid, Some(xid), text)
    }

    /// Whose best-effort jobs are held where a rule says so. Of a best-effort job's own fault that job; of a high-priority job's its user's
    /// best-effort jobs, because a job says by itself that it has a fault, and may say so to nobody else's cost; of the GPU's all.
    pub(crate) fn whose(&self) -> Whose<'_> {
        match &self.job {
            Some(key) if key.class == JobClass::BestEffort => Whose::Job(key),
            Some(key) => Whose::User(key.uid),
            None => Whose::Everybody,
        }
    }

    /// What happened, for everybody: without the name of a job, which only its user may know.
    pub(crate) fn text_for_all(&self) -> String {
        match (&self.job, self.code) {
            (None, _) => self.text.clone(),
            (Some(key), Some(code)) => {
                format!("{} {code} of a {} job", self.kind, key.class.name())
            }
            (Some(key), None) => format!("{} of a {} job", self.kind, key.class.name()),
        }
    }

    pub(crate) fn draft(&self) -> Draft {
        let draft = Draft::new(self.kind.event(), self.text.clone());
        let draft = draft.code(self.code).pid(self.pid.unwrap_or(0));
        match &self.job {
            Some(key) => draft.of_job(key),
            None => draft,
        }
    }
}

/// What an Xid means, in our words, after NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors); those that a rule or the
/// page on faults names.
pub(crate) fn meaning_of_xid(xid: u64) -> Option<&'static str> {
    Some(match xid {
        13 => "an exception in the graphics engine, as a rule a program's own mistake",
        31 => "a page fault in the GPU's memory, as a rule a program's own mistake",
        32 => "a corrupted push buffer",
        43 => "a program's channel was stopped by an error of its own",
        45 => "work was cleaned up after a program's end or an earlier error",
        48 => "an error in memory that could not be corrected (double-bit ECC)",
        61 | 62 => "the GPU's own firmware has halted",
        63 => "a row or page of memory was recorded to be replaced at the next reset",
        64 => "a row or page of memory could not be recorded to be replaced",
        74 => "an error of NVLink",
        79 => "the GPU has fallen off the bus",
        92 => "many corrected errors in memory",
        94 => "an error in memory that could not be corrected, contained to the programs it hit",
        95 => "an error in memory that could not be corrected and may have hit every program",
        119 | 120 => "the GPU's system processor (GSP) does not answer",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_is_told_of_a_jobs_fault_does_not_name_the_job() {
        let key = JobKey {
            id: "secret".to_owned(),
            uid: 1000,
            class: JobClass::HighPriority,
        };
        let fault = Fault::of_sticky(Sticky {
            key,
            pid: 7,
            code: 700,
        });
        assert!(fault.text.contains("secret"));
        assert_eq!(
            fault.text_for_all(),
            "sticky-error 700 of a high-priority job"
        );
        let xid = Fault::of_xid(79);
        assert_eq!(xid.text_for_all(), xid.text);
    }

    #[test]
    fn every_fault_has_its_name_once_and_an_event_of_that_name() {
        for (kind, name) in FaultKind::ALL.into_iter().zip(FaultKind::NAMES) {
            assert_eq!((kind.name(), kind.event().name()), (name, name));
        }
    }
}

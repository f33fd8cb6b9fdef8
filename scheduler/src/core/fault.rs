//! A fault: which job it belongs to, and its text for display.

use abi::types::CUresult;
use protocol::hello::JobClass;

use crate::config::fault_rules::FaultKind;
use crate::core::event::{Draft, Kind, Severity};
use crate::core::job_key::JobKey;
use crate::core::state::{Death, How, Sticky, Whose};

impl FaultKind {
    pub(crate) const fn is_of_job(self) -> bool {
        matches!(
            self,
            Self::StickyError | Self::DiedInFlight | Self::JobStuck
        )
    }

    const fn event(self) -> Kind {
        match self {
            Self::StickyError => Kind::StickyError,
            Self::DiedInFlight => Kind::DiedInFlight,
            Self::Xid => Kind::Xid,
            Self::Ecc => Kind::Ecc,
            Self::EccCorrected => Kind::EccCorrected,
            Self::MpsFault => Kind::MpsFault,
            Self::Stuck => Kind::Stuck,
            Self::JobStuck => Kind::JobStuck,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// A CUDA result, an Xid, a number of errors, or ns of work; none for other kinds.
    pub(crate) code: Option<u64>,
    pub(crate) job: Option<JobKey>,
    pub(crate) pid: Option<u32>,
    pub(crate) text: String,
    /// Set if it differs from the severity of the kind.
    pub(crate) severity: Option<Severity>,
    /// The process was already being ended: only the event follows.
    pub(crate) is_seen_to: bool,
}

impl Fault {
    pub(crate) fn of_gpu(kind: FaultKind, code: Option<u64>, text: String) -> Self {
        Self {
            kind,
            code,
            job: None,
            pid: None,
            text,
            severity: None,
            is_seen_to: false,
        }
    }

    pub(crate) fn of_sticky(sticky: Sticky) -> Self {
        let name = CUresult(sticky.code).name();
        let name = name.map_or_else(Default::default, |name| name.to_string_lossy());
        let text = format!(
            "job {:?}: {name} ({}): process {} can no longer use the GPU; restart the job",
            sticky.key.id, sticky.code, sticky.pid
        );
        Self {
            kind: FaultKind::StickyError,
            code: Some(sticky.code.into()),
            job: Some(sticky.key),
            pid: Some(sticky.pid),
            text,
            severity: None,
            is_seen_to: false,
        }
    }

    /// Under MPS the death may end other clients, unless MPS ended the work on this daemon's
    /// request. A process's own report of its end changes only the text.
    pub(crate) fn of_death(death: Death) -> Self {
        let how = match death.how {
            How::Spared => "this daemon was ending it",
            How::GaveUp => "deadline: its work did not complete within PILLION_DRAIN_MS",
            How::SeenTo => "`pillion stop` or a rule was ending it",
            How::Unasked => "it was killed, crashed or exited without detaching",
        };
        let (severity, what) = match (death.is_on_mps, death.how) {
            (false, _) => (Severity::Warning, "other processes are not affected"),
            (true, How::Spared) => (
                Severity::Warning,
                "MPS was asked before, and has ended that work",
            ),
            (true, How::SeenTo) => (
                Severity::Error,
                "whether MPS has ended that work is unknown here (see the output of `pillion \
                 stop`, or an event action-failed); if it has not, other clients of MPS may have \
                 failed and need a restart",
            ),
            (true, How::GaveUp | How::Unasked) => (
                Severity::Error,
                "under MPS other clients may have failed with it and need a restart",
            ),
        };
        let launches = match death.launches {
            None => "work".to_owned(),
            Some(1) => "1 launch".to_owned(),
            Some(count) => format!("{count} launches"),
        };
        let text = format!(
            "job {:?}: process {} died with {launches} in flight, as far as it had reported ({:.3} \
             ms of expected work, each unknown kernel counted as [policy] unknown_kernel_us): \
             {how}; {what}",
            death.key.id,
            death.pid,
            death.in_flight_ns as f64 / 1e6
        );
        Self {
            kind: FaultKind::DiedInFlight,
            code: Some(death.in_flight_ns),
            job: Some(death.key),
            pid: Some(death.pid),
            text,
            severity: Some(severity),
            is_seen_to: death.is_seen_to,
        }
    }

    pub(crate) fn of_stuck_job(key: JobKey, ns: u64) -> Self {
        let seconds = ns / 1_000_000_000;
        let text = format!(
            "job {:?}: none of its work in flight has completed for {seconds} s, while other jobs \
             make progress",
            key.id
        );
        Self {
            job: Some(key),
            ..Self::of_gpu(FaultKind::JobStuck, None, text)
        }
    }

    pub(crate) fn of_xid(xid: u64) -> Self {
        let text = match meaning_of_xid(xid) {
            Some(meaning) => format!("Xid {xid}: {meaning}"),
            None => format!("Xid {xid}"),
        };
        Self::of_gpu(FaultKind::Xid, Some(xid), text)
    }

    /// Whose best-effort jobs a rule holds. For a best-effort job's fault, that job. For a
    /// high-priority job's fault, its user's best-effort jobs: jobs report faults themselves, and a
    /// report must cost no other user. For the GPU's fault, all.
    pub(crate) fn whose(&self) -> Whose<'_> {
        match &self.job {
            Some(key) if key.class == JobClass::BestEffort => Whose::Job(key),
            Some(key) => Whose::User(key.uid),
            None => Whose::Everybody,
        }
    }

    /// The text for all users: without the job's name, which only its user may know.
    pub(crate) fn text_for_all(&self) -> String {
        match (&self.job, self.code) {
            (None, _) => self.text.clone(),
            (Some(key), _) if self.kind == FaultKind::DiedInFlight => {
                format!("{} of a {} job", self.kind, key.class.name())
            }
            (Some(key), Some(code)) => {
                format!("{} {code} of a {} job", self.kind, key.class.name())
            }
            (Some(key), None) => format!("{} of a {} job", self.kind, key.class.name()),
        }
    }

    pub(crate) fn draft(&self) -> Draft {
        let draft = Draft::new(self.kind.event(), self.text.clone());
        let draft = draft.code(self.code).pid(self.pid.unwrap_or(0));
        let draft = match self.severity {
            Some(severity) => draft.severity(severity),
            None => draft,
        };
        match &self.job {
            Some(key) => draft.of_job(key),
            None => draft,
        }
    }
}

/// Meaning of an Xid in our words, after NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors),
/// for those that a rule or the page on faults names.
pub(crate) fn meaning_of_xid(xid: u64) -> Option<&'static str> {
    Some(match xid {
        13 => "an exception in the graphics engine, usually an error of the program",
        31 => "a page fault in the GPU's memory, usually an error of the program",
        32 => "a corrupted push buffer",
        43 => "a program's channel was stopped by an error of the program",
        45 => "work was cleaned up after a program's end or an earlier error",
        48 => "an uncorrectable error in memory (double-bit ECC)",
        61 => "a breakpoint or warning of the GPU's internal microcontroller",
        62 => "the GPU's internal microcontroller has halted",
        63 => "a row or page of memory was marked for replacement at the next reset",
        64 => "a row or page of memory could not be marked for replacement",
        74 => "an error of NVLink",
        79 => "the GPU has fallen off the bus",
        92 => "many corrected errors in memory",
        94 => "an uncorrectable error in memory, contained to the programs it hit",
        95 => "an uncorrectable error in memory, which may have hit every program",
        119 => "the GPU's system processor (GSP) does not answer",
        120 => "an error of the GPU's system processor (GSP)",
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

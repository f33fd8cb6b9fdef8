//! `[faults]`: what is looked for, and what is done about a fault.

use std::fmt;

use profiler::settings::tables;
use serde::Deserialize;

use crate::config::faults::{RuleSection, stuck};

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A client's context is lost.
    StickyError,
    /// A client's process ended with work in flight.
    DiedInFlight,
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
    /// A best-effort job's work in flight does not complete, while others' does.
    JobStuck,
}

impl FaultKind {
    /// The words of the file, in the order of [`FaultKind::ALL`].
    pub const NAMES: [&'static str; 8] = [
        "sticky-error",
        "died-in-flight",
        "xid",
        "ecc",
        "ecc-corrected",
        "mps-fault",
        "stuck",
        "job-stuck",
    ];
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::StickyError,
        Self::DiedInFlight,
        Self::Xid,
        Self::Ecc,
        Self::EccCorrected,
        Self::MpsFault,
        Self::Stuck,
        Self::JobStuck,
    ];

    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `[faults]`: what is looked for, and the rules.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultRules {
    /// `stuck_s`: so long may a busy GPU complete nothing, ns; none: it is not looked for.
    #[serde(rename = "stuck_s", deserialize_with = "stuck")]
    pub stuck_ns: Option<u64>,
    /// `[[faults.rules]]`.
    #[serde(deserialize_with = "tables")]
    pub rules: Vec<FaultRule>,
}

/// `stuck_s` if it is not said. Kernels of minutes exist, and only events follow by default.
pub const STUCK_NS: u64 = 60_000_000_000;

impl Default for FaultRules {
    fn default() -> Self {
        Self {
            stuck_ns: Some(STUCK_NS),
            rules: Vec::new(),
        }
    }
}

impl FaultRules {
    /// Whether any rule restarts MPS.
    #[must_use]
    pub fn restarts_mps(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.action == Action::RestartMps)
    }
}

/// What follows from a fault.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "RuleSection")]
pub struct FaultRule {
    /// `fault`.
    pub fault: FaultKind,
    /// `codes`: CUDA results or Xids; empty: any.
    pub codes: Vec<u64>,
    /// `action`, with what belongs to it.
    pub action: Action,
    /// `per_hour`: how often at most.
    pub per_hour: u32,
}

/// `per_hour` if it is not said.
pub const PER_HOUR: u32 = 3;
/// `grace_s` if it is not said, ns.
pub const GRACE_NS: u64 = 10_000_000_000;

/// What can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing but the event.
    Report,
    /// Best-effort launches wait until an operator says otherwise: those of the job whose fault it
    /// is, if that is a best-effort job; of a high-priority job's fault those of all its user's;
    /// else all.
    HoldBe,
    /// The processes of the job whose fault it is are ended; whoever supervises it starts it anew.
    RestartJob {
        /// From SIGTERM until they are made to.
        grace_ns: u64,
    },
    /// MPS is told to quit and started again.
    RestartMps,
    /// No new high-priority job is taken, and best-effort launches wait.
    DrainGpu,
}

impl Action {
    /// The words of the file.
    pub const NAMES: [&'static str; 5] = [
        "report",
        "hold-be",
        "restart-job",
        "restart-mps",
        "drain-gpu",
    ];

    /// The word in the file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Report => Self::NAMES[0],
            Self::HoldBe => Self::NAMES[1],
            Self::RestartJob { .. } => Self::NAMES[2],
            Self::RestartMps => Self::NAMES[3],
            Self::DrainGpu => Self::NAMES[4],
        }
    }
}

/// Xids after which nothing that runs on the GPU can be trusted or goes on, until it is reset:
/// NVIDIA's catalogue has them under "reset GPU" or worse.
pub const XIDS_OF_A_BROKEN_GPU: [u64; 8] = [48, 61, 62, 64, 79, 95, 119, 120];

/// What is done where the file says nothing: a GPU that is broken takes no more work. All else is
/// said and no more, because a daemon that ends or holds jobs by itself can do more harm than the
/// fault.
#[must_use]
pub fn default_rules() -> Vec<FaultRule> {
    let rule = |fault, codes: &[u64], action| FaultRule {
        fault,
        codes: codes.to_vec(),
        action,
        per_hour: PER_HOUR,
    };
    let mut rules = vec![rule(
        FaultKind::Xid,
        &XIDS_OF_A_BROKEN_GPU,
        Action::DrainGpu,
    )];
    rules.extend(FaultKind::ALL.map(|kind| rule(kind, &[], Action::Report)));
    rules
}

//! `[faults]`: detection of faults, and reactions.

use std::fmt;

use profiler::settings::tables;
use serde::Deserialize;

use crate::config::faults::{RuleSection, stuck};

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A client's context is lost.
    StickyError,
    /// A client's process ended with work in flight.
    DiedInFlight,
    /// The driver reports an Xid.
    Xid,
    /// Uncorrectable errors of GPU memory, or memory that waits to be remapped.
    Ecc,
    /// Corrected errors of GPU memory.
    EccCorrected,
    /// MPS's control daemon or server reports a failure.
    MpsFault,
    /// The GPU is busy and nothing completes.
    Stuck,
    /// A best-effort job's work in flight does not complete, while others' does.
    JobStuck,
}

impl FaultKind {
    /// The names in the file, in the order of [`FaultKind::ALL`].
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
    /// All kinds.
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

    /// The name in the file.
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

/// `[faults]`: parameters and rules.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultRules {
    /// `stuck_s`: how long a busy GPU may complete nothing, ns; none: not watched.
    #[serde(rename = "stuck_s", deserialize_with = "stuck")]
    pub stuck_ns: Option<u64>,
    /// `[[faults.rules]]`.
    #[serde(deserialize_with = "tables")]
    pub rules: Vec<FaultRule>,
}

/// Default of `stuck_s`. Kernels of minutes exist, and by default only events follow.
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

/// The reaction to a fault.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "RuleSection")]
pub struct FaultRule {
    /// `fault`.
    pub fault: FaultKind,
    /// `codes`: CUDA results or Xids; empty: any.
    pub codes: Vec<u64>,
    /// `action`, with its parameters.
    pub action: Action,
    /// `per_hour`: limit of the action.
    pub per_hour: u32,
}

/// Default of `per_hour`.
pub const PER_HOUR: u32 = 3;
/// Default of `grace_s`, ns.
pub const GRACE_NS: u64 = 10_000_000_000;

/// Possible actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Only the event.
    Report,
    /// Hold best-effort launches until an operator releases them: of the job at fault, if
    /// best-effort; for a high-priority job's fault, of all its user's jobs; else of all.
    HoldBe,
    /// End the processes of the job at fault; its supervisor restarts it.
    RestartJob {
        /// From SIGTERM to the kill.
        grace_ns: u64,
    },
    /// Make MPS quit, and start it again.
    RestartMps,
    /// Take no new high-priority job, and hold best-effort launches.
    DrainGpu,
}

impl Action {
    /// The names in the file.
    pub const NAMES: [&'static str; 5] = [
        "report",
        "hold-be",
        "restart-job",
        "restart-mps",
        "drain-gpu",
    ];

    /// The name in the file.
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

/// Xids after which no work on the GPU can be trusted or continue until a reset: NVIDIA's catalogue
/// lists them under "reset GPU" or worse.
pub const XIDS_OF_A_BROKEN_GPU: [u64; 8] = [48, 61, 62, 64, 79, 95, 119, 120];

/// Default reactions: a broken GPU takes no more work. Everything else is only reported, because a
/// daemon that ends or holds jobs by itself can do more harm than the fault.
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

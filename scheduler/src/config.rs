//! The daemon's configuration: one TOML file per GPU, and one for all ([`source`]).
//! `examples/gpu0.toml` explains every key. A file is valid, or rejected with every unreadable key
//! and value, or else every inconsistency; each with its place, its value and the nearest valid
//! one. No unknown key is skipped: ignoring a mistyped bound would protect nobody. Times in the
//! file are in the unit of their key (`_us`, `_ms`); here they are nanoseconds.

pub mod fault_rules;
mod faults;
pub mod gpu;
pub mod limits;
mod memory;
pub mod memory_rules;
pub mod mps_rules;
mod parse;
mod plain;
mod probe;
pub mod show;
pub mod source;
pub mod unmanaged_rules;

use std::path::{Path, PathBuf};

use policy::{Policy, ProbeParams, ShareParams, Sharing, ThrottleParams};
pub use profiler::settings::Fault;
use profiler::settings::{self, Layers, lines, tables};
use protocol::compute::Cap;
use protocol::hello::NEW_SUFFIX;
use protocol::quota::Quota;
use serde::{Deserialize, Deserializer};

use crate::config::fault_rules::FaultRules;
use crate::config::gpu::Select;
use crate::config::limits::{HpAccess, Limits};
use crate::config::memory_rules::Rule;
use crate::config::mps_rules::MpsRules;
use crate::config::unmanaged_rules::UnmanagedRules;

/// A daemon's configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[gpu] index`, `uuid` or `pci`: the GPU that this daemon schedules.
    pub gpu: Select,
    /// `[gpu] sharing`: whether jobs run under MPS; none: `auto`.
    pub sharing: Option<Sharing>,
    /// `[policy] name`, parameters; without `block_priority` off until
    /// [`Config::set_block_priority`].
    pub policy: Policy,
    /// `[policy] block_priority`; none: `auto`.
    pub block_priority: Option<bool>,
    /// `[policy] poll_us`: least poll interval while best-effort work waits or runs, ns.
    pub poll_ns: u64,
    /// `[policy] max_hold_ms`: longest wait at the gate before one launch is granted, ns.
    pub max_hold_ns: u64,
    /// `[policy] unknown_kernel_us`: expected duration of a kernel without profile, ns.
    pub unknown_kernel_ns: u64,
    /// `[policy] on_daemon_loss`: the fate of best-effort launches without a daemon.
    pub on_daemon_loss: OnDaemonLoss,
    /// `[policy] collectives`: the treatment of best-effort jobs that launch collectives.
    pub on_collectives: OnCollectives,
    /// `[socket] path`, if not the default.
    pub socket_path: Option<PathBuf>,
    /// `[memory]`: quotas of GPU memory.
    pub memory: MemoryRules,
    /// `[high_priority]`: who may be high-priority; `None`: everybody.
    pub high_priority: Option<HpAccess>,
    /// `[limits]`: one user's limits.
    pub limits: Limits,
    /// `[jobs.NAME]`: promises to best-effort jobs.
    pub jobs: Vec<JobRule>,
    /// `[throttle]`: limit of the GPU's usage; `None` without the section.
    pub throttle: Option<ThrottleParams>,
    /// `[share]`: the best-effort share beside high-priority work; `None` without the section.
    pub share: Option<ShareParams>,
    /// `[probe]`: when the GPU is in trouble; `None` without the section.
    pub probe: Option<ProbeParams>,
    /// `[tuner]`: search for batches of high-priority requests; `None` without the section.
    pub tuner: Option<TunerRules>,
    /// `[faults]`: detection of faults, and reactions.
    pub faults: FaultRules,
    /// `[unmanaged]`: reaction to processes that use the GPU outside Pillion.
    pub unmanaged: UnmanagedRules,
    /// `[mps]`: commands for MPS, and whether this daemon manages it.
    pub mps: MpsRules,
    /// `[learnt]`: whether and where durations are saved.
    pub learnt: LearntRules,
}

/// The search for the batch of high-priority requests beside which best-effort jobs are fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunerRules {
    /// `settle`: least number of requests to judge a batch.
    pub settle: usize,
}

/// Whether durations learnt in a program's runs are saved for its next start, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearntRules {
    /// `keep`; none: unless time is virtual, where the end of a run is not deterministic.
    pub keep: Option<bool>,
    /// `folder`, if not the default.
    #[serde(deserialize_with = "parse::folder")]
    pub folder: Option<PathBuf>,
}

/// Promises to a best-effort job, and its cap.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRule {
    /// The job's id (`PILLION_JOB`), or the name of a program of it.
    pub name: String,
    /// Quanta in its turns, 1 to [`policy::terms::WEIGHT_MAX`].
    pub weight: u32,
    /// Least share of its rate alone, 0 to 1; 0 promises nothing.
    pub min_progress: f64,
    /// Cap on its GPU time, under any policy; none: no cap.
    pub max_share: Option<Cap>,
}

/// Rules for jobs' GPU memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryRules {
    /// `best_effort`: quota of a best-effort job that asks for none.
    #[serde(deserialize_with = "memory::quota")]
    pub best_effort: Quota,
    /// `high_priority`: quota of a high-priority job that asks for none.
    #[serde(deserialize_with = "memory::quota")]
    pub high_priority: Quota,
    /// `context`: charge for each process's context.
    pub context: Context,
    /// `excess`: reaction to memory of a job's processes outside their accounts.
    pub excess: OnExcess,
    /// `slack`: tolerated part of it, bytes: a runtime's own allocations.
    #[serde(rename = "slack", deserialize_with = "memory::size")]
    pub slack_bytes: u64,
    /// `[[memory.rules]]`: upper bounds of quotas, whatever jobs ask for.
    #[serde(deserialize_with = "tables")]
    pub rules: Vec<Rule>,
}

/// Charge for a process's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// This many bytes.
    Bytes(u64),
    /// As measured by NVML for processes without other memory.
    Measured,
}

/// Reaction to memory of a job's processes outside their accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExcess {
    /// No comparison.
    Ignore,
    /// Report in log and status.
    Report,
    /// Report, and in a job over its quota because of it, end the process with most.
    Evict,
}

/// Default of `slack`. Uncharged tools, module code and printf buffers take some ten MiB.
pub const SLACK_BYTES: u64 = 256 << 20;

impl<'de> Deserialize<'de> for Context {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "a size such as 300MiB, or \"measured\"";
        settings::text(deserializer, wanted, |text| match text {
            "measured" => Ok(Self::Measured),
            _ => memory::bytes(text).map(Self::Bytes).ok_or(None),
        })
    }
}

impl Default for MemoryRules {
    /// As in MuxFlow: 40 % for a best-effort job, and no limit for high-priority jobs.
    fn default() -> Self {
        Self {
            best_effort: Quota::Percent(40.0),
            high_priority: Quota::Unlimited,
            context: Context::Measured,
            excess: OnExcess::Report,
            slack_bytes: SLACK_BYTES,
            rules: Vec::new(),
        }
    }
}

/// Best-effort launches without a daemon: its connection has ended, or it was silent for 5 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDaemonLoss {
    /// They go, as without Pillion.
    #[default]
    Run,
    /// They wait for its return, each for at most `max_hold_ms`.
    Hold,
}

impl OnDaemonLoss {
    /// The name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Hold => "hold",
        }
    }
}

/// What to do with best-effort jobs' collective kernels, which wait for peers on other GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCollectives {
    /// Grant nothing while a high-priority client is attached.
    #[default]
    Refuse,
    /// Gate them like other jobs.
    Gate,
}

/// Longest socket path: the size of the kernel's `sockaddr_un` (108 bytes with the final zero,
/// unix(7)), less the suffix of the temporary name.
pub const PATH_BYTES_MAX: usize = 107 - NEW_SUFFIX.len();

/// Leaves a choice to the daemon.
pub const AUTO: &str = "auto";
/// The values of `[gpu] sharing`.
pub const SHARING_NAMES: [&str; 3] = [AUTO, "mps", "timeslice"];

/// The name of a way of sharing.
#[must_use]
pub const fn sharing_name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Mps => SHARING_NAMES[1],
        Sharing::TimeSlice => SHARING_NAMES[2],
    }
}

impl Config {
    /// Checks the text of a configuration file on its own; `path` only names it in faults.
    /// # Errors
    /// [`ConfigError::Invalid`] with all faults, in the order of the file.
    pub fn check(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let named = parse::Named {
            given: None,
            own_start: 0,
        };
        parse::parse(&Layers::one(path, text), &named).map_err(ConfigError::Invalid)
    }
}

impl Config {
    /// Sets whether priorities between blocks work on this GPU, if the file leaves that open.
    pub fn set_block_priority(&mut self, is_known_to_work: bool) {
        if let Policy::Pillion(params) = &mut self.policy {
            params.block_priority = self.block_priority.unwrap_or(is_known_to_work);
        }
    }

    /// Configured programs that cannot be run, a sentence each.
    #[must_use]
    pub fn missing_programs(&self) -> Vec<String> {
        self.mps.missing_programs(self.faults.restarts_mps())
    }

    /// The first section whose change needs a restart: GPU and sharing, quotas, MPS, saved
    /// durations, socket.
    #[must_use]
    pub fn fixed_difference(&self, next: &Self) -> Option<&'static str> {
        if (&self.gpu, self.sharing) != (&next.gpu, next.sharing) {
            return Some("[gpu]");
        }
        if self.memory != next.memory {
            return Some("[memory]");
        }
        if self.mps != next.mps {
            return Some("[mps]");
        }
        if self.learnt != next.learnt {
            return Some("[learnt]");
        }
        (self.socket_path != next.socket_path).then_some("[socket]")
    }
}

/// Why a configuration is unusable. An operator's mistake.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The system cannot read the file.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The defaults for all GPUs, in place of one GPU's file.
    #[error("{}: holds the defaults for all GPUs; pass the file of one GPU, or --gpu, which reads these defaults too", .0.display())]
    ForAll(PathBuf),
    /// A file that another user could have put beside another.
    #[error("{}: must belong to root, to this user, or to the owner of the configuration file beside it", .0.display())]
    Foreign(PathBuf),
    /// Two files of a folder name the same GPU.
    #[error("{}: selects GPU {gpu}, as {} does; keep one file for each GPU", second.display(), first.display())]
    Twice {
        /// As in the second file.
        gpu: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The file has faults; one line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<Fault>),
    /// The file is valid, but a running daemon cannot apply it.
    #[error("{files}: {section} has changed; restart the daemon to apply it")]
    Fixed {
        /// The files.
        files: String,
        /// The section.
        section: &'static str,
    },
}

#[cfg(test)]
mod tests;

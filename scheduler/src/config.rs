//! The daemon's configuration: one TOML file per GPU, and one for all ([`source`]).
//!
//! `examples/gpu0.toml` is a whole file with every key explained. A file is either right or refused
//! with every key and value that cannot be read, or else with everything that does not go together;
//! each with its place, its value and the nearest right one. Nothing is guessed and no unknown key
//! is skipped: a mistyped bound that is ignored would protect nobody.
//!
//! Times in the file are in the unit that its key names (`_us`, `_ms`); here they are nanoseconds.

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
    /// `[policy] name` and its numbers. What [`Config::block_priority`] leaves open is off there
    /// until [`Config::set_block_priority`].
    pub policy: Policy,
    /// `[policy] block_priority`; none: `auto`.
    pub block_priority: Option<bool>,
    /// `[policy] poll_us`: the least time between two looks of the daemon while best-effort work
    /// waits or runs, ns.
    pub poll_ns: u64,
    /// `[policy] max_hold_ms`: longest wait at the gate before one launch is granted, ns.
    pub max_hold_ns: u64,
    /// `[policy] unknown_kernel_us`: expected duration of a kernel that no profile knows, ns.
    pub unknown_kernel_ns: u64,
    /// `[policy] on_daemon_loss`: what best-effort launches do when the daemon is gone.
    pub on_daemon_loss: OnDaemonLoss,
    /// `[policy] collectives`: what is done about best-effort jobs that launch collectives.
    pub on_collectives: OnCollectives,
    /// `[socket] path`, if it is not the usual one.
    pub socket_path: Option<PathBuf>,
    /// `[memory]`: what jobs may hold of the GPU's memory.
    pub memory: MemoryRules,
    /// `[high_priority]`: who may be; `None`: everybody.
    pub high_priority: Option<HpAccess>,
    /// `[limits]`: how much of the daemon one user may take.
    pub limits: Limits,
    /// `[jobs.NAME]`: what best-effort jobs were promised.
    pub jobs: Vec<JobRule>,
    /// `[throttle]`: how much the GPU may be used; `None` without the section.
    pub throttle: Option<ThrottleParams>,
    /// `[share]`: how much of the GPU best-effort work has beside high-priority work; `None` without
    /// the section.
    pub share: Option<ShareParams>,
    /// `[probe]`: when the GPU is in trouble; `None` without the section.
    pub probe: Option<ProbeParams>,
    /// `[tuner]`: how batches of high-priority requests are searched; `None` without the section.
    pub tuner: Option<TunerRules>,
    /// `[faults]`: what is looked for, and what is done about it.
    pub faults: FaultRules,
    /// `[unmanaged]`: what is done about processes that use the GPU past Pillion.
    pub unmanaged: UnmanagedRules,
    /// `[mps]`: how MPS is asked and started, and whether this daemon sees to it.
    pub mps: MpsRules,
    /// `[learnt]`: whether and where durations are kept.
    pub learnt: LearntRules,
}

/// How the batch of high-priority requests is searched that best-effort jobs are fastest beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunerRules {
    /// `settle`: by so many requests each batch is judged at least.
    pub settle: usize,
}

/// Whether what runs teach of a program's kernels is kept for its next start, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearntRules {
    /// `keep`; none: unless time is virtual, where the moment at which a run ends is left to chance.
    pub keep: Option<bool>,
    /// `folder`, if it is not the usual one.
    #[serde(deserialize_with = "parse::folder")]
    pub folder: Option<PathBuf>,
}

/// What a best-effort job was promised, and may use at most.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRule {
    /// The job's id (`PILLION_JOB`), or the name of a program of it.
    pub name: String,
    /// Quanta in its turns, 1 to [`policy::terms::WEIGHT_MAX`].
    pub weight: u32,
    /// Least share of its rate alone, 0 to 1; 0 promises nothing.
    pub min_progress: f64,
    /// The most that it may use of the GPU's time, under any policy; none: all.
    pub max_share: Option<Cap>,
}

/// What jobs may hold of the GPU's memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryRules {
    /// `best_effort`: quota of a best-effort job that asks for none.
    #[serde(deserialize_with = "memory::quota")]
    pub best_effort: Quota,
    /// `high_priority`: quota of a high-priority job that asks for none.
    #[serde(deserialize_with = "memory::quota")]
    pub high_priority: Quota,
    /// `context`: what is charged for each process's context.
    pub context: Context,
    /// `excess`: what is done about memory that a job's processes have and that is in no account.
    pub excess: OnExcess,
    /// `slack`: so much of it is none of anybody's concern, bytes: what a runtime takes besides.
    #[serde(rename = "slack", deserialize_with = "memory::size")]
    pub slack_bytes: u64,
    /// `[[memory.rules]]`: what jobs cannot have more than, whatever they ask for.
    #[serde(deserialize_with = "tables")]
    pub rules: Vec<Rule>,
}

/// What is charged for a process's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// So many bytes.
    Bytes(u64),
    /// What NVML showed of processes that had nothing else.
    Measured,
}

/// What is done about memory that a job's processes have past their accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExcess {
    /// Nothing is compared.
    Ignore,
    /// It is said, in log and status.
    Report,
    /// It is said, and of a job that has more than its quota with it, the process with the most is ended.
    Evict,
}

/// `slack` if it is not said. Tools that are charged for nothing, module code and printf buffers take some ten MiB.
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
    /// As MuxFlow has it: 40 % for a best-effort job, and high-priority jobs what they want.
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

/// What best-effort launches do when the daemon is gone: its connection has ended, or it was silent for 5 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDaemonLoss {
    /// They go, as if there were no Pillion.
    #[default]
    Run,
    /// They wait for its return, each for at most `max_hold_ms`.
    Hold,
}

impl OnDaemonLoss {
    /// The word in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Hold => "hold",
        }
    }
}

/// What is done about best-effort jobs that launch kernels of collective communication, which wait
/// for their peers on other GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCollectives {
    /// They are granted nothing while a high-priority client is attached.
    #[default]
    Refuse,
    /// They are gated as other jobs are.
    Gate,
}

/// Longest path of a socket: what the kernel's `sockaddr_un` holds (108 bytes with the final zero,
/// unix(7)), less what the socket is first called.
pub const PATH_BYTES_MAX: usize = 107 - NEW_SUFFIX.len();

/// For what the daemon finds out by itself.
pub const AUTO: &str = "auto";
/// The words of `[gpu] sharing`.
pub const SHARING_NAMES: [&str; 3] = [AUTO, "mps", "timeslice"];

/// The word for a way of sharing.
#[must_use]
pub const fn sharing_name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Mps => SHARING_NAMES[1],
        Sharing::TimeSlice => SHARING_NAMES[2],
    }
}

impl Config {
    /// Checks the text of a configuration file by itself; `path` only names it in faults.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Invalid`] with what is wrong, in the order of the file.
    pub fn check(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let named = parse::Named {
            given: None,
            own_start: 0,
        };
        parse::parse(&Layers::one(path, text), &named).map_err(ConfigError::Invalid)
    }
}

impl Config {
    /// Whether priorities between blocks of different processes work on this GPU, where the file
    /// leaves that open.
    pub fn set_block_priority(&mut self, is_known_to_work: bool) {
        if let Policy::Pillion(params) = &mut self.policy {
            params.block_priority = self.block_priority.unwrap_or(is_known_to_work);
        }
    }

    /// Programs that would be run and cannot be, a sentence each.
    #[must_use]
    pub fn missing_programs(&self) -> Vec<String> {
        self.mps.missing_programs(self.faults.restarts_mps())
    }

    /// The first section in which `next` says something that a running daemon cannot take over: which GPU
    /// it serves, how that is shared, what jobs may hold of its memory, MPS, and where clients
    /// find it.
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

/// Why a configuration cannot be used. An operator's mistake.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system refuses the file.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file of what holds for all GPUs, in place of one's.
    #[error("{}: is for all GPUs; a daemon needs a file of its GPU's, or --gpu, which takes this one, too", .0.display())]
    ForAll(PathBuf),
    /// A file that somebody else could have put beside another.
    #[error("{}: is neither root's, nor this user's, nor that of the owner of the file beside it", .0.display())]
    Foreign(PathBuf),
    /// Two files of a folder name the same GPU.
    #[error("{}: names GPU {gpu}, as {} does; a GPU has one file", second.display(), first.display())]
    Twice {
        /// As the second names it.
        gpu: String,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Something in the file is wrong; one line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<Fault>),
    /// The file is right, and says what a running daemon cannot take over.
    #[error("{files}: {section} has changed, which takes a restart")]
    Fixed {
        /// The files.
        files: String,
        /// Where in it.
        section: &'static str,
    },
}

#[cfg(test)]
mod tests;

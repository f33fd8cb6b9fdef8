//! What can happen that an operator wants to know, and an event before it has a number and a time.

use serde::Serialize;

use crate::core::job_key::JobKey;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is to be done.
    Info,
    /// Somebody should look, some day.
    Warning,
    /// Something is broken.
    Error,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $severity:ident;)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All of them, in the order of [`Kind::index`].
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word in JSON and log.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// How much it matters, if nothing else is said of one.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$kind => Severity::$severity,)* }
            }

            pub(crate) const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

kinds! {
    /// The daemon listens.
    DaemonStarted = "daemon-started", Info;
    /// It was told to end.
    DaemonEnding = "daemon-ending", Info;
    /// Another configuration is in force.
    ConfigReloaded = "config-reloaded", Info;
    /// The configuration was read again and is wrong: all stays as it was.
    ConfigRefused = "config-refused", Error;
    /// What is in force names a program that cannot be run.
    ConfigDoubtful = "config-doubtful", Warning;
    /// What a run has taught of its kernels could not be kept, or what was kept could not be read.
    LearntNotKept = "learnt-not-kept", Warning;
    /// A process is a client.
    Attached = "attached", Info;
    /// A new high-priority job is a client of a GPU that is drained.
    AttachedDraining = "attached-draining", Warning;
    /// A client is gone.
    Detached = "detached", Info;
    /// How clients share the GPU is known.
    SharingKnown = "sharing-known", Info;
    /// Some clients share the GPU by MPS, others in time slices.
    SharingMixed = "sharing-mixed", Warning;
    /// Clients share the GPU in another way than the configuration says.
    SharingWrong = "sharing-wrong", Error;
    /// A process asked to be high-priority and may not: it is best-effort.
    Denied = "denied", Warning;
    /// A process wanted to be a client and is none.
    TurnedAway = "turned-away", Warning;
    /// A process uses the GPU and is no client.
    Unmanaged = "unmanaged", Warning;
    /// A best-effort job launches collective kernels, and is refused for it beside high-priority
    /// jobs.
    Collectives = "collectives", Warning;
    /// A high-priority client marked its requests and does so no more.
    MarksSilent = "marks-silent", Warning;
    /// A high-priority job has a time as its target, and its program marks no requests.
    SloUnmarked = "slo-unmarked", Warning;
    /// A batch of a high-priority client's requests is tried.
    BatchWanted = "batch-wanted", Info;
    /// The search for it has ended, and this one stays.
    BatchKept = "batch-kept", Info;
    /// No batch keeps the target beside best-effort jobs: they are paused.
    BatchInfeasible = "batch-infeasible", Warning;
    /// The program does not take the batch that is wanted.
    BatchIgnored = "batch-ignored", Warning;
    /// Requests of a high-priority job take longer than their target.
    SloMissed = "slo-missed", Warning;
    /// They keep it again.
    SloMet = "slo-met", Info;
    /// A process has memory that is in no account.
    MemoryExcess = "memory-excess", Warning;
    /// A process was asked to end, or killed, for its memory.
    Evicted = "evicted", Warning;
    /// A client's context is lost: the CUDA result is its code.
    StickyError = "sticky-error", Error;
    /// A client's process ended with work in flight, so many ns (its code). An error where MPS may
    /// take others along with it.
    DiedInFlight = "died-in-flight", Warning;
    /// The driver reports an Xid, which is its code.
    Xid = "xid", Error;
    /// Memory of the GPU was wrong and could not be corrected (how often is its code), or waits to
    /// be replaced.
    Ecc = "ecc", Error;
    /// Memory of the GPU was wrong and was corrected; its code says how often.
    EccCorrected = "ecc-corrected", Warning;
    /// MPS says that it failed.
    MpsFault = "mps-fault", Error;
    /// A log of MPS cannot be read: faults that it tells are not seen.
    MpsLogSilent = "mps-log-silent", Warning;
    /// This daemon has started MPS's control daemon.
    MpsStarted = "mps-started", Info;
    /// It is there, and this daemon watches it.
    MpsAdopted = "mps-adopted", Info;
    /// It has ended, or could not be started: it is started anew after a while.
    MpsGone = "mps-gone", Warning;
    /// It was.
    MpsRestarted = "mps-restarted", Warning;
    /// It is not any more, because it was too often.
    MpsGivenUp = "mps-given-up", Error;
    /// MPS serves again after a fault.
    MpsBack = "mps-back", Info;
    /// The GPU is busy and completes nothing.
    Stuck = "stuck", Error;
    /// A best-effort job's work does not complete, while others' does.
    JobStuck = "job-stuck", Warning;
    /// It does again.
    StuckEnded = "stuck-ended", Info;
    /// Power or heat hold the GPU's clock down; the code is the bits of nvml.h.
    SlowedDown = "slowed-down", Warning;
    /// They have not for a minute.
    SlowedDownEnded = "slowed-down-ended", Info;
    /// The GPU is in trouble: best-effort jobs that come wait.
    ProbeUnhealthy = "probe-unhealthy", Warning;
    /// It is over its limits: best-effort jobs are ended.
    ProbeOverlimit = "probe-overlimit", Error;
    /// The driver says that it is lost.
    ProbeDisabled = "probe-disabled", Error;
    /// It is well again.
    ProbeHealthy = "probe-healthy", Info;
    /// NVML does not answer: faults that it reports are not seen.
    NvmlSilent = "nvml-silent", Warning;
    /// A rule holds best-effort jobs.
    Held = "held", Warning;
    /// A rule or an operator drains the GPU.
    Draining = "draining", Warning;
    /// An operator ended what is held.
    Resumed = "resumed", Info;
    /// An operator has NVML closed.
    DeviceReleased = "device-released", Warning;
    /// It is open again.
    DeviceOpened = "device-opened", Info;
    /// A rule began to do something.
    Action = "action", Warning;
    /// It is done.
    ActionDone = "action-done", Info;
    /// It could not be done.
    ActionFailed = "action-failed", Error;
    /// It was not done, because it was done too often.
    ActionLimited = "action-limited", Warning;
}

/// An event, before it has a number and a time.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) job: Option<(String, u32)>,
    pub(crate) pid: Option<u32>,
    pub(crate) code: Option<u64>,
    pub(crate) severity: Severity,
}

impl Draft {
    /// One sentence for people.
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            job: None,
            pid: None,
            code: None,
            severity: kind.severity(),
        }
    }

    /// What happened.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// It matters more or less than others of its kind.
    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// It is about this job, and seen by its user.
    pub(crate) fn of_job(self, key: &JobKey) -> Self {
        self.of(&key.id, key.uid)
    }

    /// It is about a job of this id and user.
    pub(crate) fn of(mut self, job: &str, uid: u32) -> Self {
        self.job = Some((job.to_owned(), uid));
        self
    }

    pub(crate) fn code(mut self, code: Option<u64>) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn pid(mut self, pid: u32) -> Self {
        self.pid = Some(pid).filter(|&pid| pid != 0);
        self
    }
}

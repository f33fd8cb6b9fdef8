//! Events that an operator wants to know, before they have a number and a time.

use serde::Serialize;

use crate::core::job_key::JobKey;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No action needed.
    Info,
    /// Worth a look, eventually.
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
            /// All kinds, in the order of [`Kind::index`].
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The name in JSON and the log.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Severity of an event that sets none itself.
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
    /// The daemon was asked to end.
    DaemonEnding = "daemon-ending", Info;
    /// Another configuration is in force.
    ConfigReloaded = "config-reloaded", Info;
    /// The re-read configuration is invalid: the old one stays in force.
    ConfigRefused = "config-refused", Error;
    /// The configuration in force names a program that cannot be run.
    ConfigDoubtful = "config-doubtful", Warning;
    /// Learnt durations could not be saved, or the saved ones could not be read.
    LearntNotKept = "learnt-not-kept", Warning;
    /// A process became a client.
    Attached = "attached", Info;
    /// A new high-priority job attached while the GPU is being drained.
    AttachedDraining = "attached-draining", Warning;
    /// A client left.
    Detached = "detached", Info;
    /// The daemon now knows how clients share the GPU.
    SharingKnown = "sharing-known", Info;
    /// Some clients share the GPU by MPS, others by time slices.
    SharingMixed = "sharing-mixed", Warning;
    /// Clients share the GPU in another way than configured.
    SharingWrong = "sharing-wrong", Error;
    /// A process asked for high priority without permission: it runs best-effort.
    Denied = "denied", Warning;
    /// A process could not become a client.
    TurnedAway = "turned-away", Warning;
    /// A process uses the GPU without being a client.
    Unmanaged = "unmanaged", Warning;
    /// A best-effort job launches collective kernels, and is refused beside high-priority jobs.
    Collectives = "collectives", Warning;
    /// A high-priority client has stopped marking its requests.
    MarksSilent = "marks-silent", Warning;
    /// A high-priority job has a time target, but its program marks no requests.
    SloUnmarked = "slo-unmarked", Warning;
    /// A batch size is being tried for a high-priority client.
    BatchWanted = "batch-wanted", Info;
    /// The search has ended and keeps this batch.
    BatchKept = "batch-kept", Info;
    /// No batch keeps the target beside best-effort jobs: they are paused.
    BatchInfeasible = "batch-infeasible", Warning;
    /// The program does not take the wanted batch.
    BatchIgnored = "batch-ignored", Warning;
    /// Requests of a high-priority job miss their target.
    SloMissed = "slo-missed", Warning;
    /// Requests meet their target again.
    SloMet = "slo-met", Info;
    /// A process holds memory outside its account.
    MemoryExcess = "memory-excess", Warning;
    /// A process was asked to end, or killed, for its memory.
    Evicted = "evicted", Warning;
    /// A client's context is lost; code: the CUDA result.
    StickyError = "sticky-error", Error;
    /// A client's process ended with work in flight; code: ns of work. An error where MPS may end
    /// other clients with it.
    DiedInFlight = "died-in-flight", Warning;
    /// The driver reports an Xid; code: the Xid.
    Xid = "xid", Error;
    /// Uncorrectable errors of GPU memory; code: their number. Or memory that waits for remapping.
    Ecc = "ecc", Error;
    /// Corrected errors of GPU memory; code: their number.
    EccCorrected = "ecc-corrected", Warning;
    /// MPS reports a failure.
    MpsFault = "mps-fault", Error;
    /// A log of MPS is unreadable: faults reported there are missed.
    MpsLogSilent = "mps-log-silent", Warning;
    /// This daemon has started MPS's control daemon.
    MpsStarted = "mps-started", Info;
    /// A control daemon already ran; this daemon watches it.
    MpsAdopted = "mps-adopted", Info;
    /// MPS's control daemon has ended, or failed to start: a restart follows after a delay.
    MpsGone = "mps-gone", Warning;
    /// MPS's control daemon was restarted.
    MpsRestarted = "mps-restarted", Warning;
    /// MPS's control daemon was restarted too often: no further restarts.
    MpsGivenUp = "mps-given-up", Error;
    /// MPS serves again after a fault.
    MpsBack = "mps-back", Info;
    /// The GPU is busy and completes nothing.
    Stuck = "stuck", Error;
    /// A best-effort job's work does not complete, while that of others does.
    JobStuck = "job-stuck", Warning;
    /// The work completes again.
    StuckEnded = "stuck-ended", Info;
    /// Power or heat throttle the GPU's clock; code: the bits of nvml.h.
    SlowedDown = "slowed-down", Warning;
    /// No throttling for a minute.
    SlowedDownEnded = "slowed-down-ended", Info;
    /// The GPU is in trouble: arriving best-effort jobs wait.
    ProbeUnhealthy = "probe-unhealthy", Warning;
    /// The GPU is over its limits: best-effort jobs are ended.
    ProbeOverlimit = "probe-overlimit", Error;
    /// The driver reports the GPU as lost.
    ProbeDisabled = "probe-disabled", Error;
    /// The GPU is healthy again.
    ProbeHealthy = "probe-healthy", Info;
    /// NVML does not answer: faults that it reports are missed.
    NvmlSilent = "nvml-silent", Warning;
    /// A rule holds best-effort jobs.
    Held = "held", Warning;
    /// A rule or an operator drains the GPU.
    Draining = "draining", Warning;
    /// An operator ended a hold.
    Resumed = "resumed", Info;
    /// An operator had NVML closed.
    DeviceReleased = "device-released", Warning;
    /// NVML is open again.
    DeviceOpened = "device-opened", Info;
    /// A rule's action began.
    Action = "action", Warning;
    /// The action succeeded.
    ActionDone = "action-done", Info;
    /// The action failed.
    ActionFailed = "action-failed", Error;
    /// The action was skipped: its rule's hourly limit is reached.
    ActionLimited = "action-limited", Warning;
}

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

    #[cfg(test)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Assigns the event to this job; the job's user may see it.
    pub(crate) fn of_job(self, key: &JobKey) -> Self {
        self.of(&key.id, key.uid)
    }

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

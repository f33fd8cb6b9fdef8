//! Why an experiment cannot be run. All of it is the caller's input; a fault of the simulator itself
//! is an assertion.

use std::path::PathBuf;

/// Why an experiment or an arrival file is refused. Nothing has been simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is nothing to run.
    #[error("the experiment has no job")]
    NoJobs,
    /// More jobs than the daemon serves.
    #[error("{count} jobs: expected at most {max}")]
    TooManyJobs {
        /// How many were given.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// A trace without launches: its requests would take no time, without end.
    #[error("job {job:?}: the trace has no launch")]
    EmptyTrace {
        /// The job's name.
        job: String,
    },
    /// A launch of a trace names a kernel that the trace has not.
    #[error("job {job:?}: launch {launch} is of kernel {kernel}, but the trace has {kernels}")]
    UnknownKernel {
        /// The job's name.
        job: String,
        /// Index of the launch, from 0.
        launch: usize,
        /// The index it names.
        kernel: u32,
        /// How many kernels there are.
        kernels: usize,
    },
    /// A kernel cannot be launched on the device.
    #[error("job {job:?}: kernel {kernel:?} on {device}: {source}")]
    Kernel {
        /// The job's name.
        job: String,
        /// The kernel's name.
        kernel: String,
        /// The device's name.
        device: String,
        /// What does not fit or cannot be meant.
        source: Box<softgpu::Error>,
    },
    /// The durations of a trace are those of another device.
    #[error(
        "job {job:?}: its trace was measured on {measured}, not on {device}; \
         take a trace of {device} (built-in workloads exist for every device)"
    )]
    OtherDevice {
        /// The job's name.
        job: String,
        /// The trace's device.
        measured: String,
        /// The experiment's.
        device: String,
    },
    /// One request alone takes longer than a day.
    #[error("job {job:?}: one request takes {ns} ns alone; expected at most a day")]
    RequestTooLong {
        /// The job's name.
        job: String,
        /// Sum of the launches' durations, ns; saturated.
        ns: u64,
    },
    /// The device lacks something that every kernel needs.
    #[error("device {device}: {limit} is 0")]
    Device {
        /// The device's name.
        device: String,
        /// What it has none of.
        limit: &'static str,
    },
    /// The jobs do not fit into the device's memory together.
    #[error("the jobs need {needed} bytes of device memory, {device} has {available}: {each}")]
    Memory {
        /// The sum.
        needed: u64,
        /// What there is.
        available: u64,
        /// The device's name.
        device: String,
        /// Each job's part, for people.
        each: String,
    },
    /// Arrivals that cannot be meant: a rate, or a list.
    #[error("job {job:?}: {what}")]
    Arrivals {
        /// The job's name.
        job: String,
        /// What is wrong with it.
        what: String,
    },
    /// A run of no time, or of more than a day.
    #[error("duration {ns} ns: expected more than 0 and at most a day")]
    Duration {
        /// What was asked for.
        ns: u64,
    },
    /// A number of the host model that cannot be meant.
    #[error("host model: {what}")]
    Host {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The policy's numbers cannot be meant, or there is no such policy.
    #[error("{0}")]
    Policy(String),
    /// A file of arrivals cannot be used.
    #[error("{}{}: {what}", path.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
    ArrivalsFile {
        /// The file.
        path: PathBuf,
        /// The line, where it is known.
        line: Option<usize>,
        /// What is wrong, and what was expected.
        what: String,
    },
}

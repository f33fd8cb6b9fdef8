//! Why an experiment cannot be run: faults of the input. Faults of the simulator are assertions.

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
    /// A launch of a trace names a missing kernel.
    #[error(
        "job {job:?}: launch {launch} names kernel {kernel}, but the trace has {kernels} kernels"
    )]
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
        /// The kernel's conflict with the device, or its invalid value.
        source: Box<softgpu::Error>,
    },
    /// A trace's durations are of another device.
    #[error(
        "job {job:?}: its trace was measured on {measured}, not on {device}; \
         use a trace of {device} (built-in workloads exist for every device)"
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
    /// The device lacks a resource that every kernel needs.
    #[error("device {device}: {limit} is 0")]
    Device {
        /// The device's name.
        device: String,
        /// The missing resource.
        limit: &'static str,
    },
    /// The jobs together do not fit into the device's memory.
    #[error("the jobs need {needed} bytes of device memory, {device} has {available}: {each}")]
    Memory {
        /// The sum.
        needed: u64,
        /// The available memory.
        available: u64,
        /// The device's name.
        device: String,
        /// Each job's part, for display.
        each: String,
    },
    /// Invalid arrivals: a rate, or a list.
    #[error("job {job:?}: {what}")]
    Arrivals {
        /// The job's name.
        job: String,
        /// The fault.
        what: String,
    },
    /// A run without duration, or of more than a day.
    #[error("duration {ns} ns: expected more than 0 and at most a day")]
    Duration {
        /// The given value.
        ns: u64,
    },
    /// An invalid number of the host model.
    #[error("host model: {what}")]
    Host {
        /// The fault.
        what: &'static str,
    },
    /// Invalid numbers of the policy, or an unknown policy.
    #[error("{0}")]
    Policy(String),
    /// An invalid file of arrivals.
    #[error("{}{}: {what}", path.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
    ArrivalsFile {
        /// The file.
        path: PathBuf,
        /// The line, where known.
        line: Option<usize>,
        /// The fault, and the expected value.
        what: String,
    },
}

//! The requests of a job: what one inference batch or training iteration launches.

use super::Durations;

/// How requests were distinguished, their durations, and their launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// How they were distinguished.
    pub rule: RequestRule,
    /// Observed requests, at least 1.
    pub count: u64,
    /// From the start of a request's first kernel to the end of its last, alone on the GPU.
    pub latency: Durations,
    /// Requests with exactly the launches of `order`.
    pub same_order: u64,
    /// The most usual request's launches: index into the kernels, repetitions. Empty if too long.
    pub order: Vec<(u32, u32)>,
}

/// How requests were distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestRule {
    /// By a range that the program named; a name that ends in `*` is a prefix.
    Range(String),
    /// By idle time of the GPU, of this many ns or more.
    Gap(u64),
}

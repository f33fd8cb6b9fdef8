//! The requests of a job: what one inference batch or training iteration launches.

use super::Durations;

/// How requests were told apart, how long they took, and what they launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// How they were told apart.
    pub rule: RequestRule,
    /// Requests that were seen, at least 1.
    pub count: u64,
    /// From the start of a request's first kernel to the end of its last, alone on the GPU.
    pub latency: Durations,
    /// Requests that launched just what `order` says.
    pub same_order: u64,
    /// The launches of the most usual request in order: an index into the profile's kernels, and
    /// how often it was launched in a row. Empty if that would be too long.
    pub order: Vec<(u32, u32)>,
}

/// How requests were told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestRule {
    /// By a range that the program named; a name that ends in `*` stands for all that begin so.
    Range(String),
    /// By the time that the GPU stood still, of this many ns or more.
    Gap(u64),
}

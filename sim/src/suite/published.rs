//! What a suite's publication says, to be set beside what its runs say.

use serde::Deserialize;

/// A published number and how to read ours off the runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Key of the suite's part.
    pub part: String,
    /// What is measured, for people.
    pub what: String,
    /// The publication's number, in its words.
    pub paper: String,
    /// What to read off the runs.
    pub measure: Measure,
    /// The policy; without it, the suite's own and what the publication's program does.
    pub policy: Option<String>,
    /// Only runs of which one best-effort job has one of these traces.
    #[serde(default)]
    pub be: Vec<String>,
    /// Only runs in which this value was swept; without it, only those in which nothing was swept but
    /// jobs and the name of the policy.
    pub swept: Option<String>,
}

/// What a claim reads off runs: a mean over them, unless it says otherwise.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Best-effort requests per second, alone.
    BeSoloPerS,
    /// The same beside the others.
    BePerS,
    /// The second over the first.
    BeShare,
    /// The high-priority job's rate over its rate alone.
    HpShare,
    /// Its 95th percentile, ms.
    HpP95Ms,
    /// Its 99th percentile, ms.
    HpP99Ms,
    /// The greatest of its medians over the same alone.
    HpP50XWorst,
    /// Its 99th percentile over the same alone.
    HpP99X,
    /// The greatest of these.
    HpP99XWorst,
}

#[derive(Debug, Deserialize)]
struct File {
    claim: Vec<Claim>,
}

/// The claims in a file of them.
///
/// # Errors
/// It is none; the text says where.
pub fn parse(text: &str) -> Result<Vec<Claim>, toml::de::Error> {
    toml::from_str::<File>(text).map(|file| file.claim)
}

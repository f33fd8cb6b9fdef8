//! A suite's published results, for comparison with its runs.

use serde::Deserialize;

/// A published number, and the corresponding reading of our runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Key of the suite's part.
    pub part: String,
    /// The measured quantity, for display.
    pub what: String,
    /// The publication's number, in its words.
    pub paper: String,
    /// The corresponding reading.
    pub measure: Measure,
    /// The policy; without it, the suite's own and the publication's program.
    pub policy: Option<String>,
    /// Only runs in which one best-effort job has one of these traces.
    #[serde(default)]
    pub be: Vec<String>,
    /// Only runs that swept this value; without it, those that swept only jobs and policies' names.
    pub swept: Option<String>,
}

/// A claim's reading: a mean over runs, unless stated otherwise.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Best-effort requests per second, solo.
    BeSoloPerS,
    /// The same beside the others.
    BePerS,
    /// The second over the first.
    BeShare,
    /// The high-priority job's rate over its solo rate.
    HpShare,
    /// Its 95th percentile, ms.
    HpP95Ms,
    /// Its 99th percentile, ms.
    HpP99Ms,
    /// The greatest of its medians over its solo median.
    HpP50XWorst,
    /// Its 99th percentile over its solo one.
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
/// An invalid file; the text has the place.
pub fn parse(text: &str) -> Result<Vec<Claim>, toml::de::Error> {
    toml::from_str::<File>(text).map(|file| file.claim)
}

//! The message that changes a running job.

use super::HelloError;
use super::packet::{Reader, Writer};

/// A change of a running job. Who asks must be of the job's user, or root; for `weight` and
/// `min_progress`, root or the daemon's own user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Id of the job.
    pub job: String,
    /// Its new quota of memory, as [`crate::quota`] reads it; empty: it stays.
    pub memory: String,
    /// What its requests may take from now on, as [`crate::slo::SloChange`] reads it; empty, and
    /// where it is missing: it stays.
    pub slo: String,
    /// What it may use of the GPU's time from now on, as [`crate::compute::CapChange`] reads it;
    /// empty, and where it is missing: it stays.
    pub compute: String,
    /// Its weight against other best-effort jobs from now on, as [`crate::promise::WeightChange`]
    /// reads it; empty, and where it is missing: it stays.
    pub weight: String,
    /// The least share that it is promised from now on, as [`crate::promise::LeastChange`] reads
    /// it; empty, and where it is missing: it stays.
    pub min_progress: String,
}

impl Set {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text(&self.job);
        writer.text(&self.memory);
        writer.text(&self.slo);
        writer.text(&self.compute);
        writer.text(&self.weight);
        writer.text(&self.min_progress);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, HelloError> {
        Ok(Self {
            job: reader.text()?,
            memory: reader.text()?,
            slo: reader.later_text()?.unwrap_or_default(),
            compute: reader.later_text()?.unwrap_or_default(),
            weight: reader.later_text()?.unwrap_or_default(),
            min_progress: reader.later_text()?.unwrap_or_default(),
        })
    }
}

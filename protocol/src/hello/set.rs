//! The message that changes a running job.

use super::HelloError;
use super::packet::{Reader, Writer};

/// A change of a running job, by the job's user or root; of `weight` and `min_progress`, by root or
/// the daemon's user. In each field but `job` an empty text, the default, means no change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Id of the job.
    pub job: String,
    /// The new memory quota, as [`crate::quota`] parses it.
    pub memory: String,
    /// The new target of requests, as [`crate::slo::SloChange`] parses it.
    pub slo: String,
    /// The new cap on GPU time, as [`crate::compute::CapChange`] parses it.
    pub compute: String,
    /// The new weight among best-effort jobs, as [`crate::promise::WeightChange`] parses it.
    pub weight: String,
    /// The new least share, as [`crate::promise::LeastChange`] parses it.
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

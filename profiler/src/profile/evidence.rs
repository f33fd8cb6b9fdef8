//! The measured figures behind a profile's SM need and class: absent if not measured, never 0. They
//! are whole numbers of small units, so that reading and writing keeps the text.

use std::fmt;
use std::str::FromStr;

use crate::family::Family;

/// The evidence for a kernel's SM need and class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Shared memory of a block that the kernel declares, bytes.
    pub static_shared_bytes: Option<u32>,
    /// Blocks that fit on one SM at once.
    pub blocks_per_sm: Option<u32>,
    /// Launches left out of median and p95 as outliers; they are in count and sum.
    pub outliers: Option<u64>,
    /// Throughput of the SMs, of their peak.
    pub compute_pct: Option<Percent>,
    /// Throughput of the busiest part of the memory system, L1 included, of its peak.
    pub memory_pct: Option<Percent>,
    /// Throughput of device memory, of its peak.
    pub dram_pct: Option<Percent>,
    /// Throughput of the level 2 cache, of its peak.
    pub l2_pct: Option<Percent>,
    /// Throughput of the level 1 caches, of their peak.
    pub l1_pct: Option<Percent>,
    /// Where the kernel lies under the roofline.
    pub roofline: Option<Roofline>,
    /// The family by which its class was estimated.
    pub class_family: Option<Family>,
    /// The correctly estimated share of that family's measured GPU time.
    pub class_confidence_pct: Option<Percent>,
}

/// A kernel's place under the roofline of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roofline {
    /// Floating-point operations, millions per second.
    pub mflop_per_s: u64,
    /// Bytes to and from device memory, millions per second.
    pub mbyte_per_s: u64,
}

/// A GPU as its measured files describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// SMs visible to the jobs.
    pub sms: Option<u32>,
    /// CUDA compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Highest clock of the SMs, MHz.
    pub clock_mhz: Option<u32>,
    /// Peak bandwidth of device memory, 10⁹ bytes per second.
    pub bandwidth_gb_s: Option<u32>,
}

/// A percentage in hundredths of a percent, 0 to [`Percent::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u32);

impl Percent {
    /// Tools report a little over 100 % (counters sampled apart); ten times the peak is an error.
    pub const MAX: Self = Self(100_000);

    /// `percent` (0 to 1000), rounded to hundredths; `None` for other numbers.
    #[must_use]
    pub fn new(percent: f64) -> Option<Self> {
        let hundredths = (percent * 100.0).round();
        let in_range = (0.0..=f64::from(Self::MAX.0)).contains(&hundredths);
        in_range.then_some(Self(hundredths as u32))
    }

    /// The percentage as a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// A percentage is not a number from 0 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPercentage;

impl FromStr for Percent {
    type Err = NotAPercentage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.parse().map_err(|_| NotAPercentage)?;
        Self::new(number).ok_or(NotAPercentage)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Percent;

    #[test]
    fn percentages_have_two_decimals() {
        for (number, text) in [(0.0, "0.00"), (66.276, "66.28"), (100.0, "100.00")] {
            assert_eq!(
                Percent::new(number).map(|p| p.to_string()).as_deref(),
                Some(text)
            );
        }
        for number in [-0.1, f64::NAN, f64::INFINITY, 1000.1] {
            assert_eq!(Percent::new(number), None, "{number}");
        }
    }

    proptest! {
        #[test]
        fn a_written_percentage_reads_back_equal(hundredths in 0u32..=100_000) {
            let percent = Percent(hundredths);
            prop_assert_eq!(percent.to_string().parse(), Ok(percent));
            prop_assert_eq!(Percent::new(percent.value()), Some(percent));
        }
    }
}

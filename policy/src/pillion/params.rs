//! The numbers of `pillion`.

use super::target::{Goal, MISS, Slo};

/// The numbers of `pillion`, and a switch for each of its mechanisms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PillionParams {
    /// The target of HP's requests; `None`: 1.05 times their solo latency where they are inferred,
    /// 1.02 times their solo p99 where they are marked.
    pub slo: Option<Slo>,
    /// The share of marked requests that may take longer ([`Goal::miss`]).
    pub miss: f64,
    /// A request's solo latency, if known from elsewhere; otherwise it is learnt.
    pub solo_ns: Option<u64>,
    /// Priorities between blocks of different processes work on this device, or are assumed to.
    pub block_priority: bool,
    /// The gain follows the requests' latencies; otherwise it is 1.
    pub feedback: bool,
    /// BE work goes beside HP.
    pub beside: bool,
    /// Below gain 1, work beside HP must suit the executing kernels.
    pub kernel_pairs: bool,
    /// Quiet times are predicted.
    pub gap_prediction: bool,
    /// Durations of BE kernels are learnt from completions ([`crate::durations`]), by the client.
    pub learnt_durations: bool,
    /// Both bounds while HP's latency is not known, in ns.
    pub residual_ns_unknown: u64,
    /// How long a lease lasts unless it is renewed, in ns.
    pub lease_ns: u64,
    /// A request whose beginning is more uncertain than this is ignored, ns: twice the daemon's
    /// least pause, and the time to wake the daemon ([`look_ns_max`]).
    pub look_ns_max: u64,
}

/// [`PillionParams::look_ns_max`] for this poll interval: waking the daemon takes 40 to 90 µs.
#[must_use]
pub const fn look_ns_max(poll_ns: u64) -> u64 {
    poll_ns.saturating_mul(2).saturating_add(100_000)
}

impl Default for PillionParams {
    fn default() -> Self {
        let orion = crate::OrionParams::default();
        Self {
            slo: None,
            miss: MISS,
            solo_ns: None,
            block_priority: true,
            feedback: true,
            beside: true,
            kernel_pairs: true,
            gap_prediction: true,
            learnt_durations: true,
            residual_ns_unknown: orion.residual_ns_unknown,
            lease_ns: orion.lease_ns,
            look_ns_max: look_ns_max(50_000),
        }
    }
}

impl PillionParams {
    /// The goal of every job without its own, by whether its requests are marked or inferred.
    #[must_use]
    pub fn goal(&self, is_marked: bool) -> Goal {
        let default = if is_marked { SLOWDOWN_MARKED } else { SLOWDOWN };
        Goal {
            slo: self.slo.unwrap_or(Slo::Slowdown(default)),
            miss: self.miss,
        }
    }
}

/// The default for inferred requests. Of those that met BE work two in three keep it: the 99th
/// percentile is 1.01 to 1.03 of the solo one for random arrivals.
const SLOWDOWN: f64 = 1.05;

/// The same for marked requests and the solo p99. The level spends what it is given, so with 1.05
/// requests would lose by their marks (docs/policy-results.md).
const SLOWDOWN_MARKED: f64 = 1.02;

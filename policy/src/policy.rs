//! The policies by name, and their numbers.
//!
//! What each does is in [`crate::gate`]. Numbers that a policy takes are here,
//! with their defaults and limits, so that configuration, simulator and gate
//! agree on them.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::HpView;

/// Which rules the gate follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Nobody is held.
    None,
    /// Orion's Listing 1.
    Orion(OrionParams),
    /// BE work only while HP is idle.
    Temporal(TemporalParams),
}

impl Policy {
    /// Every name that [`Policy::from_str`] takes, in the order shown to people.
    pub const NAMES: [&'static str; 3] = ["none", "orion", "temporal"];

    /// The name in configuration and tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Orion(_) => "orion",
            Self::Temporal(_) => "temporal",
        }
    }

    /// Checks that the numbers can be meant.
    ///
    /// # Errors
    ///
    /// The first number that cannot, see [`PolicyError`].
    pub fn validate(&self) -> Result<(), PolicyError> {
        let Some(params) = self.throttle_params() else {
            return Ok(());
        };
        let pct = params.dur_threshold_pct;
        // Written so that a NaN is refused too.
        if !(pct > 0.0 && pct <= 100.0) {
            return Err(PolicyError::DurThreshold { pct });
        }
        if !(LEASE_NS_MIN..=LEASE_NS_MAX).contains(&params.lease_ns) {
            return Err(PolicyError::LeaseNs {
                lease_ns: params.lease_ns,
            });
        }
        Ok(())
    }

    /// The numbers that every gating policy has; `None` for a policy that
    /// never holds.
    pub(crate) fn throttle_params(&self) -> Option<TemporalParams> {
        match self {
            Self::None => None,
            Self::Orion(params) => Some(params.throttle()),
            Self::Temporal(params) => Some(*params),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// The policy of that name with default numbers.
    fn from_str(name: &str) -> Result<Self, PolicyError> {
        match name {
            "none" => Ok(Self::None),
            "orion" => Ok(Self::Orion(OrionParams::default())),
            "temporal" => Ok(Self::Temporal(TemporalParams::default())),
            _ => Err(PolicyError::UnknownName {
                given: name.to_owned(),
            }),
        }
    }
}

/// The numbers of `orion`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrionParams {
    /// `DUR_THRESHOLD` in per cent of the HP request latency. 2.5 in the paper:
    /// HP latency is flat below 3 % and grows about linearly above (§6.4).
    pub dur_threshold_pct: f64,
    /// `SM_THRESHOLD`: beside HP goes only what needs fewer SMs. `None` is the
    /// number of SMs of the device, right for a latency-critical HP.
    pub sm_threshold: Option<u32>,
    /// `DUR_THRESHOLD` while the HP latency is not known, in ns.
    pub residual_ns_unknown: u64,
    /// How long a lease lasts unless it is renewed, in ns.
    pub lease_ns: u64,
}

impl OrionParams {
    /// What is left of them where kernels cannot overlap.
    #[must_use]
    pub const fn throttle(&self) -> TemporalParams {
        TemporalParams {
            dur_threshold_pct: self.dur_threshold_pct,
            residual_ns_unknown: self.residual_ns_unknown,
            lease_ns: self.lease_ns,
        }
    }
}

impl Default for OrionParams {
    fn default() -> Self {
        Self {
            dur_threshold_pct: DUR_THRESHOLD_PCT,
            sm_threshold: None,
            residual_ns_unknown: RESIDUAL_NS_UNKNOWN,
            lease_ns: LEASE_NS,
        }
    }
}

/// The numbers of `temporal`, as in [`OrionParams`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TemporalParams {
    /// BE work in flight, in per cent of the HP request latency.
    pub dur_threshold_pct: f64,
    /// BE work in flight while the HP latency is not known, in ns.
    pub residual_ns_unknown: u64,
    /// How long a lease lasts unless it is renewed, in ns.
    pub lease_ns: u64,
}

impl TemporalParams {
    /// `DUR_THRESHOLD` in ns for this HP side: the percentage of its latency,
    /// the fixed number where that is not known, and the smaller of both where
    /// it is known of some clients only. 0 means one kernel at a time.
    #[must_use]
    pub fn dur_threshold_ns(&self, hp: &HpView) -> u64 {
        let known_ns = hp.latency_ns.map(|latency_ns| {
            // A float holds every latency up to 2^53 ns, 104 days, exactly; the
            // conversion back saturates.
            (latency_ns as f64 * self.dur_threshold_pct / 100.0) as u64
        });
        let bound_ns = match (known_ns, hp.learning) {
            (Some(known_ns), false) => known_ns,
            (Some(known_ns), true) => known_ns.min(self.residual_ns_unknown),
            (None, _) => self.residual_ns_unknown,
        };
        // The gate counts up to one more than the bound.
        bound_ns.min(u64::MAX - 1)
    }
}

impl Default for TemporalParams {
    fn default() -> Self {
        OrionParams::default().throttle()
    }
}

/// Why a policy cannot be used. An operator's mistake.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyError {
    /// No policy has this name. The message lists the names.
    UnknownName {
        /// What was asked for.
        given: String,
    },
    /// `dur_threshold_pct` is not above 0 and at most 100.
    DurThreshold {
        /// What was asked for.
        pct: f64,
    },
    /// `lease_ns` is not between 1 ms and 1 s.
    LeaseNs {
        /// What was asked for.
        lease_ns: u64,
    },
}

impl PolicyError {
    /// What was probably meant, as one would write it.
    #[must_use]
    pub fn nearest(&self) -> String {
        match self {
            Self::UnknownName { given } => nearest_name(given).to_owned(),
            Self::DurThreshold { pct } if *pct > 100.0 => "100".to_owned(),
            Self::DurThreshold { .. } => DUR_THRESHOLD_PCT.to_string(),
            Self::LeaseNs { lease_ns } => (*lease_ns).clamp(LEASE_NS_MIN, LEASE_NS_MAX).to_string(),
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = self.nearest();
        match self {
            Self::UnknownName { given } => {
                let names = Policy::NAMES.join(", ");
                write!(
                    f,
                    "unknown policy `{given}`: policies are {names}; nearest is `{nearest}`"
                )
            }
            Self::DurThreshold { pct } => write!(
                f,
                "dur_threshold_pct is {pct}: must be above 0 and at most 100; nearest is {nearest}"
            ),
            Self::LeaseNs { lease_ns } => write!(
                f,
                "lease_ns is {lease_ns}: must be from {LEASE_NS_MIN} to {LEASE_NS_MAX}; \
                 nearest is {nearest}"
            ),
        }
    }
}

impl Error for PolicyError {}

/// The name that begins so, else the one with the fewest letters to change; of
/// equals the first.
fn nearest_name(given: &str) -> &'static str {
    let given = given.to_lowercase();
    let distance = |name: &&&str| {
        let is_other = !name.starts_with(&given);
        (is_other, edit_distance(given.as_bytes(), name.as_bytes()))
    };
    Policy::NAMES
        .iter()
        .min_by_key(distance)
        .copied()
        .unwrap_or("none")
}

/// Levenshtein's distance, one row at a time.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Orion §5.1.1: "empirically set the default percentage to 2.5%".
const DUR_THRESHOLD_PCT: f64 = 2.5;

/// Design §1: 100 µs until 50 requests were seen; 2.5 % of a 4 ms request.
const RESIDUAL_NS_UNKNOWN: u64 = 100_000;

/// A hundred polls of 50 µs. HP's launches end a lease within microseconds by
/// the epoch; the expiry is for a daemon that has stopped, and stays below the
/// 10 ms after which it counts as gone.
const LEASE_NS: u64 = 5_000_000;

/// The longest poll (clients, but no BE work) is 1 ms: a lease must outlive it.
const LEASE_NS_MIN: u64 = 1_000_000;

/// A dead daemon must not be obeyed for longer than a person notices.
const LEASE_NS_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_the_policy_of_that_name() {
        for name in Policy::NAMES {
            let policy: Policy = name.parse().unwrap();
            assert_eq!(policy.name(), name);
            assert_eq!(policy.validate(), Ok(()));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list_and_the_nearest() {
        for (given, nearest) in [
            ("oriom", "orion"),
            ("Orion", "orion"),
            ("temp", "temporal"),
            ("timeporal", "temporal"),
            ("non", "none"),
        ] {
            let error = given.parse::<Policy>().unwrap_err();
            assert_eq!(error.nearest(), nearest, "{given}");
        }
        assert_eq!(
            "orin".parse::<Policy>().unwrap_err().to_string(),
            "unknown policy `orin`: policies are none, orion, temporal; nearest is `orion`"
        );
    }

    #[test]
    fn numbers_that_cannot_be_meant_are_refused() {
        let orion = |pct, lease_ns| {
            Policy::Orion(OrionParams {
                dur_threshold_pct: pct,
                lease_ns,
                ..Default::default()
            })
        };
        for pct in [0.0, -1.0, 100.5, f64::NAN, f64::INFINITY] {
            let error = orion(pct, 5_000_000).validate().unwrap_err();
            assert!(matches!(error, PolicyError::DurThreshold { .. }), "{pct}");
        }
        for lease_ns in [0, 999_999, 1_000_000_001] {
            let error = orion(2.5, lease_ns).validate().unwrap_err();
            assert_eq!(error, PolicyError::LeaseNs { lease_ns });
        }
        assert_eq!(orion(100.0, 1_000_000).validate(), Ok(()));
        let temporal = TemporalParams {
            dur_threshold_pct: 200.0,
            ..Default::default()
        };
        assert_eq!(
            Policy::Temporal(temporal).validate().unwrap_err().nearest(),
            "100"
        );
    }

    #[test]
    fn the_threshold_is_a_percentage_of_the_latency_or_the_fixed_number() {
        let params = TemporalParams::default();
        let hp = |latency_ns, learning| HpView {
            latency_ns,
            learning,
            ..HpView::IDLE
        };
        // 2.5 % of 6.498 ms (ResNet50 inference, batch 4) = 162.45 µs.
        assert_eq!(
            params.dur_threshold_ns(&hp(Some(6_498_000), false)),
            162_450
        );
        assert_eq!(params.dur_threshold_ns(&hp(None, false)), 100_000);
        assert_eq!(params.dur_threshold_ns(&hp(None, true)), 100_000);
        // One client known, another not: min(162.45, 100) and min(25, 100) µs.
        assert_eq!(params.dur_threshold_ns(&hp(Some(6_498_000), true)), 100_000);
        assert_eq!(params.dur_threshold_ns(&hp(Some(1_000_000), true)), 25_000);
        let all = TemporalParams {
            dur_threshold_pct: 100.0,
            ..params
        };
        assert_eq!(
            all.dur_threshold_ns(&hp(Some(u64::MAX), false)),
            u64::MAX - 1
        );
    }
}

//! A policy of the registry with its numbers, and their check. Each policy's file defines it, with
//! its numbers and their defaults; [`crate::registry`] has the names. The limits are here, so that
//! configuration, simulator and gate agree on them. Some policies do not fit into a lease: they
//! decide about queues of launches, or about the placement of processes on the GPU, or they know
//! the future. [`SIMULATOR_ONLY`] names them, so that a daemon can report why it refuses one.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::launch_gate::{LaunchGate, LaunchGateParams};
use crate::none::HoldNobody;
use crate::orion::{DUR_THRESHOLD_PCT, Orion, OrionParams};
use crate::pillion::{MISS, MISS_MAX, Pillion, PillionParams, SLOWDOWN_MAX, THROUGHPUT_MIN};
use crate::registry::{self, Entry, Numbers, POLICIES};
use crate::rules::Rules;
use crate::temporal::{Temporal, TemporalParams};
use crate::{launch_gate, none, orion, pillion, temporal};

/// The rules that the gate follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Nobody is held ([`crate::none`]).
    None,
    /// Orion's Listing 1 ([`crate::orion`]).
    Orion(OrionParams),
    /// BE work only while HP is idle ([`crate::temporal`]).
    Temporal(TemporalParams),
    /// One BE kernel at a time, only while HP is idle ([`crate::launch_gate`]).
    LaunchGate(LaunchGateParams),
    /// Pillion's own ([`crate::pillion`]).
    Pillion(PillionParams),
    /// Any other policy of the registry, and its plain numbers.
    Listed(Numbers),
}

/// Policies that run in the simulator only: the name, and why a daemon cannot run it.
pub const SIMULATOR_ONLY: [(&str, &str); 7] = [
    ("streams", "it runs all jobs in one process"),
    ("stream-priority", "it runs all jobs in one process"),
    ("mps", "it is MPS without Pillion"),
    ("mps-priority", "it is MPS without Pillion"),
    (
        "reef-n",
        "it decides about queues of launches, and a daemon grants leases",
    ),
    (
        "orion-code",
        "it decides about queues of launches, and a daemon grants leases",
    ),
    ("oracle", "it knows the future"),
];

impl Policy {
    /// The names for lists and messages, in display order. [`Policy::from_str`] also takes those of
    /// [`registry::EXAMPLES`].
    pub const NAMES: [&'static str; POLICIES.len()] = {
        let mut names = [""; POLICIES.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = POLICIES[index].name;
            index += 1;
        }
        names
    };

    /// Its entry in the registry.
    #[must_use]
    pub const fn entry(&self) -> &'static Entry {
        match self {
            Self::None => &none::ENTRY,
            Self::Orion(_) => &orion::ENTRY,
            Self::Temporal(_) => &temporal::ENTRY,
            Self::LaunchGate(_) => &launch_gate::ENTRY,
            Self::Pillion(_) => &pillion::ENTRY,
            Self::Listed(numbers) => numbers.entry(),
        }
    }

    /// The name in configuration and tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.entry().name
    }

    /// The policy at work, in its initial state.
    #[must_use]
    pub fn rules(&self) -> Box<dyn Rules> {
        match *self {
            Self::None => Box::new(HoldNobody),
            Self::Orion(params) => Box::new(Orion::new(params)),
            Self::Temporal(params) => Box::new(Temporal::new(params)),
            Self::LaunchGate(params) => Box::new(LaunchGate::new(params)),
            Self::Pillion(params) => Box::new(Pillion::new(params)),
            Self::Listed(numbers) => numbers.rules(),
        }
    }

    /// Checks the ranges of the numbers.
    /// # Errors
    /// The first number out of range, see [`PolicyError`].
    pub fn validate(&self) -> Result<(), PolicyError> {
        if let Some(params) = self.throttle_params() {
            let pct = params.dur_threshold_pct;
            // The comparison also refuses a NaN.
            if !(pct > 0.0 && pct <= 100.0) {
                return Err(PolicyError::DurThreshold { pct });
            }
        }
        if let Self::Pillion(params) = self {
            params.goal(true).validate()?;
        }
        match self.lease_ns() {
            Some(lease_ns) if !(LEASE_NS_MIN..=LEASE_NS_MAX).contains(&lease_ns) => {
                Err(PolicyError::LeaseNs { lease_ns })
            }
            _ => Ok(()),
        }
    }

    /// The numbers of a policy that bounds the expected BE work in flight by `DUR_THRESHOLD`
    /// (orion, temporal); otherwise `None`.
    #[must_use]
    pub const fn throttle_params(&self) -> Option<TemporalParams> {
        match self {
            Self::None | Self::LaunchGate(_) | Self::Pillion(_) | Self::Listed(_) => None,
            Self::Orion(params) => Some(params.throttle()),
            Self::Temporal(params) => Some(*params),
        }
    }

    /// How long a lease lasts unless renewed, in ns; `None` for a policy without a fixed duration.
    #[must_use]
    pub const fn lease_ns(&self) -> Option<u64> {
        match self {
            Self::None | Self::Listed(_) => None,
            Self::Orion(params) => Some(params.lease_ns),
            Self::Temporal(params) => Some(params.lease_ns),
            Self::LaunchGate(params) => Some(params.lease_ns),
            Self::Pillion(params) => Some(params.lease_ns),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(name: &str) -> Result<Self, PolicyError> {
        let policy = registry::find(name).map(Entry::policy);
        policy.ok_or_else(|| match simulator_only(name) {
            Some(index) => PolicyError::SimulatorOnly { index },
            None => PolicyError::UnknownName {
                given: name.to_owned(),
            },
        })
    }
}

/// The index of `name` in [`SIMULATOR_ONLY`], if listed.
#[must_use]
pub fn simulator_only(name: &str) -> Option<usize> {
    SIMULATOR_ONLY.iter().position(|(known, _)| *known == name)
}

/// Why a policy cannot be used: an operator's mistake.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyError {
    /// No policy has this name. The message lists the names.
    UnknownName {
        /// The given value.
        given: String,
    },
    /// The policy runs in the simulator only.
    SimulatorOnly {
        /// Its index in [`SIMULATOR_ONLY`].
        index: usize,
    },
    /// `dur_threshold_pct` is not above 0 and at most 100.
    DurThreshold {
        /// The given value.
        pct: f64,
    },
    /// A target is not from 1 to 100 times the solo latency.
    Slowdown {
        /// The given value.
        slowdown: f64,
    },
    /// A training job's target is not from half of its rate to all of it.
    Throughput {
        /// The given value.
        share: f64,
    },
    /// The share of requests that may miss their target is not above 0 and at most a half.
    Miss {
        /// The given value.
        miss: f64,
    },
    /// `lease_ns` is not between 1 ms and 1 s.
    LeaseNs {
        /// The given value.
        lease_ns: u64,
    },
}

impl PolicyError {
    /// The suggested correction, as the user would write it.
    #[must_use]
    pub fn nearest(&self) -> String {
        match self {
            Self::UnknownName { given } => nearest_name(given).to_owned(),
            Self::SimulatorOnly { .. } => "orion".to_owned(),
            Self::DurThreshold { pct } if *pct > 100.0 => "100".to_owned(),
            Self::DurThreshold { .. } => DUR_THRESHOLD_PCT.to_string(),
            Self::Slowdown { slowdown } if *slowdown > SLOWDOWN_MAX => format!("{SLOWDOWN_MAX}x"),
            Self::Slowdown { .. } => "1.05x".to_owned(),
            Self::Throughput { share } if *share < THROUGHPUT_MIN => THROUGHPUT_MIN.to_string(),
            Self::Throughput { .. } => "1".to_owned(),
            Self::Miss { miss } if *miss > MISS_MAX => MISS_MAX.to_string(),
            Self::Miss { .. } => MISS.to_string(),
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
            Self::SimulatorOnly { index } => {
                let (name, why) = SIMULATOR_ONLY[*index];
                let names = Policy::NAMES.join(", ");
                write!(
                    f,
                    "policy `{name}` runs in the simulator only, because {why}: \
                     policies of a daemon are {names}"
                )
            }
            Self::DurThreshold { pct } => write!(
                f,
                "dur_threshold_pct is {pct}: must be above 0 and at most 100; nearest is {nearest}"
            ),
            Self::Slowdown { slowdown } => write!(
                f,
                "slo_p99 is {slowdown}x: must be from 1x to {SLOWDOWN_MAX}x; nearest is {nearest}"
            ),
            Self::Throughput { share } => write!(
                f,
                "slo_throughput is {share}: must be from {THROUGHPUT_MIN} to 1; nearest is {nearest}"
            ),
            Self::Miss { miss } => write!(
                f,
                "slo_miss is {miss}: must be above 0 and at most {MISS_MAX}; nearest is {nearest}"
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

/// The name with this prefix, else the one with the least edit distance; the first of equals.
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

/// The longest poll (clients, but no BE work) is 1 ms: a lease must outlive it.
const LEASE_NS_MIN: u64 = 1_000_000;

/// How long a dead daemon may be obeyed: less than a person notices.
const LEASE_NS_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HpView, Slo};

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
            "unknown policy `orin`: policies are none, pillion, orion, temporal, launch-gate; nearest is `orion`"
        );
    }

    #[test]
    fn a_policy_of_the_simulator_is_refused_with_the_reason() {
        for (name, why) in SIMULATOR_ONLY {
            assert!(!Policy::NAMES.contains(&name));
            let text = name.parse::<Policy>().unwrap_err().to_string();
            assert!(
                text.contains("simulator only") && text.contains(why),
                "{text}"
            );
        }
        assert_eq!(
            "reef-n".parse::<Policy>().unwrap_err().to_string(),
            "policy `reef-n` runs in the simulator only, because it decides about queues of \
             launches, and a daemon grants leases: policies of a daemon are none, pillion, orion, \
             temporal, launch-gate"
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
    fn a_goal_that_cannot_be_meant_is_refused_with_the_nearest_that_can() {
        let with = |slo, miss| {
            Policy::Pillion(PillionParams {
                slo: Some(slo),
                miss,
                ..PillionParams::default()
            })
        };
        let slo = Slo::Slowdown(1.2);
        for (miss, nearest) in [
            (0.0, "0.01"),
            (-0.01, "0.01"),
            (f64::NAN, "0.01"),
            (0.51, "0.5"),
            (f64::INFINITY, "0.5"),
        ] {
            let error = with(slo, miss).validate().unwrap_err();
            assert!(matches!(error, PolicyError::Miss { .. }), "{miss}");
            assert_eq!(error.nearest(), nearest, "{miss}");
        }
        assert_eq!(
            with(slo, 0.6).validate().unwrap_err().to_string(),
            "slo_miss is 0.6: must be above 0 and at most 0.5; nearest is 0.5"
        );
        for miss in [f64::MIN_POSITIVE, 0.001, 0.5] {
            assert_eq!(with(slo, miss).validate(), Ok(()));
        }
        for slowdown in [f64::NAN, 0.9, 101.0] {
            let error = with(Slo::Slowdown(slowdown), 0.01).validate().unwrap_err();
            assert!(matches!(error, PolicyError::Slowdown { .. }), "{slowdown}");
        }
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

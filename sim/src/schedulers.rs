//! The policies by name, each behind [`Scheduler`].

mod at_once;
mod leased;

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::scheduler::{Placement, Scheduler};

use at_once::AtOnce;
use leased::Leased;
use policy::Policy;

/// A policy and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicySpec {
    /// All jobs in one process, a stream each; every launch goes at once.
    Streams,
    /// The same, high-priority jobs' streams with the greater priority.
    StreamPriority,
    /// A process each; every launch goes at once. Whether they compute together is the experiment's
    /// sharing.
    Mps,
    /// The same, high-priority jobs with the greater priority.
    MpsPriority,
    /// A policy that the daemon ships, with the daemon's and the library's delays.
    Shipped(Policy),
}

impl PolicySpec {
    /// Every name that [`PolicySpec::from_str`] takes, in the order shown to people.
    pub const NAMES: [&'static str; 7] = [
        "none",
        "temporal",
        "streams",
        "stream-priority",
        "mps",
        "mps-priority",
        "orion",
    ];

    /// The name in options and tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::StreamPriority => "stream-priority",
            Self::Mps => "mps",
            Self::MpsPriority => "mps-priority",
            Self::Shipped(policy) => policy.name(),
        }
    }

    /// The policy, ready for a run of `experiment`, of whose jobs it may look at everything.
    ///
    /// # Errors
    /// [`Error::Policy`]: its numbers cannot be meant.
    pub fn build(&self, experiment: &Experiment) -> Result<Box<dyn Scheduler>, Error> {
        let at_once = |one_context, priorities| -> Box<dyn Scheduler> {
            Box::new(AtOnce::new(Placement {
                one_context,
                priorities,
            }))
        };
        Ok(match self {
            Self::Streams => at_once(true, false),
            Self::StreamPriority => at_once(true, true),
            Self::Mps => at_once(false, false),
            Self::MpsPriority => at_once(false, true),
            Self::Shipped(policy) => {
                policy
                    .validate()
                    .map_err(|error| Error::Policy(error.to_string()))?;
                Box::new(Leased::new(*policy, None, experiment))
            }
        })
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicySpec {
    type Err = Error;

    /// The policy of that name with default numbers.
    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "streams" => Ok(Self::Streams),
            "stream-priority" => Ok(Self::StreamPriority),
            "mps" => Ok(Self::Mps),
            "mps-priority" => Ok(Self::MpsPriority),
            _ if Self::NAMES.contains(&name) => name
                .parse()
                .map(Self::Shipped)
                .map_err(|error: policy::PolicyError| Error::Policy(error.to_string())),
            _ => {
                let names = Self::NAMES.join(", ");
                Err(Error::Policy(format!(
                    "unknown policy `{name}`: policies are {names}"
                )))
            }
        }
    }
}

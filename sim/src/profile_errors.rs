//! Errors of profiles: how the policies' knowledge of kernels differs from the kernels. The device
//! runs kernels as their traces have them; only the durations, classes and SM needs that policies
//! see change, and so does the charge for a launch. The affected kernels are drawn once for each
//! kernel of each job from the run's seed, with one draw for each kind of error, so that a greater
//! share affects the kernels of a smaller one and further ones. A clairvoyant policy asks no
//! profile and gets the truth.
//!
//! An *unknown* kernel is as `libpillion.so` treats one without a profile: no class, the duration
//! that the daemon's configuration gives such kernels ([`UNKNOWN_NS`]), the driver's SM need.
//! Alternatively classes are estimated from names and shapes, as `libpillion.so` does for kernels
//! without a profile ([`profiler::family`]); the other errors apply to those.

use policy::Class;
use profiler::family::{self, Launch};
use profiler::settings::{self, decimal};
use profiler::{ResourceClass, Trace};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Deserializer};

use crate::job::{Job, JobClass};
use crate::program::{Program, class_of};

/// Errors of profiles; [`ProfileErrors::NONE`] where they are right.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileErrors {
    /// The reported duration, over the true one.
    #[serde(deserialize_with = "decimal::<_, 1_000>")]
    pub duration_factor: f64,
    /// The share of kernels whose duration is wrong by that factor, 0 to 1.
    #[serde(deserialize_with = "share")]
    pub wrong_share: f64,
    /// Share of kernels, 0 to 1, reported compute-bound for memory-bound or reversely; unknown ones
    /// stay.
    #[serde(deserialize_with = "share")]
    pub flipped_share: f64,
    /// The share of kernels without a profile, 0 to 1.
    #[serde(deserialize_with = "share")]
    pub unknown_share: f64,
    /// The source of the classes.
    #[serde(deserialize_with = "classes")]
    pub classes: Classes,
    /// The class of jobs with wrong profiles; `None`: both.
    #[serde(deserialize_with = "owner")]
    pub of: Option<JobClass>,
}

/// The source of the classes reported to policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Classes {
    /// The trace.
    #[default]
    Measured,
    /// Names, shapes and SM needs alone; durations are unchanged.
    Estimated,
}

fn classes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Classes, D::Error> {
    let all = [Classes::Measured, Classes::Estimated];
    settings::word(deserializer, &["measured", "estimated"]).map(|index| all[index])
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    settings::number(deserializer, 0.0..=1.0)
}

fn owner<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<JobClass>, D::Error> {
    let (hp, be) = (Some(JobClass::HighPriority), Some(JobClass::BestEffort));
    let words = ["all", "high-priority", "best-effort"];
    settings::word(deserializer, &words).map(|index| [None, hp, be][index])
}

impl ProfileErrors {
    /// Profiles are right.
    pub const NONE: Self = Self {
        duration_factor: 1.0,
        wrong_share: 1.0,
        flipped_share: 0.0,
        unknown_share: 0.0,
        classes: Classes::Measured,
        of: None,
    };

    /// Changes the policies' knowledge of the kernels of a job's program, made of this trace, on a
    /// device of `device_sms` SMs. `seed` is that of the job's arrivals.
    pub(crate) fn tell(
        &self,
        (trace, program): (&Trace, &mut Program),
        job: &Job,
        device_sms: u32,
        seed: u64,
    ) {
        if *self == Self::NONE || self.of.is_some_and(|of| of != job.class) {
            return;
        }
        if self.classes == Classes::Estimated {
            estimate((trace, program), job.class, device_sms);
        }
        // A separate stream of random numbers: the job's arrivals stay the same.
        let mut random = Pcg64::seed_from_u64(seed ^ SALT);
        for resolved in &mut program.kernels {
            let [wrong, flipped, unknown]: [f64; 3] = std::array::from_fn(|_| random.random());
            let kernel = &mut resolved.kernel;
            if wrong < self.wrong_share {
                let told_ns = (kernel.expected_ns as f64 * self.duration_factor).round();
                kernel.expected_ns = (told_ns as u64).max(1);
            }
            if flipped < self.flipped_share {
                kernel.class = match kernel.class {
                    Class::Compute => Class::Memory,
                    Class::Memory => Class::Compute,
                    Class::Unknown => Class::Unknown,
                };
            }
            if unknown < self.unknown_share {
                kernel.class = Class::Unknown;
                kernel.expected_ns = UNKNOWN_NS;
            }
        }
    }
}

fn estimate((trace, program): (&Trace, &mut Program), class: JobClass, device_sms: u32) {
    // As in `libpillion.so`: small launches of a high-priority job have a class too.
    let small_below = (class == JobClass::BestEffort).then_some(device_sms);
    for (resolved, kernel) in program.kernels.iter_mut().zip(&trace.kernels) {
        let launch = Launch {
            name: &kernel.source_name,
            sm_needed: Some(kernel.sm_needed),
            device_sms: small_below,
            duration_ns: None,
            intensity: None,
        };
        let class = family::estimate(&launch).map(|estimate| estimate.class);
        resolved.kernel.class = class_of(class.unwrap_or(ResourceClass::Unknown));
    }
}

impl Default for ProfileErrors {
    fn default() -> Self {
        Self::NONE
    }
}

/// Expected duration of a kernel without a profile: the daemon's default `unknown_kernel_us`.
pub const UNKNOWN_NS: u64 = 100_000;

/// Makes errors and arrivals of one seed independent.
const SALT: u64 = 0x70f1_1e5e_7707_55ed;

//! The policies by name, each behind [`Scheduler`].
//!
//! | policy | defined in | is |
//! |---|---|---|
//! | those of `policy::registry` | `policy`, a file each | a daemon's policy, behind `leased` |
//! | `streams`, `stream-priority`, `mps`, `mps-priority` | here | placements; launches go at once |
//! | `reef-n`, `orion-code` | `policy`, a file each | queue state machines, behind `queued` |
//! | `gslice`, `gpucolo`, `mudi` | here, a file each | a publication's controller of a latency |
//! | `oracle` | `oracle` | a bound; it knows the future |

mod at_once;
mod gpucolo;
mod gslice;
mod helper;
mod learner;
mod leased;
mod mps;
mod mps_priority;
mod mudi;
mod oracle;
mod period_mean;
mod queued;
mod spec;
mod stream_priority;
mod streams;
mod thread;

pub use oracle::OracleParams;
pub use spec::{
    GpuColoSpec, GsliceSpec, MudiSpec, MuxFlowSpec, OrionCodeSpec, OrionSpec, PillionSpec,
    PolicySpec,
};

use policy::{
    CodeHp, OrionCode, OrionCodeParams, OrionParams, PillionParams, Policy, ReefN, ReefNParams,
    SmSearchParams, SmThreshold,
};
use softgpu::Sharing;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::job::{JobClass, JobKind};
use crate::program::Program;
use crate::scheduler::Scheduler;

use at_once::AtOnce;
use gpucolo::GpuColo;
use gslice::Gslice;
use leased::Leased;
use mudi::Mudi;
use oracle::{Oracle, Plan};
use queued::Queued;

impl PolicySpec {
    /// The policy, ready for a run of `experiment`, whose jobs it may inspect completely.
    ///
    /// # Errors
    /// [`Error::Policy`]: its numbers are invalid, or it is meaningless for this experiment.
    pub fn build(&self, experiment: &Experiment) -> Result<Box<dyn Scheduler>, Error> {
        self.check(experiment)?;
        Ok(match self {
            Self::MuxFlow(_) | Self::None => leased(Policy::None, false, experiment)?,
            Self::Temporal {
                params,
                is_profiled,
            } => leased(Policy::Temporal(*params), *is_profiled, experiment)?,
            Self::Listed(numbers) => leased(Policy::Listed(*numbers), false, experiment)?,
            Self::LaunchGate(params) => leased(Policy::LaunchGate(*params), false, experiment)?,
            Self::Pillion(spec) => {
                let params = PillionParams {
                    solo_ns: match spec.is_profiled {
                        true => solo_ns_min(experiment)?,
                        false => None,
                    },
                    ..spec.params
                };
                leased(Policy::Pillion(params), false, experiment)?
            }
            Self::Orion(spec) => {
                let policy = Policy::Orion(orion_params(spec, experiment)?);
                leased(policy, spec.is_profiled, experiment)?
            }
            Self::Streams => Box::new(AtOnce::new(streams::PLACEMENT)),
            Self::StreamPriority => Box::new(AtOnce::new(stream_priority::PLACEMENT)),
            Self::Mps => Box::new(AtOnce::new(mps::PLACEMENT)),
            Self::MpsPriority => Box::new(AtOnce::new(mps_priority::PLACEMENT)),
            Self::ReefN { queue_depth } => {
                one_high_priority(self, experiment)?;
                let params = ReefNParams {
                    depth: *queue_depth,
                    sms: experiment.device.sms,
                };
                let reef = ReefN::new(params, best_effort(experiment).count());
                Box::new(Queued::new(reef, experiment, false))
            }
            Self::OrionCode(spec) => {
                one_high_priority(self, experiment)?;
                let params = code_params(spec, experiment)?;
                let code = OrionCode::new(params, best_effort(experiment).count());
                Box::new(Queued::new(code, experiment, true))
            }
            Self::Gslice(spec) => {
                one_high_priority(self, experiment)?;
                Box::new(Gslice::new(spec, experiment))
            }
            Self::GpuColo(spec) => {
                one_high_priority(self, experiment)?;
                Box::new(GpuColo::new(spec, experiment))
            }
            Self::Mudi(spec) => {
                one_high_priority(self, experiment)?;
                Box::new(Mudi::new(spec, experiment))
            }
            Self::Oracle(params) => {
                one_high_priority(self, experiment)?;
                Box::new(Oracle::new(*params, experiment)?)
            }
        })
    }

    fn check(&self, experiment: &Experiment) -> Result<(), Error> {
        if self.needs_mps() && experiment.gpu.sharing == Sharing::TimeSlice {
            return Err(Error::Policy(format!(
                "{} needs kernels of several jobs to compute at the same time, which time slices never \
                 allow: expected sharing mps",
                self.name()
            )));
        }
        let dies = experiment.jobs.iter().find(|job| job.death_ns.is_some());
        if let Some(job) = dies.filter(|_| !self.outlives_jobs()) {
            return Err(Error::Policy(format!(
                "{} does not support jobs that die, and job {} does",
                self.name(),
                job.name
            )));
        }
        let changes = experiment
            .jobs
            .iter()
            .find(|job| !job.trace_phases.is_empty() || !job.batches.is_empty());
        if let Some(job) = changes.filter(|_| self.is_clairvoyant()) {
            return Err(Error::Policy(format!(
                "{} plans with one trace for each job, and job {} has more",
                self.name(),
                job.name
            )));
        }
        self.check_laws(&experiment.laws)
    }
}

pub(crate) fn nobody() -> Box<dyn Scheduler> {
    Box::new(AtOnce::new(mps::PLACEMENT))
}

fn leased(
    policy: Policy,
    is_profiled: bool,
    experiment: &Experiment,
) -> Result<Box<dyn Scheduler>, Error> {
    policy
        .validate()
        .map_err(|error| Error::Policy(error.to_string()))?;
    let known_latency_ns = match is_profiled {
        true => solo_ns_min(experiment)?,
        false => None,
    };
    Ok(Box::new(Leased::new(policy, known_latency_ns, experiment)))
}

/// As a profiler measures it beforehand.
fn solo_ns_min(experiment: &Experiment) -> Result<Option<u64>, Error> {
    let mut least_ns: Option<u64> = None;
    for (index, job) in high_priority(experiment) {
        let program = Program::new(job, &experiment.device)?;
        let solo_ns = solo_ns(experiment, index, &program);
        least_ns = Some(least_ns.map_or(solo_ns, |least_ns| least_ns.min(solo_ns)));
    }
    Ok(least_ns)
}

pub(crate) fn solo_ns(experiment: &Experiment, index: usize, program: &Program) -> u64 {
    Plan::new(experiment, index, program, 0.0).request_ns()
}

/// The device's SMs for a high-priority inference job, searched for where all of them train.
fn orion_params(spec: &OrionSpec, experiment: &Experiment) -> Result<OrionParams, Error> {
    let trains = high_priority(experiment).all(|(_, job)| job.kind == JobKind::Training);
    let sm_threshold = match (spec.sm_threshold, solo_ns_min(experiment)?) {
        (Some(sms), _) => SmThreshold::Sms(sms),
        (None, Some(solo_ns)) if trains => SmThreshold::Searched(SmSearchParams {
            sm_needed_max: sm_needed_max(best_effort(experiment)),
            solo_ns,
            loss_pct_max: spec.hp_loss_pct,
        }),
        (None, _) => SmThreshold::DeviceSms,
    };
    if !(0.0..100.0).contains(&spec.hp_loss_pct) {
        return Err(Error::Policy(format!(
            "hp_loss_pct is {}: must be 0 or more and less than 100",
            spec.hp_loss_pct
        )));
    }
    Ok(OrionParams {
        dur_threshold_pct: spec.dur_threshold_pct,
        sm_threshold,
        residual_ns_unknown: spec.residual_ns_unknown,
        lease_ns: spec.lease_ns,
    })
}

/// The values that the artefact's scripts pass by hand.
fn code_params(spec: &OrionCodeSpec, experiment: &Experiment) -> Result<OrionCodeParams, Error> {
    let solo_ns = solo_ns_min(experiment)?.unwrap_or(0);
    let trains = high_priority(experiment).any(|(_, job)| job.kind == JobKind::Training);
    let kept = 1.0 - spec.hp_loss_pct / 100.0;
    Ok(OrionCodeParams {
        max_be_duration_ns: (solo_ns as f64 * spec.dur_threshold_pct / 100.0) as u64,
        sms: spec.sms,
        warmup_requests: spec.warmup_requests,
        hp: match trains {
            false => CodeHp::Inference,
            true => CodeHp::Training {
                request_ns_max: (solo_ns as f64 / kept) as u64,
                update_start: None,
                sm_needed_max: sm_needed_max(best_effort(experiment).take(1)),
            },
        },
    })
}

fn one_high_priority(spec: &PolicySpec, experiment: &Experiment) -> Result<(), Error> {
    let count = high_priority(experiment).count();
    if count <= 1 {
        return Ok(());
    }
    Err(Error::Policy(format!(
        "{} supports one high-priority job; this experiment has {count}",
        spec.name()
    )))
}

fn high_priority(experiment: &Experiment) -> impl Iterator<Item = (usize, &crate::Job)> {
    let jobs = experiment.jobs.iter().enumerate();
    jobs.filter(|(_, job)| job.class == JobClass::HighPriority)
}

fn best_effort(experiment: &Experiment) -> impl Iterator<Item = &crate::Job> {
    let jobs = experiment.jobs.iter();
    jobs.filter(|job| job.class == JobClass::BestEffort)
}

fn sm_needed_max<'a>(jobs: impl Iterator<Item = &'a crate::Job>) -> u32 {
    jobs.flat_map(|job| &job.trace.kernels)
        .map(|kernel| kernel.sm_needed)
        .max()
        .unwrap_or(0)
}

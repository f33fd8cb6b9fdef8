//! An experiment: a device, jobs, a policy, and a duration.

use softgpu::{Config, Device};

use crate::arrivals::{self, Arrivals};
use crate::error::Error;
use crate::host::HostModel;
use crate::job::{Job, TracePhase};
use crate::laws::{self, Laws};
use crate::observer::Observer;
use crate::outcome::Outcome;
use crate::profile_errors::ProfileErrors;
use crate::program::Program;
use crate::schedulers::{self, PolicySpec};
use crate::world::World;

/// Most jobs of an experiment: as many best-effort jobs as one daemon serves.
pub const JOBS_MAX: usize = policy::JOBS_MAX;

/// The complete input of a run. Equal experiments have equal outcomes.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The modelled device.
    pub device: Device,
    /// How it is shared and scheduled. With all jobs in one process the sharing is meaningless.
    pub gpu: Config,
    /// The jobs; at most [`JOBS_MAX`].
    pub jobs: Vec<Job>,
    /// The policy.
    pub policy: PolicySpec,
    /// Further laws that hold best-effort work.
    pub laws: Laws,
    /// Determines everything random: the arrivals.
    pub seed: u64,
    /// The time in which requests arrive, and closed loops begin new ones.
    pub duration_ns: u64,
    /// The host's times.
    pub host: HostModel,
    /// Errors in the policies' knowledge of kernels.
    pub profiles: ProfileErrors,
    /// First requests of each job that its latencies exclude (Orion's harness drops ten).
    pub warmup_requests: u32,
}

impl Experiment {
    /// Checks the experiment.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), Error> {
        self.programs().map(drop)
    }

    /// Checks the job at index `job`, regardless of the other jobs and the host.
    ///
    /// # Errors
    /// Its first fault.
    ///
    /// # Panics
    /// If there is no such job.
    pub fn check_job(&self, job: usize) -> Result<(), Error> {
        self.check_arrivals(job)?;
        Program::all(&self.jobs[job], &self.device).map(drop)
    }

    /// Runs all jobs together under the policy.
    ///
    /// # Errors
    /// As [`Experiment::check`].
    pub fn run<O: Observer + ?Sized>(&self, observer: &mut O) -> Result<Outcome, Error> {
        let programs = self.programs()?;
        let jobs: Vec<usize> = (0..self.jobs.len()).collect();
        let scheduler = self.policy.build(self)?;
        let percent = laws::be_percent(self)?;
        Ok(World::new(self, &jobs, programs, scheduler, observer)
            .with_be_percent(percent)
            .run())
    }

    /// Runs the job at index `job` alone and unscheduled, with its arrivals of [`Experiment::run`].
    ///
    /// # Errors
    /// As [`Experiment::check`].
    ///
    /// # Panics
    /// If there is no such job.
    pub fn run_solo<O: Observer + ?Sized>(
        &self,
        job: usize,
        observer: &mut O,
    ) -> Result<Outcome, Error> {
        let mut programs = self.programs()?;
        let program = programs.swap_remove(job);
        let scheduler = schedulers::nobody();
        Ok(World::new(self, &[job], vec![program], scheduler, observer).run())
    }

    /// The host for the job at index `job`: threads that launch in turn share the gap of one.
    #[must_use]
    pub fn host_of(&self, job: usize) -> HostModel {
        let job = self.jobs.get(job);
        let own_ns = job.and_then(|job| job.launch_gap_ns);
        let gap_ns = own_ns.unwrap_or(self.host.launch_gap_ns);
        let threads = job.map_or(1, |job| job.threads.max(1));
        HostModel {
            launch_gap_ns: gap_ns / u64::from(threads),
            ..self.host
        }
    }

    /// The seed of the arrivals of the job at index `job`.
    #[must_use]
    pub fn seed_of(&self, job: usize) -> u64 {
        arrivals::seed_of_job(self.seed, job)
    }

    fn programs(&self) -> Result<Vec<Vec<Program>>, Error> {
        self.check_numbers()?;
        let programs = self.jobs.iter().enumerate().map(|(index, job)| {
            let programs = Program::all(job, &self.device)?.into_iter();
            let told = programs.map(|(trace, mut program)| {
                if !self.policy.is_clairvoyant() {
                    let (seed, sms) = (self.seed_of(index), self.device.sms);
                    self.profiles.tell((trace, &mut program), job, sms, seed);
                    program.tell(&job.told_ns);
                }
                program
            });
            Ok(told.collect())
        });
        let programs = programs.collect::<Result<_, Error>>()?;
        self.check_memory()?;
        Ok(programs)
    }

    fn check_numbers(&self) -> Result<(), Error> {
        if self.jobs.is_empty() {
            return Err(Error::NoJobs);
        }
        if self.jobs.len() > JOBS_MAX {
            return Err(Error::TooManyJobs {
                count: self.jobs.len(),
                max: JOBS_MAX,
            });
        }
        if !(1..=DURATION_NS_MAX).contains(&self.duration_ns) {
            return Err(Error::Duration {
                ns: self.duration_ns,
            });
        }
        self.check_device()?;
        self.host.check()?;
        (0..self.jobs.len()).try_for_each(|job| {
            self.host_of(job).check()?;
            self.check_arrivals(job)
        })
    }

    fn check_arrivals(&self, job: usize) -> Result<(), Error> {
        let Job {
            name,
            arrivals,
            phases,
            trace_phases,
            batches,
            ..
        } = &self.jobs[job];
        let is_before = |pair: &[TracePhase]| pair[0].start_ns < pair[1].start_ns;
        let in_order = match trace_phases.windows(2).all(is_before) {
            true => Ok(()),
            false => Err(arrivals::OUT_OF_ORDER.to_owned()),
        };
        let batched = match batches.is_empty() {
            false if *arrivals == Arrivals::Closed => Err(
                "batches need requests that do not wait for the last answer: expected arrivals with a rate, or from a file",
            ),
            false if !trace_phases.is_empty() => {
                Err("batches and phases with traces are both set: expected only one of them")
            }
            _ if batches.iter().any(|batch| batch.requests == 0) => {
                Err("a batch of 0 requests: expected at least 1")
            }
            _ => Ok(()),
        };
        let checked = arrivals.check(self.duration_ns);
        checked
            .and_then(|()| arrivals.check_phases(phases, self.duration_ns))
            .and(in_order)
            .and(batched.map_err(str::to_owned))
            .map_err(|what| Error::Arrivals {
                job: name.clone(),
                what,
            })
    }

    fn check_device(&self) -> Result<(), Error> {
        let device = &self.device;
        let limits = [
            (u64::from(device.sms), "sms"),
            (u64::from(device.threads_per_sm), "threads_per_sm"),
            (u64::from(device.blocks_per_sm), "blocks_per_sm"),
            (u64::from(device.registers_per_sm), "registers_per_sm"),
            (u64::from(device.bandwidth_gb_s), "bandwidth_gb_s"),
        ];
        match limits.into_iter().find(|&(value, _)| value == 0) {
            None => Ok(()),
            Some((_, limit)) => Err(Error::Device {
                device: device.name.clone(),
                limit,
            }),
        }
    }

    fn check_memory(&self) -> Result<(), Error> {
        let known = || {
            self.jobs
                .iter()
                .filter_map(|job| Some((job, job.memory_bytes?)))
        };
        let needed = known().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(bytes));
        if needed <= self.device.memory_bytes {
            return Ok(());
        }
        let each = known().map(|(job, bytes)| format!("{} {bytes}", job.name));
        Err(Error::Memory {
            needed,
            available: self.device.memory_bytes,
            device: self.device.name.clone(),
            each: each.collect::<Vec<_>>().join(", "),
        })
    }
}

const DURATION_NS_MAX: u64 = 86_400_000_000_000;

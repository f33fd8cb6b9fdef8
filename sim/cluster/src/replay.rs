//! A recorded trace as the jobs that the simulator plays. By form, the arrival of a job, and its
//! time alone:
//! - openb: `creation_time`; from `scheduled_time` to `deletion_time`. Class: `LS` is
//!   high-priority, others are best-effort. Part of a GPU: `gpu_milli`.
//! - Philly: `timestamp`; `duration`. Tiresias: `submit_time`; `duration`.
//! - Muri: `submit_time`, or where that is 0 in all rows, the sum of the `interval`s before;
//!   `duration`.
//! - Gavel: `arrival_time`; `total_steps` at the measured rate alone.
//! - PAI's tasks: `start_time`; to `end_time`. Part of a GPU: `plan_gpu` %, of each instance.
//!
//! Jobs of all forms but openb are best-effort; of all but openb and PAI they have whole GPUs.
//! - Best-effort jobs make progress from [`FLOOR_MILLI`] on, and have no promise. High-priority
//!   jobs have one if [`Options::slo_milli`] says so.
//! - A gang may lie on several nodes, but for openb's pods, each of which runs on one node.
//! - No form states device memory, so none is asked for. Host CPU and memory, and models of GPU,
//!   are asked for as stated if the nodes of the cluster are known ([`Options::has_hosts`]).
//! - Times count from the first job. Jobs without a length or a GPU are left out and counted.
//! - Only Gavel's trace names workloads of its measurements. Jobs of other traces get one at random
//!   where measurements are given, each as likely as another.

use std::collections::HashMap;
use std::path::Path;

use cluster::interference::Pairs;
use cluster::inventory::WHOLE_MILLI;
use cluster::{Class, Inventory, InventoryError, JobId, JobSpec, WorkloadId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::days::PATIENCE_NS;
use crate::meter::DAY_NS;
use crate::play::Play;
use crate::sources;
use crate::traces::form::{Form, MachineForm, form, machine_form};
use crate::traces::{self, TraceError, gavel, muri, openb, pai, philly, tiresias};
use crate::world::{Arrival, Physics};

/// The least of a GPU that a best-effort job makes progress with.
pub const FLOOR_MILLI: u32 = 100;

/// Latest arrival: a hundred years, as of all readers.
const AT_S_MAX: f64 = 3_155_760_000.0;

/// Why a trace cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The machines are no cluster.
    #[error("{file}: {source}")]
    Inventory {
        /// The file of the machines.
        file: String,
        /// The error.
        source: InventoryError,
    },
    /// The machines have no GPU.
    #[error("{file}: none of the {machines} machines has a GPU")]
    NoGpu {
        /// The file of the machines.
        file: String,
        /// How many there are.
        machines: usize,
    },
    /// A trace of Gavel has steps and no times.
    #[error(
        "{file}: a trace of Gavel has steps, not lengths: expected Gavel's throughputs with it"
    )]
    NeedsPairs {
        /// The trace.
        file: String,
    },
    /// The measurements know no such model of GPU.
    #[error("{file}: no throughputs of one GPU on {gpu:?}: expected one of {known}")]
    NotMeasured {
        /// The file of throughputs.
        file: String,
        /// The requested GPU.
        gpu: String,
        /// The GPUs with measurements.
        known: String,
    },
    /// Another form of trace was expected.
    #[error("{file}: expected the pods of openb, whose jobs can be played without times")]
    NotOpenb {
        /// The trace.
        file: String,
    },
    /// All jobs are left out.
    #[error("{file}: none of {rows} jobs can be played: {why}")]
    Nothing {
        /// The trace.
        file: String,
        /// How many rows it has.
        rows: usize,
        /// Why they are left out.
        why: String,
    },
    /// No job has a class that promises are for.
    #[error("{file}: none of the jobs is high-priority: a promise needs at least one")]
    NoPromise {
        /// The trace.
        file: String,
    },
}

/// How a trace becomes jobs.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The cluster, for the models that jobs ask for.
    pub inventory: &'a Inventory,
    /// Whether nodes are a published cluster's, so that demands of hosts and models hold.
    pub has_hosts: bool,
    /// Promise of high-priority jobs, as [`JobSpec::slo_milli`].
    pub slo_milli: Option<u32>,
    /// Jobs that arrive later than that are left out.
    pub days: Option<u32>,
    /// How fast Gavel's workloads run.
    pub measured: Option<&'a Measured>,
}

/// A trace, ready to be played.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Its jobs, in the order of their arrival.
    pub arrivals: Vec<Arrival>,
    /// Rows that were left out and why, a line each.
    pub notes: Vec<String>,
    horizon_ns: u64,
    names_workloads: bool,
}

/// Measurements of Gavel's authors on one model of GPU.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The workloads, by number.
    pub names: Vec<String>,
    /// The parts that they keep beside each other.
    pub pairs: Pairs,
    /// Steps per second alone, by type and number of GPUs.
    alone: HashMap<gavel::ScaledType, f64>,
}

impl Measured {
    /// Reads throughputs, and takes those on one model of GPU.
    ///
    /// # Errors
    /// The file cannot be read, or has none on that model.
    pub fn load(path: &Path, gpu: &str) -> Result<Self, ReplayError> {
        let rows = traces::read(path, gavel::throughputs)?;
        let (names, pairs) = sources::gavel_pairs(&rows, gpu);
        if names.is_empty() {
            let mut known: Vec<&str> = rows.iter().map(|row| row.gpu.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            return Err(ReplayError::NotMeasured {
                file: path.display().to_string(),
                gpu: gpu.to_owned(),
                known: known.join(", "),
            });
        }
        let solo = rows.into_iter().filter(|row| row.gpu == gpu);
        let solo = solo.filter(|row| row.other.is_none() && row.this_per_s > 0.0);
        Ok(Self {
            names,
            pairs,
            alone: solo.map(|row| (row.job, row.this_per_s)).collect(),
        })
    }
}

/// Reads the machines of a cluster: openb's nodes, or PAI's machines.
///
/// # Errors
/// The file cannot be read, or its machines are no cluster.
pub fn cluster(path: &Path) -> Result<Inventory, ReplayError> {
    let file = path.display().to_string();
    let (machines, inventory) =
        traces::read(path, |file, bytes| match machine_form(file, bytes)? {
            MachineForm::Openb => {
                let nodes = openb::nodes(file, bytes)?;
                Ok((nodes.len(), sources::openb_cluster(&nodes)))
            }
            MachineForm::Pai => {
                let machines = pai::machines(file, bytes)?;
                Ok((machines.len(), sources::pai_cluster(&machines)))
            }
        })?;
    match inventory {
        Err(source) => Err(ReplayError::Inventory { file, source }),
        Ok(inventory) if inventory.gpus() == 0 => Err(ReplayError::NoGpu { file, machines }),
        Ok(inventory) => Ok(inventory),
    }
}

/// Reads the pods of an openb list as jobs without times, by name ([`crate::inflation`]).
///
/// # Errors
/// The file cannot be read, is no such list, or has no pod that asks for a GPU.
pub fn pods(
    path: &Path,
    inventory: &Inventory,
    has_hosts: bool,
) -> Result<Vec<JobSpec>, ReplayError> {
    let file = path.display().to_string();
    let pods = traces::read(path, |file, bytes| match form(file, bytes)? {
        Form::Openb => openb::pods(file, bytes).map(Some),
        _ => Ok(None),
    })?;
    let pods = pods.ok_or_else(|| ReplayError::NotOpenb { file: file.clone() })?;
    let mut jobs = sources::openb_jobs(&pods, inventory);
    if !jobs.iter().any(|job| job.gpus > 0 && job.gpu_milli > 0) {
        let rows = jobs.len();
        let why = format!("{rows} without a GPU");
        return Err(ReplayError::Nothing { file, rows, why });
    }
    if !has_hosts {
        jobs.iter_mut().for_each(sources::without_hosts);
    }
    Ok(jobs)
}

impl Replay {
    /// Reads a trace of any published form.
    ///
    /// # Errors
    /// [`ReplayError`] names the file.
    pub fn load(path: &Path, options: &Options<'_>) -> Result<Self, ReplayError> {
        let file = path.display().to_string();
        let (form, rows) = traces::read(path, |file, bytes| {
            let form = form(file, bytes)?;
            Ok((form, rows(form, file, bytes, options)?))
        })?;
        let rows = rows.ok_or_else(|| ReplayError::NeedsPairs { file: file.clone() })?;
        let (rows, replay) = Self::of_rows(rows, form == Form::Gavel, options);
        if replay.arrivals.is_empty() {
            let why = replay.notes.join(", ");
            return Err(ReplayError::Nothing { file, rows, why });
        }
        let mut jobs = replay.arrivals.iter().map(|arrival| &arrival.job);
        if options.slo_milli.is_some() && !jobs.any(|job| job.class == Class::HighPriority) {
            return Err(ReplayError::NoPromise { file });
        }
        Ok(replay)
    }

    fn of_rows(rows: Vec<Row>, names_workloads: bool, options: &Options<'_>) -> (usize, Self) {
        let count = rows.len();
        let first_s = rows.iter().filter_map(|row| row.at_s);
        let first_s = first_s.fold(f64::INFINITY, f64::min);
        let until_s = options
            .days
            .map_or(f64::INFINITY, |days| f64::from(days) * 86_400.0);
        let mut left_out = LeftOut::default();
        let mut arrivals: Vec<Arrival> = Vec::new();
        for row in rows {
            if let Some(arrival) = left_out.kept(row, (first_s, until_s), options) {
                arrivals.push(arrival);
            }
        }
        // Jobs of one time stay in the order of the trace.
        arrivals.sort_by_key(|arrival| arrival.at_ns);
        for (number, arrival) in arrivals.iter_mut().enumerate() {
            arrival.job.id = JobId(number as u64);
        }
        let horizon_ns = horizon_ns(&arrivals, options.days);
        let replay = Self {
            horizon_ns,
            arrivals,
            notes: left_out.notes(count, options.days),
            names_workloads,
        };
        (count, replay)
    }

    /// The input of a run with that seed, which decides all draws.
    #[must_use]
    pub fn play(&self, inventory: &Inventory, measured: Option<&Measured>, seed: u64) -> Play {
        let mut arrivals = self.arrivals.clone();
        if let Some(measured) = measured.filter(|_| !self.names_workloads) {
            let mut random = Pcg64::seed_from_u64(seed);
            for arrival in &mut arrivals {
                let drawn = random.random_range(0..measured.names.len());
                arrival.job.workload = WorkloadId(drawn as u16);
            }
        }
        let physics = Physics {
            pairs: measured.map_or_else(Pairs::none, |measured| measured.pairs.clone()),
            power: sources::power(inventory),
            patience_ns: PATIENCE_NS,
            horizon_ns: self.horizon_ns,
        };
        Play::new(inventory.clone(), arrivals, physics)
    }
}

/// Means are taken as long as jobs arrive: so many days, or to the last arrival. Where all arrive
/// at once, to the end of the last that would run alone.
fn horizon_ns(arrivals: &[Arrival], days: Option<u32>) -> u64 {
    if let Some(days) = days {
        return u64::from(days) * DAY_NS;
    }
    let last = arrivals.last().map_or(0, |arrival| arrival.at_ns);
    let ends = arrivals.iter().map(|arrival| arrival.length_ns).max();
    if last == 0 { ends.unwrap_or(0) } else { last }
}

struct Row {
    at_s: Option<f64>,
    length_s: Option<f64>,
    job: JobSpec,
}

#[derive(Default)]
struct LeftOut {
    no_gpu: usize,
    no_length: usize,
    late: usize,
}

impl LeftOut {
    fn kept(
        &mut self,
        row: Row,
        (first_s, until_s): (f64, f64),
        options: &Options<'_>,
    ) -> Option<Arrival> {
        let Row {
            at_s,
            length_s,
            mut job,
        } = row;
        if job.gpus == 0 || job.gpu_milli == 0 {
            self.no_gpu += 1;
            return None;
        }
        let length_s = length_s.filter(|&length_s| length_s > 0.0);
        let (Some(at_s), Some(length_s)) = (at_s, length_s) else {
            self.no_length += 1;
            return None;
        };
        let at_s = (at_s - first_s).min(AT_S_MAX);
        if at_s >= until_s {
            self.late += 1;
            return None;
        }
        match job.class {
            Class::HighPriority => job.slo_milli = options.slo_milli,
            Class::BestEffort => job.floor_milli = FLOOR_MILLI.min(job.gpu_milli),
        }
        if !options.has_hosts {
            sources::without_hosts(&mut job);
        }
        Some(Arrival {
            at_ns: (at_s * 1e9) as u64,
            length_ns: ((length_s * 1e9) as u64).max(1),
            job,
        })
    }

    fn notes(&self, rows: usize, days: Option<u32>) -> Vec<String> {
        let days = days.unwrap_or(0);
        let reasons = [
            (self.no_gpu, "no GPU".to_owned()),
            (self.no_length, "no length".to_owned()),
            (self.late, format!("later than {days} days")),
        ];
        let reasons = reasons.into_iter().filter(|(count, _)| *count > 0);
        reasons
            .map(|(count, why)| format!("{count} of {rows} jobs left out: {why}"))
            .collect()
    }
}

fn rows(
    form: Form,
    file: &str,
    bytes: &[u8],
    options: &Options<'_>,
) -> Result<Option<Vec<Row>>, TraceError> {
    let rows = match form {
        Form::Openb => of_openb(&openb::pods(file, bytes)?, options.inventory),
        Form::Philly => of_philly(&philly::jobs(file, bytes)?),
        Form::Muri => of_muri(&muri::jobs(file, bytes)?),
        Form::Tiresias => of_tiresias(&tiresias::jobs(file, bytes)?),
        Form::Pai => of_pai(&pai::tasks(file, bytes)?),
        Form::Gavel => {
            let jobs = gavel::jobs(file, bytes)?;
            match options.measured {
                Some(measured) => of_gavel(&jobs, measured),
                None => return Ok(None),
            }
        }
    };
    Ok(Some(rows))
}

fn of_openb(pods: &[openb::Pod], inventory: &Inventory) -> Vec<Row> {
    let row = |pod: &openb::Pod| Row {
        at_s: pod.created_s,
        length_s: pod
            .deleted_s
            .zip(pod.scheduled_s)
            .map(|(end, start)| end - start),
        job: sources::openb_job(0, pod, inventory),
    };
    pods.iter().map(row).collect()
}

fn training(at_s: f64, length_s: f64, gpus: u32) -> Row {
    let mut job = JobSpec::new(0, Class::BestEffort, gpus, WHOLE_MILLI);
    job.spread = gpus > 1;
    Row {
        at_s: Some(at_s),
        length_s: Some(length_s),
        job,
    }
}

fn of_philly(jobs: &[philly::Job]) -> Vec<Row> {
    let row = |job: &philly::Job| training(job.submit_s, job.duration_s, job.gpus);
    jobs.iter().map(row).collect()
}

/// In the published file all are submitted at 0; `interval` is to the next submission ([`muri`]).
fn of_muri(jobs: &[muri::Job]) -> Vec<Row> {
    let has_times = jobs.iter().any(|job| job.submit_s > 0.0);
    let mut since_first_s = 0.0;
    let mut row = |job: &muri::Job| {
        let at_s = if has_times {
            job.submit_s
        } else {
            since_first_s
        };
        since_first_s += job.interval_ms / 1e3;
        training(at_s, job.duration_ms / 1e3, job.gpus)
    };
    jobs.iter().map(&mut row).collect()
}

fn of_tiresias(jobs: &[tiresias::Job]) -> Vec<Row> {
    let row = |job: &tiresias::Job| training(job.submit_s, job.duration_s, job.gpus);
    jobs.iter().map(row).collect()
}

fn of_gavel(jobs: &[gavel::Job], measured: &Measured) -> Vec<Row> {
    let row = |job: &gavel::Job| {
        let kind = gavel::ScaledType {
            job_type: job.job_type.clone(),
            scale_factor: job.scale_factor,
        };
        let workload = sources::workload(&measured.names, &job.job_type);
        let per_s = measured.alone.get(&kind);
        let mut row = training(job.arrival_s, 0.0, job.scale_factor);
        row.length_s = per_s.map(|per_s| job.total_steps as f64 / per_s);
        match workload {
            Some(workload) => row.job.workload = workload,
            // Its speed beside others is unknown.
            None => row.length_s = None,
        }
        row
    };
    jobs.iter().map(row).collect()
}

/// Each instance of a task has a part of one GPU, or several whole ones.
fn of_pai(tasks: &[pai::Task]) -> Vec<Row> {
    let row = |task: &pai::Task| {
        let pct = task.gpu_pct.unwrap_or(0.0);
        let (each, milli) = if pct > 100.0 {
            ((pct / 100.0).ceil() as u32, WHOLE_MILLI)
        } else {
            (1, (pct * 10.0).round() as u32)
        };
        let instances = task.instances.unwrap_or(1);
        let gpus = instances.saturating_mul(each);
        let mut job = JobSpec::new(0, Class::BestEffort, gpus, milli);
        job.spread = gpus > 1;
        let all = |of_one: f64| (of_one * f64::from(instances)) as u64;
        job.cpu_milli = all(task.cpu_pct.unwrap_or(0.0) * 10.0);
        job.host_memory_bytes = all(task.memory_gib.unwrap_or(0.0) * f64::from(1 << 30));
        Row {
            at_s: task.start_s,
            length_s: task.end_s.zip(task.start_s).map(|(end, start)| end - start),
            job,
        }
    };
    tasks.iter().map(row).collect()
}

#[cfg(test)]
mod tests;

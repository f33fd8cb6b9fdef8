//! Fifty-seven days of a cluster of 6742 GPUs: the comparison with GPUColo's section VIII. The
//! machines are those of Alibaba's PAI. The jobs are made of recorded parts ([`crate::mixed`]),
//! because the paper's trace is unavailable; so its numbers stand beside ours, and policies are
//! compared only with each other.

use std::path::Path;

use cluster::InventoryError;
use cluster::interference::Pairs;

use crate::meter::DAY_NS;
use crate::mixed::{Mixed, Parts, Training};
use crate::play::Play;
use crate::sources;
use crate::traces::openb::{Phase, Pod, Qos};
use crate::traces::{self, TraceError, azure, gavel, openb, pai, philly};
use crate::world::Physics;

/// First day of Philly's trace with more than a few trainings; earlier ones are left out.
pub const PHILLY_FROM_DAY: f64 = 19.0;

/// How much more requests arrive at the day's busiest time, ÷ the mean. Stated: one hour is
/// recorded.
pub const DAY_SWING: f64 = 0.4;

/// The time of the day with the most requests.
pub const DAY_PEAK: f64 = 15.0 / 24.0;

const MINUTES: usize = 1440;

/// The GPU of Gavel's measurements whose pairs are taken.
pub const PAIRS_GPU: &str = "v100";

/// The GPU of Gavel's measurements that policies know. Another decides how jobs run, because no
/// operator has measured all pairs on all GPUs.
pub const KNOWN_GPU: &str = "p100";

/// How long a job lets others pass that fit where it does not.
pub const PATIENCE_NS: u64 = 6 * 3600 * 1_000_000_000;

/// Why the experiment cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DaysError {
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Machines of which no cluster can be made.
    #[error("{file}: {source}")]
    Inventory {
        /// The file of the machines.
        file: String,
        /// The error.
        source: InventoryError,
    },
    /// A trace lacks a needed part.
    #[error("{file} has no {what}")]
    Lacks {
        /// The file.
        file: String,
        /// The missing part.
        what: &'static str,
    },
}

/// How jobs run beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// As Gavel measured on one GPU; policies know the measurements on another.
    Measured,
    /// As measured, but every workload has the row of the next one: a check that the table matters.
    Permuted,
    /// Not at all, beyond their shares: the arithmetic of GPUColo's simulator.
    Unnoticed,
}

/// Reads the traces from that folder, and combines them as `mixed` says.
///
/// # Errors
/// [`DaysError`] names the file.
pub fn load(data: &Path, mixed: &Mixed, neighbours: Neighbours) -> Result<Play, DaysError> {
    let traces = data.join("traces");
    let path = |file: &str| traces.join(file);
    let machines = path("alibaba_pai_v2020/pai_machine_spec.csv");
    let inventory = sources::pai_cluster(&traces::read(&machines, pai::machines)?);
    let inventory = inventory.map_err(|source| DaysError::Inventory {
        file: machines.display().to_string(),
        source,
    })?;
    let pods = path("alibaba_gpu_v2023_openb/openb_pod_list_default.csv");
    let pods = traces::read(&pods, openb::pods)?;
    let trainings = traces::read(&path("philly_processed/philly_every2nd.csv"), philly::jobs)?;
    let requests = path("azure_llm_2023/AzureLLMInferenceTrace_conv.csv");
    let requests = traces::read(&requests, azure::requests)?;
    let throughputs = path("gavel_throughputs/physical_cluster_throughputs.json");
    let throughputs = traces::read(&throughputs, gavel::throughputs)?;
    let (names, measured) = sources::gavel_pairs(&throughputs, PAIRS_GPU);
    let (known_names, known) = sources::gavel_pairs(&throughputs, KNOWN_GPU);
    if known_names != names {
        let file = "physical_cluster_throughputs.json".to_owned();
        let what = "equal jobs on both GPUs";
        return Err(DaysError::Lacks { file, what });
    }
    let parts = Parts {
        trainings: &trainings_of(&trainings),
        minutes: &day_of(&minutes_of(&requests)),
        lengths_s: &inference_lengths(&pods),
        inference_milli: &shared(&pods),
        training_milli: &best_effort(&pods),
        workloads: names.len() as u16,
        inventory: &inventory,
    };
    check(&parts)?;
    let arrivals = mixed.arrivals(&parts);
    let physics = Physics {
        pairs: seen(measured, names.len(), neighbours),
        power: sources::power(&inventory),
        patience_ns: PATIENCE_NS,
        horizon_ns: u64::from(mixed.days) * DAY_NS,
    };
    let mut play = Play::new(inventory, arrivals, physics);
    if neighbours == Neighbours::Measured {
        play.known = known;
    }
    Ok(play)
}

fn check(parts: &Parts<'_>) -> Result<(), DaysError> {
    let lacks = [
        (
            parts.trainings.is_empty(),
            "philly_every2nd.csv",
            "training",
        ),
        (
            parts.minutes.iter().all(|&m| m == 0),
            "AzureLLMInferenceTrace_conv.csv",
            "request",
        ),
        (
            parts.lengths_s.is_empty(),
            "openb_pod_list_default.csv",
            "LS pod that has ended",
        ),
        (
            parts.inference_milli.is_empty(),
            "openb_pod_list_default.csv",
            "pod with a part of a GPU",
        ),
        (
            parts.training_milli.is_empty(),
            "openb_pod_list_default.csv",
            "BE pod with a GPU",
        ),
        (
            parts.workloads == 0,
            "physical_cluster_throughputs.json",
            "job that was measured alone",
        ),
    ];
    match lacks.into_iter().find(|(lacks, _, _)| *lacks) {
        Some((_, file, what)) => Err(DaysError::Lacks {
            file: file.to_owned(),
            what,
        }),
        None => Ok(()),
    }
}

fn seen(measured: Pairs, workloads: usize, neighbours: Neighbours) -> Pairs {
    match neighbours {
        Neighbours::Measured => measured,
        Neighbours::Unnoticed => Pairs::new(workloads, |_, _| 1.0),
        Neighbours::Permuted => Pairs::new(workloads, |job, beside| {
            let next = cluster::WorkloadId(((job + 1) % workloads) as u16);
            measured.kept(next, cluster::WorkloadId(beside as u16), 0.5)
        }),
    }
}

fn trainings_of(jobs: &[philly::Job]) -> Vec<Training> {
    let first = jobs.first().map_or(0.0, |job| job.submit_s) + PHILLY_FROM_DAY * 86_400.0;
    let jobs = jobs
        .iter()
        .filter(|job| job.submit_s >= first && job.gpus > 0);
    let training = |job: &philly::Job| Training {
        at_s: job.submit_s,
        length_s: job.duration_s,
        gpus: job.gpus,
    };
    jobs.map(training).collect()
}

fn minutes_of(requests: &[azure::Request]) -> Vec<u32> {
    let last = requests.last().map_or(0.0, |request| request.arrival_s);
    let mut minutes = vec![0; (last / 60.0) as usize];
    for request in requests {
        if let Some(minute) = minutes.get_mut((request.arrival_s / 60.0) as usize) {
            *minute += 1;
        }
    }
    minutes
}

fn day_of(minutes: &[u32]) -> Vec<u32> {
    if minutes.is_empty() {
        return Vec::new();
    }
    let of = |minute: usize| {
        let phase = minute as f64 / MINUTES as f64 - DAY_PEAK;
        let swing = 1.0 + DAY_SWING * (std::f64::consts::TAU * phase).cos();
        (swing * f64::from(minutes[minute % minutes.len()])) as u32
    };
    (0..MINUTES).map(of).collect()
}

fn inference_lengths(pods: &[Pod]) -> Vec<f64> {
    let ended = pods.iter().filter(|pod| {
        pod.qos == Some(Qos::LatencySensitive)
            && matches!(pod.phase, Some(Phase::Succeeded | Phase::Failed))
    });
    ended
        .filter_map(|pod| Some(pod.deleted_s? - pod.scheduled_s?))
        .collect()
}

fn shared(pods: &[Pod]) -> Vec<u32> {
    let parts = pods
        .iter()
        .filter(|pod| pod.gpus == 1 && pod.gpu_milli < 1000);
    parts.map(|pod| pod.gpu_milli).collect()
}

fn best_effort(pods: &[Pod]) -> Vec<u32> {
    let parts = pods
        .iter()
        .filter(|pod| pod.gpus == 1 && pod.qos == Some(Qos::BestEffort));
    parts.map(|pod| pod.gpu_milli).collect()
}

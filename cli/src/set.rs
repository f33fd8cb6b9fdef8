//! `pillion set`: changes a running job.

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use protocol::compute::{self, CapChange};
use protocol::hello::{Request, Set};
use protocol::promise::{self, LeastChange, WeightChange};
use protocol::quota::{self, Quota};
use protocol::slo::{self, SloChange};
use serde_json::Value;

use crate::daemons::{self, PATIENCE};
use crate::failure::Failure;
use crate::{out, status};

/// Changes a running job, and prints the values then in force.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
#[command(after_help = "Example: pillion set 4711-1c0ffee --slo 1.5x\n         \
                  pillion set nightly-train --weight 3 --min-progress 30%\n\n\
                  A quota below the memory that the job holds frees nothing: the job gets no more memory until it holds less than the quota. \
                  `pillion status` lists the jobs; only a job's user and root may change it. Only root and the daemon's user may change \
                  weights and least shares, because they cost other users' jobs. Changes last as long as the job has a process, also \
                  under the next daemon.")]
pub(crate) struct Options {
    /// Id of the job, as `pillion status` shows it.
    #[arg(value_name = "JOB")]
    job: String,
    /// Memory that the job may hold on each GPU: a size, a part of the GPU's memory such as 40%, or
    /// unlimited.
    #[arg(long, value_name = "SIZE|PCT", value_parser = quota_of, group = "change")]
    memory: Option<Quota>,
    /// Latency target of a high-priority job's requests: a multiple of their time alone, such as
    /// 1.2x, a time, such as 15ms (a number without a unit is seconds), or default, for the value
    /// in the daemon's configuration.
    #[arg(long, value_name = "Nx|TIME|default", value_parser = slo_of, group = "change")]
    slo: Option<SloChange>,
    /// Largest share of each GPU's time that a best-effort job may use: 1% to 100%, or default, for
    /// the value in the daemon's configuration, which is also the upper limit.
    #[arg(long, value_name = "PCT|default", value_parser = cap_of, group = "change")]
    compute: Option<CapChange>,
    /// Weight among best-effort jobs: a turn is N times as long as that of a job of weight 1. 1 to
    /// 100, or default, for the value in the daemon's configuration. Needs policy pillion.
    #[arg(long, value_name = "N|default", value_parser = weight_of, group = "change")]
    weight: Option<WeightChange>,
    /// Least share of its rate alone that a best-effort job is promised while high-priority
    /// requests are within their target: above 0 to 1, such as 0.3 or 30%, or default, for the
    /// value in the daemon's configuration. Needs policy pillion.
    #[arg(long, value_name = "R|PCT|default", value_parser = least_of, group = "change")]
    min_progress: Option<LeastChange>,
}

pub(crate) fn quota_of(text: &str) -> Result<Quota, String> {
    let quota = Quota::parse(text).filter(|quota| !quota.is_too_small());
    quota.ok_or_else(|| format!("expected {}, or unlimited", quota::EXPECTED))
}

fn slo_of(text: &str) -> Result<SloChange, String> {
    let (expected, default) = (slo::EXPECTED, slo::DEFAULT);
    SloChange::parse(text).ok_or_else(|| format!("expected {expected}, or {default}"))
}

fn cap_of(text: &str) -> Result<CapChange, String> {
    let (expected, default) = (compute::EXPECTED, compute::DEFAULT);
    CapChange::parse(text).ok_or_else(|| format!("expected {expected}, or {default}"))
}

fn weight_of(text: &str) -> Result<WeightChange, String> {
    let (expected, default) = (promise::WEIGHT_EXPECTED, promise::DEFAULT);
    WeightChange::parse(text).ok_or_else(|| format!("expected {expected}, or {default}"))
}

fn least_of(text: &str) -> Result<LeastChange, String> {
    let (expected, default) = (promise::LEAST_EXPECTED, promise::DEFAULT);
    LeastChange::parse(text).ok_or_else(|| format!("expected {expected}, or {default}"))
}

/// Exits 69 if no daemon answers, 1 if none has the job, 2 for a quota above a used GPU's memory.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(Quota::Bytes(bytes)) = options.memory {
        // A daemon that does not answer fails the change itself.
        let sockets = daemons::sockets().into_iter();
        let statuses = sockets.filter_map(|socket| status::ask_within(&socket, PATIENCE).ok());
        let mut over = statuses.filter_map(|status| too_large(&status, &options.job, bytes));
        if let Some(why) = over.next() {
            return Err(Failure::usage(anyhow!("--memory {}: {why}", gib(bytes))));
        }
    }
    let text = |change: Option<String>| change.unwrap_or_default();
    let request = Request::Set(Set {
        job: options.job.clone(),
        memory: text(options.memory.map(|quota| quota.to_string())),
        slo: text(options.slo.map(|slo| slo.to_string())),
        compute: text(options.compute.map(|cap| cap.to_string())),
        weight: text(options.weight.map(|weight| weight.to_string())),
        min_progress: text(options.min_progress.map(|least| least.to_string())),
    });
    for socket in daemons::tell(&request)? {
        // The change is done, whether the daemon reports it or not.
        let Ok(status) = status::ask_within(&socket, PATIENCE) else {
            continue;
        };
        for line in status::in_force(&status, &options.job) {
            out::line(format_args!("{line}"))?;
        }
    }
    Ok(())
}

/// Reports a job of that id on this daemon's GPU, if the GPU has less memory than the new quota.
fn too_large(status: &Value, id: &str, bytes: u64) -> Option<String> {
    let jobs = status["jobs"].as_array().into_iter().flatten();
    let mut meant = jobs.filter(|job| job["job"] == id && job["ended_ns"].is_null());
    let has_bytes = status["gpu"]["memory_bytes"]
        .as_u64()
        .filter(|&has| has > 0)?;
    meant.next().filter(|_| bytes > has_bytes)?;
    let gpu = status["gpu"]["uuid"].as_str().unwrap_or("N/A");
    Some(format!(
        "GPU {gpu} of job {id} has {}; use at most that, a part of the GPU's memory such as 40%, or unlimited",
        gib(has_bytes),
    ))
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_above_the_gpus_memory_is_too_large_for_jobs_that_are_there() {
        let status = json!({
            "gpu": {"uuid": "GPU-1", "memory_bytes": 40_u64 << 30},
            "jobs": [{"job": "train", "ended_ns": null}, {"job": "over", "ended_ns": 7}],
        });
        let why = too_large(&status, "train", 100 << 30).unwrap();
        assert!(
            why.starts_with("GPU GPU-1 of job train has 40.00 GiB; "),
            "{why}"
        );
        assert_eq!(too_large(&status, "train", 40 << 30), None);
        assert_eq!(too_large(&status, "over", 100 << 30), None);
        assert_eq!(too_large(&status, "elsewhere", 100 << 30), None);
        let unknown = json!({"gpu": {"memory_bytes": 0}, "jobs": status["jobs"]});
        assert_eq!(too_large(&unknown, "train", 100 << 30), None);
    }
}

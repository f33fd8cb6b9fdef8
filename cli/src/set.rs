//! `pillion set`: changes a running job.

use clap::Args;
use protocol::hello::{Request, Set};
use protocol::quota::{self, Quota};

use crate::daemons;
use crate::failure::Failure;

/// Changes a running job: what it may hold of a GPU's memory.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion set 4711-1c0ffee --memory 10GiB\n\n\
                  A quota below what the job holds takes nothing away: it refuses more until \
                  the job is below. Jobs are those of `pillion status`; only their user and root \
                  may change them.")]
pub(crate) struct Options {
    /// Id of the job, as `pillion status` shows it.
    #[arg(value_name = "JOB")]
    job: String,
    /// What it may hold of each GPU: a size, a part of the GPU such as 40%, or unlimited.
    #[arg(long, value_name = "SIZE|PCT", value_parser = quota_of)]
    memory: Quota,
}

/// Reads a quota of the command line.
pub(crate) fn quota_of(text: &str) -> Result<Quota, String> {
    let quota = Quota::parse(text).filter(|quota| !quota.is_too_small());
    quota.ok_or_else(|| format!("expected {}, or unlimited", quota::EXPECTED))
}

/// Exit 69 if no daemon answers, 1 if none has the job.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    daemons::tell(&Request::Set(Set {
        job: options.job.clone(),
        memory: options.memory.to_string(),
        slo: String::new(),
    }))
}

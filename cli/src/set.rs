//! `pillion set`: changes a running job.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use protocol::hello::{Reply, Request, Set, ask_once};
use protocol::quota::{self, Quota};

use crate::failure::Failure;
use crate::run::every_socket;

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

/// Longest wait for a daemon's answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Reads a quota of the command line.
pub(crate) fn quota_of(text: &str) -> Result<Quota, String> {
    let quota = Quota::parse(text).filter(|quota| !quota.is_too_small());
    quota.ok_or_else(|| format!("expected {}, or unlimited", quota::EXPECTED))
}

/// Exit 69 if no daemon answers, 1 if none has the job.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.map_or_else(every_socket, |path| vec![path]);
    let request = Request::Set(Set {
        job: options.job.clone(),
        memory: options.memory.to_string(),
    });
    let (mut done, mut reasons, mut silent) = (0_usize, Vec::new(), Vec::new());
    for socket in sockets {
        match ask_once(&socket, &request, PATIENCE) {
            Ok(Reply::Done) => done += 1,
            Ok(Reply::Refused { reason }) => reasons.push(reason),
            Ok(_) => reasons.push(format!("{}: another answer", socket.display())),
            Err(error) => silent.push(format!("{}: {error}", socket.display())),
        }
    }
    match (done, reasons.first()) {
        (1.., _) => Ok(()),
        (0, Some(reason)) => Err(anyhow!("{reason}").into()),
        (0, None) if silent.is_empty() => {
            Err(Failure::unavailable(anyhow!("no daemon is running")))
        }
        (0, None) => Err(Failure::unavailable(anyhow!(
            "no daemon answers: {}",
            silent.join(", ")
        ))),
    }
}

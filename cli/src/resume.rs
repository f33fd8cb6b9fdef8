//! `pillion resume`: ends holds, and lets a daemon open its released device again.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use protocol::hello::Request;

use crate::daemons;
use crate::drain;
use crate::failure::Failure;
use crate::status;

/// Ends the holds of best-effort jobs and the drains of GPUs that a fault rule or `pillion drain`
/// began.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion resume --gpu 0000:01:00.0\n\n\
                  After a fault (`pillion events`), rules of the daemon's configuration hold best-effort jobs or drain a GPU; `pillion drain` \
                  also drains one. Holds and drains last until root or the daemon's user runs this command. It also restarts MPS if the \
                  daemon has given up on it after too many restarts ([mps] manage). With JOB the command ends only the holds of that \
                  job's own faults. Without JOB the daemon first opens a device that was released, which may take seconds; if that \
                  fails, nothing on that GPU resumes. Exit 0 if a hold or drain ended.")]
pub(crate) struct Options {
    /// Id of a job with a hold of its own (default: everything).
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// The GPU: index, UUID or UUID prefix, or PCI bus id (default: all GPUs that have a daemon).
    /// An index is looked up in the driver, which needs a working GPU; the others are not.
    #[arg(long, value_name = "G")]
    gpu: Option<String>,
}

/// Timeout for a daemon that opens its device: longer than the daemon's own for the driver.
const PATIENCE: Duration = Duration::from_secs(25);

/// Exits 69 if no daemon answers; 1 without a hold or an answer, or if a device stays released.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let request = Request::Resume {
        job: options.job.clone().unwrap_or_default(),
    };
    let sockets = match &options.gpu {
        Some(name) => vec![drain::the_one(&daemons::sockets(), name)?],
        None => daemons::sockets(),
    };
    let told = daemons::tell_each(&sockets, &request, PATIENCE);
    let mut refused = told.refused.iter();
    let stuck = refused.find(|(socket, _)| {
        let status = status::ask(socket);
        options.job.is_none() && status.is_ok_and(|status| status["gpu"]["released"].is_object())
    });
    if let Some((_, reason)) = stuck {
        return Err(anyhow!("{reason}").into());
    }
    // Some have nothing to resume; one that does not answer may have.
    let silent = told.silent.join(", ");
    told.into_result()?;
    match silent.is_empty() || options.job.is_some() {
        true => Ok(()),
        false => Err(anyhow!("a daemon does not answer and may still hold jobs: {silent}").into()),
    }
}

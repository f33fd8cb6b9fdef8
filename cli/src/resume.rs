//! `pillion resume`: lets go what rules hold because of a fault.

use clap::Args;
use protocol::hello::Request;

use crate::daemons;
use crate::failure::Failure;

/// Ends what a rule of faults holds: best-effort jobs, and a GPU that takes no more work.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion resume\n\n\
                  Rules of the daemon's configuration hold best-effort jobs, or drain a GPU, because of a fault (`pillion events`). They \
                  stay so until root or the daemon's user says otherwise. With JOB only what is held by that job's own fault goes \
                  on. Exit 0 when something was let go.")]
pub(crate) struct Options {
    /// Id of a job that is held by itself; without it, everything on all GPUs.
    #[arg(value_name = "JOB")]
    job: Option<String>,
}

/// Exit 69 if no daemon answers, 1 if none holds that.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    daemons::tell(&Request::Resume {
        job: options.job.clone().unwrap_or_default(),
    })
}

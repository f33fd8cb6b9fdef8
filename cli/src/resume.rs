//! `pillion resume`: lets go what rules hold because of a fault.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use protocol::hello::{Reply, Request, ask_once};

use crate::failure::Failure;
use crate::run::every_socket;
use crate::set::PATIENCE;

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
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.map_or_else(every_socket, |path| vec![path]);
    let request = Request::Resume {
        job: options.job.clone().unwrap_or_default(),
    };
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

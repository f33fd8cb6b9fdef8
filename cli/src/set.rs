//! `pillion set`: changes a running job.

use clap::{ArgGroup, Args};
use protocol::compute::{self, CapChange};
use protocol::hello::{Request, Set};
use protocol::quota::{self, Quota};
use protocol::slo::{self, SloChange};

use crate::daemons::{self, PATIENCE};
use crate::failure::Failure;
use crate::{out, status};

/// Changes a running job, and says what is in force then.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
#[command(after_help = "Example: pillion set 4711-1c0ffee --slo 1.5x\n\n\
                  A quota below what the job holds takes nothing away: it refuses more until \
                  the job is below. Jobs are those of `pillion status`; only their user and root \
                  may change them. What is changed holds while a process of the job is there, \
                  under the next daemon, too.")]
pub(crate) struct Options {
    /// Id of the job, as `pillion status` shows it.
    #[arg(value_name = "JOB")]
    job: String,
    /// What it may hold of each GPU: a size, a part of the GPU such as 40%, or unlimited.
    #[arg(long, value_name = "SIZE|PCT", value_parser = quota_of, group = "change")]
    memory: Option<Quota>,
    /// What requests of a high-priority job may take: times alone, such as 1.2x, a time, such as 15ms (a number without a unit is
    /// seconds), or default, for what the daemon's configuration says.
    #[arg(long, value_name = "Nx|TIME|default", value_parser = slo_of, group = "change")]
    slo: Option<SloChange>,
    /// What a best-effort job may use of each GPU's time at most: 1% to 100%, or default, for what the daemon's configuration says,
    /// which none may come above.
    #[arg(long, value_name = "PCT|default", value_parser = cap_of, group = "change")]
    compute: Option<CapChange>,
}

/// Reads a quota of the command line.
pub(crate) fn quota_of(text: &str) -> Result<Quota, String> {
    let quota = Quota::parse(text).filter(|quota| !quota.is_too_small());
    quota.ok_or_else(|| format!("expected {}, or unlimited", quota::EXPECTED))
}

/// Reads what requests may take from now on.
fn slo_of(text: &str) -> Result<SloChange, String> {
    let (expected, default) = (slo::EXPECTED, slo::DEFAULT);
    SloChange::parse(text).ok_or_else(|| format!("expected {expected}, or {default}"))
}

/// Reads what a job may use from now on.
fn cap_of(text: &str) -> Result<CapChange, String> {
    let (expected, default) = (compute::EXPECTED, compute::DEFAULT);
    CapChange::parse(text).ok_or_else(|| format!("expected {expected}, or {default}"))
}

/// Exit 69 if no daemon answers, 1 if none has the job.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let text = |change: Option<String>| change.unwrap_or_default();
    let request = Request::Set(Set {
        job: options.job.clone(),
        memory: text(options.memory.map(|quota| quota.to_string())),
        slo: text(options.slo.map(|slo| slo.to_string())),
        compute: text(options.compute.map(|cap| cap.to_string())),
    });
    for socket in daemons::tell(&request)? {
        // It has done it, whether it says so or not.
        let Ok(status) = status::ask_within(&socket, PATIENCE) else {
            continue;
        };
        for line in status::in_force(&status, &options.job) {
            out::line(format_args!("{line}"))?;
        }
    }
    Ok(())
}

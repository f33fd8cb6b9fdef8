//! The cost of becoming a client: from before `cuInit` until the process has a context and has
//! found a kernel. Each start of the process under the preload, which attaches to a daemon,
//! alternates with a start without the preload, the control: the same program, the same driver in
//! its null mode. A real driver adds some 100 ms on both sides.

use anyhow::Context;
use benches::alternate::Samples;
use benches::report::Row;
use protocol::hello::JobClass;

use crate::artifacts::Artifacts;
use crate::child::Task;
use crate::processes::{Daemon, Preload, Preloaded, Site, job};
use crate::profile::HIGH_PRIORITY;

/// Goal: at most so much more than without.
const TARGET_MS: f64 = 3.0;
const STARTS: usize = 300;
const STARTS_QUICK: usize = 60;
/// Starts in a block, for the variance of the difference.
const BLOCK: usize = 20;
const WARM_UP: usize = 5;
const JOB: &str = "bench-attach";

pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let starts = if quick { STARTS_QUICK } else { STARTS };
    [
        ("attach, HP: cuInit to first kernel", JobClass::HighPriority),
        ("attach, BE: cuInit to first kernel", JobClass::BestEffort),
    ]
    .into_iter()
    .map(|(name, class)| row(artifacts, name, class, starts))
    .collect()
}

fn row(artifacts: &Artifacts, name: &str, class: JobClass, starts: usize) -> anyhow::Result<Row> {
    let site = Site::new()?;
    let daemon = Daemon::start(artifacts, &site)?;
    let start = |is_preloaded| start_ms(artifacts, &site, &daemon, class, is_preloaded);
    let samples = Samples::of_starts(starts, WARM_UP, BLOCK, start)?;
    let (mut row, best) = Row::of_starts(name, &samples, TARGET_MS);
    row.evidence = vec![
        format!(
            "{starts} processes of each side; each of the preloaded ones was attached as {}",
            class.name()
        ),
        best,
    ];
    Ok(row)
}

fn start_ms(
    artifacts: &Artifacts,
    site: &Site,
    daemon: &Daemon,
    class: JobClass,
    is_preloaded: bool,
) -> anyhow::Result<f64> {
    let task = Task::Begin {
        kernel: HIGH_PRIORITY.name.to_owned(),
    };
    let preload = Preload {
        library: is_preloaded.then_some(&*artifacts.library),
        ..Preload::new(artifacts, class, JOB)
    };
    let mut child = Preloaded::start(artifacts, site, &preload, &task)?;
    if is_preloaded {
        job(&daemon.status()?, JOB)?;
    }
    let took_ns = child.measure()?;
    let took_ns = took_ns.as_u64().context("a child that reports its time")?;
    Ok(took_ns as f64 / 1e6)
}

//! Launches beside our helper thread, where event calls take a microsecond with a lock of the
//! context that launches need. NVIDIA's driver behaves so; here it is the stand-in's null mode with
//! `SOFTGPU_EVENT_NS`, and the same without it. Bare processes and processes under Pillion
//! alternate: in one process, bare launches would also wait for the helper's event calls. The
//! thread computes for 5 us between two launches, frameworks' pace, and waits for every 200. The
//! target is that a launching thread gets on by at most 2 % slower: a launch may cost 2 % of the
//! time from one to the next. (Nothing could be within 2 % of a launch of the null mode alone, some
//! 30 ns.) The target applies to the mean launch of the median block, and to the mean of all
//! launches except those in which the thread was preempted or held: only the second includes the
//! helper's 10 ms a second.

use anyhow::{Context, ensure};
use benches::alternate::{Samples, sides};
use benches::report::{Measured, Row, Unit};
use benches::summary::Comparison;
use protocol::hello::JobClass;

use crate::artifacts::Artifacts;
use crate::child::Task;
use crate::processes::{Daemon, Device, Preload, Preloaded, Processors, Site, job};
use crate::profile::{HIGH_PRIORITY, TINY};
use crate::tasks::{Space, Spaced};

/// As in [`crate::threads`].
const CONFIG: &str = "[gpu]\nindex = 0\nsharing = \"mps\"\n[learnt]\nkeep = false\n";
/// Duration of an event call, ns.
const EVENTS_NS: [u64; 2] = [0, 1_000];
/// From the end of a launch to the beginning of the next, ns.
const PAUSE_NS: u64 = 5_000;
/// Blocks of 200 launches: 2 s and more, to meet the helper's window of 10 ms in each second.
const BLOCKS: usize = 2_000;
const BLOCKS_QUICK: usize = 1_000;
const PROCESSES: usize = 5;
const PROCESSES_QUICK: usize = 3;
/// Target: the launching thread gets on by at most so much slower.
const SLOWER_MAX: f64 = 0.02;

const NEIGHBOUR: &str = "bench-hp";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Nobody,
    /// A high-priority client that does nothing: the lease is a gated one.
    IdleHp,
    BusyHp,
}

pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, company) in [
        ("BE alone", Company::Nobody),
        ("BE beside an idle HP", Company::IdleHp),
        ("BE beside a busy HP", Company::BusyHp),
    ] {
        for event_ns in EVENTS_NS {
            let name = format!("event calls of {event_ns} ns, {name}");
            let measured = rows_of(artifacts, &name, (company, event_ns), quick);
            rows.extend(measured.context(name)?);
        }
    }
    Ok(rows)
}

fn rows_of(
    artifacts: &Artifacts,
    name: &str,
    (company, event_ns): (Company, u64),
    quick: bool,
) -> anyhow::Result<Vec<Row>> {
    let site = Site::with(Device::Null { event_ns }, CONFIG)?;
    let processors = Processors::allowed()?;
    processors.stand_aside()?;
    let daemon = Daemon::start(artifacts, &site)?;
    let _neighbour = neighbour(artifacts, &site, company)?;
    // The children choose their own processors.
    processors.use_all()?;
    let (processes, blocks) = if quick {
        (PROCESSES_QUICK, BLOCKS_QUICK)
    } else {
        (PROCESSES, BLOCKS)
    };
    let mut evidence = Vec::new();
    let (bare, with) = sides(processes, |number, is_ours| {
        // A job of its own: a job's counts are those of all its processes.
        let job = is_ours.then(|| format!("bench-be-{number}"));
        let (spaced, said) = spaced(artifacts, &site, &daemon, job.as_deref(), blocks)?;
        evidence.extend(said);
        Ok(spaced)
    })?;
    let row = |what: &str, of: fn(&Spaced) -> f64, is_promised: bool| {
        let cost = Comparison::of(&Samples {
            block: 1,
            bare: bare.iter().map(of).collect(),
            with: with.iter().map(of).collect(),
        });
        let target = is_promised.then_some(SLOWER_MAX * PAUSE_NS as f64);
        let name = format!("{name}: {what}");
        let mut row = Row::new(&name, Unit::Ns, Measured::Cost(cost), target);
        row.evidence.push(format!(
            "{processes} processes of each side, {} launches in each",
            blocks * 200
        ));
        row
    };
    let mut rows = vec![
        row("launch, median", |s| s.launch.median, false),
        row("launch, p90", |s| s.launch.p90, false),
        row("launch, mean of a block", |s| s.block_mean_ns, true),
        row("launch, mean", |s| s.short_mean_ns, true),
    ];
    rows[0].evidence.extend(evidence);
    Ok(rows)
}

fn spaced(
    artifacts: &Artifacts,
    site: &Site,
    daemon: &Daemon,
    id: Option<&str>,
    blocks: usize,
) -> anyhow::Result<(Spaced, Option<String>)> {
    let preload =
        Preload::new(artifacts, JobClass::BestEffort, id.unwrap_or_default()).if_ours(id.is_some());
    let task = Task::Space(Space {
        kernel: TINY.name.to_owned(),
        pause_ns: PAUSE_NS,
        blocks,
    });
    let mut child = Preloaded::start(artifacts, site, &preload, &task)?;
    let spaced: Spaced = serde_json::from_value(child.measure()?)?;
    let Some(id) = id else {
        return Ok((spaced, None));
    };
    let status = daemon.status()?;
    let job = job(&status, id)?;
    let count = |name: &str| job["totals"][name].as_u64().unwrap_or(0);
    let counted = count("launches");
    ensure!(
        counted == spaced.launches,
        "{} launches were made, Pillion counted {counted}",
        spaced.launches
    );
    let said = format!(
        "ungated {}, {} longer than 50 us, {} held, {} unmanaged",
        job["lease"]["ungated"],
        spaced.long,
        count("launches_held"),
        count("launches_unmanaged")
    );
    Ok((spaced, Some(said)))
}

fn neighbour(
    artifacts: &Artifacts,
    site: &Site,
    company: Company,
) -> anyhow::Result<Option<Preloaded>> {
    let kernel = HIGH_PRIORITY.name.to_owned();
    let task = match company {
        Company::Nobody => return Ok(None),
        Company::IdleHp => Task::Attend { kernel },
        Company::BusyHp => Task::KeepLaunching {
            kernel,
            pause_ns: 1_000_000,
        },
    };
    let preload = Preload::new(artifacts, JobClass::HighPriority, NEIGHBOUR);
    Preloaded::start(artifacts, site, &preload, &task).map(Some)
}

//! Our threads' processor time and wake-ups while a best-effort job keeps the device busy. The
//! setup is the software GPU in real time, `pilliond` as shipped, and a best-effort job that
//! launches 3 200 kernels of 300 us a second: steps of 320 launches and a wait, ten a second. It
//! runs alone, and beside a high-priority job whose requests of 100 kernels of 100 us come every 20
//! ms, or without a pause. Each round measures the jobs bare and under Pillion, in alternating
//! order; a row is the median of the rounds.
//!
//! *Our threads* of a job are those whose names begin with `pillion` (proc(5), `comm`). A *wake-up*
//! is a voluntary context switch: each one ends a sleep. Numbers are differences of
//! `/proc/PID/task/*` between both ends of a round.

use std::collections::HashMap;
use std::fs;

use anyhow::Context;
use benches::alternate::Samples;
use benches::alternate::sides;
use benches::report::{Measured, Row, Unit};
use benches::summary::{Comparison, Quantiles};
use protocol::clock::Clock;
use protocol::hello::JobClass;

use crate::artifacts::Artifacts;
use crate::child::Task;
use crate::processes::{Daemon, Device, Preload, Preloaded, Server, Site};
use crate::profile::{LONG, SERVING};
use crate::tasks::{Done, Work};

/// The daemon's configuration: as shipped.
const CONFIG: &str = "[gpu]\nindex = 0\nsharing = \"mps\"\n[learnt]\nkeep = false\n";
/// Length of the measurement, and of the wait before it, ns.
const ROUND_NS: u64 = 10_000_000_000;
const ROUND_QUICK_NS: u64 = 4_000_000_000;
const SETTLE_NS: u64 = 2_000_000_000;
const ROUNDS: usize = 3;

const JOB: &str = "bench-be";
const NEIGHBOUR: &str = "bench-hp";
/// Threads of the daemon that are named.
const BUSIEST: usize = 3;
const OURS: &str = "pillion";

const STEP_LAUNCHES: u64 = 320;
const STEP_NS: u64 = 100_000_000;
/// Launches of a high-priority request: 10 ms of work.
const REQUEST_LAUNCHES: u64 = 100;

/// Limits in a state: processor time in per cent of a processor, wake-ups a second.
#[derive(Clone, Copy, Debug)]
struct Targets {
    ours_pct: f64,
    ours_wakes: f64,
    daemon_pct: f64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    name: &'static str,
    /// Time from one high-priority request to the next, if there are any.
    request_ns: Option<u64>,
    targets: Targets,
}

const ALONE: Targets = Targets {
    ours_pct: 1.0,
    ours_wakes: 100.0,
    daemon_pct: 0.5,
};
const BESIDE: Targets = Targets {
    ours_pct: 5.0,
    ours_wakes: 2_000.0,
    daemon_pct: 5.0,
};
const STATES: [State; 3] = [
    State {
        name: "BE alone",
        request_ns: None,
        targets: ALONE,
    },
    State {
        name: "BE beside HP at half load",
        request_ns: Some(20_000_000),
        targets: BESIDE,
    },
    State {
        name: "BE beside HP without a pause",
        request_ns: Some(0),
        targets: BESIDE,
    },
];

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    cpu_pct: f64,
    wakes_per_s: f64,
}

#[derive(Clone, Debug)]
struct Round {
    ours: Used,
    /// The job's other threads: the application's and the driver's.
    others: Used,
    neighbours_ours: Used,
    daemon: Used,
    /// The use of its busiest threads, in words.
    daemon_threads: String,
    launches_per_s: f64,
    /// Of the high-priority job, the mean.
    request_ms: f64,
    load: f64,
}

pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let (rounds, round_ns) = if quick {
        (1, ROUND_QUICK_NS)
    } else {
        (ROUNDS, ROUND_NS)
    };
    let mut rows = Vec::new();
    for state in &STATES {
        let (bare, with) = sides(rounds, |_, is_ours| {
            round(artifacts, state, is_ours, round_ns).with_context(|| state.name.to_owned())
        })?;
        rows.extend(rows_of(state, &bare, &with));
    }
    Ok(rows)
}

fn rows_of(state: &State, bare: &[Round], with: &[Round]) -> Vec<Row> {
    let Targets {
        ours_pct,
        ours_wakes,
        daemon_pct,
    } = state.targets;
    let row = |what: &str, unit, measured, target| {
        let mut row = Row::new(&format!("{}: {what}", state.name), unit, measured, target);
        let loads: Vec<String> = with.iter().map(|r| format!("{:.1}", r.load)).collect();
        row.evidence
            .push(format!("load {} at the ends", loads.join(", ")));
        row
    };
    let alone = |what: &str, unit, of: fn(&Round) -> f64, target| {
        let values: Vec<f64> = with.iter().map(of).collect();
        row(what, unit, Measured::Median(Quantiles::of(&values)), target)
    };
    let compared = |what: &str, unit, of: fn(&Round) -> f64| {
        let samples = Samples {
            block: 1,
            bare: bare.iter().map(of).collect(),
            with: with.iter().map(of).collect(),
        };
        let cost = Measured::Cost(Comparison::of(&samples));
        row(what, unit, cost, None)
    };
    let (pct, per_s) = (Unit::Pct, Unit::PerSecond);
    let mut rows = vec![
        alone("our threads", pct, |r| r.ours.cpu_pct, Some(ours_pct)),
        alone(
            "our threads' wake-ups",
            per_s,
            |r| r.ours.wakes_per_s,
            Some(ours_wakes),
        ),
        alone("pilliond", pct, |r| r.daemon.cpu_pct, Some(daemon_pct)),
        alone("pilliond's wake-ups", per_s, |r| r.daemon.wakes_per_s, None),
        compared("the job's other threads", pct, |r| r.others.cpu_pct),
        compared("their wake-ups", per_s, |r| r.others.wakes_per_s),
        compared("launches", per_s, |r| r.launches_per_s),
    ];
    if let Some(last) = with.last() {
        rows[2].evidence.push(last.daemon_threads.clone());
    }
    if state.request_ns.is_some() {
        rows.extend([
            alone(
                "our threads in the HP job",
                pct,
                |r| r.neighbours_ours.cpu_pct,
                None,
            ),
            alone(
                "their wake-ups (HP)",
                per_s,
                |r| r.neighbours_ours.wakes_per_s,
                None,
            ),
            compared("mean HP request", Unit::Ms, |r| r.request_ms),
        ]);
    }
    rows
}

fn round(
    artifacts: &Artifacts,
    state: &State,
    is_ours: bool,
    round_ns: u64,
) -> anyhow::Result<Round> {
    let site = Site::with(Device::Served, CONFIG)?;
    let _server = Server::start(artifacts, &site)?;
    let daemon = is_ours
        .then(|| Daemon::start(artifacts, &site))
        .transpose()?;
    let start = |class: JobClass, job, work| {
        let preload = Preload::new(artifacts, class, job).if_ours(is_ours);
        Preloaded::start(artifacts, &site, &preload, &Task::Work(work))
    };
    let mut neighbour = state
        .request_ns
        .map(|period_ns| {
            let work = Work {
                kernel: SERVING.name.to_owned(),
                launches: REQUEST_LAUNCHES,
                period_ns,
            };
            start(JobClass::HighPriority, NEIGHBOUR, work)
        })
        .transpose()?;
    let work = Work {
        kernel: LONG.name.to_owned(),
        launches: STEP_LAUNCHES,
        period_ns: STEP_NS,
    };
    let mut job = start(JobClass::BestEffort, JOB, work)?;
    let mut now = |clock: &Clock| -> anyhow::Result<Instant> {
        Ok(Instant {
            at_ns: clock.now_ns(),
            done: serde_json::from_value(job.measure()?)?,
            served: match &mut neighbour {
                Some(neighbour) => serde_json::from_value(neighbour.measure()?)?,
                None => Done::default(),
            },
            job: threads_of(job.pid())?,
            neighbour: neighbour
                .as_ref()
                .map_or_else(|| Ok(HashMap::new()), |it| threads_of(it.pid()))?,
            daemon: daemon
                .as_ref()
                .map_or_else(|| Ok(HashMap::new()), |it| threads_of(it.pid()))?,
        })
    };
    let clock = Clock::monotonic();
    clock.sleep_until(clock.now_ns() + SETTLE_NS);
    let before = now(&clock)?;
    clock.sleep_until(clock.now_ns() + round_ns);
    let after = now(&clock)?;
    Ok(before.until(&after))
}

struct Instant {
    at_ns: u64,
    done: Done,
    served: Done,
    job: HashMap<u32, Thread>,
    neighbour: HashMap<u32, Thread>,
    daemon: HashMap<u32, Thread>,
}

struct Thread {
    name: String,
    on_cpu_ns: u64,
    wakes: u64,
}

impl Instant {
    fn until(&self, after: &Self) -> Round {
        let passed_ns = (after.at_ns - self.at_ns) as f64;
        let used = |before: &HashMap<u32, Thread>,
                    after: &HashMap<u32, Thread>,
                    is_asked: fn(&Thread) -> bool| {
            let mut used = Used::default();
            for (id, now) in after.iter().filter(|(_, thread)| is_asked(thread)) {
                // All time of a thread that began in the round; that of one that ended is lost.
                let (cpu_ns, wakes) = before
                    .get(id)
                    .map_or((0, 0), |then| (then.on_cpu_ns, then.wakes));
                used.cpu_pct += (now.on_cpu_ns - cpu_ns) as f64 / passed_ns * 100.0;
                used.wakes_per_s += (now.wakes - wakes) as f64 / passed_ns * 1e9;
            }
            used
        };
        let requests = after.served.steps - self.served.steps;
        let request_ns = (after.served.took_ns - self.served.took_ns) as f64;
        let launches = (after.done.launches - self.done.launches) as f64;
        Round {
            ours: used(&self.job, &after.job, Thread::is_ours),
            others: used(&self.job, &after.job, |thread| !thread.is_ours()),
            neighbours_ours: used(&self.neighbour, &after.neighbour, Thread::is_ours),
            daemon: used(&self.daemon, &after.daemon, |_| true),
            daemon_threads: busiest(&self.daemon, &after.daemon, passed_ns),
            launches_per_s: launches / passed_ns * 1e9,
            request_ms: request_ns / requests.max(1) as f64 / 1e6,
            load: load_1min(),
        }
    }
}

fn busiest(before: &HashMap<u32, Thread>, after: &HashMap<u32, Thread>, passed_ns: f64) -> String {
    let mut threads: Vec<(f64, f64, &str)> = after
        .iter()
        .filter_map(|(id, now)| {
            let then = before.get(id)?;
            let cpu_pct = (now.on_cpu_ns - then.on_cpu_ns) as f64 / passed_ns * 100.0;
            let wakes_per_s = (now.wakes - then.wakes) as f64 / passed_ns * 1e9;
            Some((cpu_pct, wakes_per_s, &*now.name))
        })
        .collect();
    threads.sort_by(|a, b| b.0.total_cmp(&a.0));
    let said = threads.iter().take(BUSIEST);
    let said: Vec<String> = said
        .map(|(cpu_pct, wakes, name)| format!("{name} {cpu_pct:.2} % and {wakes:.0}/s"))
        .collect();
    said.join(", ")
}

impl Thread {
    fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }
}

fn threads_of(pid: u32) -> anyhow::Result<HashMap<u32, Thread>> {
    let mut threads = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let folder = entry?.path();
        let read = |file: &str| fs::read_to_string(folder.join(file));
        // A thread that ends during the reads is left out.
        let (Ok(name), Ok(schedstat), Ok(status)) =
            (read("comm"), read("schedstat"), read("status"))
        else {
            continue;
        };
        let id = folder.file_name().and_then(|id| id.to_str()?.parse().ok());
        let first = schedstat.split(' ').next();
        let wakes = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let thread = Thread {
            name: name.trim_end().to_owned(),
            on_cpu_ns: first.and_then(|ns| ns.parse().ok()).context("schedstat")?,
            wakes: wakes
                .and_then(|n| n.trim().parse().ok())
                .context("status")?,
        };
        threads.insert(id.context("a thread's id")?, thread);
    }
    Ok(threads)
}

fn load_1min() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}

//! The cost of a launch, an allocation, a graph's launch and its change, and a call that the
//! library does not record, in each state of a process; and whether a launch costs more after many
//! shapes. Every number is from one process, which calls the bare driver function and the hooked
//! one in alternated blocks; see `benches::alternate`. Each state is measured in several processes,
//! one after the other, because the placement of a process's memory matters by some nanoseconds;
//! the process with the median cost is reported. Each state is verified ([`check`]): by the files
//! of the two functions, by the daemon's count of launches against the child's, and by the lease.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use benches::report::{Measured, Row, Unit};
use benches::summary::Comparison;
use protocol::clock::Clock;
use protocol::hello::JobClass;
use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::child::{Call, Measure, Outcome, Task};
use crate::idle::CpuTime;
use crate::processes::{Daemon, Preload, Preloaded, Processors, Site, job};
use crate::profile::{BenchKernel, HIGH_PRIORITY, OTHER_CLASS, SAME_CLASS, TINY};

const UNATTACHED_TARGET_NS: f64 = 20.0;
const HP_TARGET_NS: f64 = 80.0;
const LEASE_TARGET_NS: f64 = 120.0;
/// Target for an allocation and its free together.
const PAIR_TARGET_NS: f64 = 150.0;

/// Limit on the cost of a launch in a late shape relative to one in an early shape.
const LATE_RATIO_MAX: f64 = 1.2;

/// Interval between launches: the pace at which Orion's frameworks issue kernels.
const PACE_NS: u64 = 5_000;
/// Launches in a block, which takes a millisecond: short against any drift.
const BLOCK: usize = 200;
/// Pairs of blocks in a process: 20 000 launches of each side.
const PAIRS: usize = 100;
const ROUNDS: usize = 5;

const NEIGHBOUR_PAUSE_NS: u64 = 1_000_000;
const JOB: &str = "bench";
const NEIGHBOUR: &str = "bench-neighbour";

/// Limit on the share of measured launches that took another path than intended (held at the gate,
/// unmanaged because the daemon had no processor, record dropped): a median does not show them.
const OTHERWISE_MAX: f64 = 0.05;
/// Limit on the processes for one number: if other programs leave the daemon no processor for
/// milliseconds, rings fill and leases end, and the measurement is repeated.
const ATTEMPTS_MAX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// No client and no daemon, and none is expected.
    NoDaemon,
    /// No client and no daemon, but one may come.
    NoDaemonYet,
    Nobody,
    /// A high-priority client that does nothing, so that best-effort launches are gated.
    IdleHp,
    /// A best-effort client is held while high-priority work runs: polls at `poll_us`.
    HeldBe,
    /// A best-effort client that runs at the same time: leases are live and are revoked.
    BesideBe,
}

#[derive(Clone, Copy, Debug)]
struct State {
    name: &'static str,
    class: JobClass,
    kernel: BenchKernel,
    company: Company,
    on_default_stream: bool,
    is_disabled: bool,
    has_profile: bool,
    call: Call,
    target_ns: Option<f64>,
    ratio_max: Option<f64>,
}

const UNATTACHED: State = State {
    name: "launch, not attached (no daemon)",
    class: JobClass::HighPriority,
    kernel: HIGH_PRIORITY,
    company: Company::NoDaemon,
    on_default_stream: true,
    is_disabled: false,
    has_profile: true,
    call: Call::Launch,
    target_ns: Some(UNATTACHED_TARGET_NS),
    ratio_max: None,
};

const HP: State = State {
    name: "launch, HP alone, default stream",
    company: Company::Nobody,
    target_ns: Some(HP_TARGET_NS),
    ..UNATTACHED
};

const BE: State = State {
    name: "launch, BE inside its lease, default stream",
    class: JobClass::BestEffort,
    kernel: TINY,
    company: Company::IdleHp,
    target_ns: Some(LEASE_TARGET_NS),
    ..UNATTACHED
};

/// Kernels of the launched graph: few, as the cost does not depend on them.
const GRAPH_KERNELS: usize = 10;
/// Kernels of the graph that is changed node by node. The stand-in driver copies the whole graph at
/// each change, which would hide our cost for a large one; a test of `graphs` shows ours constant.
const CHANGED_KERNELS: usize = 10;

/// Shapes that have passed before the late ones: more than the library keeps.
const OTHER_SHAPES: usize = 40_000;

const LATE_SHAPES: State = State {
    name: "launch, HP: a shape first seen after 40 000 others, beside the first hundred",
    call: Call::LateShapes(OTHER_SHAPES),
    target_ns: None,
    ratio_max: Some(LATE_RATIO_MAX),
    ..HP
};

const LATE_SIGHTS: State = State {
    name: "first launch of a shape, HP: after 40 000 others, beside the first hundred",
    call: Call::LateSights(OTHER_SHAPES),
    ..LATE_SHAPES
};

const STATES: [State; 26] = [
    UNATTACHED,
    State {
        name: "launch, PILLION_DISABLE=1, by the export",
        is_disabled: true,
        target_ns: None,
        ..UNATTACHED
    },
    HP,
    State {
        name: "launch, HP alone, created stream",
        on_default_stream: false,
        ..HP
    },
    State {
        name: "launch, HP while BE is held (daemon polls at poll_us)",
        company: Company::HeldBe,
        ..HP
    },
    State {
        name: "launch, HP while BE runs beside it (leases revoked)",
        company: Company::BesideBe,
        ..HP
    },
    BE,
    State {
        name: "launch, BE inside its lease, created stream",
        on_default_stream: false,
        ..BE
    },
    State {
        name: "launch, BE ungated (no HP)",
        company: Company::Nobody,
        target_ns: None,
        ..BE
    },
    State {
        name: "launch, HP, no daemon yet",
        company: Company::NoDaemonYet,
        ..HP
    },
    State {
        name: "launch, BE, no daemon yet",
        company: Company::NoDaemonYet,
        ..BE
    },
    State {
        name: "graph launch, not attached",
        kernel: TINY,
        call: Call::GraphLaunch(GRAPH_KERNELS),
        target_ns: None,
        ..UNATTACHED
    },
    State {
        name: "graph launch, HP alone, default stream",
        kernel: TINY,
        call: Call::GraphLaunch(GRAPH_KERNELS),
        target_ns: None,
        ..HP
    },
    State {
        name: "graph launch, BE inside its lease, default stream",
        call: Call::GraphLaunch(GRAPH_KERNELS),
        target_ns: None,
        ..BE
    },
    State {
        name: "setting one node of a graph, HP",
        call: Call::GraphChange(CHANGED_KERNELS),
        target_ns: None,
        ..HP
    },
    State {
        name: "cuMemAlloc + cuMemFree, not attached",
        call: Call::Allocation,
        target_ns: Some(PAIR_TARGET_NS),
        ..UNATTACHED
    },
    State {
        name: "cuMemAlloc + cuMemFree, HP",
        call: Call::Allocation,
        target_ns: Some(PAIR_TARGET_NS),
        ..HP
    },
    State {
        name: "cuMemAlloc + cuMemFree, BE",
        call: Call::Allocation,
        target_ns: Some(PAIR_TARGET_NS),
        ..BE
    },
    State {
        name: "cuFuncGetAttribute (a hook with nothing in it), not attached",
        call: Call::Attribute,
        target_ns: None,
        ..UNATTACHED
    },
    State {
        name: "cuFuncGetAttribute (a hook with nothing in it), HP",
        call: Call::Attribute,
        target_ns: None,
        ..HP
    },
    State {
        name: "cublasSgemm, not attached: its label, beside the launch inside",
        call: Call::Product,
        ..UNATTACHED
    },
    State {
        name: "cublasSgemm, HP: its label, beside the launch inside",
        call: Call::Product,
        target_ns: None,
        ..HP
    },
    LATE_SHAPES,
    State {
        name: "launch, HP, no profile: a shape first seen after 40 000 others, beside the first hundred",
        has_profile: false,
        ..LATE_SHAPES
    },
    LATE_SIGHTS,
    State {
        name: "first launch of a shape, HP, no profile: after 40 000 others, beside the first hundred",
        has_profile: false,
        ..LATE_SIGHTS
    },
];

struct Round {
    comparison: Comparison,
    evidence: Vec<String>,
    /// Share of the launches that were held or not reported.
    otherwise: f64,
}

pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let rounds = if quick { 1 } else { ROUNDS };
    STATES
        .iter()
        .map(|state| row(artifacts, state, rounds).with_context(|| state.name.to_owned()))
        .collect()
}

fn row(artifacts: &Artifacts, state: &State, rounds: usize) -> anyhow::Result<Row> {
    let mut measured = (0..rounds)
        .map(|_| round(artifacts, state))
        .collect::<anyhow::Result<Vec<Round>>>()?;
    measured.sort_by(|a, b| a.comparison.difference.total_cmp(&b.comparison.difference));
    let all: Vec<String> = measured
        .iter()
        .map(|round| format!("{:.1}", round.comparison.difference))
        .collect();
    let median = measured.swap_remove((measured.len() - 1) / 2);
    let cost = Measured::Cost(median.comparison);
    let by_ratio = state
        .ratio_max
        .map(|most| (most - 1.0) * median.comparison.bare.median);
    let target_ns = by_ratio.map(f64::round).or(state.target_ns);
    let mut row = Row::new(state.name, Unit::Ns, cost, target_ns);
    row.evidence = median.evidence;
    row.evidence
        .push(format!("costs of all processes: {} ns", all.join(", ")));
    Ok(row)
}

fn round(artifacts: &Artifacts, state: &State) -> anyhow::Result<Round> {
    for repeated in 0..ATTEMPTS_MAX {
        let mut round = attempt(artifacts, state)?;
        if round.otherwise <= OTHERWISE_MAX {
            if repeated > 0 {
                round
                    .evidence
                    .push(format!("{repeated} disturbed measurements repeated"));
            }
            return Ok(round);
        }
    }
    bail!(
        "in each of {ATTEMPTS_MAX} processes more than {OTHERWISE_MAX} of the launches were held or \
         not announced: other programs leave the daemon no processor"
    )
}

fn attempt(artifacts: &Artifacts, state: &State) -> anyhow::Result<Round> {
    let site = Site::new()?;
    if matches!(state.company, Company::NoDaemon | Company::NoDaemonYet) {
        let outcome = measure_once(artifacts, &site, state)?.1;
        return Ok(Round {
            evidence: check_files(state, &outcome)?,
            comparison: outcome.comparison,
            otherwise: 0.0,
        });
    }
    let processors = Processors::allowed()?;
    processors.stand_aside()?;
    let daemon = Daemon::start(artifacts, &site)?;
    let _neighbour = neighbour(artifacts, &site, state.company)?;
    // The child chooses its own processors.
    processors.use_all()?;
    let cpu = CpuTime::of(daemon.pid())?;
    let begun_ns = Clock::monotonic().now_ns();
    let (child, outcome) = measure_once(artifacts, &site, state)?;
    let passed_ns = Clock::monotonic().now_ns() - begun_ns;
    let cpu_ns = CpuTime::of(daemon.pid())?.on_cpu_ns - cpu.on_cpu_ns;
    let mut evidence = check_files(state, &outcome)?;
    let status = daemon.status()?;
    let totals = &job(&status, JOB)?["totals"];
    let count = |name: &str| totals[name].as_u64().unwrap_or(0);
    let otherwise = count("launches_held") + count("launches_unmanaged") + count("records_dropped");
    evidence.extend(check(state, &outcome, &status)?);
    evidence.push(format!(
        "daemon used {:.1} % of a processor meanwhile",
        cpu_ns as f64 / passed_ns as f64 * 100.0
    ));
    drop(child);
    Ok(Round {
        comparison: outcome.comparison,
        evidence,
        otherwise: otherwise as f64 / outcome.calls_with.max(1) as f64,
    })
}

fn measure_once(
    artifacts: &Artifacts,
    site: &Site,
    state: &State,
) -> anyhow::Result<(Preloaded, Outcome)> {
    let task = Task::Measure(Measure {
        kernel: state.kernel.name.to_owned(),
        on_default_stream: state.on_default_stream,
        by_export: state.is_disabled,
        call: state.call,
        block: BLOCK,
        pairs: PAIRS,
        pace_ns: PACE_NS,
    });
    let preload = Preload {
        is_disabled: state.is_disabled,
        has_profile: state.has_profile,
        expects_daemon: state.company != Company::NoDaemon,
        ..Preload::new(artifacts, state.class, JOB)
    };
    let mut child = Preloaded::start(artifacts, site, &preload, &task)?;
    let outcome = serde_json::from_value(child.measure()?)?;
    Ok((child, outcome))
}

fn neighbour(
    artifacts: &Artifacts,
    site: &Site,
    company: Company,
) -> anyhow::Result<Option<Preloaded>> {
    let launching = |kernel: BenchKernel| Task::KeepLaunching {
        kernel: kernel.name.to_owned(),
        pause_ns: NEIGHBOUR_PAUSE_NS,
    };
    let (class, task) = match company {
        Company::NoDaemon | Company::NoDaemonYet | Company::Nobody => return Ok(None),
        Company::IdleHp => {
            let kernel = HIGH_PRIORITY.name.to_owned();
            (JobClass::HighPriority, Task::Attend { kernel })
        }
        Company::HeldBe => (JobClass::BestEffort, launching(SAME_CLASS)),
        Company::BesideBe => (JobClass::BestEffort, launching(OTHER_CLASS)),
    };
    let preload = Preload::new(artifacts, class, NEIGHBOUR);
    Preloaded::start(artifacts, site, &preload, &task).map(Some)
}

fn check_files(state: &State, outcome: &Outcome) -> anyhow::Result<Vec<String>> {
    let (bare, with) = (file_name(&outcome.bare_file), file_name(&outcome.with_file));
    ensure!(
        bare.starts_with(if state.call == Call::Product {
            "libcublas"
        } else {
            "libcuda"
        }),
        "the bare function is in {bare}"
    );
    ensure!(
        with == "libpillion.so",
        "the function with Pillion is in {with}"
    );
    let mut evidence = vec![format!(
        "{bare} against {with}, {} calls",
        outcome.calls_with
    )];
    if state.is_disabled {
        let found = file_name(&outcome.dlsym_file);
        ensure!(
            found == bare,
            "switched off, dlsym finds the function in {found}"
        );
        evidence.push("dlsym finds the driver's own function, at no cost".to_owned());
    }
    Ok(evidence)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn check(state: &State, outcome: &Outcome, status: &Value) -> anyhow::Result<Vec<String>> {
    let job = job(status, JOB)?;
    let class = job["class"].as_str().unwrap_or("none");
    ensure!(class == state.class.name(), "the child is {class}");
    let count = |name: &str| job["totals"][name].as_u64().unwrap_or(0);
    let counter = match state.call {
        Call::Allocation => Some("allocations"),
        Call::Launch | Call::LateShapes(_) | Call::LateSights(_) => Some("launches"),
        Call::Product => Some("calls_operator"),
        Call::GraphLaunch(_) => Some("graph_launches"),
        Call::GraphChange(_) => Some("calls_graph"),
        Call::Attribute => None,
    };
    // The call that makes the graph executable is counted, too.
    let more = u64::from(matches!(state.call, Call::GraphChange(_)));
    let made = outcome.calls_with;
    let mut evidence = vec![format!("attached as {class}")];
    if let Some(counter) = counter {
        let counted = count(counter);
        ensure!(
            counted == made + more,
            "{made} calls were made, Pillion counted {counted} {counter}"
        );
        evidence.push(format!("{counted} {counter} counted"));
    }
    for never in ["panics_caught", "launches_unknown"] {
        // No profile of the benches has the products' kernel.
        let may_be_unknown = state.call == Call::Product || !state.has_profile;
        let is_allowed = may_be_unknown && never == "launches_unknown";
        ensure!(
            is_allowed || count(never) == 0,
            "{never}: expected 0, counted {}",
            count(never)
        );
    }
    if state.class == JobClass::BestEffort {
        let is_ungated = job["lease"]["ungated"]
            .as_bool()
            .context("no lease in the status")?;
        let is_meant = state.company == Company::Nobody;
        ensure!(
            is_ungated == is_meant,
            "the lease has ungated = {is_ungated}, expected {is_meant}"
        );
        let held = count("launches_held");
        let gated = if is_ungated { "ungated" } else { "gated" };
        let unmanaged = count("launches_unmanaged");
        evidence.push(format!(
            "lease {gated}, {held} launches held, {unmanaged} while the daemon was gone"
        ));
    } else {
        evidence.push(format!("{} records dropped", count("records_dropped")));
    }
    if matches!(state.company, Company::HeldBe | Company::BesideBe) {
        evidence.push(check_neighbour(state.company, status)?);
    }
    Ok(evidence)
}

fn check_neighbour(company: Company, status: &Value) -> anyhow::Result<String> {
    let totals = &job(status, NEIGHBOUR)?["totals"];
    let count = |name: &str| totals[name].as_u64().unwrap_or(0);
    let (held, beside) = (count("launches_held"), count("launches_beside_hp"));
    let epoch = status["hp"]["epoch"].as_u64().unwrap_or(0);
    match company {
        Company::HeldBe => ensure!(held > 0, "the neighbour was never held"),
        _ => ensure!(beside > 0 && epoch > 1, "the neighbour never ran beside HP"),
    }
    Ok(format!(
        "neighbour: {} launches, {held} held, {beside} beside HP; epoch {epoch}",
        count("launches")
    ))
}

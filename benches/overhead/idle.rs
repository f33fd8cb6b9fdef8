//! The daemon's cost without clients.

use std::fs;

use anyhow::Context;
use benches::report::{Measured, Row, Unit};
use protocol::clock::Clock;

use crate::artifacts::Artifacts;
use crate::processes::{Daemon, Site};

const TARGET_PCT: f64 = 1.0;
const SECONDS: u64 = 20;
const SECONDS_QUICK: u64 = 5;
/// Units per second in `/proc/PID/stat`: `USER_HZ`, 100 on every supported Linux (proc(5)).
const USER_HZ: f64 = 100.0;

pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let seconds = if quick { SECONDS_QUICK } else { SECONDS };
    let site = Site::new()?;
    let daemon = Daemon::start(artifacts, &site)?;
    let clock = Clock::monotonic();
    let before = CpuTime::of(daemon.pid())?;
    let begun_ns = clock.now_ns();
    clock.sleep_until(begun_ns + seconds * 1_000_000_000);
    let after = CpuTime::of(daemon.pid())?;
    let passed_ns = (clock.now_ns() - begun_ns) as f64;
    let used_s = after.user_and_system_s - before.user_and_system_s;
    let share_pct = used_s * 1e9 / passed_ns * 100.0;
    let mut row = Row::new(
        "daemon without clients",
        Unit::Pct,
        Measured::Value(share_pct),
        Some(TARGET_PCT),
    );
    row.evidence = vec![
        format!(
            "user and system time over {seconds} s: {:.0} ms",
            used_s * 1e3
        ),
        format!(
            "on a processor by the scheduler's own count, threads that ended left out: {:.3} ms",
            after.on_cpu_ns.saturating_sub(before.on_cpu_ns) as f64 / 1e6
        ),
    ];
    Ok(vec![row])
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    /// As `times(2)` counts it, to 10 ms.
    user_and_system_s: f64,
    /// As the scheduler counts it, for living threads.
    pub(crate) on_cpu_ns: u64,
}

impl CpuTime {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is a name in parentheses, which may contain anything. After it, user and
        // system time are the 12th and 13th (proc(5): 14 and 15 in all).
        let (_, rest) = stat.rsplit_once(')').context("/proc/PID/stat")?;
        let ticks: f64 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        let mut on_cpu_ns = 0;
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let told = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
            let first = told.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            on_cpu_ns += first.unwrap_or(0);
        }
        Ok(Self {
            user_and_system_s: ticks / USER_HZ,
            on_cpu_ns,
        })
    }
}

//! `cargo bench -p pillion-benches --bench lateness`: how late the daemon's poll thread wakes on a
//! host whose processors are all busy.
//!
//! A thread sleeps as the poll thread does while best-effort work waits: on a bell that nobody
//! rings, for 50 us, with the poll thread's timer slack. Its *lateness* is the time from its
//! deadline until it runs. Other threads compute without end. Blocks of sleeps under `SCHED_OTHER`
//! and under `SCHED_RR`, which `pilliond` requests by the same function, alternate in one run.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::ensure;
use benches::bench;
use benches::machine::Machine;
use clap::Parser;
use protocol::clock::Clock;
use protocol::pages::Bell;
use scheduler::host::realtime::{self, Begun};

/// A poll thread's sleep while best-effort work waits (`poll_us`), ns.
const POLL_NS: u64 = 50_000;
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("is not zero");
/// Once a daemon was later than this, a best-effort launch that waits for it went ungated, ns.
const LATE_NS: u64 = 10_000_000;
/// Length of a block, ns, and the number of blocks of each policy.
const BLOCK_NS: u64 = 2_000_000_000;
const BLOCKS: usize = 10;

/// Measures how late the daemon's poll thread wakes beside threads that compute. Uses no GPU.
#[derive(Parser)]
#[command(name = "lateness", after_help = AFTER_HELP)]
struct Arguments {
    /// Number of threads that compute without end.
    #[arg(long, default_value_t = 4)]
    burners: usize,
    /// Run a fifth of the blocks: for a quick check, not for results to keep.
    #[arg(long)]
    quick: bool,
    /// Passed by cargo when it runs a bench, but not when it runs tests.
    #[arg(long, hide = true)]
    bench: bool,
}

const AFTER_HELP: &str = "\
Example:
  cargo bench -p pillion-benches --bench lateness -- --burners 8

Exit codes: 0 success; 1 no real-time priority (it takes CAP_SYS_NICE or RLIMIT_RTPRIO).";

#[derive(Default)]
struct Side(Vec<u64>);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.bench {
        return bench::nothing_is_measured();
    }
    bench::outcome("lateness", run(&arguments).map(|()| true))
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let machine = Machine::here();
    let blocks = if arguments.quick { BLOCKS / 5 } else { BLOCKS };
    let (mut other, mut real_time) = (Side::default(), Side::default());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..arguments.burners {
            scope.spawn(|| burn(&is_over));
        }
        let measured = (0..blocks).try_for_each(|_| {
            other.0.extend(block(scope, false)?);
            real_time.0.extend(block(scope, true)?);
            anyhow::Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        measured
    })?;
    println!(
        "| poll thread beside {} burners | sleeps | p50 | p99 | p99.9 | longest | later than 10 ms |",
        arguments.burners
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    println!("{}", other.row("SCHED_OTHER"));
    println!("{}", real_time.row("SCHED_RR, priority 1"));
    println!(
        "\nNo GPU involved. {}; commit {}; load {} before.",
        machine.kind(),
        machine.commit,
        machine.load_1min
    );
    Ok(())
}

fn block<'s>(scope: &'s thread::Scope<'s, '_>, is_real_time: bool) -> anyhow::Result<Vec<u64>> {
    let sleep = move || {
        if is_real_time {
            let begun = realtime::begin()?;
            ensure!(
                begun == Begun::RealTime,
                "this process has a policy of its own"
            );
        }
        rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS))?;
        Ok(sleeps(&Clock::monotonic()))
    };
    scope.spawn(sleep).join().expect("no sleep panics")
}

fn sleeps(clock: &Clock) -> Vec<u64> {
    let bell = Bell::default();
    let end_ns = clock.now_ns() + BLOCK_NS;
    let mut late = Vec::new();
    loop {
        let now_ns = clock.now_ns();
        if now_ns >= end_ns {
            return late;
        }
        let deadline_ns = now_ns + POLL_NS;
        bell.wait(clock, bell.read(), Some(deadline_ns));
        late.push(clock.now_ns().saturating_sub(deadline_ns));
    }
}

fn burn(is_over: &AtomicBool) {
    let mut number = 1_u64;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..1_000 {
            number = black_box(
                number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

impl Side {
    fn row(&mut self, name: &str) -> String {
        self.0.sort_unstable();
        let late = &self.0;
        // Nearest rank.
        let at = |per_mille: usize| late[(late.len() * per_mille).div_ceil(1000).max(1) - 1];
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1_000.0);
        let too_late = late.iter().filter(|&&ns| ns > LATE_NS).count();
        format!(
            "| {name} | {} | {} | {} | {} | {} | {too_late} |",
            late.len(),
            us(at(500)),
            us(at(990)),
            us(at(999)),
            us(late[late.len() - 1])
        )
    }
}

//! Two more tasks of a child: keeping the device busy, and timing launches with pauses.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::ensure;
use benches::summary::Quantiles;
use benches::timer::{self, Timer};
use protocol::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::child::wait_for_end;
use crate::driver::{Calls, Door, prepare};
use crate::processes::Processors;
use crate::profile::{BLOCK, GRID, module_image};

const WARM_UP: usize = 1_000;
/// A longer launch did not just wait for an event call of 1 us, ns.
pub(crate) const LONG_NS: f64 = 50_000.0;
/// Launches between two waits for them, as after a request.
const SPACED_LAUNCHES: usize = 200;

/// Repeated steps: launches, and a wait for them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) kernel: String,
    pub(crate) launches: u64,
    /// From the beginning of a step to the beginning of the next; a longer one is followed at once.
    pub(crate) period_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) launches: u64,
    pub(crate) steps: u64,
    pub(crate) took_ns: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Space {
    pub(crate) kernel: String,
    pub(crate) pause_ns: u64,
    pub(crate) blocks: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spaced {
    pub(crate) launch: Quantiles,
    /// The mean launch of the median block, ns: a block with a preemption is an outlier.
    pub(crate) block_mean_ns: f64,
    /// The mean of all launches but the long ones, ns.
    pub(crate) short_mean_ns: f64,
    /// Launches that took longer than [`LONG_NS`]: the thread was preempted, or held at the gate.
    pub(crate) long: u64,
    pub(crate) launches: u64,
}

/// Works until standard input ends, and answers each line there with the work done so far.
pub(crate) fn work(work: &Work) -> anyhow::Result<()> {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static STEPS: AtomicU64 = AtomicU64::new(0);
    static TOOK_NS: AtomicU64 = AtomicU64::new(0);
    let what = prepare(&module_image(), &work.kernel, true)?;
    let calls = Calls::find(Door::Dlsym)?;
    let launches = work.launches;
    std::thread::spawn(move || {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {
            let steps = STEPS.load(Ordering::Relaxed);
            let done = Done {
                launches: steps * launches,
                steps,
                took_ns: TOOK_NS.load(Ordering::Relaxed),
            };
            println!("{}", serde_json::json!(done));
        }
        IS_OVER.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let clock = Clock::monotonic();
    let mut next_ns = clock.now_ns();
    while !IS_OVER.load(Ordering::Relaxed) {
        clock.sleep_until(next_ns);
        let begun_ns = clock.now_ns();
        let accepted = (0..launches).all(|_| calls.launch(&what, GRID, BLOCK));
        ensure!(accepted && calls.synchronize(), "the driver refused calls");
        let now_ns = clock.now_ns();
        // Relaxed: numbers for a report.
        STEPS.fetch_add(1, Ordering::Relaxed);
        TOOK_NS.fetch_add(now_ns - begun_ns, Ordering::Relaxed);
        next_ns = now_ns.max(next_ns + work.period_ns);
    }
    Ok(())
}

pub(crate) fn space(space: &Space) -> anyhow::Result<()> {
    let processors = Processors::allowed()?;
    processors.stand_aside()?;
    let what = prepare(&module_image(), &space.kernel, true)?;
    let calls = Calls::find(Door::Dlsym)?;
    processors.move_to_measured()?;
    let timer = Timer::calibrated();
    println!("ready");
    io::stdin().lock().read_line(&mut String::new())?;
    let accepted = (0..WARM_UP).all(|_| calls.launch(&what, GRID, BLOCK));
    ensure!(accepted && calls.synchronize(), "the driver refused calls");
    let mut each = Vec::new();
    for _ in 0..space.blocks {
        for _ in 0..SPACED_LAUNCHES {
            let start = timer::before();
            let accepted = calls.launch(&what, GRID, BLOCK);
            let end = timer::after();
            each.push(timer.ns(end.wrapping_sub(start)));
            ensure!(accepted, "the driver refused a launch");
            let next = end + timer.ticks(space.pause_ns);
            while timer::before() < next {
                std::hint::spin_loop();
            }
        }
        ensure!(calls.synchronize(), "the driver refused a wait");
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let blocks: Vec<f64> = each.chunks(SPACED_LAUNCHES).map(mean).collect();
    let short: Vec<f64> = each.iter().copied().filter(|&ns| ns <= LONG_NS).collect();
    let spaced = Spaced {
        launch: Quantiles::of(&each),
        block_mean_ns: Quantiles::of(&blocks).median,
        short_mean_ns: mean(&short),
        long: (each.len() - short.len()) as u64,
        launches: (each.len() + WARM_UP) as u64,
    };
    println!("{}", serde_json::to_string(&spaced)?);
    wait_for_end();
    Ok(())
}

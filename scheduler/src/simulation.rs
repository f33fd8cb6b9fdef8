//! Fault simulation: the daemon's core and the library's client against each other, with all their
//! faults, from a seed.
//!
//! The shipped code runs: [`State`](crate::core::state::State) with its policy,
//! [`Ledgers`](crate::core::ledgers::Ledgers), the library's [`client`], and the pages with
//! `protocol`'s rings, leases and ledgers. Simulated are the rest of a client's process (the
//! application, the driver, threads and signals: [`process`]), the device (work in flight, freed
//! memory), NVML, the control thread's conversation ([`daemon`]) and time. No thread, no socket, no
//! clock: equal seeds are equal runs. `.ci/weaken` puts faults into the client, which the
//! simulation must detect.
//! - **Events** are drawn at each step ([`world`]): launches, completions, allocations; processes
//!   come and are killed; a connection ends although its process lives; the daemon is killed and
//!   another one starts; ends are noticed late and out of order; packets are garbled and replies
//!   lost; rings overflow; NVML is late, or wrong; time jumps; contexts are lost and Xids reported,
//!   and rules hold jobs or drain the GPU ([`faults`]); memory accounts pass from daemon to daemon
//!   ([`accounts`]); the operator changes the configuration ([`plan`]); jobs are stopped
//!   ([`stopper`], [`stopping`]); liars of several jobs and users write anything wherever they may,
//!   and bring any page.
//!
//! Any party may be interrupted by the others, and killed, between any two steps: in this build
//! between its calls, and with `--cfg stepped` between any two accesses of shared memory
//! (`protocol::sync`), inside the shipped code, on both sides.
//! - **Invariants** are checked by [`check`], at each grant, each launch and each quiet moment, and
//!   once all have left.
//!
//! ```text
//! PILLION_SIM_SEEDS=100000 cargo test --release -p pillion-scheduler simulation  more seeds
//! PILLION_SIM_SEED=4711    cargo test --release -p pillion-scheduler simulation  with its story
//! RUSTFLAGS="--cfg stepped" cargo test … --target-dir target/stepped             any two accesses
//! ```

mod accounts;
mod check;
mod daemon;
mod faults;
mod plan;
mod process;
mod stopper;
mod stopping;
mod world;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use policy::registry;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use world::World;

/// Without `PILLION_SIM_SEEDS`. CI runs the larger number between any two accesses, separately.
const SEEDS: u64 = if cfg!(stepped) { 10_000 } else { 1_000 };

const STORY_LINES: usize = 80;

/// Seeds of past findings, with the finding. A seed's draws change with the simulation: these were
/// seen to fail, between any two accesses, with the fault put back.
const FOUND: [(u64, &str); 2] = [
    (
        16,
        "a high-priority process that had launched nothing counted a lost record when it attached again: busy for good",
    ),
    (
        148,
        "the same, beside five best-effort processes that were granted nothing",
    ),
];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a whole number"))
}

/// Runs one seed: its failure, and its story if requested.
fn play(seed: u64, is_told: bool) -> (Result<(), String>, Vec<String>) {
    let world = World::new(seed, is_told);
    let result = catch_unwind(AssertUnwindSafe(|| world.live()));
    world.bury();
    let what = |payload: Box<dyn Any + Send>| match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => format!("{:?}", payload.downcast::<&str>()),
    };
    (result.map_err(what), world.story())
}

fn expect_right(seed: u64) {
    let Err(what) = play(seed, false).0 else {
        return;
    };
    let (_, story) = play(seed, true);
    let from = story.len().saturating_sub(STORY_LINES);
    let story = story[from..].join("\n");
    panic!(
        "seed {seed}: {what}\nPILLION_SIM_SEED={seed} tells it from its beginning; its end:\n{story}"
    );
}

#[test]
fn whatever_fails_wherever_nobody_else_is_hurt_and_everything_comes_back() {
    if let Some(seed) = number("PILLION_SIM_SEED") {
        let (result, story) = play(seed, true);
        println!("{}", story.join("\n"));
        assert_eq!(result, Ok(()), "seed {seed}");
        return;
    }
    let seeds = number("PILLION_SIM_SEEDS").unwrap_or(SEEDS);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    if let Err(what) = catch_unwind(|| expect_right(seed)) {
                        next.store(seeds, Ordering::Relaxed);
                        resume_unwind(what);
                    }
                }
            });
        }
    });
}

#[test]
fn seeds_draw_every_policy_of_the_registry() {
    let drawn = |seed| {
        let plan = plan::Plan::of(&mut Pcg64Mcg::seed_from_u64(seed));
        plan.configs.into_iter().map(|config| config.policy.name())
    };
    let drawn: BTreeSet<&str> = (0..100).flat_map(drawn).collect();
    let all: BTreeSet<&str> = registry::all().map(|entry| entry.name).collect();
    assert_eq!(drawn, all);
}

#[test]
fn what_a_seed_found_once_stays_mended() {
    for (seed, what) in FOUND {
        assert_eq!(play(seed, false).0, Ok(()), "seed {seed} again: {what}");
    }
}

#[test]
fn a_seed_repeats_itself_and_another_is_another() {
    let story = |seed| play(seed, true).1;
    assert_eq!(story(7), story(7));
    assert_ne!(story(7), story(8));
}

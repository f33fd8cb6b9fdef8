//! Delay from the first step of a high-priority launch to the last best-effort launch that its
//! lease still admits. One thread launches best-effort kernels without pause, as far as its lease
//! allows. The measuring thread makes a high-priority launch (push, announce) at some moment and
//! records when it began. The delay is the time of the other thread's last admission after that
//! moment, or 0. A third thread is the daemon: it polls as shipped and grants the lease again once
//! the launch is complete.
//!
//! *Control*: the same without the announcement, so that only the daemon's next poll stops the
//! launches, as in every system that asks a scheduler now and then. The difference is the effect of
//! the epoch. An arrival is made only while the other thread is launching: its last admission is
//! less than 2 us ago. So the result does not depend on whether that thread had a processor. It may
//! lose the processor in that very moment, which medians do not show.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::ensure;
use benches::alternate::Samples;
use benches::bench::SetAtEnd;
use benches::report::{Measured, Row, Unit};
use benches::summary::Comparison;
use benches::timer::{self, Timer};
use policy::{Class, Kernel};
use protocol::clock::Clock;
use protocol::hello::JobClass;

use crate::clients::{Daemon, Player};

/// Target beside work admitted earlier, ns.
const TARGET_NS: f64 = 2_000.0;
/// Arrivals in a block; the two variants alternate block by block.
const BLOCK: usize = 50;
const POLL_NS: u64 = 50_000;
/// Interval between arrivals, so that leases are granted again: some polls.
const PAUSE_NS: u64 = 400_000;
/// Delay after an arrival before admissions are read: longer than two polls.
const SETTLE_NS: u64 = 250_000;
/// Greatest age of the last admission at an arrival.
const FRESH_NS: u64 = 2_000;
/// Limit on polls for the other thread's launches, [`POLL_NS`] apart: a second.
const LOOKS_MAX: usize = 20_000;
/// Short, so that the bound on work in flight does not stop the launches before the arrival does.
const KERNEL: Kernel = Kernel {
    class: Class::Compute,
    sm_needed: 80,
    expected_ns: 1,
};

#[derive(Default)]
struct Words {
    is_over: AtomicBool,
    /// Time of the last admitted best-effort launch, ticks.
    admitted: AtomicU64,
    admissions: AtomicU64,
}

pub(crate) fn measure(timer: &Timer, quick: bool) -> anyhow::Result<Vec<Row>> {
    let pairs = if quick { 4 } else { 20 };
    // Under this policy nothing goes beside high-priority work: the result is when that is known.
    let mut daemon = Daemon::new("name = \"temporal\"\nresidual_us = 10000000")?;
    let mut hp = daemon.attach(JobClass::HighPriority, "hp")?;
    let be = daemon.attach(JobClass::BestEffort, "be")?;
    let pages = std::sync::Arc::clone(&daemon.pages);
    let words = Words::default();
    let samples = thread::scope(|scope| {
        let words = &words;
        scope.spawn(move || poll(daemon, words));
        scope.spawn({
            let pages = std::sync::Arc::clone(&pages);
            move || launch(&be, &pages, words)
        });
        let _over = SetAtEnd(&words.is_over);
        let mut samples = Samples {
            block: BLOCK,
            ..Samples::default()
        };
        for _ in 0..pairs * BLOCK {
            let control = arrive(&mut hp, words, timer, |hp| hp.push(1_000));
            let measured = arrive(&mut hp, words, timer, |hp| hp.launch(&pages, 1_000));
            let (Some(control), Some(measured)) = (control, measured) else {
                anyhow::bail!("a ring was full, or no best-effort launch came within a second");
            };
            samples.bare.push(control);
            samples.with.push(measured);
        }
        Ok(samples)
    })?;
    let admissions = words.admissions.load(Ordering::Relaxed);
    ensure!(admissions > 0, "no best-effort launch was ever admitted");
    let after = |delays: &[f64]| delays.iter().filter(|ns| **ns > 0.0).count();
    let comparison = Comparison::of(&samples);
    let delays = Measured::Median(comparison.with);
    let name = "HP arrival to last BE admission";
    let mut row = Row::new(name, Unit::Ns, delays, Some(TARGET_NS));
    row.evidence = vec![
        format!(
            "{} arrivals, {admissions} BE admissions; {} arrivals were followed by one, p90 {:.0} ns",
            samples.with.len(),
            after(&samples.with),
            comparison.with.p90
        ),
        format!(
            "control, stopped by the daemon's polls alone: {} of {}, median {:.0} ns, p90 {:.0} ns",
            after(&samples.bare),
            samples.bare.len(),
            comparison.bare.median,
            comparison.bare.p90
        ),
    ];
    ensure!(
        comparison.bare.median > comparison.with.median,
        "the control is as fast as the lease: the revocation is not what was measured"
    );
    Ok(vec![row])
}

fn poll(mut daemon: Daemon, words: &Words) {
    let clock = Clock::monotonic();
    while !words.is_over.load(Ordering::Relaxed) {
        let now_ns = clock.now_ns();
        daemon.state.poll(now_ns);
        clock.sleep_until(now_ns + POLL_NS);
    }
}

fn launch(be: &Player, pages: &scheduler::core::pages::GpuPages, words: &Words) {
    let clock = Clock::monotonic();
    while !words.is_over.load(Ordering::Relaxed) {
        if be.try_launch(pages, clock.now_ns(), &KERNEL).is_ok() {
            words.admitted.store(timer::after(), Ordering::Release);
            words.admissions.fetch_add(1, Ordering::Relaxed);
            be.drain();
        }
    }
}

/// One arrival: ns from its beginning to the last admission, 0 if there was none; `None` if the
/// ring was full, or the other thread did not launch.
fn arrive(
    hp: &mut Player,
    words: &Words,
    timer: &Timer,
    begin: impl FnOnce(&mut Player) -> bool,
) -> Option<f64> {
    let clock = Clock::monotonic();
    clock.sleep_until(clock.now_ns() + PAUSE_NS);
    let fresh = timer.ticks(FRESH_NS);
    let is_launching = |_: &usize| {
        let admitted = words.admitted.load(Ordering::Acquire);
        let is_fresh = timer::before().saturating_sub(admitted) < fresh;
        if !is_fresh {
            clock.sleep_until(clock.now_ns() + POLL_NS);
        }
        is_fresh
    };
    (0..LOOKS_MAX).find(is_launching)?;
    let begun = timer::before();
    let is_pushed = begin(hp);
    clock.sleep_until(clock.now_ns() + SETTLE_NS);
    let admitted = words.admitted.load(Ordering::Acquire);
    let is_told = hp.complete();
    (is_pushed && is_told).then(|| timer.ns(admitted.saturating_sub(begun)))
}

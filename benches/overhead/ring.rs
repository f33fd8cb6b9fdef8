//! The two things that a launch costs most of, alone: the push of a high-priority record and the
//! charge of a best-effort lease, on the shared pages that the daemon makes, within one process.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use benches::alternate::{Nothing, Plan, Samples, alternate};
use benches::report::{Measured, Row, Unit};
use benches::summary::Comparison;
use benches::timer::Timer;
use protocol::clock::Clock;
use protocol::lease::{Terms, announce};
use protocol::pages::{ClientPage, DaemonPage, HpPage, LeasePage};
use protocol::record::{Launch, Record};
use protocol::ring::Cursor;
use protocol::segment::Mapping;

/// Between two looks of the consumer: the shipped `poll_us`. With what timers add, 50 to 110 us.
const POLL_NS: u64 = 50_000;
/// Between two launches.
const PACE_NS: u64 = 5_000;
/// Records pushed back to back where the throughput is meant.
const BURST: usize = 64;
/// Between two bursts: a ring of 1024 then never fills.
const BURST_PACE_NS: u64 = 50_000;

/// Measures both.
pub(crate) fn measure(timer: &Timer, quick: bool) -> anyhow::Result<Vec<Row>> {
    let pairs = if quick { 20 } else { 100 };
    let (single, burst) = push(timer, pairs)?;
    let cost = |name, samples: &Samples| {
        Row::new(
            name,
            Unit::Ns,
            Measured::Cost(Comparison::of(samples)),
            None,
        )
    };
    Ok(vec![
        cost("ring push, one per 5 us", &single),
        cost("ring push, 64 back to back, each", &burst),
        cost(
            "announcement (no live lease), one per 5 us",
            &announcement(timer, pairs)?,
        ),
        cost("lease charge, one per 5 us", &charge(timer, pairs)?),
    ])
}

fn plan(pairs: usize) -> Plan {
    Plan {
        block: 200,
        pairs,
        pace_ns: PACE_NS,
    }
}

/// Single pushes, and bursts, against a consumer in another thread.
fn push(timer: &Timer, pairs: usize) -> anyhow::Result<(Samples, Samples)> {
    let (_memory, page) = Mapping::<ClientPage>::create("pillion-bench")?;
    let ring = &page.rings[0];
    let is_over = AtomicBool::new(false);
    let mut seq = 0;
    let mut dropped = 0_u64;
    let mut push = || {
        seq += 1;
        let record = Record::Launch(Launch {
            stream: 0,
            seq,
            kernel: 1,
            expected_ns: 4_000,
            sm_needed: 4,
            class: 1,
        });
        dropped += u64::from(ring.push(&record.encode()).is_err());
    };
    let (single, mut burst) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let clock = Clock::monotonic();
            let mut cursor = Cursor::default();
            while !is_over.load(Ordering::Relaxed) {
                while let Ok(Some(record)) = ring.pop(&mut cursor) {
                    black_box(record);
                }
                clock.sleep_until(clock.now_ns() + POLL_NS);
            }
        });
        let single = alternate(plan(pairs), timer, &mut Nothing, &mut push);
        let bursts = Plan {
            block: 20,
            pairs,
            pace_ns: BURST_PACE_NS,
        };
        let burst = alternate(bursts, timer, &mut Nothing, &mut || {
            for _ in 0..BURST {
                push();
            }
        });
        is_over.store(true, Ordering::Relaxed);
        (single, burst)
    });
    ensure!(
        dropped == 0,
        "the ring was full: {dropped} records were dropped"
    );
    for values in [&mut burst.bare, &mut burst.with] {
        values.iter_mut().for_each(|ns| *ns /= BURST as f64);
    }
    Ok((single, burst))
}

/// What follows a push: the fence, and the look whether a lease is to be revoked.
fn announcement(timer: &Timer, pairs: usize) -> anyhow::Result<Samples> {
    let (_memory, daemon) = Mapping::<DaemonPage>::create("pillion-bench")?;
    let (_memory, hp) = Mapping::<HpPage>::create("pillion-bench")?;
    hp.epoch.store(1, Ordering::Relaxed);
    let samples = alternate(plan(pairs), timer, &mut Nothing, &mut || {
        announce(&daemon, &hp);
    });
    ensure!(
        hp.epoch.load(Ordering::Relaxed) == 1,
        "there was a lease to revoke"
    );
    Ok(samples)
}

/// A charge of a gated lease that nobody else charges.
fn charge(timer: &Timer, pairs: usize) -> anyhow::Result<Samples> {
    let (_memory, lease) = Mapping::<LeasePage>::create("pillion-bench")?;
    let (_memory, client) = Mapping::<ClientPage>::create("pillion-bench")?;
    let (_memory, hp) = Mapping::<HpPage>::create("pillion-bench")?;
    hp.epoch.store(1, Ordering::Relaxed);
    lease.publish(&Terms {
        epoch: 1,
        expiry_ns: u64::MAX,
        limit_total_ns: u64::MAX,
        sms_max: 79,
        terms: 0b101,
    });
    let mut refused = 0_u64;
    let samples = alternate(plan(pairs), timer, &mut Nothing, &mut || {
        let charged = lease.try_charge(&client.charged_ns, &hp, 1, 2, |terms, remaining_ns| {
            remaining_ns > 0 && terms.class_bits() & 1 != 0 && terms.sms_max >= 4
        });
        refused += u64::from(charged.is_err());
    });
    ensure!(refused == 0, "the lease refused {refused} charges");
    Ok(samples)
}

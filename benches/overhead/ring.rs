//! The two most expensive parts of a launch alone: the push of a high-priority record and the
//! charge of a best-effort lease, on the shared pages that the daemon makes, within one process.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::ensure;
use benches::alternate::{Nothing, Plan, Samples, Side, alternate};
use benches::bench::SetAtEnd;
use benches::report::{Measured, Row, Unit};
use benches::summary::Comparison;
use benches::timer::Timer;
use protocol::clock::Clock;
use protocol::lease::{Terms, announce};
use protocol::pages::{ClientPage, DaemonPage, HpPage, LeasePage, RING_RECORDS};
use protocol::record::{Launch, Record};
use protocol::ring::{Cursor, Spsc};
use protocol::segment::Mapping;

use crate::processes::Processors;

/// The consumer's poll interval: the shipped `poll_us`. With timers it is 50 to 110 us.
const POLL_NS: u64 = 50_000;
/// Between two launches.
const PACE_NS: u64 = 5_000;
/// Records pushed back to back, for the throughput.
const BURST: usize = 64;
const BURST_PACE_NS: u64 = 50_000;
/// Limit on polls for the consumer to catch up, [`POLL_NS`] apart: a second.
const LOOKS_MAX: usize = 20_000;

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

struct Producer<'a> {
    ring: &'a Spsc<RING_RECORDS>,
    taken: &'a AtomicU64,
    pushed: u64,
    dropped: u64,
    burst: usize,
}

impl Side for Producer<'_> {
    #[inline]
    fn call(&mut self) {
        for _ in 0..self.burst {
            self.pushed += 1;
            let record = Record::Launch(Launch {
                stream: 0,
                seq: self.pushed,
                kernel: 1,
                expected_ns: 4_000,
                sm_needed: 4,
                class: 1,
                at_ns: 0,
            });
            self.dropped += u64::from(self.ring.push(&record.encode()).is_err());
        }
    }

    /// A consumer without a processor must not make us measure a full ring.
    fn handle_block_end(&mut self) {
        let clock = Clock::monotonic();
        for _ in 0..LOOKS_MAX {
            if self.taken.load(Ordering::Relaxed) + self.dropped >= self.pushed {
                return;
            }
            clock.sleep_until(clock.now_ns() + POLL_NS);
        }
    }
}

fn push(timer: &Timer, pairs: usize) -> anyhow::Result<(Samples, Samples)> {
    let (_memory, page) = Mapping::<ClientPage>::create("pillion-bench")?;
    let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut producer = Producer {
        ring: &page.rings[0],
        taken: &taken,
        pushed: 0,
        dropped: 0,
        burst: 1,
    };
    let processors = Processors::allowed()?;
    processors.stand_aside()?;
    let (single, mut burst) = std::thread::scope(|scope| -> anyhow::Result<(Samples, Samples)> {
        scope.spawn(|| consume(&page.rings[0], &taken, &is_over));
        let _over = SetAtEnd(&is_over);
        processors.move_to_measured()?;
        let single = alternate(plan(pairs), timer, &mut Nothing, &mut producer);
        let bursts = Plan {
            block: RING_RECORDS / 2 / BURST,
            pairs,
            pace_ns: BURST_PACE_NS,
        };
        producer.burst = BURST;
        let burst = alternate(bursts, timer, &mut Nothing, &mut producer);
        Ok((single, burst))
    })?;
    processors.use_all()?;
    let dropped = producer.dropped;
    ensure!(
        dropped == 0,
        "the ring was full: {dropped} records were dropped"
    );
    for values in [&mut burst.bare, &mut burst.with] {
        values.iter_mut().for_each(|ns| *ns /= BURST as f64);
    }
    Ok((single, burst))
}

fn consume(ring: &Spsc<RING_RECORDS>, taken: &AtomicU64, is_over: &AtomicBool) {
    let clock = Clock::monotonic();
    let mut cursor = Cursor::default();
    while !is_over.load(Ordering::Relaxed) {
        while let Ok(Some(record)) = ring.pop(&mut cursor) {
            black_box(record);
            taken.fetch_add(1, Ordering::Relaxed);
        }
        clock.sleep_until(clock.now_ns() + POLL_NS);
    }
}

/// The steps after a push: the fence, and the check whether a lease is to be revoked.
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

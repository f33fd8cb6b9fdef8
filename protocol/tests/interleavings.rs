//! Every interleaving of the shipped rings, ledgers, locks and lease protocol, explored by loom.
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p pillion-protocol --release --test interleavings`.
//! With `--cfg weaken_release` added these tests must fail: CI checks that they do.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use protocol::lease::{Refusal, Terms, announce, announce_live, slipped};
use protocol::ledger::{Account, Kind, Ledger, UNIT_BYTES};
use protocol::pages::{DaemonPage, HpPage, LEASE_WHOLE, LeasePage};
use protocol::record::RECORD_WORDS;
use protocol::ring::{Cursor, Mpsc, Spsc};
use protocol::sync::{AtomicU32, AtomicU64, Ordering, SeqLock, TryLock};

fn record(value: u64) -> [u64; RECORD_WORDS] {
    [value; RECORD_WORDS]
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    model_preempted(3, body);
}

fn model_preempted(times: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(times);
    builder.check(body);
}

#[test]
fn a_record_is_seen_whole_or_not_at_all() {
    model(|| {
        let ring = Arc::new(Spsc::<2>::empty());
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                for value in 1..=3 {
                    let _ = ring.push(&record(value));
                }
            })
        };
        // A thread of its own: with the consumer on loom's first thread only one order is explored.
        let consumer = thread::spawn(move || {
            let mut cursor = Cursor::default();
            let mut last = 0;
            for _ in 0..2 {
                let Some(words) = ring.pop(&mut cursor).unwrap() else {
                    continue;
                };
                assert!(
                    words.iter().all(|&w| w == words[0]),
                    "torn record {words:?}"
                );
                assert!(words[0] > last, "records out of order");
                last = words[0];
            }
        });
        producer.join().unwrap();
        consumer.join().unwrap();
    });
}

#[test]
fn producers_of_the_shared_ring_do_not_mix_their_records() {
    model(|| {
        let ring = Arc::new(Mpsc::<2>::empty());
        let producers: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.push(&record(value)).unwrap())
            })
            .collect();
        let consumer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut cursor = Cursor::default();
                let seen: Vec<_> = (0..2).filter_map(|_| ring.pop(&mut cursor)).collect();
                (cursor, seen)
            })
        };
        for producer in producers {
            producer.join().unwrap();
        }
        let (mut cursor, mut seen) = consumer.join().unwrap();
        while let Some(words) = ring.pop(&mut cursor) {
            seen.push(words);
        }
        seen.sort_unstable();
        assert_eq!(seen, [record(1), record(2)]);
    });
}

#[test]
fn processes_never_pass_the_quota_together() {
    model(|| {
        let ledger = Arc::new(Ledger::<2>::empty());
        ledger.quota_bytes.store(3 * UNIT_BYTES, Ordering::Relaxed);
        let processes: Vec<_> = [0, 1]
            .into_iter()
            .map(|slot| {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || {
                    let mut account = Account::resume(&ledger, slot).unwrap();
                    let granted = account.try_reserve(Kind::Plain, 2 * UNIT_BYTES).is_ok();
                    assert!(ledger.held_bytes() <= 3 * UNIT_BYTES);
                    granted
                })
            })
            .collect();
        let granted = processes.into_iter().map(|process| process.join().unwrap());
        assert_eq!(granted.filter(|&granted| granted).count(), 1);
        assert_eq!(ledger.held_bytes(), 2 * UNIT_BYTES);
    });
}

/// The kill comes after each step of a change, while another process goes on changing the sum.
#[test]
fn what_a_killed_process_held_comes_back_to_the_byte() {
    for steps in 0..=3 {
        model(move || {
            let ledger = Arc::new(Ledger::<2>::empty());
            let other = {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || {
                    let mut account = Account::resume(&ledger, 1).unwrap();
                    account.take(Kind::Plain, 4 * UNIT_BYTES);
                    account.release(Kind::Plain, 3 * UNIT_BYTES);
                })
            };
            let victim = {
                let ledger = Arc::clone(&ledger);
                thread::spawn(move || {
                    let mut account = Account::resume(&ledger, 0).unwrap();
                    account.take(Kind::Plain, 8 * UNIT_BYTES);
                    if steps == 0 {
                        return;
                    }
                    let declared = account.declare(16);
                    if steps > 1 {
                        let posted = declared.post();
                        if steps > 2 {
                            posted.commit();
                        }
                    }
                })
            };
            victim.join().unwrap();
            let reclaimed = ledger.reclaim(0);
            let held = if steps > 1 { 24 } else { 8 };
            assert_eq!(reclaimed, held * UNIT_BYTES);
            other.join().unwrap();
            assert_eq!(ledger.held_bytes(), UNIT_BYTES);
        });
    }
}

/// The daemon grants an idle-GPU lease while a high-priority thread arrives and a best-effort
/// thread launches. Invariant: a best-effort launch that began after the announcement is refused;
/// one that overlapped it is granted only if it is counted as a slip or its driver call came first.
#[test]
fn no_launch_passes_an_announced_arrival_uncounted() {
    model(|| {
        let daemon = Arc::new(DaemonPage::default());
        let hp = Arc::new(HpPage::default());
        hp.epoch.store(1, Ordering::Relaxed);
        let lease = Arc::new(LeasePage::default());
        let ring = Arc::new(Spsc::<2>::empty());
        let announced = Arc::new(AtomicU64::new(0));

        let high = {
            let (daemon, hp, ring) = (Arc::clone(&daemon), Arc::clone(&hp), Arc::clone(&ring));
            let announced = Arc::clone(&announced);
            thread::spawn(move || {
                ring.push(&record(1)).unwrap();
                announce(&daemon, &hp);
                announced.store(1, Ordering::Release);
            })
        };
        let best_effort = {
            let (hp, lease) = (Arc::clone(&hp), Arc::clone(&lease));
            let announced = Arc::clone(&announced);
            thread::spawn(move || {
                let charged = AtomicU64::new(0);
                let arrived_before = announced.load(Ordering::Acquire) == 1;
                let granted = lease.try_charge(&charged, &hp, 1, 10, |_, left| left > 0);
                if let Ok(terms) = granted {
                    assert!(!arrived_before, "granted after the announcement");
                    // The driver call is made here. An announcement before it is visible now.
                    let overtaken = announced.load(Ordering::Acquire) == 1;
                    assert!(!overtaken || slipped(&hp, &terms), "an uncounted slip");
                } else {
                    assert_eq!(
                        charged.load(Ordering::Relaxed),
                        0,
                        "a refusal leaves no trace"
                    );
                }
            })
        };
        // The daemon grants an idle lease only if there is no record.
        let daemon = thread::spawn(move || {
            let epoch = hp.epoch.load(Ordering::Acquire);
            let mut cursor = Cursor::default();
            announce_live(&daemon, epoch);
            if ring.pop(&mut cursor).unwrap().is_none() {
                let terms = Terms {
                    epoch,
                    expiry_ns: 100,
                    limit_total_ns: 50,
                    sms_max: 80,
                    terms: 7,
                };
                lease.publish(&terms);
            }
        });
        daemon.join().unwrap();
        high.join().unwrap();
        best_effort.join().unwrap();
    });
}

/// A thread claims its ring just before; the daemon reads only those (`ClientPage::rings_claimed`).
#[test]
fn a_first_launch_is_found_or_voids_what_is_published() {
    model(|| {
        let daemon = Arc::new(DaemonPage::default());
        let hp = Arc::new(HpPage::default());
        hp.epoch.store(1, Ordering::Relaxed);
        let ring = Arc::new(Spsc::<2>::empty());
        let owner = Arc::new(AtomicU32::new(0));
        let high = {
            let (daemon, hp, ring) = (Arc::clone(&daemon), Arc::clone(&hp), Arc::clone(&ring));
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                let claimed = owner.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
                assert!(claimed.is_ok());
                ring.push(&record(1)).unwrap();
                announce(&daemon, &hp);
            })
        };
        let look = {
            let hp = Arc::clone(&hp);
            thread::spawn(move || {
                let epoch = hp.epoch.load(Ordering::Acquire);
                announce_live(&daemon, epoch);
                let is_claimed = owner.load(Ordering::Relaxed) != 0;
                let mut cursor = Cursor::default();
                (
                    epoch,
                    is_claimed && ring.pop(&mut cursor).unwrap().is_some(),
                )
            })
        };
        high.join().unwrap();
        let (epoch, is_found) = look.join().unwrap();
        let is_stale = hp.epoch.load(Ordering::Relaxed) != epoch;
        assert!(
            is_found || is_stale,
            "the launch was neither found nor noticed"
        );
    });
}

struct Pair {
    lock: SeqLock,
    words: [AtomicU64; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: SeqLock::new(0),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn read(&self) -> [u64; 2] {
        self.words
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed))
    }

    fn write(&self, value: u64) {
        self.words
            .iter()
            .for_each(|word| word.store(value, Ordering::Relaxed));
    }
}

#[test]
fn words_under_a_sequence_lock_are_those_of_its_version() {
    model(|| {
        let pair = Pair::new();
        let writer = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                for version in [2, 4] {
                    pair.lock.write(|| pair.write(version));
                }
            })
        };
        let reader = thread::spawn(move || {
            for _ in 0..2 {
                if let Some((version, words)) = pair.lock.read(|| pair.read()) {
                    assert_eq!(words, [version; 2], "words of two versions");
                }
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn of_two_writers_of_a_sequence_lock_one_begins_and_the_last_one_stays() {
    const WRITING: u64 = u64::MAX;
    model(|| {
        let pair = Pair::new();
        let write = |value: u64| {
            let pair = Arc::clone(&pair);
            move || {
                let seen = pair.lock.load();
                let begun = seen != WRITING && pair.lock.try_begin(seen, WRITING);
                if begun {
                    pair.write(value);
                    pair.lock.finish(value);
                }
                begun
            }
        };
        let writers = [thread::spawn(write(1)), thread::spawn(write(2))];
        let reader = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                let (seen, words) = (pair.lock.load(), pair.read());
                if seen != WRITING && pair.lock.is_still(seen, 0) {
                    assert_eq!(words, [seen; 2], "words of two versions");
                }
            })
        };
        let begun = writers.map(|writer| writer.join().unwrap());
        reader.join().unwrap();
        assert!(begun.contains(&true), "each kept the other from writing");
        assert_eq!(pair.read(), [pair.lock.load(); 2], "the words of both");
    });
}

#[test]
fn a_holder_of_a_try_lock_sees_what_the_holder_before_stored() {
    model(|| {
        let shared = Arc::new((TryLock::new(), AtomicU64::new(0)));
        let add = || {
            let shared = Arc::clone(&shared);
            move || {
                let (lock, sum) = &*shared;
                let locked = lock.try_lock();
                if locked.is_some() {
                    let before = sum.load(Ordering::Relaxed);
                    sum.store(before + 1, Ordering::Relaxed);
                }
                u64::from(locked.is_some())
            }
        };
        let threads = [(); 3].map(|()| thread::spawn(add()));
        let added = threads.map(|thread| thread.join().unwrap());
        let sum = shared.1.load(Ordering::Relaxed);
        assert_eq!(sum, added.iter().sum(), "an addition was lost");
        assert!(sum > 0, "each kept the others out");
    });
}

#[test]
fn terms_are_read_whole_while_the_daemon_replaces_them() {
    model(|| {
        let lease = Arc::new(LeasePage::default());
        let hp = Arc::new(HpPage::default());
        hp.epoch.store(1, Ordering::Relaxed);
        let reader = {
            let (lease, hp) = (Arc::clone(&lease), Arc::clone(&hp));
            thread::spawn(move || {
                let charged = AtomicU64::new(0);
                let result = lease.try_charge(&charged, &hp, 1, 1, |terms, _| {
                    assert_eq!(u64::from(terms.sms_max), terms.expiry_ns, "torn terms");
                    true
                });
                assert!(matches!(
                    result,
                    Ok(_) | Err(Refusal::Torn | Refusal::Stale | Refusal::Expired)
                ));
            })
        };
        let writer = thread::spawn(move || {
            for value in [10u32, 20] {
                let terms = Terms {
                    epoch: 1,
                    expiry_ns: u64::from(value),
                    limit_total_ns: 100,
                    sms_max: value,
                    terms: 7,
                };
                lease.publish(&terms);
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// As `pillion` grants beside a busy high-priority job: a launch must fit into the lease.
fn whole(epoch: u64, limit_total_ns: u64) -> Terms {
    Terms {
        epoch,
        expiry_ns: 100,
        limit_total_ns,
        sms_max: u32::MAX,
        terms: 7 | LEASE_WHOLE,
    }
}

/// The library's question to the policy: with a whole lease, the launch must fit into the rest.
fn fits(cost_ns: u64) -> impl FnOnce(&Terms, u64) -> bool {
    move |terms, left_ns| left_ns > 0 && (!terms.whole() || cost_ns <= left_ns)
}

/// Two threads of a job launch kernels of which only one fits. One goes, whatever the interleaving,
/// or none if each saw the other's charge. Refused charges are refunded to the last ns.
#[test]
fn a_whole_lease_is_never_overdrawn_and_refusals_leave_no_trace() {
    model(|| {
        let hp = Arc::new(HpPage::default());
        hp.epoch.store(1, Ordering::Relaxed);
        let lease = Arc::new(LeasePage::default());
        lease.publish(&whole(1, 100));
        let threads: Vec<_> = [60, 70]
            .into_iter()
            .map(|cost_ns| {
                let (hp, lease) = (Arc::clone(&hp), Arc::clone(&lease));
                thread::spawn(move || {
                    let charged = AtomicU64::new(0);
                    let granted = lease.try_charge(&charged, &hp, 1, cost_ns, fits(cost_ns));
                    let expected_ns = if granted.is_ok() { cost_ns } else { 0 };
                    assert_eq!(charged.load(Ordering::Relaxed), expected_ns);
                    expected_ns
                })
            })
            .collect();
        let granted = threads.into_iter().map(|thread| thread.join().unwrap());
        let granted_ns: u64 = granted.sum();
        assert!(granted_ns <= 100, "{granted_ns} of 100 ns");
        assert_eq!(lease.charges.total_ns.load(Ordering::Relaxed), granted_ns);
    });
}

/// The daemon decides anew while a launch that does not fit is charged and refunded. It must not
/// take the charge for completed work, which would make the next lease longer by it. (This was a
/// bug: the daemon read the sum with the charge, and the work in flight without it.)
#[test]
fn a_launch_that_is_refused_while_the_daemon_decides_widens_no_lease() {
    const BOUND_NS: u64 = 100;
    model(|| {
        let hp = Arc::new(HpPage::default());
        hp.epoch.store(1, Ordering::Relaxed);
        let lease = Arc::new(LeasePage::default());
        let charged = Arc::new(AtomicU64::new(0));
        // At this point 40 ns are left; 60 are in flight.
        lease.charge(&charged, 60);
        lease.publish(&whole(1, BOUND_NS));
        let job = {
            let (hp, lease, charged) = (Arc::clone(&hp), Arc::clone(&lease), Arc::clone(&charged));
            thread::spawn(move || {
                // Too long for the rest, and on the second attempt for any bound.
                let first = lease.try_charge(&charged, &hp, 1, 70, fits(70));
                let second = lease.try_charge(&charged, &hp, 1, 30, fits(30));
                assert!(first.is_err(), "70 ns went beside 60 of {BOUND_NS}");
                second.is_ok()
            })
        };
        let daemon = {
            let (lease, charged) = (Arc::clone(&lease), Arc::clone(&charged));
            thread::spawn(move || {
                let read =
                    lease.read_settled(|total_ns| (total_ns, charged.load(Ordering::Acquire)));
                let Some((total_ns, in_flight_ns)) = read else {
                    return;
                };
                match BOUND_NS.saturating_sub(in_flight_ns) {
                    // A lease without a budget is published as closed.
                    0 => lease.publish(&whole(1, 0)),
                    budget_ns => lease.publish(&whole(1, total_ns + budget_ns)),
                }
            })
        };
        daemon.join().unwrap();
        job.join().unwrap();
        assert!(charged.load(Ordering::Relaxed) <= BOUND_NS);
        let (_, terms) = lease.terms().unwrap();
        assert!(terms.limit_total_ns <= BOUND_NS, "{terms:?}");
    });
}

//! A ledger under generated sequences of reservations, ends and deaths.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn ledger(quota_bytes: u64) -> Ledger<4> {
    let ledger = Ledger::empty();
    ledger.quota_bytes.store(quota_bytes, Ordering::Relaxed);
    ledger
}

fn account(ledger: &Ledger<4>, slot: usize) -> Account<'_, 4> {
    ledger.open_slot(slot, 100 + slot as u32, 1);
    Account::resume(ledger, slot).expect("there are four slots")
}

#[test]
fn the_quota_is_the_jobs_and_not_a_processs() {
    let ledger = ledger(10 * MIB);
    let (mut first, mut second) = (account(&ledger, 0), account(&ledger, 1));
    first.try_reserve(Kind::Plain, 6 * MIB).unwrap();
    assert_eq!(second.try_reserve(Kind::Pool, 5 * MIB), Err(OverQuota));
    second.try_reserve(Kind::Pool, 4 * MIB).unwrap();
    assert_eq!(
        (ledger.held_bytes(), ledger.free_bytes()),
        (10 * MIB, Some(0))
    );
    assert_eq!(ledger.refused.load(Ordering::Relaxed), 1);
    first.release(Kind::Plain, 6 * MIB);
    assert_eq!(ledger.held_bytes(), 4 * MIB);
    assert_eq!(ledger.kind_bytes(Kind::Pool), 4 * MIB);
    assert_eq!(ledger.peak_bytes.load(Ordering::Relaxed), 10 * MIB);
}

#[test]
fn a_quota_below_what_is_held_refuses_and_takes_nothing_away() {
    let ledger = ledger(UNLIMITED);
    let mut account = account(&ledger, 0);
    account.try_reserve(Kind::Plain, 8 * MIB).unwrap();
    ledger.quota_bytes.store(4 * MIB, Ordering::Relaxed);
    assert_eq!(account.try_reserve(Kind::Plain, 1), Err(OverQuota));
    assert_eq!(
        (ledger.held_bytes(), ledger.free_bytes()),
        (8 * MIB, Some(0))
    );
    account.release(Kind::Plain, 8 * MIB);
    account.try_reserve(Kind::Plain, 4 * MIB).unwrap();
}

#[test]
fn what_the_process_has_already_is_counted_whatever_the_quota() {
    let ledger = ledger(MIB);
    let mut account = account(&ledger, 0);
    account.take(Kind::Context, 3 * MIB);
    assert_eq!(ledger.held_bytes(), 3 * MIB);
    assert_eq!(account.try_reserve(Kind::Plain, 1), Err(OverQuota));
}

#[test]
fn a_request_of_any_size_is_granted_or_refused_and_never_wraps() {
    let ledger = ledger(UNLIMITED);
    let mut account = account(&ledger, 0);
    assert_eq!(account.try_reserve(Kind::Plain, u64::MAX), Err(OverQuota));
    assert_eq!(account.try_reserve(Kind::Plain, 1 << 41), Err(OverQuota));
    account.try_reserve(Kind::Plain, 1 << 39).unwrap();
    assert_eq!(account.try_reserve(Kind::Plain, 0), Ok(()));
    account.release(Kind::Plain, u64::MAX);
    assert_eq!(ledger.held_bytes(), 0);
}

#[derive(Clone, Copy, Debug)]
enum Death {
    Declared,
    Posted,
    Committed,
}

#[derive(Clone, Debug)]
enum Step {
    Reserve { slot: usize, units: i32 },
    Release { slot: usize },
    Die { slot: usize, units: i32, at: Death },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..4_usize;
    let death = prop_oneof![
        Just(Death::Declared),
        Just(Death::Posted),
        Just(Death::Committed)
    ];
    let step = prop_oneof![
        3 => (slot.clone(), 0..40).prop_map(|(slot, units)| Step::Reserve { slot, units }),
        2 => slot.clone().prop_map(|slot| Step::Release { slot }),
        1 => (slot, -20..40, death).prop_map(|(slot, units, at)| Step::Die { slot, units, at }),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn the_sum_is_what_the_living_hold_and_never_above_the_quota(steps in steps()) {
        const QUOTA_UNITS: u64 = 64;
        let ledger = ledger(QUOTA_UNITS * UNIT_BYTES);
        let mut accounts: Vec<_> = (0..4).map(|slot| account(&ledger, slot)).collect();
        for step in steps {
            match step {
                Step::Reserve { slot, units } => {
                    let _ = accounts[slot].try_reserve(Kind::Plain, units as u64 * UNIT_BYTES);
                }
                Step::Release { slot } => {
                    let held = accounts[slot].held_bytes();
                    accounts[slot].release(Kind::Plain, held / 2);
                }
                Step::Die { slot, units, at } => {
                    let held = accounts[slot].held_units.cast_signed();
                    let declared = accounts[slot].declare(units.max(-held));
                    match at {
                        Death::Declared => {}
                        Death::Posted => drop(declared.try_post()),
                        Death::Committed => drop(declared.try_post().map(Posted::commit)),
                    }
                    ledger.reclaim(slot);
                    accounts[slot] = account(&ledger, slot);
                }
            }
            let held: u64 = accounts.iter().map(Account::held_bytes).sum();
            prop_assert_eq!(ledger.held_bytes(), held);
            prop_assert!(held <= QUOTA_UNITS * UNIT_BYTES);
        }
        for slot in 0..4 {
            ledger.reclaim(slot);
        }
        prop_assert_eq!(ledger.held_bytes(), 0);
    }

    #[test]
    fn any_words_in_the_page_are_survived(words in prop::collection::vec(any::<u64>(), 6)) {
        let ledger = ledger(words[0]);
        ledger.total.store(words[1], Ordering::Relaxed);
        let slot = &ledger.slots[2];
        slot.intent.store(words[2], Ordering::Relaxed);
        slot.applied.store(words[3], Ordering::Relaxed);
        slot.committed.store(words[4], Ordering::Relaxed);
        let mut account = Account::resume(&ledger, 2).unwrap();
        let _ = account.try_reserve(Kind::Plain, words[5]);
        account.release(Kind::Plain, words[5]);
        account.take(Kind::Plain, words[5] >> 32);
        ledger.reclaim(2);
        ledger.reclaim(usize::MAX);
    }
}

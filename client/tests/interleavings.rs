//! Explores with loom every interleaving of the end of a stream, the launch log and the table that
//! replaces its entries. Run: `RUSTFLAGS="--cfg loom" cargo test -p pillion-client --release --test
//! interleavings`. With `--cfg weaken_release` added these tests must fail: CI checks that they do.
#![cfg(loom)]

use client::launch_log::{Launch, LaunchLog};
use client::requests::OpenRequests;
use client::slot_state::{EventTurn, Rest, SlotState, State};
use loom::sync::Arc;
use loom::thread;
use protocol::sync::{AtomicU32, AtomicU64, Ordering};

// The library cannot be built for the checker: its tables are const, loom's atomics are not.
#[allow(dead_code, reason = "what only the library needs of it")]
#[path = "../../interpose/src/platform/memo.rs"]
mod memo;

use memo::Memo;

fn model(body: impl Fn() + Sync + Send + 'static) {
    model_preempted(3, body);
}

fn model_preempted(times: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(times);
    builder.check(body);
}

/// A slot of a stream with a launch, as the library keeps it.
struct Slot {
    life: SlotState,
    event: EventTurn,
    freed: AtomicU64,
}

impl Slot {
    fn live() -> Arc<Self> {
        let life = SlotState::new();
        life.begin();
        Arc::new(Self {
            life,
            event: EventTurn::new(),
            freed: AtomicU64::new(0),
        })
    }

    fn free(&self) {
        assert_eq!(self.life.state(), State::Ending, "freed by who has it not");
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.life.free();
    }

    /// The part of the thread that destroys the stream. The driver accepts the event, or not.
    fn destroy(&self, is_recorded: bool) {
        self.life.end();
        while !self.event.try_take(Rest::Idle) && !self.event.try_take(Rest::Pending) {
            thread::yield_now();
        }
        assert_eq!(self.life.state(), State::Ending, "somebody else gave it up");
        if is_recorded {
            self.event.release(Rest::Pending);
            self.life.drain();
        } else {
            self.event.release(Rest::Idle);
            self.free();
        }
    }

    fn look(&self) {
        if self.event.try_take(Rest::Pending) {
            self.event.release(Rest::Idle);
        } else if self.life.state() == State::Draining
            && self.event.is(Rest::Idle)
            && self.life.try_claim()
        {
            self.free();
        } else if self.event.try_take(Rest::Idle) {
            let is_live = self.life.state() == State::Live;
            self.event
                .release(if is_live { Rest::Pending } else { Rest::Idle });
        }
    }
}

#[test]
fn the_slot_of_a_destroyed_stream_is_given_up_once_and_after_its_last_event() {
    for is_recorded in [false, true] {
        model(move || {
            let slot = Slot::live();
            let destroyer = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.destroy(is_recorded))
            };
            let helper = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || (0..2).for_each(|_| slot.look()))
            };
            destroyer.join().unwrap();
            helper.join().unwrap();
            // Woken once more: the first poll reaches the event, the second gives up the slot.
            (0..2).for_each(|_| slot.look());
            assert_eq!(slot.freed.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn a_draining_slot_is_given_up_by_the_helper_or_by_who_ends_its_context() {
    model(|| {
        let slot = Slot::live();
        slot.destroy(true);
        let helper = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || (0..2).for_each(|_| slot.look()))
        };
        if slot.life.state() == State::Draining && slot.life.try_claim() {
            slot.free();
        }
        helper.join().unwrap();
        assert_eq!(slot.freed.load(Ordering::Relaxed), 1);
    });
}

/// A launch whose words all follow from its number, so that a mix of two is detected.
fn launch(number: u64) -> Launch {
    Launch {
        mark: number * 1_000,
        cost_ns: number as u32,
        kernel: number as u16,
        generation: number as u8,
        at_ns: number,
        epoch: number,
    }
}

#[test]
fn a_launch_that_is_counted_is_read_and_one_that_is_read_is_whole() {
    model(|| {
        let recent = Arc::new(LaunchLog::<2>::new());
        let launcher = {
            let recent = Arc::clone(&recent);
            thread::spawn(move || (1..=2).for_each(|number| recent.push(&launch(number))))
        };
        let helper = thread::spawn(move || {
            let mut seen = 0;
            for _ in 0..2 {
                let before = seen;
                let mut read = 0;
                recent.read(&mut seen, |found| {
                    assert_eq!(found, launch(found.epoch), "half of another");
                    read += 1;
                });
                // Nothing was overwritten, so nothing may be missing.
                assert_eq!(read, seen - before, "a launch was counted and not written");
            }
        });
        launcher.join().unwrap();
        helper.join().unwrap();
    });
}

#[test]
fn of_threads_that_launch_at_once_launches_may_be_lost_and_none_is_mixed() {
    // These words are unordered: with more preemptions the states that a reader may see explode.
    model_preempted(2, || {
        let recent = Arc::new(LaunchLog::<1>::new());
        let launcher = {
            let recent = Arc::clone(&recent);
            thread::spawn(move || recent.push(&launch(1)))
        };
        let helper = {
            let recent = Arc::clone(&recent);
            thread::spawn(move || {
                recent.read(&mut 0, |found| {
                    assert_eq!(found, launch(found.epoch), "half of another");
                });
            })
        };
        recent.push(&launch(2));
        launcher.join().unwrap();
        helper.join().unwrap();
    });
}

fn find_or_keep(memo: &Memo<2, 1, 1>, number: u64) {
    match memo.find(&[number]) {
        Some(found) => assert_eq!((found.rest, found.note), ([number], number), "another's"),
        None => _ = memo.keep(&[number], number, |_| [number]),
    }
}

#[test]
fn a_key_is_found_with_its_own_words_while_others_take_its_place() {
    model_preempted(2, || {
        let memo = Arc::new(Memo::<2, 1, 1>::new());
        (1..=2).for_each(|number| find_or_keep(&memo, number));
        let replacing = {
            let memo = Arc::clone(&memo);
            thread::spawn(move || (3..=4).for_each(|number| find_or_keep(&memo, number)))
        };
        let reader = {
            let memo = Arc::clone(&memo);
            thread::spawn(move || {
                (1..=3).for_each(|number| {
                    if let Some(found) = memo.find(&[number]) {
                        assert_eq!((found.rest, found.note), ([number], number), "another's");
                    }
                });
                for place in 0..2 {
                    if let Some((key, found)) = memo.at(place) {
                        assert_eq!((found.rest, found.note), (key, key[0]), "a mixture");
                    }
                }
            })
        };
        replacing.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn threads_that_replace_each_others_keys_leave_each_place_with_one() {
    model_preempted(2, || {
        let memo = Arc::new(Memo::<2, 1, 1>::new());
        find_or_keep(&memo, 1);
        let other = {
            let memo = Arc::clone(&memo);
            thread::spawn(move || (2..=3).for_each(|number| find_or_keep(&memo, number)))
        };
        (4..=5).for_each(|number| find_or_keep(&memo, number));
        other.join().unwrap();
        for place in 0..2 {
            let (key, found) = memo.at(place).expect("a place was lost");
            assert_eq!((found.rest, found.note), (key, key[0]), "a mixture");
        }
    });
}

#[test]
fn a_request_that_two_threads_end_ends_once_and_one_that_takes_its_place_stays() {
    model(|| {
        let requests = Arc::new(OpenRequests::<1>::new(7, 0));
        let id = requests.begin().id;
        let other = thread::spawn({
            let requests = Arc::clone(&requests);
            move || requests.end(id)
        });
        // With one place: the first is given up if it is still open.
        let next = requests.begin();
        let is_ended_here = requests.end(id);
        let is_ended_there = other.join().unwrap();
        let ends = u32::from(is_ended_here)
            + u32::from(is_ended_there)
            + u32::from(next.given_up == Some(id));
        assert_eq!(ends, 1);
        assert!(requests.end(next.id), "it was open all the time");
    });
}

//! Virtual time with real threads: exact, ordered, and advancing only when all participants wait.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::*;
use crate::clock::Clock;

struct World {
    coordinator: Coordinator,
    clock: Clock,
    path: PathBuf,
}

impl World {
    fn new(name: &str, processes: u32) -> Self {
        let path =
            std::env::temp_dir().join(format!("pillion-clock-{name}-{}", std::process::id()));
        let coordinator = Coordinator::create(&path, processes).unwrap();
        let clock = Clock::open(&path).unwrap();
        Self {
            coordinator,
            clock,
            path,
        }
    }

    fn run(&self) {
        while !self.coordinator.has_started() {
            self.coordinator.idle();
        }
        loop {
            if self.coordinator.run_one() {
                continue;
            }
            match self.coordinator.next_deadline_ns() {
                Some(deadline_ns) => self.coordinator.advance_to(deadline_ns),
                None => return,
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into())
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines_at_the_exact_time() {
    let world = World::new("order", 1);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (clock, writer) = (world.clock, Arc::clone(&log));
    let main = std::thread::spawn(move || {
        clock.enter();
        for (name, step_ns) in [("a", 300u64), ("b", 200)] {
            let log = Arc::clone(&writer);
            clock
                .spawn(thread(name), move || {
                    for _ in 0..3 {
                        assert_eq!(clock.sleep_until(clock.now_ns() + step_ns), Wake::TimedOut);
                        log.lock().unwrap().push((name, clock.now_ns() - 1));
                    }
                })
                .unwrap();
        }
        clock.leave();
    });
    world.run();
    main.join().unwrap();
    let expected = [
        ("b", 200),
        ("a", 300),
        ("b", 400),
        ("a", 600),
        ("b", 600),
        ("a", 900),
    ];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn a_bell_wakes_its_waiters_without_time_passing() {
    let world = World::new("bell", 1);
    let bell = Arc::new(Bell::default());
    bell.key.store(world.clock.bell_key(), Ordering::Relaxed);
    let (clock, shared) = (world.clock, Arc::clone(&bell));
    let main = std::thread::spawn(move || {
        clock.enter();
        let waiter = Arc::clone(&shared);
        clock
            .spawn(thread("waiter"), move || {
                let seen = waiter.read();
                assert_eq!(waiter.wait(&clock, seen, Some(1_000_000)), Wake::Rung);
                assert_eq!(clock.now_ns(), 501);
                let seen = waiter.read();
                assert_eq!(waiter.wait(&clock, seen, Some(900)), Wake::TimedOut);
                assert_eq!(clock.now_ns(), 900);
            })
            .unwrap();
        clock.sleep_until(501);
        shared.ring(&clock);
        clock.leave();
    });
    world.run();
    main.join().unwrap();
    assert_eq!(world.coordinator.now_ns(), 900);
}

#[test]
fn a_ring_before_the_wait_is_not_lost() {
    let world = World::new("lost", 1);
    let clock = world.clock;
    let main = std::thread::spawn(move || {
        clock.enter();
        let bell = Bell::default();
        bell.key.store(clock.bell_key(), Ordering::Relaxed);
        let seen = bell.read();
        bell.ring(&clock);
        assert_eq!(bell.wait(&clock, seen, None), Wake::Rung);
        clock.leave();
    });
    world.run();
    main.join().unwrap();
}

#[test]
fn a_dead_process_does_not_stop_time() {
    let world = World::new("dead", 0);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let page = world.clock.page.unwrap();
    let index = page.claim(1).unwrap();
    page.slots[index].pid.store(child.id(), Ordering::Relaxed);
    page.make_ready_claimed(index);
    child.wait().unwrap();
    assert!(
        world.coordinator.run_one(),
        "the dead participant had its turn"
    );
    assert!(!world.coordinator.run_one(), "and is gone");
}

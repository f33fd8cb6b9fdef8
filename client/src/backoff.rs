//! Waits for one of our threads that is in a driver call or is starting. Such a call takes
//! microseconds, unless the thread drains a dying process. The thread may have lost its processor,
//! however, and each yield (`sched_yield`) costs every other thread a time slice: with ten busy
//! processes, a hundred thousand yields take minutes. On virtual time one thread runs at a time,
//! and the stand-in driver waits on the clock in the middle of a call. A thread that waits for such
//! a call must also wait on the clock, or its wait times out ([`protocol::clock`]). The shortest
//! wait on the clock takes 75 us (timer slack), and most calls end sooner. So in real time the
//! waiter spins for [`LOOK_NS`] first; yielding took 8 ms beside busy processes.

use crossbeam_utils::Backoff;
use protocol::clock::Clock;

/// Time limit of a wait, ns: a thread that is longer in the driver is stuck there.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Poll interval, ns. Threads with inexact timers (timer slack, 50 us) poll less often.
const LOOK_NS: u64 = 10_000;

/// Polls until `is_done`, for at most a second of clock time. Returns whether it is done.
pub fn wait_until(clock: &Clock, is_done: impl FnMut() -> bool) -> bool {
    wait_for(clock, PATIENCE_NS, is_done)
}

/// Polls until `is_done`, for at most `patience_ns` of clock time. Returns whether it is done.
pub fn wait_for(clock: &Clock, patience_ns: u64, mut is_done: impl FnMut() -> bool) -> bool {
    if is_done() {
        return true;
    }
    let begun_ns = clock.now_ns();
    // Pauses double up to 64: `is_done` may read a cache line that the other thread must write.
    let backoff = Backoff::new();
    while !clock.is_virtual() && clock.now_ns() - begun_ns < LOOK_NS {
        backoff.spin();
        if is_done() {
            return true;
        }
    }
    let give_up_ns = begun_ns + patience_ns;
    loop {
        let now_ns = clock.now_ns();
        if now_ns >= give_up_ns {
            return false;
        }
        clock.sleep_until(now_ns + LOOK_NS);
        if is_done() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use protocol::clock::coordinator::Coordinator;

    use super::*;

    #[test]
    fn who_is_stuck_is_waited_for_a_second_of_time_and_no_longer() {
        let clock = Clock::monotonic();
        let begin_ns = clock.now_ns();
        assert!(!wait_until(&clock, || false));
        assert!(clock.now_ns() - begin_ns >= PATIENCE_NS);
        assert!(wait_until(&clock, || true));
    }

    /// The stand-in driver waits on the clock in mid-call: yielding would never end.
    #[test]
    fn who_is_in_the_driver_on_virtual_time_comes_out_while_waited_for() {
        static IS_IN_DRIVER: AtomicBool = AtomicBool::new(true);
        let path = std::env::temp_dir().join(format!("pillion-patience-{}", std::process::id()));
        let coordinator = Coordinator::create(&path, 1).unwrap();
        let clock = Clock::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let exiting = std::thread::spawn(move || {
            clock.enter();
            let in_driver = move || {
                clock.sleep_until(clock.now_ns() + 3_000);
                IS_IN_DRIVER.store(false, Ordering::SeqCst);
            };
            clock.spawn(std::thread::Builder::new(), in_driver).unwrap();
            // The other thread's turn, up to its own wait.
            clock.sleep_until(clock.now_ns() + 1_000);
            let is_in_driver = IS_IN_DRIVER.load(Ordering::SeqCst);
            let is_out = wait_until(&clock, || !IS_IN_DRIVER.load(Ordering::SeqCst));
            clock.leave();
            (is_in_driver, is_out)
        });
        while !coordinator.has_started() {
            coordinator.idle();
        }
        loop {
            if coordinator.run_one() {
                continue;
            }
            match coordinator.next_deadline_ns() {
                Some(deadline_ns) => coordinator.advance_to(deadline_ns),
                None => break,
            }
        }
        assert_eq!(exiting.join().unwrap(), (true, true));
    }
}

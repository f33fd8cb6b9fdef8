//! Waiting for a thread of ours that is in a driver call or begins.
//!
//! Such a call takes microseconds, unless the thread drains a dying process. It may have lost its processor, though, and giving
//! way again and again (`sched_yield`) costs a time slice of everybody else each time: on a machine with ten busy processes a
//! hundred thousand times are minutes. And on virtual time, where one thread runs at a time, the driver's stand-in waits on the
//! clock in the middle of a call; a thread that waits for that call must wait on the clock as well,
//! or its wait times out ([`protocol::clock`]).
//!
//! The shortest wait by the clock takes 75 us (timer slack), and most calls are over before that. So in real time one spins for the first
//! [`LOOK_NS`]. Giving way instead took 8 ms at a time beside busy processes.

use crossbeam_utils::Backoff;
use protocol::clock::Clock;

/// So long one waits, ns: who is longer in the driver than that is stuck there.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How often one looks, ns; a thread whose timers are not exact (timer slack, 50 us) does so less often.
const LOOK_NS: u64 = 10_000;

/// Looks until `is_done`, for a second of the clock at most. Whether it is.
pub fn wait_until(clock: &Clock, is_done: impl FnMut() -> bool) -> bool {
    wait_for(clock, PATIENCE_NS, is_done)
}

/// Looks until `is_done`, for that time of the clock at most, ns. Whether it is.
pub fn wait_for(clock: &Clock, patience_ns: u64, mut is_done: impl FnMut() -> bool) -> bool {
    if is_done() {
        return true;
    }
    let begun_ns = clock.now_ns();
    // Pauses double up to 64: `is_done` may take a cache line that the other thread has to write.
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

    /// The driver's stand-in waits on the clock in the middle of a call. Were it waited for by giving way, it would be in there still.
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

//! Ringing and waiting on a [`Bell`], a shared futex word. A waiter reads the word, checks its
//! condition, and sleeps only if the word is unchanged; a ringer changes the condition, then the
//! word. So no ring between check and sleep is lost. [`Clock`] does the waiting.

use rustix::thread::futex;

use crate::clock::{Clock, Wake};
use crate::pages::Bell;
use crate::sync::Ordering;

impl Bell {
    /// The word to hand to [`Bell::wait`] after checking the condition.
    pub fn read(&self) -> u32 {
        // Acquire pairs with the SeqCst add in `ring`, which publishes the change before it.
        self.word.load(Ordering::Acquire)
    }

    /// Sleeps until a ring after `seen`, `deadline_ns`, a signal, or spuriously: callers loop.
    pub fn wait(&self, clock: &Clock, seen: u32, deadline_ns: Option<u64>) -> Wake {
        // SeqCst pairs with the load in `ring`: it sees this sleeper, or the futex a new word.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let wake = clock.wait(self, seen, deadline_ns);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        wake
    }

    /// Wakes all waiters. Costs one atomic add if there are none.
    pub fn ring(&self, clock: &Clock) {
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            clock.wake(self);
        }
    }
}

impl Bell {
    /// Wakes all waiters whatever the count of sleepers, which other processes may have falsified.
    pub fn ring_surely(&self, clock: &Clock) {
        self.word.fetch_add(1, Ordering::SeqCst);
        clock.wake(self);
    }
}

pub(crate) fn wake_all(word: &core::sync::atomic::AtomicU32) {
    // Only a bad address could make this fail, and the word is a reference.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

pub(crate) fn sleep(
    word: &core::sync::atomic::AtomicU32,
    seen: u32,
    timeout_ns: Option<u64>,
) -> Wake {
    let timeout = timeout_ns.map(|ns| futex::Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    match futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref()) {
        Err(rustix::io::Errno::TIMEDOUT) => Wake::TimedOut,
        Err(rustix::io::Errno::INTR) => Wake::Interrupted,
        _ => Wake::Rung,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_count_of_sleepers_does_not_silence_a_sure_ring() {
        static BELL: Bell = Bell {
            word: core::sync::atomic::AtomicU32::new(0),
            sleepers: core::sync::atomic::AtomicU32::new(u32::MAX),
            key: core::sync::atomic::AtomicU64::new(0),
        };
        let clock = Clock::monotonic();
        // The count wraps to zero, as a lying client could make it.
        let waiter = std::thread::spawn(move || {
            let mut seen = BELL.read();
            while seen == 0 {
                BELL.wait(&clock, seen, None);
                seen = BELL.read();
            }
        });
        while BELL.sleepers.load(Ordering::SeqCst) == u32::MAX {
            std::thread::yield_now();
        }
        BELL.ring_surely(&clock);
        waiter.join().unwrap();
    }
}

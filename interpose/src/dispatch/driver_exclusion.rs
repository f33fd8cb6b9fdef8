//! Who keeps the helper threads out of the driver for now: threads that destroy a context; and for
//! good: the process, once it exits.
//!
//! They are kept by thread and not only counted, because a thread may leave the driver without
//! returning to us: one that jumped out (`siglongjmp` from a signal handler) is forgotten at its next
//! call of a hook, one that has ended when a helper next looks. So no such thread keeps the helpers out
//! for good.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::platform::sys;

/// Threads that are told apart. Further ones are only counted.
const HOLDERS_MAX: usize = 16;

/// Who keeps the helpers of this process out.
pub(crate) static HOLDERS: Holders = Holders::new();

/// See the module's text.
pub(crate) struct Holders {
    /// Thread ids; 0 is a free place.
    threads: [AtomicU32; HOLDERS_MAX],
    /// Those that found no place.
    further: AtomicU32,
    /// The process exits: helpers must stay out of the driver.
    is_stopping: AtomicBool,
    /// Changes whenever the context that is current in a helper may have gone.
    entered: AtomicU32,
}

impl Holders {
    const fn new() -> Self {
        Self {
            threads: [const { AtomicU32::new(0) }; HOLDERS_MAX],
            further: AtomicU32::new(0),
            is_stopping: AtomicBool::new(false),
            entered: AtomicU32::new(0),
        }
    }

    /// The calling thread wants the helpers out from now on; where it is kept.
    // SeqCst, here and below: it comes before the look at whether a helper is in the driver, and a helper
    // looks here after it has said that it is.
    pub(crate) fn enter(&self) -> Option<usize> {
        let thread = sys::thread_id();
        let place = self.threads.iter().position(|place| {
            place
                .compare_exchange(0, thread, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        });
        if place.is_none() {
            self.further.fetch_add(1, Ordering::SeqCst);
        }
        place
    }

    /// It does not any more.
    pub(crate) fn leave(&self, place: Option<usize>) {
        match place {
            Some(place) => {
                if let Some(place) = self.threads.get(place) {
                    place.store(0, Ordering::SeqCst);
                }
            }
            None => _ = self.further.fetch_sub(1, Ordering::SeqCst),
        }
    }

    /// The process exits: the helpers are to stay out from now on.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Whether the process exits.
    pub(crate) fn are_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// The helpers are out for now, and the context that is current in one may be about to go.
    pub(crate) fn note_entered(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes whenever the context that is current in a helper may have gone.
    pub(crate) fn entered(&self) -> u32 {
        self.entered.load(Ordering::SeqCst)
    }

    /// The calling thread is outside of every hook, whatever it entered.
    pub(crate) fn forget_this_thread(&self) {
        let thread = sys::thread_id();
        for place in &self.threads {
            _ = place.compare_exchange(thread, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Whether anybody who lives wants the helpers out.
    pub(crate) fn is_any(&self) -> bool {
        let is_held = |place: &AtomicU32| {
            let thread = place.load(Ordering::SeqCst);
            if thread == 0 || sys::is_thread_alive(thread) {
                return thread != 0;
            }
            _ = place.compare_exchange(thread, 0, Ordering::SeqCst, Ordering::SeqCst);
            false
        };
        self.further.load(Ordering::SeqCst) != 0 || self.threads.iter().any(is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_places_are_counted() {
        let holders = Holders::new();
        let places: Vec<_> = (0..HOLDERS_MAX + 2).map(|_| holders.enter()).collect();
        assert_eq!(places.iter().filter(|place| place.is_none()).count(), 2);
        for place in places {
            assert!(holders.is_any());
            holders.leave(place);
        }
        assert!(!holders.is_any());
    }

    #[test]
    fn a_thread_that_left_without_a_word_is_forgotten_when_it_calls_again() {
        let holders = Holders::new();
        holders.enter();
        assert!(holders.is_any());
        holders.forget_this_thread();
        assert!(!holders.is_any());
    }

    #[test]
    fn a_thread_that_ended_keeps_nobody_out() {
        static HOLDERS: Holders = Holders::new();
        let thread = std::thread::spawn(|| {
            HOLDERS.enter();
            sys::thread_id()
        });
        let thread = thread.join().unwrap();
        // join returns when the thread's function has; the kernel may see it a moment longer.
        while sys::is_thread_alive(thread) {
            std::thread::yield_now();
        }
        assert!(!HOLDERS.is_any());
    }
}

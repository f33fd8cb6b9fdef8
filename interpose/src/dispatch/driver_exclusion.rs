//! Keeps the helper threads out of the driver: while a thread destroys a context, and for good once
//! the process exits. Holders are tracked by thread and not only counted, because a thread may
//! leave the driver without returning to us. One that jumped out (`siglongjmp` from a signal
//! handler) is forgotten at its next call of a hook; one that has ended, when a helper next polls.
//! So no such thread keeps the helpers out for good, unless more than [`HOLDERS_MAX`] hold at once.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::platform::sys;

/// Most threads tracked by id; further ones are only counted.
const HOLDERS_MAX: usize = 16;

pub(crate) static HOLDERS: Holders = Holders::new();

pub(crate) struct Holders {
    /// Thread ids; 0 is a free place.
    threads: [AtomicU32; HOLDERS_MAX],
    further: AtomicU32,
    /// The process exits: helpers must stay out of the driver.
    is_stopping: AtomicBool,
    /// Changes whenever a helper's current context may have been destroyed.
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

    /// Keeps the helpers out for the calling thread. Returns its place.
    // SeqCst, here and below: it comes before checking whether a helper is in the driver, and a
    // helper checks here after it has set its flag.
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

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn are_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Notes that the helpers are out, and that a helper's current context may be destroyed.
    pub(crate) fn note_entered(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn entered(&self) -> u32 {
        self.entered.load(Ordering::SeqCst)
    }

    /// Forgets the calling thread, which is outside every hook.
    pub(crate) fn forget_this_thread(&self) {
        let thread = sys::thread_id();
        for place in &self.threads {
            _ = place.compare_exchange(thread, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

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
        // join returns when the thread's function has; the kernel may list the thread longer.
        while sys::is_thread_alive(thread) {
            std::thread::yield_now();
        }
        assert!(!HOLDERS.is_any());
    }
}

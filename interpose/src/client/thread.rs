//! The calling thread, as daemons hear of it: its ring with each client.

use core::cell::Cell;

use client::rings::{Claimed, Thread};

use crate::platform::config::DEVICES_MAX;
use crate::platform::sys;

thread_local! {
    /// This thread's ring with each client; `None`: it has not looked for one yet.
    static RINGS: [Cell<Option<Claimed>>; DEVICES_MAX] =
        const { [const { Cell::new(None) }; DEVICES_MAX] };
}

/// The calling thread as one that sends records to the daemon of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisThread {
    client: u32,
}

impl ThisThread {
    /// Of the client with that index.
    #[inline]
    pub(crate) fn of(client: u32) -> Self {
        Self { client }
    }
}

impl Thread for ThisThread {
    fn id(&self) -> u32 {
        sys::thread_id()
    }

    fn is_alive(&self, id: u32) -> bool {
        sys::is_thread_alive(id)
    }

    #[inline]
    fn ring(&self) -> Option<Claimed> {
        RINGS.with(|rings| rings.get(self.client as usize)?.get())
    }

    fn set_ring(&self, ring: Claimed) {
        RINGS.with(|rings| {
            if let Some(place) = rings.get(self.client as usize) {
                place.set(Some(ring));
            }
        });
    }

    #[inline]
    fn prepare_to_write<T>(&self, line: *const T) {
        sys::prepare_to_write(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_ring_of_its_own_with_each_client() {
        let [one, other] = [1, 2].map(ThisThread::of);
        one.set_ring(Claimed::Own(5));
        assert_eq!((one.ring(), other.ring()), (Some(Claimed::Own(5)), None));
        let there = std::thread::spawn(move || one.ring()).join().unwrap();
        assert_eq!(there, None);
        assert!(one.is_alive(one.id()));
    }
}

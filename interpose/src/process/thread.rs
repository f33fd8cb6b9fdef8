//! The calling thread as a sender to daemons: its ring with each client.

use core::cell::Cell;

use client::rings::{Claimed, Thread};

use crate::platform::config::DEVICES_MAX;
use crate::platform::sys;

thread_local! {
    static RINGS: [Cell<Claimed>; DEVICES_MAX] =
        const { [const { Cell::new(Claimed::NONE) }; DEVICES_MAX] };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisThread {
    client: u32,
}

impl ThisThread {
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
    fn ring(&self) -> Claimed {
        let of = |ring: &Cell<Claimed>| ring.get();
        RINGS.with(|rings| rings.get(self.client as usize).map_or(Claimed::SHARED, of))
    }

    fn set_ring(&self, ring: Claimed) {
        RINGS.with(|rings| {
            if let Some(place) = rings.get(self.client as usize) {
                place.set(ring);
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
        one.set_ring(Claimed::SHARED);
        let rings = (one.ring(), other.ring());
        assert_eq!(rings, (Claimed::SHARED, Claimed::NONE));
        let there = std::thread::spawn(move || one.ring()).join().unwrap();
        assert_eq!(there, Claimed::NONE);
        assert!(one.is_alive(one.id()));
    }
}

//! The devices of this process, and its client for each. There is a daemon per device, so a process
//! that uses several devices is a client of several daemons, each with its own pages, helper thread
//! and connection. A device is noted when a context is first seen on it, and settled once: it has a
//! client for good, or is unmanaged for good. A client whose daemon has gone moves to the next
//! daemon ([`crate::daemon::reattach`]). With one known device its client is found with two loads.
//! With more, a call that does not imply a device (a stream does) belongs to the calling thread's
//! current device: the driver is asked.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::Mutex;

use abi::types::CUdevice;
use crossbeam_utils::CachePadded;

use crate::driver;
use crate::platform::config::{Config, DEVICES_MAX};
use crate::platform::phase::{self, Phase};
use crate::platform::sys::{Current, SetOnce, locked};
use crate::process::Client;

pub(crate) static CLIENTS: CachePadded<Clients> = CachePadded::new(Clients::new());

pub(crate) struct Clients {
    /// In the order in which their devices were first seen.
    entries: [Entry; DEVICES_MAX],
    /// Entries that are claimed, or about to be.
    claimed: AtomicUsize,
    noting: Mutex<()>,
    /// The settings of this process ([`crate::process::config`]). Set without a lock, unlike by
    /// `OnceLock`: a child forked while another thread of its parent reads the environment would
    /// wait for that thread, which it does not have, for ever.
    config: SetOnce<Config>,
}

struct Entry {
    state: AtomicU8,
    device: AtomicI32,
    client: Current<Client>,
}

const FREE: u8 = 0;
/// A device not begun yet.
const NOTED: u8 = 1;
/// One thread talks to the device's daemon; the others do not wait.
const ATTACHING: u8 = 2;
/// A client of its daemon, or unmanaged.
const SETTLED: u8 = 3;

#[derive(Clone, Copy)]
pub(crate) enum Managed {
    NotYet,
    No,
    By(&'static Client),
}

impl Clients {
    const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    state: AtomicU8::new(FREE),
                    device: AtomicI32::new(0),
                    client: Current::new(),
                }
            }; DEVICES_MAX],
            claimed: AtomicUsize::new(0),
            noting: Mutex::new(()),
            config: SetOnce::new(),
        }
    }

    /// Begins with a device that is only noted. Returns the index to [`Clients::settle`]. `None` if
    /// another thread has begun, or if there are too many devices.
    pub(crate) fn try_begin(&self, device: CUdevice) -> Option<u32> {
        let index = self.index_of(device).or_else(|| self.note(device))?;
        let state = &self.entries.get(index)?.state;
        let begun = state.compare_exchange(NOTED, ATTACHING, Ordering::AcqRel, Ordering::Relaxed);
        begun.ok().map(|_| index as u32)
    }

    pub(crate) fn settle(&self, index: u32, client: Option<&'static Client>) {
        let Some(entry) = self.entries.get(index as usize) else {
            return;
        };
        if let Some(client) = client {
            entry.client.set(client);
        }
        // Release pairs with the Acquire in `of_device`: settled means that the client is visible.
        entry.state.store(SETTLED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.claimed.load(Ordering::Acquire) > 1
    }

    #[inline]
    pub(crate) fn current(&self) -> Option<&'static Client> {
        if self.are_several() {
            return self.ask();
        }
        self.at(0)
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&'static Client> {
        self.entries.get(index as usize)?.client.get()
    }

    pub(crate) fn of_device(&self, device: CUdevice) -> Managed {
        let entry = self.index_of(device).and_then(|i| self.entries.get(i));
        match entry {
            // Too many devices: the others stay unmanaged.
            None if self.claimed.load(Ordering::Acquire) >= DEVICES_MAX => Managed::No,
            Some(entry) if entry.state.load(Ordering::Acquire) == SETTLED => {
                entry.client.get().map_or(Managed::No, Managed::By)
            }
            _ => Managed::NotYet,
        }
    }

    /// As [`Clients::of_device`] for the only device seen; `NotYet` if there is none, or several.
    pub(crate) fn of_only_device(&self) -> Managed {
        match self.entries.first() {
            Some(entry) if !self.are_several() => {
                self.of_device(CUdevice(entry.device.load(Ordering::Relaxed)))
            }
            _ => Managed::NotYet,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Client> {
        // Relaxed: each entry's contents are read with its own Acquire.
        let claimed = self.claimed.load(Ordering::Relaxed);
        let entries = self.entries.iter().take(claimed);
        entries.filter_map(|entry| entry.client.get())
    }

    #[cold]
    fn ask(&self) -> Option<&'static Client> {
        let index = self.index_of(driver::current_device().ok()?)?;
        self.at(index as u32)
    }

    fn index_of(&self, device: CUdevice) -> Option<usize> {
        self.entries.iter().position(|entry| {
            // Acquire pairs with the Release in `note`: the ordinal is there.
            entry.state.load(Ordering::Acquire) != FREE
                && entry.device.load(Ordering::Relaxed) == device.0
        })
    }

    /// Claims an entry for a device that has none. Returns its index.
    fn note(&self, device: CUdevice) -> Option<usize> {
        // A panic leaves the entries consistent.
        let _noting = locked(&self.noting);
        if let Some(index) = self.index_of(device) {
            return Some(index);
        }
        let index = self.claimed.load(Ordering::Relaxed);
        let entry = self.entries.get(index)?;
        entry.device.store(device.0, Ordering::Relaxed);
        entry.state.store(NOTED, Ordering::Release);
        self.claimed.store(index + 1, Ordering::Release);
        Some(index)
    }
}

/// The client for the calling thread's current device. Asks the driver only if there are several.
#[inline]
pub(crate) fn client() -> Option<&'static Client> {
    if phase::now() == Phase::Attached {
        CLIENTS.current()
    } else {
        None
    }
}

pub(crate) fn clients() -> impl Iterator<Item = &'static Client> {
    let is_attached = phase::now() == Phase::Attached;
    CLIENTS.all().filter(move |_| is_attached)
}

pub(crate) fn config() -> Option<&'static Config> {
    CLIENTS.config.get()
}

pub(crate) fn set_config(config: Config) -> &'static Config {
    CLIENTS.config.set(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_begun_once_and_settled_for_good() {
        static CLIENTS: Clients = Clients::new();
        let device = CUdevice(3);
        assert!(matches!(CLIENTS.of_device(device), Managed::NotYet));
        assert_eq!(CLIENTS.try_begin(device), Some(0));
        assert_eq!(CLIENTS.try_begin(device), None);
        assert!(matches!(CLIENTS.of_device(device), Managed::NotYet));
        CLIENTS.settle(0, None);
        assert!(matches!(CLIENTS.of_device(device), Managed::No));
        assert!(matches!(CLIENTS.of_only_device(), Managed::No));
        assert_eq!(CLIENTS.try_begin(device), None);
    }

    #[test]
    fn each_device_has_an_index_until_there_are_too_many() {
        static CLIENTS: Clients = Clients::new();
        for ordinal in 0..DEVICES_MAX {
            assert_eq!(CLIENTS.are_several(), ordinal > 1);
            let index = CLIENTS.try_begin(CUdevice(ordinal as i32));
            assert_eq!(index, Some(ordinal as u32));
        }
        let beyond = CUdevice(DEVICES_MAX as i32);
        assert_eq!(CLIENTS.try_begin(beyond), None);
        assert!(matches!(CLIENTS.of_device(beyond), Managed::No));
        assert!(matches!(CLIENTS.of_device(CUdevice(1)), Managed::NotYet));
    }

    #[test]
    fn threads_that_see_devices_at_once_begin_with_each_exactly_once() {
        static CLIENTS: Clients = Clients::new();
        let begun = || -> usize {
            (0..DEVICES_MAX as i32)
                .filter(|&ordinal| CLIENTS.try_begin(CUdevice(ordinal)).is_some())
                .count()
        };
        let total: usize = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(begun));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert_eq!(total, DEVICES_MAX);
    }
}

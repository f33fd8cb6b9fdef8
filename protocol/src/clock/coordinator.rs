//! The other side of the virtual clock: which participant runs next, and when time advances. The
//! device server owns one [`Coordinator`] and loops: it takes in what the participants did, runs a
//! ready one ([`Coordinator::run_one`]), and if none is ready, advances to the earlier of its own
//! next event and [`Coordinator::next_deadline_ns`].

use core::sync::atomic::Ordering;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use rustix::fs::ftruncate;
use rustix::process::{Pid, test_kill_process};

use super::{CLAIMED, CLOCK_MAGIC, ClockPage, ClockSlot, FREE, READY, RUNNING, WAITING, Wake};
use crate::bell::{sleep, wake_all};
use crate::pages::Bell;
use crate::segment::{Access, Mapping};

const DEATH_CHECK_NS: u64 = 50_000_000;

/// Runs the participants of one clock page.
#[derive(Debug)]
pub struct Coordinator {
    page: Mapping<ClockPage>,
}

impl Coordinator {
    /// Makes the clock page at `path` (replacing a file left there). Time starts at 1 ns, so that 0
    /// can mean "never", and only after `processes_expected` processes have joined.
    pub fn create(path: &Path, processes_expected: u32) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        ftruncate(&file, size_of::<ClockPage>() as u64)?;
        let page = Mapping::<ClockPage>::open(&file, Access::ReadWrite)?;
        page.now_ns.store(1, Ordering::Relaxed);
        page.processes_expected
            .store(processes_expected, Ordering::Relaxed);
        // Release pairs with the Acquire load when a participant opens the page.
        page.magic.store(CLOCK_MAGIC, Ordering::Release);
        Ok(Self { page })
    }

    /// Now, ns.
    pub fn now_ns(&self) -> u64 {
        self.page.now_ns.load(Ordering::Relaxed)
    }

    /// Whether the expected number of processes has joined; stays true from then on.
    pub fn has_started(&self) -> bool {
        let expected = self.page.processes_expected.load(Ordering::Relaxed);
        if expected == 0 {
            return true;
        }
        let first_threads = self
            .used_slots()
            .filter(|s| {
                s.order.load(Ordering::Relaxed) & 0xffff == 0
                    && s.state.load(Ordering::SeqCst) == READY
            })
            .count();
        let started = first_threads as u32 >= expected;
        if started {
            self.page.processes_expected.store(0, Ordering::Relaxed);
        }
        started
    }

    /// Lets the next ready participant run until it waits again, leaves or dies; false without one.
    pub fn run_one(&self) -> bool {
        let Some(slot) = self.next_ready() else {
            return false;
        };
        slot.state.store(RUNNING, Ordering::SeqCst);
        wake_all(&slot.state);
        loop {
            let seen = self.page.coordinator_bell.load(Ordering::SeqCst);
            if slot.state.load(Ordering::SeqCst) != RUNNING {
                return true;
            }
            self.sleep(seen);
        }
    }

    /// The earliest deadline of a waiting participant.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.used_slots()
            .filter(|s| s.state.load(Ordering::SeqCst) == WAITING)
            .map(|s| s.deadline_ns.load(Ordering::Relaxed))
            .min()
            .filter(|&deadline| deadline != u64::MAX)
    }

    /// Sets the time and readies participants whose deadline has come. It never goes backwards.
    pub fn advance_to(&self, now_ns: u64) {
        let now_ns = now_ns.max(self.now_ns());
        self.page.now_ns.store(now_ns, Ordering::Relaxed);
        let seq = self.page.next_ready_seq();
        for slot in self.used_slots() {
            if slot.deadline_ns.load(Ordering::Relaxed) <= now_ns {
                self.page.make_ready(slot, seq, false);
            }
        }
    }

    /// Changes a bell's word and makes its waiters ready.
    pub fn ring(&self, bell: &Bell) {
        bell.word.fetch_add(1, Ordering::SeqCst);
        let key = bell.key.load(Ordering::Relaxed);
        if key == 0 || bell.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let seq = self.page.next_ready_seq();
        for slot in self.used_slots() {
            if slot.key.load(Ordering::Relaxed) == key {
                self.page.make_ready(slot, seq, true);
            }
        }
    }

    /// Sleeps, in real time, until something changes: no participant is ready and nothing is due.
    pub fn idle(&self) {
        let seen = self.page.coordinator_bell.load(Ordering::SeqCst);
        if self.next_ready().is_none() || !self.has_started() {
            self.sleep(seen);
        }
    }

    /// Ends a [`Coordinator::idle`] from another thread of the server.
    pub fn nudge(&self) {
        self.page.hand_over();
    }

    /// A fresh bell key; see [`super::Clock::bell_key`].
    pub fn bell_key(&self) -> u64 {
        self.page.keys.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn sleep(&self, seen: u32) {
        if sleep(&self.page.coordinator_bell, seen, Some(DEATH_CHECK_NS)) == Wake::TimedOut {
            self.reap();
        }
    }

    fn next_ready(&self) -> Option<&ClockSlot> {
        self.used_slots()
            .filter(|s| s.state.load(Ordering::SeqCst) == READY)
            .min_by_key(|s| {
                (
                    s.ready_seq.load(Ordering::Relaxed),
                    s.order.load(Ordering::Relaxed),
                )
            })
    }

    fn used_slots(&self) -> impl Iterator<Item = &ClockSlot> {
        self.page.slots.iter().filter(|s| {
            let state = s.state.load(Ordering::SeqCst);
            state != FREE && state != CLAIMED
        })
    }

    /// Frees the slots of processes that are gone, so that time does not wait for them.
    fn reap(&self) {
        for slot in self.used_slots() {
            let pid = slot.pid.load(Ordering::Relaxed);
            let Some(pid) = Pid::from_raw(pid as i32) else {
                continue;
            };
            if test_kill_process(pid).is_err() || is_zombie(pid) {
                slot.release();
            }
        }
    }
}

/// A killed process that its parent has not reaped yet still answers signals.
fn is_zombie(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    std::fs::read_to_string(path).is_ok_and(|stat| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
    })
}

#[cfg(test)]
mod tests;

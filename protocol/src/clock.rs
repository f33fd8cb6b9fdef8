//! The one reading of time, and the one way to wait. Normally time is `CLOCK_MONOTONIC`, which all
//! processes of a machine share. If the environment names a clock page ([`CLOCK_ENV`]), time is the
//! software GPU's: it stands still while any participant computes, and advances to the next event
//! when all wait. A noisy machine cannot disturb such runs, and a seed repeats them.
//!
//! **Virtual time, the protocol.** Every thread that waits is a *participant* with a slot in the
//! [`ClockPage`]; exactly one runs at a time. [`Clock::wait`] stores deadline and bell key in the
//! slot, hands control to the coordinator (the device server, [`coordinator`]) and sleeps on the
//! slot's futex until the coordinator runs it. Woken participants run in the order in which they
//! were woken; process rank and thread number break ties, never chance. When none is ready, time
//! advances. A participant may block in the kernel on non-participants (an RPC answered by a socket
//! thread), while time stands still; on another participant it must block only through a [`Bell`].
//!
//! A thread becomes a participant at its first wait, or at [`Clock::enter`]. Threads started while
//! time may run need [`Clock::spawn`], which reserves their slot, and so their order.

pub mod coordinator;

use core::cell::Cell;
use core::sync::atomic::AtomicU64 as Time;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use rustix::process::getpid;
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

use crate::bell::{sleep, wake_all};
use crate::pages::Bell;
use crate::segment::{Access, Mapping};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Environment variable that names the file of the virtual clock's page.
pub const CLOCK_ENV: &str = "PILLION_CLOCK";
/// Orders processes on the virtual clock: the lower rank runs first at equal times.
pub const RANK_ENV: &str = "PILLION_CLOCK_RANK";
/// Most threads on one virtual clock.
pub const SLOTS: usize = 64;
const CLOCK_MAGIC: u64 = u64::from_le_bytes(*b"pillclk1");

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The bell rang, or had rung before the sleep.
    Rung,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran in this thread.
    Interrupted,
}

/// The page of a virtual clock.
#[derive(Debug)]
#[repr(C)]
pub struct ClockPage {
    magic: AtomicU64,
    /// Not an atomic of `sync`: a simulation does not interrupt accesses of the time.
    now_ns: Time,
    /// Changes whenever a participant stops running, joins, or is woken from outside.
    coordinator_bell: AtomicU32,
    /// Processes that must have joined before time starts.
    processes_expected: AtomicU32,
    /// Orders the moments at which participants became ready.
    ready_seq: AtomicU64,
    /// Numbers the bells made by all processes.
    keys: AtomicU64,
    slots: [ClockSlot; SLOTS],
}

#[derive(Debug)]
#[repr(C)]
struct ClockSlot {
    /// A futex word: one of the `STATE_` constants.
    state: AtomicU32,
    tid: AtomicU32,
    pid: AtomicU32,
    /// Process rank and number of the thread within the process: ties go to the lower.
    order: AtomicU32,
    /// `u64::MAX`: no deadline.
    deadline_ns: AtomicU64,
    /// Key of the bell that the participant waits for; 0: none.
    key: AtomicU64,
    ready_seq: AtomicU64,
    /// 1 if a bell ended the wait, 0 if the deadline did.
    rung: AtomicU32,
    unused: AtomicU32,
}

const FREE: u32 = 0;
/// The slot's owner is filling it in.
const CLAIMED: u32 = 1;
const WAITING: u32 = 2;
const READY: u32 = 3;
const RUNNING: u32 = 4;

const _: () = assert!(size_of::<ClockSlot>() == 48 && size_of::<ClockPage>() == 40 + 48 * SLOTS);

/// The clock of this process. See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    page: Option<&'static ClockPage>,
}

thread_local! {
    /// Slot index + 1 of this thread; 0 before it is known. There is one per copy of this code in
    /// the process (program, preload, stand-in driver); they find each other's slot by thread id.
    static SLOT: Cell<u32> = const { Cell::new(0) };
}

impl Clock {
    /// The clock that the environment asks for, opened once. If its page cannot be opened, the
    /// variable is wrong: the monotonic clock is used and [`Clock::open_error`] has the reason.
    pub fn process() -> Self {
        Self {
            page: *opened().as_ref().unwrap_or(&None),
        }
    }

    /// Why the clock page named by the environment is not used, if it is not.
    pub fn open_error() -> Option<String> {
        opened().as_ref().err().cloned()
    }

    /// `CLOCK_MONOTONIC`, whatever the environment says.
    pub const fn monotonic() -> Self {
        Self { page: None }
    }

    /// The clock of the page at `path`, for this copy of the code.
    /// # Errors
    /// The file cannot be mapped or is no clock page.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let page = map_page(&file, Access::ReadWrite)?;
        Ok(Self {
            page: Some(page.leak()),
        })
    }

    /// A clock that stands still until [`Clock::set`], for a simulation: no thread may wait on it.
    /// Its page stays for the life of the process.
    /// # Errors
    /// The system gives no memory.
    pub fn set_by_hand() -> io::Result<Self> {
        let page = Mapping::<ClockPage>::anonymous()?.leak();
        Ok(Self { page: Some(page) })
    }

    /// Sets a clock that stands still.
    pub fn set(&self, now_ns: u64) {
        if let Some(page) = self.page {
            page.now_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Whether time is the software GPU's.
    pub const fn is_virtual(&self) -> bool {
        self.page.is_some()
    }

    /// Now, ns since an arbitrary start that all processes of this clock share.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self.page {
            // Relaxed: time moves only while no participant runs; the futex hand-over orders.
            Some(page) => page.now_ns.load(Ordering::Relaxed),
            None => {
                let now = clock_gettime(ClockId::Monotonic);
                now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
            }
        }
    }

    /// Waits until `deadline_ns`, or a signal.
    pub fn sleep_until(&self, deadline_ns: u64) -> Wake {
        static NOBODY_RINGS: Bell = Bell {
            word: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            key: AtomicU64::new(0),
        };
        self.wait(&NOBODY_RINGS, 0, Some(deadline_ns))
    }

    /// Waits for a bell. Use [`Bell::wait`], which also counts sleepers.
    pub fn wait(&self, bell: &Bell, seen: u32, deadline_ns: Option<u64>) -> Wake {
        let Some(page) = self.page else {
            let timeout_ns = deadline_ns.map(|deadline| deadline.saturating_sub(self.now_ns()));
            if timeout_ns == Some(0) {
                return Wake::TimedOut;
            }
            return sleep(&bell.word, seen, timeout_ns);
        };
        let slot = page.slot_of_this_thread();
        slot.deadline_ns
            .store(deadline_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
        slot.key
            .store(bell.key.load(Ordering::Relaxed), Ordering::Relaxed);
        slot.rung.store(0, Ordering::Relaxed);
        slot.state.store(WAITING, Ordering::SeqCst);
        if bell.word.load(Ordering::SeqCst) != seen {
            // A thread that is not a participant rang between the check and this point.
            page.make_ready(slot, page.next_ready_seq(), true);
        }
        page.hand_over();
        slot.sleep_until_running();
        if slot.rung.load(Ordering::Relaxed) == 1 {
            Wake::Rung
        } else {
            Wake::TimedOut
        }
    }

    /// Wakes the waiters of a bell. Use [`Bell::ring`], which changes the word first.
    pub fn wake(&self, bell: &Bell) {
        let Some(page) = self.page else {
            return wake_all(&bell.word);
        };
        let key = bell.key.load(Ordering::Relaxed);
        let seq = page.next_ready_seq();
        for slot in &page.slots {
            if key != 0 && slot.key.load(Ordering::Relaxed) == key {
                page.make_ready(slot, seq, true);
            }
        }
        // Starts the coordinator if the ringer is no participant; else it polls at once.
        page.coordinator_bell.fetch_add(1, Ordering::SeqCst);
        wake_all(&page.coordinator_bell);
    }

    /// A fresh bell key, unique on this clock; 0 with monotonic time, which needs none.
    pub fn bell_key(&self) -> u64 {
        self.page
            .map_or(0, |page| page.keys.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes this thread a participant and waits for its turn: first in `main`, on virtual time.
    pub fn enter(&self) {
        if let Some(page) = self.page {
            let _ = page.slot_of_this_thread();
        }
    }

    /// Ends this thread's participation. Call it before a participant ends or blocks for good.
    pub fn leave(&self) {
        let Some(page) = self.page else { return };
        if let Some(index) = page.find(gettid_u32()) {
            SLOT.set(0);
            page.slots[index].release();
            page.hand_over();
        }
    }

    /// Starts a thread that is a participant from its first instruction.
    /// # Errors
    /// The system starts no thread, or the virtual clock has no free place.
    pub fn spawn(
        &self,
        builder: std::thread::Builder,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let Some(page) = self.page else {
            return builder.spawn(body);
        };
        let _ = page.slot_of_this_thread();
        let index = page.claim(0).ok_or_else(slots_exhausted)?;
        page.make_ready_claimed(index);
        let clock = *self;
        let thread = builder.spawn(move || {
            page.slots[index].tid.store(gettid_u32(), Ordering::Relaxed);
            SLOT.set(index as u32 + 1);
            page.slots[index].sleep_until_running();
            body();
            clock.leave();
        });
        if thread.is_err() {
            page.slots[index].release();
        }
        thread
    }
}

impl ClockPage {
    fn slot_of_this_thread(&self) -> &ClockSlot {
        let known = SLOT.get() as usize;
        if known != 0 {
            return &self.slots[known - 1];
        }
        let tid = gettid_u32();
        let index = match self.find(tid) {
            Some(index) => index,
            None => {
                // Slots limit the demonstration, not Pillion. Waiting without one would stop time.
                let index = self.claim(tid).expect("the virtual clock has no free slot");
                self.make_ready_claimed(index);
                self.hand_over();
                self.slots[index].sleep_until_running();
                index
            }
        };
        SLOT.set(index as u32 + 1);
        &self.slots[index]
    }

    fn find(&self, tid: u32) -> Option<usize> {
        self.slots.iter().position(|slot| {
            slot.tid.load(Ordering::Relaxed) == tid && slot.state.load(Ordering::Relaxed) != FREE
        })
    }

    /// Takes a free slot for a thread of this process; `tid` 0 if the thread does not exist yet.
    fn claim(&self, tid: u32) -> Option<usize> {
        let pid = getpid().as_raw_nonzero().get() as u32;
        let siblings = self
            .slots
            .iter()
            .filter(|s| {
                s.state.load(Ordering::Relaxed) != FREE && s.pid.load(Ordering::Relaxed) == pid
            })
            .count() as u32;
        let index = self.slots.iter().position(|slot| {
            slot.state
                .compare_exchange(FREE, CLAIMED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        })?;
        let slot = &self.slots[index];
        slot.tid.store(tid, Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Relaxed);
        slot.order.store(rank() << 16 | siblings, Ordering::Relaxed);
        Some(index)
    }

    /// Makes a slot wait for its first turn. Processes start in no fixed order: rank decides.
    fn make_ready_claimed(&self, index: usize) {
        let slot = &self.slots[index];
        let first = slot.order.load(Ordering::Relaxed) & 0xffff == 0;
        let seq = if first { 0 } else { self.next_ready_seq() };
        slot.ready_seq.store(seq, Ordering::Relaxed);
        slot.state.store(READY, Ordering::SeqCst);
    }

    fn make_ready(&self, slot: &ClockSlot, seq: u64, rung: bool) {
        if slot.state.load(Ordering::SeqCst) == WAITING {
            slot.rung.store(u32::from(rung), Ordering::Relaxed);
            slot.ready_seq.store(seq, Ordering::Relaxed);
            let _ = slot
                .state
                .compare_exchange(WAITING, READY, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn next_ready_seq(&self) -> u64 {
        self.ready_seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn hand_over(&self) {
        self.coordinator_bell.fetch_add(1, Ordering::SeqCst);
        wake_all(&self.coordinator_bell);
    }
}

impl ClockSlot {
    fn sleep_until_running(&self) {
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state == RUNNING {
                return;
            }
            // Signals end the sleep, not the wait: virtual time has no place for them.
            sleep(&self.state, state, None);
        }
    }

    fn release(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.pid.store(0, Ordering::Relaxed);
        self.key.store(0, Ordering::Relaxed);
        self.state.store(FREE, Ordering::SeqCst);
    }
}

fn opened() -> &'static Result<Option<&'static ClockPage>, String> {
    static OPENED: OnceLock<Result<Option<&'static ClockPage>, String>> = OnceLock::new();
    OPENED.get_or_init(|| {
        let Some(path) = std::env::var_os(CLOCK_ENV) else {
            return Ok(None);
        };
        let path = Path::new(&path);
        let clock =
            Clock::open(path).map_err(|e| format!("{CLOCK_ENV}={}: {e}", path.display()))?;
        Ok(clock.page)
    })
}

fn map_page(file: &File, access: Access) -> io::Result<Mapping<ClockPage>> {
    let page = Mapping::<ClockPage>::open(file, access)?;
    if page.magic.load(Ordering::Acquire) != CLOCK_MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a clock page",
        ));
    }
    Ok(page)
}

fn rank() -> u32 {
    static RANK: OnceLock<u32> = OnceLock::new();
    // 0x7fff: processes without a rank come after those with a smaller one.
    *RANK.get_or_init(|| {
        std::env::var(RANK_ENV)
            .ok()
            .and_then(|v| v.parse::<u16>().ok())
            .map_or(0x7fff, u32::from)
    })
}

fn gettid_u32() -> u32 {
    gettid().as_raw_nonzero().get() as u32
}

fn slots_exhausted() -> io::Error {
    io::Error::new(
        io::ErrorKind::QuotaExceeded,
        format!("the virtual clock has {SLOTS} slots"),
    )
}

/// The time on the clock page at `path`, for a reader that is not a participant; ns.
/// # Errors
/// The file cannot be mapped or is no clock page.
pub fn read_clock_page(path: &Path) -> io::Result<u64> {
    let page = map_page(&File::open(path)?, Access::Read)?;
    Ok(page.now_ns.load(Ordering::Relaxed))
}

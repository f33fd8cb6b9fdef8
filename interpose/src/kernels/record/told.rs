//! The state of a process that CUPTI times: buffers, and how far CUPTI has reported. The buffers
//! are few and made once. CUPTI may ask a launching thread for a buffer, so taking one is a few
//! atomic operations. Where none is free CUPTI drops records and counts them.

#![expect(unsafe_code, reason = "lends memory to CUPTI by its address")]

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;

use crate::platform::sys::locked;

const BUFFERS: u32 = u32::BITS;
/// Bytes of a buffer: about 1200 records. NVIDIA advises 1 to 10 MB. But a buffer is returned when
/// everything in it is complete, on a busy GPU when full, and a killed job loses the others.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Interval of asking CUPTI for completed records, ns.
const FLUSH_NS: u64 = 100_000_000;
/// Another tool has taken CUPTI if it has reported nothing for so long, ns...
const LOST_NS: u64 = 2_000_000_000;
/// ... and so many launches came after that: more than wait behind a long kernel.
const LOST_LAUNCHES: u64 = 8192;

/// `cuptiActivityGetNextRecord`.
pub(crate) type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> c_int;
/// `cuptiActivityFlushAll`.
pub(crate) type FlushAll = unsafe extern "C" fn(u32) -> c_int;
/// `cuptiActivityGetNumDroppedRecords`.
pub(crate) type Dropped = unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> c_int;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) next_record: NextRecord,
    pub(crate) flush_all: FlushAll,
    pub(crate) dropped: Dropped,
}

#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) calls: Calls,
    memory: Memory,
    /// A bit for each buffer that is not lent.
    free: AtomicU32,
    is_on: AtomicBool,
    /// Another tool has taken the records over.
    is_lost: AtomicBool,
    /// Launches of kernels and graphs; records of kernels that came or were dropped.
    launched: AtomicU64,
    told: AtomicU64,
    is_told_more: AtomicBool,
    progress: Mutex<Progress>,
}

/// All buffers, never freed; separate allocations, as a tool that takes CUPTI over may free one.
#[derive(Debug)]
struct Memory([Option<NonNull<u8>>; BUFFERS as usize]);

// SAFETY: only the holder of a buffer uses its memory, which `free` ensures.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

#[derive(Debug, Default)]
struct Progress {
    due_ns: u64,
    /// When CUPTI last reported something, and how much in all.
    told_ns: u64,
    told: u64,
    /// Launches up to [`LOST_NS`] after that.
    launched: u64,
}

impl Told {
    /// Allocates buffers; fewer where there is no memory.
    pub(crate) fn new(calls: Calls) -> Self {
        // SAFETY: two numbers.
        let made = || NonNull::new(unsafe { libc::calloc(1, BUFFER_BYTES) }.cast());
        let memory = Memory(core::array::from_fn(|_| made()));
        let free = memory.0.iter().rev();
        let free = free.fold(0, |free, buffer| free << 1 | u32::from(buffer.is_some()));
        Self {
            calls,
            memory,
            free: AtomicU32::new(free),
            is_on: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            launched: AtomicU64::new(0),
            told: AtomicU64::new(0),
            is_told_more: AtomicBool::new(false),
            progress: Mutex::default(),
        }
    }

    pub(crate) fn switch_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    pub(crate) fn is_timing(&self) -> bool {
        self.is_on.load(Ordering::Acquire) && !self.is_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn lend(&self) -> Option<NonNull<u8>> {
        // Acquire pairs with the Release in `take_back`: the buffer's contents were read.
        let without_lowest = |free: u32| (free != 0).then(|| free & (free - 1));
        let before = self
            .free
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, without_lowest)
            .ok()?;
        *self.memory.0.get(before.trailing_zeros() as usize)?
    }

    /// The buffer that begins at an address, if it is lent: another tool's may come here.
    pub(crate) fn place_of(&self, address: *mut u8) -> Option<u32> {
        let address = NonNull::new(address)?;
        let mut buffers = self.memory.0.iter();
        let place = buffers.position(|buffer| *buffer == Some(address))? as u32;
        let is_lent = self.free.load(Ordering::Relaxed) & 1 << place == 0;
        is_lent.then_some(place)
    }

    pub(crate) fn bytes(&self, place: u32, valid: usize) -> &[u8] {
        let valid = valid.min(BUFFER_BYTES);
        let Some(Some(start)) = self.memory.0.get(place as usize) else {
            return &[];
        };
        // SAFETY: a zeroed buffer of ours, which is not written before it is lent again.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), valid) }
    }

    pub(crate) fn take_back(&self, place: u32) {
        self.is_told_more.store(true, Ordering::Relaxed);
        // Release pairs with the Acquire in `lend`.
        self.free.fetch_or(1 << place, Ordering::Release);
    }

    pub(crate) fn count_launched(&self) {
        self.launched.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_told(&self, count: u64) {
        self.told.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn is_told_more(&self) -> bool {
        self.is_told_more.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        let mut progress = locked(&self.progress);
        let is_due = self.is_timing() && now_ns >= progress.due_ns;
        if is_due {
            progress.due_ns = now_ns + FLUSH_NS;
        }
        is_due
    }

    /// After asking: whether another tool has taken CUPTI over, reported once.
    pub(crate) fn is_newly_lost(&self, now_ns: u64) -> bool {
        let [told, launched] = [&self.told, &self.launched].map(|n| n.load(Ordering::Relaxed));
        let mut progress = locked(&self.progress);
        if told != progress.told || progress.told_ns == 0 {
            (progress.told, progress.told_ns) = (told, now_ns);
        }
        if now_ns.saturating_sub(progress.told_ns) <= LOST_NS {
            progress.launched = launched;
        }
        let is_lost = launched.saturating_sub(progress.launched) > LOST_LAUNCHES;
        is_lost && !self.is_lost.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    extern "C" fn next_record(_: *mut u8, _: usize, _: *mut *mut u8) -> c_int {
        0
    }
    extern "C" fn flush_all(_: u32) -> c_int {
        0
    }
    extern "C" fn dropped(_: *mut c_void, _: u32, _: *mut usize) -> c_int {
        0
    }

    pub(in crate::kernels::record) fn told() -> Told {
        Told::new(Calls {
            next_record,
            flush_all,
            dropped,
        })
    }

    #[test]
    fn buffers_are_bounded_aligned_and_lent_again() {
        let told = told();
        let all: Vec<_> = (0..BUFFERS).map(|_| told.lend().unwrap()).collect();
        assert!(told.lend().is_none());
        assert!(all.iter().all(|buffer| buffer.addr().get() % 8 == 0));
        let place = told.place_of(all[5].as_ptr()).unwrap();
        told.take_back(place);
        assert_eq!(told.place_of(all[5].as_ptr()), None, "it is not lent");
        assert_eq!(told.lend(), Some(all[5]));
    }

    #[test]
    fn a_buffer_of_another_tool_is_none_of_ours() {
        let told = told();
        let own = told.lend().unwrap().as_ptr();
        let mut other = [0_u8; 8];
        let past = own.wrapping_add(BUFFERS as usize * BUFFER_BYTES);
        for address in [own.wrapping_add(8), past, other.as_mut_ptr()] {
            assert_eq!(told.place_of(address), None);
        }
    }

    #[test]
    fn it_is_lost_when_much_is_launched_after_nothing_was_told_for_long() {
        let told = told();
        told.switch_on();
        let launch = |count| (0..count).for_each(|_| told.count_launched());
        assert!(!told.is_newly_lost(1));
        launch(2 * LOST_LAUNCHES);
        assert!(!told.is_newly_lost(LOST_NS / 2), "not for long");
        told.count_told(1);
        assert!(!told.is_newly_lost(2 * LOST_NS), "something was told");
        launch(2 * LOST_LAUNCHES);
        assert!(!told.is_newly_lost(3 * LOST_NS), "they wait for the GPU");
        assert!(!told.is_newly_lost(9 * LOST_NS), "nothing was launched");
        launch(LOST_LAUNCHES + 1);
        assert!(told.is_timing());
        assert!(told.is_newly_lost(9 * LOST_NS));
        assert!(
            !told.is_timing() && !told.is_newly_lost(9 * LOST_NS),
            "once"
        );
    }
}

//! Times kernels with CUPTI, NVIDIA's library for profilers, in a process that is recorded. CUPTI
//! reports when each kernel, also in graphs, began and ended on the GPU
//! (`CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`, which does not serialise kernels). It requests buffers
//! ([`Told`]), fills them with records and returns them; each record goes to the entry of the same
//! name, shape and device. The hooks count launches as always.
//!
//! **Start.** With the process's first client: a context exists, and nothing was launched. Not in a
//! forked child, which has no client, and not in a signal handler.
//!
//! **One user.** CUPTI has one user per process. It is left alone where the environment is that of
//! a profiler, and where a trial subscription (`cuptiSubscribe`) shows another tool. The
//! subscription is given up at once: a job that profiles itself later (PyTorch's Kineto) then gets
//! CUPTI, and takes it from us. We notice because records stop while launches go on
//! ([`Told::is_newly_lost`]); from then on events time kernels. A foreign buffer is not touched.
//!
//! **Getting records.** A helper thread asks every 100 ms for buffers whose records are complete
//! (`cuptiActivityFlushAll`), so that a killed job leaves most of its records. A normal exit asks
//! once for all, in a thread that it waits for at most [`LAST_NS`]: CUPTI may be gone by then. The
//! record states how many launches were not timed. Sources: CUPTI's public headers (see
//! `kernels/record/activity.rs`) and its documentation.

#![expect(
    unsafe_code,
    reason = "calls CUPTI's functions by their addresses, and is called by it"
)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use client::backoff;
use protocol::clock::Clock;
use protocol::recording::{Call, Cupti, Why};

use crate::dispatch::panics;
use crate::driver;
use crate::kernels::record::Record;
use crate::kernels::record::activity::{self, CONCURRENT_KERNEL, KernelRecord};
use crate::kernels::record::told::{BUFFER_BYTES, Calls, Dropped, FlushAll, NextRecord, Told};
use crate::kernels::{KERNELS, Shape};
use crate::platform::config::{Config, Library};
use crate::platform::phase::{self, Phase};
use crate::platform::stdio_guard::Occupied;
use crate::platform::{loader, sys};
use crate::process;

mod find;

/// From `cupti_result.h`.
const SUCCESS: c_int = 0;
const MULTIPLE_SUBSCRIBERS: c_int = 39;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: includes buffers with incomplete records.
const FORCED: u32 = 1;
/// `CUPTI_API_VERSION` of CUDA 11.0, the oldest that is used.
const VERSION_MIN: u32 = 13;
/// The same of CUDA 12.0; from CUDA 13.0 on it is the major version times this.
const VERSION_12: u32 = 19;
const VERSION_MAJOR: u32 = 10_000;
/// Longest wait for the last records of a process that exits, ns.
const LAST_NS: u64 = 1_000_000_000;
/// The end of a software GPU's UUID (`softgpu::UUID_END`: `sw-gpu`).
const SOFTWARE_UUID_END: &str = "73772d677075";

type GetVersion = unsafe extern "C" fn(*mut u32) -> c_int;
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int;
type Callback = extern "C" fn(*mut c_void, c_int, u32, *const c_void);
type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> c_int;
type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type Register = unsafe extern "C" fn(Requested, Completed) -> c_int;
type Enable = unsafe extern "C" fn(c_int) -> c_int;

struct Functions {
    get_version: GetVersion,
    subscribe: Subscribe,
    unsubscribe: Unsubscribe,
    register: Register,
    enable: Enable,
    calls: Calls,
}

/// Starts with the first client of a recorded process, on device `uuid`. The page has the outcome.
pub(crate) fn begin(record: &Record, config: &Config, uuid: &str) {
    if record.is_cupti_asked.swap(true, Ordering::Relaxed) {
        return;
    }
    // CUPTI's threads must not run the application's signal handlers.
    let begun = sys::without_cancellation(|| {
        sys::with_signals_blocked(|| {
            panics::guarded(usize::MAX, || try_begin(record, config, uuid))
        })
    });
    let is = match begun {
        Some(Ok(())) => Cupti::Used,
        Some(Err(why)) => why,
        None => Cupti::NotFound,
    };
    record.page().cupti.store(is.word(), Ordering::Relaxed);
}

fn try_begin(record: &Record, config: &Config, uuid: &str) -> Result<(), Cupti> {
    if config.cupti == Library::Off {
        return Err(Cupti::Off);
    }
    if config.cupti == Library::Auto && uuid.to_ascii_lowercase().ends_with(SOFTWARE_UUID_END) {
        return Err(Cupti::SoftwareGpu);
    }
    if config.is_profiled {
        return Err(Cupti::Profiled);
    }
    let major = driver::version().ok_or(Cupti::NotFound)? / 1000;
    let _occupied = Occupied::new();
    let library = open(&config.cupti, major).ok_or(Cupti::NotFound)?;
    let functions = Functions::of(library).ok_or(Cupti::Incomplete)?;
    functions.check_version(major)?;
    functions.try_subscription()?;
    let told = record.told.set(Told::new(functions.calls));
    // SAFETY: the prototypes are those of the header; the functions stay for good.
    let result = unsafe { (functions.register)(requested, completed) };
    succeeded(Call::Register, result)?;
    // SAFETY: as above.
    let result = unsafe { (functions.enable)(CONCURRENT_KERNEL as c_int) };
    succeeded(Call::Enable, result)?;
    told.switch_on();
    Ok(())
}

fn succeeded(call: Call, result: c_int) -> Result<(), Cupti> {
    match result {
        SUCCESS => Ok(()),
        MULTIPLE_SUBSCRIBERS => Err(Cupti::Taken),
        result => Err(Cupti::Failed(call, result as u32)),
    }
}

/// The library's handle, never closed: CUPTI does not survive that.
fn open(library: &Library, major: u32) -> Option<NonNull<c_void>> {
    let candidates = match library {
        Library::At(path) => vec![CString::new(path.as_os_str().as_bytes()).ok()?],
        _ => {
            let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
            let toolkit = ["CUDA_HOME", "CUDA_PATH"];
            let toolkit = toolkit.into_iter().find_map(std::env::var_os);
            find::candidates(&maps, major, toolkit)
        }
    };
    candidates.iter().find_map(|name| {
        let mode = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: ends in NUL. Loading does what it does in every program linked with it.
        NonNull::new(unsafe { loader::dlopen()(name.as_ptr(), mode) })
    })
}

impl Functions {
    fn of(library: NonNull<c_void>) -> Option<Self> {
        let find = |name: &CStr| {
            // SAFETY: an open library and a string that ends in NUL.
            NonNull::new(unsafe { loader::dlsym()(library.as_ptr(), name.as_ptr()) })
        };
        macro_rules! function {
            ($name:literal, $type:ty) => {
                // SAFETY: CUPTI's function has this prototype in its header, CUDA 11 to 13.
                unsafe { core::mem::transmute::<*mut c_void, $type>(find($name)?.as_ptr()) }
            };
        }
        Some(Self {
            get_version: function!(c"cuptiGetVersion", GetVersion),
            subscribe: function!(c"cuptiSubscribe", Subscribe),
            unsubscribe: function!(c"cuptiUnsubscribe", Unsubscribe),
            register: function!(c"cuptiActivityRegisterCallbacks", Register),
            enable: function!(c"cuptiActivityEnable", Enable),
            calls: Calls {
                next_record: function!(c"cuptiActivityGetNextRecord", NextRecord),
                flush_all: function!(c"cuptiActivityFlushAll", FlushAll),
                dropped: function!(c"cuptiActivityGetNumDroppedRecords", Dropped),
            },
        })
    }

    fn check_version(&self, driver_major: u32) -> Result<(), Cupti> {
        let mut version = 0;
        // SAFETY: room for the number.
        let result = unsafe { (self.get_version)(&raw mut version) };
        succeeded(Call::Version, result)?;
        let is_fit = version >= VERSION_MIN && major_of(version) <= driver_major;
        is_fit.then_some(()).ok_or(Cupti::Unfit(version))
    }

    /// Whether there is no other subscriber. Leaves no subscription of ours.
    fn try_subscription(&self) -> Result<(), Cupti> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: room for the handle, and a callback that is never called, as nothing is enabled.
        let result = unsafe { (self.subscribe)(&raw mut subscriber, nothing, ptr::null_mut()) };
        succeeded(Call::Subscribe, result)?;
        // SAFETY: the handle that the call above has written.
        let result = unsafe { (self.unsubscribe)(subscriber) };
        succeeded(Call::Subscribe, result)
    }
}

fn major_of(version: u32) -> u32 {
    match version {
        VERSION_MAJOR.. => version / VERSION_MAJOR,
        VERSION_12.. => 12,
        _ => 11,
    }
}

extern "C" fn nothing(_data: *mut c_void, _domain: c_int, _id: u32, _more: *const c_void) {}

/// CUPTI's state, unless this is a forked child, which does not have the record's page.
fn told() -> Option<(&'static Record, &'static Told)> {
    if !matches!(phase::now(), Phase::Virgin | Phase::Attached) {
        return None;
    }
    let record = KERNELS.record()?;
    Some((record, record.told.get()?))
}

extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records_max: *mut usize) {
    let lent = told().and_then(|(_, told)| told.lend());
    let bytes = lent.map_or(0, |_| BUFFER_BYTES);
    // SAFETY: by the header, room for the three; null is no buffer, and 0 as many records as fit.
    unsafe {
        buffer.write(lent.map_or(ptr::null_mut(), NonNull::as_ptr));
        size.write(bytes);
        records_max.write(0);
    }
}

/// CUPTI returns a buffer, in a thread of its own or in one that asked for it.
extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    panics::guarded(usize::MAX, || {
        let Some((record, told)) = told() else {
            return;
        };
        // A buffer of another tool, whose callbacks ours have replaced.
        let Some(place) = told.place_of(buffer) else {
            return;
        };
        read(record, told, place, valid);
        told.take_back(place);
    });
}

fn read(record: &Record, told: &Told, place: u32, valid: usize) {
    let bytes = told.bytes(place, valid);
    let base = bytes.as_ptr().cast_mut();
    let next = |last: Option<usize>| {
        let mut at = last.map_or(ptr::null_mut(), |last| base.wrapping_add(last));
        // SAFETY: the buffer that CUPTI returned, its size, and null or a record in it.
        let result = unsafe { (told.calls.next_record)(base, bytes.len(), &raw mut at) };
        let offset = at.addr().checked_sub(base.addr());
        offset.filter(|_| result == SUCCESS && !at.is_null())
    };
    let mut count = 0;
    activity::read(bytes, next, |kernel| {
        count += 1;
        add(record, kernel);
    });
    told.count_told(count);
}

fn add(record: &Record, kernel: &KernelRecord) {
    let Some(ns) = kernel.duration_ns() else {
        return record.note(Why::CuptiUntimed, 1);
    };
    let shape = Shape {
        grid: kernel.grid,
        block: kernel.block,
        shared_bytes: kernel.dynamic_shared_bytes,
    };
    let client = i32::try_from(kernel.device).ok().and_then(|ordinal| {
        let mut clients = process::clients();
        clients.find(|client| client.device.0 == ordinal)
    });
    let is_added = client.zip(name_of(kernel));
    let is_added =
        is_added.is_some_and(|(client, name)| record.add_told(name, &shape, client.index, ns));
    if !is_added {
        record.note(Why::CuptiUnknown, 1);
    }
}

fn name_of(kernel: &KernelRecord) -> Option<&str> {
    let name = NonNull::new(ptr::with_exposed_provenance_mut(kernel.name))?;
    // SAFETY: by the header a text that ends in NUL, valid as long as the buffer is read.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().ok()
}

pub(crate) fn note_launched(record: &Record) {
    if let Some(told) = record.told.get() {
        told.count_launched();
    }
}

/// For a helper thread, in the driver: gets completed records, if due.
pub(crate) fn poll(record: &Record, now_ns: u64) {
    let Some(told) = record.told.get().filter(|told| told.is_due(now_ns)) else {
        return;
    };
    record.poll_keys();
    flush(record, told, 0);
    if told.is_newly_lost(now_ns) {
        let lost = Cupti::Lost.word();
        record.page().cupti.store(lost, Ordering::Relaxed);
    }
}

fn flush(record: &Record, told: &Told, flag: u32) {
    let mut dropped = 0;
    sys::without_cancellation(|| {
        // SAFETY: the prototype is that of the header.
        unsafe { (told.calls.flush_all)(flag) };
        // The query resets the number, and if no buffer came it may be another tool's.
        if told.is_told_more() {
            // SAFETY: as above; room for the number.
            unsafe { (told.calls.dropped)(ptr::null_mut(), 0, &raw mut dropped) };
        }
    });
    record.note(Why::CuptiDropped, dropped as u64);
    told.count_told(dropped as u64);
}

/// Before the process exits, with nothing in flight: gets all records, in a separate thread for
/// which it waits for a bounded time.
pub(crate) fn flush_last() {
    let Some((record, told)) = told().filter(|(_, told)| told.is_timing()) else {
        return;
    };
    let is_done = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&is_done);
    let last = move || {
        panics::guarded(usize::MAX, || flush(record, told, FORCED));
        tell.store(true, Ordering::Release);
    };
    let builder = std::thread::Builder::new().name("pillion".into());
    let started = sys::with_signals_blocked(|| builder.spawn(last));
    if started.is_ok() {
        let is_done = || is_done.load(Ordering::Acquire);
        backoff::wait_for(&Clock::monotonic(), LAST_NS, is_done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_interface_are_of_a_version_of_cuda() {
        // The list is in cupti_version.h of CUDA 13.0.
        for (version, major) in [
            (13, 11),
            (18, 11),
            (19, 12),
            (28, 12),
            (130_000, 13),
            (140_100, 14),
        ] {
            assert_eq!(major_of(version), major);
        }
    }
}

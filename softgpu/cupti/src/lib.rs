//! A stand-in for NVIDIA's `libcupti.so.12`, which reports when kernels ran: the part that `pillion
//! profile record` uses, on the software GPU. The times are the device server's own: the stand-in
//! driver joins them with its launches (`softgpu_trace_kernels`, `softgpu_next_kernel`). Records
//! are those of `CUpti_ActivityKernel9` of CUDA 12.9, from the public header (`cupti_activity.h`);
//! unknown fields are zero. Like NVIDIA's, it has a thread that puts completed kernels into the
//! current buffer and returns full buffers; `cuptiActivityFlushAll` returns others. Without a
//! buffer records are dropped and counted.
//!
//! | environment | meaning |
//! |---|---|
//! | `SOFTGPU_CUPTI` | words, separated by commas, for tests; see below |
//! | `SOFTGPU_CUPTI_LOG` | a file to which each query of the version appends a line |
//!
//! | word | what it does |
//! |---|---|
//! | `subscribed` | another tool has subscribed |
//! | `refuses` | `cuptiActivityEnable` returns CUPTI_ERROR_INSUFFICIENT_PRIVILEGES |
//! | `version=N` | `cuptiGetVersion` returns N |
//! | `drops` | every second record is dropped |
//! | `untimed` | every second record has no times |
//! | `renames` | every second record has another name |
//! | `stolen=N` | after N records another tool takes them all |
//! | `never-flushes` | only full buffers are returned, even on a flush |

#![expect(
    unsafe_code,
    reason = "exports C functions, and calls the stand-in driver's and the application's by their addresses"
)]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::types::CUresult;
use libloading::os::unix::{Library, RTLD_LAZY};
use parking_lot::Mutex;
use protocol::clock::Clock;
use softgpu::KernelRecord;

/// Result codes of `cupti_result.h`.
const SUCCESS: c_int = 0;
const INVALID_PARAMETER: c_int = 1;
const INVALID_OPERATION: c_int = 7;
const MAX_LIMIT_REACHED: c_int = 12;
const NOT_INITIALIZED: c_int = 15;
const INVALID_KIND: c_int = 21;
const INSUFFICIENT_PRIVILEGES: c_int = 35;
const MULTIPLE_SUBSCRIBERS: c_int = 39;

/// `CUPTI_API_VERSION` of CUDA 12.9 Update 1.
const API_VERSION: u32 = 28;
/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`.
const CONCURRENT_KERNEL: c_int = 10;
/// Poll interval of the thread, ns.
const LOOK_NS: u64 = 500_000;

/// `CUpti_ActivityKernel9`, packed and aligned to eight bytes as in the header.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    kind: u32,
    cache: u8,
    shared_memory: u8,
    registers: u16,
    partitioned: [u32; 2],
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [u32; 3],
    block: [u32; 3],
    static_shared: u32,
    dynamic_shared: u32,
    local: [u32; 2],
    correlation: u32,
    grid_id: i64,
    name: *const c_char,
    rest: [u64; 4],
    graph_node: u64,
    others: [u64; 7],
}

const _: () = {
    assert!(size_of::<Record>() == 208 && align_of::<Record>() == 8);
    assert!(offset_of!(Record, start) == 16 && offset_of!(Record, device) == 40);
    assert!(offset_of!(Record, grid) == 52 && offset_of!(Record, dynamic_shared) == 80);
    assert!(offset_of!(Record, correlation) == 92 && offset_of!(Record, name) == 104);
    assert!(offset_of!(Record, graph_node) == 144);
};

type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

struct Driver {
    _library: Library,
    next: extern "C" fn(*mut KernelRecord) -> CUresult,
}

#[derive(Clone, Copy)]
struct Buffer {
    address: *mut u8,
    bytes: usize,
    used: usize,
}

// SAFETY: the buffer is ours from the request until its return; a lock protects its use.
unsafe impl Send for Buffer {}

#[derive(Default)]
struct State {
    callbacks: Option<(Requested, Completed)>,
    buffer: Option<Buffer>,
    dropped: usize,
    count: u64,
}

struct Library12 {
    state: Mutex<State>,
    driver: OnceLock<Option<Driver>>,
    is_subscribed: AtomicBool,
}

static CUPTI: Library12 = Library12 {
    state: Mutex::new(State {
        callbacks: None,
        buffer: None,
        dropped: 0,
        count: 0,
    }),
    driver: OnceLock::new(),
    is_subscribed: AtomicBool::new(false),
};

fn word(name: &str) -> Option<String> {
    let all = std::env::var("SOFTGPU_CUPTI").ok()?;
    all.split(',').find_map(|word| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key == name).then(|| value.to_owned())
    })
}

fn is_on(name: &str) -> bool {
    word(name).is_some()
}

fn begin() -> Option<Driver> {
    // SAFETY: the driver is loaded already, by the program that launches on it.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY) }.ok()?;
    // SAFETY: functions of the stand-in driver of this build, with these prototypes.
    let (trace, next) = unsafe {
        let trace = library.get::<extern "C" fn() -> CUresult>(b"softgpu_trace_kernels");
        let next =
            library.get::<extern "C" fn(*mut KernelRecord) -> CUresult>(b"softgpu_next_kernel");
        (*trace.ok()?, *next.ok()?)
    };
    if trace() != CUresult::SUCCESS {
        return None;
    }
    std::thread::spawn(|| {
        let clock = Clock::monotonic();
        loop {
            clock.sleep_until(clock.now_ns() + LOOK_NS);
            let full = CUPTI.take();
            CUPTI.give_back(full);
        }
    });
    Some(Driver {
        _library: library,
        next,
    })
}

impl Library12 {
    /// Puts completed kernels into buffers; returns the full ones.
    fn take(&self) -> Vec<Buffer> {
        let mut full = Vec::new();
        let Some(Some(driver)) = self.driver.get() else {
            return full;
        };
        let stolen: Option<u64> = word("stolen").and_then(|count| count.parse().ok());
        let mut state = self.state.lock();
        loop {
            let mut told = KernelRecord {
                name: std::ptr::null(),
                started_ns: 0,
                ended_ns: 0,
                device: 0,
                stream: 0,
                call: 0,
                registers: 0,
                grid: [0; 3],
                block: [0; 3],
                static_shared_bytes: 0,
                dynamic_shared_bytes: 0,
                is_in_graph: 0,
                pad: 0,
            };
            if (driver.next)(&raw mut told) != CUresult::SUCCESS {
                return full;
            }
            state.count += 1;
            let is_odd = state.count % 2 == 1;
            if stolen.is_some_and(|stolen| state.count > stolen) {
                continue;
            }
            if is_odd && is_on("drops") {
                state.dropped += 1;
                continue;
            }
            let record = record_of(&told, is_odd);
            full.extend(state.put(&record));
        }
    }

    fn give_back(&self, buffers: impl IntoIterator<Item = Buffer>) {
        let callbacks = self.state.lock().callbacks;
        let Some((_, completed)) = callbacks else {
            return;
        };
        for buffer in buffers {
            completed(
                std::ptr::null_mut(),
                0,
                buffer.address,
                buffer.bytes,
                buffer.used,
            );
        }
    }
}

fn record_of(told: &KernelRecord, is_odd: bool) -> Record {
    let is_timed = !(is_odd && is_on("untimed"));
    let time = |ns: u64| if is_timed { ns } else { 0 };
    Record {
        kind: CONCURRENT_KERNEL as u32,
        cache: 0,
        shared_memory: 0,
        registers: told.registers as u16,
        partitioned: [0; 2],
        start: time(told.started_ns),
        end: time(told.ended_ns),
        completed: time(told.ended_ns),
        device: told.device,
        context: 1,
        stream: told.stream,
        grid: told.grid,
        block: told.block,
        static_shared: told.static_shared_bytes,
        dynamic_shared: told.dynamic_shared_bytes,
        local: [0; 2],
        correlation: told.call,
        grid_id: 0,
        name: match is_odd && is_on("renames") {
            true => c"of another name".as_ptr(),
            false => told.name,
        },
        rest: [0; 4],
        graph_node: told.is_in_graph.into(),
        others: [0; 7],
    }
}

impl State {
    /// Puts a record into the current buffer; returns a buffer that was full before.
    fn put(&mut self, record: &Record) -> Option<Buffer> {
        let has_room = |buffer: &Buffer| buffer.used + size_of::<Record>() <= buffer.bytes;
        let full = self.buffer.take_if(|buffer| !has_room(buffer));
        if self.buffer.is_none() {
            self.buffer = self.callbacks.and_then(|(requested, _)| request(requested));
        }
        let Some(buffer) = self.buffer.as_mut().filter(|buffer| has_room(buffer)) else {
            self.dropped += 1;
            return full;
        };
        // SAFETY: the application lent that many bytes, and the record takes some that are free.
        unsafe {
            let to = buffer.address.add(buffer.used);
            to.cast::<Record>().write_unaligned(*record);
        }
        buffer.used += size_of::<Record>();
        full
    }
}

fn request(requested: Requested) -> Option<Buffer> {
    let (mut address, mut bytes, mut most) = (std::ptr::null_mut(), 0, 0);
    requested(&raw mut address, &raw mut bytes, &raw mut most);
    (!address.is_null()).then_some(Buffer {
        address,
        bytes,
        used: 0,
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiGetVersion(version: *mut u32) -> c_int {
    if let Some(path) = std::env::var_os("SOFTGPU_CUPTI_LOG") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        // A test detects a missing line.
        let _ = file.and_then(|mut file| writeln!(file, "{}", std::process::id()));
    }
    let asked = word("version").and_then(|version| version.parse().ok());
    // SAFETY: by the header a place for the number.
    unsafe { version.write(asked.unwrap_or(API_VERSION)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiSubscribe(
    subscriber: *mut *mut c_void,
    _callback: *mut c_void,
    _data: *mut c_void,
) -> c_int {
    if is_on("subscribed") || CUPTI.is_subscribed.swap(true, Ordering::SeqCst) {
        return MULTIPLE_SUBSCRIBERS;
    }
    // SAFETY: by the header a place for the handle.
    unsafe { subscriber.write(std::ptr::without_provenance_mut(1)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiUnsubscribe(_subscriber: *mut c_void) -> c_int {
    match CUPTI.is_subscribed.swap(false, Ordering::SeqCst) {
        true => SUCCESS,
        false => INVALID_PARAMETER,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Option<Requested>,
    completed: Option<Completed>,
) -> c_int {
    let Some(both) = requested.zip(completed) else {
        return INVALID_PARAMETER;
    };
    CUPTI.state.lock().callbacks = Some(both);
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityEnable(kind: c_int) -> c_int {
    if kind != CONCURRENT_KERNEL {
        return INVALID_KIND;
    }
    if is_on("refuses") {
        return INSUFFICIENT_PRIVILEGES;
    }
    match CUPTI.driver.get_or_init(begin) {
        Some(_) => SUCCESS,
        None => NOT_INITIALIZED,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityDisable(_kind: c_int) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityFlushAll(_flag: u32) -> c_int {
    let mut buffers = CUPTI.take();
    let mut state = CUPTI.state.lock();
    if state.callbacks.is_none() {
        return INVALID_OPERATION;
    }
    if !is_on("never-flushes") {
        buffers.extend(state.buffer.take());
    }
    drop(state);
    CUPTI.give_back(buffers);
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> c_int {
    // SAFETY: by the header a place for an address, null or that of a record.
    let last = unsafe { record.read() };
    let next = if last.is_null() {
        buffer
    } else {
        last.wrapping_add(size_of::<Record>())
    };
    if next.addr() + size_of::<Record>() > buffer.addr() + valid {
        return MAX_LIMIT_REACHED;
    }
    // SAFETY: as above.
    unsafe { record.write(next) };
    SUCCESS
}

/// Number of records dropped since the last call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> c_int {
    let count = std::mem::take(&mut CUPTI.state.lock().dropped);
    // SAFETY: by the header a place for the number.
    unsafe { dropped.write(count) };
    SUCCESS
}

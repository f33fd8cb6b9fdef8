//! The hooks of NVML's functions, under their own names, and NVML's functions as we call them. A
//! hook makes the real call with the application's arguments, returns its result, and changes only
//! the outputs of a successful call: numbers of a structure of known form, and entries of a list,
//! which only gets shorter. The forms are those of nvml.h. As no CUDA entry points they bypass
//! [`crate::dispatch::guard::pass`]; panics are caught and `errno` is kept in the same way.

#![expect(
    unsafe_code,
    reason = "hooks are C functions, called with the application's pointers"
)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use super::{memory, own_processes};
use crate::dispatch::panics;
use crate::hooks::libraries::{Functions, LIBRARIES, NVML_FUNCTIONS, NVML_HELPERS};
use crate::platform::config;
use crate::platform::loaded::{File, Opened, past_us};
use crate::platform::loader::{self, ABSENT, JUMP};
use crate::platform::sys::Errno;

const SUCCESS: c_uint = 0;
/// NVML_ERROR_FUNCTION_NOT_FOUND: the result of a hook without a library behind it.
const FUNCTION_NOT_FOUND: c_uint = 13;
/// Room for a device's UUID (NVML_DEVICE_UUID_V2_BUFFER_SIZE) and for the driver's version (80).
const TEXT_BYTES: usize = 96;
const FILE_STEM: &str = "libnvidia-ml.so";
const SONAME: &CStr = c"libnvidia-ml.so.1";

/// `nvmlDevice_t`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Device(*mut c_void);

/// `nvmlMemory_t`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) used: u64,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2`: size, and the version in the upper byte.
const MEMORY_V2: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;
const _: () = assert!(size_of::<Memory>() == 24 && size_of::<MemoryV2>() == 40);

/// `nvmlProcessInfo_v1_t`: process and bytes.
const PROCESS_V1_BYTES: usize = 16;
/// `nvmlProcessInfo_v2_t`: and two ids of instances.
const PROCESS_V2_BYTES: usize = 24;
/// The form of `_v3` in drivers 535.43 to 535.86: one more number. Before and after it is the
/// second version's (nvidia-settings' nvml.h of these versions; XuehaiPan/nvitop #79, #89).
const PROCESS_535_BYTES: usize = 32;

type Function = unsafe extern "C-unwind" fn();

macro_rules! hooks {
    ($($index:literal $name:ident($($argument:ident: $type:ty),*) then $show:ident($($given:expr),*);)*) => {
        $(
            /// The hook of this symbol. Safety: as NVML's function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, expect(non_snake_case, reason = "named exactly like the symbol"))]
            pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_uint {
                let Some(function) = real($index) else {
                    return FUNCTION_NOT_FOUND;
                };
                // SAFETY: NVML's function of this symbol, which nvml.h declares so.
                let function = unsafe {
                    core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> c_uint>(
                        function.as_ptr(),
                    )
                };
                // SAFETY: the application's own arguments, passed on.
                let result = unsafe { function($($argument),*) };
                if result == SUCCESS {
                    // SAFETY: the call succeeded, so NVML has just written each output that is not
                    // null, as nvml.h declares them; the count states the list's length.
                    follow(|| unsafe { $show($($given),*) });
                }
                result
            }
        )*

        static HOOKS: [(&CStr, Function); NVML_FUNCTIONS] = [$((
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no NUL"),
            },
            // SAFETY: only the address is used.
            unsafe { core::mem::transmute::<*const (), Function>($name as *const ()) },
        )),*];
    };
}

hooks! {
    0 nvmlDeviceGetMemoryInfo(device: Device, told: *mut Memory) then show_memory(device, told);
    1 nvmlDeviceGetMemoryInfo_v2(device: Device, told: *mut MemoryV2) then show_memory_v2(device, told);
    2 nvmlDeviceGetComputeRunningProcesses(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, PROCESS_V1_BYTES);
    3 nvmlDeviceGetComputeRunningProcesses_v2(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, PROCESS_V2_BYTES);
    4 nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, process_v3_bytes());
    5 nvmlDeviceGetGraphicsRunningProcesses(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, PROCESS_V1_BYTES);
    6 nvmlDeviceGetGraphicsRunningProcesses_v2(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, PROCESS_V2_BYTES);
    7 nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, process_v3_bytes());
    8 nvmlDeviceGetMPSComputeRunningProcesses(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, PROCESS_V1_BYTES);
    9 nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, PROCESS_V2_BYTES);
    10 nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Device, count: *mut c_uint, list: *mut c_void)
        then show_own(device, count, list, process_v3_bytes());
}

const HELPERS: [&CStr; NVML_HELPERS] = [
    c"nvmlDeviceGetUUID",
    c"nvmlDeviceGetIndex",
    c"nvmlSystemGetDriverVersion",
];

/// The answer of `dlsym` for one of the names: the hook, or [`JUMP`] or [`ABSENT`] as in
/// [`crate::doors::dlsym`]; `None` for any other name.
pub(crate) fn answer(
    handle: *mut c_void,
    name: &CStr,
    caller: *mut c_void,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> Option<*mut c_void> {
    let index = HOOKS.iter().position(|(ours, _)| *ours == name)?;
    let hook = hook_of(index)?;
    // Our own export hides what the caller would have found without us.
    let past_us = || past_us(handle, caller, &look_up);
    let handle = loader::as_asked_by_us(handle);
    let mut found = look_up(handle);
    let is_ours = found == hook;
    if is_ours {
        found = past_us();
        if found.is_null() {
            return Some(ABSENT);
        }
    }
    let Some(function) = NonNull::new(found) else {
        return Some(JUMP);
    };
    let adopted = || panics::guarded(abi::ENTRY_POINT_COUNT, || adopt(index, function)).flatten();
    let is_hooked = !config::is_disabled() && adopted().is_some();
    if !is_hooked && !is_ours {
        return Some(JUMP);
    }
    // Repeat the look-up, so that `dlerror` is about this one and none of ours.
    let again = if is_ours { past_us() } else { look_up(handle) };
    Some(if is_hooked { hook } else { again })
}

fn hook_of(index: usize) -> Option<*mut c_void> {
    HOOKS.get(index).map(|(_, hook)| *hook as *mut c_void)
}

/// NVML's own function; looked up here if the program is linked with it and never asked `dlsym`.
fn real(index: usize) -> Option<NonNull<c_void>> {
    // Released in `adopt`.
    LIBRARIES.nvml.real(index).or_else(|| find(index))
}

#[cold]
fn find(index: usize) -> Option<NonNull<c_void>> {
    let (name, _) = HOOKS.get(index)?;
    // SAFETY: the handle that any caller may use, and a string that ends in NUL.
    let next = NonNull::new(unsafe { loader::dlsym()(libc::RTLD_NEXT, name.as_ptr()) });
    let found = next.or_else(|| Opened::of(SONAME)?.find(name))?;
    adopt(index, found);
    Some(found)
}

/// Adopts a function as the hook's real one, if it is that already, or lies in the library.
fn adopt(index: usize, function: NonNull<c_void>) -> Option<()> {
    let Functions {
        bases: [base],
        claimed,
        real,
        helpers,
    } = &LIBRARIES.nvml;
    let real = real.get(index)?;
    let taken = real.load(Ordering::Acquire);
    if !taken.is_null() {
        return (taken == function.as_ptr()).then_some(());
    }
    let file = File::of(function.as_ptr()).filter(|file| file.is_named(FILE_STEM))?;
    let first = base.load(Ordering::Acquire);
    if first == 0 {
        let opened = Opened::of(file.name())?;
        // Of two threads with two libraries one is first; the other must not store its helpers.
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let claimed = claimed.compare_exchange(0, file.base, order, failed);
        if claimed.is_err_and(|first| first != file.base) {
            return None;
        }
        for (place, name) in helpers.iter().zip(HELPERS) {
            let found = opened.find(name).map_or(ptr::null_mut(), NonNull::as_ptr);
            place.store(found, Ordering::Release);
        }
        // A program may close and reopen the library; our exports must never call unloaded code.
        opened.keep();
        // Release pairs with the Acquire above: the helpers are there.
        base.store(file.base, Ordering::Release);
    } else if first != file.base {
        return None;
    }
    // Release pairs with the Acquire in `real`.
    real.store(function.as_ptr(), Ordering::Release);
    Some(())
}

/// Runs the part after a successful call: catches panics, and keeps the call's `errno`.
fn follow(after: impl FnOnce()) {
    let errno = Errno::of_thread();
    let left = errno.read();
    panics::guarded(abi::ENTRY_POINT_COUNT, after);
    errno.write(left);
}

/// Safety: `told` is null, or was just written by NVML.
unsafe fn show_memory(device: Device, told: *mut Memory) {
    // SAFETY: as the caller promises.
    let Some(told) = (unsafe { told.as_mut() }) else {
        return;
    };
    if let Some(seen) = memory(device, *told) {
        *told = seen;
    }
}

/// Safety: as [`show_memory`].
unsafe fn show_memory_v2(device: Device, told: *mut MemoryV2) {
    // SAFETY: as the caller promises. The version comes first in every form, and identifies it.
    if told.is_null() || unsafe { told.cast::<c_uint>().read() } != MEMORY_V2 {
        return;
    }
    // SAFETY: as the caller promises.
    let told = unsafe { &mut *told };
    // In the second version, `used` excludes what the driver keeps.
    let plain = Memory {
        total: told.total,
        free: told.free,
        used: told.used,
    };
    if let Some(seen) = memory(device, plain) {
        *told = MemoryV2 {
            version: told.version,
            reserved: told
                .reserved
                .min(seen.total.saturating_sub(seen.used + seen.free)),
            total: seen.total,
            free: seen.free,
            used: seen.used,
        };
    }
}

/// Removes entries of other jobs' processes from a list; each entry begins with the process id.
/// Safety: `count` is null, or the length of `list`, which is null or was just written by NVML.
unsafe fn show_own(device: Device, count: *mut c_uint, list: *mut c_void, entry_bytes: usize) {
    // SAFETY: as the caller promises.
    let told = match unsafe { count.as_ref() } {
        Some(&told) if told > 0 && !list.is_null() => told as usize,
        _ => return,
    };
    let Some(own) = own_processes(device) else {
        return;
    };
    let list = list.cast::<u8>();
    let mut kept = 0;
    for place in 0..told {
        // SAFETY: within the list, as the caller promises; each entry begins with four bytes.
        unsafe {
            let entry = list.add(place * entry_bytes);
            let pid = entry.cast::<c_uint>().read_unaligned();
            if own.contains(&pid) {
                ptr::copy(entry, list.add(kept * entry_bytes), entry_bytes);
                kept += 1;
            }
        }
    }
    // SAFETY: not null, see above; no more than there were.
    unsafe { *count = kept as c_uint };
}

fn process_v3_bytes() -> usize {
    let is_other = driver_version().is_some_and(|version| has_longer_entries(&version));
    if is_other {
        PROCESS_535_BYTES
    } else {
        PROCESS_V2_BYTES
    }
}

/// See [`PROCESS_535_BYTES`].
fn has_longer_entries(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse::<u32>);
    matches!(
        (parts.next(), parts.next()),
        (Some(Ok(535)), Some(Ok(43..=86)))
    )
}

fn driver_version() -> Option<String> {
    type GetText = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;
    let function = helper(2)?;
    // SAFETY: nvml.h declares this type for the name.
    let function = unsafe { core::mem::transmute::<*mut c_void, GetText>(function.as_ptr()) };
    // SAFETY: room for as many bytes as stated.
    text(|bytes, room| unsafe { function(bytes, room) })
}

impl Device {
    pub(super) fn uuid(self) -> Option<String> {
        type GetUuid = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_uint;
        let function = helper(0)?;
        // SAFETY: nvml.h declares this type for the name.
        let function = unsafe { core::mem::transmute::<*mut c_void, GetUuid>(function.as_ptr()) };
        // SAFETY: a device that NVML has just answered about, and room for as many bytes as stated.
        text(|bytes, room| unsafe { function(self, bytes, room) })
    }

    pub(super) fn index(self) -> Option<i32> {
        type GetIndex = unsafe extern "C" fn(Device, *mut c_uint) -> c_uint;
        let function = helper(1)?;
        // SAFETY: nvml.h declares this type for the name.
        let function = unsafe { core::mem::transmute::<*mut c_void, GetIndex>(function.as_ptr()) };
        let mut index = 0;
        // SAFETY: a device that NVML has just answered about, and room for a number.
        let result = unsafe { function(self, &raw mut index) };
        (result == SUCCESS).then_some(index as c_int)
    }
}

fn helper(place: usize) -> Option<NonNull<c_void>> {
    LIBRARIES.nvml.helper(place)
}

fn text(ask: impl FnOnce(*mut c_char, c_uint) -> c_uint) -> Option<String> {
    let mut bytes = [0_u8; TEXT_BYTES];
    let result = ask(bytes.as_mut_ptr().cast(), TEXT_BYTES as c_uint - 1);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?;
    (result == SUCCESS).then(|| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_hooked_are_nobodys_and_nothing_is_hooked_where_there_is_no_library() {
        let nothing = |_: *mut c_void| ptr::null_mut();
        assert_eq!(
            answer(libc::RTLD_DEFAULT, c"nvmlInit_v2", ptr::null_mut(), nothing),
            None
        );
        let name = c"nvmlDeviceGetMemoryInfo";
        assert_eq!(
            answer(libc::RTLD_DEFAULT, name, ptr::null_mut(), nothing),
            Some(JUMP)
        );
        // A program's own function of that name is not NVML's.
        let other = |_: *mut c_void| other_function as *mut c_void;
        assert_eq!(
            answer(libc::RTLD_DEFAULT, name, ptr::null_mut(), other),
            Some(JUMP)
        );
        let mut told = Memory {
            total: 3,
            free: 2,
            used: 1,
        };
        // SAFETY: room for the answer; no library is in this process.
        let result = unsafe { nvmlDeviceGetMemoryInfo(Device(ptr::null_mut()), &raw mut told) };
        assert_eq!((result, told.total), (FUNCTION_NOT_FOUND, 3));
    }

    extern "C" fn other_function() {}

    #[test]
    fn entries_are_longer_in_the_drivers_that_made_them_so_alone() {
        for (version, is_longer) in [
            ("535.43.02", true),
            ("535.86.05", true),
            ("535.98", false),
            ("535.183.01", false),
            ("530.41.03", false),
            ("570.00", false),
            ("", false),
        ] {
            assert_eq!(has_longer_entries(version), is_longer, "{version}");
        }
    }
}

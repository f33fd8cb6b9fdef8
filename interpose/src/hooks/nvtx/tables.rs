//! The layout of NVTX 3: a module's tables of function pointers, and the program's events.

#![expect(unsafe_code, reason = "writes the tables of the program's modules")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::offset_of;
use core::ptr;

use super::functions;
use super::names::{Narrow, Wide};

/// `NvtxGetExportTableFunc_t`.
pub(super) type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// `NVTX_ETID_CALLBACKS`.
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE` and `NVTX_CB_MODULE_CORE2`: functions of the default and of given domains.
const CORE: c_int = 1;
const CORE2: c_int = 5;

/// `NvtxFunctionPointer`.
type Function = *const c_void;
/// `NvtxFunctionTable`: pointers to the module's function pointers.
type Table = *const *mut Function;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub(super) struct Callbacks {
    pub(super) struct_size: usize,
    pub(super) get_module_function_table:
        Option<unsafe extern "C" fn(c_int, *mut Table, *mut c_uint) -> c_int>,
}

/// `nvtxEventAttributes_t`, since version 1.
#[repr(C)]
pub(super) struct Event {
    pub(super) version: u16,
    pub(super) size: u16,
    pub(super) category: u32,
    pub(super) color_type: i32,
    pub(super) color: u32,
    pub(super) payload_type: i32,
    pub(super) reserved: i32,
    pub(super) payload: u64,
    pub(super) message_type: i32,
    pub(super) message: *const c_void,
}

const _: () = assert!(size_of::<Event>() == 48);
const _: () = assert!(offset_of!(Event, message_type) == 32 && offset_of!(Event, message) == 40);

pub(super) enum Message<'a> {
    None,
    Narrow(Option<Narrow<'a>>),
    Wide(Option<Wide<'a>>),
    /// A handle from [`functions::register_a`] or its sibling.
    Registered(*const c_void),
}

/// The name of an event's range. Safety: the event is the program's, as NVTX requires it, or null.
#[inline]
pub(super) unsafe fn message<'a>(event: *const Event) -> Message<'a> {
    // SAFETY: as above.
    let Some(event) = (unsafe { event.as_ref() }) else {
        return Message::None;
    };
    if usize::from(event.size) < size_of::<Event>() {
        return Message::None;
    }
    // SAFETY: strings that end in zero, of the type that the program states.
    unsafe {
        match event.message_type {
            1 => Message::Narrow(Narrow::at(event.message.cast::<c_char>())),
            2 => Message::Wide(Wide::at(event.message.cast::<u32>())),
            3 => Message::Registered(event.message),
            _ => Message::None,
        }
    }
}

/// Puts our functions into a module's tables. Returns whether it has such tables. Safety: `get` is
/// the module's function for that, called while its tables are being made.
pub(super) unsafe fn fill(get: GetExportTable) -> bool {
    // SAFETY: as above; the table is the module's for good.
    let callbacks = unsafe { get(CALLBACKS).cast::<Callbacks>().as_ref() };
    let Some(callbacks) = callbacks.filter(|table| table.struct_size >= size_of::<Callbacks>())
    else {
        return false;
    };
    let Some(get_table) = callbacks.get_module_function_table else {
        return false;
    };
    // The numbers are those of NVTX_CBID_CORE_* and NVTX_CBID_CORE2_*.
    let core: [(usize, Function); 8] = [
        (4, functions::start_event as Function),
        (5, functions::start_a as Function),
        (6, functions::start_w as Function),
        (7, functions::end_range as Function),
        (8, functions::push_event as Function),
        (9, functions::push_a as Function),
        (10, functions::push_w as Function),
        (11, functions::pop_default as Function),
    ];
    let core2: [(usize, Function); 8] = [
        (2, functions::start_in as Function),
        (3, functions::end_in as Function),
        (4, functions::push_in as Function),
        (5, functions::pop_in as Function),
        (10, functions::register_a as Function),
        (11, functions::register_w as Function),
        (12, functions::create_a as Function),
        (13, functions::create_w as Function),
    ];
    let parts = [(CORE, core), (CORE2, core2)];
    let put = parts.map(|(part, ours)| {
        let (mut table, mut size): (Table, c_uint) = (ptr::null(), 0);
        // SAFETY: the module's function, and room for its two results.
        let found = unsafe { get_table(part, &raw mut table, &raw mut size) };
        if found == 0 || table.is_null() {
            return false;
        }
        for (slot, function) in ours.into_iter().filter(|(slot, _)| *slot < size as usize) {
            // SAFETY: the table has that many entries, each null or a pointer to a function pointer
            // of that type, which is not called meanwhile.
            unsafe {
                let place = *table.add(slot);
                if !place.is_null() {
                    *place = function;
                }
            }
        }
        true
    });
    put.contains(&true)
}

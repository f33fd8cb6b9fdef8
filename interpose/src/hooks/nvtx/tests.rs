//! The tables of a module as NVTX's headers make them.

use core::ffi::c_uint;
use core::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::tables::Callbacks;
use super::*;

#[test]
fn a_copy_that_is_not_preloaded_refuses() {
    unsafe extern "C" fn none(_table: u32) -> *const c_void {
        ptr::null()
    }
    // SAFETY: a function that has no tables.
    assert_eq!(unsafe { initialize(Some(none)) }, 0);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { initialize(None) }, 0);
}

/// A module with the tables of `nvtxInit.h`, whose function pointers are ours afterwards.
#[test]
fn a_modules_tables_get_our_functions_and_keep_the_others() {
    const SIZE: usize = 16;
    static SLOTS: [[AtomicPtr<c_void>; SIZE]; 2] =
        [const { [const { AtomicPtr::new(ptr::null_mut()) }; SIZE] }; 2];
    unsafe extern "C" fn table(
        part: c_int,
        out: *mut *const *mut *const c_void,
        size: *mut c_uint,
    ) -> c_int {
        let index = match part {
            1 => 0,
            5 => 1,
            _ => return 0,
        };
        let places: Vec<*mut *const c_void> = SLOTS[index]
            .iter()
            .enumerate()
            .map(|(slot, place)| match slot {
                0 => ptr::null_mut(),
                _ => place.as_ptr().cast(),
            })
            .collect();
        // SAFETY: the caller's output parameters.
        unsafe {
            *out = places.leak().as_ptr();
            *size = SIZE as c_uint;
        }
        1
    }
    static CALLBACKS: Callbacks = Callbacks {
        struct_size: size_of::<Callbacks>(),
        get_module_function_table: Some(table),
    };
    unsafe extern "C" fn get(id: u32) -> *const c_void {
        match id {
            1 => (&raw const CALLBACKS).cast(),
            _ => ptr::null(),
        }
    }
    // SAFETY: tables as NVTX has them.
    assert!(unsafe { tables::fill(get) });
    let is_ours = |part: usize, slot: usize| !SLOTS[part][slot].load(Ordering::Relaxed).is_null();
    let ours = |part| {
        (0..SIZE)
            .filter(|slot| is_ours(part, *slot))
            .collect::<Vec<_>>()
    };
    assert_eq!(ours(0), (4..=11).collect::<Vec<_>>());
    assert_eq!(ours(1), [2, 3, 4, 5, 10, 11, 12, 13]);
}

#[test]
fn handles_are_never_null_and_say_with_what_they_go() {
    // Without settings nothing matches.
    // SAFETY: strings that end in zero.
    unsafe {
        let domain = functions::create_a(c"triton".as_ptr());
        assert_eq!((domain as usize, of_domain(domain)), (HANDLE, 0));
        assert_eq!(
            functions::register_w(domain, [0x61, 0].as_ptr()) as usize,
            HANDLE
        );
        assert_eq!(functions::push_a(c"forward".as_ptr()), NOT_TRACKED);
        assert_eq!(functions::start_a(ptr::null()), NO_RANGE);
        assert_eq!(functions::push_event(ptr::null()), NOT_TRACKED);
    }
    assert_eq!(functions::pop_default(), NOT_TRACKED);
    functions::end_range(NO_RANGE);
    let event = Event {
        version: 3,
        size: 48,
        category: 0,
        color_type: 0,
        color: 0,
        payload_type: 0,
        reserved: 0,
        payload: 0,
        message_type: 3,
        message: ptr::without_provenance(HANDLE | ITERATION),
    };
    // SAFETY: an event as NVTX has it.
    let found = |among| unsafe { of_event(&raw const event, among) };
    assert_eq!((found(BOTH), found(REQUEST), found(0)), (ITERATION, 0, 0));
}

#[test]
fn of_ranges_in_each_other_the_outermost_is_the_request() {
    let inside = || {
        let inside = INSIDE.get();
        (inside.depth, inside.request_at)
    };
    let matching = |among: Patterns| among & REQUEST;
    push(REQUEST, |_| 0);
    push(REQUEST, matching);
    push(REQUEST, matching);
    assert_eq!(inside(), (3, 2));
    // In another domain.
    pop(0);
    push(ITERATION, |_| 0);
    assert_eq!(inside(), (3, 2));
    pop(REQUEST);
    assert_eq!(inside(), (2, 2));
    pop(REQUEST);
    assert_eq!(inside(), (1, 0));
    push(REQUEST, matching);
    assert_eq!(inside(), (2, 2));
    for _ in 0..5 {
        pop(REQUEST);
    }
    assert_eq!(inside(), (0, 0));
}

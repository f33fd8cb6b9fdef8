//! The unwinder for our panics, and for threads that end inside a hook. A thread that is cancelled
//! inside the driver unwinds through our frames. glibc does that with `libgcc_s.so.1`, which it
//! opens on first use. Our frames must then call *that* library: another unwinder, an archive
//! linked into us, does not understand its state and ends the process. But a dependency on that
//! library costs every process 0.1 ms, whether it touches CUDA or not. So we open it on first use,
//! too; `build.rs` makes the linker (`--wrap`) redirect every `_Unwind_…` to a jump here. Where
//! there is no such library no thread can be cancelled, and the unwinder linked into us suffices.

#![expect(
    unsafe_code,
    reason = "calls the unwinder's functions by their addresses"
)]

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::loader::{self, LOADER, Loader, UNWINDER};

const LIBRARY: &CStr = c"libgcc_s.so.1";

/// A function of the unwinder. [`LOADER`] has its target address, at the same index as this in
/// [`ENTRIES`]; null before it is resolved.
struct Entry {
    name: &'static CStr,
    ours: unsafe extern "C" fn(),
}

macro_rules! unwinder {
    ($($target:ident $name:literal $real:ident $wrap:literal $linked:literal;)*) => {
        #[repr(usize)]
        enum Place { $($target),* }

        unsafe extern "C" {
            $(
                #[link_name = $linked]
                fn $real();
            )*
        }

        static ENTRIES: &[Entry] = &[$(Entry {
            name: match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without NUL inside"),
            },
            ours: $real,
        }),*];

        $(
            #[cfg(target_arch = "x86_64")]
            core::arch::global_asm!(
                concat!(".globl ", $wrap),
                concat!(".hidden ", $wrap),
                concat!(".type ", $wrap, ", @function"),
                concat!($wrap, ":"),
                "endbr64",
                "mov r11, qword ptr [rip + {loader} + {offset}]",
                "test r11, r11",
                "jz 2f",
                // With the stack unchanged: the unwinder begins with the caller.
                "jmp r11",
                "2:",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "sub rsp, 8",
                "call {resolve}",
                "add rsp, 8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp qword ptr [rip + {loader} + {offset}]",
                concat!(".size ", $wrap, ", . - ", $wrap),
                loader = sym LOADER,
                offset = const offset_of(Place::$target),
                resolve = sym resolve,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::global_asm!(
                concat!(".globl ", $wrap),
                concat!(".hidden ", $wrap),
                concat!(".type ", $wrap, ", %function"),
                concat!($wrap, ":"),
                "hint #34",
                "adrp x16, {loader}",
                "add x16, x16, :lo12:{loader}",
                "ldr x16, [x16, #{offset}]",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "mov x29, sp",
                "bl {resolve}",
                "ldp x2, x3, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "adrp x16, {loader}",
                "add x16, x16, :lo12:{loader}",
                "ldr x16, [x16, #{offset}]",
                "br x16",
                concat!(".size ", $wrap, ", . - ", $wrap),
                loader = sym LOADER,
                offset = const offset_of(Place::$target),
                resolve = sym resolve,
            );
        )*
    };
}

const fn offset_of(place: Place) -> usize {
    core::mem::offset_of!(Loader, unwinder) + place as usize * size_of::<AtomicPtr<c_void>>()
}

// `build.rs` has the same list.
unwinder! {
    Backtrace "_Unwind_Backtrace" real_backtrace "__wrap__Unwind_Backtrace" "__real__Unwind_Backtrace";
    Delete "_Unwind_DeleteException" real_delete "__wrap__Unwind_DeleteException" "__real__Unwind_DeleteException";
    Find "_Unwind_FindEnclosingFunction" real_find "__wrap__Unwind_FindEnclosingFunction" "__real__Unwind_FindEnclosingFunction";
    Cfa "_Unwind_GetCFA" real_cfa "__wrap__Unwind_GetCFA" "__real__Unwind_GetCFA";
    Data "_Unwind_GetDataRelBase" real_data "__wrap__Unwind_GetDataRelBase" "__real__Unwind_GetDataRelBase";
    Gr "_Unwind_GetGR" real_gr "__wrap__Unwind_GetGR" "__real__Unwind_GetGR";
    Ip "_Unwind_GetIP" real_ip "__wrap__Unwind_GetIP" "__real__Unwind_GetIP";
    IpInfo "_Unwind_GetIPInfo" real_ip_info "__wrap__Unwind_GetIPInfo" "__real__Unwind_GetIPInfo";
    Lsda "_Unwind_GetLanguageSpecificData" real_lsda "__wrap__Unwind_GetLanguageSpecificData" "__real__Unwind_GetLanguageSpecificData";
    Region "_Unwind_GetRegionStart" real_region "__wrap__Unwind_GetRegionStart" "__real__Unwind_GetRegionStart";
    Text "_Unwind_GetTextRelBase" real_text "__wrap__Unwind_GetTextRelBase" "__real__Unwind_GetTextRelBase";
    Raise "_Unwind_RaiseException" real_raise "__wrap__Unwind_RaiseException" "__real__Unwind_RaiseException";
    Resume "_Unwind_Resume" real_resume "__wrap__Unwind_Resume" "__real__Unwind_Resume";
    SetGr "_Unwind_SetGR" real_set_gr "__wrap__Unwind_SetGR" "__real__Unwind_SetGR";
    SetIp "_Unwind_SetIP" real_set_ip "__wrap__Unwind_SetIP" "__real__Unwind_SetIP";
}

const _: () = assert!(ENTRIES.len() == UNWINDER);

/// Resolves all functions, from one library. Threads that race resolve the same.
extern "C" fn resolve() {
    // SAFETY: the name ends in NUL. The handle is never closed.
    let library = unsafe { loader::dlopen()(LIBRARY.as_ptr(), libc::RTLD_LAZY) };
    let found = |entry: &Entry| {
        // SAFETY: an open library and a name that ends in NUL.
        unsafe { loader::dlsym()(library, entry.name.as_ptr()) }
    };
    let is_complete = !library.is_null() && ENTRIES.iter().all(|entry| !found(entry).is_null());
    for (entry, address) in ENTRIES.iter().zip(&LOADER.unwinder) {
        let target = if is_complete {
            found(entry)
        } else {
            entry.ours as *mut c_void
        };
        // Relaxed: code needs no ordering.
        address.store(target, Ordering::Relaxed);
    }
}

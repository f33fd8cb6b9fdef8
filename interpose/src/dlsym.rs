//! The second door: `dlsym`.
//!
//! A program that asks for one of our entry points *of the driver* gets the hook; everything else
//! is none of our business and must behave as if we were not there. That is why [`dlsym`] does not
//! call the real one for other names but jumps to it with the stack as it found it: glibc looks at
//! the return address to find out who asks, and answers `RTLD_NEXT` and `RTLD_DEFAULT` accordingly.
//! A wrapper that calls makes another interposer find itself, for ever (notes on the field: HAMi-core
//! #315, reproduced with a `getenv` interposer).
//!
//! The real `dlsym` is found by version, which only libc's has, so that the search neither needs
//! `dlsym` nor stops at another preloaded library's.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use crate::{config, exports, real, sys};

/// The C type of `dlsym`.
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Versions under which libc exports `dlsym`, newest first: since 2.34 it is in libc itself; before
/// it is in libdl, 2.2.5 being the oldest x86-64 version and 2.17 the oldest aarch64 one.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

/// The real `dlsym`, where the naked function below jumps to. Set by [`decide`] before each jump.
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// [`decide`]'s answer for "behave as if we were not there".
const JUMP: *mut c_void = ptr::null_mut();
/// [`decide`]'s answer for "there is no such symbol": the driver lacks what we export.
const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

/// Hands out hooks for the driver's entry points and jumps to the real `dlsym` for the rest.
///
/// # Safety
/// As `dlsym`.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        // Both arguments are kept for the jump; with the return address and 8 bytes more the stack
        // is aligned for the call.
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "cmp rax, 1",
        "je 3f",
        "ret",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        "3:",
        "xor eax, eax",
        "ret",
        decide = sym decide,
        real = sym REAL_DLSYM,
    )
}

/// As above.
///
/// # Safety
/// As `dlsym`.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "mov x29, sp",
        "bl {decide}",
        "mov x9, x0",
        "ldp x0, x1, [sp, #16]",
        // Restores the return address: the real dlsym sees our caller's.
        "ldp x29, x30, [sp], #32",
        "cbz x9, 2f",
        "cmp x9, #1",
        "b.eq 3f",
        "mov x0, x9",
        "ret",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        "3:",
        "mov x0, xzr",
        "ret",
        decide = sym decide,
        real = sym REAL_DLSYM,
    )
}

/// Whether a look-up is ours: the hook if so, else [`JUMP`] or [`ABSENT`].
///
/// Runs inside any `dlsym` of any thread of any program, before `main` too: it does not allocate,
/// lock, format or panic.
extern "C" fn decide(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
    let real_dlsym = real_dlsym();
    // A name is only looked up in the table if it can be there: most are not, and the prefix "cu"
    // alone would catch curl and cuDNN.
    if handle == libc::RTLD_NEXT || !names_an_entry_point(symbol) {
        return JUMP;
    }
    // SAFETY: `dlsym` is given a string that ends in NUL, and it is not null.
    let name = unsafe { CStr::from_ptr(symbol) };
    let Some(index) = abi::lookup(name) else {
        return JUMP;
    };
    let Some(hook) = exports::hook_of(index) else {
        return JUMP;
    };
    // SAFETY: the arguments of the call we are in. The handle is not RTLD_NEXT, the only one whose
    // meaning depends on the caller; for RTLD_DEFAULT see below.
    let mut found = unsafe { real_dlsym(handle, symbol) };
    if handle == libc::RTLD_DEFAULT && found == hook {
        // Our own export hides what the program would have found without us: what comes after us.
        // SAFETY: as above; the caller that RTLD_NEXT goes by is this library.
        found = unsafe { real_dlsym(libc::RTLD_NEXT, symbol) };
        if found.is_null() {
            return ABSENT;
        }
    }
    if found.is_null() {
        return JUMP;
    }
    match real::loaded(index) {
        // Only what the driver itself exports under that name is replaced.
        Some(driver) if driver.as_ptr() == found && !is_disabled() => hook,
        _ if handle == libc::RTLD_DEFAULT => found,
        _ => JUMP,
    }
}

/// Whether the name begins like the driver's: "cu" and a capital letter.
fn names_an_entry_point(symbol: *const c_char) -> bool {
    if symbol.is_null() {
        return false;
    }
    // SAFETY: each byte is read only if the one before it was not the NUL at the end.
    unsafe {
        *symbol.cast::<u8>() == b'c'
            && *symbol.cast::<u8>().add(1) == b'u'
            && (*symbol.cast::<u8>().add(2)).is_ascii_uppercase()
    }
}

/// libc's `dlsym`, never our own.
pub(crate) fn real_dlsym() -> Dlsym {
    let mut address = REAL_DLSYM.load(Ordering::Relaxed);
    if address.is_null() {
        address = VERSIONS
            .iter()
            // SAFETY: both strings end in NUL; the version makes the search skip unversioned
            // definitions, ours and other interposers'.
            .map(|version| unsafe {
                libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr())
            })
            .find(|found| !found.is_null())
            .unwrap_or(find_nothing as *mut c_void);
        // Relaxed: every thread finds the same address, and code needs no ordering.
        REAL_DLSYM.store(address, Ordering::Relaxed);
    }
    // SAFETY: the address is libc's `dlsym` or a function of the same type.
    unsafe { core::mem::transmute::<*mut c_void, Dlsym>(address) }
}

/// Stands in for a `dlsym` that cannot be found: no libc we know. Programs then find nothing, which
/// is better than a jump to nowhere.
extern "C" fn find_nothing(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

/// Whether the library is switched off; asked of the environment once.
pub(crate) fn is_disabled() -> bool {
    const UNKNOWN: u8 = 0;
    const ON: u8 = 1;
    const OFF: u8 = 2;
    static SWITCH: AtomicU8 = AtomicU8::new(UNKNOWN);
    match SWITCH.load(Ordering::Relaxed) {
        ON => false,
        OFF => true,
        _ => {
            let disabled = sys::is_switched_on(config::DISABLE);
            SWITCH.store(if disabled { OFF } else { ON }, Ordering::Relaxed);
            disabled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cu_and_a_capital_letter_can_be_ours() {
        for (name, ours) in [
            (c"cuInit", true),
            (c"cublasCreate_v2", false),
            (c"curl_easy_init", false),
            (c"cu", false),
            (c"c", false),
            (c"", false),
            (c"malloc", false),
        ] {
            assert_eq!(names_an_entry_point(name.as_ptr()), ours, "{name:?}");
        }
        assert!(!names_an_entry_point(ptr::null()));
    }

    #[test]
    fn names_that_are_not_ours_are_found_as_without_us() {
        // SAFETY: the arguments of a plain look-up.
        let (ours, libcs) = unsafe {
            let name = c"getenv".as_ptr();
            (
                dlsym(libc::RTLD_DEFAULT, name),
                real_dlsym()(libc::RTLD_DEFAULT, name),
            )
        };
        assert!(!ours.is_null());
        assert_eq!(ours, libcs);
    }

    #[test]
    fn the_real_dlsym_is_not_ours() {
        assert_ne!(real_dlsym() as usize, dlsym as *const () as usize);
        assert_ne!(real_dlsym() as usize, find_nothing as *const () as usize);
    }
}

//! libc's own loader functions, and how our versions fall through to them. `dlsym` and its kin
//! identify their caller by the return address: `RTLD_NEXT`, `RTLD_DEFAULT`, the search paths
//! (`DT_RPATH`, `$ORIGIN`) and the namespace depend on it. So for symbols that are not ours, our
//! version does not call libc's but jumps to it, with stack and arguments unchanged. A wrapper that
//! calls makes another interposer find itself, for ever (notes on the field: HAMi-core #315,
//! reproduced with a `getenv` interposer).

#![expect(unsafe_code, reason = "calls libc's functions by their addresses")]

#[cfg(not(shim))]
use core::ffi::c_long;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::elf;

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
#[cfg(not(shim))]
pub(crate) type Dlvsym =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
pub(crate) type Dlopen = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
#[cfg(not(shim))]
pub(crate) type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
#[cfg(not(shim))]
pub(crate) type Dlclose = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
#[cfg(not(shim))]
pub(crate) type Dlmopen = unsafe extern "C-unwind" fn(c_long, *const c_char, c_int) -> *mut c_void;

pub(crate) struct Real {
    name: &'static CStr,
    /// Null before the look-up; then libc's, or [`find_nothing`] while none is found: before glibc
    /// 2.34 the library of these functions may be loaded after us. The naked functions of
    /// [`or_jump!`] load it from here, so it is the first field; the code they call fills it in.
    address: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        // Relaxed: every thread finds the same address, and code needs no ordering.
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() || known == find_nothing as *mut c_void {
            return self.look_up();
        }
        known
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        let found =
            elf::find_in_libc(self.name).map_or(find_nothing as *mut c_void, ptr::NonNull::as_ptr);
        self.address.store(found, Ordering::Relaxed);
        found
    }

    /// Offset of the address in this structure, for [`or_jump!`].
    #[cfg(not(shim))]
    pub(crate) const ADDRESS_OFFSET: usize = core::mem::offset_of!(Self, address);
}

pub(crate) static LOADER: Loader = Loader::new();

pub(crate) struct Loader {
    pub(crate) dlsym: Real,
    #[cfg(not(shim))]
    pub(crate) dlvsym: Real,
    pub(crate) dlopen: Real,
    #[cfg(not(shim))]
    pub(crate) dlmopen: Real,
    #[cfg(not(shim))]
    dladdr: Real,
    #[cfg(not(shim))]
    dlclose: Real,
    /// The program's own handle; `RTLD_DEFAULT` until first used.
    #[cfg(not(shim))]
    program: AtomicPtr<c_void>,
    /// The unwinder's functions (`platform::unwinder`); null before the look-up.
    #[cfg(not(test))]
    pub(crate) unwinder: [AtomicPtr<c_void>; UNWINDER],
}

#[cfg(not(test))]
pub(crate) const UNWINDER: usize = 15;

impl Loader {
    const fn new() -> Self {
        Self {
            dlsym: Real::new(c"dlsym"),
            #[cfg(not(shim))]
            dlvsym: Real::new(c"dlvsym"),
            dlopen: Real::new(c"dlopen"),
            #[cfg(not(shim))]
            dlmopen: Real::new(c"dlmopen"),
            #[cfg(not(shim))]
            dladdr: Real::new(c"dladdr"),
            #[cfg(not(shim))]
            dlclose: Real::new(c"dlclose"),
            #[cfg(not(shim))]
            program: AtomicPtr::new(libc::RTLD_DEFAULT),
            #[cfg(not(test))]
            unwinder: [const { AtomicPtr::new(ptr::null_mut()) }; UNWINDER],
        }
    }
}

/// libc's `dlsym`, never our own.
#[inline]
pub(crate) fn dlsym() -> Dlsym {
    // SAFETY: libc's `dlsym`, or a function of the same arguments that finds nothing.
    unsafe { core::mem::transmute::<*mut c_void, Dlsym>(LOADER.dlsym.address()) }
}

/// Converts a handle for our own look-ups. `RTLD_DEFAULT` from us would find our own exports before
/// those of a library loaded before us, because we are linked with `-Bsymbolic`. The program's own
/// handle has the same scope, the whole program's.
#[cfg(not(shim))]
pub(crate) fn as_asked_by_us(handle: *mut c_void) -> *mut c_void {
    if handle != libc::RTLD_DEFAULT {
        return handle;
    }
    let known = LOADER.program.load(Ordering::Relaxed);
    if known != libc::RTLD_DEFAULT {
        return known;
    }
    // SAFETY: without a name nothing is loaded; the handle is the program's, never unloaded.
    let found = unsafe { dlopen()(ptr::null(), libc::RTLD_LAZY) };
    LOADER.program.store(found, Ordering::Relaxed);
    found
}

#[cfg(not(shim))]
pub(crate) fn dlvsym() -> Dlvsym {
    // SAFETY: as in `dlsym`.
    unsafe { core::mem::transmute::<*mut c_void, Dlvsym>(LOADER.dlvsym.address()) }
}

pub(crate) fn dlopen() -> Dlopen {
    // SAFETY: as in `dlsym`.
    unsafe { core::mem::transmute::<*mut c_void, Dlopen>(LOADER.dlopen.address()) }
}

#[cfg(not(shim))]
pub(crate) fn dlmopen() -> Dlmopen {
    // SAFETY: as in `dlsym`.
    unsafe { core::mem::transmute::<*mut c_void, Dlmopen>(LOADER.dlmopen.address()) }
}

#[cfg(not(shim))]
pub(crate) fn dladdr() -> Dladdr {
    // SAFETY: libc's `dladdr`, or a function of the same arguments that returns 0, "nothing".
    unsafe { core::mem::transmute::<*mut c_void, Dladdr>(LOADER.dladdr.address()) }
}

#[cfg(not(shim))]
pub(crate) fn dlclose() -> Dlclose {
    // SAFETY: as in `dladdr`.
    unsafe { core::mem::transmute::<*mut c_void, Dlclose>(LOADER.dlclose.address()) }
}

/// Stands in for a function that cannot be found, as in no libc we know. Programs then find
/// nothing, which is better than a jump to nowhere. Further arguments are ignored.
extern "C" fn find_nothing(_handle: *mut c_void, _symbol: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

/// Result of a function behind [`or_jump!`] for "behave as if we were not there".
#[cfg(not(shim))]
pub(crate) const JUMP: *mut c_void = ptr::null_mut();
/// Result for "nothing", which the caller gets as null.
#[cfg(not(shim))]
pub(crate) const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

/// Pushes a register in an assembly function, with the unwind information.
#[cfg(all(not(shim), target_arch = "x86_64"))]
macro_rules! push {
    ($register:literal) => {
        concat!("push ", $register, "\n.cfi_adjust_cfa_offset 8")
    };
}
#[cfg(all(not(shim), target_arch = "x86_64"))]
pub(crate) use push;

#[cfg(all(not(shim), target_arch = "x86_64"))]
macro_rules! pop {
    ($register:literal) => {
        concat!("pop ", $register, "\n.cfi_adjust_cfa_offset -8")
    };
}
#[cfg(all(not(shim), target_arch = "x86_64"))]
pub(crate) use pop;

/// Defines an exported function of up to three arguments. `$decide` gets the three arguments, and
/// the return address as the fourth. It returns the caller's result, or [`JUMP`] or [`ABSENT`]. The
/// jump goes to `$real`, of [`LOADER`]; `$decide` must have asked for its address.
#[cfg(not(shim))]
macro_rules! or_jump {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), $decide:path, $real:ident) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                // Keep the arguments; with the return address the stack is aligned for the call.
                $crate::platform::loader::push!("rdi"),
                $crate::platform::loader::push!("rsi"),
                $crate::platform::loader::push!("rdx"),
                // The return address lies above them.
                "mov rcx, qword ptr [rsp + 24]",
                "call {decide}",
                $crate::platform::loader::pop!("rdx"),
                $crate::platform::loader::pop!("rsi"),
                $crate::platform::loader::pop!("rdi"),
                "test rax, rax",
                "jz 2f",
                "cmp rax, 1",
                "je 3f",
                "ret",
                "2:",
                "mov rax, qword ptr [rip + {loader} + {offset}]",
                "jmp rax",
                "3:",
                "xor eax, eax",
                "ret",
                ".cfi_endproc",
                decide = sym $decide,
                loader = sym $crate::platform::loader::LOADER,
                offset = const core::mem::offset_of!($crate::platform::loader::Loader, $real)
                    + $crate::platform::loader::Real::ADDRESS_OFFSET,
            )
        }

        $(#[$doc])*
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x29, sp",
                "mov x3, x30",
                "bl {decide}",
                "mov x9, x0",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                // Restore the return address: libc's function must see our caller's.
                "ldp x29, x30, [sp], #48",
                "cbz x9, 2f",
                "cmp x9, #1",
                "b.eq 3f",
                "mov x0, x9",
                "ret",
                "2:",
                "adrp x16, {loader}",
                "add x16, x16, :lo12:{loader}",
                "ldr x16, [x16, #{offset}]",
                "br x16",
                "3:",
                "mov x0, xzr",
                "ret",
                decide = sym $decide,
                loader = sym $crate::platform::loader::LOADER,
                offset = const core::mem::offset_of!($crate::platform::loader::Loader, $real)
                    + $crate::platform::loader::Real::ADDRESS_OFFSET,
            )
        }
    };
}
#[cfg(not(shim))]
pub(crate) use or_jump;

#[cfg(all(test, not(shim)))]
mod tests {
    use super::*;

    #[test]
    fn the_real_functions_are_libcs() {
        let Loader {
            dlsym,
            dlvsym,
            dlopen,
            dlmopen,
            ..
        } = &LOADER;
        for real in [dlsym, dlvsym, dlopen, dlmopen] {
            let address = real.address();
            assert_ne!(address, find_nothing as *mut c_void, "{:?}", real.name);
            assert_eq!(address, real.address());
        }
        assert_ne!(
            LOADER.dlsym.address(),
            crate::doors::dlsym::dlsym as *mut c_void
        );
    }
}

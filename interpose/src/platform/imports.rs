//! Weak imports: functions that not every C library has. A job starts programs of every kind, some
//! linked with another C library than CUDA's (mostly musl). Their dynamic linker preloads us as
//! well, and ends the program if a symbol that we need is missing. Functions that only glibc has
//! are therefore referenced weakly: if missing, their address is null, and the code here answers
//! instead. None is needed before a program touches CUDA, which such programs cannot. `build.rs`
//! makes the linker (`--wrap`) redirect every reference to `x`, also in the standard library and in
//! GCC's unwinder, to `__wrap_x` here; `__real_x` is libc's.
//! - `__tls_get_addr`: thread-locals. In glibc it is part of the dynamic linker, a separate
//!   library that others do not have. Every dynamic linker has the function.
//! - `_dl_find_object`: unwinds a panic, since glibc 2.35. If missing: -1, not found: panics abort.
//! - `__register_atfork`: `pthread_atfork` calls it. If missing: an error; the process is
//!   unmanaged.

#![expect(unsafe_code, reason = "a weak reference takes assembly")]

/// Defines `__wrap_x`, which jumps to `__real_x`, or returns a number if there is none.
macro_rules! import_weakly {
    ($wrap:literal, $real:literal, $missing:literal) => {
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            concat!(".weak ", $real),
            concat!(".globl ", $wrap),
            concat!(".hidden ", $wrap),
            concat!(".type ", $wrap, ", @function"),
            concat!($wrap, ":"),
            "endbr64",
            concat!("mov rax, qword ptr [rip + ", $real, "@GOTPCREL]"),
            "test rax, rax",
            "jz 2f",
            "jmp rax",
            "2:",
            concat!("mov rax, ", $missing),
            "ret",
            concat!(".size ", $wrap, ", . - ", $wrap),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(
            concat!(".weak ", $real),
            concat!(".globl ", $wrap),
            concat!(".hidden ", $wrap),
            concat!(".type ", $wrap, ", %function"),
            concat!($wrap, ":"),
            "hint #34",
            concat!("adrp x16, :got:", $real),
            concat!("ldr x16, [x16, :got_lo12:", $real, "]"),
            "cbz x16, 2f",
            "br x16",
            "2:",
            concat!("mov x0, ", $missing),
            "ret",
            concat!(".size ", $wrap, ", . - ", $wrap),
        );
    };
}

import_weakly!("__wrap__dl_find_object", "__real__dl_find_object", "-1");
// ENOMEM, the only error of `pthread_atfork`.
import_weakly!("__wrap___register_atfork", "__real___register_atfork", "12");

// Thread-locals are read on every hooked call, so there is no check here: a dynamic linker that
// loads a library with thread-locals has the function. (aarch64 uses TLS descriptors instead.)
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".weak __real___tls_get_addr",
    ".globl __wrap___tls_get_addr",
    ".hidden __wrap___tls_get_addr",
    ".type __wrap___tls_get_addr, @function",
    "__wrap___tls_get_addr:",
    "jmp qword ptr [rip + __real___tls_get_addr@GOTPCREL]",
    ".size __wrap___tls_get_addr, . - __wrap___tls_get_addr",
);

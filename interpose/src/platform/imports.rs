//! What is imported weakly: functions that not every C library has.
//!
//! A job starts programs of every kind, some of them linked with another C library than the one that
//! CUDA needs (musl in most cases). Its dynamic linker preloads us as well, and ends the program if we
//! need a symbol that is not there. So what only glibc has is referred to weakly: where it is missing
//! its address is null, and what stands here answers in its place. None of it is needed before a
//! program touches CUDA, which such programs cannot.
//!
//! `build.rs` has the linker (`--wrap`) send every reference to `x`, those in the standard library and
//! in GCC's unwinder too, to `__wrap_x` here; `__real_x` is libc's.
//!
//! | function | used for | if it is missing |
//! |---|---|---|
//! | `__tls_get_addr` | thread locals; in glibc's dynamic linker, which is a library of its own that others have not got | every dynamic linker has one |
//! | `_dl_find_object` | unwinding a panic, since glibc 2.35 | -1, not found: a panic aborts |
//! | `__register_atfork` | learning of forks; what `pthread_atfork` becomes | an error: the process stays unmanaged |

#![expect(unsafe_code, reason = "a weak reference takes assembly")]

/// Defines `__wrap_x`, which jumps to `__real_x` or, if there is none, returns a number.
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
// ENOMEM, the one error that `pthread_atfork` has.
import_weakly!("__wrap___register_atfork", "__real___register_atfork", "12");

// Thread locals are read on every hooked call, so nothing is asked here: a dynamic linker that loads
// a library with thread locals has the function. (On aarch64 they are found through descriptors.)
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

//! The shim's exports of entry points that are not ours: each jumps to the driver's own.
//!
//! The address is looked up at the first call, with all registers that can carry arguments kept. An
//! entry point that the driver does not have answers CUDA_ERROR_NOT_FOUND. `cuGetExportTable` is
//! among these, like any other: the driver answers it, with the stack as its caller left it.

use core::ffi::c_void;

use abi::types::CUresult;

use crate::real;

macro_rules! trampolines {
    ($($name:ident)*) => {$(
        /// Jumps to the driver's function of this name.
        ///
        /// # Safety
        /// As the driver's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "x86_64")]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "mov r11, qword ptr [rip + {found} + {offset}]",
                // 0 was not looked up, 1 is not there.
                "cmp r11, 1",
                "jbe 2f",
                "jmp r11",
                "2:",
                "mov r11d, {index}",
                "jmp {slow}",
                found = sym real::FOUND,
                offset = const abi::id::$name * size_of::<usize>(),
                index = const abi::id::$name,
                slow = sym look_up_and_jump,
            )
        }

        /// Jumps to the driver's function of this name.
        ///
        /// # Safety
        /// As the driver's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[cfg(target_arch = "aarch64")]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "mov w9, #{index}",
                "b {slow}",
                index = const abi::id::$name,
                slow = sym look_up_and_jump,
            )
        }
    )*};
}

abi::for_each_passed! { trampolines }

/// Jumps to the entry point whose index is in `r11`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn look_up_and_jump() {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // Eight vector registers, and eight bytes that align the stack for the call.
        "sub rsp, 136",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov edi, r11d",
        "call {resolve}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 136",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        resolve = sym resolve,
    )
}

/// Jumps to the entry point whose index is in `w9`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn look_up_and_jump() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-208]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "stp q0, q1, [sp, #80]",
        "stp q2, q3, [sp, #112]",
        "stp q4, q5, [sp, #144]",
        "stp q6, q7, [sp, #176]",
        "mov w0, w9",
        "bl {resolve}",
        "mov x16, x0",
        "ldp q6, q7, [sp, #176]",
        "ldp q4, q5, [sp, #144]",
        "ldp q2, q3, [sp, #112]",
        "ldp q0, q1, [sp, #80]",
        "ldp x6, x7, [sp, #64]",
        "ldp x4, x5, [sp, #48]",
        "ldp x2, x3, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #208",
        "br x16",
        resolve = sym resolve,
    )
}

/// Where a trampoline goes.
extern "C" fn resolve(index: u32) -> *mut c_void {
    real::entry_point(index as usize).map_or(answer_missing as *mut c_void, |found| found.as_ptr())
}

/// In the place of an entry point that the driver does not have.
extern "C" fn answer_missing() -> CUresult {
    real::missing()
}

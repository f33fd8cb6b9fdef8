//! The hooks of operators, made from the list in `abi`. Each is two functions. Programs are bound
//! to the *export*, under the library's own name. It determines which library's function this call
//! would have reached without us ([`sites::decide`]) and jumps there, or, for the labelled library,
//! to the *hook*, with unchanged arguments. `dlsym` gives the hook.

#![expect(
    unsafe_code,
    reason = "hooks are C functions, called with the application's pointers"
)]

use core::ffi::{c_int, c_void};

use abi::OPERATOR_COUNT;

use super::{describe, pass, sites};

type Function = unsafe extern "C-unwind" fn();

macro_rules! operator_hooks {
    ($({
        $index:literal $name:ident $form:ident [$($stated:expr),*]
        ($first:ident: $first_type:ty $(, $argument:ident: $type:ty)*)
    })*) => {
        $(
            mod $name {
                use super::*;

                /// Safety: as the library's function.
                #[allow(clippy::too_many_arguments, reason = "the prototype is the library's")]
                pub(super) unsafe extern "C-unwind" fn hook(
                    $first: $first_type $(, $argument: $type)*
                ) -> c_int {
                    // SAFETY: the library's function of this symbol, typed as `abi`'s prototype.
                    let real = unsafe {
                        core::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C-unwind" fn($first_type $(, $type)*) -> c_int,
                        >(sites::real($index))
                    };
                    pass(
                        $index,
                        || describe::$form($index, $first $(, $stated)*),
                        // SAFETY: the application's own arguments, passed on.
                        || unsafe { real($first $(, $argument)*) },
                    )
                }

                export! { $index $name }
            }
        )*

        /// The hooks, in the order of [`abi::OPERATORS`].
        static HOOKS: [Function; OPERATOR_COUNT] = [$(
            // SAFETY: only the address is used.
            unsafe { core::mem::transmute::<*const (), Function>($name::hook as *const ()) },
        )*];

        static EXPORTS: [Function; OPERATOR_COUNT] = [$(
            // SAFETY: only the address is used.
            unsafe { core::mem::transmute::<*const (), Function>($name::$name as *const ()) },
        )*];
    };
}

/// Defines the export of an operator: a jump to the address from [`sites::decide`]. It preserves
/// all registers that may hold arguments, all callee-saved ones, and the stack.
macro_rules! export {
    ($index:literal $name:ident) => {
        /// The export. Safety: as the library's function.
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                $crate::platform::loader::push!("rdi"),
                $crate::platform::loader::push!("rsi"),
                $crate::platform::loader::push!("rdx"),
                $crate::platform::loader::push!("rcx"),
                $crate::platform::loader::push!("r8"),
                $crate::platform::loader::push!("r9"),
                // Two of the operators take numbers in these; eight bytes more align the stack.
                "sub rsp, 40",
                ".cfi_adjust_cfa_offset 40",
                "movaps xmmword ptr [rsp], xmm0",
                "movaps xmmword ptr [rsp + 16], xmm1",
                "mov edi, {index}",
                "mov rsi, qword ptr [rsp + 88]",
                "call {decide}",
                "movaps xmm1, xmmword ptr [rsp + 16]",
                "movaps xmm0, xmmword ptr [rsp]",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                $crate::platform::loader::pop!("r9"),
                $crate::platform::loader::pop!("r8"),
                $crate::platform::loader::pop!("rcx"),
                $crate::platform::loader::pop!("rdx"),
                $crate::platform::loader::pop!("rsi"),
                $crate::platform::loader::pop!("rdi"),
                "jmp rax",
                ".cfi_endproc",
                index = const $index,
                decide = sym sites::decide,
            )
        }

        /// The export. Safety: as the library's function.
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-112]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp q0, q1, [sp, #80]",
                "mov x1, x30",
                "mov x0, #{index}",
                "mov x29, sp",
                "bl {decide}",
                "mov x16, x0",
                "ldp q0, q1, [sp, #80]",
                "ldp x6, x7, [sp, #64]",
                "ldp x4, x5, [sp, #48]",
                "ldp x2, x3, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #112",
                "br x16",
                index = const $index,
                decide = sym sites::decide,
            )
        }
    };
}

abi::for_each_operator! { operator_hooks }

pub(super) fn hook_of(index: usize) -> Option<*mut c_void> {
    HOOKS.get(index).map(|hook| *hook as *mut c_void)
}

pub(super) fn export_of(index: usize) -> Option<*mut c_void> {
    EXPORTS.get(index).map(|export| *export as *mut c_void)
}

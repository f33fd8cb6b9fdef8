//! A thread-local word for the hook that the thread is inside of, at a fixed offset from the thread
//! pointer (TLS model "initial exec", ELF Handling For Thread-Local Storage, section 4.3.6). The
//! compiler's model for a library, "global dynamic", calls `__tls_get_addr`. After other code has
//! loaded libraries with thread-locals, that call updates the thread's table and calls `malloc`: a
//! signal handler that reads such a word while its thread is inside `malloc` deadlocks. This word
//! is in the block that the dynamic linker gives every thread of a process started with us, and
//! costs a load and an addition. The shim is loaded later and handles no signal, so it keeps the
//! compiler's model: one "initial exec" variable puts all thread-locals of a library (some 300
//! bytes) into that block, which may have no room left.

#![cfg_attr(
    not(shim),
    expect(
        unsafe_code,
        reason = "reads a word at a distance from the thread's pointer"
    )
)]

use core::cell::Cell;

#[cfg(shim)]
thread_local! {
    static WORD: Cell<usize> = const { Cell::new(0) };
}

#[cfg(not(shim))]
core::arch::global_asm!(
    ".pushsection .tbss.pillion_inside, \"awT\", @nobits",
    ".p2align 3",
    ".globl pillion_inside",
    ".hidden pillion_inside",
    ".type pillion_inside, @object",
    ".size pillion_inside, 8",
    "pillion_inside:",
    ".zero 8",
    ".popsection",
);

/// Calls `look` with the calling thread's word, initially 0. Safe in a signal handler.
#[inline]
pub(crate) fn with<T>(look: impl FnOnce(&Cell<usize>) -> T) -> T {
    #[cfg(shim)]
    return WORD.with(look);
    // SAFETY: eight aligned bytes of this thread's own, zero at first and valid until it ends; the
    // reference does not outlive `look`, during which the thread lives.
    #[cfg(not(shim))]
    look(unsafe { &*address() })
}

#[cfg(all(not(shim), target_arch = "x86_64"))]
#[inline]
fn address() -> *const Cell<usize> {
    let address;
    // SAFETY: reads the word's offset from the table that the dynamic linker has filled in, and the
    // thread pointer, which the ABI keeps at its own first word.
    unsafe {
        core::arch::asm!(
            "mov {address}, qword ptr [rip + pillion_inside@GOTTPOFF]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    address
}

#[cfg(all(not(shim), target_arch = "aarch64"))]
#[inline]
fn address() -> *const Cell<usize> {
    let address;
    // SAFETY: as above; the thread pointer is a register.
    unsafe {
        core::arch::asm!(
            "adrp {address}, :gottprel:pillion_inside",
            "ldr {address}, [{address}, #:gottprel_lo12:pillion_inside]",
            "mrs {thread}, tpidr_el0",
            "add {address}, {address}, {thread}",
            address = out(reg) address,
            thread = out(reg) _,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_word_which_is_zero_at_first() {
        with(|word| word.set(7));
        let of_another = std::thread::spawn(|| {
            let first = with(Cell::get);
            with(|word| word.set(8));
            (first, with(Cell::get))
        });
        assert_eq!(of_another.join().unwrap(), (0, 8));
        assert_eq!(with(Cell::get), 7);
    }
}

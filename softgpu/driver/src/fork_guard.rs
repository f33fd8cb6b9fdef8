//! The process's mode, in a word that is cleared in forked children. CUDA does not survive `fork`:
//! in a child of a process that called `cuInit` every call returns CUDA_ERROR_NOT_INITIALIZED. The
//! kernel clears the word (`MADV_WIPEONFORK`), however the child was created, so a call costs one
//! load and no system call.

#![expect(
    unsafe_code,
    reason = "maps a page that children of a fork find cleared"
)]

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Uninitialised,
    /// `cuInit` succeeded in a parent of this process.
    Forked,
    /// There is no server, and calls have no effect.
    Null,
    Live,
}

const NULL: u32 = 1;
const LIVE: u32 = 2;
const WORD_BYTES: usize = 4096;

static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

#[inline]
pub(crate) fn mode() -> Mode {
    // Acquire pairs with the Release in `initialised`: seeing the word means seeing the driver.
    let word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        return Mode::Uninitialised;
    }
    // SAFETY: only `initialised` stores here, an address never unmapped, which children inherit.
    let word = unsafe { &*word };
    match word.load(Ordering::Relaxed) {
        NULL => Mode::Null,
        LIVE => Mode::Live,
        _ => Mode::Forked,
    }
}

/// Records that `cuInit` succeeded. Called once.
pub(crate) fn initialised(is_null: bool) -> io::Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh private mapping chosen by the kernel aliases nothing.
    let address = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            WORD_BYTES,
            protection,
            MapFlags::PRIVATE,
        )?
    };
    // SAFETY: exactly the mapping made above; the advice takes effect only at forks.
    unsafe { madvise(address, WORD_BYTES, Advice::LinuxWipeOnFork)? };
    let word: *mut AtomicU32 = address.cast();
    // SAFETY: mapped, zeroed, page-aligned memory is a valid `AtomicU32`, and is never unmapped.
    unsafe { &*word }.store(if is_null { NULL } else { LIVE }, Ordering::Relaxed);
    WORD.store(word, Ordering::Release);
    Ok(())
}

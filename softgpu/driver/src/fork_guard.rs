//! Which mode this process is in, in a word that a forked child finds cleared.
//!
//! CUDA does not survive `fork`: a child of a process that called `cuInit` gets
//! CUDA_ERROR_NOT_INITIALIZED from every call. The kernel clears the word for us
//! (`MADV_WIPEONFORK`), whichever way the child was made, so a call costs one load and no system
//! call.

#![expect(
    unsafe_code,
    reason = "maps a page that children of a fork find cleared"
)]

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// What calls may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `cuInit` has not succeeded.
    Uninitialised,
    /// It has, in a parent of this process.
    Forked,
    /// There is no server and nothing is done.
    Null,
    /// There is a server.
    Live,
}

const NULL: u32 = 1;
const LIVE: u32 = 2;
const WORD_BYTES: usize = 4096;

static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// The mode of this process.
#[inline]
pub(crate) fn mode() -> Mode {
    // Acquire pairs with the Release in `initialised`: who sees the word sees the driver behind it.
    let word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        return Mode::Uninitialised;
    }
    // SAFETY: only `initialised` stores here, an address that stays mapped for good; a child
    // inherits the mapping.
    let word = unsafe { &*word };
    match word.load(Ordering::Relaxed) {
        NULL => Mode::Null,
        LIVE => Mode::Live,
        _ => Mode::Forked,
    }
}

/// `cuInit` succeeded. Called once.
pub(crate) fn initialised(is_null: bool) -> io::Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
    let address = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            WORD_BYTES,
            protection,
            MapFlags::PRIVATE,
        )?
    };
    // SAFETY: exactly the mapping made above; the advice takes effect at forks only.
    unsafe { madvise(address, WORD_BYTES, Advice::LinuxWipeOnFork)? };
    let word: *mut AtomicU32 = address.cast();
    // SAFETY: mapped, zeroed, page-aligned memory is a valid `AtomicU32`, and is never unmapped.
    unsafe { &*word }.store(if is_null { NULL } else { LIVE }, Ordering::Relaxed);
    WORD.store(word, Ordering::Release);
    Ok(())
}

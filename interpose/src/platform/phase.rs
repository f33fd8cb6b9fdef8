//! Where this process stands on its way from never having heard of CUDA to a client of daemons.
//!
//! [`crate::daemon::lifecycle`] moves it from one phase to the next; everything else only looks.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::platform::inherited::INHERITED;
use crate::platform::sys;

/// Where this process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The environment has not been read: no hook was called since `cuInit` succeeded.
    Unread,
    /// No context yet, or the first one's thread still talks to the daemon.
    Virgin,
    /// A client of one daemon at least, or of one to come.
    Attached,
    /// Not managed, but hooks still go through the door: this process keeps its quota of memory by
    /// itself, or a test wants one to panic.
    Idle,
    /// Not managed so far; only hooks that may change that do anything.
    Unmanaged,
    /// Not managed for good; hooks forward at once.
    Inert,
}

/// The phase, alone on its page. From the first attempt to attach on, a child finds the page
/// cleared, however it was made: a `clone` without `fork` tells nobody, and the parent's pages,
/// which are not mapped in the child, would crash it.
#[repr(C, align(4096))]
struct PhasePage(AtomicU8);

static PAGE: PhasePage = PhasePage(AtomicU8::new(Phase::Unread as u8));

/// Where this process stands.
#[inline]
pub(crate) fn now() -> Phase {
    // Acquire pairs with the Release store in `enter`: who sees Attached sees a client.
    match PAGE.0.load(Ordering::Acquire) {
        0 => Phase::Unread,
        1 => Phase::Virgin,
        2 => Phase::Attached,
        3 => Phase::Idle,
        4 => Phase::Unmanaged,
        _ => Phase::Inert,
    }
}

/// Whether this process is a client of any daemon.
#[inline]
pub(crate) fn is_attached() -> bool {
    now() == Phase::Attached
}

/// Whether this process is none of our business.
pub(crate) fn is_inert() -> bool {
    now() == Phase::Inert
}

pub(crate) fn enter(phase: Phase) {
    // Release pairs with the Acquire load in `now`.
    PAGE.0.store(phase as u8, Ordering::Release);
}

pub(crate) fn try_change(from: Phase, to: Phase) -> bool {
    PAGE.0
        .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// Whether an attempt to attach was made, in this process or one that it descends from. After that
/// only a child is [`Phase::Unread`].
pub(crate) fn has_begun() -> bool {
    // Acquire pairs with the Release in `note_begun`, which a parent may have run.
    INHERITED.has_begun.load(Ordering::Acquire)
}

/// An attempt to attach is about to be made.
pub(crate) fn note_begun() {
    // Release pairs with the Acquire in `has_begun`, which a child may run.
    INHERITED.has_begun.store(true, Ordering::Release);
}

/// Has children find the phase cleared, however they are made; whether the kernel can do that.
pub(crate) fn clear_in_children() -> bool {
    sys::clear_in_children(&PAGE)
}

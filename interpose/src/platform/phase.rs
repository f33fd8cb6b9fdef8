//! The process's phase, from not having touched CUDA to being a client of daemons.
//! [`crate::daemon::lifecycle`] changes it, besides `dispatch::environment` (first) and
//! `driver::real::program` (to Inert).

use core::sync::atomic::{AtomicU8, Ordering};

use crate::platform::inherited::INHERITED;
use crate::platform::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No hook was called since `cuInit` succeeded. The environment may not be read yet.
    Unread,
    /// No context yet, or the first one's thread still talks to the daemon.
    Virgin,
    /// A client of at least one daemon, or of one to come.
    Attached,
    /// Not managed, but hooks still go through the guard: this process keeps its memory quota by
    /// itself, or a test makes one panic.
    Idle,
    /// Not managed so far; only hooks that may change that do anything.
    Unmanaged,
    /// Never managed; hooks forward at once.
    Inert,
}

/// The phase, alone on its page. Once a process has tried to attach, children find the page
/// cleared, however they were made: a `clone` without `fork` runs no handler, and accessing the
/// parent's shared pages, which are not mapped in the child, would crash it.
#[repr(C, align(4096))]
struct PhasePage(AtomicU8);

static PAGE: PhasePage = PhasePage(AtomicU8::new(Phase::Unread as u8));

#[inline]
pub(crate) fn now() -> Phase {
    // Acquire pairs with the Release store in `enter`: a thread that sees Attached sees a client.
    match PAGE.0.load(Ordering::Acquire) {
        0 => Phase::Unread,
        1 => Phase::Virgin,
        2 => Phase::Attached,
        3 => Phase::Idle,
        4 => Phase::Unmanaged,
        _ => Phase::Inert,
    }
}

#[inline]
pub(crate) fn is_attached() -> bool {
    now() == Phase::Attached
}

pub(crate) fn is_inert() -> bool {
    now() == Phase::Inert
}

pub(crate) fn enter(phase: Phase) {
    // Release pairs with the Acquire load in `now`.
    PAGE.0.store(phase as u8, Ordering::Release);
}

pub(crate) fn try_change(from: Phase, to: Phase) -> bool {
    // AcqRel: as in `now` and `enter`.
    PAGE.0
        .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// Whether this process or an ancestor has tried to attach. If so, [`Phase::Unread`] means a child.
pub(crate) fn has_begun() -> bool {
    // Acquire pairs with the Release in `note_begun`, which a parent may have run.
    INHERITED.has_begun.load(Ordering::Acquire)
}

pub(crate) fn note_begun() {
    // Release pairs with the Acquire in `has_begun`, which a child may run.
    INHERITED.has_begun.store(true, Ordering::Release);
}

/// Makes children, however made, find the phase cleared. Returns whether the kernel can do that.
pub(crate) fn clear_in_children() -> bool {
    sys::clear_in_children(&PAGE)
}

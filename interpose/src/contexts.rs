//! Which contexts this process has, and on which devices.
//!
//! Nearly every process has one, and then nothing here is asked on the launch path. With more, the
//! stream handles that every context has (the default streams) must be told apart, and streams of
//! another device than the one whose daemon we are attached to are not managed.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use abi::types::{CUcontext, CUdevice};

use crate::client::Handle;
use crate::driver;

/// The contexts of this process.
pub(crate) static CONTEXTS: Contexts = Contexts::new();

/// Most contexts that are told apart; those beyond are not managed.
const CONTEXTS_MAX: usize = 64;

/// A set of contexts with their devices.
pub(crate) struct Contexts {
    entries: [Entry; CONTEXTS_MAX],
    used: AtomicU32,
}

struct Entry {
    /// The handle; 0 is free.
    context: AtomicU64,
    /// The ordinal.
    device: AtomicU32,
    /// Whether it is its device's primary context, which ends by another call.
    is_primary: AtomicBool,
}

/// How a context was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The one that all of a process share, made when it is first retained.
    Primary,
    /// One that somebody created.
    Created,
}

impl Contexts {
    const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    context: AtomicU64::new(0),
                    device: AtomicU32::new(0),
                    is_primary: AtomicBool::new(false),
                }
            }; CONTEXTS_MAX],
            used: AtomicU32::new(0),
        }
    }

    /// Notes a context and its device. One that does not fit is not known.
    pub(crate) fn handle_created(&self, context: CUcontext, device: CUdevice, kind: Kind) {
        let handle = Handle::from(context).0;
        let holds = |entry: &&Entry| entry.context.load(Ordering::Relaxed) == handle;
        let take = |entry: &&Entry| {
            let taken = entry
                .context
                .compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
            if taken {
                self.used.fetch_add(1, Ordering::Relaxed);
            }
            taken
        };
        let mut entries = self.entries.iter();
        let known = entries.clone().find(holds);
        if let Some(entry) = known.or_else(|| entries.find(take)) {
            entry.device.store(device.0 as u32, Ordering::Relaxed);
            entry
                .is_primary
                .store(kind == Kind::Primary, Ordering::Relaxed);
        }
    }

    /// Forgets a context that was destroyed.
    pub(crate) fn handle_destroyed(&self, context: CUcontext) {
        let handle = Handle::from(context).0;
        for entry in &self.entries {
            let swapped =
                entry
                    .context
                    .compare_exchange(handle, 0, Ordering::Relaxed, Ordering::Relaxed);
            if swapped.is_ok() {
                self.used.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The primary context of a device, if it was seen.
    pub(crate) fn primary_of(&self, device: CUdevice) -> Option<CUcontext> {
        let entry = self.entries.iter().find(|entry| {
            entry.context.load(Ordering::Relaxed) != 0
                && entry.is_primary.load(Ordering::Relaxed)
                && entry.device.load(Ordering::Relaxed) == device.0 as u32
        })?;
        Some(Handle(entry.context.load(Ordering::Relaxed)).context())
    }

    /// Whether default streams are ambiguous.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.used.load(Ordering::Relaxed) > 1
    }

    /// The device of a context, if it was seen.
    pub(crate) fn device_of(&self, context: CUcontext) -> Option<CUdevice> {
        let handle = Handle::from(context).0;
        self.entries
            .iter()
            .find(|entry| entry.context.load(Ordering::Relaxed) == handle)
            .map(|entry| CUdevice(entry.device.load(Ordering::Relaxed) as i32))
    }

    /// The same, asking the driver about a context that was made behind our back.
    pub(crate) fn device_or_ask(&self, context: CUcontext) -> Option<CUdevice> {
        if let Some(device) = self.device_of(context) {
            return Some(device);
        }
        let device = driver::with_context(context, driver::current_device)
            .ok()?
            .ok()?;
        self.handle_created(context, device, Kind::Created);
        Some(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(address: usize) -> CUcontext {
        CUcontext(core::ptr::without_provenance_mut(address))
    }

    const PRIMARY: Kind = Kind::Primary;

    #[test]
    fn a_context_is_one_however_often_it_is_retained() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0), PRIMARY);
        contexts.handle_created(context(8), CUdevice(0), PRIMARY);
        assert!(!contexts.are_several());
        contexts.handle_created(context(16), CUdevice(1), PRIMARY);
        assert!(contexts.are_several());
        assert_eq!(contexts.device_of(context(16)), Some(CUdevice(1)));
        assert_eq!(contexts.device_of(context(24)), None);
    }

    #[test]
    fn a_destroyed_context_is_one_less_and_its_address_may_come_back() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0), PRIMARY);
        contexts.handle_created(context(16), CUdevice(0), Kind::Created);
        contexts.handle_destroyed(context(8));
        assert!(!contexts.are_several());
        assert_eq!(contexts.device_of(context(8)), None);
        contexts.handle_created(context(8), CUdevice(1), Kind::Created);
        assert_eq!(contexts.device_of(context(8)), Some(CUdevice(1)));
    }

    #[test]
    fn a_devices_primary_context_is_told_from_its_others() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0), Kind::Created);
        assert_eq!(contexts.primary_of(CUdevice(0)), None);
        contexts.handle_created(context(16), CUdevice(0), PRIMARY);
        contexts.handle_created(context(24), CUdevice(1), PRIMARY);
        assert_eq!(contexts.primary_of(CUdevice(0)), Some(context(16)));
    }

    #[test]
    fn more_contexts_than_fit_are_not_known() {
        let contexts = Contexts::new();
        for address in 1..=CONTEXTS_MAX + 1 {
            contexts.handle_created(context(8 * address), CUdevice(0), PRIMARY);
        }
        assert_eq!(contexts.device_of(context(8 * (CONTEXTS_MAX + 1))), None);
    }
}

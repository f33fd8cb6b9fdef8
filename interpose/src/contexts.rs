//! Which contexts this process has, and on which devices.
//!
//! Nearly every process has one, and then nothing here is asked on the launch path. With more, the
//! stream handles that every context has (the default streams) must be told apart, and streams of
//! another device than the one whose daemon we are attached to are not managed.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::types::{CUcontext, CUdevice};

use crate::driver;

/// The contexts of this process.
pub(crate) static CONTEXTS: Contexts = Contexts::new();

/// Most contexts that are told apart; those beyond are not managed.
const CONTEXTS_MAX: usize = 64;

/// A set of contexts with their devices, filled from the front, never emptied: an address that the
/// driver uses again takes over its entry.
pub(crate) struct Contexts {
    entries: [Entry; CONTEXTS_MAX],
    used: AtomicU32,
}

struct Entry {
    /// The handle; 0 is free.
    context: AtomicU64,
    /// The ordinal.
    device: AtomicU32,
}

impl Contexts {
    const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    context: AtomicU64::new(0),
                    device: AtomicU32::new(0),
                }
            }; CONTEXTS_MAX],
            used: AtomicU32::new(0),
        }
    }

    /// Notes a context and its device.
    pub(crate) fn handle_created(&self, context: CUcontext, device: CUdevice) {
        let handle = context.0 as u64;
        for entry in &self.entries {
            let known =
                entry
                    .context
                    .compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed);
            match known {
                Ok(_) => {
                    entry.device.store(device.0 as u32, Ordering::Relaxed);
                    self.used.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(known) if known == handle => {
                    entry.device.store(device.0 as u32, Ordering::Relaxed);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Whether default streams are ambiguous.
    #[inline]
    pub(crate) fn are_several(&self) -> bool {
        self.used.load(Ordering::Relaxed) > 1
    }

    /// The device of a context, if it was seen.
    pub(crate) fn device_of(&self, context: CUcontext) -> Option<CUdevice> {
        let handle = context.0 as u64;
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
        self.handle_created(context, device);
        Some(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(address: usize) -> CUcontext {
        CUcontext(core::ptr::without_provenance_mut(address))
    }

    #[test]
    fn a_context_is_one_however_often_it_is_retained() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0));
        contexts.handle_created(context(8), CUdevice(0));
        assert!(!contexts.are_several());
        contexts.handle_created(context(16), CUdevice(1));
        assert!(contexts.are_several());
        assert_eq!(contexts.device_of(context(16)), Some(CUdevice(1)));
        assert_eq!(contexts.device_of(context(24)), None);
    }

    #[test]
    fn an_address_used_again_may_be_on_another_device() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0));
        contexts.handle_created(context(8), CUdevice(1));
        assert_eq!(contexts.device_of(context(8)), Some(CUdevice(1)));
    }

    #[test]
    fn more_contexts_than_fit_are_not_known() {
        let contexts = Contexts::new();
        for address in 1..=CONTEXTS_MAX + 1 {
            contexts.handle_created(context(8 * address), CUdevice(0));
        }
        assert_eq!(contexts.device_of(context(8 * (CONTEXTS_MAX + 1))), None);
    }
}

//! The contexts of this process, and their devices. Nearly every process has one context, and then
//! the launch path reads one word here. With several, the stream handles that every context has
//! (the default streams) must be distinguished. Reading takes no lock. Creating or destroying a
//! context takes one while it searches a small table.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use abi::types::{CUcontext, CUdevice};

use crate::driver;
use crate::process::Handle;
use crate::progress::waking;

pub(crate) static CONTEXTS: Contexts = Contexts::new();

/// Most contexts distinguished; those beyond are not managed.
const CONTEXTS_MAX: usize = 64;

pub(crate) struct Contexts {
    entries: [Entry; CONTEXTS_MAX],
    /// The handle of the only context; 0 if there is none, [`SEVERAL`] if there are several.
    only: AtomicU64,
    lock: Mutex<()>,
}

const SEVERAL: u64 = u64::MAX;

struct Entry {
    /// The handle; 0 is free.
    context: AtomicU64,
    device: AtomicU32,
    /// Whether it is its device's primary context, which ends by another call.
    is_primary: AtomicBool,
    /// How often it is attached to (`cuCtxAttach`), including its creation.
    uses: AtomicU32,
    is_mixed: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The one that the whole process shares, created when first retained.
    Primary,
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
                    uses: AtomicU32::new(0),
                    is_mixed: AtomicBool::new(false),
                }
            }; CONTEXTS_MAX],
            only: AtomicU64::new(0),
            lock: Mutex::new(()),
        }
    }

    /// Notes a context and its device. A context that does not fit stays unknown.
    pub(crate) fn handle_created(&self, context: CUcontext, device: CUdevice, kind: Kind) {
        let handle = Handle::from(context).0;
        let _locked = self.lock();
        let holding = |wanted: u64| {
            let holds = |entry: &&Entry| entry.context.load(Ordering::Relaxed) == wanted;
            self.entries.iter().find(holds)
        };
        if let Some(entry) = holding(handle).or_else(|| holding(0)) {
            entry.device.store(device.0 as u32, Ordering::Relaxed);
            // A retained context stays primary, even if another thread's launch notes it meanwhile.
            let is_known = entry.context.load(Ordering::Relaxed) == handle;
            if !is_known {
                entry.uses.store(1, Ordering::Relaxed);
                entry.is_mixed.store(false, Ordering::Relaxed);
            }
            let was_primary = is_known && entry.is_primary.load(Ordering::Relaxed);
            entry
                .is_primary
                .store(was_primary || kind == Kind::Primary, Ordering::Relaxed);
            // Release pairs with the Acquire in `device_of`: the device is there.
            entry.context.store(handle, Ordering::Release);
        }
        self.count_anew();
    }

    pub(crate) fn handle_attached(&self, context: CUcontext) {
        let _locked = self.lock();
        if let Some(entry) = self.entry_of(context) {
            entry.uses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Handles a detach. Returns whether it was the last, which destroys the context.
    pub(crate) fn handle_detached(&self, context: CUcontext) -> bool {
        let _locked = self.lock();
        // Ignore detaches beyond the known attaches.
        let detach = |uses: u32| uses.checked_sub(1);
        self.entry_of(context).is_some_and(|entry| {
            let before = entry
                .uses
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, detach);
            before.is_ok_and(|before| before == 1)
        })
    }

    fn entry_of(&self, context: CUcontext) -> Option<&Entry> {
        let handle = Handle::from(context).0;
        let is_its = |entry: &&Entry| entry.context.load(Ordering::Relaxed) == handle;
        self.entries.iter().find(is_its)
    }

    /// Whether the context has, or has had, a stream that the legacy stream orders: a blocking
    /// stream or a thread's default stream. True for a context that is not in the table.
    pub(crate) fn is_mixed(&self, context: Handle) -> bool {
        // SeqCst pairs with `set_mixed`: a helper sets its in-driver flag, then reads this.
        self.entry_of(context.context())
            .is_none_or(|entry| entry.is_mixed.load(Ordering::SeqCst))
    }

    /// Notes such a stream, before it is created. Returns whether it is the context's first.
    pub(crate) fn set_mixed(&self, context: Handle) -> bool {
        let entry = self.entry_of(context.context());
        entry.is_some_and(|entry| !entry.is_mixed.swap(true, Ordering::SeqCst))
    }

    pub(crate) fn handle_destroyed(&self, context: CUcontext) {
        let handle = Handle::from(context).0;
        let _locked = self.lock();
        for entry in &self.entries {
            if entry.context.load(Ordering::Relaxed) == handle {
                entry.context.store(0, Ordering::Relaxed);
            }
        }
        self.count_anew();
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        // A panic leaves the table consistent.
        self.lock
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn count_anew(&self) {
        let mut known = self.known();
        let only = match (known.next(), known.next()) {
            (None, _) => 0,
            (Some((only, _)), None) => only.0,
            _ => SEVERAL,
        };
        self.only.store(only, Ordering::Release);
    }

    fn known(&self) -> impl Iterator<Item = (Handle, CUdevice)> {
        self.entries.iter().filter_map(|entry| {
            // Acquire: see `handle_created`.
            let context = entry.context.load(Ordering::Acquire);
            let device = CUdevice(entry.device.load(Ordering::Relaxed) as i32);
            (context != 0).then_some((Handle(context), device))
        })
    }

    pub(crate) fn primary_of(&self, device: CUdevice) -> Option<CUcontext> {
        let entry = self.entries.iter().find(|entry| {
            entry.context.load(Ordering::Relaxed) != 0
                && entry.is_primary.load(Ordering::Relaxed)
                && entry.device.load(Ordering::Relaxed) == device.0 as u32
        })?;
        Some(Handle(entry.context.load(Ordering::Relaxed)).context())
    }

    #[inline]
    pub(crate) fn only(&self) -> Option<Handle> {
        let only = self.only.load(Ordering::Acquire);
        (only != 0 && only != SEVERAL).then_some(Handle(only))
    }

    /// The calling thread's context; asks the driver unless there is only one.
    pub(crate) fn current(&self) -> Option<Handle> {
        self.only().or_else(|| {
            let current = driver::current_context().ok()?;
            (!current.is_null()).then(|| Handle::from(current))
        })
    }

    pub(crate) fn on(&self, device: CUdevice) -> impl Iterator<Item = Handle> {
        let on_it = self.known().filter(move |(_, known)| *known == device);
        on_it.map(|(context, _)| context)
    }

    pub(crate) fn count_on(&self, device: CUdevice) -> usize {
        self.on(device).count()
    }

    pub(crate) fn device_of(&self, context: CUcontext) -> Option<CUdevice> {
        let handle = Handle::from(context);
        let mut known = self.known();
        let (_, device) = known.find(|(known, _)| *known == handle)?;
        Some(device)
    }

    /// As above; asks the driver about a context that was created behind our back.
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

/// A stream that the context's legacy stream orders is about to be created, or first used. Waits
/// until the helpers are out of the driver: then none of them treats the legacy stream as alone.
pub(crate) fn handle_ordered_stream(context: Handle) {
    if CONTEXTS.set_mixed(context) {
        waking::wait_until_all_out();
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
        assert_eq!(contexts.only(), Some(Handle(8)));
        contexts.handle_created(context(16), CUdevice(1), PRIMARY);
        assert_eq!(contexts.only(), None);
        assert_eq!(contexts.count_on(CUdevice(1)), 1);
        assert_eq!(contexts.device_of(context(16)), Some(CUdevice(1)));
        assert_eq!(contexts.device_of(context(24)), None);
    }

    #[test]
    fn a_destroyed_context_is_one_less_and_its_address_may_come_back() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0), PRIMARY);
        contexts.handle_created(context(16), CUdevice(0), Kind::Created);
        contexts.handle_destroyed(context(8));
        assert_eq!(contexts.only(), Some(Handle(16)));
        assert_eq!(contexts.device_of(context(8)), None);
        contexts.handle_created(context(8), CUdevice(1), Kind::Created);
        assert_eq!(contexts.device_of(context(8)), Some(CUdevice(1)));
    }

    #[test]
    fn a_context_goes_with_the_last_that_is_attached_to_it() {
        let contexts = Contexts::new();
        contexts.handle_created(context(8), CUdevice(0), Kind::Created);
        // Seen again, by a launch for example.
        contexts.handle_created(context(8), CUdevice(0), Kind::Created);
        contexts.handle_attached(context(8));
        assert!(!contexts.handle_detached(context(8)));
        assert!(contexts.handle_detached(context(8)));
        assert!(!contexts.handle_detached(context(8)), "not twice");
        contexts.handle_destroyed(context(8));
        contexts.handle_created(context(8), CUdevice(1), Kind::Created);
        assert!(
            contexts.handle_detached(context(8)),
            "another of that address"
        );
        assert!(
            !contexts.handle_detached(context(16)),
            "one that nobody knows"
        );
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

//! The application's events: the stream and mark that each was recorded behind. An application that
//! waits for its event shows, at no cost, that everything before it is complete. An event that is
//! not in the table, because it is full or was recorded in a capture, shows nothing. Nor does one
//! shared between processes: another process may have recorded it since.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::types::CUevent;

use crate::platform::table::Keys;
use crate::progress::slot::Mark;

/// Places for live events. Destroyed ones free their place, and past events do not slow down
/// searches ([`Keys`]). PyTorch keeps a few hundred; frameworks that pool them some thousand.
const EVENTS_MAX: usize = 1 << 15;
/// In place of a slot: the event is shared between processes.
const SHARED: u32 = u32::MAX;

pub(crate) struct Events {
    handles: Keys<EVENTS_MAX>,
    slots: [AtomicU32; EVENTS_MAX],
    /// 0: nothing known.
    marks: [AtomicU64; EVENTS_MAX],
}

impl Events {
    pub(super) const fn new() -> Self {
        Self {
            handles: Keys::new(),
            slots: [const { AtomicU32::new(0) }; EVENTS_MAX],
            marks: [const { AtomicU64::new(0) }; EVENTS_MAX],
        }
    }

    pub(crate) fn handle_recorded(&self, event: CUevent, behind: Mark) {
        let Some(place) = self.handles.insert(event.0 as u64) else {
            return;
        };
        if let (Some(slots), Some(marks)) = (self.slots.get(place), self.marks.get(place)) {
            if slots.load(Ordering::Acquire) == SHARED {
                return;
            }
            // Clear the mark while the slot changes; see `find`.
            marks.store(0, Ordering::Release);
            slots.store(behind.slot, Ordering::Release);
            marks.store(behind.mark, Ordering::Release);
        }
    }

    /// The event is shared with other processes, and shows nothing from now on. An application that
    /// records it in one thread while another shares it does not order the two either.
    pub(crate) fn handle_shared(&self, event: CUevent) {
        let Some(place) = self.handles.insert(event.0 as u64) else {
            return;
        };
        if let (Some(slots), Some(marks)) = (self.slots.get(place), self.marks.get(place)) {
            marks.store(0, Ordering::Release);
            slots.store(SHARED, Ordering::Release);
        }
    }

    /// The event was recorded where marks do not count: forget it.
    pub(crate) fn forget(&self, event: CUevent) {
        let place = self.handles.find(event.0 as u64);
        let slots = place.and_then(|place| self.slots.get(place));
        if slots.is_some_and(|slots| slots.load(Ordering::Acquire) != SHARED) {
            self.handle_destroyed(event);
        }
    }

    /// The event is about to be destroyed; its address may be reused.
    pub(crate) fn handle_destroyed(&self, event: CUevent) {
        let Some(place) = self.handles.find(event.0 as u64) else {
            return;
        };
        if let (Some(slots), Some(marks)) = (self.slots.get(place), self.marks.get(place)) {
            marks.store(0, Ordering::Release);
            slots.store(0, Ordering::Release);
            self.handles.remove(event.0 as u64);
        }
    }

    pub(crate) fn find(&self, event: CUevent) -> Option<Mark> {
        let place = self.handles.find(event.0 as u64)?;
        let marks = self.marks.get(place)?;
        let mark = marks.load(Ordering::Acquire);
        let slot = self.slots.get(place)?.load(Ordering::Acquire);
        // An unchanged mark means that slot and mark belong together.
        let is_whole = mark != 0 && marks.load(Ordering::Acquire) == mark;
        is_whole.then_some(Mark { slot, mark })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(slot: u32, mark: u64) -> Mark {
        Mark { slot, mark }
    }

    fn event(address: usize) -> CUevent {
        CUevent(core::ptr::without_provenance_mut(address))
    }

    #[test]
    fn an_event_stands_for_where_it_was_last_recorded() {
        static EVENTS: Events = Events::new();
        assert_eq!(EVENTS.find(event(64)), None);
        EVENTS.handle_recorded(event(64), mark(1, 10));
        EVENTS.handle_recorded(event(64), mark(2, 7));
        assert_eq!(EVENTS.find(event(64)), Some(mark(2, 7)));
        EVENTS.forget(event(64));
        assert_eq!(EVENTS.find(event(64)), None);
        EVENTS.handle_recorded(event(64), mark(3, 1));
        assert_eq!(EVENTS.find(event(64)), Some(mark(3, 1)));
    }

    #[test]
    fn an_event_that_other_processes_have_tells_nothing_until_it_is_destroyed() {
        static EVENTS: Events = Events::new();
        EVENTS.handle_recorded(event(64), mark(1, 10));
        EVENTS.handle_shared(event(64));
        assert_eq!(EVENTS.find(event(64)), None);
        EVENTS.handle_recorded(event(64), mark(1, 11));
        EVENTS.forget(event(64));
        EVENTS.handle_recorded(event(64), mark(1, 12));
        assert_eq!(EVENTS.find(event(64)), None);
        EVENTS.handle_destroyed(event(64));
        EVENTS.handle_recorded(event(64), mark(1, 13));
        assert_eq!(EVENTS.find(event(64)), Some(mark(1, 13)));
    }

    #[test]
    fn an_event_recorded_before_any_launch_tells_nothing() {
        static EVENTS: Events = Events::new();
        EVENTS.handle_recorded(event(64), mark(1, 0));
        assert_eq!(EVENTS.find(event(64)), None);
    }
}

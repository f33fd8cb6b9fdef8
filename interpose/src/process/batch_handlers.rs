//! The program's functions that are called with the wanted batch ([`crate::process::batches`]). The
//! caller never waits for the table's lock, because a thread that a signal has stopped may hold it
//! for good. A thread that changes the table wakes the caller when it is done.

#![expect(unsafe_code, reason = "functions of the program cross threads")]

use core::ffi::c_void;
use std::sync::Mutex;

use protocol::batches::{Batches, KINDS};

use crate::platform::sys::locked;

pub(crate) type OnBatch = unsafe extern "C" fn(data: *mut c_void, batch: u32);

#[derive(Default)]
pub(crate) struct Handlers(Mutex<[Option<Handler>; KINDS]>);

#[derive(Clone, Copy)]
pub(crate) struct Handler {
    kind: u32,
    pub(crate) function: OnBatch,
    pub(crate) data: *mut c_void,
    /// The batch of the last call; 0: none.
    told: u32,
}

// SAFETY: `include/pillion.h` requires function and data to be usable by another thread.
unsafe impl Send for Handler {}

impl Handlers {
    /// Sets or removes the function for batches of `kind`. Returns whether there was a place.
    pub(crate) fn set(&self, kind: u32, function: Option<OnBatch>, data: *mut c_void) -> bool {
        let handler = function.map(|function| Handler {
            kind,
            function,
            data,
            told: 0,
        });
        let mut handlers = locked(&self.0);
        let is_its = |place: &Option<Handler>| place.is_some_and(|of| of.kind == kind);
        let its = handlers.iter().position(is_its);
        let free = handlers.iter().position(Option::is_none);
        let place = its.or(free).and_then(|place| handlers.get_mut(place));
        match place {
            Some(place) => *place = handler,
            None => return false,
        }
        true
    }

    /// The call to make for that place, if any: the handler and the batch. It counts as made.
    pub(crate) fn take_news(&self, place: usize, batches: &Batches) -> Option<(Handler, u32)> {
        let mut handlers = self.0.try_lock().ok()?;
        let handler = handlers.get_mut(place)?.as_mut()?;
        let batch = batches.wanted(handler.kind)?;
        if handler.told == batch {
            return None;
        }
        handler.told = batch;
        Some((*handler, batch))
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use protocol::batches::Range;

    use super::*;

    unsafe extern "C" fn nothing(_: *mut c_void, _: u32) {}

    #[test]
    fn each_kind_has_one_function_which_is_told_of_a_batch_once() {
        let (handlers, batches) = (Handlers::default(), Batches::default());
        assert!(batches.say(Range::new(7, 1, 8, 1).unwrap()));
        let set = |kind, function| handlers.set(kind, function, ptr::null_mut());
        let news = || {
            let mut places = 0..KINDS;
            places.find_map(|place| Some(handlers.take_news(place, &batches)?.1))
        };
        assert!(set(7, Some(nothing as OnBatch)));
        assert_eq!(news(), None);
        batches.want(0, 4);
        assert_eq!((news(), news()), (Some(4), None));
        batches.want(0, 5);
        batches.want(0, 0);
        assert_eq!(news(), None, "nothing is wanted");
        batches.want(0, 4);
        assert_eq!(news(), None, "it knows");
        assert!(set(7, Some(nothing)));
        assert_eq!(news(), Some(4));
        assert!(set(7, None));
        batches.want(0, 6);
        assert_eq!(news(), None);
        assert!((0..KINDS as u32).all(|kind| set(kind, Some(nothing))));
        assert!(!set(9, Some(nothing)), "no place is left");
        assert!(set(0, None) && set(9, Some(nothing)));
    }
}

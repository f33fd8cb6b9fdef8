//! Which batches the program can take, and which its daemon wants ([`protocol::batches`]). As with
//! marks ([`crate::process::marks`]) only high-priority clients matter. A range is kept in the
//! client's page, so that every later daemon knows it. A process with several devices states it to
//! the daemon of each, and follows the first of them that wants a batch. Reading the wanted batch
//! takes some loads: no lock, no memory, no system call. A program can also give a function, which
//! the client's helper thread calls when another batch is wanted.

#![expect(unsafe_code, reason = "functions of the program are called")]

use core::ffi::c_void;

use protocol::batches::{KINDS, Range};

use crate::process::batch_handlers::OnBatch;
use crate::process::{Client, clients};

/// States the batches that requests of `kind` can use. Returns whether the range is valid and kept.
pub(crate) fn set_range(kind: u32, least: u32, most: u32, step: u32) -> bool {
    let Some(range) = Range::new(kind, least, most, step) else {
        return false;
    };
    let mut is_kept = false;
    for client in tuned() {
        is_kept |= client.page.told.batches.say(range);
    }
    is_kept
}

#[inline]
pub(crate) fn wanted(kind: u32) -> Option<u32> {
    tuned().find_map(|client| client.page.told.batches.wanted(kind))
}

/// Sets or removes the function to call with the wanted batch of `kind`. Returns whether it could.
pub(crate) fn set_handler(kind: u32, function: Option<OnBatch>, data: *mut c_void) -> bool {
    let Some(client) = tuned().next() else {
        return false;
    };
    let is_set = client.on_batch.set(kind, function, data);
    if is_set {
        client.page.helper_bell.ring(&client.clock);
    }
    is_set
}

pub(crate) fn poll(client: &Client) {
    for place in 0..KINDS {
        if let Some((handler, batch)) = client.on_batch.take_news(place, &client.page.told.batches)
        {
            // SAFETY: `include/pillion.h` requires a function that may be called with that data
            // from another thread until it is removed, and that returns. No lock is held.
            unsafe { (handler.function)(handler.data, batch) };
        }
    }
}

#[inline]
fn tuned() -> impl Iterator<Item = &'static Client> {
    clients().filter(|client| client.is_high_priority())
}

//! Which batches the program can take, and which its daemon wants ([`protocol::batches`]).
//!
//! As with marks ([`crate::process::marks`]) only a high-priority client's are of interest. A range
//! is kept in the client's page, so that every daemon to come knows it. A process with several
//! devices says it to the daemon of each, and does what the first of them wants.
//!
//! To ask what is wanted takes some loads: no lock, no memory, no system call. Who wants to be told
//! gives a function, which the client's helper thread calls when another batch is wanted.

#![expect(unsafe_code, reason = "functions of the program are called")]

use core::ffi::c_void;

use protocol::batches::{KINDS, Range};

use crate::process::batch_handlers::OnBatch;
use crate::process::{Client, clients};

/// Requests of that kind can be worked on in these batches; whether that can be, and is kept.
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

/// The batch that is wanted of that kind; `None` if none is.
#[inline]
pub(crate) fn wanted(kind: u32) -> Option<u32> {
    tuned().find_map(|client| client.page.told.batches.wanted(kind))
}

/// From now on that function is told which batch is wanted of that kind, or none is; whether that
/// can be.
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

/// The helper's: tells functions of batches that they have not been told of.
pub(crate) fn poll(client: &Client) {
    for place in 0..KINDS {
        if let Some((handler, batch)) = client.on_batch.take_news(place, &client.page.told.batches)
        {
            // SAFETY: `include/pillion.h` asks for a function that may be called with that data
            // from another thread until it is taken back, and that returns. No lock is held.
            unsafe { (handler.function)(handler.data, batch) };
        }
    }
}

/// The clients of whose requests there is something to want.
#[inline]
fn tuned() -> impl Iterator<Item = &'static Client> {
    clients().filter(|client| client.is_high_priority())
}

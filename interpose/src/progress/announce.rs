//! The high-priority side: launches and completions, told to the daemon without waiting for it.
//!
//! A launch costs a push and a fence: no system call, no lock, no allocation, no clock unless it
//! revokes a lease. A record that finds its ring full is dropped and counted; the daemon then takes
//! the client for busy until it hears of a completion, which is said again until it went through.

use core::sync::atomic::Ordering;

use protocol::lease;
use protocol::pages::Counter;
use protocol::record::{EXPECTED_NS_MAX, Launch, Record};

use crate::client::{Client, rings};
use crate::kernels::Known;
use crate::progress::slot::Slot;

/// Says that a launch is about to be made; its sequence number in the stream.
#[inline]
pub(crate) fn submit(client: &Client, index: u32, slot: &Slot, known: &Known) -> u64 {
    let seq = slot.next_seq();
    // What the profile does not know travels as 0, not as our guess.
    let (expected_ns, sm_needed) = if known.is_profiled {
        (known.kernel.expected_ns, known.kernel.sm_needed)
    } else {
        (0, 0)
    };
    let record = Record::Launch(Launch {
        stream: index,
        seq,
        kernel: known.id,
        expected_ns: expected_ns.min(EXPECTED_NS_MAX),
        sm_needed,
        class: known.kernel.class.bits() as u8,
        // Once for each request that meets best-effort work, and never else.
        at_ns: match lease::is_live(&client.link.daemon, &client.link.hp_written) {
            true => client.clock.now_ns(),
            false => 0,
        },
    });
    if rings::push(client, &record).is_err() {
        client.page.count(Counter::Dropped, 1);
    }
    lease::announce(&client.link.daemon, &client.link.hp_written);
    seq
}

/// Notes that the driver took the launch, or refused it.
#[inline]
pub(crate) fn handle_launched(client: &Client, index: u32, slot: &Slot, seq: u64, accepted: bool) {
    // A launch that was refused never runs, so the mark behind it is the mark before it. If all
    // before it is complete the daemon hears at once, else with the next completion.
    let was_last = !accepted && slot.completed() + 1 == seq;
    slot.set_issued(seq);
    if was_last {
        slot.advance(seq);
        tell(client, index, slot);
    }
}

/// Tells the daemon again how far a stream has come that has nothing in flight. The record that
/// said so may have found its ring full, or one that the daemon lost count of may have.
pub(crate) fn tell_again(client: &Client, index: u32, slot: &Slot) {
    let completed = slot.completed();
    if completed == 0 {
        return;
    }
    let record = Record::Complete {
        stream: index,
        seq: completed,
        at_ns: client.clock.now_ns(),
    };
    match rings::push(client, &record) {
        Ok(()) => _ = slot.told.fetch_max(completed, Ordering::Relaxed),
        Err(_) => client.page.count(Counter::Dropped, 1),
    }
}

/// Tells the daemon how far a stream has come, if it does not know.
pub(crate) fn tell(client: &Client, index: u32, slot: &Slot) {
    let completed = slot.completed();
    if slot.told.load(Ordering::Relaxed) < completed {
        tell_again(client, index, slot);
    }
}

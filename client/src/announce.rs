//! The high-priority side: launches and completions, told to the daemon without waiting for it.
//!
//! A launch costs a push and a fence: no system call, no lock, no allocation, no clock unless it
//! revokes a lease. A record that finds its ring full is dropped and counted; the daemon then takes
//! the client for busy until it hears of a completion, which is said again until it went through.

use policy::Kernel;
use protocol::lease;
use protocol::pages::Counter;
use protocol::record::{EXPECTED_NS_MAX, Launch, Record};
use protocol::sync::Ordering;

use crate::Client;
use crate::marks::Marks;
use crate::rings::{self, Thread};

/// The class of kernels that no profile knows, in a record.
const UNKNOWN_CLASS: u8 = 4;

/// What is about to be launched.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// The kernel's identity within the process; 0: none.
    pub id: u64,
    /// What it is expected to need.
    pub kernel: Kernel,
    /// Whether the profile says so. What it does not know travels as 0, not as a guess.
    pub is_profiled: bool,
}

/// Says that a launch is about to be made on the stream of slot `index`; its sequence number there.
#[inline]
pub fn submit(
    client: &Client,
    thread: &impl Thread,
    (index, stream): (u32, &impl Marks),
    launch: &Announced,
) -> u64 {
    let seq = stream.next_seq();
    let (expected_ns, sm_needed) = match launch.is_profiled {
        true => (launch.kernel.expected_ns, launch.kernel.sm_needed),
        false => (0, 0),
    };
    let record = Record::Launch(Launch {
        stream: index,
        seq,
        kernel: launch.id,
        expected_ns: expected_ns.min(EXPECTED_NS_MAX),
        sm_needed,
        class: launch.kernel.class.bits() as u8,
        // Once for each request that meets best-effort work, and while a trace is taken, but never
        // else.
        at_ns: match lease::is_live(&client.link.daemon, &client.link.hp_written)
            || client.trace() != 0
        {
            true => client.clock.now_ns(),
            false => 0,
        },
    });
    rings::push_or_count(&client.page, thread, &record);
    lease::announce(&client.link.daemon, &client.link.hp_written);
    seq
}

/// Notes that the driver took the launch, or refused it.
#[inline]
pub fn handle_launched(
    client: &Client,
    thread: &impl Thread,
    (index, stream): (u32, &impl Marks),
    seq: u64,
    accepted: bool,
) {
    // A launch that was refused never runs, so the mark behind it is the mark before it. If all
    // before it is complete the daemon hears at once, else with the next completion.
    let was_last = !accepted && stream.completed() + 1 == seq;
    stream.set_issued(seq);
    if was_last {
        stream.advance(seq);
        tell(client, thread, (index, stream));
    }
}

/// Tells the daemon how far a stream has come, if it does not know.
pub fn tell(client: &Client, thread: &impl Thread, (index, stream): (u32, &impl Marks)) {
    if stream.told() < stream.completed() {
        tell_again(client, thread, (index, stream));
    }
}

/// Tells the daemon again how far a stream has come. The record that said so may have found its
/// ring full, or one that the daemon lost count of may have.
fn tell_again(client: &Client, thread: &impl Thread, (index, stream): (u32, &impl Marks)) {
    let completed = stream.completed();
    if completed == 0 {
        return;
    }
    let record = Record::Complete {
        stream: index,
        seq: completed,
        at_ns: client.clock.now_ns(),
    };
    if rings::push_or_count(&client.page, thread, &record) {
        stream.set_told(completed);
    }
}

/// Answers a daemon that asks how far a high-priority client has come, if it does. What is in
/// flight its streams tell; what is not, the daemon has missed, and is told again.
pub fn answer<'a, S: Marks + 'a>(
    client: &Client,
    thread: &impl Thread,
    streams: impl Iterator<Item = (u32, &'a S)>,
) {
    if !client.is_high_priority() || client.page.probe.load(Ordering::SeqCst) == 0 {
        return;
    }
    for (index, stream) in streams.filter(|(_, stream)| !stream.is_in_flight()) {
        tell_again(client, thread, (index, stream));
    }
}

/// Announces what is in flight to a new daemon, whose pages are in place.
///
/// That daemon skips the records that were pushed for the one before. A launch that was announced
/// just before it began to read, and is not with the driver yet, it has missed; so of a client that
/// has launched before one record counts as lost: the daemon takes the client for busy until it
/// hears of a completion, which is what it does for any lost record.
pub fn again<'a, S: Marks + 'a>(
    client: &Client,
    thread: &impl Thread,
    streams: impl Iterator<Item = (u32, &'a S)>,
) {
    let mut has_launched = false;
    for (index, stream) in streams {
        stream.forget_told();
        has_launched |= stream.has_launched();
        if !stream.is_in_flight() {
            continue;
        }
        let record = Record::Launch(Launch {
            stream: index,
            seq: stream.issued(),
            kernel: 0,
            expected_ns: 0,
            sm_needed: 0,
            class: UNKNOWN_CLASS,
            at_ns: 0,
        });
        rings::push_or_count(&client.page, thread, &record);
    }
    // A client that has never launched has nothing to complete: it would count as busy for good.
    if has_launched {
        client.page.count(Counter::Dropped, 1);
    }
    // Leases that the new daemon made before it knew of this work are to end now, not at its next
    // look.
    lease::announce(&client.link.daemon, &client.link.hp_written);
}

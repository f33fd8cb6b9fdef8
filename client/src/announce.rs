//! The high-priority side: reports launches and completions to the daemon without waiting for it. A
//! launch costs a push and a fence: no system call, no lock, no allocation, and no clock read
//! unless it revokes a lease. A record that finds its ring full is dropped and counted. The daemon
//! then treats the client as busy until a completion, which the client repeats, gets through.

use policy::Kernel;
use protocol::lease;
use protocol::pages::Counter;
use protocol::record::{EXPECTED_NS_MAX, Launch, Record};
use protocol::sync::Ordering;

use crate::Client;
use crate::marks::Marks;
use crate::rings::{self, Thread};

/// The class, in a record, of kernels that no profile knows.
const UNKNOWN_CLASS: u8 = 4;

/// A launch that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Announced {
    /// The kernel's identity within the process; 0: none.
    pub id: u64,
    /// Its class, SM need and expected duration.
    pub kernel: Kernel,
    /// Whether these come from the profile. Otherwise the record carries 0, not a guess.
    pub is_profiled: bool,
}

/// Announces a launch on the stream of slot `index`. Returns its sequence number in that stream.
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
        // Clock read: once per request that meets best-effort work, and while a trace is taken.
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

/// Notes that the driver accepted or refused the launch.
#[inline]
pub fn handle_launched(
    client: &Client,
    thread: &impl Thread,
    (index, stream): (u32, &impl Marks),
    seq: u64,
    accepted: bool,
) {
    // A refused launch never runs: its mark completes with the mark before it. Report that now if
    // all earlier work is complete; otherwise the next completion reports it.
    let was_last = !accepted && stream.completed() + 1 == seq;
    stream.set_issued(seq);
    if was_last {
        stream.advance(seq);
        tell(client, thread, (index, stream));
    }
}

/// Reports the stream's completed mark to the daemon, if the daemon does not have it yet.
pub fn tell(client: &Client, thread: &impl Thread, (index, stream): (u32, &impl Marks)) {
    if stream.told() < stream.completed() {
        tell_again(client, thread, (index, stream));
    }
}

/// Reports the completed mark again: the ring may have been full, or the daemon lost count.
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

/// Answers the daemon's probe, if any: how far has this high-priority client come? Idle streams
/// report again, because the daemon missed it; busy streams report when they complete.
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

/// Announces what is in flight to a new daemon, whose pages are in place. The new daemon skips
/// records of the previous one. It therefore misses a launch that was announced just before it
/// began to read and has not reached the driver yet. So if the client has ever launched, one record
/// counts as lost: the client is busy to the daemon until a completion.
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
    // End leases granted before the new daemon knew of this work now, not at its next poll.
    lease::announce(&client.link.daemon, &client.link.hp_written);
}

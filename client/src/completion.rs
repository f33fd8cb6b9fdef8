//! Work that is complete: counted in the client's page, or told to the daemon.

use protocol::record::Record;
use protocol::sync::Ordering;

use crate::marks::Marks;
use crate::rings::{self, Thread};
use crate::{Client, announce};

/// Everything of a stream up to `mark` is complete, or given up for good.
pub fn complete(
    client: &Client,
    thread: &impl Thread,
    (index, stream): (u32, &impl Marks),
    mark: u64,
) {
    stream.set_known(mark);
    let by = stream.advance(mark);
    match client.is_high_priority() {
        // Also if nothing moved: a completion that found its ring full is said again.
        true => announce::tell(client, thread, (index, stream)),
        false => {
            if by > 0 && client.trace() != 0 {
                trace(client, thread, (index, stream));
            }
            count(client, by);
        }
    }
}

/// Says for a trace how far a best-effort stream has come: up to which of its marks.
#[cold]
fn trace(client: &Client, thread: &impl Thread, (index, stream): (u32, &impl Marks)) {
    let record = Record::Complete {
        stream: index,
        seq: stream.completed().max(1),
        at_ns: client.clock.now_ns(),
    };
    rings::push_or_count(&client.page, thread, &record);
}

/// Everything of a best-effort stream up to `mark` is expected to be complete by now, and counts as
/// that. Nobody has seen it: it teaches nothing until somebody has, and a process that ends asks
/// once more.
pub fn expect(client: &Client, stream: &impl Marks, mark: u64) {
    count(client, stream.advance(mark));
}

/// As [`complete`], in a process that is dying: without anything that a thread has of its own, and
/// without waking anybody.
pub fn complete_at_end(client: &Client, (index, stream): (u32, &impl Marks), mark: u64) {
    let by = stream.advance(mark);
    if client.is_high_priority() {
        // Which records of this stream are read first does not matter to the daemon.
        let record = Record::Complete {
            stream: index,
            seq: stream.completed(),
            at_ns: client.clock.now_ns(),
        };
        let _ = client.page.shared_ring.push(&record.encode());
    } else {
        let completed_ns = &client.page.completed_ns;
        completed_ns.fetch_add(by, Ordering::Release);
    }
}

/// So much expected work of a best-effort client is complete.
#[inline]
pub fn count(client: &Client, expected_ns: u64) {
    if expected_ns == 0 {
        return;
    }
    let completed_ns = &client.page.completed_ns;
    completed_ns.fetch_add(expected_ns, Ordering::Release);
    // A thread that waits may go now; the daemon decides that. It looks by itself as well, so a
    // ring that is missed costs a millisecond at most.
    if client.page.waiting.load(Ordering::SeqCst) != 0 {
        client.link.bell.bell.ring(&client.clock);
    }
}

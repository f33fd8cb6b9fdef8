//! Completed work: counted in the client's page, or reported to the daemon.

use protocol::record::Record;
use protocol::sync::Ordering;

use crate::marks::Marks;
use crate::rings::{self, Thread};
use crate::{Client, announce};

/// Everything on a stream up to `mark` is complete, or given up for good.
pub fn complete(
    client: &Client,
    thread: &impl Thread,
    (index, stream): (u32, &impl Marks),
    mark: u64,
) {
    stream.set_known(mark);
    let by = stream.advance(mark);
    match client.is_high_priority() {
        // Also if nothing moved: a completion that found its ring full is reported again.
        true => announce::tell(client, thread, (index, stream)),
        false => {
            if by > 0 && client.trace() != 0 {
                trace(client, thread, (index, stream));
            }
            count(client, by);
        }
    }
}

/// Records for a trace the mark up to which a best-effort stream is complete.
#[cold]
fn trace(client: &Client, thread: &impl Thread, (index, stream): (u32, &impl Marks)) {
    let record = Record::Complete {
        stream: index,
        seq: stream.completed().max(1),
        at_ns: client.clock.now_ns(),
    };
    rings::push_or_count(&client.page, thread, &record);
}

/// Counts a best-effort stream as complete up to `mark`, because it is expected to be. The learner
/// ignores the mark until completion is observed, and a process that ends asks the driver again.
pub fn expect(client: &Client, stream: &impl Marks, mark: u64) {
    count(client, stream.advance(mark));
}

/// As [`complete`], in a process that is dying: uses no thread-local state and wakes no thread.
pub fn complete_at_end(client: &Client, (index, stream): (u32, &impl Marks), mark: u64) {
    let by = stream.advance(mark);
    if client.is_high_priority() {
        // The daemon does not depend on the order of this stream's records across rings.
        let record = Record::Complete {
            stream: index,
            seq: stream.completed(),
            at_ns: client.clock.now_ns(),
        };
        let _ = client.page.shared_ring.push(&record.encode());
    } else {
        // Release: as in `count`.
        let completed_ns = &client.page.completed_ns;
        completed_ns.fetch_add(by, Ordering::Release);
    }
}

/// Adds `expected_ns` to the completed work of a best-effort client.
#[inline]
pub fn count(client: &Client, expected_ns: u64) {
    if expected_ns == 0 {
        return;
    }
    let completed_ns = &client.page.completed_ns;
    // Release pairs with the daemon's Acquire loads: whoever sees the completion sees the charge
    // before it. Otherwise work in flight would seem to be less than it is.
    completed_ns.fetch_add(expected_ns, Ordering::Release);
    // A waiting thread may be able to go now; the daemon decides. It also polls by itself, so a
    // missed ring costs at most a millisecond.
    if client.page.waiting.load(Ordering::SeqCst) != 0 {
        client.link.bell.bell.ring(&client.clock);
    }
}

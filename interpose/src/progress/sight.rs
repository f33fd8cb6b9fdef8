//! How Pillion may learn that a stream's work is complete: one rule per kind of stream. An event
//! orders. It waits for everything that the stream waits for; later work of the stream, and every
//! synchronisation with it, wait for the event. In the legacy stream it is a barrier for all
//! blocking streams of the context. So **nothing of ours may add an edge to the transitive order of
//! the application's work**, and nothing of ours enters a high-priority client's streams. For a
//! best-effort client while gated:
//! - Non-blocking or green stream: an event, by any thread. No other stream waits for it.
//! - Blocking stream: an event, by a thread that launches on the stream. A later one would stand
//!   behind legacy work in between, and a synchronisation with the stream would wait for that.
//! - A thread's default stream: the same. The stream has no handle in other threads.
//! - Legacy stream, alone: the context never had a blocking stream or a thread's default stream
//!   (PyTorch's streams are non-blocking). An event, by any thread. The thread that creates the
//!   first such stream waits until the helpers have left the driver.
//! - Legacy stream, otherwise: no event. A *private* blocking stream of ours, whose events add no
//!   edge either, would take a hardware queue, which the application's later streams might have to
//!   share.
//! - Any, while a stream of the process is in capture: an event, by a thread that launches on a
//!   stream outside of the capture. The legacy stream is left alone.
//! - Any, in a context with more streams than hardware queues: no event. Streams of a queue wait
//!   for each other's events.
//! - Any, behind so many operations that the queue may be full: no event. The call would block,
//!   with a lock others need.
//!
//! For a high-priority client: nothing. The application's own waits show completion; while
//! best-effort work waits for a client that has been silent, the helper queries.
//!
//! Where no event is allowed the helper *queries* whether the stream is idle (`cuStreamQuery`
//! enqueues nothing; for the legacy stream it covers all streams that it orders). Where that is not
//! possible, or the stream is never idle, expected durations stand for completion of best-effort
//! work. Sources: CUDA driver API, "Stream synchronization behavior"; CUDA C++ Programming Guide,
//! `CUDA_DEVICE_MAX_CONNECTIONS` and "Implicit synchronization"; CUDA driver API, `cuStreamCreate`.

use protocol::recording::Why;

use crate::platform::config::CONNECTIONS;
use crate::process::{self, Client, Handle};
use crate::progress::contexts::CONTEXTS;
use crate::progress::operations;
use crate::progress::slot::Slot;
use crate::progress::stream::Kind;
use crate::progress::streams::STREAMS;

/// Most operations of the process since the stream was last known idle for an event to be recorded
/// behind them. A queue takes about 1 000; operations that hooks do not see need room as well.
const OPERATIONS_MAX: u32 = 512;

/// The circumstances that decide besides the kind of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) is_high_priority: bool,
    /// The context has, or has had, a stream that the legacy stream orders.
    pub(crate) is_mixed: bool,
    pub(crate) is_capturing: bool,
    /// The context has more streams, the legacy one included, than hardware queues.
    pub(crate) is_crowded: bool,
    pub(crate) is_deep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// By an event in the stream, recorded by any thread.
    Event,
    /// By an event in the stream, recorded by a thread that launches on it.
    EventByLauncher,
    Query,
    /// Not at all: expected durations stand for it.
    Expected,
}

pub(crate) fn sight(kind: Kind, around: Around) -> Sight {
    let no_event = match kind {
        // A query can void a capture.
        _ if around.is_capturing => Sight::Expected,
        // Only its own thread has a handle of it.
        Kind::PerThread => Sight::Expected,
        _ => Sight::Query,
    };
    if around.is_high_priority || around.is_crowded || around.is_deep {
        return no_event;
    }
    match kind {
        Kind::Legacy if around.is_capturing || around.is_mixed => no_event,
        Kind::NonBlocking | Kind::Blocking if around.is_capturing => Sight::EventByLauncher,
        Kind::Legacy | Kind::NonBlocking => Sight::Event,
        Kind::Blocking | Kind::PerThread => Sight::EventByLauncher,
    }
}

pub(crate) fn sight_of(client: &Client, slot: &Slot) -> Sight {
    let (kind, context) = (slot.kind(), slot.context());
    let around = Around {
        is_high_priority: client.is_high_priority(),
        is_mixed: CONTEXTS.is_mixed(context),
        is_capturing: STREAMS.is_capturing(),
        is_crowded: is_crowded(context),
        is_deep: operations::submitted(client).wrapping_sub(slot.idle_at()) > OPERATIONS_MAX,
    };
    sight(kind, around)
}

/// Why a launch may not be timed by two events of the launching thread in the same call; `None`: it
/// may be, even in the legacy stream of a context that has blocking ones
/// ([`crate::progress::recorder`] has the reason).
pub(crate) fn why_not_timed(client: &Client, slot: &Slot) -> Option<Why> {
    let deep = || operations::submitted(client).wrapping_sub(slot.idle_at()) > OPERATIONS_MAX;
    if client.is_high_priority() {
        Some(Why::HighPriority)
    } else if STREAMS.is_capturing() {
        Some(Why::Capture)
    } else if is_crowded(slot.context()) {
        Some(Why::Crowded)
    } else if deep() {
        Some(Why::Deep)
    } else {
        None
    }
}

/// Whether two streams of the context may share a hardware queue. The legacy stream always counts.
fn is_crowded(context: Handle) -> bool {
    let streams = STREAMS.count_in(context) + 1;
    let connections = process::config().map_or(CONNECTIONS, |config| config.connections);
    streams > connections as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 4] = [
        Kind::Legacy,
        Kind::PerThread,
        Kind::Blocking,
        Kind::NonBlocking,
    ];
    const ALONE: Around = Around {
        is_high_priority: false,
        is_mixed: false,
        is_capturing: false,
        is_crowded: false,
        is_deep: false,
    };

    #[test]
    fn each_kind_of_stream_has_its_row() {
        use Sight::{Event, EventByLauncher, Query};
        let rows = KINDS.map(|kind| sight(kind, ALONE));
        assert_eq!(rows, [Event, EventByLauncher, EventByLauncher, Event]);
        let mixed = Around {
            is_mixed: true,
            ..ALONE
        };
        let rows = KINDS.map(|kind| sight(kind, mixed));
        assert_eq!(rows, [Query, EventByLauncher, EventByLauncher, Event]);
    }

    #[test]
    fn beside_a_capture_only_launching_threads_record_and_nobody_in_the_legacy_stream() {
        use Sight::{EventByLauncher, Expected};
        for is_mixed in [false, true] {
            let around = Around {
                is_mixed,
                is_capturing: true,
                ..ALONE
            };
            let rows = KINDS.map(|kind| sight(kind, around));
            let launcher = EventByLauncher;
            assert_eq!(rows, [Expected, launcher, launcher, launcher]);
        }
    }

    #[test]
    fn where_streams_share_a_queue_or_the_queue_may_be_full_there_is_no_event() {
        use Sight::{Expected, Query};
        for (is_crowded, is_deep) in [(true, false), (false, true)] {
            let around = Around {
                is_crowded,
                is_deep,
                ..ALONE
            };
            let rows = KINDS.map(|kind| sight(kind, around));
            assert_eq!(rows, [Query, Expected, Query, Query]);
            let mixed = Around {
                is_mixed: true,
                ..around
            };
            let rows = KINDS.map(|kind| sight(kind, mixed));
            assert_eq!(rows, [Query, Expected, Query, Query]);
        }
    }

    #[test]
    fn nothing_is_put_into_high_priority_streams() {
        for bits in 0..16 {
            let around = Around {
                is_high_priority: true,
                is_mixed: bits & 1 != 0,
                is_capturing: bits & 2 != 0,
                is_crowded: bits & 4 != 0,
                is_deep: bits & 8 != 0,
            };
            for kind in KINDS {
                assert!(matches!(
                    sight(kind, around),
                    Sight::Query | Sight::Expected
                ));
            }
        }
    }
}

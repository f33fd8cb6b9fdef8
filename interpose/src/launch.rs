//! A kernel launch, before and after the driver's call.

use core::ffi::c_int;

use abi::types::{CUfunction, CUresult};
use protocol::pages::LeasePage;

use crate::client::{Client, Side};
use crate::gate::{self, Grant};
use crate::kernels::{KERNELS, Shape};
use crate::streams::{Place, STREAMS, Slot, Stream};
use crate::{announce, completion, driver, helper, lifecycle, marks, priority, rings};

/// What the application asks to be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// What.
    pub(crate) function: CUfunction,
    /// In which shape.
    pub(crate) shape: Shape,
    /// Where.
    pub(crate) stream: Stream,
}

/// A launch between [`begin`] and [`end`].
pub(crate) enum Begun {
    /// Nobody manages this process.
    Unmanaged,
    /// Counted and nothing else: recorded into a graph, or on a device that is not ours.
    Counted(&'static Client),
    /// Announced under this number.
    Announced {
        client: &'static Client,
        slot: u32,
        seq: u64,
        stream: Stream,
    },
    /// Admitted.
    Admitted {
        client: &'static Client,
        lease: &'static LeasePage,
        /// `None`: counted as complete at once, as no slot was to be had.
        slot: Option<u32>,
        grant: Grant,
    },
}

/// What comes before the driver's call; best-effort launches may wait here.
#[inline]
pub(crate) fn begin(client: Option<&'static Client>, request: &Request) -> Begun {
    let Some(client) = client.or_else(lifecycle::handle_launch_without_context) else {
        return Begun::Unmanaged;
    };
    if STREAMS.is_capturing() && driver::is_capturing(request.stream.handle()) {
        return Begun::Counted(client);
    }
    let place = STREAMS.place(request.stream, client.home());
    if place == Place::Foreign {
        return Begun::Counted(client);
    }
    let known = KERNELS.identify(client, request.function, &request.shape);
    match client.side {
        Side::HighPriority => {
            let index = match place {
                Place::Slot(index) => index,
                _ => crate::streams::OVERFLOW,
            };
            let Some(slot) = STREAMS.slot(index) else {
                return Begun::Counted(client);
            };
            Begun::Announced {
                client,
                slot: index,
                seq: announce::submit(client, index, slot, &known),
                stream: request.stream,
            }
        }
        Side::BestEffort(lease) => {
            let slot = match place {
                Place::Slot(index) => Some(index),
                _ => None,
            };
            Begun::Admitted {
                client,
                lease,
                slot,
                grant: gate::admit(client, lease, &known, || mark_own_stream(client, slot)),
            }
        }
    }
}

impl Begun {
    /// The priority that the launch carries as an attribute: of high-priority launches on default
    /// streams, which cannot have one.
    #[inline]
    pub(crate) fn priority(&self) -> Option<c_int> {
        match self {
            Self::Announced { client, stream, .. }
                if stream.is_default() && priority::may_be_added() =>
            {
                client.default_priority
            }
            _ => None,
        }
    }
}

/// What comes after the driver's call.
#[inline]
pub(crate) fn end(begun: &Begun, result: CUresult) {
    let accepted = result == CUresult::SUCCESS;
    let client = match begun {
        Begun::Unmanaged => return,
        Begun::Counted(client)
        | Begun::Announced { client, .. }
        | Begun::Admitted { client, .. } => *client,
    };
    if accepted {
        rings::count_launch(client.page);
    }
    match *begun {
        Begun::Unmanaged | Begun::Counted(_) => {}
        Begun::Announced {
            slot: index, seq, ..
        } => {
            if let Some(slot) = STREAMS.slot(index) {
                announce::handle_launched(client, index, slot, seq, accepted);
            }
        }
        Begun::Admitted {
            lease,
            slot,
            ref grant,
            ..
        } => {
            gate::handle_launched(client, lease, grant, accepted);
            if accepted {
                handle_admitted(client, slot.and_then(|index| STREAMS.slot(index)), grant);
            }
        }
    }
}

/// An admitted launch is with the driver: from here on it is in flight.
#[inline]
fn handle_admitted(client: &Client, slot: Option<&Slot>, grant: &Grant) {
    let Some(slot) = slot else {
        return completion::count(client, grant.cost_ns);
    };
    slot.add_issued(grant.cost_ns);
    if slot.is_per_thread() && slot.event.is_idle() {
        record_own(slot);
    }
    helper::wake(client);
}

/// Before this thread waits at the gate: nobody else can find out how far its own default stream
/// has come, so it leaves an event there.
#[cold]
fn mark_own_stream(client: &Client, slot: Option<u32>) {
    let Some(slot) = slot.and_then(|index| STREAMS.slot(index)) else {
        return;
    };
    if slot.is_per_thread() && slot.is_in_flight() {
        record_own(slot);
        helper::wake(client);
    }
}

fn record_own(slot: &Slot) {
    if let Some(stream) = slot.stream_here() {
        marks::try_record(slot, stream);
    }
}

//! The program's marks of its requests: when one begins and ends, and its latency target. Only a
//! high-priority client's requests matter, so in any other process nothing begins. The same holds
//! before the first context is created, and in a child of a process that has one, which uses no
//! CUDA: there is no client then ([`crate::process::clients`]). A client without a daemon keeps its
//! requests and reports them to none. A process with several devices reports to the daemon of each,
//! because the devices that a request uses are not known when it begins.
//!
//! **Cost.** A mark takes no lock and no memory, and makes no system call (except for a thread's
//! first record, as for a launch): it costs a place in a table, a clock read, and a record in the
//! thread's ring. A full ring drops the record and counts it.

use client::requests::Begun;
use client::rings;
use protocol::pages::Counter;
use protocol::record::{Begin, End, PER_MILLE, Record, TARGET_NS_MAX, has_arrived};
use protocol::sync::Ordering;

use crate::process::{Client, clients};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// Time of arrival on the shared clock; 0: now.
    pub(crate) arrived_ns: u64,
    pub(crate) kind: u32,
    /// Number of inputs; 0: not stated.
    pub(crate) batch: u32,
    pub(crate) is_nvtx: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) is_cancelled: bool,
    /// The request ends when everything launched until now has completed.
    pub(crate) with_launches: bool,
}

/// Begins a request. Returns its number; 0 where there are no requests, or if it arrives in the
/// future or more than an hour ago.
#[inline]
pub(crate) fn begin(beginning: &Beginning) -> u64 {
    let Some(client) = marked().next() else {
        return 0;
    };
    let at_ns = client.clock.now_ns();
    let arrived_ns = match beginning.arrived_ns {
        0 => at_ns,
        given_ns => given_ns,
    };
    if !has_arrived(arrived_ns, at_ns) {
        refuse();
        return 0;
    }
    let Begun { id, given_up } = client.requests.begin();
    if let Some(id) = given_up {
        // Without an end the daemon would count it as late, and hold best-effort work for it.
        let cancelled = Ending {
            is_cancelled: true,
            ..Ending::default()
        };
        tell_end(id, at_ns, cancelled);
    }
    tell(&Record::Begin(Begin {
        id,
        kind: beginning.kind,
        batch: beginning.batch,
        arrived_ns,
        at_ns,
        is_nvtx: beginning.is_nvtx,
    }));
    id
}

#[inline]
pub(crate) fn end(id: u64, ending: Ending) -> bool {
    let Some(client) = marked().find(|client| client.requests.end(id)) else {
        // `begin` returns 0 where there are no requests.
        if id != 0 {
            refuse();
        }
        return false;
    };
    tell_end(id, client.clock.now_ns(), ending);
    true
}

/// Sets the target of requests of `kind`: at most `ns` at that quantile. Returns whether the values
/// are valid and were sent to a daemon.
pub(crate) fn target(kind: u32, ns: u64, per_mille: u32) -> bool {
    if !(1..=TARGET_NS_MAX).contains(&ns) || !PER_MILLE.contains(&per_mille) {
        refuse();
        return false;
    }
    tell(&Record::Target {
        kind,
        ns,
        per_mille,
    })
}

/// The program has made an iteration. Returns whether this process is a client, of either class.
pub(crate) fn iteration() -> bool {
    let mut is_counted = false;
    for client in clients() {
        client.page.count(Counter::Iterations, 1);
        is_counted = true;
    }
    is_counted
}

#[inline]
fn marked() -> impl Iterator<Item = &'static Client> {
    clients().filter(|client| client.is_high_priority())
}

fn tell_end(id: u64, at_ns: u64, ending: Ending) {
    tell(&Record::End(End {
        id,
        at_ns,
        is_cancelled: ending.is_cancelled,
        with_launches: ending.with_launches,
    }));
}

/// Sends a mark to every daemon that knows such records. Returns whether one was sent.
#[inline]
fn tell(mark: &Record) -> bool {
    let mut is_told = false;
    for client in marked() {
        // Relaxed: set before the page is handed out.
        if client.link.daemon.marks.load(Ordering::Relaxed) != 0 {
            is_told |= rings::push_or_count(&client.page, &client.thread(), mark);
        }
    }
    is_told
}

#[cold]
fn refuse() {
    if let Some(client) = marked().next() {
        client.page.count(Counter::MarksRefused, 1);
    }
}

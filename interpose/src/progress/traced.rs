//! Reports of a client only while a trace is taken (`pillion trace`): best-effort launches, copies,
//! and names of kernels. The records use the same rings as high-priority ones; a best-effort client
//! pushes no others. A high-priority client reports its launches as always, but with their time
//! ([`client::announce`]); [`client::completion`] reports a best-effort stream's progress. The
//! launching thread reports the launch and the helper thread the names, so a launch never waits for
//! a name. A launch is reported before the driver accepts it: a refused one is in the trace, too.

use std::collections::{HashSet, VecDeque};

use client::gate::Grant;
use client::marks::Marks;
use client::rings;
use policy::Kernel;
use protocol::record::{Direction, EXPECTED_NS_MAX, Launch, Memcpy, NamePart, Record};

use crate::kernels::graphs::{GRAPHS, GraphName};
use crate::kernels::{KERNELS, Known, id_of};
use crate::process::Client;
use crate::progress::stream::Stream;
use crate::progress::streams::{Place, STREAMS};

/// Interval at which the helper searches for unreported names, ns.
const NAMES_NS: u64 = 20_000_000;

/// Parts of names at a time: a quarter of a ring, so that other records find room.
const PARTS_MAX: usize = 256;

/// Interval while there is more to report, ns: the daemon reads each millisecond.
const PARTS_NS: u64 = 2_000_000;

/// Most names in one trace.
const NAMES_MAX: usize = 4096;

#[cold]
#[inline(never)]
pub(crate) fn handle_admitted(client: &Client, place: Place, known: &Known, grant: &Grant) {
    let launch = Launch {
        stream: stream_of(client, place),
        // The mark after it, if no other thread launches now: completions are reported by marks.
        seq: match place {
            Place::Slot(index) => STREAMS
                .slot(index)
                .map_or(1, |slot| slot.issued().saturating_add(grant.cost_ns).max(1)),
            Place::Overflow | Place::Foreign => 1,
        },
        kernel: known.id,
        // An unknown duration travels as 0, not as the daemon's assumption.
        expected_ns: match known.unknown() {
            0 => grant.cost_ns.min(EXPECTED_NS_MAX),
            _ => 0,
        },
        sm_needed: known.kernel.sm_needed,
        class: known.kernel.class.bits() as u8,
        at_ns: grant.at_ns,
    };
    rings::push_or_count(&client.page, &client.thread(), &Record::Launch(launch));
}

fn stream_of(client: &Client, place: Place) -> u32 {
    match place {
        Place::Slot(index) => index,
        Place::Overflow | Place::Foreign => STREAMS.overflow_of(client.index),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    pub(crate) stream: Stream,
    pub(crate) bytes: usize,
    pub(crate) direction: Direction,
    /// When the call returns, the copy is complete, or nearly.
    pub(crate) is_waited_for: bool,
}

impl Copying {
    pub(crate) fn kernel(&self) -> Kernel {
        Kernel::of_copy(self.bytes as u64, self.direction == Direction::Other)
    }
}

pub(crate) struct Copied {
    client: &'static Client,
    copy: Memcpy,
    is_waited_for: bool,
}

impl Copied {
    pub(crate) fn begin(client: &'static Client, place: Place, copying: &Copying) -> Self {
        Self {
            client,
            copy: Memcpy {
                stream: stream_of(client, place),
                direction: copying.direction,
                bytes: copying.bytes as u64,
                at_ns: client.clock.now_ns(),
                waited_ns: 0,
                expected_ns: copying.kernel().expected_ns.min(EXPECTED_NS_MAX),
            },
            is_waited_for: copying.is_waited_for,
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self) {
        let client = self.client;
        let waited_ns = match self.is_waited_for {
            true => client.clock.now_ns().saturating_sub(self.copy.at_ns),
            false => 0,
        };
        let copy = Memcpy {
            waited_ns: waited_ns.min(EXPECTED_NS_MAX),
            ..self.copy
        };
        let (page, thread, record) = (&client.page, client.thread(), Record::Memcpy(copy));
        match client.is_high_priority() {
            // After a lost record such a client counts as busy, which a lost copy must not cause.
            true => _ = rings::push(page, &thread, &record),
            false => _ = rings::push_or_count(page, &thread, &record),
        }
    }
}

#[derive(Default)]
pub(crate) struct Names {
    /// The trace being taken; 0: none.
    trace: u32,
    told: HashSet<u64>,
    parts: VecDeque<NamePart>,
    next_ns: u64,
}

impl Names {
    /// Reports names of kernels while a trace is taken. Returns when to poll again.
    pub(crate) fn poll(&mut self, client: &Client) -> Option<u64> {
        let trace = client.trace();
        if trace != self.trace {
            *self = Self {
                trace,
                ..Self::default()
            };
        }
        if trace == 0 {
            return None;
        }
        let now_ns = client.clock.now_ns();
        if now_ns < self.next_ns {
            return Some(self.next_ns);
        }
        if self.parts.is_empty() {
            self.look(client);
        }
        self.tell(client);
        let pause_ns = match self.parts.is_empty() {
            true => NAMES_NS,
            false => PARTS_NS,
        };
        self.next_ns = now_ns + pause_ns;
        Some(self.next_ns)
    }

    fn look(&mut self, client: &Client) {
        for (id, name) in KERNELS.named(client) {
            if self.told.len() >= NAMES_MAX {
                return;
            }
            if self.told.insert(id) {
                self.parts
                    .extend(NamePart::of(id, &KERNELS.say_name(&name)));
            }
        }
        for (number, kernels, _, learnt) in GRAPHS.all() {
            let id = id_of(number, learnt.taken.read().0);
            if self.told.len() < NAMES_MAX && self.told.insert(id) {
                let name = GraphName(kernels).to_string();
                self.parts.extend(NamePart::of(id, &name));
            }
        }
    }

    /// Reports as many as there is room for; after a full ring a name continues where it was.
    fn tell(&mut self, client: &Client) {
        for _ in 0..PARTS_MAX {
            let Some(&part) = self.parts.front() else {
                return;
            };
            if rings::push(&client.page, &client.thread(), &Record::Name(part)).is_err() {
                return;
            }
            self.parts.pop_front();
        }
    }
}

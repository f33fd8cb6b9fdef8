//! The records of one high-priority client: its rings, read into its timeline.
//! A record that does not decode is counted and dropped. After giving up a ring ([`super::rings`])
//! the client counts as busy until its next completion. A lying client gains no more than that:
//! best-effort launches then wait for at most `max_hold` each.

use policy::{Class, HpTimeline, Kernel, Launch};
use protocol::pages::{ClientPage, Counter, RING_RECORDS, RINGS};
use protocol::record::{RECORD_WORDS, Record};
use protocol::sync::Ordering;

use super::GpuTime;
use super::marks::{Marks, Read};
use super::rings::Rings;

/// A busy client that has been quiet for this long is asked.
pub(crate) const QUIET_NS: u64 = 100_000;

/// An asked client is rung again after this long: its helper polls every 500 us by itself, but a
/// ring may have been lost. A question stays open for as long after its answer was last wanted.
pub(crate) const AGAIN_NS: u64 = 5_000_000;

/// Records kept for a trace between two polls: more than all rings of a client hold.
const TRACED_MAX: usize = (RINGS + 1) * RING_RECORDS;

/// Defects found in a client's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Faults {
    /// Records that did not decode.
    pub bad_records: u64,
    /// Rings given up because of an impossible index.
    pub bad_rings: u64,
}

#[derive(Debug)]
pub(crate) struct HpClient {
    rings: Rings,
    timeline: HpTimeline,
    dropped_seen: u64,
    heard_ns: u64,
    looked_ns: u64,
    /// When the client was last asked what has completed; `None` while it need not poll.
    asked_ns: Option<u64>,
    wanted_ns: u64,
    faults: Faults,
    gpu_time: GpuTime,
    sms: u32,
    /// Launched since the last [`HpClient::take_sm_ns`], ns of all SMs.
    sm_ns: f64,
    marks: Marks,
    pub(super) traced: Option<Vec<[u64; RECORD_WORDS]>>,
}

impl HpClient {
    /// For a client that attaches at `now_ns`. Records that it pushed earlier, without a daemon or
    /// for another, are skipped: it announces its work in flight again.
    pub(crate) fn new(now_ns: u64, page: &ClientPage, sms: u32) -> Self {
        Self {
            rings: Rings::new(page),
            timeline: HpTimeline::new(),
            dropped_seen: page.counted(Counter::Dropped),
            heard_ns: 0,
            looked_ns: now_ns,
            asked_ns: None,
            wanted_ns: 0,
            faults: Faults::default(),
            gpu_time: GpuTime::default(),
            sms,
            sm_ns: 0.0,
            marks: Marks::default(),
            traced: None,
        }
    }

    pub(crate) fn timeline(&mut self) -> &mut HpTimeline {
        &mut self.timeline
    }

    pub(crate) fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    pub(crate) fn gpu_time(&self) -> GpuTime {
        self.gpu_time
    }

    /// Launches since the last call, by their duration alone: ns of all SMs of the device
    /// ([`policy::share`]). A kernel of unknown need counts as needing all SMs.
    pub(crate) fn take_sm_ns(&mut self) -> f64 {
        core::mem::take(&mut self.sm_ns)
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    pub(super) fn marks_mut(&mut self) -> &mut Marks {
        &mut self.marks
    }

    /// Reads everything that has arrived, at `now_ns`. Returns whether any of it is, or may be,
    /// work: a decision made without it is void.
    pub(crate) fn drain(&mut self, page: &ClientPage, now_ns: u64, unknown_ns: u64) -> bool {
        let mut is_busier = false;
        let mut round = self.rings.begin(page);
        while let Some((ring, words)) = self.rings.next(page, &mut round) {
            is_busier |= self.handle(ring, &words, now_ns, unknown_ns);
        }
        self.faults.bad_rings += round.bad_rings;
        let mut is_lost = round.bad_rings > 0;
        // Read after the rings: dropped records are younger than those in them.
        let dropped = page.counted(Counter::Dropped);
        is_lost |= dropped != self.dropped_seen;
        self.dropped_seen = dropped;
        if is_lost {
            self.timeline.handle_dropped(now_ns);
            self.heard_ns = now_ns;
        }
        self.looked_ns = now_ns;
        is_busier || is_lost
    }

    fn trace(&mut self, words: &[u64; RECORD_WORDS], record: Option<Record>) {
        if let Some(traced) = &mut self.traced
            && traced.len() < TRACED_MAX
            && record.is_some_and(|record| !record.is_mark())
        {
            traced.push(*words);
        }
    }

    /// Whether the record, from the ring of that index (last: the shared ring), announces new work.
    fn handle(&mut self, ring: usize, words: &[u64; 8], now_ns: u64, unknown_ns: u64) -> bool {
        let record = Record::decode(words);
        self.trace(words, record.ok());
        if let Ok(mark) = record
            && mark.is_mark()
        {
            // Tells nothing about completion.
            let read = Read {
                ring,
                looked_ns: self.looked_ns,
                now_ns,
            };
            let is_true = self.marks.handle(&mark, &read, &self.timeline);
            self.faults.bad_records += u64::from(!is_true);
            return false;
        }
        if let Ok(Record::Memcpy(_) | Record::Name(_)) = record {
            return false;
        }
        self.heard_ns = now_ns;
        // A client's time is trusted only within what is possible.
        let believed = |at_ns: u64| at_ns.clamp(self.looked_ns.min(now_ns), now_ns);
        match record {
            Ok(Record::Launch(launch)) => {
                let expected_ns = match launch.expected_ns {
                    0 => unknown_ns,
                    known_ns => known_ns,
                };
                let kernel = Kernel {
                    class: Class::from_bits(launch.class.into()),
                    sm_needed: launch.sm_needed,
                    expected_ns,
                };
                let is_classed = kernel.class != Class::Unknown;
                self.gpu_time
                    .handle_launch(expected_ns, launch.expected_ns != 0, is_classed);
                let needed = match launch.sm_needed {
                    0 => self.sms,
                    needed => needed.min(self.sms),
                };
                self.sm_ns += expected_ns as f64 * f64::from(needed) / f64::from(self.sms.max(1));
                self.marks.handle_launch(ring, launch.stream, launch.seq);
                let at_ns = launch.at_ns;
                let launch = Launch {
                    stream: launch.stream,
                    seq: launch.seq,
                    kernel,
                };
                match at_ns {
                    0 => {
                        let since_ns = self.looked_ns;
                        self.timeline.handle_launch_since(&launch, since_ns, now_ns);
                    }
                    at_ns => self.timeline.handle_launch(&launch, believed(at_ns)),
                }
                true
            }
            Ok(Record::Complete { stream, seq, at_ns }) => {
                let at_ns = match at_ns {
                    // A client of protocol 2.2.
                    0 => self.looked_ns.midpoint(now_ns),
                    at_ns => believed(at_ns),
                };
                self.timeline.handle_complete(stream, seq, at_ns);
                self.marks.handle_complete(stream, seq, at_ns);
                false
            }
            Ok(_) => false,
            Err(_) => {
                self.faults.bad_records += 1;
                false
            }
        }
    }

    /// Whether to ask the client's helper now what has completed: best-effort work waits, and the
    /// client is busy and quiet. A training job seldom synchronises by itself.
    pub(crate) fn poll_question(
        &mut self,
        page: &ClientPage,
        now_ns: u64,
        someone_waits: bool,
    ) -> bool {
        if !someone_waits || !self.timeline.is_busy() {
            if self.asked_ns.is_some() && now_ns.saturating_sub(self.wanted_ns) >= AGAIN_NS {
                self.asked_ns = None;
                page.probe.store(0, Ordering::Relaxed);
            }
            return false;
        }
        self.wanted_ns = now_ns;
        let (since_ns, quiet_ns) = match self.asked_ns {
            None => (self.heard_ns, QUIET_NS),
            Some(asked_ns) => (asked_ns, AGAIN_NS),
        };
        if now_ns.saturating_sub(since_ns) < quiet_ns {
            return false;
        }
        self.asked_ns = Some(now_ns);
        // The following ring of the helper's bell publishes this store.
        page.probe.store(1, Ordering::Relaxed);
        true
    }
}

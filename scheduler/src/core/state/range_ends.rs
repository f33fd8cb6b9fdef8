//! Ends of requests that are reported before their work is complete.
//! A range of NVTX ends when the program has launched the work, often before the GPU has done it.
//! Its request ends when all launches of the ending thread since the last range began there are
//! complete. A thread has its own ring, so these are the launches read from this ring; threads
//! beyond the number of rings share one, and wait for each other's work too.

use policy::HpTimeline;
use protocol::pages::RINGS;

/// Tracked streams of one thread; with more, the one it used first is dropped.
const STREAMS: usize = 16;

/// Waiting ends, as many as requests that the policy remembers; then the oldest stops waiting.
const WAITING: usize = 256;

/// Rings of a client; the shared one is the last.
const SOURCES: usize = RINGS + 1;

/// A position in a stream: its index, and a launch number there.
type Position = (u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) at_ns: u64,
    pub(crate) is_cancelled: bool,
}

#[derive(Debug)]
struct Waiting {
    ended: Ended,
    left: Vec<Position>,
}

#[derive(Debug, Default)]
pub(crate) struct RangeEnds {
    /// By ring the last launch on each stream since a range began; `None` without any range.
    launched: Vec<Option<Vec<Position>>>,
    waiting: Vec<Waiting>,
}

impl RangeEnds {
    pub(crate) fn handle_begin(&mut self, ring: usize) {
        if self.launched.is_empty() {
            self.launched.resize_with(SOURCES, || None);
        }
        if let Some(launched) = self.launched.get_mut(ring) {
            launched.get_or_insert_default().clear();
        }
    }

    pub(crate) fn handle_launch(&mut self, ring: usize, stream: u32, seq: u64) {
        let Some(Some(launched)) = self.launched.get_mut(ring) else {
            return;
        };
        if let Some(place) = launched.iter_mut().find(|place| place.0 == stream) {
            place.1 = place.1.max(seq);
            return;
        }
        if launched.len() == STREAMS {
            launched.remove(0);
        }
        launched.push((stream, seq));
    }

    /// A range ended, by a mark in that ring. Returns the request that ends thereby: this one,
    /// none, or the oldest if too many wait.
    pub(crate) fn handle_end(
        &mut self,
        ring: usize,
        ended: Ended,
        timeline: &HpTimeline,
    ) -> Option<Ended> {
        let launched = self.launched.get(ring).into_iter().flatten().flatten();
        let left: Vec<Position> = launched
            .filter(|(stream, seq)| !timeline.is_complete(*stream, *seq))
            .copied()
            .collect();
        if left.is_empty() {
            return Some(ended);
        }
        let oldest = (self.waiting.len() == WAITING).then(|| self.waiting.remove(0).ended);
        self.waiting.push(Waiting { ended, left });
        oldest
    }

    /// `stream` is complete up to `seq` since `at_ns`; calls `end` for requests that end thereby.
    pub(crate) fn handle_complete(
        &mut self,
        stream: u32,
        seq: u64,
        at_ns: u64,
        mut end: impl FnMut(Ended),
    ) {
        let done = |waiting: &mut Waiting| {
            let before = waiting.left.len();
            waiting
                .left
                .retain(|&(its, last)| its != stream || last > seq);
            if waiting.left.len() < before {
                waiting.ended.at_ns = waiting.ended.at_ns.max(at_ns);
            }
            waiting.left.is_empty()
        };
        self.waiting
            .extract_if(.., done)
            .for_each(|waiting| end(waiting.ended));
    }
}

#[cfg(test)]
mod tests {
    use policy::{Class, Kernel, Launch};

    use super::*;

    #[derive(Default)]
    struct Client {
        ranges: RangeEnds,
        timeline: HpTimeline,
    }

    impl Client {
        fn launch(&mut self, ring: usize, stream: u32, seq: u64) {
            let kernel = Kernel {
                class: Class::Unknown,
                sm_needed: 0,
                expected_ns: 10,
            };
            self.ranges.handle_launch(ring, stream, seq);
            let launch = Launch {
                stream,
                seq,
                kernel,
            };
            self.timeline.handle_launch(&launch, 1);
        }

        fn end(&mut self, ring: usize, id: u64, at_ns: u64) -> Option<(u64, u64)> {
            let ended = Ended {
                id,
                at_ns,
                is_cancelled: false,
            };
            let now = self.ranges.handle_end(ring, ended, &self.timeline);
            now.map(|ended| (ended.id, ended.at_ns))
        }

        fn complete(&mut self, stream: u32, seq: u64, at_ns: u64) -> Vec<(u64, u64)> {
            self.timeline.handle_complete(stream, seq, at_ns);
            let mut all = Vec::new();
            let tell = |ended: Ended| all.push((ended.id, ended.at_ns));
            self.ranges.handle_complete(stream, seq, at_ns, tell);
            all
        }
    }

    #[test]
    fn a_range_ends_when_its_own_threads_launches_are_complete() {
        let mut client = Client::default();
        client.launch(0, 3, 1);
        client.ranges.handle_begin(0);
        client.launch(0, 1, 1);
        client.launch(0, 1, 2);
        client.launch(0, 2, 1);
        client.launch(1, 1, 3);
        assert_eq!(client.end(0, 7, 5), None);
        assert_eq!(client.complete(1, 1, 20), []);
        assert_eq!(client.complete(2, 1, 30), []);
        assert_eq!(client.complete(1, 3, 25), [(7, 30)]);
        assert_eq!(client.complete(3, 1, 40), []);
    }

    #[test]
    fn one_whose_work_is_complete_or_that_has_none_ends_at_once() {
        let mut client = Client::default();
        assert_eq!(client.end(0, 6, 5), Some((6, 5)), "never begun");
        client.ranges.handle_begin(SOURCES - 1);
        assert_eq!(client.end(SOURCES - 1, 7, 5), Some((7, 5)));
        client.launch(SOURCES - 1, 1, 1);
        client.complete(1, 1, 9);
        assert_eq!(client.end(SOURCES - 1, 8, 10), Some((8, 10)));
        // Its completion is read before the launch, from another thread's ring.
        client.complete(1, 2, 11);
        client.launch(SOURCES - 1, 1, 2);
        assert_eq!(client.end(SOURCES - 1, 9, 12), Some((9, 12)));
    }

    #[test]
    fn a_program_that_never_waits_holds_a_bounded_number() {
        let mut client = Client::default();
        for stream in 0..100 {
            client.ranges.handle_begin(0);
            client.launch(0, stream, 1);
            for more in 0..100 {
                client.launch(0, 200 + more, u64::from(stream) + 1);
            }
            assert_eq!(client.end(0, u64::from(stream), 5), None);
        }
        for id in 100..WAITING as u64 {
            assert_eq!(client.end(0, id, 5), None);
        }
        assert_eq!(client.end(0, 1_000, 5), Some((0, 5)));
        let most = client
            .ranges
            .waiting
            .iter()
            .map(|waiting| waiting.left.len());
        assert_eq!(most.max(), Some(STREAMS));
    }
}

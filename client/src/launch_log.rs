//! The last launches on a stream, from which the helper learns how long kernels take
//! (`interpose::progress::learner`). An accepted best-effort launch writes its position in the
//! stream with four plain stores, into a ring that overwrites its oldest entries: no lock, no
//! read-modify-write, no waiting. The helper reads the ring when it polls. A reader may therefore
//! miss launches: threads that launch on one stream at the same time may overwrite each other's
//! entries, and a helper that gets no processor for long finds the ring overwritten. An entry never
//! mixes two launches: each word carries a digest of the launch's mark, which is unique in the
//! stream. Gaps are noticed: an entry states what the launch added to the stream's count, so the
//! previous launch ends where this one begins. The model checker runs this source
//! (`client/tests/interleavings.rs`).

use crossbeam_utils::CachePadded;
use protocol::sync::{AtomicU64, Ordering, PUBLISH};

/// Launches kept per stream. The helper polls every 20 µs while work is in flight. At one launch
/// every 2 µs it may miss 24 polls before a launch is lost.
pub const LAUNCHES: usize = 256;

/// A launch that the driver has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The mark after the launch in its stream's count; never 0.
    pub mark: u64,
    /// The launch's addition to that count, ns: the low 32 bits.
    pub cost_ns: u32,
    /// Number of its kernel, as in `kernels`; 0: none.
    pub kernel: u16,
    /// Generation of that kernel number, which is reused: the low 8 bits.
    pub generation: u8,
    /// Time of admission on the client's clock, ns: the low 48 bits.
    pub at_ns: u64,
    /// The launch's epoch, the low 40 bits; [`Launch::BESIDE`] or [`Launch::UNGATED`].
    pub epoch: u64,
}

impl Launch {
    /// High-priority work may have run beside the launch.
    pub const BESIDE: u64 = 0;
    /// There was no high-priority job.
    pub const UNGATED: u64 = EPOCH;

    /// Where the previous launch ends.
    pub fn begin(&self) -> u32 {
        (self.mark as u32).wrapping_sub(self.cost_ns)
    }

    /// An epoch in a launch's 40 bits. The entry is read long before the epoch can wrap around.
    #[inline]
    pub fn low(epoch: u64) -> u64 {
        epoch & EPOCH
    }

    /// Full time of admission, ns, given a time less than three days later.
    pub fn at_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(now_ns.wrapping_sub(self.at_ns) & LOW)
    }
}

/// A stream's log (see the module's head), shared by the launching threads and the helper.
pub struct LaunchLog<const PLACES: usize> {
    /// Launches written; may go back where threads launch at the same time. On its own cache line,
    /// so that no place straddles two lines.
    next: CachePadded<AtomicU64>,
    places: [Place; PLACES],
}

struct Place {
    /// 0: this place was never written.
    mark: AtomicU64,
    /// Kernel (16 bits), cost (32), digest (16).
    what: AtomicU64,
    /// Time (48), digest (16).
    at: AtomicU64,
    /// Epoch (40), generation (8), digest (16).
    epoch: AtomicU64,
}

const LOW: u64 = (1 << DIGEST_SHIFT) - 1;
const DIGEST_SHIFT: u32 = 48;
const COST_SHIFT: u32 = 16;
const EPOCH: u64 = (1 << GENERATION_SHIFT) - 1;
const GENERATION_SHIFT: u32 = 40;

impl<const PLACES: usize> Default for LaunchLog<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PLACES: usize> LaunchLog<PLACES> {
    /// The log of a stream without launches.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(0)),
            places: [const { Place::new() }; PLACES],
        }
    }

    /// As above; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(0)),
            places: core::array::from_fn(|_| Place::new()),
        }
    }

    /// Appends a launch.
    #[inline]
    pub fn push(&self, launch: &Launch) {
        let next = self.next.load(Ordering::Relaxed);
        if let Some(place) = self.place(next) {
            place.write(launch);
        }
        // Release pairs with the Acquire in `read`: a reader that sees the count sees the launch.
        // Otherwise a launch might be missing although nothing overwrote it.
        self.next.store(next.wrapping_add(1), PUBLISH);
    }

    /// Passes to `take` the launches since the last read that are still there. With several
    /// launching threads the order is undefined, and entries may repeat. `seen` is the reader's.
    pub fn read(&self, seen: &mut u64, mut take: impl FnMut(Launch)) {
        let next = self.next.load(Ordering::Acquire);
        // Read the whole ring also where the count went back.
        let count = next.wrapping_sub(*seen).min(PLACES as u64);
        for step in (1..=count).rev() {
            let place = self.place(next.wrapping_sub(step));
            if let Some(launch) = place.and_then(Place::read) {
                take(launch);
            }
        }
        *seen = next;
    }

    /// Whether nothing was written since.
    pub fn is_read(&self, seen: u64) -> bool {
        self.next.load(Ordering::Relaxed) == seen
    }

    #[inline]
    fn place(&self, number: u64) -> Option<&Place> {
        self.places.get(number as usize % PLACES)
    }
}

impl Place {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self {
            mark: AtomicU64::new(0),
            what: AtomicU64::new(0),
            at: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    #[cfg(loom)]
    fn new() -> Self {
        Self {
            mark: AtomicU64::new(0),
            what: AtomicU64::new(0),
            at: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
        }
    }

    #[inline]
    fn write(&self, launch: &Launch) {
        let digest = digest(launch.mark);
        let what = u64::from(launch.kernel) | u64::from(launch.cost_ns) << COST_SHIFT;
        // Relaxed: each word's digest states its launch.
        self.mark.store(launch.mark, Ordering::Relaxed);
        self.what.store(what | digest, Ordering::Relaxed);
        self.at
            .store(launch.at_ns & LOW | digest, Ordering::Relaxed);
        let generation = u64::from(launch.generation) << GENERATION_SHIFT;
        self.epoch.store(
            launch.epoch & EPOCH | generation | digest,
            Ordering::Relaxed,
        );
    }

    /// The launch, unless its words are of different launches.
    fn read(&self) -> Option<Launch> {
        let mark = self.mark.load(Ordering::Relaxed);
        let what = self.what.load(Ordering::Relaxed);
        let at = self.at.load(Ordering::Relaxed);
        let epoch = self.epoch.load(Ordering::Relaxed);
        let is_its = |word: u64| word & !LOW == digest(mark);
        (mark != 0 && is_its(what) && is_its(at) && is_its(epoch)).then_some(Launch {
            mark,
            cost_ns: (what >> COST_SHIFT) as u32,
            kernel: what as u16,
            generation: (epoch >> GENERATION_SHIFT) as u8,
            at_ns: at & LOW,
            epoch: epoch & EPOCH,
        })
    }
}

/// Sixteen bits of a mark, in the top bits of a word. Marks that differ by the cost of a ring's
/// launches collide only once in 65536 times.
#[inline]
fn digest(mark: u64) -> u64 {
    /// 2^64 divided by the golden ratio: spreads neighbouring numbers far apart.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    mark.wrapping_mul(SPREAD) & !LOW
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn launch(mark: u64) -> Launch {
        Launch {
            mark,
            cost_ns: 7,
            kernel: 3,
            generation: 5,
            at_ns: 11,
            epoch: 1,
        }
    }

    fn read<const PLACES: usize>(recent: &LaunchLog<PLACES>, seen: &mut u64) -> Vec<u64> {
        let mut marks = Vec::new();
        recent.read(seen, |launch| marks.push(launch.mark));
        marks
    }

    #[test]
    fn launches_are_read_once_in_order_and_the_last_ones_where_there_were_too_many() {
        let recent = LaunchLog::<4>::new();
        let mut seen = 0;
        assert_eq!(read(&recent, &mut seen), []);
        (1..=3).for_each(|mark| recent.push(&launch(mark)));
        assert_eq!(read(&recent, &mut seen), [1, 2, 3]);
        assert_eq!(read(&recent, &mut seen), []);
        (4..=10).for_each(|mark| recent.push(&launch(mark)));
        assert_eq!(read(&recent, &mut seen), [7, 8, 9, 10]);
    }

    #[test]
    fn a_count_that_goes_back_makes_the_reader_look_at_everything() {
        let recent = LaunchLog::<4>::new();
        let mut seen = 0;
        (1..=4).for_each(|mark| recent.push(&launch(mark)));
        assert_eq!(read(&recent, &mut seen).len(), 4);
        recent.next.store(2, Ordering::Relaxed);
        recent.push(&launch(9));
        assert!(read(&recent, &mut seen).contains(&9));
        recent.push(&launch(10));
        assert_eq!(read(&recent, &mut seen), [10]);
    }

    #[test]
    fn half_of_one_launch_and_half_of_another_is_none() {
        let recent = LaunchLog::<1>::new();
        recent.push(&launch(100_000));
        recent.places[0].mark.store(200_000, Ordering::Relaxed);
        let mut seen = 0;
        assert_eq!(read(&recent, &mut seen), []);
    }

    proptest! {
        #[test]
        fn a_launch_survives_its_words(
            mark in 1_u64.., cost_ns: u32, kernel: u16, generation: u8,
            ago_ns in 0..1_u64 << 47, now_ns in 1_u64 << 47.., epoch: u64,
        ) {
            let at_ns = (now_ns - ago_ns) & LOW;
            let launch = Launch { mark, cost_ns, kernel, generation, at_ns, epoch: Launch::low(epoch) };
            let recent = LaunchLog::<2>::new();
            recent.push(&launch);
            let mut found = None;
            recent.read(&mut 0, |read| found = Some(read));
            prop_assert_eq!(found, Some(launch));
            prop_assert_eq!(launch.at_ns(now_ns), now_ns - ago_ns);
            prop_assert_eq!(u64::from(launch.begin()), mark.wrapping_sub(cost_ns.into()) & 0xffff_ffff);
        }
    }
}

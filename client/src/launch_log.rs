//! The last launches on a stream, for the thread that learns from them how long kernels take
//! (`interpose::progress::learner`).
//!
//! A best-effort launch that the driver has taken writes down where it stands in its stream: four plain stores into a ring
//! that is overwritten when it is full. No lock, no read-modify-write, nobody waits for anybody; the helper reads when it
//! looks.
//!
//! What is read may therefore lack launches: of threads that launch on one stream at the same time one may overwrite another's,
//! and a helper that gets no processor for long finds the ring overwritten. It never is half of one launch and half of
//! another, because each word carries a digest of the launch's mark, which no other launch of the stream has. And what
//! lacks is noticed: a launch says what it added to its stream's count, so the one before it ends where it begins.
//!
//! The model checker runs this source (`client/tests/interleavings.rs`).

use crossbeam_utils::CachePadded;
use protocol::sync::{AtomicU64, Ordering, PUBLISH};

/// Launches kept of a stream. The helper looks every 20 µs while anything is in flight, and at a launch every 2 µs it may
/// miss 24 looks before one is lost.
pub const LAUNCHES: usize = 256;

/// A launch that the driver has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The mark behind it in its stream's count; never 0.
    pub mark: u64,
    /// What it added to that count, ns: the low 32 bits.
    pub cost_ns: u32,
    /// Number of its kernel, as `kernels` has it; 0: none.
    pub kernel: u16,
    /// Of those that have had that number in turn, which: the low 8 bits.
    pub generation: u8,
    /// When it was admitted, on the client's clock, ns: the low 48 bits.
    pub at_ns: u64,
    /// The epoch it went under, the low 40 bits; [`Launch::BESIDE`] or [`Launch::UNGATED`].
    pub epoch: u64,
}

impl Launch {
    /// High-priority work may be beside it.
    pub const BESIDE: u64 = 0;
    /// There was no high-priority job.
    pub const UNGATED: u64 = EPOCH;

    /// Where the launch before it ends.
    pub fn begin(&self) -> u32 {
        (self.mark as u32).wrapping_sub(self.cost_ns)
    }

    /// An epoch as a launch has it. A launch is read long before high-priority work has come that often.
    #[inline]
    pub fn low(epoch: u64) -> u64 {
        epoch & EPOCH
    }

    /// When it was admitted, seen from a time that is less than three days later, ns.
    pub fn at_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(now_ns.wrapping_sub(self.at_ns) & LOW)
    }
}

/// See the module's text. Shared by the threads that launch and the helper.
pub struct LaunchLog<const PLACES: usize> {
    /// Launches written so far; may go back where threads launch at the same time. On a line of its own, so that no place lies on two.
    next: CachePadded<AtomicU64>,
    places: [Place; PLACES],
}

struct Place {
    /// 0: nothing was written here.
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
    /// Of a stream without launches.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(0)),
            places: [const { Place::new() }; PLACES],
        }
    }

    /// The same; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(0)),
            places: core::array::from_fn(|_| Place::new()),
        }
    }

    /// Writes a launch down.
    #[inline]
    pub fn push(&self, launch: &Launch) {
        let next = self.next.load(Ordering::Relaxed);
        if let Some(place) = self.place(next) {
            place.write(launch);
        }
        // Release pairs with the Acquire in `read`: a reader that sees the count sees the launch.
        // Without, a launch might be lacking although nothing overwrote it.
        self.next.store(next.wrapping_add(1), PUBLISH);
    }

    /// What was written since the last time, as far as it is still there; in no order where threads launch at the same time,
    /// and what was read before may come again. `seen` is the reader's own.
    pub fn read(&self, seen: &mut u64, mut take: impl FnMut(Launch)) {
        let next = self.next.load(Ordering::Acquire);
        // All of it also where the count went back.
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
        // Relaxed: each word by itself says of which launch it is.
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

    /// The launch, if it is whole.
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

/// Sixteen bits of a mark, where a word has them. Marks that differ by what a ring's launches take differ here but once in
/// 65536 times.
#[inline]
fn digest(mark: u64) -> u64 {
    /// 2^64 by the golden ratio: neighbouring numbers get far apart.
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
        // A thread that had read the count long ago.
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

//! What a recorded process leaves for `pillion profile record`: launches and durations, by kernel
//! and shape. Durations are ns. The library maps a file of the spool folder
//! (`PILLION_RECORD_SPOOL`) as one [`RecordPage`] and counts in it, so that a killed process leaves
//! its counts. The command reads all processes' files after the job's end, and to show progress.
//!
//! The file is sparse, of full size from the start. The library allocates a part before it touches
//! that part through the mapping: if the file system has no room, the allocation fails and the
//! kernel counts as [`Why::NoRoom`]; a mapped page never lacks memory. Only the process writes. One
//! thread at a time adds samples; any thread makes entries and adds counts; a half-made entry has
//! no launches. A reader believes nothing: it checks offsets ([`RecordPage::text`]), and a
//! truncated or scribbled file yields other numbers only.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub use cupti::{Call, Cupti};

mod cupti;

/// First word of a page in use: the text `plnrec01`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"plnrec01");

/// Suffix of a spool file's name.
pub const FILE_SUFFIX: &str = ".record";

/// Most devices of a process; as many as the library manages.
pub const GPUS_MAX: usize = 16;
/// Most kernels and shapes of a process that are distinguished.
pub const ENTRIES_MAX: usize = 1 << 14;
/// Bytes for the names of kernels and operators of a process.
pub const TEXT_BYTES: usize = 4 << 20;
/// Durations kept per kernel and shape, sampled evenly from all that were measured.
pub const SAMPLES: usize = 128;
/// Bytes kept of a device's name.
pub const GPU_NAME_BYTES: usize = 96;

/// Why a launch is not timed, and other facts about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Why {
    /// A stream of the process was in capture.
    Capture,
    /// The context had more streams than hardware queues.
    Crowded,
    /// Behind so many operations that an event might have to wait for room.
    Deep,
    /// The stream already had the maximum of pending events.
    Full,
    /// The launch may begin before the previous one ends, or goes to several devices at once.
    Programmatic,
    /// The client is high-priority.
    HighPriority,
    /// There was no event, or the context ended before it was read.
    NoEvent,
    /// The stream has no slot of its own.
    NoSlot,
    /// The record had no room for the kernel or shape: the launch is in no entry.
    NoRoom,
    /// Graph launches.
    Graphs,
    /// Launches of graphs with unknown kernels, which are in no entry.
    UnknownGraphs,
    /// Calls of libraries whose launches are not seen: in no entry.
    Operators,
    /// Streams of each device of the process, beyond the first.
    Streams,
    /// Whether a daemon had a high-priority job to protect.
    Gated,
    /// On an idle stream, the launch took longer on the host than the kernel on the GPU.
    Brief,
    /// Kernels for which CUPTI had no room for a record.
    CuptiDropped,
    /// Kernels whose CUPTI record has no times.
    CuptiUntimed,
    /// Kernels that CUPTI recorded and that have no entry here.
    CuptiUnknown,
}

/// Room for [`Why`].
pub const WHYS_MAX: usize = 24;

/// How a duration was measured; a better kind replaces all samples of a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Not measured.
    None,
    /// An even share of a graph's duration, after subtracting its individually timed kernels.
    Share,
    /// Between two events on an idle stream, minus the launch's time on the host.
    Idle,
    /// Between two events that were both submitted before the first was reached.
    Busy,
    /// From start to end, as CUPTI reports them.
    Cupti,
}

impl Kind {
    /// Decodes a word.
    #[must_use]
    pub const fn of(word: u32) -> Self {
        match word {
            1 => Self::Share,
            2 => Self::Idle,
            3 => Self::Busy,
            4 => Self::Cupti,
            _ => Self::None,
        }
    }
}

/// The whole record of a process; all zero is an empty record.
#[derive(Debug)]
#[repr(C)]
pub struct RecordPage {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Its process id.
    pub pid: AtomicU32,
    /// Entries in use.
    pub entries_used: AtomicU32,
    /// Bytes of text in use.
    pub text_used: AtomicU32,
    /// [`Cupti`].
    pub cupti: AtomicU32,
    /// Counts by [`Why`].
    pub whys: [AtomicU64; WHYS_MAX],
    /// By the index of the device in the process.
    pub gpus: [GpuWords; GPUS_MAX],
    /// Kernels and shapes.
    pub entries: [Entry; ENTRIES_MAX],
    /// UTF-8, without terminators.
    pub text: [AtomicU8; TEXT_BYTES],
}

/// A device as its driver describes it; 0 is unknown.
#[derive(Debug)]
#[repr(C)]
pub struct GpuWords {
    /// SMs.
    pub sms: AtomicU32,
    /// Compute capability, major.
    pub major: AtomicU32,
    /// Compute capability, minor.
    pub minor: AtomicU32,
    /// Highest clock, MHz.
    pub clock_mhz: AtomicU32,
    /// Peak bandwidth, 10⁹ bytes per second.
    pub bandwidth_gb_s: AtomicU32,
    /// Bytes of the name.
    pub name_bytes: AtomicU32,
    /// The driver's name of it.
    pub name: [AtomicU8; GPU_NAME_BYTES],
}

/// One kernel in one shape, on one device, in one operator.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// Offset and length of its name in the text.
    pub name: [AtomicU32; 2],
    /// The same for its operator (the line of `profiler::Operator`); empty: none.
    pub operator: [AtomicU32; 2],
    /// Blocks.
    pub grid: [AtomicU32; 3],
    /// Threads of a block.
    pub block: [AtomicU32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: AtomicU32,
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: AtomicU32,
    /// Registers of a thread; 0: not known.
    pub registers: AtomicU32,
    /// SMs that all its blocks need at once.
    pub sm_needed: AtomicU32,
    /// Blocks on one SM; 0: not known.
    pub blocks_per_sm: AtomicU32,
    /// Index of the device.
    pub gpu: AtomicU32,
    /// [`Kind`] of the samples.
    pub kind: AtomicU32,
    /// Flag: the same kernel and shape is also launched on the device in another operator.
    pub is_ambiguous: AtomicU32,
    /// Launches by the application.
    pub launches: AtomicU64,
    /// Launches in graphs.
    pub graph_launches: AtomicU64,
    /// Launches measured, in the way of `kind`.
    pub measured: AtomicU64,
    /// Sum of their durations.
    pub measured_ns: AtomicU64,
    /// Some of their durations, as bits of an `f32`.
    pub samples: [AtomicU32; SAMPLES],
}

const _: () = assert!(size_of::<Entry>() == 104 + 4 * SAMPLES);
const _: () = assert!(size_of::<GpuWords>() == 24 + GPU_NAME_BYTES);

impl RecordPage {
    /// Bytes of the page in front of the entries.
    pub const HEAD_BYTES: usize = core::mem::offset_of!(Self, entries);
    /// Bytes of the page in front of the text.
    pub const TEXT_AT: usize = core::mem::offset_of!(Self, text);

    /// Whether the page is in use.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// The count for a reason.
    #[must_use]
    pub fn count_of(&self, why: Why) -> u64 {
        let words = self.whys.get(why as usize);
        words.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Counts a reason.
    pub fn note(&self, why: Why, count: u64) {
        if let Some(word) = self.whys.get(why as usize) {
            word.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The entries in use.
    pub fn used(&self) -> impl Iterator<Item = &Entry> {
        // Acquire pairs with the Release of an entry's maker: its words are visible.
        let used = self.entries_used.load(Ordering::Acquire) as usize;
        self.entries.iter().take(used)
    }

    /// A piece of the text, as far as it is valid.
    #[must_use]
    pub fn text(&self, piece: &[AtomicU32; 2]) -> String {
        let [at, bytes] = piece
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed) as usize);
        let end = at.saturating_add(bytes);
        text_of(self.text.get(at..end).unwrap_or_default())
    }
}

impl GpuWords {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        let bytes = self.name_bytes.load(Ordering::Acquire) as usize;
        text_of(self.name.get(..bytes).unwrap_or_default())
    }

    /// Sets the name, truncated if it is too long.
    pub fn set_name(&self, name: &str) {
        let kept = name.floor_char_boundary(GPU_NAME_BYTES);
        let bytes = name.as_bytes().get(..kept).unwrap_or_default();
        write_text(&self.name, bytes);
        // Release pairs with the Acquire in `name`.
        self.name_bytes.store(bytes.len() as u32, Ordering::Release);
    }
}

impl Entry {
    /// How many samples are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        // Acquire pairs with the Release in `add`: the samples are there.
        self.measured.load(Ordering::Acquire).min(SAMPLES as u64) as usize
    }

    /// Adds a duration. `random` selects the sample to replace when full. For one thread at a time.
    pub fn add(&self, kind: Kind, ns: f32, random: u64) {
        let known = Kind::of(self.kind.load(Ordering::Relaxed));
        if kind < known || !(ns.is_finite() && ns >= 0.0) {
            return;
        }
        if kind > known {
            self.measured.store(0, Ordering::Relaxed);
            self.measured_ns.store(0, Ordering::Relaxed);
            self.kind.store(kind as u32, Ordering::Relaxed);
        }
        let before = self.measured.load(Ordering::Relaxed);
        let place = if before < SAMPLES as u64 {
            before
        } else {
            random % (before + 1)
        };
        if let Some(sample) = self.samples.get(place as usize) {
            sample.store(ns.to_bits(), Ordering::Relaxed);
        }
        self.measured_ns.fetch_add(ns as u64, Ordering::Relaxed);
        // Stored last, so that counted samples are present.
        self.measured.store(before + 1, Ordering::Release);
    }

    /// The samples, ns.
    #[must_use]
    pub fn samples_ns(&self) -> Vec<f32> {
        let kept = self.samples.iter().take(self.kept());
        let samples = kept.map(|sample| f32::from_bits(sample.load(Ordering::Relaxed)));
        samples.filter(|ns| ns.is_finite() && *ns >= 0.0).collect()
    }
}

/// Stores bytes into the text.
pub fn write_text(to: &[AtomicU8], bytes: &[u8]) {
    for (to, byte) in to.iter().zip(bytes) {
        to.store(*byte, Ordering::Relaxed);
    }
}

fn text_of(bytes: &[AtomicU8]) -> String {
    let bytes: Vec<u8> = bytes
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Box<Entry> {
        Box::new(Entry {
            name: Default::default(),
            operator: Default::default(),
            grid: Default::default(),
            block: Default::default(),
            shared_bytes: AtomicU32::new(0),
            static_shared_bytes: AtomicU32::new(0),
            registers: AtomicU32::new(0),
            sm_needed: AtomicU32::new(0),
            blocks_per_sm: AtomicU32::new(0),
            gpu: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            is_ambiguous: AtomicU32::new(0),
            launches: AtomicU64::new(0),
            graph_launches: AtomicU64::new(0),
            measured: AtomicU64::new(0),
            measured_ns: AtomicU64::new(0),
            samples: [const { AtomicU32::new(0) }; SAMPLES],
        })
    }

    #[test]
    fn a_better_kind_of_sample_replaces_all_lesser_ones_and_keeps_others_out() {
        let entry = entry();
        entry.add(Kind::Share, 900.0, 0);
        entry.add(Kind::Idle, 70.0, 0);
        entry.add(Kind::Share, 900.0, 0);
        assert_eq!(entry.samples_ns(), [70.0]);
        entry.add(Kind::Busy, 50.0, 0);
        entry.add(Kind::Busy, 52.0, 0);
        entry.add(Kind::Idle, 70.0, 0);
        assert_eq!(entry.samples_ns(), [50.0, 52.0]);
        assert_eq!(entry.measured_ns.load(Ordering::Relaxed), 102);
        for nonsense in [f32::NAN, f32::INFINITY, -1.0] {
            entry.add(Kind::Busy, nonsense, 0);
        }
        assert_eq!(entry.kept(), 2);
    }

    #[test]
    fn samples_are_bounded_and_come_from_all_that_was_measured() {
        let entry = entry();
        let mut random = 1_u64;
        for n in 0..10_000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            entry.add(Kind::Busy, n as f32, random >> 33);
        }
        let mut samples = entry.samples_ns();
        samples.sort_by(f32::total_cmp);
        assert_eq!(samples.len(), SAMPLES);
        let median = samples[SAMPLES / 2];
        assert!((3_000.0..7_000.0).contains(&median), "{median}");
        assert_eq!(entry.measured.load(Ordering::Relaxed), 10_000);
    }
}

//! The record of this process for `pillion profile record`: an entry for each kernel and shape, in
//! a file that outlives the process ([`protocol::recording`]). Only in a process that is recorded
//! ([`Record::open`]); clients of other processes have a clear flag. [`crate::progress::recorder`]
//! decides what is counted and measured. The file gets memory in pieces of [`PIECE_BYTES`] before
//! the mapping is touched there: an application never gets a SIGBUS because a file system is full.
//! A part of the file system stays free ([`FREE_SHARE`]), so that others do not either: the workers
//! of a job meet in `/dev/shm`. The file is locked (flock(2)) while the process has it open; an
//! unlocked file grows no more. No launch waits here: a thread may leave a hook by `siglongjmp`,
//! and a signal handler may end the process, at any instruction. Entries are found and made by
//! atomics, so that every launch is counted; locks are only tried, and a duration may be lost
//! there.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use protocol::clock::Clock;
use protocol::recording::{
    ENTRIES_MAX, Entry, FILE_SUFFIX, Kind, MAGIC, RecordPage, TEXT_BYTES, Why, write_text,
};
use protocol::segment::{Access, Mapping, check_file_limit};
use protocol::sync::TryLock;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

use crate::kernels::{NUMBER_MAX, Number, Shape};
use crate::platform::sys::{self, SetOnce, locked};

pub(crate) mod activity;
mod due;
mod keys;
mod pairs;
pub(crate) mod told;

pub(crate) use due::{Due, Known};
use keys::Keys;
pub(crate) use pairs::{Pair, Pairs, Timed, Waiting};

/// Bytes of the file prepared at once.
const PIECE_BYTES: usize = 256 << 10;
/// Most retries when signals interrupt the file system's allocation.
const INTERRUPTIONS_MAX: u32 = 100;
/// Part of the file system left to others: one in so many blocks, and at most this, bytes.
const FREE_SHARE: u64 = 4;
const FREE_MOST: u64 = 256 << 20;
/// In place of an entry: there is no room for the kernel.
const NO_ROOM: u32 = u32::MAX;
/// Graphs with their own schedule of timed launches; further ones share.
const GRAPHS_MAX: usize = 1024;

pub(crate) struct Record {
    page: Mapping<RecordPage>,
    file: File,
    entries_taken: AtomicU32,
    text_taken: AtomicU32,
    entries_room: Room,
    text_room: Room,
    /// By the place of a number: its generation, and below it its entry plus one or [`NO_ROOM`].
    of_places: Box<[AtomicU64]>,
    /// By entry, and by the place of a graph's number modulo [`GRAPHS_MAX`].
    dues: Box<[Due]>,
    graph_dues: Box<[Due]>,
    pub(crate) pairs: Pairs,
    pub(crate) reading: TryLock,
    adding: TryLock,
    random: AtomicU64,
    /// Entries by CUPTI's description of a launch. Launching threads never wait for it.
    keys: Mutex<Keys>,
    /// CUPTI's state, where it times this process.
    pub(crate) told: SetOnce<told::Told>,
    pub(crate) is_cupti_asked: AtomicBool,
}

/// How much of a part of the file has memory.
struct Room {
    /// Offset and size of the part, bytes.
    at: usize,
    all: usize,
    has: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryIndex(pub(crate) u32);

pub(crate) struct Described {
    pub(crate) name: String,
    /// The operator it is launched in, as a line; empty: none.
    pub(crate) operator: String,
    pub(crate) shape: Shape,
    pub(crate) static_shared_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) sm_needed: u32,
    /// 0: not known.
    pub(crate) blocks_per_sm: u32,
    pub(crate) client: u32,
}

#[cfg(test)]
impl Described {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            operator: String::new(),
            shape: Shape {
                grid: [7, 1, 1],
                block: [256, 1, 1],
                shared_bytes: 48,
            },
            static_shared_bytes: 16,
            registers: 32,
            sm_needed: 7,
            blocks_per_sm: 8,
            client: 0,
        }
    }
}

impl Record {
    /// Begins a record in a folder. Errors: the file cannot be made, or the file system has too
    /// little room; no file is left then.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let size = size_of::<RecordPage>();
        check_file_limit(size as u64)?;
        let now_ns = Clock::monotonic().now_ns();
        let name = format!("{}-{now_ns:x}{FILE_SUFFIX}", std::process::id());
        let path = folder.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        Self::begin(file, size, now_ns).inspect_err(|_| {
            // Some of its pages may have no memory: it must not be mapped.
            let _ = fs::remove_file(&path);
        })
    }

    fn begin(file: File, size: usize, now_ns: u64) -> io::Result<Self> {
        // Where locks are not supported the command reads it once the job has ended.
        let _ = file.try_lock();
        file.set_len(size as u64)?;
        let mut rooms = [
            Room::new(RecordPage::HEAD_BYTES, ENTRIES_MAX * size_of::<Entry>()),
            Room::new(RecordPage::TEXT_AT, TEXT_BYTES),
        ];
        match allocate(&file, 0, RecordPage::HEAD_BYTES) {
            // Not every file system can: then write all of it once.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                check_room(&file, size)?;
                write_zeros(&file, size)?;
                rooms = rooms.map(Room::full);
            }
            allocated => allocated?,
        }
        let page: Mapping<RecordPage> = Mapping::open(&file, Access::ReadWrite)?;
        page.keep_from_children()?;
        page.pid.store(std::process::id(), Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        let [entries_room, text_room] = rooms;
        let places = usize::from(NUMBER_MAX) + 1;
        Ok(Self {
            page,
            file,
            entries_taken: AtomicU32::new(0),
            text_taken: AtomicU32::new(0),
            entries_room,
            text_room,
            of_places: (0..places).map(|_| AtomicU64::new(0)).collect(),
            dues: (0..ENTRIES_MAX).map(|_| Due::default()).collect(),
            graph_dues: (0..GRAPHS_MAX).map(|_| Due::default()).collect(),
            pairs: Pairs::new(),
            reading: TryLock::new(),
            adding: TryLock::new(),
            keys: Mutex::default(),
            told: SetOnce::new(),
            is_cupti_asked: AtomicBool::new(false),
            random: AtomicU64::new(now_ns | 1),
        })
    }

    pub(crate) fn page(&self) -> &RecordPage {
        &self.page
    }

    /// The entry of a number, made with `describe` on first sight. `None` if it has none.
    pub(crate) fn entry_of(
        &self,
        number: Number,
        describe: impl FnOnce() -> Option<Described>,
    ) -> Option<EntryIndex> {
        let of_place = self.of_places.get(usize::from(number.place))?;
        if number.place == 0 {
            return None;
        }
        // Acquire pairs with the Release below: the entry is there.
        let word = of_place.load(Ordering::Acquire);
        let (generation, entry) = ((word >> 32) as u32, word as u32);
        if entry != 0 && generation == u32::from(number.generation) {
            return (entry != NO_ROOM).then(|| EntryIndex(entry - 1));
        }
        // Making an entry may be a cancellation point.
        let made = sys::without_cancellation(|| self.make(&describe()?));
        let entry = made.map_or(NO_ROOM, |EntryIndex(entry)| entry + 1);
        let word = u64::from(number.generation) << 32 | u64::from(entry);
        of_place.store(word, Ordering::Release);
        made
    }

    /// Makes an entry. Threads that first see a kernel at the same time make one each, which the
    /// reader adds up. An entry that a thread leaves half made has no launches.
    fn make(&self, described: &Described) -> Option<EntryIndex> {
        let page = &*self.page;
        let name = self.keep_text(&described.name)?;
        let operator = self.keep_text(&described.operator)?;
        let index = take(&self.entries_taken, 1, ENTRIES_MAX)?;
        let entry = page.entries.get(index as usize)?;
        let end = (index as usize + 1) * size_of::<Entry>();
        self.entries_room.prepare(&self.file, end).ok()?;
        fill(&entry.name, name);
        fill(&entry.operator, operator);
        fill(&entry.grid, described.shape.grid);
        fill(&entry.block, described.shape.block);
        for (word, value) in [
            (&entry.shared_bytes, described.shape.shared_bytes),
            (&entry.static_shared_bytes, described.static_shared_bytes),
            (&entry.registers, described.registers),
            (&entry.sm_needed, described.sm_needed),
            (&entry.blocks_per_sm, described.blocks_per_sm),
            (&entry.gpu, described.client),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `RecordPage::used`. All entries before it have memory.
        page.entries_used.fetch_max(index + 1, Ordering::Release);
        Some(EntryIndex(index))
    }

    fn keep_text(&self, text: &str) -> Option<[u32; 2]> {
        let page = &*self.page;
        let at = take(&self.text_taken, text.len(), TEXT_BYTES)? as usize;
        let end = at + text.len();
        self.text_room.prepare(&self.file, end).ok()?;
        write_text(page.text.get(at..end)?, text.as_bytes());
        page.text_used.fetch_max(end as u32, Ordering::Relaxed);
        Some([at as u32, text.len() as u32])
    }

    /// Adds CUPTI's duration of a launch to its entry. Returns whether there is one. For a kernel
    /// that is launched in several operators the duration is of one of them: it counts only where
    /// nothing better is known, as for launches in graphs.
    pub(crate) fn add_told(&self, name: &str, shape: &Shape, client: u32, ns: f32) -> bool {
        let mut keys = locked(&self.keys);
        keys.read(&self.page);
        let entries = keys.find(name, shape, client);
        for index in entries {
            let entry = EntryIndex(*index);
            let is_ambiguous = |words: &Entry| words.is_ambiguous.load(Ordering::Relaxed) != 0;
            match self.entry(entry).is_some_and(is_ambiguous) {
                true => self.add(entry, Kind::Share, ns),
                false => self.add(entry, Kind::Cupti, ns),
            }
        }
        !entries.is_empty()
    }

    /// Finds kernels that are launched in several operators, so that events time them.
    pub(crate) fn poll_keys(&self) {
        locked(&self.keys).read(&self.page);
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told.get().is_some_and(told::Told::is_timing)
    }

    /// Whether events are to time an entry: CUPTI has not, and is off or cannot tell the operator.
    pub(crate) fn wants_events(&self, index: EntryIndex) -> bool {
        let Some(entry) = self.entry(index) else {
            return false;
        };
        let is_ambiguous = || entry.is_ambiguous.load(Ordering::Relaxed) != 0;
        Kind::of(entry.kind.load(Ordering::Relaxed)) != Kind::Cupti
            && (!self.is_told() || is_ambiguous())
    }

    pub(crate) fn entry(&self, EntryIndex(index): EntryIndex) -> Option<&Entry> {
        self.page.entries.get(index as usize)
    }

    pub(crate) fn due(&self, EntryIndex(index): EntryIndex) -> Option<&Due> {
        self.dues.get(index as usize)
    }

    pub(crate) fn graph_due(&self, number: Number) -> Option<&Due> {
        self.graph_dues.get(usize::from(number.place) % GRAPHS_MAX)
    }

    /// Adds a duration to an entry. Lost if another thread holds the lock for long, or for ever.
    pub(crate) fn add(&self, index: EntryIndex, kind: Kind, ns: f32) {
        let random = self.random();
        let Some(_adding) = self.adding.try_lock() else {
            return self.note(Why::NoEvent, 1);
        };
        if let Some(entry) = self.entry(index) {
            entry.add(kind, ns, random >> 8);
        }
    }

    /// A pseudo-random number, different each time and in each process.
    pub(crate) fn random(&self) -> u64 {
        let random = self.random.load(Ordering::Relaxed);
        // xorshift64 (Marsaglia 2003), which is enough to choose launches and samples by.
        let random = random ^ random << 13;
        let random = random ^ random >> 7;
        let random = random ^ random << 17;
        self.random.store(random, Ordering::Relaxed);
        random
    }

    pub(crate) fn note(&self, why: Why, count: u64) {
        self.page.note(why, count);
    }
}

impl Room {
    const fn new(at: usize, all: usize) -> Self {
        Self {
            at,
            all,
            has: AtomicUsize::new(0),
        }
    }

    fn full(self) -> Self {
        self.has.store(self.all, Ordering::Relaxed);
        self
    }

    /// Gives the first `wanted` bytes of the part memory; keeps contents, so threads may race.
    fn prepare(&self, file: &File, wanted: usize) -> Result<(), Errno> {
        let mut has = self.has.load(Ordering::Relaxed);
        while has < wanted {
            let bytes = PIECE_BYTES.min(self.all - has);
            allocate(file, self.at + has, bytes)?;
            has += bytes;
            self.has.fetch_max(has, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn allocate(file: &File, at: usize, bytes: usize) -> Result<(), Errno> {
    check_room(file, bytes)?;
    let mut interruptions = 0;
    loop {
        let flags = FallocateFlags::KEEP_SIZE;
        match fallocate(file, flags, at as u64, bytes as u64) {
            Err(Errno::INTR) if interruptions < INTERRUPTIONS_MAX => interruptions += 1,
            result => return result,
        }
    }
}

fn check_room(file: &File, bytes: usize) -> Result<(), Errno> {
    let system = fstatvfs(file)?;
    let [free, all] = [system.f_bavail, system.f_blocks].map(|n| n.saturating_mul(system.f_frsize));
    let wanted = (bytes as u64).next_multiple_of(system.f_frsize.max(1));
    let left = free.saturating_sub(wanted);
    let has_room = left >= FREE_MOST.min(all / FREE_SHARE);
    has_room.then_some(()).ok_or(Errno::NOSPC)
}

fn write_zeros(file: &File, bytes: usize) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < bytes {
        let piece = ZEROS
            .get(..(bytes - done).min(ZEROS.len()))
            .unwrap_or(&ZEROS);
        file.write_all_at(piece, done as u64)?;
        done += piece.len();
    }
    Ok(())
}

fn take(taken: &AtomicU32, wanted: usize, all: usize) -> Option<u32> {
    let more = |before: u32| {
        let after = (before as usize).checked_add(wanted)?;
        u32::try_from(after).ok().filter(|_| after <= all)
    };
    taken
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .ok()
}

fn fill<const N: usize>(words: &[AtomicU32; N], values: [u32; N]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(place: u16, generation: u8) -> Number {
        Number { place, generation }
    }

    fn record(name: &str) -> (std::path::PathBuf, Record) {
        let name = format!("pillion-record-test-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let record = Record::open(&folder).unwrap();
        (folder, record)
    }

    #[test]
    fn a_number_has_one_entry_in_each_of_its_generations() {
        let (folder, record) = record("generations");
        let first = record.entry_of(number(1, 0), || Some(Described::named("first")));
        let again = record.entry_of(number(1, 0), || panic!("it is known"));
        assert_eq!(first, again);
        let second = record.entry_of(number(1, 1), || Some(Described::named("second")));
        assert_ne!(first, second);
        assert_eq!(record.entry_of(number(0, 0), || panic!("it is none")), None);
        let page = record.page();
        let names: Vec<_> = page.used().map(|entry| page.text(&entry.name)).collect();
        assert_eq!(names, ["first", "second"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn threads_that_see_kernels_at_once_count_every_launch() {
        const KERNELS: u16 = 1_000;
        let (folder, record) = record("threads");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for place in 1..=KERNELS {
                        let name = format!("kernel {place}");
                        let describe = || Some(Described::named(&name));
                        let entry = record.entry_of(number(place, 0), describe).unwrap();
                        let words = record.entry(entry).unwrap();
                        words.launches.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let page = record.page();
        let mut counts = std::collections::HashMap::new();
        for entry in page.used() {
            let count: &mut u64 = counts.entry(page.text(&entry.name)).or_default();
            *count += entry.launches.load(Ordering::Relaxed);
        }
        assert_eq!(counts.len(), usize::from(KERNELS));
        assert!(counts.values().all(|count| *count == 4));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_differs_in_its_operator_alone_cupti_cannot_tell_apart() {
        let (folder, record) = record("operators");
        let of = |place, operator: &str, name: &str| {
            let described = Described {
                operator: operator.to_owned(),
                ..Described::named(name)
            };
            let entry = record.entry_of(number(place, 0), || Some(described));
            let launches = &record.entry(entry.unwrap()).unwrap().launches;
            launches.fetch_add(1, Ordering::Release);
            record.poll_keys();
            entry.unwrap()
        };
        let is_ambiguous = |entry| {
            let entry = record.entry(entry).unwrap();
            entry.is_ambiguous.load(Ordering::Relaxed) != 0
        };
        let (gemm, other) = (of(1, "gemm a", "gemm"), of(2, "gemm a", "other"));
        // Made anew, as after its number was reused.
        let again = of(3, "gemm a", "gemm");
        assert!(![gemm, other, again].into_iter().any(is_ambiguous));
        let shape = Described::named("gemm").shape;
        let known = |entry: EntryIndex| {
            let words = record.entry(entry).unwrap();
            let kind = Kind::of(words.kind.load(Ordering::Relaxed));
            (kind, words.measured.load(Ordering::Relaxed))
        };
        assert!(record.add_told("gemm", &shape, 0, 7.0));
        assert!(!record.add_told("gemm", &shape, 1, 7.0), "no such device");
        assert_eq!(
            [gemm, again].map(known),
            [(Kind::Cupti, 1), (Kind::None, 0)]
        );
        let second = of(4, "gemm b", "gemm");
        assert!([gemm, again, second].into_iter().all(is_ambiguous) && !is_ambiguous(other));
        // Durations from the time of one operator stay.
        assert!(record.add_told("gemm", &shape, 0, 9.0));
        assert_eq!(known(gemm), (Kind::Cupti, 1));
        assert_eq!([again, second].map(known), [(Kind::Share, 1); 2]);
        assert!(is_ambiguous(of(5, "gemm a", "gemm")));
        assert!(record.wants_events(other), "there is no CUPTI");
        record.told.set(told::tests::told()).switch_on();
        assert!(!record.wants_events(other) && record.wants_events(second));
        assert!(!record.wants_events(gemm));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_finds_no_room_has_no_entry_and_is_not_looked_for_again() {
        let (folder, record) = record("room");
        let long = "x".repeat(TEXT_BYTES - 1);
        assert!(
            record
                .entry_of(number(1, 0), || Some(Described::named(&long)))
                .is_some()
        );
        assert_eq!(
            record.entry_of(number(2, 0), || Some(Described::named("yz"))),
            None
        );
        assert_eq!(
            record.entry_of(number(2, 0), || panic!("it is known")),
            None
        );
        assert!(
            record
                .entry_of(number(3, 0), || Some(Described::named("z")))
                .is_some()
        );
        fs::remove_dir_all(folder).unwrap();
    }
}

//! The record of this process for `pillion profile record`: an entry for each kernel and shape, in a
//! file that outlives the process ([`protocol::recording`]).
//!
//! Only in a process that is recorded ([`Record::open`]); all others have a flag in their clients
//! that is not set. What is counted and measured is [`crate::progress::recorder`]'s to say.
//!
//! The file is written to, in pieces of [`PIECE_BYTES`], before the mapping is touched there: an
//! application never gets a SIGBUS because a file system is full.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use protocol::clock::Clock;
use protocol::recording::{
    ENTRIES_MAX, Entry, FILE_SUFFIX, Kind, MAGIC, RecordPage, TEXT_BYTES, Why, write_text,
};
use protocol::segment::{Access, Mapping};
use protocol::sync::TryLock;

use crate::kernels::{NUMBER_MAX, Number, Shape};
use crate::platform::sys::locked;

mod timings;

pub(crate) use timings::{Pair, Timed, Timings, Waiting};

/// How much of the file is prepared at once, bytes.
const PIECE_BYTES: usize = 256 << 10;
/// In place of an entry: there is no room for the kernel.
const NO_ROOM: u32 = u32::MAX;

/// The record of a process.
pub(crate) struct Record {
    page: Mapping<RecordPage>,
    making: Mutex<Making>,
    /// What is not read yet.
    pub(crate) timings: Mutex<Timings>,
    /// Held by the thread that reads it.
    pub(crate) reading: TryLock,
    /// For the choice among many samples.
    random: AtomicU64,
}

/// What the makers of entries share.
struct Making {
    file: File,
    /// Bytes of entries, and of text, that the file has room for.
    entries_bytes: usize,
    text_bytes: usize,
    /// By the place of a number: its generation, and its entry plus one or [`NO_ROOM`].
    of_places: Vec<(u8, u32)>,
}

/// An entry of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryIndex(pub(crate) u32);

/// A kernel and shape as the record has it.
pub(crate) struct Described {
    /// The driver's name of it.
    pub(crate) name: String,
    /// The operator it is launched in, as a line; empty: in none.
    pub(crate) operator: String,
    pub(crate) shape: Shape,
    pub(crate) static_shared_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) sm_needed: u32,
    /// 0: not known.
    pub(crate) blocks_per_sm: u32,
    /// Index of the client.
    pub(crate) client: u32,
}

impl Record {
    /// Begins a record in a folder.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let now_ns = Clock::monotonic().now_ns();
        let name = format!("{}-{now_ns:x}{FILE_SUFFIX}", std::process::id());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(folder.join(name))?;
        file.set_len(size_of::<RecordPage>() as u64)?;
        write_zeros(&file, 0, RecordPage::HEAD_BYTES)?;
        let page: Mapping<RecordPage> = Mapping::open(&file, Access::ReadWrite)?;
        page.keep_from_children()?;
        page.pid.store(std::process::id(), Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        let making = Making {
            file,
            entries_bytes: 0,
            text_bytes: 0,
            of_places: vec![(0, 0); usize::from(NUMBER_MAX) + 1],
        };
        Ok(Self {
            page,
            making: Mutex::new(making),
            timings: Mutex::default(),
            reading: TryLock::new(),
            random: AtomicU64::new(now_ns | 1),
        })
    }

    /// What it is written to.
    pub(crate) fn page(&self) -> &RecordPage {
        &self.page
    }

    /// The entry of a number, made of what `describe` says at its first sight. `None` if it has
    /// none.
    pub(crate) fn entry_of(
        &self,
        number: Number,
        describe: impl FnOnce() -> Option<Described>,
    ) -> Option<EntryIndex> {
        if number.place == 0 {
            return None;
        }
        {
            let making = locked(&self.making);
            match making.of_places.get(usize::from(number.place)) {
                Some(&(_, 0)) | None => {}
                Some(&(generation, entry)) if generation == number.generation => {
                    return (entry != NO_ROOM).then(|| EntryIndex(entry - 1));
                }
                Some(_) => {}
            }
        }
        // The driver may be asked here, so without the lock.
        let described = describe();
        let mut making = locked(&self.making);
        let made = described.and_then(|described| self.make(&mut making, &described));
        if let Some(of_place) = making.of_places.get_mut(usize::from(number.place)) {
            let entry = made.map_or(NO_ROOM, |EntryIndex(entry)| entry + 1);
            *of_place = (number.generation, entry);
        }
        made
    }

    /// Makes an entry. Threads that see a kernel for the first time at once make one each, which the
    /// reader adds up.
    fn make(&self, making: &mut Making, described: &Described) -> Option<EntryIndex> {
        let page = &*self.page;
        let index = page.entries_used.load(Ordering::Relaxed);
        let entry = page.entries.get(index as usize)?;
        making.prepare_entries(index as usize + 1).ok()?;
        let name = self.keep_text(making, &described.name)?;
        let operator = self.keep_text(making, &described.operator)?;
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
        // Release pairs with the Acquire in `RecordPage::used`.
        page.entries_used.store(index + 1, Ordering::Release);
        Some(EntryIndex(index))
    }

    /// Keeps a text; where it is.
    fn keep_text(&self, making: &mut Making, text: &str) -> Option<[u32; 2]> {
        let page = &*self.page;
        let at = page.text_used.load(Ordering::Relaxed) as usize;
        let end = at
            .checked_add(text.len())
            .filter(|end| *end <= TEXT_BYTES)?;
        making.prepare_text(end).ok()?;
        write_text(page.text.get(at..end)?, text.as_bytes());
        page.text_used.store(end as u32, Ordering::Relaxed);
        Some([at as u32, text.len() as u32])
    }

    /// An entry's words.
    pub(crate) fn entry(&self, EntryIndex(index): EntryIndex) -> Option<&Entry> {
        self.page.entries.get(index as usize)
    }

    /// Adds a duration to an entry.
    pub(crate) fn add(&self, index: EntryIndex, kind: Kind, ns: f32) {
        let _making = locked(&self.making);
        let random = self.random.load(Ordering::Relaxed);
        // xorshift64 (Marsaglia 2003), which is enough to choose samples by.
        let random = random ^ random << 13;
        let random = random ^ random >> 7;
        let random = random ^ random << 17;
        self.random.store(random, Ordering::Relaxed);
        if let Some(entry) = self.entry(index) {
            entry.add(kind, ns, random >> 8);
        }
    }

    /// Counts a reason.
    pub(crate) fn note(&self, why: Why, count: u64) {
        self.page.note(why, count);
    }
}

impl Making {
    fn prepare_entries(&mut self, count: usize) -> io::Result<()> {
        let all = ENTRIES_MAX * size_of::<Entry>();
        let wanted = count * size_of::<Entry>();
        let file = &self.file;
        prepare(
            file,
            RecordPage::HEAD_BYTES,
            &mut self.entries_bytes,
            wanted,
            all,
        )
    }

    fn prepare_text(&mut self, bytes: usize) -> io::Result<()> {
        let file = &self.file;
        prepare(
            file,
            RecordPage::TEXT_AT,
            &mut self.text_bytes,
            bytes,
            TEXT_BYTES,
        )
    }
}

/// Gives a part of the file room for `wanted` bytes of at most `all`.
fn prepare(file: &File, at: usize, has: &mut usize, wanted: usize, all: usize) -> io::Result<()> {
    while *has < wanted {
        let bytes = PIECE_BYTES.min(all - *has);
        write_zeros(file, at + *has, bytes)?;
        *has += bytes;
    }
    Ok(())
}

fn write_zeros(file: &File, at: usize, bytes: usize) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < bytes {
        let piece = ZEROS
            .get(..(bytes - done).min(ZEROS.len()))
            .unwrap_or(&ZEROS);
        file.write_all_at(piece, (at + done) as u64)?;
        done += piece.len();
    }
    Ok(())
}

fn fill<const N: usize>(words: &[AtomicU32; N], values: [u32; N]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str) -> Described {
        Described {
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

    fn number(place: u16, generation: u8) -> Number {
        Number { place, generation }
    }

    /// A record in a folder of its own.
    fn record(name: &str) -> (std::path::PathBuf, Record) {
        let name = format!("pillion-record-test-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let record = Record::open(&folder).unwrap();
        (folder, record)
    }

    #[test]
    fn a_number_has_one_entry_in_each_of_its_generations() {
        let (folder, record) = record("generations");
        let first = record.entry_of(number(1, 0), || Some(described("first")));
        let again = record.entry_of(number(1, 0), || panic!("it is known"));
        assert_eq!(first, again);
        let second = record.entry_of(number(1, 1), || Some(described("second")));
        assert_ne!(first, second);
        assert_eq!(record.entry_of(number(0, 0), || panic!("it is none")), None);
        let page = record.page();
        let names: Vec<_> = page.used().map(|entry| page.text(&entry.name)).collect();
        assert_eq!(names, ["first", "second"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_finds_no_room_has_no_entry_and_is_not_looked_for_again() {
        let (folder, record) = record("room");
        let long = "x".repeat(TEXT_BYTES - 1);
        assert!(
            record
                .entry_of(number(1, 0), || Some(described(&long)))
                .is_some()
        );
        assert_eq!(
            record.entry_of(number(2, 0), || Some(described("yz"))),
            None
        );
        assert_eq!(
            record.entry_of(number(2, 0), || panic!("it is known")),
            None
        );
        assert!(
            record
                .entry_of(number(3, 0), || Some(described("z")))
                .is_some()
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}

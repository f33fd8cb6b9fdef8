//! A memory file in which one process repeatedly writes a text that another process reads whole. A
//! client writes into it what it has learnt of its kernels. The daemon reads it now and then, and
//! once more when the client has ended, so a killed client leaves its last note. The client writes
//! to memory of its own, and so never waits.
//!
//! The file has two halves; the writer overwrites the older one. A half begins with 24 bytes: the
//! note's number (from 1, the greater is the newer), the length of its text in bytes, and a
//! checksum of text and both. A half that is being written, or whose writer was killed meanwhile,
//! fails its checksum; the reader then takes the other one. Numbers are little-endian.
//!
//! The reader does not trust the writer. The file must be a memory file of sealed size, so that
//! reading neither blocks nor fails half-way. The user of the text must validate it: the checksum
//! shows that a note is whole, not that it is true.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::{pread, retry_on_intr};

use crate::pages::ClientPage;
use crate::segment::Mapping;
use crate::sync::{AtomicU64, Ordering};

/// Longest text, bytes.
pub const TEXT_BYTES_MAX: usize = HALF_BYTES - HEAD_BYTES;

/// Only written parts take memory. Both halves together are no larger than a client's page, the
/// largest memory file that the daemon accepts from a peer.
const HALF_BYTES: usize = 2 << 20;
const _: () = assert!(2 * HALF_BYTES <= size_of::<ClientPage>());
const HEAD_BYTES: usize = 24;
const HEAD_WORDS: usize = HEAD_BYTES / WORD_BYTES;
const HALF_WORDS: usize = HALF_BYTES / WORD_BYTES;
const WORD_BYTES: usize = size_of::<u64>();

/// The file as the writer's mapping: the two halves.
#[repr(C)]
#[derive(Debug)]
pub struct NotebookPage([[AtomicU64; HALF_WORDS]; 2]);

/// The writer's side.
#[derive(Debug)]
pub struct Notebook {
    page: Mapping<NotebookPage>,
    number: u64,
}

/// A note as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its number, from 1.
    pub number: u64,
    /// Its text.
    pub text: Vec<u8>,
}

/// A fault of a file received as a notebook.
#[derive(Debug, thiserror::Error)]
pub enum NotebookError {
    /// It is not a memory file of the right size with a sealed size.
    #[error("not a file of learnt durations: {0} bytes, seals {1:?}")]
    Foreign(u64, SealFlags),
    /// The file cannot be read.
    #[error("the file of learnt durations cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl Notebook {
    /// Creates an empty notebook, and its file for the reader. Forked children lose the mapping.
    /// # Errors
    /// The system gives no memory file.
    pub fn create() -> io::Result<(OwnedFd, Self)> {
        let (file, page) = Mapping::<NotebookPage>::create("pillion-notebook")?;
        page.keep_from_children()?;
        Ok((file, Self { page, number: 0 }))
    }

    /// Replaces the older note. False, and no write, if the text exceeds [`TEXT_BYTES_MAX`].
    pub fn write(&mut self, text: &[u8]) -> bool {
        if text.len() > TEXT_BYTES_MAX {
            return false;
        }
        let number = self.number + 1;
        let [even, odd] = &self.page.0;
        let half = if number.is_multiple_of(2) { even } else { odd };
        let (head, rest) = half.split_at(HEAD_WORDS);
        // All Relaxed: the checksum shows whether a note is whole.
        for (word, value) in rest.iter().zip(words_of(text)) {
            word.store(value, Ordering::Relaxed);
        }
        let bytes = text.len() as u64;
        for (word, value) in head.iter().zip([number, bytes, checksum(number, text)]) {
            word.store(value, Ordering::Relaxed);
        }
        self.number = number;
        true
    }
}

/// The newest note in an untrusted process's notebook; `None` if there is none yet.
/// # Errors
/// See [`NotebookError`].
pub fn read(file: impl AsFd) -> Result<Option<Note>, NotebookError> {
    let size = u64::try_from(fstat(&file).map_err(io::Error::from)?.st_size).unwrap_or(0);
    let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    if size != 2 * HALF_BYTES as u64 || !seals.contains(sealed) {
        return Err(NotebookError::Foreign(size, seals));
    }
    let mut heads = [head(&file, 0)?, head(&file, 1)?];
    heads.sort_unstable_by_key(|head| core::cmp::Reverse(head.number));
    for head in heads.iter().filter(|head| head.number != 0) {
        let Some(bytes) = usize::try_from(head.bytes)
            .ok()
            .filter(|&bytes| bytes <= TEXT_BYTES_MAX)
        else {
            continue;
        };
        let mut text = vec![0; bytes];
        read_exact(&file, &mut text, half_of(head.number) + HEAD_BYTES as u64)?;
        if checksum(head.number, &text) == head.checksum {
            let number = head.number;
            return Ok(Some(Note { number, text }));
        }
    }
    Ok(None)
}

const fn half_of(number: u64) -> u64 {
    (number % 2) * HALF_BYTES as u64
}

struct Head {
    /// 0: no note, or one that does not belong in its half.
    number: u64,
    bytes: u64,
    checksum: u64,
}

fn head(file: impl AsFd, half: u64) -> io::Result<Head> {
    let mut bytes = [0; HEAD_BYTES];
    read_exact(file, &mut bytes, half_of(half))?;
    let (words, _) = bytes.as_chunks::<8>();
    let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
    let number = word(0);
    Ok(Head {
        number: if number % 2 == half { number } else { 0 },
        bytes: word(1),
        checksum: word(2),
    })
}

/// FNV-1a over number, length and text, a word at a time. It detects incomplete notes, not attacks.
fn checksum(number: u64, text: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(29);
    let words = [number, text.len() as u64]
        .into_iter()
        .chain(words_of(text));
    words.fold(0xcbf2_9ce4_8422_2325, step)
}

fn words_of(text: &[u8]) -> impl Iterator<Item = u64> {
    text.chunks(WORD_BYTES).map(|chunk| {
        let mut word = [0; WORD_BYTES];
        for (byte, of_chunk) in word.iter_mut().zip(chunk) {
            *byte = *of_chunk;
        }
        u64::from_le_bytes(word).to_le()
    })
}

fn read_exact(file: impl AsFd, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = retry_on_intr(|| pread(&file, &mut *bytes, at))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = bytes.get_mut(read..).unwrap_or_default();
        at += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use proptest::prelude::*;

    use super::*;
    use crate::segment::create_sealed;

    fn new() -> (OwnedFd, Notebook) {
        Notebook::create().unwrap()
    }

    fn text_in(file: &OwnedFd) -> Option<Vec<u8>> {
        read(file).unwrap().map(|note| note.text)
    }

    #[test]
    fn the_last_note_is_read_whole() {
        let (file, mut notebook) = new();
        assert_eq!(text_in(&file), None);
        let texts = [&b"first"[..], b"", b"third, longer", b"a fourth"];
        for (number, text) in (1..).zip(texts) {
            assert!(notebook.write(text));
            let text = text.to_vec();
            assert_eq!(read(&file).unwrap(), Some(Note { number, text }));
        }
        let longest = vec![7; TEXT_BYTES_MAX];
        assert!(notebook.write(&longest));
        assert_eq!(text_in(&file), Some(longest));
        assert!(!notebook.write(&vec![8; TEXT_BYTES_MAX + 1]));
        assert_eq!(text_in(&file).unwrap()[0], 7);
    }

    /// A writer killed after any store: the rest of its third note spoils only the first.
    #[test]
    fn a_note_that_is_not_whole_leaves_the_one_before() {
        let (file, mut whole) = new();
        for text in [&b""[..], b"", b"the third note"] {
            whole.write(text);
        }
        let third: Vec<u64> = of_half(&whole, 1)[..HEAD_WORDS + 2].to_vec();
        assert_eq!(text_in(&file).as_deref(), Some(&b"the third note"[..]));
        // In the order of the stores: the text, then the head.
        let order: Vec<usize> = (HEAD_WORDS..third.len()).chain(0..HEAD_WORDS).collect();
        for stores in 0..order.len() {
            let (file, mut notebook) = new();
            notebook.write(b"the first note");
            notebook.write(b"the second note");
            for &place in &order[..stores] {
                notebook.page.0[1][place].store(third[place], Ordering::Relaxed);
            }
            let read = text_in(&file);
            assert_eq!(read.as_deref(), Some(&b"the second note"[..]), "{stores}");
        }
    }

    fn of_half(notebook: &Notebook, half: usize) -> Vec<u64> {
        let words = notebook.page.0[half].iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn another_file_is_refused() {
        let refused = |file: OwnedFd| read(&file).unwrap_err().to_string();
        assert!(refused(create_sealed("pillion-test", 4096).unwrap()).contains("4096 bytes"));
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(2 * HALF_BYTES as u64).unwrap();
        assert!(refused(plain.into()).contains("not a file of learnt durations"));
        assert!(
            refused(File::open("/dev/zero").unwrap().into())
                .contains("not a file of learnt durations")
        );
        let (reader, _writer) = io::pipe().unwrap();
        assert!(refused(reader.into()).contains("not a file of learnt durations"));
    }

    proptest! {
        /// Anything that a writer may put into its notebook.
        #[test]
        fn any_words_are_a_note_or_none(words in proptest::collection::vec(any::<u64>(), 12)) {
            let (file, notebook) = new();
            let halves = notebook.page.0.iter().flat_map(|half| &half[..6]);
            for (word, value) in halves.zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            prop_assert!(read(&file).is_ok());
        }
    }
}

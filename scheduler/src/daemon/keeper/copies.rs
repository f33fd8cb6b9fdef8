//! In-memory copies of saved durations that processes have received.
//! A memory file is charged to the daemon that created it for as long as anybody has a descriptor
//! of it, and a descriptor cannot be revoked. So the daemon truncates the file after [`HELD_NS`].
//! The requester reads it at once, and is done by then. An unchanged text for another process of
//! the same user is the same file. One user has at most [`COPIES_OF_USER`] files with
//! [`BYTES_OF_USER`] at once, all have [`COPIES_MAX`]; a further requester gets the answer that
//! nothing is known.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use protocol::segment::{read_only, sealed_text};

/// Time to read a copy, ns.
pub(super) const HELD_NS: u64 = 10_000_000_000;

/// Copies of one user at one time, their bytes, and copies of all.
const COPIES_OF_USER: usize = 64;
const BYTES_OF_USER: u64 = 32 << 20;
const COPIES_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Copies {
    all: Vec<Copy>,
}

struct Copy {
    uid: u32,
    bytes: u64,
    until_ns: u64,
    file: File,
}

impl Copies {
    /// A memory file with that text; `None` if the user has too many, or the system has none.
    pub(super) fn hand_out(&mut self, uid: u32, text: &str, now_ns: u64) -> Option<OwnedFd> {
        self.take_back(now_ns);
        let until_ns = now_ns + HELD_NS;
        let mut own = self.all.iter_mut().filter(|copy| copy.uid == uid);
        if let Some(same) = own.find(|copy| copy.is_of(text)) {
            same.until_ns = until_ns;
            // A separate descriptor: with a shared one, processes would share the read offset.
            return read_only(&same.file).ok();
        }
        let bytes = text.len() as u64;
        let own = || self.all.iter().filter(|copy| copy.uid == uid);
        let sum: u64 = own().map(|copy| copy.bytes).sum();
        let has_room = self.all.len() < COPIES_MAX
            && own().count() < COPIES_OF_USER
            && sum + bytes <= BYTES_OF_USER;
        if !has_room {
            return None;
        }
        let file = sealed_text("pillion-learnt", text.as_bytes()).ok()?;
        let handed = read_only(&file).ok()?;
        self.all.push(Copy {
            uid,
            bytes,
            until_ns,
            file: file.into(),
        });
        Some(handed)
    }

    pub(super) fn take_back(&mut self, now_ns: u64) {
        // Truncating a memory file without a seal against it always works.
        let gone = self.all.extract_if(.., |copy| copy.until_ns <= now_ns);
        gone.for_each(|copy| _ = copy.file.set_len(0));
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.all.iter().map(|copy| copy.until_ns).min()
    }
}

impl Copy {
    fn is_of(&self, text: &str) -> bool {
        if self.bytes != text.len() as u64 {
            return false;
        }
        let mut held = vec![0; text.len()];
        self.file.read_exact_at(&mut held, 0).is_ok() && held == text.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use protocol::segment::identity;

    use super::*;

    const ANNE: u32 = 61_001;
    const BOB: u32 = 61_002;

    fn read(file: OwnedFd) -> String {
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_has_not_changed_is_one_file_which_each_reads_from_its_beginning() {
        let mut copies = Copies::default();
        let mut hand_out = |uid, text| copies.hand_out(uid, text, 7).unwrap();
        let [first, second] = [hand_out(ANNE, "a"), hand_out(ANNE, "a")];
        let [changed, bobs] = [hand_out(ANNE, "b"), hand_out(BOB, "a")];
        let number = |file: &OwnedFd| identity(file).unwrap();
        assert_eq!(number(&first), number(&second));
        assert_ne!(number(&first), number(&changed));
        assert_ne!(number(&first), number(&bobs));
        assert_eq!(
            [first, second, changed, bobs].map(read),
            ["a", "a", "b", "a"]
        );
    }

    #[test]
    fn a_copy_takes_no_memory_after_ten_seconds_whoever_holds_it() {
        let mut copies = Copies::default();
        let held = copies.hand_out(ANNE, "text", 0).unwrap();
        assert_eq!(copies.next_ns(), Some(HELD_NS));
        copies.hand_out(ANNE, "text", 1).unwrap();
        copies.take_back(HELD_NS);
        let bytes = || {
            File::from(held.try_clone().unwrap())
                .metadata()
                .unwrap()
                .len()
        };
        assert_eq!((bytes(), copies.next_ns()), (4, Some(HELD_NS + 1)));
        copies.take_back(HELD_NS + 1);
        assert_eq!((bytes(), copies.next_ns()), (0, None));
        assert_eq!(
            read(copies.hand_out(ANNE, "text", HELD_NS + 1).unwrap()),
            "text"
        );
    }

    #[test]
    fn a_user_holds_so_many_and_no_more_and_leaves_others_theirs() {
        let mut copies = Copies::default();
        let long = |number: u64| format!("{number:04}").repeat(1 << 19);
        let held: Vec<_> = (0..100)
            .filter_map(|number| copies.hand_out(ANNE, &long(number), number))
            .collect();
        assert_eq!(held.len(), 16);
        assert!(copies.hand_out(ANNE, &long(3), 100).is_some());
        let small = |copies: &mut Copies, uid| {
            let texts = (0..100).map(|number| number.to_string());
            texts
                .filter_map(|text| copies.hand_out(uid, &text, 100))
                .count()
        };
        assert_eq!([small(&mut copies, ANNE), small(&mut copies, BOB)], [0, 64]);
        let file = copies.hand_out(ANNE, &long(200), 100 + HELD_NS);
        assert_eq!(read(file.unwrap()).len(), 2 << 20);
        let sum: u64 = held
            .into_iter()
            .map(|file| File::from(file).metadata().unwrap().len())
            .sum();
        assert_eq!(sum, 0);
    }
}

//! The longest kernels of a client, by name: they show operators why protection against it is hard.
//! Nothing is decided by them. The table has a few places in the client's page, each for another
//! name. Threads of the client write it when they first see a kernel, not at launches; the daemon
//! reads it for a status request. The reader gets a client's claim: a number, and a text's valid
//! UTF-8. A place is a [`SeqLock`] whose version is the duration. A thread interrupted for good
//! while writing leaves one place unused.

use core::fmt::{self, Write as _};

use crate::sync::{AtomicU64, Ordering, SeqLock};

/// Kernels that a page has room for.
pub const PLACES: usize = 6;

/// Bytes kept of a name.
pub const NAME_BYTES: usize = 56;

const NAME_WORDS: usize = NAME_BYTES / 8;

/// Words of the whole table in a page.
pub const WORDS: usize = PLACES * (2 + NAME_WORDS);

/// No kernel: the duration of a place that is being written.
const WRITING: u64 = u64::MAX;

/// An attempt fails if another thread has noted a kernel; a client that scribbles loses a name.
const TRIES_MAX: usize = 64;

/// A table in shared memory; all zero is an empty one.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Longest([Place; PLACES]);

#[derive(Debug, Default)]
#[repr(C)]
struct Place {
    /// Duration of one launch; 0: free. It is the version of the words below.
    expected_ns: SeqLock,
    sm_needed: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
}

/// A kernel as a client reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongKernel {
    /// The beginning of its name, without control characters; empty if it has none.
    pub name: String,
    /// Expected duration of a launch, ns.
    pub expected_ns: u64,
    /// SMs it needs, which may exceed the device's; `u32::MAX`: unknown.
    pub sm_needed: u32,
}

impl Longest {
    /// Notes one of the longest kernels, by its longest launch. Never allocates or waits.
    pub fn note(&self, expected_ns: u64, sm_needed: u32, name: impl fmt::Display) {
        if expected_ns == 0 || expected_ns == WRITING {
            return;
        }
        if self
            .0
            .iter()
            .all(|place| place.expected_ns() >= expected_ns)
        {
            return;
        }
        let mut text = Text::default();
        _ = write!(text, "{name}");
        for _ in 0..TRIES_MAX {
            let Some((place, before_ns)) = self.place_for(&text.0, expected_ns) else {
                return;
            };
            if place.try_write(before_ns, expected_ns, sm_needed, &text.0) {
                return;
            }
        }
    }

    /// Replaces the data of the kernel of that name; one not in the table is noted if long enough.
    pub fn set(&self, expected_ns: u64, sm_needed: u32, name: impl fmt::Display) {
        if expected_ns == 0 || expected_ns == WRITING {
            return;
        }
        let mut text = Text::default();
        _ = write!(text, "{name}");
        for _ in 0..TRIES_MAX {
            let mut known = self.0.iter().map(|place| (place, place.expected_ns()));
            let same =
                known.find(|(place, ns)| *ns != 0 && *ns != WRITING && place.name() == text.0);
            let Some((place, before_ns)) = same else {
                return self.note(expected_ns, sm_needed, name);
            };
            if before_ns == expected_ns
                || place.try_write(before_ns, expected_ns, sm_needed, &text.0)
            {
                return;
            }
        }
    }

    /// Clears the table.
    pub fn forget(&self) {
        for place in &self.0 {
            let before_ns = place.expected_ns();
            if before_ns != WRITING {
                // If this fails, another thread has just noted a kernel there, which stays.
                place.expected_ns.try_set(before_ns, 0);
            }
        }
    }

    /// A kernel is noted only if its duration exceeds this, ns.
    pub fn least_ns(&self) -> u64 {
        let places = self.0.iter().map(Place::expected_ns);
        places.min().unwrap_or(0)
    }

    /// Whether a kernel of exactly that duration is noted: a cheap check for repeated launches.
    #[inline]
    pub fn has(&self, expected_ns: u64) -> bool {
        let mut places = self.0.iter();
        places.any(|place| place.expected_ns() == expected_ns)
    }

    /// The place of the same name, else of the shortest kernel; `None` if its kernel is as long.
    fn place_for(&self, name: &[u64; NAME_WORDS], expected_ns: u64) -> Option<(&Place, u64)> {
        let known = self
            .0
            .iter()
            .map(|place| (place, place.expected_ns()))
            .filter(|(_, ns)| *ns != WRITING);
        let same = known
            .clone()
            .find(|(place, ns)| *ns != 0 && place.name() == *name);
        same.or_else(|| known.min_by_key(|(_, ns)| *ns))
            .filter(|(_, ns)| *ns < expected_ns)
    }

    /// The noted kernels, the longest first.
    pub fn read(&self) -> Vec<LongKernel> {
        let mut found: Vec<LongKernel> = self.0.iter().filter_map(Place::read).collect();
        found.sort_by_key(|kernel| core::cmp::Reverse(kernel.expected_ns));
        found
    }
}

impl Place {
    fn expected_ns(&self) -> u64 {
        self.expected_ns.load()
    }

    fn name(&self) -> [u64; NAME_WORDS] {
        core::array::from_fn(|word| self.name[word].load(Ordering::Relaxed))
    }

    fn try_write(
        &self,
        before_ns: u64,
        expected_ns: u64,
        sm_needed: u32,
        name: &[u64; NAME_WORDS],
    ) -> bool {
        if !self.expected_ns.try_begin(before_ns, WRITING) {
            return false;
        }
        self.sm_needed.store(sm_needed.into(), Ordering::Relaxed);
        for (word, value) in self.name.iter().zip(name) {
            word.store(*value, Ordering::Relaxed);
        }
        self.expected_ns.finish(expected_ns);
        true
    }

    fn read(&self) -> Option<LongKernel> {
        let expected_ns = self.expected_ns();
        let (sm_needed, name) = (self.sm_needed.load(Ordering::Relaxed), self.name());
        let is_same = self.expected_ns.is_still(expected_ns, 0);
        if expected_ns == 0 || expected_ns == WRITING || !is_same {
            return None;
        }
        Some(LongKernel {
            name: text_of(&name),
            expected_ns,
            sm_needed: u32::try_from(sm_needed).unwrap_or(u32::MAX),
        })
    }
}

#[derive(Default)]
struct Text([u64; NAME_WORDS], usize);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(word) = self.0.get_mut(self.1 / 8) else {
                return Err(fmt::Error);
            };
            *word |= u64::from(byte) << (8 * (self.1 % 8));
            self.1 += 1;
        }
        Ok(())
    }
}

fn text_of(words: &[u64; NAME_WORDS]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars()
        .filter(|c| !c.is_control() && *c != char::REPLACEMENT_CHARACTER)
        .collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn names(longest: &Longest) -> Vec<(String, u64)> {
        let read = longest.read().into_iter();
        read.map(|kernel| (kernel.name, kernel.expected_ns))
            .collect()
    }

    #[test]
    fn the_longest_are_kept_each_name_once_with_its_longest_launch() {
        let longest = Longest::default();
        assert_eq!(longest.read(), []);
        for (name, us) in [
            ("gemm", 30),
            ("conv", 900),
            ("gemm", 70),
            ("gemm", 50),
            ("add", 2),
        ] {
            longest.note(us, 80, name);
        }
        let expected = [("conv", 900), ("gemm", 70), ("add", 2)];
        assert_eq!(
            names(&longest),
            expected.map(|(name, us)| (name.to_owned(), us))
        );
        for us in 100..120 {
            longest.note(us, 80, format_args!("kernel {us}"));
        }
        let found = names(&longest);
        assert_eq!(found.len(), PLACES);
        assert_eq!(found[0], ("conv".to_owned(), 900));
        let kept: Vec<u64> = found[1..].iter().map(|(_, us)| *us).collect();
        assert_eq!(kept, [119, 118, 117, 116, 115]);
    }

    #[test]
    fn what_is_set_may_become_shorter_and_makes_room() {
        let longest = Longest::default();
        for us in 100..106 {
            longest.note(us, 80, format_args!("kernel {us}"));
        }
        longest.note(50, 80, "shorter");
        assert!(names(&longest).iter().all(|(name, _)| name != "shorter"));
        longest.set(10, 80, "kernel 105");
        assert_eq!((names(&longest)[5].1, longest.least_ns()), (10, 10));
        longest.set(50, 80, "shorter");
        let found = names(&longest);
        assert_eq!(found.len(), PLACES);
        assert_eq!(found[5], ("shorter".to_owned(), 50));
        longest.set(500, 80, "kernel 100");
        assert_eq!(names(&longest)[0], ("kernel 100".to_owned(), 500));
        longest.forget();
        assert_eq!(longest.read(), []);
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_what_is_no_text_is_left_out() {
        let longest = Longest::default();
        longest.note(1, 1, format_args!("{}é", "x".repeat(NAME_BYTES - 1)));
        assert_eq!(longest.read()[0].name, "x".repeat(NAME_BYTES - 1));
        longest.note(5, u32::MAX, "a\nb\u{1b}[2J");
        let kernel = &longest.read()[0];
        assert_eq!(
            (kernel.name.as_str(), kernel.sm_needed),
            ("ab[2J", u32::MAX)
        );
    }

    #[test]
    fn any_words_of_a_client_are_read_as_something() {
        let longest = Longest::default();
        for (place, word) in longest
            .0
            .iter()
            .zip([0, 1, WRITING, 1 << 63, 7, u64::MAX - 1])
        {
            place.expected_ns.finish(word);
            place.sm_needed.store(u64::MAX, Ordering::Relaxed);
            place
                .name
                .iter()
                .for_each(|name| name.store(!0, Ordering::Relaxed));
        }
        let read = longest.read();
        assert_eq!(read.len(), 4);
        assert!(read.iter().all(|kernel| kernel.name.is_empty()));
        // A client that wrote nonsense can still note kernels: places being written are left alone.
        longest.note(9, 1, "nine");
        assert!(longest.read().iter().any(|kernel| kernel.name == "nine"));
    }

    #[test]
    fn threads_that_note_at_once_lose_no_longest() {
        let longest = Longest::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let longest = &longest;
                scope.spawn(move || {
                    for us in 1..=500_u64 {
                        longest.note(us * 4 + thread, 1, format_args!("{}", us * 4 + thread));
                    }
                });
            }
        });
        for kernel in longest.read() {
            assert_eq!(kernel.name, kernel.expected_ns.to_string());
        }
        assert_eq!(longest.read()[0].expected_ns, 2_003);
    }
}

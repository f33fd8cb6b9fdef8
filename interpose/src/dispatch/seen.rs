//! Observations of the program, kept until a daemon or the log gets them. Tables of atomics: notes
//! are made inside the program's `dlsym` and `dlopen`, while other threads may fork, so noting
//! neither locks nor allocates. [`crate::dispatch::telemetry`] and [`crate::dispatch::bypass`]
//! decide what to note, and report it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use abi::ENTRY_POINT_COUNT;
use protocol::pages::Counter;

#[cfg(not(shim))]
mod notes;

#[cfg(not(shim))]
use notes::Notes;
#[cfg(not(shim))]
pub(crate) use notes::Way;

pub(super) static SEEN: Seen = Seen::new();

pub(super) struct Seen {
    pub(super) doors_of: [AtomicU8; ENTRY_POINT_COUNT],
    pub(super) unknown: Unknown,
    pub(super) counts: Counts,
    #[cfg(not(shim))]
    pub(super) bypasses: Notes,
}

impl Seen {
    const fn new() -> Self {
        Self {
            doors_of: [const { AtomicU8::new(0) }; ENTRY_POINT_COUNT],
            unknown: Unknown::new(),
            counts: Counts::new(),
            #[cfg(not(shim))]
            bypasses: Notes::new(),
        }
    }
}

/// Most unknown names kept; further ones are only counted.
const UNKNOWN_MAX: usize = 64;
/// Longest kept part of such a name, in words of eight bytes.
const UNKNOWN_WORDS: usize = 6;

pub(super) struct Unknown {
    names: [[AtomicU64; UNKNOWN_WORDS]; UNKNOWN_MAX],
    used: AtomicUsize,
}

impl Unknown {
    const fn new() -> Self {
        Self {
            names: [const { [const { AtomicU64::new(0) }; UNKNOWN_WORDS] }; UNKNOWN_MAX],
            used: AtomicUsize::new(0),
        }
    }

    pub(super) fn keep(&self, name: &CStr) -> bool {
        let words = words(name.to_bytes());
        let used = self.used.load(Ordering::Relaxed).min(UNKNOWN_MAX);
        let is_known = self.names.iter().take(used).any(|known| {
            known
                .iter()
                .zip(&words)
                .all(|(known, word)| known.load(Ordering::Relaxed) == *word)
        });
        if is_known {
            return false;
        }
        // Two threads that find the same name at once may keep it twice.
        let place = self.used.fetch_add(1, Ordering::Relaxed);
        for (kept, word) in self.names.get(place).into_iter().flatten().zip(words) {
            kept.store(word, Ordering::Relaxed);
        }
        true
    }

    pub(super) fn texts(&self) -> Vec<String> {
        let used = self.used.load(Ordering::Relaxed);
        self.names.iter().take(used).map(text).collect()
    }
}

fn words(name: &[u8]) -> [u64; UNKNOWN_WORDS] {
    let mut words = [0; UNKNOWN_WORDS];
    for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
        let mut padded = [0; 8];
        padded
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        *word = u64::from_le_bytes(padded);
    }
    words
}

fn text(words: &[AtomicU64; UNKNOWN_WORDS]) -> String {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Counted here until the process attaches.
pub(super) const COUNTED: [Counter; 14] = [
    Counter::ResolvedHooked,
    Counter::ResolvedPassed,
    Counter::ResolvedUnknown,
    Counter::LaunchesPassedBy,
    Counter::NestedCalls,
    Counter::ContextCalls,
    Counter::CopyCalls,
    Counter::EntryCalls,
    Counter::GraphCalls,
    Counter::MemoryCalls,
    Counter::ModuleCalls,
    Counter::StreamCalls,
    Counter::SyncCalls,
    Counter::OtherCalls,
];

pub(super) struct Counts {
    totals: [AtomicU64; COUNTED.len()],
    /// How much of each total is in a client's page.
    published: [AtomicU64; COUNTED.len()],
}

impl Counts {
    const fn new() -> Self {
        Self {
            totals: [const { AtomicU64::new(0) }; COUNTED.len()],
            published: [const { AtomicU64::new(0) }; COUNTED.len()],
        }
    }

    pub(super) fn add(&self, counter: Counter) {
        if let Some(place) = COUNTED.iter().position(|counted| *counted == counter)
            && let Some(total) = self.totals.get(place)
        {
            total.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take_unpublished(&self) -> impl Iterator<Item = (Counter, u64)> {
        let totals = self.totals.iter().zip(&self.published);
        let each = COUNTED.into_iter().zip(totals);
        each.filter_map(|(counter, (total, published))| {
            let now = total.load(Ordering::Relaxed);
            // The greatest of several threads' values is published once.
            let before = published.fetch_max(now, Ordering::Relaxed);
            (now > before).then(|| (counter, now - before))
        })
    }

    pub(super) fn totals(&self) -> impl Iterator<Item = (Counter, u64)> {
        let each = COUNTED.into_iter().zip(&self.totals);
        each.map(|(counter, total)| (counter, total.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_up_to_their_bound() {
        for (name, kept) in [
            ("cuNew", "cuNew"),
            ("cuEightch", "cuEightch"),
            (&*"x".repeat(60), &*"x".repeat(48)),
        ] {
            let words = words(name.as_bytes()).map(AtomicU64::new);
            assert_eq!(text(&words), kept);
        }
    }

    #[test]
    fn a_name_is_kept_once_and_no_more_of_them_than_there_is_room_for() {
        let unknown = Unknown::new();
        assert!(unknown.keep(c"cuNew") && !unknown.keep(c"cuNew"));
        assert_eq!(unknown.texts(), ["cuNew"]);
        let mut name = *b"cuNew00\0";
        for n in 0..100 {
            (name[5], name[6]) = (b'0' + n / 10, b'0' + n % 10);
            assert!(unknown.keep(CStr::from_bytes_with_nul(&name).unwrap()));
        }
        assert_eq!(unknown.texts().len(), UNKNOWN_MAX);
    }

    #[test]
    fn what_is_counted_is_published_once() {
        let counts = Counts::new();
        counts.add(Counter::CopyCalls);
        counts.add(Counter::CopyCalls);
        let first: Vec<_> = counts.take_unpublished().collect();
        assert_eq!(first, [(Counter::CopyCalls, 2)]);
        assert_eq!(counts.take_unpublished().count(), 0);
        counts.add(Counter::CopyCalls);
        assert_eq!(
            counts.take_unpublished().last(),
            Some((Counter::CopyCalls, 1))
        );
        assert_eq!(counts.totals().map(|(_, total)| total).sum::<u64>(), 3);
    }
}

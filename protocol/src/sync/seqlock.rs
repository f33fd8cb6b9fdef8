//! A sequence lock: words that are written together are read together, without a lock. [`SeqLock`]
//! is a word beside them. It has the *version* of the words, or a mark that they are being written.
//! A writer stores the mark, then the words, then the next version. A reader loads the version,
//! then the words, then the version again. The words are of one version if both loads of it are
//! equal. No thread waits: a reader that meets a writer gets nothing, and may read again.
//!
//! The protected words are atomics that are loaded and stored Relaxed, so that a read that meets a
//! write is defined. The fences order them (H.-J. Boehm, "Can seqlocks get along with programming
//! language memory models?", MSPC 2012).
//!
//! [`SeqLock::read`] and [`SeqLock::write`] count: an even number is a version, an odd one the
//! mark. Where several threads write, or the version has a meaning of its own, the owner of the
//! words chooses marks and versions: writers use [`SeqLock::try_begin`] and [`SeqLock::finish`],
//! readers [`SeqLock::load`] and [`SeqLock::is_still`]. The lock is a `u64` in memory, and may lie
//! in a shared page. A peer that scribbles there makes reads fail, or return words of different
//! versions: readers without trust in it check them.

use super::{AtomicU64, Ordering, PUBLISH, fence};

/// See the module's text. All zero is an even version.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SeqLock(AtomicU64);

impl SeqLock {
    /// A lock of words that have this version.
    #[cfg(not(loom))]
    pub const fn new(version: u64) -> Self {
        Self(AtomicU64::new(version))
    }

    /// As above; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub fn new(version: u64) -> Self {
        Self(AtomicU64::new(version))
    }

    /// Reads words by `read`. Returns their version and the result; `None` while they are written.
    #[inline]
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Option<(u64, T)> {
        let version = self.load();
        if !version.is_multiple_of(2) {
            return None;
        }
        let found = read();
        self.is_still(version, 0).then_some((version, found))
    }

    /// Writes words by `write`. Only one caller may write at a time.
    pub fn write(&self, write: impl FnOnce()) {
        // A peer may have left an odd number: the mark stays odd, and the next version is even.
        let writing = self.0.load(Ordering::Relaxed) | 1;
        self.0.store(writing, Ordering::Relaxed);
        // Pairs with the fence in `is_still`: a reader that loads any word of this write finds the
        // mark, or a later version. Without the fence the words might become visible first.
        fence(Ordering::Release);
        write();
        self.finish(writing.wrapping_add(1));
    }

    /// Begins to write if the version is `seen`; the only writer until [`SeqLock::finish`].
    #[inline]
    pub fn try_begin(&self, seen: u64, writing: u64) -> bool {
        // Acquire pairs with the store in `finish`: else the previous writer's older words might be
        // the last. (loom cannot see this: it keeps stores to one word in order.)
        let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let begun = self.0.compare_exchange(seen, writing, done, failed).is_ok();
        if begun {
            // Pairs as in `write`.
            fence(Ordering::Release);
        }
        begun
    }

    /// Marks the words as written, with this version.
    #[inline]
    pub fn finish(&self, version: u64) {
        // Release pairs with the Acquire in `load` and `try_begin`: its readers see the words.
        self.0.store(version, PUBLISH);
    }

    /// The version or mark, before the words are read.
    #[inline]
    pub fn load(&self) -> u64 {
        // Acquire pairs with the store in `finish`: later loads are of this or a later version.
        self.0.load(Ordering::Acquire)
    }

    /// Whether the version is still `seen` after reading, but for the bits of `flags`.
    #[inline]
    pub fn is_still(&self, seen: u64, flags: u64) -> bool {
        // Pairs with the Release fences of writers: the words' loads come before this one.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) | flags == seen | flags
    }

    /// Replaces `seen` by `to`, of the same words, if unchanged. Relaxed: no word was stored.
    #[inline]
    pub fn try_set(&self, seen: u64, to: u64) {
        let relaxed = Ordering::Relaxed;
        _ = self.0.compare_exchange(seen, to, relaxed, relaxed);
    }
}

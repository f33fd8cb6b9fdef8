//! Whether one thread alone has ever called a hook, and what it makes in pieces meanwhile: two words.
//!
//! Who makes a copy in pieces says so, then looks whether it is alone. A thread in its first call counts itself, then looks whether
//! somebody makes a copy in pieces. Between its two steps each has a fence, so that of two that come together one sees the other:
//! the copy is made whole, or the newcomer waits until all of it is with the driver.
//!
//! The model checker runs this source (`protocol/tests/interleavings.rs`).

use protocol::sync::{AtomicU32, AtomicU64, Ordering, PUBLISH, fence};

/// See the module's text.
pub(crate) struct Newcomers {
    /// Threads that have called a hook, those that have ended too.
    threads: AtomicU32,
    /// Which thread makes a copy in pieces; 0: none.
    cutter: AtomicU64,
}

impl Newcomers {
    /// Of a process of which no thread has called a hook.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            threads: AtomicU32::new(0),
            cutter: AtomicU64::new(0),
        }
    }

    /// The same; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            threads: AtomicU32::new(0),
            cutter: AtomicU64::new(0),
        }
    }

    /// The calling thread is in a hook for the first time. Whether a copy is being made in pieces: it must wait until that
    /// [is over](Newcomers::is_over).
    pub(crate) fn enter(&self) -> bool {
        // AcqRel, as all that a newcomer does next comes after it: see `is_alone`.
        self.threads.fetch_add(1, Ordering::AcqRel);
        // Pairs with the fence in `try_begin`.
        fence(Ordering::SeqCst);
        !self.is_over()
    }

    /// Thread `who`, not 0, makes a copy in pieces from here on, up to [`Newcomers::end`]; `false`, and it does not, if there are
    /// several threads.
    pub(crate) fn try_begin(&self, who: u64) -> bool {
        self.cutter.store(who, Ordering::Relaxed);
        // Pairs with the fence in `enter`: either that thread sees this copy or this one sees that thread.
        fence(Ordering::SeqCst);
        if self.is_alone() {
            return true;
        }
        self.end();
        false
    }

    /// All pieces are with the driver, or will never be.
    pub(crate) fn end(&self) {
        // Release pairs with the load in `is_over`: the pieces come before what the newcomer does. CI weakens it.
        self.cutter.store(0, PUBLISH);
    }

    /// Whether no copy is being made in pieces.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire pairs with the store in `end`.
        self.cutter.load(Ordering::Acquire) == 0
    }

    /// Whether thread `who` makes a copy in pieces.
    pub(crate) fn is_cutter(&self, who: u64) -> bool {
        self.cutter.load(Ordering::Relaxed) == who
    }

    /// Whether there is one thread. Between [`Newcomers::try_begin`] and [`Newcomers::end`] a newcomer may be there unseen: it waits.
    /// Who sees a trace of what it did (a word that it has changed, a bell that it rang) sees it here.
    pub(crate) fn is_alone(&self) -> bool {
        self.threads.load(Ordering::Acquire) == 1
    }
}

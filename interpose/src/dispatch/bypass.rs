//! Libraries that a program opened so that their CUDA calls pass by us, noted and said.
//!
//! Opening such a library is no harm as long as it has nothing to do with CUDA, which cannot be seen
//! from outside: so it is noted, and said once the driver is in the process too. That is looked at
//! when a library is opened, when the process attaches, and when it ends.
//!
//! What is said is that the calls *pass by if there are any*: a library that is bound to its own
//! dependencies may still have been handed our hooks by somebody else.
//!
//! Noting takes no lock and does not allocate: it happens inside the program's `dlopen`, while other
//! threads may fork.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::fs;

use protocol::pages::Counter;

use crate::client::{Client, process};
use crate::dispatch::environment;
use crate::driver::real;
use crate::platform::log::{self, Level};
use crate::platform::{config, sys};

/// Most libraries that are named; further ones are counted.
const NAMES_MAX: usize = 16;
/// Bytes of a name that are kept; what is said of a longer one is its end.
const NAME_BYTES_MAX: usize = 255;

/// How a library was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With `RTLD_DEEPBIND`.
    DeepBind,
    /// By `dlmopen`, into another namespace.
    Namespace,
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Self::DeepBind => "opened with RTLD_DEEPBIND",
            Self::Namespace => "opened by dlmopen in a namespace of its own",
        }
    }
}

/// Libraries opened so far.
static OPENED: AtomicUsize = AtomicUsize::new(0);
/// Those that are counted at the daemons.
static COUNTED: AtomicUsize = AtomicUsize::new(0);
/// The first of them.
static NOTES: [Note; NAMES_MAX] = [const { Note::new() }; NAMES_MAX];

/// What is noted of one library. Written once, by the thread that opens it.
struct Note {
    /// [`EMPTY`], [`NOTED`] or [`TAKEN`].
    state: AtomicU8,
    is_namespace: AtomicBool,
    /// Up to a zero, or to the end.
    name: [AtomicU8; NAME_BYTES_MAX],
}

/// Nothing yet, or being written.
const EMPTY: u8 = 0;
/// To be said.
const NOTED: u8 = 1;
/// Said, or about to.
const TAKEN: u8 = 2;

impl Note {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(EMPTY),
            is_namespace: AtomicBool::new(false),
            name: [const { AtomicU8::new(0) }; NAME_BYTES_MAX],
        }
    }

    /// Only by the one thread that has this note.
    fn write(&self, way: Way, name: &[u8]) {
        let kept = &name[name.len().saturating_sub(NAME_BYTES_MAX)..];
        for (to, from) in self.name.iter().zip(kept) {
            to.store(*from, Ordering::Relaxed);
        }
        self.is_namespace
            .store(way == Way::Namespace, Ordering::Relaxed);
        // Release pairs with the Acquire in `take`: the name is whole.
        self.state.store(NOTED, Ordering::Release);
    }

    fn is_noted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NOTED
    }

    /// What is noted, for one of those who ask.
    fn take(&self) -> Option<(Way, String)> {
        self.state
            .compare_exchange(NOTED, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let bytes = self.name.iter().map(|byte| byte.load(Ordering::Relaxed));
        let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        let way = match self.is_namespace.load(Ordering::Relaxed) {
            true => Way::Namespace,
            false => Way::DeepBind,
        };
        Some((way, String::from_utf8_lossy(&name).into_owned()))
    }
}

/// A library is about to be opened in such a way.
pub(crate) fn handle_opening(way: Way, file: &CStr) {
    static IS_EXIT_SEEN: AtomicBool = AtomicBool::new(false);
    if config::is_disabled() {
        return;
    }
    if !IS_EXIT_SEEN.swap(true, Ordering::Relaxed) {
        sys::at_exit(handle_exit);
    }
    let before = OPENED.fetch_add(1, Ordering::Relaxed);
    if let Some(note) = NOTES.get(before) {
        note.write(way, file.to_bytes());
    }
}

/// Says what is noted, if the driver is in the process by now and is not our shim.
pub(crate) fn look() {
    if OPENED.load(Ordering::Relaxed) == 0 || config::is_disabled() {
        return;
    }
    if !NOTES.iter().any(Note::is_noted) || !is_driver_mapped() {
        return;
    }
    // The driver may have come without a word to us; whether it is the shim, it is asked here.
    real::loaded(abi::id::cuInit);
    if real::is_shim() {
        return;
    }
    say();
    process::clients().take(1).for_each(count);
}

/// The process has attached to a daemon, which shall know.
pub(crate) fn handle_attached(client: &'static Client) {
    look();
    count(client);
}

extern "C" fn handle_exit() {
    look();
}

fn say() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    environment::prepare();
    for (way, file) in NOTES.iter().filter_map(Note::take) {
        let level = if IS_SAID.swap(true, Ordering::Relaxed) {
            Level::Debug
        } else {
            Level::Warn
        };
        log::say(
            level,
            format_args!(
                "{file} was {}: CUDA calls that it makes pass by Pillion; \
                 `pillion run --shim` reaches them",
                way.text()
            ),
        );
    }
}

/// Counts at a daemon what was opened since the last time.
fn count(client: &'static Client) {
    let opened = OPENED.load(Ordering::Relaxed);
    let before = COUNTED.fetch_max(opened, Ordering::Relaxed);
    let since = opened.saturating_sub(before) as u64;
    client.page.count(Counter::Bypasses, since);
}

/// Whether a driver is mapped, in whatever namespace, that is not behind our shim.
fn is_driver_mapped() -> bool {
    // In the file names of mappings, whose links are resolved.
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let has = |name: &[u8]| maps.windows(name.len()).any(|window| window == name);
    has(b"/libcuda.so") && !has(b"/libpillion_shim.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_taken_once_and_a_long_name_keeps_its_end() {
        let note = Note::new();
        assert_eq!(note.take(), None);
        note.write(Way::Namespace, b"libplugin.so");
        assert!(note.is_noted());
        let noted = (Way::Namespace, "libplugin.so".to_owned());
        assert_eq!(note.take(), Some(noted));
        assert_eq!(note.take(), None);
        let long = format!("/{}/libplugin.so", "folder".repeat(100));
        let note = Note::new();
        note.write(Way::DeepBind, long.as_bytes());
        let (way, name) = note.take().unwrap();
        assert_eq!((way, name.len()), (Way::DeepBind, NAME_BYTES_MAX));
        assert!(long.ends_with(&name));
    }
}

//! Libraries that the program opened so that their calls bypass us.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// Most libraries kept by name; further ones are counted.
const NAMES_MAX: usize = 16;
/// Bytes kept of a name; of a longer one, its end.
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    DeepBind,
    Namespace,
}

impl Way {
    pub(in crate::dispatch) fn text(self) -> &'static str {
        match self {
            Self::DeepBind => "opened with RTLD_DEEPBIND",
            Self::Namespace => "opened by dlmopen in a namespace of its own",
        }
    }
}

pub(in crate::dispatch) struct Notes {
    opened: AtomicUsize,
    counted: AtomicUsize,
    is_said: AtomicBool,
    notes: [Note; NAMES_MAX],
}

impl Notes {
    pub(super) const fn new() -> Self {
        Self {
            opened: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            is_said: AtomicBool::new(false),
            notes: [const { Note::new() }; NAMES_MAX],
        }
    }

    /// Notes a library. Returns whether it is the first.
    pub(in crate::dispatch) fn add(&self, way: Way, name: &[u8]) -> bool {
        let before = self.opened.fetch_add(1, Ordering::Relaxed);
        if let Some(note) = self.notes.get(before) {
            note.write(way, name);
        }
        before == 0
    }

    pub(in crate::dispatch) fn are_any(&self) -> bool {
        self.opened.load(Ordering::Relaxed) != 0
    }

    pub(in crate::dispatch) fn are_any_noted(&self) -> bool {
        self.notes.iter().any(Note::is_noted)
    }

    /// Takes the libraries to log, each once: whether it is the first, how opened, its name.
    pub(in crate::dispatch) fn take(&self) -> impl Iterator<Item = (bool, Way, String)> {
        let noted = self.notes.iter().filter_map(Note::take);
        noted.map(|(way, name)| (!self.is_said.swap(true, Ordering::Relaxed), way, name))
    }

    pub(in crate::dispatch) fn take_uncounted(&self) -> u64 {
        let opened = self.opened.load(Ordering::Relaxed);
        let before = self.counted.fetch_max(opened, Ordering::Relaxed);
        opened.saturating_sub(before) as u64
    }
}

/// One library. Written once, by the thread that opens it.
struct Note {
    state: AtomicU8,
    is_namespace: AtomicBool,
    /// Up to a zero, or to the end.
    name: [AtomicU8; NAME_BYTES_MAX],
}

/// Empty, or being written.
const EMPTY: u8 = 0;
/// To be logged.
const NOTED: u8 = 1;
/// Logged, or about to be.
const TAKEN: u8 = 2;

impl Note {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(EMPTY),
            is_namespace: AtomicBool::new(false),
            name: [const { AtomicU8::new(0) }; NAME_BYTES_MAX],
        }
    }

    /// Only for the one thread that has this note.
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

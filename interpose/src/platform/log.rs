//! The library's log, on the application's standard error. One line, one `write`, always beginning
//! with "pillion: ", so that it can be distinguished from the application's output and is not split
//! by it. Nothing is allocated and no lock is taken: a line may be written from a panic.

use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;

use crate::platform::inherited::INHERITED;
use crate::platform::sys;

/// Longest line, bytes; longer ones are cut.
const LINE_BYTES_MAX: usize = 1024;

/// Log level; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// The operator's request cannot be met.
    Error,
    /// Works, but not as the operator may expect.
    Warn,
    /// Normal events: attached, to what.
    Info,
    /// For debugging.
    Debug,
}

impl Level {
    pub(crate) const NAMES: [&'static str; 4] = ["error", "warn", "info", "debug"];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "warn" => Some(Self::Warn),
            "info" => Some(Self::Info),
            "debug" => Some(Self::Debug),
            _ => None,
        }
    }
}

pub(crate) fn set_level(level: Level) {
    INHERITED.log_level.store(level as u8, Ordering::Relaxed);
}

pub(crate) fn is_said(level: Level) -> bool {
    level as u8 <= INHERITED.log_level.load(Ordering::Relaxed)
}

pub(crate) fn say(level: Level, text: fmt::Arguments<'_>) {
    if !is_said(level) {
        return;
    }
    let mut line = Line::new();
    let _ = writeln!(line, "pillion: {text}");
    line.end();
    // Errors on standard error are ignored. If its reader is gone, the application must not get a
    // SIGPIPE that it would not have had without us.
    sys::without_sigpipe(|| {
        let _ = rustix::io::write(io::stderr(), line.bytes());
    });
}

pub(crate) fn say_once(said: &AtomicBool, level: Level, text: fmt::Arguments<'_>) {
    if !said.swap(true, Ordering::Relaxed) {
        say(level, text);
    }
}

struct Line {
    buffer: [u8; LINE_BYTES_MAX],
    used: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            buffer: [0; LINE_BYTES_MAX],
            used: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.used).unwrap_or(&[])
    }

    /// Makes the last byte a line break, whatever was cut.
    fn end(&mut self) {
        if let Some(last) = self
            .used
            .checked_sub(1)
            .and_then(|last| self.buffer.get_mut(last))
        {
            *last = b'\n';
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.buffer.get_mut(self.used..).unwrap_or(&mut []);
        let taken = text.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..taken), text.as_bytes().get(..taken)) {
            to.copy_from_slice(from);
        }
        self.used += taken;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_in_a_line_break_even_when_cut() {
        let mut line = Line::new();
        for _ in 0..LINE_BYTES_MAX {
            writeln!(line, "word").unwrap();
        }
        line.end();
        assert_eq!(line.bytes().len(), LINE_BYTES_MAX);
        assert_eq!(line.bytes().last(), Some(&b'\n'));
    }

    #[test]
    fn every_level_has_a_name() {
        for (index, name) in Level::NAMES.into_iter().enumerate() {
            assert_eq!(Level::from_name(name).unwrap() as usize, index);
        }
        assert_eq!(Level::from_name("loud"), None);
    }
}

//! How far a reader has come, shown once it has taken a second.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use protocol::clock::Clock;

/// Reading faster than this needs no progress.
const QUIET_NS: u64 = 1_000_000_000;

/// A bar on stderr, if that is a terminal.
pub(super) struct Progress {
    name: String,
    begun_ns: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Of the file at `path`, from now on.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            name: path.display().to_string(),
            begun_ns: Clock::monotonic().now_ns(),
            bar: None,
        }
    }

    /// The reader has come to `done` of `total` (0: nobody knows).
    pub(super) fn handle(&mut self, done: u64, total: u64) {
        if self.bar.is_none() {
            if Clock::monotonic().now_ns().saturating_sub(self.begun_ns) < QUIET_NS {
                return;
            }
            self.bar = Some(bar(&self.name, total));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(name: &str, total: u64) -> ProgressBar {
    let (bar, template) = if total > 0 {
        (ProgressBar::new(total), "{msg} {wide_bar} {percent}% {eta}")
    } else {
        (ProgressBar::new_spinner(), "{spinner} {msg} {human_pos}")
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

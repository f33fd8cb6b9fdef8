//! A progress bar, shown once a read has taken a second.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use protocol::clock::Clock;

const QUIET_NS: u64 = 1_000_000_000;

/// The bar is on stderr, if that is a terminal.
pub(super) struct Progress {
    name: String,
    begun_ns: u64,
    target: Option<ProgressDrawTarget>,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(path: &Path) -> Self {
        let target = ProgressDrawTarget::stderr();
        Self::begun(path, Clock::monotonic().now_ns(), target)
    }

    fn begun(path: &Path, begun_ns: u64, target: ProgressDrawTarget) -> Self {
        Self {
            name: path.display().to_string(),
            begun_ns,
            target: Some(target),
            bar: None,
        }
    }

    /// `total` is 0 if it is unknown.
    pub(super) fn handle(&mut self, done: u64, total: u64) {
        // An existing bar keeps its own time.
        let now_ns = match self.bar {
            None => Clock::monotonic().now_ns(),
            Some(_) => u64::MAX,
        };
        self.handle_at(now_ns, done, total);
    }

    fn handle_at(&mut self, now_ns: u64, done: u64, total: u64) {
        if now_ns.saturating_sub(self.begun_ns) < QUIET_NS {
            return;
        }
        if let Some(target) = self.target.take() {
            self.bar = Some(bar(&self.name, total, target));
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

fn bar(name: &str, total: u64, target: ProgressDrawTarget) -> ProgressBar {
    let (total, template) = if total > 0 {
        (Some(total), "{msg} {wide_bar} {percent}% {eta}")
    } else {
        (None, "{spinner} {msg} {human_pos}")
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    use super::Progress;

    #[test]
    fn a_bar_is_there_from_the_second_second_on_and_gone_at_the_end() {
        for (total, expected) in [(200, "50%"), (0, "100")] {
            let terminal = InMemoryTerm::new(10, 80);
            let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
            let mut progress = Progress::begun(Path::new("job.sqlite"), 5, target);
            progress.handle_at(1_000_000_004, 10, total);
            assert_eq!(terminal.contents(), "", "less than a second");
            progress.handle_at(1_000_000_005, 100, total);
            if let Some(bar) = &progress.bar {
                bar.force_draw();
            }
            let shown = terminal.contents();
            assert!(
                shown.contains("job.sqlite") && shown.contains(expected),
                "{shown}"
            );
            drop(progress);
            assert_eq!(terminal.contents(), "", "the screen is as it was");
        }
    }
}

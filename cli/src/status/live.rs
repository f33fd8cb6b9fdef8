//! The terminal of `pillion status`: its size, and a picture that is redrawn once a second. No
//! terminal mode changes that would have to be restored: each picture is drawn over the one before,
//! from the first row on. So SIGINT and SIGTERM can end the command at any moment.

use std::io::{IsTerminal, stdout};

use jiff::Timestamp;
use protocol::clock::Clock;

use super::text::cut_end;
use crate::events::time_of;
use crate::failure::Failure;
use crate::out;

const REDRAW_NS: u64 = 1_000_000_000;

pub(super) const COLUMNS_DEFAULT: usize = 100;

/// Some terminals report a width of 0; nothing fits below this.
const COLUMNS_MIN: usize = 20;

const HOME: &str = "\u{1b}[H";
/// Clears the rest of the row.
const END_ROW: &str = "\u{1b}[K";
/// Clears all rows below.
const END_SCREEN: &str = "\u{1b}[J";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) columns: usize,
    /// Rows of a terminal; none if the output is not a terminal.
    rows: Option<usize>,
}

impl Screen {
    /// The standard output: the terminal's width, or else `COLUMNS`, or [`COLUMNS_DEFAULT`].
    pub(super) fn now() -> Self {
        let size = match stdout().is_terminal() {
            true => rustix::termios::tcgetwinsize(stdout()).ok(),
            false => None,
        };
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        let variable = std::env::var("COLUMNS").ok();
        Self::of(size, variable.as_deref())
    }

    /// The terminal's columns, or `COLUMNS`; none if both are unknown.
    pub(super) fn columns_given() -> Option<usize> {
        let is_given = stdout().is_terminal() || std::env::var_os("COLUMNS").is_some();
        is_given.then(|| Self::now().columns)
    }

    fn of(size: Option<(usize, usize)>, variable: Option<&str>) -> Self {
        let size = size.filter(|(columns, _)| *columns > 0);
        let variable = || variable?.parse().ok().filter(|columns| *columns > 0);
        let columns = size.map(|(columns, _)| columns).or_else(variable);
        Self {
            columns: columns.unwrap_or(COLUMNS_DEFAULT).max(COLUMNS_MIN),
            rows: size.map(|(_, rows)| rows).filter(|rows| *rows > 1),
        }
    }

    /// A picture of at most the terminal's rows, but the last one, where a newline would scroll.
    fn picture(self, lines: &[String]) -> String {
        let Some(rows) = self.rows else {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            return format!("{lines}\n");
        };
        let shown_max = rows - 1;
        let mut text = HOME.to_owned();
        let is_all = lines.len() <= shown_max;
        let shown = match is_all {
            true => lines.len(),
            false => shown_max - 1,
        };
        for line in &lines[..shown] {
            text.push_str(&format!("{line}{END_ROW}\n"));
        }
        if !is_all {
            let more = format!("… {} more lines", lines.len() - shown);
            text.push_str(&format!("{}{END_ROW}\n", cut_end(&more, self.columns)));
        }
        text.push_str(END_SCREEN);
        text
    }
}

/// Draws the time of day and `lines` once a second, until `lines` fails or nobody reads.
pub(super) fn watch(
    mut lines: impl FnMut(usize) -> Result<Vec<String>, Failure>,
) -> Result<(), Failure> {
    every_second(|| {
        let screen = Screen::now();
        let time = time_of(Timestamp::now().as_millisecond());
        let mut lines = lines(screen.columns)?;
        lines.insert(0, cut_end(&time, screen.columns));
        out::text(&screen.picture(&lines))
    })
}

pub(super) fn every_second(mut once: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    let clock = Clock::monotonic();
    loop {
        once()?;
        clock.sleep_until(clock.now_ns() + REDRAW_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_the_terminals_else_that_of_the_variable_else_a_hundred() {
        let columns = |size, variable| Screen::of(size, variable).columns;
        assert_eq!(columns(Some((80, 24)), Some("120")), 80);
        assert_eq!(columns(None, Some("120")), 120);
        assert_eq!(columns(None, None), 100);
        for useless in ["", "wide", "0", "-3"] {
            assert_eq!(columns(None, Some(useless)), 100, "{useless}");
        }
        assert_eq!(
            columns(Some((0, 0)), None),
            100,
            "a terminal that does not say"
        );
        assert_eq!(columns(Some((3, 3)), None), 20);
    }

    #[test]
    fn a_picture_does_not_scroll_and_leaves_nothing_of_the_one_before() {
        let screen = Screen::of(Some((20, 4)), None);
        let lines = |count: usize| -> Vec<String> {
            (0..count).map(|number| format!("line {number}")).collect()
        };
        let expected = "\u{1b}[Hline 0\u{1b}[K\nline 1\u{1b}[K\nline 2\u{1b}[K\n\u{1b}[J";
        assert_eq!(screen.picture(&lines(3)), expected);
        let expected = "\u{1b}[Hline 0\u{1b}[K\nline 1\u{1b}[K\n… 5 more lines\u{1b}[K\n\u{1b}[J";
        assert_eq!(screen.picture(&lines(7)), expected);
        let piped = Screen::of(None, None);
        assert_eq!(piped.picture(&lines(2)), "line 0\nline 1\n\n");
    }
}

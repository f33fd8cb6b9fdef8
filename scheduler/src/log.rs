//! The daemon's log on standard error, a line for each message.
//! If standard error is the journal of systemd, each line begins with its priority in angle
//! brackets (sd-daemon(3)) and has no time, as the journal adds one. Otherwise a line begins with
//! the wall-clock time and its offset from UTC (RFC 3339), or, on a virtual clock, with its
//! seconds.

use std::fmt::{self, Write as _};
use std::io;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use protocol::clock::Clock;
use rustix::fs::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(crate) fn start() {
    let filter = std::env::var("PILLION_LOG").unwrap_or_default();
    let filter = EnvFilter::builder()
        .with_default_directive(Level::INFO.into())
        .parse_lossy(filter);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .event_format(Lines::of(Head::of_stderr()))
        .with_writer(io::stderr)
        .init();
}

pub(crate) fn fatal(why: &str) {
    let text = format!("pilliond: {why}");
    match Head::of_stderr() {
        Head::Priority => eprint!("{}", prioritized(&Level::ERROR, &text)),
        Head::Time(_) => eprintln!("{text}"),
    }
}

#[derive(Clone)]
enum Head {
    Priority,
    /// The wall-clock time in this zone, which is read once; on a virtual clock its seconds.
    Time(TimeZone),
}

impl Head {
    fn of_stderr() -> Self {
        match is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()) {
            true => Self::Priority,
            false => Self::Time(TimeZone::system()),
        }
    }
}

/// Whether standard error is the file in `JOURNAL_STREAM`, by device and inode (systemd.exec(5)).
/// The variable alone proves nothing: a service's children inherit it, wherever they write.
fn is_journal(journal_stream: Option<&str>) -> bool {
    let named = journal_stream.and_then(|text| text.split_once(':'));
    let named = named.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let stderr = fstat(io::stderr()).map(|stat| (stat.st_dev, stat.st_ino));
    stderr.is_ok_and(|stderr| named == Some(stderr))
}

impl FormatTime for Head {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let Self::Time(zone) = self else {
            return Ok(());
        };
        let clock = Clock::process();
        if clock.is_virtual() {
            let now_us = clock.now_ns() / 1_000;
            return write!(writer, "{}.{:06}", now_us / 1_000_000, now_us % 1_000_000);
        }
        let now = Timestamp::now().to_zoned(zone.clone());
        writer.write_str(&rfc_3339(&now))
    }
}

fn rfc_3339(time: &Zoned) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string()
}

struct Lines {
    head: Head,
    with_time: Format<Full, Head>,
    without_time: Format<Full, ()>,
}

impl Lines {
    fn of(head: Head) -> Self {
        let format = Format::default().with_target(false);
        Self {
            without_time: format.clone().without_time(),
            with_time: format.with_timer(head.clone()),
            head,
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !matches!(self.head, Head::Priority) {
            return self.with_time.format_event(context, writer, event);
        }
        let mut text = String::new();
        self.without_time
            .format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&prioritized(event.metadata().level(), &text))
    }
}

/// A text with its priority before each of its lines: the journal takes each line for a message.
fn prioritized(level: &Level, text: &str) -> String {
    let priority = match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let mut lines = String::new();
    for line in text.lines() {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "<{priority}>{}", line.trim_start());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines_of(head: Head, log: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .event_format(Lines::of(head))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn in_the_journal_every_line_has_its_priority_and_no_time() {
        let text = lines_of(Head::Priority, || {
            tracing::error!("broken");
            tracing::warn!("first\nsecond");
            tracing::info!("ready: {}", 1);
            tracing::debug!("asked");
        });
        let expected =
            "<3>ERROR broken\n<4>WARN first\n<4>second\n<6>INFO ready: 1\n<7>DEBUG asked\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn elsewhere_a_line_begins_with_the_time_of_day_and_its_offset() {
        let text = lines_of(Head::Time(TimeZone::UTC), || tracing::warn!("late"));
        let (time, rest) = text.split_once(' ').unwrap();
        assert_eq!(rest, " WARN late\n");
        let at: Timestamp = time.parse().unwrap();
        let age_s = Timestamp::now().duration_since(at).as_secs();
        assert!((0..3_600).contains(&age_s), "{time}");
        assert!(time.ends_with("+00:00"), "{time}");
    }

    #[test]
    fn a_time_has_microseconds_and_the_offset_of_its_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(-3));
        let at: Timestamp = "2026-11-28T17:05:09.000042Z".parse().unwrap();
        let text = rfc_3339(&at.to_zoned(zone));
        assert_eq!(text, "2026-11-28T14:05:09.000042-03:00");
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode_of_standard_error() {
        let stat = fstat(io::stderr()).unwrap();
        let own = format!("{}:{}", stat.st_dev, stat.st_ino);
        let other = format!("{}:{}", stat.st_dev, stat.st_ino + 1);
        assert!(is_journal(Some(&own)));
        for text in [None, Some(""), Some("8"), Some("a:b"), Some(&other)] {
            assert!(!is_journal(text), "{text:?}");
        }
    }
}

//! Dates and times of day as traces write them: `2017-10-09 07:01:55`, with up to nine digits of a
//! fraction of a second. They carry no zone. A trace in local time therefore has an hour twice, or
//! lacks one, where daylight saving changed.

pub(super) const FORM: &str = "YYYY-MM-DD HH:MM:SS, or with a fraction, from 1970 to 2199";

/// Nanoseconds from 1970-01-01 00:00:00 to this time, both on the same clock.
pub(super) fn civil_ns(text: &str) -> Option<i64> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, fraction_ns(fraction)?),
        None => (text, 0),
    };
    let bytes = whole.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (10, b' '), (13, b':'), (16, b':')];
    if bytes.len() != 19 || separators.iter().any(|&(at, byte)| bytes[at] != byte) {
        return None;
    }
    let [year, month, day] = [0..4, 5..7, 8..10].map(|at| digits(&bytes[at]));
    let [hour, minute, second] = [11..13, 14..16, 17..19].map(|at| digits(&bytes[at]));
    let days = days_since_1970(year?, month?, day?)?;
    let (hour, minute, second) = (hour?, minute?, second?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000_000 + fraction)
}

/// Sorts rows by time, stably; `set` gives each row the seconds from the earliest.
pub(super) fn since_first<T>(mut rows: Vec<(i64, T)>, set: impl Fn(&mut T, f64)) -> Vec<T> {
    rows.sort_by_key(|&(ns, _)| ns);
    let first_ns = rows.first().map_or(0, |&(ns, _)| ns);
    let with_time = |(ns, mut row)| {
        set(&mut row, (ns - first_ns) as f64 / 1e9);
        row
    };
    rows.into_iter().map(with_time).collect()
}

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1970..2200).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    // Leap years before a year, counted from year 1.
    let leaps = |year: i64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let years = (year - 1970) * 365 + leaps(year) - leaps(1970);
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    Some(years + months + day - 1)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

fn fraction_ns(text: &str) -> Option<i64> {
    let count = u32::try_from(text.len())
        .ok()
        .filter(|count| (1..=9).contains(count))?;
    Some(digits(text.as_bytes())? * 10_i64.pow(9 - count))
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        Some(sum * 10 + digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date_1() {
        // `date -ud TIME +%s`.
        let known_s = [
            ("1970-01-01 00:00:00", 0),
            ("2000-02-29 12:00:00", 951_825_600),
            ("2017-09-04 10:30:41", 1_504_521_041),
            ("2023-11-16 18:17:03", 1_700_158_623),
            ("2199-12-31 23:59:59", 7_258_118_399),
        ];
        for (text, second) in known_s {
            assert_eq!(civil_ns(text), Some(second * 1_000_000_000), "{text}");
        }
        assert_eq!(civil_ns("1970-01-01 00:00:01.25"), Some(1_250_000_000));
        assert_eq!(civil_ns("1970-01-01 00:00:00.000000001"), Some(1));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let wrong = [
            "",
            "2017-10-09",
            "2017-10-09T07:01:55",
            "2017-10-09 7:01:55",
            "2017-13-09 07:01:55",
            "2017-02-29 07:01:55",
            "2100-02-29 07:01:55",
            "2017-10-00 07:01:55",
            "1969-12-31 23:59:59",
            "2200-01-01 00:00:00",
            "2017-10-09 24:00:00",
            "2017-10-09 23:60:00",
            "2017-10-09 23:59:60",
            "2017-10-09 07:01:55.",
            "2017-10-09 07:01:55.0123456789",
            "2017-10-09 07:01:55.1x",
            "+017-10-09 07:01:55",
            "2017-10-09 07:01:5ö",
        ];
        for text in wrong {
            assert_eq!(civil_ns(text), None, "{text:?}");
        }
    }

    #[test]
    fn rows_of_one_time_keep_their_order() {
        let rows = vec![(7_000_000_000, ('a', 0.0)), (5_500_000_000, ('b', 0.0))];
        let rows = [rows, vec![(7_000_000_000, ('c', 0.0))]].concat();
        let sorted = since_first(rows, |row, second| row.1 = second);
        assert_eq!(sorted, [('b', 0.0), ('a', 1.5), ('c', 1.5)]);
    }
}

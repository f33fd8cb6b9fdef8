//! Which of `.`, `,`, `'` and space separate thousands in a file, and which decimals. Nsight
//! Compute's details pages are in the locale's format: `6,127,347.24`, `6.127.347,24`,
//! `6'127'347.24`, `6 127 347,24`. A single `32.768` is ambiguous, so all values of a file decide:
//! - a separator that comes twice in a number, or before another, separates thousands;
//! - one that comes after another, or does not stand before exactly three digits, or after a lone 0
//!   or more than three digits, separates decimals;
//! - apostrophes and spaces never separate decimals;
//! - once one of `.` and `,` has a role, the other one can only have the other.
//!
//! A value that is still ambiguous makes the file be exported again.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    thousands: bool,
    decimals: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Separators {
    point: Seen,
    comma: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    NotANumber,
    Ambiguous,
}

/// Separators of thousands only: apostrophes, breaking and non-breaking spaces.
const THOUSANDS_ONLY: [char; 6] = ['\'', '\u{2019}', ' ', '\u{a0}', '\u{202f}', '\u{2009}'];

impl Separators {
    pub(super) fn handle(&mut self, value: &str) {
        let value = value.trim();
        let digits = value.strip_prefix('-').unwrap_or(value);
        if !is_number(digits) {
            return;
        }
        let marks: Vec<(usize, char)> = digits
            .char_indices()
            .filter(|(_, c)| !c.is_ascii_digit())
            .collect();
        for (index, &(at, mark)) in marks.iter().enumerate() {
            let before = marks.get(..index).unwrap_or(&[]);
            let after = marks.get(index + 1..).unwrap_or(&[]);
            let Some(seen) = self.seen(mark) else {
                continue;
            };
            let is_repeated = marks.iter().filter(|(_, other)| *other == mark).count() > 1;
            if is_repeated || !after.is_empty() {
                seen.thousands = true;
            } else if !before.is_empty() || is_decimal_alone(digits, at) {
                seen.decimals = true;
            }
        }
    }

    fn seen(&mut self, mark: char) -> Option<&mut Seen> {
        match mark {
            '.' => Some(&mut self.point),
            ',' => Some(&mut self.comma),
            _ => None,
        }
    }

    pub(super) fn number(&self, value: &str) -> Result<f64, Unread> {
        let value = value.trim();
        // Only the C locale prints exponents.
        if value.contains(['e', 'E']) {
            return value.parse().map_err(|_| Unread::NotANumber);
        }
        let digits = value.strip_prefix('-').unwrap_or(value);
        if !is_number(digits) {
            return Err(Unread::NotANumber);
        }
        let mut plain = String::with_capacity(value.len());
        for character in value.chars() {
            match character {
                '.' | ',' => match self.is_decimal(character) {
                    Some(true) => plain.push('.'),
                    Some(false) => {}
                    None => return Err(Unread::Ambiguous),
                },
                _ if THOUSANDS_ONLY.contains(&character) => {}
                _ => plain.push(character),
            }
        }
        plain.parse().map_err(|_| Unread::NotANumber)
    }

    fn is_decimal(&self, mark: char) -> Option<bool> {
        let (own, other) = if mark == '.' {
            (self.point, self.comma)
        } else {
            (self.comma, self.point)
        };
        match (own.decimals, own.thousands) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            // A file with two locales: neither can be trusted.
            (true, true) => None,
            (false, false) => match (other.decimals, other.thousands) {
                (true, false) => Some(false),
                (false, true) => Some(true),
                _ => None,
            },
        }
    }
}

fn is_number(digits: &str) -> bool {
    let is_part =
        |c: char| c.is_ascii_digit() || matches!(c, '.' | ',') || THOUSANDS_ONLY.contains(&c);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.chars().all(is_part)
}

/// Whether the only separator of a number, at `at`, can only separate decimals.
fn is_decimal_alone(digits: &str, at: usize) -> bool {
    let before = digits.get(..at).unwrap_or("");
    let after = digits.get(at + 1..).unwrap_or("");
    after.len() != 3 || before.len() > 3 || before.starts_with('0') || before.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Separators, Unread};

    fn read(values: &[&str], value: &str) -> Result<f64, Unread> {
        let mut separators = Separators::default();
        for value in values {
            separators.handle(value);
        }
        separators.handle(value);
        separators.number(value)
    }

    #[test]
    fn the_locales_of_real_files_are_read() {
        for (values, value, expected) in [
            (&["8081824"][..], "6127347.24", 6_127_347.24),
            (&["8,081,824"], "6,127,347.24", 6_127_347.24),
            (&["8.081.824", "1,41"], "6.127.347,24", 6_127_347.24),
            (
                &["8 081 824", "1,41"],
                "6\u{202f}127\u{a0}347,24",
                6_127_347.24,
            ),
            (&["8'081'824"], "6'127'347.24", 6_127_347.24),
            (&["27.595.520"], "1.024", 1_024.0),
            (&["27.595.520"], "1,024", 1.024),
            (&["1.41"], "32,768", 32_768.0),
            (&["1,41"], "32.768", 32_768.0),
            (&["1.410000"], "32.768", 32.768),
            (&[], "0.123", 0.123),
            (&[], ".5", 0.5),
            (&[], "-12.5", -12.5),
            (&[], "1e+06", 1e6),
            (&["8,08,18,248"], "1,024", 1_024.0),
        ] {
            assert_eq!(
                read(values, value),
                Ok(expected),
                "{value} beside {values:?}"
            );
        }
    }

    #[test]
    fn what_could_be_two_numbers_is_none() {
        assert_eq!(read(&[], "32.768"), Err(Unread::Ambiguous));
        assert_eq!(read(&["131,072"], "524,288"), Err(Unread::Ambiguous));
        assert_eq!(
            read(&["1.5", "1.000.000"], "32.768"),
            Err(Unread::Ambiguous)
        );
        for word in [
            "n/a",
            "nan",
            "CachePreferNone",
            "",
            "(1, 2, 3)",
            "1-2",
            "inf",
        ] {
            assert_eq!(read(&[], word), Err(Unread::NotANumber), "{word}");
        }
    }

    fn printed(number: u32, cents: u32, thousands: &str, decimals: char) -> String {
        let digits = number.to_string();
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push_str(thousands);
            }
            text.push(digit);
        }
        format!("{text}{decimals}{cents:02}")
    }

    proptest! {
        #[test]
        fn a_number_with_decimals_is_read_in_any_locale(
            number in any::<u32>(), cents in 0u32..100,
            locale in prop::sample::select(vec![("", '.'), (",", '.'), (".", ','), ("'", '.'), (" ", ','), ("\u{202f}", ',')]),
        ) {
            let text = printed(number, cents, locale.0, locale.1);
            let expected = f64::from(number) + f64::from(cents) / 100.0;
            let found = read(&[], &text).expect("decimals fix the roles");
            prop_assert!((found - expected).abs() < 1e-6, "{} {}", text, found);
        }

        #[test]
        fn only_text_with_digits_is_a_number(
            values in prop::collection::vec(any::<String>(), 0..4), value in "[0-9., eE+-]{0,8}|\\PC*",
        ) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let has_digits = value.contains(|c: char| c.is_ascii_digit());
            prop_assert!(read(&values, &value).is_err() || has_digits, "{:?}", value);
        }
    }
}

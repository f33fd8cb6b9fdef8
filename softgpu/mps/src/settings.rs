//! The control daemon's settings for later servers, and its parsing of numbers: as C's `atoi`,
//! `strtol` and `strtod`, from the front, without the rest, as NVIDIA's (`docs/mps.md`).

use std::collections::BTreeMap;

/// Devices that can have a limit.
const DEVICES: i32 = 32;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    percentage: f64,
    /// By device, as printed: `2G`, `100M`.
    pinned: BTreeMap<i32, String>,
    priority: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            percentage: 100.0,
            pinned: BTreeMap::new(),
            priority: 0,
        }
    }
}

impl Settings {
    pub(crate) fn percentage(&self) -> String {
        format!("{:.1}\n", self.percentage)
    }

    /// Ignores an invalid value.
    pub(crate) fn set_percentage(&mut self, word: Option<&str>) {
        if let Some(percentage) = word.and_then(float)
            && percentage > 0.0
            && percentage <= 100.0
        {
            self.percentage = percentage;
        }
    }

    /// As an answer: empty without a limit.
    pub(crate) fn pinned(&self, device: Option<&str>) -> String {
        let limit = self.pinned.get(&device.map_or(0, number));
        limit.map_or_else(String::new, |limit| format!("{limit}\n"))
    }

    /// A limit of nothing is no limit; without a unit it is in megabytes.
    pub(crate) fn set_pinned(&mut self, device: Option<&str>, limit: Option<&str>) {
        let device = device.unwrap_or("0");
        let ordinal = number(device);
        let is_number = device.starts_with(|first: char| first.is_ascii_digit());
        if !is_number || !(0..DEVICES).contains(&ordinal) {
            return;
        }
        let limit = limit.unwrap_or_default();
        let digits = limit.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let unit = match digits.chars().next() {
            Some('G' | 'g') => 'G',
            _ => 'M',
        };
        match number(limit) {
            ..=0 => self.pinned.remove(&ordinal),
            size => self.pinned.insert(ordinal, format!("{size}{unit}")),
        };
    }

    pub(crate) fn priority(&self) -> String {
        format!("{}\n", self.priority)
    }

    /// Sets it; returns the answer.
    pub(crate) fn set_priority(&mut self, word: Option<&str>) -> &'static str {
        match word.map_or(0, number) {
            priority @ 0..=1 => {
                self.priority = priority;
                ""
            }
            _ => "Invalid priority value - must be 0 or 1!\n",
        }
    }
}

/// The number at the front of a word, 0 if there is none; overflow drops the upper bits.
pub(crate) fn number(word: &str) -> i32 {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let end = digits.find(|digit: char| !digit.is_ascii_digit());
    let digits = &digits[..end.unwrap_or(digits.len())];
    let number: i64 = digits.parse().unwrap_or(0);
    let number = if word.starts_with('-') {
        -number
    } else {
        number
    };
    number as i32
}

/// The number, with a fraction, at the front of a word.
fn float(word: &str) -> Option<f64> {
    let ends = word.char_indices().map(|(at, char)| at + char.len_utf8());
    let ends: Vec<usize> = ends.collect();
    ends.iter().rev().find_map(|&end| word[..end].parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_the_front_as_c_does() {
        for (word, value) in [
            ("", 0),
            ("x", 0),
            ("12", 12),
            ("1x", 1),
            ("-5", -5),
            ("99999999999", 1_215_752_191),
        ] {
            assert_eq!(number(word), value, "{word}");
        }
        for (word, value) in [("50%", 50.0), ("1e1", 10.0), ("0.05", 0.05), ("7 8", 7.0)] {
            assert_eq!(float(word), Some(value), "{word}");
        }
        assert_eq!(float("x"), None);
    }

    #[test]
    fn a_percentage_that_is_none_changes_nothing() {
        let mut settings = Settings::default();
        for (word, said) in [
            ("50", "50.0\n"),
            ("0", "50.0\n"),
            ("101", "50.0\n"),
            ("-1", "50.0\n"),
            ("nan", "50.0\n"),
            ("inf", "50.0\n"),
            ("12.3456789", "12.3\n"),
            ("99.96", "100.0\n"),
        ] {
            settings.set_percentage(Some(word));
            assert_eq!(settings.percentage(), said, "{word}");
        }
    }

    #[test]
    fn a_limit_is_said_again_as_it_was_understood() {
        let mut settings = Settings::default();
        for (device, limit, said) in [
            ("0", "2G", "2G\n"),
            ("0", "5", "5M\n"),
            ("0", "1.5G", "1M\n"),
            ("0", "2GB", "2G\n"),
            ("0", "2g", "2G\n"),
            ("0", "2T", "2M\n"),
            ("0", "x", ""),
            ("31", "1G", "1G\n"),
            ("32", "1G", ""),
            ("-1", "1G", ""),
        ] {
            settings.set_pinned(Some(device), Some(limit));
            assert_eq!(settings.pinned(Some(device)), said, "{device} {limit}");
        }
        settings.set_pinned(Some("x"), Some("7M"));
        assert_eq!(settings.pinned(Some("0")), "");
    }
}

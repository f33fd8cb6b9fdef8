//! Text form of a latency target for a high-priority job's requests: `1.2x`, `15ms`. For flag,
//! environment and messages. A number, perhaps with a fraction, and `x`: a multiple of the solo
//! duration. Or a time: a number and `ms`, `s` or `m`; without a unit seconds. No spaces.

/// The latency target of a job's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SloAsked {
    /// Multiple of the solo duration: 1 to 100, in steps of a billionth.
    Times(f64),
    /// Time, ns: a microsecond to an hour.
    Ns(u64),
}

/// The text form that [`SloAsked::parse`] accepts, for messages.
pub const EXPECTED: &str =
    "times alone from 1x to 100x, such as 1.2x, or a time from 0.001ms to 60m, such as 15ms";

/// A change of a running job's latency target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SloChange {
    /// To the value of the daemon's configuration: [`DEFAULT`].
    Default,
    /// To this target.
    To(SloAsked),
}

/// The word for [`SloChange::Default`].
pub const DEFAULT: &str = "default";

const NS_MAX: f64 = 3.6e12;
const NS_MIN: f64 = 1e3;
/// Steps of multiples, so that they survive encoding as a word.
const STEPS: f64 = 1e9;

/// The two highest bits of a word give the meaning of the others.
const TAG_SHIFT: u32 = 62;
const TAG_DEFAULT: u64 = 1;
const TAG_TIMES: u64 = 2;
const TAG_NS: u64 = 3;

impl SloAsked {
    /// Parses a text. `None` if it is malformed or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: f64 = number.parse().ok()?;
        let unit_ns = match unit {
            "x" => return Self::times(number),
            "ms" => 1e6,
            "s" | "" => 1e9,
            "m" => 60e9,
            _ => return None,
        };
        let ns = (number * unit_ns).round();
        (NS_MIN..=NS_MAX)
            .contains(&ns)
            .then_some(Self::Ns(ns as u64))
    }

    fn times(times: f64) -> Option<Self> {
        let times = (times * STEPS).round() / STEPS;
        (1.0..=100.0).contains(&times).then_some(Self::Times(times))
    }
}

impl core::fmt::Display for SloAsked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Times(times) => write!(f, "{times}x"),
            Self::Ns(ns) => write!(f, "{}ms", *ns as f64 / 1e6),
        }
    }
}

impl SloChange {
    /// Parses a text. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            DEFAULT => Some(Self::Default),
            asked => SloAsked::parse(asked).map(Self::To),
        }
    }

    /// As stored in [`crate::ledger::Ledger::slo`]; never 0.
    pub fn to_word(self) -> u64 {
        let (tag, value) = match self {
            Self::Default => (TAG_DEFAULT, 0),
            Self::To(SloAsked::Times(times)) => (TAG_TIMES, (times * STEPS).round() as u64),
            Self::To(SloAsked::Ns(ns)) => (TAG_NS, ns),
        };
        tag << TAG_SHIFT | value & !(u64::MAX << TAG_SHIFT)
    }

    /// Decodes a word. `None` for 0 and values out of range: the word is untrusted.
    pub fn from_word(word: u64) -> Option<Self> {
        let value = (word & !(u64::MAX << TAG_SHIFT)) as f64;
        match word >> TAG_SHIFT {
            TAG_DEFAULT => Some(Self::Default),
            TAG_TIMES => SloAsked::times(value / STEPS).map(Self::To),
            TAG_NS if (NS_MIN..=NS_MAX).contains(&value) => {
                Some(Self::To(SloAsked::Ns(value as u64)))
            }
            _ => None,
        }
    }
}

impl core::fmt::Display for SloChange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT),
            Self::To(asked) => asked.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_alone_and_times_are_read_as_people_write_them() {
        let ms = 1_000_000;
        for (text, asked) in [
            ("1.2x", SloAsked::Times(1.2)),
            ("1x", SloAsked::Times(1.0)),
            (" 100x ", SloAsked::Times(100.0)),
            ("15ms", SloAsked::Ns(15 * ms)),
            ("0.5ms", SloAsked::Ns(ms / 2)),
            ("0.001ms", SloAsked::Ns(1_000)),
            ("1.5s", SloAsked::Ns(1_500 * ms)),
            ("0.015", SloAsked::Ns(15 * ms)),
            ("2", SloAsked::Ns(2_000 * ms)),
            ("60m", SloAsked::Ns(3_600_000 * ms)),
        ] {
            assert_eq!(SloAsked::parse(text), Some(asked), "{text}");
        }
        for text in [
            "", "x", "ms", "0.99x", "100.1x", "0x", "-1x", "infx", "NaNx", "1e1x", "1.2 x", "1.2X",
            "0ms", "0", "-5ms", "1e3ms", "0.0001ms", "61m", "3601", "15us", "15msx", "1.2.3x",
            "p99", DEFAULT,
        ] {
            assert_eq!(SloAsked::parse(text), None, "{text}");
        }
        assert_eq!(SloChange::parse(" default "), Some(SloChange::Default));
        assert_eq!(SloChange::parse("none"), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_or_kept_is_read_again(
            billionths in 1_000_000_000_u64..=100_000_000_000,
            ns in 1_000_u64..=3_600_000_000_000,
        ) {
            let times = SloAsked::Times(billionths as f64 / 1e9);
            for asked in [times, SloAsked::Ns(ns)] {
                prop_assert_eq!(SloAsked::parse(&asked.to_string()), Some(asked));
            }
            for change in [SloChange::Default, SloChange::To(times), SloChange::To(SloAsked::Ns(ns))] {
                prop_assert_eq!(SloChange::parse(&change.to_string()), Some(change));
                prop_assert_ne!(change.to_word(), 0);
                prop_assert_eq!(SloChange::from_word(change.to_word()), Some(change));
            }
        }

        #[test]
        fn any_word_and_any_text_are_refused_or_in_range(
            word in any::<u64>(),
            text in "\\PC{0,30}|[0-9.]{0,25}(x|ms|s|m)?",
        ) {
            let asked = match SloChange::from_word(word) {
                Some(SloChange::To(asked)) => Some(asked),
                _ => None,
            };
            for asked in asked.into_iter().chain(SloAsked::parse(&text)) {
                match asked {
                    SloAsked::Times(times) => prop_assert!((1.0..=100.0).contains(&times)),
                    SloAsked::Ns(ns) => prop_assert!((1_000..=3_600_000_000_000).contains(&ns)),
                }
            }
        }
    }

    #[test]
    fn a_word_that_was_never_written_is_no_change() {
        assert_eq!(SloChange::from_word(0), None);
    }
}

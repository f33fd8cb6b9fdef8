//! Text form of the cap on a best-effort job's GPU time, `30%`, for flag, environment and messages.
//! A number, with a fraction if need be, and `%`: 1 to 100 of the GPU's time. 100 is no cap.

/// The most of a GPU's time that a job may use, in steps of 0.01 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cap {
    hundredths: u16,
}

/// The text form that [`Cap::parse`] accepts, for messages.
pub const EXPECTED: &str = "a part of the GPU's time from 1% to 100%, such as 30%";

/// A change of the cap of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapChange {
    /// To the value of the daemon's configuration: [`DEFAULT`].
    Default,
    /// To this cap.
    To(Cap),
}

/// The word for [`CapChange::Default`].
pub const DEFAULT: &str = "default";

/// 1 %, in hundredths of a per cent.
const LEAST: u16 = 100;
const MOST: u16 = 10_000;
/// [`CapChange::Default`] as a word, which is not a cap.
const WORD_DEFAULT: u64 = 1;

impl Cap {
    /// No cap: all of the time.
    pub const NONE: Self = Self { hundredths: MOST };

    /// Parses a text. `None` if it is malformed or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix('%')?;
        let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        Self::of_share(number.parse::<f64>().ok().filter(|_| is_plain)? / 100.0)
    }

    /// From a fraction of the time, 0.01 to 1; `None` for other values.
    pub fn of_share(share: f64) -> Option<Self> {
        let hundredths = (share * f64::from(MOST)).round();
        let range = f64::from(LEAST)..=f64::from(MOST);
        range.contains(&hundredths).then_some(Self {
            hundredths: hundredths as u16,
        })
    }

    /// The fraction of the time, 0.01 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.hundredths) / f64::from(MOST)
    }
}

impl core::fmt::Display for Cap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}%", f64::from(self.hundredths) / 100.0)
    }
}

impl CapChange {
    /// Parses a text. `None` if it is malformed or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            DEFAULT => Some(Self::Default),
            cap => Cap::parse(cap).map(Self::To),
        }
    }

    /// As stored in [`crate::ledger::Ledger::compute`]; never 0.
    pub fn to_word(self) -> u64 {
        match self {
            Self::Default => WORD_DEFAULT,
            Self::To(cap) => cap.hundredths.into(),
        }
    }

    /// Decodes a word. `None` for 0 and values out of range: the word is untrusted.
    pub fn from_word(word: u64) -> Option<Self> {
        match u16::try_from(word).ok()? {
            word if u64::from(word) == WORD_DEFAULT => Some(Self::Default),
            hundredths @ LEAST..=MOST => Some(Self::To(Cap { hundredths })),
            _ => None,
        }
    }
}

impl core::fmt::Display for CapChange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT),
            Self::To(cap) => cap.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_of_the_time_are_read_as_people_write_them() {
        for (text, share) in [
            ("30%", 0.3),
            (" 1% ", 0.01),
            ("12.5%", 0.125),
            ("33.333%", 0.3333),
            ("100%", 1.0),
        ] {
            assert_eq!(Cap::parse(text).unwrap().share(), share, "{text}");
        }
        for text in [
            "", "%", "30", "0%", "0.5%", "101%", "-30%", "+30%", "1e1%", "nan%", "inf%", "30 %",
            "0.3", "30%%", DEFAULT,
        ] {
            assert_eq!(Cap::parse(text), None, "{text}");
        }
        assert_eq!(CapChange::parse(" default "), Some(CapChange::Default));
        assert_eq!(CapChange::parse("none"), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_or_kept_is_read_again(hundredths in LEAST..=MOST) {
            let cap = Cap { hundredths };
            prop_assert_eq!(Cap::parse(&cap.to_string()), Some(cap));
            for change in [CapChange::Default, CapChange::To(cap)] {
                prop_assert_eq!(CapChange::parse(&change.to_string()), Some(change));
                prop_assert_ne!(change.to_word(), 0);
                prop_assert_eq!(CapChange::from_word(change.to_word()), Some(change));
            }
        }

        #[test]
        fn any_word_and_any_text_are_refused_or_in_range(
            word in prop_oneof![any::<u64>(), 0..20_000_u64],
            text in "\\PC{0,30}|[0-9.]{0,25}%?",
        ) {
            let of_word = match CapChange::from_word(word) {
                Some(CapChange::To(cap)) => Some(cap),
                _ => None,
            };
            for cap in of_word.into_iter().chain(Cap::parse(&text)) {
                prop_assert!((0.01..=1.0).contains(&cap.share()));
            }
        }
    }
}

//! Text forms of a best-effort job's promises: a weight against other best-effort jobs (`3`), and
//! the least share of its solo rate (`0.3`, `30%`). One parser for flags and messages.

/// A job's weight: quanta in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(u8);

/// The least share of the solo rate, in steps of a hundredth of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    hundredths: u16,
}

/// A change of a weight or a least share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// To the value of the daemon's configuration: [`DEFAULT`].
    Default,
    /// To this value.
    To(T),
}

/// A change of a running job's weight.
pub type WeightChange = Change<Weight>;
/// A change of a running job's least share.
pub type LeastChange = Change<Least>;

/// The changes of a running job's promises; `None` in a field: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Its weight.
    pub weight: Option<WeightChange>,
    /// Its least share.
    pub least: Option<LeastChange>,
}

/// The text form that [`Weight::parse`] accepts, for messages.
pub const WEIGHT_EXPECTED: &str = "a whole number from 1 to 100";
/// The text form that [`Least::parse`] accepts, for messages.
pub const LEAST_EXPECTED: &str = "a share above 0 to 1, such as 0.3, or a percentage such as 30%";
/// The word for [`Change::Default`].
pub const DEFAULT: &str = "default";

/// Greatest weight.
pub const WEIGHT_MAX: u8 = 100;
/// 100 %, in hundredths of a per cent.
const ALL: u16 = 10_000;
/// [`Change::Default`] in half a word, which is neither a weight nor a share; 0 is no change.
const HALF_DEFAULT: u16 = u16::MAX;

impl Weight {
    /// Parses a text. `None` if it is malformed or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_plain = text.chars().all(|c| c.is_ascii_digit());
        let number: u16 = text.parse().ok().filter(|_| is_plain)?;
        Self::of_half(number)
    }

    /// 1 to [`WEIGHT_MAX`].
    pub fn quanta(self) -> u32 {
        self.0.into()
    }
}

impl core::fmt::Display for Weight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

impl Least {
    /// Parses a text. `None` if it is malformed or out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, parts) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, f64::from(ALL)),
        };
        let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number: f64 = number.parse().ok().filter(|_| is_plain)?;
        let hundredths = (number * parts).round();
        let range = 1.0..=f64::from(ALL);
        range.contains(&hundredths).then_some(Self {
            hundredths: hundredths as u16,
        })
    }

    /// As a fraction of the solo rate, above 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.hundredths) / f64::from(ALL)
    }
}

impl core::fmt::Display for Least {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}%", f64::from(self.hundredths) / 100.0)
    }
}

trait Half: Copy {
    fn of_half(half: u16) -> Option<Self>;
    fn to_half(self) -> u16;
}

impl Half for Weight {
    fn of_half(half: u16) -> Option<Self> {
        let number = u8::try_from(half).ok()?;
        (1..=WEIGHT_MAX).contains(&number).then_some(Self(number))
    }

    fn to_half(self) -> u16 {
        self.0.into()
    }
}

impl Half for Least {
    fn of_half(hundredths: u16) -> Option<Self> {
        (1..=ALL)
            .contains(&hundredths)
            .then_some(Self { hundredths })
    }

    fn to_half(self) -> u16 {
        self.hundredths
    }
}

impl<T> Change<T> {
    fn read(text: &str, parse: fn(&str) -> Option<T>) -> Option<Self> {
        match text.trim() {
            DEFAULT => Some(Self::Default),
            other => parse(other).map(Self::To),
        }
    }
}

impl WeightChange {
    /// Parses a text. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text, Weight::parse)
    }
}

impl LeastChange {
    /// Parses a text. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text, Least::parse)
    }
}

impl<T: core::fmt::Display> core::fmt::Display for Change<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT),
            Self::To(to) => to.fmt(f),
        }
    }
}

fn half_of<T: Half>(change: Option<Change<T>>) -> u64 {
    let half = match change {
        None => 0,
        Some(Change::Default) => HALF_DEFAULT,
        Some(Change::To(to)) => to.to_half(),
    };
    half.into()
}

/// The change in half a word, or none; `None` if it is out of range.
fn change_of<T: Half>(half: u16) -> Option<Option<Change<T>>> {
    match half {
        0 => Some(None),
        HALF_DEFAULT => Some(Some(Change::Default)),
        half => T::of_half(half).map(|to| Some(Change::To(to))),
    }
}

impl Promise {
    /// These changes, overridden by those of `later`.
    pub fn changed_by(self, later: Self) -> Self {
        Self {
            weight: later.weight.or(self.weight),
            least: later.least.or(self.least),
        }
    }

    /// Whether the daemon's configuration applies, after a change to that or without any change.
    pub fn is_default(self) -> bool {
        !matches!(self.weight, Some(Change::To(_))) && !matches!(self.least, Some(Change::To(_)))
    }

    /// Whether this returns both to the daemon's configuration.
    pub fn is_take_back(self) -> bool {
        self.weight == Some(Change::Default) && self.least == Some(Change::Default)
    }

    /// As stored in [`crate::ledger::Ledger::promise`]; 0 without a change.
    pub fn to_word(self) -> u64 {
        half_of(self.weight) | half_of(self.least) << 16
    }

    /// Decodes a word. `None` for 0 and values out of range: the word is untrusted.
    pub fn from_word(word: u64) -> Option<Self> {
        let word = u32::try_from(word).ok().filter(|&word| word != 0)?;
        Some(Self {
            weight: change_of(word as u16)?,
            least: change_of((word >> 16) as u16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_and_shares_are_read_as_people_write_them() {
        for (text, quanta) in [("1", 1), (" 7 ", 7), ("100", 100)] {
            assert_eq!(Weight::parse(text).unwrap().quanta(), quanta, "{text}");
        }
        for text in [
            "", "0", "101", "1.5", "-1", "+1", "256", "257", "65535", "1x", DEFAULT,
        ] {
            assert_eq!(Weight::parse(text), None, "{text}");
        }
        for (text, share) in [
            ("0.3", 0.3),
            ("30%", 0.3),
            (" 1 ", 1.0),
            ("100%", 1.0),
            ("12.5%", 0.125),
        ] {
            assert_eq!(Least::parse(text).unwrap().share(), share, "{text}");
        }
        for text in [
            "", "%", "0", "0%", "0.00001", "1.1", "30", "101%", "-0.3", "+0.3", "1e-1", "nan",
            "inf", "30 %", DEFAULT,
        ] {
            assert_eq!(Least::parse(text), None, "{text}");
        }
        assert_eq!(WeightChange::parse(" default "), Some(Change::Default));
        assert_eq!(LeastChange::parse("default"), Some(Change::Default));
        assert_eq!(LeastChange::parse("none"), None);
    }

    #[test]
    fn a_later_change_leaves_what_it_does_not_name() {
        let weight = Promise {
            weight: WeightChange::parse("3"),
            least: None,
        };
        let least = Promise {
            weight: None,
            least: LeastChange::parse("0.3"),
        };
        let both = weight.changed_by(least);
        assert_eq!((both.weight, both.least), (weight.weight, least.least));
        let back = Promise {
            weight: Some(Change::Default),
            least: Some(Change::Default),
        };
        assert!(back.is_default() && Promise::default().is_default() && !both.is_default());
        let of_one = Promise {
            weight: None,
            ..back
        };
        assert!(back.is_take_back() && !of_one.is_take_back() && !both.is_take_back());
        assert_eq!(both.changed_by(back), back);
    }

    proptest! {
        #[test]
        fn what_is_printed_or_kept_is_read_again(quanta in 1..=WEIGHT_MAX, hundredths in 1..=ALL) {
            let (weight, least) = (Weight(quanta), Least { hundredths });
            prop_assert_eq!(Weight::parse(&weight.to_string()), Some(weight));
            prop_assert_eq!(Least::parse(&least.to_string()), Some(least));
            prop_assert_eq!(Least::parse(&least.share().to_string()), Some(least));
            for weight in [None, Some(Change::Default), Some(Change::To(weight))] {
                for least in [None, Some(Change::Default), Some(Change::To(least))] {
                    let promise = Promise { weight, least };
                    let is_any = weight.is_some() || least.is_some();
                    prop_assert_eq!(promise.to_word() != 0, is_any);
                    prop_assert_eq!(Promise::from_word(promise.to_word()), Some(promise).filter(|_| is_any));
                }
            }
        }

        #[test]
        fn any_word_and_any_text_are_refused_or_in_range(
            word in prop_oneof![any::<u64>(), any::<u32>().prop_map(u64::from)],
            text in "\\PC{0,30}|[0-9.]{0,25}%?",
        ) {
            let promise = Promise::from_word(word).unwrap_or_default();
            let of_word = |change| match change { Some(Change::To(to)) => Some(to), _ => None };
            for weight in of_word(promise.weight).into_iter().chain(Weight::parse(&text)) {
                prop_assert!((1..=100).contains(&weight.quanta()));
            }
            let of_word = |change| match change { Some(Change::To(to)) => Some(to), _ => None };
            for least in of_word(promise.least).into_iter().chain(Least::parse(&text)) {
                prop_assert!(least.share() > 0.0 && least.share() <= 1.0);
            }
        }
    }
}

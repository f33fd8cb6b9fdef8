//! Text form of a memory quota: `10GiB`, `40%`. One parser for flag, environment and file. A
//! number, with a fraction if need be, and a unit, in any case. `K`, `M`, `G`, `T`, alone or with
//! `i` or `iB`, are powers of 1024, as in other systems' variables (`4096m`, `1G`); with `B` alone
//! (`GB`) powers of 1000; no unit or `B` is bytes. `%` is of the device's memory.

/// A job's quota of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quota {
    /// A number of bytes.
    Bytes(u64),
    /// A part of the device's memory, in percent: above 0, at most 100.
    Percent(f64),
    /// No limit: `unlimited`.
    Unlimited,
}

/// The text form that [`Quota::parse`] accepts, for messages.
pub const EXPECTED: &str =
    "a size such as 10GiB (1MiB at least), or a part of the device such as 40%";

/// The least plausible quota, bytes: a lower number lacks its unit.
pub const LEAST_BYTES: u64 = 1 << 20;

impl Quota {
    /// Parses a text. `None` if it is malformed, or a quota of nothing, which is never intended.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("unlimited") {
            return Some(Self::Unlimited);
        }
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: f64 = number
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite() && *n > 0.0)?;
        let unit = unit.trim().to_ascii_lowercase();
        if unit == "%" {
            return (number <= 100.0).then_some(Self::Percent(number));
        }
        let bytes = number * unit_bytes(&unit)?;
        // 2^63 bytes exceed any real quota, and are exact in both types.
        (bytes >= 1.0 && bytes <= (1_u64 << 63) as f64).then_some(Self::Bytes(bytes as u64))
    }

    /// Whether it is so small that its unit was forgotten: less than [`LEAST_BYTES`].
    pub fn is_too_small(self) -> bool {
        matches!(self, Self::Bytes(..LEAST_BYTES))
    }

    /// Bytes of a device with `device_bytes`; `None` is no limit.
    pub fn bytes_of(self, device_bytes: u64) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => Some((device_bytes as f64 * (percent / 100.0)) as u64),
            Self::Unlimited => None,
        }
    }
}

impl core::fmt::Display for Quota {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

fn unit_bytes(unit: &str) -> Option<f64> {
    let power = |letter: char| "kmgt".find(letter).map(|place| place as i32 + 1);
    let mut letters = unit.chars();
    match (letters.next(), letters.as_str()) {
        (None | Some('b'), "") => Some(1.0),
        (Some(letter), "" | "i" | "ib") => Some(1024_f64.powi(power(letter)?)),
        (Some(letter), "b") => Some(1000_f64.powi(power(letter)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // census: B11
    #[test]
    fn sizes_are_read_as_people_write_them_and_nothing_is_not_a_quota() {
        let mib = 1 << 20;
        for (text, bytes) in [
            ("10GiB", 10 << 30),
            ("1.5 GiB", 1536 * mib),
            ("4096m", 4096 * mib),
            ("1G", 1 << 30),
            ("512Mi", 512 * mib),
            ("1GB", 1_000_000_000),
            ("1073741824", 1 << 30),
            ("512B", 512),
            (" 2t ", 2 << 40),
        ] {
            assert_eq!(Quota::parse(text), Some(Quota::Bytes(bytes)), "{text}");
        }
        assert_eq!(Quota::parse("40%"), Some(Quota::Percent(40.0)));
        assert_eq!(Quota::parse("Unlimited"), Some(Quota::Unlimited));
        for text in [
            "",
            "0",
            "0m",
            "0%",
            "101%",
            "-1G",
            "1.2.3G",
            "G",
            "10 Gigabytes",
            "1e9",
            "inf",
            "%",
            "99999999999T",
        ] {
            assert_eq!(Quota::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_whose_unit_was_forgotten_is_told_from_one_that_is_meant() {
        for (text, is_too_small) in [
            ("10", true),
            ("8192", true),
            ("1023K", true),
            ("1M", false),
            ("1%", false),
        ] {
            assert_eq!(
                Quota::parse(text).unwrap().is_too_small(),
                is_too_small,
                "{text}"
            );
        }
    }

    #[test]
    fn a_part_is_of_the_device() {
        assert_eq!(Quota::Percent(40.0).bytes_of(1000), Some(400));
        assert_eq!(Quota::Percent(100.0).bytes_of(1000), Some(1000));
        assert_eq!(Quota::Unlimited.bytes_of(1000), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(bytes in 1_u64..1 << 50, percent in 1_u32..=100) {
            for quota in [Quota::Bytes(bytes), Quota::Percent(percent.into()), Quota::Unlimited] {
                prop_assert_eq!(Quota::parse(&quota.to_string()), Some(quota));
            }
        }

        #[test]
        fn any_text_is_refused_or_a_quota_of_something(text in "\\PC{0,30}|[0-9.]{0,25} ?([kKmMgGtT]i?B|%)?") {
            match Quota::parse(&text) {
                Some(Quota::Bytes(bytes)) => prop_assert!(bytes > 0),
                Some(Quota::Percent(percent)) => prop_assert!(percent > 0.0 && percent <= 100.0),
                Some(Quota::Unlimited) => prop_assert!(text.trim().eq_ignore_ascii_case("unlimited")),
                None => {}
            }
        }
    }
}

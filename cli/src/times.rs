//! Parses times on the command line, such as `500ms`, `30s`, `2m` or `1h`, for all flags.

/// The accepted input of [`read`], for messages.
pub(crate) const EXPECTED: &str = "a time such as 500ms, 30s, 2m or 1h (a bare number is seconds)";

const UNITS: [(&str, u64); 4] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SECOND_NS: u64 = 1_000_000_000;

/// Reads a time, ns: a number, with an optional fraction, and a unit.
pub(crate) fn read(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let unit_ns = match unit {
        "" => Some(SECOND_NS),
        named => UNITS
            .iter()
            .find(|(name, _)| *name == named)
            .map(|&(_, ns)| ns),
    };
    let ns = unit_ns.and_then(|unit_ns| times(number, unit_ns));
    ns.ok_or_else(|| format!("expected {EXPECTED}"))
}

/// So many units, ns; `None` if it is no number, or does not fit.
fn times(number: &str, unit_ns: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit_ns);
    }
    let ns = number.parse::<f64>().ok()? * unit_ns as f64;
    (ns < u64::MAX as f64).then_some(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_seconds() {
        for (text, ns) in [
            ("30s", 30_000_000_000),
            ("30", 30_000_000_000),
            ("500ms", 500_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.25", 250_000_000),
            ("0s", 0),
            ("0", 0),
        ] {
            assert_eq!(read(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_one_is() {
        let nonsense = [
            "",
            "s",
            ".",
            "-1s",
            "+1s",
            "1e3",
            "inf",
            "1.2.3s",
            "99999999999999999999s",
            "1d",
            "1 s",
        ];
        for text in nonsense {
            assert_eq!(read(text), Err(format!("expected {EXPECTED}")), "{text}");
        }
    }
}

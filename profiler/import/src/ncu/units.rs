//! Factors of Nsight Compute's units, old (`usecond`) and new (`us`): 32 768 bytes are 32.77 Kbyte.

/// The factor to seconds, bytes, hertz, per second; 1 for others (`%`, `inst`, `register/thread`).
pub(super) fn factor(unit: &str) -> f64 {
    match unit.split_once('/') {
        Some((above, below)) => word(above) / word(below),
        None => word(unit),
    }
}

fn word(word: &str) -> f64 {
    let word = word.trim();
    match word {
        "ns" | "nsecond" => return 1e-9,
        "us" | "usecond" => return 1e-6,
        "ms" | "msecond" => return 1e-3,
        _ => {}
    }
    let lower = word.to_ascii_lowercase();
    for base in ["byte", "bytes", "hz"] {
        match lower.strip_suffix(base) {
            Some("k") => return 1e3,
            Some("m") => return 1e6,
            Some("g") => return 1e9,
            Some("t") => return 1e12,
            _ => {}
        }
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::factor;

    #[test]
    fn units_of_all_eras_have_their_factor() {
        for (unit, expected) in [
            ("nsecond", 1e-9),
            ("us", 1e-6),
            ("msecond", 1e-3),
            ("second", 1.0),
            ("s", 1.0),
            ("Kbyte", 1e3),
            ("Kbyte/block", 1e3),
            ("byte/block", 1.0),
            ("Gbyte/second", 1e9),
            ("Tbyte/s", 1e12),
            ("cycle/nsecond", 1e9),
            ("cycle/usecond", 1e6),
            ("Mhz", 1e6),
            ("hz", 1.0),
            ("%", 1.0),
            ("", 1.0),
            ("register/thread", 1.0),
            ("inst/cycle", 1.0),
        ] {
            let found = factor(unit);
            assert!((found / expected - 1.0).abs() < 1e-12, "{unit}: {found}");
        }
    }
}

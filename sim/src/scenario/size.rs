//! Sizes of memory in human notation.

use profiler::settings;
use serde::{Deserialize, Deserializer};

/// A size in a file: a whole number of bytes, or a text.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "no size, expected bytes, or a text such as \"4 GiB\", \"512 MiB\" or \"40%\"; nearest is \"4 GiB\""
)]
pub(super) enum Size {
    Bytes(u64),
    #[serde(deserialize_with = "size")]
    Text(String),
}

impl Size {
    pub(super) fn bytes_of(&self, whole_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::Text(text) => parse_size(text, whole_bytes).unwrap_or(0),
        }
    }
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    settings::text(deserializer, "a size", |text| {
        parse_size(text, 0).map(|_| text.to_owned()).ok_or(None)
    })
}

/// A whole number, one with KiB, MiB or GiB, or a percentage of `whole_bytes`.
fn parse_size(text: &str, whole_bytes: u64) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    if unit.is_empty() {
        return number.parse().ok();
    }
    let number: f64 = number.parse().ok()?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "%" if number <= 100.0 => whole_bytes as f64 / 100.0,
        _ => return None,
    };
    // Sizes of devices are far below 2^53, so the product is exact where the number is.
    Some((number * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_bytes_binary_units_or_a_share() {
        for (text, bytes) in [
            ("1024", Some(1024)),
            ("4 GiB", Some(4 << 30)),
            ("1.5MiB", Some(3 << 19)),
            ("25%", Some(250)),
            ("101%", None),
            ("4 GB", None),
            ("GiB", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(parse_size(text, 1000), bytes, "{text}");
        }
    }
}

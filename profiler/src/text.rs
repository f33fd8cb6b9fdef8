//! From a path to text: bounded reading, UTF-8, and recognition of formats by content. Orion's
//! names have no extension: the first line that is not blank or a comment decides.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Place};
use crate::limits::FILE_BYTES_MAX;
use crate::trace;

/// The format of a file, by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An Orion kernel file: `Name,Profile,…`.
    Orion,
    /// A Pillion trace: `pillion-trace 1`.
    Trace,
    /// TOML, and so perhaps a Pillion profile.
    Profile,
}

impl Format {
    /// The format by the first line neither blank nor a comment; the text may still be malformed.
    #[must_use]
    pub fn detect(text: &str) -> Option<Self> {
        let line = first_line(text)?;
        if line.split_whitespace().next() == Some(trace::FORMAT) {
            Some(Self::Trace)
        } else if line
            .get(..5)
            .is_some_and(|start| start.eq_ignore_ascii_case("Name,"))
        {
            Some(Self::Orion)
        } else if starts_toml(line) {
            Some(Self::Profile)
        } else {
            None
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Orion => "an Orion kernel file",
            Self::Trace => "a Pillion trace",
            Self::Profile => "a TOML file",
        }
    }
}

pub(crate) fn looks_like(text: &str) -> String {
    match (Format::detect(text), first_line(text)) {
        (Some(format), _) => format!("looks like {}", format.description()),
        (None, Some(line)) => format!("unknown format, starting with {}", shown(line)),
        (None, None) => "empty".to_owned(),
    }
}

/// The whole file as text.
/// # Errors
/// [`Error::Unreadable`], [`Error::TooLong`], [`Error::NotText`].
pub fn read_text(path: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLong {
            path: path.to_owned(),
        });
    }
    decode(&bytes, path).map(str::to_owned)
}

/// `bytes` as text, without the byte-order mark of some editors. `path` is for the message.
/// # Errors
/// [`Error::NotText`] with the first byte that is not UTF-8.
pub fn decode<'a>(bytes: &'a [u8], path: &Path) -> Result<&'a str, Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let (valid, rest) = bytes
                .split_at_checked(error.valid_up_to())
                .unwrap_or((&[], bytes));
            let before = String::from_utf8_lossy(valid);
            Err(Error::NotText {
                place: Place::of_offset(path, &before, before.len()),
                byte: rest.first().copied().unwrap_or(0),
            })
        }
    }
}

/// Whether `line` starts a TOML table or key; JSON's brackets have no bare words in them.
fn starts_toml(line: &str) -> bool {
    let is_word =
        |text: &str| text.starts_with(|first: char| first.is_alphabetic() || first == '_');
    match line.strip_prefix("[[").or_else(|| line.strip_prefix('[')) {
        Some(table) => table.contains(']') && is_word(table.trim_start()),
        None => line.contains('=') && (is_word(line) || line.starts_with(['"', '\''])),
    }
}

fn first_line(text: &str) -> Option<&str> {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
}

const SHOWN_CHARS_MAX: usize = 60;

/// A value as messages show it: quoted, control characters escaped, truncated if long.
pub(crate) fn shown(value: &str) -> String {
    let mut shown = String::from("`");
    for (index, character) in value.chars().enumerate() {
        if index == SHOWN_CHARS_MAX {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown.push('`');
    shown
}

/// Whether `name` can name a kernel, device or source: not empty, and valid in a line and C string.
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_control) && name.trim() == name
}

pub(crate) const NAME_EXPECTED: &str =
    "a name: not empty, without control characters and without spaces at its ends";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Format, decode, is_name, looks_like, shown};
    use crate::orion;

    #[test]
    fn formats_are_told_apart_by_content() {
        for (text, expected) in [
            (orion::HEADER, Some(Format::Orion)),
            ("name,Profile", Some(Format::Orion)),
            ("\n  \npillion-trace 9\n", Some(Format::Trace)),
            (
                "# note\n\nformat = \"pillion-profile\"",
                Some(Format::Profile),
            ),
            ("[[kernel]]", Some(Format::Profile)),
            ("[ a ] # a table", Some(Format::Profile)),
            ("\"gpu\" = 1", Some(Format::Profile)),
            ("[0.1, 0.2]", None),
            ("== title ==", None),
            ("{\"a\": 1}", None),
            ("[{\"a\": 1}]", None),
            ("\u{7f}ELF", None),
            ("ünïcödé", None),
            ("", None),
        ] {
            assert_eq!(Format::detect(text), expected, "{text:?}");
        }
        assert_eq!(looks_like(""), "empty");
        assert!(looks_like("\u{7f}ELF").contains("`\\u{7f}ELF`"));
    }

    #[test]
    fn bytes_that_are_not_text_are_refused_with_their_place() {
        let error = decode(b"ab\nc\xffd", Path::new("f")).expect_err("0xff is not UTF-8");
        assert_eq!(error.to_string(), "f:2:2: byte 0xff is not UTF-8 text");
        assert_eq!(
            decode(b"\xef\xbb\xbfName", Path::new("f")).expect("text"),
            "Name"
        );
    }

    #[test]
    fn shown_values_are_short_and_printable() {
        assert_eq!(shown("a\tb\0"), "`a\\tb\\u{0}`");
        assert_eq!(shown(&"x".repeat(100)), format!("`{}…`", "x".repeat(60)));
    }

    #[test]
    fn names_fit_on_a_line() {
        assert!(is_name("void (anonymous namespace)::f<int, 4>"));
        for name in ["", " a", "a ", "a\nb", "a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}

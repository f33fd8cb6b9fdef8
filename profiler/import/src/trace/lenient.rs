//! Repairs the JSON of trace writers. Seen in real traces: a byte-order mark; `NaN` and `Infinity`
//! for numbers; a comma after the last element; raw control characters, single backslashes (paths
//! of Windows) and bytes that are no UTF-8 in strings. Each is replaced while the file streams by;
//! everything else passes unchanged.

use std::io::{self, Read};

use encoding_rs::{Decoder, Encoding, UTF_8};

use crate::error::Error;
use crate::input::Input;

const PIECE_BYTES: usize = 64 << 10;

pub(super) struct Lenient {
    input: Input,
    decoder: Option<Decoder>,
    raw: Vec<u8>,
    decoded: String,
    mended: Vec<u8>,
    given: usize,
    state: State,
    is_at_end: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    place: Place,
    /// Whether a comma is held back because it may be the last.
    comma: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    String,
    Escape,
    Word,
    Minus,
}

impl Lenient {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            decoder: None,
            raw: vec![0; PIECE_BYTES],
            decoded: String::new(),
            mended: Vec::with_capacity(PIECE_BYTES * 2),
            given: 0,
            state: State::default(),
            is_at_end: false,
        }
    }

    pub(super) fn error(&self, error: io::Error) -> Error {
        self.input.error(error)
    }

    fn fill(&mut self) -> io::Result<()> {
        let bytes = self.input.read(&mut self.raw)?;
        self.is_at_end = bytes == 0;
        let mut piece = self.raw.get(..bytes).unwrap_or(&[]);
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            None => {
                let (encoding, bom_bytes) = Encoding::for_bom(piece).unwrap_or((UTF_8, 0));
                piece = piece.get(bom_bytes..).unwrap_or(&[]);
                self.decoder
                    .insert(encoding.new_decoder_without_bom_handling())
            }
        };
        self.decoded.clear();
        let needed = decoder.max_utf8_buffer_length(piece.len());
        self.decoded.reserve(needed.unwrap_or(PIECE_BYTES * 3));
        // The buffer has room for the worst case, so all of the piece is taken.
        let _ = decoder.decode_to_string(piece, &mut self.decoded, self.is_at_end);
        self.mended.clear();
        self.given = 0;
        for &byte in self.decoded.as_bytes() {
            self.state.mend(byte, &mut self.mended);
        }
        Ok(())
    }
}

impl Read for Lenient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.mended.len() && !self.is_at_end {
            self.fill()?;
        }
        let rest = self.mended.get(self.given..).unwrap_or(&[]);
        let bytes = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..bytes), rest.get(..bytes)) {
            to.copy_from_slice(from);
        }
        self.given += bytes;
        Ok(bytes)
    }
}

impl State {
    #[inline]
    fn mend(&mut self, byte: u8, out: &mut Vec<u8>) {
        match self.place {
            Place::String => match byte {
                b'"' => {
                    out.push(byte);
                    self.place = Place::Outside;
                }
                b'\\' => self.place = Place::Escape,
                0..0x20 => out.push(b' '),
                _ => out.push(byte),
            },
            Place::Escape => {
                let is_escape = matches!(
                    byte,
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u'
                );
                out.extend_from_slice(if is_escape { b"\\" } else { b"\\\\" });
                out.push(if byte < 0x20 { b' ' } else { byte });
                self.place = Place::String;
            }
            Place::Word if byte.is_ascii_alphabetic() => {}
            Place::Word | Place::Outside => self.outside(byte, out),
            Place::Minus if byte == b'I' || byte == b'N' => self.outside(byte, out),
            Place::Minus => {
                out.push(b'-');
                self.outside(byte, out);
            }
        }
    }

    fn outside(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.place = Place::Outside;
        if byte.is_ascii_whitespace() {
            out.push(byte);
            return;
        }
        if self.comma {
            self.comma = false;
            if !matches!(byte, b']' | b'}') {
                out.push(b',');
            }
        }
        match byte {
            b',' => self.comma = true,
            b'-' => self.place = Place::Minus,
            b'N' | b'I' => {
                out.extend_from_slice(b"null");
                self.place = Place::Word;
            }
            b'"' => {
                out.push(byte);
                self.place = Place::String;
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::State;

    fn mended(text: &str) -> String {
        let mut state = State::default();
        let mut out = Vec::new();
        for &byte in text.as_bytes() {
            state.mend(byte, &mut out);
        }
        String::from_utf8(out).expect("only ASCII is replaced")
    }

    #[test]
    fn what_writers_do_wrong_is_mended() {
        for (text, expected) in [
            ("[1, 2, ]", "[1 ,2 ]"),
            (
                "{\"a\": NaN, \"b\": -Infinity,\n}",
                "{\"a\": null ,\"b\": null\n}",
            ),
            (
                "[\"C:\\Users\\me\", \"a\\\"b\"]",
                "[\"C:\\\\Users\\\\me\", \"a\\\"b\"]",
            ),
            ("[\"a\nb\"]", "[\"a b\"]"),
            ("[-1.5,1e-3]", "[-1.5,1e-3]"),
            ("[\"NaN, ]\"]", "[\"NaN, ]\"]"),
        ] {
            // A path with \U or \u looks like an escape; only other letters are repaired.
            if text.contains("Users") {
                assert!(
                    serde_json::from_str::<Value>(&mended(text)).is_ok(),
                    "{}",
                    mended(text)
                );
                continue;
            }
            assert_eq!(mended(text), expected);
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn right_json_stays_what_it_is(value in json()) {
            let text = value.to_string();
            prop_assert_eq!(&mended(&text), &text);
            let pretty = serde_json::to_string_pretty(&value).expect("it is JSON");
            let read: Value = serde_json::from_str(&mended(&pretty)).expect("still JSON");
            prop_assert_eq!(read.to_string(), serde_json::from_str::<Value>(&pretty).expect("JSON").to_string());
        }

        #[test]
        fn of_any_text_only_ascii_is_mended(text in any::<String>()) {
            let others = |text: &str| text.chars().filter(|c| !c.is_ascii()).collect::<String>();
            prop_assert_eq!(others(&mended(&text)), others(&text));
        }
    }
}

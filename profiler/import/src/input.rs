//! From a path to bytes or lines: gzip, encodings, and the bound on input. Files are read in
//! pieces, and a bomb (small, with huge content) stops at [`Limits::bytes_max`](crate::Limits).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use encoding_rs::{CoderResult, Decoder, Encoding, UTF_8};
use flate2::bufread::MultiGzDecoder;

use crate::error::Error;
use crate::limits::LINE_BYTES_MAX;

const PIECE_BYTES: usize = 64 << 10;

pub(crate) struct Input {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    read: u64,
    limit: u64,
    is_compressed: bool,
}

impl Input {
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Self, Error> {
        let unreadable = |source| Error::unreadable(path, source);
        let file = File::open(path).map_err(unreadable)?;
        let mut reader = BufReader::with_capacity(PIECE_BYTES, file);
        let is_compressed = reader
            .fill_buf()
            .map_err(unreadable)?
            .starts_with(b"\x1f\x8b");
        let reader: Box<dyn BufRead> = if is_compressed {
            let decoder = MultiGzDecoder::new(reader);
            Box::new(BufReader::with_capacity(PIECE_BYTES, decoder))
        } else {
            Box::new(reader)
        };
        Ok(Self {
            path: path.to_owned(),
            reader,
            read: 0,
            limit,
            is_compressed,
        })
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    pub(crate) fn position(&self) -> u64 {
        self.read
    }

    pub(crate) fn error(&self, error: io::Error) -> Error {
        let path = self.path.clone();
        if error.get_ref().is_some_and(|inner| inner.is::<TooLong>()) {
            return Error::TooLong {
                path,
                limit: self.limit,
                is_compressed: self.is_compressed,
            };
        }
        if self.is_compressed
            && matches!(
                error.kind(),
                io::ErrorKind::InvalidInput
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::UnexpectedEof
            )
        {
            return Error::damaged(&path, format!("gzip: {error}"), "copy the whole file again");
        }
        Error::unreadable(&path, error)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("longer than the limit")]
struct TooLong;

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.read += bytes as u64;
        if self.read > self.limit {
            return Err(io::Error::other(TooLong));
        }
        Ok(bytes)
    }
}

/// Lines of a text file in UTF-8, or in UTF-16 with its mark, as PowerShell writes.
pub(crate) struct Lines {
    input: Input,
    decoder: Decoder,
    /// Decoded text; the part from `start` is not yet returned.
    text: String,
    start: usize,
    is_at_end: bool,
    number: usize,
    raw: Vec<u8>,
}

impl Lines {
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Self, Error> {
        let mut input = Input::open(path, limit)?;
        let mut raw = vec![0; PIECE_BYTES];
        let first = input.read(&mut raw).map_err(|error| input.error(error))?;
        let head = raw.get(..first).unwrap_or(&[]);
        let (encoding, bom_bytes) = Encoding::for_bom(head).unwrap_or((UTF_8, 0));
        let mut lines = Self {
            input,
            decoder: encoding.new_decoder_without_bom_handling(),
            text: String::new(),
            start: 0,
            is_at_end: first == 0,
            number: 0,
            raw: Vec::new(),
        };
        lines.decode(head.get(bom_bytes..).unwrap_or(&[]));
        lines.raw = raw;
        Ok(lines)
    }

    /// The next line without its end, and its number from 1.
    pub(crate) fn next_line(&mut self) -> Result<Option<(usize, &str)>, Error> {
        let mut searched = self.start;
        let end = loop {
            let rest = self.text.get(searched..).unwrap_or("");
            if let Some(at) = rest.find('\n') {
                break Some(searched + at);
            }
            searched = self.text.len();
            if self.is_at_end {
                break (self.start < self.text.len()).then_some(self.text.len());
            }
            if self.text.len() - self.start > LINE_BYTES_MAX {
                return Err(Error::too_many(
                    &self.input.path,
                    "bytes in one line",
                    LINE_BYTES_MAX,
                ));
            }
            searched -= self.start;
            self.text.drain(..self.start);
            self.start = 0;
            self.fill()?;
        };
        let Some(end) = end else {
            return Ok(None);
        };
        let line = self.text.get(self.start..end).unwrap_or("");
        self.start = (end + 1).min(self.text.len());
        self.number += 1;
        Ok(Some((self.number, line.strip_suffix('\r').unwrap_or(line))))
    }

    pub(crate) fn position(&self) -> u64 {
        self.input.position()
    }

    fn fill(&mut self) -> Result<(), Error> {
        let mut raw = std::mem::take(&mut self.raw);
        let bytes = self
            .input
            .read(&mut raw)
            .map_err(|error| self.input.error(error))?;
        self.is_at_end = bytes == 0;
        self.decode(raw.get(..bytes).unwrap_or(&[]));
        self.raw = raw;
        Ok(())
    }

    fn decode(&mut self, mut bytes: &[u8]) {
        loop {
            let needed = self.decoder.max_utf8_buffer_length(bytes.len());
            self.text.reserve(needed.unwrap_or(PIECE_BYTES));
            let (result, read, _) =
                self.decoder
                    .decode_to_string(bytes, &mut self.text, self.is_at_end);
            bytes = bytes.get(read..).unwrap_or(&[]);
            if result == CoderResult::InputEmpty {
                return;
            }
        }
    }
}

/// The fields of a CSV line: quoted or not, `""` for a quote in quotes; violations are literal.
pub(crate) fn fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted),
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                (field.to_owned(), after)
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return fields,
        }
    }
}

fn quoted_field(quoted: &str) -> (String, &str) {
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let Some(at) = rest.find('"') else {
            field.push_str(rest);
            return (field, "");
        };
        let (before, after) = rest.split_at(at);
        field.push_str(before);
        let after = after.get(1..).unwrap_or("");
        if let Some(next) = after.strip_prefix('"') {
            field.push('"');
            rest = next;
            continue;
        }
        let end = after.find(',').unwrap_or(after.len());
        let (tail, after) = after.split_at(end);
        field.push_str(tail);
        return (field, after);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::{Error, Lines, fields};

    fn lines_of(bytes: &[u8], limit: u64) -> Result<Vec<String>, Error> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("room");
        let mut lines = Lines::open(file.path(), limit)?;
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next_line()? {
            all.push(line.to_owned());
            assert_eq!(number, all.len());
        }
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("room");
        encoder.finish().expect("room")
    }

    #[test]
    fn any_encoding_and_line_end_gives_the_same_lines() {
        let text = "\"ID\",\"é\"\r\nzwei\n\ndrei";
        let utf16 = |to_bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let marked = format!("\u{feff}{text}");
            marked.encode_utf16().flat_map(to_bytes).collect()
        };
        let expected = ["\"ID\",\"é\"", "zwei", "", "drei"];
        for bytes in [
            text.as_bytes().to_vec(),
            format!("\u{feff}{text}").into_bytes(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
            gzip(text.as_bytes()),
        ] {
            assert_eq!(lines_of(&bytes, 1 << 20).expect("readable"), expected);
        }
    }

    #[test]
    fn what_decompresses_without_end_stops_at_the_limit() {
        let bomb = gzip(&vec![b'\n'; 8 << 20]);
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        let error = lines_of(&bomb, 1 << 20).expect_err("too long");
        assert!(
            matches!(
                error,
                Error::TooLong {
                    is_compressed: true,
                    ..
                }
            ),
            "{error}"
        );
        let cut = &gzip(&b"0123456789\n".repeat(10_000))[..300];
        let error = lines_of(cut, 1 << 20).expect_err("cut");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let error = lines_of(&vec![b'x'; super::LINE_BYTES_MAX + (1 << 20)], 1 << 40);
        assert!(matches!(error, Err(Error::TooMany { .. })));
    }

    #[test]
    fn fields_may_be_quoted_or_not() {
        assert_eq!(
            fields("a,\"b,c\",\"d\"\"e\",,"),
            ["a", "b,c", "d\"e", "", ""]
        );
        assert_eq!(fields(""), [""]);
        assert_eq!(fields("\"open, end"), ["open, end"]);
    }

    proptest! {
        #[test]
        fn fields_are_those_of_a_csv_reader(values in prop::collection::vec("[a-z,\" ]{0,6}", 1..6)) {
            let quote = |value: &String| format!("\"{}\"", value.replace('"', "\"\""));
            let line = values.iter().map(quote).collect::<Vec<_>>().join(",");
            prop_assert_eq!(&fields(&line), &values);
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
            let record = reader.records().next().expect("one").expect("right");
            prop_assert_eq!(fields(&line), record.iter().map(str::to_owned).collect::<Vec<_>>());
        }

        #[test]
        fn any_line_has_fields(line in "[^\n]*") {
            prop_assert!(!fields(&line).is_empty());
        }

        #[test]
        fn any_bytes_are_lines_without_ends_or_refused_in_one_line(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            match lines_of(&bytes, 1 << 20) {
                Ok(lines) => prop_assert!(lines.iter().all(|line| !line.contains('\n')), "{:?}", lines),
                Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
            }
        }
    }
}

//! Tables of text: the common part of all readers of comma- or tab-separated files. A table is
//! opened, its columns are found by name or by position, and its rows are read one by one.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;

use csv::{ReaderBuilder, StringRecord};

use super::{ROWS_MAX, TraceError};

pub(super) struct Table<'a> {
    source: Source<'a>,
    known: &'a str,
    records: csv::Reader<&'a [u8]>,
    first: StringRecord,
    has_header: bool,
}

pub(super) struct Column {
    name: Cow<'static, str>,
    at: usize,
}

/// One row. It has as many cells as the table has columns.
pub(super) struct Row<'a> {
    source: Source<'a>,
    record: &'a StringRecord,
}

#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Table<'a> {
    pub(super) fn commas(
        file: &'a str,
        bytes: &'a [u8],
        known: &'a str,
    ) -> Result<Self, TraceError> {
        Self::open(file, bytes, known, &mut ReaderBuilder::new())
    }

    /// Opens tab-separated values, in which quotes mean themselves.
    pub(super) fn tabs(file: &'a str, bytes: &'a [u8], known: &'a str) -> Result<Self, TraceError> {
        let mut form = ReaderBuilder::new();
        Self::open(file, bytes, known, form.delimiter(b'\t').quoting(false))
    }

    fn open(
        file: &'a str,
        bytes: &'a [u8],
        known: &'a str,
        form: &mut ReaderBuilder,
    ) -> Result<Self, TraceError> {
        let text = text_of(file, bytes)?;
        let form = form.has_headers(false).flexible(true);
        let mut table = Self {
            source: Source { file, text },
            known,
            records: form.from_reader(text.as_bytes()),
            first: StringRecord::new(),
            has_header: false,
        };
        let mut first = StringRecord::new();
        if !table.next(&mut first) {
            let (file, known) = (file.to_owned(), known.to_owned());
            return Err(TraceError::Empty { file, known });
        }
        table.first = first;
        Ok(table)
    }

    pub(super) fn names(&self, name: &str) -> bool {
        self.first.iter().any(|cell| cell == name)
    }

    /// Takes the first record for the header, and finds columns in it.
    pub(super) fn by_name<const N: usize>(
        &mut self,
        names: [&'static str; N],
    ) -> Result<[Column; N], TraceError> {
        let found = names.map(|name| self.column(name.into()));
        let found = found
            .into_iter()
            .collect::<Result<Vec<Column>, TraceError>>()?;
        let mut found = found.into_iter();
        Ok(names.map(|_| found.next().expect("there is a column for each name")))
    }

    pub(super) fn column(&mut self, name: Cow<'static, str>) -> Result<Column, TraceError> {
        self.has_header = true;
        let mut places = (0..).zip(&self.first).filter(|&(_, cell)| cell == name);
        match (places.next(), places.next()) {
            (Some((at, _)), None) => Ok(Column { name, at }),
            (None, _) => Err(self.refuse_header(format!("has no column {name}"))),
            (Some(_), Some(_)) => Err(self.refuse_header(format!("has column {name} twice"))),
        }
    }

    /// Takes the first record for a row, and columns in their published order.
    pub(super) fn by_position<const N: usize>(
        &mut self,
        names: [&'static str; N],
    ) -> Result<[Column; N], TraceError> {
        if self.first.iter().all(is_name) {
            return Err(self.refuse_header("is of another form"));
        }
        if self.first.len() != N {
            return Err(self.refuse_width(&N.to_string()));
        }
        Ok(std::array::from_fn(|at| Column {
            name: names[at].into(),
            at,
        }))
    }

    /// By name if the first record names the first of these columns, and by position otherwise.
    pub(super) fn by_name_or_position<const N: usize>(
        &mut self,
        names: [&'static str; N],
    ) -> Result<[Column; N], TraceError> {
        if names.first().is_some_and(|name| self.names(name)) {
            self.by_name(names)
        } else {
            self.by_position(names)
        }
    }

    pub(super) fn width(&self) -> usize {
        self.first.len()
    }

    pub(super) fn refuse_header(&self, problem: impl Into<String>) -> TraceError {
        let header: Vec<&str> = self.first.iter().collect();
        TraceError::Header {
            file: self.source.file.to_owned(),
            line: self.source.line(&self.first),
            found: cut(&header.join(",")),
            problem: problem.into(),
            known: self.known.to_owned(),
        }
    }

    pub(super) fn refuse_width(&self, widths: &str) -> TraceError {
        if self.first.iter().all(is_name) {
            return self.refuse_header("is of another form");
        }
        self.source
            .width(&self.first, format!("{widths}, as in {}", self.known))
    }

    pub(super) fn rows<T>(
        self,
        read: impl Fn(&Row<'_>) -> Result<T, TraceError>,
    ) -> Result<Vec<T>, TraceError> {
        self.rows_up_to(ROWS_MAX, read)
    }

    fn rows_up_to<T>(
        mut self,
        rows_max: usize,
        read: impl Fn(&Row<'_>) -> Result<T, TraceError>,
    ) -> Result<Vec<T>, TraceError> {
        let width = self.first.len();
        let mut record = self.first.clone();
        let mut is_there = !self.has_header || self.next(&mut record);
        let mut rows = Vec::new();
        while is_there {
            if record.len() != width {
                let expected = format!("{width}, as in the first line");
                return Err(self.source.width(&record, expected));
            }
            if rows.len() == rows_max {
                return Err(TraceError::TooManyRows {
                    file: self.source.file.to_owned(),
                    line: self.source.line(&record),
                    rows_max,
                });
            }
            rows.push(read(&Row {
                source: self.source,
                record: &record,
            })?);
            is_there = self.next(&mut record);
        }
        Ok(rows)
    }

    fn next(&mut self, record: &mut StringRecord) -> bool {
        let read = self.records.read_record(record);
        read.expect("text in memory, with any number of columns, has no other error")
    }
}

impl Row<'_> {
    pub(super) fn cell(&self, column: &Column) -> &str {
        &self.record[column.at]
    }

    pub(super) fn text(&self, column: &Column) -> Result<String, TraceError> {
        match self.cell(column) {
            "" => Err(self.refuse(column, "a text that is not empty")),
            text => Ok(text.to_owned()),
        }
    }

    /// A whole number in a range. Zeros after a point are accepted, as of columns with gaps.
    pub(super) fn whole<T>(
        &self,
        column: &Column,
        range: RangeInclusive<T>,
    ) -> Result<T, TraceError>
    where
        T: TryFrom<u64> + PartialOrd + Display,
    {
        let value = whole(self.cell(column)).and_then(|value| T::try_from(value).ok());
        value.filter(|value| range.contains(value)).ok_or_else(|| {
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            self.refuse(column, expected)
        })
    }

    pub(super) fn number(&self, column: &Column, max: f64) -> Result<f64, TraceError> {
        let value = self.cell(column).parse::<f64>().ok();
        let is_right = |value: &f64| value.is_sign_positive() && *value <= max;
        let value = value.filter(is_right);
        value.ok_or_else(|| self.refuse(column, format!("a number from 0 to {max}")))
    }

    /// None for an empty cell; `read` reads any other.
    pub(super) fn optional<T>(
        &self,
        column: &Column,
        read: impl FnOnce(&Column) -> Result<T, TraceError>,
    ) -> Result<Option<T>, TraceError> {
        let is_known = !self.cell(column).is_empty();
        is_known.then(|| read(column)).transpose()
    }

    pub(super) fn refuse(&self, column: &Column, expected: impl Into<String>) -> TraceError {
        TraceError::Value {
            file: self.source.file.to_owned(),
            line: self.source.line(self.record),
            column: column.name.clone().into_owned(),
            found: cut(self.cell(column)),
            expected: expected.into(),
        }
    }
}

impl Source<'_> {
    /// The line of a record. The position's own line is wrong: one too few after CRLF, and that of
    /// the first of the empty lines before the record.
    fn line(&self, record: &StringRecord) -> u64 {
        let byte = record.position().map_or(0, csv::Position::byte);
        let byte = usize::try_from(byte)
            .unwrap_or(usize::MAX)
            .min(self.text.len());
        let (before, after) = self.text.as_bytes().split_at(byte);
        let is_end = |&&byte: &&u8| byte == b'\n' || byte == b'\r';
        let ends = after
            .iter()
            .take_while(is_end)
            .filter(|&&byte| byte == b'\n')
            .count();
        line_after(before) + ends as u64
    }

    fn width(&self, record: &StringRecord, expected: String) -> TraceError {
        TraceError::Width {
            file: self.file.to_owned(),
            line: self.line(record),
            found: record.len(),
            expected,
        }
    }
}

pub(super) fn text_of<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, TraceError> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| TraceError::NotText {
        file: file.to_owned(),
        line: line_after(&bytes[..error.valid_up_to()]),
    })
}

/// The line of the byte after these, from 1.
fn line_after(bytes: &[u8]) -> u64 {
    1 + bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

fn whole(text: &str) -> Option<u64> {
    let (digits, zeros) = text.split_once('.').unwrap_or((text, "0"));
    let is_whole = !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0');
    // A sign is refused, which `parse` accepts.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_whole && is_plain)
        .then(|| digits.parse().ok())
        .flatten()
}

/// Whether a cell can be a column's name. A row has a number in some cell, or an empty one.
fn is_name(cell: &str) -> bool {
    cell.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(FOUND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

const FOUND_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a table of columns `a` (whole, up to 9) and `b` (number, up to 5).
    fn read(bytes: &[u8]) -> Result<Vec<(u32, f64)>, String> {
        let read = || {
            let mut table = Table::commas("t.csv", bytes, "a table (a,b)")?;
            let [a, b] = table.by_name(["a", "b"])?;
            table.rows(|row| Ok((row.whole(&a, 0..=9)?, row.number(&b, 5.0)?)))
        };
        read().map_err(|error: TraceError| error.to_string())
    }

    fn refused(bytes: &[u8]) -> String {
        read(bytes).expect_err("a refusal")
    }

    #[test]
    fn columns_are_found_by_name_and_others_ignored() {
        assert_eq!(
            read(b"x,b,a\nq,1.5,2\n,0,9.0\n"),
            Ok(vec![(2, 1.5), (9, 0.0)])
        );
        assert_eq!(read(b"a,b\n"), Ok(vec![]));
    }

    #[test]
    fn a_byte_order_mark_and_crlf_are_accepted() {
        assert_eq!(
            read(b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4"),
            Ok(vec![(1, 2.0), (3, 4.0)])
        );
    }

    #[test]
    fn errors_name_the_line_whatever_ends_lines() {
        let line = |bytes: &[u8]| refused(bytes).split(": ").next().map(str::to_owned);
        for (end, empty) in [("\n", ""), ("\n", "\n\n"), ("\r\n", ""), ("\r\n", "\r\n")] {
            let text = format!("a,b{end}{empty}1,2{end}{empty}x,2{end}");
            let before = 3 + 2 * empty.matches('\n').count();
            assert_eq!(
                line(text.as_bytes()),
                Some(format!("t.csv:{before}")),
                "{text:?}"
            );
        }
        assert_eq!(
            line(b"a,b,c\n1,2,\"\n\n\"\nx,1,\n").as_deref(),
            Some("t.csv:5")
        );
    }

    #[test]
    fn values_out_of_range_or_of_another_form_are_refused() {
        let whole = "expected a whole number from 0 to 9";
        for cell in [
            "",
            "x",
            "12x",
            "10",
            "-1",
            "+1",
            "1.5",
            "1.",
            ".0",
            "99999999999999999999",
        ] {
            let expected = format!("t.csv:2: a is {cell:?}: {whole}");
            assert_eq!(refused(format!("a,b\n{cell},1\n").as_bytes()), expected);
        }
        for cell in ["", "x", "5.1", "-1", "-0", "nan", "inf", "1e999"] {
            let expected = format!("t.csv:2: b is {cell:?}: expected a number from 0 to 5");
            assert_eq!(refused(format!("a,b\n1,{cell}\n").as_bytes()), expected);
        }
    }

    #[test]
    fn other_forms_are_refused_by_their_header() {
        assert_eq!(
            refused(b""),
            "t.csv: the file is empty: expected a table (a,b)"
        );
        assert_eq!(
            refused(b"a,c\n1,2\n"),
            "t.csv:1: the header \"a,c\" has no column b: expected a table (a,b)"
        );
        assert_eq!(
            refused(b"a,b,a\n1,2,3\n"),
            "t.csv:1: the header \"a,b,a\" has column a twice: expected a table (a,b)"
        );
        assert_eq!(
            refused(b"a,b\n1,\xff\n"),
            "t.csv:2: the bytes are not text: expected UTF-8"
        );
    }

    #[test]
    fn rows_of_another_width_are_refused() {
        let expected = "t.csv:3: the row has 1 columns: expected 2, as in the first line";
        assert_eq!(refused(b"a,b\n1,2\n3\n"), expected);
    }

    #[test]
    fn a_row_too_many_is_refused() {
        let read = |rows_max| {
            let mut table = Table::commas("t.csv", b"a\n1\n2\n", "a table (a)").expect("a table");
            let [a] = table.by_name(["a"]).expect("a column");
            table.rows_up_to(rows_max, |row| row.whole(&a, 0..=9_u32))
        };
        assert_eq!(read(2).expect("rows"), [1, 2]);
        let error = read(1).expect_err("a refusal").to_string();
        assert_eq!(error, "t.csv:3: row 2 of the file: expected at most 1 rows");
    }

    #[test]
    fn messages_repeat_only_the_beginning_of_a_cell() {
        let message = refused(format!("a,b\n{},1\n", "é".repeat(5000)).as_bytes());
        assert!(message.len() < 400, "{message}");
        assert!(message.contains("é…\": expected"), "{message}");
    }
}

//! Reader of Orion's kernel files. Orion (EuroSys'24; github.com/eth-easl/orion,
//! `benchmarking/model_kernels`) describes a job by comma-separated text without quoting: a header,
//! then one row per launch, in order:
//! ```text
//! Name,Profile,Memory_footprint,SM_usage,Duration
//! Conv,1,0,98,100480
//! ```
//! `Profile` is 1 for compute-bound, 0 for memory-bound, -1 for unknown. `SM_usage` is the number
//! of SMs needed on a V100; uncapped. `Duration` is in ns. `Memory_footprint` is 0 or 1 in every
//! published file and Orion never reads it: it is checked and dropped. Grid, block, registers and
//! shared memory are absent, and names repeat over different launches. Orion's own loader splits at
//! commas and trusts the rest. One published file
//! (`profiling/postprocessing/profiles/resnet50_32_fb1_new`) has template names with commas, whose
//! end is ambiguous, so the file is refused, with the reason.

use std::path::Path;
use std::str::FromStr;

use crate::ResourceClass;
use crate::error::{Error, Place};
use crate::limits::{DURATION_NS_MAX, LAUNCHES_MAX, SM_NEEDED_MAX};
use crate::nearest::nearest;
use crate::text::{self, Format, NAME_EXPECTED, is_name, looks_like, shown};

/// The first line of every Orion kernel file.
pub const HEADER: &str = "Name,Profile,Memory_footprint,SM_usage,Duration";

const COLUMNS: [&str; 5] = [
    "Name",
    "Profile",
    "Memory_footprint",
    "SM_usage",
    "Duration",
];

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the kernel or operator; shared by many different launches.
    pub name: String,
    /// Its resource class.
    pub class: ResourceClass,
    /// SMs it needs, 1..=[`SM_NEEDED_MAX`]; more than a V100's 80 means several waves of blocks.
    pub sm_needed: u32,
    /// Its solo duration, ns, 1..=[`DURATION_NS_MAX`].
    pub duration_ns: u64,
}

/// Reads the Orion kernel file at `path`: its launches in order, at least one.
/// # Errors
/// Those of [`text::read_text`] and [`parse`].
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    parse(&text::read_text(path)?, path)
}

/// The launches in `text`, at least one. `path` is for messages.
/// # Errors
/// The first error, with its place: header, number of fields, a value, no rows, or too many.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Entry>, Error> {
    if Format::detect(text) != Some(Format::Orion) {
        return Err(Error::UnknownFormat {
            path: path.to_owned(),
            found: looks_like(text),
            accepted: "an Orion kernel file (first line `Name,Profile,Memory_footprint,SM_usage,Duration`)",
        });
    }
    let mut header_seen = false;
    let mut entries = Vec::new();
    let mut lines = 0;
    for (index, line) in text.lines().enumerate() {
        lines = index + 1;
        if line.trim().is_empty() || (!header_seen && line.trim_start().starts_with('#')) {
            continue;
        }
        if !header_seen {
            check_header(line, path, lines)?;
            header_seen = true;
            continue;
        }
        if entries.len() == LAUNCHES_MAX {
            let place = Place::line(path, lines);
            return Err(Error::too_many(place, "rows", LAUNCHES_MAX));
        }
        entries.push(parse_row(line, path, lines)?);
    }
    if entries.is_empty() {
        return Err(Error::empty(
            Place::line(path, lines),
            "row after the header",
        ));
    }
    Ok(entries)
}

fn check_header(line: &str, path: &Path, number: usize) -> Result<(), Error> {
    let mut fields = 0;
    for (index, (column, field)) in fields_of(line).enumerate() {
        fields = index + 1;
        if COLUMNS.get(index) != Some(&field) {
            return Err(Error::UnknownKey {
                place: Place::at(path, number, column),
                what: "column",
                found: shown(field),
                nearest: nearest(field, COLUMNS),
                expected: format!("the header `{HEADER}`"),
            });
        }
    }
    if fields < COLUMNS.len() {
        let reason = format!("the header lacks {}", COLUMNS[fields..].join(", "));
        return Err(Error::FieldCount {
            place: Place::line(path, number),
            fields,
            reason,
        });
    }
    Ok(())
}

fn parse_row(line: &str, path: &Path, number: usize) -> Result<Entry, Error> {
    let mut fields = [(0, ""); COLUMNS.len()];
    let mut count = 0;
    for field in fields_of(line) {
        if let Some(slot) = fields.get_mut(count) {
            *slot = field;
        }
        count += 1;
    }
    if count != COLUMNS.len() {
        let place = Place::line(path, number);
        return Err(Error::FieldCount {
            place,
            fields: count,
            reason: count_reason(line, count),
        });
    }
    let [name, class, footprint, sm_needed, duration] = fields;
    let bad = |field: usize, expected: &str| Error::BadValue {
        place: Place::at(path, number, fields[field].0),
        key: COLUMNS[field],
        found: shown(fields[field].1),
        expected: expected.to_owned(),
        nearest: None,
    };
    if !is_name(name.1) {
        return Err(bad(0, NAME_EXPECTED));
    }
    let class = match class.1 {
        "1" => ResourceClass::Compute,
        "0" => ResourceClass::Memory,
        "-1" => ResourceClass::Unknown,
        _ => return Err(bad(1, "1 (compute), 0 (memory) or -1 (unknown)")),
    };
    i64::from_str(footprint.1).map_err(|_| bad(2, "a whole number"))?;
    let sm_needed = u32::from_str(sm_needed.1)
        .ok()
        .filter(|sms| (1..=SM_NEEDED_MAX).contains(sms))
        .ok_or_else(|| bad(3, &format!("a whole number of SMs, 1 to {SM_NEEDED_MAX}")))?;
    let duration_ns = parse_duration(duration.1)
        .ok_or_else(|| bad(4, &format!("nanoseconds, 1 to {DURATION_NS_MAX}")))?;
    Ok(Entry {
        name: name.1.to_owned(),
        class,
        sm_needed,
        duration_ns,
    })
}

/// A duration in ns. Orion reads it as a float, so decimals are allowed; they are rounded.
fn parse_duration(field: &str) -> Option<u64> {
    let is_decimal = field
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let nanoseconds = f64::from_str(field).ok().filter(|_| is_decimal)?.round();
    // Everything up to the bound is exact in a double.
    let in_range = nanoseconds >= 1.0 && nanoseconds <= DURATION_NS_MAX as f64;
    in_range.then_some(nanoseconds as u64)
}

fn count_reason(line: &str, count: usize) -> String {
    if count < COLUMNS.len() {
        return format!("{} missing", COLUMNS[count..].join(", "));
    }
    // The last four fields are numbers; if they are, everything before was meant as the name.
    let mut from_right = line.rsplitn(COLUMNS.len(), ',');
    let numbers = from_right
        .by_ref()
        .take(COLUMNS.len() - 1)
        .all(|field| f64::from_str(field.trim()).is_ok());
    let commas = count - COLUMNS.len();
    match from_right.next() {
        Some(name) if numbers => format!(
            "the name {} contains {commas} unquoted comma{}, and Orion's format has no quoting; \
             remove the commas from the name",
            shown(name.trim()),
            if commas == 1 { "" } else { "s" },
        ),
        _ => format!("{commas} more than the header has"),
    }
}

/// The fields, trimmed, each with its column (from 1, in characters).
fn fields_of(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut column = 1;
    line.split(',').map(move |field| {
        let start = column
            + field
                .chars()
                .take_while(|character| character.is_whitespace())
                .count();
        column += field.chars().count() + 1;
        (start, field.trim())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::{Entry, HEADER, parse};
    use crate::ResourceClass;
    use crate::limits::{DURATION_NS_MAX, SM_NEEDED_MAX};

    fn error_of(rows: &str) -> String {
        let text = format!("{HEADER}\n{rows}");
        parse(&text, Path::new("f"))
            .expect_err("the rows are wrong")
            .to_string()
    }

    #[test]
    fn a_row_is_a_launch() {
        let text = format!("{HEADER}\r\nConv,1,0,98,100480\n\nvoid at::f<int>, -1 ,1,1,6144.4\n");
        let entries = parse(&text, Path::new("f")).expect("right");
        assert_eq!(
            entries,
            [
                Entry {
                    name: "Conv".to_owned(),
                    class: ResourceClass::Compute,
                    sm_needed: 98,
                    duration_ns: 100_480
                },
                Entry {
                    name: "void at::f<int>".to_owned(),
                    class: ResourceClass::Unknown,
                    sm_needed: 1,
                    duration_ns: 6_144
                },
            ]
        );
    }

    #[test]
    fn wrong_values_are_named_with_line_and_column() {
        for (rows, expected) in [
            (
                "a,1,0,1,5\nConv,2,0,98,1",
                "f:3:6: Profile = `2`; expected 1 (compute), 0 (memory)",
            ),
            (
                "Conv,1,x,98,1",
                "f:2:8: Memory_footprint = `x`; expected a whole number",
            ),
            (
                "Conv,1,0,0,1",
                "f:2:10: SM_usage = `0`; expected a whole number of SMs, 1 to",
            ),
            ("Conv,1,0,-3,1", "f:2:10: SM_usage = `-3`;"),
            ("Größe,1,0, ,1", "f:2:12: SM_usage = ``;"),
            (
                "Conv,1,0,98,0",
                "f:2:13: Duration = `0`; expected nanoseconds, 1 to 600000000000",
            ),
            ("Conv,1,0,98,inf", "f:2:13: Duration = `inf`;"),
            ("Conv,1,0,98,1e3", "f:2:13: Duration = `1e3`;"),
            (
                "Conv,1,0,98,600000000001",
                "f:2:13: Duration = `600000000001`;",
            ),
            (",1,0,98,1", "f:2:1: Name = ``; expected a name: not empty"),
            (
                "Conv,1,0",
                "f:2: 3 fields; expected 5 (Name,Profile,Memory_footprint,SM_usage,Duration): SM_usage, Duration missing",
            ),
            (
                "f<a, b, c>,1,0,98,1",
                "f:2: 7 fields; expected 5 (Name,Profile,Memory_footprint,SM_usage,Duration): the name `f<a, b, c>` contains 2 unquoted commas",
            ),
            (
                "Conv,1,0,98,1,x",
                "f:2: 6 fields; expected 5 (Name,Profile,Memory_footprint,SM_usage,Duration): 1 more than the header has",
            ),
            ("", "f:1: no row after the header; expected at least one"),
        ] {
            let error = error_of(rows);
            assert!(error.starts_with(expected), "{rows:?}: {error}");
        }
    }

    #[test]
    fn a_wrong_header_is_named_with_the_nearest_column() {
        for (text, expected) in [
            (
                "Name,Profil,Memory_footprint,SM_usage,Duration",
                "f:1:6: unknown column `Profil`; expected the header `Name,Profile,Memory_footprint,SM_usage,Duration`; did you mean `Profile`?",
            ),
            (
                "Name,Profile,SM_usage,Duration",
                "f:1:14: unknown column `SM_usage`",
            ),
            ("Name,Profile", "f:1: 2 fields; expected 5"),
            (
                "Name,Profile,Memory_footprint,SM_usage,Duration,Grid",
                "f:1:49: unknown column `Grid`",
            ),
            (
                "hello",
                "f: unknown format, starting with `hello`; accepted here: an Orion",
            ),
            ("", "f: empty; accepted here: an Orion"),
        ] {
            let error = parse(text, Path::new("f"))
                .expect_err("the header is wrong")
                .to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    fn expect_read_or_refused(text: &str) -> Result<(), TestCaseError> {
        match parse(text, Path::new("f")) {
            Ok(entries) => {
                let is_possible = |entry: &Entry| {
                    (1..=SM_NEEDED_MAX).contains(&entry.sm_needed)
                        && (1..=DURATION_NS_MAX).contains(&entry.duration_ns)
                };
                prop_assert!(entries.iter().all(is_possible), "{:?}", entries);
            }
            Err(error) => prop_assert!(error.to_string().starts_with('f'), "{}", error),
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_with_the_files_name(text in any::<String>()) {
            expect_read_or_refused(&text)?;
            expect_read_or_refused(&format!("{HEADER}\n{text}"))?;
        }

        #[test]
        fn any_row_of_fields_is_read_or_refused_with_the_files_name(
            fields in prop::collection::vec("[-0-9a-z.<> é]{0,12}", 0..8),
        ) {
            expect_read_or_refused(&format!("{HEADER}\n{}", fields.join(",")))?;
        }
    }
}

//! Reads a profile, with the place of everything that is wrong in it.
//!
//! The TOML is walked by hand rather than derived, because only so does every message have the
//! place of the key or value it speaks of, its text, and the nearest right word.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::{ClassRule, Durations, FORMAT, KernelProfile, Profile, VERSION};
use crate::ResourceClass;
use crate::error::{Error, Place};
use crate::limits::{
    BLOCK_MAX, BLOCK_THREADS_MAX, DURATION_NS_MAX, GRID_MAX, REGISTERS_MAX, SHARED_BYTES_MAX,
    SM_NEEDED_MAX,
};
use crate::nearest::nearest;
use crate::text::{NAME_EXPECTED, is_name, shown};

/// Greatest number TOML has.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// Keys of the file.
const KEYS: [&str; 5] = ["format", "version", "gpu", "sources", "kernel"];

/// Keys of a kernel, in the order in which they are written.
const KERNEL_KEYS: [&str; 10] = [
    "name",
    "grid",
    "block",
    "shared_bytes",
    "count",
    "duration_ns",
    "registers",
    "sm_needed",
    "class",
    "class_rule",
];

/// Keys of `duration_ns`.
const DURATION_KEYS: [&str; 3] = ["sum", "median", "p95"];

type Value<'i> = Spanned<DeValue<'i>>;

/// The profile in `text`.
pub(super) fn parse(text: &str, path: &Path) -> Result<Profile, Error> {
    let document = DeTable::parse(text).map_err(|error| Error::Syntax {
        place: Place::of_offset(path, text, error.span().map_or(0, |span| span.start)),
        reason: error.message().replace('\n', "; "),
    })?;
    let file = Source { text, path };
    let table = Table {
        file,
        span: 0..0,
        inside: "the profile",
        table: document.get_ref(),
    };
    check_version(&table)?;
    table.check_keys(&KEYS)?;
    let sources = table.list("sources", "a list of names")?;
    let sources: Result<_, _> = sources
        .iter()
        .map(|source| file.name("sources", source))
        .collect();
    let kernels = match table.table.get("kernel") {
        Some(_) => table.list("kernel", "[[kernel]] tables")?,
        None => &[],
    };
    Ok(Profile {
        gpu: file.name("gpu", table.value("gpu", "gpu = \"NAME\"")?)?,
        sources: sources?,
        kernels: parse_kernels(file, kernels)?,
    })
}

/// Format and version come first: of another version nothing else can be judged.
fn check_version(table: &Table<'_>) -> Result<(), Error> {
    const EXPECTED: &str = "format = \"pillion-profile\" and version = 1";
    // A mistyped `format` is better named as such than as missing.
    if table.table.get("format").is_none() || table.table.get("version").is_none() {
        table.check_keys(&KEYS)?;
    }
    let format = table.value("format", EXPECTED)?;
    if format.get_ref().as_str() != Some(FORMAT) {
        return Err(table
            .file
            .bad("format", format.span(), &format!("\"{FORMAT}\"")));
    }
    let version = table.value("version", EXPECTED)?;
    let number = table.file.number("version", version, 0, NUMBER_MAX)?;
    if number == u64::from(VERSION) {
        return Ok(());
    }
    Err(Error::UnsupportedVersion {
        place: table.file.place(version.span().start),
        format: FORMAT,
        found: number.to_string(),
        supported: VERSION,
    })
}

/// The kernels, each key once.
fn parse_kernels(file: Source<'_>, values: &[Value<'_>]) -> Result<Vec<KernelProfile>, Error> {
    let mut kernels = Vec::with_capacity(values.len());
    let mut first_lines = HashMap::new();
    for value in values {
        let table = file.table("kernel", value, "a [[kernel]] table")?;
        let kernel = parse_kernel(&Table {
            inside: "the kernel",
            ..table
        })?;
        let place = file.place(value.span().start);
        let line = place.line;
        let key = (
            kernel.name.clone(),
            kernel.grid,
            kernel.block,
            kernel.shared_bytes,
        );
        if let Some(first_line) = first_lines.insert(key, line) {
            let found = format!(
                "{} with grid {:?}, block {:?}, shared_bytes {}",
                shown(&kernel.name),
                kernel.grid,
                kernel.block,
                kernel.shared_bytes
            );
            return Err(Error::Duplicate {
                place,
                what: "kernel",
                found,
                first_line,
            });
        }
        kernels.push(kernel);
    }
    Ok(kernels)
}

/// One kernel.
fn parse_kernel(table: &Table<'_>) -> Result<KernelProfile, Error> {
    table.check_keys(&KERNEL_KEYS)?;
    let file = table.file;
    let class = file.word(
        "class",
        table.field("class")?,
        &ResourceClass::ALL,
        |class| class.word(),
    )?;
    let class_rule = file.word(
        "class_rule",
        table.field("class_rule")?,
        &ClassRule::ALL,
        |rule| rule.word(),
    )?;
    let number = |key, least, most: u32| -> Result<u32, Error> {
        // The upper bound is a u32, so nothing is lost.
        Ok(file.number(key, table.field(key)?, least, most.into())? as u32)
    };
    let block = file.triple("block", table.field("block")?, BLOCK_MAX)?;
    if block.iter().product::<u32>() > BLOCK_THREADS_MAX {
        let expected = format!("at most {BLOCK_THREADS_MAX} threads in all");
        return Err(file.bad("block", table.field("block")?.span(), &expected));
    }
    Ok(KernelProfile {
        name: file.name("name", table.field("name")?)?,
        grid: file.triple("grid", table.field("grid")?, GRID_MAX)?,
        block,
        shared_bytes: number("shared_bytes", 0, SHARED_BYTES_MAX)?,
        count: file.number("count", table.field("count")?, 1, NUMBER_MAX)?,
        durations: parse_durations(file, table.field("duration_ns")?)?,
        registers: number("registers", 0, REGISTERS_MAX)?,
        sm_needed: number("sm_needed", 1, SM_NEEDED_MAX)?,
        class,
        class_rule,
    })
}

/// `{ sum, median, p95 }`, which must be possible together.
fn parse_durations(file: Source<'_>, value: &Value<'_>) -> Result<Durations, Error> {
    const EXPECTED: &str = "{ sum = NS, median = NS, p95 = NS }";
    let table = file.table("duration_ns", value, EXPECTED)?;
    table.check_keys(&DURATION_KEYS)?;
    let number = |key, most| file.number(key, table.value(key, EXPECTED)?, 1, most);
    let median_ns = number("median", DURATION_NS_MAX)?;
    let p95_ns = number("p95", DURATION_NS_MAX)?;
    let sum_ns = number("sum", NUMBER_MAX)?;
    for (key, value, least_key, least) in [
        ("p95", p95_ns, "median", median_ns),
        ("sum", sum_ns, "p95", p95_ns),
    ] {
        if value < least {
            let expected = format!("at least the {least_key}, {least}");
            return Err(file.bad(key, table.value(key, EXPECTED)?.span(), &expected));
        }
    }
    Ok(Durations {
        sum_ns,
        median_ns,
        p95_ns,
    })
}

/// The file, for places and for the text of values.
#[derive(Clone, Copy)]
struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

/// A table of the file.
struct Table<'a> {
    file: Source<'a>,
    span: Range<usize>,
    /// What to call it.
    inside: &'static str,
    table: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// Refuses the first key, in order of the file, that is not one of `known`.
    fn check_keys(&self, known: &[&'static str]) -> Result<(), Error> {
        let unknown = self
            .table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown.min_by_key(|key| key.span().start) else {
            return Ok(());
        };
        Err(Error::UnknownKey {
            place: self.file.place(key.span().start),
            what: "key",
            found: shown(key.get_ref()),
            nearest: nearest(key.get_ref(), known.iter().copied()),
            expected: format!("one of {}", known.join(", ")),
        })
    }

    fn value(&self, key: &'static str, expected: &'static str) -> Result<&'a Value<'a>, Error> {
        self.table.get(key).ok_or_else(|| Error::MissingKey {
            place: self.file.place(self.span.start),
            inside: self.inside,
            key,
            expected,
        })
    }

    /// The value of a kernel's key.
    fn field(&self, key: &'static str) -> Result<&'a Value<'a>, Error> {
        self.value(key, "every [[kernel]] to have every key")
    }

    fn list(&self, key: &'static str, expected: &'static str) -> Result<&'a [Value<'a>], Error> {
        let value = self.value(key, expected)?;
        let list = value.get_ref().as_array();
        list.map(|list| &**list)
            .ok_or_else(|| self.file.bad(key, value.span(), expected))
    }
}

impl<'a> Source<'a> {
    fn place(&self, offset: usize) -> Place {
        Place::of_offset(self.path, self.text, offset)
    }

    /// The error for a wrong value: what stands in the file at `span`.
    fn bad(&self, key: &'static str, span: Range<usize>, expected: &str) -> Error {
        let found = self.text.get(span.clone()).unwrap_or("").trim();
        Error::BadValue {
            place: self.place(span.start),
            key,
            found: shown(found),
            expected: expected.to_owned(),
            nearest: None,
        }
    }

    fn table(
        self,
        key: &'static str,
        value: &'a Value<'a>,
        expected: &'static str,
    ) -> Result<Table<'a>, Error> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(Table {
                file: self,
                span: value.span(),
                inside: key,
                table,
            }),
            _ => Err(self.bad(key, value.span(), expected)),
        }
    }

    fn name(&self, key: &'static str, value: &Value<'_>) -> Result<String, Error> {
        match value.get_ref().as_str() {
            Some(name) if is_name(name) => Ok(name.to_owned()),
            _ => Err(self.bad(key, value.span(), NAME_EXPECTED)),
        }
    }

    fn number(
        &self,
        key: &'static str,
        value: &Value<'_>,
        least: u64,
        most: u64,
    ) -> Result<u64, Error> {
        let number = value.get_ref().as_integer().and_then(unsigned);
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| {
                self.bad(
                    key,
                    value.span(),
                    &format!("a whole number, {least} to {most}"),
                )
            })
    }

    fn triple(
        &self,
        key: &'static str,
        value: &Value<'_>,
        most: [u32; 3],
    ) -> Result<[u32; 3], Error> {
        let bad = |expected| self.bad(key, value.span(), expected);
        let list = value
            .get_ref()
            .as_array()
            .filter(|list| list.len() == most.len());
        let list = list.ok_or_else(|| bad("three whole numbers, [X, Y, Z]"))?;
        let mut triple = [0; 3];
        for ((slot, value), most) in triple.iter_mut().zip(list.iter()).zip(most) {
            // The upper bound is a u32, so nothing is lost.
            *slot = self.number(key, value, 1, most.into())? as u32;
        }
        Ok(triple)
    }

    /// The one of `all` whose word the value is.
    fn word<T: Copy>(
        &self,
        key: &'static str,
        value: &Value<'_>,
        all: &[T],
        word: impl Fn(T) -> &'static str,
    ) -> Result<T, Error> {
        let found = value.get_ref().as_str();
        if let Some(&right) = all.iter().find(|&&one| Some(word(one)) == found) {
            return Ok(right);
        }
        let words: Vec<&str> = all.iter().map(|&one| word(one)).collect();
        Err(Error::BadValue {
            place: self.place(value.span().start),
            key,
            found: shown(self.text.get(value.span()).unwrap_or("")),
            expected: format!("one of {}", words.join(", ")),
            nearest: found.and_then(|found| nearest(found, words)),
        })
    }
}

/// The integer, if it is not negative and 64 bits hold it.
fn unsigned(integer: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

//! Settings in TOML, read with the place of everything that is wrong in them.
//!
//! A daemon's configuration and a simulator's scenario are read by this. The TOML is walked by hand
//! rather than derived, because only so does every fault have the place of the key or value that it
//! speaks of and the nearest right one, and only so are all faults found and not just the first.
//!
//! What cannot be read is `None` and has a fault; a key that is not there has its default.

use std::fmt::{self, Display};
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::Place;
use crate::nearest::nearest;

/// A value with its place.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// One thing that is wrong in a file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What was found there, and what would be right.
    pub what: String,
    /// The right value or word nearest to it, if one is near.
    pub nearest: Option<String>,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; nearest is {nearest}"),
            None => Ok(()),
        }
    }
}

/// The document in `text`; `path` only names it in faults.
///
/// # Errors
/// It is not TOML: one fault, at the place where it stops being.
pub fn document<'t>(path: &Path, text: &'t str) -> Result<DeTable<'t>, Vec<Fault>> {
    let document = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        vec![Fault {
            place: Place::of_offset(path, text, offset),
            what: error.message().replace('\n', "; "),
            nearest: None,
        }]
    })?;
    Ok(document.into_inner())
}

/// Collects faults while values are read.
#[derive(Debug)]
pub struct Reader<'t> {
    path: &'t Path,
    text: &'t str,
    /// With the offset of each in the file.
    faults: Vec<(usize, Fault)>,
}

/// A table, if it is there, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Section<'i, 't> {
    /// Byte of the file at which it begins.
    pub offset: usize,
    /// What is in it.
    pub table: Option<&'t DeTable<'i>>,
}

impl<'i, 't> Section<'i, 't> {
    /// The value of a key, if it is there.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'t Value<'i>> {
        self.table.and_then(|table| table.get(key))
    }
}

impl<'f> Reader<'f> {
    /// Of the file with this text.
    #[must_use]
    pub fn new(path: &'f Path, text: &'f str) -> Self {
        Self {
            path,
            text,
            faults: Vec::new(),
        }
    }

    /// Everything that was wrong, in the order of the file; what was found twice, once.
    #[must_use]
    pub fn into_faults(self) -> Vec<Fault> {
        let mut faults = self.faults;
        faults.sort_by_key(|(offset, _)| *offset);
        let mut faults: Vec<Fault> = faults.into_iter().map(|(_, fault)| fault).collect();
        faults.dedup();
        faults
    }

    /// Whether nothing was wrong so far.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The table `name` of the document, if it is there; a fault if it is something else.
    pub fn section<'i, 't>(
        &mut self,
        document: &'t DeTable<'i>,
        name: &'static str,
    ) -> Section<'i, 't> {
        let value = document.get(name);
        let table = value.and_then(|value| value.get_ref().as_table());
        let offset = value.map_or(0, |value| value.span().start);
        if let Some(value) = value.filter(|_| table.is_none()) {
            self.bad(value.span(), name, "a table", Some(format!("[{name}]")));
        }
        Section { offset, table }
    }

    /// Refuses keys of `table` that are not among `known`; `inside` is its name in the fault.
    pub fn check_keys(&mut self, inside: &str, table: &DeTable<'_>, known: &[&str]) {
        for key in table.keys() {
            let word: &str = key.get_ref();
            if !known.contains(&word) {
                self.fault(
                    key.span().start,
                    format!(
                        "unknown key `{word}` in {inside}; keys are {}",
                        known.join(", ")
                    ),
                    nearest(word, known.iter().copied()).map(|key| format!("`{key}`")),
                );
            }
        }
    }

    /// A whole number within `range`, or `default` where the key is missing.
    pub fn number(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Option<u64> {
        let Some(value) = section.get(key) else {
            return Some(default);
        };
        let (least, most) = (*range.start(), *range.end());
        let wanted = format!("a whole number from {least} to {most}");
        let integer = value.get_ref().as_integer();
        let number = integer
            .and_then(|integer| i128::from_str_radix(integer.as_str(), integer.radix()).ok())
            .or_else(|| {
                // A fraction is refused, but says which number was nearly right.
                let float: f64 = value.get_ref().as_float()?.as_str().parse().ok()?;
                (!float.is_nan()).then_some(float.round() as i128)
            });
        let near = number.map(|number| number.clamp(least.into(), most.into()));
        if integer.is_some() && near.is_some() && near == number {
            return near.map(|number| number as u64);
        }
        let near = near.unwrap_or_else(|| default.clamp(least, most).into());
        self.bad(value.span(), key, &wanted, Some(near.to_string()));
        None
    }

    /// A number above 0 and at most 100; whole or with a fraction.
    pub fn percentage(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        default: f64,
    ) -> Option<f64> {
        self.decimal(section, key, 100.0, default)
    }

    /// A number above 0 and at most `most`, whole or with a fraction, or `default` where the key is
    /// missing.
    pub fn decimal(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        most: f64,
        default: f64,
    ) -> Option<f64> {
        let Some(value) = section.get(key) else {
            return Some(default);
        };
        let text = match value.get_ref() {
            DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str()),
            DeValue::Float(float) => Some(float.as_str()),
            _ => None,
        };
        let number: Option<f64> = text.and_then(|text| text.parse().ok());
        match number {
            Some(number) if number > 0.0 && number <= most => Some(number),
            _ => {
                let is_more = number.is_some_and(|number| number > most);
                let near = if is_more { most } else { default };
                let wanted = format!("a number above 0 and at most {most}");
                self.bad(value.span(), key, &wanted, Some(near.to_string()));
                None
            }
        }
    }

    /// `true` or `false`, or `default` where the key is missing.
    pub fn flag(&mut self, section: &Section<'_, '_>, key: &str, default: bool) -> Option<bool> {
        let Some(value) = section.get(key) else {
            return Some(default);
        };
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.bad(
                value.span(),
                key,
                "true or false",
                Some(default.to_string()),
            );
        }
        flag
    }

    /// One of `words`, as its index; `Some(None)` where the key is missing.
    pub fn word(
        &mut self,
        section: &Section<'_, '_>,
        key: &str,
        words: &[&str],
    ) -> Option<Option<usize>> {
        let wanted = format!("one of {}", words.join(", "));
        let Some((span, text)) = self.text(section, key, &wanted)? else {
            return Some(None);
        };
        let index = words.iter().position(|word| *word == text);
        if index.is_none() {
            let near = nearest(text, words.iter().copied())
                .or_else(|| words.iter().copied().find(|word| word.starts_with(text)))
                .map(|word| format!("\"{word}\""));
            self.bad(span, key, &wanted, near);
            return None;
        }
        Some(index)
    }

    /// A text with its place; `Some(None)` where the key is missing.
    pub fn text<'t>(
        &mut self,
        section: &Section<'_, 't>,
        key: &str,
        wanted: &str,
    ) -> Option<Option<(Range<usize>, &'t str)>> {
        let Some(value) = section.get(key) else {
            return Some(None);
        };
        match value.get_ref().as_str() {
            Some(text) => Some(Some((value.span(), text))),
            None => {
                self.bad(value.span(), key, wanted, None);
                None
            }
        }
    }

    /// The value at `span` is not what `key` takes.
    pub fn bad(&mut self, span: Range<usize>, key: &str, wanted: &str, nearest: Option<String>) {
        let found = self.shown(span.clone());
        self.fault(
            span.start,
            format!("{key} is {found}; must be {wanted}"),
            nearest,
        );
    }

    /// A value as it stands in the file, shortened.
    pub fn shown(&self, span: Range<usize>) -> String {
        const CHARS_MAX: usize = 60;
        let text = self.text.get(span).unwrap_or("").trim();
        let line = text.lines().next().unwrap_or("");
        if line.len() == text.len() && line.chars().count() <= CHARS_MAX {
            return line.to_owned();
        }
        let start: String = line.chars().take(CHARS_MAX).collect();
        format!("{start}…")
    }

    /// Something is wrong at byte `offset` of the file.
    pub fn fault(&mut self, offset: usize, what: impl Display, nearest: Option<String>) {
        let fault = Fault {
            place: Place::of_offset(self.path, self.text, offset),
            what: what.to_string(),
            nearest,
        };
        self.faults.push((offset, fault));
    }
}

//! Settings in TOML, read by serde, with the place of every fault. A daemon's configuration and a
//! simulator's scenario are structs that serde fills. Serde stops at the first mistake, so a
//! [`Reader`] removes the key there and reads again, to report all unreadable keys and values at
//! once. The owner of the struct then checks combinations of individually valid values. Serde's
//! messages are reworded: `poll_us is 5; must be a whole number from 10 to 1000; nearest is 10`; so
//! is a message of our own `Deserialize` with `, expected …`.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::{Range, RangeInclusive};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, Expected, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::Place;
use crate::nearest::nearest;

mod layers;

pub use layers::Layers;

/// A value with its place.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// Faults of one file after which the search ends, so that rereading is bounded.
const FAULTS_MAX: usize = 100;

/// The start of toml's message about an enum's value that is no text.
const NO_WORD: &str = "wanted ";

/// The start of serde's message about a missing key, before its name.
const MISSING: &str = "missing field `";

const TYPES: [(&str, &str); 4] = [
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a string", "a text"),
    ("u64", "a whole number from 0"),
];

/// One fault in a file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its place.
    pub place: Place,
    /// The value found, and the valid ones.
    pub what: String,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// All faults, a line each.
#[must_use]
pub fn lines(faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}

/// The value at a path such as `jobs.0.rate`.
#[must_use]
pub fn at<'d, 'i>(document: &'d DeTable<'i>, path: &str) -> Option<&'d Value<'i>> {
    let mut parts = path.split('.');
    let first = document.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value.get_ref() {
        DeValue::Table(table) => table.get(part),
        DeValue::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Where the value at a path begins; its parent, where there is no such value.
#[must_use]
pub fn offset(document: &DeTable<'_>, path: &str) -> usize {
    let mut paths = std::iter::successors(Some(path), |path| Some(path.rsplit_once('.')?.0));
    let value = paths.find_map(|path| at(document, path));
    value.map_or(0, |value| value.span().start)
}

/// Collects faults while files are read.
#[derive(Debug)]
pub struct Reader<'t> {
    layers: &'t Layers,
    faults: Vec<(usize, Fault)>,
}

impl<'t> Reader<'t> {
    /// A reader of these files.
    #[must_use]
    pub fn of(layers: &'t Layers) -> Self {
        let faults = Vec::new();
        Self { layers, faults }
    }

    /// The files.
    #[must_use]
    pub fn layers(&self) -> &'t Layers {
        self.layers
    }

    /// The result, or all faults in the order of the files, without duplicates.
    /// # Errors
    /// There was a fault.
    pub fn finish<T>(mut self, read: Option<T>) -> Result<T, Vec<Fault>> {
        self.faults.sort_by_key(|(offset, _)| *offset);
        let mut faults: Vec<Fault> = self.faults.into_iter().map(|(_, fault)| fault).collect();
        faults.dedup();
        read.filter(|_| faults.is_empty()).ok_or(faults)
    }

    /// Reads the document; `None` and a fault for each unreadable key or value.
    pub fn read<'i, T: Deserialize<'i>>(&mut self, document: &DeTable<'i>) -> Option<T> {
        let mut rest = document.clone();
        // The place of the document itself is in none of its values.
        let whole = usize::MAX..usize::MAX;
        let mut is_right = true;
        for _ in 0..FAULTS_MAX {
            let document = Spanned::new(whole.clone(), rest.clone());
            let error = match T::deserialize(toml::Deserializer::from(document)) {
                Ok(read) => return is_right.then_some(read),
                Err(error) => error,
            };
            let span = error.span().unwrap_or(whole.clone());
            // Replaced by an invalid word, so that serde lists the words.
            let is_no_word = error.message().starts_with(NO_WORD);
            let instead = is_no_word.then(|| DeValue::String("".into()));
            let spot = take_out(&mut rest, ("", false), &span, instead);
            let is_known = spot.is_some();
            // A key missing now may have been removed.
            if (is_right || !error.message().starts_with(MISSING)) && !(is_no_word && is_known) {
                self.explain(error.message(), span, spot);
            }
            is_right = false;
            if !is_known {
                break;
            }
        }
        None
    }

    fn explain(&mut self, message: &str, span: Range<usize>, spot: Option<Spot>) {
        let [table, key, value] = spot.unwrap_or([WHOLE; 3].map(str::to_owned));
        let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
        let (expected, near) = expected.split_once(NEAREST).unwrap_or((expected, ""));
        let near = Some(near.to_owned()).filter(|near| !near.is_empty());
        let words: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        let list = words.join(", ");
        if found.starts_with("unknown field") {
            let near = nearest(&key, words).map(|key| format!("`{key}`"));
            let what = format!("unknown key `{key}` in {table}; keys are {list}");
            self.fault(span.start, what + &or_nearest(near));
        } else if found.starts_with("unknown variant") {
            let near = nearest_word(self.layers.text(span.clone()), &words);
            self.bad(span, &key, format!("one of {list}{}", or_nearest(near)));
        } else if let Some(field) = found.strip_prefix(MISSING) {
            let what = format!("{value} has no {}", field.trim_end_matches('`'));
            self.fault(if value == WHOLE { 0 } else { span.start }, what);
        } else if expected.is_empty() {
            self.fault(span.start, message);
        } else {
            let ours = TYPES.iter().find(|(serdes, _)| *serdes == expected);
            let text = self.shown(span.clone());
            let near = near.or_else(|| match expected {
                "a table" => Some(format!("[{}]", value.trim_matches(['[', ']']))),
                "a sequence" if text.starts_with('"') => Some(format!("[{text}]")),
                _ => None,
            });
            let wanted = ours.map_or(expected, |(_, ours)| ours);
            self.bad(span, &key, format!("{wanted}{}", or_nearest(near)));
        }
    }

    /// The value at `span` is invalid for `key`.
    pub fn bad(&mut self, span: Range<usize>, key: &str, wanted: impl Display) {
        let found = self.shown(span.clone());
        self.fault(span.start, format!("{key} is {found}; must be {wanted}"));
    }

    /// A value as it stands in the file, shortened.
    #[must_use]
    pub fn shown(&self, span: Range<usize>) -> String {
        const CHARS_MAX: usize = 60;
        let text = self.layers.text(span).trim();
        let line = text.lines().next().unwrap_or("");
        if line.len() == text.len() && line.chars().count() <= CHARS_MAX {
            return line.to_owned();
        }
        let start: String = line.chars().take(CHARS_MAX).collect();
        format!("{start}…")
    }

    /// A fault at byte `offset` of the files.
    pub fn fault(&mut self, offset: usize, what: impl Display) {
        let fault = Fault {
            place: self.layers.place(offset),
            what: what.to_string(),
        };
        self.faults.push((offset, fault));
    }
}

const WHOLE: &str = "the file";

/// The place of a fault in the file: a table, a key in that, and its value as a table.
type Spot = [String; 3];

fn header((path, is_list): (&str, bool)) -> String {
    match is_list {
        _ if path.is_empty() => WHOLE.to_owned(),
        true => format!("[[{path}]]"),
        false => format!("[{path}]"),
    }
}

/// Removes the innermost key whose name or value is at `span`, or replaces its value by `instead`.
fn take_out<'i>(
    table: &mut DeTable<'i>,
    name: (&str, bool),
    span: &Range<usize>,
    instead: Option<DeValue<'i>>,
) -> Option<Spot> {
    let mut own = None;
    for (key, value) in table.iter_mut() {
        let path = match name.0 {
            "" => key.get_ref().to_string(),
            above => format!("{above}.{}", key.get_ref()),
        };
        let covers = |value: &Value<'_>| {
            let own = value.span();
            own.start <= span.start && span.end <= own.end
        };
        // A list of tables begins at the first of them, and does not cover the others.
        let items = value.get_ref().as_array();
        let is_list = items.is_some();
        let is_here = key.span() == *span
            || covers(value)
            || items.is_some_and(|items| items.iter().any(covers));
        let below = |value: &mut Value<'i>| match value.get_mut() {
            DeValue::Table(table) => take_out(table, (&path, is_list), span, instead.clone()),
            _ => None,
        };
        let found = match value.get_mut() {
            DeValue::Array(items) => items.iter_mut().find_map(below),
            _ => below(value),
        };
        if found.is_some() {
            return found;
        }
        if is_here {
            if let Some(instead) = instead {
                *value = Spanned::new(value.span(), instead);
                return Some(Spot::default());
            }
            own = Some((key.get_ref().to_string(), header((&path, is_list))));
            break;
        }
    }
    let (key, value) = own?;
    table.remove(&*key);
    Some([header(name), key, value])
}

const NEAREST: &str = "; nearest is ";

/// The end of a message with the nearest valid value, if one is near.
#[must_use]
pub fn or_nearest(near: Option<String>) -> String {
    near.map_or_else(String::new, |near| format!("{NEAREST}{near}"))
}

/// The word nearest to a wrong one, in quotes: one with a similar spelling, or with this beginning.
#[must_use]
pub fn nearest_word(wrong: &str, words: &[&str]) -> Option<String> {
    let wrong = wrong.trim_matches('"');
    let mut begins = words.iter().copied().filter(|word| word.starts_with(wrong));
    let near = nearest(wrong, words.iter().copied()).or_else(|| begins.next());
    near.map(|word| format!("\"{word}\""))
}

/// The error for a value that is not `wanted`.
pub fn wrong<E: serde::de::Error>(wanted: impl Display, near: Option<String>) -> E {
    let near = or_nearest(near);
    E::custom(format_args!("invalid value, expected {wanted}{near}"))
}

/// A table. Serde alone would accept a list for a struct, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Table<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TableVisitor(PhantomData))
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = Table<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }
}

/// For a field that is a list of tables.
/// # Errors
/// The value is something else, or one of them is invalid.
pub fn tables<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let tables: Vec<Table<T>> = Vec::deserialize(deserializer)?;
    Ok(tables.into_iter().map(|table| table.0).collect())
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole<const LEAST: u64, const MOST: u64>(pub u64);

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Whole<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let range = LEAST as f64..=MOST as f64;
        let is_whole = true;
        let number = deserializer.deserialize_any(Number { range, is_whole })?;
        Ok(Self(number as u64))
    }
}

/// For a field that is a whole number from `LEAST` to `MOST`.
/// # Errors
/// The value is another.
pub fn whole<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64, Error: Display>,
{
    let number = Whole::<LEAST, MOST>::deserialize(deserializer)?;
    T::try_from(number.0).map_err(D::Error::custom)
}

/// A number above 0 and at most `MOST`, whole or with a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decimal<const MOST: u64>(pub f64);

impl<'de, const MOST: u64> Deserialize<'de> for Decimal<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, f64::MIN_POSITIVE..=MOST as f64).map(Self)
    }
}

/// For a field that is a number above 0 and at most `MOST`.
/// # Errors
/// The value is another.
pub fn decimal<'de, D, const MOST: u64>(deserializer: D) -> Result<f64, D::Error>
where
    D: Deserializer<'de>,
{
    Decimal::<MOST>::deserialize(deserializer).map(|number| number.0)
}

/// A number in `range`, whole or with a fraction.
/// # Errors
/// The value is another.
pub fn number<'de, D>(deserializer: D, range: RangeInclusive<f64>) -> Result<f64, D::Error>
where
    D: Deserializer<'de>,
{
    let is_whole = false;
    deserializer.deserialize_any(Number { range, is_whole })
}

/// Accepts numbers in a range in which [`f64`] represents every whole one.
struct Number {
    range: RangeInclusive<f64>,
    is_whole: bool,
}

impl Number {
    fn take<E: serde::de::Error>(self, number: f64, is_of_type: bool) -> Result<f64, E> {
        if is_of_type && self.range.contains(&number) {
            return Ok(number);
        }
        let (least, most) = (*self.range.start(), *self.range.end());
        let near = match number.clamp(least, most) {
            near if self.is_whole => Some(near.round().max(least)),
            near => Some(near).filter(|&near| near > f64::MIN_POSITIVE || near == 0.0),
        };
        let wanted: &dyn Expected = &self;
        Err(wrong(wanted, near.map(|near| near.to_string())))
    }
}

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (*self.range.start(), *self.range.end());
        match self.is_whole {
            true => write!(f, "a whole number from {least} to {most}"),
            false if least == f64::MIN_POSITIVE => {
                write!(f, "a number above 0 and at most {most}")
            }
            false => write!(f, "a number from {least} to {most}"),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<f64, E> {
        self.take(number as f64, true)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<f64, E> {
        self.take(number as f64, true)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<f64, E> {
        let is_of_type = !self.is_whole;
        self.take(number, is_of_type)
    }

    /// A text is refused, but the error names the intended number.
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        self.take(text.parse().unwrap_or(f64::NAN), false)
    }
}

/// A text's value by `parse`, whose error is the nearest valid text; `wanted` is for messages.
/// # Errors
/// The value is no text, or `parse` refuses it.
pub fn text<'de, D, T, P>(deserializer: D, wanted: &str, parse: P) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    P: FnOnce(&str) -> Result<T, Option<String>>,
{
    deserializer.deserialize_any(Text { wanted, parse })
}

struct Text<'w, P> {
    wanted: &'w str,
    parse: P,
}

impl<T, P: FnOnce(&str) -> Result<T, Option<String>>> Visitor<'_> for Text<'_, P> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(|near| wrong(self.wanted, near))
    }

    /// A number is refused, but suggested in quotes where its text is valid.
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        let is_right = (self.parse)(&number.to_string()).is_ok();
        let near = is_right.then(|| format!("\"{number}\""));
        Err(wrong(self.wanted, near))
    }
}

/// One of `words`, as its index, for enums whose words serde cannot know.
/// # Errors
/// The value is none of them.
pub fn word<'de, D: Deserializer<'de>>(deserializer: D, words: &[&str]) -> Result<usize, D::Error> {
    let wanted = format!("one of {}", words.join(", "));
    text(deserializer, &wanted, |text| {
        let index = words.iter().position(|word| *word == text);
        index.ok_or_else(|| nearest_word(text, words))
    })
}

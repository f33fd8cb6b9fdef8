//! Reads our trace format. The grammar is at the top of the parent module.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use super::{FORMAT, Trace, TraceKernel, VERSION};
use crate::ResourceClass;
use crate::error::{Error, Place};
use crate::limits::{
    BLOCK_MAX, BLOCK_THREADS_MAX, DURATION_NS_MAX, GRID_MAX, LAUNCHES_MAX, REGISTERS_MAX,
    SHARED_BYTES_MAX, SM_NEEDED_MAX,
};
use crate::nearest::nearest;
use crate::text::{NAME_EXPECTED, is_name, shown};

const LINES: [&str; 3] = ["device", "kernel", "launch"];

const KEYS: [&str; 12] = [
    "class",
    "grid",
    "block",
    "shared_bytes",
    "registers",
    "sm_needed",
    "block_ns",
    "duration_ns",
    "compute_demand",
    "bandwidth_demand",
    "source",
    "name",
];

pub(super) fn parse(text: &str, path: &Path) -> Result<Trace, Error> {
    let mut reader = Reader::default();
    let mut lines = 0;
    for (index, line) in text.lines().enumerate() {
        lines = index + 1;
        let cursor = Cursor {
            path,
            line: lines,
            text: line,
            offset: 0,
        };
        reader.handle_line(cursor)?;
    }
    let place = Place::line(path, lines.max(1));
    match reader.device {
        None => Err(Error::MissingKey {
            place,
            inside: "the trace",
            key: "device",
            expected: "a line `device NAME` after the first",
        }),
        Some(_) if reader.launches.is_empty() => Err(Error::empty(place, "launch")),
        Some(device) => Ok(Trace {
            device,
            kernels: reader.kernels,
            launches: reader.launches,
        }),
    }
}

#[derive(Default)]
struct Reader {
    header_seen: bool,
    device: Option<String>,
    device_line: usize,
    kernels: Vec<TraceKernel>,
    kernel_lines: HashMap<String, usize>,
    launches: Vec<u32>,
}

impl Reader {
    fn handle_line(&mut self, mut cursor: Cursor<'_>) -> Result<(), Error> {
        cursor.skip_spaces();
        if cursor.at_end() || cursor.rest().starts_with('#') {
            return Ok(());
        }
        let place = cursor.place();
        let word = cursor.take_word();
        if !self.header_seen {
            self.header_seen = true;
            return check_header(word, place, cursor);
        }
        match word {
            "device" => self.handle_device(place, cursor),
            "kernel" => self.handle_kernel(place, cursor),
            "launch" => self.handle_launch(cursor),
            _ => Err(Error::UnknownKey {
                place,
                what: "line",
                found: shown(word),
                nearest: nearest(word, LINES),
                expected: "a line that starts with device, kernel, launch or #".to_owned(),
            }),
        }
    }

    fn handle_device(&mut self, place: Place, mut cursor: Cursor<'_>) -> Result<(), Error> {
        if self.device.is_some() {
            let first_line = self.device_line;
            let found = shown(cursor.rest().trim());
            return Err(Error::duplicate(place, "device", found, first_line));
        }
        cursor.skip_spaces();
        let name = cursor.rest().trim_end();
        if !is_name(name) {
            return Err(bad_value(cursor.place(), "device", name, NAME_EXPECTED));
        }
        self.device = Some(name.to_owned());
        self.device_line = cursor.line;
        Ok(())
    }

    fn handle_kernel(&mut self, place: Place, cursor: Cursor<'_>) -> Result<(), Error> {
        let line = cursor.line;
        if self.kernels.len() == LAUNCHES_MAX {
            return Err(Error::too_many(place, "kernels", LAUNCHES_MAX));
        }
        let kernel = parse_kernel(place.clone(), cursor)?;
        if let Some(&first_line) = self.kernel_lines.get(&kernel.name) {
            let found = shown(&kernel.name);
            return Err(Error::duplicate(place, "kernel", found, first_line));
        }
        self.kernel_lines.insert(kernel.name.clone(), line);
        self.kernels.push(kernel);
        Ok(())
    }

    fn handle_launch(&mut self, mut cursor: Cursor<'_>) -> Result<(), Error> {
        cursor.skip_spaces();
        let place = cursor.place();
        let word = cursor.take_word();
        let index = u32::from_str(word)
            .ok()
            .filter(|&index| (index as usize) < self.kernels.len());
        let Some(index) = index else {
            let expected = match self.kernels.len() {
                0 => "a kernel line before the first launch".to_owned(),
                count => format!("the number of a kernel above, 0 to {}", count - 1),
            };
            return Err(bad_value(place, "launch", word, &expected));
        };
        cursor.skip_spaces();
        let place = cursor.place();
        let word = cursor.take_word();
        let count = match word {
            "" => Some(1),
            _ => word
                .strip_prefix('x')
                .and_then(|count| usize::from_str(count).ok()),
        };
        let Some(count) = count.filter(|&count| count >= 1) else {
            return Err(bad_value(
                place,
                "launch",
                word,
                "nothing, or xN for N launches in a row",
            ));
        };
        cursor.expect_end()?;
        if count > LAUNCHES_MAX - self.launches.len() {
            return Err(Error::too_many(place, "launches", LAUNCHES_MAX));
        }
        self.launches.extend(std::iter::repeat_n(index, count));
        Ok(())
    }
}

fn check_header(word: &str, place: Place, mut cursor: Cursor<'_>) -> Result<(), Error> {
    if word != FORMAT {
        return Err(Error::syntax(
            place,
            format!(
                "first line starts with {}; expected `{FORMAT} {VERSION}`",
                shown(word)
            ),
        ));
    }
    cursor.skip_spaces();
    let place = cursor.place();
    let version = cursor.take_word();
    if version.is_empty() {
        return Err(bad_value(
            place,
            "version",
            version,
            &format!("`{FORMAT} {VERSION}`"),
        ));
    }
    if version != VERSION.to_string() {
        let found = shown(version);
        return Err(Error::UnsupportedVersion {
            place,
            format: FORMAT,
            found,
            supported: VERSION,
        });
    }
    cursor.expect_end()
}

fn parse_kernel(place: Place, mut cursor: Cursor<'_>) -> Result<TraceKernel, Error> {
    let mut values: [Option<(Place, String)>; KEYS.len()] = [const { None }; KEYS.len()];
    loop {
        cursor.skip_spaces();
        if cursor.at_end() {
            break;
        }
        let key_place = cursor.place();
        let key = cursor.take_until_equals();
        let Some(index) = KEYS.iter().position(|&known| known == key) else {
            return Err(Error::UnknownKey {
                place: key_place,
                what: "key",
                found: shown(key),
                nearest: nearest(key, KEYS),
                expected: format!("one of {}", KEYS.join(", ")),
            });
        };
        cursor.expect_equals(KEYS[index])?;
        if values[index].is_some() {
            let (found, first_line) = (shown(key), cursor.line);
            return Err(Error::duplicate(key_place, "key", found, first_line));
        }
        let value_place = cursor.place();
        let value = match KEYS[index] {
            "name" | "source" => cursor.take_quoted(KEYS[index])?,
            _ => cursor.take_word().to_owned(),
        };
        values[index] = Some((value_place, value));
    }
    Fields { place, values }.kernel()
}

struct Fields {
    place: Place,
    values: [Option<(Place, String)>; KEYS.len()],
}

impl Fields {
    fn kernel(&self) -> Result<TraceKernel, Error> {
        let kernel = TraceKernel {
            class: self.class()?,
            grid: self.triple("grid", GRID_MAX)?,
            block: self.triple("block", BLOCK_MAX)?,
            shared_bytes: self.number("shared_bytes", 0, SHARED_BYTES_MAX.into())? as u32,
            registers: self.number("registers", 0, REGISTERS_MAX.into())? as u32,
            sm_needed: self.number("sm_needed", 1, SM_NEEDED_MAX.into())? as u32,
            block_ns: self.number("block_ns", 1, DURATION_NS_MAX)?,
            duration_ns: self.number("duration_ns", 1, DURATION_NS_MAX)?,
            compute_demand: self.share("compute_demand")?,
            bandwidth_demand: self.share("bandwidth_demand")?,
            source_name: self.name("source")?,
            name: self.name("name")?,
        };
        if kernel.block.iter().product::<u32>() > BLOCK_THREADS_MAX {
            let (place, found) = self.value("block")?;
            let expected = format!("at most {BLOCK_THREADS_MAX} threads in all");
            return Err(bad_value(place.clone(), "block", found, &expected));
        }
        Ok(kernel)
    }

    fn value(&self, key: &'static str) -> Result<&(Place, String), Error> {
        let index = KEYS.iter().position(|&known| known == key);
        index
            .and_then(|index| self.values.get(index)?.as_ref())
            .ok_or_else(|| Error::MissingKey {
                place: self.place.clone(),
                inside: "the kernel",
                key,
                expected: "every kernel line to have every key",
            })
    }

    fn class(&self) -> Result<ResourceClass, Error> {
        let (place, found) = self.value("class")?;
        ResourceClass::from_word(found).ok_or_else(|| Error::BadValue {
            place: place.clone(),
            key: "class",
            found: shown(found),
            expected: "compute, memory or unknown".to_owned(),
            nearest: nearest(found, ResourceClass::ALL.map(ResourceClass::word)),
        })
    }

    fn number(&self, key: &'static str, least: u64, most: u64) -> Result<u64, Error> {
        let (place, found) = self.value(key)?;
        let number = u64::from_str(found)
            .ok()
            .filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            bad_value(
                place.clone(),
                key,
                found,
                &format!("a whole number, {least} to {most}"),
            )
        })
    }

    fn triple(&self, key: &'static str, most: [u32; 3]) -> Result<[u32; 3], Error> {
        let (place, found) = self.value(key)?;
        let bad = || {
            let [x, y, z] = most;
            let expected = format!("X,Y,Z, each at least 1 and at most {x}, {y} and {z}");
            bad_value(place.clone(), key, found, &expected)
        };
        let mut triple = [0; 3];
        let mut parts = found.split(',');
        for (slot, most) in triple.iter_mut().zip(most) {
            let number = parts.next().and_then(|part| u32::from_str(part).ok());
            *slot = number
                .filter(|number| (1..=most).contains(number))
                .ok_or_else(bad)?;
        }
        parts.next().map_or(Ok(triple), |_| Err(bad()))
    }

    fn share(&self, key: &'static str) -> Result<f32, Error> {
        let (place, found) = self.value(key)?;
        // Minus zero would not survive writing and reading as the same text.
        let share = f32::from_str(found)
            .ok()
            .filter(|share| (0.0..=1.0).contains(share));
        share
            .filter(|share| share.is_sign_positive())
            .ok_or_else(|| bad_value(place.clone(), key, found, "a share, 0 to 1"))
    }

    fn name(&self, key: &'static str) -> Result<String, Error> {
        let (place, found) = self.value(key)?;
        if is_name(found) {
            return Ok(found.clone());
        }
        Err(bad_value(place.clone(), key, found, NAME_EXPECTED))
    }
}

struct Cursor<'a> {
    path: &'a Path,
    line: usize,
    text: &'a str,
    /// Byte offset; always at the start of a character.
    offset: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or("")
    }

    fn at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn place(&self) -> Place {
        let before = self.text.get(..self.offset).unwrap_or(self.text);
        Place::at(self.path, self.line, before.chars().count() + 1)
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.offset += rest.len() - rest.trim_start().len();
    }

    fn take_until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = rest.split(ends).next().unwrap_or(rest);
        self.offset += taken.len();
        taken
    }

    fn take_word(&mut self) -> &'a str {
        self.take_until(char::is_whitespace)
    }

    fn take_until_equals(&mut self) -> &'a str {
        self.take_until(|character| character == '=' || character.is_whitespace())
    }

    fn expect_equals(&mut self, key: &'static str) -> Result<(), Error> {
        if self.rest().starts_with('=') {
            self.offset += 1;
            return Ok(());
        }
        let reason = format!("`{key}` without a value; expected `{key}=` and the value");
        Err(Error::syntax(self.place(), reason))
    }

    fn expect_end(&mut self) -> Result<(), Error> {
        self.skip_spaces();
        if self.at_end() {
            return Ok(());
        }
        let reason = format!("unexpected {} at the end of the line", shown(self.rest()));
        Err(Error::syntax(self.place(), reason))
    }

    /// Takes a name in quotes, in which `\` escapes itself and `"`.
    fn take_quoted(&mut self, key: &'static str) -> Result<String, Error> {
        let start = self.place();
        let mut name = String::new();
        let mut chars = self.rest().char_indices();
        if !matches!(chars.next(), Some((_, '"'))) {
            let found = self.take_word();
            return Err(bad_value(start, key, found, "a name in double quotes"));
        }
        while let Some((index, character)) = chars.next() {
            match character {
                '"' => {
                    self.offset += index + 1;
                    return self.expect_space().map(|()| name);
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => name.push(escaped),
                    _ => {
                        self.offset += index;
                        let reason = "`\\` must be followed by `\"` or `\\`".to_owned();
                        return Err(Error::syntax(self.place(), reason));
                    }
                },
                _ => name.push(character),
            }
        }
        let reason = format!("the quote of {key} is not closed on this line");
        Err(Error::syntax(start, reason))
    }

    fn expect_space(&self) -> Result<(), Error> {
        if self.at_end() || self.rest().starts_with(char::is_whitespace) {
            return Ok(());
        }
        let reason = "expected a space after the closing quote".to_owned();
        Err(Error::syntax(self.place(), reason))
    }
}

fn bad_value(place: Place, key: &'static str, found: &str, expected: &str) -> Error {
    let (found, expected) = (shown(found), expected.to_owned());
    Error::BadValue {
        place,
        key,
        found,
        expected,
        nearest: None,
    }
}

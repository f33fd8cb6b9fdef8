//! Nsight Compute's own reports (`.ncu-rep`), without its libraries. A report is `NVR\0`, then
//! blocks, each a length, a header and a payload; header and payload are messages in the wire
//! format of Protocol Buffers. This reader knows only the required fields' numbers, from the
//! descriptions that NVIDIA ships with the tool, and skips all others, so that newer and older
//! reports open alike. Values are in base units, with no unit text and no locale: the most exact
//! source of counters. Names of metrics are numbers into a table of strings that may come after the
//! results, so a report is read twice: for the table, then for the results. Names of hosts,
//! addresses and programs are in fields that are not read.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::metrics::{self, GPU_NAME, Metric, Values};
use super::{Collector, Measured};
use crate::Context;
use crate::detect::Format;
use crate::error::Error;
use crate::name::Names;
use crate::source::{Source, SourceBuilder};

/// Longest message. The largest result in a real report has 0.2 MB.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;
const STRINGS_MAX: usize = 1 << 20;

const COPY_AGAIN: &str =
    "copy the whole file again, or export it with `ncu --import FILE --csv --page raw`";

pub(crate) fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    let damaged = |reason: String| Error::damaged(path, reason, COPY_AGAIN);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => damaged(error.to_string()),
        _ => Error::unreadable(path, error),
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    if length > context.limits.bytes_max {
        return Err(Error::TooLong {
            path: path.to_owned(),
            limit: context.limits.bytes_max,
            is_compressed: false,
        });
    }
    let mut report = Report {
        reader: BufReader::new(file),
        at: 0,
        length,
    };
    let metrics = report.metrics().map_err(failed)?;
    let mut builder = SourceBuilder::new(path, Format::NcuReport);
    let mut collector = Collector::new(&mut builder);
    let mut ranges = 0;
    report.start().map_err(failed)?;
    while let Some(block) = report.block().map_err(failed)? {
        ranges += block.ranges;
        let end = report.at + u64::from(block.payload_bytes);
        for message in 0..block.sources.saturating_add(block.results) {
            let bytes = report.message().map_err(failed)?;
            if message >= block.sources
                && let Some(measured) = result(&bytes, &metrics).map_err(failed)?
            {
                collector.add(measured)?;
            }
        }
        report.seek(end).map_err(failed)?;
        (context.progress)(report.at, length);
    }
    if ranges > 0 {
        builder.notice(format!(
            "{ranges} results of ranges and graphs in the report are ignored: only kernels are read"
        ));
    }
    if builder.is_empty() {
        return Err(Error::no_kernels(
            path,
            "a report without results of kernels",
            "profile with ncu's default --replay-mode, and check that no filter leaves out all kernels",
        ));
    }
    Ok(builder.finish())
}

enum Named {
    Metric(usize, Metric),
    GpuName,
    Other,
}

struct Report {
    reader: BufReader<File>,
    at: u64,
    length: u64,
}

#[derive(Default)]
struct Block {
    sources: u32,
    results: u32,
    ranges: u64,
    payload_bytes: u32,
    strings: Vec<String>,
}

impl Report {
    fn start(&mut self) -> io::Result<()> {
        const MAGIC_BYTES: u64 = 4;
        self.seek(MAGIC_BYTES)?;
        self.message()?;
        Ok(())
    }

    fn metrics(&mut self) -> io::Result<Vec<Named>> {
        self.start()?;
        let mut named = Vec::new();
        while let Some(block) = self.block()? {
            for name in &block.strings {
                if named.len() == STRINGS_MAX {
                    return Err(invalid("too many strings"));
                }
                named.push(match metrics::by_name(name) {
                    Some((place, metric)) => Named::Metric(place, metric),
                    None if name == GPU_NAME => Named::GpuName,
                    None => Named::Other,
                });
            }
            self.seek(self.at + u64::from(block.payload_bytes))?;
        }
        Ok(named)
    }

    fn block(&mut self) -> io::Result<Option<Block>> {
        if self.at == self.length {
            return Ok(None);
        }
        let bytes = self.message()?;
        let mut block = Block::default();
        for field in Fields(&bytes) {
            let (number, value) = field?;
            match (number, value) {
                (1, Value::Varint(count)) => block.sources = small(count)?,
                (2, Value::Varint(count)) => block.results = small(count)?,
                (4, Value::Bytes(table)) => block.strings.extend(strings(table)?),
                (5, Value::Varint(bytes)) => block.payload_bytes = small(bytes)?,
                (7..=9, Value::Varint(count)) => block.ranges = block.ranges.saturating_add(count),
                _ => {}
            }
        }
        Ok(Some(block))
    }

    /// The next message: its length in four bytes, then that many.
    fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.reader.read_exact(&mut length)?;
        self.at += 4;
        let length = u32::from_le_bytes(length);
        if length > MESSAGE_BYTES_MAX || u64::from(length) > self.length.saturating_sub(self.at) {
            return Err(invalid("a message is longer than the rest of the file"));
        }
        let mut bytes = vec![0; length as usize];
        self.reader.read_exact(&mut bytes)?;
        self.at += u64::from(length);
        Ok(bytes)
    }

    fn seek(&mut self, to: u64) -> io::Result<()> {
        if to > self.length || to < self.at && to > 4 {
            return Err(invalid("a block is longer than the rest of the file"));
        }
        self.reader.seek(SeekFrom::Start(to))?;
        self.at = to;
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn small(value: u64) -> io::Result<u32> {
    u32::try_from(value).map_err(|_| invalid("a count is too large"))
}

fn strings(table: &[u8]) -> io::Result<Vec<String>> {
    let mut strings = Vec::new();
    for field in Fields(table) {
        if let (1, Value::Bytes(text)) = field? {
            strings.push(String::from_utf8_lossy(text).into_owned());
        }
    }
    Ok(strings)
}

fn result(bytes: &[u8], metrics: &[Named]) -> io::Result<Option<Measured>> {
    let (mut mangled, mut function, mut demangled) = (None, None, None);
    let (mut grid, mut block, mut gpu_name) = (None, None, None);
    let mut values = Values::default();
    for field in Fields(bytes) {
        match field? {
            (5, Value::Bytes(text)) => mangled = std::str::from_utf8(text).ok(),
            (6, Value::Bytes(text)) => function = std::str::from_utf8(text).ok(),
            (7, Value::Bytes(text)) => demangled = std::str::from_utf8(text).ok(),
            (10, Value::Bytes(size)) => grid = triple(size)?,
            (11, Value::Bytes(size)) => block = triple(size)?,
            (13, Value::Bytes(metric)) => {
                let (name, value) = metric_value(metric)?;
                match (metrics.get(name), value) {
                    (Some(Named::Metric(place, metric)), Some(MetricValue::Number(number))) => {
                        values.set(*metric, *place, in_base_unit(*metric, number));
                    }
                    (Some(Named::GpuName), Some(MetricValue::Text(text))) => gpu_name = Some(text),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let shown = [demangled, mangled, function];
    let Some(mut names) = shown.into_iter().flatten().find_map(Names::new) else {
        return Ok(None);
    };
    if let Some(mangled) = mangled {
        names = names.with_mangled(mangled);
    }
    if let Some(function) = function.and_then(crate::name::clean) {
        names.base = function;
    }
    Ok(Some(Measured {
        names,
        grid,
        block,
        compute_capability: None,
        device: values.device().unwrap_or(0),
        stream: values.stream(),
        values,
        gpu_name: gpu_name
            .and_then(crate::name::clean)
            .map(|name| name.to_string()),
    }))
}

/// Reports store times in ns.
fn in_base_unit(metric: Metric, number: f64) -> f64 {
    match metric {
        Metric::Duration => number * 1e-9,
        _ => number,
    }
}

fn triple(bytes: &[u8]) -> io::Result<Option<[u32; 3]>> {
    let mut triple = [None; 3];
    for field in Fields(bytes) {
        if let (number @ 1..=3, Value::Varint(value)) = field?
            && let Some(slot) = triple.get_mut(number as usize - 1)
        {
            *slot = u32::try_from(value).ok();
        }
    }
    let [x, y, z] = triple;
    Ok(x.zip(y).zip(z).map(|((x, y), z)| [x, y, z]))
}

enum MetricValue<'a> {
    Number(f64),
    Text(&'a str),
}

/// Number of the name and the value; a metric with instances only has no value.
fn metric_value(bytes: &[u8]) -> io::Result<(usize, Option<MetricValue<'_>>)> {
    let (mut name, mut value) = (usize::MAX, None);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Varint(number)) => name = usize::try_from(number).unwrap_or(usize::MAX),
            (2, Value::Bytes(bytes)) => {
                for field in Fields(bytes) {
                    value = match field? {
                        (1, Value::Bytes(text)) => {
                            std::str::from_utf8(text).ok().map(MetricValue::Text)
                        }
                        (2, Value::Four(bits)) => {
                            Some(MetricValue::Number(f32::from_bits(bits).into()))
                        }
                        (3, Value::Eight(bits)) => Some(MetricValue::Number(f64::from_bits(bits))),
                        (4 | 5, Value::Varint(number)) => Some(MetricValue::Number(number as f64)),
                        _ => value,
                    };
                }
            }
            _ => {}
        }
    }
    Ok((name, value))
}

enum Value<'a> {
    Varint(u64),
    Eight(u64),
    Bytes(&'a [u8]),
    Four(u32),
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let &[byte] = self.take(1)? else { return None };
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Eight(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Four(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = io::Result<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self
            .field()
            .ok_or_else(|| invalid("a message is malformed"));
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

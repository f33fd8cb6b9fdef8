//! Reads a profile. The TOML is walked by hand, not derived: only so does every message have the
//! place of its key or value, its text, and the nearest valid word.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::{
    ClassRule, Durations, Evidence, FORMAT, KernelProfile, Measured, Operator, Percent, Profile,
    RequestRule, Requests, Roofline, VERSION, operator::SIZES_MAX,
};
use crate::ResourceClass;
use crate::error::{Error, Place};
use crate::family::Family;
use crate::limits::{
    BLOCK_MAX, BLOCK_THREADS_MAX, DURATION_NS_MAX, GRID_MAX, NUMBER_MAX, REGISTERS_MAX,
    SHARED_BYTES_MAX, SM_NEEDED_MAX,
};
use crate::nearest::nearest;
use crate::text::{NAME_EXPECTED, is_name, shown};

/// Keys of the file; the last three are not in version 1.
const KEYS: [&str; 8] = [
    "format", "version", "gpu", "sources", "kernel", "notices", "measured", "requests",
];

const KEYS_OF_1: usize = 5;

const MEASURED_KEYS: [&str; 4] = ["sms", "compute_capability", "clock_mhz", "bandwidth_gb_s"];

/// Keys of `[requests]`: one of the first two, and all others.
const REQUESTS_KEYS: [&str; 6] = [
    "range",
    "gap_ns",
    "count",
    "latency_ns",
    "same_order",
    "order",
];

/// Keys of a kernel: ten required ones, version 2's optional ones, and version 3's last two.
const KERNEL_KEYS: [&str; 24] = [
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
    "mangled",
    "static_shared_bytes",
    "blocks_per_sm",
    "outliers",
    "compute_pct",
    "memory_pct",
    "dram_pct",
    "l2_pct",
    "l1_pct",
    "mflop_per_s",
    "mbyte_per_s",
    "operator",
    "class_family",
    "class_confidence_pct",
];

const KERNEL_KEYS_OF_1: usize = 10;

const KERNEL_KEYS_OF_2: usize = 22;

const OPERATOR_KEYS: [&str; 5] = ["name", "sizes", "batch", "number", "layout"];

const DURATION_KEYS: [&str; 3] = ["sum", "median", "p95"];

type Value<'i> = Spanned<DeValue<'i>>;

pub(super) fn parse(text: &str, path: &Path) -> Result<Profile, Error> {
    let document = DeTable::parse(text).map_err(|error| {
        Error::syntax(
            Place::of_offset(path, text, error.span().map_or(0, |span| span.start)),
            error.message().replace('\n', "; "),
        )
    })?;
    let file = Source { text, path };
    let table = Table {
        file,
        span: 0..0,
        inside: "the profile",
        table: document.get_ref(),
    };
    let version = check_version(&table)?;
    let known = if version == 1 { KEYS_OF_1 } else { KEYS.len() };
    table.check_keys(KEYS.get(..known).unwrap_or(&KEYS))?;
    let sources = table.list("sources", "a list of names")?;
    let sources: Result<_, _> = sources
        .iter()
        .map(|source| file.name("sources", source))
        .collect();
    let kernels = match table.table.get("kernel") {
        Some(_) => table.list("kernel", "[[kernel]] tables")?,
        None => &[],
    };
    let notices = match table.table.get("notices") {
        Some(_) => table.list("notices", "a list of sentences")?,
        None => &[],
    };
    let notices: Result<_, _> = notices
        .iter()
        .map(|notice| file.name("notices", notice))
        .collect();
    let kernels = parse_kernels(file, kernels, version)?;
    Ok(Profile {
        gpu: file.name("gpu", table.value("gpu", "gpu = \"NAME\"")?)?,
        sources: sources?,
        notices: notices?,
        measured: parse_measured(&table)?,
        requests: parse_requests(&table, kernels.len())?,
        kernels,
    })
}

fn parse_measured(table: &Table<'_>) -> Result<Option<Measured>, Error> {
    let file = table.file;
    let Some(value) = table.table.get("measured") else {
        return Ok(None);
    };
    let table = file.table("measured", value, "a [measured] table")?;
    table.check_keys(&MEASURED_KEYS)?;
    let capability = table.table.get("compute_capability");
    let capability = capability.map(|value| {
        let text = value.get_ref().as_str().and_then(|text| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        text.ok_or_else(|| file.bad("compute_capability", value.span(), "\"MAJOR.MINOR\""))
    });
    Ok(Some(Measured {
        sms: table.optional("sms", 1, SM_NEEDED_MAX)?,
        compute_capability: capability.transpose()?,
        clock_mhz: table.optional("clock_mhz", 1, u32::MAX)?,
        bandwidth_gb_s: table.optional("bandwidth_gb_s", 1, u32::MAX)?,
    }))
}

/// The `[requests]` table, if present. Its order is of indices below `kernels`.
fn parse_requests(table: &Table<'_>, kernels: usize) -> Result<Option<Requests>, Error> {
    const EXPECTED: &str =
        "range = \"NAME\" or gap_ns = NS, count, latency_ns, same_order and order";
    let file = table.file;
    let Some(value) = table.table.get("requests") else {
        return Ok(None);
    };
    let table = Table {
        inside: "the requests",
        ..file.table("requests", value, "a [requests] table")?
    };
    table.check_keys(&REQUESTS_KEYS)?;
    let rule = match table.table.get("range") {
        Some(name) => RequestRule::Range(file.name("range", name)?),
        None => {
            let gap = table.value("gap_ns", EXPECTED)?;
            RequestRule::Gap(file.number("gap_ns", gap, 1, NUMBER_MAX)?)
        }
    };
    let number = |key| file.number(key, table.value(key, EXPECTED)?, 1, NUMBER_MAX);
    let most = (kernels as u64).saturating_sub(1);
    let mut order = Vec::new();
    for run in table.list("order", "a list of [KERNEL, TIMES]")? {
        let pair = run.get_ref().as_array().filter(|pair| pair.len() == 2);
        let pair = pair.map(|pair| &**pair);
        let Some([kernel, times]) = pair else {
            return Err(file.bad("order", run.span(), "[KERNEL, TIMES]"));
        };
        if kernels == 0 {
            return Err(file.bad(
                "order",
                run.span(),
                "no order, because the profile has no kernels",
            ));
        }
        let kernel = file.number("order", kernel, 0, most.min(u64::from(u32::MAX)))?;
        let times = file.number("order", times, 1, u64::from(u32::MAX))?;
        // The upper bounds are u32, so nothing is lost.
        order.push((kernel as u32, times as u32));
    }
    Ok(Some(Requests {
        rule,
        count: number("count")?,
        latency: parse_durations(file, table.value("latency_ns", EXPECTED)?)?,
        same_order: number("same_order")?,
        order,
    }))
}

/// Format and version come first: another version cannot be judged further.
fn check_version(table: &Table<'_>) -> Result<u64, Error> {
    const EXPECTED: &str = "format = \"pillion-profile\" and version = 3";
    // A mistyped `format` is better reported as such than as missing.
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
    if (1..=u64::from(VERSION)).contains(&number) {
        return Ok(number);
    }
    Err(Error::UnsupportedVersion {
        place: table.file.place(version.span().start),
        format: FORMAT,
        found: number.to_string(),
        supported: VERSION,
    })
}

fn parse_kernels(
    file: Source<'_>,
    values: &[Value<'_>],
    version: u64,
) -> Result<Vec<KernelProfile>, Error> {
    let known = match version {
        1 => KERNEL_KEYS_OF_1,
        2 => KERNEL_KEYS_OF_2,
        _ => KERNEL_KEYS.len(),
    };
    let known = KERNEL_KEYS.get(..known).unwrap_or(&KERNEL_KEYS);
    let mut kernels = Vec::with_capacity(values.len());
    // Where each begins: lines are counted from the start of the text, so only on demand.
    let mut firsts = HashMap::new();
    for value in values {
        let table = file.table("kernel", value, "a [[kernel]] table")?;
        let table = Table {
            inside: "the kernel",
            ..table
        };
        table.check_keys(known)?;
        let kernel = parse_kernel(&table, version)?;
        let key = (
            kernel.name.clone(),
            kernel.mangled.clone(),
            kernel.grid,
            kernel.block,
            kernel.shared_bytes,
            kernel.operator.clone(),
        );
        if let Some(first) = firsts.insert(key, value.span().start) {
            let operator = kernel.operator.as_ref();
            let found = format!(
                "{} with grid {:?}, block {:?}, shared_bytes {}{}",
                shown(&kernel.name),
                kernel.grid,
                kernel.block,
                kernel.shared_bytes,
                operator.map_or_else(String::new, |operator| format!(", operator {operator}")),
            );
            let place = file.place(value.span().start);
            let first_line = file.place(first).line;
            return Err(Error::duplicate(place, "kernel", found, first_line));
        }
        kernels.push(kernel);
    }
    Ok(kernels)
}

fn parse_kernel(table: &Table<'_>, version: u64) -> Result<KernelProfile, Error> {
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
        ClassRule::of_version(version),
        |rule| rule.word(),
    )?;
    let number = |key, least, most: u32| -> Result<u32, Error> {
        // The upper bound is a u32, so nothing is lost.
        Ok(file.number(key, table.field(key)?, least, most.into())? as u32)
    };
    let shape = |key, most| file.shape(key, table.field(key)?, most, version);
    let block = shape("block", BLOCK_MAX)?;
    if block.iter().product::<u32>() > BLOCK_THREADS_MAX {
        let expected = format!("at most {BLOCK_THREADS_MAX} threads in all");
        return Err(file.bad("block", table.field("block")?.span(), &expected));
    }
    Ok(KernelProfile {
        name: file.name("name", table.field("name")?)?,
        mangled: match table.table.get("mangled") {
            Some(value) => Some(file.name("mangled", value)?),
            None => None,
        },
        grid: shape("grid", GRID_MAX)?,
        block,
        shared_bytes: number("shared_bytes", 0, SHARED_BYTES_MAX)?,
        count: file.number("count", table.field("count")?, 1, NUMBER_MAX)?,
        durations: parse_durations(file, table.field("duration_ns")?)?,
        registers: number("registers", 0, REGISTERS_MAX)?,
        sm_needed: number("sm_needed", 1, SM_NEEDED_MAX)?,
        class,
        class_rule,
        evidence: parse_evidence(table)?,
        operator: match table.table.get("operator") {
            Some(value) => Some(parse_operator(file, value)?),
            None => None,
        },
    })
}

fn parse_evidence(table: &Table<'_>) -> Result<Evidence, Error> {
    let flops = table.optional_number("mflop_per_s", 0, NUMBER_MAX)?;
    let bytes = table.optional_number("mbyte_per_s", 0, NUMBER_MAX)?;
    if flops.is_some() != bytes.is_some() {
        let both = "both or neither of mflop_per_s and mbyte_per_s";
        table.value("mflop_per_s", both)?;
        table.value("mbyte_per_s", both)?;
    }
    let roofline = flops.zip(bytes);
    Ok(Evidence {
        static_shared_bytes: table.optional("static_shared_bytes", 0, SHARED_BYTES_MAX)?,
        blocks_per_sm: table.optional("blocks_per_sm", 1, BLOCK_THREADS_MAX)?,
        outliers: table.optional_number("outliers", 1, NUMBER_MAX)?,
        compute_pct: table.percent("compute_pct")?,
        memory_pct: table.percent("memory_pct")?,
        dram_pct: table.percent("dram_pct")?,
        l2_pct: table.percent("l2_pct")?,
        l1_pct: table.percent("l1_pct")?,
        roofline: roofline.map(|(mflop_per_s, mbyte_per_s)| Roofline {
            mflop_per_s,
            mbyte_per_s,
        }),
        class_family: match table.table.get("class_family") {
            Some(value) => {
                let word = |family: Family| family.word();
                Some(table.file.word("class_family", value, &Family::ALL, word)?)
            }
            None => None,
        },
        class_confidence_pct: table.percent("class_confidence_pct")?,
    })
}

fn parse_operator(file: Source<'_>, value: &Value<'_>) -> Result<Operator, Error> {
    const EXPECTED: &str =
        "{ name = \"NAME\", sizes = [N, ...], batch = N, number = \"f16\", layout = \"tn\" }";
    let table = file.table("operator", value, EXPECTED)?;
    table.check_keys(&OPERATOR_KEYS)?;
    let word = |key| {
        let value = table.table.get(key);
        value.map(|value| file.name(key, value)).transpose()
    };
    let mut sizes = Vec::new();
    if let Some(value) = table.table.get("sizes") {
        let list = value.get_ref().as_array();
        let list = list.filter(|list| (1..=SIZES_MAX).contains(&list.len()));
        let expected = || format!("1 to {SIZES_MAX} whole numbers");
        for size in list.ok_or_else(|| file.bad("sizes", value.span(), &expected()))? {
            sizes.push(file.number("sizes", size, 0, u64::from(u32::MAX))?);
        }
    }
    let layout = word("layout")?;
    let is_layout = |text: &String| text.len() == 2 && text.bytes().all(|b| b"ntc".contains(&b));
    if layout.as_ref().is_some_and(|layout| !is_layout(layout))
        && let Some(value) = table.table.get("layout")
    {
        let expected = "two letters, each n, t or c";
        return Err(file.bad("layout", value.span(), expected));
    }
    Ok(Operator {
        name: file.name("name", table.value("name", EXPECTED)?)?,
        sizes,
        batch: table.optional_number("batch", 1, u64::from(u32::MAX))?,
        number: word("number")?,
        layout,
    })
}

/// `{ sum, median, p95 }`, which must be consistent.
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

#[derive(Clone, Copy)]
struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

struct Table<'a> {
    file: Source<'a>,
    span: Range<usize>,
    inside: &'static str,
    table: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
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

    fn field(&self, key: &'static str) -> Result<&'a Value<'a>, Error> {
        self.value(key, "every [[kernel]] to have every key")
    }

    fn optional_number(
        &self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, Error> {
        let value = self.table.get(key);
        value
            .map(|value| self.file.number(key, value, least, most))
            .transpose()
    }

    fn optional(&self, key: &'static str, least: u64, most: u32) -> Result<Option<u32>, Error> {
        let number = self.optional_number(key, least, most.into())?;
        Ok(number.map(|number| number as u32))
    }

    fn percent(&self, key: &'static str) -> Result<Option<Percent>, Error> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let bad = || self.file.bad(key, value.span(), "a percentage, 0 to 1000");
        number.map(Some).ok_or_else(bad)
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

    /// Grid or block; from version 2 on `[0, 0, 0]` means that it was not stated.
    fn shape(
        &self,
        key: &'static str,
        value: &Value<'_>,
        most: [u32; 3],
        version: u64,
    ) -> Result<[u32; 3], Error> {
        let list = value.get_ref().as_array();
        let is_zero = |value: &Value<'_>| {
            let number = value.get_ref().as_integer().and_then(unsigned);
            number == Some(0)
        };
        if version > 1 && list.is_some_and(|list| list.len() == 3 && list.iter().all(is_zero)) {
            return Ok([0; 3]);
        }
        self.triple(key, value, most)
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
            *slot = self.number(key, value, 1, most.into())? as u32;
        }
        Ok(triple)
    }

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

fn unsigned(integer: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

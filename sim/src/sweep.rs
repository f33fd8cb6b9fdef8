//! Sweeps: a scenario file becomes one document for each combination of swept values.
//! ```toml
//! [sweep]
//! policy.name = ["mps", "orion"]
//! "policy.dur_threshold_pct" = [1, 2.5, 5]
//! jobs.be = [{ trace = "resnet50-training" }, { trace = "bert-base-training", memory = "4 GiB" }]
//! ```
//! A path names a key (`seconds`, `gpu.block_priority`), a key of a job by the job's name or number
//! (`jobs.be.rate`, `jobs.0.rate`), or a whole table: a value that is a table is merged over it, so
//! that related keys are swept together. In such a table `label` is its name in results. A table
//! with the name of a policy replaces `[policy]`, because numbers are of one policy. `file` stands
//! for the whole file: its values are tables of paths and their values, so that one sweep can go
//! through changes in different places. Several paths are a product, the first varying slowest. A
//! swept value keeps its place in the file: faults are reported there.

use std::borrow::Cow;

use profiler::nearest::nearest;
use profiler::settings::{Reader, Value, or_nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Most combinations of one file: more are a mistake in a sweep, and would be days of work.
pub const COMBINATIONS_MAX: usize = 10_000;

const LABEL: &str = "label";

const WHOLE: &str = "file";

#[derive(Debug)]
pub(crate) struct Axis<'i> {
    path: Vec<String>,
    span: std::ops::Range<usize>,
    values: Vec<Value<'i>>,
}

/// A swept value: its path, and its value in this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// The path as in the file, such as `policy.dur_threshold_pct`.
    pub path: String,
    /// The value as written, or its label.
    pub value: String,
}

#[derive(Debug)]
pub(crate) struct Combination<'i> {
    pub(crate) document: DeTable<'i>,
    pub(crate) swept: Vec<Swept>,
}

/// Every combination of the document's `[sweep]`; the document itself if it has none.
pub(crate) fn combinations<'i>(
    reader: &mut Reader<'_>,
    document: &DeTable<'i>,
) -> Option<Vec<Combination<'i>>> {
    let axes = axes(reader, document)?;
    let count = axes.iter().try_fold(1_usize, |product, axis| {
        product
            .checked_mul(axis.values.len())
            .filter(|&product| product <= COMBINATIONS_MAX)
    });
    let Some(count) = count else {
        let offset = axes.first().map_or(0, |axis| axis.span.start);
        let what = format!("the sweep has more than {COMBINATIONS_MAX} combinations");
        reader.fault(offset, what);
        return None;
    };
    (0..count)
        .map(|number| combination(reader, document, &axes, number))
        .collect()
}

/// The combination of that number: its digits are the places in the axes, the last varying fastest.
fn combination<'i>(
    reader: &mut Reader<'_>,
    document: &DeTable<'i>,
    axes: &[Axis<'i>],
    number: usize,
) -> Option<Combination<'i>> {
    let mut document = document.clone();
    let mut swept = Vec::new();
    let mut period = axes.iter().map(|axis| axis.values.len()).product::<usize>();
    for axis in axes {
        period /= axis.values.len();
        let value = &axis.values[number / period % axis.values.len()];
        lay(reader, &mut document, axis, value)?;
        swept.push(Swept {
            path: axis.path.join("."),
            value: shown(reader, value),
        });
    }
    Some(Combination { document, swept })
}

/// A value in results: a text without its quotes, a table as its label or its name and numbers.
fn shown(reader: &Reader<'_>, value: &Value<'_>) -> String {
    let Some(table) = value.get_ref().as_table() else {
        let text = value.get_ref().as_str();
        return text.map_or_else(|| reader.shown(value.span()), str::to_owned);
    };
    if let Some(label) = table.get(LABEL) {
        return shown(reader, label);
    }
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter().map(|(key, value)| {
        let key: &str = key.get_ref();
        let value = shown(reader, value);
        match key {
            "name" | "trace" | "policy" => value,
            _ => format!("{key} {value}"),
        }
    });
    entries.collect::<Vec<_>>().join(", ")
}

fn axes<'i>(reader: &mut Reader<'_>, document: &DeTable<'i>) -> Option<Vec<Axis<'i>>> {
    let mut axes = Vec::new();
    if let Some(sweep) = document.get("sweep") {
        let Some(table) = sweep.get_ref().as_table() else {
            reader.bad(sweep.span(), "sweep", "a table; nearest is [sweep]");
            return None;
        };
        if !collect(reader, table, &[], &mut axes) {
            return None;
        }
    }
    axes.sort_by_key(|axis| axis.span.start);
    Some(axes)
}

/// Adds the axes of a table of sweeps; a dotted key without quotes is a table in a table.
fn collect<'i>(
    reader: &mut Reader<'_>,
    table: &DeTable<'i>,
    above: &[String],
    axes: &mut Vec<Axis<'i>>,
) -> bool {
    let mut is_right = true;
    for (key, value) in table {
        let mut path = above.to_vec();
        path.extend(parts(key.get_ref()));
        match value.get_ref() {
            DeValue::Table(below) => is_right &= collect(reader, below, &path, axes),
            DeValue::Array(values) if !values.is_empty() => axes.push(Axis {
                path,
                span: key.span(),
                values: values.iter().cloned().collect(),
            }),
            _ => {
                let near = reader.shown(value.span());
                let wanted = "a list of the values to try, such as [1, 2.5, 5]; nearest is";
                let wanted = format!("{wanted} [{near}]");
                reader.bad(value.span(), &path.join("."), wanted);
                is_right = false;
            }
        }
    }
    is_right
}

fn parts(path: &str) -> impl Iterator<Item = String> {
    path.split('.').map(|part| part.trim().to_owned())
}

fn lay<'i>(
    reader: &mut Reader<'_>,
    document: &mut DeTable<'i>,
    axis: &Axis<'i>,
    value: &Value<'i>,
) -> Option<()> {
    let path: Vec<&str> = axis.path.iter().map(String::as_str).collect();
    match path[..] {
        ["sweep" | "name", ..] | [WHOLE, _, ..] => {
            let what = format!("{} cannot be swept", axis.path.join("."));
            reader.fault(axis.span.start, what);
            None
        }
        [WHOLE] => lay_file(reader, document, axis, value),
        ["jobs", job] => {
            let table = job_of(reader, document, axis, job)?;
            over(reader, table, axis, value)
        }
        ["jobs", job, key] => {
            put(job_of(reader, document, axis, job)?, key, axis, value);
            Some(())
        }
        ["jobs", job, table, key] => {
            let job = job_of(reader, document, axis, job)?;
            lay_in_job(reader, job, (table, key), axis, value)
        }
        [key] => {
            let values = value.get_ref().as_table();
            if key == "policy" && values.is_some_and(|table| table.contains_key("name")) {
                document.remove(key);
            }
            match (document.get_mut(key).map(Spanned::get_mut), value.get_ref()) {
                (Some(DeValue::Table(table)), _) => return over(reader, table, axis, value),
                (None, DeValue::Table(_)) => {
                    let mut table = DeTable::new();
                    over(reader, &mut table, axis, value)?;
                    let table = Spanned::new(value.span(), DeValue::Table(table));
                    put(document, key, axis, &table);
                }
                _ => put(document, key, axis, value),
            }
            Some(())
        }
        [section, key] => {
            if document.get(section).is_none() {
                let table = Spanned::new(axis.span.clone(), DeValue::Table(DeTable::new()));
                put(document, section, axis, &table);
            }
            // If it is present and not a table, reading the document reports that.
            if let Some(DeValue::Table(table)) = document.get_mut(section).map(Spanned::get_mut) {
                put(table, key, axis, value);
            }
            Some(())
        }
        _ => {
            let what = format!(
                "{} is not a path, such as seconds, policy.name, jobs.be.rate, jobs.be",
                axis.path.join(".")
            );
            reader.fault(axis.span.start, what);
            None
        }
    }
}

fn lay_file<'i>(
    reader: &mut Reader<'_>,
    document: &mut DeTable<'i>,
    axis: &Axis<'i>,
    value: &Value<'i>,
) -> Option<()> {
    let Some(values) = value.get_ref().as_table() else {
        let wanted = "a table of paths, such as { label = \"slow\", \"host.wake_ns\" = 50000 }";
        reader.bad(value.span(), &axis.path.join("."), wanted);
        return None;
    };
    let mut entries: Vec<_> = values.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        if key.get_ref() == LABEL {
            continue;
        }
        let axis = Axis {
            path: parts(key.get_ref()).collect(),
            span: key.span(),
            values: Vec::new(),
        };
        if axis.path.first().is_some_and(|first| first == WHOLE) {
            let what = format!("{WHOLE} cannot be in {WHOLE}");
            reader.fault(axis.span.start, what);
            return None;
        }
        lay(reader, document, &axis, value)?;
    }
    Some(())
}

fn lay_in_job<'i>(
    reader: &mut Reader<'_>,
    job: &mut DeTable<'i>,
    (table, key): (&str, &str),
    axis: &Axis<'i>,
    value: &Value<'i>,
) -> Option<()> {
    let Some(DeValue::Table(table)) = job.get_mut(table).map(Spanned::get_mut) else {
        let path = axis.path.join(".");
        let what = format!("{path}: {table} is not a table, such as {{ {key} = 1 }}");
        reader.fault(axis.span.start, what);
        return None;
    };
    put(table, key, axis, value);
    Some(())
}

fn put<'i>(table: &mut DeTable<'i>, key: &str, axis: &Axis<'i>, value: &Value<'i>) {
    // A present key keeps its place, so it is removed first.
    table.remove(key);
    let key = Spanned::new(axis.span.clone(), Cow::Owned(key.to_owned()));
    table.insert(key, value.clone());
}

fn over<'i>(
    reader: &mut Reader<'_>,
    table: &mut DeTable<'i>,
    axis: &Axis<'i>,
    value: &Value<'i>,
) -> Option<()> {
    let Some(values) = value.get_ref().as_table() else {
        let wanted = "a table, such as { name = \"orion\" }, or the path of one key";
        reader.bad(value.span(), &axis.path.join("."), wanted);
        return None;
    };
    for (key, value) in values {
        if key.get_ref() != LABEL {
            table.remove(&**key.get_ref());
            table.insert(key.clone(), value.clone());
        }
    }
    Some(())
}

fn job_of<'i, 't>(
    reader: &mut Reader<'_>,
    document: &'t mut DeTable<'i>,
    axis: &Axis<'i>,
    job: &str,
) -> Option<&'t mut DeTable<'i>> {
    let mut names = Vec::new();
    if let Some(DeValue::Array(jobs)) = document.get("jobs").map(Spanned::get_ref) {
        for (index, job) in jobs.iter().enumerate() {
            let table = job.get_ref().as_table();
            let name = table.and_then(|table| table.get("name")?.get_ref().as_str());
            names.push(name.map_or_else(|| index.to_string(), str::to_owned));
        }
    }
    let mut called = (0..names.len()).filter(|&number| names[number] == job);
    let first = called.next();
    if let (Some(first), Some(second)) = (first, called.next()) {
        let path = axis.path.join(".");
        let what = format!("{path}: jobs {first} and {second} are both called {job}");
        let near = format!("nearest is `jobs.{first}`");
        reader.fault(axis.span.start, format!("{what}; {near}"));
        return None;
    }
    let number = first.or_else(|| {
        let number = job.parse::<usize>().ok();
        number.filter(|&number| number < names.len())
    });
    let Some(number) = number else {
        let what = format!(
            "{}: no job is called {job}; jobs are {}",
            axis.path.join("."),
            names.join(", ")
        );
        let near = nearest(job, names.iter().map(String::as_str)).map(|name| format!("`{name}`"));
        reader.fault(axis.span.start, what + &or_nearest(near));
        return None;
    };
    match document.get_mut("jobs").map(Spanned::get_mut) {
        Some(DeValue::Array(jobs)) => match jobs.get_mut(number).map(Spanned::get_mut) {
            Some(DeValue::Table(table)) => Some(table),
            _ => None,
        },
        _ => None,
    }
}
